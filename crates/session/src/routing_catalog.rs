//! What a database's catalog says about where a text may run (`sql::RoutingNames`): which functions only read, and what a hot standby must not be asked for.
//!
//! Owns the query, for PostgreSQL 14 to 18 and any role, on a primary or a standby, and reading its answer. What is built in is the `sql` crate's to know.
//!
//! The names that count: views that use volatile functions, or those that answer otherwise on each server, directly or through views and functions; tables with such
//! policies; unlogged and foreign tables and the parents of such partitions; sequences; temporary tables; domains with such checks; types that such casts make;
//! functions that are volatile or whose code, where it can be read, names any of these. Functions in other languages are what they are declared.

use sql::RoutingNames;
use sql::routing::built_in::{PRIMARY_ONLY, REPLICATED};

use crate::internal_result::Row;

/// What the names of one kind, with a comma each, take in the answer at most, in bytes.
const MAX_BYTES: usize = 160_000;

/// The same for the names of functions that only read.
const MAX_READER_BYTES: usize = 60_000;

/// What precedes the hexadecimal digits of a name that has other bytes than ASCII letters, digits and `_`.
const HEX: &[u8] = b"=";

/// With more names that a standby must not be asked for than [`MAX_BYTES`] nothing is known.
const TOO_MANY: &[u8] = b"too many ";

/// Precedes [`query`] in its transaction: with JIT, compiling it takes much longer than running it.
pub const BEFORE_QUERY: &str = "SET LOCAL jit = off; SET LOCAL lock_timeout = '100ms'";

/// The query. It takes no locks but on the catalog: rules, policies and functions are read as they are stored.
#[must_use]
pub fn query() -> String {
    let array =
        |list: &str| format!("'{{{}}}'::pg_catalog.text[]", list.lines().collect::<Vec<_>>().join(","));
    let is_sql = |line: &&str| !line.trim_start().starts_with("--");
    let text: Vec<&str> = include_str!("routing_catalog.sql").lines().filter(is_sql).map(str::trim).collect();
    text.join(" ")
        .replace("{PRIMARY_ONLY}", &array(PRIMARY_ONLY))
        .replace("{REPLICATED}", &array(REPLICATED))
        .replace("{BYTES}", &MAX_BYTES.to_string())
        .replace("{READER_BYTES}", &MAX_READER_BYTES.to_string())
}

/// Reads the answer to [`query`]. Nothing is known if it is not whole, if there are too many names, or if there is what no text shows.
#[must_use]
pub fn read(rows: &[Row]) -> RoutingNames {
    names(rows).unwrap_or_else(RoutingNames::unknown)
}

fn names(rows: &[Row]) -> Option<RoutingNames> {
    let (mut readers, mut primary_only, mut operators) = (Vec::new(), Vec::new(), Vec::new());
    let mut is_whole = false;
    for row in rows {
        let [Some(kind), Some(list)] = row.as_slice() else { return None };
        let found = match kind.as_slice() {
            b"r" => &mut readers,
            b"p" => &mut primary_only,
            b"o" => &mut operators,
            b"end" => {
                is_whole = true;
                continue;
            }
            // Without them, a call of any is no read.
            kind if kind.strip_prefix(TOO_MANY) == Some(b"r") => continue,
            _ => return None,
        };
        found.extend(decoded(list)?);
    }
    is_whole.then(|| RoutingNames::new(readers, primary_only, operators))
}

/// Names with commas between.
fn decoded(list: &[u8]) -> Option<Vec<String>> {
    let name = |name: &[u8]| {
        let bytes = match name.strip_prefix(HEX) {
            Some(digits) => crate::reported::from_hex(digits)?,
            None => name.to_vec(),
        };
        String::from_utf8(bytes).ok().filter(|name| !name.is_empty())
    };
    list.split(|byte| *byte == b',').map(name).collect()
}

#[cfg(test)]
mod tests {
    use sql::{Routing, routing};

    use super::*;

    fn row(kind: &str, names: &[&str]) -> Row {
        let digits = |name: &str| name.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
        let is_plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let sent =
            |name: &&str| if is_plain(name) { (*name).to_owned() } else { format!("={}", digits(name)) };
        let list = names.iter().map(sent).collect::<Vec<_>>().join(",");
        vec![Some(kind.as_bytes().to_vec()), Some(list.into_bytes())]
    }

    #[test]
    fn names_of_each_kind_are_read() {
        let rows = [
            row("r", &["mine", "Über"]),
            row("p", &["odd name", "live"]),
            row("p", &["other"]),
            row("o", &["+!"]),
            row("end", &[]),
        ];
        let names = read(&rows);
        assert_eq!((names.len(), names.is_unknown()), (6, false));
        for (text, expected) in [
            ("select mine(1), \"Über\"(2)", Routing::Read),
            ("select * from \"Odd Name\"", Routing::Write),
            ("select * from live", Routing::Write),
            ("select * from other", Routing::Write),
            ("select a +! b", Routing::Write),
            ("select foreign_one()", Routing::Write),
        ] {
            assert_eq!(routing(text.as_bytes(), &names), expected, "{text}");
        }
    }

    #[test]
    fn an_answer_that_is_not_whole_leaves_nothing_known() {
        let end = || row("end", &[]);
        for rows in [
            vec![],
            vec![row("p", &["a"])],
            vec![row("a", &[""]), end()],
            vec![row("too many p", &[""]), end()],
            vec![row("too many o", &[""]), end()],
            vec![row("x", &["a"]), end()],
            vec![row("p", &[""]), end()],
            vec![vec![Some(b"p".to_vec()), None], end()],
            vec![vec![Some(b"p".to_vec()), Some(b"=6g".to_vec())], end()],
            vec![vec![Some(b"p".to_vec()), Some(b"=ff".to_vec())], end()],
            vec![vec![Some(b"p".to_vec())], end()],
        ] {
            assert!(read(&rows).is_unknown(), "{rows:?}");
        }
        let names = read(&[row("too many r", &[""]), row("p", &["a"]), end()]);
        assert!(!names.is_unknown() && names.len() == 1);
        assert!(read(&[end()]).is_empty());
    }

    #[test]
    fn the_query_has_no_name_or_operator_that_search_path_decides() {
        let query = query().replace("pg_catalog.", "@");
        for placeholder in ["{PRIMARY_ONLY}", "{REPLICATED}", "{BYTES}", "{READER_BYTES}"] {
            assert!(!query.contains(placeholder), "{placeholder}");
        }
        for operator in [" = ", " <> ", " < ", " > ", " >= ", " ~ ", " || ", " + ", " ^@ "] {
            assert!(!query.contains(operator), "{operator}");
        }
        // Nor a string that settings read in two ways.
        assert!(!query.contains('\\'));
        // Nor an operator that other words stand for.
        for (at, _) in query.match_indices("CASE ") {
            assert!(query[at..].starts_with("CASE WHEN "), "{}", &query[at..at + 20]);
        }
        for word in [" IN ", " LIKE ", " BETWEEN ", " USING ", "DISTINCT FROM", "NULLIF"] {
            assert!(!query.contains(word), "{word}");
        }
        for begin in ["FROM pg_", "JOIN pg_", "::text", "::oid", "::regclass", " lower(", "(lower("] {
            assert!(!query.contains(begin), "{begin}");
        }
    }
}
