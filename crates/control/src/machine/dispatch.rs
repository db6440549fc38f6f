//! Dispatches statements: checks the role, sends requests to the shards, collects their results.
//! The commands and views themselves are in the tables.

use messages::{
    AdminQuery, Cell, Column, ColumnType, Command, ConsoleClient, Listing, ReplyPart, RequestId, Role,
    StatementMode, Subject,
};

use crate::aggregate::Aggregate;
use crate::interface::Output;
use crate::machine::Loading;
use crate::machine::commands::{CommandRow, SESSION, help};
use crate::request::{Purpose, Request, Requester};
use crate::views::ViewContext;
use crate::{COMMANDS, CommandError, Control, PanelQuery, ParseError, Statement, VIEWS, View, console};

/// Timeout of shards for requests that need no waiting.
const TIMEOUT_US: u64 = 5_000_000;

/// A statement with its requester, passed to a command.
pub(crate) struct CommandContext<'a> {
    pub(crate) requester: Requester,
    /// Who asks on the console; None in the panel.
    pub(crate) sender: Option<&'a ConsoleClient>,
    pub(crate) role: Role,
    pub(crate) argument: Option<&'a str>,
    /// The host of the database that is the argument.
    pub(crate) host: Option<&'a str>,
    /// The statement as sent, for error messages.
    pub(crate) sql: &'a str,
}

impl CommandContext<'_> {
    pub(crate) fn invalid(&self) -> CommandError {
        CommandError::InvalidCommand(self.sql.to_owned())
    }
}

impl Control {
    /// Executes a console statement; the reply may follow when the shards have answered.
    pub(crate) fn answer(&mut self, query: AdminQuery) {
        let requester = Requester::of(&query);
        let context = CommandContext {
            requester,
            sender: Some(&query.sender),
            role: query.role,
            argument: None,
            host: None,
            sql: &query.sql,
        };
        let read = console::parse(&query.sql, query.parameters.as_deref());
        if query.mode == StatementMode::Describe {
            return self.describe(&context, read);
        }
        match read {
            Ok(statement) => self.run(context, &statement),
            Err(_) => self.refuse(requester, &context.invalid()),
        }
    }

    /// Executes a statement of the panel, which is parsed already.
    pub(crate) fn answer_panel(&mut self, panel_query: PanelQuery) {
        let sql = panel_query.display_text();
        let requester = Requester::Panel { id: panel_query.id };
        let role = panel_query.role;
        let context = CommandContext { requester, sender: None, role, argument: None, host: None, sql: &sql };
        self.run(context, &panel_query.statement);
    }

    fn run<'a>(&mut self, mut context: CommandContext<'a>, statement: &'a Statement) {
        let outcome = match statement {
            Statement::Empty => {
                self.reply(context.requester, vec![ReplyPart::Empty], true);
                Ok(())
            }
            Statement::Set { key, value } => self.set(&context, key, value),
            Statement::Command { word, argument } => {
                context.argument = argument.as_deref();
                self.command(word, &context)
            }
            Statement::HostCommand { word, database, host } => {
                context.argument = Some(database.as_str());
                context.host = Some(host.as_str());
                self.command(word, &context)
            }
        };
        if let Err(refusal) = outcome {
            self.refuse(context.requester, &refusal);
        }
    }

    fn command(&mut self, word: &str, context: &CommandContext<'_>) -> Result<(), CommandError> {
        let row = COMMANDS.iter().find(|row| row.word.eq_ignore_ascii_case(word));
        let row: &CommandRow = row.ok_or_else(|| context.invalid())?;
        if !row.argument.allows(context.argument) {
            return Err(context.invalid());
        }
        if context.role < row.role {
            return Err(CommandError::AdminNeeded);
        }
        (row.run)(self, context)
    }

    /// Describes a statement's result without running it.
    fn describe(&mut self, context: &CommandContext<'_>, read: Result<Statement, ParseError>) {
        let described = read.map_err(|_| context.invalid()).and_then(|statement| {
            let columns = match &statement {
                Statement::Command { word, argument } => columns_of(context, word, argument.as_deref())?,
                Statement::HostCommand { word, .. } => columns_of(context, word, None)?,
                Statement::Empty | Statement::Set { .. } => None,
            };
            Ok(vec![
                ReplyPart::Parameters(statement.parameters()),
                columns.map_or(ReplyPart::NoColumns, ReplyPart::Columns),
            ])
        });
        match described {
            Ok(parts) => self.reply(context.requester, parts, true),
            Err(refusal) => self.refuse(context.requester, &refusal),
        }
    }

    /// Shows a view: at once if it needs no shard.
    pub(crate) fn show(&mut self, context: &CommandContext<'_>) -> Result<(), CommandError> {
        let name = context.argument.unwrap_or_default();
        if let Some((name, value)) = SESSION.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            let column = Column { name, kind: ColumnType::Text };
            let row = vec![Cell::from(*value)];
            let parts = vec![
                ReplyPart::Columns(vec![column]),
                ReplyPart::Rows(vec![row]),
                ReplyPart::Complete("SHOW"),
            ];
            self.reply(context.requester, parts, true);
            return Ok(());
        }
        let view = VIEWS
            .iter()
            .find(|view| view.name.eq_ignore_ascii_case(name))
            .ok_or_else(|| context.invalid())?;
        if context.role < view.role {
            return Err(CommandError::AdminNeeded);
        }
        let aggregate = Aggregate::default();
        self.list(Some(context.requester), view.from, Purpose::View { view, aggregate, begun: false });
        Ok(())
    }

    /// Requests rows of each subject from every shard, or from the process.
    pub(crate) fn list(
        &mut self,
        requester: Option<Requester>,
        subjects: &'static [Subject],
        purpose: Purpose,
    ) {
        let of_one = |subject: &Subject| if subject.is_process_wide() { 1 } else { self.facts.shards };
        let owed = subjects.iter().map(of_one).map(usize::from).sum();
        let deadline_us = Some(self.now_us + TIMEOUT_US);
        let request = self.requests.open(Request { requester, owed, deadline_us, purpose });
        for &subject in subjects {
            if subject.is_process_wide() {
                self.push(Output::List { request, subject });
            } else {
                self.broadcast(&Command::List { request, subject });
            }
        }
        if owed == 0 {
            self.finish(request);
        }
    }

    /// Sends a request to every shard, each of which replies with one Done. `waits` disables the timeout.
    pub(crate) fn request_all(
        &mut self,
        requester: Option<Requester>,
        purpose: Purpose,
        waits: bool,
        command: impl Fn(RequestId) -> Command,
    ) {
        let owed = usize::from(self.facts.shards);
        let deadline_us = (!waits).then_some(self.now_us + TIMEOUT_US);
        let request = self.requests.open(Request { requester, owed, deadline_us, purpose });
        self.broadcast(&command(request));
    }

    /// A slice of a listing has arrived.
    pub(crate) fn listed(&mut self, id: RequestId, rows: Listing, last: bool) {
        let patience = self.now_us + TIMEOUT_US;
        let Some(request) = self.requests.find(id) else { return };
        request.deadline_us = Some(patience);
        request.owed -= usize::from(last && request.owed > 0);
        let is_over = request.owed == 0;
        match &mut request.purpose {
            Purpose::View { aggregate, view, .. } => {
                aggregate.add(rows);
                if view.is_streamed && !is_over {
                    self.send_rows_so_far(id);
                }
            }
            Purpose::Sample(aggregate) | Purpose::Attendance(aggregate) => aggregate.add(rows),
            _ => {}
        }
        if is_over {
            self.finish(id);
        }
    }

    /// A shard has completed a request.
    pub(crate) fn done(&mut self, id: RequestId, count: u64) {
        let Some(request) = self.requests.find(id) else { return };
        if let Purpose::KillClient(sum) | Purpose::CancelClient(sum) = &mut request.purpose {
            *sum += count;
        }
        request.owed = request.owed.saturating_sub(1);
        if request.owed == 0 {
            self.finish(id);
        }
    }

    /// Every shard has replied.
    pub(crate) fn finish(&mut self, id: RequestId) {
        let Some(Request { requester, purpose, .. }) = self.requests.close(id) else { return };
        match (purpose, requester) {
            (Purpose::View { view, aggregate, begun }, Some(requester)) => {
                let mut parts = self.parts(view, &aggregate, begun);
                parts.push(ReplyPart::Complete("SHOW"));
                self.reply(requester, parts, true);
            }
            (Purpose::Sample(aggregate), _) => {
                self.statistics.sample(aggregate.counters(), self.now_us);
                if self.config.global.log_stats {
                    let line = self.statistics.line(self.now_us);
                    self.log(line);
                }
            }
            (Purpose::Attendance(aggregate), _) => self.check_admins(&aggregate),
            (Purpose::Pause(_), Some(requester)) => self.complete(requester, "PAUSE"),
            (Purpose::Kill, Some(requester)) => self.complete(requester, "KILL"),
            (Purpose::Suspend, Some(requester)) => self.complete(requester, "SUSPEND"),
            (Purpose::WaitClose, Some(requester)) => self.complete(requester, "WAIT_CLOSE"),
            (Purpose::Detach(word), Some(requester)) => self.complete(requester, word),
            (Purpose::KillClient(0), Some(requester)) => {
                self.refuse(requester, &CommandError::ClientNotFound)
            }
            (Purpose::KillClient(_), Some(requester)) => self.complete(requester, "KILL_CLIENT"),
            (Purpose::CancelClient(0), Some(requester)) => {
                self.refuse(requester, &CommandError::NothingToCancel);
            }
            (Purpose::CancelClient(_), Some(requester)) => self.complete(requester, "CANCEL_CLIENT"),
            (Purpose::Shutdown, _) => self.end(),
            (Purpose::SwitchoverDrain(switchover), requester) => self.ask_patroni(requester, *switchover),
            // Their answers are inputs of their own.
            (Purpose::FleetPause(_), _) => self.report_fleet_pools(),
            (Purpose::Switchover | Purpose::Drain(_) | Purpose::Fleet(_), _) | (_, None) => {}
        }
    }

    /// Sends the rows received so far, so that long listings are not buffered here.
    fn send_rows_so_far(&mut self, id: RequestId) {
        let Some(Request {
            requester: Some(requester),
            purpose: Purpose::View { view, aggregate, begun },
            ..
        }) = self.requests.find(id)
        else {
            return;
        };
        let (requester, view, aggregate) = (*requester, *view, std::mem::take(aggregate));
        let begun = std::mem::replace(begun, true);
        let parts = self.parts(view, &aggregate, begun);
        self.reply(requester, parts, false);
    }

    fn parts(&self, view: &View, aggregate: &Aggregate, begun: bool) -> Vec<ReplyPart> {
        let context = ViewContext {
            config: &self.config,
            facts: &self.facts,
            pause_state: &self.pause_state,
            statistics: &self.statistics,
            topologies: &self.topologies,
            aggregate,
            now_us: self.now_us,
        };
        if view.is_help {
            return vec![ReplyPart::NoticeWithDetail("Console usage".to_owned(), help())];
        }
        let rows = ReplyPart::Rows((view.rows)(&context));
        if begun { vec![rows] } else { vec![ReplyPart::Columns(view.columns.to_vec()), rows] }
    }

    /// Replies to the requesters of a PAUSE that a RESUME of this database (or of all) has undone.
    pub(crate) fn interrupt_pauses(&mut self, resumed: Option<&str>) {
        let undone = self.requests.close_where(|request| match &request.purpose {
            Purpose::Pause(paused) | Purpose::FleetPause(paused) => paused.as_deref() == resumed,
            Purpose::Suspend => resumed.is_none(),
            _ => false,
        });
        for requester in undone.into_iter().filter_map(|request| request.requester) {
            self.refuse(requester, &CommandError::Interrupted);
        }
        self.report_fleet_pools();
    }

    pub(crate) fn pause_shards(&mut self, requester: Option<Requester>, database: Option<String>) {
        let purpose = Purpose::Pause(database.clone());
        self.request_all(requester, purpose, true, |request| Command::Pause {
            request,
            database: database.clone(),
        });
    }

    pub(crate) fn resume_shards(&mut self, database: Option<String>) {
        self.interrupt_pauses(database.as_deref());
        self.broadcast(&Command::Resume { database: database.clone() });
        // It may be paused in the predecessor too, whose console is this one now.
        self.push(Output::ResumePredecessor { database });
    }

    /// RELOAD or SIGHUP.
    pub(crate) fn request_reload(&mut self, requester: Option<Requester>) {
        self.loading.push_back(Loading { requester, done: "RELOAD".to_owned() });
        self.push(Output::ReopenLog); // Both release a rotated log file.
        self.push(Output::Load);
    }
}

/// The columns of a command's result, if it has rows.
fn columns_of(
    context: &CommandContext<'_>,
    word: &str,
    argument: Option<&str>,
) -> Result<Option<Vec<Column>>, CommandError> {
    let row =
        COMMANDS.iter().find(|row| row.word.eq_ignore_ascii_case(word)).ok_or_else(|| context.invalid())?;
    if context.role < row.role {
        return Err(CommandError::AdminNeeded);
    }
    if !matches!(row.word, "SHOW" | "SELECT") {
        return Ok(None);
    }
    let name = argument.unwrap_or_default();
    if let Some((name, _)) = SESSION.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        return Ok(Some(vec![Column { name, kind: ColumnType::Text }]));
    }
    let view =
        VIEWS.iter().find(|view| view.name.eq_ignore_ascii_case(name)).ok_or_else(|| context.invalid())?;
    Ok((!view.is_help).then(|| view.columns.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Input;
    use crate::harness::{Harness, SECOND_US, empty};
    use messages::{PoolRow, SocketRow};
    use telemetry::Counters;

    fn sockets(ids: std::ops::Range<u64>) -> Listing {
        Listing::Sockets(ids.map(|id| SocketRow { id, state: "idle", ..SocketRow::default() }).collect())
    }

    #[test]
    fn long_listings_go_out_as_they_come() {
        let mut harness = Harness::new();
        harness.ask("SHOW CLIENTS");
        harness.listing(0, sockets(0..500), false);
        assert!(!harness.replies[0].last);
        assert!(
            matches!(harness.parts(), [ReplyPart::Columns(columns), ReplyPart::Rows(rows)] if columns.len() == 21 && rows.len() == 500)
        );
        harness.listing(1, sockets(500..501), true);
        harness.listing(0, sockets(501..502), true);
        assert!(harness.replies[2].last);
        assert!(
            matches!(harness.parts(), [ReplyPart::Rows(rows), ReplyPart::Complete("SHOW")] if rows.len() == 1)
        );
    }

    #[test]
    fn a_silent_shard_fails_only_its_own_requests_by_timeout() {
        let mut harness = Harness::new();
        harness.ask("SHOW POOLS");
        harness.listing(0, empty(Subject::Pools), true);
        harness.ask("SHOW VERSION");
        assert_eq!(harness.tag(), "SHOW");
        harness.now_us = harness.control.deadline();
        assert!(harness.now_us <= 10 * SECOND_US);
        harness.input(Input::Tick);
        assert_eq!(harness.error().0, "58000");
        let replies = harness.replies.len();
        harness.listing(1, empty(Subject::Pools), true);
        assert_eq!(harness.replies.len(), replies, "late replies are dropped");
    }

    #[test]
    fn the_counters_are_sampled_every_period() {
        let mut harness = Harness::new();
        for round in 1..=2 {
            harness.now_us = round * 60 * SECOND_US;
            assert_eq!(harness.control.deadline(), harness.now_us);
            harness.input(Input::Tick);
            let counters = Counters { xact_count: 1_200 * (round - 1), ..Counters::default() };
            let pool = PoolRow { database: "app".into(), counters, ..PoolRow::default() };
            harness.listing(0, Listing::Pools(vec![pool]), true);
            harness.listing(1, empty(Subject::Pools), true);
        }
        assert!(harness.logged("stats: 20 xacts/s, "), "{:?}", harness.log);
    }

    #[test]
    fn the_panel_is_answered_by_number_and_never_through_a_shard() {
        let mut harness = Harness::new();
        let ask = |harness: &mut Harness, role, argument: &str| {
            let statement =
                Statement::Command { word: "SHOW".to_owned(), argument: Some(argument.to_owned()) };
            harness.input(Input::PanelQuery(PanelQuery { id: 7, role, statement }));
            harness.answers.pop()
        };
        let Some((7, parts, true)) = ask(&mut harness, Role::Stats, "VERSION") else { panic!("no answer") };
        assert_eq!(parts.last(), Some(&ReplyPart::Complete("SHOW")));
        let no = ask(&mut harness, Role::Stats, "FDS").expect("an answer");
        assert!(matches!(&no.1[..], [ReplyPart::Error { sqlstate: "42501", .. }]));
        let no = ask(&mut harness, Role::Admin, "x; SHUTDOWN").expect("an answer");
        assert!(matches!(&no.1[..], [ReplyPart::Error { sqlstate: "42601", .. }]));
        assert!(harness.replies.is_empty() && !harness.exited);
    }

    #[test]
    fn a_description_runs_nothing() {
        let mut harness = Harness::new();
        let describe = |harness: &mut Harness, sql: &str| {
            let query = AdminQuery { mode: StatementMode::Describe, ..harness.query(Role::Admin, sql) };
            harness.input(Input::Report(messages::Report::Query(query)));
            harness.parts().to_vec()
        };
        let parts = describe(&mut harness, "SHOW POOLS");
        assert!(
            matches!(&parts[..], [ReplyPart::Parameters(0), ReplyPart::Columns(columns)] if columns.len() == 17)
        );
        for sql in ["RELOAD", "SHOW HELP", "", "SET verbose = 1"] {
            assert_eq!(
                describe(&mut harness, sql),
                [ReplyPart::Parameters(0), ReplyPart::NoColumns],
                "{sql}"
            );
        }
        assert_eq!(
            describe(&mut harness, "KILL_CLIENT $1"),
            [ReplyPart::Parameters(1), ReplyPart::NoColumns]
        );
        assert!(matches!(&describe(&mut harness, "SHOW nothing")[..], [ReplyPart::Error { .. }]));
        assert!(harness.told.is_empty() && harness.loads == 0);
    }

    #[test]
    fn stats_users_see_every_view_but_the_descriptors() {
        for view in VIEWS {
            let mut harness = Harness::with(0, "");
            harness.ask_as(Role::Stats, &format!("select {}", view.name.to_lowercase()));
            if view.name == "FDS" {
                assert_eq!(harness.error(), ("42501", "admin access needed"));
                continue;
            }
            for (request, subject) in std::mem::take(&mut harness.lists) {
                let rows = empty(subject);
                let report =
                    messages::Report::Listing { request, shard: messages::ShardId(0), rows, last: true };
                harness.input(Input::Report(report));
            }
            assert_eq!(harness.tag(), "SHOW", "{}", view.name);
        }
    }
}
