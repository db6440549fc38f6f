//! For tests: a control thread whose shards are the test.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use messages::{
    AdminQuery, AdminReply, Cell, Command, ConsoleClient, Drain, Listing, ReplyPart, Report, RequestId, Role,
    ShardId, StatementMode, Subject,
};
use settings::{Config, Files};
use telemetry::Record;

use crate::{Control, Input, Operation, Output, PoolError, PoolOutcome, ProcessInfo, Signal};

pub(crate) const SECOND_US: u64 = 1_000_000;

/// A control thread and its recorded outputs.
pub(crate) struct Harness {
    pub(crate) control: Control,
    pub(crate) now_us: u64,
    pub(crate) told: Vec<(u16, Command)>,
    pub(crate) replies: Vec<AdminReply>,
    /// Replies to the panel: number, parts, whether it was the last.
    pub(crate) answers: Vec<(u64, Vec<ReplyPart>, bool)>,
    pub(crate) log: Vec<Record>,
    pub(crate) operations: Vec<Operation>,
    pub(crate) loads: usize,
    pub(crate) secrets: Vec<Config>,
    /// Requests to the process.
    pub(crate) lists: Vec<(RequestId, Subject)>,
    pub(crate) closed_tcp: bool,
    pub(crate) exited: bool,
    pub(crate) handed_over: Option<(String, String)>,
    /// RESUMEs for a predecessor.
    pub(crate) resumed_before: Vec<Option<String>>,
    /// How often the pools file was requested.
    pub(crate) pool_reads: usize,
    pub(crate) explained: Vec<(u64, crate::ExplainOutcome)>,
    pub(crate) server_answers: Vec<(u64, Option<crate::ServerInfo>)>,
    pub(crate) pool_writes: Vec<String>,
    pub(crate) pool_answers: Vec<(u64, Result<PoolOutcome, PoolError>)>,
    pub(crate) quota_changes: Vec<(String, String)>,
    pub(crate) switchovers: Vec<crate::Switchover>,
    /// The last order for another node.
    pub(crate) ordered_drain: Option<(RequestId, String, Drain)>,
    pub(crate) draining: Option<bool>,
    pub(crate) fleet_changes: Vec<(u64, messages::FleetPools)>,
    pub(crate) fleet_in_use: Vec<messages::FleetPoolsInUse>,
    pub(crate) fleet_awaited: Vec<(RequestId, u64)>,
}

impl Harness {
    /// Two shards and two databases, `app` and `other`.
    pub(crate) fn new() -> Harness {
        Harness::with(
            2,
            "[databases]\napp = host=h1,h2 pool_size=7\nother = dbname=x user=boss\n[users]\nann = pool_size=1\n",
        )
    }

    pub(crate) fn with(shards: u16, entries: &str) -> Harness {
        Harness::with_config(shards, config(entries).unwrap())
    }

    pub(crate) fn with_config(shards: u16, config: Config) -> Harness {
        let facts = ProcessInfo { shards, io_driver: "epoll" };
        let control = Control::new(Arc::new(config), facts, 0);
        Harness {
            control,
            now_us: 0,
            told: Vec::new(),
            replies: Vec::new(),
            answers: Vec::new(),
            log: Vec::new(),
            operations: Vec::new(),
            loads: 0,
            secrets: Vec::new(),
            lists: Vec::new(),
            closed_tcp: false,
            exited: false,
            handed_over: None,
            resumed_before: Vec::new(),
            pool_reads: 0,
            server_answers: Vec::new(),
            explained: Vec::new(),
            pool_writes: Vec::new(),
            pool_answers: Vec::new(),
            quota_changes: Vec::new(),
            switchovers: Vec::new(),
            ordered_drain: None,
            draining: None,
            fleet_changes: Vec::new(),
            fleet_in_use: Vec::new(),
            fleet_awaited: Vec::new(),
        }
    }

    pub(crate) fn input(&mut self, input: Input) {
        self.control.handle(input, self.now_us);
        while let Some(output) = self.control.poll() {
            match output {
                Output::Tell { command: Command::Reply(reply), .. } => self.replies.push(reply),
                Output::Tell { shard, command } => self.told.push((shard.0, command)),
                Output::PanelReply { id, parts, last } => self.answers.push((id, parts, last)),
                Output::Log(record) => self.log.push(record),
                Output::Operated(operation) => self.operations.push(operation),
                Output::List { request, subject } => self.lists.push((request, subject)),
                Output::Load => self.loads += 1,
                Output::ReadFiles(config) => self.secrets.push(*config),
                Output::Configured(_) | Output::ReopenLog => {}
                Output::CloseTcp => self.closed_tcp = true,
                Output::HandOver { line, note } => self.handed_over = Some((line, note)),
                Output::StrayCancel { .. } => {}
                Output::ResumePredecessor { database } => self.resumed_before.push(database),
                Output::ServerReply { id, facts } => self.server_answers.push((id, facts)),
                Output::Explained { id, outcome } => self.explained.push((id, outcome)),
                Output::ReadPools { .. } => self.pool_reads += 1,
                Output::WritePools { bytes, .. } => self.pool_writes.push(String::from_utf8(bytes).unwrap()),
                Output::ChangeQuota { path, line } => self.quota_changes.push((path, line)),
                Output::PoolReply { id, answer } => self.pool_answers.push((id, *answer)),
                Output::Switchover(switchover) => self.switchovers.push(switchover),
                Output::OrderDrain { request, node, order } => {
                    self.ordered_drain = Some((request, node, order));
                }
                Output::Draining(is_draining) => self.draining = Some(is_draining),
                Output::ChangeFleetPools { base, pools } => self.fleet_changes.push((base, pools)),
                Output::FleetPoolsInUse(in_use) => self.fleet_in_use.push(in_use),
                Output::AwaitFleetPools { request, revision, .. } => {
                    self.fleet_awaited.push((request, revision));
                }
                Output::ForgetFleetPools(request) => self.fleet_awaited.retain(|(of, _)| *of != request),
                Output::Exit => self.exited = true,
            }
        }
    }

    pub(crate) fn signal(&mut self, signal: Signal) {
        self.input(Input::Signal(signal));
    }

    pub(crate) fn query(&self, role: Role, sql: &str) -> AdminQuery {
        let sql = sql.to_owned();
        let mode = StatementMode::Run;
        let sender = ConsoleClient { user: "boss".to_owned(), from: "127.0.0.1:5".to_owned() };
        AdminQuery { shard: ShardId(0), client: 3, client_id: 33, sender, role, sql, parameters: None, mode }
    }

    pub(crate) fn ask_as(&mut self, role: Role, sql: &str) {
        let query = self.query(role, sql);
        self.input(Input::Report(Report::Query(query)));
    }

    pub(crate) fn ask(&mut self, sql: &str) {
        self.ask_as(Role::Admin, sql);
    }

    /// The request of the last command that has one.
    pub(crate) fn request(&self) -> RequestId {
        self.told.iter().rev().find_map(|(_, command)| request_of(command)).unwrap()
    }

    pub(crate) fn done(&mut self, shard: u16, count: u64) {
        let request = self.request();
        self.input(Input::Report(Report::Done { request, shard: ShardId(shard), count }));
    }

    pub(crate) fn listing(&mut self, shard: u16, rows: Listing, last: bool) {
        let request = self.request();
        self.input(Input::Report(Report::Listing { request, shard: ShardId(shard), rows, last }));
    }

    /// Shows a view; shard 0 replies to each subject with `rows`, the others with nothing.
    pub(crate) fn show(&mut self, sql: &str, rows: &dyn Fn(Subject) -> Listing) -> Vec<Vec<Cell>> {
        let (told, replies) = (self.told.len(), self.replies.len());
        self.ask(sql);
        for (shard, command) in self.told.split_off(told) {
            let Command::List { request, subject } = command else { panic!("{command:?}") };
            let rows = if shard == 0 { rows(subject) } else { empty(subject) };
            self.input(Input::Report(Report::Listing { request, shard: ShardId(shard), rows, last: true }));
        }
        for (request, subject) in std::mem::take(&mut self.lists) {
            let rows = rows(subject);
            self.input(Input::Report(Report::Listing { request, shard: ShardId(0), rows, last: true }));
        }
        let parts = self.replies[replies..].iter().flat_map(|reply| reply.parts.clone());
        parts
            .filter_map(|part| if let ReplyPart::Rows(rows) = part { Some(rows) } else { None })
            .flatten()
            .collect()
    }

    /// The parts of the last reply.
    pub(crate) fn parts(&self) -> &[ReplyPart] {
        self.replies.last().map_or(&[], |reply| &reply.parts)
    }

    /// SQLSTATE and text of the last reply.
    pub(crate) fn error(&self) -> (&str, &str) {
        match self.parts() {
            [ReplyPart::Error { sqlstate, message, .. }] => (sqlstate, message),
            other => panic!("no error: {other:?}"),
        }
    }

    /// The tag of the last reply.
    pub(crate) fn tag(&self) -> &str {
        match self.parts().last() {
            Some(ReplyPart::Complete(tag)) => tag,
            Some(ReplyPart::CompleteAs(tag)) => tag,
            other => panic!("not complete: {other:?}"),
        }
    }

    pub(crate) fn logged(&self, text: &str) -> bool {
        self.log.iter().any(|record| record.text.contains(text))
    }
}

/// A configuration of these entries, and a unix socket to listen on.
pub(crate) fn config(entries: &str) -> Result<Config, Vec<settings::Finding>> {
    struct One(String);
    impl Files for One {
        fn read(&self, path: &str) -> std::io::Result<Vec<u8>> {
            if path != "weir.ini" {
                return Err(std::io::ErrorKind::NotFound.into());
            }
            Ok(self.0.clone().into_bytes())
        }
    }
    settings::load(&One(format!("{entries}\n[pgbouncer]\n")), "weir.ini", &[])
}

pub(crate) fn empty(subject: Subject) -> Listing {
    match subject {
        Subject::Clients | Subject::Servers => Listing::Sockets(Vec::new()),
        Subject::Pools => Listing::Pools(Vec::new()),
        Subject::Databases => Listing::Databases(Vec::new()),
        Subject::Users => Listing::Users(Vec::new()),
        Subject::Shards => Listing::Shards(Vec::new()),
        Subject::Descriptors => Listing::Descriptors(Vec::new()),
        Subject::Memory => Listing::Memory(Vec::new()),
        Subject::PeerPools => Listing::PeerPools(Vec::new()),
        Subject::Histograms => Listing::Histograms(Vec::new()),
        Subject::Errors => Listing::Errors(Vec::new()),
        Subject::Queries => Listing::Queries(Vec::new()),
        Subject::Listeners => Listing::Listeners(Vec::new()),
        Subject::Hosts => Listing::Hosts(Vec::new()),
        Subject::Zones => Listing::Zones(Vec::new()),
        Subject::Clusters | Subject::ProbedHosts => Listing::Clusters(Vec::new()),
        Subject::Caches => Listing::Caches(Vec::new()),
        Subject::Queues => Listing::Queues(Vec::new()),
        Subject::Spans => Listing::Spans(Vec::new()),
        Subject::Quotas => Listing::Quotas(Vec::new()),
        Subject::FleetNodes => Listing::FleetNodes(Vec::new()),
        Subject::FleetBudgets => Listing::FleetBudgets(Vec::new()),
        Subject::FleetLimits => Listing::FleetLimits(Vec::new()),
        Subject::PoolSizes => Listing::PoolSizes(Vec::new()),
    }
}

fn request_of(command: &Command) -> Option<RequestId> {
    match command {
        Command::List { request, .. }
        | Command::Pause { request, .. }
        | Command::Detach { request, .. }
        | Command::Kill { request, .. }
        | Command::KillClient { request, .. }
        | Command::CancelClient { request, .. }
        | Command::Suspend { request }
        | Command::WaitClose { request, .. }
        | Command::Shutdown { request, .. } => Some(*request),
        _ => None,
    }
}

/// The rows as psql would show them, without alignment, and NULL for none.
pub(crate) fn shown(rows: &[Vec<Cell>]) -> Vec<String> {
    let cell = |cell: &Cell| match cell {
        Cell::Null => "NULL".to_owned(),
        Cell::Text(text) => text.clone(),
        Cell::Number(number) => number.to_string(),
        Cell::Sum(number) => number.to_string(),
    };
    rows.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>().join("|")).collect()
}
