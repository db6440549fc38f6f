//! What pgbench and psql say and what PostgreSQL answers, byte for byte as long as the real ones.
//! Owns no order; that is the scenarios'.

use wire::backend::Status;
use wire::encode::{self, Column};
use wire::frame::Frames;
use wire::tag::frontend as tag;

/// `pgbench -S`.
pub(crate) const SELECT: &str = "SELECT abalance FROM pgbench_accounts WHERE aid = 1234567;";

/// TPC-B as pgbench has it: its statements, and what the server calls each when it is done.
pub(crate) const TPCB: [(&str, &str); 7] = [
    ("BEGIN;", "BEGIN"),
    ("UPDATE pgbench_accounts SET abalance = abalance + -1234 WHERE aid = 1234567;", "UPDATE 1"),
    (SELECT, "SELECT 1"),
    ("UPDATE pgbench_tellers SET tbalance = tbalance + -1234 WHERE tid = 123;", "UPDATE 1"),
    ("UPDATE pgbench_branches SET bbalance = bbalance + -1234 WHERE bid = 12;", "UPDATE 1"),
    (
        "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (123, 12, 1234567, -1234, CURRENT_TIMESTAMP);",
        "INSERT 0 1",
    ),
    ("END;", "COMMIT"),
];

/// The bytes that `write` appends.
pub(crate) fn message(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes);
    bytes
}

/// A simple query.
pub(crate) fn query(sql: &str) -> Vec<u8> {
    message(|out| encode::query(out, sql.as_bytes()))
}

/// The answer to a simple query: one row of one column for a SELECT.
pub(crate) fn answer(command: &str, status: Status) -> Vec<u8> {
    message(|out| {
        if command.starts_with("SELECT") {
            balance(out);
        }
        encode::command_complete(out, command);
        encode::ready(out, status);
    })
}

/// `pgbench -M extended`: everything without a name.
pub(crate) fn extended() -> Vec<u8> {
    message(|out| {
        encode::parse(out, b"", b"SELECT abalance FROM pgbench_accounts WHERE aid = $1;", &[]);
        bound(out, b"");
    })
}

/// The answer to it.
pub(crate) fn extended_answer() -> Vec<u8> {
    message(|out| {
        encode::parse_complete(out);
        bound_answer(out);
    })
}

/// `pgbench -M prepared`: the first request, which names a statement.
pub(crate) fn prepare(name: &[u8]) -> Vec<u8> {
    message(|out| {
        encode::parse(out, name, b"SELECT abalance FROM pgbench_accounts WHERE aid = $1;", &[]);
        encode::sync(out);
    })
}

/// The answer to it, and to Weir's Describe behind it.
pub(crate) fn prepare_answer() -> Vec<u8> {
    message(|out| {
        encode::parse_complete(out);
        encode::parameter_description(out, &[23]);
        encode::row_description(out, &[BALANCE]);
        encode::ready(out, Status::Idle);
    })
}

/// `pgbench -M prepared`: every further request.
pub(crate) fn prepared(name: &[u8]) -> Vec<u8> {
    message(|out| bound(out, name))
}

/// The answer to it.
pub(crate) fn prepared_answer() -> Vec<u8> {
    message(bound_answer)
}

fn bound(out: &mut Vec<u8>, name: &[u8]) {
    encode::bind_simple(out, b"", name, &[Some(b"1234567")]);
    encode::describe(out, b'P', b"");
    encode::execute(out, b"", 0);
    encode::sync(out);
}

fn bound_answer(out: &mut Vec<u8>) {
    encode::bind_complete(out);
    balance(out);
    encode::command_complete(out, "SELECT 1");
    encode::ready(out, Status::Idle);
}

const BALANCE: Column<'_> = Column { name: "abalance", type_oid: 23, type_bytes: 4 };

fn balance(out: &mut Vec<u8>) {
    encode::row_description(out, &[BALANCE]);
    encode::data_row(out, [Some(&b"-1234"[..])]);
}

/// Whole rows of 100 bytes each, together at most this long.
pub(crate) fn rows(bytes: usize) -> Vec<u8> {
    let value = [b'x'; 89];
    message(|out| {
        while out.len() < bytes {
            encode::data_row(out, [Some(&value[..])]);
        }
    })
}

/// What a server answers to what it is sent: a row of one column for a statement that is run.
pub(crate) fn answer_to(request: &[u8]) -> Vec<u8> {
    let mut frames = Frames::new(u32::MAX);
    frames.push(request);
    message(|out| {
        while let Ok(Some((frame_tag, body))) = frames.pop() {
            match (frame_tag, body.first()) {
                (tag::QUERY, _) => out.extend(answer("SELECT 1", Status::Idle)),
                (tag::PARSE, _) => encode::parse_complete(out),
                (tag::BIND, _) => encode::bind_complete(out),
                (tag::DESCRIBE, Some(b'S')) => {
                    encode::parameter_description(out, &[23]);
                    encode::row_description(out, &[BALANCE]);
                }
                (tag::DESCRIBE, _) => encode::row_description(out, &[BALANCE]),
                (tag::EXECUTE, _) => {
                    encode::data_row(out, [Some(&b"-1234"[..])]);
                    encode::command_complete(out, "SELECT 1");
                }
                (tag::SYNC, _) => encode::ready(out, Status::Idle),
                (other, _) => panic!("no answer to {other}"),
            }
        }
    })
}

/// What a server that asks for no password says first.
pub(crate) fn hello(is_standby: bool) -> Vec<u8> {
    message(|out| {
        encode::authentication_ok(out);
        for (name, value) in [
            ("in_hot_standby", if is_standby { "on" } else { "off" }),
            ("integer_datetimes", "on"),
            ("TimeZone", "Etc/UTC"),
            ("IntervalStyle", "postgres"),
            ("is_superuser", "off"),
            ("application_name", ""),
            ("default_transaction_read_only", "off"),
            ("DateStyle", "ISO, MDY"),
            ("standard_conforming_strings", "on"),
            ("session_authorization", "bench"),
            ("client_encoding", "UTF8"),
            ("server_version", "15.10 (Debian 15.10-0+deb12u1)"),
            ("server_encoding", "UTF8"),
        ] {
            encode::parameter_status(out, name.as_bytes(), value.as_bytes());
        }
        encode::key_data(out, 77, &[1, 2, 3, 4]);
        encode::ready(out, Status::Idle);
    })
}
