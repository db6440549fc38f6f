//! No client waits while a server that it could use is idle, whatever else waits, on this shard or another.

use std::sync::Arc;

use crate::world::{OneShard, World, message};
use messages::{Command, LimitOf, RequestId, ShardMessage};
use pool::PoolRegistry;
use shard::{ConnId, Event};
use wire::backend::Status;
use wire::encode;

const PHYSICAL: &[(&str, &str)] = &[("replication", "true")];

fn full(world: &mut World, server: ConnId) {
    let refusal = message(|out| {
        encode::error(
            out,
            "FATAL",
            "53300",
            "number of requested standby connections exceeds max_wal_senders",
        );
    });
    world.receive(server, &refusal);
    world.event(Event::HungUp { conn: server });
}

#[test]
fn a_client_that_replicates_delays_no_other_while_its_server_is_opened() {
    let mut world = World::new("default_pool_size = 2");
    let client = world.client(&[]);
    let server = world.server();
    let replicating = world.client(PHYSICAL);
    let own = world.connected();
    world.sent.clear();
    world.query(client, "select 1");
    assert_eq!(world.tags(server), "Q", "it was idle");
    world.answer(server, Status::Idle);
    world.log_in(own, b"");
    assert!(world.tags(replicating).ends_with('Z'));
}

#[test]
fn a_client_that_replicates_and_is_refused_delays_no_other() {
    let mut world = World::new("default_pool_size = 3");
    let (first, second) = (world.client(&[]), world.client(&[]));
    let server = world.server();
    world.client(PHYSICAL);
    let own = world.connected();
    full(&mut world, own);
    world.sent.clear();
    world.query(first, "select 1");
    assert_eq!(world.tags(server), "Q");
    world.query(second, "select 2");
    let another = world.server();
    assert_eq!(world.tags(another), "Q", "and what is opened for others waits for no retry of its");
}

#[test]
fn who_waits_through_suspend_gets_the_idle_server_at_resume() {
    let mut world = World::new("default_pool_size = 1");
    let client = world.client(&[]);
    let server = world.server();
    world.sent.clear();
    world.event(Event::Command(Command::Suspend { request: RequestId(1) }));
    world.query(client, "select 1");
    assert_eq!(world.tags(server), "");
    world.event(Event::Command(Command::Resume { database: None }));
    assert_eq!(world.tags(server), "Q");
}

/// Three idle servers, each old enough to be checked before it is used, and a client for each.
fn three_to_be_checked() -> (World, Vec<ConnId>, Vec<ConnId>) {
    let mut world =
        World::new("default_pool_size = 3\nserver_check_query = select 1\nserver_check_delay = 1");
    let clients: Vec<ConnId> = (0..3).map(|_| world.client(&[])).collect();
    let first = world.server();
    let mut servers = vec![first];
    for client in &clients {
        world.query(*client, "select 1");
    }
    servers.push(world.server());
    servers.push(world.server());
    for server in &servers {
        world.answer(*server, Status::Idle);
    }
    world.pass(2_000);
    world.sent.clear();
    (world, clients, servers)
}

#[test]
fn a_check_without_an_answer_delays_no_client() {
    let (mut world, clients, servers) = three_to_be_checked();
    world.query(clients[0], "select 2");
    let dead = *servers.iter().find(|server| world.sent.contains_key(server)).unwrap();
    world.sent.clear();
    world.query(clients[1], "select 3");
    let alive = *servers.iter().find(|server| world.sent.contains_key(server)).unwrap();
    assert_ne!(alive, dead, "each who waits has a server checked");
    world.sent.clear();
    world.answer(alive, Status::Idle);
    assert!(world.text(alive).contains("select 2"), "first come, first served");
    world.pass(340);
    let last = *servers.iter().find(|server| ![dead, alive].contains(server)).unwrap();
    assert!(
        world.text(last).contains("select 1"),
        "the check that gets no answer counts for nobody any more"
    );
    world.answer(last, Status::Idle);
    assert!(world.text(last).contains("select 3"));
}

#[test]
fn who_waits_long_gets_what_is_idle_on_another_shard() {
    let pool_registry = Arc::new(OneShard::among(2));
    let shared = pool_registry.pool("d", "u");
    shared.spread_to(1);
    assert!(shared.servers.take(3, 0).is_ok(), "the other shard has an idle one");
    let mut world = World::beside(pool_registry, "default_pool_size = 3");
    let clients: Vec<ConnId> = (0..3).map(|_| world.client(&[])).collect();
    world.server();
    world.query(clients[0], "begin");
    world.query(clients[1], "begin");
    world.server();
    world.query(clients[2], "select 1");
    assert!(world.shard_messages.is_empty(), "this shard has more than its share");
    world.pass(340);
    assert!(
        matches!(world.shard_messages[..], [ShardMessage::RequestPermit { limit: LimitOf::Pool, .. }]),
        "{:?}",
        world.shard_messages
    );
    shared.servers.release();
    world.pass(340);
    let third = world.server();
    assert!(world.text(third).contains("select 1"));
}

#[test]
fn a_shard_that_is_asked_gives_what_is_idle_and_of_that_limit_alone() {
    let mut world = World::beside(Arc::new(OneShard::among(2)), "");
    world.client(&[]);
    let server = world.server();
    let want = |limit, database: &str, user: &str| {
        let (database, user) = (database.to_owned(), user.to_owned());
        Event::ShardMessage(ShardMessage::RequestPermit {
            from: messages::ShardId(1),
            has_waited_long: false,
            limit,
            database,
            user,
            host: None,
        })
    };
    world.sent.clear();
    world.event(want(LimitOf::Pool, "d", "v"));
    world.event(want(LimitOf::Database, "other", "u"));
    world.event(want(LimitOf::User, "d", "v"));
    assert_eq!(world.tags(server), "");
    world.event(want(LimitOf::User, "other", "u"));
    assert_eq!(world.tags(server), "X");
}
