//! Which sessions hold their floors: the object `["floors"]`, behind the format's line a line `NODE SESSION` for each, the one written last at the end.
//!
//! A line is removed by its own process, when that has closed all its connections, or by a process that begins where there are `fleet_nodes` of them, in its own
//! favour. The object is never removed.

use std::fmt::Write as _;

use crate::known::{Known, has_object};
use crate::ledger::Context;
use crate::store::{CallId, NodeId, Object, ObjectName, Request, Revision, SessionId};
use crate::text::{FORMAT, lines, read_session, shown};

/// The object's name.
const NAME: &str = "floors";
/// After a write that was not answered, or that met a change that the watch has not shown yet.
const RETRY_US: u64 = 300_000;
/// Writes that meet such a change until all is read again.
const MOST_CONFLICTS: u32 = 8;

/// A line of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    node: NodeId,
    session: SessionId,
}

/// A write under way.
#[derive(Clone, Debug)]
struct Writing {
    call: CallId,
    expected: Revision,
    lines: Vec<Line>,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Holders {
    known: Known,
    lines: Vec<Line>,
    /// The object cannot be read: it is left alone.
    is_foreign: bool,
    writing: Option<Writing>,
    retry_us: u64,
    conflicts: u32,
}

impl Holders {
    /// The object as the watch shows it. Err: what of it cannot be read; None: another object.
    pub(super) fn heard(&mut self, object: &Object) -> Option<Result<(), String>> {
        if object.name.0 != [NAME] {
            return None;
        }
        if !self.known.hear(object.revision, object.contents.is_some()) {
            return Some(Ok(()));
        }
        (self.retry_us, self.conflicts) = (0, 0);
        let read = object.contents.as_deref().map(read).transpose();
        self.is_foreign = read.is_err();
        let (lines, outcome) = match read {
            Ok(lines) => (lines.unwrap_or_default(), Ok(())),
            Err(what) => (Vec::new(), Err(what)),
        };
        self.lines = lines;
        Some(outcome)
    }

    /// A snapshot is asked for.
    pub(super) fn before_snapshot(&mut self) {
        self.known.before_snapshot();
    }

    /// It has come, with this revision; its objects follow.
    pub(super) fn at_snapshot(&mut self, revision: Revision) {
        self.known.at_snapshot(revision);
    }

    /// A snapshot has been read. If it does not have the object, that was first written since, or the store has lost it.
    pub(super) fn after_snapshot(&mut self, objects: &[Object]) {
        (self.retry_us, self.conflicts) = (0, 0);
        if self.known.after_snapshot(has_object(objects, NAME)) {
            self.is_foreign = false;
            self.lines.clear();
        }
    }

    pub(super) fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    pub(super) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Whether the present session is in it.
    pub(super) fn has_own(&self, context: &Context<'_>) -> bool {
        self.lines.iter().any(|line| line.node == *context.id && line.session == context.session)
    }

    /// Whether a session of this node is in it.
    pub(super) fn has_node(&self, node: &NodeId) -> bool {
        self.lines.iter().any(|line| line.node == *node)
    }

    /// The lines with that of the present session, and whether others were removed for it. None: the live nodes are as many as may have floors.
    ///
    /// A process that has had a line removes none.
    pub(super) fn claim(
        &self,
        context: &Context<'_>,
        nodes: u32,
        had_line: bool,
    ) -> Option<(Vec<Line>, bool)> {
        let most = usize::try_from(nodes.max(1)).unwrap_or(usize::MAX);
        let has_earlier = self.lines.iter().any(|line| is_own(line, context));
        let mut lines: Vec<Line> = self.lines.iter().filter(|line| !is_own(line, context)).cloned().collect();
        let is_full = !had_line && !has_earlier && lines.len() >= most;
        while is_full && lines.len() >= most {
            let of_name = lines.iter().position(|line| line.node == *context.id);
            let gone = of_name.or_else(|| lines.iter().position(|line| !is_live(line, context)))?;
            lines.remove(gone);
        }
        lines.push(Line { node: context.id.clone(), session: context.session });
        Some((lines, is_full))
    }

    /// Removes the lines of this process: its connections are closed.
    pub(super) fn leave(&mut self, context: &Context<'_>, call: CallId) -> Request {
        let lines = self.lines.iter().filter(|line| !is_own(line, context)).cloned().collect();
        self.write(lines, call)
    }

    /// Writes the object.
    pub(super) fn write(&mut self, lines: Vec<Line>, call: CallId) -> Request {
        let (expected, contents) = (self.known.expected(), Some(write(&lines)));
        self.writing = Some(Writing { call, expected, lines });
        Request::Swap { call, name: ObjectName(vec![NAME.to_owned()]), expected, contents }
    }

    /// Whether this call was one of its own; it has been written.
    pub(super) fn swapped(&mut self, call: CallId, revision: Revision) -> bool {
        let Some(Writing { lines, .. }) = self.writing.take_if(|writing| writing.call == call) else {
            return false;
        };
        if self.known.wrote(revision, true) {
            self.lines = lines;
        }
        self.conflicts = 0;
        true
    }

    /// Whether this call was one of its own; it has failed, or it is not known whether it has.
    pub(super) fn not_swapped(&mut self, call: CallId, now_us: u64) -> bool {
        let Some(Writing { expected, .. }) = self.writing.take_if(|writing| writing.call == call) else {
            return false;
        };
        // What has been written instead may be known already.
        if expected == self.known.expected() {
            self.retry_us = now_us + RETRY_US;
            self.conflicts += 1;
        }
        true
    }

    /// The watch does not show what the store has.
    pub(super) fn take_stale(&mut self) -> bool {
        let is_stale = self.conflicts >= MOST_CONFLICTS;
        if is_stale {
            self.conflicts = 0;
        }
        is_stale
    }

    /// When a write may be sent.
    pub(super) fn retry_us(&self) -> u64 {
        self.retry_us
    }
}

/// Its session is the node's present one.
fn is_live(line: &Line, context: &Context<'_>) -> bool {
    context.live.get(&line.node).is_some_and(|record| record.session == line.session)
}

/// Of a session of this process.
fn is_own(line: &Line, context: &Context<'_>) -> bool {
    let is_its = line.session == context.session || context.earlier.contains(&line.session);
    line.node == *context.id && is_its
}

fn read(contents: &[u8]) -> Result<Vec<Line>, String> {
    let mut read: Vec<Line> = Vec::new();
    for text in lines(contents)? {
        let line =
            read_line(text).ok_or_else(|| format!("a holder of floors cannot be read: {}", shown(text)))?;
        if read.contains(&line) {
            return Err(format!("a holder of floors is there twice: {}", shown(text)));
        }
        read.push(line);
    }
    Ok(read)
}

fn read_line(text: &str) -> Option<Line> {
    let (node, session) = text.split_once(' ').filter(|(node, _)| !node.is_empty())?;
    Some(Line { node: node.into(), session: read_session(session)? })
}

fn write(lines: &[Line]) -> Vec<u8> {
    let mut text = format!("{FORMAT}\n");
    for Line { node, session } in lines {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{node} {:016x}", session.0);
    }
    text.into_bytes()
}
