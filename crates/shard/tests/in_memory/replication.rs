//! Clients that replicate, on a whole shard in memory: a server of their own, its limits, its stream and its end.

use std::sync::Arc;

use crate::world::{OneShard, World, message};
use messages::ShardMessage;
use pool::PoolRegistry;
use shard::{ConnId, Event};
use wire::backend::Status;
use wire::encode;

const PHYSICAL: &[(&str, &str)] = &[("replication", "true")];

/// A client that has its server, and both have been told all they need.
fn streaming(world: &mut World) -> (ConnId, ConnId) {
    let client = world.client(PHYSICAL);
    let server = world.server();
    world.query(client, "START_REPLICATION 0/0");
    world.receive(server, b"W\0\0\0\x07\0\0\0");
    assert!(world.tags(client).ends_with("ZW"));
    world.sent.clear();
    (client, server)
}

fn is_greeted(world: &mut World, client: ConnId) -> bool {
    let tags = world.tags(client);
    tags.starts_with('R') && tags.ends_with("KZ")
}

fn copy_data(bytes: &[u8]) -> Vec<u8> {
    message(|out| encode::copy_data(out, bytes))
}

#[test]
fn its_dedicated_server_gets_all_its_startup_parameters() {
    let mut world = World::new("ignore_startup_parameters = extra_float_digits");
    let client = world.client(&[
        ("replication", "database"),
        ("options", "-c geqo=off -d 3"),
        ("extra_float_digits", "3"),
        ("wal_sender_timeout", "0"),
        ("datestyle", "German"),
    ]);
    let server = world.connected();
    let packet = world.text(server);
    for (name, value) in [
        ("replication", "database"),
        ("options", "-c geqo=off -d 3"),
        ("wal_sender_timeout", "0"),
        ("DateStyle", "German"),
    ] {
        assert!(packet.contains(&format!("\0{name}\0{value}\0")), "{packet:?} lacks {name}");
    }
    assert!(!packet.contains("extra_float_digits"), "{packet:?}");
    assert_eq!(world.tags(client), "", "it is greeted by its own server");
    world.log_in(server, b"");
    assert!(is_greeted(&mut world, client));
    assert!(world.log.iter().any(|line| line.ends_with("tls=no replication=database")), "{:?}", world.log);
}

#[test]
fn it_takes_no_idle_server_and_its_dedicated_one_serves_no_other() {
    let mut world = World::new("");
    world.client(&[]);
    let ordinary = world.server();
    let client = world.client(PHYSICAL);
    assert_eq!(world.tags(client), "");
    let own = world.server();
    assert!(is_greeted(&mut world, client));
    world.query(client, "IDENTIFY_SYSTEM");
    assert_eq!((world.tags(ordinary), world.tags(own)), (String::new(), "Q".to_owned()));
    world.answer(own, Status::Idle);
    let other = world.client(&[]);
    world.query(other, "select 1");
    world.query(other, "select 2");
    assert_eq!((world.tags(ordinary), world.tags(own)), ("QQ".to_owned(), String::new()));
    world.receive(client, &message(encode::terminate));
    assert_eq!(world.tags(own), "X", "it goes with its client");
    assert!(world.log.iter().any(|line| line.contains("closing because: replication client was closed")));
}

#[test]
fn it_is_greeted_only_by_its_own_server_and_teaches_others_nothing() {
    let mut world = World::new("");
    let first = world.client(&[]);
    let second = world.client(PHYSICAL);
    world.server();
    assert!(is_greeted(&mut world, first));
    assert_eq!(world.tags(second), "");
    world.server();
    assert!(is_greeted(&mut world, second));

    let mut world = World::new("");
    let first = world.client(PHYSICAL);
    let second = world.client(&[]);
    world.server();
    assert!(is_greeted(&mut world, first));
    assert_eq!(world.tags(second), "");
    world.server();
    assert!(is_greeted(&mut world, second));
}

#[test]
fn an_idle_server_makes_room_for_it() {
    let mut world = World::new("default_pool_size = 1");
    world.client(&[]);
    let ordinary = world.server();
    let client = world.client(PHYSICAL);
    assert_eq!(world.tags(ordinary), "X");
    assert!(world.log.iter().any(|line| line.contains("closing because: evicted")));
    assert!(world.connecting.is_empty(), "not before the other is gone");
    world.event(Event::HungUp { conn: ordinary });
    world.server();
    assert!(is_greeted(&mut world, client));
}

#[test]
fn who_came_first_is_served_first_whatever_it_wants() {
    let mut world = World::new("default_pool_size = 1");
    let (busy, late) = (world.client(&[]), world.client(&[]));
    let server = world.server();
    world.query(busy, "select 1");
    let client = world.client(PHYSICAL);
    world.query(late, "select 2");
    world.tags(server);
    world.sent.clear();
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(server), "X", "whoever replicates has waited longer");
    world.event(Event::HungUp { conn: server });
    let own = world.server();
    assert!(is_greeted(&mut world, client));
    world.receive(client, &message(encode::terminate));
    world.event(Event::HungUp { conn: own });
    let next = world.server();
    assert_eq!(world.tags(next), "Q", "now the other one");
}

#[test]
fn where_there_is_room_it_delays_no_client() {
    let mut world = World::new("default_pool_size = 2");
    let (busy, late) = (world.client(&[]), world.client(&[]));
    let server = world.server();
    world.query(busy, "select 1");
    let client = world.client(PHYSICAL);
    let own = world.connected();
    world.query(late, "select 2");
    world.tags(server);
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(server), "Q", "the one that waits behind it gets what it cannot use");
    world.log_in(own, b"");
    assert!(is_greeted(&mut world, client));
}

#[test]
fn another_shard_is_asked_for_room_though_this_one_has_its_share() {
    let pool_registry = Arc::new(OneShard::among(2));
    let shared = pool_registry.pool("d", "u");
    shared.spread_to(1);
    let limit = 4;
    (0..2).for_each(|_| assert!(shared.servers.take(limit, 0).is_ok(), "the other shard's, idle ones"));
    let mut world = World::beside(pool_registry, "default_pool_size = 4");
    for _ in 0..2 {
        let client = world.client(PHYSICAL);
        world.server();
        assert!(is_greeted(&mut world, client));
    }
    let third = world.client(PHYSICAL);
    assert!(world.connecting.is_empty());
    assert!(
        matches!(world.shard_messages[..], [ShardMessage::RequestPermit { .. }]),
        "{:?}",
        world.shard_messages
    );
    shared.servers.release();
    world.event(Event::ShardMessage(ShardMessage::PermitFreed {
        database: "d".to_owned(),
        user: "u".to_owned(),
        host: None,
    }));
    world.server();
    assert!(is_greeted(&mut world, third));
}

#[test]
fn both_ways_pass_while_it_streams_and_no_timeout_strikes() {
    let mut world = World::new("query_timeout = 1\ntransaction_timeout = 1\nclient_idle_timeout = 1");
    let (client, server) = streaming(&mut world);
    for _ in 0..3 {
        world.pass(1_000);
        world.receive(server, &copy_data(b"wal"));
        world.receive(client, &copy_data(b"status"));
        assert_eq!((world.tags(client), world.tags(server)), ("d".to_owned(), "d".to_owned()));
    }
    world.receive(client, &message(encode::copy_done));
    world.receive(server, &message(encode::copy_done));
    world.answer(server, Status::Idle);
    assert_eq!((world.tags(client), world.tags(server)), ("cCZ".to_owned(), "c".to_owned()));
}

#[test]
fn a_server_that_streams_hears_of_the_end_unless_half_a_message_came() {
    let mut world = World::new("");
    let (client, server) = streaming(&mut world);
    world.receive(client, &message(encode::terminate));
    assert_eq!(world.tags(server), "X");
    let (client, server) = streaming(&mut world);
    let half = copy_data(b"status");
    world.receive(client, &half[..7]);
    world.event(Event::HungUp { conn: client });
    assert_eq!(world.sent.remove(&server).unwrap(), half[..7]);
    assert!(world.closed.contains(&server));
}

#[test]
fn who_reads_slowly_is_still_heard() {
    let mut world = World::new("");
    let (client, server) = streaming(&mut world);
    world.event(Event::SendBufferFull { conn: client });
    assert_eq!(world.paused, [server], "or its server would take it for dead");
    world.event(Event::SendBufferEmpty { conn: client });
    assert!(world.paused.is_empty());
    world.event(Event::SendBufferFull { conn: server });
    assert_eq!(world.paused, [client]);
}

#[test]
fn what_the_server_says_unasked_reaches_it() {
    let mut world = World::new("");
    let client = world.client(PHYSICAL);
    let server = world.server();
    world.sent.clear();
    let farewell = message(|out| encode::error(out, "FATAL", "57P01", "terminating connection"));
    world.receive(server, &farewell);
    world.event(Event::HungUp { conn: server });
    assert_eq!(world.tags(client), "E");
    assert!(world.closed.contains(&client));
}

#[test]
fn what_comes_right_behind_the_login_reaches_it_too() {
    let mut world = World::new("");
    let client = world.client(PHYSICAL);
    let server = world.connected();
    let notice = message(|out| encode::notice(out, "NOTICE", "00000", "by the way"));
    world.log_in(server, &notice[..9]);
    world.receive(server, &notice[9..]);
    assert!(world.sent.remove(&client).unwrap().ends_with(&notice));
}

#[test]
fn a_refusal_is_its_own_affair() {
    let mut world = World::new("");
    let client = world.client(PHYSICAL);
    let server = world.connected();
    let other = world.client(&[]);
    let refusal = message(|out| encode::error(out, "FATAL", "28000", "no entry for replication"));
    world.receive(server, &refusal);
    let text = world.text(client);
    assert!(text.contains("server login failed: FATAL no entry for replication"), "{text:?}");
    assert!(text.contains("28000"), "{text:?}");
    world.event(Event::HungUp { conn: server });
    assert_eq!(world.connecting.len(), 1, "the other one is not kept waiting");
    world.server();
    assert!(is_greeted(&mut world, other));

    let client = world.client(PHYSICAL);
    let server = world.connected();
    let full = message(|out| encode::error(out, "FATAL", "53300", "sorry, too many clients already"));
    world.receive(server, &full);
    world.event(Event::HungUp { conn: server });
    assert_eq!(world.tags(client), "", "that will pass");
    world.pass(1_000);
    world.server();
    assert!(is_greeted(&mut world, client));
}

#[test]
fn an_ordinary_refusal_is_not_for_it() {
    let mut world = World::new("");
    let ordinary = world.client(&[]);
    let server = world.connected();
    let client = world.client(PHYSICAL);
    world.receive(server, &message(|out| encode::error(out, "FATAL", "28000", "no entry for you")));
    assert_eq!((world.tags(ordinary), world.tags(client)), ("E".to_owned(), String::new()));
    world.event(Event::HungUp { conn: server });
    world.pass(1_000);
    world.server();
    assert!(is_greeted(&mut world, client));
}

#[test]
fn who_waits_for_those_that_replicate_is_not_told_that_the_server_is_down() {
    let mut world = World::new("default_pool_size = 1\nclient_login_timeout = 1");
    let first = world.client(PHYSICAL);
    let server = world.server();
    let (second, ordinary) = (world.client(PHYSICAL), world.client(&[]));
    world.pass(2_000);
    assert_eq!((world.tags(second), world.tags(ordinary)), (String::new(), String::new()));
    world.receive(first, &message(encode::terminate));
    world.event(Event::HungUp { conn: server });
    world.server();
    assert!(is_greeted(&mut world, second));
}

#[test]
fn who_leaves_before_its_server_is_there_takes_it_along() {
    let mut world = World::new("default_pool_size = 1");
    let client = world.client(PHYSICAL);
    let server = world.connected();
    world.event(Event::HungUp { conn: client });
    assert!(world.closed.contains(&client));
    world.event(Event::HungUp { conn: server });
    assert!(world.closed.contains(&server));
    world.client(&[]);
    world.server();
}

#[test]
fn one_that_was_renewed_or_paused_during_its_login_is_not_exported() {
    let mut world = World::new("");
    let client = world.client(PHYSICAL);
    let server = world.connected();
    world.event(Event::Command(messages::Command::Reconnect { database: None }));
    world.log_in(server, b"");
    assert_eq!(world.tags(client), "");
    world.event(Event::HungUp { conn: server });
    world.server();
    assert!(is_greeted(&mut world, client));
}

#[test]
fn a_session_of_its_own_in_any_mode() {
    let mut world = World::new("pool_mode = statement");
    let client = world.client(&[("replication", "database")]);
    let server = world.server();
    world.sent.clear();
    world.query(client, "begin");
    world.answer(server, Status::InTransaction);
    world.query(client, "commit");
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(client), "CZCZ");
}
