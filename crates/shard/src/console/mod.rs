//! The console's connections: the sockets are here, statements are executed by the control thread.
//!
//! Owns the greeting of the `pgbouncer` database, taking messages out of the stream one at a time, and the order of the
//! answers, in the simple and in the extended protocol. Never knows a command.

use messages::{AdminQuery, AdminReply, ConsoleClient, ReplyPart, Report, Role, StatementMode};
use telemetry::{Counters, Level};
use wire::backend::Status;
use wire::tag::frontend as tag;
use wire::{encode, frame, frontend, sqlstate};

use crate::client::Phase;
use crate::console_session::answer::Formats;
use crate::console_session::{ConsoleSession, PendingStatement, Refused, answer};
use crate::core::Core;
use crate::link::{client_end, slow_login};
use crate::log_format::peer;
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

/// The console of a shard.
#[derive(Default)]
pub(crate) struct Console {
    /// It counts like a pool.
    counters: Counters,
}

impl Console {
    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }
}

impl Console {
    /// The client may use the console: sends its greeting.
    pub(crate) fn console_opened(&mut self, core: &mut Core, conn: ConnId, role: Role) {
        let Some(client) = core.client(conn) else { return };
        client.phase = Phase::Console(Box::new(ConsoleSession::new(role)));
        let Some(client) = core.conns.client(conn) else { return };
        let key = &client.cancel_key;
        core.outbox.write(conn, |out| {
            encode::authentication_ok(out);
            for (name, value) in PARAMETERS {
                encode::parameter_status(out, name.as_bytes(), value.as_bytes());
            }
            encode::key_data(out, key.process_id(), key.secret());
            encode::ready(out, Status::Idle);
        });
        self.counters.client_login_count += 1;
        core.act(Action::LoginComplete { conn });
        slow_login::succeeded(core, conn);
        self.console_goes_on(core, conn);
    }

    /// Bytes of a console client.
    pub(crate) fn console_received(&mut self, core: &mut Core, conn: ConnId, bytes: &[u8]) {
        self.counters.bytes_received += bytes.len() as u64;
        let Some(client) = core.client(conn) else { return };
        client.request.held.extend_from_slice(bytes);
        if client.request.held.len() > 2 * STATEMENT_BYTES as usize {
            return client_end::fail_client(core, conn, sqlstate::PROGRAM_LIMIT, "statement too long");
        }
        self.console_goes_on(core, conn);
    }

    /// Takes the next messages, up to one that the control thread has to answer. A client that does not read its answers gets
    /// no more of them.
    pub(crate) fn console_goes_on(&mut self, core: &mut Core, conn: ConnId) {
        let Some(client) = core.client(conn) else { return };
        let (mut held, mut at) = (std::mem::take(&mut client.request.held), 0);
        while let Some(bytes) = self.console_takes_next(core, conn, &held[at..]) {
            at += bytes;
        }
        if let Some(client) = core.client(conn) {
            held.drain(..at); // At once: what is behind would be moved for each message.
            client.request.held = held;
        }
    }

    /// The next message of a console client; the answer is its length. None if it has to wait, is not all here, or ends the client.
    fn console_takes_next(&mut self, core: &mut Core, conn: ConnId, held: &[u8]) -> Option<usize> {
        let client = core.client(conn)?;
        let Phase::Console(session) = &client.phase else { return None };
        if client.send_buffer_full || !matches!(session.asked, PendingStatement::Nothing) {
            return None;
        }
        let header = match frame::header(held) {
            Ok(None) => return None,
            Ok(Some(header)) if header.frame_bytes <= STATEMENT_BYTES => header,
            _ => {
                client_end::fail_client(core, conn, sqlstate::PROTOCOL_VIOLATION, "invalid message length");
                return None;
            }
        };
        let bytes = header.frame_bytes as usize;
        let body = held.get(frame::HEADER_BYTES..bytes)?;
        match header.tag {
            tag::TERMINATE => client_end::disconnect_client(core, conn, "client close request"),
            known if wire::tag::is_frontend(known) => self.console_message(core, conn, known, body),
            other => client_end::client_fault(core, conn, &session::ClientFault::UnknownTag(other)),
        }
        Some(bytes)
    }

    /// One message. After an error of the extended protocol all but Sync is ignored.
    fn console_message(&mut self, core: &mut Core, conn: ConnId, kind: u8, body: &[u8]) {
        let Some(session) = console_session(core, conn) else { return };
        if kind == tag::SYNC {
            session.sync();
            return core.outbox.write(conn, |out| encode::ready(out, Status::Idle));
        }
        if session.skipping {
            return;
        }
        let outcome = match kind {
            tag::QUERY => return self.console_query(core, conn, body),
            tag::PARSE => session.parse(body).map(|()| Some(encode::parse_complete as fn(&mut Vec<u8>))),
            tag::BIND => session.bind(body).map(|()| Some(encode::bind_complete as fn(&mut Vec<u8>))),
            tag::CLOSE => session.close(body).map(|()| Some(encode::close_complete as fn(&mut Vec<u8>))),
            tag::DESCRIBE => session.describe(body).map(|(sql, values, asked)| {
                self.console_asks(core, conn, sql, values, asked);
                None
            }),
            tag::EXECUTE => session.execute(body).map(|(portal, limit)| {
                self.console_executes(core, conn, portal, limit);
                None
            }),
            tag::FUNCTION_CALL => {
                let text = "function calls are not supported by the admin console";
                core.count_error(conn, sqlstate::FEATURE_NOT_SUPPORTED);
                return core.outbox.write(conn, |out| {
                    encode::error(out, "ERROR", sqlstate::FEATURE_NOT_SUPPORTED, text);
                    encode::ready(out, Status::Idle);
                });
            }
            // Flush: nothing is kept back. COPY data: no COPY runs. A password: none was requested.
            _ => Ok(None),
        };
        match outcome {
            Ok(Some(done)) => core.outbox.write(conn, done),
            Ok(None) => {}
            Err(refused) => self.console_refuses(core, conn, &refused),
        }
    }

    fn console_refuses(&mut self, core: &mut Core, conn: ConnId, (sqlstate, text): &Refused) {
        if let Some(session) = console_session(core, conn) {
            session.skipping = true;
        }
        core.count_error(conn, sqlstate);
        core.outbox.write(conn, |out| encode::error(out, "ERROR", sqlstate, text));
    }

    fn console_query(&mut self, core: &mut Core, conn: ConnId, body: &[u8]) {
        let Some(sql) = frontend::query_text(body) else {
            return client_end::fail_client(
                core,
                conn,
                sqlstate::PROTOCOL_VIOLATION,
                "invalid message format",
            );
        };
        let sql = String::from_utf8_lossy(sql).into_owned();
        if let Some(session) = console_session(core, conn) {
            session.sync();
        }
        self.console_asks(core, conn, sql, None, PendingStatement::Simple);
    }

    /// Asks the control thread; the next message waits for its answer.
    fn console_asks(
        &mut self,
        core: &mut Core,
        conn: ConnId,
        sql: String,
        parameters: Option<Vec<Option<String>>>,
        asked: PendingStatement,
    ) {
        let (shard, now_us) = (core.id, core.now.mono_us);
        let Some(client) = core.client(conn) else { return };
        let Phase::Console(session) = &mut client.phase else { return };
        let mode = if matches!(asked, PendingStatement::Description(..)) {
            StatementMode::Describe
        } else {
            StatementMode::Run
        };
        session.asked = asked;
        client.request_us = now_us;
        let (client_id, role) = (client.id, session.role);
        let sender = ConsoleClient { user: client.login_user.to_string(), from: peer(client.peer) };
        if mode == StatementMode::Run {
            // Now and not when it is over: SHOW STATS and SHOW TOTALS count themselves.
            self.counters.query_count += 1;
            self.counters.xact_count += 1;
        }
        let query = AdminQuery { shard, client: conn.0, client_id, sender, role, sql, parameters, mode };
        core.report(Report::Query(query));
    }

    /// Runs a portal, or continues one that was suspended.
    fn console_executes(&mut self, core: &mut Core, conn: ConnId, name: Vec<u8>, limit: u32) {
        let Some(portal) = console_session(core, conn).and_then(|session| session.portals.get_mut(&name))
        else {
            return;
        };
        if portal.left.is_some() {
            return console_fetches(core, conn, &name, limit);
        }
        let (sql, values) = (portal.sql.clone(), portal.values.clone());
        self.console_asks(core, conn, sql, Some(values), PendingStatement::Execution(name, limit));
    }

    /// The control thread has answered.
    pub(crate) fn console_reply(&mut self, core: &mut Core, reply: AdminReply) {
        let conn = ConnId(reply.client);
        let now_us = core.now.mono_us;
        // The client may have left since, and another one may have its place.
        let Some(client) = core.conns.find_client(conn).filter(|client| client.id == reply.client_id) else {
            return;
        };
        let took_us = now_us.saturating_sub(client.request_us);
        log_refusals(core, conn, &reply.parts);
        let Some(session) = console_session(core, conn) else { return };
        let last = reply.last;
        let asked = if last { std::mem::take(&mut session.asked) } else { session.asked.clone() };
        match &asked {
            PendingStatement::Nothing => return,
            PendingStatement::Simple => console_answers(core, conn, &reply.parts, last),
            PendingStatement::Description(types, formats) => {
                console_describes(core, conn, &reply.parts, types.as_deref(), formats);
            }
            PendingStatement::Execution(portal, limit) => {
                console_gives(core, conn, portal, *limit, reply.parts, last)
            }
        }
        if last && !matches!(asked, PendingStatement::Description(..)) {
            self.counters.query_time += took_us;
            self.counters.xact_time += took_us;
        }
        self.console_goes_on(core, conn);
    }
}

fn console_session(core: &mut Core, conn: ConnId) -> Option<&mut ConsoleSession> {
    match &mut core.client(conn)?.phase {
        Phase::Console(session) => Some(session),
        _ => None,
    }
}

fn console_fetches(core: &mut Core, conn: ConnId, name: &[u8], limit: u32) {
    let Some(portal) = console_session(core, conn).and_then(|session| session.portals.get_mut(name)) else {
        return;
    };
    let (rows, end) = portal.left.get_or_insert_default().fetch(limit);
    let formats = portal.formats.clone();
    core.outbox.write(conn, |out| {
        rows.iter().for_each(|cells| answer::row(out, cells, &formats));
        match &end {
            Some(end) => answer::part(out, end, &formats),
            None => encode::portal_suspended(out),
        }
    });
}

/// To a simple query: all of it, as text.
fn console_answers(core: &mut Core, conn: ConnId, parts: &[ReplyPart], last: bool) {
    core.outbox.write(conn, |out| {
        parts.iter().for_each(|part| answer::part(out, part, &Formats::default()));
        if last {
            encode::ready(out, Status::Idle);
        }
    });
}

/// What a console client is refused stands in the log like what any other is.
fn log_refusals(core: &mut Core, conn: ConnId, parts: &[ReplyPart]) {
    if !core.config.global.log_pooler_errors {
        return;
    }
    for part in parts {
        if let ReplyPart::Error { message, .. } = part {
            core.log_client(conn, Level::Warning, &format!("pooler error: {message}"));
        }
    }
}

/// To Describe: the parameters are a statement's to have.
fn console_describes(
    core: &mut Core,
    conn: ConnId,
    parts: &[ReplyPart],
    types: Option<&[u32]>,
    formats: &Formats,
) {
    let failed = parts.iter().any(|part| matches!(part, ReplyPart::Error { .. }));
    if let Some(session) = console_session(core, conn) {
        session.skipping |= failed;
    }
    core.outbox.write(conn, |out| {
        for part in parts {
            match (part, types) {
                (ReplyPart::Parameters(count), Some(types)) => answer::parameters(out, *count, types),
                _ => answer::part(out, part, formats),
            }
        }
    });
}

/// To Execute: rows without their description; with a limit they are kept until they are fetched.
fn console_gives(core: &mut Core, conn: ConnId, name: &[u8], limit: u32, parts: Vec<ReplyPart>, last: bool) {
    let Some(session) = console_session(core, conn) else { return };
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
    core.outbox.write(conn, |out| now.iter().for_each(|part| answer::part(out, part, &formats)));
    if fetches {
        console_fetches(core, conn, name, limit);
    }
}
