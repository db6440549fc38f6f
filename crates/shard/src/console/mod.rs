//! The console's connections: the sockets are here, statements are executed by the control thread.
//!
//! Owns the greeting of the `pgbouncer` database, taking messages out of the stream one at a time, and the order of the
//! answers, in the simple and in the extended protocol. Never knows a command.

use messages::{AdminQuery, AdminReply, ReplyPart, Report, Role, StatementMode};
use telemetry::Level;
use wire::backend::Status;
use wire::tag::frontend as tag;
use wire::{encode, frame, frontend, sqlstate};

use crate::client::Phase;
use crate::console_session::answer::Formats;
use crate::console_session::{ConsoleSession, PendingStatement, Refused, answer};
use crate::core::Core;
use crate::link::client_end;
use crate::login::counting;
use crate::state::ShardState;
use crate::{Action, ConnId};

/// A statement (or whatever a console client sends as one) may be this long.
const STATEMENT_BYTES: u32 = 1024 * 1024;

/// The parameters that the console reports, as PgBouncer's does.
const PARAMETERS: [(&str, &str); 8] = [
    ("server_version", "1.25.2/bouncer"),
    ("client_encoding", "UTF8"),
    ("server_encoding", "UTF8"),
    ("DateStyle", "ISO"),
    ("TimeZone", "GMT"),
    ("standard_conforming_strings", "on"),
    ("is_superuser", "on"),
    ("integer_datetimes", "on"),
];

impl ShardState {
    /// The client may use the console: sends its greeting.
    pub(crate) fn console_opened(&mut self, conn: ConnId, role: Role, minor: u16) {
        if !counting::count_in_console(&mut self.core, conn, role) {
            return;
        }
        let Some(client) = self.core.client(conn) else { return };
        client.phase = Phase::Console(Box::new(ConsoleSession::new(role)));
        self.give_cancel_key(conn, minor);
        let Some(client) = self.core.conns.client(conn) else { return };
        let key = &client.cancel_key;
        self.core.outbox.write(conn, |out| {
            encode::authentication_ok(out);
            for (name, value) in PARAMETERS {
                encode::parameter_status(out, name.as_bytes(), value.as_bytes());
            }
            encode::key_data(out, key.process_id(), key.secret());
            encode::ready(out, Status::Idle);
        });
        self.console.client_login_count += 1;
        self.core.act(Action::LoginComplete { conn });
        self.console_goes_on(conn);
    }

    /// Bytes of a console client.
    pub(crate) fn console_received(&mut self, conn: ConnId, bytes: &[u8]) {
        self.console.bytes_received += bytes.len() as u64;
        let Some(client) = self.core.client(conn) else { return };
        client.request.held.extend_from_slice(bytes);
        if client.request.held.len() > 2 * STATEMENT_BYTES as usize {
            return client_end::fail_client(
                &mut self.core,
                conn,
                sqlstate::PROGRAM_LIMIT,
                "statement too long",
            );
        }
        self.console_goes_on(conn);
    }

    /// Takes the next messages, up to one that the control thread has to answer. A client that does not read its answers gets
    /// no more of them.
    pub(crate) fn console_goes_on(&mut self, conn: ConnId) {
        let Some(client) = self.core.client(conn) else { return };
        let (mut held, mut at) = (std::mem::take(&mut client.request.held), 0);
        while let Some(bytes) = self.console_takes_next(conn, &held[at..]) {
            at += bytes;
        }
        if let Some(client) = self.core.client(conn) {
            held.drain(..at); // At once: what is behind would be moved for each message.
            client.request.held = held;
        }
    }

    /// The next message of a console client; the answer is its length. None if it has to wait, is not all here, or ends the client.
    fn console_takes_next(&mut self, conn: ConnId, held: &[u8]) -> Option<usize> {
        let client = self.core.client(conn)?;
        let Phase::Console(session) = &client.phase else { return None };
        if client.send_buffer_full || !matches!(session.asked, PendingStatement::Nothing) {
            return None;
        }
        let header = match frame::header(held) {
            Ok(None) => return None,
            Ok(Some(header)) if header.frame_bytes <= STATEMENT_BYTES => header,
            _ => {
                client_end::fail_client(
                    &mut self.core,
                    conn,
                    sqlstate::PROTOCOL_VIOLATION,
                    "invalid message length",
                );
                return None;
            }
        };
        let bytes = header.frame_bytes as usize;
        let body = held.get(frame::HEADER_BYTES..bytes)?;
        match header.tag {
            tag::TERMINATE => client_end::disconnect_client(&mut self.core, conn, "client close request"),
            known if wire::tag::is_frontend(known) => self.console_message(conn, known, body),
            other => client_end::client_fault(&mut self.core, conn, &session::ClientFault::UnknownTag(other)),
        }
        Some(bytes)
    }

    /// One message. After an error of the extended protocol all but Sync is ignored.
    fn console_message(&mut self, conn: ConnId, kind: u8, body: &[u8]) {
        let Some(session) = self.core.console_session(conn) else { return };
        if kind == tag::SYNC {
            session.sync();
            return self.core.outbox.write(conn, |out| encode::ready(out, Status::Idle));
        }
        if session.skipping {
            return;
        }
        let outcome = match kind {
            tag::QUERY => return self.console_query(conn, body),
            tag::PARSE => session.parse(body).map(|()| Some(encode::parse_complete as fn(&mut Vec<u8>))),
            tag::BIND => session.bind(body).map(|()| Some(encode::bind_complete as fn(&mut Vec<u8>))),
            tag::CLOSE => session.close(body).map(|()| Some(encode::close_complete as fn(&mut Vec<u8>))),
            tag::DESCRIBE => session.describe(body).map(|(sql, values, asked)| {
                self.console_asks(conn, sql, values, asked);
                None
            }),
            tag::EXECUTE => session.execute(body).map(|(portal, limit)| {
                self.console_executes(conn, portal, limit);
                None
            }),
            tag::FUNCTION_CALL => {
                let text = "function calls are not supported by the admin console";
                self.core.count_error(conn, sqlstate::FEATURE_NOT_SUPPORTED);
                return self.core.outbox.write(conn, |out| {
                    encode::error(out, "ERROR", sqlstate::FEATURE_NOT_SUPPORTED, text);
                    encode::ready(out, Status::Idle);
                });
            }
            // Flush: nothing is kept back. COPY data: no COPY runs. A password: none was requested.
            _ => Ok(None),
        };
        match outcome {
            Ok(Some(done)) => self.core.outbox.write(conn, done),
            Ok(None) => {}
            Err(refused) => self.console_refuses(conn, &refused),
        }
    }

    fn console_refuses(&mut self, conn: ConnId, (sqlstate, text): &Refused) {
        if let Some(session) = self.core.console_session(conn) {
            session.skipping = true;
        }
        self.core.count_error(conn, sqlstate);
        self.core.outbox.write(conn, |out| encode::error(out, "ERROR", sqlstate, text));
    }

    fn console_query(&mut self, conn: ConnId, body: &[u8]) {
        let Some(sql) = frontend::query_text(body) else {
            return client_end::fail_client(
                &mut self.core,
                conn,
                sqlstate::PROTOCOL_VIOLATION,
                "invalid message format",
            );
        };
        let sql = String::from_utf8_lossy(sql).into_owned();
        if let Some(session) = self.core.console_session(conn) {
            session.sync();
        }
        self.console_asks(conn, sql, None, PendingStatement::Simple);
    }

    /// Asks the control thread; the next message waits for its answer.
    fn console_asks(
        &mut self,
        conn: ConnId,
        sql: String,
        parameters: Option<Vec<Option<String>>>,
        asked: PendingStatement,
    ) {
        let (shard, now_us) = (self.core.id, self.core.now.mono_us);
        let Some(client) = self.core.client(conn) else { return };
        let Phase::Console(session) = &mut client.phase else { return };
        let mode = if matches!(asked, PendingStatement::Description(..)) {
            StatementMode::Describe
        } else {
            StatementMode::Run
        };
        session.asked = asked;
        client.request_us = now_us;
        let (client_id, role) = (client.id, session.role);
        if mode == StatementMode::Run {
            // Now and not when it is over: SHOW STATS and SHOW TOTALS count themselves.
            self.console.query_count += 1;
            self.console.xact_count += 1;
        }
        let query = AdminQuery { shard, client: conn.0, client_id, role, sql, parameters, mode };
        self.core.report(Report::Query(query));
    }

    /// Runs a portal, or continues one that was suspended.
    fn console_executes(&mut self, conn: ConnId, name: Vec<u8>, limit: u32) {
        let Some(portal) = self.core.console_session(conn).and_then(|session| session.portals.get_mut(&name))
        else {
            return;
        };
        if portal.left.is_some() {
            return self.core.console_fetches(conn, &name, limit);
        }
        let (sql, values) = (portal.sql.clone(), portal.values.clone());
        self.console_asks(conn, sql, Some(values), PendingStatement::Execution(name, limit));
    }

    /// The control thread has answered.
    pub(crate) fn console_reply(&mut self, reply: AdminReply) {
        let conn = ConnId(reply.client);
        let now_us = self.core.now.mono_us;
        let Some(client) = self.core.client(conn).filter(|client| client.id == reply.client_id) else {
            return;
        };
        let took_us = now_us.saturating_sub(client.request_us);
        self.core.log_refusals(conn, &reply.parts);
        let Some(session) = self.core.console_session(conn) else { return };
        let last = reply.last;
        let asked = if last { std::mem::take(&mut session.asked) } else { session.asked.clone() };
        match &asked {
            PendingStatement::Nothing => return,
            PendingStatement::Simple => self.core.console_answers(conn, &reply.parts, last),
            PendingStatement::Description(types, formats) => {
                self.core.console_describes(conn, &reply.parts, types.as_deref(), formats);
            }
            PendingStatement::Execution(portal, limit) => {
                self.core.console_gives(conn, portal, *limit, reply.parts, last)
            }
        }
        if last && !matches!(asked, PendingStatement::Description(..)) {
            self.console.query_time += took_us;
            self.console.xact_time += took_us;
        }
        self.console_goes_on(conn);
    }
}

impl Core {
    fn console_session(&mut self, conn: ConnId) -> Option<&mut ConsoleSession> {
        match &mut self.client(conn)?.phase {
            Phase::Console(session) => Some(session),
            _ => None,
        }
    }

    fn console_fetches(&mut self, conn: ConnId, name: &[u8], limit: u32) {
        let Some(portal) = self.console_session(conn).and_then(|session| session.portals.get_mut(name))
        else {
            return;
        };
        let (rows, end) = portal.left.get_or_insert_default().fetch(limit);
        let formats = portal.formats.clone();
        self.outbox.write(conn, |out| {
            rows.iter().for_each(|cells| answer::row(out, cells, &formats));
            match &end {
                Some(end) => answer::part(out, end, &formats),
                None => encode::portal_suspended(out),
            }
        });
    }

    /// To a simple query: all of it, as text.
    fn console_answers(&mut self, conn: ConnId, parts: &[ReplyPart], last: bool) {
        self.outbox.write(conn, |out| {
            parts.iter().for_each(|part| answer::part(out, part, &Formats::default()));
            if last {
                encode::ready(out, Status::Idle);
            }
        });
    }

    /// What a console client is refused stands in the log like what any other is.
    fn log_refusals(&mut self, conn: ConnId, parts: &[ReplyPart]) {
        if !self.config.global.log_pooler_errors {
            return;
        }
        for part in parts {
            if let ReplyPart::Error { message, .. } = part {
                self.log_client(conn, Level::Warning, &format!("pooler error: {message}"));
            }
        }
    }

    /// To Describe: the parameters are a statement's to have.
    fn console_describes(
        &mut self,
        conn: ConnId,
        parts: &[ReplyPart],
        types: Option<&[u32]>,
        formats: &Formats,
    ) {
        let failed = parts.iter().any(|part| matches!(part, ReplyPart::Error { .. }));
        if let Some(session) = self.console_session(conn) {
            session.skipping |= failed;
        }
        self.outbox.write(conn, |out| {
            for part in parts {
                match (part, types) {
                    (ReplyPart::Parameters(count), Some(types)) => answer::parameters(out, *count, types),
                    _ => answer::part(out, part, formats),
                }
            }
        });
    }

    /// To Execute: rows without their description; with a limit they are kept until they are fetched.
    fn console_gives(&mut self, conn: ConnId, name: &[u8], limit: u32, parts: Vec<ReplyPart>, last: bool) {
        let Some(session) = self.console_session(conn) else { return };
        session.skipping |= parts.iter().any(|part| matches!(part, ReplyPart::Error { .. }));
        let Some(portal) = session.portals.get_mut(name) else { return };
        let formats = portal.formats.clone();
        let left = portal.left.get_or_insert_default();
        let mut now = Vec::new();
        for part in parts {
            match part {
                ReplyPart::Columns(_) => {}
                ReplyPart::Rows(rows) if limit > 0 => left.rows.extend(rows),
                ReplyPart::Complete(_) | ReplyPart::CompleteAs(_) if limit > 0 => left.end = Some(part),
                other => now.push(other),
            }
        }
        let fetches = last && left.end.is_some();
        self.outbox.write(conn, |out| now.iter().for_each(|part| answer::part(out, part, &formats)));
        if fetches {
            self.console_fetches(conn, name, limit);
        }
    }
}
