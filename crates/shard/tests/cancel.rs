//! Cancel requests, on a whole shard in memory: whose query they reach.
#![allow(clippy::unwrap_used, missing_docs)]

mod world;

use std::collections::BTreeSet;

use shard::ConnId;
use wire::startup::Version;
use wire::{backend, encode, frame::Frames};
use world::{World, message};

/// Logs a client in by this protocol; its process id and secret.
fn greeted(world: &mut World, version: Version) -> (ConnId, u32, Vec<u8>) {
    let conn = world.accept();
    let packet = message(|out| encode::startup(out, version, &[(b"user", b"u"), (b"database", b"d")]));
    world.receive(conn, &packet);
    if !world.connecting.is_empty() {
        world.server();
    }
    let mut frames = Frames::new(1 << 20);
    frames.push(&world.sent.remove(&conn).unwrap());
    while let Some((tag, body)) = frames.pop().unwrap() {
        assert_ne!(tag, wire::tag::backend::NEGOTIATE, "3.2 is spoken");
        if tag == wire::tag::backend::KEY_DATA {
            let (process_id, secret) = backend::key_data(&body).unwrap();
            return (conn, process_id, secret.to_vec());
        }
    }
    panic!("no key");
}

fn cancel(world: &mut World, process_id: u32, secret: &[u8]) {
    let conn = world.accept();
    world.receive(conn, &message(|out| encode::cancel_request(out, process_id, secret)));
}

#[test]
fn each_key_is_another_and_as_long_as_the_protocol_allows() {
    let mut world = World::new("");
    let mut ids = BTreeSet::new();
    for _ in 0..100 {
        let (old, first, short) = greeted(&mut world, Version::V3_0);
        let (new, second, long) = greeted(&mut world, Version::V3_2);
        assert_eq!((short.len(), long.len()), (4, 32));
        ids.extend([first, second]);
        // Their places are free at once, and their keys are not given again.
        world.event(shard::Event::HungUp { conn: old });
        world.event(shard::Event::HungUp { conn: new });
    }
    assert_eq!(ids.len(), 200);
    assert!(ids.iter().all(|id| (1..=i32::MAX.unsigned_abs()).contains(id)));
}

#[test]
fn only_the_whole_key_cancels() {
    let mut world = World::new("default_pool_size = 1");
    let (client, process_id, secret) = greeted(&mut world, Version::V3_2);
    world.query(client, "select 1");
    let mut wrong = secret.clone();
    wrong[31] ^= 1;
    cancel(&mut world, process_id, &wrong);
    cancel(&mut world, process_id, &secret[..4]);
    cancel(&mut world, process_id ^ 1, &secret);
    assert!(world.connecting.is_empty(), "no cancel is on its way");
    assert_eq!(world.reports.len(), 3, "a predecessor process may know them");
    cancel(&mut world, process_id, &secret);
    assert_eq!(world.connecting.len(), 1);
}

#[test]
fn the_key_of_a_client_that_has_left_is_nobodys() {
    let mut world = World::new("default_pool_size = 1");
    let (client, process_id, secret) = greeted(&mut world, Version::V3_0);
    world.event(shard::Event::HungUp { conn: client });
    let (next, ..) = greeted(&mut world, Version::V3_0);
    assert_eq!(next, client, "the same place");
    world.query(next, "select 1");
    cancel(&mut world, process_id, &secret);
    assert!(world.connecting.is_empty());
}
