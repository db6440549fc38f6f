//! `currval` and `lastval` with `session_state = virtual`: which server a client gets that asks for a value, and what that is sent before.

use crate::world::takeover::import_all;
use crate::world::{World, message};
use messages::{Command, LimitOf, ShardId, ShardMessage};
use shard::{ConnId, Event};
use wire::backend::Status;
use wire::{backend, encode, frame::Frames};

const INSERT: &str = "insert into t values (1)";
const ASKS: &str = "select lastval()";
const DISCARD: &str = "DISCARD SEQUENCES";

fn settings(size: u32, more: &str) -> String {
    format!("default_pool_size = {size}\nsession_state = virtual\n{more}")
}

/// Two clients, and a server that has told that no table changes a session.
fn beginning(size: u32, more: &str) -> (World, ConnId, ConnId, ConnId) {
    let mut world = World::new(&settings(size, more));
    let (one, two) = (world.client(&[]), world.client(&[]));
    let server = world.server();
    assert!(world.text(server).contains("RECURSIVE"));
    world.answer(server, Status::Idle);
    (world, one, two, server)
}

fn done(world: &mut World, server: ConnId, tag: &str) {
    let bytes = message(|out| {
        encode::command_complete(out, tag);
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &bytes);
}

/// The client asks this, this server is sent it, and answers.
fn run(world: &mut World, client: ConnId, server: ConnId, sql: &str, tag: &str) {
    world.query(client, sql);
    let sent = world.text(server);
    assert!(sent.contains(sql), "{sql}: {sent}");
    done(world, server, tag);
}

fn pinned(world: &mut World) -> u32 {
    let audit = world.shard.audit();
    assert_eq!(audit.contradiction, None);
    audit.pins.values().sum()
}

#[test]
fn a_request_for_values_of_others_waits_for_discard_sequences() {
    let (mut world, one, two, server) = beginning(1, "");
    run(&mut world, one, server, INSERT, "INSERT 0 1");
    world.query(two, ASKS);
    let sent = world.text(server);
    assert!(sent.contains(DISCARD) && !sent.contains(ASKS), "{sent}");
    done(&mut world, server, "DISCARD SEQUENCES");
    assert!(world.text(server).contains(ASKS));
    done(&mut world, server, "SELECT 1");
    // The server has no values any more, and the pool has learned that clients ask for earlier ones.
    run(&mut world, one, server, ASKS, "SELECT 1");
    run(&mut world, one, server, INSERT, "INSERT 0 1");
    assert_eq!(pinned(&mut world), 1);
    world.query(two, "select 1");
    assert_eq!(world.text(server), "", "the client keeps it");
    world.event(Event::HungUp { conn: one });
    let sent = world.text(server);
    let (before, _) = sent.split_once("select 1").unwrap();
    assert!(before.contains(DISCARD), "before another one's request: {sent}");
    assert_eq!(pinned(&mut world), 0);
}

/// Requests in front of it whose answers are not there yet, and messages that are none, let nothing pass that asks for values.
#[test]
fn a_request_for_values_waits_behind_others_of_its_client() {
    let asks = message(|out| {
        encode::parse(out, b"", ASKS.as_bytes(), &[]);
        encode::bind_simple(out, b"", b"", &[]);
        encode::execute(out, b"", 0);
        encode::sync(out);
    });
    let query = message(|out| encode::query(out, b"insert into t values (2); select 2"));
    let stray = message(|out| encode::copy_fail(out, b"no more"));
    for before in [vec![&query], vec![&query, &stray], vec![&query, &query, &stray], vec![&stray]] {
        let (mut world, one, two, server) = beginning(1, "");
        run(&mut world, one, server, "select nextval('s')", "SELECT 1");
        let mut bytes: Vec<u8> = before.iter().flat_map(|part| part.iter().copied()).collect();
        let queries = before.iter().filter(|part| ***part == query).count();
        bytes.extend_from_slice(&asks);
        world.receive(two, &bytes);
        for _ in 0..queries {
            let sent = world.text(server);
            assert!(!sent.contains(ASKS), "{} messages: {sent}", before.len());
            let answer = message(|out| {
                encode::command_complete(out, "INSERT 0 1");
                encode::command_complete(out, "SELECT 1");
                encode::ready(out, Status::Idle);
            });
            world.receive(server, &answer);
        }
        let sent = world.text(server);
        assert!(sent.contains(DISCARD) && !sent.contains(ASKS), "{} messages: {sent}", before.len());
    }
}

#[test]
fn what_may_have_called_nextval_shows_in_tags_texts_and_errors() {
    for (sql, tag) in [
        (INSERT, "INSERT 0 1"),
        ("merge into t using u on a = b when not matched then insert values (b)", "MERGE 1"),
        ("copy t from '/x'", "COPY 1"),
        ("update t set a = default", "UPDATE 1"),
        ("select nextval('s')", "SELECT 1"),
        ("select pg_catalog.setval('s', 7)", "SELECT 1"),
    ] {
        let (mut world, one, two, server) = beginning(1, "");
        run(&mut world, one, server, sql, tag);
        world.query(two, ASKS);
        assert!(world.text(server).contains(DISCARD), "{sql}");
    }
    for sql in ["select 1", "select count(*) from t", "select f.nextval from f"] {
        let (mut world, one, two, server) = beginning(1, "");
        run(&mut world, one, server, sql, "SELECT 1");
        run(&mut world, two, server, ASKS, "SELECT 1");
    }
    let (mut world, one, two, server) = beginning(1, "");
    world.query(one, "insert into t values (1 / 0)");
    world.receive(
        server,
        &message(|out| {
            encode::error(out, "ERROR", "22012", "division by zero");
            encode::ready(out, Status::Idle);
        }),
    );
    world.text(server);
    world.query(two, ASKS);
    assert!(world.text(server).contains(DISCARD), "the default of another column may have been evaluated");
}

#[test]
fn the_client_gets_the_idle_server_that_has_its_value() {
    for more in ["", "server_shuffle = 1"] {
        let (mut world, one, two, first) = beginning(2, more);
        run(&mut world, one, first, INSERT, "INSERT 0 1");
        world.query(two, "begin");
        world.text(first);
        world.query(one, "select 1");
        let second = world.server();
        assert!(world.text(second).contains("select 1"), "{more}");
        done(&mut world, second, "SELECT 1");
        let begun = message(|out| {
            encode::command_complete(out, "BEGIN");
            encode::ready(out, Status::InTransaction);
        });
        world.receive(first, &begun);
        run(&mut world, two, first, "commit", "COMMIT");
        // The one that it used last is idle, too.
        run(&mut world, one, first, ASKS, "SELECT 1");
        assert!(!world.text(second).contains(ASKS), "{more}");
    }
}

#[test]
fn over_budget_a_client_leaves_its_server() {
    let (mut world, one, two, server) = beginning(2, "max_pinned = 1");
    run(&mut world, one, server, ASKS, "SELECT 1");
    run(&mut world, one, server, INSERT, "INSERT 0 1");
    world.query(two, INSERT);
    let second = world.server();
    assert!(world.text(second).contains(INSERT));
    done(&mut world, second, "INSERT 0 1");
    assert_eq!(pinned(&mut world), 1);
    let third = world.client(&[]);
    world.query(third, ASKS);
    assert!(world.text(second).contains(DISCARD), "it is free");
    assert!(!world.closed.contains(&two));
}

/// A pool of one server that has learned that its clients ask for values, kept by the first client for its own.
fn kept() -> (World, ConnId, ConnId, ConnId) {
    let (mut world, one, two, server) = beginning(1, "");
    run(&mut world, one, server, ASKS, "SELECT 1");
    run(&mut world, one, server, INSERT, "INSERT 0 1");
    assert_eq!(pinned(&mut world), 1);
    (world, one, two, server)
}

/// The client that waits with `select 2` gets the server, without another one's values.
fn gets_server(world: &mut World, server: ConnId) {
    assert!(world.text(server).contains(DISCARD));
    done(world, server, DISCARD);
    assert!(world.text(server).contains("select 2"));
}

#[test]
fn one_that_does_nothing_gives_its_server_to_one_that_has_waited_long() {
    let (mut world, _one, two, server) = kept();
    world.query(two, "select 2");
    assert_eq!(world.text(server), "");
    world.pass(400);
    gets_server(&mut world, server);
    assert_eq!(pinned(&mut world), 0);
}

#[test]
fn a_busy_one_gives_its_server_back_between_two_requests() {
    let (mut world, one, two, server) = kept();
    world.query(two, "select 2");
    for _ in 0..3 {
        run(&mut world, one, server, INSERT, "INSERT 0 1");
    }
    world.query(one, INSERT);
    world.pass(400);
    assert!(world.text(server).contains(INSERT));
    done(&mut world, server, "INSERT 0 1");
    assert_eq!(world.text(server), "", "most ask for it next");
    run(&mut world, one, server, ASKS, "SELECT 1");
    gets_server(&mut world, server);
    let (mut world, one, two, server) = kept();
    world.query(one, INSERT);
    world.query(two, "select 2");
    world.pass(400);
    world.text(server);
    done(&mut world, server, "INSERT 0 1");
    world.query(one, INSERT);
    assert!(world.text(server).contains(INSERT));
    done(&mut world, server, "INSERT 0 1");
    gets_server(&mut world, server);
}

#[test]
fn who_waits_for_resume_takes_nobodys_value() {
    let (mut world, _one, two, server) = kept();
    let request = messages::RequestId(1);
    world.event(Event::Command(Command::Pause { request, database: Some("d".into()) }));
    world.query(two, "select 2");
    world.pass(400);
    assert_eq!((world.text(server), pinned(&mut world)), (String::new(), 1));
}

#[test]
fn another_thread_gets_the_place_of_one_that_is_kept_for_values() {
    let (mut world, one, _two, server) = kept();
    let request = |world: &mut World| {
        let message = ShardMessage::RequestPermit {
            from: ShardId(1),
            has_waited_long: true,
            limit: LimitOf::Pool,
            database: "d".into(),
            user: "u".into(),
            host: None,
        };
        world.event(Event::ShardMessage(message));
    };
    world.pass(100);
    request(&mut world);
    assert_eq!(pinned(&mut world), 1, "it has asked for something just now");
    run(&mut world, one, server, INSERT, "INSERT 0 1");
    assert_eq!(pinned(&mut world), 1, "and may ask for its value next");
    run(&mut world, one, server, ASKS, "SELECT 1");
    assert_eq!(pinned(&mut world), 0);
    request(&mut world);
    assert!(world.tags(server).contains('X'), "idle, and another one's turn");
}

#[test]
fn another_pool_of_the_database_gets_the_place_of_one_that_is_kept_for_values() {
    let (mut world, one, _two, server) = beginning(1, "max_db_connections = 1");
    run(&mut world, one, server, ASKS, "SELECT 1");
    run(&mut world, one, server, INSERT, "INSERT 0 1");
    let other = world.client(&[("user", "boss")]);
    world.query(other, "select 2");
    assert_eq!(pinned(&mut world), 1);
    for _ in 0..3 {
        world.pass(400);
    }
    assert!(world.tags(server).contains('X'));
    assert_eq!(pinned(&mut world), 0);
}

#[test]
fn it_moves_with_its_client_to_the_next_process() {
    let (mut old, one, _two, server) = beginning(1, "");
    run(&mut old, one, server, ASKS, "SELECT 1");
    run(&mut old, one, server, INSERT, "INSERT 0 1");
    let mut new = World::new(&settings(1, ""));
    old.event(Event::Command(Command::Export { round: 1 }));
    let places = import_all(&mut old, &mut new);
    let [one, server] = [one, server].map(|conn| places[&conn]);
    assert!(new.text(server).contains("pg_my_temp_schema"), "what else its session holds");
    done(&mut new, server, "SELECT 0");
    assert_eq!(pinned(&mut new), 1);
    run(&mut new, one, server, ASKS, "SELECT 1");
}

/// A server has the client's name, which it reports.
fn has_name(world: &mut World, server: ConnId, name: &str) {
    let bytes = message(|out| {
        encode::command_complete(out, "SET");
        encode::parameter_status(out, b"application_name", name.as_bytes());
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &bytes);
}

#[test]
fn settings_in_front_of_the_request_do_not_let_it_pass() {
    let mut world = World::new(&settings(1, ""));
    let clients = ["one", "two"].map(|name| world.client(&[("application_name", name)]));
    let server = world.server();
    world.answer(server, Status::Idle);
    for (client, name, sql, tag) in
        [(clients[0], "one", "select 1", "SELECT 1"), (clients[1], "two", INSERT, "INSERT 0 1")]
    {
        world.query(client, sql);
        has_name(&mut world, server, name);
        done(&mut world, server, tag);
    }
    world.sent.clear();
    world.query(clients[0], ASKS);
    let sent = world.text(server);
    assert!(sent.contains("COMMIT") && sent.contains(DISCARD) && !sent.contains(ASKS), "{sent}");
    world.led(server, 1);
    done(&mut world, server, DISCARD);
    assert!(world.text(server).contains(ASKS), "{}", world.text(server));
}

/// Two clients of whom the second has called `nextval` on the server, and the first has not.
fn called_by_another() -> (World, ConnId, ConnId) {
    let (mut world, one, two, server) = beginning(1, "");
    run(&mut world, two, server, INSERT, "INSERT 0 1");
    (world, one, server)
}

/// Asks to cancel what this client runs: the connection that carries that to the server.
fn cancel(world: &mut World, (process_id, secret): &(u32, Vec<u8>)) -> ConnId {
    let conn = world.accept();
    world.receive(conn, &message(|out| encode::cancel_request(out, *process_id, secret)));
    world.connected()
}

/// The key of a client that has been greeted.
fn key(world: &World, client: ConnId) -> (u32, Vec<u8>) {
    let mut frames = Frames::new(1 << 20);
    frames.push(&world.sent[&client]);
    let mut all = std::iter::from_fn(|| frames.pop().unwrap());
    let (_, body) = all.find(|(tag, _)| *tag == wire::tag::backend::KEY_DATA).unwrap();
    let (process_id, secret) = backend::key_data(&body).unwrap();
    (process_id, secret.to_vec())
}

/// A cancel request is for the client's query: DISCARD SEQUENCES is Weir's own, and waits until it is over.
#[test]
fn values_are_discarded_behind_a_cancel_request() {
    for is_in_block in [true, false] {
        let (mut world, client, server) = called_by_another();
        let key = key(&world, client);
        let asks = message(|out| encode::query(out, ASKS.as_bytes()));
        let status = if is_in_block { Status::InTransaction } else { Status::Idle };
        if is_in_block {
            world.query(client, "begin");
            world.answer(server, status);
        }
        world.query(client, "select 1");
        if !is_in_block {
            world.receive(client, &asks); // It waits, because of the values.
        }
        world.sent.clear();
        let carrier = cancel(&mut world, &key);
        world.answer(server, status);
        if is_in_block {
            world.receive(client, &asks);
        }
        assert_eq!(world.tags(server), "", "{is_in_block}: the cancel may still arrive");
        world.event(Event::HungUp { conn: carrier });
        let sent = world.text(server);
        assert!(sent.contains(DISCARD) && !sent.contains(ASKS), "{is_in_block}: {sent}");
        let discarded = message(|out| {
            encode::command_complete(out, DISCARD);
            encode::ready(out, status);
        });
        world.receive(server, &discarded);
        assert!(world.text(server).contains(ASKS), "{is_in_block}");
        world.sent.clear();
        world.answer(server, status);
        assert_eq!(world.tags(client), "CZ", "{is_in_block}");
        world.query(client, "select 2");
        assert_eq!(world.tags(server), "Q", "{is_in_block}: nothing is held any more");
    }
}

#[test]
fn a_call_settles_nothing_for_the_next_transaction_that_was_sent_with_it() {
    let (mut world, one, server) = called_by_another();
    world.query(one, INSERT);
    world.query(one, ASKS);
    let sent = world.text(server);
    assert!(sent.contains(INSERT) && !sent.contains(ASKS), "{sent}");
    done(&mut world, server, "INSERT 0 1");
    let sent = world.text(server);
    assert!(sent.contains(DISCARD) && !sent.contains(ASKS), "it may be of another sequence: {sent}");
    done(&mut world, server, DISCARD);
    assert!(world.text(server).contains(ASKS));
}

#[test]
fn a_call_settles_nothing_for_the_next_transaction_on_a_server_that_the_client_keeps() {
    let (mut world, one, server) = called_by_another();
    run(&mut world, one, server, "create temp table x (a int)", "CREATE TABLE");
    assert!(world.text(server).contains("pg_my_temp_schema"));
    let found = message(|out| {
        encode::data_row(out, [Some(&b"t"[..]), Some(b""), Some(b"")]);
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &found);
    assert_eq!(pinned(&mut world), 1);
    run(&mut world, one, server, INSERT, "INSERT 0 1");
    world.query(one, ASKS);
    let sent = world.text(server);
    assert!(sent.contains(DISCARD) && !sent.contains(ASKS), "{sent}");
}

#[test]
fn what_is_bound_behind_its_answered_parse_does_not_wait_for_a_sync() {
    let (mut world, one, _, server) = beginning(1, "");
    world.receive(one, b"C\0\0\0\x07Ss\0P\0\0\0\x19s\0select lastval()\0\0\0H\0\0\0\x04");
    assert_eq!(world.tags(server), "CPH");
    world.receive(server, b"3\0\0\0\x041\0\0\0\x04");
    world.receive(one, b"B\0\0\0\x0d\0s\0\0\0\0\0\0\0E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04");
    assert_eq!(world.tags(server), "BES");
}

/// The client runs this in a transaction, by the extended protocol; no statement is followed.
fn run_extended(world: &mut World, client: ConnId, server: ConnId, sql: &str, tag: &str) {
    world.receive(client, &extended(sql));
    let sent = world.text(server);
    assert!(sent.contains(sql), "{sql}: {sent}");
    let bytes = message(|out| {
        out.extend_from_slice(b"1\0\0\0\x042\0\0\0\x04");
        encode::command_complete(out, tag);
        encode::ready(out, Status::InTransaction);
    });
    world.receive(server, &bytes);
}

fn extended(sql: &str) -> Vec<u8> {
    message(|out| {
        encode::parse(out, b"", sql.as_bytes(), &[]);
        encode::bind_simple(out, b"", b"", &[]);
        encode::execute(out, b"", 0);
        encode::sync(out);
    })
}

#[test]
fn where_no_statement_is_followed_a_text_shows_that_it_calls_nothing() {
    for (sql, is_discarded) in [("select 1", true), ("select f()", false)] {
        let (mut world, one, two, server) = beginning(1, "max_prepared_statements = 0");
        run(&mut world, two, server, INSERT, "INSERT 0 1");
        run_extended(&mut world, one, server, "begin", "BEGIN");
        run_extended(&mut world, one, server, sql, "SELECT 1");
        world.receive(one, &extended(ASKS));
        let sent = world.text(server);
        assert_eq!(
            (sent.contains(DISCARD), sent.contains(ASKS)),
            (is_discarded, !is_discarded),
            "{sql}: {sent}"
        );
    }
}

#[test]
fn a_call_behind_discard_in_one_query_leaves_a_value() {
    let (mut world, one, two, server) = beginning(1, "");
    world.query(one, "discard sequences; select nextval('s')");
    assert!(world.text(server).contains("nextval"));
    let bytes = message(|out| {
        encode::command_complete(out, DISCARD);
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &bytes);
    world.answer(server, Status::Idle); // DISCARD may have changed the session.
    world.sent.clear();
    world.query(two, ASKS);
    let sent = world.text(server);
    assert!(sent.contains(DISCARD) && !sent.contains(ASKS), "{sent}");
}

#[test]
fn a_transaction_that_has_called_nextval_finds_its_value_in_the_next_process() {
    let (mut old, one, server) = called_by_another();
    old.query(one, "begin; insert into t values (1)");
    old.text(server);
    let bytes = message(|out| {
        encode::command_complete(out, "BEGIN");
        encode::command_complete(out, "INSERT 0 1");
        encode::ready(out, Status::InTransaction);
    });
    old.receive(server, &bytes);
    let mut new = World::new(&settings(1, ""));
    old.event(Event::Command(Command::Export { round: 1 }));
    let places = import_all(&mut old, &mut new);
    let [one, server] = [one, server].map(|conn| places[&conn]);
    new.sent.clear();
    new.query(one, ASKS);
    let sent = new.text(server);
    assert!(sent.contains(ASKS) && !sent.contains(DISCARD), "{sent}");
}

#[test]
fn half_a_notice_is_whole_before_sequences_are_discarded() {
    let notice = message(|out| encode::notice(out, "NOTICE", "00000", "the weather is fine"));
    for cut in [1, 5, 20] {
        let (mut world, one, two, server) = beginning(1, "");
        run(&mut world, one, server, INSERT, "INSERT 0 1");
        world.query(two, "select 1");
        assert!(world.text(server).contains("select 1"));
        let answered = message(|out| {
            encode::command_complete(out, "SELECT 1");
            encode::ready(out, Status::Idle);
        });
        world.receive(server, &[answered.as_slice(), &notice[..cut]].concat());
        world.query(two, ASKS);
        assert_eq!(world.text(server), "", "{cut}: the server is in the middle of a message");
        world.receive(server, &notice[cut..]);
        assert!(world.text(two).contains("the weather is fine"), "{cut}");
        let sent = world.text(server);
        assert!(sent.contains(DISCARD) && !sent.contains(ASKS), "{cut}: {sent}");
        done(&mut world, server, "DISCARD SEQUENCES");
        assert!(world.text(server).contains(ASKS));
        done(&mut world, server, "SELECT 1");
        assert!(world.tags(two).ends_with("CZ"), "{cut}");
    }
}
