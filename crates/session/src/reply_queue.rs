//! The replies that a server still owes, in order, and to whom.
//!
//! This is the guard against the worst bug a pooler can have, an answer that reaches the wrong request: every reply must
//! match the oldest entry, or the streams have lost step. Owns the queue and its rules; which replies there are is
//! [`pending`]'s. Never sees a byte.

mod pending;
pub(crate) mod transaction;

use std::collections::VecDeque;

pub(crate) use pending::{PendingReply, Reader};

use transaction::Asked;

use crate::prepared::StatementId;

/// Proof that no reply is owed: only then does the status of a ReadyForQuery count as current.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NothingOwed(());

/// The queue, and which place of the stream its entries stand for.
#[derive(Debug)]
pub(crate) struct ReplyQueue {
    queue: VecDeque<PendingReply>,
    /// How many entries have been answered: the number of the oldest.
    answered: u64,
    /// Counts the Syncs sent: an error skips to the end of its segment and no further.
    segment: u64,
    /// The number behind the last entry whose execution may change which statements are prepared.
    changes_before: u64,
    /// At most this many entries are unanswered at a time; 0: whether anything is sent is looked at each time.
    most: usize,
    is_held: bool,
    /// Nothing is sent but what belongs to a request, or a transaction, that the server has begun.
    ends: bool,
    /// The names that entries are refused for, with their numbers.
    refused: VecDeque<(u64, Box<[u8]>)>,
    /// The number behind the entries that a Flush of the client has followed.
    flushed_before: u64,
    /// Something was pushed that the server does not answer, and the queue has not been empty since.
    has_local: bool,
    /// Bytes that Weir has written of its own accord, or kept, since the queue was last empty.
    internal_bytes: usize,
}

/// Entries that a reply step can put in front (a request that is sent again) without counting below zero.
const FIRST_NUMBER: u64 = 16;

/// At most this many requests are unanswered at a time, so that what is kept for each has a bound.
const UNANSWERED_MAX: usize = 8192;

/// The bound on bytes that Weir writes of its own accord, or keeps, before all replies have come: a Bind of a few bytes may need
/// a Parse of millions.
const INTERNAL_BYTES_MAX: usize = 256 * 1024;

impl Default for ReplyQueue {
    fn default() -> ReplyQueue {
        let queue = VecDeque::new();
        let (most, refused) = (UNANSWERED_MAX, VecDeque::new());
        let (answered, has_local, internal_bytes) = (FIRST_NUMBER, false, 0);
        ReplyQueue {
            queue,
            answered,
            segment: 0,
            changes_before: 0,
            flushed_before: 0,
            most,
            is_held: false,
            ends: false,
            refused,
            has_local,
            internal_bytes,
        }
    }
}

impl ReplyQueue {
    /// Some if no reply is owed.
    #[inline(always)]
    pub(crate) fn nothing_owed(&self) -> Option<NothingOwed> {
        self.queue.is_empty().then_some(NothingOwed(()))
    }

    /// No reply is owed.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// No further request is sent before some are answered.
    #[inline]
    #[must_use]
    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() >= self.most
    }

    /// No further request is sent until [`ReplyQueue::release`].
    pub(crate) fn hold(&mut self) {
        (self.most, self.is_held) = (0, true);
    }

    /// Requests are sent again.
    pub(crate) fn release(&mut self) {
        self.is_held = false;
        self.most = if self.ends { 0 } else { UNANSWERED_MAX };
    }

    /// From here on a request is sent only as a part of what was begun, when all those before it are answered.
    pub(crate) fn end(&mut self) {
        (self.most, self.ends) = (0, true);
    }

    /// The opposite of [`ReplyQueue::end`].
    pub(crate) fn resume(&mut self) {
        self.ends = false;
        self.most = if self.is_held { 0 } else { UNANSWERED_MAX };
    }

    #[inline]
    pub(crate) fn ends(&self) -> bool {
        self.ends
    }

    /// Where [`ReplyQueue::is_full`]: the next message of the client has to wait. `is_at_rest`: no request and no transaction goes on.
    #[cold]
    #[inline(never)]
    pub(crate) fn keeps_next(&self, is_at_rest: bool) -> bool {
        let may_go_on = self.ends && !self.is_held && self.len() < UNANSWERED_MAX;
        // Settings are no part of a request, nor of a transaction.
        let is_first = is_at_rest || self.newest() == Some(PendingReply::LeadingSetting);
        !may_go_on || is_first || self.awaits_ready()
    }

    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    /// Counts bytes that the client has not sent and that go to the server, or are kept until a reply comes.
    #[cold]
    pub(crate) fn note_internal_bytes(&mut self, bytes: usize) {
        if self.queue.is_empty() {
            self.internal_bytes = 0;
        }
        self.internal_bytes += bytes;
    }

    /// Nothing more is written of Weir's own accord before all that is owed is answered.
    pub(crate) fn internal_bytes_full(&self) -> bool {
        !self.queue.is_empty() && self.internal_bytes >= INTERNAL_BYTES_MAX
    }

    /// The number of the oldest reply owed once a request that has to wait now may be looked at again.
    pub(crate) fn awaited(&self) -> u64 {
        if self.ends && self.awaits_ready() {
            self.next_number()
        } else if self.is_full() {
            self.answered + (self.queue.len() as u64 / 2).max(1)
        } else if self.internal_bytes_full()
            || matches!(self.queue.back(), Some(PendingReply::InternalDescribe(..)))
        {
            self.next_number()
        } else {
            self.changes_before.max(self.answered + 1)
        }
    }

    /// What was asked last.
    pub(crate) fn newest(&self) -> Option<PendingReply> {
        self.queue.back().copied()
    }

    /// The number of the segment that is being sent.
    #[inline]
    #[must_use]
    pub(crate) fn segment(&self) -> u64 {
        self.segment
    }

    /// The request that was pushed last may change which statements are prepared, by SQL.
    #[inline]
    pub(crate) fn note_change(&mut self) {
        self.changes_before = self.next_number();
    }

    /// Such a request is unanswered.
    #[inline]
    pub(crate) fn has_change(&self) -> bool {
        self.answered < self.changes_before
    }

    /// The oldest segment whose end is unanswered: what the server sends now belongs to it.
    pub(crate) fn answering_segment(&self) -> u64 {
        let ends = self
            .queue
            .iter()
            .filter(|pending| matches!(pending, PendingReply::Sync | PendingReply::InternalSync));
        self.segment - (ends.count() as u64).min(self.segment)
    }

    /// Queues a request that the server refuses because of this name.
    pub(crate) fn push_refused(&mut self, name: &[u8], asked: Asked) {
        self.note_internal_bytes(name.len());
        self.refused.push_back((self.next_number(), name.into()));
        self.push(PendingReply::Refused, asked);
    }

    /// The name that the oldest entry is refused for.
    pub(crate) fn refused_name(&mut self) -> Option<Box<[u8]>> {
        while self.refused.front().is_some_and(|(number, _)| *number < self.answered) {
            self.refused.pop_front();
        }
        let (_, name) = self.refused.pop_front_if(|(number, _)| *number == self.answered)?;
        Some(name)
    }

    /// A ReadyForQuery is among them: the requests end without a further message of the client.
    #[must_use]
    pub(crate) fn end_with_ready(&self) -> bool {
        self.queue.iter().any(|pending| pending.ends_with_ready())
    }

    /// The newest entry is answered with ReadyForQuery, with which the server sends all that it has kept.
    pub(crate) fn ends_with_ready(&self) -> bool {
        self.queue.back().is_none_or(|pending| pending.ends_with_ready())
    }

    /// A reply is owed, and the newest ends with ReadyForQuery. An entry for the end of a copy is passed over: it ends no request.
    pub(crate) fn awaits_ready(&self) -> bool {
        let mut newest = self.queue.iter().rev().skip_while(|pending| **pending == PendingReply::CopyEnd);
        newest.next().is_some_and(|pending| pending.ends_with_ready())
    }

    /// The client sends Flush: what was asked before it is answered without a further message.
    pub(crate) fn note_flush(&mut self) {
        self.flushed_before = self.next_number();
    }

    /// The server answers the oldest entry without a further message: that ends with ReadyForQuery, or one behind it does, or Flush has followed it.
    pub(crate) fn owes_answer(&self) -> bool {
        self.end_with_ready() || self.answered < self.flushed_before
    }

    /// The number of the entry that is pushed next.
    #[inline]
    pub(crate) fn next_number(&self) -> u64 {
        self.answered + self.queue.len() as u64
    }

    /// The number of the entry that was pushed last.
    pub(crate) fn last_number(&self) -> u64 {
        self.next_number().saturating_sub(1)
    }

    /// Counts the entries that were answered or skipped: the number of the oldest.
    #[inline]
    pub(crate) fn answered(&self) -> u64 {
        self.answered
    }

    /// The number of replies owed.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// How many replies are owed to settings, before all others.
    pub(crate) fn leading_settings(&self) -> usize {
        self.queue.iter().take_while(|pending| **pending == PendingReply::LeadingSetting).count()
    }

    /// The oldest reply owed.
    #[inline]
    #[must_use]
    pub(crate) fn front(&self) -> Option<PendingReply> {
        self.queue.front().copied()
    }

    /// An error that answers the oldest entry has the server skip the one behind it.
    pub(crate) fn second_is_skipped(&self) -> bool {
        self.queue.get(1).is_some_and(|pending| *pending != PendingReply::Sync)
    }

    /// Appends the reply to a request that is being sent.
    #[inline(always)]
    pub(crate) fn push(&mut self, pending: PendingReply, _asked: Asked) {
        self.segment += u64::from(pending == PendingReply::Sync);
        self.has_local |= pending.is_local();
        self.queue.push_back(pending);
    }

    /// Appends the reply to a Sync of Weir's own: what comes next belongs to a segment of its own.
    pub(crate) fn push_internal_sync(&mut self, asked: Asked) {
        self.segment += 1;
        self.push(PendingReply::InternalSync, asked);
    }

    /// The segment at the head ends with a Sync of Weir's own.
    pub(crate) fn fails_unseen(&self) -> bool {
        let mut entries = self.queue.iter().skip_while(|pending| **pending == PendingReply::InternalOwnParse);
        self.front() == Some(PendingReply::InternalOwnParse)
            && entries.next() == Some(&PendingReply::InternalSync)
    }

    /// The oldest entry may be one that the server does not answer.
    #[inline]
    pub(crate) fn may_be_local(&self) -> bool {
        self.has_local
    }

    /// The end of a COPY was sent that the server has not said to read yet.
    pub(crate) fn has_copy_end(&self) -> bool {
        self.has_local && self.queue.contains(&PendingReply::CopyEnd)
    }

    /// Takes the oldest entry if the server does not answer it.
    #[inline(never)]
    pub(crate) fn pop_local(&mut self) -> Option<PendingReply> {
        let pending = self.queue.pop_front_if(|pending| pending.is_local());
        self.answered += u64::from(pending.is_some());
        self.has_local &= !self.queue.is_empty();
        pending
    }

    /// Takes the oldest entry.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<PendingReply> {
        let pending = self.queue.pop_front()?;
        self.answered += 1;
        Some(pending)
    }

    /// ReadyForQuery arrived: takes the entry that it answers, if it answers the oldest. With it goes the end of a copy
    /// that was sent when the copy had failed already: the server ignores it.
    #[inline]
    pub(crate) fn ready(&mut self) -> Option<PendingReply> {
        let answered = self.front().filter(|pending| pending.ends_with_ready())?;
        self.pop();
        while self.front() == Some(PendingReply::CopyEnd) {
            self.pop();
        }
        Some(answered)
    }

    /// ErrorResponse arrived. In an extended segment the server skips to the next Sync: what was asked before that Sync
    /// is given to `dropped`, and the answer is true if that Sync has not been sent yet.
    pub(crate) fn fail(&mut self, mut dropped: impl FnMut(PendingReply)) -> bool {
        match self.queue.front() {
            None => return false,
            Some(pending) if pending.ends_with_ready() => return false,
            Some(_) => {}
        }
        while let Some(pending) = self.front() {
            if matches!(pending, PendingReply::Sync | PendingReply::InternalSync) {
                return false;
            }
            self.pop();
            dropped(pending);
        }
        true
    }

    /// A request is recorded in case its plan is stale.
    #[must_use]
    pub(crate) fn has_recorded(&self) -> bool {
        self.queue.iter().any(|pending| {
            matches!(pending, PendingReply::RecordedBind(_) | PendingReply::RecordedDescribe(_))
        })
    }

    /// The segment at the head failed because of this statement and is sent again behind a new Parse. With a Sync of
    /// Weir's own behind its first part (`synced`), what comes next belongs to a segment of its own.
    pub(crate) fn requeue_replayed(&mut self, statement: StatementId, reader: Reader, synced: bool) {
        self.segment += u64::from(synced);
        match self.queue.front_mut() {
            Some(pending @ PendingReply::RecordedBind(_)) => *pending = PendingReply::NamedBind(statement),
            Some(pending @ PendingReply::RecordedDescribe(_)) => {
                *pending = PendingReply::NamedDescribe(statement)
            }
            _ => {}
        }
        let described = PendingReply::InternalDescribe(statement, reader);
        for pending in [
            described,
            PendingReply::InternalParse(statement),
            PendingReply::InternalClose(statement),
            PendingReply::InternalSync,
        ] {
            self.queue.push_front(pending);
            self.answered -= 1;
        }
    }

    /// CopyInResponse arrived for the oldest entry: takes what was sent already and that the server reads as a part of the
    /// copy. PostgreSQL ignores Sync while it copies (55.2.6), so that none is owed unless the copy fails before it.
    pub(crate) fn copy_in(&mut self) -> CopyBegun {
        let mut begun = CopyBegun::default();
        while let Some(pending) = self.queue.get(1).copied() {
            match pending {
                PendingReply::Sync => begun.syncs += 1,
                PendingReply::CopyEnd => begun.ended = true,
                _ => {
                    begun.refuses = true;
                    break;
                }
            }
            self.queue.remove(1);
            self.answered += 1;
            if begun.ended {
                return begun;
            }
        }
        // A Flush from before the copy has been answered with its beginning, and makes the server say nothing of its end.
        self.flushed_before = 0;
        begun
    }
}

/// What was sent behind a request before it was known to be a COPY from the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CopyBegun {
    /// Its end, CopyDone or CopyFail.
    pub(crate) ended: bool,
    /// Syncs before that.
    pub(crate) syncs: u32,
    /// A message before that which the server refuses while it copies: it is answered only if the copy has failed.
    pub(crate) refuses: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use transaction::TransactionStatus;
    use wire::backend::Status;

    fn replies(entries: &[PendingReply]) -> ReplyQueue {
        ReplyQueue { queue: entries.iter().copied().collect(), ..ReplyQueue::default() }
    }

    #[test]
    fn ready_answers_only_what_ends_with_it() {
        assert_eq!(replies(&[PendingReply::Query]).ready(), Some(PendingReply::Query));
        assert_eq!(replies(&[PendingReply::Execute, PendingReply::Sync]).ready(), None, "a reply is missing");
        assert_eq!(replies(&[]).ready(), None, "nothing was asked");
    }

    #[test]
    fn ready_takes_the_end_of_a_failed_copy_with_it() {
        let mut queue = replies(&[PendingReply::Query, PendingReply::CopyEnd, PendingReply::Query]);
        assert_eq!(queue.ready(), Some(PendingReply::Query));
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn an_error_skips_to_the_next_sync_and_no_further() {
        let mut queue = replies(&[
            PendingReply::Bind,
            PendingReply::Execute,
            PendingReply::Sync,
            PendingReply::Bind,
            PendingReply::Sync,
        ]);
        let mut dropped = vec![];
        assert!(!queue.fail(|pending| dropped.push(pending)));
        assert_eq!(dropped, [PendingReply::Bind, PendingReply::Execute]);
        assert_eq!(queue.len(), 3);
        assert!(replies(&[PendingReply::Parse]).fail(drop), "the Sync is still to come");
    }

    #[test]
    fn a_segment_is_answered_by_the_reply_to_its_sync() {
        let (mut queue, mut transaction) = (ReplyQueue::default(), TransactionStatus::new(Status::Idle));
        for pending in [
            PendingReply::Execute,
            PendingReply::Sync,
            PendingReply::Execute,
            PendingReply::Sync,
            PendingReply::Execute,
        ] {
            queue.push(pending, transaction.asked());
        }
        let mut answering = vec![queue.answering_segment()];
        while queue.pop().is_some() {
            answering.push(queue.answering_segment());
        }
        assert_eq!(answering, [0, 0, 1, 1, 2, 2]);
    }

    #[test]
    fn an_answer_is_owed_behind_flush_and_before_a_ready() {
        let (mut queue, mut transaction) = (ReplyQueue::default(), TransactionStatus::new(Status::Idle));
        let mut push = |queue: &mut ReplyQueue, pending| queue.push(pending, transaction.asked());
        push(&mut queue, PendingReply::Parse);
        assert!(!queue.owes_answer());
        queue.note_flush();
        push(&mut queue, PendingReply::Bind);
        assert!(queue.owes_answer());
        queue.pop();
        assert!(!queue.owes_answer(), "Bind is behind it");
        push(&mut queue, PendingReply::Sync);
        push(&mut queue, PendingReply::Parse);
        assert!(queue.owes_answer());
    }

    #[test]
    fn of_a_copy_the_end_is_owed_only_by_a_flush_behind_it() {
        let flushed_behind = |entries: &[PendingReply], flushed| {
            let mut queue = replies(&[]);
            let mut transaction = TransactionStatus::new(Status::Idle);
            for (place, pending) in entries.iter().enumerate() {
                queue.push(*pending, transaction.asked());
                if place == flushed {
                    queue.note_flush();
                }
            }
            queue.copy_in();
            queue.owes_answer()
        };
        assert!(!flushed_behind(&[PendingReply::Execute], 0));
        assert!(!flushed_behind(&[PendingReply::Execute, PendingReply::CopyEnd], 0));
        assert!(flushed_behind(&[PendingReply::Execute, PendingReply::CopyEnd], 1));
    }

    #[test]
    fn what_ends_passes_on_the_rest_of_what_was_begun_and_settings_begin_nothing() {
        let keeps = |entries: &[PendingReply]| {
            let mut queue = replies(entries);
            queue.end();
            queue.keeps_next(false)
        };
        assert!(!keeps(&[PendingReply::Parse]), "its segment goes on");
        assert!(keeps(&[PendingReply::Query]));
        assert!(keeps(&[PendingReply::LeadingSetting]));
        assert!(!keeps(&[PendingReply::LeadingSetting, PendingReply::Parse]));
        assert!(
            !keeps(&[PendingReply::LeadingSetting, PendingReply::DeferredBegin]),
            "its transaction goes on"
        );
    }

    #[test]
    fn an_error_of_a_simple_query_skips_nothing() {
        let mut queue = replies(&[PendingReply::Query, PendingReply::Query]);
        assert!(!queue.fail(drop));
        assert_eq!(queue.len(), 2);
    }

    #[test]
    fn a_copy_swallows_the_syncs_before_its_end() {
        let mut queue =
            replies(&[PendingReply::Execute, PendingReply::Sync, PendingReply::CopyEnd, PendingReply::Sync]);
        assert_eq!(queue.copy_in(), CopyBegun { ended: true, syncs: 1, refuses: false });
        assert_eq!(queue.len(), 2);
        let mut queue = replies(&[PendingReply::Execute, PendingReply::Sync]);
        assert_eq!(queue.copy_in(), CopyBegun { ended: false, syncs: 1, refuses: false });
        assert_eq!(queue.len(), 1);
        let mut queue = replies(&[PendingReply::Query, PendingReply::Query]);
        assert_eq!(queue.copy_in(), CopyBegun { ended: false, syncs: 0, refuses: true });
        assert_eq!(queue.len(), 2, "it is answered if the copy has failed before it");
    }
}
