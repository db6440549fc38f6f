//! When a server leaves its client: whichever of the conditions comes last, and what ends a client that keeps one open.

use crate::world::{World, message};
use shard::ConnId;
use wire::backend::Status;
use wire::encode;

/// A frontend message.
fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[tag], &length.to_be_bytes()[..], body].concat()
}

/// The server refuses what is copied and is idle again.
fn fail_copy(world: &mut World, server: ConnId) {
    let refusal = message(|out| {
        encode::error(out, "ERROR", "22P02", "invalid input syntax for type integer");
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &refusal);
}

/// A client whose COPY fails while half of a CopyData message is on its way; what is left of that message, too.
fn copy_that_fails_in_a_message(world: &mut World) -> (ConnId, ConnId, Vec<u8>) {
    let client = world.client(&[]);
    let server = world.server();
    world.query(client, "copy t from stdin");
    world.receive(server, &frame(b'G', &[0, 0, 0]));
    world.receive(client, &frame(b'd', b"not a number\n"));
    let data = frame(b'd', &b"1\n".repeat(2_000));
    world.receive(client, &data[..1_500]);
    fail_copy(world, server);
    world.sent.clear();
    (client, server, data[1_500..].to_vec())
}

#[test]
fn a_copy_that_failed_frees_its_server_when_the_clients_message_is_whole() {
    let mut world = World::new("default_pool_size = 1");
    let (first, server, rest) = copy_that_fails_in_a_message(&mut world);
    let second = world.client(&[]);
    world.query(second, "select 1");
    assert_eq!(world.tags(server), "", "half a message is on its way to the server");
    world.receive(first, &rest);
    assert!(world.text(server).ends_with("select 1\0"), "the server is free");
    world.receive(first, &frame(b'c', b""));
    world.answer(server, Status::Idle);
    world.query(first, "select 2");
    assert_eq!(world.tags(server), "Q", "what came too late for the copy went nowhere");
}

#[test]
fn the_same_where_copy_done_follows_at_once() {
    let mut world = World::new("default_pool_size = 1");
    let (first, server, mut rest) = copy_that_fails_in_a_message(&mut world);
    let second = world.client(&[]);
    rest.extend(frame(b'c', b""));
    rest.extend(message(|out| encode::query(out, b"select 2"))[..3].to_vec());
    world.receive(first, &rest);
    world.sent.clear();
    world.query(second, "select 1");
    assert_eq!(world.tags(server), "Q", "three bytes of a request hold no server");
    world.answer(server, Status::Idle);
    world.receive(first, &message(|out| encode::query(out, b"select 2"))[3..]);
    assert!(world.text(server).contains("select 2"));
}

#[test]
fn what_postgresql_ignores_takes_no_server_however_long() {
    let mut world = World::new("default_pool_size = 1");
    let (first, second) = (world.client(&[]), world.client(&[]));
    let server = world.server();
    world.sent.clear();
    let data = frame(b'd', &[b'x'; 300_000]);
    world.receive(first, &data[..100_000]);
    world.receive(first, &data[100_000..200_000]);
    world.query(second, "select 1");
    assert_eq!(world.tags(server), "Q");
    world.answer(server, Status::Idle);
    let mut rest = data[200_000..].to_vec();
    rest.extend(message(|out| encode::query(out, b"select 2")));
    world.receive(first, &rest);
    assert!(world.text(server).ends_with("select 2\0"));
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(first), "CZ");
}

#[test]
fn half_a_named_parse_takes_no_server() {
    let mut world = World::new("default_pool_size = 1");
    let (first, second) = (world.client(&[]), world.client(&[]));
    let server = world.server();
    world.sent.clear();
    let parse = message(|out| {
        encode::parse(out, b"name", b"select 1", &[]);
        encode::sync(out);
    });
    world.receive(first, &parse[..12]);
    world.query(second, "select 1");
    assert_eq!(world.tags(server), "Q");
    world.answer(server, Status::Idle);
    world.receive(first, &parse[12..]);
    assert_eq!(world.tags(server), "PS");
}

#[test]
fn a_client_that_stops_in_the_middle_of_a_message_is_ended() {
    for setting in ["query_timeout = 3", "transaction_timeout = 3", "client_idle_timeout = 3"] {
        let mut world = World::new(&format!("default_pool_size = 1\n{setting}"));
        let (client, server, rest) = copy_that_fails_in_a_message(&mut world);
        world.pass(1_500);
        world.receive(client, &rest[..100]);
        assert!(world.closed.is_empty());
        for _ in 0..7 {
            world.pass(340);
        }
        assert_eq!(world.closed, [server, client], "{setting}");
    }
}

/// What PostgreSQL 18 answers to a Query in a pipeline, behind which this was sent: the transaction goes on.
fn query_in_a_pipeline(behind: impl FnOnce(&mut Vec<u8>)) -> (World, ConnId, ConnId) {
    let mut world = World::new("default_pool_size = 1");
    let client = world.client(&[]);
    let server = world.server();
    let mut asked = message(|out| {
        encode::parse(out, b"", b"insert into t values (1)", &[]);
        encode::bind_simple(out, b"", b"", &[]);
        encode::execute(out, b"", 0);
        encode::query(out, b"select 1");
    });
    behind(&mut asked);
    world.receive(client, &asked);
    world.sent.clear();
    let answered = message(|out| {
        encode::parse_complete(out);
        encode::bind_complete(out);
        encode::command_complete(out, "INSERT 0 1");
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::InTransaction);
    });
    world.receive(server, &answered);
    (world, client, server)
}

#[test]
fn a_sync_right_behind_a_query_in_a_pipeline_may_have_ended_nothing() {
    let (mut world, client, server) = query_in_a_pipeline(encode::sync);
    // PostgreSQL 18 says so and leaves the transaction open: whatever comes next gets "unexpected state STARTED".
    world.receive(server, &message(|out| encode::ready(out, Status::Idle)));
    assert_eq!(world.tags(client), "12CCZZ");
    assert_eq!(world.tags(server), "X", "it is for nobody else");
}

#[test]
fn the_same_behind_another_segment_that_is_not_answered_yet() {
    let mut world = World::new("default_pool_size = 1");
    let client = world.client(&[]);
    let server = world.server();
    let segment = |out: &mut Vec<u8>| {
        encode::parse(out, b"", b"insert into t values (1)", &[]);
        encode::bind_simple(out, b"", b"", &[]);
        encode::execute(out, b"", 0);
    };
    let asked = message(|out| {
        segment(out);
        encode::sync(out);
        segment(out);
        encode::query(out, b"select 1");
        encode::sync(out);
    });
    world.receive(client, &asked);
    world.sent.clear();
    let answered = message(|out| {
        for status in [Status::Idle, Status::InTransaction] {
            encode::parse_complete(out);
            encode::bind_complete(out);
            encode::command_complete(out, "INSERT 0 1");
            if status == Status::InTransaction {
                encode::command_complete(out, "SELECT 1");
            }
            encode::ready(out, status);
        }
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &answered);
    assert_eq!((&*world.tags(client), &*world.tags(server)), ("12CZ12CCZZ", "X"));
}

#[test]
fn the_same_where_the_sync_is_sent_later() {
    let (mut world, client, server) = query_in_a_pipeline(|_| ());
    world.receive(client, &message(encode::sync));
    world.sent.clear();
    world.receive(server, &message(|out| encode::ready(out, Status::Idle)));
    assert_eq!((&*world.tags(client), &*world.tags(server)), ("Z", "X"));
}

#[test]
fn a_query_in_a_pipeline_that_ended_the_transaction_costs_no_server() {
    let mut world = World::new("default_pool_size = 1");
    let client = world.client(&[]);
    let server = world.server();
    let asked = message(|out| {
        encode::bind_simple(out, b"", b"", &[]);
        encode::query(out, b"select 1");
        encode::sync(out);
    });
    world.receive(client, &asked);
    world.sent.clear();
    world.receive(
        server,
        &message(|out| {
            encode::bind_complete(out);
            encode::command_complete(out, "SELECT 1");
            encode::ready(out, Status::Idle);
            encode::ready(out, Status::Idle);
        }),
    );
    assert_eq!(world.tags(server), "", "PostgreSQL 15 ends the pipeline with the query");
}
