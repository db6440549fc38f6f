//! What Weir reads of a server's replies for itself, and what it sends a client in place of one.
//!
//! Owns the rows of an internal query while it runs, the half of a description that has come, and the message that takes the
//! place of the server's. Never decides whether a reply is the client's.

use crate::InternalResult;

/// Weir's own part of the replies.
#[derive(Debug, Default)]
pub(crate) struct InternalReplies {
    /// The types of the parameters of the statement that is being described to Weir.
    described_types: Vec<u32>,
    /// The rows of an internal query, while one runs.
    result: Option<Box<InternalResult>>,
    /// What the client gets instead of the server's message.
    replacement: Vec<u8>,
    /// Notifications for the client that keeps the server, which came with the replies to Weir's own query.
    notifications: Vec<u8>,
    /// They are kept whatever is owed.
    collects: bool,
}

impl InternalReplies {
    /// A query is sent whose rows are kept.
    pub(crate) fn begin_result(&mut self) {
        self.result = Some(Box::default());
    }

    /// The rows of the query that runs, if its rows are kept.
    pub(crate) fn result(&mut self) -> Option<&mut InternalResult> {
        self.result.as_deref_mut()
    }

    /// The rows of the last such query.
    pub(crate) fn take_result(&mut self) -> InternalResult {
        self.result.take().map(|result| *result).unwrap_or_default()
    }

    /// The first half of a description has come.
    pub(crate) fn keep_types(&mut self, types: impl Iterator<Item = u32>) {
        self.described_types = types.collect();
    }

    /// The second half has come.
    pub(crate) fn take_types(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.described_types)
    }

    /// The client gets these frames instead of the server's message.
    pub(crate) fn replace(&mut self, frames: Vec<u8>) {
        self.replacement = frames;
    }

    /// A NotificationResponse came while Weir's own query ran.
    pub(crate) fn keep_notification(&mut self, frame: &[u8]) {
        self.notifications.extend_from_slice(frame);
    }

    pub(crate) fn collect_notifications(&mut self, collects: bool) {
        self.collects = collects;
    }

    pub(crate) fn collects_notifications(&self) -> bool {
        self.collects
    }

    /// What is kept.
    pub(crate) fn notifications(&self) -> &[u8] {
        &self.notifications
    }

    pub(crate) fn take_notifications(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.notifications)
    }

    pub(crate) fn take_replacement(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.replacement)
    }
}
