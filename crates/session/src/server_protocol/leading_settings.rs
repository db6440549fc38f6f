//! Settings that Weir sends in front of a client's request, in the same write.
//!
//! Owns their messages. They are a transaction of their own without a Sync, BEGIN, the SETs and COMMIT: if PostgreSQL refuses one of them,
//! it skips all up to the next Sync (55.2.3), so that no request runs under settings of another client. What the request does, and whether
//! it fails, does not concern them. If the request cannot be sent in the same write, because not all of it is here, they end with a Sync of Weir's own.

use wire::encode;

use super::{Boundary, ServerProtocol};
use crate::parameters::bit;
use crate::server_statements::UnnamedStatement;
use crate::{Parameters, PendingReply, Reset, Tracked};

/// Whatever the session's defaults are: a serializable, deferrable transaction would wait for others.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// Parameters that were set in front of a request, and that the server has not reported yet. PostgreSQL does so before ReadyForQuery, unless
/// the request has changed one back to what it had reported before.
#[derive(Debug)]
pub(crate) struct LeadingSettings {
    /// By position, as bits.
    unreported: u64,
    before: Parameters,
}

impl LeadingSettings {
    /// This one is reported; true if it was awaited.
    pub(crate) fn note_report(&mut self, position: usize) -> bool {
        let bit = bit(position);
        let is_awaited = self.unreported & bit != 0;
        self.unreported &= !bit;
        is_awaited
    }

    /// Those that are as they were before.
    pub(crate) fn unchanged(&self) -> impl Iterator<Item = (usize, &str)> {
        let positions = Reset { session: self.unreported, ..Reset::default() };
        positions.positions().filter_map(|position| Some((position, self.before.text(position)?)))
    }
}

impl ServerProtocol {
    /// Settings were sent, and not yet the request that follows them.
    #[inline]
    #[must_use]
    pub fn awaits_request(&self) -> bool {
        self.leading.is_some() && self.replies.newest() == Some(PendingReply::LeadingSetting)
    }

    /// Settings or a deferred BEGIN were sent in front of the client's request, without a Sync, and nothing of that request.
    pub(crate) fn awaits_request_behind_own(&self) -> bool {
        matches!(self.replies.newest(), Some(PendingReply::LeadingSetting | PendingReply::DeferredBegin))
    }

    /// How many replies are owed to what was sent in front of the client's request.
    #[inline]
    #[must_use]
    pub fn leading_replies(&self) -> usize {
        if self.leading.is_some() { self.replies.leading_settings() } else { 0 }
    }

    /// What was sent in front of the client's request is not answered, as long as PostgreSQL keeps the answers back: until the request ends,
    /// unless it sends more than 8 kB before. A cancel request could meet what was sent in front.
    #[must_use]
    pub fn is_led(&self) -> bool {
        matches!(self.replies.front(), Some(PendingReply::LeadingSetting | PendingReply::DeferredBegin))
    }

    /// Appends these statements, which give the server the values of `wanted`; their replies are swallowed. A step of the client's request
    /// has to follow, in the same write.
    pub fn send_leading_settings<'a>(
        &mut self,
        _at: Boundary,
        out: &mut Vec<u8>,
        sets: impl Iterator<Item = &'a str>,
        wanted: &Parameters,
        (tracked, default_params): (&Tracked, &Parameters),
    ) {
        for sql in [BEGIN].into_iter().chain(sets).chain(["COMMIT"]) {
            encode::parse(out, b"", sql.as_bytes(), &[]);
            encode::bind_simple(out, b"", b"", &[]);
            encode::execute(out, b"", 0);
            for _ in 0..3 {
                self.owe(PendingReply::LeadingSetting);
            }
        }
        // As behind a simple query, no unnamed statement is left.
        encode::close(out, b'S', b"");
        self.owe(PendingReply::LeadingSetting);
        self.statements.unnamed = UnnamedStatement::default();
        let before = self.parameters.clone();
        self.parameters.take_over_settable(wanted, tracked);
        let is_awaited = |position: &usize| {
            default_params.value(*position).is_some() && before.value(*position) != wanted.value(*position)
        };
        let unreported = (0..tracked.count())
            .filter(|position| !tracked.is_read_only(*position))
            .filter(is_awaited)
            .fold(0, |bits, position| bits | bit(position));
        self.leading = Some(Box::new(LeadingSettings { unreported, before }));
    }
}
