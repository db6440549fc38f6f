//! The complaints of a plan, one line for each transaction that failed: `CLIENT words`. A client without a connection
//! complains each time that it tries.

use std::collections::BTreeSet;

use crate::generator::timed::ErrorLines;

/// What the plan says when JMeter's pool of connections gets none.
const NO_CONNECTION: &str = "no connection";

/// The complaints in what the plan wrote; what JMeter itself says is no complaint of a transaction.
pub(super) fn find(said: &str) -> ErrorLines {
    let mut found = ErrorLines::default();
    let mut refused = BTreeSet::new();
    for line in said.lines() {
        let Some((client, words)) = line.split_once(' ') else { continue };
        let Ok(client) = client.parse::<u32>() else {
            if line.starts_with("Error in NonGUIDriver") || line.starts_with("An error occurred:") {
                found.add(line, 1);
            }
            continue;
        };
        if words.starts_with(NO_CONNECTION) {
            refused.insert(client);
        }
        let from = ["FATAL: ", "ERROR: ", "PANIC: "].iter().find_map(|sign| words.find(sign)).unwrap_or(0);
        found.add(&words[from..], 1);
    }
    found.refused = u32::try_from(refused.len()).unwrap_or(u32::MAX);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_refused_once_however_often_it_tries() {
        let said = "\
Creating summariser <summary>
3 no connection: FATAL: sorry, too many clients already
3 no connection: FATAL: sorry, too many clients already
4 org.postgresql.util.PSQLException: ERROR: division by zero
";
        let found = find(said);
        assert_eq!(found.refused, 1);
        assert_eq!(found.errors.get("FATAL: sorry, too many clients already"), Some(&2));
        assert_eq!(found.errors.get("ERROR: division by zero"), Some(&1));
        assert_eq!(found.errors.len(), 2);
    }
}
