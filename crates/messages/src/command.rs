//! Messages to a shard: from the control thread ([`Command`]) and from other shards ([`ShardMessage`]).

use std::sync::Arc;

use settings::Config;

use crate::{
    AdminReply, CacheNews, RequestId, ServerQuery, ServerQueryResult, ServerWaitSample, ShardId, Subject,
};

/// From the control thread. A command with a request id is answered with [`crate::Report::Done`], once, when it is
/// complete.
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
    /// Check out no server of this database (all: None); done when none is in use or open.
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
    /// Refuse new clients of a database, or accept them again. Connected clients stay.
    Disable {
        /// The database.
        database: String,
        /// False accepts clients again.
        disabled: bool,
    },
    /// Refuse new clients of all databases, or accept them again, and end connected ones or not. The console stays open.
    Drain(Drain),
    /// Send no reads to a host of a database (`read_write_split`), or send them there again. Done when none is sent there any more;
    /// those that are running go on.
    Detach {
        /// Comes back when done.
        request: RequestId,
        /// The database.
        database: String,
        /// Its name and port.
        host: String,
        /// False is ATTACH.
        detached: bool,
    },
    /// Suspend: only the console is read, no server is checked out. Done when all output has been sent.
    Suspend {
        /// Comes back when done.
        request: RequestId,
    },
    /// Done when no server is left that is to be closed as soon as it is released.
    WaitClose {
        /// Comes back when done.
        request: RequestId,
        /// One database, or all.
        database: Option<String>,
    },
    /// Close servers as soon as they are released and open new ones instead.
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
    /// Close one client. Done's count tells whether it was on this shard.
    KillClient {
        /// Comes back when done.
        request: RequestId,
        /// The `id` that SHOW CLIENTS shows.
        id: u64,
    },
    /// Send a cancel request for the query that one client is running. Done's count says whether it was here and running one.
    CancelClient {
        /// Comes back when the cancel request is on its way.
        request: RequestId,
        /// The `id` that SHOW CLIENTS shows.
        id: u64,
    },
    /// Discard the query statistics (`track_queries`) of one database, or of all.
    ResetQueries {
        /// One database, or all.
        database: Option<String>,
    },
    /// No new clients; see [`ShutdownMode`]. Done when the shard is empty of what the mode waits for.
    Shutdown {
        /// Comes back when done.
        request: RequestId,
        /// How gently.
        mode: ShutdownMode,
    },
    /// Another process takes over: export every connection that is at rest, until none is left.
    Export {
        /// Counted up with every command.
        round: u32,
    },
    /// That process has died: keep and serve the remaining connections, and report it.
    AbortExport,
    /// A cancel request that reached the process that takes over, for a client that may still be here.
    Cancel {
        /// As the canceling client sent it: process id and secret.
        key: Box<[u8]>,
    },
    /// What is new of an entry's primary, for the answers that are kept of it (`query_cache`).
    CacheNews(CacheNews),
    /// Backends of a server were found waiting (`track_lock_waits`).
    ServerWaits(ServerWaitSample),
    /// What the fleet leaves to this process of limits that its nodes share has changed.
    SlotsChanged,
    /// Answer with [`crate::Report::Backends`].
    ListBackends {
        /// Comes back in the answer.
        audit: u64,
    },
    /// The answer to a console client's statement.
    Reply(AdminReply),
    /// Run a query for the control thread; [`crate::Report::ServerQueryDone`] answers, unless it is withdrawn. Any
    /// shard takes it and forwards it to the one that has the pool.
    RunServerQuery {
        /// Comes back in the answer; unique among pending queries.
        request: RequestId,
        /// The question.
        query: Box<ServerQuery>,
    },
    /// That query needs no answer.
    WithdrawServerQuery {
        /// From the query.
        request: RequestId,
    },
}

/// How SHUTDOWN waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownMode {
    /// Idle and waiting clients are closed at once, those in a transaction when it ends.
    WaitForServers,
    /// No client is closed; done when the last client has disconnected.
    WaitForClients,
}

/// Whether a process is being drained: clients go to another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drain {
    /// No.
    #[default]
    Off,
    /// New clients are refused (57P03); connected ones stay.
    NewClients,
    /// Connected ones are ended (57P01), too: at once outside of a transaction, else behind it.
    AllClients,
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
pub enum ShardMessage {
    /// A cancel request arrived there; the key says that the client is here. Answered with [`ShardMessage::Cancelled`].
    Cancel {
        /// Where it arrived.
        from: ShardId,
        /// The canceling client's connection there.
        conn: u32,
        /// The canceling client's `id`.
        id: u64,
        /// The key that the canceling client sent: process id and secret.
        key: Box<[u8]>,
    },
    /// That cancel request has run into `cancel_wait_timeout`: [`ShardMessage::Cancelled`] follows.
    CancelTimedOut {
        /// The canceling client's connection.
        conn: u32,
        /// The canceling client's `id`.
        id: u64,
    },
    /// That cancel request has ended, successful or not: the canceling client may be closed.
    Cancelled {
        /// The canceling client's connection.
        conn: u32,
        /// The canceling client's `id`.
        id: u64,
    },
    /// A client waits there and no permit is free: close an idle server that holds one.
    RequestPermit {
        /// The requesting shard.
        from: ShardId,
        /// The client has waited so long that one that keeps a server for sequences' values alone has to do without.
        has_waited_long: bool,
        /// The limit that is reached.
        limit: LimitOf,
        /// The pool's database.
        database: String,
        /// The pool's user.
        user: String,
        /// The host of a pool for reads.
        host: Option<String>,
    },
    /// A host name does not resolve to these addresses any more: servers there are obsolete.
    HostMoved {
        /// The name, as configured.
        host: String,
        /// The addresses.
        gone: Vec<std::net::IpAddr>,
    },
    /// A client that logs in there waits for a query whose pool is here. Answered with
    /// [`ShardMessage::ServerQueryDone`], once, unless it is withdrawn.
    RunServerQuery {
        /// Where the client is.
        from: ShardId,
        /// Its connection there.
        conn: u32,
        /// Its `id`.
        id: u64,
        /// The question.
        query: Box<ServerQuery>,
    },
    /// That client has disconnected: its query needs no answer.
    WithdrawServerQuery {
        /// Where the client was.
        from: ShardId,
        /// Its `id`.
        id: u64,
    },
    /// The answer to [`ShardMessage::RunServerQuery`].
    ServerQueryDone {
        /// The client's connection.
        conn: u32,
        /// Its `id`.
        id: u64,
        /// The result.
        answer: Box<ServerQueryResult>,
    },
    /// A requested permit is free now: try again.
    PermitFreed {
        /// The pool's database.
        database: String,
        /// The pool's user.
        user: String,
        /// The host of a pool for reads.
        host: Option<String>,
    },
    /// A connection of a budget that pools share is closed: those that wait there try again.
    BudgetFreed {
        /// Whose budget it is: a database's or a user's.
        limit: LimitOf,
        /// Its name.
        name: String,
    },
}
