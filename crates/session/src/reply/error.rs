//! An ErrorResponse: whether the client hears of it, and what never happened because of it.
//!
//! Owns what is undone in the sets of statements, and noting what the client is told. Whether a request may be sent again is
//! judged in [`crate::replay`].

use wire::backend::Status;
use wire::encode;
use wire::frame::{HEADER_BYTES, Header};

use super::{Complaint, HELD_BYTES, Step, Verdict};
use crate::prepared::SERVER_NAME_HEAD;
use crate::{Owed, Reader, ServerFault, StatementId, replay};

impl Step<'_, '_> {
    #[cold]
    #[inline(never)]
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
                self.note_changed(body);
                if !fatal
                    && let Some(at) = self.server.boundary()
                    && let Some(reader) = self.may_replay(body)
                {
                    return Verdict::Replay(at, reader);
                }
                self.note_spoilt(body);
            }
        }
        if self.skips_unclear() && !self.replied.fatal {
            return Verdict::Fault(ServerFault::OutOfStep(header.tag));
        }
        self.complain(&rest[HEADER_BYTES..]);
        self.server.resets.failed |= self.server.resets.noted;
        let reworded = whole.filter(|_| !self.replied.fatal).and_then(|body| self.reword(body));
        self.server.copying_in = false;
        self.server.unsure_readies = match self.server.owes.front() {
            Some(Owed::Query) => 0, // Its own ReadyForQuery comes first.
            _ => std::mem::take(&mut self.server.copy_syncs),
        };
        let statements = &mut self.server.statements;
        let mut names = 0;
        self.server.skipping |= self.server.owes.fail(|owed| match owed {
            Owed::Parse(None) => statements.unnamed.skipped(),
            Owed::Parse(Some(statement)) => {
                statements.skipped(statement);
                names += 1;
            }
            Owed::OwnParse(statement) | Owed::OwnDescribe(statement, _) | Owed::OwnClose(statement) => {
                statements.skipped(statement);
            }
            Owed::SayParseComplete | Owed::SayCloseComplete => names += 1,
            _ => {}
        });
        if let Some(client) = &mut self.context.names {
            for _ in 0..names {
                client.undo(self.context.registry);
            }
            client.read_nothing_before(self.server.owes.answered(), self.context.registry);
        }
        self.settle_watch();
        let Some(frame) = reworded else { return Verdict::Pass };
        self.server.reworded = frame;
        Verdict::Reworded
    }

    /// Whether the requests behind a copy that fails by the extended protocol are skipped depends on a Sync among its data,
    /// which the server may have read before or behind the data it refuses. Nor does a Close fail.
    fn skips_unclear(&self) -> bool {
        match self.server.owes.front() {
            Some(Owed::Marker) => true,
            Some(Owed::Execute) => self.server.copy_syncs > 0 && self.server.owes.second_is_skipped(),
            _ => false,
        }
    }

    /// The error in the words that the client knows its request by.
    fn reword(&mut self, body: &[u8]) -> Option<Vec<u8>> {
        let mut frame = Vec::new();
        match self.server.owes.front()? {
            Owed::RefusedBind => encode::changed_result(&mut frame),
            Owed::Refused => {
                let name = self.server.owes.refused_name()?;
                let message = named_as(wire::error::parse(body).message()?, &name);
                encode::error_with_message(&mut frame, body, &message);
            }
            _ => return None,
        }
        Some(frame)
    }

    /// The client is told of it. The code stands near the beginning, also of an error that is not here whole.
    fn complain(&mut self, body: &[u8]) {
        let code = wire::error::parse(body).code().and_then(|code| code.as_array()).copied();
        let complaint = Complaint { code: code.unwrap_or_default(), behind: self.replied.ready };
        self.context.complaints.push(complaint);
    }

    fn may_replay(&mut self, error_body: &[u8]) -> Option<Reader> {
        let habit = self.context.names.as_ref().map(|names| names.habit).unwrap_or_default();
        let refused = self.server.may_replay(error_body, habit, self.context.registry)?;
        let statement = refused.statement;
        if let (Some(number), Some(names)) = (refused.described, &mut self.context.names)
            && !names.is_reading(statement)
        {
            match names.only_name(statement) {
                Some(name) => {
                    names.will_read(&name, statement, statement, Some(number), self.context.registry);
                }
                // It would not be known by which name the client reads anew.
                None if refused.is_reshaped => return None,
                None => {}
            }
        }
        Some(refused.reader)
    }

    /// The client is told that a statement's plan is spoilt, or that it is gone: at its next use it is prepared anew.
    fn note_spoilt(&mut self, error_body: &[u8]) {
        if let (Some(statement), true) = (self.statement_refused(), replay::is_spoilt(error_body)) {
            self.server.statements.mark_stale(statement);
        }
    }

    /// Tables have changed under a statement: no further client gets it. Those that prepare the same text get what PostgreSQL makes of it
    /// now, as the types of its parameters may be others.
    fn note_changed(&mut self, error_body: &[u8]) {
        let used = match self.server.owes.front() {
            Some(Owed::OwnParse(statement)) => Some(statement),
            _ => self.statement_refused(),
        };
        let Some(statement) = used else { return };
        let is_known = self.context.registry.description(statement).is_some();
        if replay::is_reshaped(error_body) || is_known && replay::is_misfit(error_body) {
            self.context.registry.retire(statement);
        }
    }

    fn statement_refused(&self) -> Option<StatementId> {
        match self.server.owes.front()? {
            Owed::Bind(Some(statement)) | Owed::Describe(Some(statement)) => Some(statement),
            Owed::WatchedBind(statement) | Owed::WatchedDescribe(statement) => Some(statement),
            _ => None,
        }
    }
}

/// A message about a prepared statement that Weir has sent under a shared name, with the name that the client uses. The
/// message may be translated; the quotes around the name may be others.
fn named_as(message: &[u8], name: &[u8]) -> Vec<u8> {
    if name.is_empty() {
        return b"unnamed prepared statement does not exist".to_vec();
    }
    let Some(start) = message.windows(SERVER_NAME_HEAD.len()).position(|part| part == SERVER_NAME_HEAD)
    else {
        return message.to_vec();
    };
    let behind = &message[start + SERVER_NAME_HEAD.len()..];
    let digits = behind.iter().take_while(|byte| byte.is_ascii_digit()).count();
    [&message[..start], name, &behind[digits..]].concat()
}
