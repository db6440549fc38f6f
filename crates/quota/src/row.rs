//! What is shown of a subject and a resource.

use crate::account::Verdict;
use crate::resource::Measure;
use crate::subject::Subject;

/// How a subject stands with one resource, in words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// At the soft limit or below.
    #[default]
    Within,
    /// Above the soft limit, within the grace time.
    Soft,
    /// Above the soft limit, and the grace time is over.
    Grace,
    /// The hard limit is reached.
    Hard,
}

impl State {
    /// All states.
    pub const ALL: [State; 4] = [State::Within, State::Soft, State::Grace, State::Hard];

    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            State::Within => "within",
            State::Soft => "soft",
            State::Grace => "grace",
            State::Hard => "hard",
        }
    }
}

impl From<Verdict> for State {
    fn from(verdict: Verdict) -> State {
        match verdict {
            Verdict::Within => State::Within,
            Verdict::OverSoft { .. } => State::Soft,
            Verdict::GraceOver => State::Grace,
            Verdict::HardReached => State::Hard,
        }
    }
}

/// One resource of one subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaRow {
    /// Whose.
    pub subject: Subject,
    /// Of what.
    pub measure: Measure,
    /// What was used, by all nodes of a fleet where they share quotas, in the file's units: seconds of server time are whole ones.
    pub used: u64,
    /// The soft limit; 0 is none.
    pub soft: u64,
    /// The hard limit; 0 is none.
    pub hard: u64,
    /// When the grace time ends that runs, in seconds since 1970.
    pub grace_ends_s: Option<u64>,
    /// When the period ends, in seconds since 1970.
    pub period_ends_s: Option<u64>,
    /// How it stands.
    pub state: State,
    /// How many members a group has, if that is known.
    pub members: Option<u64>,
    /// How much of what was used other nodes of the fleet have.
    pub external: u64,
}
