//! One thread's loop by completion: the kernel is entered once for a whole batch of connections.
//!
//! Answers are taken, the shard is told, what it wants is noted and asked of the kernel in one go. Received buffers
//! are forwarded without a copy.

mod adopt;
mod buffers;
mod conn;
mod dial;
mod kernel;
mod leave;
mod net;
mod outbox;
mod ring;

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;
use shard::{ConnId, Event};

use crate::acceptor::Arrival;
use crate::clock::Clock;
use crate::core::Core;
use crate::mailbox::{ConnMove, MailboxMessage};
use crate::shard_context::ShardContext;
use crate::takeover::AdoptSocket;
use crate::uring::buffers::Buffer;
use crate::uring::conn::{Input, Receive, State};
use crate::uring::net::{Net, Origin};
use crate::uring::outbox::Outbox;
use crate::uring::ring::{Completion, Op, Tag};

pub use crate::uring::buffers::ReceiveBuffers;
pub(crate) use crate::uring::kernel::Kernel;
pub use crate::uring::ring::RingSize;

/// The loop.
pub(crate) struct UringLoop<C> {
    core: C,
    net: Net,
    clock: Clock,
    messages: VecDeque<MailboxMessage>,
    /// The acceptors' watches were cancelled; that counts once the kernel was entered.
    gates_cancelled: bool,
    /// The clock was looked at, as about once a second.
    second_passed: bool,
    stopped: bool,
}

impl<C: Core> UringLoop<C> {
    /// A loop that listens already.
    pub(crate) fn new(core: C, outside: ShardContext, kernel: Kernel) -> UringLoop<C> {
        let net = Net::new(outside, kernel);
        let mut this = UringLoop {
            core,
            net,
            clock: Clock::new(),
            messages: VecDeque::new(),
            gates_cancelled: false,
            second_passed: false,
            stopped: false,
        };
        this.net.acceptor.to_watch().into_iter().for_each(|number| this.watch_gate(number));
        this.watch_bell();
        this
    }

    /// Runs the loop until it is stopped.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut answers = Vec::new();
        self.begin_batch();
        self.core.start(self.net.now);
        self.run_actions(Origin::Nothing);
        while !self.stopped {
            self.net.attend_all();
            self.net.ring.turn(self.sleep_us(), &mut answers)?;
            self.begin_batch();
            if std::mem::take(&mut self.gates_cancelled) {
                self.net.outside.gates_rest();
            }
            for answer in &answers {
                self.take(*answer);
            }
            self.read_ready();
            if self.core.deadline().is_some_and(|due| due <= self.net.now.mono_us) {
                self.deliver(Event::Tick);
            }
            for number in self.net.acceptor.wake(self.net.now) {
                self.watch_gate(number);
            }
            self.net.feed_starved();
            if std::mem::take(&mut self.second_passed) {
                self.net.trim();
            }
        }
        self.core.stopped(self.net.held());
        Ok(())
    }

    fn begin_batch(&mut self) {
        let (now, busy) = self.clock.read();
        self.net.now = now;
        if let Some(percent) = busy {
            self.second_passed = true;
            let limit = self.core.config().global.spread_busy_percent;
            self.net.outside.share_gates(percent, limit);
            self.deliver(Event::Busy { percent });
        }
    }

    /// How long to sleep at most; None is for ever.
    fn sleep_us(&self) -> Option<u64> {
        if !self.net.ready.is_empty() {
            return Some(0);
        }
        let trim_us = self.net.buffers.wants_trim().then(|| self.clock.next_look_us());
        let due =
            [self.core.deadline(), self.net.acceptor.deadline_us(), trim_us].into_iter().flatten().min()?;
        // At least a little, lest a deadline that is nearly there turns the loop for nothing.
        Some(due.saturating_sub(self.net.now.mono_us).clamp(100, 3_600_000_000))
    }

    fn take(&mut self, answer: Completion) {
        let Tag { op, generation, number } = answer.tag;
        match op {
            // Another watch may have begun already.
            Op::Acceptor if answer.result == Err(Errno::CANCELED) => return,
            Op::Acceptor => return self.accept(number),
            Op::Bell => {
                if !answer.more {
                    self.watch_bell();
                }
                return self.read_mail();
            }
            Op::Receive | Op::Send | Op::QuietSend | Op::Watch | Op::Cancel => {}
        }
        let conn = ConnId(number);
        let slot = self.net.slot(conn);
        if slot.generation != generation || slot.requests == 0 {
            return self.net.answer_leaving(answer);
        }
        if !answer.more {
            slot.requests -= 1;
        }
        match op {
            Op::Receive => self.received(conn, answer),
            Op::Send => self.sent(conn, answer.result),
            Op::Watch => self.watched(conn),
            Op::Cancel => self.net.cancelled(conn, answer.result),
            _ => {}
        }
        if self.net.slot(conn).state == State::Closing {
            self.net.finish(conn);
            self.tell_pending();
        }
    }

    fn received(&mut self, conn: ConnId, answer: Completion) {
        let length = answer.result.unwrap_or(0) as usize;
        let buffer = answer.buffer.map(|id| self.net.buffers.take(id, length));
        let slot = &mut self.net.conns[conn.0 as usize];
        if !answer.more {
            slot.receive = Receive::Idle;
            slot.heard = slot.heard.saturating_add(1);
        }
        // Not every kernel says of a unix socket that there is more; a full buffer says so, too.
        let leaves_rest = answer.leaves_rest || length >= self.net.buffers.size() as usize;
        slot.emptied = buffer.is_some() && !leaves_rest && !slot.paused;
        match (buffer, answer.result) {
            (Some(buffer), _) if slot.state != State::Open || length == 0 => {
                if !planted::bug!("loop_buffer_kept") {
                    self.net.buffers.release(buffer);
                }
                if length == 0 {
                    self.end(conn);
                }
            }
            (Some(buffer), _)
                if slot.inbox.is_some() || (slot.paused && !planted::bug!("loop_told_while_paused")) =>
            {
                slot.keep(buffer, length, &mut self.net.buffers);
                self.net.stop_receiving(conn);
            }
            (Some(buffer), _) => self.tell_received(conn, buffer, length),
            (None, Err(Errno::NOBUFS)) if slot.state == State::Open => {
                slot.starved = true;
                if !planted::bug!("loop_starved_forgotten") {
                    self.net.starved.push(conn);
                }
                self.net.buffers.ran_out();
            }
            (None, Err(Errno::NOBUFS | Errno::CANCELED | Errno::INTR | Errno::AGAIN)) => {}
            (None, _) => self.end(conn),
        }
        if !answer.more {
            self.net.touch(conn);
        }
    }

    fn tell_received(&mut self, conn: ConnId, buffer: Buffer, length: usize) {
        let slot = &mut self.net.conns[conn.0 as usize];
        let unsent = slot.queued > 0;
        slot.owes_drained |= unsent;
        let bytes = self.net.buffers.bytes(&buffer, length);
        self.core.handle(Event::Received { conn, bytes, unsent }, self.net.now);
        run_actions(&mut self.core, &mut self.net, Origin::Buffer(&buffer));
        self.net.buffers.release(buffer);
        self.tell_pending();
    }

    /// The peer sends no more.
    fn end(&mut self, conn: ConnId) {
        let Some(slot) = self.net.open(conn).filter(|slot| !slot.ended) else { return };
        slot.ended = true;
        if slot.may_receive() && slot.inbox.is_none() {
            return self.deliver(Event::HungUp { conn });
        }
        slot.end_waits = true;
        self.half_closed(conn);
    }

    /// Tells once that the end was seen while the shard did not read.
    fn half_closed(&mut self, conn: ConnId) {
        let Some(slot) = self.net.open(conn).filter(|slot| slot.paused) else { return };
        if !std::mem::replace(&mut slot.half_told, true) {
            self.deliver(Event::HalfClosed { conn });
        }
    }

    fn watched(&mut self, conn: ConnId) {
        let slot = self.net.slot(conn);
        slot.watched = false;
        match slot.state {
            State::Connecting => {
                let config = self.core.config();
                self.net.arrived(conn, config);
                self.tell_pending();
            }
            State::Open => {
                slot.end_seen = true;
                self.net.stop_receiving(conn);
                self.half_closed(conn);
            }
            _ => {}
        }
    }

    fn sent(&mut self, conn: ConnId, result: Result<u32, Errno>) {
        let slot = &mut self.net.conns[conn.0 as usize];
        let Some(flight) = slot.flight.take() else { return };
        let mut outbox = self.net.ring.land(flight);
        let gone = if planted::bug!("loop_short_send_whole") { slot.queued } else { result.unwrap_or(0) };
        outbox.advance(&mut self.net.buffers, gone as usize);
        slot.queued = slot.queued.saturating_sub(gone);
        let later = slot.out.take();
        if let Some(mut later) = later {
            outbox.append(&mut later);
            self.net.recycle(later);
        }
        let slot = &mut self.net.conns[conn.0 as usize];
        if matches!(result, Err(fault) if !matches!(fault, Errno::CANCELED | Errno::INTR | Errno::AGAIN)) {
            return self.lose(conn, outbox);
        }
        (slot.full, slot.is_slow) = (!outbox.is_empty(), false);
        if slot.full {
            outbox.compact(&mut self.net.buffers);
            slot.out = Some(outbox);
            self.net.touch(conn);
            return;
        }
        slot.clogged = false;
        let owed = std::mem::take(&mut slot.owes_drained);
        self.net.recycle(outbox);
        if owed && self.net.open(conn).is_some() {
            self.deliver(Event::SendBufferEmpty { conn });
        }
    }

    /// The socket failed: its pending output is dropped.
    fn lose(&mut self, conn: ConnId, mut outbox: Box<Outbox>) {
        outbox.clear(&mut self.net.buffers);
        self.net.recycle(outbox);
        let slot = &mut self.net.conns[conn.0 as usize];
        (slot.lost, slot.queued, slot.full) = (true, 0, false);
        (slot.clogged, slot.owes_drained) = (false, false);
        if self.net.open(conn).is_some() {
            self.deliver(Event::WriteFailed { conn });
        }
    }

    /// Tells what was kept while the shard did not read.
    fn read_ready(&mut self) {
        for _ in 0..self.net.ready.len() {
            let Some(conn) = self.net.ready.pop_front() else { return };
            self.read_on(conn);
        }
    }

    fn read_on(&mut self, conn: ConnId) {
        while let Some(slot) = self.net.open(conn).filter(|slot| slot.may_receive()) {
            let Some(input) = slot.kept() else {
                if std::mem::take(&mut slot.end_waits) {
                    return self.deliver(Event::HungUp { conn });
                }
                return self.net.touch(conn);
            };
            match input {
                Input::Buffer(buffer, length) => self.tell_received(conn, buffer, length),
                Input::Owned(bytes) => self.tell_copied(conn, &bytes),
            }
        }
    }

    fn tell_copied(&mut self, conn: ConnId, bytes: &[u8]) {
        let slot = &mut self.net.conns[conn.0 as usize];
        let unsent = slot.queued > 0;
        slot.owes_drained |= unsent;
        self.core.handle(Event::Received { conn, bytes, unsent }, self.net.now);
        self.run_actions(Origin::Owned(bytes));
    }

    fn watch_gate(&mut self, number: u32) {
        const STATES: i32 = libc::POLLIN as i32 | libc::EPOLLEXCLUSIVE;
        let tag = Tag { op: Op::Acceptor, generation: 0, number };
        if let Some(socket) = self.net.acceptor.socket(number) {
            self.net.ring.watch(tag, socket.as_fd(), STATES, false);
        }
    }

    /// Ends the watches on the listening sockets; they are left to a successor once the kernel was entered.
    fn rest_gates(&mut self) {
        for number in self.net.acceptor.leave(true) {
            self.net.ring.cancel(Tag { op: Op::Acceptor, generation: 0, number });
        }
        self.gates_cancelled = true;
    }

    fn watch_bell(&mut self) {
        let tag = Tag { op: Op::Bell, generation: 0, number: 0 };
        let wakeup = self.net.outside.mailbox().wakeup();
        self.net.ring.watch(tag, wakeup.as_fd(), i32::from(libc::POLLIN), true);
    }

    fn accept(&mut self, number: u32) {
        for _ in 0..self.net.acceptor.how_many(number) {
            match self.net.acceptor.accept(number, self.net.now) {
                Arrival::Client(socket, peer, _) => {
                    let conn = self.core.allocate_id();
                    self.net.renew(conn, State::Open);
                    self.net.seat(conn, socket, false);
                    self.deliver(Event::Accepted { conn, peer });
                }
                Arrival::Again => {}
                Arrival::Nobody => break,
                Arrival::Rest => return,
                Arrival::Exhausted => return self.deliver(Event::FilesRanOut),
            }
        }
        if self.net.acceptor.is_watched() {
            self.watch_gate(number);
        }
    }

    /// Watches no more; whom it was woken for already is let in, because nobody else was.
    fn leave_gates(&mut self) {
        for number in self.net.acceptor.call(false) {
            self.net.ring.cancel(Tag { op: Op::Acceptor, generation: 0, number });
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
            // Shutting a socket down ends the watch on it, and the next accept finds it closed.
            MailboxMessage::CloseListeners { all } => drop(self.net.acceptor.close(all)),
            MailboxMessage::RestGates => self.rest_gates(),
            MailboxMessage::WakeGates => {
                self.net.acceptor.leave(false).into_iter().for_each(|number| self.watch_gate(number));
            }
            MailboxMessage::CallToGates { is_called: true } => {
                self.net.acceptor.call(true).into_iter().for_each(|number| self.watch_gate(number));
            }
            MailboxMessage::CallToGates { is_called: false } => self.leave_gates(),
            MailboxMessage::Inherit(legacy) => legacy.settle(self),
            MailboxMessage::Stop => self.stopped = true,
        }
    }

    fn adopt(&mut self, mover: ConnMove) {
        let conn = self.core.allocate_id();
        self.net.seat_with(conn, mover.fd, &mover.unsent, false);
        self.deliver(Event::Adopted { conn, client: mover.client });
        self.hear(conn, &mover.unread);
    }

    fn deliver(&mut self, event: Event<'static>) {
        self.core.handle(event, self.net.now);
        self.run_actions(Origin::Nothing);
    }

    /// Does all that the shard wants after an event, and tells it what came of that.
    fn run_actions(&mut self, origin: Origin<'_>) {
        run_actions(&mut self.core, &mut self.net, origin);
        self.tell_pending();
    }

    fn tell_pending(&mut self) {
        while let Some(event) = self.net.next_pending() {
            self.core.handle(event, self.net.now);
            run_actions(&mut self.core, &mut self.net, Origin::Nothing);
        }
    }
}

/// Takes all actions.
fn run_actions<C: Core>(core: &mut C, net: &mut Net, origin: Origin<'_>) {
    while let Some(action) = core.poll() {
        net.act(action, origin, core.written(), core.config());
    }
}
