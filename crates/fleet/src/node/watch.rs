//! Reading and watching the store.

use crate::store::CallId;

/// After a watch was lost: at first, and at most.
const RETRY_US: (u64, u64) = (100_000, 2_000_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Off { retry_us: u64 },
    Reading { call: CallId },
    On { call: CallId },
}

/// Whether the store is watched.
#[derive(Debug)]
pub(super) struct Watch {
    state: State,
    retry_after_us: u64,
    /// Why the last one was lost, until all is read again.
    lost: Option<String>,
}

impl Watch {
    pub(super) fn new(now_us: u64) -> Watch {
        Watch { state: State::Off { retry_us: now_us }, retry_after_us: RETRY_US.0, lost: None }
    }

    /// What is known is what the store had a moment ago.
    pub(super) fn is_on(&self) -> bool {
        matches!(self.state, State::On { .. })
    }

    /// Why it is not watched, if it was tried.
    pub(super) fn lost_because(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    pub(super) fn is_due(&self, now_us: u64) -> bool {
        self.deadline_us().is_some_and(|retry_us| retry_us <= now_us)
    }

    pub(super) fn deadline_us(&self) -> Option<u64> {
        match self.state {
            State::Off { retry_us } => Some(retry_us),
            _ => None,
        }
    }

    pub(super) fn begin(&mut self, call: CallId) {
        self.state = State::Reading { call };
    }

    /// A snapshot; false if it is not of the present call.
    pub(super) fn has_read(&mut self, answered: CallId) -> bool {
        let is_present = self.state == State::Reading { call: answered };
        if is_present {
            self.state = State::On { call: answered };
            self.retry_after_us = RETRY_US.0;
            self.lost = None;
        }
        is_present
    }

    pub(super) fn is_of(&self, watch: CallId) -> bool {
        self.state == State::On { call: watch }
    }

    /// False if it was not the present one.
    pub(super) fn lost(&mut self, watch: CallId, why: &str, now_us: u64) -> bool {
        let is_present = matches!(self.state, State::Reading { call } | State::On { call } if call == watch);
        if is_present {
            self.state = State::Off { retry_us: now_us + self.retry_after_us };
            self.retry_after_us = (self.retry_after_us * 2).min(RETRY_US.1);
            self.lost = Some(why.to_owned());
        }
        is_present
    }

    /// Reads everything again.
    pub(super) fn again(&mut self, now_us: u64) {
        self.state = State::Off { retry_us: now_us };
    }

    /// A retry need not wait any longer.
    pub(super) fn hurry(&mut self, now_us: u64) {
        if let State::Off { retry_us } = &mut self.state {
            *retry_us = (*retry_us).min(now_us);
        }
    }
}
