//! The kernel's side of the loop by readiness: what is registered, what is written, what waits for writability.

use std::io;
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;
use shard::{ConnId, Event};
use telemetry::Level;

use crate::conn_move::Destination;
use crate::conn_table::State;
use crate::connect::{self, Attempt};
use crate::core::Core;
use crate::epoll::conn::{Backlog, EpollConn};
use crate::epoll::write_batch::{Bytes, WriteBatch};
use crate::event_loop::{self, Adopted, BATCH, Backend, EventLoop, SendRange, Wait};
use crate::ids::{Generation, ListenerId};

/// One buffer per thread: large enough that a large result costs few calls.
const SCRATCH: usize = 64 * 1024;
/// Output that may wait for one connection before its source is stopped, in bytes.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

const BOTH_WAYS: EventFlags = EventFlags::IN.union(EventFlags::OUT).union(INWARD);
const INWARD: EventFlags =
    EventFlags::IN.union(EventFlags::PRI).union(EventFlags::RDHUP).union(EventFlags::ET);

type Net = event_loop::Net<EpollConn>;

/// One thread's epoll descriptor, and the output that is being gathered.
pub(crate) struct Epoll {
    epoll: OwnedFd,
    batch: WriteBatch,
}

impl Epoll {
    /// Watches nothing yet. With it comes the buffer that its loop reads into.
    pub(crate) fn new() -> io::Result<(Epoll, Box<[u8]>)> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok((Epoll { epoll, batch: WriteBatch::new() }, vec![0; SCRATCH].into_boxed_slice()))
    }

    /// Gives a connection its socket. An event about an earlier socket of the same connection may be in the batch: it must
    /// not be taken for one about this one.
    fn occupy(net: &mut Net, conn: ConnId, socket: OwnedFd, is_unix: bool, state: State) {
        let slot = net.conns.slot(conn);
        slot.generation = slot.generation.next();
        (slot.socket, slot.state, slot.io.is_unix) = (Some(socket), state, is_unix);
    }

    /// Registers a socket, once. A socket that cannot be registered counts as hung up: its next read will show that.
    pub(crate) fn watch(&self, net: &mut Net, conn: ConnId) {
        let slot = net.conns.slot(conn);
        let Some(socket) = &slot.socket else { return };
        let asks_room = slot.state == State::Connecting || slot.io.backlog.is_some();
        let flags = if asks_room { BOTH_WAYS } else { INWARD };
        slot.io.is_watched = true;
        slot.io.watches_room = asks_room && !slot.io.is_unix;
        if let Err(fault) =
            epoll::add(&self.epoll, socket, Subject::Conn(conn, slot.generation).data(), flags)
        {
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
            net.context.log(Level::Warning, format!("cannot watch a socket: {fault}"));
            net.lose(conn);
        }
    }

    /// Most connections never have to wait for room, so it is asked for when the first one does. TCP reports it only
    /// after it was full and stays registered; a unix socket would report after every read of its peer.
    fn ask_writability(&self, net: &mut Net, conn: ConnId, wanted: bool) {
        let slot = net.conns.slot(conn);
        let Some(socket) = slot.socket.as_ref().filter(|_| slot.io.is_watched && !slot.io.watches_room)
        else {
            return;
        };
        if wanted || slot.io.is_unix {
            let flags = if wanted { BOTH_WAYS } else { INWARD };
            slot.io.watches_room = !slot.io.is_unix;
            let data = Subject::Conn(conn, slot.generation).data();
            let _ = epoll::modify(&self.epoll, socket, data, flags);
        }
    }

    /// The socket takes bytes again.
    pub(crate) fn writable(&self, net: &mut Net, conn: ConnId) {
        let Some(slot) = net.conns.open(conn).filter(|slot| slot.io.backlog.is_some()) else { return };
        match slot.flush() {
            Ok(false) => {}
            Ok(true) => {
                slot.is_send_full = false;
                if std::mem::take(&mut slot.owes_send_empty) {
                    net.pending.push_back(Event::SendBufferEmpty { conn });
                }
                self.ask_writability(net, conn, false);
            }
            Err(_) => net.lose(conn),
        }
    }

    /// Writes what was gathered, or queues it behind pending output.
    fn write(&self, net: &mut Net, bytes: Bytes<'_>) {
        let conn = self.batch.to();
        let Some(slot) = net.conns.open(conn).filter(|slot| !slot.write_failed) else { return };
        let had_backlog = slot.io.backlog.is_some();
        match slot.send(&self.batch, bytes) {
            Ok(false) => {}
            Ok(true) => {
                if slot.waiting() > SEND_BUFFER_BYTES {
                    net.send_buffer_full(conn);
                }
                if !had_backlog {
                    self.ask_writability(net, conn, true);
                }
            }
            Err(_) => net.lose(conn),
        }
    }
}

impl Backend for Epoll {
    type Conn = EpollConn;
    type Event = epoll::Event;
    type Scratch = Box<[u8]>;
    type Received<'a> = &'a [u8];

    fn watch_mailbox(&mut self, wakeup: &OwnedFd) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, wakeup, Subject::Mailbox.data(), EventFlags::IN | EventFlags::ET)?)
    }

    fn watch_listener(&mut self, listener: ListenerId, socket: &OwnedFd) {
        let data = Subject::Listener(listener).data();
        let _ = epoll::add(&self.epoll, socket, data, EventFlags::IN | EventFlags::EXCLUSIVE);
    }

    fn unwatch_listener(&mut self, _: ListenerId, socket: &OwnedFd) {
        let _ = epoll::delete(&self.epoll, socket);
    }

    fn accepted_some(&mut self, listener: ListenerId, socket: &OwnedFd, goes_on: bool) {
        if !goes_on {
            self.unwatch_listener(listener, socket);
        }
    }

    fn wait(&mut self, _: &mut Net, wait: Wait, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        debug_assert!(events.capacity() >= BATCH);
        events.clear();
        match epoll::wait(&self.epoll, spare_capacity(events), timeout(wait).as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(fault) => Err(fault.into()),
        }
    }

    fn dispatch<C: Core>(event_loop: &mut EventLoop<C, Epoll>, event: epoll::Event) {
        event_loop.handle_readiness(event);
    }

    fn read_on<C: Core>(event_loop: &mut EventLoop<C, Epoll>, conn: ConnId) {
        event_loop.net.conns.slot(conn).is_listed = false;
        event_loop.read(conn);
    }

    fn accepted(&mut self, net: &mut Net, conn: ConnId, socket: OwnedFd, is_unix: bool) {
        let slot = net.conns.slot(conn);
        (slot.socket, slot.io.is_unix) = (Some(socket), is_unix);
    }

    fn after_accepted<C: Core>(event_loop: &mut EventLoop<C, Epoll>, conn: ConnId, generation: Generation) {
        event_loop.read_then_watch(conn, generation);
    }

    fn connected(&mut self, net: &mut Net, conn: ConnId, socket: OwnedFd, is_unix: bool) {
        Epoll::occupy(net, conn, socket, is_unix, State::Open);
        self.watch(net, conn);
    }

    fn connecting(&mut self, net: &mut Net, conn: ConnId, socket: OwnedFd, attempt: Box<Attempt>) {
        Epoll::occupy(net, conn, socket, false, State::Connecting);
        self.watch(net, conn);
        net.conns.slot(conn).attempt = Some(attempt);
    }

    fn established(&mut self, net: &mut Net, conn: ConnId) {
        net.conns.slot(conn).state = State::Open;
    }

    fn adopt(&mut self, net: &mut Net, conn: ConnId, socket: OwnedFd, unsent: Vec<u8>, _: Adopted) {
        let is_unix = connect::ends(&socket).1.is_none();
        self.accepted(net, conn, socket, is_unix);
        self.watch(net, conn);
        if !unsent.is_empty() {
            net.conns.slot(conn).io.backlog = Some(Backlog::of(unsent));
            self.ask_writability(net, conn, true);
            self.writable(net, conn);
        }
    }

    fn send(&mut self, net: &mut Net, to: ConnId, range: SendRange, received: &[u8], written: &[u8]) {
        if !self.batch.take(to, range) {
            self.flush(net, received, written);
            self.batch.take(to, range);
        }
    }

    fn flush(&mut self, net: &mut Net, received: &[u8], written: &[u8]) {
        if !self.batch.is_empty() {
            self.write(net, Bytes { received, written });
            self.batch.clear();
        }
    }

    fn pause(&mut self, net: &mut Net, conn: ConnId) {
        let Some(slot) = net.conns.open(conn) else { return };
        slot.pause();
        if slot.io.hung_up && !slot.ended {
            net.saw_end(conn);
        }
    }

    fn resume(&mut self, net: &mut Net, conn: ConnId) {
        if net.conns.open(conn).is_none() {
            return;
        }
        net.resumed(conn);
        if net.conns.slot(conn).may_read() {
            net.queue(conn);
        }
    }

    fn close(&mut self, net: &mut Net, conn: ConnId) {
        let slot = net.conns.slot(conn);
        if matches!(slot.state, State::Free | State::Closed) {
            return;
        }
        slot.last_write();
        drop(net.conns.vacate(conn));
        net.closed(conn);
    }

    fn leave(&mut self, net: &mut Net, conn: ConnId, to: Destination) {
        if net.conns.open(conn).is_none() {
            return net.context.send_away(to, None, Vec::new(), Vec::new());
        }
        let mut left = net.conns.vacate(conn);
        let unsent = left.io.backlog.take().map(|backlog| backlog.into_bytes()).unwrap_or_default();
        if let Some(socket) = left.socket.as_ref().filter(|_| left.io.is_watched) {
            let _ = epoll::delete(&self.epoll, socket);
        }
        net.forget_pending(conn);
        net.context.send_away(to, left.socket, unsent, Vec::new());
    }
}

impl Net {
    /// Output cannot be sent any more: what waits is dropped, and reading will show the end.
    pub(crate) fn lose(&mut self, conn: ConnId) {
        let Some(slot) = self.conns.open(conn).filter(|slot| !slot.write_failed) else { return };
        slot.io.backlog = None;
        (slot.write_failed, slot.is_send_full, slot.owes_send_empty) = (true, false, false);
        self.pending.push_back(Event::WriteFailed { conn });
        self.saw_end(conn);
    }

    /// The peer's end of file was seen (but not read yet).
    pub(crate) fn saw_end(&mut self, conn: ConnId) {
        let Some(slot) = self.conns.open(conn).filter(|slot| !slot.ended) else { return };
        slot.io.hung_up = true;
        if slot.is_paused() { self.half_closed(conn) } else { self.queue(conn) }
    }

    /// Gives a connection a turn to be read.
    pub(crate) fn queue(&mut self, conn: ConnId) {
        if !std::mem::replace(&mut self.conns.slot(conn).is_listed, true) {
            self.ready.push_back(conn);
        }
    }
}

/// How long the system is to wait; None is for ever.
fn timeout(wait: Wait) -> Option<Timespec> {
    let microseconds = match wait {
        Wait::No => 0,
        Wait::AtMost(microseconds) => microseconds,
        Wait::Forever => return None,
    };
    // Rounded up to the milliseconds that the system counts in: to wake early would be to turn for nothing.
    let milliseconds = microseconds.div_ceil(1_000).min(3_600_000);
    let seconds = i64::try_from(milliseconds / 1_000).unwrap_or(0);
    let nanoseconds = i64::try_from(milliseconds % 1_000 * 1_000_000).unwrap_or(0);
    Some(Timespec { tv_sec: seconds, tv_nsec: nanoseconds })
}

/// What an event is about, as the system returns it with the event: 32 bits of the id below 32 bits of the kind or the
/// generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Conn(ConnId, Generation),
    Listener(ListenerId),
    Mailbox,
}

/// Above all generations.
const LISTENER: u32 = u32::MAX - 1;
const MAILBOX: u32 = u32::MAX;

impl Subject {
    fn data(self) -> EventData {
        let (high, low) = match self {
            Subject::Conn(conn, generation) => (generation.bits(), conn.0),
            Subject::Listener(listener) => (LISTENER, listener.0),
            Subject::Mailbox => (MAILBOX, 0),
        };
        EventData::new_u64(u64::from(high) << 32 | u64::from(low))
    }

    /// Undoes that.
    pub(crate) fn of(data: EventData) -> Subject {
        let data = data.u64();
        let low = u32::try_from(data & u64::from(u32::MAX)).unwrap_or(0);
        match u32::try_from(data >> 32).unwrap_or(MAILBOX) {
            MAILBOX => Subject::Mailbox,
            LISTENER => Subject::Listener(ListenerId(low)),
            bits => Subject::Conn(ConnId(low), Generation::from_bits(bits)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_come_back_as_they_went() {
        let generation = Generation::from_bits(Generation::MASK);
        let conn = Subject::Conn(ConnId(u32::MAX), generation);
        for subject in [conn, Subject::Listener(ListenerId(3)), Subject::Mailbox] {
            assert_eq!(Subject::of(subject.data()), subject);
        }
    }

    #[test]
    fn timeouts_are_rounded_up() {
        let of = |wait| timeout(wait).map(|time| (time.tv_sec, time.tv_nsec));
        assert_eq!(of(Wait::Forever), None);
        assert_eq!(of(Wait::No), Some((0, 0)));
        assert_eq!(of(Wait::AtMost(1)), Some((0, 1_000_000)));
        assert_eq!(of(Wait::AtMost(2_500_000)), Some((2, 500_000_000)));
    }
}
