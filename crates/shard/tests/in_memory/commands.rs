//! Commands of an operator: what each leaves behind once it is undone.

use messages::{Command, RequestId, ShardMessage};
use shard::Event;

use crate::world::{World, message};
use wire::backend::Status;
use wire::encode;

fn order(world: &mut World, command: Command) {
    world.event(Event::Command(command));
}

#[test]
fn resume_forgets_the_pause_that_it_undoes_and_no_other() {
    let mut world = World::new("default_pool_size = 1");
    let client = world.client(&[]);
    let server = world.server();
    world.query(client, "begin");
    world.answer(server, Status::InTransaction);
    for request in 1..=3 {
        order(&mut world, Command::Pause { request: RequestId(request), database: None });
        order(&mut world, Command::Resume { database: None });
    }
    assert_eq!(world.shard.audit().leftovers.commands, 0, "nothing waits for what was undone");
    order(&mut world, Command::Pause { request: RequestId(4), database: Some("d".to_owned()) });
    order(&mut world, Command::Resume { database: None });
    assert_eq!(world.shard.audit().leftovers.commands, 1, "the database is still paused");
    order(&mut world, Command::Resume { database: Some("d".to_owned()) });
    assert_eq!(world.shard.audit().leftovers.commands, 0);
}

#[test]
fn a_request_begun_in_session_mode_is_answered_as_it_began() {
    let mut world = World::new("default_pool_size = 1\npool_mode = session\nmax_prepared_statements = 5");
    let client = world.client(&[]);
    let server = world.server();
    let begun = message(|out| {
        encode::parse(out, b"", b"select $1", &[]);
        encode::flush(out);
    });
    world.receive(client, &begun);
    world.receive(server, &message(encode::parse_complete));
    order(
        &mut world,
        Command::Configure(crate::world::config("default_pool_size = 1\npool_mode = transaction")),
    );
    world.sent.clear();
    let rest = message(|out| {
        encode::bind_simple(out, b"", b"", &[Some(b"1")]);
        encode::execute(out, b"", 0);
        encode::sync(out);
    });
    world.receive(client, &rest);
    assert_eq!(world.sent.remove(&server).unwrap(), rest, "the server has the statement");
}

#[test]
fn a_request_begun_without_prepared_statements_is_answered_as_it_began() {
    let mut world = World::new("default_pool_size = 1\nmax_prepared_statements = 0");
    let client = world.client(&[]);
    let server = world.server();
    let begun = message(|out| {
        encode::parse(out, b"", b"select $1", &[]);
        encode::flush(out);
    });
    world.receive(client, &begun);
    world.receive(server, &message(encode::parse_complete));
    order(
        &mut world,
        Command::Configure(crate::world::config("default_pool_size = 1\nmax_prepared_statements = 5")),
    );
    world.sent.clear();
    let rest = message(|out| {
        encode::bind_simple(out, b"", b"", &[Some(b"1")]);
        encode::sync(out);
    });
    world.receive(client, &rest);
    assert_eq!(world.sent.remove(&server).unwrap(), rest, "the server has the statement");
}

#[test]
fn a_server_that_is_being_opened_when_its_host_moves_is_opened_anew() {
    let mut world = World::new("default_pool_size = 1");
    world.client(&[]);
    let moved =
        ShardMessage::HostMoved { host: "127.0.0.1".to_owned(), gone: vec!["127.0.0.1".parse().unwrap()] };
    world.event(Event::ShardMessage(moved));
    let server = world.server();
    assert!(world.text(server).contains('X'), "it may lead to where the host was");
}
