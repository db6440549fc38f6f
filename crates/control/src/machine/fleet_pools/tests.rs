//! Pools of all nodes, from the store into the file and back.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use messages::{FleetPools, FleetPoolsError};

use super::*;
use crate::harness::{Harness, config};
use crate::{Input, PoolChange, PoolOutcome, PoolRequest, PoolSpec, RequestedSize, WriteFault};

const MAIN: &str = "[databases]\napp = host=h\n[pgbouncer]\npools_file = p.ini\nfleet = etcd://e/p\n";
const OWN: &str = "[databases]\nmine = host=h\n";

struct Fixture {
    harness: Harness,
    file: String,
    disk_is_full: bool,
}

impl Fixture {
    /// A node whose store has these pools.
    fn new(revision: u64, text: &str) -> Fixture {
        let mut fixture =
            Fixture { harness: Harness::with(2, MAIN), file: OWN.to_owned(), disk_is_full: false };
        fixture.store_has(revision, text);
        fixture
    }

    fn store_has(&mut self, revision: u64, text: &str) {
        let pools = FleetPools { revision, by: "n-2".to_owned(), text: text.as_bytes().into() };
        self.input(Input::FleetPools(pools));
    }

    /// The same with all reads and writes of the file.
    fn input(&mut self, input: Input) {
        let mut next = Some(input);
        while let Some(input) = next.take() {
            let (reads, writes) = (self.harness.pool_reads, self.harness.pool_writes.len());
            self.harness.input(input);
            if self.harness.pool_reads > reads {
                next = Some(Input::PoolsRead(Ok(self.file.clone().into_bytes())));
            } else if let Some(written) = self.harness.pool_writes.get(writes).cloned() {
                let full = || WriteFault::Io("No space left on device".to_owned());
                let is_written = (!self.disk_is_full).then_some(()).ok_or_else(full);
                if is_written.is_ok() {
                    self.file = written;
                }
                next = Some(Input::PoolsWritten(is_written));
            }
        }
    }

    fn ask(&mut self, change: PoolChange) {
        let request = PoolRequest { id: 1, change, preview: false, server: None, may_name_servers: false };
        self.input(Input::Pools(request));
    }

    fn asked(&mut self) -> (u64, u64, String) {
        let (base, pools) = self.harness.fleet_changes.pop().unwrap();
        (base, pools.revision, String::from_utf8(pools.text.to_vec()).unwrap())
    }

    fn answer(&mut self) -> Result<PoolOutcome, PoolError> {
        self.harness.pool_answers.pop().unwrap().1
    }

    fn said(&self) -> (u64, bool, &str) {
        let said = self.harness.fleet_in_use.last().unwrap();
        (said.revision, said.uses_none, &said.refused)
    }

    /// Up to which revision all is paused.
    fn paused(&self) -> u64 {
        self.harness.fleet_in_use.last().unwrap().paused
    }

    fn command(&mut self, sql: &str) {
        let query = self.harness.query(messages::Role::Admin, sql);
        self.input(Input::Report(messages::Report::Query(query)));
    }

    fn names(&self) -> Vec<String> {
        self.harness.control.config().databases.keys().cloned().collect()
    }
}

fn spec(name: &str, size: i64) -> PoolSpec {
    PoolSpec {
        name: name.to_owned(),
        cluster: None,
        db: "app".to_owned(),
        user: None,
        mode: "transaction".to_owned(),
        size: RequestedSize::Fixed(size),
        settings: BTreeMap::new(),
    }
}

#[test]
fn what_another_node_has_made_is_in_force_here_and_in_the_file() {
    let mut fixture = Fixture::new(4, "[databases]\nshared = host=h\napp = host=x\n");
    assert_eq!(fixture.names(), ["app", "mine", "shared"]);
    assert_eq!(fixture.harness.control.config().databases["app"].host, ["h"], "the node's own");
    assert!(fixture.file.starts_with(OWN) && fixture.file.contains("revision 4"), "{}", fixture.file);
    assert_eq!(fixture.said(), (4, false, "database \"app\" is defined in weir.ini:2 too"));
    let writes = fixture.harness.pool_writes.len();
    fixture.store_has(4, "[databases]\nshared = host=h\napp = host=x\n");
    assert_eq!(fixture.harness.pool_writes.len(), writes, "it is there already");
    fixture.store_has(6, "");
    assert_eq!(fixture.names(), ["app", "mine"]);
    assert_eq!(fixture.said(), (6, false, ""));
}

#[test]
fn a_pool_made_here_is_one_of_all_nodes_once_the_store_has_it() {
    let mut fixture = Fixture::new(0, "");
    fixture.ask(PoolChange::Create(spec("new-pool", 3)));
    let (base, revision, text) = fixture.asked();
    assert_eq!((base, revision), (0, 1));
    assert!(text.contains("new-pool = ") && !text.contains("mine"), "{text}");
    assert!(!fixture.names().contains(&"new-pool".to_owned()) && fixture.harness.pool_answers.is_empty());
    fixture.input(Input::FleetPoolsChanged(Ok(())));
    let outcome = fixture.answer().unwrap();
    assert!(outcome.config.databases.contains_key("new-pool") && fixture.file.contains("new-pool = "));
    assert!(fixture.harness.logged("pool \"new-pool\" created"));
    // The news of one's own change is none.
    let writes = fixture.harness.pool_writes.len();
    fixture.store_has(1, &text);
    assert_eq!((fixture.harness.pool_writes.len(), fixture.said()), (writes, (1, false, "")));
    fixture.ask(PoolChange::Delete("new-pool".to_owned()));
    let (base, revision, text) = fixture.asked();
    assert!((base, revision) == (1, 2) && !text.contains("new-pool"), "{text}");
}

#[test]
fn a_change_that_meets_another_is_made_to_that() {
    let mut fixture = Fixture::new(4, "[databases]\nshared = host=h\n");
    fixture.ask(PoolChange::Create(spec("new-pool", 3)));
    fixture.asked();
    fixture.store_has(5, "[databases]\nother = host=h\n");
    fixture.input(Input::FleetPoolsChanged(Err(FleetPoolsError::Superseded)));
    let (base, revision, text) = fixture.asked();
    assert_eq!((base, revision), (5, 6));
    assert!(text.contains("other = ") && text.contains("new-pool = ") && !text.contains("shared"), "{text}");
    fixture.input(Input::FleetPoolsChanged(Ok(())));
    assert!(fixture.answer().is_ok());
    assert_eq!(fixture.names(), ["app", "mine", "new-pool", "other"]);
    // It may not fit what the other has made.
    fixture.ask(PoolChange::Create(spec("late-pool", 3)));
    fixture.store_has(7, "[databases]\nlate-pool = host=h\n");
    fixture.input(Input::FleetPoolsChanged(Err(FleetPoolsError::Superseded)));
    assert!(matches!(fixture.answer(), Err(PoolError::Exists { .. })));
}

#[test]
fn without_the_store_only_the_nodes_own_pools_change() {
    let mut fixture = Fixture::new(4, "[databases]\nshared = host=h\n");
    fixture.ask(PoolChange::Update(spec("mine", 9)));
    assert!(fixture.answer().is_ok() && fixture.harness.fleet_changes.is_empty());
    assert!(fixture.file.contains("pool_size=9") && fixture.file.contains("shared = host=h"));
    let before = fixture.file.clone();
    fixture.ask(PoolChange::Delete("shared".to_owned()));
    fixture.input(Input::FleetPoolsChanged(Err(FleetPoolsError::Failed("no lease".to_owned()))));
    let refusal = fixture.answer().unwrap_err().to_string();
    assert_eq!(refusal, "the pools of the fleet cannot be changed: no lease");
    assert_eq!((&fixture.file, fixture.names().len()), (&before, 3));
    let mut unread = Fixture { harness: Harness::with(1, MAIN), file: OWN.to_owned(), disk_is_full: false };
    unread.ask(PoolChange::Create(spec("new-pool", 3)));
    assert!(unread.answer().unwrap_err().to_string().contains("the store has not been read yet"));
}

#[test]
fn what_cannot_be_written_is_refused_and_tried_again_by_itself() {
    let mut fixture = Fixture::new(0, "");
    fixture.disk_is_full = true;
    fixture.store_has(4, "[databases]\nshared = host=h\n");
    let refused = "cannot write the pools file p.ini: No space left on device";
    let writes = fixture.harness.pool_writes.len();
    for turn in 1..=3 {
        let due_us = fixture.harness.now_us + 10_000_000;
        assert!(fixture.harness.control.deadline() <= due_us);
        fixture.harness.now_us = due_us - 1;
        fixture.input(Input::Tick);
        assert_eq!(fixture.harness.pool_writes.len(), writes + turn - 1);
        fixture.harness.now_us = due_us;
        fixture.disk_is_full = turn < 3;
        fixture.input(Input::Tick);
        assert_eq!(fixture.harness.pool_writes.len(), writes + turn);
        let said = if turn < 3 { (4, true, refused) } else { (4, false, "") };
        assert_eq!(fixture.said(), said);
    }
    assert!(fixture.names().contains(&"shared".to_owned()));
    let failures = fixture.harness.log.iter().filter(|record| record.text.contains("cannot be used")).count();
    assert_eq!(failures, 1, "it is logged once");
    fixture.harness.now_us += 20_000_000;
    fixture.input(Input::Tick);
    assert_eq!(fixture.harness.pool_writes.len(), writes + 3);
}

#[test]
fn a_change_of_the_fleet_that_this_node_cannot_write_is_answered_with_an_error() {
    let mut fixture = Fixture::new(0, "");
    fixture.disk_is_full = true;
    fixture.ask(PoolChange::Create(spec("new-pool", 3)));
    fixture.input(Input::FleetPoolsChanged(Ok(())));
    let why = fixture.answer().unwrap_err().to_string();
    let expected = "the pools of the fleet are changed, but not on this node yet: cannot write the pools file p.ini: No space left on device";
    assert_eq!(why, expected);
    assert!(!fixture.names().contains(&"new-pool".to_owned()));
    fixture.disk_is_full = false;
    fixture.harness.now_us += 10_000_000;
    fixture.input(Input::Tick);
    assert!(fixture.names().contains(&"new-pool".to_owned()));
}

#[test]
fn what_cannot_be_written_is_refused_and_tried_again_by_reload() {
    let mut fixture = Fixture::new(0, "");
    fixture.disk_is_full = true;
    fixture.store_has(4, "[databases]\nshared = host=h\n");
    let refused = "cannot write the pools file p.ini: No space left on device";
    assert_eq!((fixture.names().len(), fixture.said()), (1, (4, true, refused)));
    fixture.disk_is_full = false;
    fixture.command("RELOAD");
    fixture.input(Input::Loaded(config(MAIN)));
    assert_eq!(
        (fixture.names(), fixture.said()),
        (vec!["app".to_owned(), "mine".to_owned(), "shared".to_owned()], (4, false, ""))
    );
}

#[test]
fn pause_on_all_nodes_is_answered_when_all_have_paused() {
    let mut fixture = Fixture::new(0, "");
    fixture.command("PAUSE app FLEET");
    let (_, revision, text) = fixture.asked();
    assert_eq!((revision, text.as_str()), (1, ";; paused \"app\"\n"));
    fixture.input(Input::FleetPoolsChanged(Ok(())));
    let is_pause =
        |command: &Command| matches!(command, Command::Pause { database: Some(name), .. } if name == "app");
    assert_eq!(fixture.harness.told.iter().filter(|(_, command)| is_pause(command)).count(), 2);
    assert_eq!(fixture.paused(), 0, "a transaction runs");
    let request = fixture.harness.told.iter().find_map(|(_, command)| match command {
        Command::Pause { request, .. } => Some(*request),
        _ => None,
    });
    for shard in 0..2 {
        let (request, shard) = (request.unwrap(), messages::ShardId(shard));
        fixture.input(Input::Report(messages::Report::Done { request, shard, count: 0 }));
    }
    assert_eq!((fixture.said(), fixture.paused()), ((1, false, ""), 1));
    let (request, revision) = fixture.harness.fleet_awaited.pop().unwrap();
    assert_eq!((revision, fixture.harness.replies.len()), (1, 0));
    fixture.input(Input::FleetPoolsUsed { request, result: Ok(()) });
    assert_eq!(fixture.harness.tag(), "PAUSE");
    // Once more: it is so already, and others may still be at it.
    fixture.command("pause app fleet");
    assert_eq!(fixture.harness.fleet_awaited.pop().unwrap().1, 1);
    fixture.command("RESUME other FLEET");
    assert_eq!(fixture.harness.error(), ("08P01", "database other is not paused"));
    fixture.command("RESUME app FLEET");
    assert_eq!(fixture.asked(), (1, 2, String::new()));
    fixture.input(Input::FleetPoolsChanged(Ok(())));
    let is_resume =
        |command: &Command| matches!(command, Command::Resume { database: Some(name) } if name == "app");
    assert!(fixture.harness.told.iter().any(|(_, command)| is_resume(command)));
    let (request, _) = fixture.harness.fleet_awaited.pop().unwrap();
    fixture
        .input(Input::FleetPoolsUsed { request, result: Err("not on n-2: fleet_pools is off".to_owned()) });
    assert_eq!(fixture.harness.error(), ("55000", "not on n-2: fleet_pools is off"));
}

#[test]
fn what_is_held_on_all_nodes_is_held_here() {
    let mut fixture = Fixture::new(4, ";; paused all\n;; paused \"late\"\n;; disabled \"app\"\n");
    let told = std::mem::take(&mut fixture.harness.told);
    assert!(told.iter().any(|(_, command)| matches!(command, Command::Pause { database: None, .. })));
    assert!(told.iter().any(|(_, command)| matches!(command, Command::Disable { disabled: true, .. })));
    assert!(!told.iter().any(|(_, command)| matches!(command, Command::Pause { database: Some(_), .. })));
    fixture.store_has(5, ";; paused \"late\"\n[databases]\nlate = host=h\n");
    let told = std::mem::take(&mut fixture.harness.told);
    assert!(told.iter().any(|(_, command)| matches!(command, Command::Resume { database: None })));
    assert!(told.iter().any(|(_, command)| matches!(command, Command::Disable { disabled: false, .. })));
    assert!(told.iter().any(|(_, command)| matches!(command, Command::Pause { database: Some(_), .. })));
}

#[test]
fn the_word_is_one_of_a_fleet_only() {
    let mut harness = Harness::with(1, "[databases]\nfleet = host=h\napp = host=h\n");
    harness.ask("PAUSE fleet");
    assert!(matches!(harness.told[..], [(0, Command::Pause { database: Some(_), .. })]));
    harness.ask("PAUSE app FLEET");
    assert_eq!(harness.error().0, "55000");
    harness.ask("DISABLE FLEET");
    assert_eq!(harness.error(), ("08P01", "no such database: FLEET"));
    harness.ask("PAUSE app now");
    assert_eq!(harness.error().0, "42601");
    let mut harness = Harness::with(1, &MAIN.replace("app = host=h", "fleet = host=h"));
    harness.ask("PAUSE fleet");
    assert!(
        matches!(harness.told[..], [(0, Command::Pause { database: Some(_), .. })]),
        "an entry is meant first"
    );
    for (settings, why) in [
        ("fleet_pools = 0", "the setting fleet_pools is off"),
        ("pools_file =", "the setting pools_file does not name a file to keep them in"),
    ] {
        let mut fixture = Fixture {
            harness: Harness::with(1, &format!("{MAIN}{settings}\n")),
            file: String::new(),
            disk_is_full: false,
        };
        fixture.store_has(3, "[databases]\nshared = host=h\n");
        assert_eq!((fixture.names().len(), fixture.said()), (1, (3, true, why)));
        fixture.command("PAUSE app FLEET");
        assert_eq!(fixture.harness.error(), ("55000", why));
    }
}

#[test]
fn a_name_is_one_line() {
    let mut fixture = Fixture {
        harness: Harness::with(1, &MAIN.replace("app =", "* =")),
        file: OWN.to_owned(),
        disk_is_full: false,
    };
    fixture.store_has(0, "");
    for name in ["x\n[databases]\nevil = host=e", "x\ry", "\u{1b}[1m"] {
        let statement = crate::Statement::HostCommand {
            word: "DISABLE".to_owned(),
            database: name.to_owned(),
            host: "FLEET".to_owned(),
        };
        let role = messages::Role::Admin;
        fixture.input(Input::PanelQuery(crate::PanelQuery { id: 1, role, statement }));
        assert!(fixture.harness.fleet_changes.is_empty(), "{name:?}");
    }
    let mut part = PoolsText::read("p.ini", b"").unwrap();
    let paused = ["a".to_owned(), "x\nevil = host=e".to_owned()].into();
    part.set_holds(&FleetHolds { paused, ..FleetHolds::default() });
    assert_eq!(part.bytes(), b";; paused \"a\"\n");
}

#[test]
fn lines_that_cannot_be_read_are_left_out_and_no_obstacle() {
    let mut fixture = Fixture::new(4, "[databases]\nshared = host=h\noops\n[users]\nlate = new_key=1\n");
    assert_eq!(fixture.names(), ["app", "mine", "shared"]);
    fixture.store_has(5, "[databases]\nshared = host=i\nlate = new_key=1\n");
    assert_eq!((fixture.names().len(), fixture.said().0), (3, 5));
    fixture.ask(PoolChange::Create(spec("late", 3)));
    assert!(matches!(fixture.answer(), Err(PoolError::Exists { .. })), "other nodes may have it");
    fixture.ask(PoolChange::Delete("late".to_owned()));
    assert_eq!(fixture.asked().2, "[databases]\nshared = host=i\n");
}

#[test]
fn a_store_that_has_lost_the_pools_gets_them_back() {
    let mut fixture = Fixture::new(4, "[databases]\nshared = host=h\n");
    fixture.store_has(0, "");
    assert_eq!(fixture.asked(), (0, 4, "[databases]\nshared = host=h\n".to_owned()));
    fixture.input(Input::FleetPoolsChanged(Ok(())));
    assert!(fixture.names().contains(&"shared".to_owned()) && fixture.said().0 == 4);
    // Another node was first, with another text of the same number.
    fixture.store_has(0, "");
    fixture.store_has(4, "[databases]\nother = host=h\n");
    fixture.input(Input::FleetPoolsChanged(Err(FleetPoolsError::Superseded)));
    assert_eq!(fixture.names(), ["app", "mine", "other"]);
    fixture.store_has(2, "[databases]\nrestored = host=h\n");
    assert!(
        fixture.names().contains(&"restored".to_owned())
            && fixture.harness.logged("gone back from revision 4 to 2")
    );
}

#[test]
fn what_is_held_goes_on_in_the_next_process_and_what_was_resumed_here_too() {
    let text = ";; paused all\n;; paused \"app\"\n;; disabled \"mine\"\n[databases]\n";
    let mut old = Fixture::new(4, text);
    for sql in ["RESUME", "ENABLE mine"] {
        old.command(sql);
    }
    assert_eq!(old.said().2, "all is resumed on this node; mine is enabled on this node");
    old.harness.ask("TAKEOVER line");
    let note = old.harness.handed_over.clone().map(|(_, note)| note).unwrap_or_default();
    let mut new = Fixture { harness: Harness::with(2, MAIN), file: old.file.clone(), disk_is_full: false };
    new.harness.control.import(&note);
    new.store_has(4, text);
    let told = std::mem::take(&mut new.harness.told);
    assert!(!told.iter().any(|(_, command)| matches!(
        command,
        Command::Pause { database: None, .. } | Command::Disable { .. }
    )));
    assert!(told.iter().any(|(_, command)| matches!(command, Command::Pause { database: Some(_), .. })));
    new.store_has(5, "");
    assert!(
        new.harness.told.iter().any(|(_, command)| matches!(command, Command::Resume { database: Some(_) }))
    );
}

#[test]
fn what_the_file_says_is_held_is_so_before_the_store_is_read() {
    let file = "; Pools of all nodes of the fleet, revision 4\n;; paused \"app\"\n";
    let mut config = settings::Config::clone(Harness::with(1, MAIN).control.config());
    config = settings::with_pools(&config, "p.ini", file.as_bytes()).unwrap();
    let mut harness = Harness::with_config(1, config);
    harness.control.begin();
    harness.input(Input::Tick);
    assert!(matches!(harness.told[..], [(0, Command::Pause { database: Some(_), .. })]));
}

#[test]
fn a_wait_for_all_nodes_ends_by_resume_by_cancel_and_by_a_shutdown() {
    let mut fixture = Fixture::new(0, "");
    let pause = |fixture: &mut Fixture| {
        fixture.command("PAUSE app FLEET");
        fixture.asked();
        fixture.input(Input::FleetPoolsChanged(Ok(())));
        assert!(fixture.harness.replies.is_empty());
    };
    pause(&mut fixture);
    fixture.store_has(2, "");
    assert_eq!(fixture.harness.error(), ("57014", "cancelled by a RESUME"));
    fixture.harness.replies.clear();
    pause(&mut fixture);
    let (shard, client, client_id) = (messages::ShardId(0), 3, 33);
    fixture.input(Input::Report(messages::Report::ConsoleCancelled { shard, client, client_id }));
    assert_eq!(fixture.harness.error().0, "57014");
    assert!(fixture.harness.fleet_awaited.is_empty());
    // Clients that wait are let go on while the process waits for them to leave.
    fixture.harness.told.clear();
    fixture.harness.signal(crate::Signal::Term);
    fixture.store_has(9, "");
    assert!(
        fixture
            .harness
            .told
            .iter()
            .any(|(_, command)| matches!(command, Command::Resume { database: Some(_) }))
    );
}

#[test]
fn a_pool_of_all_nodes_is_not_changed_by_a_node_that_does_not_share_them() {
    let mut fixture = Fixture::new(4, ";; paused \"shared\"\n[databases]\nshared = host=h\n");
    fixture.ask(PoolChange::Delete("shared".to_owned()));
    assert_eq!(fixture.asked().2, "[databases]\n", "a pool of the name that comes later is not paused");
    fixture.input(Input::FleetPoolsChanged(Err(FleetPoolsError::Failed("no lease".to_owned()))));
    fixture.command("SET fleet_pools = 0");
    fixture.ask(PoolChange::Delete("shared".to_owned()));
    assert!(fixture.answer().unwrap_err().to_string().ends_with("the setting fleet_pools is off"));
    assert!(
        fixture
            .harness
            .told
            .iter()
            .any(|(_, command)| matches!(command, Command::Resume { database: Some(_) })),
        "nothing is held as on all nodes"
    );
}
