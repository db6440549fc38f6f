//! What statements about a session's state do, and what the pooler is answered that asks for it.

use super::extended::Prepared;
use super::holdings::{Listening, joined};
use super::reply;
use super::session::{Session, SessionContext};
use crate::session_sql::{BY_TRIGGER, HIDDEN, Question, SessionStatement};
use crate::sql::{Statement, Tag};

/// The table whose trigger sets something.
const AUDITED: &str = "audited";

/// The most channels that the pooler's question names.
const ASKED_CHANNELS: usize = 65;

impl Session {
    /// The value of a statement about the session that has not given its row.
    pub(super) fn evaluate_first(&mut self) -> Result<Option<String>, (&'static str, &'static str)> {
        let running = self.work.as_ref().and_then(|work| work.running.as_ref());
        let Some(running) = running.filter(|running| running.sent == 0) else { return Ok(None) };
        let (statement, tag) = (running.statement.clone(), running.tag);
        match &statement {
            Statement::Session(SessionStatement::Sequence(statement)) => {
                self.evaluate_sequence(statement, tag).map(Some)
            }
            Statement::Session(statement) => Ok(Some(self.evaluate(statement))),
            _ => Ok(None),
        }
    }

    /// The value in the one row of a statement that returns one, which is executed here.
    fn evaluate(&mut self, statement: &SessionStatement) -> String {
        use SessionStatement::*;
        match statement {
            CurrentSetting(name) => self.parameters.value(name).unwrap_or_default().to_owned(),
            ChangeSession(name, value) => {
                self.parameters.set(name, Some(value));
                value.clone()
            }
            HideSetting(value) => {
                self.parameters.set(HIDDEN, Some(value));
                value.clone()
            }
            Lock(key) | TakeLock(key) => {
                self.holdings.lock(*key);
                String::new()
            }
            Unlock(key) if self.holdings.unlock(*key) => "t".to_owned(),
            Unlock(_) => {
                self.notice("WARNING", "01000", "you don't own a lock of type ExclusiveLock", None);
                "f".to_owned()
            }
            UnlockAll => {
                self.holdings.unlock_all();
                String::new()
            }
            Locks => self.holdings.locks().to_string(),
            Cursors => self.holdings.cursors(),
            Channels => joined(self.holdings.channels().iter()),
            Prepared => {
                let names = self.statements.iter().filter(|(_, prepared)| prepared.is_of_sql());
                let names: Vec<_> = names.map(|(name, _)| String::from_utf8_lossy(name)).collect();
                names.join(",")
            }
            FindTemporary(name) if self.holdings.has_temporary(name) => name.clone(),
            SetConfigs(pairs) => {
                for (name, value) in pairs {
                    self.parameters.set(name, Some(value));
                }
                String::new()
            }
            _ => String::new(),
        }
    }

    /// A statement without rows; its command tag.
    pub(super) fn run_session_command(
        &mut self,
        statement: &SessionStatement,
        tag: Option<Tag>,
    ) -> Result<&'static str, (&'static str, &'static str)> {
        use SessionStatement::*;
        let done = |is_done: bool, word, refusal| if is_done { Ok(word) } else { Err(refusal) };
        match statement {
            CreateTemporary(name) => done(
                self.holdings.create_temporary(name),
                "CREATE TABLE",
                ("42P07", "relation already exists"),
            ),
            DropTemporary(name) => {
                done(self.holdings.drop_temporary(name), "DROP TABLE", ("42P01", "table does not exist"))
            }
            Declare(name) => {
                let is_new = self.holdings.declare(name, self.savepoints.len());
                done(is_new, "DECLARE CURSOR", ("42P03", "cursor already exists"))
            }
            Close(name) => {
                done(self.holdings.close(name), "CLOSE CURSOR", ("34000", "cursor does not exist"))
            }
            Listen(name) => {
                self.holdings.listen(Listening::Begin(name.clone()));
                Ok("LISTEN")
            }
            Unlisten(name) => {
                let ends = name.clone().map_or(Listening::EndAll, Listening::End);
                self.holdings.listen(ends);
                Ok("UNLISTEN")
            }
            Notify(channel, payload) => {
                self.holdings.notify(channel, payload);
                Ok("NOTIFY")
            }
            Sequence(statement) => self.evaluate_sequence(statement, tag).map(|_| "INSERT 0 1"),
            DiscardTemporary => {
                self.holdings.drop_all_temporary();
                Ok("DISCARD TEMP")
            }
            DiscardOther(what) if what == "PLANS" => Ok("DISCARD PLANS"),
            DiscardOther(_) => {
                self.sequences.discard();
                Ok("DISCARD SEQUENCES")
            }
            Audited(_) => {
                self.parameters.set(BY_TRIGGER.0, Some(BY_TRIGGER.1));
                Ok("INSERT 0 1")
            }
            _ => Ok(""),
        }
    }

    /// The pooler asks what this session holds.
    pub(super) fn answer_question(&mut self, question: &Question, near: &mut SessionContext<'_>) {
        if near.prng.chance(near.servers.question_fails_per_million) {
            return self.fail("57014", "canceling statement due to statement timeout", None, near);
        }
        let mut rows: Vec<[String; 3]> = Vec::new();
        let mut add = |name: &str, value: &str| {
            rows.push(["s".to_owned(), name.to_owned(), hex(value)]);
        };
        if question.all {
            self.parameters.of_session().for_each(|(name, value)| add(name, value));
        }
        for name in &question.named {
            if let Some(value) = self.parameters.value(name) {
                add(name, value);
            }
        }
        for letter in &question.kinds {
            if letter == "l" {
                let channels = self.holdings.channels().iter().take(ASKED_CHANNELS);
                rows.extend(channels.map(|name| [letter.clone(), String::new(), hex(name)]));
            }
            if self.holdings.has_kind(letter) {
                rows.push([letter.clone(), String::new(), String::new()]);
            } else if letter == "p" {
                rows.extend(self.prepared_rows());
            }
        }
        self.give_rows(&rows, near);
    }

    /// The statements that are not the pooler's own, with the texts of those that SQL has prepared.
    fn prepared_rows(&self) -> impl Iterator<Item = [String; 3]> {
        self.own_statements().map(|(name, prepared)| {
            let text = if prepared.is_of_sql() { hex(prepared.text()) } else { String::new() };
            ["p".to_owned(), hex(&String::from_utf8_lossy(name)), text]
        })
    }

    /// What `pg_prepared_statements` shows, but for names of the pooler's own.
    fn own_statements(&self) -> impl Iterator<Item = (&Vec<u8>, &Prepared)> {
        let is_poolers = |name: &[u8]| name.is_empty() || name.starts_with(b"PGBOUNCER_");
        self.statements.iter().filter(move |(name, _)| !is_poolers(name))
    }

    /// The pooler asks which tables change a session when they are used.
    pub(super) fn name_changing_relations(&mut self, near: &mut SessionContext<'_>) {
        self.give_rows(&[[hex(AUDITED)]], near);
    }

    fn give_rows<const COLUMNS: usize>(&mut self, rows: &[[String; COLUMNS]], near: &mut SessionContext<'_>) {
        for row in rows {
            reply::row(&mut self.out, &row.each_ref().map(String::as_bytes));
        }
        self.chatter(near);
        self.done(&format!("SELECT {}", rows.len()));
    }

    /// It holds what no other session can be given. What SQL has prepared can be prepared again.
    pub(crate) fn is_pinned(&self) -> bool {
        !self.holdings.are_none() || self.own_statements().any(|(_, prepared)| !prepared.is_of_sql())
    }

    /// The request of another client than this one that has prepared a statement which is there under that client's name.
    fn prepared_by_another(&self, client: u32) -> Option<Tag> {
        let tags = self.own_statements().filter_map(|(_, one)| Tag::in_comment(one.text().as_bytes()));
        tags.filter(|tag| tag.client != client).min()
    }

    /// A statement of a client begins: what this session holds is that client's, or none's.
    pub(super) fn note_client(&mut self, tag: Option<Tag>, near: &mut SessionContext<'_>) {
        // Some texts do not tell whose they are.
        let Some(tag) = tag else {
            self.used_by = self.used_by.filter(|_| !self.holdings.are_none());
            return;
        };
        if near.servers.keeps_sessions
            && self.used_by.is_some_and(|used_by| used_by != tag.client)
            && !self.holdings.are_none()
        {
            let text = format!("{tag} runs in the session of c{}", self.used_by.unwrap_or_default());
            near.strange.push(("I4", text));
        }
        if near.servers.keeps_sessions
            && let Some(other) = self.prepared_by_another(tag.client)
        {
            near.strange.push(("I4", format!("{tag} finds the statement that {other} has prepared")));
        }
        self.used_by = Some(tag.client);
    }
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}
