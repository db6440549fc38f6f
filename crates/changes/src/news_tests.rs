//! Tests of the order of news.
#![allow(clippy::unwrap_used)]

use super::*;

const SMALL: &str = "small";
const LARGE: &str = "large";

fn seen(snapshot: &str, end: u64) -> Seen {
    Seen { snapshot: Snapshot::read(snapshot).unwrap(), end, small: SMALL.into() }
}

fn sample(as_of_us: u64, position: u64, snapshot: &str) -> Sample {
    Sample { as_of_us, position, seen: seen(snapshot, position) }
}

fn rows(xid: u32, end: u64, names: &[&str]) -> Transaction {
    Transaction { xid, end, what: Effect::Rows(names.iter().map(|name| (*name).into()).collect()) }
}

fn ddl(xid: u32, end: u64) -> Transaction {
    Transaction { xid, end, what: Effect::Unknown }
}

fn graph() -> Graph {
    let mut graph = Graph::default();
    graph.add("t".into(), "v".into());
    graph
}

/// What is told, in short.
fn told(news: &mut News) -> Vec<String> {
    std::iter::from_fn(|| news.poll())
        .map(|what| match what {
            CacheNewsKind::Begins { system, timeline } => format!("begins {system} {timeline}"),
            CacheNewsKind::Catalog { number, .. } => format!("catalog {number}"),
            CacheNewsKind::Changed { number, lsn, names } => {
                format!("changed {number} {lsn} {}", names.join(","))
            }
            CacheNewsKind::SchemaChanged { number, lsn } => format!("schema {number} {lsn}"),
            CacheNewsKind::Current { as_of_us, lsn, visible } => {
                format!("current {as_of_us} {lsn} {visible}")
            }
            CacheNewsKind::Lost { why } => format!("lost {why}"),
        })
        .collect()
}

/// Followed, with a catalog, and compared.
fn begun() -> News {
    let fingerprint = Fingerprint { small: SMALL.into(), large: LARGE.into() };
    let mut news = News::new(1, 2, fingerprint);
    assert!(news.needs_catalog());
    news.compared(seen("10:10:", 50), LARGE.into());
    let snapshot = Snapshot::read("10:10:").unwrap();
    news.cataloged(&snapshot, Catalog { graph: graph(), ..Catalog::default() });
    assert_eq!(told(&mut news), ["begins 1 2", "catalog 0"]);
    assert!(!news.needs_catalog() && !news.needs_fingerprint() && news.wants_sample());
    news
}

fn stream(news: &mut News, transactions: &[Transaction]) {
    for transaction in transactions {
        news.committed(transaction.clone());
        news.reached(transaction.end);
    }
    news.flush();
}

#[test]
fn a_sample_is_told_when_the_stream_has_reached_it() {
    let mut news = begun();
    news.sampled(sample(1000, 100, "10:10:"));
    assert_eq!((news.awaits(), told(&mut news)), (Some(100), vec![]));
    assert!(!news.wants_sample() && !news.needs_fingerprint());
    news.reached(99);
    news.flush();
    assert_eq!(told(&mut news), [""; 0]);
    news.reached(100);
    news.flush();
    assert_eq!(told(&mut news), ["current 1000 100 0"]);
    assert!(news.wants_sample());
    // The primary has done nothing since.
    news.sampled(sample(2000, 100, "10:10:"));
    assert_eq!(told(&mut news), ["current 2000 100 0"]);
}

#[test]
fn changes_come_with_what_is_made_of_them_and_before_the_sample() {
    let mut news = begun();
    news.sampled(sample(1000, 130, "13:13:"));
    stream(&mut news, &[rows(10, 110, &["t"]), rows(11, 120, &["x", "v"])]);
    assert_eq!(told(&mut news), ["changed 1 120 t,v,x"]);
    stream(&mut news, &[rows(12, 130, &["x"])]);
    assert_eq!(told(&mut news), ["changed 2 130 x"]);
    // Rows were changed: a catalog may have been, too.
    assert!(news.needs_fingerprint());
    news.compared(seen("13:13:", 140), LARGE.into());
    assert_eq!(told(&mut news), ["current 1000 130 2"]);
    assert!(!news.needs_fingerprint());
}

#[test]
fn a_transaction_with_rows_and_ddl_is_found_by_the_fingerprint() {
    let mut news = begun();
    news.sampled(sample(1000, 110, "11:11:"));
    stream(&mut news, &[rows(10, 110, &["t"])]);
    news.compared(seen("11:11:", 115), "other".into());
    assert_eq!(told(&mut news), ["changed 1 110 t,v", "schema 2 115", "current 1000 110 2"]);
    assert!(news.needs_catalog());
    // Once is enough.
    let snapshot = Snapshot::read("11:11:").unwrap();
    news.compared(seen("11:11:", 120), "other".into());
    news.cataloged(&snapshot, Catalog::default());
    assert_eq!(told(&mut news), ["catalog 2"]);
}

#[test]
fn a_change_of_the_shared_catalogs_is_found_by_each_sample() {
    let mut news = begun();
    let mut other = sample(1000, 90, "10:10:");
    other.seen.small = "other".into();
    other.seen.end = 95;
    news.reached(90);
    news.sampled(other);
    assert_eq!(
        told(&mut news),
        ["schema 1 95", "current 1000 90 1"],
        "the position is older than the snapshot"
    );
}

#[test]
fn what_commits_while_the_catalog_is_unknown_is_told_by_the_new_one() {
    let mut news = begun();
    stream(&mut news, &[ddl(10, 110)]);
    assert_eq!(told(&mut news), ["schema 1 110"]);
    stream(&mut news, &[rows(11, 120, &["new"]), rows(12, 125, &["t"])]);
    assert_eq!(told(&mut news), [""; 0]);
    let mut graph = Graph::default();
    graph.add("new".into(), "view".into());
    // A snapshot that does not see the DDL yet.
    news.cataloged(
        &Snapshot::read("10:13:10").unwrap(),
        Catalog { graph: graph.clone(), ..Catalog::default() },
    );
    assert!(news.needs_catalog() && told(&mut news).is_empty());
    // Nor is anything current before them.
    news.sampled(sample(1000, 125, "13:13:"));
    news.compared(seen("13:13:", 130), LARGE.into());
    assert_eq!((told(&mut news), news.wants_sample()), (vec![], true));
    news.cataloged(&Snapshot::read("13:13:").unwrap(), Catalog { graph, ..Catalog::default() });
    assert_eq!(told(&mut news), ["catalog 1", "changed 2 125 new,t,view"]);
}

#[test]
fn a_change_of_the_schema_says_what_was_held_back() {
    let mut news = begun();
    stream(&mut news, &[rows(10, 110, &["t"]), ddl(11, 120)]);
    assert_eq!(told(&mut news), ["schema 1 120"]);
    stream(&mut news, &[rows(12, 130, &["t"]), ddl(13, 140), rows(14, 150, &["t"])]);
    assert_eq!(told(&mut news), ["schema 2 140"]);
    let many: Vec<String> = (0..=MAX_NAMES).map(|at| format!("t{at}")).collect();
    for (name, xid) in many.iter().zip(15..) {
        stream(&mut news, &[rows(xid, 160, &[name])]);
    }
    assert_eq!(told(&mut news), ["schema 3 160"], "too many names to hold");
}

#[test]
fn what_snapshots_do_not_see_is_not_visible_and_bounds_the_position() {
    let mut news = begun();
    stream(&mut news, &[rows(10, 110, &["x"])]);
    stream(&mut news, &[rows(12, 120, &["x"])]);
    stream(&mut news, &[rows(11, 130, &["x"])]);
    drop(told(&mut news));
    // 12 waits for a synchronous standby.
    news.sampled(sample(1000, 130, "12:13:12"));
    news.compared(seen("12:13:12", 130), LARGE.into());
    assert_eq!(told(&mut news), ["current 1000 119 1"]);
    // It is compared again, for it may hold DDL.
    news.sampled(sample(2000, 130, "12:13:12"));
    assert!(news.needs_fingerprint());
    news.compared(seen("13:13:", 130), "other".into());
    assert_eq!(told(&mut news), ["schema 4 130", "current 2000 130 4"]);
}

#[test]
fn a_transaction_that_commits_before_older_ones_are_seen_is_visible_in_turn() {
    let mut news = begun();
    let transactions: Vec<Transaction> =
        (0..600).map(|at| rows(20 + at, 200 + u64::from(at), &["x"])).collect();
    stream(&mut news, &transactions);
    stream(&mut news, &[rows(700, 900, &["y"])]);
    drop(told(&mut news));
    // More transactions than are kept one by one: all before the last have to be seen.
    for (snapshot, visible) in [("15:701:15", 0), ("619:701:619", 0), ("620:701:700", 1), ("701:701:", 2)] {
        news.sampled(sample(1, 900, snapshot));
        news.compared(seen(snapshot, 900), LARGE.into());
        let lsn = [199, 899, 900][visible];
        assert_eq!(told(&mut news), [format!("current 1 {lsn} {visible}")], "{snapshot}");
    }
}

#[test]
fn invisible_changes_are_bounded() {
    let mut news = begun();
    let bound = u32::try_from(MAX_INVISIBLE).unwrap();
    for xid in 20..20 + bound + 1000 {
        stream(&mut news, &[rows(xid, u64::from(xid), &["x"])]);
    }
    assert_eq!(news.invisible.len(), MAX_INVISIBLE);
    let count = u64::from(bound) + 1000;
    drop(told(&mut news));
    for (snapshot, visible) in [
        ("20:9999:20".to_owned(), 0),
        (format!("{0}:9999:{0}", 20 + bound + 999), u64::from(bound) - 1),
        ("9999:9999:".to_owned(), count),
    ] {
        news.sampled(sample(1, 20, &snapshot));
        news.compared(seen(&snapshot, 20), LARGE.into());
        let Some(CacheNewsKind::Current { visible: found, .. }) = news.poll() else { panic!("{snapshot}") };
        assert_eq!(found, visible, "{snapshot}");
    }
}

#[test]
fn messages_alone_change_nothing_but_are_compared() {
    let mut news = begun();
    stream(&mut news, &[rows(10, 110, &[])]);
    news.sampled(sample(1, 110, "10:11:10"));
    assert!(news.needs_fingerprint());
    news.compared(seen("10:11:10", 110), LARGE.into());
    assert_eq!(told(&mut news), ["current 1 109 0"]);
    news.sampled(sample(2, 110, "11:11:"));
    news.compared(seen("11:11:", 110), LARGE.into());
    assert_eq!(told(&mut news), ["current 2 110 0"]);
}

#[test]
fn a_comparison_beside_a_sample_that_waits_does_not_tell_it() {
    let mut news = begun();
    news.sampled(sample(1, 110, "11:11:"));
    news.compared(seen("12:12:", 120), LARGE.into());
    assert_eq!(told(&mut news), [""; 0]);
    stream(&mut news, &[rows(10, 110, &["x"])]);
    assert_eq!(told(&mut news), ["changed 1 110 x"]);
    assert!(news.needs_fingerprint(), "rows that were streamed since");
    news.compared(seen("12:12:", 120), LARGE.into());
    assert_eq!(told(&mut news), ["current 1 110 1"]);
}
