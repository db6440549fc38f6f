//! How a command ends: the exit statuses of every command of both programs, and what the manual says of them.
//! Never decides which one it is.

use std::process::ExitCode;

/// What each number means, for help and the manual.
pub const MEANINGS: &[(u8, &str)] = &[
    (0, "done"),
    (1, "the answer is no, or it failed"),
    (2, "the command line is wrong"),
    (3, "weir-bench sweep: a sweep was made, and its figures do not say how large the pool should be"),
    (130, "weir-bench: interrupted, with what was measured kept"),
];

/// What differs where the pooler itself is started.
pub const POOLER_USAGE: &str =
    "The pooler itself, weir FILE.ini, ends with 1 where its command line is wrong, as PgBouncer does.";

/// For the help of a program that has these.
#[must_use]
pub fn statuses(of: &[Status]) -> String {
    let known = |(code, _): &&(u8, &str)| of.iter().any(|status| status.code() == *code);
    let parts: Vec<String> =
        MEANINGS.iter().filter(known).map(|(code, meaning)| format!("{code} {meaning}")).collect();
    format!("Exit status: {}.", parts.join("; "))
}

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is done.
    Done,
    /// The answer is no (a file with errors, a quota that is exceeded), or it failed.
    Failed,
    /// The command line is wrong.
    Usage,
    /// A sweep was made, and its figures do not say how large the pool should be.
    CannotTell,
    /// Ctrl-C; what was measured until then is kept and reported.
    Interrupted,
}

impl Status {
    /// Every one.
    pub const ALL: [Status; 5] =
        [Status::Done, Status::Failed, Status::Usage, Status::CannotTell, Status::Interrupted];

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

    /// What a program that has exited with this number means; `None` for one of no program of ours.
    #[must_use]
    pub fn of(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|status| i32::from(status.code()) == code)
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
    fn every_status_is_documented_and_read_back() {
        for status in Status::ALL {
            assert!(
                statuses(&[status]).starts_with(&format!("Exit status: {} ", status.code())),
                "{status:?}"
            );
            assert_eq!(Status::of(i32::from(status.code())), Some(status));
        }
        assert_eq!(MEANINGS.len(), Status::ALL.len());
        let page = include_str!("../../../docs/command-line.md");
        assert!(MEANINGS.iter().all(|(code, meaning)| page.contains(&format!("| {code} | {meaning} |"))));
        assert_eq!((Status::of(101), Status::of(-1)), (None, None));
    }
}
