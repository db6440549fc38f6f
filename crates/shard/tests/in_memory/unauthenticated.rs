//! Connections that have not logged in: they keep no client out, and have limits of their own.

use crate::world::{World, message};
use shard::{ConnId, Event, Peer};
use wire::encode;
use wire::startup::Version;

fn accept(world: &mut World, peer: Peer) -> ConnId {
    // Places are not used again: what became of each connection can be told to the end.
    let conn = std::iter::repeat_with(|| world.shard.allocate_id())
        .find(|conn| !world.closed.contains(conn))
        .unwrap();
    world.sent.remove(&conn);
    world.event(Event::Accepted { conn, peer });
    conn
}

fn from(world: &mut World, address: &str) -> ConnId {
    let address = address.parse().unwrap();
    accept(world, Peer::Inet { remote: address, local: address })
}

fn unix(world: &mut World, user_id: u32) -> ConnId {
    accept(world, Peer::Unix { process_id: 7, user_id, port: 6432 })
}

/// A login whose password is wrong.
fn fails(world: &mut World, conn: ConnId) {
    world.receive(conn, &startup("u"));
    world.receive(conn, &message(|out| encode::password(out, b"wrong")));
}

fn startup(user: &str) -> Vec<u8> {
    message(|out| encode::startup(out, Version::V3_0, &[(b"user", user.as_bytes()), (b"database", b"d")]))
}

fn is_closed(world: &World, conn: ConnId) -> bool {
    world.closed.contains(&conn)
}

/// Logs in by a password; true if that leads to a server.
fn gets_in(world: &mut World, conn: ConnId) -> bool {
    world.receive(conn, &startup("u"));
    world.receive(conn, &message(|out| encode::password(out, b"pw")));
    !is_closed(world, conn)
}

#[test]
fn a_login_that_proves_nothing_keeps_no_client_out() {
    let mut world = World::new("auth_type = plain\nmax_client_conn = 1");
    let half: Vec<ConnId> = (0..20).map(|_| from(&mut world, "127.0.0.1:5")).collect();
    for conn in &half[..10] {
        world.receive(*conn, &startup("u"));
    }
    let client = from(&mut world, "127.0.0.1:5");
    assert!(gets_in(&mut world, client));
    // It is full now, and tells the next one before any proof, and those who are about to prove themselves after it.
    let late = from(&mut world, "127.0.0.1:5");
    world.receive(late, &startup("u"));
    assert!(world.text(late).contains("max_client_conn") && is_closed(&world, late));
    world.receive(half[0], &message(|out| encode::password(out, b"pw")));
    assert!(world.text(half[0]).contains("max_client_conn") && is_closed(&world, half[0]));
    world.event(Event::HungUp { conn: client });
    let next = from(&mut world, "127.0.0.1:5");
    assert!(gets_in(&mut world, next), "counted once, and uncounted");
}

#[test]
fn of_too_many_the_one_goes_that_has_kept_weir_waiting_longest() {
    for first in [&b""[..], b"\0\0"] {
        let mut world = World::new("max_login_conn = 3");
        let silent: Vec<ConnId> = (0..3).map(|_| from(&mut world, "127.0.0.1:5")).collect();
        world.pass(1_500);
        // Bytes that are no message yet are no answer.
        silent.iter().for_each(|conn| world.receive(*conn, first));
        let next = from(&mut world, "127.0.0.1:5");
        assert!(is_closed(&world, silent[0]) && !is_closed(&world, silent[1]) && !is_closed(&world, next));
        assert!(world.text(silent[0]).contains("too many connections that have not logged in"));
        let again = from(&mut world, "127.0.0.1:5");
        assert!(is_closed(&world, silent[1]) && !is_closed(&world, again));
    }
}

#[test]
fn a_crowd_is_let_in_and_an_avalanche_is_not() {
    let mut world = World::new("max_login_conn = 3");
    let crowd: Vec<ConnId> = (0..12).map(|_| from(&mut world, "127.0.0.1:5")).collect();
    assert!(crowd.iter().all(|conn| !is_closed(&world, *conn)), "none has waited long");
    let late = from(&mut world, "127.0.0.1:5");
    assert!(is_closed(&world, late), "one of many more");
    for conn in crowd {
        world.receive(conn, &startup("u"));
    }
    let next = from(&mut world, "127.0.0.1:5");
    assert!(!is_closed(&world, next), "they have logged in");
    let told = world.log.iter().filter(|line| line.contains("max_login_conn")).count();
    assert_eq!(told, 1, "one line for all of a second");
}

#[test]
fn an_address_has_a_limit_of_its_own() {
    let mut world = World::new("max_login_conn = 100\nmax_login_conn_per_address = 2");
    let other = from(&mut world, "10.0.0.2:5");
    let own: Vec<ConnId> =
        ["[fd00::1]:5", "[fd00::ffff]:6"].into_iter().map(|address| from(&mut world, address)).collect();
    world.pass(1_500);
    let next = from(&mut world, "[fd00::2:2]:7");
    assert!(is_closed(&world, own[0]) && !is_closed(&world, own[1]) && !is_closed(&world, next));
    assert!(!is_closed(&world, other));
    for _ in 0..6 {
        from(&mut world, "[fd00::3]:8");
    }
    let refused = from(&mut world, "[fd00::3]:8");
    assert!(!is_closed(&world, refused), "one had waited");
    for _ in 0..6 {
        from(&mut world, "[fd00::3]:8");
    }
    let refused = from(&mut world, "[fd00::3]:8");
    assert!(is_closed(&world, refused));
    let elsewhere = from(&mut world, "[fd00:1::1]:5");
    assert!(!is_closed(&world, elsewhere));
    // On a unix socket a user of the system is what an address is elsewhere.
    let user: Vec<ConnId> = (0..9).map(|_| unix(&mut world, 9)).collect();
    assert_eq!(
        user.iter().map(|conn| is_closed(&world, *conn)).collect::<Vec<_>>(),
        [[false; 8].as_slice(), &[true]].concat()
    );
    let other = unix(&mut world, 10);
    assert!(!is_closed(&world, other));
}

#[test]
fn local_administrators_are_admitted_under_a_flood() {
    let mut world = World::new("max_login_conn = 3\nmax_login_conn_per_address = 2");
    world.shard.trust_unix_user(70);
    for user in 1_000..1_012 {
        unix(&mut world, user);
    }
    for administrator in [0, 70] {
        let crowd: Vec<ConnId> = (0..30).map(|_| unix(&mut world, administrator)).collect();
        assert!(!is_closed(&world, crowd[29]));
        let open = crowd.iter().filter(|conn| !is_closed(&world, **conn)).count();
        assert!(open <= 8, "not even they may be any number: {open}");
    }
}

#[test]
fn an_origin_with_many_connections_makes_room_for_one_with_few() {
    let mut world = World::new("max_login_conn = 3\nmax_login_conn_per_address = 0\nauth_type = plain");
    let crowd: Vec<ConnId> = (0..12).map(|_| from(&mut world, "10.0.0.2:5")).collect();
    let client = from(&mut world, "127.0.0.1:5");
    assert!(is_closed(&world, crowd[0]) && !is_closed(&world, crowd[1]), "the oldest");
    let second = unix(&mut world, 9);
    let third = from(&mut world, "10.0.0.3:5");
    // The number stays the same, and the others have enough.
    let open = crowd.iter().filter(|conn| !is_closed(&world, **conn)).count();
    assert_eq!(open, 9);
    let again = from(&mut world, "10.0.0.2:5");
    assert!(is_closed(&world, again));
    for conn in [client, second, third] {
        assert!(gets_in(&mut world, conn));
    }
}

#[test]
fn a_limit_for_each_address_does_not_lift_that_of_all() {
    let mut world = World::new("max_login_conn = 3\nmax_login_conn_per_address = 5");
    let crowd: Vec<ConnId> = (0..20).map(|_| from(&mut world, "10.0.0.2:5")).collect();
    let open = crowd.iter().filter(|conn| !is_closed(&world, **conn)).count();
    assert_eq!(open, 12);
}

#[test]
fn failed_logins_that_wait_for_their_answer_go_first() {
    for settings in ["max_login_conn = 3", "max_login_conn_per_address = 3"] {
        let mut world = World::new(&format!("auth_type = plain\n{settings}"));
        let silent = from(&mut world, "10.0.0.2:5");
        let mut held = vec![];
        for _ in 0..100 {
            let conn = from(&mut world, "10.0.0.2:5");
            fails(&mut world, conn);
            if !is_closed(&world, conn) {
                held.push(conn);
            }
            held.retain(|conn| !is_closed(&world, *conn));
            assert!(held.len() <= 2, "{settings}");
        }
        let oldest = held[0];
        for address in ["10.0.0.2:6", "127.0.0.1:5"] {
            let client = from(&mut world, address);
            assert!(gets_in(&mut world, client), "{settings}");
        }
        assert!(world.text(oldest).contains("password authentication failed"), "the answer, if early");
        assert!(!is_closed(&world, silent));
    }
}

#[test]
fn failures_of_one_user_of_the_machine_delay_no_other() {
    let mut world = World::new("auth_type = plain");
    for _ in 0..6 {
        let conn = unix(&mut world, 9);
        fails(&mut world, conn);
    }
    let other = unix(&mut world, 10);
    fails(&mut world, other);
    assert!(is_closed(&world, other));
}

#[test]
fn logins_that_wait_for_a_server_keep_no_other_address_out() {
    let mut world = World::new(
        "max_login_conn = 2\nauth_user = boss\nauth_query = select name, secret from users where name = $1",
    );
    let asked: Vec<ConnId> = (0..8).map(|_| from(&mut world, "10.0.0.2:5")).collect();
    for conn in &asked {
        world.receive(*conn, &startup("stranger"));
    }
    world.pass(1_500);
    let next = from(&mut world, "10.0.0.2:5");
    assert!(is_closed(&world, next), "Weir is at work for all of them");
    let other = from(&mut world, "127.0.0.1:5");
    assert!(!is_closed(&world, other) && is_closed(&world, asked[0]) && !is_closed(&world, asked[1]));
}

#[test]
fn without_descriptors_one_that_waits_makes_way() {
    let mut world =
        World::new("auth_user = boss\nauth_query = select name, secret from users where name = $1");
    let asked = from(&mut world, "10.0.0.2:5");
    world.receive(asked, &startup("stranger"));
    let silent = from(&mut world, "10.0.0.2:5");
    world.event(Event::FilesRanOut);
    assert!(!is_closed(&world, silent) && !is_closed(&world, asked), "neither has waited for long");
    world.pass(1_500);
    let young = from(&mut world, "127.0.0.1:5");
    world.event(Event::FilesRanOut);
    assert!(is_closed(&world, silent) && !is_closed(&world, asked));
    world.event(Event::FilesRanOut);
    assert!(is_closed(&world, asked) && !is_closed(&world, young));
    world.event(Event::FilesRanOut);
    assert!(!is_closed(&world, young));
}

#[test]
fn silent_connections_shrink_to_the_limit_by_themselves() {
    let mut world = World::new("max_login_conn = 3");
    let crowd: Vec<ConnId> = (0..10).map(|_| from(&mut world, "127.0.0.1:5")).collect();
    world.pass(400);
    assert!(crowd.iter().all(|conn| !is_closed(&world, *conn)));
    world.pass(1_000);
    assert_eq!(crowd.iter().filter(|conn| !is_closed(&world, **conn)).count(), 3);
}

#[test]
fn logins_take_no_more_than_half_of_the_open_files() {
    let mut world = World::new("max_login_conn = 1000\nmax_login_conn_per_address = 0");
    world.shard.limit_files(40);
    let crowd: Vec<ConnId> = (0..20).map(|_| from(&mut world, "127.0.0.1:5")).collect();
    assert!(crowd.iter().all(|conn| !is_closed(&world, *conn)));
    let next = from(&mut world, "127.0.0.1:5");
    assert!(is_closed(&world, next));
}

#[test]
fn one_for_which_weir_is_at_work_does_not_go() {
    let mut world = World::new(
        "max_login_conn = 2\nauth_user = boss\nauth_query = select name, secret from users where name = $1",
    );
    let asked = from(&mut world, "127.0.0.1:5");
    world.receive(asked, &startup("stranger"));
    let silent = from(&mut world, "127.0.0.1:5");
    world.pass(1_500);
    let next = from(&mut world, "127.0.0.1:5");
    assert!(!is_closed(&world, asked) && is_closed(&world, silent) && !is_closed(&world, next));
}

#[test]
fn failures_in_a_row_are_answered_late_and_right_passwords_at_once() {
    let mut world = World::new("auth_type = plain\nauth_failure_delay = 2");
    let fail = |world: &mut World, user: &str| {
        let conn = from(world, "127.0.0.1:5");
        world.receive(conn, &startup(user));
        world.receive(conn, &message(|out| encode::password(out, b"wrong")));
        conn
    };
    for _ in 0..4 {
        let conn = fail(&mut world, "u");
        assert!(is_closed(&world, conn), "a mistake is told at once");
        world.closed.clear();
    }
    let held = [fail(&mut world, "u"), fail(&mut world, "nobody")];
    held.iter().for_each(|conn| world.receive(*conn, &message(|out| encode::password(out, b"pw"))));
    world.pass(1_000);
    assert!(held.iter().all(|conn| !is_closed(&world, *conn)), "and no second try");
    let right = from(&mut world, "127.0.0.1:5");
    assert!(gets_in(&mut world, right));
    world.pass(1_500);
    for conn in held {
        assert!(world.text(conn).contains("authentication failed") && is_closed(&world, conn));
    }
    // Another address has not failed, and this one may again later.
    world.closed.clear();
    let other = from(&mut world, "10.0.0.2:5");
    world.receive(other, &startup("u"));
    world.receive(other, &message(|out| encode::password(out, b"wrong")));
    assert!(is_closed(&world, other));
    world.pass(10_000);
    let later = fail(&mut world, "u");
    assert!(is_closed(&world, later));
}

#[test]
fn who_leaves_with_an_answer_held_back_is_forgotten() {
    let mut world = World::new("auth_type = plain\nmax_login_conn = 2");
    for _ in 0..50 {
        let conn = from(&mut world, "127.0.0.1:5");
        world.receive(conn, &startup("u"));
        world.receive(conn, &message(|out| encode::password(out, b"wrong")));
        if !is_closed(&world, conn) {
            world.event(Event::HungUp { conn });
        }
        assert!(is_closed(&world, conn));
        world.closed.clear();
    }
    let right = from(&mut world, "127.0.0.1:5");
    assert!(gets_in(&mut world, right));
}
