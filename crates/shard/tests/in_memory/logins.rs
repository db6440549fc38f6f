//! Logins in progress: what they may make a shard keep.

use crate::world::World;
use shard::{ConnId, Event};
use wire::encode;
use wire::startup::Version;

/// The beginning of a password message of the longest kind.
const LONG: usize = 60_000;

/// A new client, whose connection number may have been another's before.
fn forgotten(world: &mut World) -> ConnId {
    let conn = world.accept();
    world.closed.retain(|closed| *closed != conn);
    world.sent.remove(&conn);
    conn
}

/// Half of them come together with the startup packet.
fn begin_long_password(world: &mut World) -> ConnId {
    let conn = forgotten(world);
    let mut message = vec![b'p'];
    message.extend_from_slice(&65_000_u32.to_be_bytes());
    message.resize(LONG, b'x');
    let mut packet = vec![];
    encode::startup(&mut packet, Version::V3_0, &[(b"user", b"u"), (b"database", b"d")]);
    if conn.0.is_multiple_of(2) {
        packet.append(&mut message);
    }
    world.receive(conn, &packet);
    world.receive(conn, &message);
    conn
}

fn is_refused(world: &World, conn: ConnId) -> bool {
    let told = world.sent.get(&conn).is_some_and(|sent| sent.windows(6).any(|word| word == b"C53300"));
    assert_eq!(told, world.closed.contains(&conn));
    told
}

fn gets_in(world: &mut World) -> bool {
    let before = world.connecting.len();
    let conn = forgotten(world);
    let mut message = vec![];
    encode::startup(&mut message, Version::V3_0, &[(b"user", b"u"), (b"database", b"d")]);
    encode::password(&mut message, b"pw");
    world.receive(conn, &message);
    world.connecting.len() > before && !world.closed.contains(&conn)
}

#[test]
fn long_passwords_have_a_common_bound_and_short_ones_none() {
    let mut world = World::new("auth_type = plain\nauth_failure_delay = 0\nmax_client_conn = 1000");
    let mut waiting = vec![];
    let refused = loop {
        let conn = begin_long_password(&mut world);
        if is_refused(&world, conn) {
            break conn;
        }
        waiting.push(conn);
        assert!(waiting.len() < 500, "no bound");
    };
    assert!(waiting.len() > 100 && waiting.len() * LONG < 10 * 1024 * 1024, "{}", waiting.len());
    assert!(gets_in(&mut world), "short passwords are not counted");
    let mut again = begin_long_password(&mut world);
    assert!(is_refused(&world, again) && refused != waiting[0]);

    // Who leaves makes room for one.
    world.event(Event::HungUp { conn: waiting[0] });
    again = begin_long_password(&mut world);
    assert!(!is_refused(&world, again));
    let next = begin_long_password(&mut world);
    assert!(is_refused(&world, next));

    // And so does who is refused, or gets in.
    for conn in waiting.drain(1..) {
        world.receive(conn, &[b'x'; 6_000]);
        assert!(world.closed.contains(&conn), "a wrong password");
    }
    again = begin_long_password(&mut world);
    assert!(!is_refused(&world, again));
}
