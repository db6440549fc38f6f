//! The numbers of nodes, by which a cancel request finds the node that made its key: the object `["peers"]`, behind the format's line a line
//! `NUMBER NODE SESSION` for each name, the one written last at the end.
//!
//! Owns that no two nodes with a lease believe in one number. A node believes in the number beside its name while its present session is beside it, too: it
//! writes its line anew by swap whenever it has joined. A line is removed, so that its number can be another's, only by a swap that expects a revision with that line, or a later
//! one, and by a node that sees no record of that name; it heard of the line's session before the line, so that its lease is over.
//! Names keep their numbers over restarts. What a number is good for is the caller's to know.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::known::{Known, has_object};
use crate::ledger::Context;
use crate::store::{CallId, NodeId, Object, ObjectName, Request, Revision, SessionId};
use crate::text::{FORMAT, lines, read_session, shown};

/// The object's name.
const NAME: &str = "peers";
/// The largest number: that of PgBouncer's `peer_id`.
const LARGEST: u32 = 16_383;
/// Names that keep their numbers although their nodes are gone: with more of them, the number of the one that joined the longest ago is given away.
const MOST_NAMES: usize = 1_000;
/// After a write that was not answered, or that met a change that the watch has not shown yet.
const RETRY_US: u64 = 500_000;
/// Where there is no number left.
const TOO_MANY_RETRY_US: u64 = 10_000_000;
/// Writes that meet such a change until all is read again.
const MOST_CONFLICTS: u32 = 6;

/// The numbers of all nodes, as the node sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerNumbers {
    /// The node's own; None while its present session has none.
    pub own: Option<u32>,
    /// By number, the own node among them.
    pub nodes: Vec<NumberedNode>,
}

/// A node that has a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedNode {
    /// 1 to 16,383.
    pub number: u32,
    /// Its id.
    pub id: NodeId,
    /// [`crate::NodeRecord::address`]; None if it has no record: it is gone.
    pub address: Option<String>,
}

/// A line of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    number: u32,
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
#[derive(Debug)]
pub(crate) struct Peers {
    known: Known,
    lines: Vec<Line>,
    /// The object cannot be read: it is left alone.
    is_foreign: bool,
    most_names: usize,
    /// The own number, as last believed in.
    last: Option<u32>,
    writing: Option<Writing>,
    retry_us: u64,
    conflicts: u32,
    given: PeerNumbers,
    /// `given` may be out of date.
    has_changed: bool,
}

impl Default for Peers {
    fn default() -> Peers {
        Peers {
            known: Known::default(),
            lines: Vec::new(),
            is_foreign: false,
            most_names: MOST_NAMES,
            last: None,
            writing: None,
            retry_us: 0,
            conflicts: 0,
            given: PeerNumbers::default(),
            has_changed: false,
        }
    }
}

impl Peers {
    pub(crate) fn set_most_names(&mut self, most: usize) {
        self.most_names = most;
    }

    /// A record or the session has changed.
    pub(crate) fn touch(&mut self) {
        self.has_changed = true;
    }

    /// The object as the watch shows it. Err: what of it cannot be read; None: another object.
    pub(crate) fn heard(&mut self, object: &Object) -> Option<Result<(), String>> {
        if object.name.0 != [NAME] {
            return None;
        }
        if !self.known.hear(object.revision, object.contents.is_some()) {
            return Some(Ok(()));
        }
        (self.has_changed, self.retry_us, self.conflicts) = (true, 0, 0);
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
    pub(crate) fn before_snapshot(&mut self) {
        self.known.before_snapshot();
    }

    /// It has come, with this revision; its objects follow.
    pub(crate) fn at_snapshot(&mut self, revision: Revision) {
        self.known.at_snapshot(revision);
    }

    /// A snapshot has been read. If it does not have the object, that was removed, or was first written since.
    pub(crate) fn after_snapshot(&mut self, objects: &[Object]) {
        (self.has_changed, self.retry_us, self.conflicts) = (true, 0, 0);
        if self.known.after_snapshot(has_object(objects, NAME)) {
            self.is_foreign = false;
            self.lines.clear();
        }
    }

    /// The number that the present session has.
    pub(crate) fn own(&self, context: &Context<'_>) -> Option<u32> {
        let is_own = |line: &&Line| line.node == *context.id && line.session == context.session;
        self.lines.iter().find(is_own).map(|line| line.number)
    }

    /// See [`crate::Node::next_peer_numbers`].
    pub(crate) fn next_numbers(&mut self, context: &Context<'_>) -> Option<PeerNumbers> {
        if !std::mem::take(&mut self.has_changed) {
            return None;
        }
        let own = self.own(context);
        self.last = own.or(self.last);
        let node = |line: &Line| NumberedNode {
            number: line.number,
            id: line.node.clone(),
            address: context.live.get(&line.node).map(|record| record.address.clone()),
        };
        let mut nodes: Vec<NumberedNode> = self.lines.iter().map(node).collect();
        nodes.sort_by_key(|node| node.number);
        let numbers = PeerNumbers { own, nodes };
        if numbers == self.given {
            return None;
        }
        self.given.clone_from(&numbers);
        Some(numbers)
    }

    fn has_work(&self, context: &Context<'_>) -> bool {
        let may_write = context.can_swap && !context.is_leaving && !self.is_foreign && self.writing.is_none();
        may_write && self.own(context).is_none()
    }

    /// Writes the own line, if the present session has none.
    pub(crate) fn poll(
        &mut self,
        context: &Context<'_>,
        next_call: impl FnOnce() -> CallId,
    ) -> Option<Request> {
        if context.now_us < self.retry_us || !self.has_work(context) {
            return None;
        }
        let Some(lines) = self.with_own_line(context) else {
            // More than 16,383 live nodes.
            self.retry_us = context.now_us + TOO_MANY_RETRY_US;
            return None;
        };
        let (call, expected, contents) = (next_call(), self.known.expected(), Some(write(&lines)));
        self.writing = Some(Writing { call, expected, lines });
        Some(Request::Swap { call, name: ObjectName(vec![NAME.to_owned()]), expected, contents })
    }

    /// The lines with the own one at their end: with the number that stands beside the name, else with the one that it had last, else with the lowest that is free.
    fn with_own_line(&self, context: &Context<'_>) -> Option<Vec<Line>> {
        let mut lines = self.lines.clone();
        let present = lines.iter().position(|line| line.node == *context.id);
        let number = match present {
            Some(at) => lines.remove(at).number,
            None => {
                while lines.len() >= self.most_names {
                    let is_gone = |line: &Line| !context.live.contains_key(&line.node);
                    let Some(gone) = lines.iter().position(is_gone) else { break };
                    lines.remove(gone);
                }
                let taken: BTreeSet<u32> = lines.iter().map(|line| line.number).collect();
                self.last.into_iter().chain(1..=LARGEST).find(|number| !taken.contains(number))?
            }
        };
        lines.push(Line { number, node: context.id.clone(), session: context.session });
        Some(lines)
    }

    /// Whether this call was one of its own; it has been written.
    pub(crate) fn swapped(&mut self, call: CallId, revision: Revision) -> bool {
        let Some(Writing { lines, .. }) = self.writing.take_if(|writing| writing.call == call) else {
            return false;
        };
        if self.known.wrote(revision, true) {
            self.lines = lines;
            self.has_changed = true;
        }
        self.conflicts = 0;
        true
    }

    /// A write has failed, or it is not known whether it has.
    pub(crate) fn not_swapped(&mut self, call: CallId, now_us: u64) {
        let Some(Writing { expected, .. }) = self.writing.take_if(|writing| writing.call == call) else {
            return;
        };
        // What has been written instead may be known already.
        if expected == self.known.expected() {
            self.retry_us = now_us + RETRY_US;
            self.conflicts += 1;
        }
    }

    /// The watch does not show what the store has.
    pub(crate) fn take_stale(&mut self) -> bool {
        let is_stale = self.conflicts >= MOST_CONFLICTS;
        if is_stale {
            self.conflicts = 0;
        }
        is_stale
    }

    /// When a write is tried again.
    pub(crate) fn deadline_us(&self, context: &Context<'_>) -> Option<u64> {
        self.has_work(context).then_some(self.retry_us)
    }
}

fn read(contents: &[u8]) -> Result<Vec<Line>, String> {
    let (mut read, mut numbers, mut names) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for text in lines(contents)? {
        let line = read_line(text).ok_or_else(|| format!("a peer cannot be read: {}", shown(text)))?;
        if !numbers.insert(line.number) || !names.insert(line.node.clone()) {
            return Err(format!("a peer is there twice: {}", shown(text)));
        }
        read.push(line);
    }
    Ok(read)
}

fn read_line(text: &str) -> Option<Line> {
    let mut words = text.split(' ');
    let number = words.next()?.parse().ok().filter(|number| (1..=LARGEST).contains(number))?;
    let node = words.next().filter(|word| !word.is_empty())?.into();
    let session = read_session(words.next()?)?;
    words.next().is_none().then_some(Line { number, node, session })
}

fn write(lines: &[Line]) -> Vec<u8> {
    let mut text = format!("{FORMAT}\n");
    for Line { number, node, session } in lines {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{number} {node} {:016x}", session.0);
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::store::NodeRecord;

    fn record(session: u64) -> NodeRecord {
        NodeRecord {
            session: SessionId(session),
            address: "h:1".to_owned(),
            version: String::new(),
            started_s: 0,
            clients: 0,
            servers: 0,
            is_draining: false,
            pools: crate::store::PoolsInUse::default(),
        }
    }

    /// A node with its part of the state that is tested, and the nodes that it sees; its session is 1.
    struct Bench {
        id: NodeId,
        session: u64,
        live: BTreeMap<NodeId, NodeRecord>,
        peers: Peers,
        now_us: u64,
    }

    impl Bench {
        fn new(id: &str, live: &[&str]) -> Bench {
            let live = live.iter().map(|id| (NodeId::from(*id), record(1))).collect();
            Bench { id: id.into(), session: 1, live, peers: Peers::default(), now_us: 0 }
        }

        fn with<T>(&mut self, then: impl FnOnce(&mut Peers, &Context<'_>) -> T) -> T {
            let context = Context {
                id: &self.id,
                session: SessionId(self.session),
                earlier: &[],
                live: &self.live,
                can_swap: true,
                is_leaving: false,
                now_us: self.now_us,
            };
            then(&mut self.peers, &context)
        }

        fn heard(&mut self, revision: u64, text: &str) -> Result<(), String> {
            let contents = Some(format!("weir-fleet 1\n{text}").into_bytes());
            let name = ObjectName(vec!["peers".to_owned()]);
            self.peers
                .heard(&Object { name, revision: Revision(revision), contents })
                .expect("it is its object")
        }

        /// What is written, if anything.
        fn poll(&mut self) -> Option<(u64, String)> {
            match self.with(|peers, context| peers.poll(context, || CallId(5)))? {
                Request::Swap { expected, contents: Some(contents), .. } => {
                    let text = String::from_utf8(contents).expect("it is text");
                    Some((expected.0, text.replace("weir-fleet 1\n", "")))
                }
                other => panic!("{other:?}"),
            }
        }

        fn own(&mut self) -> Option<u32> {
            self.with(|peers, context| peers.own(context))
        }
    }

    #[test]
    fn a_new_name_gets_the_lowest_free_number_once_it_is_written() {
        let mut bench = Bench::new("b", &["a", "b"]);
        assert_eq!(bench.heard(7, "1 a 0000000000000001\n3 c 0000000000000001\n"), Ok(()));
        let written = "1 a 0000000000000001\n3 c 0000000000000001\n2 b 0000000000000001\n";
        assert_eq!(bench.poll(), Some((7, written.to_owned())));
        assert_eq!(
            (bench.own(), bench.poll()),
            (None, None),
            "one write at a time, and no number before its end"
        );
        assert!(bench.peers.swapped(CallId(5), Revision(8)));
        assert_eq!((bench.own(), bench.poll()), (Some(2), None));
        let numbers = bench.with(Peers::next_numbers).expect("they have changed");
        let nodes: Vec<_> =
            numbers.nodes.iter().map(|node| (node.number, &*node.id, node.address.as_deref())).collect();
        assert_eq!(
            (numbers.own, nodes),
            (Some(2), vec![(1, "a", Some("h:1")), (2, "b", Some("h:1")), (3, "c", None)])
        );
        bench.peers.touch();
        assert_eq!(bench.with(Peers::next_numbers), None, "nothing has changed");
    }

    #[test]
    fn a_number_stays_with_its_name_and_is_written_anew_by_each_session() {
        let mut bench = Bench::new("b", &["b"]);
        assert_eq!(bench.heard(7, "9 b 00000000000000ff\n1 a 0000000000000001\n"), Ok(()));
        assert_eq!(bench.own(), None, "it is another session's");
        assert_eq!(bench.poll(), Some((7, "1 a 0000000000000001\n9 b 0000000000000001\n".to_owned())));
        assert!(bench.peers.swapped(CallId(5), Revision(8)));
        bench.session = 2;
        assert_eq!(bench.own(), None);
        assert!(bench.poll().is_some_and(|(expected, _)| expected == 8));
    }

    #[test]
    fn the_number_of_the_name_that_is_gone_for_longest_is_given_away_where_there_are_too_many() {
        let mut bench = Bench::new("d", &["a", "d"]);
        bench.peers.set_most_names(3);
        let lines = "1 a 0000000000000001\n2 b 0000000000000001\n3 c 0000000000000001\n";
        assert_eq!(bench.heard(7, lines), Ok(()));
        let written = "1 a 0000000000000001\n3 c 0000000000000001\n2 d 0000000000000001\n";
        assert_eq!(bench.poll(), Some((7, written.to_owned())));
        let mut bench = Bench::new("d", &["a", "b", "c", "d"]);
        bench.peers.set_most_names(3);
        assert_eq!(bench.heard(7, lines), Ok(()));
        assert_eq!(bench.poll(), Some((7, format!("{lines}4 d 0000000000000001\n"))), "all of them live");
    }

    #[test]
    fn a_write_that_met_another_is_repeated_when_that_is_known() {
        let mut bench = Bench::new("b", &["a", "b"]);
        assert_eq!(bench.poll(), Some((0, "1 b 0000000000000001\n".to_owned())));
        bench.peers.not_swapped(CallId(5), 10);
        bench.now_us = 10;
        assert_eq!(
            (bench.poll(), bench.with(|peers, context| peers.deadline_us(context))),
            (None, Some(500_010))
        );
        assert_eq!(bench.heard(7, "1 a 0000000000000001\n"), Ok(()));
        assert!(
            bench
                .poll()
                .is_some_and(|(expected, text)| expected == 7 && text.ends_with("2 b 0000000000000001\n"))
        );
        // Known before the answer.
        assert_eq!(bench.heard(9, "1 a 0000000000000001\n2 c 0000000000000001\n"), Ok(()));
        bench.peers.not_swapped(CallId(5), 10);
        assert!(
            bench
                .poll()
                .is_some_and(|(expected, text)| expected == 9 && text.ends_with("3 b 0000000000000001\n"))
        );
    }

    #[test]
    fn a_number_is_kept_when_the_object_is_lost_and_all_is_read_again_when_the_watch_is_behind() {
        let mut bench = Bench::new("b", &["b"]);
        assert_eq!(bench.heard(7, "4 b 0000000000000001\n"), Ok(()));
        let _ = bench.with(Peers::next_numbers);
        bench.peers.before_snapshot();
        bench.peers.at_snapshot(Revision(8));
        bench.peers.after_snapshot(&[]);
        for turn in 0..6 {
            assert!(!bench.peers.take_stale(), "{turn}");
            assert_eq!(bench.poll(), Some((0, "4 b 0000000000000001\n".to_owned())));
            bench.peers.not_swapped(CallId(5), bench.now_us);
            bench.now_us += RETRY_US;
        }
        assert!(bench.peers.take_stale());
    }

    #[test]
    fn what_cannot_be_read_is_left_alone() {
        for text in [
            "0 a 0000000000000001\n",
            "16384 a 0000000000000001\n",
            "1 a 1\n",
            "1 a 0000000000000001 x\n",
            "1  0000000000000001\n",
            "1 a 0000000000000001\n1 b 0000000000000001\n",
            "1 a 0000000000000001\n2 a 0000000000000001\n",
        ] {
            let mut bench = Bench::new("b", &["b"]);
            assert!(bench.heard(1, text).is_err(), "{text:?}");
            assert_eq!((bench.own(), bench.poll()), (None, None));
            assert_eq!(bench.heard(2, "16383 a 0000000000000001\n"), Ok(()));
            assert!(bench.poll().is_some());
        }
    }
}
