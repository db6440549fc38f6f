//! Texts and where they may run: a few here, and those of `tests/e2e/routing_corpus.txt`, which are also run on real servers. Never asks a server.

use super::*;

fn names() -> RoutingNames {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    RoutingNames::new(
        owned(&["mine", "Mixed", "add_tax"]),
        owned(&["side_effect", "live_view", "Odd Name", "cache_unlogged"]),
        owned(&["+!"]),
    )
}

fn of(text: &str) -> Routing {
    let found = routing(text.as_bytes(), &names());
    let judged = judged(plain::statement(text.as_bytes()), &names());
    assert!(found == judged, "{text}: {found:?}, {judged:?}");
    found
}

#[test]
fn what_a_glance_shows_is_not_looked_at_again() {
    for text in [
        "SELECT abalance FROM pgbench_accounts WHERE aid = 12345;",
        "SELECT \"users\".* FROM \"users\" WHERE \"users\".\"id\" = $1 LIMIT $2\0\0\0",
        "select 1\0",
        "select 'a' from t -- x",
    ] {
        let names = RoutingNames::new([], ["live_view".to_owned()], ["+!".to_owned()]);
        assert_eq!(routing_at_a_glance(text.as_bytes(), &names), Some(Routing::Read), "{text}");
        assert_eq!(routing(text.as_bytes(), &RoutingNames::unknown()), Routing::Write, "{text}");
    }
    for text in [
        "select * from t for update",
        "select * from Live_View",
        "select 1 into t",
        "select 1into t",
        "select 1; select 2",
        "select f(1)",
        "select a from pg_locks",
        "select 1 +! 2",
        "select t.nextval from t",
        "select 'é'",
    ] {
        let names = RoutingNames::new([], ["live_view".to_owned()], ["+!".to_owned()]);
        assert_eq!(routing_at_a_glance(text.as_bytes(), &names), None, "{text}");
    }
}

#[test]
fn transactions_go_to_a_standby_if_they_say_so() {
    for (text, routing) in [
        ("BEGIN READ ONLY", Routing::ReadOnlyTransaction),
        ("begin work read only, isolation level repeatable read;", Routing::ReadOnlyTransaction),
        ("START TRANSACTION ISOLATION LEVEL READ COMMITTED READ ONLY", Routing::ReadOnlyTransaction),
        ("; BEGIN TRANSACTION READ ONLY NOT DEFERRABLE ;", Routing::ReadOnlyTransaction),
        ("BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE", Routing::Session),
        ("BEGIN READ ONLY READ WRITE", Routing::Session),
        ("BEGIN READ ONLY whatever", Routing::Session),
        ("BEGIN", Routing::Session),
        ("BEGIN; SELECT 1", Routing::Write),
        ("COMMIT", Routing::Session),
        ("COMMIT PREPARED 'a'", Routing::Write),
        ("PREPARE TRANSACTION 'a'", Routing::Write),
        ("start", Routing::Write),
    ] {
        assert_eq!(of(text), routing, "{text}");
    }
}

#[test]
fn names_count_as_postgresql_reads_them() {
    for text in [
        "select side_effect(1)",
        "select SIDE_EFFECT(1)",
        "select \"side_effect\"(1)",
        "select x.side_effect from x",
        "select * from \"Odd Name\"",
        "select * from \"odd NAME\"",
        "select U&\"\\006dine\"(1)",
        "select mixed(1)",
        "select \"MINE\"(1)",
        "select other(1)",
        "select public.other(1)",
        "select 1 operator(public.+!) 2",
        "select mine(1) +! 2",
        "select cache_unlogged from mine(1)",
        "select pg_backend_pıd(), 1",
        "select 1, \u{130}",
        "select treat(a as nextval)",
    ] {
        assert_eq!(of(text), Routing::Write, "{text}");
    }
    for text in [
        "select mine(1), \"Mixed\"(2), public.mine(3), 'side_effect', t.update from t /* live_view */",
        "select 1 operator(pg_catalog.+) 2, \"pg stat\" from é where a = 'live_view'",
        "select count(*) filter (where a > 1) over (partition by b) from a join (b join c using (d)) using (e)",
    ] {
        assert_eq!(of(text), Routing::Read, "{text}");
    }
}

#[test]
fn backslashes_are_read_both_ways() {
    for text in [
        "select '\\' || nextval('a') || '\\'",
        "select '\\', nextval('a'), ''",
        "select 'é\\'",
        "select E'a'\n'b\\', nextval(''s'') --'",
        "select nextval('s'), E'a'\n'b\\' ', '\\', ' /* weir: standby */ '",
    ] {
        assert_eq!(of(text), Routing::Write, "{text}");
    }
    assert_eq!(of("select E'it\\'s', count(*) from t"), Routing::Read);
    assert_eq!(of("select count(*) from t where a ~ '^\\d+$'"), Routing::Read);
}

/// The statements that are also run on real servers.
#[test]
fn the_corpus_is_classified_as_it_says() {
    let corpus = include_str!("../../../../tests/e2e/routing_corpus.txt");
    let mut section = "";
    let mut lists = std::collections::HashMap::<&str, Vec<String>>::new();
    let mut cases = Vec::new();
    for line in corpus.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name;
        } else if ["readers", "primary only", "operators"].contains(&section) {
            lists.entry(section).or_default().push(line.to_owned());
        } else if section != "ddl" {
            cases.push((section, line));
        }
    }
    let mut list = |name| lists.remove(name).expect("a list");
    let names = RoutingNames::new(list("readers"), list("primary only"), list("operators"));
    let mut wrong = Vec::new();
    for (group, line) in &cases {
        let (class, text) = line.split_once(' ').expect("a class and a text");
        let text = text.replace('\u{2424}', "\n");
        let found = match (routing(text.as_bytes(), &names), route_hint(text.as_bytes())) {
            (_, Some(hint)) => format!("Hint{hint:?}"),
            (routing, None) => format!("{routing:?}"),
        };
        if found != class {
            wrong.push(format!("[{group}] {class} is {found}: {text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cases.len() >= 320, "{}", cases.len());
}
