//! What goes into the control thread and what comes out of it: [`Input`], [`Output`], and the types that only they carry.
//! `pools` has those of changes to pools.

use std::sync::Arc;

use messages::{
    Command, Drain, FleetPools, FleetPoolsError, FleetPoolsInUse, FleetPoolsWait, ReplyPart, Report,
    RequestId, ShardId, Subject,
};
use quota::{RoleMembers, Rules};
use settings::{Config, Finding, FleetPeers, Member, PatroniUrls};
use telemetry::Record;

use crate::Signal;
use crate::pools::{PoolError, PoolOutcome, PoolRequest, ServerInfo, WriteFault};
use crate::statement::PanelQuery;
use crate::topology::{PatroniError, Switchover};

/// Properties of the process that never change.
#[derive(Clone, Debug)]
pub struct ProcessInfo {
    /// How many shards there are, numbered from zero.
    pub shards: u16,
    /// The driver in use; SHOW CONFIG names it where the file says `auto`.
    pub io_driver: &'static str,
}

/// An input of the control thread.
#[derive(Debug)]
pub enum Input {
    /// A report of a shard.
    Report(Report),
    /// A statement of the panel.
    PanelQuery(PanelQuery),
    /// The process got a signal.
    Signal(Signal),
    /// The answer to [`Output::Load`].
    Loaded(Result<Config, Vec<Finding>>),
    /// The answer to [`Output::ReadFiles`]: the same configuration with what its files hold, and with
    /// what reading them found for warnings.
    FilesRead(Config),
    /// Progress of a takeover by another process.
    Takeover(TakeoverEvent),
    /// A request to change pools; [`Output::PoolReply`] answers.
    Pools(PoolRequest),
    /// A request for a server's properties; [`Output::ServerReply`] answers, if ever.
    QueryServer {
        /// Comes back in the answer.
        id: u64,
        /// The entry whose pool is used.
        database: String,
        /// The user of that pool.
        user: String,
    },
    /// A statement is to be explained; [`Output::Explained`] answers, unless [`Input::CancelServerQuery`] comes first.
    Explain(ExplainRequest),
    /// That request was abandoned.
    CancelServerQuery {
        /// The id of the request.
        id: u64,
    },
    /// The answer to [`Output::ReadPools`]: the file's bytes (none where it does not exist), or the system's error.
    PoolsRead(Result<Vec<u8>, String>),
    /// The answer to [`Output::WritePools`].
    PoolsWritten(Result<(), WriteFault>),
    /// The answer to [`Output::ChangeQuota`]: the rules of the whole file, or what is wrong; then the file is as it was.
    QuotaChanged(Result<Rules, String>),
    /// PostgreSQL was asked for the members of roles that are groups of quotas, and has said something else than before.
    RoleMembers(RoleMembers),
    /// The numbers of the fleet's nodes, or where they are reached, have changed.
    FleetPeers(FleetPeers),
    /// Patroni was asked for the members of a cluster (`topology`).
    Patroni {
        /// Where.
        urls: PatroniUrls,
        /// Its members, or why they are not known.
        answer: Result<Vec<Member>, PatroniError>,
    },
    /// Another node of the fleet has ordered this process to drain, or to end that.
    Drain(Drain),
    /// The answer to [`Output::OrderDrain`].
    DrainOrdered {
        /// From the request.
        request: RequestId,
        /// Why the order was not given.
        result: Result<(), String>,
    },
    /// The pools of all nodes of the fleet, as they are now.
    FleetPools(FleetPools),
    /// The answer to [`Output::ChangeFleetPools`].
    FleetPoolsChanged(Result<(), FleetPoolsError>),
    /// The answer to [`Output::AwaitFleetPools`]: on which nodes the change has no effect, if there are such.
    FleetPoolsUsed {
        /// From the request.
        request: RequestId,
        /// Names and reasons.
        result: Result<(), String>,
    },
    /// The answer to [`Output::Switchover`].
    SwitchedOver {
        /// From the request.
        id: u64,
        /// From the request.
        urls: PatroniUrls,
        /// Patroni's words.
        outcome: Result<String, String>,
    },
    /// [`crate::Control::deadline`] has passed; early is harmless.
    Tick,
}

/// An output of the control thread.
#[derive(Debug)]
pub enum Output {
    /// Send a command to a shard.
    Tell {
        /// Which.
        shard: ShardId,
        /// What.
        command: Command,
    },
    /// A piece of the answer to an [`Input::PanelQuery`].
    PanelReply {
        /// The number of the statement.
        id: u64,
        /// Parts of the reply, in order.
        parts: Vec<ReplyPart>,
        /// False while more follows.
        last: bool,
    },
    /// List rows that no shard has; a [`Report::Listing`] answers, once and with all rows.
    List {
        /// Comes back in the report.
        request: RequestId,
        /// What to list.
        subject: Subject,
    },
    /// Write to the log.
    Log(Record),
    /// An operator has had something done; the log has it already.
    Operated(Operation),
    /// Read the configuration file again, as [`settings::reload`] does; [`Input::Loaded`] answers.
    Load,
    /// Read the files that this configuration names, which is not in force yet; [`Input::FilesRead`] answers.
    ReadFiles(Box<Config>),
    /// Read the file of pools; [`Input::PoolsRead`] answers, before anything else is handled.
    ReadPools {
        /// The file.
        path: String,
    },
    /// Validate the whole configuration with this pools file, as a start would, and write the file if it is valid. [`Input::PoolsWritten`] answers, before anything else is handled.
    WritePools {
        /// The file.
        path: String,
        /// Its new content.
        bytes: Vec<u8>,
    },
    /// Change a line of the file of quotas, if the file is valid before and after. [`Input::QuotaChanged`] answers, before anything else is handled.
    ChangeQuota {
        /// The file.
        path: String,
        /// The line.
        line: String,
    },
    /// The answer to [`Input::QueryServer`].
    ServerReply {
        /// The id of the request.
        id: u64,
        /// The server's properties; none where it cannot be queried.
        facts: Option<ServerInfo>,
    },
    /// The answer to [`Input::Explain`].
    Explained {
        /// From the request.
        id: u64,
        /// The plan's lines, or why there are none.
        outcome: ExplainOutcome,
    },
    /// The answer to [`Input::Pools`].
    PoolReply {
        /// From the request.
        id: u64,
        /// The result.
        answer: Box<Result<PoolOutcome, PoolError>>,
    },
    /// Order another node of the fleet to drain; [`Input::DrainOrdered`] answers.
    OrderDrain {
        /// Comes back in the answer.
        request: RequestId,
        /// The node.
        node: String,
        /// What it is to do.
        order: Drain,
    },
    /// This process drains, or does not any more.
    Draining(bool),
    /// Have these be the pools of all nodes of the fleet, if those of revision `base` are now. [`Input::FleetPoolsChanged`] answers.
    ChangeFleetPools {
        /// What they were made of.
        base: u64,
        /// What they are to be.
        pools: FleetPools,
    },
    /// Say to the others what this node uses of the pools of all nodes.
    FleetPoolsInUse(FleetPoolsInUse),
    /// Wait until every node has done this with a revision; [`Input::FleetPoolsUsed`] answers.
    AwaitFleetPools {
        /// Comes back in the answer.
        request: RequestId,
        /// Which.
        revision: u64,
        /// What.
        wait: FleetPoolsWait,
    },
    /// The requester of an [`Output::AwaitFleetPools`] no longer waits.
    ForgetFleetPools(RequestId),
    /// Ask Patroni to switch over; [`Input::SwitchedOver`] answers.
    Switchover(Switchover),
    /// A new configuration is in force: reconfigure the log. The shards have it already.
    Configured(Arc<Config>),
    /// Open the log file again.
    ReopenLog,
    /// Close the TCP listeners permanently.
    CloseTcp,
    /// Hand over to the process that waits on this channel; [`Input::Takeover`] reports progress.
    HandOver {
        /// The channel's name in the abstract namespace.
        line: String,
        /// For the other process's [`crate::Control::import`].
        note: String,
    },
    /// A cancel key that is unknown here: the predecessor may have it.
    StrayCancel {
        /// The key as received.
        key: Box<[u8]>,
    },
    /// RESUME in the predecessor: connections that cannot move are paused there.
    ResumePredecessor {
        /// One database, or all.
        database: Option<String>,
    },
    /// End the process with success, as it is.
    Exit,
}

/// What an operator has had done, on the console, in the panel or by a signal; whether it then succeeds or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Who on the console; empty in the panel, whose own entries say who, and for signals.
    pub user: String,
    /// Where that client is.
    pub from: String,
    /// The command's words, or the signal's name.
    pub command: String,
    /// What the command names: a database, mostly, with a host of it where it is about one.
    pub argument: Option<String>,
    /// The database that it names.
    pub database: Option<String>,
    /// What kind of thing it is.
    pub kind: OperationKind,
}

/// The kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// Something is done to pools and connections.
    Command,
    /// A setting or a quota is changed.
    Edit,
    /// The configuration is read again.
    Reload,
}

/// Progress of a takeover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakeoverEvent {
    /// The other process listens now; connections move to it.
    Begun,
    /// It failed for this reason; remaining connections stay here.
    Failed(String),
    /// The other process has exited, and this one accepts no clients any more.
    Orphaned,
    /// RESUME in the other process: connections that could not move are paused here.
    Resumed {
        /// One database, or all.
        database: Option<String>,
    },
    /// The last connection is gone.
    Over,
}

/// A statement to be explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainRequest {
    /// Comes back in the answer.
    pub id: u64,
    /// The entry whose server is asked.
    pub database: String,
    /// As which user.
    pub user: String,
    /// The statement, perhaps with parameters.
    pub statement: String,
    /// It has parameters: PostgreSQL 16 or newer can plan it without their values.
    pub generic: bool,
}

/// The lines of a plan, or why there is none.
pub type ExplainOutcome = Result<Vec<String>, String>;
