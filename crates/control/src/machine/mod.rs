//! The state machine of the control thread. One input in, then outputs until there are none. Does no I/O.
//!
//! The files of this folder are its parts: `dispatch` runs statements, `commands` is the table of commands, and the others
//! handle what their names say. What they need of views, pools, requests and statistics is beside this folder and
//! knows nothing of [`Control`].

mod commands;
mod configure;
mod console_disconnect;
mod dispatch;
mod drain;
mod fleet_peers;
mod fleet_pools;
mod pool_changes;
mod quotas;
mod server_queries;
mod shutdown;
mod signals;
mod switchover;
mod takeover;

pub use commands::{Argument, COMMANDS, CommandRow};

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use messages::{AdminReply, Command, ReplyPart, Report, ShardId, ShutdownMode, Subject};
use settings::{Config, FleetPeers};
use telemetry::{Level, Record};

use self::fleet_pools::FleetPoolsState;
use self::pool_changes::PoolEditor;
use self::quotas::QuotaChange;
use self::switchover::Held;
use crate::CommandError;
use crate::aggregate::Aggregate;
use crate::interface::{Input, Output, ProcessInfo};
use crate::pause_state::PauseState;
use crate::request::{Purpose, Request, Requester, Requests};
use crate::statistics::Statistics;
use crate::topology::Topologies;

/// A RELOAD or SET whose files are being read.
pub(crate) struct Loading {
    /// The console client; None is a signal.
    pub(crate) requester: Option<Requester>,
    /// The tag of the reply on success.
    pub(crate) done: String,
}

/// The state machine of the control thread.
pub struct Control {
    pub(crate) config: Arc<Config>,
    pub(crate) facts: ProcessInfo,
    pub(crate) pause_state: PauseState,
    pub(crate) ending: Option<ShutdownMode>,
    /// Another process has taken over; this one exits when its last connection is gone.
    pub(crate) hands_over: bool,
    pub(crate) requests: Requests,
    pub(crate) statistics: Statistics,
    pub(crate) topologies: Topologies,
    /// Entries whose clients wait for a switchover.
    pub(crate) held: Vec<Held>,
    /// Requests waiting for files to be read, in order.
    pub(crate) loading: VecDeque<Loading>,
    pub(crate) pools: PoolEditor,
    /// Lines of `quotas_file` that are being changed, and for whom.
    pub(crate) quota_changes: VecDeque<QuotaChange>,
    /// The members of roles that are groups, as far as PostgreSQL has said who they are.
    pub(crate) role_members: quota::RoleMembers,
    /// The numbers of the fleet's nodes, as far as they are known.
    pub(crate) fleet_peers: Arc<FleetPeers>,
    pub(crate) fleet_pools: FleetPoolsState,
    /// Server queries that are EXPLAINs.
    pub(crate) explains: BTreeSet<u64>,
    pub(crate) now_us: u64,
    next_sample_us: u64,
    outputs: VecDeque<Output>,
}

impl Control {
    /// The initial state. Times are microseconds of a monotonic clock.
    #[must_use]
    pub fn new(config: Arc<Config>, facts: ProcessInfo, now_us: u64) -> Control {
        let next_sample_us = now_us + period_us(&config);
        Control {
            config,
            facts,
            pause_state: PauseState::default(),
            ending: None,
            hands_over: false,
            requests: Requests::default(),
            statistics: Statistics::new(now_us),
            topologies: Topologies::default(),
            held: Vec::new(),
            loading: VecDeque::new(),
            pools: PoolEditor::default(),
            quota_changes: VecDeque::new(),
            role_members: quota::RoleMembers::default(),
            fleet_peers: Arc::default(),
            fleet_pools: FleetPoolsState::default(),
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
            // The fleet thread has asked.
            Input::Report(Report::Backends { .. }) => {}
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
            Input::QuotaChanged(outcome) => self.quota_changed(outcome),
            Input::RoleMembers(members) => self.role_members_known(members),
            Input::Drain(order) => self.drain(order),
            Input::DrainOrdered { request, result } => self.fleet_answered(request, result),
            Input::FleetPeers(peers) => self.fleet_peers_known(peers),
            Input::FleetPools(pools) => self.fleet_pools_known(pools),
            Input::FleetPoolsChanged(result) => self.fleet_pools_changed(result),
            Input::FleetPoolsUsed { request, result } => self.fleet_pools_used(request, result),
            Input::Patroni { urls, answer } => self.patroni_answered(&urls, answer),
            Input::SwitchedOver { id, urls, outcome } => self.switched_over(id, &urls, outcome),
            Input::Tick => {}
        }
        self.expire_requests();
        self.retry_fleet_pools_when_due();
        self.release_late();
        self.sample_when_due();
    }

    /// The next output.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Input::Tick`] is due, in microseconds of the clock of [`Control::handle`].
    #[must_use]
    pub fn deadline(&self) -> u64 {
        let held = self.held.iter().map(|held| held.until_us).min();
        let deadline =
            self.requests.deadline().into_iter().chain(held).chain(self.fleet_pools_deadline()).min();
        deadline.map_or(self.next_sample_us, |us| us.min(self.next_sample_us))
    }

    /// The databases that are paused or killed; None is all.
    #[must_use]
    pub fn paused(&self) -> Vec<Option<String>> {
        self.pause_state.everything()
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
        for Request { requester, purpose, .. } in late {
            match requester {
                // Transactions that are longer end as they would without Weir.
                requester if let Purpose::SwitchoverDrain(switchover) = purpose => {
                    self.ask_patroni(requester, *switchover);
                }
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
