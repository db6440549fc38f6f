//! What a run is made of from outside: sessions, requests and faults, each a step with a number. A run may leave steps out,
//! which is how a seed that fails is shrunk (`shrink`).

use std::collections::BTreeSet;
use std::fmt;

/// The steps of one run.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    met: u64,
    taken: u64,
    /// The numbers of those that are taken; None: all of them.
    only: Option<BTreeSet<u64>>,
    lines: Vec<String>,
}

impl Steps {
    /// Those of a run that takes only these, or all.
    pub(crate) fn new(only: Option<BTreeSet<u64>>) -> Steps {
        Steps { only, ..Steps::default() }
    }

    /// The next step comes up; false if it is left out.
    pub(crate) fn take(&mut self) -> bool {
        let is_taken = self.only.as_ref().is_none_or(|only| only.contains(&self.met));
        self.met += 1;
        self.taken += u64::from(is_taken);
        is_taken
    }

    /// What the step that was just taken is; formed only where few steps are chosen, for people to read.
    pub(crate) fn note(&mut self, words: fmt::Arguments<'_>) {
        if self.only.is_some() {
            self.lines.push(words.to_string());
        }
    }

    /// How many came up.
    pub(crate) fn met(&self) -> u64 {
        self.met
    }

    /// How many were taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// What they were.
    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines
    }
}
