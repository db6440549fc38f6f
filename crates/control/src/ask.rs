//! From a statement to the shards and back: who may ask, what is asked of whom, when the answer is whole.
//! Never knows what a single command or view does: the tables do.

use messages::{
    AdminQuery, Cell, Column, ColumnType, Command, Listing, ReplyPart, RequestId, Role, StatementMode,
    Subject,
};

use crate::commands::{CommandRow, SESSION};
use crate::control::{Loading, Output};
use crate::gathered::Gathered;
use crate::request::{Asker, Purpose, Request};
use crate::views::Scene;
use crate::{COMMANDS, Control, Misread, Question, Refusal, Statement, VIEWS, View};

/// How long shards have to answer what needs no waiting.
const PATIENCE_US: u64 = 5_000_000;

/// A statement with whom it is from, on its way to a command.
pub(crate) struct Ask<'a> {
    pub(crate) asker: Asker,
    pub(crate) role: Role,
    pub(crate) argument: Option<&'a str>,
    /// The statement as it was sent, for the answer to a bad one.
    pub(crate) sql: &'a str,
}

impl Ask<'_> {
    pub(crate) fn invalid(&self) -> Refusal {
        Refusal::InvalidCommand(self.sql.to_owned())
    }
}

impl Control {
    /// Answers a statement, now or when the shards have.
    pub(crate) fn answer(&mut self, query: AdminQuery) {
        let asker = Asker::of(&query);
        let ask = Ask { asker, role: query.role, argument: None, sql: &query.sql };
        let read = (self.grammar)(&query.sql, query.parameters.as_deref());
        if query.mode == StatementMode::Describe {
            return self.describe(&ask, read);
        }
        match read {
            Ok(statement) => self.run(ask, &statement),
            Err(_) => self.refuse(asker, &ask.invalid()),
        }
    }

    /// Answers the panel, which asks as a console client does but in parsed statements.
    pub(crate) fn answer_question(&mut self, question: Question) {
        let sql = question.in_words();
        let asker = Asker::Panel { id: question.id };
        let ask = Ask { asker, role: question.role, argument: None, sql: &sql };
        self.run(ask, &question.statement);
    }

    fn run<'a>(&mut self, mut ask: Ask<'a>, statement: &'a Statement) {
        let outcome = match statement {
            Statement::Empty => {
                self.reply(ask.asker, vec![ReplyPart::Empty], true);
                Ok(())
            }
            Statement::Set { key, value } => self.set(&ask, key, value),
            Statement::Command { word, argument } => {
                ask.argument = argument.as_deref();
                self.command(word, &ask)
            }
        };
        if let Err(refusal) = outcome {
            self.refuse(ask.asker, &refusal);
        }
    }

    fn command(&mut self, word: &str, ask: &Ask<'_>) -> Result<(), Refusal> {
        let row = COMMANDS.iter().find(|row| row.word.eq_ignore_ascii_case(word));
        let row: &CommandRow = row.ok_or_else(|| ask.invalid())?;
        if !row.argument.allows(ask.argument) {
            return Err(ask.invalid());
        }
        if ask.role < row.role {
            return Err(Refusal::AdminNeeded);
        }
        (row.run)(self, ask)
    }

    /// Says what a statement would give, without running it.
    fn describe(&mut self, ask: &Ask<'_>, read: Result<Statement, Misread>) {
        let described = read.map_err(|_| ask.invalid()).and_then(|statement| {
            let columns = match &statement {
                Statement::Command { word, argument } => columns_of(ask, word, argument.as_deref())?,
                Statement::Empty | Statement::Set { .. } => None,
            };
            Ok(vec![
                ReplyPart::Parameters(statement.parameters()),
                columns.map_or(ReplyPart::NoColumns, ReplyPart::Columns),
            ])
        });
        match described {
            Ok(parts) => self.reply(ask.asker, parts, true),
            Err(refusal) => self.refuse(ask.asker, &refusal),
        }
    }

    /// Looks at a view: what needs no shard is answered at once.
    pub(crate) fn show(&mut self, ask: &Ask<'_>) -> Result<(), Refusal> {
        let name = ask.argument.unwrap_or_default();
        if let Some((name, value)) = SESSION.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            let column = Column { name, kind: ColumnType::Text };
            let row = vec![Cell::from(*value)];
            let parts = vec![
                ReplyPart::Columns(vec![column]),
                ReplyPart::Rows(vec![row]),
                ReplyPart::Complete("SHOW"),
            ];
            self.reply(ask.asker, parts, true);
            return Ok(());
        }
        let view =
            VIEWS.iter().find(|view| view.name.eq_ignore_ascii_case(name)).ok_or_else(|| ask.invalid())?;
        if ask.role < view.role {
            return Err(Refusal::AdminNeeded);
        }
        let gathered = Gathered::default();
        self.list(Some(ask.asker), view.from, Purpose::View { view, gathered, begun: false });
        Ok(())
    }

    /// Asks every shard, or the process, for rows of each subject.
    pub(crate) fn list(&mut self, asker: Option<Asker>, subjects: &'static [Subject], purpose: Purpose) {
        let of_one = |subject: &Subject| if subject.is_process_wide() { 1 } else { self.facts.shards };
        let owed = subjects.iter().map(of_one).map(usize::from).sum();
        let deadline_us = Some(self.now_us + PATIENCE_US);
        let request = self.requests.open(Request { asker, owed, deadline_us, purpose });
        for &subject in subjects {
            if subject.is_process_wide() {
                self.push(Output::List { request, subject });
            } else {
                self.tell_all(&Command::List { request, subject });
            }
        }
        if owed == 0 {
            self.finish(request);
        }
    }

    /// Asks something of every shard that each answers with one Done. `waits` is for what may take as long as it takes.
    pub(crate) fn ask_all(
        &mut self,
        asker: Option<Asker>,
        purpose: Purpose,
        waits: bool,
        command: impl Fn(RequestId) -> Command,
    ) {
        let owed = usize::from(self.facts.shards);
        let deadline_us = (!waits).then_some(self.now_us + PATIENCE_US);
        let request = self.requests.open(Request { asker, owed, deadline_us, purpose });
        self.tell_all(&command(request));
    }

    /// A slice of a listing has come.
    pub(crate) fn listed(&mut self, id: RequestId, rows: Listing, last: bool) {
        let patience = self.now_us + PATIENCE_US;
        let Some(request) = self.requests.find(id) else { return };
        request.deadline_us = Some(patience);
        request.owed -= usize::from(last && request.owed > 0);
        let is_over = request.owed == 0;
        match &mut request.purpose {
            Purpose::View { gathered, view, .. } => {
                gathered.add(rows);
                if view.is_streamed && !is_over {
                    self.send_rows_so_far(id);
                }
            }
            Purpose::Sample(gathered) | Purpose::Attendance(gathered) => gathered.add(rows),
            _ => {}
        }
        if is_over {
            self.finish(id);
        }
    }

    /// A shard has done what it was asked.
    pub(crate) fn done(&mut self, id: RequestId, count: u64) {
        let Some(request) = self.requests.find(id) else { return };
        if let Purpose::KillClient(closed) = &mut request.purpose {
            *closed += count;
        }
        request.owed = request.owed.saturating_sub(1);
        if request.owed == 0 {
            self.finish(id);
        }
    }

    /// Every shard has answered.
    fn finish(&mut self, id: RequestId) {
        let Some(Request { asker, purpose, .. }) = self.requests.close(id) else { return };
        match (purpose, asker) {
            (Purpose::View { view, gathered, begun }, Some(asker)) => {
                let mut parts = self.parts(view, &gathered, begun);
                parts.push(ReplyPart::Complete("SHOW"));
                self.reply(asker, parts, true);
            }
            (Purpose::Sample(gathered), _) => {
                self.statistics.sample(gathered.counters(), self.now_us);
                if self.config.global.log_stats {
                    let line = self.statistics.line(self.now_us);
                    self.log(line);
                }
            }
            (Purpose::Attendance(gathered), _) => self.attended(&gathered),
            (Purpose::Pause(_), Some(asker)) => self.complete(asker, "PAUSE"),
            (Purpose::Kill, Some(asker)) => self.complete(asker, "KILL"),
            (Purpose::Suspend, Some(asker)) => self.complete(asker, "SUSPEND"),
            (Purpose::WaitClose, Some(asker)) => self.complete(asker, "WAIT_CLOSE"),
            (Purpose::KillClient(0), Some(asker)) => self.refuse(asker, &Refusal::ClientNotFound),
            (Purpose::KillClient(_), Some(asker)) => self.complete(asker, "KILL_CLIENT"),
            (Purpose::Shutdown, _) => self.end(),
            (_, None) => {}
        }
    }

    /// Sends what a long listing has brought, so that it is not held here.
    fn send_rows_so_far(&mut self, id: RequestId) {
        let Some(Request { asker: Some(asker), purpose: Purpose::View { view, gathered, begun }, .. }) =
            self.requests.find(id)
        else {
            return;
        };
        let (asker, view, gathered) = (*asker, *view, std::mem::take(gathered));
        let begun = std::mem::replace(begun, true);
        let parts = self.parts(view, &gathered, begun);
        self.reply(asker, parts, false);
    }

    fn parts(&self, view: &View, gathered: &Gathered, begun: bool) -> Vec<ReplyPart> {
        let scene = Scene {
            config: &self.config,
            facts: &self.facts,
            pausing: &self.pausing,
            statistics: &self.statistics,
            gathered,
            now_us: self.now_us,
        };
        if let Some(notice) = view.notice {
            return vec![ReplyPart::NoticeWithDetail("Console usage".to_owned(), notice())];
        }
        let rows = ReplyPart::Rows((view.rows)(&scene));
        if begun { vec![rows] } else { vec![ReplyPart::Columns(view.columns.to_vec()), rows] }
    }

    /// Answers everybody who waits for a PAUSE that a RESUME of this database (or of all) has undone.
    pub(crate) fn interrupt_pauses(&mut self, resumed: Option<&str>) {
        let undone = self.requests.close_where(|request| match &request.purpose {
            Purpose::Pause(paused) => paused.as_deref() == resumed,
            Purpose::Suspend => resumed.is_none(),
            _ => false,
        });
        for asker in undone.into_iter().filter_map(|request| request.asker) {
            self.refuse(asker, &Refusal::Interrupted);
        }
    }

    pub(crate) fn pause_shards(&mut self, asker: Option<Asker>, database: Option<String>) {
        let purpose = Purpose::Pause(database.clone());
        self.ask_all(asker, purpose, true, |request| Command::Pause { request, database: database.clone() });
    }

    pub(crate) fn resume_shards(&mut self, database: Option<String>) {
        self.interrupt_pauses(database.as_deref());
        self.tell_all(&Command::Resume { database: database.clone() });
        // It was paused there before it was here, and its console is this one now.
        self.push(Output::ResumePredecessor { database });
    }

    /// RELOAD or SIGHUP.
    pub(crate) fn ask_for_reload(&mut self, asker: Option<Asker>) {
        self.loading.push_back(Loading { asker, done: "RELOAD".to_owned() });
        self.push(Output::ReopenLog); // A rotated log file is let go of with either.
        self.push(Output::Load);
    }
}

/// The columns that a command gives, if it gives rows.
fn columns_of(ask: &Ask<'_>, word: &str, argument: Option<&str>) -> Result<Option<Vec<Column>>, Refusal> {
    let row = COMMANDS.iter().find(|row| row.word.eq_ignore_ascii_case(word)).ok_or_else(|| ask.invalid())?;
    if ask.role < row.role {
        return Err(Refusal::AdminNeeded);
    }
    if !matches!(row.word, "SHOW" | "SELECT") {
        return Ok(None);
    }
    let name = argument.unwrap_or_default();
    if let Some((name, _)) = SESSION.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        return Ok(Some(vec![Column { name, kind: ColumnType::Text }]));
    }
    let view = VIEWS.iter().find(|view| view.name.eq_ignore_ascii_case(name)).ok_or_else(|| ask.invalid())?;
    Ok(view.notice.is_none().then(|| view.columns.to_vec()))
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
    fn a_silent_shard_hangs_nobody_but_its_asker_and_that_not_for_ever() {
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
        assert_eq!(harness.replies.len(), replies, "what comes later goes nowhere");
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
            harness.input(Input::Ask(Question { id: 7, role, statement }));
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
