//! `session_state = virtual`: clients that listen share a connection of their pool.
#![allow(clippy::unwrap_used, missing_docs)]

mod world;

use shard::{ConnId, Event, Export, Import};
use wire::backend::Status;
use wire::encode;
use world::{World, message};

const ON: &str = "default_pool_size = 1\nsession_state = virtual";

fn notification(channel: &str, payload: &str) -> Vec<u8> {
    let body = [&7_u32.to_be_bytes()[..], channel.as_bytes(), &[0], payload.as_bytes(), &[0]].concat();
    [&b"A"[..], &u32::try_from(body.len() + 4).unwrap().to_be_bytes(), &body].concat()
}

/// Answers a query that has changed the session.
fn done(world: &mut World, server: ConnId, command: &str) {
    let bytes = message(|out| {
        encode::command_complete(out, command);
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &bytes);
}

/// Answers Weir's question on which channels the session listens.
fn channels(world: &mut World, server: ConnId, channels: &[&str]) {
    let asked = world.text(server);
    assert!(asked.contains("pg_listening_channels"), "{asked}");
    let bytes = message(|out| {
        for channel in channels {
            let digits: String = channel.bytes().map(|byte| format!("{byte:02x}")).collect();
            encode::data_row(out, [Some(&b"l"[..]), Some(&b""[..]), Some(digits.as_bytes())]);
        }
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &bytes);
}

/// Lets the next server log in. The first one of a pool is asked for what changes sessions.
fn server(world: &mut World) -> ConnId {
    let server = world.server();
    let sent = world.sent.get(&server).cloned().unwrap_or_default();
    if String::from_utf8_lossy(&sent).contains("pg_rewrite") {
        world.sent.remove(&server);
        done(world, server, "SELECT 0");
    }
    server
}

/// A client that listens on `a`, and the connection that does so for it.
fn listening(settings: &str) -> (World, ConnId, ConnId) {
    let mut world = World::new(settings);
    let client = world.client(&[]);
    let shared = server(&mut world);
    world.sent.clear();
    world.query(client, "listen a");
    done(&mut world, shared, "LISTEN");
    channels(&mut world, shared, &["a"]);
    let sent = world.text(shared);
    assert!(sent.contains("RESET ALL;LISTEN \"weir_handover\""), "{sent}");
    done(&mut world, shared, "LISTEN");
    world.sent.clear();
    (world, client, shared)
}

/// Another client, which listens on `b`, and its server.
fn second(world: &mut World) -> (ConnId, ConnId) {
    let client = world.client(&[]);
    world.query(client, "listen b");
    let own = server(world);
    world.sent.clear();
    done(world, own, "LISTEN");
    channels(world, own, &["b"]);
    (client, own)
}

fn payloads(world: &mut World, conn: ConnId) -> Vec<String> {
    let bytes = world.sent.remove(&conn).unwrap_or_default();
    let own: Vec<u8> = bytes;
    session::listening::notifications(&own)
        .map(|one| String::from_utf8_lossy(one.payload).into_owned())
        .collect()
}

#[test]
fn the_first_server_that_listens_is_shared_and_its_client_goes_on_without_it() {
    let (mut world, client, shared) = listening(ON);
    world.receive(shared, &notification("a", "1"));
    world.receive(shared, &notification("other", "2"));
    assert_eq!(payloads(&mut world, client), ["1"]);
    world.query(client, "select 1");
    let own = server(&mut world);
    assert_ne!(own, shared, "pool_size does not count the shared one");
    let sent = world.text(own);
    assert!(sent.contains("LISTEN \"a\""), "{sent}");
    assert!(world.shard.audit().contradiction.is_none(), "{:?}", world.shard.audit().contradiction);
}

#[test]
fn in_a_transaction_a_notification_waits_and_comes_in_front_of_ready() {
    let (mut world, client, shared) = listening(ON);
    world.query(client, "begin");
    let own = server(&mut world);
    done(&mut world, own, "LISTEN");
    world.answer(own, Status::InTransaction);
    world.sent.clear();
    world.receive(shared, &notification("a", "1"));
    world.receive(own, &notification("a", "1"));
    assert_eq!(world.tags(client), "");
    world.query(client, "commit");
    done(&mut world, own, "COMMIT");
    assert_eq!(world.tags(client), "CAZ", "once, from the shared connection");
    assert!(world.text(own).contains("UNLISTEN *"));
    done(&mut world, own, "UNLISTEN");
    world.receive(shared, &notification("a", "2"));
    assert_eq!(payloads(&mut world, client), ["2"]);
}

#[test]
fn too_many_in_a_transaction_end_the_client() {
    let (mut world, client, shared) = listening(ON);
    world.query(client, "begin");
    let own = server(&mut world);
    done(&mut world, own, "LISTEN");
    world.answer(own, Status::InTransaction);
    world.sent.clear();
    let one = notification("a", &"x".repeat(7000));
    for _ in 0..149 {
        world.receive(shared, &one);
    }
    assert_eq!(world.tags(client), "");
    world.receive(shared, &one);
    assert!(world.text(client).contains("too many notifications"));
    assert!(world.closed.contains(&client));
}

#[test]
fn a_second_client_is_handed_over_at_its_marker() {
    let (mut world, first, shared) = listening(ON);
    let (client, own) = second(&mut world);
    assert!(world.text(shared).contains("LISTEN \"b\""));
    world.receive(own, &notification("b", "1"));
    assert_eq!(world.text(own), "", "the marker waits for the shared connection");
    done(&mut world, shared, "LISTEN");
    let sent = world.text(own);
    let marker = sent.split('\'').nth(1).unwrap().to_owned();
    world.sent.clear();
    // Each comes on both; which is first differs.
    world.receive(shared, &notification("b", "1"));
    world.receive(shared, &notification("b", "2"));
    world.receive(shared, &notification("weir_handover", "of another"));
    world.receive(shared, &notification("weir_handover", &marker));
    world.receive(shared, &notification("b", "3"));
    assert_eq!(world.tags(client), "", "its server has not delivered what was before");
    let answer = [
        notification("b", "2"),
        notification("weir_handover", &marker),
        notification("b", "3"),
        message(|out| {
            encode::command_complete(out, "NOTIFY");
            encode::ready(out, Status::Idle);
        }),
    ];
    world.receive(own, &answer.concat());
    assert_eq!(payloads(&mut world, client), ["1", "2", "3"]);
    assert!(world.text(own).contains("UNLISTEN *"));
    world.receive(own, &notification("b", "3"));
    done(&mut world, own, "UNLISTEN");
    world.receive(shared, &notification("b", "4"));
    assert_eq!((payloads(&mut world, client), payloads(&mut world, first)), (vec!["4".to_owned()], vec![]));
    assert!(world.shard.audit().contradiction.is_none());
}

#[test]
fn a_client_that_disconnects_is_forgotten() {
    let (mut world, client, shared) = listening(ON);
    world.event(Event::HungUp { conn: client });
    world.receive(shared, &notification("a", "1"));
    world.pass(1_000);
    assert!(world.text(shared).contains('X'), "without clients of its pool it is closed");
    world.event(Event::HungUp { conn: shared });
    assert!(world.shard.audit().contradiction.is_none());
}

#[test]
fn a_lost_connection_is_opened_again_and_that_is_logged() {
    let (mut world, client, shared) = listening(ON);
    world.event(Event::HungUp { conn: shared });
    assert!(world.log.iter().any(|line| line.contains("1 clients miss notifications")), "{:?}", world.log);
    assert!(!world.closed.contains(&client));
    world.pass(400);
    world.pass(400);
    let again = world.server();
    let sent = world.text(again);
    assert!(sent.contains("LISTEN \"a\";LISTEN \"weir_handover\""), "{sent}");
    done(&mut world, again, "LISTEN");
    world.receive(again, &notification("a", "1"));
    assert_eq!(payloads(&mut world, client), ["1"]);
    assert!(world.shard.audit().contradiction.is_none());
}

#[test]
fn what_a_transaction_takes_back_the_client_does_not_hear() {
    let (mut world, client, shared) = listening(ON);
    world.query(client, "unlisten a");
    let own = server(&mut world);
    done(&mut world, own, "LISTEN");
    done(&mut world, own, "UNLISTEN");
    world.receive(shared, &notification("a", "1"));
    channels(&mut world, own, &[]);
    world.receive(shared, &notification("a", "2"));
    assert_eq!(world.tags(client), "CZ");
    world.query(client, "begin; unlisten a; rollback");
    assert!(!world.text(own).contains("LISTEN \"a\""), "it listens on nothing any more");
}

#[test]
fn another_process_listens_for_the_client() {
    let (mut world, client, _) = listening(ON);
    world.event(Event::Command(messages::Command::Export { round: 1 }));
    let state = world
        .exported
        .iter()
        .find_map(|what| match what {
            Export::Socket { conn, state, .. } if *conn == client => Some(state.clone()),
            _ => None,
        })
        .unwrap();
    let mut other = World::new(ON);
    let conn = other.shard.allocate_id();
    other.event(Event::Import(Box::new(Import::Client { conn, state })));
    assert!(other.log.iter().any(|line| line.contains("opened anew after a takeover")), "{:?}", other.log);
    let shared = server(&mut other);
    let sent = other.text(shared);
    assert!(sent.contains("LISTEN \"a\""), "{sent}");
    done(&mut other, shared, "LISTEN");
    other.receive(shared, &notification("a", "1"));
    assert_eq!(payloads(&mut other, conn), ["1"]);
}
