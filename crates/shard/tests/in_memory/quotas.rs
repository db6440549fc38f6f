//! Quotas: connections that are one too many, requests that are refused, and what turns are counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::world::{OneShard, World, config, message};
use messages::Command;
use pool::PoolRegistry;
use quota::{Instant, Measure, QuotaRow, Rules, Subject, SubjectKind};
use settings::Config;
use shard::{ConnId, Event};
use wire::backend::Status;
use wire::encode;

/// One shard with quotas, and the accounts that it shares.
struct Limited {
    world: World,
    registry: Arc<OneShard>,
    settings: &'static str,
    wall_s: u64,
}

impl Limited {
    fn new(settings: &'static str, quotas: &str) -> Limited {
        let registry = Arc::new(OneShard::default());
        let world = World::beside(Arc::clone(&registry) as _, settings);
        let mut limited = Limited { world, registry, settings, wall_s: 1_700_000_000 };
        limited.limit(quotas);
        limited
    }

    /// Other quotas are in force.
    fn limit(&mut self, quotas: &str) {
        let quotas = Arc::new(Rules::read(quotas.as_bytes()).unwrap());
        let config = Config { quotas, ..Config::clone(&config(self.settings)) };
        self.world.event(Event::Command(Command::Configure(Arc::new(config))));
    }

    /// The accounts are looked at, after so many seconds.
    fn tick_after(&mut self, seconds: u64) {
        self.wall_s += seconds;
        self.world.now.mono_us += seconds * 1_000_000;
        let now = Instant { wall_s: self.wall_s, mono_us: self.world.now.mono_us };
        self.registry.with_quotas(&mut |book| _ = book.tick(now));
    }

    /// PostgreSQL was asked how much storage user u has.
    fn measure(&mut self, bytes: u64) {
        let measured = BTreeMap::from([(Subject::named(SubjectKind::User, "u"), bytes)]);
        self.registry.with_quotas(&mut |book| book.set_measured(Measure::STORAGE, measured.clone(), true));
        self.tick_after(0);
    }

    fn row(&self, name: &str, measure: &str) -> QuotaRow {
        let mut rows = Vec::new();
        self.registry.with_quotas(&mut |book| rows = book.rows());
        let measure = Measure::read(measure).unwrap();
        let is_it = |row: &QuotaRow| row.subject.name.as_deref() == Some(name) && row.measure == measure;
        rows.into_iter().find(is_it).unwrap_or_else(|| panic!("no row of {name}"))
    }

    fn used(&self, name: &str, measure: &str) -> u64 {
        self.row(name, measure).used
    }

    /// A client asks, and its server answers after so long.
    fn ask(&mut self, client: ConnId, server: ConnId, milliseconds: u64) {
        self.world.text(server);
        self.world.query(client, "select 1");
        if self.world.text(server).contains("SET application_name") {
            self.world.answer(server, Status::Idle); // It is made like its client first.
        }
        self.world.now.mono_us += milliseconds * 1_000;
        self.world.answer(server, Status::Idle);
        assert_eq!(self.world.shard.audit().contradiction, None);
    }
}

const ONE: &str = "default_pool_size = 1\nserver_check_delay = 100000";

#[test]
fn one_connection_too_many_is_refused_and_a_closed_one_makes_room() {
    let mut limited = Limited::new(ONE, "user u connections hard=2");
    let first = limited.world.client(&[]);
    limited.world.client(&[]);
    assert_eq!(limited.used("u", "connections"), 2);
    let third = limited.world.client(&[]);
    let text = limited.world.text(third);
    assert!(text.contains("SFATAL") && text.contains("C53400"), "{text}");
    assert!(text.contains("quota of user u exceeded: connections: hard limit 2"), "{text}");
    assert_eq!((limited.used("u", "connections"), &limited.world.closed[..]), (2, &[third][..]));
    limited.world.event(Event::HungUp { conn: first });
    assert_eq!(limited.used("u", "connections"), 1);
    limited.world.closed.clear(); // Numbers are used again.
    let fourth = limited.world.client(&[]);
    assert!(!limited.world.closed.contains(&fourth));
    assert_eq!(limited.used("u", "connections"), 2);
    limited.limit("");
    limited.limit("user u connections hard=1");
    assert_eq!(limited.used("u", "connections"), 2, "those that are there stay, and count");
    let fifth = limited.world.client(&[]);
    assert!(limited.world.closed.contains(&fifth));
}

#[test]
fn turns_count_for_every_subject_of_a_client() {
    let quotas = "group g = u, v\nuser u queries/day hard=100\ngroup g bytes/hour hard=1G\n\
                  database default server_seconds/month hard=100\napplication_name app queries/hour hard=100";
    let mut limited = Limited::new(ONE, quotas);
    let client = limited.world.client(&[("application_name", "app")]);
    let server = limited.world.server();
    limited.tick_after(0);
    for _ in 0..3 {
        limited.ask(client, server, 1_500);
    }
    limited.tick_after(0);
    assert_eq!(limited.used("u", "queries/day"), 3);
    assert_eq!(limited.used("app", "queries/hour"), 3);
    assert_eq!(limited.used("d", "server_seconds/month"), 4, "4.5 seconds");
    let query = message(|out| encode::query(out, b"select 1")).len() as u64;
    assert!(limited.used("g", "bytes/hour") > 3 * query);
}

#[test]
fn a_long_turn_counts_while_it_lasts() {
    let mut limited = Limited::new(ONE, "user u server_seconds/day hard=100");
    let client = limited.world.client(&[]);
    let server = limited.world.server();
    limited.world.query(client, "begin");
    limited.world.answer(server, Status::InTransaction);
    for _ in 0..6 {
        limited.world.pass(500);
    }
    limited.tick_after(0);
    assert!(
        (2..=3).contains(&limited.used("u", "server_seconds/day")),
        "{}",
        limited.used("u", "server_seconds/day")
    );
    limited.world.query(client, "commit");
    limited.world.answer(server, Status::Idle);
    limited.tick_after(0);
    assert_eq!(limited.used("u", "server_seconds/day"), 3, "nothing is counted twice");
}

#[test]
fn requests_are_refused_at_the_hard_limit_and_the_client_goes_on() {
    let mut limited = Limited::new(ONE, "user u queries/hour hard=2");
    let client = limited.world.client(&[]);
    let server = limited.world.server();
    limited.ask(client, server, 1);
    limited.ask(client, server, 1);
    limited.tick_after(0);
    limited.world.sent.clear();
    limited.world.query(client, "select 1");
    let text = limited.world.text(client);
    assert!(text.contains("SERROR") && text.contains("C53400"), "{text}");
    assert!(
        text.contains("quota of user u exceeded: queries/hour: 2 used, hard limit 2; refused until "),
        "{text}"
    );
    assert_eq!(limited.world.tags(server), "");
    let pipeline = message(|out| {
        for _ in 0..2 {
            encode::parse(out, b"", b"select 1", &[]);
            encode::sync(out);
        }
    });
    limited.world.receive(client, &pipeline);
    assert_eq!((limited.world.tags(client).as_str(), limited.world.tags(server).as_str()), ("EZEZ", ""));
    limited.tick_after(3_600);
    limited.ask(client, server, 1);
    assert_eq!(limited.world.tags(client), "CZ", "the next hour begins at nothing");
}

#[test]
fn a_transaction_is_not_broken_off() {
    let mut limited = Limited::new(ONE, "user u queries/hour hard=1");
    let client = limited.world.client(&[]);
    let server = limited.world.server();
    limited.world.query(client, "begin");
    limited.world.answer(server, Status::InTransaction);
    limited.world.query(client, "select 1");
    limited.world.answer(server, Status::InTransaction);
    limited.world.pass(400);
    limited.tick_after(0);
    limited.world.sent.clear();
    limited.world.query(client, "commit");
    assert_eq!(limited.world.tags(server), "Q");
    limited.world.answer(server, Status::Idle);
    limited.tick_after(0);
    assert_eq!(limited.world.tags(client), "CZ");
    limited.world.query(client, "begin");
    assert_eq!(limited.world.tags(client), "EZ");
}

#[test]
fn a_session_that_keeps_its_server_ends_at_the_next_request() {
    let mut limited = Limited::new("pool_mode = session", "user u queries/hour hard=1");
    let client = limited.world.client(&[]);
    let server = limited.world.server();
    limited.ask(client, server, 1);
    limited.tick_after(0);
    limited.world.sent.clear();
    limited.world.query(client, "select 1");
    let text = limited.world.text(client);
    assert!(text.contains("SFATAL") && text.contains("C53400"), "{text}");
    assert_eq!(limited.world.shard.audit().contradiction, None);
}

#[test]
fn it_ends_though_what_was_written_to_the_server_is_not_reported_as_sent() {
    let mut limited = Limited::new("pool_mode = session", "user u queries/hour hard=1");
    let client = limited.world.client(&[]);
    let server = limited.world.server();
    limited.ask(client, server, 1);
    limited.world.query(client, "select 2");
    let answered = message(|out| {
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
    });
    limited.world.event(Event::Received { conn: server, bytes: &answered, unsent: true });
    limited.tick_after(0);
    limited.world.sent.clear();
    limited.world.query(client, "select 3");
    let text = limited.world.text(client);
    assert!(text.contains("SFATAL") && text.contains("C53400"), "{text}");
    assert_eq!(limited.world.text(server).matches("select").count(), 0);
}

#[test]
fn above_the_soft_limit_a_session_is_warned_once_and_refused_when_the_grace_time_is_over() {
    let mut limited = Limited::new(ONE, "user u queries/month soft=1 hard=0 grace=60");
    let client = limited.world.client(&[]);
    let server = limited.world.server();
    limited.ask(client, server, 1);
    limited.ask(client, server, 1);
    limited.tick_after(0);
    for (other, tags) in [(client, "NCZ"), (client, "CZ")] {
        limited.world.sent.clear();
        limited.ask(other, server, 1);
        assert_eq!(limited.world.tags(other), tags);
    }
    limited.tick_after(59);
    limited.ask(client, server, 1);
    limited.tick_after(1);
    limited.world.sent.clear();
    limited.world.query(client, "select 1");
    let text = limited.world.text(client);
    assert!(text.contains("soft limit 1, grace time over; refused until "), "{text}");
    limited.limit("user u queries/month soft=100");
    limited.world.sent.clear();
    limited.ask(client, server, 1);
    assert_eq!(limited.world.tags(client), "CZ", "a higher limit counts at once");
}

#[test]
fn administrators_are_never_refused() {
    let mut limited = Limited::new(
        "default_pool_size = 1\nadmin_users = u",
        "user u connections hard=1\nuser u queries/day hard=1",
    );
    let first = limited.world.client(&[]);
    let server = limited.world.server();
    let second = limited.world.client(&[]);
    assert_eq!((limited.used("u", "connections"), limited.world.closed.len()), (2, 0));
    limited.ask(first, server, 1);
    limited.tick_after(0);
    limited.world.sent.clear();
    limited.ask(second, server, 1);
    assert_eq!(limited.world.tags(second), "CZ");
}

#[test]
fn a_deferred_begin_is_refused_and_its_transaction_is_not() {
    let mut limited = Limited::new("default_pool_size = 1\ndeferred_begin = 1", "user u queries/hour hard=1");
    let client = limited.world.client(&[]);
    let server = limited.world.server();
    limited.world.query(client, "begin");
    assert_eq!(limited.world.tags(client).as_str().chars().last(), Some('Z'));
    let other = limited.world.client(&[]);
    limited.ask(other, server, 1);
    limited.tick_after(0);
    limited.world.sent.clear();
    limited.world.query(other, "begin");
    assert_eq!(limited.world.tags(other), "EZ");
    limited.world.query(client, "select 1");
    assert!(limited.world.tags(server).contains('Q'), "its transaction had begun");
}

/// A client whose request is with the server when its quota begins to refuse.
fn refused_while_asking(request: &str) -> (Limited, ConnId, ConnId) {
    let mut limited = Limited::new(ONE, "user u queries/hour hard=1000");
    let client = limited.world.client(&[]);
    let server = limited.world.server();
    limited.ask(client, server, 0);
    limited.world.query(client, request);
    limited.limit("user u queries/hour hard=1");
    limited.tick_after(0);
    limited.world.text(server);
    limited.world.text(client);
    (limited, client, server)
}

#[test]
fn what_is_sent_behind_a_request_is_refused_once_that_is_answered() {
    let (mut limited, client, server) = refused_while_asking("select 2");
    limited.world.query(client, "select 3");
    assert_eq!(limited.world.text(server), "", "it waits");
    limited.world.answer(server, Status::Idle);
    let text = limited.world.text(client);
    assert!(text.contains("C53400"), "{text}");
    assert_eq!(limited.world.text(server), "");
    limited.limit("user u queries/hour hard=1000");
    limited.ask(client, server, 0);
    assert!(!limited.world.text(client).contains("C53400"));
}

#[test]
fn what_is_sent_behind_a_begin_is_of_its_transaction() {
    let (mut limited, client, server) = refused_while_asking("begin");
    limited.world.query(client, "select 3");
    limited.world.query(client, "commit");
    assert_eq!(limited.world.text(server), "");
    limited.world.answer(server, Status::InTransaction);
    let text = limited.world.text(server);
    assert!(text.contains("select 3") && !text.contains("commit"), "{text}");
    limited.world.answer(server, Status::InTransaction);
    assert!(limited.world.text(server).contains("commit"));
    limited.world.query(client, "select 4");
    limited.world.answer(server, Status::Idle);
    let text = limited.world.text(client);
    assert!(text.contains("C53400"), "{text}");
    assert_eq!(limited.world.shard.audit().contradiction, None);
}

#[test]
fn a_session_that_is_answered_ends_with_what_is_sent_behind() {
    let mut limited =
        Limited::new("pool_mode = session\ndefault_pool_size = 1", "user u queries/hour hard=1000");
    let client = limited.world.client(&[]);
    let server = limited.world.server();
    limited.ask(client, server, 0);
    limited.world.query(client, "select 2");
    limited.limit("user u queries/hour hard=1");
    limited.tick_after(0);
    limited.world.query(client, "select 3");
    limited.world.text(server);
    limited.world.answer(server, Status::Idle);
    let text = limited.world.text(client);
    assert!(text.contains("SFATAL") && text.contains("C53400"), "{text}");
    assert!(limited.world.closed.contains(&client) && !limited.world.text(server).contains("select 3"));
}

#[test]
fn administrators_are_those_of_the_last_configuration() {
    let mut limited = Limited::new("default_pool_size = 1", "user u queries/hour hard=1");
    let client = limited.world.client(&[]);
    let server = limited.world.server();
    limited.ask(client, server, 0);
    limited.tick_after(0);
    limited.settings = "default_pool_size = 1\nstats_users = u";
    limited.limit("user u queries/hour hard=1");
    limited.world.text(client);
    limited.ask(client, server, 0);
    assert!(!limited.world.text(client).contains("C53400"));
    limited.settings = "default_pool_size = 1";
    limited.limit("user u queries/hour hard=1");
    limited.world.query(client, "select 1");
    assert!(limited.world.text(client).contains("C53400"));
}

/// A client's server with the setting that storage quotas use.
fn reporting_server(limited: &mut Limited) -> ConnId {
    let off = |out: &mut Vec<u8>| encode::parameter_status(out, b"default_transaction_read_only", b"off");
    limited.world.server_with(&message(off))
}

#[test]
fn where_storage_is_full_transactions_begin_read_only_and_what_could_end_that_is_not_sent() {
    let mut limited = Limited::new(ONE, "user u storage hard=10");
    let client = limited.world.client(&[]);
    let server = reporting_server(&mut limited);
    limited.measure(20);
    limited.world.sent.clear();
    limited.world.query(client, "insert into t values (1)");
    let text = limited.world.text(client);
    assert!(text.contains("SERROR") && text.contains("C53400"), "{text}");
    assert!(text.contains("storage: 20 used, hard limit 10; read-only until storage is freed"), "{text}");
    assert_eq!(limited.world.tags(server), "");
    limited.world.query(client, "begin");
    let text = limited.world.text(server);
    assert!(text.contains("SET default_transaction_read_only='on'"), "{text}");
    assert!(!text.contains("begin"), "not before the server has the setting: {text}");
    limited.world.answer(server, Status::Idle);
    assert!(limited.world.text(server).contains("begin"));
    limited.world.answer(server, Status::InTransaction);
    limited.world.query(client, "insert into t values (1)");
    assert!(limited.world.text(server).contains("insert"), "PostgreSQL refuses it");
    limited.world.answer(server, Status::InTransaction);
    limited.world.query(client, "set transaction read write");
    assert_eq!(limited.world.text(server).matches("read write").count(), 0);
    let text = limited.world.text(client);
    assert!(text.contains("SFATAL") && text.contains("C53400"), "{text}");
    assert_eq!(limited.world.shard.audit().contradiction, None);
}

#[test]
fn where_storage_is_freed_the_server_has_the_clients_own_setting_again() {
    let mut limited = Limited::new(ONE, "user u storage hard=10");
    let client = limited.world.client(&[]);
    let server = reporting_server(&mut limited);
    limited.measure(20);
    limited.world.query(client, "select 1");
    assert!(limited.world.text(server).contains("default_transaction_read_only='on'"));
    limited.world.answer(server, Status::Idle);
    limited.world.answer(server, Status::Idle);
    limited.measure(5);
    limited.world.text(server);
    limited.world.query(client, "insert into t values (1)");
    let text = limited.world.text(server);
    assert!(text.contains("default_transaction_read_only='off'"), "{text}");
    limited.world.answer(server, Status::Idle);
    assert!(limited.world.text(server).contains("insert"));
}

#[test]
fn half_a_request_where_storage_is_full_leaves_nothing_owed_for_the_settings_in_front_of_it() {
    let settings = "default_pool_size = 1\nsession_state = virtual\nserver_check_query =";
    let mut limited = Limited::new(settings, "user u storage hard=10");
    let clients = ["one", "two"].map(|name| limited.world.client(&[("application_name", name)]));
    let server = reporting_server(&mut limited);
    limited.measure(20);
    limited.world.answer(server, Status::Idle); // Which tables change a session.
    for (client, name) in clients.into_iter().zip(["one", "two"]) {
        limited.world.query(client, "select 1");
        let set = message(|out| {
            encode::command_complete(out, "SET");
            encode::parameter_status(out, b"application_name", name.as_bytes());
            encode::parameter_status(out, b"default_transaction_read_only", b"on");
            encode::ready(out, Status::Idle);
        });
        limited.world.receive(server, &set);
        limited.world.answer(server, Status::Idle);
    }
    limited.world.sent.clear();
    let half = message(|out| encode::query(out, b"select 'of the first client'"));
    limited.world.receive(clients[0], &half[..9]);
    let tags = limited.world.tags(server);
    assert!(tags.starts_with("PBE") && tags.ends_with('S'), "{tags}");
}
