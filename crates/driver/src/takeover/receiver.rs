//! The new process's side: finding the old one, asking for everything, and a thread that receives it.
//!
//! The old one is found by its console on the unix socket, where only the same user of the system gets in without a
//! password; the channel between the two is opened by the old one to a name that is said there. Never sends a connection.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, thread};

use messages::ShardId;
use rustix::net::{RecvFlags, recv};
use shard::Import;
use shard::takeover::fields::Fields;
use telemetry::{Level, Record};
use wire::frame::Frames;
use wire::startup::Version;
use wire::tag::backend as tag;
use wire::{encode, error};

use super::frame::{self, Frame};
use super::{Item, Takeover, field, from_new, from_old, peer};
use crate::conn_move::{Imported, ImportedConn};
use crate::core::Log;
use crate::inherited::{Holder, Inherited, SocketFile};
use crate::mailbox::{MailboxMessage, Mailboxes};
use crate::process_registry::{HandedCluster, ProcessRegistry};

/// User and database of the console.
const CONSOLE: &[u8] = b"pgbouncer";
/// No message of the console is longer here.
const CONSOLE_FRAME_BYTES: u32 = 64 * 1024;

/// Why a running process cannot be taken over.
#[derive(Debug)]
pub enum TakeoverFault {
    /// The console does not let this process in.
    NotAllowed,
    /// The process at the socket belongs to this system user, which is neither this process's nor root.
    Foreign(u32),
    /// The old process refused, with its error.
    Refused(String),
    /// It does not do its part, or not in time.
    Broken(io::Error),
}

impl fmt::Display for TakeoverFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TakeoverFault::NotAllowed => {
                out.write_str("the old process asks for a password: it runs as another user")
            }
            TakeoverFault::Foreign(user_id) => write!(
                out,
                "the unix socket belongs to another user (user id {user_id}), which is not trusted: remove it"
            ),
            TakeoverFault::Refused(words) => write!(out, "the old process refuses: {words}"),
            TakeoverFault::Broken(why) => write!(out, "the old process does not hand over: {why}"),
        }
    }
}

impl std::error::Error for TakeoverFault {}

impl From<io::Error> for TakeoverFault {
    fn from(why: io::Error) -> TakeoverFault {
        TakeoverFault::Broken(why)
    }
}

impl From<io::ErrorKind> for TakeoverFault {
    fn from(why: io::ErrorKind) -> TakeoverFault {
        TakeoverFault::Broken(why.into())
    }
}

/// What a process must know of the one before from its beginning on.
#[derive(Clone, Copy, Debug, Default)]
pub struct TakeoverImport {
    pub(crate) generation: u64,
    pub(crate) next_id: u64,
}

/// A process that is ready to hand over to this one.
pub struct Predecessor {
    channel: OwnedFd,
    /// When it must have let this process take over.
    until: Instant,
    /// For [`crate::Plan`].
    pub inheritance: TakeoverImport,
    /// Its listening sockets; [`crate::Listeners::open`] takes those that are wanted.
    pub listeners: Vec<Inherited>,
    /// The panel's listening socket, which the old process has open too until this one is ready. None from a version that does
    /// not send it.
    pub panel: Option<OwnedFd>,
    /// The note of its control thread.
    pub note: String,
}

impl Predecessor {
    /// Finds the process behind a unix socket; None if no process listens there. `patience` is for everything that it must
    /// do until this process is ready.
    ///
    /// # Errors
    /// [`TakeoverFault`]; the old process goes on as before.
    pub fn find(socket_path: &str, patience: Duration) -> Result<Option<Predecessor>, TakeoverFault> {
        let until = Instant::now() + patience;
        if let Some(owner) = peer::foreign_owner(socket_path) {
            return Err(TakeoverFault::Foreign(owner));
        }
        let Some(console) = peer::connect_by(&peer::address(socket_path)?, until)? else { return Ok(None) };
        peer::check(&console).map_err(TakeoverFault::Foreign)?;
        let name = format!("weir-takeover-{}-{:x}", std::process::id(), unguessable());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        ask(&console, &name, until)?;
        let channel = accept(&listener, until)?;
        Predecessor::introduced(channel, until).map(Some)
    }

    fn introduced(channel: OwnedFd, until: Instant) -> Result<Predecessor, TakeoverFault> {
        let hello = expect(&channel, from_old::HELLO, until)?;
        let fields = Fields::read(&hello.payload).ok_or(io::ErrorKind::InvalidData)?;
        let inheritance = TakeoverImport {
            generation: fields.number(field::GENERATION).unwrap_or(0) + 1,
            next_id: fields.number(field::NEXT_ID).unwrap_or(1),
        };
        let note = fields.text(field::NOTE).unwrap_or_default().to_owned();
        let (mut listeners, mut panel) = (Vec::new(), None);
        loop {
            let frame = frame::take_by(&channel, until)?;
            match frame.kind {
                from_old::LISTENER if is_of_panel(&frame) => panel = frame.sockets.into_iter().next(),
                from_old::LISTENER => listeners.extend(inherited(frame)),
                from_old::LISTENERS_END => {
                    return Ok(Predecessor { channel, until, inheritance, listeners, panel, note });
                }
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }

    /// Has the old process accept no more. To be called before this process watches the same sockets: a new connection wakes
    /// one of those who watch, and it must not be one that does not look.
    ///
    /// # Errors
    /// [`TakeoverFault::Broken`].
    pub fn pause_accepting(&self) -> Result<(), TakeoverFault> {
        frame::put(&self.channel, from_new::PAUSE_ACCEPTING, &[], &[])?;
        expect(&self.channel, from_old::ACCEPTING_PAUSED, self.until)?;
        Ok(())
    }
}

/// The part of the engine that receives.
pub(crate) struct TakeoverReceiver {
    pub(crate) takeover: Arc<Takeover>,
    pub(crate) mailboxes: Mailboxes,
    pub(crate) registry: Arc<ProcessRegistry>,
    pub(crate) log: Log,
}

impl TakeoverReceiver {
    /// Announces that this process listens, and receives everything from now on.
    pub(crate) fn start(self, predecessor: Predecessor) -> io::Result<()> {
        let channel = Arc::new(predecessor.channel);
        frame::put(&channel, from_new::READY, &[], &[])?;
        self.takeover.set_predecessor(Some(Arc::clone(&channel)));
        thread::Builder::new().name("weir-takeover".to_owned()).spawn(move || self.run(&channel)).map(drop)
    }

    fn run(self, channel: &OwnedFd) {
        let mut owners = BTreeMap::new();
        let text = loop {
            match frame::take(channel) {
                Ok(Frame { kind: from_old::BYE, .. }) => {
                    break "takeover finished: the old process has given everything";
                }
                Ok(frame) => self.pass_on(frame, &mut owners),
                Err(_) => break "the old process ended before it had given everything",
            }
        };
        self.mailboxes.post_all(|| MailboxMessage::Import(Imported::Message(Import::Gone)));
        self.takeover.set_predecessor(None);
        self.takeover.say(Item::PredecessorOver);
        (self.log)(Record::new(Level::Log, text));
    }

    fn pass_on(&self, frame: Frame, owners: &mut PoolOwners) {
        let Some(fields) = Fields::read(&frame.payload) else { return };
        let from = fields.small(field::SHARD).and_then(|shard| u16::try_from(shard).ok()).unwrap_or(0);
        let word = |make: fn(Vec<u8>) -> Import| {
            let state = fields.bytes(field::STATE)?.to_vec();
            Some((state.clone(), Imported::Message(make(state))))
        };
        let imported = match frame.kind {
            from_old::POOL => word(|state| Import::Pool { state }),
            from_old::SERVER_OPENED => word(|state| Import::ServerOpened { state }),
            from_old::SERVER_CLOSED => word(|state| Import::ServerClosed { state }),
            from_old::SOCKETS => sockets(&fields, frame.sockets),
            from_old::CLUSTER => {
                if let Some(handed) = cluster(&fields) {
                    self.registry.import_cluster(handed);
                }
                None
            }
            _ => None,
        };
        let Some((state, imported)) = imported else { return };
        let to = self.shard_for(from, &state, owners);
        self.mailboxes.post(to, MailboxMessage::Import(imported));
    }

    /// Each part of a pool there becomes a part of it here, as far as there are threads.
    fn shard_for(&self, from: u16, state: &[u8], owners: &mut PoolOwners) -> ShardId {
        let count = u16::try_from(self.mailboxes.count()).unwrap_or(1).max(1);
        let Some((database, user)) = shard::takeover::pool_of(state) else { return ShardId(from % count) };
        let parts = owners.entry((database.clone(), user.clone())).or_default();
        let is_first = parts.is_empty();
        *parts.entry(from).or_insert_with(|| self.registry.part_for_import(&database, &user, is_first))
    }
}

/// Which shard has a pool's part of a shard of the old process.
type PoolOwners = BTreeMap<(String, String), BTreeMap<u16, ShardId>>;

fn sockets(fields: &Fields<'_>, sockets: Vec<OwnedFd>) -> Option<(Vec<u8>, Imported)> {
    let mut sockets = sockets.into_iter();
    let mut imported = |[state, unsent, unread]: [u16; 3]| {
        let state = fields.bytes(state)?.to_vec();
        let bytes = |number| fields.bytes(number).unwrap_or_default().to_vec();
        Some(Box::new(ImportedConn {
            socket: sockets.next()?,
            state,
            unsent: bytes(unsent),
            unread: bytes(unread),
        }))
    };
    let client = imported(field::CLIENT);
    let server = imported(field::SERVER);
    let state = client.as_ref().or(server.as_ref())?.state.clone();
    Some((state, Imported::Sockets { client, server }))
}

fn cluster(fields: &Fields<'_>) -> Option<HandedCluster> {
    Some(HandedCluster {
        database: fields.text(field::DATABASE)?.to_owned(),
        hosts: fields.text(field::HOSTS)?.to_owned(),
        system: fields.number(field::SYSTEM)?,
        timeline: fields.small(field::TIMELINE)?,
    })
}

fn is_of_panel(frame: &Frame) -> bool {
    Fields::read(&frame.payload).is_some_and(|fields| fields.number(field::PANEL).is_some())
}

fn inherited(frame: Frame) -> Option<Inherited> {
    let fields = Fields::read(&frame.payload)?;
    let inode = fields.number(field::INODE).unwrap_or(0);
    let file = fields.text(field::PATH).map(|path| SocketFile { path: path.into(), inode });
    let is_passed = fields.number(field::PASSED).is_some();
    let holder = if is_passed { Holder::ServiceManager } else { Holder::Process };
    Some(Inherited { socket: frame.sockets.into_iter().next()?, holder, file })
}

fn expect(channel: &OwnedFd, kind: u8, until: Instant) -> io::Result<Frame> {
    let frame = frame::take_by(channel, until)?;
    if frame.kind == kind { Ok(frame) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Not a secret: who answers is checked by its user. It only keeps two takeovers apart.
fn unguessable() -> u64 {
    let mut bytes = [0; 8];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_ne_bytes(bytes)
}

/// Sends TAKEOVER with the name of the channel on the console.
fn ask(console: &OwnedFd, name: &str, until: Instant) -> Result<(), TakeoverFault> {
    let mut packet = Vec::new();
    encode::startup(&mut packet, Version::V3_0, &[(b"user", CONSOLE), (b"database", CONSOLE)]);
    frame::put_all(console, &packet)?;
    let mut frames = Frames::new(CONSOLE_FRAME_BYTES);
    ready(console, &mut frames, until)?;
    packet.clear();
    encode::query(&mut packet, format!("TAKEOVER \"{name}\"").as_bytes());
    frame::put_all(console, &packet)?;
    ready(console, &mut frames, until)
}

/// Reads up to the next ReadyForQuery.
fn ready(console: &OwnedFd, frames: &mut Frames, until: Instant) -> Result<(), TakeoverFault> {
    loop {
        while let Some((kind, body)) = frames.pop().map_err(|_| io::ErrorKind::InvalidData)? {
            match kind {
                tag::READY => return Ok(()),
                tag::AUTHENTICATION if body != [0; 4] => return Err(TakeoverFault::NotAllowed),
                tag::ERROR => {
                    let words = error::parse(&body).message().unwrap_or_default().to_vec();
                    return Err(TakeoverFault::Refused(String::from_utf8_lossy(&words).into_owned()));
                }
                _ => {}
            }
        }
        let mut bytes = [0; 4096];
        peer::wait_readable(console, until)?;
        match recv(console, &mut bytes[..], RecvFlags::empty()).map_err(io::Error::from)? {
            (0, _) => return Err(io::ErrorKind::UnexpectedEof.into()),
            (count, _) => frames.push(&bytes[..count]),
        }
    }
}

/// Waits for the old process to open the channel; other processes are ignored.
fn accept(listener: &UnixListener, until: Instant) -> io::Result<OwnedFd> {
    loop {
        peer::wait_readable(listener, until)?;
        let (stream, _) = listener.accept()?;
        if peer::check(&stream).is_ok() {
            return Ok(stream.into());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::TcpListener;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use shard::takeover::fields::FieldsOut;

    use super::*;

    /// What a process learns from one that sends these listening sockets, each with whether it is the panel's.
    fn introduced(sockets: &[(&TcpListener, bool)]) -> Predecessor {
        let (near, far) = UnixStream::pair().unwrap();
        let near = OwnedFd::from(near);
        frame::put(&near, from_old::HELLO, &[], &[]).unwrap();
        for (socket, is_of_panel) in sockets {
            let mut out = FieldsOut::new();
            out.number(field::PORT, 6432);
            is_of_panel.then(|| out.number(field::PANEL, 1));
            frame::put(&near, from_old::LISTENER, &out.into_bytes(), &[socket.as_fd()]).unwrap();
        }
        frame::put(&near, from_old::LISTENERS_END, &[], &[]).unwrap();
        Predecessor::introduced(far.into(), Instant::now() + Duration::from_secs(5)).unwrap()
    }

    #[test]
    fn the_socket_of_the_panel_is_none_of_those_for_clients() {
        let [clients, panel] = [0, 0].map(|port| TcpListener::bind(("127.0.0.1", port)).unwrap());
        let old = introduced(&[(&clients, false), (&panel, true)]);
        assert_eq!(old.listeners.len(), 1);
        assert_eq!(old.listeners[0].address(), clients.local_addr().ok());
        let inherited = TcpListener::from(old.panel.unwrap());
        assert_eq!(inherited.local_addr().unwrap(), panel.local_addr().unwrap());
    }

    #[test]
    fn an_older_version_sends_no_socket_of_the_panel() {
        let clients = TcpListener::bind("127.0.0.1:0").unwrap();
        let old = introduced(&[(&clients, false)]);
        assert!(old.listeners.len() == 1 && old.panel.is_none());
    }
}
