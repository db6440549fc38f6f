//! What servers are that have not said so at their login: those from before a RELOAD with `target_session_attrs`, and promoted standbys.

use std::sync::Arc;

use crate::target_session::{CLUSTER, PRIMARY, STANDBY, is_refused, is_used, opening, reports_as};
use crate::world::takeover::{Places, bring};
use crate::world::{OneShard, World, message};
use messages::Command;
use pool::PoolRegistry;
use shard::{ConnId, Event};
use wire::backend::Status;
use wire::encode;

fn entry(entry: &str) -> String {
    format!("session_state = off\n[databases]\nd = {entry} port=1 pool_size=2")
}

const ANY: &str = "host=a";
const SEEKS: &str = "host=a target_session_attrs=primary";

/// A client of an entry of any servers has this connection.
fn of_any(more: &str, parameters: &[(&str, &str)]) -> (World, Arc<OneShard>, ConnId, ConnId) {
    let registry = Arc::new(OneShard::among(2));
    let mut world = World::beside(Arc::clone(&registry), &entry(&format!("{ANY} {more}")));
    let client = world.client(parameters);
    let (server, _) = opening(&mut world);
    reports_as(&mut world, server, &PRIMARY, (CLUSTER, None));
    (world, registry, client, server)
}

fn reload(world: &mut World, text: &str) {
    world.event(Event::Command(Command::Configure(crate::world::config(&entry(text)))));
}

/// The server is asked what it is.
fn is_asked(world: &mut World, server: ConnId) -> bool {
    world.text(server).contains("pg_control_system")
}

/// The rows of what it says, and of what it reports before ReadyForQuery.
fn says(world: &mut World, server: ConnId, (system, timeline): (u64, Option<u32>)) {
    let timeline = timeline.map(|timeline| format!("{timeline:08X}"));
    let answer = message(|out| {
        encode::close_complete(out);
        encode::parse_complete(out);
        encode::bind_complete(out);
        encode::data_row(out, [Some(system.to_string().as_bytes()), timeline.as_deref().map(str::as_bytes)]);
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
        encode::close_complete(out);
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &answer);
}

/// It refuses to.
fn refuses(world: &mut World, server: ConnId, code: &str) {
    let answer = message(|out| {
        encode::close_complete(out);
        encode::error(out, "ERROR", code, "no");
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &answer);
    let closed = message(|out| {
        encode::close_complete(out);
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &closed);
}

/// Another client's connection goes to a primary on this timeline.
fn another_finds(world: &mut World, timeline: u32) {
    let other = world.client(&[]);
    world.query(other, "select 'of another client'");
    let (new, _) = opening(world);
    reports_as(world, new, &PRIMARY, (CLUSTER, Some(timeline)));
    assert!(world.text(new).contains("of another client"));
    world.answer(new, Status::Idle);
}

#[test]
fn a_session_from_before_a_reload_with_a_target_ends_on_a_primary_that_was_left_behind() {
    for is_first_known in [false, true] {
        let (mut world, _, client, old) = of_any("pool_mode=session", &[]);
        world.query(client, "select 1");
        world.answer(old, Status::Idle);
        reload(&mut world, &format!("{SEEKS} pool_mode=session"));
        if is_first_known {
            another_finds(&mut world, 2);
        }
        world.sent.clear();
        world.pass(400);
        assert!(is_asked(&mut world, old) && !world.closed.contains(&client));
        says(&mut world, old, (CLUSTER, Some(1)));
        if !is_first_known {
            world.query(client, "select 2");
            world.answer(old, Status::Idle);
            assert!(world.tags(client).contains('Z'), "nothing newer is known");
            another_finds(&mut world, 2);
        }
        world.pass(400);
        assert!(world.tags(old).contains('X'), "{is_first_known}");
        assert!(world.text(client).contains("57P01"));
    }
}

#[test]
fn a_session_from_before_a_reload_with_a_target_goes_on_where_nothing_is_newer() {
    for (system, timeline) in [(CLUSTER, Some(2)), (CLUSTER, None), (9_000, Some(1))] {
        let (mut world, _, client, old) = of_any("pool_mode=session", &[]);
        world.query(client, "select 1");
        world.answer(old, Status::Idle);
        reload(&mut world, &format!("{SEEKS} pool_mode=session"));
        another_finds(&mut world, 2);
        world.sent.clear();
        // Before the next request, if that comes first.
        world.query(client, "select 'of the session'");
        let sent = world.text(old);
        assert!(sent.contains("pg_control_system") && !sent.contains("of the session"), "{sent}");
        let notified = message(|out| encode::notification(out, 7, b"c", b"x"));
        world.receive(old, &notified);
        says(&mut world, old, (system, timeline));
        assert!(world.text(old).contains("of the session"));
        assert_eq!(world.tags(client), "A");
        world.answer(old, Status::Idle);
        assert_eq!(world.tags(client), "CZ");
        (0..3).for_each(|_| world.pass(400));
        assert!(!is_asked(&mut world, old) && !world.closed.contains(&client), "it is asked once");
    }
}

#[test]
fn a_statement_without_a_name_outlives_the_question() {
    let (mut world, _, client, old) = of_any("pool_mode=session", &[]);
    let prepare = message(|out| {
        encode::parse(out, b"", b"select 1", &[]);
        encode::sync(out);
    });
    world.receive(client, &prepare);
    let prepared = message(|out| {
        encode::parse_complete(out);
        encode::ready(out, Status::Idle);
    });
    world.receive(old, &prepared);
    world.sent.clear();
    reload(&mut world, &format!("{SEEKS} pool_mode=session"));
    world.pass(400);
    assert_eq!(world.tags(old), "CPBESCS", "a simple query would end it");
}

/// In a transaction, and with the next request behind it.
#[test]
fn a_session_is_asked_behind_its_transaction_whatever_it_sends_behind_that() {
    for timeline in [1, 2] {
        let (mut world, _, client, old) = of_any("pool_mode=session", &[]);
        world.query(client, "begin");
        world.answer(old, Status::InTransaction);
        reload(&mut world, &format!("{SEEKS} pool_mode=session"));
        another_finds(&mut world, 2);
        world.pass(400);
        world.sent.clear();
        let both = message(|out| {
            encode::query(out, b"commit");
            encode::query(out, b"insert into t");
        });
        world.receive(client, &both);
        assert!(world.text(old).contains("commit"));
        world.answer(old, Status::Idle);
        assert!(world.tags(client).ends_with("CZ"));
        let sent = world.text(old);
        assert!(sent.contains("pg_control_system") && !sent.contains("insert into"), "{sent}");
        says(&mut world, old, (CLUSTER, Some(timeline)));
        assert_eq!(world.text(old).contains("insert into"), timeline == 2);
        assert_eq!(world.text(client).contains("57P01"), timeline == 1);
        assert_eq!(world.closed.contains(&client), timeline == 1);
    }
}

/// `session_state = virtual`: a temporary table keeps the client on its server.
#[test]
fn a_client_that_keeps_its_server_for_what_its_session_holds_is_asked_like_a_session() {
    for timeline in [1, 2] {
        let registry = Arc::new(OneShard::among(2));
        let entry = |more: &str| {
            format!("session_state = virtual\n[databases]\nd = host=a port=1 pool_size=2 {more}")
        };
        let mut world = World::beside(Arc::clone(&registry), &entry(""));
        let client = world.client(&[]);
        let (old, _) = opening(&mut world);
        reports_as(&mut world, old, &PRIMARY, (CLUSTER, None));
        world.answer(old, Status::Idle); // No table of the database changes a session.
        world.query(client, "create temp table t (a int)");
        world.answer(old, Status::Idle);
        assert!(world.text(old).contains("pg_my_temp_schema"));
        let holds = message(|out| {
            encode::data_row(out, [Some(&b"t"[..]), Some(b""), Some(b"")]);
            encode::command_complete(out, "SELECT 1");
            encode::ready(out, Status::Idle);
        });
        world.receive(old, &holds);
        world.sent.clear();
        world.query(client, "select 1");
        world.event(Event::Command(Command::Configure(crate::world::config(&entry(
            "target_session_attrs=primary",
        )))));
        assert_eq!(registry.database("d").cluster.admit(CLUSTER, Some(2)), Ok(()));
        world.query(client, "select 'behind it'");
        world.answer(old, Status::Idle);
        let sent = world.text(old);
        assert!(sent.contains("pg_control_system") && !sent.contains("behind it"), "{sent}");
        says(&mut world, old, (CLUSTER, Some(timeline)));
        assert_eq!(world.text(old).contains("behind it"), timeline == 2);
        assert_eq!(world.closed.contains(&client), timeline == 1);
    }
}

/// It never rests: what is on its way when the RELOAD comes ends there, and nothing else.
#[test]
fn a_client_that_waits_for_no_answer_leaves_a_connection_from_before_a_reload_with_a_target() {
    let (mut world, _, client, old) = of_any("", &[]);
    world.query(client, "select 1");
    reload(&mut world, SEEKS);
    world.sent.clear();
    world.query(client, "insert");
    assert_eq!(world.tags(old), "");
    world.answer(old, Status::Idle);
    assert_eq!((world.tags(old).as_str(), world.tags(client).as_str()), ("X", "CZ"));
    let (new, _) = opening(&mut world);
    reports_as(&mut world, new, &PRIMARY, (CLUSTER, Some(2)));
    assert!(world.text(new).contains("insert") && !world.closed.contains(&client));
}

#[test]
fn a_session_whose_server_does_not_say_what_it_is_goes_on() {
    for (code, is_asked_again) in [("42501", false), ("57014", true)] {
        let (mut world, _, client, old) = of_any("pool_mode=session", &[]);
        world.query(client, "select 1");
        world.answer(old, Status::Idle);
        reload(&mut world, &format!("{SEEKS} pool_mode=session"));
        world.sent.clear();
        world.query(client, "select 'of the session'");
        assert!(is_asked(&mut world, old));
        refuses(&mut world, old, code);
        assert!(world.text(old).contains("of the session"), "{code}");
        world.answer(old, Status::Idle);
        assert!(world.tags(client).contains('Z') && !is_asked(&mut world, old));
        world.pass(400);
        assert_eq!(is_asked(&mut world, old), is_asked_again, "{code}");
        if is_asked_again {
            another_finds(&mut world, 2);
            says(&mut world, old, (CLUSTER, Some(1)));
            world.pass(400);
            assert!(world.text(client).contains("57P01"));
        }
    }
}

#[test]
fn a_client_that_disconnects_while_its_server_is_asked_leaves_nothing() {
    let (mut world, _, client, old) = of_any("pool_mode=session", &[]);
    world.query(client, "select 1");
    world.answer(old, Status::Idle);
    reload(&mut world, &format!("{SEEKS} pool_mode=session"));
    world.sent.clear();
    world.pass(400);
    assert!(is_asked(&mut world, old));
    world.event(Event::HungUp { conn: client });
    assert!(world.closed.contains(&old) || world.tags(old).contains('X'));
}

#[test]
fn a_client_that_replicates_since_before_a_reload_with_a_target_leaves_the_old_primary() {
    let (mut world, registry, client, old) = of_any("", &[("replication", "database")]);
    assert!(world.tags(client).ends_with('Z'));
    registry.database("d").cluster.note_primary(CLUSTER, 2);
    assert_eq!(registry.database("d").cluster.admit(CLUSTER, Some(2)), Ok(()));
    reload(&mut world, SEEKS);
    world.sent.clear();
    world.pass(400);
    assert_eq!(world.tags(old), "Q", "a WAL sender takes nothing else");
    let answer = message(|out| {
        encode::data_row(out, [Some(CLUSTER.to_string().as_bytes()), Some(b"00000001")]);
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
    });
    world.receive(old, &answer);
    assert!(world.tags(old).contains('X') && world.text(client).contains("57P01"));
}

/// The new process reads its own file.
#[test]
fn a_session_that_comes_to_a_process_whose_file_has_a_target_is_asked() {
    for timeline in [1, 2] {
        let (mut old, _, client, server) = of_any("pool_mode=session", &[]);
        old.query(client, "begin");
        old.answer(server, Status::InTransaction);
        let registry = Arc::new(OneShard::default());
        let mut new = World::beside(Arc::clone(&registry), &entry(&format!("{SEEKS} pool_mode=session")));
        assert_eq!(registry.database("d").cluster.admit(CLUSTER, Some(2)), Ok(()));
        old.event(Event::Command(Command::Export { round: 1 }));
        let mut places = Places::new();
        bring(std::mem::take(&mut old.exported), &mut new, &mut places);
        let (client, server) = (places[&client], places[&server]);
        new.query(client, "commit");
        assert!(new.text(server).contains("commit"));
        new.answer(server, Status::Idle);
        assert!(is_asked(&mut new, server));
        says(&mut new, server, (CLUSTER, Some(timeline)));
        new.pass(400);
        assert_eq!(new.text(client).contains("57P01"), timeline == 1);
    }
}

/// With its answer the server reports that it is in recovery no longer.
fn is_promoted(world: &mut World, server: ConnId) {
    let answer = message(|out| {
        encode::command_complete(out, "SELECT 1");
        encode::parameter_status(out, b"in_hot_standby", b"off");
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &answer);
}

#[test]
fn a_promoted_standby_serves_clients_that_prefer_standbys_until_it_is_left_behind() {
    let registry = Arc::new(OneShard::among(2));
    let mut world =
        World::beside(Arc::clone(&registry), &entry("host=a,b target_session_attrs=prefer-standby"));
    let client = world.client(&[]);
    let server = is_used(&mut world, "a:1", &STANDBY);
    world.query(client, "select 1");
    world.sent.clear();
    is_promoted(&mut world, server);
    assert!(world.tags(client).contains('Z'));
    assert!(is_asked(&mut world, server));
    world.query(client, "insert 2");
    assert!(!world.text(server).contains("insert"));
    says(&mut world, server, (CLUSTER, Some(2)));
    assert!(world.text(server).contains("insert 2"));
    world.answer(server, Status::Idle);
    assert!(registry.database("d").cluster.known() == Some((CLUSTER, 2)), "others are left for it");
    registry.database("d").cluster.note_primary(CLUSTER, 3);
    world.query(client, "insert 3");
    let sent = world.text(server);
    assert!(!sent.contains("insert 3") && sent.contains('X'), "{sent}");
    assert!(!world.closed.contains(&client));
}

#[test]
fn a_session_on_a_promoted_standby_ends_once_that_is_left_behind() {
    for target in ["standby", "prefer-standby"] {
        let registry = Arc::new(OneShard::among(2));
        let text = entry(&format!("host=a,b target_session_attrs={target} pool_mode=session"));
        let mut world = World::beside(Arc::clone(&registry), &text);
        let client = world.client(&[]);
        let server = is_used(&mut world, "a:1", &STANDBY);
        world.query(client, "select 1");
        world.sent.clear();
        is_promoted(&mut world, server);
        assert!(is_asked(&mut world, server), "{target}");
        says(&mut world, server, (CLUSTER, Some(2)));
        world.query(client, "select 2");
        world.answer(server, Status::Idle);
        assert!(world.tags(client).ends_with("CZ"), "{target}");
        registry.database("d").cluster.note_primary(CLUSTER, 3);
        (0..2).for_each(|_| world.pass(400));
        assert!(world.text(client).contains("57P01"), "{target}");
    }
}

#[test]
fn a_promoted_standby_that_cannot_say_its_timeline_now_is_replaced() {
    let mut world = World::new(&entry("host=a,b target_session_attrs=prefer-standby pool_size=1"));
    let client = world.client(&[]);
    let server = is_used(&mut world, "a:1", &STANDBY);
    world.query(client, "select 1");
    world.sent.clear();
    is_promoted(&mut world, server);
    refuses(&mut world, server, "57014");
    assert!(world.tags(server).contains('X') && !world.closed.contains(&client));
    world.event(Event::HungUp { conn: server });
    world.query(client, "select 2");
    is_refused(&mut world, "b:1", &PRIMARY);
}

#[test]
fn a_promoted_standby_that_was_handed_over_in_a_transaction_is_asked_behind_that() {
    let text = entry("host=a,b target_session_attrs=prefer-standby");
    let (mut old, mut new) = (World::new(&text), World::new(&text));
    let client = old.client(&[]);
    let server = is_used(&mut old, "a:1", &STANDBY);
    old.query(client, "begin");
    let begun = message(|out| {
        encode::command_complete(out, "BEGIN");
        encode::parameter_status(out, b"in_hot_standby", b"off");
        encode::ready(out, Status::InTransaction);
    });
    old.receive(server, &begun);
    old.event(Event::Command(Command::Export { round: 1 }));
    let mut places = Places::new();
    bring(std::mem::take(&mut old.exported), &mut new, &mut places);
    let (client, server) = (places[&client], places[&server]);
    new.query(client, "commit");
    assert!(new.text(server).contains("commit"));
    new.answer(server, Status::Idle);
    assert!(is_asked(&mut new, server));
    says(&mut new, server, (CLUSTER, Some(2)));
    new.query(client, "select 1");
    assert!(new.text(server).contains("select 1") && !new.closed.contains(&client));
}

#[test]
fn what_a_client_has_reset_is_set_again_though_its_server_is_asked_meanwhile() {
    let (mut world, _, client, old) = of_any("pool_mode=session", &[("application_name", "mine")]);
    let set = |world: &mut World, tag: &str, name: &str| {
        let answer = message(|out| {
            encode::command_complete(out, tag);
            encode::parameter_status(out, b"application_name", name.as_bytes());
            encode::ready(out, Status::Idle);
        });
        world.receive(old, &answer);
    };
    world.query(client, "select 1");
    set(&mut world, "SET", "mine");
    world.answer(old, Status::Idle);
    world.query(client, "reset application_name");
    reload(&mut world, &format!("{SEEKS} pool_mode=session"));
    world.sent.clear();
    set(&mut world, "RESET", "");
    assert!(is_asked(&mut world, old));
    world.query(client, "select 2");
    says(&mut world, old, (CLUSTER, Some(1)));
    let sent = world.text(old);
    assert!(sent.contains("SET application_name='mine'") && !sent.contains("select 2"), "{sent}");
    set(&mut world, "SET", "mine");
    assert!(world.text(old).ends_with("select 2\0"));
}
