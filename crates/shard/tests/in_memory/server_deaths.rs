//! Peers that die or close while output for them is stuck, on a whole shard in memory.

use crate::world::{World, message};
use messages::Command;
use shard::{ConnId, Event};
use wire::encode;

/// A client whose large reply is stuck, and its server, both not read.
fn stuck(settings: &str) -> (World, ConnId, ConnId) {
    let mut world = World::new(settings);
    let client = world.client(&[]);
    let server = world.server();
    world.query(client, "select large");
    let rows = message(|out| encode::data_row(out, [Some(&[b'x'; 1000][..])]));
    world.receive(server, &rows);
    world.event(Event::SendBufferFull { conn: client });
    assert_eq!(world.paused, [client, server]);
    (world, client, server)
}

#[test]
fn a_client_whose_socket_refuses_output_leaves_and_its_server_is_closed() {
    let (mut world, client, server) = stuck("");
    world.event(Event::WriteFailed { conn: client });
    assert!(world.closed.contains(&client));
    assert!(world.closed.contains(&server) || world.tags(server) == "X", "in the middle of a reply");
}

#[test]
fn a_client_that_closes_its_side_while_output_is_stuck_leaves() {
    let (mut world, client, _) = stuck("");
    world.event(Event::HalfClosed { conn: client });
    assert!(world.closed.contains(&client));
}

#[test]
fn a_client_that_had_closed_its_side_leaves_as_soon_as_output_is_stuck() {
    let mut world = World::new("");
    let client = world.client(&[]);
    let server = world.server();
    world.query(client, "copy t from stdin");
    world.event(Event::SendBufferFull { conn: server });
    assert_eq!(world.paused, [client], "its server takes no more");
    world.event(Event::HalfClosed { conn: client });
    assert!(world.closed.is_empty(), "what it sent before is read to its end");
    world.event(Event::SendBufferFull { conn: client });
    assert!(world.closed.contains(&client));
}

#[test]
fn a_waiting_client_that_gets_the_server_of_a_deaf_one_is_served() {
    let (mut world, client, server) = stuck("default_pool_size = 1");
    let second = world.client(&[]);
    world.query(second, "select 1");
    world.event(Event::WriteFailed { conn: client });
    world.event(Event::HungUp { conn: server });
    assert_eq!(world.connecting.len(), 1, "its permit is free");
}

#[test]
fn a_server_that_refuses_output_is_read_to_its_end_and_not_checked_out_again() {
    let mut world = World::new("default_pool_size = 1");
    let client = world.client(&[]);
    let server = world.server();
    world.sent.clear();
    world.query(client, "select 1");
    world.event(Event::SendBufferFull { conn: server });
    assert_eq!(world.paused, [client]);
    world.event(Event::WriteFailed { conn: server });
    assert!(world.paused.is_empty(), "there is nothing to wait for");
    let words = message(|out| encode::error(out, "FATAL", "57P01", "terminating connection"));
    world.receive(server, &words);
    world.event(Event::HungUp { conn: server });
    assert!(world.text(client).contains("terminating connection"));
    assert!(world.closed.contains(&server) && world.closed.contains(&client));
}

#[test]
fn a_client_that_has_got_fatal_gets_no_second_one_whatever_else_would_have_closed_its_server() {
    let mut world = World::new("server_fast_close = 1");
    let client = world.client(&[]);
    let server = world.server();
    world.query(client, "select 1");
    world.text(client);
    world.receive(server, &message(|out| encode::error(out, "FATAL", "57P01", "terminating connection")));
    world.event(Event::Command(Command::Reconnect { database: None }));
    world.event(Event::HungUp { conn: server });
    assert_eq!(world.tags(client), "E");
    assert!(world.closed.contains(&client));
}
