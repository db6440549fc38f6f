//! Weir asks a server something for a client that logs in: the question waits in its pool's queue like any client.
//!
//! Owns a question's way: to the shard that has the pool, through the queue, onto a server as if fresh, and its rows
//! back to the login. The server goes back by `lend`'s one release point. Nothing that a client sent is in force while
//! a question is asked, no object of theirs answers it, and its values are bound, never written into the text. What rows
//! mean is the reader's.

pub(crate) mod internal_client;
pub(crate) mod lookup;
pub(crate) mod roles;

use messages::{Report, RequestId, ServerQuery, ServerQueryResult, ShardId, ShardMessage};
use pool::QueuePosition;
use session::Row;
use telemetry::Level;
use wire::sqlstate;

use crate::ConnId;
use crate::auth_query::internal_client::{AskedBy, Asker, Asks, Purpose};
use crate::client;
use crate::log_format::excerpt;
use crate::server::{self, Errand, Lent};
use crate::state::{Conn, State};

/// What clients are told when the question is at fault, or what it asks: PgBouncer's words.
pub(crate) const CONFIG_ERROR: &str = "bouncer config error";

/// Makes a server that a client has had as it was after login, temporary tables included; `connect_query` follows.
const AS_FRESH: &str = "DISCARD ALL";

/// Says where names without a schema are looked up while a question is asked: in pg_catalog first, among temporary
/// objects last (without being named they come first), and between the two as the role and the connection have it, for
/// functions and tables of the administrator's own `auth_query`. Nothing here is looked up by that path itself, and no
/// row comes of it.
const SEARCH_PATH: &str = "SELECT WHERE pg_catalog.set_config('search_path', pg_catalog.concat_ws(', ', 'pg_catalog', \
    pg_catalog.substring(pg_catalog.current_setting('search_path'), '[^ ].*'), 'pg_temp'), true) IS NULL";

impl State {
    /// Asks for a client that logs in here; [`State::inquired`] follows, if the client is still there.
    pub(crate) fn inquire(&mut self, conn: ConnId, inquiry: ServerQuery, purpose: Purpose) {
        let home = self.pool_registry.pool(&inquiry.database, &inquiry.user);
        let home = self.shard_for(&home);
        let from = self.id;
        let Some(client) = self.client(conn) else { return };
        let client::Phase::Login(login) = &mut client.phase else { return };
        login.asks = Some(Asks { home, purpose });
        let asked_by = AskedBy { shard: from, id: client.id, conn: conn.0 };
        if home == from {
            return self.inquire_here(asked_by, inquiry);
        }
        let letter =
            ShardMessage::RunServerQuery { from, conn: conn.0, id: asked_by.id, query: Box::new(inquiry) };
        self.tell(home, letter);
    }

    /// Asks for the control thread; it may be another shard that has the pool and answers.
    pub(crate) fn inquire_for_control(&mut self, request: RequestId, inquiry: ServerQuery) {
        let home = self.pool_registry.pool(&inquiry.database, &inquiry.user);
        let home = self.shard_for(&home);
        let (from, conn, id) = (ShardId::CONTROL, 0, request.0);
        if home == self.id {
            return self.inquire_here(AskedBy { shard: from, id, conn }, inquiry);
        }
        self.tell(home, ShardMessage::RunServerQuery { from, conn, id, query: Box::new(inquiry) });
    }

    /// The pool is here: take a server for the question, or wait for one.
    pub(crate) fn inquire_here(&mut self, asked_by: AskedBy, inquiry: ServerQuery) {
        let now_us = self.now.mono_us;
        let Some(database) = self.config.database(&inquiry.database) else {
            return self.deliver(&[asked_by], &no_answer(sqlstate::CONFIG_FILE_ERROR, CONFIG_ERROR));
        };
        let part_index = self.part(&inquiry.database, &inquiry.user, &database);
        let conn = self.reserve();
        let asker =
            Asker { part: part_index, inquiry, asked_by: vec![asked_by], position: None, since_us: now_us };
        if let Some(slot) = self.conns.get_mut(conn.0 as usize) {
            *slot = Conn::Asker(Box::new(asker));
        }
        self.askers.insert((asked_by.shard, asked_by.id), conn);
        let Some(part) = self.parts.get_mut(part_index) else { return };
        part.last_used_us = now_us;
        self.asker_waits(conn);
        self.serve_or_open(part_index);
    }

    fn asker_waits(&mut self, conn: ConnId) {
        let now_us = self.now.mono_us;
        let Some(Conn::Asker(asker)) = self.conns.get_mut(conn.0 as usize) else { return };
        let Some(part) = self.parts.get_mut(asker.part) else { return };
        asker.position = Some(part.pool.queue.join(conn.0, now_us));
    }

    /// A server for a question: first made as if fresh, if a client has had it.
    pub(crate) fn serve_asker(&mut self, conn: ConnId, server_conn: ConnId) {
        let now_us = self.now.mono_us;
        self.answer_likewise(conn);
        let Some(Conn::Asker(asker)) = self.conns.get_mut(conn.0 as usize) else { return };
        asker.position = None;
        let waited_us = now_us.saturating_sub(asker.since_us);
        let Some(part) = self.parts.get_mut(asker.part) else { return };
        part.assigned(waited_us);
        part.last_used_us = now_us;
        let Some(Conn::Server(server)) = self.conns.get_mut(server_conn.0 as usize) else { return };
        server.request_us = now_us;
        server.query_us = now_us;
        let is_fresh = server.lent != Lent::ToClient || planted::bug!("asked_as_clients_left_it");
        if is_fresh {
            return self.put_question(conn, server_conn);
        }
        server.phase = server::Phase::Errand(Errand::Freshen(conn));
        let protocol = &mut server.protocol;
        if let Some(at) = protocol.boundary() {
            self.outbox.write(server_conn, |out| protocol.send_internal_query(at, out, AS_FRESH));
        }
    }

    /// All who wait with the same question, and so asked before it was put, get the same answer: one query serves a
    /// storm of logins, and nobody gets an answer that is older than the question.
    fn answer_likewise(&mut self, conn: ConnId) {
        let Some(Conn::Asker(asker)) = self.conns.get(conn.0 as usize) else { return };
        let Some(part) = self.parts.get(asker.part) else { return };
        let alike = |other: &ServerQuery| {
            *other == asker.inquiry || planted::bug!("answer_for_another") && other.sql == asker.inquiry.sql
        };
        let same = |other: &ConnId| matches!(self.conns.get(other.0 as usize), Some(Conn::Asker(other)) if alike(&other.inquiry));
        let others: Vec<ConnId> =
            part.pool.queue.shared().map(|waiter| ConnId(waiter.client)).filter(same).collect();
        for other in others.into_iter().filter(|other| *other != conn) {
            let Some(gone) = self.forget_asker(other) else { continue };
            for asked_by in &gone.asked_by {
                self.askers.insert((asked_by.shard, asked_by.id), conn);
            }
            if let Some(Conn::Asker(asker)) = self.conns.get_mut(conn.0 as usize) {
                asker.asked_by.extend(gone.asked_by);
            }
        }
    }

    fn put_question(&mut self, conn: ConnId, server_conn: ConnId) {
        let Some((Conn::Asker(asker), Conn::Server(server))) =
            self.conns.get2_mut(conn.0 as usize, server_conn.0 as usize)
        else {
            return;
        };
        server.lent = Lent::ToWeir;
        server.phase = server::Phase::Errand(Errand::Ask(conn));
        let (protocol, inquiry) = (&mut server.protocol, &asker.inquiry);
        if let Some(at) = protocol.boundary() {
            self.outbox.write(server_conn, |out| {
                protocol.send_internal_select(at, out, SEARCH_PATH, &inquiry.sql, &inquiry.values);
            });
        }
    }

    /// The server is as if fresh, or could not be made so.
    pub(crate) fn freshened(&mut self, conn: ConnId, server_conn: ConnId, failed: bool) {
        if failed {
            return self.close_server(server_conn, "server could not be made fresh");
        }
        self.forget_unreported(server_conn);
        let Some(Conn::Server(server)) = self.conns.get_mut(server_conn.0 as usize) else { return };
        let connect_query =
            self.parts.get(server.pool).and_then(|part| part.database.connect_query.as_deref());
        let Some(connect_query) = connect_query else { return self.put_question(conn, server_conn) };
        server.phase = server::Phase::Errand(Errand::ConnectQuery(conn));
        let protocol = &mut server.protocol;
        if let Some(at) = protocol.boundary() {
            self.outbox.write(server_conn, |out| protocol.send_internal_query(at, out, connect_query));
        }
    }

    /// `connect_query` was run again: as at login, its error is told in the log and changes nothing else.
    pub(crate) fn connect_query_over(&mut self, conn: ConnId, server_conn: ConnId, error: Option<&[u8]>) {
        if let Some(error) = error {
            self.log_complaint(server_conn, "exec_on_query", error);
        }
        self.put_question(conn, server_conn);
    }

    /// The server has answered; it is free before the answer goes its way.
    pub(crate) fn question_answered(&mut self, conn: ConnId, server_conn: ConnId, error: Option<&[u8]>) {
        let Some(server) = self.server(server_conn) else { return };
        let rows: Vec<Row> = server.protocol.take_internal_result().into_rows();
        server.phase = server::Phase::Unsettled;
        let answer = match error {
            None => ServerQueryResult::Rows(rows),
            Some(error) => {
                let fields = wire::error::parse(error);
                let text =
                    |field: Option<&[u8]>| String::from_utf8_lossy(field.unwrap_or_default()).into_owned();
                let (severity, message) = (excerpt(text(fields.severity())), excerpt(text(fields.message())));
                self.log_server(
                    server_conn,
                    Level::Warning,
                    &format!("own query failed: {severity} {message}"),
                );
                no_answer(sqlstate::CONFIG_FILE_ERROR, CONFIG_ERROR)
            }
        };
        self.free_or_close(server_conn);
        if let Some(asker) = self.forget_asker(conn) {
            self.deliver(&asker.asked_by, &answer);
        }
    }

    /// The server that had the question is being closed.
    pub(crate) fn question_lost(&mut self, conn: ConnId) {
        self.refuse_asker(conn, sqlstate::CONNECTION_FAILURE, CONFIG_ERROR);
    }

    /// There will be no answer.
    pub(crate) fn refuse_asker(&mut self, conn: ConnId, code: &str, text: &str) {
        if let Some(asker) = self.forget_asker(conn) {
            self.deliver(&asker.asked_by, &no_answer(code, text));
        }
    }

    /// Refuses whoever waits for this pool's servers, client or question.
    pub(crate) fn fail_waiter(&mut self, conn: ConnId, code: &str, text: &str) {
        match self.conns.get(conn.0 as usize) {
            Some(Conn::Asker(_)) => self.refuse_asker(conn, code, text),
            _ => self.fail_client(conn, code, text),
        }
    }

    /// The questions that wait for a server of this part.
    pub(crate) fn askers_of(&self, part: usize) -> Vec<ConnId> {
        self.conn_ids(
            |conn| matches!(conn, Conn::Asker(asker) if asker.part == part && asker.position.is_some()),
        )
    }

    /// Somebody still waits for what this server is at.
    pub(crate) fn is_awaited(&self, conn: ConnId) -> bool {
        matches!(self.conns.get(conn.0 as usize), Some(Conn::Asker(asker)) if !asker.asked_by.is_empty())
    }

    /// A client that asked has left.
    pub(crate) fn withdraw_inquiry(&mut self, asks: Asks, id: u64) {
        let from = self.id;
        if asks.home == from {
            return self.withdrawn(from, id);
        }
        self.tell(asks.home, ShardMessage::WithdrawServerQuery { from, id });
    }

    /// A question that waits leaves with its last asker; one that a server is at is answered to nobody.
    pub(crate) fn withdrawn(&mut self, from: ShardId, id: u64) {
        let Some(conn) = self.askers.remove(&(from, id)) else { return };
        let Some(Conn::Asker(asker)) = self.conns.get_mut(conn.0 as usize) else { return };
        asker.asked_by.retain(|login| (login.shard, login.id) != (from, id));
        if asker.asked_by.is_empty() && asker.position.is_some() {
            self.forget_asker(conn);
        }
    }

    /// Takes a question out of the tables and the queue.
    fn forget_asker(&mut self, conn: ConnId) -> Option<Box<Asker>> {
        if !matches!(self.conns.get(conn.0 as usize), Some(Conn::Asker(_))) {
            return None;
        }
        let Some(Conn::Asker(asker)) = self.conns.try_remove(conn.0 as usize) else { return None };
        if let (Some(position), Some(part)) = (asker.position, self.parts.get_mut(asker.part)) {
            leave(part, position);
        }
        for asked_by in &asker.asked_by {
            self.askers.remove(&(asked_by.shard, asked_by.id));
        }
        Some(asker)
    }

    fn deliver(&mut self, asked_by: &[AskedBy], answer: &ServerQueryResult) {
        let here = self.id;
        for login in asked_by {
            if login.shard == here {
                self.inquired(ConnId(login.conn), login.id, answer.clone());
            } else if login.shard == ShardId::CONTROL {
                let (request, answer) = (RequestId(login.id), Box::new(answer.clone()));
                self.report(Report::ServerQueryDone { request, answer });
            } else {
                let letter = ShardMessage::ServerQueryDone {
                    conn: login.conn,
                    id: login.id,
                    answer: Box::new(answer.clone()),
                };
                self.tell(login.shard, letter);
            }
        }
    }

    /// The answer that a login here waits for.
    pub(crate) fn inquired(&mut self, conn: ConnId, id: u64, answer: ServerQueryResult) {
        let Some(client) = self.client(conn).filter(|client| client.id == id) else { return };
        let client::Phase::Login(login) = &mut client.phase else { return };
        let Some(asks) = login.asks.take() else { return };
        match (answer, asks.purpose) {
            (ServerQueryResult::Failed { sqlstate, text }, _) => self.fail_client(conn, &sqlstate, &text),
            (ServerQueryResult::Rows(rows), Purpose::Secret) => self.secret_found(conn, &rows),
            (ServerQueryResult::Rows(rows), Purpose::Roles) => self.roles_found(conn, &rows),
        }
    }
}

fn leave(part: &mut crate::state::Part, position: QueuePosition) {
    part.pool.queue.leave(position);
}

fn no_answer(sqlstate: &str, text: &str) -> ServerQueryResult {
    ServerQueryResult::Failed { sqlstate: sqlstate.to_owned(), text: text.to_owned() }
}
