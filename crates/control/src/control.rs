//! The state of the control thread, what can happen to it and what it wants done.
//! Owns the order of things: one input in, then outputs out until there are none. Never acts by itself.

use std::collections::VecDeque;
use std::sync::Arc;

use messages::{AdminReply, Command, ReplyPart, Report, RequestId, ShardId, ShutdownMode, Subject};
use settings::{Config, Finding};
use telemetry::{Level, Record};

use crate::gathered::Gathered;
use crate::pausing::Pausing;
use crate::pools::{Desk, PoolOutcome, PoolRefusal, PoolRequest, ServerFacts, WriteFault};
use crate::request::{Asker, Purpose, Request, Requests};
use crate::statistics::Statistics;
use crate::succession::Succession;
use crate::{Grammar, Question, Refusal, Signal};

/// What does not change while the process runs.
#[derive(Clone, Debug)]
pub struct Facts {
    /// How many shards there are, numbered from zero.
    pub shards: u16,
    /// The driver in use; SHOW CONFIG names it where the file says `auto`.
    pub io_driver: &'static str,
}

/// Something that happened.
#[derive(Debug)]
pub enum Input {
    /// A shard has spoken.
    Report(Report),
    /// The panel asks.
    Ask(Question),
    /// The process got a signal.
    Signal(Signal),
    /// The answer to [`Output::Load`].
    Loaded(Result<Config, Vec<Finding>>),
    /// The answer to [`Output::ReadFiles`]: the same configuration with what its files hold, and with
    /// what reading them found for warnings.
    FilesRead(Config),
    /// A takeover by another process has come so far.
    Succession(Succession),
    /// Somebody asks for a change to the pools; [`Output::PoolAnswer`] answers.
    Pools(PoolRequest),
    /// Somebody wants to know what a server says of itself; [`Output::ServerAnswer`] answers, if ever.
    AskServer {
        /// Comes back in the answer.
        id: u64,
        /// The entry through which it is asked.
        database: String,
        /// The user as whom.
        user: String,
    },
    /// Nobody waits for that answer any more.
    AskNoMore {
        /// From the question.
        id: u64,
    },
    /// The answer to [`Output::ReadPools`]: the file's bytes (none where it does not exist), or what the system said.
    PoolsRead(Result<Vec<u8>, String>),
    /// The answer to [`Output::WritePools`].
    PoolsWritten(Result<(), WriteFault>),
    /// [`Control::deadline`] has passed; early is harmless.
    Tick,
}

/// A RELOAD or SET whose files are being read.
pub(crate) struct Loading {
    /// The console client; None is a signal.
    pub(crate) asker: Option<Asker>,
    /// What it is told when all went well.
    pub(crate) done: String,
}

/// Something to do.
#[derive(Debug)]
pub enum Output {
    /// Write to a shard.
    Tell {
        /// Which.
        shard: ShardId,
        /// What.
        command: Command,
    },
    /// A piece of the answer to an [`Input::Ask`].
    Answer {
        /// The question's number.
        id: u64,
        /// What there is to say, in order.
        parts: Vec<ReplyPart>,
        /// False while more follows.
        last: bool,
    },
    /// List something that no shard knows; a [`Report::Listing`] answers, once and with all rows.
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
    /// Judge the whole configuration with this file of pools, as a start would, and write it if it is sound: all of it or
    /// nothing. [`Input::PoolsWritten`] answers, before anything else is handled.
    WritePools {
        /// The file.
        path: String,
        /// What is to stand in it.
        bytes: Vec<u8>,
    },
    /// The answer to [`Input::AskServer`].
    ServerAnswer {
        /// From the question.
        id: u64,
        /// What the server says; nothing where it cannot be asked.
        facts: Option<ServerFacts>,
    },
    /// The answer to [`Input::Pools`].
    PoolAnswer {
        /// From the request.
        id: u64,
        /// What came of it.
        answer: Box<Result<PoolOutcome, PoolRefusal>>,
    },
    /// A new configuration is in force: the log takes its file and its verbosity from it. The shards know already.
    Configured(Arc<Config>),
    /// Open the log file again.
    ReopenLog,
    /// Close the TCP listeners, now and for good.
    CloseTcp,
    /// Hand over to the process that waits at this line; [`Input::Succession`] tells what comes of it.
    HandOver {
        /// Its name in the abstract name space.
        line: String,
        /// For the other process's [`Control::inherit`].
        note: String,
    },
    /// Nobody here has this cancel key: a process that still hands over to this one may.
    StrayCancel {
        /// As the asker sent it.
        key: Box<[u8]>,
    },
    /// RESUME, for a process that still hands over to this one: what cannot move waits there.
    ResumePredecessor {
        /// One database, or all.
        database: Option<String>,
    },
    /// End the process with success, as it is.
    Exit,
}

/// The control thread's state.
pub struct Control {
    pub(crate) config: Arc<Config>,
    pub(crate) facts: Facts,
    pub(crate) grammar: Grammar,
    pub(crate) pausing: Pausing,
    pub(crate) ending: Option<ShutdownMode>,
    /// Another process has taken over; this one ends when everything has left.
    pub(crate) hands_over: bool,
    pub(crate) requests: Requests,
    pub(crate) statistics: Statistics,
    /// Who waits for files to be read, in order.
    pub(crate) loading: VecDeque<Loading>,
    pub(crate) pools: Desk,
    pub(crate) now_us: u64,
    next_sample_us: u64,
    outputs: VecDeque<Output>,
}

impl Control {
    /// A process that has just started. Times are microseconds of a clock that never goes back.
    #[must_use]
    pub fn new(config: Arc<Config>, facts: Facts, grammar: Grammar, now_us: u64) -> Control {
        let next_sample_us = now_us + period_us(&config);
        Control {
            config,
            facts,
            grammar,
            pausing: Pausing::default(),
            ending: None,
            hands_over: false,
            requests: Requests::default(),
            statistics: Statistics::new(now_us),
            loading: VecDeque::new(),
            pools: Desk::default(),
            now_us,
            next_sample_us,
            outputs: VecDeque::new(),
        }
    }

    /// Something happened. Take all outputs with [`Control::poll`] before the next call.
    pub fn handle(&mut self, input: Input, now_us: u64) {
        self.now_us = now_us;
        match input {
            Input::Report(Report::Query(query)) => self.answer(query),
            Input::Ask(question) => self.answer_question(question),
            Input::Report(Report::Listing { request, rows, last, .. }) => self.listed(request, rows, last),
            Input::Report(Report::Done { request, count, .. }) => self.done(request, count),
            Input::Report(Report::StrayCancel { key }) => self.push(Output::StrayCancel { key }),
            Input::Report(Report::ConsoleCancelled { shard, client, client_id }) => {
                self.console_cancelled(Asker::Client { shard, client, client_id });
            }
            Input::Report(Report::ServerQueryDone { request, answer }) => {
                self.server_answered(request.0, &answer)
            }
            Input::Report(Report::ConsoleLeft) => self.console_left(),
            Input::Succession(what) => self.succession(what),
            Input::Signal(signal) => self.signal(signal),
            Input::Loaded(outcome) => self.loaded(outcome),
            Input::FilesRead(config) => self.files_read(config),
            Input::Pools(request) => self.pool_request(request),
            Input::AskServer { id, database, user } => self.ask_server(id, database, user),
            Input::AskNoMore { id } => self.ask_no_more(id),
            Input::PoolsRead(outcome) => self.pools_read(outcome),
            Input::PoolsWritten(outcome) => self.pools_written(outcome),
            Input::Tick => {}
        }
        self.give_up_late_requests();
        self.sample_when_due();
    }

    /// The next thing to do.
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

    pub(crate) fn tell_all(&mut self, command: &Command) {
        for shard in 0..self.facts.shards {
            self.push(Output::Tell { shard: ShardId(shard), command: command.clone() });
        }
    }

    /// Sends a piece of an answer; `last` ends it.
    pub(crate) fn reply(&mut self, asker: Asker, parts: Vec<ReplyPart>, last: bool) {
        self.push(match asker {
            Asker::Client { shard, client, client_id } => {
                let reply = AdminReply { client, client_id, parts, last };
                Output::Tell { shard, command: Command::Reply(reply) }
            }
            Asker::Panel { id } => Output::Answer { id, parts, last },
        });
    }

    /// Says that a statement is done.
    pub(crate) fn complete(&mut self, asker: Asker, tag: &'static str) {
        self.reply(asker, vec![ReplyPart::Complete(tag)], true);
    }

    /// Says that a statement is not done, to who asked and to the log.
    pub(crate) fn refuse(&mut self, asker: Asker, refusal: &Refusal) {
        self.push(Output::Log(Record::new(Level::Error, refusal.message())));
        self.reply(asker, vec![refusal.part()], true);
    }

    fn sample_when_due(&mut self) {
        if self.now_us < self.next_sample_us {
            return;
        }
        self.next_sample_us = self.now_us + period_us(&self.config);
        self.list(None, &[Subject::Pools], Purpose::Sample(Gathered::default()));
    }

    /// The period has changed: a sample that is further away than a whole one comes sooner.
    pub(crate) fn sample_sooner(&mut self) {
        self.next_sample_us = self.next_sample_us.min(self.now_us + period_us(&self.config));
    }

    fn give_up_late_requests(&mut self) {
        let now_us = self.now_us;
        let late = self.requests.close_where(|request| request.deadline_us.is_some_and(|us| us <= now_us));
        for Request { asker, .. } in late {
            match asker {
                Some(asker) => self.refuse(asker, &Refusal::TimedOut),
                None => self.push(Output::Log(Record::new(Level::Warning, Refusal::TimedOut.message()))),
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
