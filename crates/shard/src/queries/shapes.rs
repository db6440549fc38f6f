//! The kinds of queries that clients hold: each text once, however many clients have prepared it.
//!
//! Owns making fingerprints. A kind that no client holds any more is dropped.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use sql::Fingerprint;
use telemetry::queries::QueryFingerprint;

/// Dead ones are swept out when there are twice as many as were alive the last time, and this many more.
const SLACK: usize = 1_000;

/// A text of this length may have been cut before it came here.
const MOST_BYTES: usize = 8 * 1024 - 512;

#[derive(Default)]
pub(crate) struct Shapes {
    known: BTreeMap<u64, Weak<QueryFingerprint>>,
    alive: usize,
}

impl Shapes {
    /// The kind of this statement.
    pub(crate) fn of(&mut self, sql: &[u8]) -> Arc<QueryFingerprint> {
        let Fingerprint { number, text } = Fingerprint::of(sql);
        if let Some(shape) = self.known.get(&number).and_then(Weak::upgrade) {
            return shape;
        }
        if self.known.len() > 2 * self.alive + SLACK {
            self.known.retain(|_, shape| shape.strong_count() > 0);
            self.alive = self.known.len();
        }
        let parameterized =
            sql::parameterized(&String::from_utf8_lossy(sql)).filter(|_| sql.len() < MOST_BYTES);
        let shape = Arc::new(QueryFingerprint { number, text, parameterized });
        self.known.insert(number, Arc::downgrade(&shape));
        shape
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_without_a_client_are_dropped() {
        let mut shapes = Shapes::default();
        let held = shapes.of(b"select 1");
        assert!(Arc::ptr_eq(&held, &shapes.of(b"SELECT 2")));
        for number in 0..10 * SLACK {
            shapes.of(format!("select a{number}").as_bytes());
        }
        assert!(shapes.known.len() <= SLACK + 3, "{}", shapes.known.len());
        assert!(Arc::ptr_eq(&held, &shapes.of(b"select 3")));
    }
}
