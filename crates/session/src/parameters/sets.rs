//! The SET that gives a server a client's value, whatever encoding and quoting the server is left with.
//!
//! Owns all escaping of values that Weir sends. Which values differ is [`super::Parameters`]'.

use super::bit;
use crate::reported::{self, push_hex};

/// Lists of names: SET takes one string for one name, so that a whole list has to go through set_config().
const LISTS: [&str; 3] = ["search_path", "temp_tablespaces", "local_preload_libraries"];

/// Where a SET of Weir's is run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Outside,
    /// In a client's transaction block; `local` are the parameters (bits by position) that are set for it alone.
    Block {
        local: u64,
    },
}

/// Appends one SET. All SETs that Weir makes are escaped here and nowhere else. What a server takes for text depends on the
/// client_encoding and standard_conforming_strings that its last client left: only ASCII without a backslash reads the same under
/// all of them, so that any other value is sent in hexadecimal, in UTF-8 or in the encoding that it was reported in.
/// set_config() returns the value in a row: if client_encoding cannot express it, the statement fails and nothing is set. A report
/// that fails for this reason is repeated by PostgreSQL without end.
pub(super) fn push_set(sets: &mut String, name: &str, value: &str, position: usize, place: Place) {
    let encoded = reported::encoded(value);
    let is_list = LISTS.iter().any(|list| list.eq_ignore_ascii_case(name));
    let (is_local, in_block) = match place {
        Place::Outside => (false, false),
        Place::Block { local } => (local & bit(position) != 0, true),
    };
    // A SELECT takes a snapshot, behind which the client could not choose its isolation level any more.
    let items = match (is_list, in_block) {
        _ if encoded.is_some() || !value.is_ascii() => None,
        (false, true) => Some(vec![value.to_owned()]),
        (true, true) => list_items(value),
        (false, false) => is_plain(value).then(|| vec![value.to_owned()]),
        (true, false) => None,
    };
    if let Some(items) = items {
        sets.extend([if is_local { "SET LOCAL " } else { "SET " }, name, "="]);
        for (index, item) in items.iter().enumerate() {
            sets.push_str(if index > 0 { "," } else { "" });
            push_literal(sets, item);
        }
        sets.push(';');
        return;
    }
    sets.extend(["SELECT pg_catalog.set_config('", name, "',"]);
    if encoded.is_none() && is_plain(value) {
        push_quoted(sets, value);
    } else {
        sets.push_str("pg_catalog.convert_from(pg_catalog.decode('");
        match encoded {
            Some((_, digits)) => sets.push_str(digits),
            None => push_hex(sets, value.as_bytes()),
        }
        sets.extend(["','hex'),'", encoded.map_or("UTF8", |(encoding, _)| encoding), "')"]);
    }
    sets.push_str(if is_local { ",true);" } else { ",false);" });
}

/// The statements of a string of SETs that Weir has made: quotes are doubled in it, and there is no backslash in them.
pub(super) fn statements(sets: &str) -> impl Iterator<Item = &str> {
    let mut quote = None;
    let ends = move |byte: char| {
        match quote {
            None if matches!(byte, '\'' | '"') => quote = Some(byte),
            Some(open) if open == byte => quote = None,
            _ => {}
        }
        quote.is_none() && byte == ';'
    };
    sets.split(ends).filter(|statement| !statement.is_empty())
}

/// It reads the same under every client_encoding and standard_conforming_strings.
fn is_plain(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii() && byte != b'\\')
}

/// The names in a list, as SET takes each for a string; None where PostgreSQL may read one otherwise. (SplitIdentifierString: names
/// without quotes are read in lower case.)
fn list_items(value: &str) -> Option<Vec<String>> {
    let (mut items, mut rest) = (Vec::new(), value.trim_ascii());
    if rest.is_empty() {
        return Some(vec![String::new()]);
    }
    loop {
        let (item, behind) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_name(quoted)?,
            None => {
                let end =
                    rest.find(|byte: char| byte == ',' || byte.is_ascii_whitespace()).unwrap_or(rest.len());
                let (name, behind) = rest.split_at(end);
                let is_name =
                    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"');
                (is_name.then(|| name.to_ascii_lowercase())?, behind)
            }
        };
        items.push(item);
        rest = match behind.trim_ascii_start() {
            "" => return Some(items),
            behind => behind.strip_prefix(',')?.trim_ascii_start(),
        };
    }
}

/// A name up to its closing quote, and what is behind that.
fn quoted_name(mut rest: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    loop {
        let (part, behind) = rest.split_once('"')?;
        name.push_str(part);
        match behind.strip_prefix('"') {
            Some(behind) => {
                name.push('"');
                rest = behind;
            }
            None => return Some((name, behind)),
        }
    }
}

/// ASCII as a string that reads the same under every client_encoding and standard_conforming_strings.
fn push_literal(sets: &mut String, value: &str) {
    if is_plain(value) {
        return push_quoted(sets, value);
    }
    sets.push_str("E'");
    sets.push_str(&value.replace('\\', "\\\\").replace('\'', "''"));
    sets.push('\'');
}

fn push_quoted(sets: &mut String, value: &str) {
    sets.push('\'');
    for character in value.chars() {
        match character {
            '\'' => sets.push_str("''"),
            other => sets.push(other),
        }
    }
    sets.push('\'');
}
