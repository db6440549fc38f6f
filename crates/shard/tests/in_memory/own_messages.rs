//! How much one client can have Weir send or keep of its own accord: bounded, however little the client sends for it.

use crate::world::{World, message};
use shard::ConnId;
use wire::backend::Status;
use wire::frame::Frames;
use wire::{encode, tag};

/// More than this is not sent before some of it is answered; the last message may go beyond it.
const OWN_BYTES: usize = 256 * 1024;

const TEXT_BYTES: usize = 100 * 1024;

fn text(number: usize) -> Vec<u8> {
    format!("select {number} --{}", "x".repeat(TEXT_BYTES)).into_bytes()
}

fn name(number: usize) -> Vec<u8> {
    format!("s{number}").into_bytes()
}

/// What a server answers to these messages.
fn answers_to(sent: &[u8]) -> Vec<u8> {
    let mut frames = Frames::new(1 << 24);
    frames.push(sent);
    message(|out| {
        while let Ok(Some((asked, _))) = frames.pop() {
            match asked {
                tag::frontend::PARSE => encode::parse_complete(out),
                tag::frontend::BIND => encode::bind_complete(out),
                tag::frontend::CLOSE => encode::close_complete(out),
                tag::frontend::EXECUTE => encode::command_complete(out, "SELECT 1"),
                tag::frontend::SYNC => encode::ready(out, Status::Idle),
                _ => {}
            }
        }
    })
}

/// A client with so many long statements, one more than its server keeps.
fn with_statements(count: usize) -> (World, ConnId, ConnId) {
    let most = count - 1;
    let mut world =
        World::new(&format!("default_pool_size = 1\nserver_check_query =\nmax_prepared_statements = {most}"));
    let client = world.client(&[]);
    let server = world.server();
    for number in 0..count {
        let parse = message(|out| {
            encode::parse(out, &name(number), &text(number), &[]);
            encode::sync(out);
        });
        world.receive(client, &parse);
        answer_all(&mut world, server);
    }
    world.sent.clear();
    (world, client, server)
}

/// The server answers what it was sent; so many bytes that was.
fn answer_all(world: &mut World, server: ConnId) -> usize {
    let sent = world.sent.remove(&server).unwrap_or_default();
    world.receive(server, &answers_to(&sent));
    sent.len()
}

fn binds(count: usize, statements: usize) -> Vec<u8> {
    message(|out| {
        for number in 0..count {
            encode::bind_simple(out, b"", &name(number % statements), &[]);
        }
        encode::sync(out);
    })
}

#[test]
fn binds_queue_no_more_texts_than_their_bound_at_a_time() {
    let (mut world, client, server) = with_statements(4);
    world.receive(client, &binds(60, 4));
    let mut rounds = 0;
    while world.sent.contains_key(&server) {
        assert_eq!(world.paused.contains(&client), rounds < 19, "read while its requests are kept");
        let sent = answer_all(&mut world, server);
        assert!(sent < OWN_BYTES + TEXT_BYTES + 4096, "{sent} bytes at once");
        rounds += 1;
    }
    assert_eq!(rounds, 20, "three texts at a time");
    assert_eq!(world.tags(client), "2".repeat(60) + "Z", "each is answered, in order");
}

#[test]
fn nothing_more_is_queued_before_all_of_it_is_answered() {
    let (mut world, client, server) = with_statements(4);
    world.receive(client, &binds(60, 4));
    let sent = world.sent.remove(&server).unwrap();
    let answers = answers_to(&sent);
    for piece in answers.chunks(5).take(answers.len() / 5 - 1) {
        world.receive(server, piece);
        assert!(!world.sent.contains_key(&server), "a text for each reply");
    }
}

#[test]
fn a_copy_that_begins_meanwhile_gets_its_data() {
    let (mut world, client, server) = with_statements(4);
    world.receive(client, &message(|out| encode::execute(out, b"", 0)));
    world.receive(client, &binds(60, 4));
    assert!(world.paused.contains(&client));
    world.sent.clear();
    world.receive(server, &message(|out| encode::copy_in(out, 0, 1)));
    assert!(!world.paused.contains(&client), "it waits for replies that come behind the copy");
    assert!(world.sent.contains_key(&server), "the server refuses what is no data");
}

#[test]
fn names_that_the_server_refuses_are_bounded_while_it_is_busy() {
    let (mut world, client, _) = with_statements(2);
    world.receive(client, &message(|out| encode::execute(out, b"", 0)));
    for number in 0..100 {
        if world.paused.contains(&client) {
            return;
        }
        let name = format!("{number}{}", "n".repeat(20_000));
        world.receive(client, &message(|out| encode::bind_simple(out, b"", name.as_bytes(), &[])));
    }
    panic!("all names are kept");
}
