//! Cancel requests at a node of a fleet, on a whole shard in memory: those for other nodes go there, once.

use std::sync::Arc;

use messages::Command;
use settings::{Config, FleetPeer, FleetPeers};
use shard::{ConnId, Event, Target};
use wire::encode;
use wire::startup::Version;
use wire::{backend, frame::Frames};

use crate::world::{World, config, message};

const SETTINGS: &str = "default_pool_size = 1\nfleet = etcd://h/p";

/// As the control thread has it, with these nodes; none of those without an address is there.
fn know(world: &mut World, settings: &str, own: u32, nodes: &[(u32, &str, Option<&str>)]) {
    let node = |(number, node, address): &(u32, &str, Option<&str>)| {
        (*number, FleetPeer::new((*node).into(), *address))
    };
    let fleet_peers = Arc::new(FleetPeers { own, nodes: nodes.iter().map(node).collect() });
    let config = Config { fleet_peers, ..Config::clone(&config(settings)) };
    world.event(Event::Command(Command::Configure(Arc::new(config))));
}

/// The node with this number, 258 is at `b:2`, and 3 is gone.
fn node(own: u32) -> World {
    let mut world = World::new(SETTINGS);
    know(&mut world, SETTINGS, own, &[(1, "a", Some("a:1")), (258, "b", Some("b:2")), (3, "c", None)]);
    world
}

/// Logs a client in by this protocol; its process id and secret.
fn greeted(world: &mut World, version: Version) -> (ConnId, u32, Vec<u8>) {
    let conn = world.accept();
    world.receive(
        conn,
        &message(|out| encode::startup(out, version, &[(b"user", b"u"), (b"database", b"d")])),
    );
    if !world.connecting.is_empty() {
        world.server();
    }
    let mut frames = Frames::new(1 << 20);
    frames.push(&world.sent.remove(&conn).unwrap());
    let mut all = std::iter::from_fn(|| frames.pop().unwrap());
    let (_, body) = all.find(|(tag, _)| *tag == wire::tag::backend::KEY_DATA).unwrap();
    let (process_id, secret) = backend::key_data(&body).unwrap();
    (conn, process_id, secret.to_vec())
}

fn cancel(world: &mut World, process_id: u32, secret: &[u8]) -> ConnId {
    let conn = world.accept();
    world.receive(conn, &message(|out| encode::cancel_request(out, process_id, secret)));
    conn
}

/// The node at the other end of this connection answers SSLRequest.
fn answers(world: &mut World, carrier: ConnId, answer: &[u8]) {
    world.event(Event::Connected { conn: carrier, remote: None, local: None });
    assert_eq!(world.sent.remove(&carrier).unwrap(), message(encode::ssl_request));
    world.receive(carrier, answer);
}

/// A process id by which a key is that of the node with this number.
fn of(number: u16) -> u32 {
    let [low, high] = number.to_le_bytes();
    u32::from_be_bytes([9, low, high, 9])
}

#[test]
fn a_key_has_the_number_of_its_node_and_is_as_long_as_ever() {
    let mut world = node(258);
    for (version, length) in [(Version::V3_0, 4), (Version::V3_2, 32)] {
        let (_, process_id, secret) = greeted(&mut world, version);
        assert_eq!((process_id.to_be_bytes()[1..3].to_vec(), secret.len()), (vec![2, 1], length));
        assert_eq!(secret.last().unwrap() & 3, 3);
    }
}

#[test]
fn a_request_for_the_client_of_another_node_goes_there() {
    let mut world = node(1);
    for length in [4, 32] {
        let mut secret = vec![7; length];
        secret[length - 1] = 0xff;
        world.closed.clear();
        let canceller = cancel(&mut world, of(258), &secret);
        let carrier = world.connecting.remove(0);
        assert!(world.connecting.is_empty());
        assert!(matches!(&world.targets[&carrier], Target::Inet { host, port: 2 } if &**host == "b"));
        answers(&mut world, carrier, b"N");
        secret[length - 1] = 0xfe;
        let forwarded = message(|out| encode::cancel_request(out, of(258), &secret));
        assert_eq!(world.sent.remove(&carrier).unwrap(), forwarded);
        assert!(!world.closed.contains(&canceller));
        world.event(Event::HungUp { conn: carrier });
        assert!(world.closed.contains(&canceller));
    }
}

#[test]
fn the_key_is_not_in_clear_where_the_node_takes_tls_or_answers_nonsense() {
    let mut world = node(1);
    for answer in [&b"S"[..], b"Scopied", b"E", b"NN"] {
        world.closed.clear();
        let canceller = cancel(&mut world, of(258), &[1, 2, 3, 255]);
        let carrier = world.connecting.remove(0);
        answers(&mut world, carrier, answer);
        let is_tls = answer == b"S";
        let sent = world.sent.remove(&carrier).unwrap_or_default();
        // The first byte of a record with a handshake.
        assert_eq!(sent.first(), is_tls.then_some(&0x16), "{answer:?}");
        assert_eq!(world.closed.contains(&canceller), !is_tls, "{answer:?}");
        if is_tls {
            // What cannot be TLS: another connection carries it without.
            world.receive(carrier, b"HTTP/1.1 400 Bad Request\r\n\r\n");
            assert!(world.closed.contains(&carrier) && !world.closed.contains(&canceller));
            let next = world.connecting.remove(0);
            world.event(Event::Connected { conn: next, remote: None, local: None });
            let plain = message(|out| encode::cancel_request(out, of(258), &[1, 2, 3, 254]));
            assert!(world.sent.remove(&next).unwrap().ends_with(&plain));
            world.event(Event::HungUp { conn: next });
            assert!(world.closed.contains(&canceller));
        }
    }
}

#[test]
fn one_that_was_forwarded_reaches_its_client_and_goes_no_further() {
    for version in [Version::V3_0, Version::V3_2] {
        let mut world = node(258);
        let (client, process_id, mut secret) = greeted(&mut world, version);
        world.query(client, "select 1");
        *secret.last_mut().unwrap() -= 1;
        cancel(&mut world, process_id, &secret);
        assert_eq!(world.connecting.len(), 1, "a connection to its server");
        world.connecting.clear();
        let canceller = cancel(&mut world, of(1), &secret);
        assert!(world.connecting.is_empty() && world.closed.contains(&canceller));
    }
}

#[test]
fn one_for_a_node_that_is_gone_is_dropped_at_once() {
    let mut world = node(1);
    for (number, text) in [
        (3, "cancel request for a client of node c, which is gone from the fleet"),
        (4, "cancel request for a client of node 4, a number that no node of the fleet has"),
    ] {
        let canceller = cancel(&mut world, of(number), &[1, 2, 3, 255]);
        assert!(world.connecting.is_empty() && world.closed.contains(&canceller));
        assert!(world.log.iter().any(|line| line.contains(text)), "{:?}", world.log);
    }
}

#[test]
fn those_that_wait_for_their_turn_at_a_node_are_dropped_when_it_goes() {
    let mut world = node(1);
    let waiting: Vec<ConnId> = (0..5).map(|_| cancel(&mut world, of(258), &[1, 2, 3, 255])).collect();
    assert_eq!(world.connecting.len(), 2, "twice the size of a pool");
    know(&mut world, SETTINGS, 1, &[(1, "a", Some("a:1")), (258, "b", None)]);
    world.pass(1_500);
    assert!(waiting[2..].iter().all(|conn| world.closed.contains(conn)));
    assert_eq!(world.connecting.len(), 2);
}

#[test]
fn the_key_of_a_node_without_a_number_is_known_to_itself_alone() {
    let mut world = World::new(SETTINGS);
    let (client, process_id, secret) = greeted(&mut world, Version::V3_2);
    assert_eq!((process_id.to_be_bytes()[1..3].to_vec(), secret.len()), (vec![0, 0], 32));
    world.query(client, "select 1");
    let mut other = node(258);
    let canceller = cancel(&mut other, process_id, &secret);
    assert!(other.connecting.is_empty() && other.closed.contains(&canceller));
    // It has one now.
    know(&mut world, SETTINGS, 1, &[(1, "a", Some("a:1"))]);
    cancel(&mut world, process_id, &secret);
    assert_eq!(world.connecting.len(), 1);
}

#[test]
fn clients_of_a_node_whose_number_became_another_nodes_are_found_there_all_the_same() {
    let mut world = node(258);
    let (client, process_id, secret) = greeted(&mut world, Version::V3_0);
    world.query(client, "select 1");
    know(&mut world, SETTINGS, 4, &[(4, "x", Some("x:1")), (258, "b", Some("b:2"))]);
    let canceller = cancel(&mut world, process_id, &secret);
    let carrier = world.connecting.remove(0);
    assert!(
        matches!(&world.targets[&carrier], Target::Inet { port: 1, .. }),
        "its server: {:?}",
        world.targets[&carrier]
    );
    assert!(!world.closed.contains(&canceller));
}

#[test]
fn the_files_group_counts_where_there_is_one() {
    let settings = format!("{SETTINGS}\npeer_id = 1\n[peers]\n2 = host=127.0.0.1 port=9\n[pgbouncer]");
    let mut world = World::new(&settings);
    know(&mut world, &settings, 258, &[(2, "b", Some("b:2"))]);
    let (_, process_id, secret) = greeted(&mut world, Version::V3_2);
    assert_eq!((process_id.to_be_bytes()[1..3].to_vec(), secret.len()), (vec![1, 0], 4));
    cancel(&mut world, of(2), &[1, 2, 3, 255]);
    assert!(matches!(&world.targets[&world.connecting[0]], Target::Inet { port: 9, .. }));
}
