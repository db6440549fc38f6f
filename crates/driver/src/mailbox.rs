//! A shard's mailbox: the only way into its thread besides its sockets.
//!
//! Owns the queue and the wake-up (an eventfd, written only when the queue was empty). Never reads a message.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use auth::TaskResult;
use messages::{Command, ShardMessage};
use rustix::event::{EventfdFlags, eventfd};
use shard::{ClientMove, ConnId};

use crate::connect::Addresses;
use crate::takeover::Imported;

/// The generation of a [`ConnId`]: tells its successive connections apart.
pub(crate) type Generation = u32;

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
    /// Stop accepting; `all` means the unix socket too.
    CloseListeners { all: bool },
    /// Accept nobody for a while: another process is to watch the same sockets. [`crate::takeover::Item::GatesRest`]
    /// answers.
    RestGates,
    /// Accept again.
    WakeGates,
    /// Accept clients too, or leave that to the thread that does it for all.
    CallToGates { is_called: bool },
    /// Something from a process that this one takes over from.
    Inherit(Imported),
    /// Leave the loop.
    Stop,
}

/// A socket on its way to another shard.
pub(crate) struct ConnMove {
    pub(crate) fd: OwnedFd,
    pub(crate) client: Box<ClientMove>,
    /// Output that the socket has not taken yet.
    pub(crate) unsent: Vec<u8>,
    /// Input that was read already and that the shard has not seen.
    pub(crate) unread: Vec<u8>,
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
