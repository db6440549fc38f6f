//! Connections that move to another shard or process while kernel requests on them are pending.
//!
//! Normally nothing is in flight when a client moves. Where something is, its id is free at once all the same: the
//! connection waits here until the kernel has let go of it, and takes along what has come and what has not gone.

use shard::ConnId;

use crate::conn_move::Destination;
use crate::uring::backend::{Net, Uring};
use crate::uring::conn::{Leaving, Receive};
use crate::uring::ring::{Completion, Op};

impl Uring {
    /// Takes a connection out of the table.
    pub(crate) fn send_away(&mut self, net: &mut Net, conn: ConnId, to: Destination) {
        let Some(slot) = net.conns.open(conn) else {
            return net.context.send_away(to, None, Vec::new(), Vec::new());
        };
        slot.cancel_all(conn, &mut self.ring);
        let mut slot = net.conns.vacate(conn);
        net.forget_pending(conn);
        let mut unread = Vec::new();
        while let Some(input) = slot.kept() {
            unread.extend_from_slice(input.bytes(&self.buffers));
            input.release(&mut self.buffers);
        }
        let leaving = Leaving { conn, slot, to, unread };
        if leaving.slot.io.requests == 0 {
            self.depart(net, leaving);
        } else {
            self.leaving.push(leaving);
        }
    }

    /// A completion for a connection that is gone.
    pub(crate) fn answer_leaving(&mut self, net: &mut Net, answer: Completion) {
        let lookup =
            |one: &Leaving| (one.conn.0, one.slot.generation) == (answer.tag.number, answer.tag.generation);
        let Some(index) = self.leaving.iter().position(lookup) else {
            debug_assert!(answer.buffer.is_none(), "bytes of no connection");
            return;
        };
        let one = &mut self.leaving[index];
        if !answer.more {
            one.slot.io.requests -= 1;
        }
        if let Some(id) = answer.buffer {
            let length = answer.result.unwrap_or(0) as usize;
            let buffer = self.buffers.take(id, length);
            one.unread.extend_from_slice(self.buffers.bytes(&buffer, length));
            self.buffers.release(buffer);
        }
        match answer.tag.op {
            Op::Send => {
                if let Some(flight) = one.slot.io.flight.take() {
                    let mut outbox = self.ring.land(flight);
                    outbox.advance(&mut self.buffers, answer.result.unwrap_or(0) as usize);
                    if let Some(later) = &mut one.slot.io.out {
                        outbox.append(later);
                    }
                    one.slot.io.out = Some(outbox);
                }
            }
            Op::Receive if !answer.more => one.slot.io.receive = Receive::Idle,
            Op::Watch => one.slot.io.watched = false,
            Op::Cancel if one.slot.cancel_answered(answer.result) => {
                one.slot.cancel_all(one.conn, &mut self.ring);
            }
            _ => {}
        }
        if one.slot.io.requests == 0 {
            let one = self.leaving.swap_remove(index);
            self.depart(net, one);
        }
    }

    fn depart(&mut self, net: &Net, mut leaving: Leaving) {
        leaving.slot.send_now(&mut self.buffers);
        let out = leaving.slot.io.out.take();
        let unsent = out.map(|out| out.into_bytes(&mut self.buffers)).unwrap_or_default();
        net.context.send_away(leaving.to, leaving.slot.socket, unsent, leaving.unread);
    }
}
