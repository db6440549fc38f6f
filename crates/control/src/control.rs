//! The state machine of the control thread, its inputs and outputs.
//! One input in, then outputs until there are none. Does no I/O.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use messages::{AdminReply, Command, ReplyPart, Report, RequestId, ShardId, ShutdownMode, Subject};
use settings::{Config, Finding};
use telemetry::{Level, Record};

use crate::aggregate::Aggregate;
use crate::pause_state::PauseState;
use crate::pools::{
    ExplainOutcome, ExplainRequest, PoolEditor, PoolError, PoolOutcome, PoolRequest, ServerInfo, WriteFault,
};
use crate::request::{Purpose, Request, Requester, Requests};
use crate::statistics::Statistics;
use crate::takeover::TakeoverEvent;
use crate::{CommandError, Grammar, PanelQuery, Signal};

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
    /// [`Control::deadline`] has passed; early is harmless.
    Tick,
}

/// A RELOAD or SET whose files are being read.
pub(crate) struct Loading {
    /// The console client; None is a signal.
    pub(crate) requester: Option<Requester>,
    /// The tag of the reply on success.
    pub(crate) done: String,
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
        /// For the other process's [`Control::import`].
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

/// The state machine of the control thread.
pub struct Control {
    pub(crate) config: Arc<Config>,
    pub(crate) facts: ProcessInfo,
    pub(crate) grammar: Grammar,
    pub(crate) pause_state: PauseState,
    pub(crate) ending: Option<ShutdownMode>,
    /// Another process has taken over; this one exits when its last connection is gone.
    pub(crate) hands_over: bool,
    pub(crate) requests: Requests,
    pub(crate) statistics: Statistics,
    /// Requests waiting for files to be read, in order.
    pub(crate) loading: VecDeque<Loading>,
    pub(crate) pools: PoolEditor,
    /// Server queries that are EXPLAINs.
    pub(crate) explains: BTreeSet<u64>,
    pub(crate) now_us: u64,
    next_sample_us: u64,
    outputs: VecDeque<Output>,
}

impl Control {
    /// The initial state. Times are microseconds of a monotonic clock.
    #[must_use]
    pub fn new(config: Arc<Config>, facts: ProcessInfo, grammar: Grammar, now_us: u64) -> Control {
        let next_sample_us = now_us + period_us(&config);
        Control {
            config,
            facts,
            grammar,
            pause_state: PauseState::default(),
            ending: None,
            hands_over: false,
            requests: Requests::default(),
            statistics: Statistics::new(now_us),
            loading: VecDeque::new(),
            pools: PoolEditor::default(),
            explains: BTreeSet::new(),
            now_us,
            next_sample_us,
            outputs: VecDeque::new(),
        }
    }

    /// Handles an input. Take all outputs with [`Control::poll`] before the next call.
    pub fn handle(&mut self, input: Input, now_us: u64) {
        self.now_us = now_us;
        match input {
            Input::Report(Report::Query(query)) => self.answer(query),
            Input::PanelQuery(panel_query) => self.answer_panel(panel_query),
            Input::Report(Report::Listing { request, rows, last, .. }) => self.listed(request, rows, last),
            Input::Report(Report::Done { request, count, .. }) => self.done(request, count),
            Input::Report(Report::StrayCancel { key }) => self.push(Output::StrayCancel { key }),
            Input::Report(Report::ConsoleCancelled { shard, client, client_id }) => {
                self.console_cancelled(Requester::Client { shard, client, client_id });
            }
            Input::Report(Report::ServerQueryDone { request, answer }) => {
                self.server_answered(request.0, &answer)
            }
            Input::Report(Report::ConsoleLeft) => self.console_left(),
            Input::Takeover(what) => self.takeover_event(what),
            Input::Signal(signal) => self.signal(signal),
            Input::Loaded(outcome) => self.loaded(outcome),
            Input::FilesRead(config) => self.files_loaded(config),
            Input::Pools(request) => self.pool_request(request),
            Input::QueryServer { id, database, user } => self.query_server(id, database, user),
            Input::Explain(request) => self.explain(request),
            Input::CancelServerQuery { id } => self.cancel_server_query(id),
            Input::PoolsRead(outcome) => self.pools_read(outcome),
            Input::PoolsWritten(outcome) => self.pools_written(outcome),
            Input::Tick => {}
        }
        self.expire_requests();
        self.sample_when_due();
    }

    /// The next output.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Input::Tick`] is due, in microseconds of the clock of [`Control::handle`].
    #[must_use]
    pub fn deadline(&self) -> u64 {
        self.requests.deadline().map_or(self.next_sample_us, |us| us.min(self.next_sample_us))
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    pub(crate) fn push(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    pub(crate) fn log(&mut self, text: impl Into<String>) {
        self.push(Output::Log(Record::new(Level::Log, text)));
    }

    pub(crate) fn broadcast(&mut self, command: &Command) {
        for shard in 0..self.facts.shards {
            self.push(Output::Tell { shard: ShardId(shard), command: command.clone() });
        }
    }

    /// Sends a piece of an answer; `last` ends it.
    pub(crate) fn reply(&mut self, requester: Requester, parts: Vec<ReplyPart>, last: bool) {
        self.push(match requester {
            Requester::Client { shard, client, client_id } => {
                let reply = AdminReply { client, client_id, parts, last };
                Output::Tell { shard, command: Command::Reply(reply) }
            }
            Requester::Panel { id } => Output::PanelReply { id, parts, last },
        });
    }

    /// Completes a statement.
    pub(crate) fn complete(&mut self, requester: Requester, tag: &'static str) {
        self.reply(requester, vec![ReplyPart::Complete(tag)], true);
    }

    /// Fails a statement: sends the error to the requester and logs it.
    pub(crate) fn refuse(&mut self, requester: Requester, refusal: &CommandError) {
        self.push(Output::Log(Record::new(Level::Error, refusal.message())));
        self.reply(requester, vec![refusal.part()], true);
    }

    fn sample_when_due(&mut self) {
        if self.now_us < self.next_sample_us {
            return;
        }
        self.next_sample_us = self.now_us + period_us(&self.config);
        self.list(None, &[Subject::Pools], Purpose::Sample(Aggregate::default()));
    }

    /// The period has changed: the next sample is at most one period away.
    pub(crate) fn shorten_sample_period(&mut self) {
        self.next_sample_us = self.next_sample_us.min(self.now_us + period_us(&self.config));
    }

    fn expire_requests(&mut self) {
        let now_us = self.now_us;
        let late = self.requests.close_where(|request| request.deadline_us.is_some_and(|us| us <= now_us));
        for Request { requester, .. } in late {
            match requester {
                Some(requester) => self.refuse(requester, &CommandError::TimedOut),
                None => self.push(Output::Log(Record::new(Level::Warning, CommandError::TimedOut.message()))),
            }
        }
    }
}

/// `stats_period`, at least a second.
fn period_us(config: &Config) -> u64 {
    u64::try_from(config.global.stats_period.as_micros())
        .unwrap_or(u64::MAX / 2)
        .clamp(1_000_000, u64::MAX / 2)
}
