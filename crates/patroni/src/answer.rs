//! Reads what Patroni answers to `GET /cluster`: JSON with an array of members.
//!
//! Owns which roles lead and which states are those of a running server. Whether the members can be hosts is checked where they become ones.

use serde_json::Value;
use settings::Member;

/// Patroni's words for the server that leads: before version 4 `master`, and the first one of a standby cluster.
const LEADERS: [&str; 4] = ["leader", "master", "primary", "standby_leader"];

/// States of servers that can be logged in to, mostly.
const RUNS: [&str; 3] = ["running", "streaming", "in archive recovery"];

/// The members of a cluster. One without a server, which is being made, is none yet.
///
/// # Errors
/// What is wrong with the answer.
pub(crate) fn members(body: &[u8]) -> Result<Vec<Member>, String> {
    let value: Value =
        serde_json::from_slice(body).map_err(|why| format!("the answer is not JSON ({why})"))?;
    let members = value.get("members").and_then(Value::as_array);
    let members = members.ok_or("the answer has no members")?;
    Ok(members.iter().filter_map(member).collect())
}

fn member(value: &Value) -> Option<Member> {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let port = value.get("port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
    let tag = value.get("tags").and_then(|tags| tags.get("noloadbalance"));
    let is_set = |tag: &Value| match tag {
        Value::Bool(is_set) => *is_set,
        Value::String(text) => text.eq_ignore_ascii_case("true"),
        Value::Number(number) => number.as_f64().is_some_and(|number| number != 0.0),
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    };
    Some(Member {
        name: text("name")?.to_owned(),
        host: text("host")?.to_owned(),
        port: port?,
        leads: text("role").is_some_and(|role| LEADERS.contains(&role)),
        runs: text("state").is_some_and(|state| RUNS.contains(&state)),
        takes_reads: !tag.is_some_and(is_set),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_as_patroni_writes_them() {
        let body = br#"{"members": [
            {"name": "a", "role": "leader", "state": "running", "api_url": "http://10.0.0.1:8008/patroni", "host": "10.0.0.1",
             "port": 5432, "timeline": 3},
            {"name": "b", "role": "sync_standby", "state": "streaming", "host": "10.0.0.2", "port": 5433, "timeline": 3,
             "tags": {"noloadbalance": true}, "lag": 0},
            {"name": "c", "role": "replica", "state": "stopped", "host": "10.0.0.3", "port": 5432, "lag": "unknown"},
            {"name": "d", "role": "replica", "state": "creating replica"}
        ], "scope": "demo"}"#;
        let found = members(body).expect("Patroni's own");
        let flags: Vec<_> =
            found.iter().map(|one| (one.label(), one.leads, one.runs, one.takes_reads)).collect();
        let expected = [
            ("10.0.0.1:5432".to_owned(), true, true, true),
            ("10.0.0.2:5433".to_owned(), false, true, false),
            ("10.0.0.3:5432".to_owned(), false, false, true),
        ];
        assert_eq!(flags, expected);
    }

    #[test]
    fn what_is_no_answer_of_patronis_is_named() {
        for (body, why) in [
            (&b"<html>"[..], "the answer is not JSON"),
            (b"{}", "the answer has no members"),
            (b"{\"members\": 1}", "the answer has no members"),
            (b"[]", "the answer has no members"),
            (b"\xff", "the answer is not JSON"),
        ] {
            assert!(members(body).is_err_and(|found| found.starts_with(why)), "{why}");
        }
        let odd = br#"{"members": [1, {"name": 1}, {"name": "a", "host": "h", "port": 70000}, {"name": "a", "host": "h", "port": -1}]}"#;
        assert_eq!(members(odd), Ok(Vec::new()));
        let deep = "[".repeat(100_000);
        assert!(members(deep.as_bytes()).is_err());
    }
}
