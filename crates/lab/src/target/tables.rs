//! pgbench's tables in a user's database: what is there, and whether they are filled anew or used as they are. Rows
//! that the lab did not make are dropped only when the user said so.

use crate::error::{LabError, Result};

/// What is there of pgbench's tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Found {
    /// None of them.
    #[default]
    Nothing,
    /// Tables without a row.
    Empty,
    /// All of them, filled by `pgbench -i`.
    Filled {
        /// Its scale.
        scale: u32,
    },
    /// Tables of these names that hold rows and do not look like pgbench's.
    Odd {
        /// What is odd about them.
        why: String,
    },
}

/// What to do about pgbench's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tables {
    /// `pgbench -i`, which drops what is there of these names.
    Fill {
        /// Its scale.
        scale: u32,
    },
    /// As they are; nothing is dropped, vacuumed or truncated.
    Use {
        /// Their scale.
        scale: u32,
    },
}

impl Found {
    /// Decides. `wanted` is the scale that the user named, `usual` the one without a wish, `force` the user's leave to
    /// drop.
    ///
    /// # Errors
    /// [`LabError::Missing`] when rows would be lost: with what the user can do.
    pub fn decide(&self, wanted: Option<u32>, usual: u32, force: bool) -> Result<Tables> {
        match self {
            Self::Nothing | Self::Empty => Ok(Tables::Fill { scale: wanted.unwrap_or(usual) }),
            Self::Filled { scale } if force => Ok(Tables::Fill { scale: wanted.unwrap_or(*scale) }),
            Self::Filled { scale } if wanted.is_none_or(|wanted| wanted == *scale) => {
                Ok(Tables::Use { scale: *scale })
            }
            Self::Filled { scale } => Err(LabError::Missing {
                what: format!(
                    "the database has pgbench's tables with rows already, of scale {scale}; for scale {} they would be dropped",
                    wanted.unwrap_or(usual)
                ),
                remedy: format!("use them as they are: --scale {scale}; or let them be dropped: --force"),
            }),
            Self::Odd { .. } if force => Ok(Tables::Fill { scale: wanted.unwrap_or(usual) }),
            Self::Odd { why } => Err(LabError::Missing {
                what: format!("the database has tables named as pgbench's, with rows: {why}"),
                remedy: "name another database; or let them be dropped: --force".to_owned(),
            }),
        }
    }
}

impl Tables {
    /// Their scale.
    #[must_use]
    pub fn scale(self) -> u32 {
        match self {
            Self::Fill { scale } | Self::Use { scale } => scale,
        }
    }

    /// Whether the lab makes them.
    #[must_use]
    pub fn are_made(self) -> bool {
        matches!(self, Self::Fill { .. })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn rows_are_dropped_only_by_leave() {
        let filled = Found::Filled { scale: 7 };
        assert_eq!(filled.decide(None, 10, false).unwrap(), Tables::Use { scale: 7 });
        assert_eq!(filled.decide(Some(7), 10, false).unwrap(), Tables::Use { scale: 7 });
        assert_eq!(filled.decide(Some(8), 10, true).unwrap(), Tables::Fill { scale: 8 });
        assert_eq!(filled.decide(None, 10, true).unwrap(), Tables::Fill { scale: 7 });
        let error = filled.decide(Some(8), 10, false).unwrap_err().to_string();
        assert!(
            error.contains("of scale 7") && error.contains("for scale 8") && error.contains("--force"),
            "{error}"
        );
        let odd = Found::Odd { why: "no branches".into() };
        assert!(odd.decide(None, 10, false).unwrap_err().to_string().contains("no branches"));
        assert_eq!(odd.decide(None, 10, true).unwrap(), Tables::Fill { scale: 10 });
    }

    #[test]
    fn nothing_and_empty_tables_are_filled() {
        assert_eq!(Found::Nothing.decide(None, 10, false).unwrap(), Tables::Fill { scale: 10 });
        assert_eq!(Found::Empty.decide(Some(3), 10, false).unwrap(), Tables::Fill { scale: 3 });
    }
}
