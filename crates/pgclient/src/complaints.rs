//! What the log has last said of each thing that fails, so that it says a failure once and the end of it.

use std::collections::BTreeMap;

/// Failures that were not settled, by what they are of.
#[derive(Default)]
pub struct Complaints {
    raised: BTreeMap<String, String>,
}

impl Complaints {
    /// Something fails: its text, unless that was said last.
    #[must_use]
    pub fn raise(&mut self, about: &str, text: String) -> Option<String> {
        if self.raised.get(about) == Some(&text) {
            return None;
        }
        self.raised.insert(about.to_owned(), text.clone());
        Some(text)
    }

    /// It does not fail any more; true if it did.
    #[must_use]
    pub fn settle(&mut self, about: &str) -> bool {
        self.raised.remove(about).is_some()
    }

    /// Forgets what is not asked any more.
    pub fn keep(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.raised.retain(|about, _| is_kept(about));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_is_said_once_until_it_is_another() {
        let mut complaints = Complaints::default();
        let mut raise = |text: &str| complaints.raise("a", text.to_owned()).is_some();
        assert_eq!([raise("x"), raise("x"), raise("y"), raise("x")], [true, false, true, true]);
        assert_eq!([complaints.settle("a"), complaints.settle("a")], [true, false]);
    }
}
