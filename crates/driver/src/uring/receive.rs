//! Completions, and what they mean to the shard: input, output that has gone, ends of connections.

use rustix::io::Errno;
use shard::{ConnId, Event};

use crate::conn_table::State;
use crate::core::Core;
use crate::event_loop::{Backend, EventLoop, run_actions};
use crate::ids::ListenerId;
use crate::uring::backend::{Received, Uring};
use crate::uring::buffers::Buffer;
use crate::uring::conn::{Input, Receive};
use crate::uring::outbox::Outbox;
use crate::uring::ring::{Completion, Op, Tag};

impl<C: Core> EventLoop<C, Uring> {
    /// Handles one completion.
    pub(crate) fn handle_completion(&mut self, answer: Completion) {
        let Tag { op, generation, number } = answer.tag;
        match op {
            // Another watch may have begun already.
            Op::Listener if answer.result == Err(Errno::CANCELED) => return,
            Op::Listener => return self.accept(ListenerId(number)),
            Op::Mailbox => return self.mailbox_reported(answer.more),
            Op::Receive | Op::Send | Op::QuietSend | Op::Watch | Op::Cancel => {}
        }
        let conn = ConnId(number);
        let slot = self.net.conns.slot(conn);
        if slot.generation != generation || slot.io.requests == 0 {
            return self.backend.answer_leaving(&mut self.net, answer);
        }
        if !answer.more {
            slot.io.requests -= 1;
        }
        match op {
            Op::Receive => self.received(conn, answer),
            Op::Send => self.sent(conn, answer.result),
            Op::Watch => self.watched(conn),
            Op::Cancel => self.backend.cancelled(&mut self.net, conn, answer.result),
            _ => {}
        }
        if self.net.conns.slot(conn).state == State::Closing {
            self.backend.finish(&mut self.net, conn);
            self.deliver_pending();
        }
    }

    fn mailbox_reported(&mut self, goes_on: bool) {
        if !goes_on {
            // A ring accepts every watch.
            let _ = self.backend.watch_mailbox(self.net.context.mailbox().wakeup());
        }
        self.read_messages();
    }

    fn received(&mut self, conn: ConnId, answer: Completion) {
        let length = answer.result.unwrap_or(0) as usize;
        let buffer = answer.buffer.map(|id| self.backend.buffers.take(id, length));
        let slot = self.net.conns.slot(conn);
        if !answer.more {
            slot.io.receive = Receive::Idle;
            slot.io.heard = slot.io.heard.saturating_add(1);
        }
        // Not every kernel says of a unix socket that there is more; a full buffer says so, too.
        let leaves_rest = answer.leaves_rest || length >= self.backend.buffers.size() as usize;
        slot.emptied = buffer.is_some() && !leaves_rest && !slot.is_paused();
        match (buffer, answer.result) {
            (Some(buffer), _) if slot.state != State::Open || length == 0 => {
                self.backend.buffers.release(buffer);
                if length == 0 {
                    self.end(conn);
                }
            }
            (Some(buffer), _) if slot.io.inbox.is_some() || slot.is_paused() => {
                slot.keep(buffer, length, &mut self.backend.buffers);
                self.backend.stop_receiving(&mut self.net, conn);
            }
            (Some(buffer), _) => self.deliver_buffer(conn, buffer, length),
            (None, Err(Errno::NOBUFS)) if slot.state == State::Open => {
                slot.io.starved = true;
                self.backend.starved.push(conn);
                self.backend.buffers.ran_out();
            }
            (None, Err(Errno::NOBUFS | Errno::CANCELED | Errno::INTR | Errno::AGAIN)) => {}
            (None, _) => self.end(conn),
        }
        if !answer.more {
            self.backend.touch(&mut self.net, conn);
        }
    }

    /// Delivers a receive buffer; what the shard forwards of it is sent from there.
    fn deliver_buffer(&mut self, conn: ConnId, buffer: Buffer, length: usize) {
        let unsent = self.owes_unsent(conn);
        let bytes = self.backend.buffers.bytes(&buffer, length);
        self.core.handle(Event::Received { conn, bytes, unsent }, self.now);
        run_actions(&mut self.core, &mut self.net, &mut self.backend, Received::Buffer(&buffer));
        self.backend.buffers.release(buffer);
        self.deliver_pending();
    }

    /// Whether output of the connection waits; if so, the shard will be notified when it has gone.
    fn owes_unsent(&mut self, conn: ConnId) -> bool {
        let slot = self.net.conns.slot(conn);
        let unsent = slot.io.queued > 0;
        slot.owes_send_empty |= unsent;
        unsent
    }

    /// The peer sends no more.
    fn end(&mut self, conn: ConnId) {
        let Some(slot) = self.net.conns.open(conn).filter(|slot| !slot.ended) else { return };
        slot.ended = true;
        if slot.may_receive() && slot.io.inbox.is_none() {
            return self.deliver(Event::HungUp { conn });
        }
        slot.io.end_undelivered = true;
        self.end_seen(conn);
    }

    /// Notifies the shard once that the end was seen while it does not read.
    fn end_seen(&mut self, conn: ConnId) {
        if self.net.conns.open(conn).is_some_and(|slot| slot.is_paused()) {
            self.net.half_closed(conn);
            self.deliver_pending();
        }
    }

    fn watched(&mut self, conn: ConnId) {
        let slot = self.net.conns.slot(conn);
        slot.io.watched = false;
        match slot.state {
            State::Connecting => self.connect_finished(conn),
            State::Open => {
                slot.io.end_seen = true;
                self.backend.stop_receiving(&mut self.net, conn);
                self.end_seen(conn);
            }
            _ => {}
        }
    }

    fn sent(&mut self, conn: ConnId, result: Result<u32, Errno>) {
        let slot = self.net.conns.slot(conn);
        let Some(flight) = slot.io.flight.take() else { return };
        let mut outbox = self.backend.ring.land(flight);
        let gone = result.unwrap_or(0);
        outbox.advance(&mut self.backend.buffers, gone as usize);
        slot.io.queued = slot.io.queued.saturating_sub(gone);
        let later = slot.io.out.take();
        if let Some(mut later) = later {
            outbox.append(&mut later);
            self.backend.recycle(later);
        }
        if matches!(result, Err(fault) if !matches!(fault, Errno::CANCELED | Errno::INTR | Errno::AGAIN)) {
            return self.lose(conn, outbox);
        }
        (slot.io.full, slot.io.is_slow) = (!outbox.is_empty(), false);
        if slot.io.full {
            outbox.compact(&mut self.backend.buffers);
            slot.io.out = Some(outbox);
            self.backend.touch(&mut self.net, conn);
            return;
        }
        slot.is_send_full = false;
        let owed = std::mem::take(&mut slot.owes_send_empty);
        self.backend.recycle(outbox);
        if owed && self.net.conns.open(conn).is_some() {
            self.deliver(Event::SendBufferEmpty { conn });
        }
    }

    /// The socket failed: its pending output is dropped.
    fn lose(&mut self, conn: ConnId, mut outbox: Box<Outbox>) {
        outbox.clear(&mut self.backend.buffers);
        self.backend.recycle(outbox);
        let slot = self.net.conns.slot(conn);
        (slot.write_failed, slot.io.queued, slot.io.full) = (true, 0, false);
        (slot.is_send_full, slot.owes_send_empty) = (false, false);
        if self.net.conns.open(conn).is_some() {
            self.deliver(Event::WriteFailed { conn });
        }
    }

    /// Delivers what was kept while the shard did not read.
    pub(crate) fn read_kept(&mut self, conn: ConnId) {
        while let Some(slot) = self.net.conns.open(conn).filter(|slot| slot.may_receive()) {
            let Some(input) = slot.kept() else {
                if std::mem::take(&mut slot.io.end_undelivered) {
                    return self.deliver(Event::HungUp { conn });
                }
                return self.backend.touch(&mut self.net, conn);
            };
            match input {
                Input::Buffer(buffer, length) => self.deliver_buffer(conn, buffer, length),
                Input::Owned(bytes) => {
                    let unsent = self.owes_unsent(conn);
                    self.deliver_bytes(conn, &bytes, unsent);
                }
            }
        }
    }
}
