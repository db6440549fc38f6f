//! The logins of a pool to its server: what a connection is opened for, and when a failed login is tried again.
//!
//! Owns the backoff after failures. Never decides which connection is opened.

/// After a failed login the first retry comes after this; each further one doubles it, up to `server_login_retry`.
const FIRST_RETRY_US: u64 = 100_000;

/// Which clients a server connection is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenFor {
    /// Any client of the pool, one after another.
    Any,
    /// The client that has waited longest for a dedicated server.
    Dedicated,
}

/// The logins of one kind: one at a time, with exponential backoff after failures.
#[derive(Debug, Default)]
pub(crate) struct LoginBackoff {
    in_progress: u32,
    retry_at_us: u64,
    retry_delay_us: u64,
}

impl LoginBackoff {
    pub(crate) fn may_begin(&self, now_us: u64) -> bool {
        self.in_progress == 0 && now_us >= self.retry_at_us
    }

    pub(crate) fn begin(&mut self) {
        self.in_progress += 1;
    }

    pub(crate) fn end(&mut self, succeeded: bool, now_us: u64, longest_us: u64) {
        self.withdraw();
        if succeeded {
            return self.forget_failure();
        }
        self.retry_delay_us = (self.retry_delay_us * 2).max(FIRST_RETRY_US).min(longest_us);
        self.retry_at_us = now_us + self.retry_delay_us;
    }

    pub(crate) fn withdraw(&mut self) {
        self.in_progress = self.in_progress.saturating_sub(1);
    }

    fn forget_failure(&mut self) {
        (self.retry_at_us, self.retry_delay_us) = (0, 0);
    }

    pub(crate) fn is_failing(&self) -> bool {
        self.retry_delay_us > 0
    }

    /// When the next login may be tried after a failure; 0 if there was none.
    pub(crate) fn retry_at_us(&self) -> u64 {
        self.retry_at_us
    }
}

/// The logins of a pool: those for any client, and those for a dedicated server, which succeed and fail separately.
#[derive(Debug, Default)]
pub(crate) struct Logins {
    pub(crate) shared: LoginBackoff,
    pub(crate) dedicated: LoginBackoff,
}

impl Logins {
    pub(crate) fn of(&mut self, open_for: OpenFor) -> &mut LoginBackoff {
        match open_for {
            OpenFor::Any => &mut self.shared,
            OpenFor::Dedicated => &mut self.dedicated,
        }
    }

    pub(crate) fn in_progress(&self) -> u32 {
        self.shared.in_progress + self.dedicated.in_progress
    }

    pub(crate) fn forget_failures(&mut self) {
        self.shared.forget_failure();
        self.dedicated.forget_failure();
    }
}
