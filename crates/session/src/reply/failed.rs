//! An ErrorResponse: whether the client hears of it, and what never happened because of it.
//!
//! Owns what is undone in the sets of statements, and noting what the client is told. Whether a request may be said again is judged in [`crate::replay`].

use wire::backend::Status;
use wire::frame::{HEADER_BYTES, Header};

use super::{Complaint, HELD_BYTES, Step, Verdict};
use crate::{Owed, StatementId, replay};

impl Step<'_, '_> {
    pub(super) fn error(&mut self, header: Header, rest: &[u8]) -> Verdict {
        let whole = rest.get(HEADER_BYTES..header.frame_bytes as usize);
        if self.server.owes.front() == Some(Owed::Own) {
            let verdict = self.swallow_body();
            if let (Verdict::Swallow, Some(body)) = (&verdict, whole) {
                *self.context.own_error = Some(body.to_vec());
            }
            return verdict;
        }
        let quiet = self.server.owes.is_empty() && self.server.status == Some(Status::Idle);
        if !self.context.audience || quiet && self.context.borrows {
            self.replied.fatal = true; // Nobody asked anything: the server takes its leave.
            return self.swallow_body();
        }
        // FATAL ends the connection: the client must not be told a second time.
        match whole {
            None if header.frame_bytes as usize <= HELD_BYTES => return Verdict::Hold,
            None => {}
            Some(body) => {
                let severity = wire::error::parse(body).severity().unwrap_or(b"");
                let fatal = severity == b"FATAL" || severity == b"PANIC";
                self.replied.fatal |= fatal;
                if !fatal && self.may_replay(body) {
                    self.note_reshaped(body);
                    return Verdict::Replay;
                }
                self.note_spoilt(body);
            }
        }
        self.complain(&rest[HEADER_BYTES..]);
        let refused = whole.is_some() && self.server.owes.front() == Some(Owed::RefusedBind);
        self.server.copying_in = false;
        self.server.unsure_readies += std::mem::take(&mut self.server.copy_syncs);
        let mut failed = Failed { server_statements: vec![], names: 0 };
        self.server.skipping |= self.server.owes.fail(|owed| failed.note(owed));
        self.undo(&failed);
        self.settle_watch();
        if refused && !self.replied.fatal { Verdict::Reworded } else { Verdict::Pass }
    }

    /// The client is told of it. The code stands near the beginning, also of an error that is not here whole.
    fn complain(&mut self, body: &[u8]) {
        let code = wire::error::parse(body).code().and_then(|code| code.as_array()).copied();
        let complaint = Complaint { code: code.unwrap_or_default(), behind: self.replied.ready };
        self.context.complaints.push(complaint);
    }

    fn may_replay(&self, error_body: &[u8]) -> bool {
        let habit = self.context.names.as_ref().map(|names| names.habit).unwrap_or_default();
        self.server.may_replay(error_body, habit, self.context.registry)
    }

    /// The client is told that a statement's plan is spoilt, or that it is gone: at its next use it is prepared anew.
    fn note_spoilt(&mut self, error_body: &[u8]) {
        if let (Some(statement), true) = (self.statement_refused(), replay::is_spoilt(error_body)) {
            self.reshape(statement, error_body);
            self.server.statements.spoil(statement);
        }
    }

    /// A request is said again whose client reads the rows by the description that comes with them, or by none.
    fn note_reshaped(&mut self, error_body: &[u8]) {
        let Some(statement) = self.statement_refused() else { return };
        if self.reshape(statement, error_body)
            && let Some(names) = &mut self.context.names
        {
            names.statement_described(statement, self.context.registry.shape(statement));
        }
    }

    /// True if the error tells of another result.
    fn reshape(&mut self, statement: StatementId, error_body: &[u8]) -> bool {
        let reshaped = replay::is_reshaped(error_body);
        if let (true, Some(prepared_at)) = (reshaped, self.server.statements.shape(statement)) {
            self.context.registry.reshape(statement, prepared_at);
        }
        reshaped
    }

    fn statement_refused(&self) -> Option<StatementId> {
        match self.server.owes.front()? {
            Owed::Bind(Some(statement)) | Owed::Describe(Some(statement)) => Some(statement),
            Owed::WatchedBind(statement) | Owed::WatchedDescribe(statement) => Some(statement),
            _ => None,
        }
    }

    /// What the error made the server skip never happened.
    fn undo(&mut self, failed: &Failed) {
        // The latest first: what was closed, then parsed again, was there before.
        for (statement, closed) in failed.server_statements.iter().rev() {
            if *closed {
                self.server.statements.doubt(*statement);
            } else if !cfg!(weir_bug = "parse_cached_early") {
                self.undo_parse(*statement);
            }
        }
        if let Some(names) = &mut self.context.names {
            for _ in 0..failed.names {
                names.undo(self.context.registry);
            }
        }
    }

    /// The server may have it for all that, if more was asked about it since.
    fn undo_parse(&mut self, statement: StatementId) {
        let (owes, statements) = (&self.server.owes, &mut self.server.statements);
        if owes.is_on_its_way(statement) || owes.is_closing(statement) {
            statements.spoil(statement);
        } else {
            statements.forget(statement);
        }
    }
}

/// What an error took with it.
struct Failed {
    /// Statements whose Parse (false) or Close (true) on the server did not happen.
    server_statements: Vec<(StatementId, bool)>,
    /// Named Parses and Closes of the client that did not happen.
    names: u32,
}

impl Failed {
    fn note(&mut self, owed: Owed) {
        match owed {
            Owed::Parse(Some(statement)) => {
                self.server_statements.push((statement, false));
                self.names += 1;
            }
            Owed::OwnParse(statement) => self.server_statements.push((statement, false)),
            Owed::OwnClose(statement) => self.server_statements.push((statement, true)),
            Owed::SayParseComplete | Owed::SayCloseComplete => self.names += 1,
            _ => {}
        }
    }
}
