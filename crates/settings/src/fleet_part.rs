//! The part of a pools file that all nodes of a fleet have: what stands behind a mark at the file's end.
//! Owns the mark. `raw_config/pools_file.rs` leaves out of the part what a node cannot use, `fleet_pools.rs` edits it.

use crate::finding::Finding;

/// How the line begins behind which the part stands, with the revision's number, and how it ends.
const MARK: &str = "; Pools of all nodes of the fleet, revision ";
const MARK_END: &str = ". Weir writes what follows; changes by hand are lost.";

/// What a configuration has of the pools of all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetPart {
    /// Which ones; 0 if none have been seen.
    pub revision: u64,
    /// Why entries of it were left out, each with its line.
    pub refused: Vec<Finding>,
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
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

/// The line of a mark.
pub(crate) fn mark_line(revision: u64) -> String {
    format!("{MARK}{revision}{MARK_END}\n")
}
