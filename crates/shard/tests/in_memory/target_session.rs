//! `target_session_attrs`: which of an entry's hosts the connections go to, and how the right one is found.

use std::sync::Arc;

use crate::world::takeover::{Places, bring, import_all};
use crate::world::{OneShard, World, message};
use messages::{Command, ShardId};
use pool::{PoolRegistry, ProbedCluster};
use settings::{Config, Member, Members};
use shard::{ConnId, ConnectFault, Event, Export, Target};
use wire::backend::Status;
use wire::encode;

/// An entry with these hosts, and a client of it that asks for something.
fn waiting(entry: &str) -> (World, ConnId) {
    let mut world = World::new(&format!("session_state = off\n[databases]\nd = {entry}"));
    let client = world.client(&[]);
    (world, client)
}

/// The connection that is being opened, and the host and port that it goes to.
pub(crate) fn opening(world: &mut World) -> (ConnId, String) {
    let conn = world.connected();
    let Target::Inet { host, port } = world.targets[&conn].clone() else { panic!("no address") };
    (conn, format!("{host}:{port}"))
}

/// The system identifier of the cluster, and the timeline of its first primary.
pub(crate) const CLUSTER: u64 = 7_000;
const FIRST: u32 = 1;

/// The server lets Weir in, reports these, and is on the first timeline if it is a primary.
fn reports(world: &mut World, conn: ConnId, reported: &[(&str, &str)]) {
    let timeline = (!reported.contains(&STANDBY[0])).then_some(FIRST);
    reports_as(world, conn, reported, (CLUSTER, timeline));
}

/// The same, of any cluster and timeline.
pub(crate) fn reports_as(
    world: &mut World,
    conn: ConnId,
    reported: &[(&str, &str)],
    (system, timeline): (u64, Option<u32>),
) {
    greets(world, conn, reported);
    if !world.text(conn).contains("pg_control_system") {
        return; // An entry of any servers asks nothing.
    }
    let timeline = timeline.map(|timeline| format!("{timeline:08X}"));
    let answer = message(|out| {
        encode::data_row(out, [Some(system.to_string().as_bytes()), timeline.as_deref().map(str::as_bytes)]);
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
    });
    world.receive(conn, &answer);
    world.follow(conn);
}

/// The server lets Weir in and reports these.
fn greets(world: &mut World, conn: ConnId, reported: &[(&str, &str)]) {
    let hello = message(|out| {
        encode::authentication_ok(out);
        encode::parameter_status(out, b"server_version", b"18.0");
        for (name, value) in reported {
            encode::parameter_status(out, name.as_bytes(), value.as_bytes());
        }
        encode::key_data(out, 77, &[1, 2, 3, 4]);
        encode::ready(out, Status::Idle);
    });
    world.sent.remove(&conn);
    world.receive(conn, &hello);
}

pub(crate) const PRIMARY: [(&str, &str); 2] =
    [("in_hot_standby", "off"), ("default_transaction_read_only", "off")];
const READ_ONLY: [(&str, &str); 2] = [("in_hot_standby", "off"), ("default_transaction_read_only", "on")];
pub(crate) const STANDBY: [(&str, &str); 2] =
    [("in_hot_standby", "on"), ("default_transaction_read_only", "off")];

/// The next connection goes there, and the server is none for this entry.
pub(crate) fn is_refused(world: &mut World, host: &str, reported: &[(&str, &str)]) {
    let (conn, target) = opening(world);
    assert_eq!(target, host);
    reports(world, conn, reported);
    assert!(world.tags(conn).contains('X'));
    world.event(Event::HungUp { conn });
    assert!(world.closed.contains(&conn));
}

pub(crate) fn is_used(world: &mut World, host: &str, reported: &[(&str, &str)]) -> ConnId {
    let (conn, target) = opening(world);
    assert_eq!(target, host);
    reports(world, conn, reported);
    assert!(!world.tags(conn).contains('X'));
    conn
}

/// Nobody listens where the next connection goes.
fn is_down(world: &mut World) {
    let conn = world.connecting.remove(0);
    world.event(Event::ConnectFailed { conn, fault: ConnectFault::Refused("no".into()) });
    world.event(Event::Closed { conn });
}

/// An entry of two hosts, of which the primary is used.
const PRIMARY_OF_TWO: &str =
    "session_state = off\n[databases]\nd = host=a,b port=1 target_session_attrs=primary";

#[test]
fn each_word_takes_the_servers_that_libpq_takes() {
    for (word, taken) in [
        ("any", [true, true, true]),
        ("read-write", [true, false, false]),
        ("read-only", [false, true, true]),
        ("primary", [true, true, false]),
        ("standby", [false, false, true]),
    ] {
        for (reported, is_taken) in [PRIMARY, READ_ONLY, STANDBY].iter().zip(taken) {
            let (mut world, client) = waiting(&format!("host=a target_session_attrs={word}"));
            let (conn, _) = opening(&mut world);
            reports(&mut world, conn, reported);
            assert_eq!(!world.tags(conn).contains('X'), is_taken, "{word} {reported:?}");
            assert_eq!(world.tags(client).contains('Z'), is_taken, "{word} {reported:?}");
        }
    }
}

#[test]
fn the_next_host_is_tried_at_once_and_each_has_its_port() {
    for balance in ["round-robin", "disable"] {
        let entry =
            format!("host=a,b,c port=1,2,3 target_session_attrs=primary load_balance_hosts={balance}");
        let (mut world, client) = waiting(&entry);
        is_refused(&mut world, "a:1", &STANDBY);
        is_refused(&mut world, "b:2", &STANDBY);
        let server = is_used(&mut world, "c:3", &PRIMARY);
        assert!(world.tags(client).contains('Z'));
        world.query(client, "select 1");
        assert!(world.text(server).contains("select 1"));
        // The next connection goes to the primary, too, without asking the others.
        let other = world.client(&[]);
        world.query(other, "select 2");
        is_used(&mut world, "c:3", &PRIMARY);
    }
}

#[test]
fn clients_wait_while_there_is_none_and_all_hosts_are_tried_twice_a_second() {
    let (mut world, client) = waiting("host=a,b port=1 target_session_attrs=primary");
    for _ in 0..3 {
        is_refused(&mut world, "a:1", &STANDBY);
        is_refused(&mut world, "b:1", &STANDBY);
        assert!(world.connecting.is_empty(), "not before some time has passed");
        world.pass(900);
    }
    assert!(!world.closed.contains(&client));
    is_refused(&mut world, "a:1", &STANDBY);
    is_used(&mut world, "b:1", &PRIMARY);
    assert!(world.tags(client).contains('Z'));
    assert!(world.log.iter().any(|line| line.contains("server is in hot standby mode")));
}

#[test]
fn a_host_that_is_down_delays_none_of_the_others() {
    let (mut world, client) = waiting("host=a,b port=1 target_session_attrs=read-write");
    is_down(&mut world);
    is_used(&mut world, "b:1", &PRIMARY);
    assert!(world.tags(client).contains('Z'));
}

#[test]
fn without_a_standby_one_that_prefers_them_takes_any() {
    let (mut world, client) = waiting("host=a,b port=1 target_session_attrs=prefer-standby");
    is_refused(&mut world, "a:1", &PRIMARY);
    is_refused(&mut world, "b:1", &PRIMARY);
    is_used(&mut world, "a:1", &PRIMARY);
    assert!(world.tags(client).contains('Z'));
    let (mut world, _) = waiting("host=a,b port=1 target_session_attrs=prefer-standby");
    is_refused(&mut world, "a:1", &PRIMARY);
    is_used(&mut world, "b:1", &STANDBY);
}

#[test]
fn a_standby_that_is_promoted_serves_its_transaction_and_no_further_one() {
    let (mut world, client) = waiting("host=a port=1 target_session_attrs=standby");
    let server = is_used(&mut world, "a:1", &STANDBY);
    world.query(client, "select 1");
    world.text(server);
    let answer = message(|out| {
        encode::command_complete(out, "SELECT 1");
        encode::parameter_status(out, b"in_hot_standby", b"off");
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &answer);
    assert!(world.tags(client).contains('Z'));
    assert!(world.tags(server).contains('X'));
}

/// A pool of primaries whose client has run a query on the one at `a`, which is then lost.
fn after_failover_to(timeline: u32) -> (World, ConnId) {
    let (mut world, client) = waiting("host=a,b port=1 target_session_attrs=primary");
    let first = is_used(&mut world, "a:1", &PRIMARY);
    world.event(Event::HungUp { conn: first });
    world.query(client, "select 1");
    is_down(&mut world);
    let (second, target) = opening(&mut world);
    assert_eq!(target, "b:1");
    reports_as(&mut world, second, &PRIMARY, (CLUSTER, Some(timeline)));
    assert!(world.text(second).contains("select 1"));
    let answer = message(|out| {
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
    });
    world.receive(second, &answer);
    world.event(Event::HungUp { conn: second });
    world.text(client);
    (world, client)
}

#[test]
fn a_primary_that_was_left_behind_gets_no_more_transactions() {
    let (mut world, client) = after_failover_to(2);
    world.query(client, "select 2");
    // The new one is down, and the old one is back: its writes would be lost.
    is_down(&mut world);
    is_refused(&mut world, "a:1", &PRIMARY);
    assert!(
        world
            .log
            .iter()
            .any(|line| line.contains("it is on timeline 1 and there has been a primary on timeline 2"))
    );
    assert!(!world.closed.contains(&client), "it waits");
    world.pass(900);
    let (conn, target) = opening(&mut world);
    assert_eq!(target, "b:1");
    reports_as(&mut world, conn, &PRIMARY, (CLUSTER, Some(2)));
    assert!(world.text(conn).contains("select 2"));
}

#[test]
fn connections_to_a_primary_that_was_left_behind_end_as_they_become_free() {
    let (mut world, client) = waiting("host=a,b port=1 target_session_attrs=primary pool_size=2");
    let old = is_used(&mut world, "a:1", &PRIMARY);
    world.query(client, "begin");
    let begun = message(|out| {
        encode::command_complete(out, "BEGIN");
        encode::ready(out, Status::InTransaction);
    });
    world.receive(old, &begun);
    // Another connection finds a newer one: a second primary.
    let other = world.client(&[]);
    world.query(other, "select 1");
    let (conn, _) = opening(&mut world);
    reports_as(&mut world, conn, &PRIMARY, (CLUSTER, Some(2)));
    world.pass(400);
    assert!(!world.tags(old).contains('X'), "its transaction goes on");
    world.query(client, "commit");
    let ended = message(|out| {
        encode::command_complete(out, "COMMIT");
        encode::ready(out, Status::Idle);
    });
    world.receive(old, &ended);
    assert!(world.tags(old).contains('X'));
}

/// A client's request runs on the first primary when another connection finds that there is a newer one, which is returned, too. `begins` is what the client has
/// sent of it by then.
fn left_behind_during(begins: &[u8], mode: &str) -> (World, ConnId, ConnId, ConnId) {
    let (mut world, client) =
        waiting(&format!("host=a,b port=1 target_session_attrs=primary pool_size=2 pool_mode={mode}"));
    let old = is_used(&mut world, "a:1", &PRIMARY);
    world.receive(client, begins);
    let new = another_pool_finds_the_next(&mut world);
    assert!(!world.closed.contains(&old) && !world.text(old).contains("of the new one"));
    (world, client, old, new)
}

#[test]
fn what_is_sent_after_another_thread_has_found_the_next_primary_is_the_next_ones() {
    let query = |text: &str| message(|out| encode::query(out, text.as_bytes()));
    let registry = Arc::new(OneShard::among(2));
    let entry =
        "session_state = off\n[databases]\nd = host=a,b port=1 target_session_attrs=primary pool_size=2";
    let mut world = World::beside(Arc::clone(&registry), entry);
    let client = world.client(&[]);
    let old = is_used(&mut world, "a:1", &PRIMARY);
    world.receive(client, &query("select 1"));
    world.sent.clear();
    registry.database("d").cluster.note_primary(CLUSTER, 2);
    world.receive(client, &query("insert into t values (1) -- of the new one"));
    assert_eq!(world.tags(old), "", "no tick has told this thread");
    let answer = message(|out| {
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
    });
    world.receive(old, &answer);
    assert_eq!((world.tags(old).as_str(), world.tags(client).as_str()), ("X", "CZ"));
    assert!(goes_to_the_next(&mut world).contains("of the new one"));
}

#[test]
fn a_session_ends_with_its_next_request_once_another_thread_has_found_the_next_primary() {
    let query = message(|out| encode::query(out, b"insert into t values (1)"));
    let extended = message(|out| {
        encode::parse(out, b"", b"insert into t values (1)", &[]);
        encode::sync(out);
    });
    for request in [query, extended] {
        let registry = Arc::new(OneShard::among(2));
        let entry = "session_state = off\n[databases]\nd = host=a,b port=1 target_session_attrs=primary pool_mode=session";
        let mut world = World::beside(Arc::clone(&registry), entry);
        let client = world.client(&[]);
        let old = is_used(&mut world, "a:1", &PRIMARY);
        world.query(client, "select 1");
        world.answer(old, Status::Idle);
        world.sent.clear();
        registry.database("d").cluster.note_primary(CLUSTER, 2);
        world.receive(client, &request);
        assert_eq!(world.tags(old), "X");
        assert!(world.text(client).contains("57P01") && world.closed.contains(&client));
    }
}

/// The majority of the hosts is of another cluster than the standby that was there first.
#[test]
fn a_standby_of_another_cluster_that_was_used_first_is_left_when_the_hosts_have_said_so() {
    let registry = Arc::new(OneShard::among(2));
    let entry =
        "session_state = off\n[databases]\nd = host=a,b,c port=1 target_session_attrs=standby pool_size=2";
    let mut world = World::beside(Arc::clone(&registry), entry);
    let client = world.client(&[]);
    let (stray, _) = opening(&mut world);
    reports_as(&mut world, stray, &STANDBY, (8_000, None));
    world.query(client, "begin");
    world.answer(stray, Status::InTransaction);
    let cluster = &registry.database("d").cluster;
    cluster.note_probed(ProbedCluster { majority: CLUSTER, primary: None });
    world.pass(400);
    assert!(!world.tags(stray).contains('X'), "its transaction goes on");
    world.query(client, "commit");
    world.answer(stray, Status::Idle);
    assert!(world.tags(stray).contains('X'));
    world.query(client, "select 1");
    let (again, _) = opening(&mut world);
    reports_as(&mut world, again, &STANDBY, (8_000, None));
    assert!(world.tags(again).contains('X'), "it is none of the entry's");
    world.event(Event::HungUp { conn: again });
    let (one, _) = opening(&mut world);
    reports(&mut world, one, &STANDBY);
    assert!(world.text(one).contains("select 1"));
}

/// Another user's pool of the same entry connects to the next primary.
fn another_pool_finds_the_next(world: &mut World) -> ConnId {
    let other = world.accept();
    let startup = message(|out| {
        encode::startup(out, wire::startup::Version::V3_0, &[(b"user", b"v"), (b"database", b"d")]);
    });
    world.receive(other, &startup);
    let (new, _) = opening(world);
    reports_as(world, new, &PRIMARY, (CLUSTER, Some(2)));
    new
}

/// The next connection is one of the client's pool to the new primary: what it gets.
fn goes_to_the_next(world: &mut World) -> String {
    let (next, _) = opening(world);
    reports_as(world, next, &PRIMARY, (CLUSTER, Some(2)));
    world.text(next)
}

#[test]
fn what_is_sent_behind_a_request_of_a_primary_that_was_left_behind_is_the_next_ones() {
    let query = |text: &str| message(|out| encode::query(out, text.as_bytes()));
    let parse = message(|out| {
        encode::parse(out, b"", b"select 1", &[]);
        encode::bind_simple(out, b"", b"", &[]);
    });
    let execute = message(|out| {
        encode::execute(out, b"", 0);
        encode::sync(out);
    });
    let copied = message(|out| {
        encode::copy_data(out, b"1\n");
        encode::copy_done(out);
    });
    let answered = |tag: &str, status| {
        message(|out| {
            encode::command_complete(out, tag);
            encode::ready(out, status);
        })
    };
    let executed = message(|out| {
        encode::parse_complete(out);
        encode::bind_complete(out);
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
    });
    let begun = || answered("BEGIN", Status::InTransaction);
    let copy_in = || message(|out| encode::copy_in(out, 0, 1));
    let insert = query("insert into t values (1) -- of the new one");
    for (name, begins, answers_first, goes_on, sent, answers) in [
        ("a query", query("select 1"), vec![], vec![], "", answered("SELECT 1", Status::Idle)),
        ("a segment", parse, vec![], execute, "ES", executed),
        ("a block", query("begin"), begun(), query("commit"), "Q", answered("COMMIT", Status::Idle)),
        ("a copy", query("copy t from stdin"), copy_in(), copied, "dc", answered("COPY 1", Status::Idle)),
    ] {
        let (mut world, client, old, _) = left_behind_during(&begins, "transaction");
        world.receive(old, &answers_first);
        world.sent.clear();
        world.receive(client, &[goes_on, insert.clone()].concat());
        assert_eq!(world.tags(old), sent, "{name}");
        assert!(world.paused.contains(&client), "{name}");
        world.receive(old, &answers);
        assert_eq!(world.tags(old), "X", "{name}");
        assert!(world.tags(client).ends_with('Z'), "{name}");
        assert!(goes_to_the_next(&mut world).contains("of the new one"), "{name}");
        assert!(!world.paused.contains(&client) && !world.closed.contains(&client), "{name}");
    }
}

#[test]
fn of_requests_that_wait_behind_each_other_a_primary_that_was_left_behind_gets_those_that_were_sent() {
    let three = message(|out| (0..3).for_each(|_| encode::query(out, b"select 1")));
    let (mut world, client, old, _) = left_behind_during(&three, "transaction");
    world.sent.clear();
    world.query(client, "select 'of the new one'");
    for _ in 0..3 {
        assert_eq!(world.tags(old), "");
        world.answer(old, Status::Idle);
        assert_eq!(world.tags(client), "CZ");
    }
    assert_eq!(world.tags(old), "X");
    assert!(goes_to_the_next(&mut world).contains("of the new one"));
}

#[test]
fn a_primary_that_is_left_behind_while_it_is_made_like_its_client_gets_no_request() {
    let mut world = World::new(
        "session_state = off\n[databases]\nd = host=a,b port=1 target_session_attrs=primary pool_size=2",
    );
    let client = world.client(&[("application_name", "a")]);
    let old = is_used(&mut world, "a:1", &PRIMARY);
    world.query(client, "select 'of the new one'");
    assert!(world.text(old).contains("SET application_name"));
    another_pool_finds_the_next(&mut world);
    let set = message(|out| {
        encode::command_complete(out, "SET");
        encode::parameter_status(out, b"application_name", b"a");
        encode::ready(out, Status::Idle);
    });
    world.receive(old, &set);
    assert_eq!(world.tags(old), "X");
    assert!(goes_to_the_next(&mut world).contains("SET application_name"));
    assert!(!world.closed.contains(&client));
}

/// With half a request the client has its server, which has been given the client's settings.
#[test]
fn what_completes_a_request_that_a_primary_has_settings_for_is_the_next_ones() {
    let request = message(|out| encode::query(out, b"insert into t values (1) -- of the new one"));
    let set = |tag: &str, name: &str| {
        message(|out| {
            encode::command_complete(out, tag);
            encode::parameter_status(out, b"application_name", name.as_bytes());
            encode::ready(out, Status::Idle);
        })
    };
    for is_found_late in [true, false] {
        let mut world = World::new(
            "session_state = virtual\n[databases]\nd = host=a,b port=1 target_session_attrs=primary pool_size=1",
        );
        let clients = ["one", "two"].map(|name| world.client(&[("application_name", name)]));
        let reported = [PRIMARY[0], PRIMARY[1], ("application_name", "")];
        let old = is_used(&mut world, "a:1", &reported);
        world.answer(old, Status::Idle); // No table changes a session.
        for (client, name) in clients.into_iter().zip(["one", "two"]) {
            world.query(client, "select 1");
            world.receive(old, &set("SET", name));
            world.answer(old, Status::Idle);
        }
        world.sent.clear();
        world.receive(clients[0], &request[..9]);
        let has_sync = world.tags(old).ends_with("PBECS");
        let answers = |world: &mut World| {
            if has_sync {
                world.led(old, 1);
                let reports = message(|out| {
                    encode::parameter_status(out, b"application_name", b"one");
                    encode::ready(out, Status::Idle);
                });
                world.receive(old, &reports);
            }
        };
        if is_found_late {
            answers(&mut world);
        }
        another_pool_finds_the_next(&mut world);
        world.receive(clients[0], &request[9..]);
        if !is_found_late {
            assert_eq!(world.tags(old), "", "its settings are unanswered");
            answers(&mut world);
        }
        assert_eq!(world.tags(old), "X", "{is_found_late}");
        world.event(Event::HungUp { conn: old });
        let (next, _) = opening(&mut world);
        reports_as(&mut world, next, &reported, (CLUSTER, Some(2)));
        assert!(!world.closed.contains(&clients[0]), "{is_found_late}");
        let sent = world.text(next);
        assert!(sent.contains("application_name='one'") && sent.contains("of the new one"), "{sent}");
    }
}

#[test]
fn a_client_that_keeps_a_primary_that_was_left_behind_for_its_session_ends_with_its_request() {
    let select = message(|out| encode::query(out, b"select 1"));
    let (mut world, client, old, _) = left_behind_during(&select, "session");
    world.sent.clear();
    world.query(client, "select 'of the new one'");
    world.answer(old, Status::Idle);
    assert_eq!(world.tags(old), "X");
    assert!(world.text(client).contains("57P01") && world.closed.contains(&client));
}

#[test]
fn a_server_of_another_cluster_is_not_used() {
    let (mut world, client) = waiting("host=a,b port=1 target_session_attrs=standby");
    let first = is_used(&mut world, "a:1", &STANDBY);
    world.event(Event::HungUp { conn: first });
    world.query(client, "select 1");
    let (conn, target) = opening(&mut world);
    assert_eq!(target, "b:1");
    reports_as(&mut world, conn, &STANDBY, (CLUSTER + 1, None));
    assert!(world.tags(conn).contains('X'));
    assert!(
        world
            .log
            .iter()
            .any(|line| line.contains("its system identifier is 7001 and that of the others is 7000"))
    );
    world.event(Event::HungUp { conn });
    is_used(&mut world, "a:1", &STANDBY);
}

#[test]
fn who_may_not_ask_for_the_identifier_uses_the_server() {
    let (mut world, client) = waiting("host=a port=1 target_session_attrs=primary");
    let (conn, _) = opening(&mut world);
    greets(&mut world, conn, &PRIMARY);
    let refused = message(|out| {
        encode::error(out, "ERROR", "42501", "permission denied for function pg_control_system");
        encode::ready(out, Status::Idle);
    });
    world.receive(conn, &refused);
    assert!(world.tags(client).contains('Z'));
    assert!(world.log.iter().any(|line| line.contains("permission denied for function pg_control_system")));
}

/// Before anything is known of the cluster: another server might answer, and be of another one.
#[test]
fn a_server_that_may_say_its_identifier_at_the_next_try_is_not_used_before() {
    for (code, is_used) in [("57014", false), ("53200", false), ("0A000", true)] {
        let (mut world, client) = waiting("host=a port=1 target_session_attrs=primary");
        let (conn, _) = opening(&mut world);
        greets(&mut world, conn, &PRIMARY);
        let refused = message(|out| {
            encode::error(out, "ERROR", code, "not now");
            encode::ready(out, Status::Idle);
        });
        world.receive(conn, &refused);
        assert_eq!(world.tags(client).contains('Z'), is_used, "{code}");
        assert_eq!(world.tags(conn).contains('X'), !is_used, "{code}");
    }
}

#[test]
fn a_server_that_does_not_say_what_it_is_is_not_used() {
    let (mut world, client) = waiting("host=a,b port=1 target_session_attrs=primary");
    is_refused(&mut world, "a:1", &[]);
    assert!(world.log.iter().any(|line| line.contains("since version 14")));
    is_used(&mut world, "b:1", &PRIMARY);
    assert!(world.tags(client).contains('Z'));
}

#[test]
fn a_login_that_is_obsolete_says_nothing_of_the_cluster() {
    let (mut world, client) = waiting("host=a,b port=1 target_session_attrs=primary");
    let (conn, _) = opening(&mut world);
    greets(&mut world, conn, &PRIMARY);
    world.event(Event::Command(Command::Reconnect { database: None }));
    let obsolete = message(|out| {
        encode::data_row(out, [Some(&b"6000"[..]), Some(b"0000000A")]);
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
    });
    world.receive(conn, &obsolete);
    world.query(client, "select 1");
    world.event(Event::HungUp { conn });
    let (next, _) = opening(&mut world);
    reports(&mut world, next, &PRIMARY);
    assert!(world.text(next).contains("select 1"));
}

#[test]
fn a_login_that_is_obsolete_greets_no_client() {
    let entry = "host=a,b port=1 target_session_attrs=primary load_balance_hosts=disable";
    let (mut world, client) = waiting(entry);
    let (conn, _) = opening(&mut world);
    greets(&mut world, conn, &STANDBY);
    world.event(Event::Command(Command::Reconnect { database: None }));
    world.text(client);
    let obsolete = message(|out| {
        encode::data_row(out, [Some(&b"7000"[..]), None]);
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
    });
    world.receive(conn, &obsolete);
    assert!(!world.tags(client).contains('Z'), "it would be told what a standby reports");
    assert!(world.tags(conn).contains('X'));
    world.event(Event::HungUp { conn });
    // The host itself is none that has failed.
    let (next, target) = opening(&mut world);
    assert_eq!(target, "a:1");
    reports(&mut world, next, &PRIMARY);
    assert!(world.tags(client).contains('Z'));
}

#[test]
fn no_client_keeps_a_primary_that_was_left_behind_for_its_session() {
    let text = "session_state = off\npool_mode = session\n[databases]\nd = host=a,b port=1 target_session_attrs=primary pool_size=2";
    let mut world = World::new(text);
    let client = world.client(&[]);
    let old = is_used(&mut world, "a:1", &PRIMARY);
    world.query(client, "select 1");
    world.answer(old, Status::Idle);
    let other = world.client(&[]);
    world.query(other, "select 2");
    let (conn, _) = opening(&mut world);
    world.text(client);
    reports_as(&mut world, conn, &PRIMARY, (CLUSTER, Some(2)));
    world.pass(400);
    assert!(world.tags(old).contains('X'));
    assert!(world.text(client).contains("57P01"));
}

#[test]
fn no_client_keeps_a_primary_that_was_left_behind_over_a_takeover() {
    let text = "session_state = off\npool_mode = session\n[databases]\nd = host=a,b port=1 target_session_attrs=primary pool_size=2";
    let (mut old, mut new) = (World::new(text), World::new(text));
    let client = old.client(&[]);
    let server = is_used(&mut old, "a:1", &PRIMARY);
    old.query(client, "begin");
    old.answer(server, Status::InTransaction);
    let other = old.client(&[]);
    old.query(other, "select 2");
    let (conn, _) = opening(&mut old);
    reports_as(&mut old, conn, &PRIMARY, (CLUSTER, Some(2)));
    old.event(Event::Command(Command::Export { round: 1 }));
    // The pool is there before the pair, and has looked at the servers that it has by then.
    let mut places = Places::new();
    let (pools, rest): (Vec<_>, Vec<_>) =
        std::mem::take(&mut old.exported).into_iter().partition(|what| matches!(what, Export::Pool { .. }));
    bring(pools, &mut new, &mut places);
    new.pass(400);
    bring(rest, &mut new, &mut places);
    let (client, server) = (places[&client], places[&server]);
    new.query(client, "commit");
    new.answer(server, Status::Idle);
    new.text(client);
    new.pass(400);
    assert!(new.tags(server).contains('X'));
    assert!(new.text(client).contains("57P01"));
}

/// The new process reads its own file, which may have been edited.
#[test]
fn a_takeover_keeps_the_fence_of_an_entry_whose_hosts_are_the_same() {
    let entry = |hosts: &str, more: &str| {
        format!(
            "session_state = off\n[databases]\nd = host={hosts} port=1 target_session_attrs=primary{more}"
        )
    };
    for (hosts, more, may_write) in
        [("a,b", "", false), ("a,b", " connect_query='select 7'", false), ("a,c", "", true)]
    {
        let (mut old, mut new) = (World::new(&entry("a,b", "")), World::new(&entry(hosts, more)));
        let client = old.client(&[]);
        let (conn, _) = opening(&mut old);
        reports_as(&mut old, conn, &PRIMARY, (CLUSTER, Some(2)));
        old.event(Event::HungUp { conn });
        old.event(Event::Command(Command::Export { round: 1 }));
        let places = import_all(&mut old, &mut new);
        new.query(places[&client], "insert");
        new.connecting.truncate(1);
        let (conn, _) = opening(&mut new);
        reports_as(&mut new, conn, &PRIMARY, (CLUSTER, Some(FIRST)));
        assert_eq!(new.tags(conn).contains('X'), !may_write, "{hosts}{more}");
    }
}

#[test]
fn a_replicating_client_gets_a_server_although_that_cannot_be_asked_for_its_cluster() {
    let (mut world, _) = waiting("host=a port=1 target_session_attrs=primary");
    is_used(&mut world, "a:1", &PRIMARY);
    for (reported, is_greeted) in [(PRIMARY, true), (STANDBY, false)] {
        let client = world.client(&[("replication", "true")]);
        let (conn, _) = opening(&mut world);
        greets(&mut world, conn, &reported);
        assert_eq!(world.tags(client).ends_with("KZ"), is_greeted);
        assert_eq!(world.tags(conn).contains('X'), !is_greeted);
    }
}

#[test]
fn a_client_that_replicates_gets_no_primary_that_was_left_behind_and_keeps_none() {
    let directory = Arc::new(OneShard::default());
    let text = "session_state = off\n[databases]\nd = host=a port=1 target_session_attrs=primary connect_query='select 7'";
    let mut world = World::beside(directory.clone(), text);
    let cluster = &directory.database("d").cluster;
    let replicates = [("replication", "database")];
    let client = world.client(&replicates);
    let (conn, _) = opening(&mut world);
    reports(&mut world, conn, &PRIMARY);
    world.answer(conn, Status::Idle);
    assert!(world.tags(client).ends_with("KZ"));
    world.sent.remove(&conn);
    let late = world.client(&replicates);
    let (other, _) = opening(&mut world);
    reports(&mut world, other, &PRIMARY);
    assert_eq!(cluster.admit(CLUSTER, Some(2)), Ok(()));
    world.answer(other, Status::Idle);
    assert!(world.tags(other).contains('X') && world.tags(late).is_empty(), "it waits for another one");
    world.pass(400);
    world.pass(400);
    assert!(world.tags(conn).contains('X'));
    assert!(world.text(client).contains("57P01"));
}

/// It never rests when the thread looks at it.
#[test]
fn a_client_that_replicates_and_sends_one_command_after_another_leaves_the_old_primary() {
    let directory = Arc::new(OneShard::default());
    let text = "session_state = off\n[databases]\nd = host=a port=1 target_session_attrs=primary";
    let mut world = World::beside(directory.clone(), text);
    let client = world.client(&[("replication", "database")]);
    let (conn, _) = opening(&mut world);
    reports(&mut world, conn, &PRIMARY);
    world.query(client, "insert");
    assert_eq!(directory.database("d").cluster.admit(CLUSTER, Some(2)), Ok(()));
    world.pass(400);
    assert!(!world.tags(conn).contains('X'));
    world.answer(conn, Status::Idle);
    assert!(world.tags(conn).contains('X') && world.text(client).contains("57P01"));
}

#[test]
fn a_primary_without_writes_stays_in_an_entry_of_those() {
    let (mut world, client) = waiting("host=a port=1 target_session_attrs=read-only");
    let server = is_used(&mut world, "a:1", &READ_ONLY);
    world.query(client, "set application_name = x");
    world.text(server);
    let answer = message(|out| {
        encode::command_complete(out, "SET");
        encode::parameter_status(out, b"application_name", b"x");
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &answer);
    assert!(!world.tags(server).contains('X'));
}

#[test]
fn connect_query_runs_on_no_server_that_is_not_used() {
    let (mut world, _) = waiting("host=a,b port=1 target_session_attrs=primary connect_query='select 7'");
    is_refused(&mut world, "a:1", &STANDBY);
    let (conn, _) = opening(&mut world);
    greets(&mut world, conn, &PRIMARY);
    assert!(!world.text(conn).contains("select 7"));
    let answer = message(|out| {
        encode::data_row(out, [Some(&b"7000"[..]), Some(b"00000001")]);
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
    });
    world.receive(conn, &answer);
    assert!(world.text(conn).contains("select 7"));
}

#[test]
fn a_host_that_rejects_the_login_fails_nobody_while_another_is_to_be_tried() {
    let (mut world, client) = waiting("host=a,b port=1 target_session_attrs=primary");
    let (conn, _) = opening(&mut world);
    world
        .receive(conn, &message(|out| encode::error(out, "FATAL", "28000", "no pg_hba.conf entry for host")));
    world.event(Event::HungUp { conn });
    assert!(!world.closed.contains(&client));
    is_used(&mut world, "b:1", &PRIMARY);
    assert!(world.tags(client).contains('Z'));
    let (mut world, client) = waiting("host=a port=1 target_session_attrs=primary");
    let (conn, _) = opening(&mut world);
    world
        .receive(conn, &message(|out| encode::error(out, "FATAL", "28000", "no pg_hba.conf entry for host")));
    assert!(world.text(client).contains("28000"), "there is no other");
}

#[test]
fn a_login_that_is_obsolete_fails_nobody() {
    let (mut world, client) = waiting("host=a port=1 target_session_attrs=primary");
    let (conn, _) = opening(&mut world);
    world.event(Event::Command(Command::Reconnect { database: None }));
    let refusal = message(|out| encode::error(out, "FATAL", "28000", "no pg_hba.conf entry for host"));
    world.receive(conn, &refusal);
    assert!(!world.closed.contains(&client));
    world.event(Event::HungUp { conn });
    is_used(&mut world, "a:1", &PRIMARY);
    assert!(world.tags(client).contains('Z'));
}

#[test]
fn a_host_that_has_gone_without_a_word_delays_the_others_for_two_seconds() {
    let (mut world, client) = waiting("host=a,b port=1 target_session_attrs=primary");
    world.connecting.remove(0);
    world.pass(1_000);
    assert!(world.connecting.is_empty());
    world.pass(1_100);
    is_used(&mut world, "b:1", &PRIMARY);
    assert!(world.tags(client).contains('Z'));
}

#[test]
fn a_server_that_does_not_answer_which_cluster_it_is_of_is_not_used_once_that_is_known() {
    let (mut world, client) = waiting("host=a,b port=1 target_session_attrs=primary");
    let first = is_used(&mut world, "a:1", &PRIMARY);
    world.event(Event::HungUp { conn: first });
    world.query(client, "select 1");
    let (conn, _) = opening(&mut world);
    greets(&mut world, conn, &PRIMARY);
    let refused = message(|out| {
        encode::error(out, "ERROR", "57014", "canceling statement due to statement timeout");
        encode::ready(out, Status::Idle);
    });
    world.receive(conn, &refused);
    assert!(world.tags(conn).contains('X'));
}

/// Before the next look at all pools.
#[test]
fn an_idle_server_serves_nobody_once_another_thread_has_found_a_newer_primary() {
    let directory = Arc::new(OneShard::default());
    let text =
        "session_state = off\n[databases]\nd = host=a,b port=1 target_session_attrs=primary pool_size=2";
    let mut world = World::beside(directory.clone(), text);
    let client = world.client(&[]);
    world.connecting.truncate(1);
    let old = is_used(&mut world, "a:1", &PRIMARY);
    world.text(old);
    assert_eq!(directory.database("d").cluster.admit(CLUSTER, Some(2)), Ok(()));
    world.query(client, "insert");
    let sent = world.text(old);
    assert!(!sent.contains("insert") && sent.contains('X'), "{sent}");
    world.event(Event::HungUp { conn: old });
    world.pass(400);
    let (new, _) = opening(&mut world);
    reports_as(&mut world, new, &PRIMARY, (CLUSTER, Some(2)));
    assert!(world.text(new).contains("insert"));
}

#[test]
fn a_client_that_gets_its_server_at_login_is_greeted_by_the_newer_primary() {
    let directory = Arc::new(OneShard::default());
    let text = "session_state = off\npool_mode = session\nassign_server_at_login = 1\n[databases]\nd = host=a,b port=1 target_session_attrs=primary";
    let mut world = World::beside(directory.clone(), text);
    let first = world.client(&[]);
    let of_zone = |zone| [PRIMARY[0], PRIMARY[1], ("TimeZone", zone)];
    let old = is_used(&mut world, "a:1", &of_zone("UTC"));
    assert!(world.tags(first).ends_with("KZ"));
    world.event(Event::HungUp { conn: first });
    world.answer(old, Status::Idle);
    world.text(old);
    assert_eq!(directory.database("d").cluster.admit(CLUSTER, Some(2)), Ok(()));
    let client = world.client(&[]);
    assert_eq!((world.tags(old).as_str(), world.tags(client).as_str()), ("X", ""));
    world.event(Event::HungUp { conn: old });
    world.pass(400);
    let (new, _) = opening(&mut world);
    reports_as(&mut world, new, &of_zone("Europe/Rome"), (CLUSTER, Some(2)));
    let told = world.text(client);
    assert!(told.contains("Europe/Rome") && !told.contains("UTC"), "{told}");
    assert!(!world.text(new).contains("SET"), "the old one's defaults are not the client's");
    world.query(client, "select 1");
    assert!(world.text(new).contains("select 1"));
}

#[test]
fn a_login_during_which_another_thread_found_a_newer_primary_serves_nobody() {
    let directory = Arc::new(OneShard::default());
    let text = "session_state = off\n[databases]\nd = host=a port=1 target_session_attrs=primary connect_query='select 7'";
    let mut world = World::beside(directory.clone(), text);
    let client = world.client(&[]);
    world.connecting.truncate(1);
    let (conn, _) = opening(&mut world);
    reports(&mut world, conn, &PRIMARY);
    assert!(world.text(conn).contains("select 7"));
    assert_eq!(directory.database("d").cluster.admit(CLUSTER, Some(2)), Ok(()));
    world.pass(400); // The connections that it has already are looked at now.
    world.answer(conn, Status::Idle);
    world.query(client, "select 1");
    let sent = world.text(conn);
    assert!(!sent.contains("select 1") && sent.contains('X'), "{sent}");
}

#[test]
fn a_request_on_a_primary_that_was_left_behind_and_is_silent_ends() {
    let entry =
        "session_state = off\n[databases]\nd = host=a,b port=1 target_session_attrs=primary pool_size=1";
    let registry = Arc::new(OneShard::among(2));
    let mut world = World::beside(Arc::clone(&registry), entry);
    let client = world.client(&[]);
    let old = is_used(&mut world, "a:1", &PRIMARY);
    world.query(client, "select 1");
    world.pass(60_000);
    let other = world.client(&[]);
    world.query(other, "select 2");
    registry.database("d").cluster.note_primary(CLUSTER, 2);
    world.pass(14_000);
    world.pass(500);
    assert!(!world.closed.contains(&old), "it may be a slow one");
    world.query(client, "select 'it is kept for the next one'");
    let begun = message(|out| encode::notice(out, "NOTICE", "00000", "goes on"));
    world.receive(old, &begun);
    world.pass(14_000);
    assert!(!world.closed.contains(&old), "it says something");
    world.pass(2_000);
    assert!(world.closed.contains(&old) && world.text(client).contains("08006"));
    world.connecting.truncate(1);
    let (new, _) = opening(&mut world);
    reports_as(&mut world, new, &PRIMARY, (CLUSTER, Some(2)));
    assert!(world.text(new).contains("select 2"));
}

/// The requests of an extended query, up to but without what makes the server answer them.
fn unfinished_request() -> Vec<u8> {
    message(|out| {
        encode::parse(out, b"", b"select 1", &[]);
        encode::bind_simple(out, b"", b"", &[]);
        encode::execute(out, b"", 0);
    })
}

#[test]
fn a_client_that_waits_behind_flush_on_a_primary_that_was_left_behind_and_is_silent_ends() {
    let flush = message(encode::flush);
    let more = message(|out| encode::bind_simple(out, b"", b"", &[]));
    let query = message(|out| encode::query(out, b"select 1"));
    for (name, request) in [
        ("behind Flush", [unfinished_request(), flush.clone()].concat()),
        ("with more behind it", [unfinished_request(), flush, more].concat()),
        ("behind a query", [query, unfinished_request()].concat()),
    ] {
        let registry = Arc::new(OneShard::among(2));
        let entry = PRIMARY_OF_TWO;
        let mut world = World::beside(Arc::clone(&registry), entry);
        let client = world.client(&[]);
        let old = is_used(&mut world, "a:1", &PRIMARY);
        world.receive(client, &request);
        world.pass(60_000);
        registry.database("d").cluster.note_primary(CLUSTER, 2);
        world.pass(14_000);
        assert!(!world.closed.contains(&old), "{name}: it may be a slow one");
        world.pass(2_000);
        world.pass(16_000);
        assert!(world.closed.contains(&old) && world.text(client).contains("08006"), "{name}");
    }
}

/// What it sends waits for answers that Weir has asked for.
#[test]
fn a_client_whose_request_waits_for_answers_of_a_silent_primary_that_was_left_behind_ends() {
    let registry = Arc::new(OneShard::among(2));
    let entry = PRIMARY_OF_TWO;
    let mut world = World::beside(Arc::clone(&registry), entry);
    let client = world.client(&[]);
    let old = is_used(&mut world, "a:1", &PRIMARY);
    let prepare = message(|out| {
        encode::parse(out, b"s", b"select 1", &[]);
        encode::sync(out);
    });
    world.receive(client, &prepare);
    let prepared = message(|out| {
        encode::parse_complete(out);
        encode::ready(out, Status::Idle);
    });
    world.receive(old, &prepared);
    world.sent.clear();
    let request = message(|out| {
        encode::parse(out, b"", b"deallocate all", &[]);
        for statement in [&b""[..], b"s"] {
            encode::bind_simple(out, b"", statement, &[]);
            encode::execute(out, b"", 0);
        }
        encode::sync(out);
    });
    world.receive(client, &request);
    assert_eq!(world.tags(old), "PBEH", "the rest waits");
    registry.database("d").cluster.note_primary(CLUSTER, 2);
    (0..90).for_each(|_| world.pass(400));
    assert!(world.closed.contains(&old) && world.text(client).contains("08006"));
}

#[test]
fn a_client_that_is_owed_no_answer_by_a_primary_that_was_left_behind_goes_on() {
    let flush = message(encode::flush);
    let answered = message(|out| {
        encode::parse_complete(out);
        encode::bind_complete(out);
        encode::command_complete(out, "SELECT 1");
    });
    let copied = message(|out| {
        encode::parse_complete(out);
        encode::bind_complete(out);
        encode::copy_in(out, 0, 1);
    });
    let copy_done = message(encode::copy_done);
    for (name, request, answer, behind) in [
        ("nothing asks for an answer", unfinished_request(), vec![], vec![]),
        ("all is answered", [unfinished_request(), flush.clone()].concat(), answered.clone(), vec![]),
        (
            "more is sent without Flush",
            [unfinished_request(), flush.clone()].concat(),
            answered,
            unfinished_request(),
        ),
        ("a copy reads", [unfinished_request(), flush.clone()].concat(), copied.clone(), vec![]),
        ("a copy has ended", [unfinished_request(), flush].concat(), copied, copy_done),
    ] {
        let registry = Arc::new(OneShard::among(2));
        let entry = PRIMARY_OF_TWO;
        let mut world = World::beside(Arc::clone(&registry), entry);
        let client = world.client(&[]);
        let old = is_used(&mut world, "a:1", &PRIMARY);
        world.receive(client, &request);
        world.receive(old, &answer);
        world.receive(client, &behind);
        registry.database("d").cluster.note_primary(CLUSTER, 2);
        (0..90).for_each(|_| world.pass(400));
        assert!(!world.closed.contains(&old) && !world.closed.contains(&client), "{name}");
    }
}

#[test]
fn a_copy_whose_data_the_client_owes_ends_no_sooner_than_it_would() {
    let entry = PRIMARY_OF_TWO;
    let registry = Arc::new(OneShard::among(2));
    let mut world = World::beside(Arc::clone(&registry), entry);
    let client = world.client(&[]);
    let old = is_used(&mut world, "a:1", &PRIMARY);
    world.query(client, "copy t from stdin");
    world.receive(old, b"G\0\0\0\x07\0\0\0");
    registry.database("d").cluster.note_primary(CLUSTER, 2);
    for _ in 0..60 {
        world.pass(1_000);
        world.receive(client, b"d\0\0\0\x06x\n");
    }
    assert!(!world.closed.contains(&old));
    world.receive(client, b"c\0\0\0\x04");
    world.pass(14_000);
    assert!(!world.closed.contains(&old), "now it owes an answer");
    world.pass(2_000);
    assert!(world.closed.contains(&old));
}

/// Other hosts by RELOAD, of another cluster: what runs on those of before may end.
#[test]
fn other_hosts_end_no_session_on_those_of_before() {
    let entry = |hosts| {
        format!(
            "session_state = off\n[databases]\nd = host={hosts} port=1 target_session_attrs=primary pool_size=2"
        )
    };
    let mut world = World::new(&entry("a"));
    let client = world.client(&[]);
    let old = is_used(&mut world, "a:1", &PRIMARY);
    world.query(client, "select 'a long report'");
    world.event(Event::Command(Command::Configure(crate::world::config(&entry("c")))));
    let other = world.client(&[]);
    world.query(other, "select 2");
    let (new, _) = opening(&mut world);
    reports_as(&mut world, new, &PRIMARY, (9_000, Some(5)));
    (0..90).for_each(|_| world.pass(400));
    assert!(!world.closed.contains(&old) && !world.closed.contains(&client));
    world.answer(old, Status::Idle);
    assert!(world.tags(client).contains('Z') && world.tags(old).contains('X'));
}

#[test]
fn other_hosts_end_no_session_pooling_and_no_replication_on_those_of_before() {
    for (mode, parameters) in [("session", &[][..]), ("transaction", &[("replication", "database")][..])] {
        let entry = |hosts| {
            format!(
                "session_state = off\n[databases]\nd = host={hosts} port=1 target_session_attrs=primary pool_mode={mode}"
            )
        };
        let mut world = World::new(&entry("a"));
        let client = world.client(parameters);
        let (old, _) = opening(&mut world);
        reports(&mut world, old, &PRIMARY);
        world.query(client, "select 1");
        world.answer(old, Status::Idle);
        world.event(Event::Command(Command::Configure(crate::world::config(&entry("c")))));
        let other = world.client(&[]);
        world.query(other, "select 2");
        let (new, _) = opening(&mut world);
        reports_as(&mut world, new, &PRIMARY, (9_000, Some(5)));
        for _ in 0..3 {
            world.pass(400);
            world.query(client, "select 1");
            world.answer(old, Status::Idle);
        }
        assert!(!world.closed.contains(&client) && !world.tags(old).contains('X'), "{mode}");
    }
}

#[test]
fn clients_that_wait_for_a_failover_are_not_refused_for_the_load() {
    let entry = "session_state = off\nqueue_target = 0.05\n[databases]\nd = host=a,b port=1 target_session_attrs=primary pool_size=1";
    let registry = Arc::new(OneShard::among(2));
    let mut world = World::beside(Arc::clone(&registry), entry);
    let client = world.client(&[]);
    let old = is_used(&mut world, "a:1", &PRIMARY);
    world.query(client, "select 1");
    registry.database("d").cluster.note_primary(CLUSTER, 2);
    world.pass(400);
    let other = world.client(&[]);
    world.query(other, "select 2");
    world.sent.remove(&other);
    (0..40).for_each(|_| world.pass(400));
    assert!(world.closed.contains(&old), "{:?}", world.log);
    assert!(!world.text(other).contains("53300"));
}

#[test]
fn clients_wait_for_no_host_while_nothing_is_tried() {
    let (mut world, client) = waiting("host=a,b target_session_attrs=primary failover_timeout=10");
    is_refused(&mut world, "a:5432", &STANDBY);
    is_refused(&mut world, "b:5432", &STANDBY);
    world.event(Event::Command(Command::Pause { request: messages::RequestId(1), database: None }));
    for _ in 0..30 {
        world.pass(1_000);
        while !world.connecting.is_empty() {
            is_down(&mut world);
        }
    }
    assert!(!world.closed.contains(&client), "PAUSE");
    world.event(Event::Command(Command::Resume { database: None }));
    world.pass(1_000);
    assert!(!world.closed.contains(&client));
}

/// The thread that let it in had not heard of the RELOAD yet.
#[test]
fn a_client_that_comes_from_another_thread_has_the_entry_of_now() {
    let entry = |hosts: &str| format!("[databases]\nfar = {hosts} port=1");
    let far = message(|out| {
        encode::startup(out, wire::startup::Version::V3_0, &[(b"user", b"u"), (b"database", b"far")]);
    });
    for (hosts, went_to) in [("host=new", Some("new:1")), ("", None)] {
        let registry = Arc::new(OneShard::among(2));
        let mut from = World::on(ShardId(0), Arc::clone(&registry), &entry("host=old"));
        let now = if hosts.is_empty() { String::new() } else { entry(hosts) };
        let mut to = World::on(ShardId(1), registry, &now);
        let conn = from.accept();
        from.receive(conn, &far);
        let client = Box::new(from.moved.remove(0));
        let conn = to.shard.allocate_id();
        to.event(Event::Adopted { conn, client });
        match went_to {
            Some(host) => assert_eq!(opening(&mut to).1, host),
            None => assert!(to.closed.contains(&conn) && to.text(conn).contains("no such database: far")),
        }
    }
}

#[test]
fn clients_wait_for_a_host_of_the_right_role_as_long_as_they_may() {
    let (mut world, client) = waiting("host=a,b target_session_attrs=primary failover_timeout=10");
    is_refused(&mut world, "a:5432", &STANDBY);
    is_refused(&mut world, "b:5432", &STANDBY);
    for second in 1..=10 {
        assert!(!world.closed.contains(&client), "after {second} s");
        world.pass(1_000);
        while !world.connecting.is_empty() {
            is_down(&mut world);
        }
    }
    world.pass(1_000);
    assert!(world.closed.contains(&client) && world.text(client).contains("57P03"));
}

const FOLLOWS: &str = "session_state = off\n[databases]\nd = topology='patroni http://p' target_session_attrs=primary pool_size=2";

/// Patroni lists members at these hosts, of which one leads.
fn lists(world: &mut World, hosts: &[&str], leader: &str) {
    let member = |host: &&str| {
        let (name, host) = ((*host).to_owned(), (*host).to_owned());
        Member { leads: host == leader, name, host, port: 1, runs: true, takes_reads: true }
    };
    let members = Members::default().listed(hosts.iter().map(member).collect()).unwrap();
    let config = Config::clone(&crate::world::config(FOLLOWS)).with_members(|_| Some(members.clone()));
    world.event(Event::Command(Command::Configure(Arc::new(config))));
}

#[test]
fn clients_wait_for_the_list_of_members_and_the_leader_is_tried_first() {
    let mut world = World::new(FOLLOWS);
    let client = world.client(&[]);
    world.pass(2_000);
    assert!(world.connecting.is_empty() && !world.closed.contains(&client), "no host is guessed");
    lists(&mut world, &["a", "b", "c"], "b");
    is_used(&mut world, "b:1", &PRIMARY);
    assert!(world.tags(client).contains('Z'));
}

#[test]
fn clients_wait_for_the_list_of_members_no_longer_than_for_a_primary() {
    let mut world = World::new(FOLLOWS);
    let client = world.client(&[]);
    world.pass(31_000);
    assert!(world.text(client).contains("57P03"));
}

#[test]
fn a_leader_that_is_a_standby_is_not_used() {
    let mut world = World::new(FOLLOWS);
    let client = world.client(&[]);
    lists(&mut world, &["a", "b", "c"], "b");
    is_refused(&mut world, "b:1", &STANDBY);
    is_refused(&mut world, "c:1", &STANDBY);
    is_used(&mut world, "a:1", &PRIMARY);
    assert!(world.tags(client).contains('Z'));
}

#[test]
fn another_list_of_members_keeps_connections_and_the_fence() {
    let mut world = World::new(FOLLOWS);
    let client = world.client(&[]);
    lists(&mut world, &["a", "b"], "a");
    let server = is_used(&mut world, "a:1", &PRIMARY);
    lists(&mut world, &["a", "c"], "a");
    assert!(!world.tags(server).contains('X'), "its host is still a member");
    lists(&mut world, &["b", "c"], "b");
    assert!(world.tags(server).contains('X'));
    world.event(Event::HungUp { conn: server });
    world.query(client, "select 1");
    let (conn, target) = opening(&mut world);
    assert_eq!(target, "b:1");
    reports_as(&mut world, conn, &PRIMARY, (CLUSTER, Some(2)));
    world.answer(conn, Status::Idle);
    world.event(Event::HungUp { conn });
    // The old primary is called the leader again, and is back on its timeline.
    lists(&mut world, &["a", "b", "c"], "a");
    world.query(client, "select 2");
    is_refused(&mut world, "a:1", &PRIMARY);
}
