//! What nodes use of limits without slots, over a store that answers at once.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use weir_fleet::{
    CallId, Event, ExternalUsage, Node, NodeConfig, NodeId, NodeRecord, Object, ObjectName, Request,
    Revision, SessionId, SharedUsage, UsageFigure, UsageKind, UsageName,
};

const LEASE_US: u64 = 10_000_000;
const STEP_US: u64 = 250_000;
const HOUR_S: u64 = 3_600;
const NOW_S: u64 = 1_000 * HOUR_S + 60;

/// One process, and what it uses.
struct Process {
    node: Node,
    watch: Option<CallId>,
    usage: SharedUsage,
    external: Option<ExternalUsage>,
    is_cut_off: bool,
}

/// Processes, and what their store has.
struct World {
    processes: BTreeMap<String, Process>,
    records: BTreeMap<NodeId, NodeRecord>,
    objects: BTreeMap<ObjectName, (Revision, Vec<u8>)>,
    revision: u64,
    now_us: u64,
    wall_s: u64,
    writes: u32,
}

fn object(node: &str) -> ObjectName {
    ObjectName(vec!["usage".to_owned(), node.to_owned()])
}

fn clients() -> UsageName {
    UsageName { kind: UsageKind::Clients, name: "".into(), period_s: (0, 0) }
}

fn queries() -> UsageName {
    let begins_s = NOW_S / HOUR_S * HOUR_S;
    UsageName {
        kind: UsageKind::Quota,
        name: "user a queries/hour".into(),
        period_s: (begins_s, begins_s + HOUR_S),
    }
}

impl World {
    fn new(names: &[&str]) -> World {
        let mut world = World {
            processes: BTreeMap::new(),
            records: BTreeMap::new(),
            objects: BTreeMap::new(),
            revision: 0,
            now_us: 1_000,
            wall_s: NOW_S,
            writes: 0,
        };
        for (number, name) in names.iter().enumerate() {
            world.start(name, number as u64 + 1);
        }
        world.run(4);
        world
    }

    fn start(&mut self, name: &str, session: u64) {
        let config = NodeConfig {
            id: name.into(),
            address: "h:1".to_owned(),
            version: "v".to_owned(),
            started_s: 1,
            nodes: 3,
            min_servers: 1,
        };
        let node = Node::new(config, SessionId(session), self.now_us);
        let usage = SharedUsage { clients: true, quotas: true, ..SharedUsage::default() };
        let process = Process { node, watch: None, usage, external: None, is_cut_off: false };
        self.processes.insert(name.to_owned(), process);
    }

    /// The process is gone, and its lease is over.
    fn kill(&mut self, name: &str) {
        self.processes.remove(name);
        self.records.remove(name);
        self.tell(|watch| Event::NodeGone { watch, id: name.into() });
    }

    fn uses(&mut self, name: &str, of: UsageName, amount: u64, limit: u64) {
        let figures = &mut self.processes.get_mut(name).unwrap().usage.figures;
        figures.retain(|figure| figure.name != of);
        figures.push(UsageFigure { name: of, amount, limit });
    }

    fn external(&self, name: &str, of: &UsageName) -> u64 {
        let external = self.processes[name].external.as_ref();
        external.and_then(|external| external.get(of)).copied().unwrap_or_default()
    }

    fn text(&self, node: &str) -> Option<String> {
        self.objects.get(&object(node)).map(|(_, contents)| String::from_utf8(contents.clone()).unwrap())
    }

    fn tell(&mut self, event: impl Fn(CallId) -> Event) {
        let now_us = self.now_us;
        for process in self.processes.values_mut().filter(|process| !process.is_cut_off) {
            if let Some(watch) = process.watch {
                process.node.handle(event(watch), now_us);
            }
        }
    }

    fn put(&mut self, name: ObjectName, contents: Option<Vec<u8>>) -> Revision {
        self.revision += 1;
        let revision = Revision(self.revision);
        match &contents {
            Some(contents) => drop(self.objects.insert(name.clone(), (revision, contents.clone()))),
            None => drop(self.objects.remove(&name)),
        }
        self.tell(|watch| Event::Changed {
            watch,
            object: Object { name: name.clone(), revision, contents: contents.clone() },
        });
        revision
    }

    fn answer(&mut self, name: &str, request: Request) -> Event {
        match request {
            Request::Join { call, record } | Request::Renew { call, record } => {
                self.records.insert(name.into(), record.clone());
                self.tell(|watch| Event::NodeSeen { watch, id: name.into(), record: record.clone() });
                Event::Renewed { call, lease_us: LEASE_US }
            }
            Request::Leave { call, .. } => Event::Left { call },
            Request::Watch { call } => {
                self.processes.get_mut(name).unwrap().watch = Some(call);
                let nodes = self.records.clone().into_iter().collect();
                let object = |(name, (revision, contents)): (&ObjectName, &(Revision, Vec<u8>))| Object {
                    name: name.clone(),
                    revision: *revision,
                    contents: Some(contents.clone()),
                };
                Event::Snapshot {
                    call,
                    revision: Revision(self.revision),
                    nodes,
                    objects: self.objects.iter().map(object).collect(),
                }
            }
            Request::Swap { call, name: of, expected, contents } => {
                let found = self.objects.get(&of).map_or(Revision::ABSENT, |(revision, _)| *revision);
                if found != expected {
                    return Event::Conflict { call };
                }
                self.writes += u32::from(of.0[0] == "usage");
                Event::Swapped { call, revision: self.put(of, contents) }
            }
            Request::ListBackends { call, .. } => Event::Backends { call, budgets: Vec::new() },
        }
    }

    /// So many quarters of a second.
    fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            self.now_us += STEP_US;
            for name in self.processes.keys().cloned().collect::<Vec<_>>() {
                let (now_us, wall_s) = (self.now_us, self.wall_s);
                let process = self.processes.get_mut(&name).unwrap();
                process.node.set_shared_usage(SharedUsage { wall_s, ..process.usage.clone() }, now_us);
                while let Some(request) = self.processes.get_mut(&name).unwrap().node.poll(now_us) {
                    let is_cut_off = self.processes[&name].is_cut_off;
                    if !is_cut_off {
                        let answer = self.answer(&name, request);
                        self.processes.get_mut(&name).unwrap().node.handle(answer, now_us);
                    }
                }
                let process = self.processes.get_mut(&name).unwrap();
                if let Some(external) = process.node.next_external_usage(now_us) {
                    process.external = Some(external);
                }
            }
        }
    }
}

#[test]
fn each_node_learns_what_the_others_use_and_not_its_own() {
    let mut world = World::new(&["a", "b", "c"]);
    for (name, amount) in [("a", 3), ("b", 4), ("c", 5)] {
        world.uses(name, clients(), amount, 10);
        world.uses(name, queries(), 10 * amount, 1_000);
    }
    world.run(8);
    assert_eq!(["a", "b", "c"].map(|name| world.external(name, &clients())), [9, 8, 7]);
    assert_eq!(["a", "b", "c"].map(|name| world.external(name, &queries())), [90, 80, 70]);
    world.uses("a", clients(), 0, 10);
    world.run(8);
    assert_eq!(["a", "b", "c"].map(|name| world.external(name, &clients())), [9, 5, 4]);
}

#[test]
fn what_matters_is_written_once_a_second_and_the_rest_every_ten() {
    let mut world = World::new(&["a", "b"]);
    world.uses("a", clients(), 1, 1_000);
    world.run(60);
    assert_eq!(world.writes, 1, "nothing is written at rest");
    for clients_now in 0..40 {
        world.uses("a", clients(), 100 + clients_now % 5, 1_000);
        world.run(1);
    }
    assert!((2..=3).contains(&world.writes), "{} writes of changes below a hundredth", world.writes);
    let before = world.writes;
    for clients_now in 0..40 {
        world.uses("a", clients(), 100 + 10 * clients_now, 1_000);
        world.run(1);
    }
    assert!((8..=12).contains(&(world.writes - before)), "{} writes in ten seconds", world.writes - before);
    world.uses("b", clients(), 800, 1_000);
    world.run(12);
    let before = world.writes;
    world.uses("a", clients(), 101, 1_000);
    world.run(8);
    world.uses("a", clients(), 100, 1_000);
    world.run(8);
    assert_eq!(
        (world.writes - before, world.external("b", &clients())),
        (2, 100),
        "near the limit each counts"
    );
}

#[test]
fn clients_of_a_node_that_is_gone_do_not_count_and_its_consumption_does() {
    let mut world = World::new(&["a", "b"]);
    world.uses("a", clients(), 3, 10);
    world.uses("a", queries(), 7, 10);
    world.run(8);
    assert_eq!((world.external("b", &clients()), world.external("b", &queries())), (3, 7));
    world.kill("a");
    world.run(8);
    assert_eq!((world.external("b", &clients()), world.external("b", &queries())), (0, 7));
    // Started again, without what it has used: nothing of it is forgotten, and its clients are none.
    world.start("a", 9);
    world.uses("a", clients(), 1, 10);
    world.uses("a", queries(), 2, 10);
    world.run(8);
    assert_eq!((world.external("b", &clients()), world.external("b", &queries())), (1, 7));
    assert_eq!(world.external("a", &queries()), 0, "its own is not that of others");
    world.kill("a");
    world.run(4);
    assert!(world.text("a").is_some());
    world.wall_s += 2 * HOUR_S;
    world.run(8);
    assert_eq!(world.text("a"), None, "its period is over");
    assert_eq!(world.external("b", &queries()), 0);
}

#[test]
fn a_session_that_is_over_does_not_count_before_the_next_has_written() {
    let mut world = World::new(&["a", "b"]);
    world.uses("a", clients(), 3, 10);
    world.run(8);
    let record = NodeRecord { session: SessionId(77), ..world.records["a"].clone() };
    world.records.insert("a".into(), record.clone());
    world.tell(|watch| Event::NodeSeen { watch, id: "a".into(), record: record.clone() });
    world.run(1);
    assert_eq!(world.external("b", &clients()), 0);
    world.kill("a");
    world.start("a", 9);
    world.uses("a", clients(), 3, 10);
    world.run(8);
    assert_eq!(world.external("b", &clients()), 3, "the same figure, written by the session that runs");
}

#[test]
fn a_node_without_a_lease_judges_by_its_own_clients_and_by_what_was_consumed() {
    let mut world = World::new(&["a", "b"]);
    world.uses("a", clients(), 3, 10);
    world.uses("a", queries(), 7, 10);
    world.run(8);
    world.processes.get_mut("b").unwrap().is_cut_off = true;
    world.run(16);
    assert_eq!(world.external("b", &clients()), 3, "as seen last, while the lease lasts");
    world.run(40);
    assert_eq!((world.external("b", &clients()), world.external("b", &queries())), (0, 7));
}

#[test]
fn what_is_not_shared_is_neither_written_nor_counted() {
    let mut world = World::new(&["a", "b"]);
    world.uses("a", clients(), 3, 10);
    world.uses("a", queries(), 7, 10);
    world.run(8);
    world.processes.get_mut("b").unwrap().usage.clients = false;
    world.run(2);
    assert_eq!((world.external("b", &clients()), world.external("b", &queries())), (0, 7));
    world.processes.get_mut("a").unwrap().usage.quotas = false;
    world.run(48);
    assert!(world.text("a").is_some_and(|text| text.contains("clients 3") && !text.contains("quota")));
    world.processes.get_mut("a").unwrap().usage.clients = false;
    world.run(48);
    assert_eq!(world.text("a"), None);
    assert_eq!(world.external("b", &queries()), 0);
}

#[test]
fn what_is_foreign_is_left_alone_and_bounded() {
    let mut world = World::new(&["a", "b"]);
    world.put(object("a"), Some(b"weir-fleet 2\nwhatever\n".to_vec()));
    world.uses("a", clients(), 3, 10);
    world.run(12);
    assert_eq!(world.text("a").as_deref(), Some("weir-fleet 2\nwhatever\n"));
    assert!(
        world.processes["b"].node.status(world.now_us).foreign.is_some_and(|what| what.contains("usage/a"))
    );
    world.put(object("a"), None);
    world.run(12);
    assert_eq!(world.external("b", &clients()), 3);
    let begins_s = queries().period_s.0;
    let lines: String =
        (0..4_000).map(|line| format!("quota 1 {begins_s} {} {line}\n", begins_s + HOUR_S)).collect();
    for node in 0..1_100 {
        let text = format!(
            "weir-fleet 1\nsession 0000000000000001\n{lines}quota 1 {begins_s} {} x{node}\n",
            begins_s + HOUR_S
        );
        world.put(object(&format!("x{node}")), Some(text.into_bytes()));
    }
    world.run(4);
    let external = world.processes["b"].external.as_ref().unwrap();
    assert!(external.len() <= 4_000 + 33, "{}", external.len());
    assert_eq!(world.external("b", &clients()), 3);
    world.processes.get_mut("a").unwrap().is_cut_off = true;
    world.put(
        object("a"),
        Some(b"weir-fleet 1\nsession 0000000000000001\nclients 18446744073709551615 0 0 \n".to_vec()),
    );
    world.run(1);
    assert_eq!(world.external("b", &clients()), u64::MAX);
}

#[test]
fn what_has_no_room_is_what_is_used_least() {
    let mut world = World::new(&["a", "b"]);
    let user = |number: u64| UsageName {
        kind: UsageKind::User,
        name: format!("u{number}").into(),
        period_s: (0, 0),
    };
    for number in 0..5_000 {
        world.uses("a", user(number), 1 + number % 100, 100);
    }
    let long = UsageName { name: "x".repeat(2_000).into(), ..user(0) };
    world.uses("a", long, 100, 100);
    world.run(8);
    let text = world.text("a").unwrap();
    assert_eq!(text.lines().count(), 2 + 4_096);
    assert_eq!(world.external("b", &user(99)), 100);
    assert_eq!(world.external("b", &user(0)), 0);
    assert_eq!(world.processes["a"].node.status(world.now_us).unshared, 5_001 - 4_096);
}
