//! The actions that a shard requests. The driver takes them one by one from [`crate::Shard::poll`] after every event.

use auth::OffloadedTask;
use messages::{Report, ShardId, ShardMessage};
use telemetry::Record;

use crate::{ClientMove, ConnId, Export, Target};

/// Where the bytes of an [`Action::Send`] lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// In the bytes of the [`crate::Event::Received`] being handled: forwarded without a copy where the driver can.
    Received,
    /// In [`crate::Shard::written`]: the shard's own messages of this event, valid until the next event.
    Written,
}

/// Something to do. It is small, because each is moved on its way out: what is rare or large is boxed.
#[derive(Debug)]
pub enum Action {
    /// Queue bytes for a connection. Several in a row to one connection go out together, in order.
    Send {
        /// To whom.
        to: ConnId,
        /// Where the bytes lie.
        source: Source,
        /// Where they begin.
        start: u32,
        /// Where they end.
        end: u32,
    },
    /// Open a server connection (or one that carries a cancel request).
    Connect {
        /// The id it will have.
        conn: ConnId,
        /// Where to.
        target: Box<Target>,
    },
    /// Close: send what is queued as far as the socket takes it without waiting, then close. [`crate::Event::Closed`] follows.
    Close {
        /// Which.
        conn: ConnId,
    },
    /// Read no further. At most one more buffer of bytes may still be delivered.
    Pause {
        /// Which.
        conn: ConnId,
    },
    /// Read again.
    Resume {
        /// Which.
        conn: ConnId,
    },
    /// Login is over and the client stays here: read it as cheaply as possible from now on.
    LoginComplete {
        /// Which.
        conn: ConnId,
    },
    /// Take the socket off this shard and hand it, with what is known, to another. The id is free at once: no
    /// [`crate::Event::Closed`] follows.
    Move {
        /// Which.
        conn: ConnId,
        /// Where to.
        to: ShardId,
        /// What is known of it.
        client: Box<ClientMove>,
    },
    /// Run a slow step of a login on a helper thread; [`crate::Event::Answered`] follows unless the connection is
    /// closed first.
    Ask {
        /// For whom.
        conn: ConnId,
        /// What to find out.
        question: Box<OffloadedTask>,
    },
    /// Write to another shard.
    SendToShard {
        /// Whom.
        to: ShardId,
        /// What.
        message: Box<ShardMessage>,
    },
    /// Write to the process that takes over from this one.
    Export(Box<Export>),
    /// Write to the control thread.
    Report(Box<Report>),
    /// Write to the log.
    Log(Record),
}
