//! `session_state = virtual`: what a client has prepared by SQL is on the server that it gets, under its own names, and nothing of others.

use crate::world::takeover::import_all;
use crate::world::{World, message};
use messages::Command;
use shard::{ConnId, Event};
use wire::backend::Status;
use wire::encode;

const ON: &str = "default_pool_size = 1\nsession_state = virtual\nserver_check_query =";

/// An idle server, and clients.
fn idle<const N: usize>() -> (World, [ConnId; N], ConnId) {
    let mut world = World::new(ON);
    let clients = [(); N].map(|()| world.client(&[]));
    let server = world.server();
    world.answer(server, Status::Idle); // The question for tables that change a session.
    world.sent.clear();
    (world, clients, server)
}

fn command(world: &mut World, server: ConnId, tag: &str) {
    let bytes = message(|out| {
        encode::command_complete(out, tag);
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &bytes);
}

fn refuse(world: &mut World, server: ConnId, code: &str, text: &str) {
    let bytes = message(|out| {
        encode::error(out, "ERROR", code, text);
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &bytes);
}

/// The catalog shows these statements, of SQL, each with its text.
fn shows(world: &mut World, server: ConnId, statements: &[(&str, &str)]) {
    shows_with(world, server, &[], statements);
}

/// The same, and that the session holds this.
fn shows_with(world: &mut World, server: ConnId, kinds: &[&str], statements: &[(&str, &str)]) {
    let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    let bytes = message(|out| {
        for kind in kinds {
            encode::data_row(out, [Some(kind.as_bytes()), Some(b""), Some(b"")]);
        }
        for (name, text) in statements {
            let (name, text) = (hex(name), hex(text));
            encode::data_row(out, [Some(&b"p"[..]), Some(name.as_bytes()), Some(text.as_bytes())]);
        }
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &bytes);
}

const P: &str = "prepare p as select 1";

/// The client prepares `p`, which the catalog shows then.
fn prepare(world: &mut World, client: ConnId, server: ConnId) {
    world.query(client, P);
    assert!(world.text(server).contains(P));
    command(world, server, "PREPARE");
    assert!(world.text(server).contains("pg_prepared_statements"));
    shows(world, server, &[("p", P)]);
    assert_eq!(world.tags(client), "CZ");
}

/// The client runs this, and is asked for nothing afterwards.
fn run(world: &mut World, client: ConnId, server: ConnId) {
    world.query(client, "select 1");
    assert_eq!(world.tags(server), "Q");
    world.answer(server, Status::Idle);
    assert_eq!((world.tags(client), world.tags(server)), ("CZ".to_owned(), String::new()));
}

#[test]
fn it_follows_its_client_and_reaches_no_other() {
    let (mut world, [one, other], server) = idle();
    prepare(&mut world, one, server);
    run(&mut world, one, server);
    world.query(other, "select 1");
    assert!(world.text(server).ends_with("DEALLOCATE \"p\";\0"), "before anything of the other client's");
    command(&mut world, server, "DEALLOCATE");
    assert_eq!(world.tags(server), "Q");
    world.answer(server, Status::Idle);
    world.query(one, "select 1");
    assert!(world.text(server).ends_with(&format!("{P}\0")));
    command(&mut world, server, "PREPARE");
    assert_eq!(world.tags(server), "Q");
    world.answer(server, Status::Idle);
    world.sent.clear();
    run(&mut world, one, server);
}

#[test]
fn one_that_cannot_be_repeated_keeps_its_client() {
    let (mut world, [one, other], server) = idle();
    world.query(one, P);
    command(&mut world, server, "PREPARE");
    shows(&mut world, server, &[("p", "select 1; prepare p as select 1")]);
    world.sent.clear();
    world.query(other, "select 1");
    assert_eq!(world.tags(server), "", "it has no server");
    world.query(one, "deallocate p");
    command(&mut world, server, "DEALLOCATE");
    world.sent.clear();
    shows(&mut world, server, &[]);
    assert_eq!(world.tags(server), "Q", "now it has");
}

#[test]
fn one_that_cannot_be_prepared_any_more_has_the_error_of_that() {
    let (mut world, [one, other], server) = idle();
    prepare(&mut world, one, server);
    world.query(other, "select 1");
    command(&mut world, server, "DEALLOCATE");
    world.answer(server, Status::Idle);
    for code in ["42P01", "42501"] {
        world.query(one, "execute p");
        refuse(&mut world, server, code, "no such relation");
        world.sent.clear();
        refuse(&mut world, server, "26000", "prepared statement \"p\" does not exist");
        assert!(world.text(one).contains(code));
        shows(&mut world, server, &[]);
        world.sent.clear();
    }
    world.query(one, "execute p");
    command(&mut world, server, "PREPARE");
    assert!(world.text(server).contains("execute p"), "it is tried each time");
    // Another client is told of its own statements only.
    world.answer(server, Status::Idle);
    shows(&mut world, server, &[("p", P)]);
    world.query(other, "execute p");
    command(&mut world, server, "RESET"); // EXECUTE may have set anything.
    command(&mut world, server, "DEALLOCATE");
    world.sent.clear();
    refuse(&mut world, server, "26000", "prepared statement \"p\" does not exist");
    let told = world.text(other);
    assert!(told.contains("26000"), "{told:?}");
}

#[test]
fn one_that_could_not_be_prepared_is_tried_again_on_the_server_that_its_client_keeps() {
    let (mut world, [one, other], server) = idle();
    prepare(&mut world, one, server);
    world.query(other, "select 1");
    command(&mut world, server, "DEALLOCATE");
    world.answer(server, Status::Idle);
    world.query(one, "create temp table t ()");
    refuse(&mut world, server, "42P01", "relation \"t\" does not exist");
    world.sent.clear();
    command(&mut world, server, "CREATE TABLE");
    assert!(world.text(server).contains("pg_my_temp_schema"));
    shows_with(&mut world, server, &["t"], &[]);
    assert!(world.text(server).ends_with(&format!("{P}\0")), "it is tried again");
    assert_eq!(world.tags(one), "CZ");
    world.query(one, "execute p");
    assert_eq!(world.tags(server), "", "the client waits for it");
    command(&mut world, server, "PREPARE");
    assert!(world.text(server).ends_with("execute p\0"));
    command(&mut world, server, "SELECT 1");
    assert!(world.text(server).contains("pg_prepared_statements"));
    shows_with(&mut world, server, &["t"], &[("p", P)]);
    assert_eq!(world.tags(one), "CZ");
    assert_eq!(world.tags(server), "", "nothing is lacking any more");
}

#[test]
fn why_a_statement_could_not_be_prepared_is_told_to_its_client_alone() {
    let (mut world, [one, other], server) = idle();
    prepare(&mut world, one, server);
    world.query(other, "select 1");
    command(&mut world, server, "DEALLOCATE");
    world.answer(server, Status::Idle);
    world.query(one, "execute p");
    refuse(&mut world, server, "42P01", "no such relation");
    refuse(&mut world, server, "26000", "prepared statement \"p\" does not exist");
    shows(&mut world, server, &[]);
    world.query(other, "execute p");
    world.led(server, 2); // EXECUTE may have set anything.
    world.sent.clear();
    refuse(&mut world, server, "26000", "prepared statement \"p\" does not exist");
    let told = world.text(other);
    assert!(told.contains("26000"), "{told:?}");
}

fn parse(name: &[u8]) -> Vec<u8> {
    message(|out| {
        encode::parse(out, name, b"select 8", &[]);
        encode::sync(out);
    })
}

fn bind(name: &[u8]) -> Vec<u8> {
    message(|out| {
        encode::bind_simple(out, b"", name, &[]);
        encode::execute(out, b"", 0);
        encode::sync(out);
    })
}

/// The client prepares `b` by the protocol.
fn parse_b(world: &mut World, client: ConnId, server: ConnId) {
    world.receive(client, &parse(b"b"));
    let bytes = message(|out| {
        encode::parse_complete(out);
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &bytes);
    assert_eq!(world.tags(client), "1Z");
    world.sent.clear();
}

#[test]
fn what_sql_names_is_on_the_server_under_that_name() {
    for (sql, text) in [
        ("deallocate b", ""),
        ("select 1; deallocate b", "select 8"), // It may fail before.
        ("execute b", "select 8"),
        ("prepare b as select 9", "select 8"),
    ] {
        let (mut world, [client], server) = idle();
        parse_b(&mut world, client, server);
        world.query(client, sql);
        let sent = world.text(server);
        let own = sent.find(&format!("b\0{text}\0")).unwrap();
        assert!(sent.starts_with('P') && own < sent.find(sql).unwrap(), "{sent:?}");
        let bytes = message(|out| {
            encode::parse_complete(out);
            encode::ready(out, Status::Idle);
        });
        world.receive(server, &bytes);
        assert_eq!(world.tags(client), "", "nothing of that is the client's");
        command(&mut world, server, "DEALLOCATE");
        assert_eq!(world.tags(client), "CZ");
        assert!(world.text(server).contains("pg_prepared_statements"));
        shows(&mut world, server, &[]);
        world.sent.clear();
        world.receive(client, &bind(b"b"));
        assert!(!world.text(server).contains("select 8"), "the name stands for nothing any more");
    }
}

#[test]
fn a_text_that_is_only_parsed_leaves_what_it_would_deallocate() {
    let (mut world, [client], server) = idle();
    parse_b(&mut world, client, server);
    let deallocate = message(|out| {
        encode::parse(out, b"", b"deallocate b", &[]);
        encode::sync(out);
    });
    world.receive(client, &deallocate);
    assert!(world.text(server).contains("b\0select 8\0"), "it is still there if that is not executed");
}

#[test]
fn a_query_in_an_open_segment_finds_its_names_and_the_segment_stays_open() {
    let (mut world, [client], server) = idle();
    parse_b(&mut world, client, server);
    let open = message(|out| {
        encode::bind_simple(out, b"", b"b", &[]);
        encode::execute(out, b"", 0);
    });
    world.receive(client, &open);
    let answered = message(|out| {
        encode::bind_complete(out);
        encode::command_complete(out, "SELECT 1");
    });
    world.receive(server, &answered);
    world.sent.clear();
    world.query(client, "execute b");
    assert_eq!(world.tags(server), "PQ", "a Sync would end the transaction");
}

#[test]
fn a_query_that_the_server_skips_gets_no_names() {
    let (mut world, [client], server) = idle();
    parse_b(&mut world, client, server);
    world.receive(client, &message(|out| encode::execute(out, b"none", 0)));
    world.receive(server, &message(|out| encode::error(out, "ERROR", "34000", "no portal")));
    world.sent.clear();
    world.query(client, "execute b");
    assert_eq!(world.tags(server), "Q", "a Sync would let it be executed");
}

#[test]
fn a_parse_of_that_kind_that_fails_is_not_the_clients() {
    let (mut world, [client], server) = idle();
    parse_b(&mut world, client, server);
    world.query(client, "execute b");
    refuse(&mut world, server, "42P01", "of Weir's own Parse");
    assert_eq!(world.tags(client), "");
    refuse(&mut world, server, "26000", "of the query");
    assert!(world.text(client).contains("of the query"));
    shows(&mut world, server, &[]);
    world.sent.clear();
    world.receive(client, &bind(b"b"));
    assert!(world.text(server).contains("PGBOUNCER_"), "the name still stands for its statement");
}

#[test]
fn what_sql_has_prepared_is_bound_under_its_name() {
    let (mut world, [client], server) = idle();
    prepare(&mut world, client, server);
    world.receive(client, &bind(b"p"));
    assert_eq!(world.tags(server), "BES");
    let bytes = message(|out| {
        encode::bind_complete(out);
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &bytes);
    assert_eq!(world.tags(client), "2CZ");
    shows(&mut world, server, &[("p", P)]);
    world.sent.clear();
    world.receive(client, &parse(b"p"));
    assert!(world.text(server).starts_with('P') && !world.text(server).contains("PGBOUNCER_"));
    refuse(&mut world, server, "42P05", "prepared statement \"p\" already exists");
    assert!(world.text(client).contains("42P05"));
}

#[test]
fn it_moves_to_the_process_that_takes_over() {
    let (mut old, [client, other], server) = idle();
    prepare(&mut old, client, server);
    let mut new = World::new(ON);
    old.event(Event::Command(Command::Export { round: 1 }));
    let places = import_all(&mut old, &mut new);
    let (client, other, server) = (places[&client], places[&other], places[&server]);
    new.answer(server, Status::Idle);
    new.sent.clear();
    run(&mut new, client, server);
    new.query(other, "select 1");
    assert!(new.text(server).contains("DEALLOCATE \"p\";"));
    command(&mut new, server, "DEALLOCATE");
    new.answer(server, Status::Idle);
    new.sent.clear();
    new.query(client, "select 1");
    assert!(new.text(server).contains(P));
}

#[test]
fn what_a_transaction_has_prepared_is_known_to_the_process_that_takes_over() {
    let (mut old, [client], server) = idle();
    for sql in ["begin", P] {
        old.query(client, sql);
        old.answer(server, Status::InTransaction);
    }
    let mut new = World::new(ON);
    old.event(Event::Command(Command::Export { round: 1 }));
    let places = import_all(&mut old, &mut new);
    let (client, server) = (places[&client], places[&server]);
    new.sent.clear();
    new.receive(client, &message(|out| encode::close(out, b'S', b"p")));
    let sent = new.text(server);
    assert!(sent.ends_with("Sp\0"), "the server has no other one: {sent:?}");
}

#[test]
fn a_text_under_a_path_of_this_transaction_is_parsed() {
    let (mut world, [client], server) = idle();
    parse_b(&mut world, client, server);
    for sql in ["begin", "set local search_path = s1"] {
        world.query(client, sql);
        world.answer(server, Status::InTransaction);
    }
    world.sent.clear();
    world.receive(client, &parse(b"c"));
    assert!(world.tags(server).starts_with('P'), "the server judges it");
    assert_eq!(world.tags(client), "");
}

#[test]
fn a_warning_about_a_text_that_is_parsed_again_is_not_the_clients() {
    let (mut world, [client, other], server) = idle();
    parse_b(&mut world, client, server);
    world.query(other, "deallocate all");
    command(&mut world, server, "DEALLOCATE ALL");
    shows(&mut world, server, &[]);
    world.sent.clear();
    world.receive(client, &bind(b"b"));
    assert!(world.tags(server).starts_with('P'));
    let bytes = message(|out| {
        encode::notice(out, "WARNING", "22P06", "nonstandard use of escape");
        encode::parse_complete(out);
        encode::bind_complete(out);
        encode::notice(out, "WARNING", "01000", "of what runs");
    });
    world.receive(server, &bytes);
    let told = world.text(client);
    assert!(!told.contains("nonstandard") && told.contains("of what runs"), "{told:?}");
}

/// PostgreSQL 18 keeps the transaction of a pipeline open behind a Query in it: a Sync of Weir's own would commit it.
#[test]
fn what_an_execute_needs_in_a_pipeline_ends_no_transaction() {
    let (mut world, [one], server) = idle();
    let parsed = message(|out| {
        encode::parse(out, b"p", b"select 1", &[]);
        encode::sync(out);
    });
    world.receive(one, &parsed);
    let ready = |out: &mut Vec<u8>| encode::ready(out, Status::Idle);
    world.receive(server, &[message(encode::parse_complete), message(ready)].concat());
    let pipeline = message(|out| {
        encode::bind_simple(out, b"", b"p", &[]);
        encode::execute(out, b"", 0);
        encode::query(out, b"select 1");
    });
    world.receive(one, &pipeline);
    let answers = message(|out| {
        encode::bind_complete(out);
        encode::command_complete(out, "SELECT 1");
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::InTransaction);
    });
    world.receive(server, &answers);
    world.sent.clear();
    world.query(one, "execute p");
    assert_eq!(world.tags(server), "PQ", "no Sync between them");
}

/// PostgreSQL looks the name up when the portal is executed.
#[test]
fn what_is_parsed_behind_a_text_that_names_it_is_on_the_server_under_that_name() {
    for (between, sql) in [(false, "deallocate b"), (false, "execute b"), (true, "deallocate b")] {
        for statement in [&b""[..], b"d"] {
            let (mut world, [client], server) = idle();
            let first = message(|out| {
                encode::parse(out, statement, sql.as_bytes(), &[]);
                encode::sync(out);
            });
            world.receive(client, &first);
            let parsed = message(|out| {
                encode::parse_complete(out);
                encode::ready(out, Status::Idle);
            });
            world.receive(server, &parsed);
            let bound = message(|out| encode::bind_simple(out, b"", statement, &[]));
            let parse = message(|out| encode::parse(out, b"b", b"select 8", &[]));
            let both = if between && statement.is_empty() { [parse, bound] } else { [bound, parse] };
            world.receive(client, &both.concat());
            let sent = world.text(server);
            assert!(sent.contains("b\0select 8\0"), "{sql} as {statement:?}: {sent:?}");
            assert_eq!(sent.matches("select 8").count(), 1, "{sql} as {statement:?}: {sent:?}");
        }
    }
}
