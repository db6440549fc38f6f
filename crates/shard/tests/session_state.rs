//! `session_state = virtual`: when a server is asked what a session holds, and what the answer leads to.
#![allow(clippy::unwrap_used, missing_docs)]

mod world;

use messages::Command;
use shard::{ConnId, Event};
use wire::backend::Status;
use wire::encode;
use world::{World, config, message};

const ON: &str = "default_pool_size = 1\nsession_state = virtual";

/// A client with a startup packet of its own, and a server that has none. No table of the database changes a session.
fn beginning(settings: &str) -> (World, ConnId, ConnId) {
    let mut world = World::new(settings);
    let client = world.client(&[("application_name", "mine"), ("lock_timeout", "9s")]);
    let server = world.server();
    assert!(world.text(server).contains("RECURSIVE"));
    world.answer(server, Status::Idle);
    world.query(client, "select 1");
    assert!(world.text(server).contains("'lock_timeout','9s'"));
    answer(&mut world, server, "SET", &[("application_name", "mine")]);
    answer(&mut world, server, "SELECT 1", &[]);
    world.sent.clear();
    (world, client, server)
}

/// A server has done this, and reports this.
fn answer(world: &mut World, server: ConnId, tag: &str, reports: &[(&str, &str)]) {
    let bytes = message(|out| {
        encode::command_complete(out, tag);
        for (name, value) in reports {
            encode::parameter_status(out, name.as_bytes(), value.as_bytes());
        }
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &bytes);
}

/// The answer to the question for session state: these kinds are there. A channel has a name that no other connection can listen on.
fn holds(kinds: &[&str]) -> Vec<u8> {
    message(|out| {
        for kind in kinds {
            encode::data_row(out, [Some(kind.as_bytes()), Some(b""), Some(b"c3a4")]);
        }
        encode::command_complete(out, "SELECT 0");
        encode::ready(out, Status::Idle);
    })
}

/// The same, with a client that listens and keeps its server.
fn listening(settings: &str) -> (World, ConnId, ConnId) {
    let (mut world, client, server) = beginning(settings);
    world.query(client, "listen n");
    answer(&mut world, server, "LISTEN", &[]);
    assert!(world.text(server).contains("pg_listening_channels"));
    world.receive(server, &holds(&["l"]));
    world.sent.clear();
    (world, client, server)
}

#[test]
fn a_request_in_pieces_has_not_run_before_it_is_whole() {
    let parse = message(|out| {
        encode::parse(out, b"", b"select change('app.tenant', 'a')", &[]);
        encode::bind_simple(out, b"", b"", &[]);
        encode::execute(out, b"", 0);
        encode::sync(out);
    });
    let reset = message(|out| encode::query(out, b"select change('app.tenant', 'a'); reset all"));
    for (settings, request) in [
        (format!("{ON}\nmax_prepared_statements = 0"), &parse),
        (ON.to_owned(), &parse),
        (ON.to_owned(), &reset),
    ] {
        let (mut world, client, server) = listening(&settings);
        world.receive(client, &request[..30]);
        assert_eq!(world.text(server), "", "{settings}: neither a half nor a question");
        world.receive(client, &request[30..]);
        assert!(world.text(server).contains("'app.tenant'"), "{settings}");
        let mut answered = vec![];
        if *request == parse {
            encode::parse_complete(&mut answered);
            encode::bind_complete(&mut answered);
        }
        world.receive(server, &answered);
        answer(&mut world, server, "SELECT 1", &[]);
        let asked = world.text(server);
        assert!(asked.contains("ARRAY['app.tenant']"), "{settings}: the name was seen whole: {asked}");
    }
}

#[test]
fn a_client_goes_on_if_reload_changes_to_session_pooling_while_its_server_is_asked() {
    let (mut world, client, server) = beginning(ON);
    world.query(client, "do ''");
    answer(&mut world, server, "DO", &[]);
    assert!(world.text(server).contains("pg_settings"));
    let session = config(&format!("{ON}\npool_mode = session"));
    world.event(Event::Command(Command::Configure(session)));
    world.receive(server, &holds(&[]));
    assert!(!world.paused.contains(&client));
    world.sent.clear();
    world.query(client, "select 2");
    let sent = world.text(server);
    assert!(sent.contains("select 2"), "{sent:?} {:?}", world.log);
}

#[test]
fn a_server_that_could_not_say_what_it_holds_is_asked_again() {
    let (mut world, client, server) = beginning(ON);
    world.query(client, "do ''");
    answer(&mut world, server, "DO", &[]);
    for _ in 0..3 {
        assert!(world.text(server).contains("pg_settings"));
        let refused = message(|out| {
            encode::error(out, "ERROR", "57014", "canceling statement due to statement timeout");
            encode::ready(out, Status::Idle);
        });
        world.receive(server, &refused);
    }
    assert_eq!(world.text(server), "", "for now");
    world.pass(1_000);
    assert!(world.text(server).contains("pg_settings"), "and the client has asked for nothing");
    world.receive(server, &holds(&[]));
    let other = world.client(&[]);
    world.query(other, "select 2");
    assert!(!world.text(server).is_empty(), "the server is free");
}

#[test]
fn a_report_behind_the_answer_takes_no_startup_value_from_the_client() {
    let (mut world, client, server) = beginning(ON);
    world.query(client, "discard all");
    answer(&mut world, server, "DISCARD ALL", &[("application_name", "")]);
    assert!(world.text(server).contains("pg_settings"));
    let report = message(|out| encode::parameter_status(out, b"in_hot_standby", b"on"));
    let mut bytes = holds(&[]);
    bytes.extend_from_slice(&report[..7]);
    world.receive(server, &bytes);
    world.receive(server, &report[7..]);
    world.sent.clear();
    world.query(client, "select 2");
    let sent = world.text(server);
    assert!(sent.contains("'lock_timeout','9s'") && sent.contains("application_name='mine'"), "{sent}");
}

#[test]
fn discard_all_gives_back_nothing_before_the_server_has_said_what_is_gone() {
    let (mut world, client, server) = beginning(ON);
    world.query(client, "select change('app.tenant', 'a')");
    answer(&mut world, server, "SELECT 1", &[]);
    let found = message(|out| {
        for row in
            [[b"s" as &[u8], b"app.tenant", b"61"], [b"s", b"lock_timeout", b"3973"], [b"l", b"", b"c3a4"]]
        {
            encode::data_row(out, row.map(Some));
        }
        encode::command_complete(out, "SELECT 3");
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &found);
    world.sent.clear();
    world.query(client, "discard all");
    let discarded = message(|out| {
        encode::command_complete(out, "DISCARD ALL");
        encode::parameter_status(out, b"application_name", b"");
        encode::ready(out, Status::Idle);
    });
    world.sent.clear();
    world.event(Event::Received { conn: server, bytes: &discarded, unsent: true });
    let sent = world.text(server);
    assert!(sent.contains("pg_settings") && !sent.contains("'app.tenant','a'"), "{sent}");
    world.receive(server, &holds(&[]));
    let sent = world.text(server);
    assert!(sent.contains("'lock_timeout','9s'") && !sent.contains("'app.tenant','a'"), "{sent}");
}

#[test]
fn locks_are_asked_for_behind_another_clients_settings() {
    let (mut world, client, server) = beginning(ON);
    let extended = |sql: &[u8]| {
        message(|out| {
            encode::parse(out, b"", sql, &[]);
            encode::bind_simple(out, b"", b"", &[]);
            encode::execute(out, b"", 0);
            encode::sync(out);
        })
    };
    let answered = |tag: &str| {
        message(|out| {
            encode::parse_complete(out);
            encode::bind_complete(out);
            encode::command_complete(out, tag);
            encode::ready(out, Status::Idle);
        })
    };
    world.receive(client, &extended(b"set timezone = 'UTC'"));
    world.receive(server, &answered("SET"));
    world.receive(server, &holds(&[]));
    world.sent.clear();
    world.receive(client, &extended(b"select pg_advisory_lock(1)"));
    world.receive(server, &answered("SELECT 1"));
    let asked = world.text(server);
    assert!(asked.contains("pg_locks"), "{asked}");
}
