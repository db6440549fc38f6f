//! Changes of pools from request to reply, with an in-memory file.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use messages::Command;

use super::*;
use crate::harness::Harness;
use crate::pools::{RequestedSize, ServerInfo, cluster_id};
use crate::{Input, Signal};

const MAIN: &str = "[databases]\napp = host=h pool_size=7\nboss = host=h dbname=app user=boss password='x y'\nelse = host=i\n\
    [pgbouncer]\npools_file = p.ini\n";
const FILE: &str = "; mine\n[databases]\n;; kept\ntest-pool = host=h dbname=app connect_query='select 1' pool_size=2 pool_mode=session\n";

struct Fixture {
    harness: Harness,
    file: Vec<u8>,
    last: u64,
    may_name_servers: bool,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture { harness: Harness::with(2, MAIN), file: Vec::new(), last: 0, may_name_servers: false }
    }

    fn ask(&mut self, change: PoolChange) -> Result<PoolOutcome, PoolError> {
        self.ask_with(change, false, Some(server()))
    }

    /// Asks, and does what is asked for.
    fn ask_with(
        &mut self,
        change: PoolChange,
        preview: bool,
        server: Option<ServerInfo>,
    ) -> Result<PoolOutcome, PoolError> {
        self.last += 1;
        let (id, reads, writes) = (self.last, self.harness.pool_reads, self.harness.pool_writes.len());
        self.harness.input(Input::Pools(PoolRequest {
            id,
            change,
            preview,
            server,
            may_name_servers: self.may_name_servers,
        }));
        if self.harness.pool_reads > reads {
            self.harness.input(Input::PoolsRead(Ok(self.file.clone())));
        }
        if self.harness.pool_writes.len() > writes {
            self.file = self.harness.pool_writes[writes].clone().into_bytes();
            self.harness.input(Input::PoolsWritten(Ok(())));
        }
        let (answered, answer) = self.harness.pool_answers.pop().unwrap();
        assert_eq!(answered, id);
        answer
    }

    fn refused(&mut self, change: PoolChange) -> (Option<String>, String) {
        let (file, told) = (self.file.clone(), self.harness.told.len());
        let refusal = self.ask(change).unwrap_err();
        assert_eq!((&self.file, self.harness.told.len()), (&file, told), "nothing has changed");
        (refusal.of_field().map(str::to_owned), refusal.to_string())
    }

    fn text(&self) -> String {
        String::from_utf8(self.file.clone()).unwrap()
    }
}

fn server() -> ServerInfo {
    let databases = ["app", "postgres"].map(str::to_owned).into();
    ServerInfo {
        max_connections: 100,
        reserved: 3,
        version: "18.6".to_owned(),
        databases,
        users: BTreeSet::new(),
    }
}

fn cluster_of(harness: &Harness, entry: &str) -> String {
    cluster_id(&harness.control.config().databases[entry])
}

fn spec(name: &str) -> PoolSpec {
    let harness = Harness::with(1, MAIN);
    PoolSpec {
        name: name.to_owned(),
        cluster: Some(cluster_of(&harness, "app")),
        db: "app".to_owned(),
        user: None,
        mode: "transaction".to_owned(),
        size: RequestedSize::Shown(10),
        settings: BTreeMap::new(),
    }
}

#[test]
fn a_pool_is_written_and_then_in_force() {
    let mut fixture = Fixture::new();
    let done = fixture.ask(PoolChange::Create(spec("test-pool"))).unwrap();
    assert!(fixture.text().ends_with(
        "[databases]\ntest-pool = host=h port=5432 dbname=app pool_size=10 pool_mode=transaction\n"
    ));
    assert!(matches!(fixture.harness.told[..], [(0, Command::Configure(_)), (1, Command::Configure(_))]));
    let pool = &fixture.harness.control.config().databases["test-pool"];
    assert!(done.config.is_in_pools_file(pool) && pool.pool_size == Some(settings::PoolSize::Fixed(10)));
    assert!(fixture.harness.logged("pool \"test-pool\" created: db=app mode=transaction size=10"));
    assert_eq!((done.budget.used_by_pools, done.budget.free()), (7 + 20 + 10, Some(60)));
}

#[test]
fn a_preview_changes_nothing() {
    let mut fixture = Fixture::new();
    let seen = fixture.ask_with(PoolChange::Create(spec("test-pool")), true, Some(server())).unwrap();
    assert_eq!(seen.changes.len(), 3);
    assert!(fixture.file.is_empty() && fixture.harness.told.is_empty());
    assert!(seen.config.databases.contains_key("test-pool"));
    assert!(!fixture.harness.control.config().databases.contains_key("test-pool"));
}

#[test]
fn an_update_keeps_what_it_does_not_decide() {
    let mut fixture = Fixture::new();
    fixture.file = FILE.into();
    let boss = PoolSpec { user: Some("boss".to_owned()), size: RequestedSize::Shown(4), ..spec("test-pool") };
    fixture.ask(PoolChange::Update(boss.clone())).unwrap();
    let line = "test-pool = host=h dbname=app connect_query='select 1' pool_size=4 pool_mode=transaction user=boss password='x y'\n";
    assert_eq!(fixture.text(), format!("; mine\n[databases]\n;; kept\n{line}"));
    fixture.ask(PoolChange::Update(PoolSpec { size: RequestedSize::Shown(5), ..boss })).unwrap();
    assert!(fixture.text().contains("user=boss password='x y'"), "{}", fixture.text());
    fixture.ask(PoolChange::Update(PoolSpec { user: Some("ann".to_owned()), ..spec("test-pool") })).unwrap();
    let moved = PoolSpec { cluster: Some("elsewhere".to_owned()), ..spec("test-pool") };
    assert_eq!(fixture.refused(PoolChange::Update(moved)).0.as_deref(), Some("cluster_id"));
    assert!(
        fixture.text().contains("user=ann\n") && !fixture.text().contains("password"),
        "{}",
        fixture.text()
    );
}

#[test]
fn a_deleted_pool_is_gone_from_file_and_force() {
    let mut fixture = Fixture::new();
    fixture.file = FILE.into();
    fixture.ask(PoolChange::Delete("test-pool".to_owned())).unwrap();
    assert_eq!(fixture.text(), "; mine\n[databases]\n;; kept\n");
    assert!(!fixture.harness.control.config().databases.contains_key("test-pool"));
    let gone = fixture.refused(PoolChange::Delete("test-pool".to_owned()));
    assert_eq!(gone, (None, "there is no pool \"test-pool\"".to_owned()));
}

#[test]
fn a_server_is_asked_through_a_pool() {
    let mut harness = Harness::with(2, MAIN);
    let ask =
        |database: &str| Input::QueryServer { id: 9, database: database.to_owned(), user: "ann".to_owned() };
    harness.input(ask("none"));
    assert_eq!(harness.server_answers, [(9, None)]);
    harness.input(ask("app"));
    let Some((0, Command::RunServerQuery { request, query })) = harness.told.pop() else { panic!() };
    assert_eq!((query.database.as_str(), query.user.as_str()), ("app", "ann"));
    let row = ["50", "3", "0", "15.1", "app"].map(|cell| Some(cell.as_bytes().to_vec())).to_vec();
    let answer = Box::new(messages::ServerQueryResult::Rows(vec![row]));
    harness.input(Input::Report(messages::Report::ServerQueryDone { request, answer }));
    assert_eq!(harness.server_answers.pop().unwrap().1.unwrap().max_connections, 50);
    harness.input(Input::CancelServerQuery { id: 9 });
    assert!(matches!(
        harness.told[..],
        [(0, Command::WithdrawServerQuery { .. }), (1, Command::WithdrawServerQuery { .. })]
    ));
}

#[test]
fn what_cannot_be_is_told_with_its_field() {
    let mut fixture = Fixture::new();
    let long = "n".repeat(64);
    for (field, change) in [
        ("name", PoolSpec { ..spec("ab") }),
        ("name", PoolSpec { ..spec(&long) }),
        ("name", PoolSpec { ..spec("a b c") }),
        ("name", PoolSpec { ..spec("größe") }),
        ("name", PoolSpec { ..spec("a=b;--") }),
        ("name", PoolSpec { ..spec("-abc") }),
        ("name", PoolSpec { ..spec("pgbouncer") }),
        ("name", PoolSpec { ..spec("***") }),
        ("name", PoolSpec { ..spec("app") }),
        ("cluster_id", PoolSpec { cluster: Some("x".to_owned()), ..spec("new-pool") }),
        ("cluster_id", PoolSpec { cluster: None, ..spec("new-pool") }),
        ("db", PoolSpec { db: String::new(), ..spec("new-pool") }),
        ("db", PoolSpec { db: "nope".to_owned(), ..spec("new-pool") }),
        ("db", PoolSpec { db: "a\nb = host=x".to_owned(), ..spec("new-pool") }),
        ("user", PoolSpec { user: Some("a\u{0}b".to_owned()), ..spec("new-pool") }),
        ("user", PoolSpec { user: Some(long.clone()), ..spec("new-pool") }),
        ("mode", PoolSpec { mode: "tx".to_owned(), ..spec("new-pool") }),
        ("size", PoolSpec { size: RequestedSize::Shown(0), ..spec("new-pool") }),
        ("size", PoolSpec { size: RequestedSize::Shown(-5), ..spec("new-pool") }),
        ("size", PoolSpec { size: RequestedSize::Shown(i64::MAX), ..spec("new-pool") }),
        ("size", PoolSpec { size: RequestedSize::Shown(71), ..spec("new-pool") }),
    ] {
        let told = fixture.refused(PoolChange::Create(change.clone()));
        assert_eq!(told.0.as_deref(), Some(field), "{change:?}: {}", told.1);
    }
    let told = fixture
        .refused(PoolChange::Create(PoolSpec { size: RequestedSize::Shown(71), ..spec("new-pool") }))
        .1;
    assert_eq!(
        told,
        "71 connections are more than the 70 that are free: the server has 100, keeps 3 for itself, and other pools may take 27"
    );
    let exists = fixture.refused(PoolChange::Create(spec("app"))).1;
    assert_eq!(exists, "a database \"app\" exists already, defined in weir.ini:2");
}

#[test]
fn entries_of_the_users_own_file_are_the_users() {
    let mut fixture = Fixture::new();
    for change in [PoolChange::Update(spec("app")), PoolChange::Delete("app".to_owned())] {
        let told = fixture.refused(change).1;
        assert_eq!(told, "pool is defined in weir.ini:2, which Weir does not write");
    }
}

#[test]
fn a_budget_that_was_broken_before_lets_a_pool_shrink() {
    let mut fixture = Fixture::new();
    fixture.file = FILE.replace("pool_size=2", "pool_size=90").into();
    fixture
        .ask(PoolChange::Update(PoolSpec { size: RequestedSize::Shown(80), ..spec("test-pool") }))
        .unwrap();
    assert_eq!(
        fixture
            .refused(PoolChange::Update(PoolSpec { size: RequestedSize::Shown(81), ..spec("test-pool") }))
            .0
            .as_deref(),
        Some("size")
    );
}

#[test]
fn an_unasked_server_refuses_no_size_and_is_told_of() {
    let mut fixture = Fixture::new();
    let change = PoolChange::Create(PoolSpec {
        size: RequestedSize::Shown(500),
        user: Some("ann".to_owned()),
        ..spec("new-pool")
    });
    let done = fixture.ask_with(change, false, None).unwrap();
    assert_eq!(done.budget.free(), None);
    assert_eq!(done.warnings.len(), 2, "{:?}", done.warnings);
    let nearly = PoolSpec { size: RequestedSize::Shown(60), ..spec("other-pool") };
    let mut fixture = Fixture::new();
    let done = fixture.ask(PoolChange::Create(nearly)).unwrap();
    assert_eq!(done.warnings[0], "pools may take 87 of the 97 connections of the server, more than 80 %");
}

#[test]
fn a_user_is_one_of_the_servers() {
    let change =
        |user: &str| PoolChange::Create(PoolSpec { user: Some(user.to_owned()), ..spec("new-pool") });
    let facts = ServerInfo { users: BTreeSet::from(["ann".to_owned()]), ..server() };
    let told = Fixture::new().ask_with(change("bob"), true, Some(facts.clone())).unwrap_err();
    let message = "there is no user \"bob\" on this cluster that may log in".to_owned();
    assert_eq!(told, PoolError::field("user", message));
    assert!(Fixture::new().ask_with(change("ann"), true, Some(facts)).is_ok());
    assert!(Fixture::new().ask_with(change("bob"), true, Some(server())).is_ok(), "nobody knows");
}

#[test]
fn a_database_nobody_has_named_is_known_to_the_server() {
    let mut fixture = Fixture::new();
    fixture.ask(PoolChange::Create(PoolSpec { db: "postgres".to_owned(), ..spec("new-pool") })).unwrap();
    assert_eq!(
        fixture.refused(PoolChange::Create(PoolSpec { db: "nope".to_owned(), ..spec("x-pool") })).1,
        "there is no database \"nope\" on this cluster: it has app, postgres"
    );
    let empty = ServerInfo { databases: BTreeSet::new(), ..server() };
    assert!(
        fixture.ask_with(PoolChange::Create(spec("y-pool")), false, Some(empty)).is_ok(),
        "an entry names it"
    );
}

#[test]
fn a_file_that_was_broken_by_hand_is_not_written_over() {
    let mut fixture = Fixture::new();
    for broken in ["[databases]\nhalf", "[databases]\napp = host=h\n", "[databases]\nq = pool_size=x\n"] {
        fixture.file = broken.into();
        let told = fixture.refused(PoolChange::Create(spec("new-pool"))).1;
        assert!(
            told.starts_with("nothing was written, because the configuration is broken: p.ini:2: "),
            "{told}"
        );
    }
}

#[test]
fn what_was_written_by_hand_meanwhile_counts() {
    let mut fixture = Fixture::new();
    fixture.file = FILE.into();
    assert_eq!(fixture.refused(PoolChange::Create(spec("test-pool"))).0.as_deref(), Some("name"));
    fixture.ask(PoolChange::Create(spec("new-pool"))).unwrap();
    assert!(fixture.harness.control.config().databases.contains_key("test-pool"));
}

#[test]
fn a_failed_write_leaves_everything_as_it_was() {
    for fault in [WriteFault::Io("Read-only file system".to_owned()), WriteFault::Config(Vec::new())] {
        let mut fixture = Fixture::new();
        let request = PoolRequest {
            id: 1,
            change: PoolChange::Create(spec("new-pool")),
            preview: false,
            server: None,
            may_name_servers: false,
        };
        fixture.harness.input(Input::Pools(request));
        fixture.harness.input(Input::PoolsRead(Ok(Vec::new())));
        fixture.harness.input(Input::PoolsWritten(Err(fault)));
        assert!(fixture.harness.pool_answers[0].1.is_err());
        assert!(fixture.harness.told.is_empty() && !fixture.harness.logged("created"));
        assert!(!fixture.harness.control.config().databases.contains_key("new-pool"));
    }
}

#[test]
fn one_change_at_a_time() {
    let mut fixture = Fixture::new();
    for id in 1..=2 {
        let change = PoolChange::Create(spec("new-pool"));
        fixture.harness.input(Input::Pools(PoolRequest {
            id,
            change,
            preview: false,
            server: None,
            may_name_servers: false,
        }));
    }
    assert_eq!(fixture.harness.pool_reads, 1);
    fixture.harness.input(Input::PoolsRead(Ok(Vec::new())));
    fixture.harness.input(Input::PoolsWritten(Ok(())));
    assert_eq!((fixture.harness.pool_reads, fixture.harness.pool_answers.len()), (2, 1));
    let file = fixture.harness.pool_writes[0].clone().into_bytes();
    fixture.harness.input(Input::PoolsRead(Ok(file)));
    assert!(matches!(&fixture.harness.pool_answers[1], (2, Err(PoolError::Exists { .. }))));
}

#[test]
fn a_set_survives_a_change_of_pools() {
    let mut fixture = Fixture::new();
    fixture.harness.ask("SET max_client_conn = 7");
    fixture.ask(PoolChange::Create(spec("new-pool"))).unwrap();
    assert_eq!(fixture.harness.control.config().global.max_client_conn, 7);
}

#[test]
fn without_a_file_or_a_future_there_is_no_change() {
    let mut fixture = Fixture {
        harness: Harness::with(1, "[databases]\napp = host=h\n"),
        file: Vec::new(),
        last: 0,
        may_name_servers: false,
    };
    assert!(fixture.refused(PoolChange::Create(spec("new-pool"))).1.contains("pools_file"));
    let mut fixture = Fixture::new();
    fixture.harness.signal(Signal::Term);
    let told = fixture.harness.told.len();
    let refusal = fixture.ask(PoolChange::Create(spec("new-pool"))).unwrap_err();
    assert_eq!((refusal, fixture.harness.told.len()), (PoolError::Ending, told));
}

fn settings(given: &[(&str, &str)]) -> BTreeMap<String, Option<String>> {
    let given = given.iter();
    given.map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned()))).collect()
}

/// A pool whose settings name its servers.
fn of_servers(name: &str, given: &[(&str, &str)]) -> PoolSpec {
    PoolSpec { cluster: None, settings: settings(given), ..spec(name) }
}

#[test]
fn a_pool_may_have_servers_and_settings_of_its_own() {
    let mut fixture = Fixture::new();
    let split = [("weight", "1,3"), ("read_write_split", "1"), ("host", "h,i"), ("port", "5432,5432")];
    let done = fixture.ask(PoolChange::Create(of_servers("test-pool", &split))).unwrap();
    let line = "test-pool = host=h,i port=5432,5432 read_write_split=1 weight=1,3 dbname=app pool_size=10 pool_mode=transaction\n";
    assert!(fixture.text().ends_with(line), "{}", fixture.text());
    assert_eq!(done.budget.used_by_pools, 10, "of its own servers");
    assert_eq!(done.budget.max_connections, None, "another server was asked");
    let pool = &fixture.harness.control.config().databases["test-pool"];
    assert!(pool.read_write_split && pool.host == ["h", "i"]);

    let mut change = of_servers("test-pool", &[("max_replica_lag", "16MB")]);
    change.settings.insert("weight".to_owned(), None);
    change.settings.insert("port".to_owned(), Some(String::new()));
    fixture.ask(PoolChange::Update(change)).unwrap();
    let line = "test-pool = host=h,i read_write_split=1 dbname=app pool_size=10 pool_mode=transaction max_replica_lag=16MB\n";
    assert!(fixture.text().ends_with(line), "{}", fixture.text());
    fixture
        .ask(PoolChange::Update(PoolSpec { size: RequestedSize::Shown(9), ..of_servers("test-pool", &[]) }))
        .unwrap();
    assert!(fixture.text().contains("pool_mode=transaction max_replica_lag=16MB"), "what is not named stays");
}

#[test]
fn a_setting_that_cannot_be_is_refused_at_its_name_in_the_words_of_the_file() {
    let mut fixture = Fixture::new();
    let lag = "max_replica_lag: \"soon\" is neither a time in seconds nor a size like 16MB";
    for (field, given, expected) in [
        ("max_replica_lag", &[("host", "h,i"), ("max_replica_lag", "soon")][..], lag),
        (
            "weight",
            &[("host", "h,i"), ("weight", "1,2,3")],
            "weight: \"1,2,3\" is not one weight, or one for each of 2 hosts",
        ),
        (
            "target_session_attrs",
            &[("host", "h,i"), ("read_write_split", "1"), ("target_session_attrs", "standby")],
            "read_write_split sends writes to the primary, and target_session_attrs is standby",
        ),
        (
            "target_session_attrs",
            &[("host", "h,i"), ("query_cache", "1MB"), ("target_session_attrs", "read-only")],
            "query_cache keeps answers of the primary, and target_session_attrs is read-only",
        ),
        (
            "topology",
            &[("topology", "patroni http://u:s3cret@")],
            "topology: \"...\" is neither probe nor patroni",
        ),
        ("hosts", &[("host", "h"), ("hosts", "h")], "an entry of [databases] has no such key"),
        ("pool_size", &[("host", "h"), ("pool_size", "3")], "this is not set here"),
        ("auth_query", &[("host", "h"), ("auth_query", "select 1")], "this is not set here"),
        ("connect_query", &[("host", "h"), ("connect_query", "select 1")], "this is not set here"),
        (
            "timezone",
            &[("host", "h"), ("timezone", "UTC\nevil = host=x")],
            "a setting has no control characters",
        ),
    ] {
        let told = fixture.refused(PoolChange::Create(of_servers("test-pool", given)));
        assert_eq!(told.0, Some(format!("settings.{field}")), "{told:?}");
        assert!(told.1.starts_with(expected), "{told:?}");
    }
    let both = PoolSpec { settings: settings(&[("host", "h")]), ..spec("test-pool") };
    assert_eq!(fixture.refused(PoolChange::Create(both)).0.as_deref(), Some("cluster_id"));
}

#[test]
fn servers_that_no_entry_leads_to_need_a_scope() {
    let mut fixture = Fixture::new();
    let patroni = ("topology", "patroni http://p:8008");
    let changes =
        [[("host", "h,other")], [("host", "h")], [patroni]].map(|given| of_servers("test-pool", &given));
    for (change, port) in changes.iter().zip([None, Some("5433"), None]) {
        let mut change = change.clone();
        change.settings.extend(port.map(|port| ("port".to_owned(), Some(port.to_owned()))));
        let told = fixture.refused(PoolChange::Create(change.clone()));
        assert!(told.0.is_none() && told.1.contains("view_credentials"), "{told:?}");
        fixture.may_name_servers = true;
        fixture.ask(PoolChange::Create(change)).unwrap();
        fixture.may_name_servers = false;
        // What it leads to already, it may keep.
        fixture
            .ask(PoolChange::Update(PoolSpec {
                size: RequestedSize::Shown(3),
                ..of_servers("test-pool", &[])
            }))
            .unwrap();
        fixture.ask(PoolChange::Delete("test-pool".to_owned())).unwrap();
    }
    fixture.ask(PoolChange::Create(of_servers("test-pool", &[("host", "i,h")]))).unwrap();
    let moved = of_servers("test-pool", &[("host", "evil")]);
    assert!(fixture.refused(PoolChange::Update(moved)).1.contains("view_credentials"));
}

#[test]
fn settings_without_effect_are_told_of() {
    let mut fixture = Fixture::new();
    let split = settings(&[("read_write_split", "1")]);
    let seen = fixture.ask(PoolChange::Create(PoolSpec { settings: split, ..spec("test-pool") })).unwrap();
    let told = "read_write_split has no effect on an entry with one host";
    assert!(seen.warnings.iter().any(|warning| warning == told), "{:?}", seen.warnings);
}

#[test]
fn a_pool_may_size_itself_and_stay_so_or_not() {
    let mut fixture = Fixture::new();
    let bounds = |min: &str, max: &str| {
        [("auto_pool_size_min", min), ("auto_pool_size_max", max)]
            .into_iter()
            .map(|(name, value)| (name.to_owned(), Some(value.to_owned())))
            .collect()
    };
    let auto = PoolSpec { size: RequestedSize::Auto, settings: bounds("2", "12"), ..spec("test-pool") };
    let done = fixture.ask(PoolChange::Create(auto.clone())).unwrap();
    assert!(fixture.text().contains("pool_size=auto"), "{}", fixture.text());
    assert_eq!(done.budget.used_by_pools, 7 + 20 + 12, "it counts with its largest size");
    assert!(fixture.harness.logged("pool \"test-pool\" created: db=app mode=transaction size=auto"));
    let size = |fixture: &Fixture| fixture.harness.control.config().databases["test-pool"].pool_size;
    for (requested, is) in [
        (RequestedSize::Shown(12), settings::PoolSize::Auto),
        (RequestedSize::Fixed(12), settings::PoolSize::Fixed(12)),
        (RequestedSize::Auto, settings::PoolSize::Auto),
        (RequestedSize::Shown(5), settings::PoolSize::Fixed(5)),
    ] {
        fixture.ask(PoolChange::Update(PoolSpec { size: requested, ..spec("test-pool") })).unwrap();
        assert_eq!(size(&fixture), Some(is), "{requested:?}");
    }
    let too_many = PoolSpec { settings: bounds("2", "500"), ..auto.clone() };
    assert_eq!(fixture.refused(PoolChange::Update(too_many)).0.as_deref(), Some("size"));
    let crossed = PoolSpec { settings: bounds("9", "3"), ..auto.clone() };
    let (field, told) = fixture.refused(PoolChange::Update(crossed));
    assert_eq!(field.as_deref(), Some("settings.auto_pool_size_min"), "{told}");
    let session = PoolSpec { mode: "session".to_owned(), ..auto };
    let told = fixture.ask(PoolChange::Update(session)).unwrap().warnings;
    assert!(told.iter().any(|warning| warning.contains("in session pooling no size is found")), "{told:?}");
}
