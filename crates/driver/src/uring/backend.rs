//! The kernel's side of the loop by completion: what an event leads to is noted here, and requests to the kernel are made
//! once for the whole batch ([`Uring::attend_all`]).

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::{Errno, ioctl_fionbio};
use shard::{ConnId, Source};

use crate::conn_move::Destination;
use crate::conn_table::{Reading, State};
use crate::connect::Attempt;
use crate::core::{Core, Held};
use crate::event_loop::{self, Adopted, Backend, EventLoop, SendRange, Wait};
use crate::ids::{Generation, ListenerId};
use crate::uring::buffers::{Buffer, Buffers};
use crate::uring::conn::{Leaving, Receive, UringConn};
use crate::uring::kernel::Kernel;
use crate::uring::outbox::Outbox;
use crate::uring::ring::{Completion, Manner, Op, Ring, Tag};

/// Output that may be queued for one connection before its source is stopped, in bytes. More than with epoll, because
/// nothing goes to the kernel before the batch is over.
const SEND_BUFFER_BYTES: u32 = 256 * 1024;
/// Output up to this length is expected to fit into the socket, in bytes.
const BRIEF: u32 = 16 * 1024;
/// Empty outboxes kept for reuse.
const SPARES: usize = 256;

/// The longest wait, and the shortest: a deadline that is nearly there must not turn the loop for nothing.
const WAIT_US: (u64, u64) = (100, 3_600_000_000);

pub(crate) type Net = event_loop::Net<UringConn>;

/// Where received bytes lie while an event is handled.
#[derive(Clone, Copy)]
pub(crate) enum Received<'a> {
    /// In a receive buffer.
    Buffer(&'a Buffer),
    /// In memory of the loop's own.
    Owned(&'a [u8]),
}

impl<'a> From<&'a [u8]> for Received<'a> {
    fn from(bytes: &'a [u8]) -> Received<'a> {
        Received::Owned(bytes)
    }
}

/// One thread's ring and receive buffers, and who wants something of them.
pub(crate) struct Uring {
    pub(crate) ring: Ring,
    pub(crate) buffers: Buffers,
    /// Connections that may want something of the kernel after this batch.
    dirty: Vec<ConnId>,
    /// Connections for which there was no buffer.
    pub(crate) starved: Vec<ConnId>,
    /// Connections that have left the table while the kernel has requests for them.
    pub(crate) leaving: Vec<Leaving>,
    #[allow(clippy::vec_box)] // they come and go as boxes
    spares: Vec<Box<Outbox>>,
}

impl Uring {
    /// Nothing requested yet.
    pub(crate) fn new(kernel: Kernel) -> Uring {
        Uring {
            ring: kernel.ring,
            buffers: kernel.buffers,
            dirty: Vec::new(),
            starved: Vec::new(),
            leaving: Vec::new(),
            spares: Vec::new(),
        }
    }

    /// Notes that a connection may want something of the kernel.
    pub(crate) fn touch(&mut self, net: &mut Net, conn: ConnId) {
        if !std::mem::replace(&mut net.conns.slot(conn).is_listed, true) {
            self.dirty.push(conn);
        }
    }

    /// Gives a connection its open socket, which must be in blocking mode.
    fn occupy(&mut self, net: &mut Net, conn: ConnId, socket: OwnedFd, settled: bool) {
        let slot = net.conns.slot(conn);
        (slot.state, slot.socket, slot.io.settled) = (State::Open, Some(socket), settled);
        self.touch(net, conn);
    }

    /// Has the kernel report when a socket is in one of these states.
    fn watch_socket(&mut self, net: &mut Net, conn: ConnId, states: i16) {
        let slot = net.conns.slot(conn);
        let Some(socket) = &slot.socket else { return };
        let tag = Tag { op: Op::Watch, generation: slot.generation, number: conn.0 };
        self.ring.watch(tag, socket.as_fd(), i32::from(states), false);
        slot.io.watched = true;
        slot.io.requests += 1;
    }

    /// Makes the requests that the batch has led to.
    fn attend_all(&mut self, net: &mut Net) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for conn in dirty.drain(..) {
            net.conns.slot(conn).is_listed = false;
            self.attend(net, conn);
        }
        self.dirty = dirty;
        self.buffers.publish();
    }

    fn attend(&mut self, net: &mut Net, conn: ConnId) {
        let slot = net.conns.slot(conn);
        if slot.state != State::Open {
            return;
        }
        let Some(socket) = &slot.socket else { return };
        let tag = |op| Tag { op, generation: slot.generation, number: conn.0 };
        if slot.io.flight.is_none()
            && let Some(out) = slot.io.out.take()
        {
            let is_brief = slot.io.queued <= BRIEF && out.fits_one_send();
            // A quiet send wakes nothing when it has gone, and its buffers come back only with the next turn.
            let is_awaited = slot.io.full || slot.owes_send_empty || !self.starved.is_empty();
            let manner = if is_brief && !is_awaited { Manner::Quiet } else { Manner::Awaited };
            let flight = self.ring.send(tag(Op::Send), socket.as_fd(), out, &self.buffers, manner);
            slot.io.flight = Some(flight);
            slot.io.requests += 1;
        }
        if slot.io.receive != Receive::Idle || slot.ended {
            return;
        }
        if !slot.is_paused() && slot.io.inbox.is_none() {
            if slot.io.starved {
                return;
            }
            slot.io.receive = Receive::Armed;
            slot.io.requests += 1;
            // A multishot receive brings a whole socket's worth at a time; while buffers are few, none gets that much.
            if !slot.is_here_to_stay() || self.buffers.are_few_left() {
                return self.ring.receive_once(tag(Op::Receive), socket.as_fd(), self.buffers.size());
            }
            self.ring.receive_on(tag(Op::Receive), socket.as_fd());
        } else if slot.reading != Reading::Paused {
            return;
        }
        // Nothing else shows that a waiting client has disconnected; and a multishot receive is not always woken by an end
        // that was there when the kernel had filled many buffers in a row.
        if !slot.io.watched {
            self.watch_socket(net, conn, libc::POLLRDHUP);
        }
    }

    /// Stops receiving: bytes have arrived that the shard does not read now.
    pub(crate) fn stop_receiving(&mut self, net: &mut Net, conn: ConnId) {
        let slot = net.conns.slot(conn);
        if slot.io.receive == Receive::Armed {
            slot.io.receive = Receive::Cancelling;
            slot.cancel(conn, Op::Receive, &mut self.ring);
        }
    }

    /// The kernel has answered a cancel request.
    pub(crate) fn cancelled(&mut self, net: &mut Net, conn: ConnId, answer: Result<u32, Errno>) {
        let slot = net.conns.slot(conn);
        if !slot.cancel_answered(answer) {
            return;
        }
        if slot.state == State::Closing {
            slot.cancel_all(conn, &mut self.ring);
        } else if slot.io.receive == Receive::Cancelling {
            slot.io.receive = Receive::Armed;
            self.stop_receiving(net, conn);
        }
    }

    /// Lets the connections that found no buffer try again, if there are any now.
    fn feed_starved(&mut self, net: &mut Net) {
        if self.starved.is_empty() || self.buffers.free() == 0 {
            return;
        }
        for conn in std::mem::take(&mut self.starved) {
            net.conns.slot(conn).io.starved = false;
            self.touch(net, conn);
        }
    }

    /// About once a second: gives memory back that a busier time has left, if it is known now what is in use, and has
    /// slow readers hold no more than is on its way to them.
    fn trim(&mut self, net: &mut Net) {
        if self.buffers.are_scarce() {
            self.take_sends_back(net);
        }
        if self.ring.has_taken_all() {
            self.buffers.trim();
        }
    }

    /// Cancels the sends that have been in flight for longer than a second; they are made anew of compact memory.
    fn take_sends_back(&mut self, net: &mut Net) {
        for (conn, slot) in net.conns.iter_mut() {
            let is_sparse = slot.io.flight.is_some_and(|flight| self.ring.is_sparse(flight, &self.buffers));
            if slot.state == State::Open && is_sparse && std::mem::replace(&mut slot.io.is_slow, is_sparse) {
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

    /// Closes the socket if it is to be closed and the kernel no longer uses it.
    pub(crate) fn finish(&mut self, net: &mut Net, conn: ConnId) {
        let slot = net.conns.slot(conn);
        if slot.state != State::Closing || slot.io.requests > 0 {
            return;
        }
        if !slot.write_failed {
            slot.send_now(&mut self.buffers);
            slot.drain_input();
        }
        slot.empty(&mut self.buffers);
        let socket = slot.socket.take();
        net.closed(conn);
        drop(socket);
    }
}

impl Backend for Uring {
    type Conn = UringConn;
    type Event = Completion;
    type Scratch = ();
    type Received<'a> = Received<'a>;

    fn watch_mailbox(&mut self, wakeup: &OwnedFd) -> io::Result<()> {
        self.ring.watch(Tag::MAILBOX, wakeup.as_fd(), i32::from(libc::POLLIN), true);
        Ok(())
    }

    fn watch_listener(&mut self, listener: ListenerId, socket: &OwnedFd) {
        const STATES: i32 = libc::POLLIN as i32 | libc::EPOLLEXCLUSIVE;
        self.ring.watch(Tag::of_listener(listener), socket.as_fd(), STATES, false);
    }

    fn unwatch_listener(&mut self, listener: ListenerId, _: &OwnedFd) {
        self.ring.cancel(Tag::of_listener(listener));
    }

    /// A watch reports once.
    fn accepted_some(&mut self, listener: ListenerId, socket: &OwnedFd, goes_on: bool) {
        if goes_on {
            self.watch_listener(listener, socket);
        }
    }

    fn wait(&mut self, net: &mut Net, wait: Wait, events: &mut Vec<Completion>) -> io::Result<()> {
        let sleep_us = match wait {
            Wait::No => Some(0),
            Wait::AtMost(microseconds) => Some(microseconds.clamp(WAIT_US.0, WAIT_US.1)),
            Wait::Forever => None,
        };
        self.attend_all(net);
        self.ring.turn(sleep_us, events)
    }

    fn dispatch<C: Core>(event_loop: &mut EventLoop<C, Uring>, event: Completion) {
        event_loop.handle_completion(event);
    }

    fn read_on<C: Core>(event_loop: &mut EventLoop<C, Uring>, conn: ConnId) {
        event_loop.read_kept(conn);
    }

    fn end_batch(&mut self, net: &mut Net, second_passed: bool) {
        self.feed_starved(net);
        if second_passed {
            self.trim(net);
        }
    }

    fn needs_upkeep(&self) -> bool {
        self.buffers.wants_trim()
    }

    fn accepted(&mut self, net: &mut Net, conn: ConnId, socket: OwnedFd, _: bool) {
        self.occupy(net, conn, socket, false);
    }

    /// Server connections stay on their shard. Only connecting must not block.
    fn connected(&mut self, net: &mut Net, conn: ConnId, socket: OwnedFd, _: bool) {
        let _ = ioctl_fionbio(&socket, false);
        self.occupy(net, conn, socket, true);
    }

    fn connecting(&mut self, net: &mut Net, conn: ConnId, socket: OwnedFd, attempt: Box<Attempt>) {
        let slot = net.conns.slot(conn);
        (slot.state, slot.socket, slot.attempt) = (State::Connecting, Some(socket), Some(attempt));
        self.watch_socket(net, conn, libc::POLLOUT);
    }

    fn established(&mut self, net: &mut Net, conn: ConnId) {
        if let Some(socket) = net.conns.slot(conn).socket.take() {
            self.connected(net, conn, socket, false);
        }
    }

    fn adopt(&mut self, net: &mut Net, conn: ConnId, socket: OwnedFd, unsent: Vec<u8>, from: Adopted) {
        let is_foreign = from == Adopted::FromProcess;
        if is_foreign {
            // The other process may have used epoll.
            let _ = ioctl_fionbio(&socket, false);
        }
        if !unsent.is_empty() {
            let slot = net.conns.slot(conn);
            slot.io.queued = u32::try_from(unsent.len()).unwrap_or(u32::MAX);
            slot.io.out.get_or_insert_default().copy(&unsent);
        }
        self.occupy(net, conn, socket, is_foreign);
    }

    fn send(&mut self, net: &mut Net, to: ConnId, range: SendRange, received: Received<'_>, written: &[u8]) {
        let Some(slot) = net.conns.open(to).filter(|slot| !slot.write_failed) else { return };
        let spares = &mut self.spares;
        let out = slot.io.out.get_or_insert_with(|| spares.pop().unwrap_or_default());
        // While the socket takes nothing, a few bytes must not hold a whole buffer.
        let is_stuck = slot.io.flight.is_some() || slot.io.full;
        let copies = is_stuck && range.length() < self.buffers.size() / 2;
        match (range.source, received) {
            (Source::Received, Received::Buffer(buffer)) if copies => {
                out.copy(range.of(self.buffers.bytes(buffer, range.end as usize)));
            }
            (Source::Received, Received::Buffer(buffer)) => {
                out.share(&mut self.buffers, buffer, range.start, range.end);
            }
            (Source::Received, Received::Owned(bytes)) => out.copy(range.of(bytes)),
            (Source::Written, _) => out.copy(range.of(written)),
        }
        slot.emptied = false;
        slot.io.queued = slot.io.queued.saturating_add(range.length());
        if slot.io.queued > SEND_BUFFER_BYTES {
            net.send_buffer_full(to);
        }
        self.touch(net, to);
    }

    fn pause(&mut self, net: &mut Net, conn: ConnId) {
        let Some(slot) = net.conns.open(conn) else { return };
        // What comes from now on is not seen, so closing must look for it.
        slot.pause();
        slot.emptied = false;
        if slot.io.end_undelivered {
            net.half_closed(conn);
        }
        self.touch(net, conn);
    }

    fn resume(&mut self, net: &mut Net, conn: ConnId) {
        let Some(slot) = net.conns.open(conn) else { return };
        let has_input = slot.io.inbox.is_some() || slot.io.end_undelivered;
        net.resumed(conn);
        if has_input {
            net.ready.push_back(conn);
        } else {
            self.touch(net, conn);
        }
    }

    fn settle(&mut self, net: &mut Net, conn: ConnId) {
        net.conns.slot(conn).io.settled = true;
    }

    fn close(&mut self, net: &mut Net, conn: ConnId) {
        let slot = net.conns.slot(conn);
        if matches!(slot.state, State::Free | State::Closing | State::Closed) {
            return;
        }
        let was_open = slot.state == State::Open;
        slot.state = State::Closing;
        slot.attempt = None;
        if was_open && slot.io.flight.is_none() {
            slot.send_now(&mut self.buffers);
        }
        slot.cancel_all(conn, &mut self.ring);
        self.finish(net, conn);
    }

    fn leave(&mut self, net: &mut Net, conn: ConnId, to: Destination) {
        self.send_away(net, conn, to);
    }

    fn held(&self, net: &Net) -> Held {
        Held {
            connections: self.leaving.len(),
            buffers: usize::from(self.buffers.held()),
            requests: net.conns.iter().map(|slot| usize::from(slot.io.requests)).sum(),
            events: 0,
        }
    }
}

/// Tags of what is no connection.
impl Tag {
    const MAILBOX: Tag = Tag { op: Op::Mailbox, generation: Generation::FIRST, number: 0 };

    fn of_listener(listener: ListenerId) -> Tag {
        Tag { op: Op::Listener, generation: Generation::FIRST, number: listener.0 }
    }
}
