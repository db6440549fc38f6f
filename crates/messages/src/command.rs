//! What a shard is told: by the control thread ([`Command`]) and by the other shards ([`Neighbour`]).

use std::sync::Arc;

use settings::Config;

use crate::{AdminReply, Answer, Inquiry, RequestId, ShardId, Subject};

/// From the control thread. Commands that carry a request id are answered with [`crate::Report::Done`], once, when what
/// they ask for has become true.
#[derive(Clone, Debug)]
pub enum Command {
    /// Answer with [`crate::Report::Listing`] slices.
    List {
        /// Comes back in every slice.
        request: RequestId,
        /// What to list.
        subject: Subject,
    },
    /// A new configuration is in force (RELOAD, SET).
    Configure(Arc<Config>),
    /// Hand out no server of this database (all: None); done when none is in use or open.
    Pause {
        /// Comes back when done.
        request: RequestId,
        /// One database, or all.
        database: Option<String>,
    },
    /// Undo Pause, Suspend and Kill.
    Resume {
        /// One database, or all.
        database: Option<String>,
    },
    /// Let no new client into a database, or let them in again. Those that are in stay.
    Disable {
        /// The database.
        database: String,
        /// False lets clients in again.
        disabled: bool,
    },
    /// Stand still: nothing is read but the console, nothing is lent. Done when all that was underway has been sent.
    Suspend {
        /// Comes back when done.
        request: RequestId,
    },
    /// Done when no server is left that is to be closed as soon as it is free.
    WaitClose {
        /// Comes back when done.
        request: RequestId,
        /// One database, or all.
        database: Option<String>,
    },
    /// Close servers as soon as they are free and open new ones instead.
    Reconnect {
        /// One database, or all.
        database: Option<String>,
    },
    /// Close every client and server of this database at once, and stay paused.
    Kill {
        /// Comes back when done.
        request: RequestId,
        /// One database, or all.
        database: Option<String>,
    },
    /// Close one client. Done's count says whether it was here.
    KillClient {
        /// Comes back when done.
        request: RequestId,
        /// The `id` that SHOW CLIENTS shows.
        id: u64,
    },
    /// No new clients; see [`ShutdownMode`]. Done when the shard is empty of what the mode waits for.
    Shutdown {
        /// Comes back when done.
        request: RequestId,
        /// How gently.
        mode: ShutdownMode,
    },
    /// Another process takes over: hand on whatever rests, until nothing is left.
    HandOver {
        /// Counted up with every question whether anything is left.
        round: u32,
    },
    /// That process has died: serve what is left, and say so.
    Keep,
    /// A cancel request that reached the process that takes over, for a client that may still be here.
    Cancel {
        /// As the asker sent it: process id and secret.
        key: Box<[u8]>,
    },
    /// The answer to a console client's statement.
    Reply(AdminReply),
    /// The control thread itself asks a server something; [`crate::Report::Answered`] answers, unless it is withdrawn. Any
    /// shard takes it: it goes on to the one that has the pool.
    Ask {
        /// Comes back in the answer; no other question that waits has it.
        request: RequestId,
        /// The question.
        inquiry: Box<Inquiry>,
    },
    /// That question needs no answer.
    Withdraw {
        /// From the question.
        request: RequestId,
    },
}

/// How SHUTDOWN waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownMode {
    /// Idle and waiting clients go at once, those in a transaction when it ends.
    WaitForServers,
    /// Nobody is sent away; done when the last client has left.
    WaitForClients,
}

/// A limit of server connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOf {
    /// `pool_size`.
    Pool,
    /// `max_db_connections`.
    Database,
    /// `max_user_connections`.
    User,
}

/// From another shard.
#[derive(Clone, Debug)]
pub enum Neighbour {
    /// A cancel request arrived there; the key says that the client is here. Answered with [`Neighbour::Cancelled`].
    Cancel {
        /// Where it arrived.
        from: ShardId,
        /// The asker's connection there.
        conn: u32,
        /// The asker's `id`.
        id: u64,
        /// The key that the asker sent: process id and secret.
        key: Box<[u8]>,
    },
    /// That cancel request has run into `cancel_wait_timeout`: [`Neighbour::Cancelled`] follows.
    CancelTimedOut {
        /// The asker's connection.
        conn: u32,
        /// The asker's `id`.
        id: u64,
    },
    /// That cancel request has ended, whatever came of it: the asker may be let go.
    Cancelled {
        /// The asker's connection.
        conn: u32,
        /// The asker's `id`.
        id: u64,
    },
    /// A waiter there has no server and no permit is free: close an idle server that holds one.
    Want {
        /// Who wants.
        from: ShardId,
        /// Whose limit is reached.
        limit: LimitOf,
        /// The pool's database.
        database: String,
        /// The pool's user.
        user: String,
    },
    /// A host name does not stand for these addresses any more: servers there are obsolete.
    HostMoved {
        /// The name, as configured.
        host: String,
        /// The addresses.
        gone: Vec<std::net::IpAddr>,
    },
    /// A client that logs in there waits for the answer to a question whose pool is here. Answered with
    /// [`Neighbour::Answered`], once, unless it is withdrawn.
    Ask {
        /// Where the client is.
        from: ShardId,
        /// Its connection there.
        conn: u32,
        /// Its `id`.
        id: u64,
        /// The question.
        inquiry: Box<Inquiry>,
    },
    /// That client has left: its question needs no answer.
    Withdraw {
        /// Where the client was.
        from: ShardId,
        /// Its `id`.
        id: u64,
    },
    /// The answer to [`Neighbour::Ask`].
    Answered {
        /// The client's connection.
        conn: u32,
        /// Its `id`.
        id: u64,
        /// What came of it.
        answer: Box<Answer>,
    },
    /// A permit that was wanted is free now: try again.
    Freed {
        /// The pool's database.
        database: String,
        /// The pool's user.
        user: String,
    },
}
