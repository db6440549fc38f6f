//! What io_uring knows of one connection: its requests, its input and its output. Never talks to the shard.

use std::collections::VecDeque;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use shard::ConnId;

use crate::conn_move::Destination;
use crate::conn_table::{self, State};
use crate::uring::buffers::{Buffer, Buffers};
use crate::uring::outbox::Outbox;
use crate::uring::ring::{InFlight, Op, Ring, Tag};

/// What is asked of the kernel about input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Receive {
    /// Nothing.
    #[default]
    Idle,
    /// A receive.
    Armed,
    /// The end of a receive that was armed.
    Cancelling,
}

/// Input that is kept. Its own type so that an idle connection has only a pointer's room for it.
#[derive(Debug, Default)]
pub(crate) struct Inbox(VecDeque<Input>);

/// A piece of it.
#[derive(Debug)]
pub(crate) enum Input {
    /// As it was received: a buffer, and how much of it.
    Buffer(Buffer, usize),
    /// Copied, because others need the buffers.
    Owned(Vec<u8>),
}

impl Input {
    /// The bytes.
    pub(crate) fn bytes<'a>(&'a self, buffers: &'a Buffers) -> &'a [u8] {
        match self {
            Input::Buffer(buffer, length) => buffers.bytes(buffer, *length),
            Input::Owned(bytes) => bytes,
        }
    }

    /// Gives its buffer back.
    pub(crate) fn release(self, buffers: &mut Buffers) {
        if let Input::Buffer(buffer, _) = self {
            buffers.release(buffer);
        }
    }
}

/// What io_uring knows of a connection besides the table.
#[derive(Debug, Default)]
pub(crate) struct UringConn {
    pub(crate) receive: Receive,
    /// It stays on this shard: multishot receive, once a few single ones have brought something.
    pub(crate) settled: bool,
    /// How many receives have ended.
    pub(crate) heard: u8,
    /// A poll for the peer's end of file (or for the outcome of connecting) is armed.
    pub(crate) watched: bool,
    /// The peer's end of file was seen: the rest is received by single requests, because those show the end for sure.
    pub(crate) end_seen: bool,
    /// The end was received, and the shard was not notified of it yet.
    pub(crate) end_undelivered: bool,
    /// The socket has lately taken less than it was offered.
    pub(crate) full: bool,
    /// The send in flight was in flight at the last look, too.
    pub(crate) is_slow: bool,
    /// There were no buffers for it.
    pub(crate) starved: bool,
    /// Requests that the kernel has not answered for the last time.
    pub(crate) requests: u16,
    /// Those of them that cancel another one.
    pub(crate) cancels: u8,
    /// One of those found nothing to cancel.
    pub(crate) missed: bool,
    /// Output that is queued, in flight or not, in bytes.
    pub(crate) queued: u32,
    /// A send that the kernel works on.
    pub(crate) flight: Option<InFlight>,
    /// Output behind that.
    pub(crate) out: Option<Box<Outbox>>,
    /// Input that arrived while the shard did not want it.
    pub(crate) inbox: Option<Box<Inbox>>,
}

/// One connection. Its id is listed ([`conn_table::Conn::is_listed`]) while it may want something of the kernel.
pub(crate) type Conn = conn_table::Conn<UringConn>;

/// A connection that has left the table, until the kernel has answered every request for it.
pub(crate) struct Leaving {
    pub(crate) conn: ConnId,
    pub(crate) slot: Conn,
    pub(crate) to: Destination,
    /// Input that the shard has not seen.
    pub(crate) unread: Vec<u8>,
}

impl Conn {
    /// It comes for longer than for one question, so that it is worth its while to receive until it is told to stop.
    pub(crate) fn is_here_to_stay(&self) -> bool {
        const RECEIVES: u8 = 5;
        self.io.settled && self.io.heard >= RECEIVES && !self.io.end_seen
    }

    /// Asks the kernel to end everything that it still does for this connection, whose id is `conn`.
    pub(crate) fn cancel_all(&mut self, conn: ConnId, ring: &mut Ring) {
        if self.io.receive != Receive::Idle {
            self.io.receive = Receive::Cancelling;
            self.cancel(conn, Op::Receive, ring);
        }
        if self.io.flight.is_some() {
            self.cancel(conn, Op::Send, ring);
        }
        if self.io.watched {
            self.cancel(conn, Op::Watch, ring);
        }
    }

    /// Asks the kernel to end one request.
    pub(crate) fn cancel(&mut self, conn: ConnId, op: Op, ring: &mut Ring) {
        self.io.requests += 1;
        self.io.cancels += 1;
        ring.cancel(Tag { op, generation: self.generation, number: conn.0 });
    }

    /// The kernel has answered one of those. True if it must be asked again: it does not find a request that it has in
    /// hand at that moment, to poll it anew or to have a thread of its own wait for it, and goes on with it.
    pub(crate) fn cancel_answered(&mut self, answer: Result<u32, Errno>) -> bool {
        self.io.cancels = self.io.cancels.saturating_sub(1);
        self.io.missed |= answer == Err(Errno::NOENT);
        self.io.cancels == 0 && std::mem::take(&mut self.io.missed)
    }

    /// It may be given bytes now.
    pub(crate) fn may_receive(&self) -> bool {
        self.state == State::Open && !self.is_paused()
    }

    /// Keeps input for later. That may be long, so where few buffers are left, the bytes are copied: no more of them
    /// come than are in the socket by now.
    pub(crate) fn keep(&mut self, buffer: Buffer, length: usize, buffers: &mut Buffers) {
        let input = if buffers.are_few_left() {
            let bytes = buffers.bytes(&buffer, length).to_vec();
            buffers.release(buffer);
            Input::Owned(bytes)
        } else {
            Input::Buffer(buffer, length)
        };
        self.io.inbox.get_or_insert_default().0.push_back(input);
    }

    /// The first of what was kept; without any, there is no inbox afterwards.
    pub(crate) fn kept(&mut self) -> Option<Input> {
        let first = self.io.inbox.as_mut()?.0.pop_front();
        if self.io.inbox.as_ref().is_some_and(|inbox| inbox.0.is_empty()) {
            self.io.inbox = None;
        }
        first
    }

    /// Gives all buffers back.
    pub(crate) fn empty(&mut self, buffers: &mut Buffers) {
        while let Some(input) = self.kept() {
            input.release(buffers);
        }
        if let Some(mut out) = self.io.out.take() {
            out.clear(buffers);
        }
    }

    /// Sends what is queued as far as the socket takes it without waiting. Only while no send is in flight.
    pub(crate) fn send_now(&mut self, buffers: &mut Buffers) {
        const FLAGS: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
        debug_assert!(self.io.flight.is_none());
        let (Some(socket), Some(out)) = (&self.socket, &mut self.io.out) else { return };
        while !out.is_empty() {
            let (slices, count) = out.slices(buffers);
            match sendmsg(socket, &slices[..count], &mut SendAncillaryBuffer::default(), FLAGS) {
                Ok(sent) => out.advance(buffers, sent),
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Reads away a little of what is unread, because closing over unread bytes resets the connection and may cost
    /// the peer the last words to it. Most leave by a message of their own, behind which there is nothing to be read.
    pub(crate) fn drain_input(&self) {
        const READS: usize = 16;
        let Some(socket) = self.socket.as_ref().filter(|_| !self.ended && !self.emptied) else { return };
        let mut sink = [0; 4096];
        for _ in 0..READS {
            if !recv(socket, &mut sink, RecvFlags::DONTWAIT).is_ok_and(|(count, _)| count == sink.len()) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        assert!(size_of::<Conn>() <= 72, "{}", size_of::<Conn>());
    }
}
