//! What a server's refusal of a login means to the clients that wait in its pool, and how the log says it.

use crate::world::{World, message};
use messages::Command;
use shard::{ConnId, Event};
use wire::backend::Status;
use wire::encode;

const REFUSAL: &str = "role \"u\" is not permitted to log in";

fn refuse(world: &mut World, server: ConnId) {
    let refusal = message(|out| encode::error(out, "FATAL", "28000", REFUSAL));
    world.receive(server, &refusal);
    world.event(Event::HungUp { conn: server });
}

/// A client in a transaction on the pool's only server, and one that waits for another server.
fn one_works_and_one_waits(world: &mut World, reconnect: bool) -> (ConnId, ConnId, ConnId) {
    let (working, waiting) = (world.client(&[]), world.client(&[]));
    let old = world.server();
    world.query(working, "begin");
    world.answer(old, Status::InTransaction);
    if reconnect {
        world.event(Event::Command(Command::Reconnect { database: None }));
    }
    world.sent.clear();
    world.query(waiting, "select 1");
    (working, waiting, old)
}

#[test]
fn a_refused_login_is_told_to_waiting_clients_if_the_other_servers_close_when_free() {
    let mut world = World::new("default_pool_size = 2");
    let (working, waiting, old) = one_works_and_one_waits(&mut world, true);
    let refused = world.connected();
    refuse(&mut world, refused);
    assert!(world.text(waiting).contains(REFUSAL));
    assert!(world.closed.contains(&waiting) && !world.closed.contains(&working));
    world.query(working, "commit");
    world.answer(old, Status::Idle);
    assert!(world.text(working).contains("SELECT 1"), "its transaction ends as usual");
}

#[test]
fn a_refused_login_is_not_told_to_clients_that_another_server_can_serve() {
    let mut world = World::new("default_pool_size = 2");
    let (working, waiting, old) = one_works_and_one_waits(&mut world, false);
    let refused = world.connected();
    refuse(&mut world, refused);
    assert!(!world.closed.contains(&waiting));
    world.query(working, "commit");
    world.answer(old, Status::Idle);
    assert!(world.text(old).contains("select 1"), "it serves the client that has waited");
}

#[test]
fn the_servers_line_repeats_its_message() {
    let mut world = World::new("");
    let client = world.client(&[]);
    let refused = world.connected();
    refuse(&mut world, refused);
    assert!(world.text(client).contains(REFUSAL));
    for side in ["S-", "C-"] {
        let repeats = |line: &String| {
            line.starts_with(side) && line.contains(&format!("closing because: {REFUSAL} (age="))
        };
        assert!(world.log.iter().any(repeats), "{side}: {:?}", world.log);
    }
}

#[test]
fn a_replication_login_that_is_refused_is_called_a_failed_login() {
    let mut world = World::new("");
    let client = world.client(&[("replication", "true")]);
    let refused = world.connected();
    refuse(&mut world, refused);
    assert!(world.text(client).contains(REFUSAL), "the client gets the server's words all the same");
    for side in ["S-", "C-"] {
        let says =
            |line: &String| line.starts_with(side) && line.contains("closing because: login failed (age=");
        assert!(world.log.iter().any(says), "{side}: {:?}", world.log);
    }
}

#[test]
fn the_end_of_a_connection_attempt_says_how_far_it_came() {
    let mut world = World::new("server_connect_timeout = 1\nserver_login_retry = 0");
    world.client(&[]);
    world.pass(1_400);
    assert!(
        world
            .log
            .iter()
            .any(|line| line.starts_with("S-") && line.contains("closing because: connect failed"))
    );
    world.connecting.clear();
    world.pass(1_000);
    world.connected();
    world.pass(1_400);
    assert!(
        world
            .log
            .iter()
            .any(|line| line.starts_with("S-") && line.contains("closing because: connect timeout"))
    );
}

#[test]
fn reconnect_and_changed_databases_give_the_same_reason() {
    let mut world = World::new("pool_mode = session\nserver_fast_close = 1");
    let client = world.client(&[]);
    let server = world.server();
    world.query(client, "select 1");
    world.answer(server, Status::Idle);
    world.sent.clear();
    world.event(Event::Command(Command::Reconnect { database: None }));
    world.pass(400);
    assert!(world.text(client).contains("database configuration changed"));
}
