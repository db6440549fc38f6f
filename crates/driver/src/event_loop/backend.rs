//! What an event loop needs of the kernel: implemented by epoll and by io_uring, dispatched statically.
//!
//! A backend owns the kernel objects and what it knows of each connection besides [`crate::conn_table::Conn`]. It never
//! decides what happens to a connection: it reports to the shard through the loop, and executes the shard's actions.

use std::io;
use std::os::fd::OwnedFd;

use shard::{ConnId, Source};

use crate::conn_move::Destination;
use crate::connect::Attempt;
use crate::core::{Core, Held};
use crate::event_loop::{EventLoop, Net};
use crate::ids::{Generation, ListenerId};

/// How long a loop may wait for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Not at all: there is work.
    No,
    /// For this many microseconds.
    AtMost(u64),
    /// Until something happens.
    Forever,
}

/// A range of the bytes that the shard sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendRange {
    pub(crate) source: Source,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl SendRange {
    /// How many bytes that are.
    pub(crate) fn length(self) -> u32 {
        self.end.saturating_sub(self.start)
    }

    /// The bytes themselves. A range outside of its source is a bug of the shard, and empty.
    pub(crate) fn of(self, source: &[u8]) -> &[u8] {
        let bytes = source.get(self.start as usize..self.end as usize);
        debug_assert!(bytes.is_some(), "{self:?} of {} bytes", source.len());
        bytes.unwrap_or_default()
    }
}

/// Where an adopted connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adopted {
    /// From another shard of this process.
    FromShard,
    /// From the process that this one takes over from, whose driver may be the other one.
    FromProcess,
}

/// One way to have the kernel do I/O. Functions that take the event loop notify the shard of what has happened; the others
/// leave events for it in [`Net::pending`].
pub(crate) trait Backend: Sized {
    /// What it knows of a connection besides the table.
    type Conn: Default;
    /// What the kernel reports.
    type Event: Copy;
    /// Memory that is received into, if the backend does not own it: the shard has its bytes while the backend writes.
    type Scratch;
    /// Where the received bytes of the event being handled lie.
    type Received<'a>: Copy + From<&'a [u8]>;

    /// Has every write to the mailbox's descriptor reported, from now on.
    fn watch_mailbox(&mut self, wakeup: &OwnedFd) -> io::Result<()>;
    /// Has connections that wait on a listening socket reported. Of several threads one is woken.
    fn watch_listener(&mut self, listener: ListenerId, socket: &OwnedFd);
    /// Ends that, at the latest when the kernel is entered next.
    fn unwatch_listener(&mut self, listener: ListenerId, socket: &OwnedFd);
    /// As many connections as are wanted were accepted after a report: watches on, or (`false`) no longer.
    fn accepted_some(&mut self, listener: ListenerId, socket: &OwnedFd, goes_on: bool);

    /// Enters the kernel and waits for events.
    fn wait(
        &mut self,
        net: &mut Net<Self::Conn>,
        wait: Wait,
        events: &mut Vec<Self::Event>,
    ) -> io::Result<()>;
    /// Handles one event.
    fn dispatch<C: Core>(event_loop: &mut EventLoop<C, Self>, event: Self::Event);
    /// Gives a connection of [`Net::ready`] its turn.
    fn read_on<C: Core>(event_loop: &mut EventLoop<C, Self>, conn: ConnId);
    /// All events of a batch are handled; `second_passed` about once a second.
    fn end_batch(&mut self, _net: &mut Net<Self::Conn>, _second_passed: bool) {}
    /// Whether [`Backend::end_batch`] has something to do in the next second even if no event comes.
    fn needs_upkeep(&self) -> bool {
        false
    }

    /// Takes an accepted socket. The id is open; the shard is not notified yet.
    fn accepted(&mut self, net: &mut Net<Self::Conn>, conn: ConnId, socket: OwnedFd, is_unix: bool);
    /// The shard was notified of an accepted connection, which is still open.
    fn after_accepted<C: Core>(_: &mut EventLoop<C, Self>, _: ConnId, _: Generation) {}
    /// Takes a socket whose connection to a server is established.
    fn connected(&mut self, net: &mut Net<Self::Conn>, conn: ConnId, socket: OwnedFd, is_unix: bool);
    /// Takes a socket that is connecting, and has the outcome reported.
    fn connecting(&mut self, net: &mut Net<Self::Conn>, conn: ConnId, socket: OwnedFd, attempt: Box<Attempt>);
    /// The socket that was connecting is connected.
    fn established(&mut self, net: &mut Net<Self::Conn>, conn: ConnId);
    /// Takes the socket of a connection that began elsewhere, with output that it has not taken yet. The id is open.
    fn adopt(
        &mut self,
        net: &mut Net<Self::Conn>,
        conn: ConnId,
        socket: OwnedFd,
        unsent: Vec<u8>,
        from: Adopted,
    );

    /// Executes [`shard::Action::Send`], at the latest with the next [`Backend::flush`].
    fn send(
        &mut self,
        net: &mut Net<Self::Conn>,
        to: ConnId,
        range: SendRange,
        received: Self::Received<'_>,
        written: &[u8],
    );
    /// The bytes that sends point into are about to go.
    fn flush(&mut self, _net: &mut Net<Self::Conn>, _received: Self::Received<'_>, _written: &[u8]) {}
    /// Executes [`shard::Action::Pause`].
    fn pause(&mut self, net: &mut Net<Self::Conn>, conn: ConnId);
    /// Executes [`shard::Action::Resume`].
    fn resume(&mut self, net: &mut Net<Self::Conn>, conn: ConnId);
    /// Executes [`shard::Action::LoginComplete`]: the connection stays on this shard.
    fn settle(&mut self, _net: &mut Net<Self::Conn>, _conn: ConnId) {}
    /// Closes a connection in any state; [`Net::closed`] follows when the kernel no longer uses it.
    fn close(&mut self, net: &mut Net<Self::Conn>, conn: ConnId);
    /// Sends a connection away; its id is free at once.
    fn leave(&mut self, net: &mut Net<Self::Conn>, conn: ConnId, to: Destination);

    /// What it holds that the table does not show.
    fn held(&self, _net: &Net<Self::Conn>) -> Held {
        Held::default()
    }
}
