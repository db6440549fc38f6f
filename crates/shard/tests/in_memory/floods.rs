//! Many small messages in one go: each is taken once, and what they are answered with has an end.

use crate::world::{World, message};
use messages::{AdminReply, Command, ReplyPart, Report};
use shard::{ConnId, Event};
use wire::backend::Status;
use wire::encode;

const MANY: usize = 200_000;

fn many(write: fn(&mut Vec<u8>)) -> Vec<u8> {
    message(|out| (0..MANY).for_each(|_| write(out)))
}

/// Of so many that moving what is behind each would take minutes.
#[test]
fn messages_that_ask_for_nothing_are_taken_one_by_one() {
    let mut world = World::new("default_pool_size = 1");
    let client = world.client(&[]);
    let server = world.server();
    world.query(client, "select 1");
    world.answer(server, Status::Idle);
    world.sent.clear();
    world.receive(client, &many(encode::copy_done));
    world.receive(client, &many(encode::flush));
    world.query(client, "select 2");
    assert_eq!(world.tags(server), "Q");
}

fn console() -> (World, ConnId) {
    let mut world = World::new("");
    let console = world.client(&[("user", "boss"), ("database", "pgbouncer")]);
    world.sent.clear();
    (world, console)
}

/// What it has asked the control thread for, each time once.
fn asked(world: &mut World) -> Vec<(u32, u64, String)> {
    let reports = std::mem::take(&mut world.reports);
    let asked = |report| match report {
        Report::Query(query) => Some((query.client, query.client_id, query.sql)),
        _ => None,
    };
    reports.into_iter().filter_map(asked).collect()
}

fn reply(world: &mut World, (client, client_id, _): &(u32, u64, String)) {
    let parts = vec![ReplyPart::Complete("SHOW")];
    let reply = AdminReply { client: *client, client_id: *client_id, parts, last: true };
    world.event(Event::Command(Command::Reply(reply)));
}

#[test]
fn messages_to_the_console_are_taken_one_by_one() {
    let (mut world, console) = console();
    world.query(console, "show version");
    world.receive(console, &many(encode::sync));
    let asked = asked(&mut world);
    assert!(!world.sent.contains_key(&console), "its answer comes first");
    reply(&mut world, &asked[0]);
    let bytes = world.sent.remove(&console).unwrap();
    assert_eq!(bytes.len(), message(|out| encode::command_complete(out, "SHOW")).len() + (MANY + 1) * 6);
}

#[test]
fn a_console_client_that_does_not_read_is_answered_no_further() {
    let (mut world, console) = console();
    for _ in 0..3 {
        world.query(console, "show config");
    }
    let first = asked(&mut world);
    assert_eq!(first.len(), 1);
    world.event(Event::SendBufferFull { conn: console });
    reply(&mut world, &first[0]);
    assert_eq!(asked(&mut world), [], "it has not taken the answers before");
    world.event(Event::SendBufferEmpty { conn: console });
    let second = asked(&mut world);
    assert_eq!(second.len(), 1);
    reply(&mut world, &second[0]);
    assert_eq!(asked(&mut world).len(), 1, "it reads again");
}

#[test]
fn long_values_make_no_long_lines_of_the_log() {
    let mut world = World::new("default_pool_size = 1\nignore_startup_parameters =\n");
    let client = world.client(&[("search_path", &"x".repeat(9_000))]);
    world.server();
    world.query(client, "select 1");
    let longest = world.log.iter().map(String::len).max().unwrap();
    assert!((4_000..5_000).contains(&longest), "{longest} bytes");
}
