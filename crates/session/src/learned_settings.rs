//! What a session holds after settings were made that stand in their statements: as it did the last time, with the same settings before.
//!
//! Owns what was learned from PostgreSQL's answers, and that it stays small. What counts as such a statement is the `sql` crate's.

use std::collections::HashMap;

use crate::Parameters;

/// How many transcripts are remembered; one more, and all are forgotten.
const MOST: usize = 256;
/// How many different settings before each.
const MOST_BEFORE: usize = 8;

/// What was learned in one pool.
#[derive(Debug, Default)]
pub struct LearnedSettings {
    after: HashMap<Box<[u8]>, Vec<(Parameters, Parameters)>>,
}

impl LearnedSettings {
    /// The settings after these statements, on a session with `before`.
    pub(crate) fn find(
        &self,
        transcript: &[u8],
        before: &Parameters,
        default_params: &Parameters,
    ) -> Option<&Parameters> {
        let known = self.after.get(transcript)?;
        known.iter().find(|(known, _)| known.same_session(before, default_params)).map(|(_, after)| after)
    }

    /// PostgreSQL has answered what they are.
    pub(crate) fn learn(&mut self, transcript: &[u8], before: Parameters, after: Parameters) {
        if self.after.len() >= MOST && !self.after.contains_key(transcript) {
            self.after.clear();
        }
        let known = self.after.entry(transcript.into()).or_default();
        if known.len() >= MOST_BEFORE {
            known.clear();
        }
        known.push((before, after));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SessionSettings, Tracked};

    #[test]
    fn the_same_before_is_the_same_after() {
        let tracked = Tracked::new([]);
        let fresh = Parameters::unknown(&tracked);
        let with = |value: &str| {
            let mut parameters = fresh.clone();
            parameters.set_others(SessionSettings::new([("a.b".to_owned(), value.to_owned())]));
            parameters
        };
        let mut learned = LearnedSettings::default();
        learned.learn(b"set c = 1", fresh.clone(), with("1"));
        assert!(learned.find(b"set c = 1", &fresh, &fresh).is_some_and(|after| after.same(&with("1"))));
        assert!(learned.find(b"set c = 1", &with("2"), &fresh).is_none());
        assert!(learned.find(b"set c = 2", &fresh, &fresh).is_none());
    }

    #[test]
    fn it_stays_small() {
        let fresh = Parameters::unknown(&Tracked::new([]));
        let mut learned = LearnedSettings::default();
        for number in 0..10_000_u32 {
            learned.learn(&number.to_be_bytes(), fresh.clone(), fresh.clone());
            learned.learn(b"again", fresh.clone(), fresh.clone());
        }
        assert!(
            learned.after.len() <= MOST && learned.after.values().all(|known| known.len() <= MOST_BEFORE)
        );
    }
}
