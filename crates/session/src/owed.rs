//! The replies that a server still owes, in order, and to whom.
//!
//! This is the guard against the worst bug a pooler can have, an answer that reaches the wrong request: every reply must
//! match the oldest entry, or the streams have lost step. Owns the queue and its rules; never sees a byte.

use std::collections::VecDeque;

use crate::prepared::StatementId;

/// One thing that was asked of the server, or that must be said to the client at this point of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owed {
    /// Query: anything, then ReadyForQuery.
    Query,
    /// FunctionCall: a result, then ReadyForQuery.
    Function,
    /// Sync: ReadyForQuery.
    Sync,
    /// The client's Parse: ParseComplete. Named ones carry the statement.
    Parse(Option<StatementId>),
    /// Weir's own Parse, before a Bind or Describe on a server that lacks the statement: swallow its ParseComplete.
    OwnParse(StatementId),
    /// The client's Parse of a statement that the server has already: say ParseComplete for it.
    SayParseComplete,
    /// Bind: BindComplete. Of a named statement it carries that.
    Bind(Option<StatementId>),
    /// Describe: RowDescription or NoData. Of a named statement it carries that.
    Describe(Option<StatementId>),
    /// Bind of a named statement whose request is kept, in case its plan is spoilt.
    WatchedBind(StatementId),
    /// Describe, likewise.
    WatchedDescribe(StatementId),
    /// Bind that is sent to be refused: its client would read the rows by an old description.
    RefusedBind,
    /// Execute: rows, then CommandComplete, EmptyQueryResponse or PortalSuspended.
    Execute,
    /// The client's Close of a portal or the unnamed statement: CloseComplete.
    Close,
    /// Weir's own Close of a statement that made room: swallow its CloseComplete.
    OwnClose(StatementId),
    /// The client's Close of a named statement, which the server keeps: say CloseComplete for it.
    SayCloseComplete,
    /// CopyDone or CopyFail: no reply of its own; ends what a COPY swallows.
    CopyEnd,
    /// A query of Weir's own: swallow everything up to its ReadyForQuery.
    Own,
    /// The Sync of a segment that is said again: swallow its ReadyForQuery.
    OwnSync,
}

impl Owed {
    /// Entries that a ReadyForQuery answers.
    fn ends_with_ready(self) -> bool {
        matches!(self, Owed::Query | Owed::Function | Owed::Sync | Owed::Own | Owed::OwnSync)
    }
}

/// The queue.
#[derive(Debug, Default)]
pub struct Owes {
    queue: VecDeque<Owed>,
}

impl Owes {
    /// Nothing is owed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// A ReadyForQuery is among them: what was asked comes to an end without a further word of the client.
    #[must_use]
    pub fn end_with_ready(&self) -> bool {
        self.queue.iter().any(|owed| owed.ends_with_ready())
    }

    /// How many entries are owed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// The oldest entry.
    #[inline]
    #[must_use]
    pub fn front(&self) -> Option<Owed> {
        self.queue.front().copied()
    }

    /// Asked of the server.
    #[inline]
    pub fn push(&mut self, owed: Owed) {
        self.queue.push_back(owed);
    }

    /// Takes the oldest entry.
    #[inline]
    pub fn pop(&mut self) -> Option<Owed> {
        self.queue.pop_front()
    }

    /// ReadyForQuery arrived: takes the entry that it answers, if it answers the oldest. With it goes the end of a copy
    /// that was sent when the copy had failed already: the server ignores it.
    #[inline]
    pub fn ready(&mut self) -> Option<Owed> {
        let answered = self.queue.front().copied().filter(|owed| owed.ends_with_ready())?;
        self.queue.pop_front();
        while self.queue.front() == Some(&Owed::CopyEnd) {
            self.queue.pop_front();
        }
        Some(answered)
    }

    /// ErrorResponse arrived. In an extended segment the server skips to the next Sync: what was asked before that Sync
    /// is given to `dropped`, and the answer is true if that Sync has not been sent yet.
    pub fn fail(&mut self, mut dropped: impl FnMut(Owed)) -> bool {
        match self.queue.front() {
            None | Some(Owed::Query | Owed::Function | Owed::Sync | Owed::Own | Owed::OwnSync) => {
                return false;
            }
            Some(_) => {}
        }
        while let Some(owed) = self.queue.front().copied() {
            if owed == Owed::Sync {
                return false;
            }
            self.queue.pop_front();
            dropped(owed);
        }
        true
    }

    /// A request is watched for a spoilt plan.
    #[must_use]
    pub fn has_watched(&self) -> bool {
        self.queue.iter().any(|owed| matches!(owed, Owed::WatchedBind(_) | Owed::WatchedDescribe(_)))
    }

    /// A Sync has been sent and not been answered.
    #[must_use]
    pub fn has_sync(&self) -> bool {
        self.queue.contains(&Owed::Sync)
    }

    /// All that is owed is one segment, and its Sync has been sent.
    #[must_use]
    pub fn ends_with_its_only_sync(&self) -> bool {
        self.queue.iter().position(|owed| *owed == Owed::Sync) == self.queue.len().checked_sub(1)
    }

    /// The segment at the head failed because of this statement and is said again behind a fresh Parse.
    pub fn say_again(&mut self, statement: StatementId) {
        match self.queue.front_mut() {
            Some(owed @ Owed::WatchedBind(_)) => *owed = Owed::Bind(Some(statement)),
            Some(owed @ Owed::WatchedDescribe(_)) => *owed = Owed::Describe(Some(statement)),
            _ => {}
        }
        for owed in [Owed::OwnParse(statement), Owed::OwnClose(statement), Owed::OwnSync] {
            self.queue.push_front(owed);
        }
    }

    /// The Parse of this statement has been sent and not been answered.
    #[must_use]
    pub fn is_on_its_way(&self, statement: StatementId) -> bool {
        self.queue
            .iter()
            .any(|owed| matches!(owed, Owed::Parse(Some(id)) | Owed::OwnParse(id) if *id == statement))
    }

    /// A Close of this statement has been sent and not been answered.
    #[must_use]
    pub fn is_closing(&self, statement: StatementId) -> bool {
        self.queue.contains(&Owed::OwnClose(statement))
    }

    /// CopyInResponse arrived for the oldest entry: PostgreSQL ignores Sync while it copies, so those already sent are
    /// not owed. True if the end of the copy was sent already; `odd` is set if something was sent that a copy refuses.
    pub fn copy_in(&mut self, odd: &mut bool) -> bool {
        while let Some(owed) = self.queue.get(1).copied() {
            match owed {
                Owed::CopyEnd => {
                    self.queue.remove(1);
                    return true;
                }
                Owed::Sync => {}
                _ => *odd = true,
            }
            self.queue.remove(1);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owes(entries: &[Owed]) -> Owes {
        Owes { queue: entries.iter().copied().collect() }
    }

    #[test]
    fn ready_answers_only_what_ends_with_it() {
        assert_eq!(owes(&[Owed::Query]).ready(), Some(Owed::Query));
        assert_eq!(owes(&[Owed::Execute, Owed::Sync]).ready(), None, "a reply is missing");
        assert_eq!(owes(&[]).ready(), None, "nobody asked");
    }

    #[test]
    fn ready_takes_the_end_of_a_failed_copy_with_it() {
        let mut queue = owes(&[Owed::Query, Owed::CopyEnd, Owed::Query]);
        assert_eq!(queue.ready(), Some(Owed::Query));
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn an_error_skips_to_the_next_sync_and_no_further() {
        let mut queue = owes(&[Owed::Bind(None), Owed::Execute, Owed::Sync, Owed::Bind(None), Owed::Sync]);
        let mut dropped = vec![];
        assert!(!queue.fail(|owed| dropped.push(owed)));
        assert_eq!(dropped, [Owed::Bind(None), Owed::Execute]);
        assert_eq!(queue.len(), 3);
        assert!(owes(&[Owed::Parse(None)]).fail(drop), "the Sync is still to come");
    }

    #[test]
    fn an_error_of_a_simple_query_skips_nothing() {
        let mut queue = owes(&[Owed::Query, Owed::Query]);
        assert!(!queue.fail(drop));
        assert_eq!(queue.len(), 2);
    }

    #[test]
    fn a_copy_swallows_the_syncs_before_its_end() {
        let mut odd = false;
        let mut queue = owes(&[Owed::Execute, Owed::Sync, Owed::CopyEnd, Owed::Sync]);
        assert!(queue.copy_in(&mut odd));
        assert_eq!(queue.len(), 2);
        assert!(!odd);
        let mut queue = owes(&[Owed::Execute, Owed::Sync]);
        assert!(!queue.copy_in(&mut odd));
        assert_eq!(queue.len(), 1);
        assert!(!owes(&[Owed::Query, Owed::Query]).copy_in(&mut odd));
        assert!(odd);
    }
}
