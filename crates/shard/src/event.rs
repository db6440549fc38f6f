//! The events that a shard handles. Both callers, the real driver and the simulator, use only these.
//!
//! Events carry no handles: a connection is a [`ConnId`], and bytes are borrowed for the length of the call.

use std::net::SocketAddr;

use auth::TaskResult;
use messages::{Command, ShardMessage};

use crate::{ClientMove, ConnId, ConnectFault, Import, Peer};

/// An event.
#[derive(Debug)]
pub enum Event<'a> {
    /// A new client socket. It receives one read at a time until it is logged in (nothing is armed when it moves).
    Accepted {
        /// From [`crate::Shard::allocate_id`].
        conn: ConnId,
        /// The other end.
        peer: Peer,
    },
    /// A logged-in client that another shard sent here.
    Adopted {
        /// From [`crate::Shard::allocate_id`].
        conn: ConnId,
        /// What that shard knew of it.
        client: Box<ClientMove>,
    },
    /// [`crate::Action::Connect`] succeeded.
    Connected {
        /// The server connection.
        conn: ConnId,
        /// Where it went; None for a unix socket.
        remote: Option<SocketAddr>,
        /// From where.
        local: Option<SocketAddr>,
    },
    /// [`crate::Action::Connect`] failed. [`Event::Closed`] follows at once.
    ConnectFailed {
        /// The server connection.
        conn: ConnId,
        /// Why.
        fault: ConnectFault,
    },
    /// Bytes arrived.
    Received {
        /// On this connection.
        conn: ConnId,
        /// The bytes; [`crate::Source::Received`] ranges of the resulting actions point into them.
        bytes: &'a [u8],
        /// Output of this same connection has not all gone to the system yet. If true, [`Event::SendBufferEmpty`] will follow.
        unsent: bool,
    },
    /// So much output is queued for this connection that its source must stop. [`Event::SendBufferEmpty`] will follow.
    SendBufferFull {
        /// The slow reader.
        conn: ConnId,
    },
    /// All output queued for this connection has gone to the system.
    SendBufferEmpty {
        /// The connection.
        conn: ConnId,
    },
    /// The socket refuses output for good (reset, timed out): what was queued is void and [`Event::SendBufferEmpty`] will not
    /// follow. Bytes that had come before may still be delivered.
    WriteFailed {
        /// The connection.
        conn: ConnId,
    },
    /// The peer closed or reset the connection; every byte it had sent before was delivered. No more will come, and the
    /// shard must still ask for [`crate::Action::Close`].
    HungUp {
        /// The connection.
        conn: ConnId,
    },
    /// While reading was paused, the peer was seen to have closed its side; unread bytes may remain. Once for each pause.
    HalfClosed {
        /// The connection.
        conn: ConnId,
    },
    /// The last event of a connection: the socket is gone and its [`ConnId`] may be used again.
    Closed {
        /// The connection.
        conn: ConnId,
    },
    /// The answer to [`crate::Action::Ask`].
    Answered {
        /// For whom it was asked.
        conn: ConnId,
        /// What was found out.
        answer: TaskResult,
    },
    /// The process has no file descriptor left to accept a client.
    FilesRanOut,
    /// A command of the control thread.
    Command(Command),
    /// A message of another shard.
    ShardMessage(ShardMessage),
    /// The process being taken over sends a pool or a connection.
    Import(Box<Import>),
    /// [`crate::Shard::deadline`] has passed (also sent when it is merely near; early is harmless).
    Tick,
    /// How busy the shard's thread was since the last such event; about once a second.
    Busy {
        /// CPU time over wall time, in hundredths.
        percent: u32,
    },
}
