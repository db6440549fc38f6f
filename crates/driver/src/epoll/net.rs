//! The readiness loop's connections, and what shards want done with them.
//!
//! Everything but the shard and the receive buffer, so that bytes can be borrowed from those two while it works.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use messages::ShardId;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use settings::Config;
use shard::{Action, ClientMove, ConnId, Event, Export, Now};
use telemetry::Level;

use crate::acceptor::Acceptor;
use crate::core::{Held, forget_half_close, told_of};
use crate::epoll::conn::{Backlog, Conn, State};
use crate::mailbox::{ConnMove, Generation};
use crate::shard_context::ShardContext;
use crate::takeover::{ExportState, ExportedConn};
use crate::write_batch::{Bytes, WriteBatch};

/// Output that may wait for one connection before whoever feeds it is told to stop, in bytes.
const CLOG: usize = 64 * 1024;

const BOTH_WAYS: EventFlags = EventFlags::IN.union(EventFlags::OUT).union(INWARD);
const INWARD: EventFlags =
    EventFlags::IN.union(EventFlags::PRI).union(EventFlags::RDHUP).union(EventFlags::ET);

/// Connections of one thread.
pub(crate) struct Net {
    pub(crate) outside: ShardContext,
    pub(crate) now: Now,
    pub(crate) conns: Vec<Conn>,
    /// Connections that may be read without asking the system first.
    pub(crate) ready: VecDeque<ConnId>,
    /// Events for the shard, deferred until the current one is handled.
    pub(crate) pending: VecDeque<Event<'static>>,
    pub(crate) acceptor: Acceptor,
    pub(crate) epoll: OwnedFd,
}

impl Net {
    /// No connections yet.
    pub(crate) fn new(mut outside: ShardContext) -> io::Result<Net> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let acceptor = outside.acceptor();
        Ok(Net {
            outside,
            now: Now::default(),
            conns: Vec::new(),
            ready: VecDeque::new(),
            pending: VecDeque::new(),
            acceptor,
            epoll,
        })
    }

    /// The slot of an id.
    pub(crate) fn slot(&mut self, conn: ConnId) -> &mut Conn {
        let index = conn.0 as usize;
        if index >= self.conns.len() {
            self.conns.resize_with(index + 1, Conn::default);
        }
        &mut self.conns[index]
    }

    /// The open connection of an id.
    pub(crate) fn open(&mut self, conn: ConnId) -> Option<&mut Conn> {
        self.conns.get_mut(conn.0 as usize).filter(|slot| slot.state == State::Open)
    }

    /// Adopts a socket under an id and watches it.
    pub(crate) fn seat(&mut self, conn: ConnId, socket: OwnedFd, is_unix: bool, state: State) {
        self.occupy(conn, socket, is_unix, state);
        self.watch(conn);
    }

    /// Adopts a socket under an id, to be watched soon.
    pub(crate) fn occupy(&mut self, conn: ConnId, socket: OwnedFd, is_unix: bool, state: State) {
        let slot = self.slot(conn);
        let generation = slot.generation.wrapping_add(1);
        *slot = Conn { state, ..Conn::open(socket, generation, is_unix) };
    }

    /// Registers a socket, once. A socket that cannot be watched counts as hung up: its next read will tell.
    pub(crate) fn watch(&mut self, conn: ConnId) {
        let Some(slot) = self.conns.get_mut(conn.0 as usize) else { return };
        let Some(socket) = &slot.socket else { return };
        let asks_room = slot.state == State::Connecting || slot.backlog.is_some();
        let flags = if asks_room { BOTH_WAYS } else { INWARD };
        slot.is_watched = true;
        slot.hears_of_room = asks_room && !slot.is_unix;
        if let Err(fault) = epoll::add(&self.epoll, socket, tag(conn, slot.generation), flags) {
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
            self.outside.log(Level::Warning, format!("cannot watch a socket: {fault}"));
            self.lose(conn);
        }
    }

    /// Waits for clients of a listening socket; of several threads one is woken.
    pub(crate) fn watch_gate(&self, number: u32) {
        if let Some(socket) = self.acceptor.socket(number) {
            let _ = watch_other(&self.epoll, socket, number, EventFlags::IN | EventFlags::EXCLUSIVE);
        }
    }

    /// Waits for them no more.
    pub(crate) fn leave_gate(&self, socket: &OwnedFd) {
        let _ = epoll::delete(&self.epoll, socket);
    }

    /// Does one thing; sends are gathered by the caller.
    pub(crate) fn act(&mut self, action: Action, config: &Config) {
        match action {
            Action::Send { .. } => debug_assert!(false, "sends are gathered"),
            Action::Connect { conn, target } => self.dial(conn, &target, config),
            Action::Close { conn } => self.close(conn),
            Action::Pause { conn } => self.pause(conn),
            Action::Resume { conn } => self.resume(conn),
            Action::LoginComplete { .. } => {}
            Action::Move { conn, to, client } => self.hand_over(conn, to, client),
            Action::Export(what) => match *what {
                Export::Socket { conn, state, link, is_server } => {
                    self.send_off(conn, ExportState { state, link, is_server });
                }
                other => self.outside.act(Action::Export(Box::new(other)), &self.conns, config),
            },
            other => self.outside.act(other, &self.conns, config),
        }
    }

    /// Sends a batch, or queues it behind pending output.
    pub(crate) fn send(&mut self, batch: &WriteBatch, bytes: Bytes<'_>) {
        let conn = batch.to();
        let Some(slot) = self.open(conn).filter(|slot| !slot.lost) else { return };
        let had_backlog = slot.backlog.is_some();
        match slot.send(batch, bytes) {
            Ok(false) => {}
            Ok(true) => {
                if !slot.clogged && slot.waiting() > CLOG {
                    slot.clogged = true;
                    slot.owes_drained = true;
                    self.pending.push_back(Event::SendBufferFull { conn });
                }
                if !had_backlog {
                    self.ask_writability(conn, true);
                }
            }
            Err(_) if planted::bug!("loop_write_error_ignored") => {}
            Err(_) => self.lose(conn),
        }
    }

    /// The socket takes bytes again.
    pub(crate) fn writable(&mut self, conn: ConnId) {
        let Some(slot) = self.open(conn).filter(|slot| slot.backlog.is_some()) else { return };
        match slot.flush() {
            Ok(false) => {}
            Ok(true) => {
                slot.clogged = false;
                if std::mem::take(&mut slot.owes_drained) {
                    self.pending.push_back(Event::SendBufferEmpty { conn });
                }
                self.ask_writability(conn, false);
            }
            Err(_) => self.lose(conn),
        }
    }

    /// Most connections never have to wait for room, so it is asked for when the first one does. TCP tells of it only
    /// after it was full and goes on being asked; a unix socket would tell after every read of its peer.
    fn ask_writability(&mut self, conn: ConnId, wanted: bool) {
        let slot = &mut self.conns[conn.0 as usize];
        let Some(socket) = slot.socket.as_ref().filter(|_| slot.is_watched && !slot.hears_of_room) else {
            return;
        };
        if wanted || slot.is_unix {
            let flags = if wanted { BOTH_WAYS } else { INWARD };
            slot.hears_of_room = !slot.is_unix;
            let _ = epoll::modify(&self.epoll, socket, tag(conn, slot.generation), flags);
        }
    }

    /// Output cannot go any more: what waits is void, and reading will show the end.
    pub(crate) fn lose(&mut self, conn: ConnId) {
        let Some(slot) = self.open(conn).filter(|slot| !slot.lost) else { return };
        slot.backlog = None;
        (slot.lost, slot.clogged, slot.owes_drained) = (true, false, false);
        self.pending.push_back(Event::WriteFailed { conn });
        self.saw_end(conn);
    }

    /// The peer's end was seen (but not read yet).
    pub(crate) fn saw_end(&mut self, conn: ConnId) {
        let Some(slot) = self.open(conn).filter(|slot| !slot.ended) else { return };
        if planted::bug!("loop_half_close_ignored") && slot.paused && slot.backlog.is_some() {
            return;
        }
        slot.hung_up = true;
        if !slot.paused {
            self.queue(conn);
        } else if !std::mem::replace(&mut slot.half_told, true) {
            self.pending.push_back(Event::HalfClosed { conn });
        }
    }

    /// Gives a connection a turn to be read.
    pub(crate) fn queue(&mut self, conn: ConnId) {
        let slot = self.slot(conn);
        if !std::mem::replace(&mut slot.queued, true) {
            self.ready.push_back(conn);
        }
    }

    fn pause(&mut self, conn: ConnId) {
        let Some(slot) = self.open(conn) else { return };
        slot.paused = true;
        if slot.hung_up && !slot.ended {
            self.saw_end(conn);
        }
    }

    fn resume(&mut self, conn: ConnId) {
        let Some(slot) = self.open(conn) else { return };
        slot.paused = false;
        let (was_told, may_read) = (std::mem::take(&mut slot.half_told), slot.may_read());
        if was_told {
            forget_half_close(&mut self.pending, conn);
        }
        if may_read {
            self.queue(conn);
        }
    }

    /// Closes a connection in any state; the shard hears of it next.
    pub(crate) fn close(&mut self, conn: ConnId) {
        let slot = self.slot(conn);
        if matches!(slot.state, State::Free | State::Closing) {
            return;
        }
        slot.export_state();
        let (queued, generation) = (slot.queued, slot.generation.wrapping_add(1));
        *slot = Conn { state: State::Closing, queued, generation, ..Conn::default() };
        self.acceptor.a_file_is_free();
        self.pending.push_back(Event::Closed { conn });
    }

    fn hand_over(&mut self, conn: ConnId, to: ShardId, client: Box<ClientMove>) {
        if let Some((fd, unsent)) = self.take_away(conn) {
            self.outside.hand_over(to, ConnMove { fd, client, unsent, unread: Vec::new() });
        }
    }

    fn send_off(&mut self, conn: ConnId, export_state: ExportState) {
        let (socket, unsent) =
            self.take_away(conn).map_or((None, Vec::new()), |(fd, unsent)| (Some(fd), unsent));
        self.outside.send_off(ExportedConn { socket, export_state, unsent, unread: Vec::new() });
    }

    /// Takes a socket off this shard, with output that it has not taken yet; its id is free.
    fn take_away(&mut self, conn: ConnId) -> Option<(OwnedFd, Vec<u8>)> {
        let slot = self.open(conn)?;
        let unsent = slot.backlog.take().map(|backlog| backlog.into_bytes()).unwrap_or_default();
        let (queued, generation) = (slot.queued, slot.generation.wrapping_add(1));
        let left = std::mem::replace(slot, Conn { queued, generation, ..Conn::default() });
        let fd = left.socket?;
        if left.is_watched {
            let _ = epoll::delete(&self.epoll, &fd);
        }
        self.pending.retain(|event| told_of(event) != Some(conn));
        Some((fd, unsent))
    }

    /// Output that another shard could not send.
    pub(crate) fn inherit(&mut self, conn: ConnId, unsent: Vec<u8>) {
        if !unsent.is_empty() {
            self.slot(conn).backlog = Some(Backlog::of(unsent));
            self.ask_writability(conn, true);
            self.writable(conn);
        }
    }

    /// The next thing to tell the shard, if it still concerns a connection that the shard knows.
    pub(crate) fn next_pending(&mut self) -> Option<Event<'static>> {
        while let Some(event) = self.pending.pop_front() {
            match event {
                Event::Closed { conn } => {
                    let slot = self.slot(conn);
                    slot.state = State::Free;
                    return Some(event);
                }
                Event::SendBufferFull { conn }
                | Event::SendBufferEmpty { conn }
                | Event::WriteFailed { conn }
                | Event::HalfClosed { conn }
                | Event::Connected { conn, .. } => {
                    if self.open(conn).is_some() {
                        return Some(event);
                    }
                }
                _ => return Some(event),
            }
        }
        None
    }

    /// What is left of connections.
    pub(crate) fn held(&self) -> Held {
        let connections = self.conns.iter().filter(|slot| slot.state != State::Free).count();
        Held { connections, events: self.pending.len(), ..Held::default() }
    }

    /// The connection that the system means, if it is still that one.
    pub(crate) fn lookup(&self, data: u64) -> Option<ConnId> {
        let (conn, generation) = parts(data);
        self.conns
            .get(conn.0 as usize)
            .filter(|slot| slot.generation == generation || planted::bug!("loop_wrong_slot"))
            .map(|_| conn)
    }

    /// Whether a name is still wanted, or a key.
    pub(crate) fn is_current(&self, conn: ConnId, generation: Generation) -> bool {
        self.conns
            .get(conn.0 as usize)
            .is_some_and(|slot| slot.generation == generation && slot.state != State::Closing)
    }
}

/// Registers what is no connection under the numbers above all ids.
pub(crate) fn watch_other(
    epoll: &OwnedFd,
    socket: &OwnedFd,
    number: u32,
    flags: EventFlags,
) -> Result<(), Errno> {
    epoll::add(epoll, socket, tag(ConnId(number), Generation::MAX), flags)
}

fn tag(conn: ConnId, generation: Generation) -> EventData {
    EventData::new_u64(u64::from(generation) << 32 | u64::from(conn.0))
}

/// Undoes [`tag`].
pub(crate) fn parts(data: u64) -> (ConnId, Generation) {
    let low = u32::try_from(data & u64::from(u32::MAX)).unwrap_or(0);
    (ConnId(low), u32::try_from(data >> 32).unwrap_or(0))
}
