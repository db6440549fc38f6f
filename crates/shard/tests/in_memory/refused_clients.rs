//! What the log has of a client that is refused, and when.

use crate::world::World;
use shard::ConnId;
use wire::encode;
use wire::startup::Version;

fn refused(world: &mut World, database: &str) -> ConnId {
    let conn = world.accept();
    let mut packet = vec![];
    encode::startup(&mut packet, Version::V3_0, &[(b"user", b"u"), (b"database", database.as_bytes())]);
    world.receive(conn, &packet);
    conn
}

/// A script that has read the error finds the lines.
fn assert_logged_first(world: &World, conn: ConnId, reason: &str) {
    assert!(!world.sent[&conn].is_empty(), "the client gets an error");
    let before = &world.log[..world.logged_before[&conn]];
    let has = |text: &str| before.iter().any(|line| line.contains(text));
    assert!(has(&format!("closing because: {reason}")) && has("pooler error"), "{before:?}, then the error");
}

#[test]
fn the_log_has_the_reason_before_the_client_has_its_error() {
    let mut world = World::new("");
    let conn = refused(&mut world, "nowhere");
    assert_logged_first(&world, conn, "no such database: nowhere (age=");
}

#[test]
fn the_log_has_the_reason_before_a_client_that_no_rule_admits_has_its_error() {
    let mut world = World::new("auth_type = hba\nauth_hba_file = rules");
    let conn = refused(&mut world, "d");
    assert_logged_first(&world, conn, "login rejected (age=");
}
