//! The completion loop's connections, and what shards want done with them.
//!
//! Everything but the shard, so that it can work while the shard lends its written bytes. What an event leads to is
//! noted; requests to the kernel are made once for the whole batch ([`Net::attend_all`]).

use std::collections::VecDeque;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};

use rustix::io::Errno;
use settings::Config;
use shard::{Action, ConnId, Event, Export, Now, Source};

use crate::acceptor::Acceptor;
use crate::core::{Held, forget_half_close};
use crate::mailbox::Generation;
use crate::shard_context::ShardContext;
use crate::takeover::ExportState;
use crate::uring::buffers::{Buffer, Buffers};
use crate::uring::conn::{Conn, Receive, State};
use crate::uring::kernel::Kernel;
use crate::uring::leave::{Destination, Leaving};
use crate::uring::outbox::Outbox;
use crate::uring::ring::{Manner, Op, Ring, TICKETS, Tag};

/// Output that may be queued for one connection before whoever feeds it is told to stop, in bytes. More than by
/// readiness, because nothing goes to the kernel before the batch is over.
const CLOG: u32 = 256 * 1024;
/// Output up to this length is expected to fit into the socket, in bytes.
const BRIEF: u32 = 16 * 1024;
/// Empty outboxes kept for reuse.
const SPARES: usize = 256;

/// Where received bytes lie while an event is handled.
#[derive(Clone, Copy)]
pub(crate) enum Origin<'a> {
    /// The event brought none.
    Nothing,
    /// A receive buffer.
    Buffer(&'a Buffer),
    /// Memory of the loop's own.
    Owned(&'a [u8]),
}

/// Connections of one thread.
pub(crate) struct Net {
    pub(crate) outside: ShardContext,
    pub(crate) now: Now,
    pub(crate) ring: Ring,
    pub(crate) buffers: Buffers,
    pub(crate) conns: Vec<Conn>,
    /// Connections that want something of the kernel after this batch.
    dirty: Vec<ConnId>,
    /// Connections with deferred input that may be delivered now.
    pub(crate) ready: VecDeque<ConnId>,
    /// Connections for which there was no buffer.
    pub(crate) starved: Vec<ConnId>,
    /// Events for the shard, deferred until the current one is handled.
    pub(crate) pending: VecDeque<Event<'static>>,
    pub(crate) leaving: Vec<Leaving>,
    pub(crate) acceptor: Acceptor,
    #[allow(clippy::vec_box)] // they come and go as boxes
    spares: Vec<Box<Outbox>>,
}

impl Net {
    /// No connections yet.
    pub(crate) fn new(mut outside: ShardContext, kernel: Kernel) -> Net {
        let acceptor = outside.acceptor();
        Net {
            outside,
            now: Now::default(),
            ring: kernel.ring,
            buffers: kernel.buffers,
            conns: Vec::new(),
            dirty: Vec::new(),
            ready: VecDeque::new(),
            starved: Vec::new(),
            pending: VecDeque::new(),
            leaving: Vec::new(),
            acceptor,
            spares: Vec::new(),
        }
    }

    /// The slot of an id.
    pub(crate) fn slot(&mut self, conn: ConnId) -> &mut Conn {
        let index = conn.0 as usize;
        if index >= self.conns.len() {
            self.conns.resize_with(index + 1, Conn::default);
        }
        &mut self.conns[index]
    }

    /// The open connection of an id.
    pub(crate) fn open(&mut self, conn: ConnId) -> Option<&mut Conn> {
        self.conns.get_mut(conn.0 as usize).filter(|slot| slot.state == State::Open)
    }

    /// Starts a new generation of an id.
    pub(crate) fn renew(&mut self, conn: ConnId, state: State) -> &mut Conn {
        let slot = self.slot(conn);
        debug_assert!(matches!(slot.state, State::Free), "the id is taken");
        let (dirty, generation) = (slot.dirty, slot.generation.wrapping_add(1) & TICKETS);
        *slot = Conn { state, dirty, generation, ..Conn::default() };
        slot
    }

    /// Adopts an open socket, with output that was not sent yet.
    pub(crate) fn seat_with(&mut self, conn: ConnId, socket: OwnedFd, unsent: &[u8], settled: bool) {
        let slot = self.renew(conn, State::Open);
        if !unsent.is_empty() {
            slot.queued = u32::try_from(unsent.len()).unwrap_or(u32::MAX);
            slot.out.get_or_insert_default().copy(unsent);
        }
        self.seat(conn, socket, settled);
    }

    /// Adopts an open socket, which must be in blocking mode.
    pub(crate) fn seat(&mut self, conn: ConnId, socket: OwnedFd, settled: bool) {
        let slot = self.slot(conn);
        slot.state = State::Open;
        slot.settled = settled;
        slot.socket = Some(socket);
        self.touch(conn);
    }

    /// Does one thing.
    pub(crate) fn act(&mut self, action: Action, origin: Origin<'_>, written: &[u8], config: &Config) {
        match action {
            Action::Send { to, source, start, end } => self.queue(to, (source, start, end), origin, written),
            Action::Connect { conn, target } => self.dial(conn, &target, config),
            Action::Close { conn } => self.close(conn),
            Action::Pause { conn } => self.pause(conn),
            Action::Resume { conn } => self.resume(conn),
            Action::LoginComplete { conn } => self.slot(conn).settled = true,
            Action::Move { conn, to, client } => self.leave(conn, Destination::Shard(to, client)),
            Action::Export(what) => match *what {
                Export::Socket { conn, state, link, is_server } => {
                    self.leave(conn, Destination::Successor(ExportState { state, link, is_server }));
                }
                other => self.outside.act(Action::Export(Box::new(other)), &self.conns, config),
            },
            other => self.outside.act(other, &self.conns, config),
        }
    }

    /// Whether an answer is still wanted.
    pub(crate) fn is_current(&self, conn: ConnId, generation: Generation) -> bool {
        let wanted = |slot: &&Conn| !matches!(slot.state, State::Free | State::Closing | State::Closed);
        self.conns.get(conn.0 as usize).filter(wanted).is_some_and(|slot| slot.generation == generation)
    }

    /// Notes that a connection may want something of the kernel.
    pub(crate) fn touch(&mut self, conn: ConnId) {
        let slot = &mut self.conns[conn.0 as usize];
        if !std::mem::replace(&mut slot.dirty, true) {
            self.dirty.push(conn);
        }
    }

    fn queue(&mut self, to: ConnId, piece: (Source, u32, u32), origin: Origin<'_>, written: &[u8]) {
        let (source, start, end) = piece;
        let Some(slot) = self.conns.get_mut(to.0 as usize) else { return };
        if slot.state != State::Open || slot.lost {
            return;
        }
        let spares = &mut self.spares;
        let out = slot.out.get_or_insert_with(|| spares.pop().unwrap_or_default());
        // While the socket takes nothing, a few bytes shall not hold a whole buffer.
        let is_stuck = slot.flight.is_some() || slot.full;
        let copies = is_stuck && end.saturating_sub(start) < self.buffers.size() / 2;
        match (source, origin) {
            (Source::Received, Origin::Buffer(buffer)) if copies => {
                out.copy(range(self.buffers.bytes(buffer, end as usize), start, end));
            }
            (Source::Received, Origin::Buffer(buffer)) => out.share(&mut self.buffers, buffer, start, end),
            (Source::Received, Origin::Owned(bytes)) => out.copy(range(bytes, start, end)),
            (Source::Received, Origin::Nothing) => debug_assert!(false, "nothing was received"),
            (Source::Written, _) => out.copy(range(written, start, end)),
        }
        slot.emptied = false;
        slot.queued = slot.queued.saturating_add(end.saturating_sub(start));
        if slot.queued > CLOG && !slot.clogged {
            slot.clogged = true;
            slot.owes_drained = true;
            self.pending.push_back(Event::SendBufferFull { conn: to });
        }
        self.touch(to);
    }

    fn pause(&mut self, conn: ConnId) {
        let Some(slot) = self.open(conn) else { return };
        // What comes from now on is not seen, so closing must look for it.
        (slot.paused, slot.emptied) = (true, false);
        if slot.end_waits && !std::mem::replace(&mut slot.half_told, true) {
            self.pending.push_back(Event::HalfClosed { conn });
        }
        self.touch(conn);
    }

    fn resume(&mut self, conn: ConnId) {
        let Some(slot) = self.open(conn) else { return };
        slot.paused = false;
        let (was_told, has_input) =
            (std::mem::take(&mut slot.half_told), slot.inbox.is_some() || slot.end_waits);
        if was_told {
            forget_half_close(&mut self.pending, conn);
        }
        if has_input {
            self.ready.push_back(conn);
        } else {
            self.touch(conn);
        }
    }

    /// Makes the requests that the batch has led to.
    pub(crate) fn attend_all(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for conn in dirty.drain(..) {
            self.conns[conn.0 as usize].dirty = false;
            self.attend(conn);
        }
        self.dirty = dirty;
        self.buffers.publish();
    }

    fn attend(&mut self, conn: ConnId) {
        let slot = &mut self.conns[conn.0 as usize];
        if slot.state != State::Open {
            return;
        }
        let Some(socket) = &slot.socket else { return };
        let tag = |op| Tag { op, generation: slot.generation, number: conn.0 };
        if slot.flight.is_none()
            && let Some(out) = slot.out.take()
        {
            let is_brief = slot.queued <= BRIEF && out.fits_one_send();
            // A quiet send wakes nobody when it has gone, and its buffers come back with the next turn only.
            let is_awaited = slot.full || slot.owes_drained || !self.starved.is_empty();
            let manner = if is_brief && !is_awaited { Manner::Quiet } else { Manner::Awaited };
            let flight = self.ring.send(tag(Op::Send), socket.as_fd(), out, &self.buffers, manner);
            slot.flight = Some(flight);
            slot.requests += 1;
        }
        if slot.receive != Receive::Idle || slot.ended {
            return;
        }
        if !slot.paused && slot.inbox.is_none() {
            if slot.starved {
                return;
            }
            slot.receive = Receive::Armed;
            slot.requests += 1;
            // Until further notice brings a whole socket's worth at a time; while buffers are few, nobody gets that much.
            if !slot.is_here_to_stay() || self.buffers.are_few_left() {
                return self.ring.receive_once(tag(Op::Receive), socket.as_fd(), self.buffers.size());
            }
            self.ring.receive_on(tag(Op::Receive), socket.as_fd());
        } else if !slot.paused || slot.half_told {
            return;
        }
        // Nothing else shows that a client which waits has gone; and a receive until further notice is not always woken by
        // an end that was there when the kernel had filled many buffers in a row.
        if !slot.watched {
            self.ring.watch(tag(Op::Watch), socket.as_fd(), i32::from(libc::POLLRDHUP), false);
            slot.watched = true;
            slot.requests += 1;
        }
    }

    /// Stops receiving: bytes have arrived that the shard does not read now.
    pub(crate) fn stop_receiving(&mut self, conn: ConnId) {
        let slot = &mut self.conns[conn.0 as usize];
        if slot.receive == Receive::Armed {
            slot.receive = Receive::Cancelling;
            slot.cancel(conn, Op::Receive, &mut self.ring);
        }
    }

    /// The kernel has looked for a request that was to end.
    pub(crate) fn cancelled(&mut self, conn: ConnId, answer: Result<u32, Errno>) {
        let slot = &mut self.conns[conn.0 as usize];
        if !slot.is_missed(answer) {
            return;
        }
        if slot.state == State::Closing {
            slot.cancel_all(conn, &mut self.ring);
        } else if slot.receive == Receive::Cancelling {
            slot.receive = Receive::Armed;
            self.stop_receiving(conn);
        }
    }

    /// Lets the connections that found no buffer try again, if there are any now.
    pub(crate) fn feed_starved(&mut self) {
        if self.starved.is_empty() || self.buffers.free() == 0 {
            return;
        }
        for conn in std::mem::take(&mut self.starved) {
            self.conns[conn.0 as usize].starved = false;
            self.touch(conn);
        }
    }

    /// About once a second: gives memory back that a busier time has left, if it can be told now what is in use, and has
    /// slow readers hold no more than is on its way to them.
    pub(crate) fn trim(&mut self) {
        if self.buffers.are_scarce() {
            self.take_sends_back();
        }
        if self.ring.has_told_all() {
            self.buffers.trim();
        }
    }

    /// Ends the sends that have been in flight for longer than a second; they are made anew of compact memory.
    fn take_sends_back(&mut self) {
        for (conn, slot) in (0..).map(ConnId).zip(&mut self.conns) {
            let is_sparse = slot.flight.is_some_and(|flight| self.ring.is_sparse(flight, &self.buffers));
            if slot.state == State::Open && is_sparse && std::mem::replace(&mut slot.is_slow, is_sparse) {
                slot.cancel(conn, Op::Send, &mut self.ring);
            }
        }
    }

    /// Keeps an empty outbox for the next output.
    pub(crate) fn recycle(&mut self, outbox: Box<Outbox>) {
        debug_assert!(outbox.is_empty());
        if self.spares.len() < SPARES {
            self.spares.push(outbox);
        }
    }

    /// Closes a connection in any state; the shard hears of it when the kernel has let go of it.
    pub(crate) fn close(&mut self, conn: ConnId) {
        let slot = self.slot(conn);
        if matches!(slot.state, State::Free | State::Closing | State::Closed) {
            return;
        }
        let was_open = slot.state == State::Open;
        slot.state = State::Closing;
        slot.attempt = None;
        if was_open && slot.flight.is_none() {
            self.conns[conn.0 as usize].say(&mut self.buffers);
        }
        self.conns[conn.0 as usize].cancel_all(conn, &mut self.ring);
        self.finish(conn);
    }

    /// Closes the socket if it is to be closed and the kernel has let go of it.
    pub(crate) fn finish(&mut self, conn: ConnId) {
        let slot = &mut self.conns[conn.0 as usize];
        if slot.state != State::Closing || slot.requests > 0 {
            return;
        }
        if !slot.lost {
            slot.say(&mut self.buffers);
            slot.drain_input();
        }
        slot.empty(&mut self.buffers);
        let socket = slot.socket.take();
        if planted::bug!("loop_descriptor_kept") && slot.lost {
            socket.into_iter().for_each(|socket| _ = socket.into_raw_fd());
        }
        slot.state = State::Closed;
        self.acceptor.a_file_is_free();
        self.pending.push_back(Event::Closed { conn });
    }

    /// What is left of connections.
    pub(crate) fn held(&self) -> Held {
        let connections = self.conns.iter().filter(|slot| slot.state != State::Free).count();
        Held {
            connections: connections + self.leaving.len(),
            buffers: usize::from(self.buffers.held()),
            requests: self.conns.iter().map(|slot| usize::from(slot.requests)).sum(),
            events: self.pending.len(),
        }
    }

    /// The next thing to tell the shard, if it still concerns a connection that the shard knows.
    pub(crate) fn next_pending(&mut self) -> Option<Event<'static>> {
        while let Some(event) = self.pending.pop_front() {
            match event {
                Event::Closed { conn } => {
                    self.slot(conn).state = State::Free;
                    return Some(event);
                }
                Event::SendBufferFull { conn }
                | Event::SendBufferEmpty { conn }
                | Event::WriteFailed { conn }
                | Event::HalfClosed { conn }
                | Event::Connected { conn, .. } => {
                    if self.open(conn).is_some() {
                        return Some(event);
                    }
                }
                _ => return Some(event),
            }
        }
        None
    }
}

/// A range of bytes; one outside is a bug of the shard and empty.
fn range(bytes: &[u8], start: u32, end: u32) -> &[u8] {
    let range = bytes.get(start as usize..end as usize);
    debug_assert!(range.is_some(), "{start}..{end} of {}", bytes.len());
    range.unwrap_or_default()
}
