//! `deferred_begin`: a plain BEGIN is answered at once, and goes to a server in front of the client's next request.

use crate::world::takeover::import_all;
use crate::world::{World, config, message};
use messages::{Command, RequestId, ShutdownMode};
use shard::{ConnId, Event};
use wire::backend::Status;
use wire::encode;

const ON: &str = "default_pool_size = 1\ndeferred_begin = 1";

/// What a server sends for the messages of the BEGIN.
fn begun(out: &mut Vec<u8>) {
    encode::parse_complete(out);
    encode::bind_complete(out);
    encode::command_complete(out, "BEGIN");
    encode::close_complete(out);
    encode::close_complete(out);
}

/// A client that has logged in, and an idle server.
fn idle(settings: &str) -> (World, ConnId, ConnId) {
    let mut world = World::new(settings);
    let client = world.client(&[]);
    let server = world.server();
    world.sent.clear();
    (world, client, server)
}

#[test]
fn begin_goes_in_front_of_the_next_request_and_its_replies_are_swallowed() {
    let (mut world, client, server) = idle(ON);
    world.query(client, "begin");
    let told = world.text(client);
    assert!(told.contains("BEGIN\0Z") && told.ends_with('T'), "{told:?}");
    assert_eq!(world.tags(server), "", "no server knows of it");
    world.query(client, "insert");
    let sent = world.text(server);
    assert!(sent.find("BEGIN") < sent.find("insert"), "{sent:?}");
    let answer = message(|out| {
        begun(out);
        encode::command_complete(out, "INSERT 0 1");
        encode::ready(out, Status::InTransaction);
    });
    // However the answer is cut, the client gets its own.
    for byte in &answer {
        world.receive(server, &[*byte]);
    }
    let told = world.text(client);
    assert!(told.contains("INSERT 0 1\0Z") && !told.contains("BEGIN"), "{told:?}");
    world.query(client, "commit");
    assert_eq!(world.tags(server), "Q", "this transaction is the server's");
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(client), "CZ");
    world.query(client, "select 1");
    assert_eq!(world.tags(server), "Q", "and the next request has no BEGIN in front");
}

#[test]
fn the_extended_protocol_gets_its_begin_too() {
    let (mut world, client, server) = idle(ON);
    world.query(client, "START TRANSACTION;");
    assert!(world.text(client).contains("START TRANSACTION\0Z"));
    let request = message(|out| {
        encode::parse(out, b"", b"select 1", &[]);
        encode::bind_simple(out, b"", b"", &[]);
        encode::execute(out, b"", 0);
        encode::sync(out);
    });
    world.receive(client, &request);
    assert_eq!(world.tags(server), "PBECCPBES");
    let answer = message(|out| {
        begun(out);
        encode::parse_complete(out);
        encode::bind_complete(out);
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::InTransaction);
    });
    world.receive(server, &answer);
    assert_eq!(world.tags(client), "12CZ");
}

#[test]
fn a_transaction_without_a_request_needs_no_server() {
    let mut world = World::new(ON);
    let client = world.client(&[]);
    let server = world.server();
    // Another client has the only server.
    let other = world.client(&[]);
    world.query(other, "begin");
    world.query(other, "select 1");
    world.sent.clear();
    for (begin, end, tag) in [("begin", "commit", "COMMIT"), ("start transaction", "abort", "ROLLBACK")] {
        world.query(client, begin);
        assert!(world.text(client).ends_with('T'));
        world.query(client, end);
        let told = world.text(client);
        assert!(told.contains(tag) && told.ends_with('I'), "{told:?}");
    }
    assert_eq!(world.tags(server), "");
    world.query(client, "commit");
    assert_eq!(world.tags(client), "", "outside of a transaction COMMIT is the server's to answer");
}

#[test]
fn what_is_no_plain_end_goes_behind_the_begin() {
    for sql in ["begin", "rollback and chain", "savepoint a", "", "commit; select 1"] {
        let (mut world, client, server) = idle(ON);
        world.query(client, "begin");
        world.query(client, sql);
        assert_eq!(world.tags(server), "PBECCQ", "{sql}");
    }
}

#[test]
fn begin_is_not_deferred_where_it_gains_nothing() {
    let off = "default_pool_size = 1";
    for settings in
        [off, "deferred_begin = 1\npool_mode = session", "deferred_begin = 1\npool_mode = statement"]
    {
        let (mut world, client, server) = idle(settings);
        world.query(client, "begin");
        assert_eq!((world.tags(server), world.tags(client)), ("Q".into(), String::new()), "{settings}");
    }
    for sql in ["begin read only", "begin; select 1", "begin -- work"] {
        let (mut world, client, server) = idle(ON);
        world.query(client, sql);
        assert_eq!(world.tags(server), "Q", "{sql}");
    }
    let (mut world, client, server) = idle(ON);
    let both = message(|out| {
        encode::query(out, b"begin");
        encode::query(out, b"select 1");
    });
    world.receive(client, &both);
    assert_eq!(world.tags(server), "QQ", "a pipeline goes through as it is");
}

#[test]
fn a_begin_that_the_server_refuses_ends_the_client_and_nothing_was_executed() {
    let (mut world, client, server) = idle(ON);
    world.query(client, "begin");
    world.query(client, "insert");
    world.sent.clear();
    let refusal = message(|out| {
        encode::parse_complete(out);
        encode::bind_complete(out);
        encode::error(out, "ERROR", "57014", "canceling statement due to statement timeout");
    });
    world.receive(server, &refusal);
    let told = world.text(client);
    assert!(told.contains("FATAL") && told.contains("refused the deferred BEGIN"), "{told:?}");
    assert!(world.closed.contains(&client) && world.closed.contains(&server));
}

#[test]
fn timeouts_count_from_begin() {
    let (mut world, client, _) =
        idle("default_pool_size = 1\ndeferred_begin = 1\nidle_transaction_timeout = 2");
    world.query(client, "begin");
    world.pass(1_500);
    assert!(world.closed.is_empty());
    world.pass(1_000);
    assert!(world.text(client).contains("idle transaction timeout"));
    let (mut world, client, server) =
        idle("default_pool_size = 1\ndeferred_begin = 1\ntransaction_timeout = 2");
    world.query(client, "begin");
    world.pass(1_500);
    world.query(client, "select 1");
    world.sent.clear();
    world.pass(1_000);
    assert!(world.text(client).contains("transaction timeout"), "the server's time counts from BEGIN, too");
    assert!(world.closed.contains(&server));
}

#[test]
fn one_that_waits_for_a_server_is_subject_to_query_wait_timeout() {
    let (mut world, client, _) = idle("default_pool_size = 1\ndeferred_begin = 1\nquery_wait_timeout = 2");
    let other = world.client(&[]);
    world.query(other, "select 1");
    world.query(client, "begin");
    world.query(client, "select 2");
    world.sent.clear();
    world.pass(2_500);
    assert!(world.text(client).contains("query_wait_timeout"));
}

#[test]
fn one_that_has_waited_sends_its_begin_with_its_request() {
    let (mut world, client, server) = idle(ON);
    let other = world.client(&[]);
    world.query(other, "select 1");
    world.query(client, "begin");
    world.query(client, "select 2");
    assert_eq!(world.tags(server), "Q");
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(server), "PBECCQ");
}

#[test]
fn reload_that_turns_it_off_ends_no_transaction() {
    let (mut world, client, server) = idle(ON);
    world.query(client, "begin");
    world.event(Event::Command(Command::Configure(config("default_pool_size = 1"))));
    world.query(client, "select 1");
    assert_eq!(world.tags(server), "PBECCQ");
}

#[test]
fn shutdown_takes_no_new_transaction_and_pause_keeps_its_request_waiting() {
    let (mut world, client, server) = idle(ON);
    world.event(Event::Command(Command::Pause { request: RequestId(1), database: None }));
    world.query(client, "begin");
    assert_eq!(world.tags(client), "CZ");
    world.query(client, "select 1");
    assert_eq!(world.tags(server), "X", "the idle server was closed, and none is opened");
    assert!(world.connecting.is_empty());

    let (mut world, client, _) = idle(ON);
    let mode = ShutdownMode::WaitForServers;
    world.event(Event::Command(Command::Shutdown { request: RequestId(1), mode }));
    world.query(client, "begin");
    assert!(world.text(client).contains("server shutting down"));
}

#[test]
fn it_moves_to_the_process_that_takes_over() {
    let (mut old, client, server) = idle(ON);
    let mut new = World::new(ON);
    old.query(client, "begin");
    old.event(Event::Command(Command::Export { round: 1 }));
    let places = import_all(&mut old, &mut new);
    new.sent.clear();
    new.query(places[&client], "select 1");
    assert_eq!(new.tags(places[&server]), "PBECCQ");
}

#[test]
fn a_client_that_disconnects_leaves_nothing() {
    let (mut world, client, server) = idle(ON);
    world.query(client, "begin");
    world.event(Event::HungUp { conn: client });
    let other = world.client(&[]);
    world.query(other, "select 1");
    assert_eq!(world.tags(server), "Q");
}
