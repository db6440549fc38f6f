//! Values that a server reports in bytes other than ASCII: which text they are depends on client_encoding. No client runs under
//! another client's value, or under its own read as other text.

use crate::world::{World, message};
use shard::ConnId;
use wire::backend::Status;
use wire::encode;

const LATIN1: &[(&str, &str)] = &[("client_encoding", "LATIN1")];
const ZONE: &[u8] = b"<\xfc\xfcx>-03";

/// Lets a server connection log in that reports what these tests are about.
fn server(world: &mut World) -> ConnId {
    let conn = world.connected();
    world.sent.remove(&conn);
    let hello = message(|out| {
        encode::authentication_ok(out);
        encode::parameter_status(out, b"client_encoding", b"UTF8");
        encode::parameter_status(out, b"TimeZone", b"Etc/UTC");
        encode::key_data(out, 77, &[1, 2, 3, 4]);
        encode::ready(out, Status::Idle);
    });
    world.receive(conn, &hello);
    conn
}

/// A server answers with these reports.
fn done(world: &mut World, server: ConnId, reports: &[(&str, &[u8])]) {
    let bytes = message(|out| {
        encode::command_complete(out, "SET");
        for (name, value) in reports {
            encode::parameter_status(out, name.as_bytes(), value);
        }
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &bytes);
}

/// A client with LATIN1 has set this zone, and was sent the report unchanged; another client has not.
fn zone_is_set(zone: &[u8]) -> (World, ConnId, ConnId, ConnId) {
    let mut world = World::new("default_pool_size = 1\nserver_check_query =");
    let (latin, other) = (world.client(LATIN1), world.client(&[]));
    let server = server(&mut world);
    world.query(latin, "set timezone");
    done(&mut world, server, &[("client_encoding", b"LATIN1")]);
    world.sent.clear();
    done(&mut world, server, &[("TimeZone", zone)]);
    let told = world.sent.remove(&latin).unwrap();
    assert!(told.windows(zone.len()).any(|part| part == zone), "unchanged");
    (world, latin, other, server)
}

#[test]
fn a_value_that_is_not_ascii_stays_with_its_client() {
    for zone in [ZONE, "<x\u{e4}>-03".as_bytes()] {
        let (mut world, latin, other, server) = zone_is_set(zone);
        world.query(latin, "select 1");
        assert!(world.text(server).ends_with("select 1\0"), "its client has it already");
        world.answer(server, Status::Idle);
        world.query(other, "select 2");
        let sets = world.text(server);
        assert!(sets.contains("SET client_encoding='UTF8';SET TimeZone='Etc/UTC';"), "{sets:?}");
        // What is reported before its client_encoding may be in either.
        done(&mut world, server, &[("TimeZone", b"Etc/UTC"), ("client_encoding", b"UTF8")]);
        world.answer(server, Status::Idle);
        world.query(latin, "select 3");
        let digits: String = zone.iter().map(|byte| format!("{byte:02x}")).collect();
        let sets = world.text(server);
        let own = format!("convert_from(pg_catalog.decode('{digits}','hex'),'LATIN1')");
        assert!(sets.contains(&own), "{sets:?}");
        done(&mut world, server, &[("TimeZone", zone), ("client_encoding", b"LATIN1")]);
        world.answer(server, Status::Idle);
        world.query(latin, "select 4");
        assert!(world.text(server).ends_with("select 4\0"), "it has it again");
        world.answer(server, Status::Idle);
        world.query(other, "select 5");
        assert!(world.text(server).contains("SET TimeZone='Etc/UTC';"));
    }
}

#[test]
fn a_client_whose_value_is_not_known_does_not_run_under_another() {
    let reports: [&[(&str, &[u8])]; 3] = [
        &[("TimeZone", ZONE), ("client_encoding", b"UTF8")],
        &[("TimeZone", "<x\u{e4}>-03".as_bytes()), ("client_encoding", b"UTF8")],
        &[("client_encoding", b"SJIS"), ("TimeZone", b"<\x81\x60>-03")],
    ];
    for report in reports {
        let mut world = World::new("default_pool_size = 1\nserver_check_query =");
        let (client, other) = (world.client(LATIN1), world.client(&[]));
        let server = server(&mut world);
        world.query(client, "set both");
        done(&mut world, server, &[("client_encoding", b"LATIN1")]);
        done(&mut world, server, report);
        world.query(client, "select 1");
        assert!(world.text(server).ends_with("select 1\0"), "the server has it still");
        world.answer(server, Status::Idle);
        world.query(other, "select 2");
        assert!(world.text(server).contains("SET TimeZone='Etc/UTC';"));
        done(&mut world, server, &[("TimeZone", b"Etc/UTC"), ("client_encoding", b"UTF8")]);
        world.answer(server, Status::Idle);
        world.sent.clear();
        world.query(client, "select 3");
        assert!(world.text(client).contains("0A000"), "it would run under another value");
        assert!(world.closed.contains(&client) && world.tags(server).is_empty());
        world.query(other, "select 4");
        assert_eq!(world.tags(server), "Q", "the server is free");
    }
}

#[test]
fn statements_that_were_parsed_under_such_values_are_not_shared_among_them() {
    let parse = message(|out| {
        encode::parse(out, b"s", b"select timestamptz '2024-01-01'", &[]);
        encode::sync(out);
    });
    let mut world = World::new("default_pool_size = 2\nserver_check_query =");
    let clients = [world.client(&[]), world.client(&[])];
    let mut servers = vec![];
    for client in clients {
        world.query(client, "begin");
        let server = server(&mut world);
        servers.push(server);
        let bytes = message(|out| {
            encode::command_complete(out, "BEGIN");
            encode::parameter_status(out, b"TimeZone", ZONE);
            encode::ready(out, Status::InTransaction);
        });
        world.receive(server, &bytes);
    }
    let mut names = vec![];
    for (client, server) in clients.into_iter().zip(servers) {
        world.sent.clear();
        world.receive(client, &parse);
        let sent = world.text(server);
        names.push(sent.split_once("PGBOUNCER_").unwrap().1.chars().next());
        let answer = message(|out| {
            encode::parse_complete(out);
            encode::ready(out, Status::InTransaction);
        });
        world.receive(server, &answer);
    }
    assert_ne!(names[0], names[1], "the zones may be two");
}

#[test]
fn a_value_from_login_is_sent_unchanged_and_reset_for_other_clients() {
    let mut world = World::new("default_pool_size = 1\nserver_check_query =");
    let client = world.client(&[]);
    let conn = world.connected();
    world.sent.clear();
    let hello = message(|out| {
        encode::authentication_ok(out);
        encode::parameter_status(out, b"TimeZone", ZONE);
        encode::parameter_status(out, b"client_encoding", b"LATIN1");
        encode::key_data(out, 77, &[1, 2, 3, 4]);
        encode::ready(out, Status::Idle);
    });
    world.receive(conn, &hello);
    let told = world.sent.remove(&client).unwrap();
    assert!(told.windows(ZONE.len()).any(|part| part == ZONE));
    world.query(client, "set timezone");
    assert!(world.text(conn).ends_with("set timezone\0"));
    done(&mut world, conn, &[("TimeZone", b"Asia/Tokyo")]);
    let other = world.client(&[]);
    world.query(other, "select 1");
    assert!(world.text(conn).contains("RESET TimeZone;"));
}
