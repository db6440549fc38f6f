//! `queue_priority`: which class a client waits in, and what that is worth.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::world::{World, config, message};
use messages::Command;
use shard::{ConnId, Event, Peer};
use wire::backend::Status;
use wire::encode;
use wire::startup::Version;

const HIGH: &str = "/* weir: priority=high */";
const LOW: &str = "/* weir: priority=low */";

/// One server, which a client has.
struct Queueing {
    world: World,
    server: ConnId,
}

impl Queueing {
    fn new(settings: &str) -> Queueing {
        let mut world = World::new(&format!("default_pool_size = 1\n{settings}"));
        let holder = world.client(&[]);
        let server = world.server();
        world.query(holder, "select 'holder'");
        world.text(server);
        Queueing { world, server }
    }

    fn ask(&mut self, comment: &str, number: u32) -> ConnId {
        let client = self.world.client(&[]);
        self.world.query(client, &format!("{comment} select {number}"));
        client
    }

    /// In which order those that wait are served.
    fn order(&mut self) -> Vec<u32> {
        self.order_after(0)
    }

    /// The same, where each request takes so long.
    fn order_after(&mut self, milliseconds: u64) -> Vec<u32> {
        let mut order = vec![];
        loop {
            self.world.now.mono_us += milliseconds * 1_000;
            self.world.answer(self.server, Status::Idle);
            assert_eq!(self.world.shard.audit().contradiction, None);
            let sent = self.world.text(self.server);
            let number =
                sent.trim_end_matches('\0').rsplit_once("select ").map(|(_, number)| number.to_owned());
            match number
                .and_then(|number| number.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok())
            {
                Some(number) => order.push(number),
                None => return order,
            }
        }
    }
}

#[test]
fn a_comment_counts_where_it_may() {
    for (settings, expected) in [
        ("", [1, 2, 3, 4]),
        ("queue_priority = settings", [1, 2, 3, 4]),
        ("queue_priority = comment", [3, 2, 4, 1]),
    ] {
        let mut queueing = Queueing::new(settings);
        for (number, comment) in [(1, LOW), (2, ""), (3, HIGH), (4, "/* weir: priority=normal */")] {
            queueing.ask(comment, number);
        }
        assert_eq!(queueing.order(), expected, "{settings}");
    }
}

#[test]
fn a_low_one_that_has_waited_long_is_not_passed_any_more() {
    let mut queueing = Queueing::new("queue_priority = comment");
    queueing.ask(LOW, 1);
    queueing.world.pass(4_900);
    queueing.ask(HIGH, 2);
    queueing.world.pass(200);
    queueing.ask(HIGH, 3);
    assert_eq!(queueing.order(), [2, 1, 3]);
}

#[test]
fn users_and_entries_have_classes_that_clients_cannot_leave() {
    let entry = "queue_priority = settings\n[databases]\nd = host=127.0.0.1 port=1 user=u priority=low\n[users]\nv = priority=high";
    let mut queueing = Queueing::new(entry);
    queueing.ask(HIGH, 1);
    queueing.ask("", 2);
    assert_eq!(queueing.order(), [1, 2]);
    let mut queueing =
        Queueing::new("queue_priority = comment\n[databases]\nd = host=127.0.0.1 port=1 user=u priority=low");
    queueing.ask("", 1);
    queueing.ask("/* weir: priority=normal */", 2);
    assert_eq!(queueing.order(), [2, 1], "with comments it can");
}

#[test]
fn within_a_subject_of_a_fair_queue_and_not_beside_others() {
    let mut queueing =
        Queueing::new("queue = fair\nqueue_by = client_addr\nqueue_burst = 0\nqueue_priority = comment");
    for (host, comment, number) in [(1, LOW, 11), (1, "", 12), (2, HIGH, 21), (2, HIGH, 22), (2, HIGH, 23)] {
        let conn = queueing.world.shard.allocate_id();
        let remote = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)), 5);
        queueing.world.event(Event::Accepted { conn, peer: Peer::Inet { remote, local: remote } });
        let startup = message(|out| {
            encode::startup(out, Version::V3_0, &[(b"user", b"u"), (b"database", b"d")]);
        });
        queueing.world.receive(conn, &startup);
        queueing.world.query(conn, &format!("{comment} select {number}"));
    }
    let order = queueing.order_after(10);
    let place = |number| order.iter().position(|other| *other == number).unwrap();
    assert_eq!(order.len(), 5);
    assert!(place(12) < place(11) && place(11) < place(23), "{order:?}");
}

#[test]
fn reload_gives_new_waiters_classes_and_old_ones_their_places() {
    let mut queueing = Queueing::new("");
    let gone = queueing.ask(HIGH, 1);
    queueing.ask("", 2);
    let settings = "default_pool_size = 1\nqueue_priority = comment";
    queueing.world.event(Event::Command(Command::Configure(config(settings))));
    queueing.ask(HIGH, 3);
    queueing.world.event(Event::HungUp { conn: gone });
    assert_eq!(queueing.order(), [3, 2]);
}
