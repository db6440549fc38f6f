//! One thread's loop by readiness: edge-triggered, registered once, written at once.
//!
//! Waits, reads, tells the shard, does what the shard wants. A short read means that the socket is drained, so a
//! message costs one read and one write.

mod adopt;
mod conn;
mod dial;
mod net;

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;
use shard::event::Peer;
use shard::{Action, ConnId, Event};

use crate::acceptor::Arrival;
use crate::clock::Clock;
use crate::core::Core;
use crate::epoll::conn::State;
use crate::epoll::net::{Net, parts, watch_other};
use crate::mailbox::{ConnMove, Generation, MailboxMessage};
use crate::shard_context::ShardContext;
use crate::takeover::AdoptSocket;
use crate::write_batch::{Bytes, Segment, WriteBatch};

/// One buffer per thread: large enough that a large result costs few calls.
const SCRATCH: usize = 64 * 1024;
/// Buffers read from one connection before others get their turn.
const TURN_READS: usize = 4;
/// Events taken from the system at once.
const BATCH: usize = 256;
/// The number of the mailbox among what is no connection.
const MAILBOX: u32 = u32::MAX;

/// The loop.
pub(crate) struct EpollLoop<C> {
    core: C,
    net: Net,
    scratch: Box<[u8]>,
    clock: Clock,
    messages: VecDeque<MailboxMessage>,
    stopped: bool,
}

impl<C: Core> EpollLoop<C> {
    /// A loop that listens already.
    pub(crate) fn new(core: C, outside: ShardContext) -> io::Result<EpollLoop<C>> {
        let net = Net::new(outside)?;
        watch_other(&net.epoll, net.outside.mailbox().wakeup(), MAILBOX, EventFlags::IN | EventFlags::ET)?;
        net.acceptor.to_watch().into_iter().for_each(|number| net.watch_gate(number));
        let scratch = vec![0; SCRATCH].into_boxed_slice();
        Ok(EpollLoop { core, net, scratch, clock: Clock::new(), messages: VecDeque::new(), stopped: false })
    }

    /// Runs the loop until it is stopped.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(BATCH);
        self.begin_batch();
        self.core.start(self.net.now);
        self.run_actions(&[]);
        while !self.stopped {
            let timeout = self.timeout();
            events.clear();
            match epoll::wait(&self.net.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(fault) => return Err(fault.into()),
            }
            self.begin_batch();
            for event in &events {
                self.dispatch(event.data.u64(), event.flags);
            }
            self.read_ready();
            if self.core.deadline().is_some_and(|due| due <= self.net.now.mono_us) {
                self.deliver(Event::Tick);
            }
            for number in self.net.acceptor.wake(self.net.now) {
                self.net.watch_gate(number);
            }
        }
        self.core.stopped(self.net.held());
        Ok(())
    }

    fn begin_batch(&mut self) {
        let (now, busy) = self.clock.read();
        self.net.now = now;
        if let Some(percent) = busy {
            let limit = self.core.config().global.spread_busy_percent;
            self.net.outside.share_gates(percent, limit);
            self.deliver(Event::Busy { percent });
        }
    }

    /// How long to sleep at most; None is for ever.
    fn timeout(&self) -> Option<Timespec> {
        if !self.net.ready.is_empty() {
            return Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let due = [self.core.deadline(), self.net.acceptor.deadline_us()].into_iter().flatten().min()?;
        // Rounded up to the milliseconds that the system counts in: early would mean to turn for nothing.
        let milliseconds = due.saturating_sub(self.net.now.mono_us).div_ceil(1_000).min(3_600_000);
        let seconds = i64::try_from(milliseconds / 1_000).unwrap_or(0);
        Some(Timespec {
            tv_sec: seconds,
            tv_nsec: i64::try_from(milliseconds % 1_000 * 1_000_000).unwrap_or(0),
        })
    }

    fn dispatch(&mut self, data: u64, flags: EventFlags) {
        let (ConnId(number), generation) = parts(data);
        if generation == Generation::MAX {
            return if number == MAILBOX { self.read_mail() } else { self.accept(number) };
        }
        let Some(conn) = self.net.lookup(data) else { return };
        let slot = self.net.slot(conn);
        match slot.state {
            State::Connecting => {
                let config = self.core.config();
                self.net.arrived(conn, config);
                self.tell_pending();
                // A server that spoke at once: this event was the only one about its first bytes.
                self.wake(data, flags);
            }
            State::Open => self.wake(data, flags),
            _ => {}
        }
    }

    /// Something is new on a connection. Each thing that is told of it may end it, and give its id to another.
    fn wake(&mut self, data: u64, flags: EventFlags) {
        // First, because closing must know whether there is something to be read.
        if flags.contains(EventFlags::IN)
            && let Some(slot) = self.net.lookup(data).and_then(|conn| self.net.open(conn))
        {
            slot.readable = !(slot.paused && planted::bug!("loop_edge_lost"));
            slot.has_urgent |= flags.contains(EventFlags::PRI);
        }
        if flags.contains(EventFlags::OUT)
            && let Some(conn) = self.net.lookup(data)
        {
            self.net.writable(conn);
            self.tell_pending();
        }
        if flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR)
            && let Some(conn) = self.net.lookup(data)
        {
            self.net.saw_end(conn);
            self.tell_pending();
        }
        if flags.contains(EventFlags::IN)
            && let Some(conn) = self.net.lookup(data)
        {
            self.read(conn);
        }
    }

    /// Reads a connection for one turn.
    fn read(&mut self, conn: ConnId) {
        for _ in 0..TURN_READS {
            let Some(slot) = self.net.open(conn).filter(|slot| slot.may_read()) else { return };
            match slot.receive(&mut self.scratch) {
                Ok(0) => return self.end(conn),
                Ok(count) => {
                    slot.readable = count == self.scratch.len() || slot.has_urgent;
                    slot.emptied = !slot.readable;
                    let unsent = slot.backlog.is_some();
                    slot.owes_drained |= unsent;
                    self.receive(conn, count, unsent);
                }
                Err(Errno::AGAIN) => {
                    (slot.readable, slot.has_urgent, slot.hung_up) = (false, false, false);
                    return;
                }
                Err(Errno::INTR) => {}
                Err(_) => return self.end(conn),
            }
        }
        if self.net.open(conn).is_some_and(|slot| slot.may_read()) {
            self.net.queue(conn);
        }
    }

    fn receive(&mut self, conn: ConnId, count: usize, unsent: bool) {
        let bytes = &self.scratch[..count];
        self.core.handle(Event::Received { conn, bytes, unsent }, self.net.now);
        run_actions(&mut self.core, &mut self.net, bytes);
        self.tell_pending();
    }

    fn end(&mut self, conn: ConnId) {
        let slot = self.net.slot(conn);
        slot.ended = true;
        self.deliver(Event::HungUp { conn });
    }

    /// One turn for each that could be read on.
    fn read_ready(&mut self) {
        for _ in 0..self.net.ready.len() {
            let Some(conn) = self.net.ready.pop_front() else { return };
            self.net.slot(conn).queued = false;
            self.read(conn);
        }
    }

    fn accept(&mut self, number: u32) {
        for _ in 0..self.net.acceptor.how_many(number) {
            match self.net.acceptor.accept(number, self.net.now) {
                Arrival::Client(socket, peer, is_unix) => self.welcome(socket, peer, is_unix),
                Arrival::Again => {}
                Arrival::Nobody => return,
                Arrival::Rest => return self.rest_at(number),
                Arrival::Exhausted => {
                    self.rest_at(number);
                    return self.deliver(Event::FilesRanOut);
                }
            }
        }
    }

    fn rest_at(&self, number: u32) {
        if let Some(socket) = self.net.acceptor.socket(number) {
            self.net.leave_gate(socket);
        }
    }

    /// Whoever is accepted when he has spoken (`tcp_defer_accept`) is heard before he is watched: the first watch would
    /// only say what is known.
    fn welcome(&mut self, socket: OwnedFd, peer: Peer, is_unix: bool) {
        let conn = self.core.allocate_id();
        self.net.occupy(conn, socket, is_unix, State::Open);
        let generation = self.net.slot(conn).generation;
        self.deliver(Event::Accepted { conn, peer });
        if !is_unix && self.core.config().global.tcp_defer_accept {
            self.net.slot(conn).readable = true;
            self.read(conn);
        }
        if self.net.open(conn).is_some_and(|slot| slot.generation == generation) {
            self.net.watch(conn);
        }
    }

    /// Watches no more; whom it was woken for already is let in, because nobody else was.
    fn leave_gates(&mut self) {
        for number in self.net.acceptor.call(false) {
            self.net.acceptor.socket(number).into_iter().for_each(|socket| self.net.leave_gate(socket));
            self.accept(number);
        }
    }

    fn read_mail(&mut self) {
        let mut messages = std::mem::take(&mut self.messages);
        self.net.outside.mailbox().collect(&mut messages);
        for message in messages.drain(..) {
            self.open_letter(message);
        }
        self.messages = messages;
    }

    fn open_letter(&mut self, message: MailboxMessage) {
        match message {
            MailboxMessage::Command(command) => self.deliver(Event::Command(command)),
            MailboxMessage::ShardMessage(message) => self.deliver(Event::ShardMessage(message)),
            MailboxMessage::Adopt(mover) => self.adopt(mover),
            MailboxMessage::Answered { conn, generation, answer } => {
                if self.net.is_current(conn, generation) {
                    self.deliver(Event::Answered { conn, answer });
                }
            }
            MailboxMessage::Resolved { conn, generation, addresses } => {
                let config = self.core.config();
                self.net.resolved(conn, generation, addresses, config);
                self.tell_pending();
            }
            MailboxMessage::CloseListeners { all } => {
                for (_, listener) in self.net.acceptor.close(all) {
                    self.net.leave_gate(&listener.socket);
                }
            }
            MailboxMessage::RestGates => {
                for number in self.net.acceptor.leave(true) {
                    self.net
                        .acceptor
                        .socket(number)
                        .into_iter()
                        .for_each(|socket| self.net.leave_gate(socket));
                }
                self.net.outside.gates_rest();
            }
            MailboxMessage::WakeGates => {
                self.net.acceptor.leave(false).into_iter().for_each(|number| self.net.watch_gate(number));
            }
            MailboxMessage::CallToGates { is_called: true } => {
                self.net.acceptor.call(true).into_iter().for_each(|number| self.net.watch_gate(number));
            }
            MailboxMessage::CallToGates { is_called: false } => self.leave_gates(),
            MailboxMessage::Inherit(legacy) => legacy.settle(self),
            MailboxMessage::Stop => self.stopped = true,
        }
    }

    fn adopt(&mut self, mover: ConnMove) {
        let conn = self.seat(mover.fd, mover.unsent);
        self.deliver(Event::Adopted { conn, client: mover.client });
        self.hear(conn, &mover.unread);
    }

    fn deliver(&mut self, event: Event<'static>) {
        self.core.handle(event, self.net.now);
        self.run_actions(&[]);
    }

    /// Does all that the shard wants after an event, and tells it what came of that.
    fn run_actions(&mut self, received: &[u8]) {
        run_actions(&mut self.core, &mut self.net, received);
        self.tell_pending();
    }

    fn tell_pending(&mut self) {
        while let Some(event) = self.net.next_pending() {
            self.core.handle(event, self.net.now);
            run_actions(&mut self.core, &mut self.net, &[]);
        }
    }
}

/// Takes all actions; consecutive sends to one connection go out together.
fn run_actions<C: Core>(core: &mut C, net: &mut Net, received: &[u8]) {
    let mut batch = WriteBatch::new();
    while let Some(action) = core.poll() {
        if let Action::Send { to, source, start, end } = action {
            let piece = Segment { source, start, end };
            if !batch.take(to, piece) {
                net.send(&batch, Bytes { received, written: core.written() });
                batch.clear();
                batch.take(to, piece);
            }
            continue;
        }
        if !batch.is_empty() {
            net.send(&batch, Bytes { received, written: core.written() });
            batch.clear();
        }
        let config = core.config();
        net.act(action, config);
    }
    if !batch.is_empty() {
        net.send(&batch, Bytes { received, written: core.written() });
    }
}
