//! `queue = fair`: which client gets the next server, by what its subject has had of the servers' time.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::world::{World, config, message};
use messages::{Command, Listing, Report, RequestId, Subject};
use shard::{ConnId, Event, Peer};
use wire::backend::Status;
use wire::encode;
use wire::startup::Version;

const FAIR: &str = "default_pool_size = 1\nqueue = fair\nqueue_by = client_addr\nqueue_burst = 0";

/// One server, and clients from several addresses.
struct Queueing {
    world: World,
    server: ConnId,
}

impl Queueing {
    fn new(settings: &str) -> Queueing {
        let mut world = World::new(settings);
        let first = world.client(&[]);
        let server = world.server();
        world.event(Event::HungUp { conn: first });
        Queueing { world, server }
    }

    fn client(&mut self, host: u8) -> ConnId {
        let conn = self.world.shard.allocate_id();
        let remote = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)), 5);
        self.world.event(Event::Accepted { conn, peer: Peer::Inet { remote, local: remote } });
        let startup = message(|out| {
            encode::startup(out, Version::V3_0, &[(b"user", b"u"), (b"database", b"d")]);
        });
        self.world.receive(conn, &startup);
        conn
    }

    /// So many clients of a host, each of which asks what its number is.
    fn ask(&mut self, host: u8, clients: usize) -> Vec<ConnId> {
        let clients: Vec<ConnId> = (0..clients).map(|_| self.client(host)).collect();
        for client in &clients {
            self.world.query(*client, &format!("select {host}"));
        }
        clients
    }

    /// The host whose request the server has now.
    fn serves(&mut self) -> Option<u8> {
        assert_eq!(self.world.shard.audit().contradiction, None);
        let sent = self.world.text(self.server);
        sent.trim_end_matches('\0').rsplit_once("select ").and_then(|(_, host)| host.parse().ok())
    }

    /// What it has is answered after so long; whose request it gets then.
    fn next_after(&mut self, milliseconds: u64) -> Option<u8> {
        self.world.now.mono_us += milliseconds * 1_000;
        self.world.answer(self.server, Status::Idle);
        self.serves()
    }

    /// How often each subject has had a server.
    fn turns(&mut self) -> Vec<u64> {
        self.world.reports.clear();
        self.world.event(Event::Command(Command::List { request: RequestId(1), subject: Subject::Queues }));
        let rows = self.world.reports.iter().find_map(|report| match report {
            Report::Listing { rows: Listing::Queues(rows), .. } => Some(rows),
            _ => None,
        });
        rows.unwrap().iter().map(|row| row.turns).collect()
    }

    fn configure(&mut self, settings: &str) {
        self.world.event(Event::Command(Command::Configure(config(settings))));
    }
}

#[test]
fn who_has_had_little_comes_before_those_who_wait_longer() {
    let mut queueing = Queueing::new(FAIR);
    queueing.ask(1, 6);
    assert_eq!(queueing.serves(), Some(1));
    assert_eq!(queueing.next_after(10), Some(1), "nobody else waits");
    queueing.ask(2, 2);
    let order: Vec<_> = (0..6).map(|_| queueing.next_after(10)).collect();
    assert_eq!(order, [Some(2), Some(1), Some(2), Some(1), Some(1), Some(1)]);
    assert_eq!(queueing.next_after(10), None);
}

#[test]
fn first_come_first_served_does_not_ask_who_it_is() {
    let mut queueing = Queueing::new("default_pool_size = 1");
    queueing.ask(1, 3);
    queueing.ask(2, 1);
    let order: Vec<_> = std::iter::once(queueing.serves())
        .chain((0..3).map(|_| queueing.next_after(10)).collect::<Vec<_>>())
        .collect();
    assert_eq!(order, [Some(1), Some(1), Some(1), Some(2)]);
}

#[test]
fn time_counts_and_not_how_often_one_is_served() {
    let mut queueing = Queueing::new(FAIR);
    queueing.ask(1, 20);
    queueing.ask(2, 20);
    let (mut had, mut now) = ([0, 0], queueing.serves());
    for _ in 0..22 {
        let host = now.unwrap();
        let milliseconds = if host == 1 { 100 } else { 10 };
        had[usize::from(host) - 1] += milliseconds;
        now = queueing.next_after(milliseconds);
    }
    assert!(had[0].abs_diff(had[1]) <= 100, "{had:?}");
}

#[test]
fn a_turn_counts_while_it_lasts() {
    let mut queueing =
        Queueing::new("default_pool_size = 2\nqueue = fair\nqueue_by = client_addr\nqueue_burst = 0");
    let slow = queueing.ask(1, 1);
    assert_eq!(queueing.serves(), Some(1));
    queueing.ask(2, 1);
    let other = queueing.world.server();
    assert!(queueing.world.text(other).contains("select 2"));
    queueing.ask(1, 2);
    queueing.ask(2, 2);
    queueing.world.pass(400);
    queueing.world.answer(other, Status::Idle);
    assert!(
        queueing.world.text(other).contains("select 1"),
        "both have had as much, and the lower number comes first"
    );
    queueing.world.pass(400);
    queueing.world.answer(other, Status::Idle);
    assert!(queueing.world.text(other).contains("select 2"), "the first turn of the other goes on");
    queueing.world.event(Event::HungUp { conn: slow[0] });
    assert_eq!(queueing.world.shard.audit().contradiction, None);
}

#[test]
fn who_leaves_while_it_waits_is_not_served() {
    let mut queueing = Queueing::new(FAIR);
    queueing.ask(1, 2);
    let gone = queueing.ask(2, 2);
    queueing.serves();
    queueing.world.event(Event::HungUp { conn: gone[0] });
    assert_eq!(
        [queueing.next_after(1), queueing.next_after(1), queueing.next_after(1)],
        [Some(2), Some(1), None]
    );
}

#[test]
fn weights_are_those_of_the_entry_and_change_with_it() {
    let weighted =
        |weights: &str| format!("{FAIR}\n[databases]\nd = host=127.0.0.1 port=1 queue_weights='{weights}'");
    let mut queueing = Queueing::new(&weighted("10.0.0.1=3"));
    queueing.ask(1, 40);
    queueing.ask(2, 40);
    let count =
        |queueing: &mut Queueing, turns| (0..turns).filter(|_| queueing.next_after(10) == Some(1)).count();
    queueing.serves();
    let heavy = count(&mut queueing, 20);
    assert!((14..=16).contains(&heavy), "{heavy}");
    queueing.configure(&weighted("10.0.0.2=3"));
    let light = count(&mut queueing, 20);
    assert!((4..=6).contains(&light), "{light}");
}

#[test]
fn clients_that_wait_change_over_with_the_setting() {
    let mut queueing = Queueing::new(FAIR);
    queueing.ask(1, 4);
    queueing.serves();
    queueing.next_after(10);
    let leaves = queueing.ask(2, 2);
    queueing.configure("default_pool_size = 1");
    queueing.ask(3, 1);
    assert_eq!([queueing.next_after(10), queueing.next_after(10)], [Some(1), Some(1)], "by arrival");
    queueing.world.event(Event::HungUp { conn: leaves[0] });
    assert_eq!(queueing.next_after(10), Some(2));
    queueing.configure(FAIR);
    queueing.ask(1, 1);
    queueing.ask(4, 1);
    let order: Vec<_> = (0..4).map(|_| queueing.next_after(10)).collect();
    assert_eq!(order[0], Some(3), "it has waited before the order changed");
    assert!(
        order[1..].contains(&Some(1)) && order[1..].contains(&Some(4)) && order[3].is_none(),
        "{order:?}"
    );
}

#[test]
fn a_session_of_its_own_counts_until_it_ends() {
    let mut queueing = Queueing::new(
        "pool_mode = session\ndefault_pool_size = 1\nserver_reset_query =\nqueue = fair\nqueue_by = client_addr\nqueue_burst = 0",
    );
    let clients = queueing.ask(1, 3);
    assert_eq!(queueing.serves(), Some(1));
    queueing.world.answer(queueing.server, Status::Idle);
    queueing.ask(2, 1);
    queueing.world.now.mono_us += 1_000_000;
    queueing.world.event(Event::HungUp { conn: clients[0] });
    assert_eq!(queueing.serves(), Some(2));
}

#[test]
fn a_turn_that_was_shorter_than_estimated_is_given_back() {
    let mut queueing = Queueing::new(FAIR);
    queueing.ask(2, 1);
    assert_eq!((queueing.serves(), queueing.next_after(1_500)), (Some(2), None));
    queueing.ask(1, 1);
    assert_eq!((queueing.serves(), queueing.next_after(1_000)), (Some(1), None));
    queueing.ask(1, 2);
    queueing.ask(2, 1);
    assert_eq!(queueing.serves(), Some(1), "it is thought to take a second, too");
    assert_eq!(queueing.next_after(10), Some(1), "and has had 1.01 s beside 1.5 s");
    assert_eq!(queueing.next_after(600), Some(2));
}

#[test]
fn a_server_that_is_lost_counts_until_then() {
    let mut queueing = Queueing::new(FAIR);
    queueing.ask(1, 2);
    assert_eq!(queueing.serves(), Some(1));
    queueing.ask(2, 1);
    queueing.world.now.mono_us += 50_000;
    let lost = queueing.server;
    queueing.world.event(Event::HungUp { conn: lost });
    queueing.server = queueing.world.server();
    assert_eq!(queueing.serves(), Some(2));
}

#[test]
fn one_that_leaves_while_its_server_is_made_like_it_costs_nothing_afterwards() {
    let mut queueing = Queueing::new(FAIR);
    let [stays, leaves] = [1, 1].map(|host| queueing.client(host));
    queueing.world.query(leaves, "select 1");
    queueing.world.answer(queueing.server, Status::Idle);
    queueing.world.sent.clear();
    let named = message(|out| encode::query(out, b"set application_name = 'x'"));
    queueing.world.receive(stays, &named);
    let reported = message(|out| {
        encode::command_complete(out, "SET");
        encode::parameter_status(out, b"application_name", b"x");
        encode::ready(out, Status::Idle);
    });
    queueing.world.receive(queueing.server, &reported);
    queueing.world.query(leaves, "select 1");
    let server = queueing.server;
    let sent = queueing.world.text(server);
    assert!(sent.contains("SET application_name"), "{sent}");
    queueing.world.event(Event::HungUp { conn: leaves });
    let reported = message(|out| {
        encode::command_complete(out, "SET");
        encode::parameter_status(out, b"application_name", b"");
        encode::ready(out, Status::Idle);
    });
    queueing.world.receive(server, &reported);
    queueing.world.pass(5_000);
    assert_eq!(queueing.turns(), [3], "the idle server is nobody's turn");
}
