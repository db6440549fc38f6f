//! `max_pinned`: how many clients may keep a server because of their sessions, who waits for that, and who is refused.

use std::sync::Arc;

use crate::world::{OneShard, World, config, message};
use messages::{Command, RequestId, ShardMessage, ShutdownMode};
use pool::{PinUnit, PoolRegistry, SharedPool};
use shard::{ConnId, Event};
use wire::backend::Status;
use wire::encode;

const TEMP: &str = "create temp table t (a int)";

/// A world with this budget, and what all shards share of its pool.
struct Pinning {
    world: World,
    shared: Arc<SharedPool>,
}

fn settings(more: &str) -> String {
    format!("session_state = virtual\ndefault_pool_size = 4\n{more}")
}

impl Pinning {
    fn new(more: &str) -> Pinning {
        Pinning::among(1, more)
    }

    fn among(shards: u16, more: &str) -> Pinning {
        let registry = Arc::new(OneShard::among(shards));
        let shared = registry.pool("d", "u");
        let mut world = World::beside(registry, &settings(more));
        // No table of the database changes a session.
        let client = world.client(&[]);
        let server = world.server();
        assert!(world.text(server).contains("RECURSIVE"));
        world.answer(server, Status::Idle);
        world.event(Event::HungUp { conn: client });
        Pinning { world, shared }
    }

    /// The servers to which this text was sent since the last look.
    fn server_with(&mut self, sql: &str) -> Option<ConnId> {
        self.answer_own_questions();
        let has = |sent: &[u8]| sent.windows(sql.len()).any(|part| part == sql.as_bytes());
        let found = self.world.sent.iter().find(|(_, sent)| sent.starts_with(b"Q") && has(sent));
        let found = found.map(|(conn, _)| *conn);
        if let Some(server) = found {
            self.world.sent.remove(&server);
        }
        found
    }

    /// Servers let Weir in, no table changes a session, and what a function may have set is reset.
    fn answer_own_questions(&mut self) {
        while !self.world.connecting.is_empty() {
            self.world.server();
        }
        let is_own = |sent: &[u8]| {
            ["RECURSIVE", "RESET ALL"].iter().any(|part| String::from_utf8_lossy(sent).contains(part))
        };
        while let Some((server, _)) = self.world.sent.iter().find(|(_, sent)| is_own(sent)) {
            let server = *server;
            self.world.sent.remove(&server);
            self.world.answer(server, Status::Idle);
        }
    }

    /// The client asks this, and its server answers with this tag and what it finds in its session then.
    fn run(&mut self, client: ConnId, sql: &str, tag: &str, holds: &[&str]) -> ConnId {
        self.world.query(client, sql);
        let server = self.server_with(sql).expect("it is sent");
        self.answered(server, tag, holds);
        server
    }

    fn answered(&mut self, server: ConnId, tag: &str, holds: &[&str]) {
        let done = message(|out| {
            encode::command_complete(out, tag);
            encode::ready(out, Status::Idle);
        });
        self.world.receive(server, &done);
        assert!(self.world.text(server).contains("pg_my_temp_schema"), "{tag}: it is asked");
        self.finds(server, holds);
    }

    fn finds(&mut self, server: ConnId, holds: &[&str]) {
        let found = message(|out| {
            for kind in holds {
                encode::data_row(out, [Some(kind.as_bytes()), Some(b""), Some(b"")]);
            }
            encode::command_complete(out, "SELECT 0");
            encode::ready(out, Status::Idle);
        });
        self.world.receive(server, &found);
        self.check();
    }

    fn pin(&mut self) -> (ConnId, ConnId) {
        let client = self.world.client(&[]);
        let server = self.run(client, TEMP, "CREATE TABLE", &["t"]);
        (client, server)
    }

    /// Nothing contradicts, and so many are counted here.
    fn check(&mut self) -> u32 {
        let audit = self.world.shard.audit();
        assert_eq!(audit.contradiction, None);
        audit.pins.values().sum()
    }

    fn counts(&mut self) -> (u32, u32) {
        (self.check(), self.shared.pinned())
    }

    fn is_waiting(&mut self, client: ConnId) -> bool {
        self.check();
        self.server_with(TEMP).is_none() && self.world.paused.contains(&client)
    }

    fn reload(&mut self, more: &str) {
        self.world.event(Event::Command(Command::Configure(config(&settings(more)))));
        self.check();
    }
}

#[test]
fn a_request_that_is_known_to_pin_waits_in_order_for_the_pin_of_another() {
    let mut pinning = Pinning::new("max_pinned = 1");
    let (first, server) = pinning.pin();
    assert_eq!(pinning.counts(), (1, 1));
    let (second, third) = (pinning.world.client(&[]), pinning.world.client(&[]));
    pinning.world.query(second, TEMP);
    pinning.world.query(third, TEMP);
    assert!(pinning.is_waiting(second) && pinning.is_waiting(third));
    let fourth = pinning.world.client(&[]);
    pinning.world.query(fourth, "select 1");
    assert!(pinning.server_with("select 1").is_some(), "others do not wait");
    pinning.run(first, "drop table t", "DROP TABLE", &[]);
    let next = pinning.server_with(TEMP).expect("the one that has waited longest");
    assert!(pinning.is_waiting(third) && !pinning.world.paused.contains(&second));
    assert_eq!(pinning.counts(), (1, 1), "its pin is reserved");
    pinning.answered(next, "CREATE TABLE", &["t"]);
    assert_eq!(pinning.counts(), (1, 1));
    assert!(pinning.is_waiting(third));
    assert!(!pinning.world.closed.contains(&server));
    pinning.world.event(Event::HungUp { conn: second });
    assert!(pinning.server_with(TEMP).is_some(), "its client is gone");
}

#[test]
fn one_that_does_not_come_to_pin_gives_its_place_back() {
    let mut pinning = Pinning::new("max_pinned = 1");
    let client = pinning.world.client(&[]);
    let declare = "declare c cursor with hold for select 1";
    pinning.world.query(client, declare);
    let server = pinning.server_with(declare).unwrap();
    assert_eq!(pinning.counts(), (1, 1), "before it is known what comes of it");
    let other = pinning.world.client(&[]);
    pinning.world.query(other, TEMP);
    assert!(pinning.is_waiting(other));
    let failed = message(|out| {
        encode::error(out, "ERROR", "42P03", "cursor \"c\" already exists");
        encode::ready(out, Status::Idle);
    });
    pinning.world.receive(server, &failed);
    assert!(pinning.world.text(server).contains("pg_my_temp_schema"));
    pinning.finds(server, &[]);
    assert!(pinning.server_with(TEMP).is_some(), "the other one is sent");
    assert_eq!(pinning.counts(), (1, 1));
}

#[test]
fn one_that_is_pinned_may_hold_more() {
    let mut pinning = Pinning::new("max_pinned = 1");
    let (client, server) = pinning.pin();
    assert_eq!(pinning.run(client, TEMP, "CREATE TABLE", &["t", "a", "h"]), server);
    assert_eq!(pinning.counts(), (1, 1));
    pinning.run(client, "drop table t", "DROP TABLE", &["h"]);
    assert_eq!(pinning.counts(), (1, 1), "the cursor is left");
    pinning.run(client, "close all", "CLOSE CURSOR ALL", &[]);
    assert_eq!(pinning.counts(), (0, 0));
}

#[test]
fn one_that_has_waited_too_long_is_refused() {
    let mut pinning = Pinning::new("max_pinned = 1\nquery_wait_timeout = 2\nquery_wait_notify = 1");
    pinning.pin();
    let client = pinning.world.client(&[]);
    pinning.world.sent.remove(&client);
    pinning.world.query(client, TEMP);
    pinning.world.pass(1_400);
    assert!(pinning.world.text(client).contains("max_pinned reached, client being queued"));
    pinning.world.pass(1_000);
    assert!(pinning.world.text(client).contains("query_wait_timeout"));
    assert!(pinning.world.closed.contains(&client));
    assert_eq!(pinning.counts(), (1, 1));
}

#[test]
fn the_wait_for_a_pin_and_that_for_a_server_are_one() {
    let mut pinning = Pinning::new("max_pinned = 1\nquery_wait_timeout = 2\ndefault_pool_size = 1");
    let (first, server) = pinning.pin();
    let (second, third) = (pinning.world.client(&[]), pinning.world.client(&[]));
    pinning.world.query(second, TEMP);
    pinning.world.query(third, "begin");
    pinning.world.pass(1_500);
    pinning.world.query(first, "drop table t");
    pinning.world.sent.remove(&server);
    pinning.answered(server, "DROP TABLE", &[]);
    assert_eq!(pinning.server_with("begin"), Some(server), "it has waited for a server all the time");
    assert!(pinning.is_waiting(second));
    pinning.world.pass(700);
    assert!(pinning.world.text(second).contains("query_wait_timeout"));
    assert_eq!(pinning.counts(), (0, 0));
}

#[test]
fn with_error_it_is_sent_and_refused_once_its_session_holds_something() {
    let mut pinning = Pinning::new("max_pinned = 1\nmax_pinned_action = error");
    let (first, kept) = pinning.pin();
    let client = pinning.world.client(&[]);
    let server = pinning.run(client, TEMP, "CREATE TABLE", &[]);
    assert!(!pinning.world.closed.contains(&client), "nothing was made");
    assert_eq!(pinning.counts(), (1, 1));
    pinning.answer_own_questions();
    pinning.run(client, TEMP, "CREATE TABLE", &["t", "h"]);
    assert!(!pinning.world.text(client).contains("FATAL"), "it would be lost between two requests");
    assert!(!pinning.world.closed.contains(&client));
    pinning.world.query(client, "select 1");
    let told = pinning.world.text(client);
    assert!(told.contains("FATAL") && told.contains("53400"), "{told}");
    assert!(told.contains("max_pinned (1) reached") && told.contains("temporary,cursor"), "{told}");
    assert!(pinning.world.closed.contains(&client));
    assert_eq!(pinning.world.tags(server), "X", "no other client gets what it holds");
    assert_eq!(pinning.counts(), (1, 1));
    let last = pinning.world.client(&[]);
    pinning.run(last, TEMP, "CREATE TABLE", &["t"]);
    pinning.world.receive(last, &message(encode::terminate));
    assert!(pinning.world.closed.contains(&last) && !pinning.world.text(last).contains("FATAL"));
    assert_eq!(pinning.run(first, TEMP, "CREATE TABLE", &["t"]), kept);
}

#[test]
fn what_shows_only_when_it_has_run_does_not_wait() {
    let mut pinning = Pinning::new("max_pinned = 1");
    pinning.pin();
    let client = pinning.world.client(&[]);
    pinning.world.query(client, "begin");
    let server = pinning.server_with("begin").unwrap();
    pinning.world.answer(server, Status::InTransaction);
    pinning.world.query(client, TEMP);
    assert_eq!(
        pinning.server_with(TEMP),
        Some(server),
        "a transaction that has begun holds what others wait for"
    );
    let done = message(|out| {
        encode::command_complete(out, "CREATE TABLE");
        encode::ready(out, Status::InTransaction);
    });
    pinning.world.receive(server, &done);
    pinning.world.sent.clear();
    pinning.run(client, "commit", "COMMIT", &["t"]);
    assert!(pinning.world.text(client).contains("COMMIT"));
    pinning.world.query(client, "select 1");
    let told = pinning.world.text(client);
    assert!(told.contains("53400"), "{told}");
    assert_eq!(pinning.counts(), (1, 1));
}

#[test]
fn a_reload_that_lowers_it_ends_no_pin_and_one_that_lifts_it_ends_the_wait() {
    let mut pinning = Pinning::new("max_pinned = 2");
    let (first, _) = pinning.pin();
    let (second, _) = pinning.pin();
    pinning.reload("max_pinned = 1");
    assert_eq!(pinning.counts(), (2, 2));
    let third = pinning.world.client(&[]);
    pinning.world.query(third, TEMP);
    assert!(pinning.is_waiting(third));
    pinning.run(first, "drop table t", "DROP TABLE", &[]);
    assert!(pinning.is_waiting(third), "there is still one");
    pinning.run(second, TEMP, "CREATE TABLE", &["t"]);
    let fourth = pinning.world.client(&[]);
    pinning.world.query(fourth, TEMP);
    pinning.reload("max_pinned = 0");
    let servers = [pinning.server_with(TEMP), pinning.server_with(TEMP)];
    assert!(servers.iter().all(Option::is_some) && !pinning.is_waiting(third), "{servers:?}");
    servers.into_iter().flatten().for_each(|server| pinning.answered(server, "CREATE TABLE", &["t"]));
    assert_eq!(pinning.counts(), (3, 3), "it is counted without a limit, too");
}

#[test]
fn where_sessions_are_not_followed_any_more_nobody_is_pinned() {
    let mut pinning = Pinning::new("max_pinned = 1");
    pinning.pin();
    let client = pinning.world.client(&[]);
    pinning.world.query(client, TEMP);
    assert!(pinning.is_waiting(client));
    let off = config("default_pool_size = 4\nmax_pinned = 1");
    pinning.world.event(Event::Command(Command::Configure(off)));
    assert!(pinning.server_with(TEMP).is_some());
    assert_eq!(pinning.counts(), (0, 0));
}

#[test]
fn one_that_disconnects_while_it_waits_leaves_the_queue() {
    let mut pinning = Pinning::new("max_pinned = 1");
    let (first, server) = pinning.pin();
    let (second, third) = (pinning.world.client(&[]), pinning.world.client(&[]));
    pinning.world.query(second, TEMP);
    pinning.world.query(third, TEMP);
    pinning.world.event(Event::HungUp { conn: second });
    assert_eq!(pinning.counts(), (1, 1));
    // So does one whose server dies.
    pinning.world.event(Event::HungUp { conn: server });
    assert!(pinning.world.closed.contains(&first));
    assert!(pinning.server_with(TEMP).is_some() && !pinning.world.paused.contains(&third));
    assert_eq!(pinning.counts(), (1, 1));
    pinning.world.event(Event::HungUp { conn: third });
    assert_eq!(pinning.counts(), (0, 0));
}

#[test]
fn none_waits_where_the_shutdown_waits_for_servers_alone() {
    let mut pinning = Pinning::new("max_pinned = 1");
    pinning.pin();
    let (waiting, late) = (pinning.world.client(&[]), pinning.world.client(&[]));
    pinning.world.query(waiting, TEMP);
    let mode = ShutdownMode::WaitForServers;
    pinning.world.event(Event::Command(Command::Shutdown { request: RequestId(1), mode }));
    pinning.world.query(late, TEMP);
    for client in [waiting, late] {
        assert!(pinning.world.text(client).contains("server shutting down"));
        assert!(pinning.world.closed.contains(&client));
    }
    assert_eq!(pinning.counts(), (1, 1));
}

#[test]
fn an_unnamed_statement_that_is_not_bound_yet_counts_for_nothing() {
    let mut pinning = Pinning::new("max_pinned = 1\nmax_pinned_action = error");
    pinning.pin();
    let client = pinning.world.client(&[]);
    let parse = message(|out| {
        encode::parse(out, b"", b"select 1", &[]);
        encode::sync(out);
    });
    pinning.world.receive(client, &parse);
    pinning.answer_own_questions();
    let is_parse = |sent: &Vec<u8>| sent.first() == Some(&b'P');
    let server = pinning.world.sent.iter().find(|(_, sent)| is_parse(sent)).map(|(conn, _)| *conn).unwrap();
    let parsed = message(|out| {
        encode::parse_complete(out);
        encode::ready(out, Status::Idle);
    });
    pinning.world.receive(server, &parsed);
    assert_eq!(pinning.counts(), (1, 1));
    assert!(!pinning.world.closed.contains(&client));
}

#[test]
fn all_shards_have_one_budget_and_tell_each_other_when_a_pin_ends() {
    let mut pinning = Pinning::among(2, "max_pinned = 1");
    let elsewhere = PinUnit::imported(&pinning.shared);
    let client = pinning.world.client(&[]);
    pinning.world.query(client, TEMP);
    assert!(pinning.is_waiting(client));
    assert_eq!(pinning.shared.take_pin_requests(), 1, "the other shard sees that one waits here");
    drop(elsewhere);
    let late = pinning.world.client(&[]);
    pinning.world.query(late, TEMP);
    assert!(pinning.is_waiting(late), "behind the one that has waited longer");
    let freed = ShardMessage::PermitFreed { database: "d".to_owned(), user: "u".to_owned(), host: None };
    pinning.world.event(Event::ShardMessage(freed));
    let server = pinning.server_with(TEMP).expect("it is notified");
    assert!(pinning.is_waiting(late) && !pinning.world.paused.contains(&client));
    pinning.answered(server, "CREATE TABLE", &["t"]);
    pinning.world.event(Event::HungUp { conn: late });
    pinning.shared.request_pin(1);
    pinning.world.shard_messages.clear();
    pinning.run(client, "drop table t", "DROP TABLE", &[]);
    let told = &pinning.world.shard_messages[..];
    assert!(matches!(told, [ShardMessage::PermitFreed { database, .. }] if database == "d"), "{told:?}");
}

#[test]
fn a_request_that_is_refused_for_overload_keeps_no_pin() {
    let mut pinning = Pinning::new("max_pinned = 1\ndefault_pool_size = 1\nqueue_limit = 1");
    let (holder, waits, refused) =
        (pinning.world.client(&[]), pinning.world.client(&[]), pinning.world.client(&[]));
    pinning.world.query(holder, "begin");
    let server = pinning.server_with("begin").unwrap();
    pinning.world.answer(server, Status::InTransaction);
    pinning.world.query(waits, "select 1");
    pinning.world.sent.remove(&refused);
    pinning.world.query(refused, TEMP);
    assert!(pinning.world.text(refused).contains("queue_limit"));
    assert_eq!(pinning.counts(), (0, 0));
}

#[test]
fn a_wait_for_a_pin_is_no_overload() {
    let mut pinning = Pinning::new("max_pinned = 1\nqueue_target = 0.05\nquery_wait_notify = 1");
    let (first, _) = pinning.pin();
    let client = pinning.world.client(&[]);
    pinning.world.sent.remove(&client);
    pinning.world.query(client, TEMP);
    (0..4).for_each(|_| pinning.world.pass(400));
    let told = pinning.world.text(client);
    assert!(
        told.contains("max_pinned reached, client being queued") && !told.contains("queue_target"),
        "{told}"
    );
    assert!(pinning.is_waiting(client));
    pinning.run(first, "drop table t", "DROP TABLE", &[]);
    assert!(pinning.server_with(TEMP).is_some());
}
