//! Which subjects of a fair queue get more than others: names and weights, with commas between them.

use std::fmt;

use crate::codec::bounded;
use crate::value::{BadValue, Codec, ValueKind};

/// The heaviest.
const MOST: u32 = 1_000;

/// Weights of subjects by their names; whoever is not named has 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueWeights(Vec<(String, u32)>);

impl QueueWeights {
    /// That of a subject.
    #[must_use]
    pub fn of(&self, subject: &str) -> u32 {
        self.0.iter().find(|(name, _)| name == subject).map_or(1, |(_, weight)| *weight)
    }
}

impl fmt::Display for QueueWeights {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (name, weight)) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(out, "{comma}{name}={weight}")?;
        }
        Ok(())
    }
}

impl Codec for QueueWeights {
    type Value = QueueWeights;
    const KIND: ValueKind = ValueKind::List;
    fn read(text: &str) -> Result<QueueWeights, BadValue> {
        let mut weights: Vec<(String, u32)> = Vec::new();
        for pair in text.split(',').map(str::trim).filter(|_| !text.trim().is_empty()) {
            let (name, weight) = pair.rsplit_once('=').ok_or(BadValue::NotWeights("no `name=weight`"))?;
            let (name, weight) = (name.trim(), bounded(weight.trim(), 1, MOST)?);
            if name.is_empty() {
                return Err(BadValue::NotWeights("a weight without a name"));
            }
            if weights.iter().any(|(known, _)| known == name) {
                return Err(BadValue::NotWeights("a name stands there twice"));
            }
            weights.push((name.to_owned(), weight));
        }
        Ok(QueueWeights(weights))
    }
    fn show(value: &QueueWeights) -> Option<String> {
        Some(value.to_string())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_have_weights() {
        let weights = QueueWeights::read(" alice=3, 10.0.0.1=2,fe80::1 = 1000,a=b=7").unwrap();
        let of = |name| weights.of(name);
        assert_eq!([of("alice"), of("10.0.0.1"), of("fe80::1"), of("a=b"), of("x")], [3, 2, 1000, 7, 1]);
        assert_eq!(weights.to_string(), "alice=3,10.0.0.1=2,fe80::1=1000,a=b=7");
        assert_eq!(QueueWeights::read(""), Ok(QueueWeights::default()));
        for text in ["alice", "alice=0", "alice=1001", "alice=-1", "=1", "a=1,a=2", "a=1,", "a=1.5"] {
            assert!(QueueWeights::read(text).is_err(), "{text}");
        }
    }
}
