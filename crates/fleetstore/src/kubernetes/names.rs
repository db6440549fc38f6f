//! Names of Kubernetes: what Leases and ConfigMaps of a fleet are called.
//!
//! Owns that each node and each object has a name of its own, which is a DNS subdomain (RFC 1123) of 253 characters at most. The full name is beside it in an annotation.

use fleet::ObjectName;
use sha2::{Digest, Sha256};

/// The longest name of a Lease or ConfigMap.
const MAX_BYTES: usize = 253;

/// The name of a Lease or ConfigMap: the fleet's, and behind a dot each part, escaped. Where it is too long, a hash stands for the parts behind the first.
pub(crate) fn name(fleet: &str, parts: &[String]) -> String {
    let escaped: Vec<String> = parts.iter().map(|part| escape(part)).collect();
    let whole = [&[fleet.to_owned()], &*escaped].concat().join(".");
    if whole.len() <= MAX_BYTES {
        return whole;
    }
    let mut hash = Sha256::new();
    hash.update(annotation(parts).as_bytes());
    let digest: String = hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    // `xz` is no escape.
    match escaped.first().filter(|first| first.len() <= MAX_BYTES / 2) {
        Some(first) => format!("{fleet}.{first}.xz{digest}"),
        None => format!("{fleet}.xz{digest}"),
    }
}

/// The parts as an annotation has them: JSON.
pub(crate) fn annotation(parts: &[String]) -> String {
    serde_json::Value::from(parts.to_vec()).to_string()
}

/// The parts of an annotation, if it is one.
pub(crate) fn read_annotation(text: &str) -> Option<ObjectName> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    let parts = value.as_array()?.iter().map(|part| part.as_str().map(str::to_owned));
    parts.collect::<Option<_>>().map(ObjectName)
}

/// Lower-case letters but for `x`, digits, and hyphens inside stand for themselves, any other byte is `xHH`, and an empty part is `x`: of two texts none have the same.
fn escape(text: &str) -> String {
    let (bytes, mut out) = (text.as_bytes(), String::new());
    for (place, byte) in bytes.iter().enumerate() {
        let is_inside = place > 0 && place + 1 < bytes.len();
        match byte {
            b'a'..=b'w' | b'y' | b'z' | b'0'..=b'9' => out.push(char::from(*byte)),
            b'-' if is_inside => out.push('-'),
            byte => out.push_str(&format!("x{byte:02x}")),
        }
    }
    if out.is_empty() { "x".to_owned() } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(parts: &[&str]) -> Vec<String> {
        parts.iter().map(|part| (*part).to_owned()).collect()
    }

    fn is_subdomain(name: &str) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_label = |label: &str| {
            let ends = [label.bytes().next(), label.bytes().last()];
            ends.iter().all(|end| end.is_some_and(is_plain))
                && label.bytes().all(|byte| is_plain(byte) || byte == b'-')
        };
        name.len() <= MAX_BYTES && name.split('.').all(is_label)
    }

    #[test]
    fn any_name_is_one_of_its_own() {
        let long = "d".repeat(300);
        let longer = "d".repeat(301);
        let mut seen = std::collections::BTreeSet::new();
        for case in [
            &[][..],
            &[""],
            &["", ""],
            &["x"],
            &["x78"],
            &["a.b"],
            &["a", "b"],
            &["A"],
            &["a"],
            &["-a-b-"],
            &["é\0\n%/"],
            &["slots", "pool", "shop", "app user"],
            &["slots", &long, "u"],
            &["slots", &longer, "u"],
            &["slots", &long, "v"],
            &[&long],
            &["xz"],
        ] {
            let name = name("weir", &parts(case));
            assert!(is_subdomain(&name), "{case:?}: {name}");
            assert_eq!(read_annotation(&annotation(&parts(case))), Some(ObjectName(parts(case))));
            assert!(seen.insert(name), "{case:?}");
        }
        assert_eq!(name("weir", &parts(&["slots", "my-db", "Al"])), "weir.slots.my-db.x41l");
        assert!(name("weir", &parts(&["slots", &long])).starts_with("weir.slots.xz"));
    }

    #[test]
    fn what_is_no_annotation_is_none() {
        for text in ["", "x", "{}", "[1]", "[\"a\", null]"] {
            assert_eq!(read_annotation(text), None, "{text}");
        }
    }
}
