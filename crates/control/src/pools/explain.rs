//! EXPLAIN of a statement through one of the pools, without values and without running it.
//! Owns the form of the question. Never says ANALYZE: a plan is all that is asked for.

use messages::{Command, RequestId, ServerQuery, ServerQueryResult, ServerQueryRow, ShardId};

use crate::Control;
use crate::control::Output;

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

impl Control {
    /// Asks a server through the pool of an entry and a user; [`Output::Explained`] answers.
    pub(crate) fn explain(&mut self, request: ExplainRequest) {
        let ExplainRequest { id, database, user, statement, generic } = request;
        if self.is_ending() || self.hands_over || self.config.database(&database).is_none() {
            let outcome = Err("the pool cannot be asked now".to_owned());
            return self.push(Output::Explained { id, outcome });
        }
        if statement.contains(';') {
            let outcome = Err("the text may be more than one statement".to_owned());
            return self.push(Output::Explained { id, outcome });
        }
        // Options stand in parentheses: ANALYZE as the first word of the statement is a syntax error behind them.
        let options = if generic { "GENERIC_PLAN" } else { "COSTS" };
        let sql = format!("EXPLAIN ({options}) {statement}");
        self.explains.insert(id);
        let query = Box::new(ServerQuery { database, user, sql, values: Vec::new(), simple: true });
        let command = Command::RunServerQuery { request: RequestId(id), query };
        self.push(Output::Tell { shard: ShardId(0), command });
    }

    /// A server has answered, or there is no answer.
    pub(crate) fn explained(&mut self, id: u64, answer: &ServerQueryResult) {
        let line = |row: &ServerQueryRow| {
            let text = row.first().and_then(Option::as_deref).unwrap_or_default();
            String::from_utf8_lossy(text).into_owned()
        };
        let outcome = match answer {
            ServerQueryResult::Rows(rows) => Ok(rows.iter().map(line).collect()),
            ServerQueryResult::Failed { text, .. } => Err(text.clone()),
        };
        self.push(Output::Explained { id, outcome });
    }
}
