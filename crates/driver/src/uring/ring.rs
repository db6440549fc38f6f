//! The kernel's ring: what is asked of it and what it answers.
//!
//! Memory that the kernel reads from (outboxes in flight) is owned here until the answer is there; memory that it
//! writes to is [`Buffers`]. So no mistake elsewhere can free what the kernel uses. Never knows what a connection is.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::{io, mem};

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;

use crate::uring::buffers::{Buffers, GROUP};
use crate::uring::outbox::{Outbox, PIECES, Piece};

/// Requests that can be prepared before the kernel must be entered.
const SUBMISSIONS: u32 = 1024;
/// Answers that fit before the kernel has to queue them elsewhere.
const COMPLETIONS: u32 = 8192;
/// Tickets have 28 bits here.
pub(crate) const TICKETS: u32 = 0x0FFF_FFFF;

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Op {
    /// Bytes of a connection.
    Receive = 1,
    /// Output of a connection.
    Send = 2,
    /// Something of a connection is to end.
    Cancel = 3,
    /// The state of a connection's socket.
    Watch = 4,
    /// A listening socket.
    Gate = 5,
    /// The mailbox.
    Bell = 6,
}

const OPS: [Op; 6] = [Op::Receive, Op::Send, Op::Cancel, Op::Watch, Op::Gate, Op::Bell];

/// Comes back with the answer: what was asked, and for which occupant of which number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) op: Op,
    pub(crate) ticket: u32,
    pub(crate) number: u32,
}

impl Tag {
    fn pack(self) -> u64 {
        (self.op as u64) << 60 | u64::from(self.ticket & TICKETS) << 32 | u64::from(self.number)
    }

    fn unpack(data: u64) -> Option<Tag> {
        let op = OPS.into_iter().find(|op| *op as u64 == data >> 60)?;
        let ticket = u32::try_from(data >> 32 & u64::from(TICKETS)).ok()?;
        Some(Tag { op, ticket, number: u32::try_from(data & u64::from(u32::MAX)).ok()? })
    }
}

/// An answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    pub(crate) tag: Tag,
    /// A count, or why not.
    pub(crate) result: Result<u32, Errno>,
    /// Further answers to the same request will come.
    pub(crate) more: bool,
    /// The receive buffer that was filled.
    pub(crate) buffer: Option<u16>,
}

/// A send in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flight(u32);

/// Everything that the kernel reads during one send. Boxed: it must not move.
struct Sending {
    outbox: Box<Outbox>,
    vectors: [libc::iovec; PIECES],
    header: libc::msghdr,
}

/// One thread's ring. Only the thread that made it may use it.
pub(crate) struct Ring {
    ring: IoUring,
    flights: Vec<Option<Box<Sending>>>,
    /// Free positions of `flights`.
    landed: Vec<u32>,
    /// Memory of earlier flights, to be used again.
    #[allow(clippy::vec_box)] // they must not move while the kernel knows their address
    hangar: Vec<Box<Sending>>,
    /// Requests for which the submission queue had no room.
    waiting: VecDeque<squeue::Entry>,
}

impl Ring {
    /// A ring of the calling thread.
    pub(crate) fn new() -> io::Result<Ring> {
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
        builder.setup_submit_all().setup_cqsize(COMPLETIONS);
        let ring: IoUring = builder.build(SUBMISSIONS)?;
        // Saves a look-up per call; works without.
        let _ = ring.submitter().register_ring_fd();
        Ok(Ring {
            ring,
            flights: Vec::new(),
            landed: Vec::new(),
            hangar: Vec::new(),
            waiting: VecDeque::new(),
        })
    }

    /// The kernel's handle, for registering.
    pub(crate) fn kernel(&self) -> &IoUring {
        &self.ring
    }

    /// Receives into provided buffers until cancelled, ended or out of buffers.
    pub(crate) fn receive_on(&mut self, tag: Tag, socket: BorrowedFd<'_>) {
        self.push(opcode::RecvMulti::new(Fd(socket.as_raw_fd()), GROUP).build(), tag);
    }

    /// Receives once into a provided buffer.
    pub(crate) fn receive_once(&mut self, tag: Tag, socket: BorrowedFd<'_>, length: u32) {
        let receive =
            opcode::Recv::new(Fd(socket.as_raw_fd()), std::ptr::null_mut(), length).buf_group(GROUP);
        self.push(receive.build().flags(squeue::Flags::BUFFER_SELECT), tag);
    }

    /// Waits until a socket is in one of these states (poll's flags), once or (`on`) again and again.
    pub(crate) fn watch(&mut self, tag: Tag, socket: BorrowedFd<'_>, states: libc::c_int, on: bool) {
        let states = u32::try_from(states).unwrap_or(0);
        self.push(opcode::PollAdd::new(Fd(socket.as_raw_fd()), states).multi(on).build(), tag);
    }

    /// Ends a request; both it and this are answered.
    pub(crate) fn cancel(&mut self, what: Tag) {
        let tag = Tag { op: Op::Cancel, ..what };
        self.push(opcode::AsyncCancel::new(what.pack()).build(), tag);
    }

    /// Sends the first pieces of an outbox; [`Ring::land`] gives it back.
    pub(crate) fn send(
        &mut self,
        tag: Tag,
        socket: BorrowedFd<'_>,
        outbox: Box<Outbox>,
        buffers: &Buffers,
    ) -> Flight {
        const FLAGS: libc::c_int = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let mut sending = self.hangar.pop().unwrap_or_else(Sending::new);
        sending.outbox = outbox;
        let count = sending.point_to_pieces(buffers);
        let fd = Fd(socket.as_raw_fd());
        let entry = if count == 1 {
            let only = &sending.vectors[0];
            let length = u32::try_from(only.iov_len).unwrap_or(u32::MAX);
            opcode::Send::new(fd, only.iov_base.cast(), length).flags(FLAGS).build()
        } else {
            opcode::SendMsg::new(fd, &raw const sending.header).flags(FLAGS.unsigned_abs()).build()
        };
        let flight = self.landed.pop().unwrap_or_else(|| {
            self.flights.push(None);
            u32::try_from(self.flights.len() - 1).unwrap_or(u32::MAX)
        });
        self.flights[flight as usize] = Some(sending);
        self.push(entry, tag);
        Flight(flight)
    }

    /// The outbox of a send that was answered.
    pub(crate) fn land(&mut self, flight: Flight) -> Box<Outbox> {
        self.landed.push(flight.0);
        let Some(mut sending) = self.flights[flight.0 as usize].take() else { return Box::default() };
        let outbox = mem::take(&mut sending.outbox);
        self.hangar.push(sending);
        outbox
    }

    fn push(&mut self, entry: squeue::Entry, tag: Tag) {
        let entry = entry.user_data(tag.pack());
        if !self.waiting.is_empty() || !self.offer(&entry) {
            self.waiting.push_back(entry);
        }
    }

    fn offer(&mut self, entry: &squeue::Entry) -> bool {
        for _ in 0..2 {
            // SAFETY: sockets outlive their requests (connections close only when nothing is in flight), what a send
            // reads is owned by `flights` until its answer, and what a receive writes to is never unmapped.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return true;
            }
            let _ = self.ring.submit();
        }
        false
    }

    /// Submits everything and takes the answers; sleeps until there is one, at most so long (None: for ever).
    pub(crate) fn turn(&mut self, sleep_us: Option<u64>, answers: &mut Vec<Completion>) -> io::Result<()> {
        while let Some(entry) = self.waiting.pop_front() {
            if !self.offer(&entry) {
                self.waiting.push_front(entry);
                break;
            }
        }
        match self.enter(sleep_us) {
            Ok(_) => {}
            Err(fault) => match Errno::from_io_error(&fault) {
                Some(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN) => {}
                _ => return Err(fault),
            },
        }
        answers.clear();
        answers.extend(self.ring.completion().filter_map(|entry| completion(&entry)));
        Ok(())
    }

    fn enter(&self, sleep_us: Option<u64>) -> io::Result<usize> {
        match sleep_us {
            None if self.waiting.is_empty() => self.ring.submit_and_wait(1),
            None | Some(0) => self.ring.submit(),
            Some(microseconds) => {
                let seconds = microseconds / 1_000_000;
                let nanoseconds = u32::try_from(microseconds % 1_000_000 * 1_000).unwrap_or(0);
                let timeout = Timespec::new().sec(seconds).nsec(nanoseconds);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
            }
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel may read what is in flight for a moment after the ring is closed.
        mem::forget(mem::take(&mut self.flights));
    }
}

impl Sending {
    fn new() -> Box<Sending> {
        const NOTHING: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: an all-zero msghdr is a valid value of that C struct.
        let header = unsafe { mem::zeroed() };
        Box::new(Sending { outbox: Box::default(), vectors: [NOTHING; PIECES], header })
    }

    /// Points the vectors to the first pieces of the outbox; how many they are.
    fn point_to_pieces(&mut self, buffers: &Buffers) -> usize {
        let mut count = 0;
        for (vector, piece) in self.vectors.iter_mut().zip(self.outbox.front()) {
            let bytes = Piece::bytes(piece, buffers);
            *vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            count += 1;
        }
        self.header.msg_iov = self.vectors.as_mut_ptr();
        self.header.msg_iovlen = count;
        count
    }
}

fn completion(entry: &cqueue::Entry) -> Option<Completion> {
    let result = entry.result();
    let result = u32::try_from(result).map_err(|_| Errno::from_raw_os_error(-result));
    let (more, buffer) = (cqueue::more(entry.flags()), cqueue::buffer_select(entry.flags()));
    Some(Completion { tag: Tag::unpack(entry.user_data())?, result, more, buffer })
}

/// A pair of connected sockets, for trying the ring out.
pub(crate) fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_come_back_as_they_went() {
        for op in OPS {
            let tag = Tag { op, ticket: TICKETS, number: u32::MAX - 1 };
            assert_eq!(Tag::unpack(tag.pack()), Some(tag));
        }
        assert_eq!(Tag::unpack(0), None);
    }
}
