//! sysbench's complaints: lines of `FATAL:` and `ALERT:`, equal ones in a row said once with their number.

use crate::generator::timed::ErrorLines;

const REPEATED: &str = "(last message repeated ";
const NO_CONNECTION: &str = "Connection to database failed:";

/// The complaints in what sysbench said.
pub(super) fn find(said: &str) -> ErrorLines {
    let mut found = ErrorLines::default();
    let mut last = String::new();
    for line in said.lines().filter(|line| !line.is_empty()) {
        if let Some(times) = line.strip_prefix(REPEATED).and_then(|rest| rest.split(' ').next()?.parse().ok())
        {
            count(&mut found, &last, times);
        } else if line.starts_with("FATAL: ") || line.starts_with("ALERT: ") || line.starts_with("ERROR: ") {
            last = line.to_owned();
            count(&mut found, line, 1);
        }
    }
    found
}

fn count(found: &mut ErrorLines, line: &str, times: u64) {
    if line.contains(NO_CONNECTION) {
        found.refused = found.refused.saturating_add(u32::try_from(times).unwrap_or(u32::MAX));
    }
    // The server's own words, where a line has them.
    let from = ["FATAL:  ", "ERROR:  "].iter().find_map(|sign| line.find(sign)).unwrap_or(0);
    // What follows from the first line, for each client.
    if !line.contains("function failed: ") || line.contains("SQL error") {
        found.add(&line[from..], times);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_with_their_repetitions() {
        let said = "\
Initializing worker threads...
FATAL: Connection to database failed: connection to server at \"127.0.0.1\", port 5999 failed: FATAL:  sorry, too many clients already

FATAL: `thread_init' function failed: /usr/share/sysbench/oltp_common.lua:349: connection creation failed
FATAL: Connection to database failed: connection to server at \"127.0.0.1\", port 5999 failed: FATAL:  sorry, too many clients already

(last message repeated 2 times)
FATAL: Thread initialization failed!
";
        let found = find(said);
        assert_eq!(found.refused, 4);
        assert_eq!(found.errors.get("FATAL:  sorry, too many clients already"), Some(&4));
        assert_eq!(found.errors.get("FATAL: Thread initialization failed!"), Some(&1));
        assert_eq!(found.errors.len(), 2);
    }

    #[test]
    fn a_good_run_has_none() {
        assert!(find("Threads started!\n[ 1s ] thds: 2 tps: 1\n").errors.is_empty());
    }
}
