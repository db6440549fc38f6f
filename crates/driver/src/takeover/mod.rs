//! One process takes over from another (`-R`): listening sockets first, then every connection that comes to rest.
//!
//! The new process opens a channel to the old one and names itself there; from then on the old one's [`handover`] thread
//! sends, and the new one's [`takeover`] thread receives. Both processes run; a client meets one of them at a time.
//! Owns what the two say; what is sent of a connection is the shards' ([`shard::Export`], [`shard::Import`]).

mod frame;
mod peer;
mod receiver;
mod sender;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use messages::ShardId;
use shard::Export;
use shard::takeover::fields::FieldsOut;

use crate::conn_move::ExportedConn;

pub(crate) use receiver::TakeoverReceiver;
pub use receiver::{Predecessor, TakeoverFault, TakeoverImport};
pub(crate) use sender::TakeoverSender;

/// Kinds of messages from the old process.
mod from_old {
    pub(super) const HELLO: u8 = 1;
    pub(super) const LISTENER: u8 = 2;
    pub(super) const LISTENERS_END: u8 = 3;
    pub(super) const ACCEPTING_PAUSED: u8 = 4;
    pub(super) const POOL: u8 = 10;
    pub(super) const SERVER_OPENED: u8 = 11;
    pub(super) const SERVER_CLOSED: u8 = 12;
    pub(super) const SOCKETS: u8 = 13;
    pub(super) const BYE: u8 = 14;
    /// What is known of a database's servers, whether it has a pool or not. An older process does not know it.
    pub(super) const CLUSTER: u8 = 15;
}

/// Kinds of messages from the new process.
mod from_new {
    pub(super) const PAUSE_ACCEPTING: u8 = 20;
    pub(super) const READY: u8 = 21;
    pub(super) const CANCEL: u8 = 22;
    /// An older process does not know it: what is paused there stays so.
    pub(super) const RESUME: u8 = 23;
}

/// Numbers of fields in the messages' payloads. A number is never used again for something else.
mod field {
    pub(super) const VERSION: u16 = 1;
    pub(super) const GENERATION: u16 = 2;
    pub(super) const NEXT_ID: u16 = 3;
    pub(super) const NOTE: u16 = 4;
    pub(super) const PORT: u16 = 5;
    pub(super) const PATH: u16 = 6;
    pub(super) const INODE: u16 = 7;
    pub(super) const SHARD: u16 = 8;
    pub(super) const STATE: u16 = 9;
    /// The listening socket is the panel's. A process that does not know this field closes it, and binds the port later.
    pub(super) const PANEL: u16 = 10;
    /// The database of a command, where none is all, or of [`super::from_old::CLUSTER`].
    pub(super) const DATABASE: u16 = 11;
    /// The service manager has passed the listening socket: it is listened on whatever the settings say, and not shut down.
    pub(super) const PASSED: u16 = 12;
    /// Of [`super::from_old::CLUSTER`]: its hosts, its system identifier, and the newest timeline of a primary.
    pub(super) const HOSTS: u16 = 13;
    pub(super) const SYSTEM: u16 = 14;
    pub(super) const TIMELINE: u16 = 15;
    /// State, unsent output and unread input of a client's socket, and of a server's.
    pub(super) const CLIENT: [u16; 3] = [20, 21, 22];
    pub(super) const SERVER: [u16; 3] = [30, 31, 32];
}

/// What a running takeover tells the control thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakeoverProgress {
    /// The successor listens; from now on connections leave.
    Begun,
    /// Nothing came of it (its words), and everything is as before.
    Failed(String),
    /// The successor has ended and taken the listening sockets with it; what is left here is served to its end.
    Orphaned,
    /// An operator has said RESUME to the successor.
    Resumed {
        /// One database, or all.
        database: Option<String>,
    },
    /// Everything has gone: this process can end.
    Over,
}

/// Something for the thread that hands over.
pub(crate) enum Item {
    FromShard(ShardId, Export),
    ExportedConn(ShardId, Box<ExportedConn>),
    AcceptingPaused,
    Heard(frame::Frame),
    /// The successor has hung up.
    Hangup,
    /// This process's own predecessor has given everything.
    PredecessorOver,
}

/// The process's place among those that take over from one another; shared by all its threads.
#[derive(Default)]
pub(crate) struct Takeover {
    sender: Mutex<Option<Sender<Item>>>,
    predecessor: Mutex<Option<Arc<OwnedFd>>>,
}

impl Takeover {
    /// Tells the thread that hands over, if there is one.
    pub(crate) fn say(&self, item: Item) {
        if let Some(sender) = &*lock(&self.sender) {
            let _ = sender.send(item);
        }
    }

    /// A predecessor hands over from now on, or no longer does.
    fn set_sender(&self, sender: Option<Sender<Item>>) {
        *lock(&self.sender) = sender;
    }

    fn has_sender(&self) -> bool {
        lock(&self.sender).is_some()
    }

    /// The channel to a process that this one still takes over from.
    fn set_predecessor(&self, channel: Option<Arc<OwnedFd>>) {
        *lock(&self.predecessor) = channel;
    }

    fn has_predecessor(&self) -> bool {
        lock(&self.predecessor).is_some()
    }

    /// Forwards a cancel request for an unknown key to the predecessor.
    pub(crate) fn cancel_there(&self, key: &[u8]) {
        self.ask_predecessor(from_new::CANCEL, key);
    }

    /// Has the predecessor undo a PAUSE or KILL, of one database or of all.
    pub(crate) fn resume_there(&self, database: Option<&str>) {
        let mut out = FieldsOut::new();
        if let Some(database) = database {
            out.text(field::DATABASE, database);
        }
        self.ask_predecessor(from_new::RESUME, &out.into_bytes());
    }

    fn ask_predecessor(&self, kind: u8, payload: &[u8]) {
        let Some(channel) = lock(&self.predecessor).clone() else { return };
        let _ = frame::put(&channel, kind, payload, &[]);
    }
}

/// A channel to the process that listens by this name; it must be the same user's, or root's. Never waits: if others
/// queue at the socket, it is not the expected process's.
pub(crate) fn open_channel(name: &str) -> io::Result<OwnedFd> {
    let address = peer::address(&format!("@{name}"))?;
    let channel = peer::connect_by(&address, Instant::now())?.ok_or(io::ErrorKind::ConnectionRefused)?;
    peer::check(&channel).map_err(|_| io::ErrorKind::PermissionDenied)?;
    Ok(channel)
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
