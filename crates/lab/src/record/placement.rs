//! Where the requests of a run went, of a pooler that sends reads to standbys: what the pooler says when the run is over, as a raw file
//! and as figures. Never judges the share.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// The requests of a run, of the pooler's whole life: warm-up included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// All of them.
    pub queries: u64,
    /// Those that were sent to standbys, by host and port.
    pub reads: BTreeMap<String, u64>,
}

impl Placement {
    /// The part of the requests that standbys have served.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        let reads: u64 = self.reads.values().sum();
        (self.queries > 0).then(|| (reads as f64 / self.queries as f64).min(1.0))
    }

    /// As the raw file has it.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("queries {}\n", self.queries);
        for (host, reads) in &self.reads {
            let _ = writeln!(text, "{host} {reads}");
        }
        text
    }

    /// The inverse; `None` for what is none.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let queries = lines.next()?.strip_prefix("queries ")?.parse().ok()?;
        let host = |line: &str| {
            let (host, reads) = line.rsplit_once(' ')?;
            Some((host.to_owned(), reads.parse().ok()?))
        };
        Some(Self { queries, reads: lines.map(host).collect::<Option<_>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let reads = [("a:1".to_owned(), 30), ("b c:2".to_owned(), 60)].into();
        let placement = Placement { queries: 100, reads };
        assert_eq!(Placement::read(&placement.text()).as_ref(), Some(&placement));
        assert_eq!(placement.share(), Some(0.9));
        assert_eq!(Placement::default().share(), None);
        for wrong in ["", "queries x\n", "queries 1\na\n", "queries 1\na:1 x\n"] {
            assert_eq!(Placement::read(wrong), None, "{wrong}");
        }
    }
}
