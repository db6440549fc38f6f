//! The texts of the fleet's objects: slots, the audit, the backends of a node. Lines end with a line feed; the first is the format's version.

use std::fmt::Write as _;

use crate::budget::MOST_SLOTS;
use crate::config::DrainOrder;
use crate::{Backend, NodeId, SessionId};

pub(crate) const FORMAT: &str = "weir-fleet 1";
/// No object of slots has more entries.
const MOST_ENTRIES: usize = 1_024;
/// No fleet gets there by itself: a higher one is foreign data.
const MOST_AUDIT: u64 = 1 << 53;

/// What one session of a node has of a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) node: NodeId,
    pub(crate) session: SessionId,
    /// Leased.
    pub(crate) slots: u32,
    /// Leased slots that it would use in all.
    pub(crate) wanted: u32,
    /// The shared part of the budget by its configuration.
    pub(crate) shared: u32,
}

/// A request that all nodes write down their backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Audit {
    pub(crate) number: u64,
    pub(crate) by: NodeId,
    pub(crate) session: SessionId,
}

/// Whose answer to which audit an object of backends is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReportHead {
    pub(crate) session: SessionId,
    pub(crate) audit: u64,
}

/// An object of slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slots {
    /// Which node has passed its turn last, where there is not a slot for each.
    pub(crate) turn: Option<NodeId>,
    pub(crate) entries: Vec<Entry>,
}

/// What of it cannot be read is the error.
pub(crate) fn read_slots(contents: &[u8]) -> Result<Slots, String> {
    let (mut turn, mut entries) = (None, Vec::new());
    for line in lines(contents)? {
        if let Some(node) = line.strip_prefix("turn ").filter(|node| !node.is_empty() && !node.contains(' '))
        {
            turn = Some(node.into());
            continue;
        }
        let entry = read_entry(line).ok_or_else(|| format!("an entry cannot be read: {}", shown(line)))?;
        entries.push(entry);
    }
    if entries.len() > MOST_ENTRIES {
        return Err(format!("{} entries, more than {MOST_ENTRIES}", entries.len()));
    }
    Ok(Slots { turn, entries })
}

/// None for no entries: the object is removed.
pub(crate) fn write_slots(turn: Option<&NodeId>, entries: &[Entry]) -> Option<Vec<u8>> {
    if entries.is_empty() {
        return None;
    }
    let mut text = String::with_capacity(16 + 48 * entries.len());
    text.push_str(FORMAT);
    text.push('\n');
    if let Some(node) = turn {
        let _ = writeln!(text, "turn {node}");
    }
    for Entry { node, session, slots, wanted, shared } in entries {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{node} {:016x} {slots} {wanted} {shared}", session.0);
    }
    Some(text.into_bytes())
}

pub(crate) fn read_audit(contents: &[u8]) -> Result<Audit, String> {
    let line = lines(contents)?.next().unwrap_or_default();
    read_audit_line(line).ok_or_else(|| format!("the audit cannot be read: {}", shown(line)))
}

pub(crate) fn write_audit(audit: &Audit) -> Vec<u8> {
    let Audit { number, by, session } = audit;
    format!("{FORMAT}\naudit {number} by {by} {:016x}\n", session.0).into_bytes()
}

pub(crate) fn read_report_head(contents: &[u8]) -> Result<ReportHead, String> {
    read_report(contents).map(|(head, _)| head)
}

/// The head and the lines of backends, which [`read_backend`] reads.
pub(crate) fn read_report(contents: &[u8]) -> Result<(ReportHead, impl Iterator<Item = &str>), String> {
    let mut lines = lines(contents)?;
    let session = lines.next().and_then(|line| read_session(line.strip_prefix("session ")?));
    let audit = lines.next().and_then(|line| line.strip_prefix("audit ").and_then(read_audit_number));
    match (session, audit) {
        (Some(session), Some(audit)) => Ok((ReportHead { session, audit }, lines)),
        _ => Err("the backends of a node cannot be read".to_owned()),
    }
}

/// Server and process id.
pub(crate) fn read_backend(line: &str) -> Option<(&str, u32)> {
    let (server, pid) = line.rsplit_once(' ')?;
    Some((server, pid.parse().ok()?))
}

pub(crate) fn write_report(head: ReportHead, backends: &[Backend]) -> Vec<u8> {
    let ReportHead { session, audit } = head;
    let mut text = format!("{FORMAT}\nsession {:016x}\naudit {audit}\n", session.0);
    for Backend { server, pid } in backends {
        let _ = writeln!(text, "{server} {pid}");
    }
    text.into_bytes()
}

const DRAIN_ORDERS: [(&str, DrainOrder); 3] = [
    ("resume", DrainOrder::Resume),
    ("new-clients", DrainOrder::NewClients),
    ("all-clients", DrainOrder::AllClients),
];

/// The session that an order is for, and what it is to do.
pub(crate) fn read_drain(contents: &[u8]) -> Result<(SessionId, DrainOrder), String> {
    let line = lines(contents)?.next().unwrap_or_default();
    read_drain_line(line).ok_or_else(|| format!("the order to drain cannot be read: {}", shown(line)))
}

pub(crate) fn write_drain(session: SessionId, order: DrainOrder, by: &NodeId) -> Vec<u8> {
    let word = DRAIN_ORDERS.iter().find(|(_, known)| *known == order).map_or("", |(word, _)| word);
    format!("{FORMAT}\ndrain {:016x} {word} by {by}\n", session.0).into_bytes()
}

/// The lines behind the first.
pub(crate) fn lines(contents: &[u8]) -> Result<std::str::Lines<'_>, String> {
    let text = std::str::from_utf8(contents).map_err(|_| "not text".to_owned())?;
    let mut lines = text.lines();
    match lines.next() {
        Some(FORMAT) => Ok(lines),
        other => Err(format!("not of the format `{FORMAT}`: {}", shown(other.unwrap_or_default()))),
    }
}

fn read_entry(line: &str) -> Option<Entry> {
    let mut words = line.split(' ');
    let node = words.next().filter(|word| !word.is_empty())?;
    let session = read_session(words.next()?)?;
    let mut number = || words.next()?.parse().ok().filter(|number| *number <= MOST_SLOTS);
    let (slots, wanted, shared) = (number()?, number()?, number()?);
    let entry = Entry { node: node.into(), session, slots, wanted, shared };
    words.next().is_none().then_some(entry)
}

fn read_audit_number(word: &str) -> Option<u64> {
    word.parse().ok().filter(|number| *number <= MOST_AUDIT)
}

fn read_audit_line(line: &str) -> Option<Audit> {
    let (number, by) = line.strip_prefix("audit ")?.split_once(" by ")?;
    let (node, session) = by.split_once(' ')?;
    Some(Audit { number: read_audit_number(number)?, by: node.into(), session: read_session(session)? })
}

fn read_drain_line(line: &str) -> Option<(SessionId, DrainOrder)> {
    let (session, rest) = line.strip_prefix("drain ")?.split_once(' ')?;
    let (word, _) = rest.split_once(" by ")?;
    let (_, order) = DRAIN_ORDERS.iter().find(|(known, _)| *known == word)?;
    Some((read_session(session)?, *order))
}

pub(crate) fn read_session(word: &str) -> Option<SessionId> {
    let is_hex = word.len() == 16 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u64::from_str_radix(word, 16).ok().map(SessionId))?
}

/// The beginning of a text that may be anything.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(60).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(node: &str, session: u64, slots: u32) -> Entry {
        Entry { node: node.into(), session: SessionId(session), slots, wanted: 7, shared: 90 }
    }

    #[test]
    fn slots_are_read_as_written() {
        let entries = vec![entry("a", 1, 3), entry("b-2.x", u64::MAX, 0)];
        let text = write_slots(None, &entries).expect("there are entries");
        assert_eq!(read_slots(&text), Ok(Slots { turn: None, entries: entries.clone() }));
        let turn = Some(NodeId::from("b-2.x"));
        let turned = write_slots(turn.as_ref(), &entries).expect("there are entries");
        assert!(turned.starts_with(b"weir-fleet 1\nturn b-2.x\na "));
        assert_eq!(read_slots(&turned), Ok(Slots { turn, entries: entries.clone() }));
        assert_eq!(
            String::from_utf8_lossy(&text),
            "weir-fleet 1\na 0000000000000001 3 7 90\nb-2.x ffffffffffffffff 0 7 90\n"
        );
        assert_eq!(write_slots(None, &[]), None);
    }

    #[test]
    fn what_is_not_of_this_format_is_refused() {
        for text in [
            "",
            "weir-fleet 2\n",
            "weir-fleet 1\na 1 2 3 4\n",
            "weir-fleet 1\na 0000000000000001 3 7\n",
            "weir-fleet 1\na 0000000000000001 3 7 -1\n",
            "weir-fleet 1\na 0000000000000001 3 7 1 1\n",
            "weir-fleet 1\n\n",
            "weir-fleet 1\nturn a b\n",
            "weir-fleet 1\nturn \n",
        ] {
            assert!(read_slots(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(read_slots(&[0xff]).is_err());
        assert!(read_audit(b"weir-fleet 1\naudit x by a 0000000000000001\n").is_err());
        assert!(read_audit(b"weir-fleet 1\naudit 18446744073709551615 by a 0000000000000001\n").is_err());
        assert!(read_report_head(b"weir-fleet 1\nsession 0000000000000001\n").is_err());
        let endless = b"weir-fleet 1\nsession 0000000000000001\naudit 18446744073709551615\n";
        assert!(read_report_head(endless).is_err());
    }

    #[test]
    fn orders_to_drain_are_read_as_written() {
        for (_, order) in DRAIN_ORDERS {
            let text = write_drain(SessionId(0xab), order, &"n".into());
            assert_eq!(read_drain(&text), Ok((SessionId(0xab), order)));
        }
        let text = write_drain(SessionId(0xab), DrainOrder::NewClients, &"n".into());
        assert_eq!(text, b"weir-fleet 1\ndrain 00000000000000ab new-clients by n\n");
        for text in ["drain 00000000000000ab stop by n", "drain ab resume by n", "resume", ""] {
            assert!(read_drain(format!("weir-fleet 1\n{text}\n").as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn audits_and_reports_are_read_as_written() {
        let audit = Audit { number: 12, by: "n".into(), session: SessionId(5) };
        assert_eq!(read_audit(&write_audit(&audit)), Ok(audit));
        let head = ReportHead { session: SessionId(9), audit: 12 };
        let backends = [Backend { server: "/run/pg sql:5432".into(), pid: 77 }];
        let text = write_report(head, &backends);
        let (read, lines) = read_report(&text).expect("it was written so");
        assert_eq!(read, head);
        let read: Vec<_> = lines.map(read_backend).collect();
        assert_eq!(read, [Some(("/run/pg sql:5432", 77))]);
    }
}
