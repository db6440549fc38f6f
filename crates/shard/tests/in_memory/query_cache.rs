//! `query_cache`: reads are answered without a server as long as what is known of the primary's changes says that the answers hold.

use std::sync::Arc;

use crate::world::{World, config, message};
use messages::{CacheNews, CacheNewsKind, Command, UncachedNames};
use shard::{ConnId, Event};
use wire::backend::Status;
use wire::encode;

const SETTINGS: &str = "session_state = virtual\npool_mode = transaction\nserver_check_query =\n[databases]\nd = host=a query_cache=1MB";
const SYSTEM: u64 = 7_000;
const READ: &str = "SELECT a FROM t WHERE a = 1";

/// A primary whose changes are followed, and a client.
struct Cached {
    world: World,
    client: ConnId,
    server: ConnId,
    /// Changes so far.
    number: u64,
    /// Where it is.
    lsn: u64,
}

impl Cached {
    fn new() -> Cached {
        let mut cached = Cached::unfollowed();
        cached.follow(SYSTEM, 1);
        cached
    }

    /// Nothing is known of the primary's changes.
    fn unfollowed() -> Cached {
        Cached::with(SETTINGS)
    }

    fn with(settings: &str) -> Cached {
        let mut world = World::new(settings);
        let client = world.client(&[]);
        let server = world.connected();
        let hello = message(|out| {
            encode::authentication_ok(out);
            for (name, value) in [
                ("server_version", "18.0"),
                ("in_hot_standby", "off"),
                ("default_transaction_read_only", "off"),
                ("search_path", "public"),
            ] {
                encode::parameter_status(out, name.as_bytes(), value.as_bytes());
            }
            encode::key_data(out, 77, &[1, 2, 3, 4]);
            encode::ready(out, Status::Idle);
        });
        world.sent.remove(&server);
        world.receive(server, &hello);
        assert!(world.text(server).contains("pg_control_system"));
        let mut cached = Cached { world, client, server, number: 0, lsn: 100 };
        cached.answers(&[&[&SYSTEM.to_string(), "00000001"]]);
        cached.world.follow(server);
        cached.settle(100);
        cached
    }

    fn answers(&mut self, rows: &[&[&str]]) {
        self.world.sent.remove(&self.server);
        let answer = message(|out| {
            for row in rows {
                encode::data_row(out, row.iter().map(|cell| Some(cell.as_bytes())));
            }
            encode::command_complete(out, "SELECT 1");
            encode::ready(out, Status::Idle);
        });
        self.world.receive(self.server, &answer);
    }

    /// Answers what Weir asks of its own; the primary is at this position.
    fn settle(&mut self, lsn: u64) {
        self.lsn = lsn;
        for _ in 0..6 {
            self.world.pass(20);
            let text = self.world.text(self.server);
            self.answers_own(&text);
        }
    }

    /// Answers a question of Weir's own; false if this is none.
    fn answers_own(&mut self, text: &str) -> bool {
        let lsn = self.lsn.to_string();
        if text.contains("pg_current_wal_insert_lsn") {
            self.answers(&[&["f", &lsn]]);
        } else if text.contains("WITH RECURSIVE code(") || text.contains("FROM pg_catalog.pg_settings") {
            self.answers(&[]); // No relation changes a session, and nothing has.
        } else if text.contains("WITH RECURSIVE functions(") {
            self.answers(&[&["end", ""]]);
        } else {
            return false;
        }
        true
    }

    fn news(&mut self, what: CacheNewsKind) {
        let news = CacheNews { database: "d".into(), what };
        self.world.event(Event::Command(Command::CacheNews(news)));
    }

    /// A primary's changes are followed from here on.
    fn follow(&mut self, system: u64, timeline: u32) {
        self.news(CacheNewsKind::Begins { system, timeline });
        self.number = 0;
        self.catalog(&["u"]);
        self.current(100);
    }

    fn catalog(&mut self, uncached: &[&str]) {
        let names = uncached.iter().map(|name| Box::from(*name)).collect();
        let uncached = Arc::new(UncachedNames { names, ..UncachedNames::default() });
        self.news(CacheNewsKind::Catalog { number: self.number, uncached });
    }

    /// All is known up to now, where the primary is here.
    fn current(&mut self, lsn: u64) {
        let (as_of_us, visible) = (self.world.now.mono_us, self.number);
        self.news(CacheNewsKind::Current { as_of_us, lsn, visible });
    }

    /// Rows of this relation have changed.
    fn changed(&mut self, name: &str) {
        self.number += 1;
        let (number, names) = (self.number, Arc::from([Box::from(name)]));
        self.news(CacheNewsKind::Changed { number, lsn: 100 + number, names });
    }

    fn sent(&mut self, client: ConnId, bytes: &[u8]) -> Option<Vec<u8>> {
        self.world.sent.remove(&client);
        self.world.sent.remove(&self.server);
        self.world.receive(client, bytes);
        loop {
            let text = self.world.text(self.server);
            if text.is_empty() {
                return Some(self.world.sent.remove(&client).unwrap_or_default());
            }
            if !self.answers_own(&text) {
                return None;
            }
        }
    }

    /// The answer that a request of this client gets without a server; None if the server is asked.
    fn asks(&mut self, client: ConnId, sql: &str) -> Option<Vec<u8>> {
        self.sent(client, &message(|out| encode::query(out, sql.as_bytes())))
    }

    /// The server answers with this row.
    fn replies(&mut self, row: &str) {
        self.says(&row_answer(row));
    }

    /// The server says this, and answers what Weir asks behind it.
    fn says(&mut self, bytes: &[u8]) {
        self.world.receive(self.server, bytes);
        loop {
            let behind = self.world.text(self.server);
            if behind.is_empty() {
                return;
            }
            assert!(self.answers_own(&behind), "{behind}");
        }
    }

    /// The client asks, and the server answers so.
    fn misses(&mut self, sql: &str, row: &str) {
        let client = self.client;
        assert_eq!(self.asks(client, sql), None, "{sql}");
        self.replies(row);
        assert!(self.world.text(client).contains(row));
    }

    fn hits(&mut self, sql: &str, row: &str) {
        let found = self.asks(self.client, sql).unwrap_or_else(|| panic!("{sql} is the server's"));
        assert!(found == row_answer(row), "{sql}: {}", String::from_utf8_lossy(&found));
    }
}

fn row_answer(row: &str) -> Vec<u8> {
    message(|out| {
        encode::row_description(out, &[encode::Column { name: "a", type_oid: 25, type_bytes: -1 }]);
        encode::data_row(out, [Some(row.as_bytes())]);
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
    })
}

#[test]
fn a_read_is_answered_as_before_until_its_relation_changes() {
    let mut cached = Cached::new();
    cached.misses(READ, "one");
    cached.hits(READ, "one");
    cached.changed("other");
    cached.hits(READ, "one");
    cached.changed("t");
    cached.misses(READ, "two");
    // The change is not known to be visible to that.
    cached.misses(READ, "three");
    cached.current(200);
    cached.misses(READ, "four");
    cached.hits(READ, "four");
}

#[test]
fn what_changes_while_an_answer_is_on_its_way_leaves_nothing_stored() {
    let mut cached = Cached::new();
    let client = cached.client;
    assert_eq!(cached.asks(client, READ), None);
    cached.changed("t");
    cached.replies("old");
    cached.current(200);
    cached.misses(READ, "new");
    cached.hits(READ, "new");
    for what in [
        CacheNewsKind::SchemaChanged { number: 2, lsn: 300 },
        CacheNewsKind::Begins { system: SYSTEM, timeline: 1 },
        CacheNewsKind::Lost { why: "no".into() },
    ] {
        let mut cached = Cached::new();
        let client = cached.client;
        assert_eq!(cached.asks(client, READ), None);
        cached.news(what);
        cached.replies("old");
        cached.follow(SYSTEM, 1);
        cached.misses(READ, "new");
    }
}

#[test]
fn nothing_is_answered_that_may_be_older_than_allowed() {
    let mut cached = Cached::new();
    cached.misses(READ, "one");
    cached.world.now.mono_us += 1_000_000;
    cached.hits(READ, "one");
    cached.world.now.mono_us += 1;
    cached.misses(READ, "two");
    cached.current(200);
    cached.hits(READ, "one");
}

#[test]
fn nothing_is_answered_by_another_primarys_changes() {
    let mut cached = Cached::unfollowed();
    cached.misses(READ, "one");
    cached.misses(READ, "two");
    for (system, timeline) in [(SYSTEM + 1, 1), (SYSTEM, 2)] {
        cached.follow(system, timeline);
        cached.misses(READ, "three");
        cached.misses(READ, "four");
    }
    cached.follow(SYSTEM, 1);
    cached.misses(READ, "five");
    cached.hits(READ, "five");
}

#[test]
fn what_the_catalog_says_is_not_to_be_kept_is_not() {
    let mut cached = Cached::new();
    for text in [
        "SELECT a FROM u",
        "SELECT a FROM t WHERE d < now()",
        "SELECT f(a) FROM t",
        "SELECT 1",
        "SELECT a FROM t FOR UPDATE",
    ] {
        cached.misses(text, "one");
        cached.misses(text, "two");
    }
    cached.news(CacheNewsKind::SchemaChanged { number: 1, lsn: 101 });
    cached.number = 1;
    cached.current(200);
    cached.misses(READ, "one");
    cached.misses(READ, "two");
    cached.catalog(&[]);
    cached.settle(300);
    cached.current(300);
    cached.misses("SELECT a FROM u", "one");
    cached.hits("SELECT a FROM u", "one");
}

#[test]
fn a_client_that_has_written_waits_for_its_writes_to_be_known() {
    let mut cached = Cached::new();
    let client = cached.client;
    cached.misses(READ, "one");
    let other = cached.world.client(&[]);
    assert_eq!(cached.asks(client, "UPDATE v SET a = 1"), None);
    let done = message(|out| {
        encode::command_complete(out, "UPDATE 1");
        encode::ready(out, Status::Idle);
    });
    cached.says(&done);
    assert!(cached.asks(other, READ).is_some(), "the others may have what they had");
    cached.misses(READ, "two");
    cached.settle(500);
    cached.misses(READ, "three");
    cached.current(499);
    cached.misses(READ, "four");
    cached.current(500);
    cached.hits(READ, "four");
}

#[test]
fn each_user_each_setting_and_each_text_has_its_own_answer() {
    let mut cached = Cached::new();
    cached.misses(READ, "one");
    cached.misses("SELECT a FROM t WHERE a = 2", "two");
    cached.hits(READ, "one");
    let other = cached.world.client(&[("search_path", "s")]);
    assert_eq!(cached.asks(other, READ), None);
}

#[test]
fn an_error_a_notice_or_a_block_is_not_stored() {
    let mut cached = Cached::new();
    let client = cached.client;
    let error = message(|out| {
        encode::error(out, "ERROR", "22012", "division by zero");
        encode::ready(out, Status::Idle);
    });
    let notice = message(|out| encode::notice(out, "NOTICE", "00000", "x"));
    for answer in [error, [&notice[..], &row_answer("one")].concat()] {
        assert_eq!(cached.asks(client, READ), None);
        cached.says(&answer);
    }
    assert_eq!(cached.asks(client, "BEGIN"), None);
    let begun = message(|out| {
        encode::command_complete(out, "BEGIN");
        encode::ready(out, Status::InTransaction);
    });
    cached.says(&begun);
    assert_eq!(cached.asks(client, READ), None);
    let in_block = message(|out| {
        encode::data_row(out, [Some(&b"one"[..])]);
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::InTransaction);
    });
    cached.says(&in_block);
    assert_eq!(cached.asks(client, READ), None, "in its transaction");
    cached.says(&in_block);
    assert_eq!(cached.asks(client, "COMMIT"), None);
    let committed = message(|out| {
        encode::command_complete(out, "COMMIT");
        encode::ready(out, Status::Idle);
    });
    cached.says(&committed);
    cached.settle(600);
    cached.current(600);
    cached.misses(READ, "two");
    cached.hits(READ, "two");
}

/// Parse, Bind, Describe, Execute, Sync.
fn extended(name: &[u8], parses: bool, value: &[u8]) -> Vec<u8> {
    message(|out| {
        if parses {
            encode::parse(out, name, b"SELECT a FROM t WHERE a = $1", &[]);
        }
        encode::bind_simple(out, b"", name, &[Some(value)]);
        encode::describe(out, b'P', b"");
        encode::execute(out, b"", 0);
        encode::sync(out);
    })
}

fn extended_answer(row: &str, parses: bool) -> Vec<u8> {
    message(|out| {
        if parses {
            encode::parse_complete(out);
        }
        encode::bind_complete(out);
        out.extend_from_slice(&row_answer(row));
    })
}

#[test]
fn bound_values_are_part_of_the_request() {
    let mut cached = Cached::new();
    let client = cached.client;
    for (value, row) in [(b"1", "one"), (b"2", "two")] {
        let request = extended(b"", true, value);
        assert_eq!(cached.sent(client, &request), None);
        cached.says(&extended_answer(row, true));
        let found = cached.sent(client, &request).unwrap();
        assert_eq!(found, extended_answer(row, true));
    }
    // The statement without a name was parsed nowhere the last time.
    let unparsed = extended(b"", false, b"1");
    assert_eq!(cached.sent(client, &unparsed), None);
}

#[test]
fn requests_in_pieces_and_several_at_once_are_the_servers() {
    let mut cached = Cached::new();
    let client = cached.client;
    cached.misses(READ, "one");
    let query = message(|out| encode::query(out, READ.as_bytes()));
    let both = [&query[..], &query].concat();
    assert_eq!(cached.sent(client, &both), None);
    cached.replies("one");
    cached.replies("one");
    let (head, tail) = query.split_at(9);
    let (first, second) = (cached.sent(client, head), cached.sent(client, tail));
    cached.settle(300);
    cached.current(300);
    assert!(first.is_none_or(|bytes| bytes.is_empty()) && second.is_none_or(|bytes| bytes.is_empty()));
    cached.replies("one");
    cached.hits(READ, "one");
}

/// RELOAD begins to split reads while a request waits: it is sent unwatched, and the next one, of the same length, comes in two pieces around its answer.
#[test]
fn an_answer_is_never_stored_for_another_request() {
    let settings = SETTINGS.replace("host=a", "host=a,b pool_size=1");
    let mut cached = Cached::with(&settings);
    cached.follow(SYSTEM, 1);
    let client = cached.client;
    let other = cached.world.client(&[]);
    assert_eq!(cached.asks(other, READ), None);
    let (first, second) = (extended(b"", true, b"1"), extended(b"", true, b"2"));
    cached.world.receive(client, &first);
    let split = settings.replace("query_cache", "read_write_split=1 query_cache");
    cached.world.event(Event::Command(Command::Configure(config(&split))));
    cached.world.receive(cached.server, &row_answer("other"));
    let mut sent = cached.world.text(cached.server);
    while cached.answers_own(&sent) {
        sent = cached.world.text(cached.server);
    }
    assert!(sent.contains("$1"), "the first one is sent: {sent}");
    let (head, tail) = second.split_at(20);
    cached.world.receive(client, head);
    cached.says(&extended_answer("one", true));
    cached.settle(300);
    assert_eq!(cached.sent(client, tail), None);
    cached.says(&extended_answer("two", true));
    cached.settle(400);
    cached.current(400);
    if let Some(found) = cached.sent(client, &first) {
        assert!(found == extended_answer("one", true), "{}", String::from_utf8_lossy(&found));
    }
}

#[test]
fn an_entry_without_a_cache_forgets_its_answers() {
    let mut cached = Cached::new();
    cached.misses(READ, "one");
    let without = SETTINGS.replace(" query_cache=1MB", "");
    cached.world.event(Event::Command(Command::Configure(config(&without))));
    cached.news(CacheNewsKind::Begins { system: SYSTEM, timeline: 1 });
    let client = cached.client;
    assert_eq!(cached.asks(client, READ).unwrap_or_default(), [], "it waits for a server");
}

#[test]
fn another_database_behind_the_entry_has_other_answers() {
    let mut cached = Cached::new();
    cached.misses(READ, "one");
    let other = SETTINGS.replace("host=a", "host=a dbname=other");
    cached.world.event(Event::Command(Command::Configure(config(&other))));
    let client = cached.client;
    assert_eq!(cached.asks(client, READ).unwrap_or_default(), [], "it waits for a server");
}

#[test]
fn old_answers_make_room() {
    let mut cached = Cached::new();
    let row = "x".repeat(100_000);
    let text = |number: usize| format!("SELECT a FROM t WHERE a = {number}");
    for number in 0..15 {
        cached.misses(&text(number), &row);
    }
    cached.misses(&text(0), &row);
    cached.hits(&text(14), &row);
    let long = "x".repeat(140_000);
    cached.misses(&text(20), &long);
    cached.misses(&text(20), &long);
}
