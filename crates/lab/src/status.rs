//! How the lab ends: the exit statuses of `weir bench`.
//! Owns their numbers and what the manual says of them. Never decides which one it is.

use std::process::ExitCode;

/// How the lab ends, for its help and the manual page.
pub const STATUSES: &str = "Exit status: 0 done; 1 failed; 2 the command line makes no sense; 3 a sweep was made, and its \
                            figures do not say how large the pool should be; 130 interrupted, with what was measured kept.";

/// How the lab ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done: everything was measured, and where a size was asked for there is one.
    Done,
    /// Something failed; what was measured until then is kept.
    Failed,
    /// The command line makes no sense.
    Usage,
    /// Everything was measured, and the figures do not say how large the pool should be.
    CannotTell,
    /// Ctrl-C; what was measured until then is kept and reported.
    Interrupted,
}

impl Status {
    /// The number for the shell.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::CannotTell => 3,
            Self::Interrupted => 130,
        }
    }
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_documented() {
        for status in [Status::Done, Status::Failed, Status::Usage, Status::CannotTell, Status::Interrupted] {
            assert!(STATUSES.contains(&format!(" {} ", status.code())), "{status:?}");
        }
    }
}
