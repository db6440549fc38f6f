//! The part of a pools file that all nodes of a fleet have: what stands behind a mark at the file's end.
//! Owns the mark, and what a part is known by: its revision and the digest of its text. `raw_config/pools_file.rs` leaves out of the part what a node cannot use, `fleet_pools.rs` edits it.

use crate::finding::Finding;
use std::collections::BTreeSet;

/// How the line begins behind which the part stands, with the revision's number, and how it ends.
const MARK: &str = "; Pools of all nodes of the fleet, revision ";
const MARK_END: &str = ". Weir writes what follows; changes by hand are lost.";

/// How lines of the part begin that say what is paused and what is disabled. Nodes that do not know them take them for comments.
pub(crate) const PAUSED: &str = ";; paused ";
pub(crate) const DISABLED: &str = ";; disabled ";
/// Behind [`PAUSED`]: everything.
pub(crate) const ALL: &str = "all";

/// What a configuration has of the pools of all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetPart {
    /// Which ones; 0 if none have been seen.
    pub revision: u64,
    /// [`digest`] of their text.
    pub digest: u64,
    /// What the text says is paused and disabled on all nodes.
    pub holds: FleetHolds,
    /// Why entries of it were left out, each with its line.
    pub refused: Vec<Finding>,
}

/// What is paused and disabled on all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetHolds {
    /// PAUSE without a name.
    pub all: bool,
    /// PAUSE of entries.
    pub paused: BTreeSet<String>,
    /// DISABLE of entries.
    pub disabled: BTreeSet<String>,
}

/// A revision has no larger number: one more is always possible.
pub const MOST_REVISION: u64 = 1 << 53;

/// Two texts of one revision are told apart by this (FNV-1a, 64 bits): it is not for texts that somebody makes alike.
#[must_use]
pub fn digest(text: &[u8]) -> u64 {
    text.iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Where the mark stands: the line, from 1 on, the revision, and the bytes in front of it and with it.
pub(crate) struct Mark {
    pub(crate) line: u32,
    pub(crate) revision: u64,
    pub(crate) begins: usize,
    pub(crate) ends: usize,
}

/// The first mark.
pub(crate) fn mark(bytes: &[u8]) -> Option<Mark> {
    let mut begins = 0;
    for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let ends = begins + line.len();
        if let Some(revision) = revision(line) {
            return Some(Mark { line: u32::try_from(index + 1).unwrap_or(u32::MAX), revision, begins, ends });
        }
        begins = ends;
    }
    None
}

fn revision(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(MARK.as_bytes())?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok().filter(|revision| *revision <= MOST_REVISION)
}

/// The line of a mark.
pub(crate) fn mark_line(revision: u64) -> String {
    format!("{MARK}{revision}{MARK_END}\n")
}

impl FleetHolds {
    /// What the text of the pools of all nodes says.
    #[must_use]
    pub fn read(text: &[u8]) -> FleetHolds {
        let mut holds = FleetHolds::default();
        for line in text.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok()) {
            let line = line.trim_end_matches('\r');
            match (line.strip_prefix(PAUSED), line.strip_prefix(DISABLED)) {
                (Some(ALL), _) => holds.all = true,
                (Some(name), _) => holds.paused.extend(unquoted(name)),
                (_, Some(name)) => holds.disabled.extend(unquoted(name)),
                _ => {}
            }
        }
        holds
    }
}

/// A name as SQL quotes it, without control characters.
fn unquoted(written: &str) -> Option<String> {
    let inner = written.strip_prefix('"')?.strip_suffix('"')?;
    Some(inner.replace("\"\"", "\"")).filter(|name| !name.chars().any(char::is_control))
}
