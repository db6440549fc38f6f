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

use crate::ids::{Generation, TableId};
use crate::uring::buffers::{Buffers, GROUP};
use crate::uring::outbox::{MAX_SEGMENTS, Outbox, Segment};

/// How long a ring's queues are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSize {
    /// Requests that can be prepared before the kernel must be entered.
    pub submissions: u32,
    /// Answers that fit before the kernel has to queue them elsewhere.
    pub completions: u32,
}

impl Default for RingSize {
    /// What much is going on needs: about 250 KiB of locked memory.
    fn default() -> RingSize {
        RingSize { submissions: 1024, completions: 8192 }
    }
}

impl RingSize {
    /// What works too, in an eighth of the usual memory.
    pub(crate) const SMALL: RingSize = RingSize { submissions: 128, completions: 1024 };
}

/// All or an error: less than all is said to be that, even of a quiet send.
const WHOLE: libc::c_int = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
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
    Listener = 5,
    /// The mailbox.
    Mailbox = 6,
    /// Output of a connection whose success the kernel keeps to itself; told as [`Op::Send`].
    QuietSend = 7,
}

const OPS: [Op; 7] = [Op::Receive, Op::Send, Op::Cancel, Op::Watch, Op::Listener, Op::Mailbox, Op::QuietSend];

/// Comes back with the answer: what was asked, and for which connection of which number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) op: Op,
    pub(crate) generation: Generation,
    pub(crate) number: u32,
}

impl Tag {
    fn pack(self) -> u64 {
        (self.op as u64) << 60 | u64::from(self.generation.bits()) << 32 | u64::from(self.number)
    }

    fn unpack(data: u64) -> Option<Tag> {
        let op = OPS.into_iter().find(|op| *op as u64 == data >> 60)?;
        let generation = Generation::from_bits(u32::try_from(data >> 32 & u64::from(Generation::MASK)).ok()?);
        Some(Tag { op, generation, number: u32::try_from(data & u64::from(u32::MAX)).ok()? })
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
    /// There is more to be received than that.
    pub(crate) leaves_rest: bool,
}

/// A send in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InFlight(u32);

impl TableId for InFlight {
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// How a send is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Once the socket has taken all of it, however long that takes.
    Awaited,
    /// At once if the socket does not take all of it, with how much went. That all went is nothing the kernel would wake
    /// anybody for: the next [`Ring::turn`] tells.
    Quiet,
}

/// A send of which the kernel speaks only if it did not go through: known to have gone once the kernel was entered.
#[derive(Clone, Copy, Debug)]
struct Quiet {
    tag: Tag,
    bytes: u32,
}

/// Everything that the kernel reads during one send. Boxed: it must not move.
struct Sending {
    outbox: Box<Outbox>,
    vectors: [libc::iovec; MAX_SEGMENTS],
    header: libc::msghdr,
}

/// One thread's ring. Only the thread that made it may use it.
pub(crate) struct Ring {
    ring: IoUring,
    flights: Vec<Option<Box<Sending>>>,
    /// Free positions of `flights`.
    free_flights: Vec<InFlight>,
    /// Memory of earlier flights, to be used again.
    #[allow(clippy::vec_box)] // they must not move while the kernel knows their address
    reuse: Vec<Box<Sending>>,
    /// Quiet sends that the kernel was given, or will be with the next turn.
    quiet: Vec<Quiet>,
    /// Requests for which the submission queue had no room.
    waiting: VecDeque<squeue::Entry>,
}

impl Ring {
    /// A ring of the calling thread.
    pub(crate) fn new(size: RingSize) -> io::Result<Ring> {
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
        builder.setup_submit_all().setup_cqsize(size.completions);
        let ring: IoUring = builder.build(size.submissions)?;
        // Saves a look-up per call; works without.
        let _ = ring.submitter().register_ring_fd();
        Ok(Ring {
            ring,
            flights: Vec::new(),
            free_flights: Vec::new(),
            reuse: Vec::new(),
            quiet: Vec::new(),
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
        manner: Manner,
    ) -> InFlight {
        let mut sending = self.reuse.pop().unwrap_or_else(Sending::new);
        sending.outbox = outbox;
        sending.point_to_segments(buffers);
        let (entry, asked) = match manner {
            Manner::Awaited => (sending.entry(socket, WHOLE), tag),
            Manner::Quiet => {
                self.quiet.push(Quiet { tag, bytes: sending.bytes() });
                let entry = sending.entry(socket, WHOLE | libc::MSG_DONTWAIT);
                (entry.flags(squeue::Flags::SKIP_SUCCESS), Tag { op: Op::QuietSend, ..tag })
            }
        };
        let flight = self.free_flights.pop().unwrap_or_else(|| {
            self.flights.push(None);
            InFlight(u32::try_from(self.flights.len() - 1).unwrap_or(u32::MAX))
        });
        self.flights[flight.index()] = Some(sending);
        self.push(entry, asked);
        flight
    }

    /// The outbox of a send that was answered.
    pub(crate) fn land(&mut self, flight: InFlight) -> Box<Outbox> {
        self.free_flights.push(flight);
        let Some(mut sending) = self.flights[flight.index()].take() else { return Box::default() };
        let outbox = mem::take(&mut sending.outbox);
        self.reuse.push(sending);
        outbox
    }

    /// A send keeps more memory of received buffers than it is long.
    pub(crate) fn is_sparse(&self, flight: InFlight, buffers: &Buffers) -> bool {
        let sending = self.flights.get(flight.index()).and_then(Option::as_ref);
        sending.is_some_and(|sending| sending.outbox.is_sparse(buffers))
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
        self.complete_quiet(answers);
        Ok(())
    }

    /// Answers the quiet sends in the kernel's place, before all else: what did not go through has been answered.
    fn complete_quiet(&mut self, answers: &mut Vec<Completion>) {
        if self.quiet.is_empty() {
            return;
        }
        for answer in answers.iter_mut().filter(|answer| answer.tag.op == Op::QuietSend) {
            answer.tag.op = Op::Send;
            self.quiet.retain(|one| one.tag != answer.tag);
        }
        let queue = self.ring.submission();
        // What is not submitted yet has not gone, and an answer may be among those that found no room.
        if !queue.is_empty() || queue.cq_overflow() || !self.waiting.is_empty() {
            return;
        }
        drop(queue);
        let told = self.quiet.len();
        answers.extend(self.quiet.drain(..).map(|Quiet { tag, bytes }| Completion {
            tag,
            result: Ok(bytes),
            more: false,
            buffer: None,
            leaves_rest: false,
        }));
        answers.rotate_right(told);
    }

    /// Every answer that the kernel has for now was taken.
    pub(crate) fn has_taken_all(&mut self) -> bool {
        self.ring.completion().is_empty() && !self.ring.submission().cq_overflow()
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
        Box::new(Sending { outbox: Box::default(), vectors: [NOTHING; MAX_SEGMENTS], header })
    }

    /// Points the vectors to the first pieces of the outbox.
    fn point_to_segments(&mut self, buffers: &Buffers) {
        let mut count = 0;
        for (vector, piece) in self.vectors.iter_mut().zip(self.outbox.front()) {
            let bytes = Segment::bytes(piece, buffers);
            *vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            count += 1;
        }
        self.header.msg_iov = self.vectors.as_mut_ptr();
        self.header.msg_iovlen = count;
    }

    fn pointed(&self) -> &[libc::iovec] {
        self.vectors.get(..self.header.msg_iovlen).unwrap_or_default()
    }

    /// How much goes.
    fn bytes(&self) -> u32 {
        u32::try_from(self.pointed().iter().map(|vector| vector.iov_len).sum::<usize>()).unwrap_or(u32::MAX)
    }

    /// The request.
    fn entry(&self, socket: BorrowedFd<'_>, flags: libc::c_int) -> squeue::Entry {
        let fd = Fd(socket.as_raw_fd());
        if let [only] = self.pointed() {
            let length = u32::try_from(only.iov_len).unwrap_or(u32::MAX);
            return opcode::Send::new(fd, only.iov_base.cast(), length).flags(flags).build();
        }
        opcode::SendMsg::new(fd, &raw const self.header).flags(flags.unsigned_abs()).build()
    }
}

fn completion(entry: &cqueue::Entry) -> Option<Completion> {
    let result = entry.result();
    let result = u32::try_from(result).map_err(|_| Errno::from_raw_os_error(-result));
    let flags = entry.flags();
    Some(Completion {
        tag: Tag::unpack(entry.user_data())?,
        result,
        more: cqueue::more(flags),
        buffer: cqueue::buffer_select(flags),
        leaves_rest: cqueue::sock_nonempty(flags),
    })
}

/// A pair of connected sockets, for trying the ring out.
pub(crate) fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::uring::buffers::ReceiveBuffers;
    use crate::uring::kernel::Kernel;

    #[test]
    fn a_quiet_send_is_told_whole_or_short() {
        const LENGTH: u32 = 8000;
        let plan = ReceiveBuffers { size: 4096, first: 1, most: 2 };
        let Kernel { mut ring, buffers } = Kernel::new(RingSize::default(), plan).unwrap();
        let (near, far) = socket_pair().unwrap();
        let tag = Tag { op: Op::Send, generation: Generation::from_bits(1), number: 2 };
        let mut answers = Vec::new();
        let mut gone = 0;
        for _ in 0..10_000 {
            let mut outbox = Box::<Outbox>::default();
            outbox.copy(&[7; LENGTH as usize]);
            let flight = ring.send(tag, near.as_fd(), outbox, &buffers, Manner::Quiet);
            ring.turn(Some(100), &mut answers).unwrap();
            assert_eq!(answers.len(), 1);
            assert_eq!(answers[0].tag, tag);
            drop(ring.land(flight));
            match answers[0].result {
                Ok(count) if count == LENGTH => gone += LENGTH as usize,
                Ok(count) => {
                    gone += count as usize;
                    break;
                }
                Err(fault) => {
                    assert_eq!(fault, Errno::AGAIN);
                    break;
                }
            }
        }
        drop(near);
        let mut arrived = 0;
        let mut sink = [0; 4096];
        while let Ok(count @ 1..) = rustix::io::read(&far, &mut sink) {
            arrived += count;
        }
        assert!(gone > 0 && arrived == gone, "{arrived} of {gone}");
    }

    #[test]
    fn tags_come_back_as_they_went() {
        for op in OPS {
            let tag = Tag { op, generation: Generation::from_bits(Generation::MASK), number: u32::MAX - 1 };
            assert_eq!(Tag::unpack(tag.pack()), Some(tag));
        }
        assert_eq!(Tag::unpack(0), None);
    }
}
