//! What statements may change in their session, remembered: a text that differs from an earlier one in its values only is not analysed again.
//!
//! Owns how many are remembered. What they may change is the `sql` crate's to say.

use std::collections::HashMap;

use crate::statement_text::Effects;

/// How many shapes of texts are remembered, of 4 KiB each at most; one more, and all are forgotten.
const MAX_SHAPES: usize = 4096;

/// What was found in the texts of one shard.
#[derive(Debug, Default)]
pub(crate) struct Analyses {
    known: HashMap<Box<[u8]>, Effects>,
    /// The shape of the text that is looked up.
    shape: Vec<u8>,
}

impl Analyses {
    /// What a text, up to a NUL, may change in its session without its command tag showing it.
    #[inline]
    pub(crate) fn session_effects(&mut self, text: &[u8]) -> Effects {
        if sql::plainly_hides_nothing(text) { Effects::NONE } else { self.by_shape(text) }
    }

    /// A text that sets parameters is known as such even if it does so for its transaction only.
    fn effects(found: sql::JudgedEffect, text: &[u8]) -> Effects {
        let effects = Effects::of_judged(found);
        if found.is_of_shape { effects } else { effects.and(Effects::of_reading(text)) }
    }

    #[inline(never)]
    fn by_shape(&mut self, text: &[u8]) -> Effects {
        if !sql::shape(text, &mut self.shape) {
            let found = sql::judged_effect(text);
            return Analyses::effects(found, text).and(Effects::of_names(text));
        }
        if let Some(effects) = self.known.get(&*self.shape) {
            return *effects;
        }
        let found = sql::judged_effect(text);
        let effects = Analyses::effects(found, text).and(Effects::of_names(&self.shape));
        if found.is_of_shape {
            if self.known.len() >= MAX_SHAPES {
                self.known.clear();
            }
            self.known.insert(self.shape.as_slice().into(), effects);
        }
        effects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_one_shape_are_analysed_once() {
        let mut analyses = Analyses::default();
        for number in 0..100 {
            let text = format!("INSERT INTO t (a) VALUES ({number}, mine('x{number}'))");
            assert_eq!(analyses.session_effects(text.as_bytes()), Effects::ANYTHING);
            assert_eq!(analyses.session_effects(b"UPDATE t SET a = (1)"), Effects::NONE);
        }
        assert_eq!(analyses.known.len(), 2);
    }

    #[test]
    fn what_depends_on_values_is_analysed_each_time() {
        let mut analyses = Analyses::default();
        let set = |name: &str| format!("select set_config('{name}', 'x', true)");
        assert_eq!(analyses.session_effects(set("a.b").as_bytes()), Effects::NONE);
        assert_eq!(
            analyses.session_effects(set("role").as_bytes()),
            Effects::SETS_VALUES.and(Effects::READS)
        );
        assert_eq!(analyses.session_effects(set("a.b").as_bytes()), Effects::NONE);
    }

    #[test]
    fn ever_new_texts_take_no_more_room() {
        let mut analyses = Analyses::default();
        for number in 0..100_000 {
            let _ = analyses.session_effects(format!("select f{number}()").as_bytes());
        }
        assert!(analyses.known.len() <= MAX_SHAPES);
    }
}
