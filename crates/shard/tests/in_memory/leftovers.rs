//! What clients and names leave behind: parameters that servers never report, another mode's sessions, made-up databases.

use crate::world::{World, config, message};
use messages::Command;
use shard::{ConnId, Event};
use wire::backend::Status;
use wire::encode;

const EVIL: &[(&str, &str)] = &[("search_path", "evil")];

fn complete(world: &mut World, server: ConnId, tag: &str) {
    let bytes = message(|out| {
        encode::command_complete(out, tag);
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &bytes);
}

#[test]
fn a_client_that_goes_while_its_parameters_are_set_leaves_none_of_them() {
    let mut world = World::new("default_pool_size = 1");
    let (plain, evil) = (world.client(&[]), world.client(EVIL));
    let server = world.server();
    world.sent.clear();
    world.query(evil, "select 1");
    assert!(world.text(server).contains("search_path"));
    world.event(Event::HungUp { conn: evil });
    complete(&mut world, server, "SELECT 1");
    world.query(plain, "select 2");
    assert!(world.text(server).contains("RESET search_path;"));
}

#[test]
fn parameters_that_could_not_be_set_are_not_taken_for_set() {
    let mut world = World::new("default_pool_size = 1");
    let (plain, evil) = (world.client(&[]), world.client(EVIL));
    let server = world.server();
    world.query(evil, "select 1");
    let refused = message(|out| {
        encode::error(out, "ERROR", "22023", "no");
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &refused);
    world.sent.clear();
    world.query(plain, "select 2");
    assert!(world.text(server).contains("RESET search_path;"));
}

/// What the next client makes the server hear first, after a session whose search_path Weir has set.
fn after_reset_by(query: &str, more: &str) -> String {
    let mut world = World::new(&format!("default_pool_size = 1\nserver_reset_query = {query}\n{more}"));
    let (evil, plain) = (world.client(EVIL), world.client(&[]));
    let server = world.server();
    world.query(evil, "select 1");
    complete(&mut world, server, "SELECT 1");
    world.sent.clear();
    world.answer(server, Status::Idle);
    world.receive(evil, &message(encode::terminate));
    assert!(world.text(server).contains(query), "behind a transaction or a session");
    complete(&mut world, server, query);
    world.sent.clear();
    world.query(plain, "select 2");
    world.text(server)
}

#[test]
fn only_discard_all_is_taken_for_a_clean_session() {
    for (query, more) in [
        ("DEALLOCATE ALL", "pool_mode = session"),
        ("SELECT 1", "pool_mode = session"),
        ("DEALLOCATE ALL", "server_reset_query_always = 1"),
    ] {
        let heard = after_reset_by(query, more);
        assert!(heard.contains("RESET search_path;"), "{query}, {more}: {heard:?}");
    }
    let heard = after_reset_by("DISCARD ALL", "pool_mode = session");
    assert!(heard.starts_with('Q') && heard.ends_with("select 2\0"), "{heard:?}");
}

#[test]
fn what_sessions_left_is_not_for_transactions() {
    let mut world = World::new("pool_mode = session\ndefault_pool_size = 2");
    let (first, second) = (world.client(&[]), world.client(&[]));
    let idle = world.server();
    world.query(first, "select 1");
    world.query(second, "select 2");
    let kept = world.server();
    world.answer(idle, Status::Idle);
    world.answer(kept, Status::InTransaction);
    world.sent.clear();
    world.event(Event::Command(Command::Configure(config("pool_mode = transaction\ndefault_pool_size = 2"))));
    assert_eq!(world.tags(idle), "X", "a session that holds nothing open gives its server up at once");
    assert_eq!(world.tags(kept), "");
    world.query(second, "commit");
    world.answer(kept, Status::Idle);
    assert_eq!(world.tags(kept), "QX", "the other with its transaction");
    world.event(Event::HungUp { conn: idle });
    world.query(first, "select 3");
    let fresh = world.server();
    assert_eq!(world.tags(fresh), "Q");
}

#[test]
fn names_that_no_server_knows_are_forgotten_at_once() {
    let mut world = World::new("[databases]\n* = host=127.0.0.1 port=1");
    let client = world.client(&[("database", "nodb")]);
    let server = world.connected();
    world.receive(server, &message(|out| encode::error(out, "FATAL", "3D000", "no such database")));
    world.event(Event::HungUp { conn: server });
    assert!(world.closed.contains(&client));
    assert_eq!(world.shard.pools().count(), 1);
    world.pass(340);
    assert_eq!(world.shard.pools().count(), 0);
}
