//! A console client's side of the console: its socket is here, the meaning of what it types is the control thread's.
//!
//! Owns the greeting of the `pgbouncer` database, taking statements out of the stream one at a time, and encoding typed
//! answers. Never knows a command.

use mail::{AdminQuery, AdminReply, Cell, Column, ColumnType, Part, Report, Right};
use telemetry::Level;
use wire::backend::Status;
use wire::tag::frontend as tag;
use wire::{encode, frame, frontend, sqlstate};

use crate::client::Phase;
use crate::state::State;
use crate::{Action, ConnId};

/// A statement (or whatever a console client sends as one) may be this long.
const STATEMENT_BYTES: u32 = 1024 * 1024;

/// What the console says of itself, as PgBouncer's does.
const PARAMETERS: [(&str, &str); 7] = [
    ("server_version", "1.25.2/bouncer"),
    ("client_encoding", "UTF8"),
    ("server_encoding", "UTF8"),
    ("DateStyle", "ISO"),
    ("TimeZone", "GMT"),
    ("standard_conforming_strings", "on"),
    ("is_superuser", "on"),
];

impl State {
    /// The client may use the console: greet it.
    pub(crate) fn console_opened(&mut self, conn: ConnId, right: Right) {
        let key = self.new_cancel_key(conn);
        let Some(client) = self.client(conn) else { return };
        client.phase = Phase::Console { right, asked: false };
        client.cancel_key = key;
        self.outbox.write(conn, |out| {
            encode::authentication_ok(out);
            for (name, value) in PARAMETERS {
                encode::parameter_status(out, name.as_bytes(), value.as_bytes());
            }
            encode::cancel_key(out, &key);
            encode::ready(out, Status::Idle);
        });
        self.console.client_login_count += 1;
        self.act(Action::Settle { conn });
        self.console_goes_on(conn);
    }

    /// Bytes of a console client.
    pub(crate) fn console_received(&mut self, conn: ConnId, bytes: &[u8]) {
        self.console.bytes_received += bytes.len() as u64;
        let Some(client) = self.client(conn) else { return };
        client.request.held.extend_from_slice(bytes);
        if client.request.held.len() > 2 * STATEMENT_BYTES as usize {
            return self.fail_client(conn, sqlstate::PROGRAM_LIMIT, "statement too long");
        }
        self.console_goes_on(conn);
    }

    /// Takes the next statement, if none is being answered.
    fn console_goes_on(&mut self, conn: ConnId) {
        loop {
            let Some(client) = self.client(conn) else { return };
            let Phase::Console { asked: false, right } = client.phase else { return };
            let header = match frame::header(&client.request.held) {
                Ok(None) => return,
                Ok(Some(header)) if header.frame_bytes <= STATEMENT_BYTES => header,
                _ => return self.fail_client(conn, sqlstate::PROTOCOL_VIOLATION, "invalid message length"),
            };
            let body =
                client.request.held.get(frame::HEADER_BYTES..header.frame_bytes as usize).map(<[u8]>::to_vec);
            let Some(body) = body else { return };
            client.request.held.drain(..header.frame_bytes as usize);
            match header.tag {
                tag::QUERY => self.console_asks(conn, right, &body),
                tag::TERMINATE => return self.client_leaves(conn, "client close request"),
                known if wire::tag::is_frontend(known) => self.console_refuses(conn, known),
                other => return self.client_fault(conn, &session::ClientFault::UnknownTag(other)),
            }
        }
    }

    fn console_asks(&mut self, conn: ConnId, right: Right, body: &[u8]) {
        let shard = self.id;
        let Some(sql) = frontend::query_text(body) else {
            return self.fail_client(conn, sqlstate::PROTOCOL_VIOLATION, "invalid message format");
        };
        let sql = String::from_utf8_lossy(sql).into_owned();
        let now_us = self.now.mono_us;
        let Some(client) = self.client(conn) else { return };
        client.phase = Phase::Console { right, asked: true };
        client.request_us = now_us;
        let query = AdminQuery { shard, client: conn.0, client_id: client.id, right, sql };
        self.act(Action::Report(Report::Query(query)));
    }

    /// The console speaks the simple protocol only, as PgBouncer's.
    fn console_refuses(&mut self, conn: ConnId, frame_tag: u8) {
        if frame_tag == tag::SYNC {
            return self.outbox.write(conn, |out| encode::ready(out, Status::Idle));
        }
        if matches!(frame_tag, tag::PARSE | tag::FUNCTION_CALL) {
            let text = "extended query protocol not supported by admin console";
            self.outbox.write(conn, |out| encode::error(out, "ERROR", sqlstate::FEATURE_NOT_SUPPORTED, text));
        }
    }

    /// The control thread has answered.
    pub(crate) fn console_reply(&mut self, reply: AdminReply) {
        let conn = ConnId(reply.client);
        let Some(client) = self.client(conn) else { return };
        let Phase::Console { right, asked: true } = client.phase else { return };
        if client.id != reply.client_id {
            return;
        }
        let asked_us = client.request_us;
        self.log_refusals(conn, &reply.parts);
        let Some(client) = self.client(conn) else { return };
        if reply.last {
            client.phase = Phase::Console { right, asked: false };
            let took_us = self.now.mono_us.saturating_sub(asked_us);
            self.console.query_count += 1;
            self.console.xact_count += 1;
            self.console.query_time += took_us;
            self.console.xact_time += took_us;
        }
        self.outbox.write(conn, |out| {
            for part in &reply.parts {
                encode_part(out, part);
            }
            if reply.last {
                encode::ready(out, Status::Idle);
            }
        });
        self.console_goes_on(conn);
    }

    /// What a console client is refused stands in the log like what any other is.
    fn log_refusals(&mut self, conn: ConnId, parts: &[Part]) {
        if !self.config.global.log_pooler_errors {
            return;
        }
        for part in parts {
            if let Part::Error { message, .. } = part {
                self.log_client(conn, Level::Warning, &format!("pooler error: {message}"));
            }
        }
    }
}

fn encode_part(out: &mut Vec<u8>, part: &Part) {
    match part {
        Part::Columns(columns) => {
            let columns: Vec<encode::Column<'_>> = columns.iter().map(column).collect();
            encode::row_description(out, &columns);
        }
        Part::Rows(rows) => rows.iter().for_each(|row| encode_row(out, row)),
        Part::Complete(text) => encode::command_complete(out, text),
        Part::CompleteAs(text) => encode::command_complete(out, text),
        Part::NoticeWithDetail(text, detail) => encode::notice_with_detail(out, text, detail),
        Part::Notice(text) => encode::notice(out, "NOTICE", "00000", text),
        Part::Error { sqlstate, message } => encode::error(out, "ERROR", sqlstate, message),
        Part::Empty => encode::empty_query(out),
    }
}

fn column(column: &Column) -> encode::Column<'_> {
    let (type_oid, type_bytes) = match column.kind {
        ColumnType::Text => (25, -1),
        ColumnType::Int4 => (23, 4),
        ColumnType::Int8 => (20, 8),
        ColumnType::Numeric => (1700, -1),
    };
    encode::Column { name: column.name, type_oid, type_bytes }
}

fn encode_row(out: &mut Vec<u8>, row: &[Cell]) {
    let texts: Vec<Option<String>> = row
        .iter()
        .map(|cell| match cell {
            Cell::Null => None,
            Cell::Text(text) => Some(text.clone()),
            Cell::Number(number) => Some(number.to_string()),
        })
        .collect();
    encode::data_row(out, texts.iter().map(|text| text.as_deref().map(str::as_bytes)));
}
