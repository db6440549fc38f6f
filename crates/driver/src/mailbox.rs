//! The shards' mailboxes: the only way into a thread besides its sockets.
//!
//! Owns the queue and the wake-up (an eventfd, written only when the queue was empty). Never reads a message.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use auth::TaskResult;
use messages::{Command, ShardId, ShardMessage};
use rustix::event::{EventfdFlags, eventfd};
use shard::{ConnId, Peer};

use crate::conn_move::{ConnMove, Imported};
use crate::ids::{Generation, TableId};
use crate::names::Addresses;

/// What may be written to a shard's thread.
pub(crate) enum MailboxMessage {
    /// For the shard, from the control thread.
    Command(Command),
    /// For the shard, from another one.
    ShardMessage(ShardMessage),
    /// A client that moves here.
    Adopt(ConnMove),
    /// A helper has answered a login's question.
    Answered { conn: ConnId, generation: Generation, answer: TaskResult },
    /// A helper has looked up.
    Resolved { conn: ConnId, generation: Generation, addresses: Result<Addresses, String> },
    /// A client that was accepted on a TCP socket when that was closed.
    Accepted { socket: OwnedFd, peer: Peer },
    /// Stop accepting; `all` means the unix socket too.
    CloseListeners { all: bool },
    /// Pause accepting, because another process is to watch the same sockets. [`crate::takeover::Item::AcceptingPaused`]
    /// answers.
    PauseAccepting,
    /// Accept again.
    ResumeAccepting,
    /// Accept clients too, or leave that to the thread that does it for all.
    ShareAccepting { is_shared: bool },
    /// Something from a process that this one takes over from.
    Import(Imported),
    /// Leave the loop.
    Stop,
}

/// The mailboxes of all shards.
#[derive(Clone)]
pub(crate) struct Mailboxes(Arc<[Mailbox]>);

impl Mailboxes {
    /// An empty mailbox for each shard.
    pub(crate) fn new(shards: u16) -> io::Result<Mailboxes> {
        let mailboxes: io::Result<Vec<Mailbox>> = (0..shards).map(|_| Mailbox::new()).collect();
        Ok(Mailboxes(mailboxes?.into()))
    }

    /// How many shards there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The mailbox of a shard of this process.
    pub(crate) fn of(&self, shard: ShardId) -> &Mailbox {
        &self.0[shard.index()]
    }

    /// Sends a message to one shard.
    pub(crate) fn post(&self, to: ShardId, message: MailboxMessage) {
        let mailbox = self.0.get(to.index());
        debug_assert!(mailbox.is_some(), "no such shard");
        if let Some(mailbox) = mailbox {
            mailbox.post(message);
        }
    }

    /// Sends a message to every shard but one.
    pub(crate) fn post_others(&self, but: ShardId, message: impl Fn() -> MailboxMessage) {
        let others = (0..).map(ShardId).zip(self.0.iter()).filter(|(shard, _)| *shard != but);
        others.for_each(|(_, mailbox)| mailbox.post(message()));
    }

    /// Sends a message to every shard.
    pub(crate) fn post_all(&self, message: impl Fn() -> MailboxMessage) {
        self.0.iter().for_each(|mailbox| mailbox.post(message()));
    }
}

/// One shard's messages.
pub(crate) struct Mailbox {
    messages: Mutex<VecDeque<MailboxMessage>>,
    wakeup: OwnedFd,
}

impl Mailbox {
    /// An empty mailbox.
    pub(crate) fn new() -> io::Result<Mailbox> {
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Mailbox { messages: Mutex::new(VecDeque::new()), wakeup })
    }

    /// Adds a message, and wakes the owner if it may be asleep.
    pub(crate) fn post(&self, message: MailboxMessage) {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let was_empty = messages.is_empty();
        messages.push_back(message);
        drop(messages);
        if was_empty {
            // The counter is never read and cannot overflow in any process's life; each write is an edge.
            let _ = rustix::io::write(&self.wakeup, &1_u64.to_ne_bytes());
        }
    }

    /// Takes all messages; `into` should be empty and is reused.
    pub(crate) fn collect(&self, into: &mut VecDeque<MailboxMessage>) {
        std::mem::swap(&mut *self.messages.lock().unwrap_or_else(PoisonError::into_inner), into);
    }

    /// Readable (edge-triggered) when messages have arrived.
    pub(crate) fn wakeup(&self) -> &OwnedFd {
        &self.wakeup
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_the_first_letter_rings() {
        let mailbox = Mailbox::new().unwrap();
        mailbox.post(MailboxMessage::Stop);
        mailbox.post(MailboxMessage::Stop);
        let mut count = [0; 8];
        rustix::io::read(mailbox.wakeup(), &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 1);
        let mut messages = VecDeque::new();
        mailbox.collect(&mut messages);
        assert_eq!(messages.len(), 2);
        mailbox.post(MailboxMessage::Stop);
        assert!(rustix::io::read(mailbox.wakeup(), &mut count).is_ok());
    }
}
