//! Connections that move to another shard or process while kernel requests on them are pending.
//!
//! Normally nothing is in flight when a client moves. Where something is, its id is free at once all the same: the
//! connection waits here until the kernel has let go of it, and takes along what has come and what has not gone.

use messages::ShardId;
use shard::{ClientMove, ConnId};

use crate::core::told_of;
use crate::mailbox::ConnMove;
use crate::takeover::{ExportState, ExportedConn};
use crate::uring::conn::{Conn, Receive};
use crate::uring::net::Net;
use crate::uring::ring::{Completion, Op};

/// A client that waits to leave.
pub(crate) struct Leaving {
    conn: ConnId,
    slot: Conn,
    to: Destination,
    unread: Vec<u8>,
}

/// Where it goes.
pub(crate) enum Destination {
    /// To another shard.
    Shard(ShardId, Box<ClientMove>),
    /// To another process.
    Successor(ExportState),
}

impl Net {
    /// Takes a socket off this shard.
    pub(crate) fn leave(&mut self, conn: ConnId, to: Destination) {
        if self.open(conn).is_none() {
            if let Destination::Successor(export_state) = to {
                let (unsent, unread) = (Vec::new(), Vec::new());
                self.outside.send_off(ExportedConn { socket: None, export_state, unsent, unread });
            }
            return;
        }
        let slot = &mut self.conns[conn.0 as usize];
        slot.cancel_all(conn, &mut self.ring);
        let stays = Conn { dirty: slot.dirty, generation: slot.generation, ..Conn::default() };
        let mut slot = std::mem::replace(slot, stays);
        self.pending.retain(|event| told_of(event) != Some(conn));
        let mut unread = Vec::new();
        while let Some(input) = slot.kept() {
            unread.extend_from_slice(input.bytes(&self.buffers));
            input.release(&mut self.buffers);
        }
        let leaving = Leaving { conn, slot, to, unread };
        if leaving.slot.requests == 0 {
            self.depart(leaving);
        } else {
            self.leaving.push(leaving);
        }
    }

    /// A completion for a connection that is gone.
    pub(crate) fn answer_leaving(&mut self, answer: Completion) {
        let lookup =
            |one: &Leaving| (one.conn.0, one.slot.generation) == (answer.tag.number, answer.tag.generation);
        let Some(index) = self.leaving.iter().position(lookup) else {
            debug_assert!(answer.buffer.is_none(), "bytes for nobody");
            return;
        };
        let one = &mut self.leaving[index];
        if !answer.more {
            one.slot.requests -= 1;
        }
        if let Some(id) = answer.buffer {
            let length = answer.result.unwrap_or(0) as usize;
            let buffer = self.buffers.take(id, length);
            one.unread.extend_from_slice(self.buffers.bytes(&buffer, length));
            self.buffers.release(buffer);
        }
        match answer.tag.op {
            Op::Send => {
                if let Some(flight) = one.slot.flight.take() {
                    let mut outbox = self.ring.land(flight);
                    outbox.advance(&mut self.buffers, answer.result.unwrap_or(0) as usize);
                    if let Some(later) = &mut one.slot.out {
                        outbox.append(later);
                    }
                    one.slot.out = Some(outbox);
                }
            }
            Op::Receive if !answer.more => one.slot.receive = Receive::Idle,
            Op::Watch => one.slot.watched = false,
            Op::Cancel if one.slot.is_missed(answer.result) => {
                one.slot.cancel_all(one.conn, &mut self.ring);
            }
            _ => {}
        }
        if one.slot.requests == 0 {
            let one = self.leaving.swap_remove(index);
            self.depart(one);
        }
    }

    fn depart(&mut self, mut leaving: Leaving) {
        leaving.slot.say(&mut self.buffers);
        let unsent = leaving.slot.out.take().map(|out| out.into_bytes(&mut self.buffers)).unwrap_or_default();
        let (socket, unread) = (leaving.slot.socket, leaving.unread);
        match (leaving.to, socket) {
            (Destination::Shard(to, client), Some(fd)) => {
                self.outside.hand_over(to, ConnMove { fd, client, unsent, unread });
            }
            (Destination::Shard(..), None) => {}
            (Destination::Successor(export_state), socket) => {
                self.outside.send_off(ExportedConn { socket, export_state, unsent, unread });
            }
        }
    }
}
