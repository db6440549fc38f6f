//! A client has sent a part of a request, and what Weir sends in front of that (`session_state = virtual`): its server owes nothing meanwhile, so that the client
//! can be ended or moved as one that has sent nothing.

use crate::world::takeover::import_all;
use crate::world::{World, message};
use messages::{Command, Drain};
use shard::ConnId;
use shard::Event;
use wire::backend::Status;
use wire::encode;

const ON: &str = "default_pool_size = 1\nsession_state = virtual\ndeferred_begin = 1";

/// Two clients that have had the server, the second one last: each has a name of its own.
fn beginning(settings: &str) -> (World, ConnId, ConnId) {
    let mut world = World::new(settings);
    let clients = ["one", "two"].map(|name| world.client(&[("application_name", name)]));
    let server = world.server();
    assert!(world.text(server).contains("RECURSIVE"));
    world.answer(server, Status::Idle);
    for (client, name) in clients.into_iter().zip(["one", "two"]) {
        world.query(client, "select 1");
        assert!(world.text(server).contains("SET application_name"));
        world.receive(server, &set("SET", name));
        world.answer(server, Status::Idle);
    }
    world.sent.clear();
    (world, clients[0], server)
}

fn set(tag: &str, name: &str) -> Vec<u8> {
    message(|out| {
        encode::command_complete(out, tag);
        encode::parameter_status(out, b"application_name", name.as_bytes());
        encode::ready(out, Status::Idle);
    })
}

fn query() -> Vec<u8> {
    message(|out| encode::query(out, b"select 'of the first client'"))
}

/// The server answers what was sent in front of the request, as PostgreSQL does: all of it at a Sync, and nothing before.
fn leads(world: &mut World, server: ConnId) {
    let tags = world.tags(server);
    assert!(tags.starts_with("PBEPBEPBEC"), "{tags}");
    if tags.contains('S') {
        world.led(server, 1);
        let reported = message(|out| {
            encode::parameter_status(out, b"application_name", b"one");
            encode::ready(out, Status::Idle);
        });
        world.receive(server, &reported);
    }
}

/// The first client has sent a part of its request, and the server has its settings.
fn half(settings: &str) -> (World, ConnId, ConnId) {
    let (mut world, client, server) = beginning(settings);
    world.receive(client, &query()[..9]);
    leads(&mut world, server);
    assert_eq!(world.tags(client), "", "the client has its parameters");
    (world, client, server)
}

#[test]
fn the_rest_of_a_request_runs_on_the_server_that_has_its_settings() {
    let (mut world, client, server) = half(ON);
    world.receive(client, &query()[9..12]);
    assert!(!world.paused.contains(&client));
    assert_eq!(world.tags(server), "");
    world.receive(client, &query()[12..]);
    assert_eq!(world.tags(server), "Q");
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(client), "CZ");
    let answered = world.shard.audit();
    assert_eq!(answered.contradiction, None);
}

#[test]
fn a_value_that_the_server_has_in_another_way_is_reported_without_a_request() {
    let (mut world, client, server) = beginning(ON);
    world.receive(client, &query()[..9]);
    assert!(world.tags(server).ends_with("PBECS"));
    world.led(server, 1);
    world.receive(server, &message(|out| encode::ready(out, Status::Idle)));
    assert!(world.text(client).contains("application_name\0two\0"), "it is as it was");
    world.receive(client, &query()[9..]);
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(client), "CZ");
}

#[test]
fn drain_ends_a_client_with_a_part_of_a_request() {
    let (mut world, client, _) = half(ON);
    world.event(Event::Command(Command::Drain(Drain::AllClients)));
    assert!(world.text(client).contains("57P01") && world.closed.contains(&client));

    // The settings are not answered yet.
    let (mut world, client, server) = beginning(ON);
    world.receive(client, &query()[..9]);
    world.event(Event::Command(Command::Drain(Drain::AllClients)));
    assert!(!world.closed.contains(&client));
    leads(&mut world, server);
    world.pass(400);
    assert!(world.text(client).contains("57P01") && world.closed.contains(&client));
}

#[test]
fn client_idle_timeout_ends_a_client_with_a_part_of_a_request() {
    let (mut world, client, _) = half(&format!("{ON}\nclient_idle_timeout = 1"));
    world.pass(1_500);
    assert!(world.text(client).contains("client_idle_timeout"));
}

#[test]
fn a_client_with_a_part_of_a_request_moves_to_the_process_that_takes_over() {
    let (mut old, client, server) = half(ON);
    let mut new = World::new(ON);
    old.event(Event::Command(Command::Export { round: 1 }));
    let places = import_all(&mut old, &mut new);
    assert!(places.contains_key(&client), "it has left");
    assert!(new.text(places[&server]).contains("RECURSIVE"), "no table changes a session");
    new.answer(places[&server], Status::Idle);
    new.receive(places[&client], &query()[9..]);
    assert!(new.text(places[&server]).contains("of the first client"));
}

/// The BEGIN of a transaction is on its way in front of a part of a request, with settings or not.
#[test]
fn a_transaction_that_begins_with_a_part_of_a_request_moves_to_the_process_that_takes_over() {
    for is_led in [true, false] {
        let (mut old, client, server) = beginning(ON);
        if !is_led {
            old.query(client, "select 1");
            leads_whole(&mut old, server);
        }
        old.query(client, "begin");
        old.receive(client, &query()[..9]);
        let tags = old.tags(server);
        assert!(tags.ends_with("PBECCS"), "{is_led}: {tags}");
        if is_led {
            old.led(server, 1);
        }
        let begun = message(|out| {
            encode::parse_complete(out);
            encode::bind_complete(out);
            encode::command_complete(out, "BEGIN");
            encode::close_complete(out);
            encode::close_complete(out);
            if is_led {
                encode::parameter_status(out, b"application_name", b"one");
            }
            encode::ready(out, Status::InTransaction);
        });
        old.sent.clear();
        old.receive(server, &begun);
        assert_eq!(old.tags(client), "", "{is_led}");
        let mut new = World::new(ON);
        old.event(Event::Command(Command::Export { round: 1 }));
        let places = import_all(&mut old, &mut new);
        assert!(places.contains_key(&client), "{is_led}: it has left");
        new.sent.clear();
        new.receive(places[&client], &query()[9..]);
        assert_eq!(new.tags(places[&server]), "Q", "{is_led}");
        new.answer(places[&server], Status::InTransaction);
        assert_eq!(new.tags(places[&client]), "CZ", "{is_led}");
    }
}

/// The server answers the request and what was in front of it.
fn leads_whole(world: &mut World, server: ConnId) {
    assert_eq!(world.tags(server), "PBEPBEPBECQ");
    world.led(server, 1);
    world.receive(server, &set("SELECT 1", "one"));
    world.sent.clear();
}

#[test]
fn a_begin_that_is_refused_in_front_of_a_part_of_a_request_ends_the_client() {
    let (mut world, client, server) = beginning(ON);
    world.query(client, "select 1");
    leads_whole(&mut world, server);
    world.query(client, "begin");
    world.receive(client, &query()[..9]);
    assert_eq!(world.tags(server), "PBECCS");
    world.receive(
        server,
        &message(|out| {
            encode::error(out, "ERROR", "53200", "out of memory");
            encode::ready(out, Status::Idle);
        }),
    );
    assert!(world.closed.contains(&client) && world.closed.contains(&server));
}
