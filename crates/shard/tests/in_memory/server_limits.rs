//! Servers that send without end: what they may make a shard do and keep before and after their first ReadyForQuery.

use crate::world::{World, message};
use shard::ConnId;
use wire::backend::Status;
use wire::encode;

/// More than any of these servers may send: it is closed before.
const ENDLESS: usize = 40 << 20;

/// A server of a client that waits for it, connected and let in, but not ready.
fn authenticated(world: &mut World) -> (ConnId, ConnId) {
    let client = world.client(&[]);
    let server = world.connected();
    world.receive(server, &message(encode::authentication_ok));
    (client, server)
}

/// Sends pieces until the server is closed: how many bytes that took.
fn flood(world: &mut World, server: ConnId, mut piece: impl FnMut(usize) -> Vec<u8>) -> usize {
    let mut sent = 0;
    for number in 0.. {
        if world.closed.contains(&server) {
            break;
        }
        let bytes = piece(number);
        sent += bytes.len();
        assert!(sent < ENDLESS, "no bound");
        world.receive(server, &bytes);
    }
    sent
}

fn statuses(number: usize, names: usize, value: &[u8]) -> Vec<u8> {
    message(|out| {
        for next in 0..500 {
            let name = format!("p{}", (500 * number + next) % names);
            encode::parameter_status(out, name.as_bytes(), value);
        }
    })
}

fn notices(_: usize) -> Vec<u8> {
    message(|out| (0..500).for_each(|_| encode::notice(out, "NOTICE", "00000", "still here")))
}

#[test]
fn parameters_of_a_login_are_bounded_in_number_and_size() {
    for (names, value, bytes_max) in
        [(usize::MAX, &b"x"[..], 64 << 10), (200, &[b'x'; 3000][..], 4 << 20), (10, b"x", 2 << 20)]
    {
        let mut world = World::new("");
        let (_, server) = authenticated(&mut world);
        let sent = flood(&mut world, server, |number| statuses(number, names, value));
        assert!(sent <= bytes_max, "{names} names: {sent}");
        assert!(world.log.iter().any(|line| line.contains("server sent too much before it was ready")));
    }
}

#[test]
fn whatever_comes_before_the_first_ready_is_bounded() {
    let mut world = World::new("");
    let (_, server) = authenticated(&mut world);
    assert!(flood(&mut world, server, notices) < 2 << 20);

    // The reply to connect_query may be longer, but has an end as well.
    let mut world = World::new("[databases]\nc = host=127.0.0.1 port=1 connect_query='select 1'");
    world.client(&[("database", "c")]);
    let server = world.server();
    let row = message(|out| encode::data_row(out, [Some(&[b'x'; 60_000][..])]));
    let sent = flood(&mut world, server, |_| row.clone());
    assert!(sent > 2 << 20 && sent < 32 << 20, "{sent}");
}

#[test]
fn what_a_usual_server_says_is_no_flood() {
    let mut world = World::new("");
    let (client, server) = authenticated(&mut world);
    for number in 0..100 {
        let report = |out: &mut Vec<u8>| {
            encode::parameter_status(out, format!("extension.{number}").as_bytes(), &[b'v'; 100]);
            encode::notice(out, "WARNING", "01000", &"collation version mismatch ".repeat(10));
        };
        world.receive(server, &message(report));
    }
    world.receive(server, &message(|out| encode::ready(out, Status::Idle)));
    assert!(world.text(client).contains("extension.99"));
    assert!(!world.closed.contains(&server));
}

#[test]
fn a_server_without_a_client_may_not_talk_for_ever() {
    let mut world = World::new("");
    world.client(&[]);
    let server = world.server();
    let sent = flood(&mut world, server, notices);
    assert!(sent > 1 << 20 && sent < 32 << 20, "{sent}");
    assert!(world.log.iter().any(|line| line.contains("server sent too much without being asked")));
}

#[test]
fn a_reply_to_a_query_of_weirs_own_has_an_end() {
    let mut world = World::new("pool_mode = session");
    let client = world.client(&[]);
    let server = world.server();
    world.query(client, "select 1");
    world.answer(server, Status::Idle);
    world.text(server);
    world.receive(client, &message(encode::terminate));
    assert!(world.text(server).contains("DISCARD ALL"));
    let row = message(|out| encode::data_row(out, [Some(&[b'x'; 60_000][..])]));
    let sent = flood(&mut world, server, |_| row.clone());
    assert!(sent > 1 << 20 && sent < 32 << 20, "{sent}");
}

#[test]
fn what_comes_while_clients_are_served_counts_for_nothing() {
    let mut world = World::new("");
    let client = world.client(&[]);
    let server = world.server();
    for _ in 0..100 {
        for _ in 0..20 {
            let bytes = notices(0);
            world.receive(server, &bytes);
        }
        world.query(client, "select 1");
        world.answer(server, Status::Idle);
        world.sent.clear();
    }
    assert!(!world.closed.contains(&server));
}

#[test]
fn a_long_refusal_is_cut_before_waiting_clients_get_it() {
    let mut world = World::new("");
    let (client, server) = authenticated(&mut world);
    let text = "ü".repeat(60_000);
    world.receive(server, &message(|out| encode::error(out, "FATAL", "28000", &text)));
    let told = world.text(client);
    assert!(told.contains("üüü") && told.len() < 4096, "{}", told.len());
    assert!(world.log.iter().all(|line| line.len() < 4096));
}
