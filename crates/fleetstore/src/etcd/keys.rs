//! Keys: where nodes and objects are below the prefix.
//!
//! `PREFIX/nodes/ID`, and `PREFIX/objects/PART/PART…` with each part percent-encoded. Each name has one key, and a key that is not its name's is no key of the fleet.

use fleet::{NodeId, ObjectName};

use settings::percent_decode;

/// The keys of one fleet.
pub(crate) struct Keys {
    prefix: String,
}

/// What a key is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Node(NodeId),
    Object(ObjectName),
    /// Of no fleet.
    Foreign,
}

impl Keys {
    /// Below this prefix, which does not end with `/`.
    pub(crate) fn new(prefix: &str) -> Keys {
        Keys { prefix: prefix.to_owned() }
    }

    /// All keys of the fleet: the first, and the first behind.
    pub(crate) fn range(&self) -> (Vec<u8>, Vec<u8>) {
        // `0` comes next to `/`.
        (format!("{}/", self.prefix).into_bytes(), format!("{}0", self.prefix).into_bytes())
    }

    pub(crate) fn node(&self, id: &str) -> Vec<u8> {
        format!("{}/nodes/{id}", self.prefix).into_bytes()
    }

    pub(crate) fn object(&self, name: &ObjectName) -> Vec<u8> {
        let mut key = format!("{}/objects", self.prefix);
        for part in &name.0 {
            key.push('/');
            encode(part, &mut key);
        }
        key.into_bytes()
    }

    pub(crate) fn read(&self, key: &[u8]) -> Key {
        let text = std::str::from_utf8(key).ok().and_then(|text| text.strip_prefix(self.prefix.as_str()));
        if let Some(id) = text.and_then(|text| text.strip_prefix("/nodes/"))
            && !id.is_empty()
            && id.bytes().all(is_plain)
        {
            return Key::Node(id.into());
        }
        let parts = match text.and_then(|text| text.strip_prefix("/objects")) {
            Some("") => Some(Vec::new()),
            Some(parts) => {
                parts.strip_prefix('/').and_then(|parts| parts.split('/').map(percent_decode).collect())
            }
            None => None,
        };
        match parts.map(ObjectName).filter(|name| self.object(name) == key) {
            Some(name) => Key::Object(name),
            None => Key::Foreign,
        }
    }
}

/// Letters of a node's id, which are not encoded.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._".contains(&byte)
}

fn encode(text: &str, into: &mut String) {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    let digit = |nibble: u8| DIGITS.get(usize::from(nibble)).copied().unwrap_or_default();
    for byte in text.bytes() {
        match is_plain(byte) {
            true => into.push(char::from(byte)),
            false => into.extend(['%', digit(byte >> 4), digit(byte & 15)]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(parts: &[&str]) -> ObjectName {
        ObjectName(parts.iter().map(|part| (*part).to_owned()).collect())
    }

    #[test]
    fn any_name_has_a_key_of_its_own() {
        let keys = Keys::new("/weir");
        let mut seen = std::collections::BTreeSet::new();
        for parts in [
            &[][..],
            &[""],
            &["", ""],
            &["slots", "pool", "a/b", "user@x y"],
            &["slots", "pool", "a", "b", "user@x y"],
            &["%41"],
            &["A"],
            &["é\0\n%"],
            &[".."],
        ] {
            let (name, key) = (name(parts), keys.object(&name(parts)));
            assert_eq!(keys.read(&key), Key::Object(name));
            assert!(key.is_ascii() && seen.insert(key), "{parts:?}");
        }
        assert_eq!(keys.object(&name(&["a/b", "ü"])), b"/weir/objects/a%2Fb/%C3%BC");
    }

    #[test]
    fn what_is_no_key_of_the_fleet_is_foreign() {
        let keys = Keys::new("/weir");
        assert_eq!(keys.read(b"/weir/nodes/a.b_c-1"), Key::Node("a.b_c-1".into()));
        for key in [
            &b"/weir/nodes/"[..],
            b"/weir/nodes/a/b",
            b"/weir/nodes/a%20",
            b"/weir/objectsx",
            b"/weir/objects/a%2fb",
            b"/weir/objects/%41",
            b"/weir/objects/a b",
            b"/weir/objects/%C3",
            b"/weir/objects/%",
            b"/weir/\xff",
            b"/weir/",
            b"/other/objects/a",
        ] {
            assert_eq!(keys.read(key), Key::Foreign, "{}", String::from_utf8_lossy(key));
        }
    }

    #[test]
    fn the_range_ends_with_the_prefix() {
        let (first, behind) = Keys::new("/weir").range();
        let is_inside = |key: &[u8]| key >= &*first && key < &*behind;
        assert!(is_inside(b"/weir/nodes/a") && is_inside(b"/weir/\xff"));
        assert!(!is_inside(b"/weir0") && !is_inside(b"/weir-other/nodes/a") && !is_inside(b"/weirs/a"));
    }
}
