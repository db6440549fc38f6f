//! A node's record as a store keeps it: a JSON object. Members that are not known are ignored, and all but `session` may be absent: another version may have others.

use fleet::{NodeRecord, PoolsInUse, SessionId};
use serde_json::{Value, json};

pub(crate) fn write(record: &NodeRecord) -> Vec<u8> {
    let value = json!({
        "session": format!("{:016x}", record.session.0),
        "address": record.address,
        "version": record.version,
        "started_s": record.started_s,
        "clients": record.clients,
        "servers": record.servers,
        "is_draining": record.is_draining,
        "pools": record.pools.revision,
        "pools_paused": record.pools.paused,
        "pools_resumed": record.pools.resumed,
        "uses_no_pools": record.pools.uses_none,
        "pools_refused": record.pools.refused,
    });
    value.to_string().into_bytes()
}

/// None of what is no record.
pub(crate) fn read(bytes: &[u8]) -> Option<NodeRecord> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let number = |name: &str| value.get(name).and_then(Value::as_u64).unwrap_or_default();
    let count = |name: &str| u32::try_from(number(name)).unwrap_or(u32::MAX);
    let session = value.get("session").and_then(Value::as_str)?;
    if session.len() != 16 || !session.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    Some(NodeRecord {
        session: SessionId(u64::from_str_radix(session, 16).ok()?),
        address: text("address"),
        version: text("version"),
        started_s: number("started_s"),
        clients: count("clients"),
        servers: count("servers"),
        is_draining: value.get("is_draining").and_then(Value::as_bool).unwrap_or_default(),
        pools: PoolsInUse {
            revision: number("pools"),
            paused: number("pools_paused"),
            resumed: value.get("pools_resumed").and_then(Value::as_array).map_or_else(Vec::new, |names| {
                names.iter().map(|name| name.as_str().map(str::to_owned)).collect()
            }),
            uses_none: value.get("uses_no_pools").and_then(Value::as_bool).unwrap_or_default(),
            refused: text("pools_refused"),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let record = NodeRecord {
            session: SessionId(0xfedc_ba98_7654_3210),
            address: "h:1".to_owned(),
            version: "1\"2".to_owned(),
            started_s: u64::MAX,
            clients: 3,
            servers: u32::MAX,
            is_draining: true,
            pools: PoolsInUse {
                revision: 7,
                paused: 6,
                resumed: vec![None, Some("app".to_owned())],
                uses_none: true,
                refused: "a \"b\"".to_owned(),
            },
        };
        assert_eq!(read(&write(&record)), Some(record));
    }

    #[test]
    fn another_versions_record_is_read_as_far_as_it_is_known() {
        let record = read(br#"{"session": "00000000000000ff", "new": [1], "clients": 5000000000}"#);
        let record = record.expect("a record");
        assert_eq!((record.session, record.clients, record.is_draining), (SessionId(255), u32::MAX, false));
    }

    #[test]
    fn what_is_no_record_is_none() {
        for bytes in [
            &b""[..],
            b"{}",
            b"[]",
            b"\xff",
            br#"{"session": 1}"#,
            br#"{"session": "ff"}"#,
            br#"{"session": "+0000000000000ff"}"#,
        ] {
            assert_eq!(read(bytes), None, "{}", String::from_utf8_lossy(bytes));
        }
    }
}
