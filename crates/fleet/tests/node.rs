//! Single nodes and pairs of them against a store that answers at once.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use weir_fleet::{
    Allowance, Backend, BudgetKind, BudgetName, CallId, DrainError, DrainOrder, Event, FleetPools, Node,
    NodeConfig, NodeRecord, NodeState, Object, ObjectName, PeerState, PoolsChange, PoolsError, PoolsInUse,
    PoolsWait, Request, Revision, SessionId, SharedUsage, Usage,
};

const LEASE_US: u64 = 10_000_000;
const SECOND: u64 = 1_000_000;

fn pool(at: usize) -> BudgetName {
    BudgetName {
        kind: BudgetKind::Pool,
        database: format!("d{at}").into(),
        user: "u".into(),
        host: "".into(),
    }
}

fn slots_object(name: &BudgetName) -> ObjectName {
    ObjectName(["slots", "pool", &name.database, &name.user, &name.host].map(str::to_owned).to_vec())
}

fn config(id: &str, nodes: u32) -> NodeConfig {
    NodeConfig {
        id: id.into(),
        address: "h:1".to_owned(),
        version: "v".to_owned(),
        started_s: 1,
        nodes,
        min_servers: 1,
    }
}

/// One node, and the store that it talks to, which other entries can be put into.
struct Bench {
    node: Node,
    now_us: u64,
    records: BTreeMap<String, NodeRecord>,
    objects: BTreeMap<ObjectName, (Revision, Vec<u8>)>,
    revision: u64,
    watch: Option<CallId>,
    requests: Vec<Request>,
    /// Requests are answered.
    is_up: bool,
    lists: BTreeMap<BudgetName, Vec<Backend>>,
    own: Vec<Backend>,
    /// What the last question left out.
    except: Vec<BudgetName>,
}

impl Bench {
    fn new(node: Node) -> Bench {
        Bench {
            node,
            now_us: 1_000,
            records: BTreeMap::new(),
            objects: BTreeMap::new(),
            revision: 0,
            watch: None,
            requests: Vec::new(),
            is_up: true,
            lists: BTreeMap::new(),
            own: Vec::new(),
            except: Vec::new(),
        }
    }

    fn with_budget(limit: u32, nodes: u32) -> Bench {
        let mut node = Node::new(config("b", nodes), SessionId(7), 1_000);
        node.set_budgets(&[(pool(0), limit)], 1_000);
        let mut bench = Bench::new(node);
        bench.settle();
        bench
    }

    /// Answers until the node asks for nothing more.
    fn settle(&mut self) {
        loop {
            while let Some(question) = self.node.backends_question(self.now_us) {
                self.except = question.except;
                self.node.set_own_backends(question.audit, &self.own, self.now_us);
            }
            let Some(request) = self.node.poll(self.now_us) else { return };
            self.requests.push(request.clone());
            if self.is_up {
                self.answer(request);
            }
        }
    }

    fn answer(&mut self, request: Request) {
        let id = "b".to_owned();
        let event = match request {
            Request::Join { call, record } => match self.records.get(&id) {
                Some(by) => Event::IdTaken { call, by: by.clone() },
                None => {
                    self.records.insert(id, record);
                    Event::Renewed { call, lease_us: LEASE_US }
                }
            },
            Request::Renew { call, record } => {
                self.records.insert(id, record);
                Event::Renewed { call, lease_us: LEASE_US }
            }
            Request::Leave { call, session } => {
                self.records.retain(|_, record| record.session != session);
                Event::Left { call }
            }
            Request::Watch { call } => {
                self.watch = Some(call);
                let nodes =
                    self.records.iter().map(|(id, record)| (id.as_str().into(), record.clone())).collect();
                let objects = self.objects.iter().map(|(name, (revision, contents))| Object {
                    name: name.clone(),
                    revision: *revision,
                    contents: Some(contents.clone()),
                });
                Event::Snapshot { call, revision: Revision(self.revision), nodes, objects: objects.collect() }
            }
            Request::Swap { call, name, expected, contents } => {
                let present = self.objects.get(&name).map_or(Revision::ABSENT, |(revision, _)| *revision);
                if present == expected {
                    let revision = self.write(name, contents);
                    Event::Swapped { call, revision }
                } else {
                    Event::Conflict { call }
                }
            }
            Request::ListBackends { call, budgets } => {
                let lists = budgets
                    .into_iter()
                    .filter_map(|name| Some((name.clone(), self.lists.get(&name)?.clone())));
                Event::Backends { call, budgets: lists.collect() }
            }
        };
        self.node.handle(event, self.now_us);
    }

    fn write(&mut self, name: ObjectName, contents: Option<Vec<u8>>) -> Revision {
        self.revision += 1;
        let revision = Revision(self.revision);
        match &contents {
            Some(contents) => drop(self.objects.insert(name.clone(), (revision, contents.clone()))),
            None => drop(self.objects.remove(&name)),
        }
        if let Some(watch) = self.watch {
            let object = Object { name, revision, contents };
            self.node.handle(Event::Changed { watch, object }, self.now_us);
        }
        revision
    }

    /// Another node writes.
    fn put(&mut self, name: ObjectName, text: &str) {
        self.write(name, Some(text.as_bytes().to_vec()));
        self.settle();
    }

    fn text(&self) -> Option<String> {
        let (_, contents) = self.objects.get(&slots_object(&pool(0)))?;
        Some(String::from_utf8(contents.clone()).unwrap())
    }

    /// Who holds floors.
    fn floors(&self) -> String {
        let contents = &self.objects[&ObjectName(vec!["floors".to_owned()])].1;
        String::from_utf8(contents.clone()).unwrap().replace("weir-fleet 1\n", "")
    }

    /// Time passes, with all deadlines in between.
    fn pass(&mut self, us: u64) {
        let end_us = self.now_us + us;
        while let Some(due_us) = self.node.deadline_us().filter(|due_us| *due_us <= end_us) {
            self.now_us = due_us.max(self.now_us + 1);
            self.settle();
        }
        self.now_us = end_us.max(self.now_us);
        self.settle();
    }

    fn allowance(&self) -> Allowance {
        self.node.allowance(&pool(0))
    }

    fn use_slots(&mut self, open: u32, waiting: u32) {
        let version = self.allowance().version;
        self.use_slots_as_of(open, waiting, version);
    }

    fn use_slots_as_of(&mut self, open: u32, waiting: u32, version: u64) {
        self.node.set_usage(&pool(0), Usage { open, in_use: open, waiting, version }, self.now_us);
        self.settle();
    }

    fn swaps(&self) -> usize {
        self.requests.iter().filter(|request| matches!(request, Request::Swap { .. })).count()
    }

    fn see(&mut self, id: &str, session: u64) {
        let record = NodeRecord {
            session: SessionId(session),
            address: String::new(),
            version: String::new(),
            started_s: 0,
            clients: 0,
            servers: 0,
            is_draining: true,
            pools: PoolsInUse::default(),
        };
        self.records.insert(id.to_owned(), record.clone());
        let watch = self.watch.unwrap();
        self.node.handle(Event::NodeSeen { watch, id: id.into(), record }, self.now_us);
        self.settle();
    }
}

#[test]
fn slots_are_taken_when_clients_wait_and_come_back_when_unused() {
    let mut bench = Bench::with_budget(10, 2);
    assert_eq!(bench.allowance().slots, 1);
    assert!(bench.node.sure_until_us() > 5 * SECOND);
    bench.use_slots(1, 4);
    assert_eq!(bench.allowance().slots, 5);
    assert_eq!(bench.text().unwrap(), "weir-fleet 1\nb 0000000000000007 4 4 8\n");
    bench.use_slots(2, 0);
    bench.pass(900_000);
    assert_eq!(bench.allowance().slots, 5);
    let before = bench.allowance().version;
    bench.pass(200_000);
    assert_eq!(bench.allowance().slots, 2);
    // A usage that was read before the allowance fell says nothing.
    bench.use_slots_as_of(2, 0, before);
    assert!(bench.text().unwrap().contains(" 4 4 8"));
    bench.use_slots(2, 0);
    assert!(bench.text().unwrap().contains(" 1 1 8"));
    bench.use_slots(0, 0);
    bench.pass(2 * SECOND);
    bench.use_slots(0, 0);
    assert_eq!(bench.text(), None);
    assert_eq!(bench.allowance().slots, 1);
}

#[test]
fn what_others_want_more_is_given_as_far_as_connections_are_closed() {
    let mut bench = Bench::with_budget(10, 2);
    bench.see("a", 3);
    bench.use_slots(0, 20);
    bench.use_slots(9, 5);
    assert_eq!(bench.allowance().slots, 9);
    bench.put(slots_object(&pool(0)), "weir-fleet 1\na 0000000000000003 0 8 8\nb 0000000000000007 8 8 8\n");
    assert_eq!(bench.allowance().slots, 5);
    assert!(bench.text().unwrap().contains("b 0000000000000007 8 "));
    bench.pass(SECOND);
    bench.use_slots(7, 5);
    assert!(bench.text().unwrap().contains("b 0000000000000007 6 "), "{:?}", bench.text());
    bench.pass(SECOND);
    bench.use_slots(5, 5);
    assert!(bench.text().unwrap().contains("b 0000000000000007 4 "), "{:?}", bench.text());
    let writes = bench.swaps();
    bench.pass(5 * SECOND);
    assert_eq!(bench.swaps(), writes, "the division is reached");
}

#[test]
fn a_node_has_a_number_once_it_has_joined_and_the_process_that_goes_on_as_it_has_the_same() {
    let mut bench = Bench::new(Node::new(config("b", 2), SessionId(7), 1_000));
    assert_eq!((bench.node.peer_number(1_000), bench.node.next_peer_numbers(1_000)), (None, None));
    bench.settle();
    let numbers = bench.node.next_peer_numbers(bench.now_us).unwrap();
    let address = numbers.nodes.iter().map(|node| node.address.as_deref()).collect::<Vec<_>>();
    assert_eq!((numbers.own, address), (Some(1), vec![Some("h:1")]));
    bench.see("a", 3);
    bench.put(
        ObjectName(vec!["peers".to_owned()]),
        "weir-fleet 1\n1 b 0000000000000007\n2 a 0000000000000003\n",
    );
    assert_eq!(bench.node.next_peer_numbers(bench.now_us).unwrap().nodes.len(), 2);
    bench.node = Node::resume(config("b", 2), bench.node.hand_over(), bench.now_us);
    assert_eq!(bench.node.peer_number(bench.now_us), None, "it has not read the store");
    let swaps = bench.swaps();
    bench.settle();
    assert_eq!((bench.node.peer_number(bench.now_us), bench.swaps()), (Some(1), swaps), "nothing is written");
}

#[test]
fn nothing_is_written_at_rest() {
    let mut node = Node::new(config("b", 10), SessionId(7), 1_000);
    let budgets: Vec<_> = (0..1_000).map(|at| (pool(at), 100)).collect();
    node.set_budgets(&budgets, 1_000);
    let mut bench = Bench::new(node);
    bench.settle();
    for (name, _) in &budgets {
        let version = bench.node.allowance(name).version;
        bench.node.set_usage(name, Usage { open: 3, in_use: 3, waiting: 0, version }, bench.now_us);
    }
    bench.settle();
    assert_eq!(bench.swaps(), 1_002, "of each budget, of the node's number and of who has floors");
    bench.requests.clear();
    bench.pass(60 * SECOND);
    assert_eq!(bench.swaps(), 0);
    assert!(bench.requests.len() < 25, "{} requests", bench.requests.len());
}

#[test]
fn without_an_answer_a_swap_is_neither_used_nor_forgotten() {
    let mut bench = Bench::with_budget(10, 2);
    bench.is_up = false;
    bench.use_slots(1, 4);
    let Some(Request::Swap { call, name, contents, .. }) = bench.requests.last().cloned() else {
        panic!("no swap")
    };
    assert_eq!(bench.allowance().slots, 1);
    bench.node.handle(Event::Unanswered { call, why: String::new() }, bench.now_us);
    bench.settle();
    assert_eq!(bench.allowance().slots, 1);
    // It was carried out after all.
    bench.is_up = true;
    bench.write(name, contents);
    bench.settle();
    assert_eq!(bench.allowance().slots, 5);
}

#[test]
fn a_lost_lease_ends_the_session_and_its_slots_are_taken_over_by_a_swap() {
    let mut bench = Bench::with_budget(10, 2);
    bench.use_slots(1, 4);
    bench.use_slots(5, 0);
    let until_us = bench.allowance().until_us;
    bench.is_up = false;
    bench.pass(until_us - bench.now_us);
    assert_eq!(bench.allowance().slots, 1);
    assert!(matches!(bench.node.status(bench.now_us).state, NodeState::Alone { .. }));
    let Some(Request::Join { call, record }) = bench.requests.last().cloned() else { panic!("no join") };
    assert_ne!(record.session, SessionId(7));
    // The store still has the record of the former session: the node removes it.
    bench.is_up = true;
    bench.answer(Request::Join { call, record: record.clone() });
    bench.settle();
    assert!(
        bench.requests.iter().any(|request| matches!(request, Request::Leave { session: SessionId(7), .. }))
    );
    assert_eq!(bench.allowance().slots, 5);
    assert_eq!(bench.text().unwrap(), format!("weir-fleet 1\nb {:016x} 4 4 8\n", record.session.0));
}

#[test]
fn a_request_to_join_that_was_not_answered_is_not_made_again_with_its_session() {
    let mut bench = Bench::new(Node::new(config("b", 2), SessionId(7), 1_000));
    bench.is_up = false;
    bench.settle();
    let Some(Request::Join { call, record: first }) = bench.requests.pop() else { panic!("no join") };
    bench.node.handle(Event::Unanswered { call, why: "late".to_owned() }, bench.now_us);
    bench.pass(SECOND);
    let Some(Request::Join { call, record: second }) = bench.requests.pop() else { panic!("no join") };
    assert_ne!(first.session, second.session);
    // The first one was carried out after all: its record is removed.
    bench.records.insert("b".to_owned(), first.clone());
    bench.is_up = true;
    bench.answer(Request::Join { call, record: second.clone() });
    bench.settle();
    let is_removal =
        |request: &Request| matches!(request, Request::Leave { session, .. } if *session == first.session);
    assert!(bench.requests.iter().any(is_removal));
    assert_eq!(bench.records["b"].session, second.session);
    assert_eq!(bench.node.status(bench.now_us).state, NodeState::Joined { is_watching: true });
}

#[test]
fn another_process_with_the_id_leaves_the_floor() {
    let mut node = Node::new(config("b", 2), SessionId(7), 1_000);
    node.set_budgets(&[(pool(0), 10)], 1_000);
    let mut bench = Bench::new(node);
    let other = Node::new(config("b", 2), SessionId(8), 1_000).poll(1_000);
    let Some(Request::Join { record, .. }) = other else { panic!("no join") };
    bench.records.insert("b".to_owned(), record);
    bench.settle();
    assert!(matches!(bench.node.status(bench.now_us).state, NodeState::IdTaken { .. }));
    bench.pass(SECOND);
    assert_eq!(bench.allowance().slots, 1);
    bench.use_slots(1, 4);
    assert_eq!(bench.allowance().slots, 1);
    bench.records.clear();
    bench.pass(SECOND);
    assert_eq!(bench.node.status(bench.now_us).state, NodeState::Joined { is_watching: true });
    assert_eq!(bench.allowance().slots, 5);
}

#[test]
fn foreign_data_leaves_the_floor_and_is_shown() {
    let mut bench = Bench::with_budget(10, 2);
    bench.use_slots(1, 4);
    bench.put(slots_object(&pool(0)), "weir-fleet 9\n");
    assert_eq!(bench.allowance().slots, 1);
    let status = bench.node.status(bench.now_us);
    assert!(status.foreign.unwrap().contains("weir-fleet 9"));
    assert!(status.budgets[0].foreign.is_some());
    assert!(bench.text().unwrap().contains("weir-fleet 9"), "it is not overwritten");
}

#[test]
fn the_smallest_shared_part_counts() {
    let mut bench = Bench::with_budget(10, 2);
    bench.see("a", 3);
    bench.put(slots_object(&pool(0)), "weir-fleet 1\na 0000000000000003 1 1 3\n");
    bench.use_slots(1, 8);
    assert_eq!(bench.allowance().slots, 3);
    let status = bench.node.status(bench.now_us);
    assert_eq!((status.budgets[0].shared, status.budgets[0].leased), (3, 3));
}

#[test]
fn orphans_are_kept_for_backends_that_no_live_node_has() {
    // Three that are unknown, of which the floor of the node that is gone covers one, if it has floors: else another process may begin in its place, with its own.
    keeps_orphans(true, 2);
    keeps_orphans(false, 3);
}

fn keeps_orphans(has_floors: bool, kept: u32) {
    let mut bench = Bench::with_budget(10, 2);
    if has_floors {
        bench.put(object("floors"), "weir-fleet 1\na 0000000000000003\nb 0000000000000007\n");
    }
    let backends =
        |pids: &[u32]| pids.iter().map(|pid| Backend { server: "s".into(), pid: *pid }).collect::<Vec<_>>();
    bench.own = backends(&[1]);
    bench.lists.insert(pool(0), backends(&[1, 2, 3, 4]));
    bench.see("a", 3);
    bench.put(slots_object(&pool(0)), "weir-fleet 1\na 0000000000000003 6 6 8\n");
    let watch = bench.watch.unwrap();
    bench.records.remove("a");
    bench.node.handle(Event::NodeGone { watch, id: "a".into() }, bench.now_us);
    bench.settle();
    bench.use_slots(1, 0);
    let status = bench.node.status(bench.now_us);
    assert_eq!(status.budgets[0].orphaned, 6);
    assert_eq!(status.nodes.iter().find(|node| &*node.id == "a").unwrap().state, PeerState::Gone);
    bench.pass(2 * SECOND);
    assert_eq!(bench.text().unwrap(), format!("weir-fleet 1\na 0000000000000003 {kept} 6 8\n"));
    bench.lists.insert(pool(0), backends(&[1]));
    bench.pass(20 * SECOND);
    assert_eq!(bench.text(), None);
}

#[test]
fn a_takeover_goes_on_with_the_session_after_a_swap() {
    let mut bench = Bench::with_budget(10, 2);
    bench.use_slots(1, 4);
    bench.use_slots(5, 0);
    let revision = bench.objects[&slots_object(&pool(0))].0;
    let mut node = Node::resume(config("b", 2), bench.node.hand_over(), bench.now_us);
    node.set_budgets(&[(pool(0), 10)], bench.now_us);
    assert_eq!(node.allowance(&pool(0)).slots, 1);
    bench.node = node;
    bench.settle();
    assert_eq!(bench.allowance().slots, 5);
    assert!(bench.text().unwrap().starts_with("weir-fleet 1\nb 0000000000000007 4 "));
    assert!(bench.objects[&slots_object(&pool(0))].0 > revision, "no swap of the former process can succeed");
    assert!(!bench.requests.iter().any(|request| matches!(request, Request::Leave { .. })));
}

#[test]
fn what_may_not_be_covered_is_left_out_of_the_report() {
    let mut bench = Bench::with_budget(10, 2);
    bench.use_slots(1, 4);
    bench.use_slots(5, 0);
    bench.is_up = false;
    bench.pass(LEASE_US);
    bench.records.clear();
    // The entry has been lowered by a reclaim.
    let watch = bench.watch.take().unwrap();
    bench.write(slots_object(&pool(0)), Some(b"weir-fleet 1\nb 0000000000000007 1 0 8\n".to_vec()));
    bench.write(
        ObjectName(vec!["audit".to_owned()]),
        Some(b"weir-fleet 1\naudit 4 by a 0000000000000003\n".to_vec()),
    );
    let Some(Request::Join { call, record }) = bench.requests.last().cloned() else { panic!("no join") };
    bench.is_up = true;
    bench.node.handle(Event::WatchLost { watch, why: String::new() }, bench.now_us);
    bench.answer(Request::Join { call, record });
    bench.settle();
    bench.pass(SECOND);
    assert_eq!(bench.except, [pool(0)]);
}

#[test]
fn a_node_that_leaves_waits_for_its_connections() {
    let mut bench = Bench::with_budget(10, 2);
    bench.use_slots(1, 4);
    bench.use_slots(5, 0);
    bench.node.leave(bench.now_us);
    bench.settle();
    assert_eq!(bench.node.status(bench.now_us).state, NodeState::Leaving);
    assert!(bench.text().is_some());
    bench.pass(SECOND);
    bench.use_slots(0, 0);
    assert_eq!(bench.text(), None);
    assert_eq!(bench.node.status(bench.now_us).state, NodeState::Leaving, "floors could still be used");
    assert_eq!((bench.allowance().slots, bench.floors()), (0, "b 0000000000000007\n".to_owned()));
    bench.use_slots(0, 0);
    assert_eq!((bench.node.status(bench.now_us).state, bench.floors()), (NodeState::Left, String::new()));
    assert!(bench.records.is_empty());
}

#[test]
fn a_late_watch_does_not_bring_back_what_is_known_to_be_removed() {
    let mut bench = Bench::with_budget(10, 2);
    // The watch shows nothing for a while.
    let watch = bench.watch.take().unwrap();
    bench.use_slots(1, 4);
    assert_eq!(bench.allowance().slots, 5);
    let contents = bench.objects[&slots_object(&pool(0))].1.clone();
    bench.node.set_budgets(&[], bench.now_us);
    bench.use_slots(0, 0);
    bench.pass(SECOND);
    assert_eq!(bench.text(), None);
    bench.node.set_budgets(&[(pool(0), 10)], bench.now_us);
    let object = Object { name: slots_object(&pool(0)), revision: Revision(1), contents: Some(contents) };
    bench.node.handle(Event::Changed { watch, object }, bench.now_us);
    bench.settle();
    assert_eq!(bench.allowance().slots, 1);
}

#[test]
fn a_floor_that_was_lower_for_a_while_covers_what_it_covered() {
    let mut bench = Bench::with_budget(10, 2);
    bench.use_slots(1, 0);
    bench.node.set_budgets(&[(pool(0), 0)], bench.now_us);
    bench.use_slots(1, 0);
    bench.put(ObjectName(vec!["audit".to_owned()]), "weir-fleet 1\naudit 4 by a 0000000000000003\n");
    assert_eq!(bench.except, [pool(0)]);
    bench.node.set_budgets(&[(pool(0), 10)], bench.now_us);
    bench.put(ObjectName(vec!["audit".to_owned()]), "weir-fleet 1\naudit 5 by a 0000000000000003\n");
    assert_eq!(bench.except, []);
}

#[test]
fn nodes_take_turns_where_there_is_not_a_slot_for_each() {
    // Three nodes and a limit of two: no floors.
    let mut bench = Bench::with_budget(2, 3);
    ["a", "c"].into_iter().zip([3, 4]).for_each(|(id, session)| bench.see(id, session));
    bench.use_slots(0, 5);
    let others = |turn: &str, a: u32, b: u32, c: u32| {
        format!(
            "weir-fleet 1\n{turn}a 0000000000000003 {a} 2 2\nb 0000000000000007 {b} 2 2\nc 0000000000000004 {c} 2 2\n"
        )
    };
    bench.put(slots_object(&pool(0)), &others("", 1, 1, 0));
    bench.use_slots(1, 4);
    bench.pass(5 * SECOND);
    assert_eq!(bench.text(), Some(others("", 1, 1, 0)), "the first is to pass its turn first");
    bench.put(slots_object(&pool(0)), &others("turn a\n", 0, 1, 1));
    bench.pass(900_000);
    assert_eq!(bench.allowance().slots, 1);
    bench.pass(200_000);
    assert_eq!(bench.allowance().slots, 0);
    bench.use_slots(0, 5);
    assert_eq!(bench.text(), Some(others("turn b\n", 0, 0, 1)));
    bench.pass(5 * SECOND);
    assert_eq!(bench.allowance().slots, 0, "it is the last now");
    // A slot for each, once one wants none.
    bench.put(
        slots_object(&pool(0)),
        &others("turn b\n", 1, 0, 1).replace("c 0000000000000004 1 2", "c 0000000000000004 0 0"),
    );
    assert_eq!(bench.allowance().slots, 1);
}

fn drain_object(node: &str) -> ObjectName {
    ObjectName(vec!["drain".to_owned(), node.to_owned()])
}

/// How often an order was written, and the last time.
fn orders(bench: &Bench) -> (usize, CallId) {
    let order = |request: &Request| match request {
        Request::Swap { call, name, .. } if name.0[0] == "drain" => Some(*call),
        _ => None,
    };
    let calls: Vec<CallId> = bench.requests.iter().filter_map(order).collect();
    (calls.len(), *calls.last().expect("an order"))
}

#[test]
fn an_order_to_drain_another_node_is_for_its_present_session() {
    let mut bench = Bench::with_budget(10, 2);
    bench.see("a", 3);
    let order = DrainOrder::AllClients;
    bench.node.order_drain(1, "a".into(), order, bench.now_us);
    bench.settle();
    assert_eq!(bench.node.next_drain_result(), Some((1, Ok(()))));
    let text = String::from_utf8(bench.objects[&drain_object("a")].1.clone()).unwrap();
    assert_eq!(text, "weir-fleet 1\ndrain 0000000000000003 all-clients by b\n");
    // The next one replaces it.
    bench.node.order_drain(2, "a".into(), DrainOrder::Resume, bench.now_us);
    bench.settle();
    assert_eq!(bench.node.next_drain_result(), Some((2, Ok(()))));
    assert!(bench.objects[&drain_object("a")].1.ends_with(b"resume by b\n"));
    bench.node.order_drain(3, "c".into(), order, bench.now_us);
    assert_eq!(bench.node.next_drain_result(), Some((3, Err(DrainError::NoSuchNode))));
    bench.is_up = false;
    bench.pass(LEASE_US);
    bench.node.order_drain(4, "a".into(), order, bench.now_us);
    assert_eq!(bench.node.next_drain_result(), Some((4, Err(DrainError::NoStore))));
}

#[test]
fn an_order_whose_write_fails_is_given_again_or_said_to_have_failed() {
    let mut bench = Bench::with_budget(10, 2);
    bench.see("a", 3);
    bench.is_up = false;
    bench.node.order_drain(1, "a".into(), DrainOrder::NewClients, bench.now_us);
    for attempt in 1..=5 {
        bench.pass(600_000);
        let (orders, call) = orders(&bench);
        assert_eq!(orders, attempt, "the order is written again after a conflict");
        assert_eq!(bench.node.next_drain_result(), None);
        bench.node.handle(Event::Conflict { call }, bench.now_us);
    }
    assert_eq!(bench.node.next_drain_result(), Some((1, Err(DrainError::Contended))));
    bench.node.order_drain(2, "a".into(), DrainOrder::NewClients, bench.now_us);
    bench.pass(600_000);
    let (_, call) = orders(&bench);
    bench.node.handle(Event::Unanswered { call, why: "gone".to_owned() }, bench.now_us);
    let unanswered = DrainError::Unanswered("gone".to_owned());
    assert_eq!(bench.node.next_drain_result(), Some((2, Err(unanswered))));
}

#[test]
fn an_order_is_given_out_once_and_one_for_an_earlier_session_never() {
    let mut bench = Bench::with_budget(10, 2);
    bench.put(drain_object("b"), "weir-fleet 1\ndrain 0000000000000007 new-clients by a\n");
    assert_eq!(bench.node.take_drain_order(), Some(DrainOrder::NewClients));
    assert_eq!(bench.node.take_drain_order(), None);
    assert!(!bench.objects.contains_key(&drain_object("b")), "it is carried out");
    bench.node.set_draining(true, bench.now_us);
    bench.settle();
    assert!(bench.records["b"].is_draining);
    bench.put(drain_object("b"), "weir-fleet 1\ndrain 0000000000000006 resume by a\n");
    assert_eq!(bench.node.take_drain_order(), None);
    assert!(!bench.objects.contains_key(&drain_object("b")), "nothing waits for it");
    bench.put(drain_object("b"), "weir-fleet 1\ndrain x\n");
    assert!(bench.node.status(bench.now_us).foreign.is_some());
    assert!(bench.objects.contains_key(&drain_object("b")), "what cannot be read is left alone");
    bench.put(drain_object("a"), "weir-fleet 1\ndrain 0000000000000007 resume by b\n");
    assert_eq!(bench.node.take_drain_order(), None, "it is for another node");
    assert!(bench.objects.contains_key(&drain_object("a")));
}

#[test]
fn a_node_hears_its_own_orders_however_many_others_there_are() {
    let mut bench = Bench::with_budget(10, 2);
    for number in 0..1_100 {
        let name = drain_object(&format!("n{number}"));
        bench.put(name.clone(), "weir-fleet 1\ndrain 0000000000000001 resume by a\n");
        if number < 600 {
            bench.write(name, None);
        }
    }
    assert!(bench.node.status(bench.now_us).foreign.is_none(), "those that are removed do not count");
    for number in 1_100..1_700 {
        let text = "weir-fleet 1\ndrain 0000000000000001 resume by a\n";
        bench.put(drain_object(&format!("n{number}")), text);
    }
    assert!(bench.node.status(bench.now_us).foreign.is_some());
    bench.put(drain_object("b"), "weir-fleet 1\ndrain 0000000000000007 new-clients by a\n");
    assert_eq!(bench.node.take_drain_order(), Some(DrainOrder::NewClients));
    assert!(!bench.objects.contains_key(&drain_object("b")));
}

fn pools_object() -> ObjectName {
    ObjectName(vec!["pools".to_owned()])
}

fn change(base: u64, text: &str) -> PoolsChange {
    let pools = FleetPools { revision: base + 1, by: None, text: text.as_bytes().into() };
    PoolsChange { number: base + 1, base, pools }
}

/// The call of the last change that was asked for.
fn pools_call(bench: &Bench) -> CallId {
    let call = |request: &Request| match request {
        Request::Swap { call, name, .. } if *name == pools_object() => Some(*call),
        _ => None,
    };
    bench.requests.iter().rev().find_map(call).expect("a change")
}

#[test]
fn pools_are_given_out_when_they_change_and_changed_by_swaps() {
    let mut bench = Bench::with_budget(10, 2);
    assert_eq!(bench.node.take_pools(), Some(FleetPools::default()), "there are none");
    bench.node.change_pools(change(0, "one\n"), bench.now_us);
    bench.settle();
    assert_eq!(bench.node.next_pools_result(), Some((1, Ok(()))));
    assert_eq!(bench.objects[&pools_object()].1, b"weir-fleet 1\nrevision 1 by b\none\n");
    let seen = bench.node.take_pools().expect("news");
    assert_eq!((seen.revision, seen.by.as_deref(), &*seen.text), (1, Some("b"), &b"one\n"[..]));
    assert_eq!(bench.node.take_pools(), None);
    bench.put(pools_object(), "weir-fleet 1\nrevision 4 by a\n");
    assert_eq!(bench.node.take_pools().map(|pools| pools.revision), Some(4));
    bench.node.change_pools(change(1, "late"), bench.now_us);
    assert_eq!(bench.node.next_pools_result(), Some((2, Err(PoolsError::Superseded))));
    bench.write(pools_object(), None);
    assert_eq!(bench.node.take_pools().map(|pools| pools.revision), Some(0), "they were removed");
    bench.put(pools_object(), "something else");
    assert!(bench.node.status(bench.now_us).foreign.is_some() && bench.node.take_pools().is_none());
    bench.node.change_pools(change(0, "over it"), bench.now_us);
    assert!(matches!(bench.node.next_pools_result(), Some((1, Err(PoolsError::Foreign(_))))));
    assert_eq!(bench.objects[&pools_object()].1, b"something else");
}

#[test]
fn a_change_of_pools_that_was_not_the_first_is_superseded_once_the_first_is_seen() {
    let mut bench = Bench::with_budget(10, 2);
    bench.is_up = false;
    bench.node.change_pools(change(0, "one"), bench.now_us);
    bench.settle();
    bench.node.handle(Event::Conflict { call: pools_call(&bench) }, bench.now_us);
    bench.settle();
    assert_eq!(bench.node.next_pools_result(), None, "by whom, is not known yet");
    bench.write(pools_object(), Some(b"weir-fleet 1\nrevision 1 by a\ntwo".to_vec()));
    assert_eq!(bench.node.next_pools_result(), Some((1, Err(PoolsError::Superseded))));
    bench.node.take_pools();
    // It may never be seen.
    bench.node.change_pools(change(1, "three"), bench.now_us);
    bench.settle();
    bench.node.handle(Event::Conflict { call: pools_call(&bench) }, bench.now_us);
    bench.is_up = true;
    bench.pass(5 * SECOND);
    assert!(matches!(bench.node.next_pools_result(), Some((2, Err(PoolsError::Unanswered(_))))));
}

#[test]
fn a_change_of_pools_without_an_answer_is_made_if_it_is_seen() {
    let mut bench = Bench::with_budget(10, 2);
    bench.is_up = false;
    for (base, is_seen) in [(0, false), (0, true)] {
        bench.node.change_pools(change(base, "one"), bench.now_us);
        bench.settle();
        if is_seen {
            bench.write(pools_object(), Some(b"weir-fleet 1\nrevision 1 by b\none".to_vec()));
        }
        let (call, why) = (pools_call(&bench), "gone".to_owned());
        bench.node.handle(Event::Unanswered { call, why: why.clone() }, bench.now_us);
        let expected = if is_seen { Ok(()) } else { Err(PoolsError::Unanswered(why)) };
        assert_eq!(bench.node.next_pools_result(), Some((1, expected)));
    }
    let long = "x".repeat(800_000);
    bench.node.change_pools(change(1, &long), bench.now_us);
    assert_eq!(bench.node.next_pools_result(), Some((2, Err(PoolsError::TooLong(800_000, 750_000)))));
    bench.pass(LEASE_US);
    bench.node.change_pools(change(1, "one"), bench.now_us);
    assert_eq!(bench.node.next_pools_result(), Some((2, Err(PoolsError::NoStore))));
}

#[test]
fn all_nodes_have_dealt_with_pools_when_their_records_say_so() {
    let mut bench = Bench::with_budget(10, 2);
    bench.see("a", 3);
    let record = |bench: &mut Bench, paused, resumed, uses_none| {
        let pools = PoolsInUse { revision: 5, paused, resumed, uses_none, refused: "why".to_owned() };
        let record = NodeRecord { pools, ..bench.records["b"].clone() };
        let watch = bench.watch.unwrap();
        let event = Event::NodeSeen { watch, id: "a".into(), record };
        bench.node.handle(event, bench.now_us);
    };
    let in_use = PoolsInUse { revision: 5, ..PoolsInUse::default() };
    bench.node.set_pools_in_use(in_use.clone(), bench.now_us);
    bench.settle();
    assert_eq!(bench.records["b"].pools, in_use, "it is written at once");
    let (watch, own) = (bench.watch.unwrap(), bench.records["b"].clone());
    bench.node.handle(Event::NodeSeen { watch, id: "b".into(), record: own }, bench.now_us);
    let used =
        |bench: &Bench, revision, wait: PoolsWait| bench.node.pools_used(revision, &wait, bench.now_us);
    let paused = |name: &str| PoolsWait::Paused(Some(name.to_owned()));
    assert_eq!(used(&bench, 5, PoolsWait::InUse), None, "a has not");
    record(&mut bench, 4, vec![], false);
    assert_eq!(used(&bench, 5, PoolsWait::InUse), Some(vec![]));
    assert_eq!(used(&bench, 5, paused("app")), None, "a transaction of a runs");
    assert_eq!(used(&bench, 6, PoolsWait::InUse), None);
    record(&mut bench, 4, vec![], true);
    let not_on_a = Some(vec![("a".into(), "why".to_owned())]);
    assert_eq!(used(&bench, 4, PoolsWait::InUse), not_on_a);
    // What was resumed there alone is not paused.
    let (watch, own) = (bench.watch.unwrap(), bench.records["b"].clone());
    let own = NodeRecord { pools: PoolsInUse { paused: 5, ..own.pools.clone() }, ..own };
    bench.node.handle(Event::NodeSeen { watch, id: "b".into(), record: own }, bench.now_us);
    record(&mut bench, 5, vec![Some("app".to_owned())], false);
    assert_eq!(used(&bench, 5, paused("app")), not_on_a);
    assert_eq!(used(&bench, 5, paused("other")), Some(vec![]));
    assert_eq!(used(&bench, 5, PoolsWait::Paused(None)), Some(vec![]));
    assert_eq!(used(&bench, 5, PoolsWait::InUse), Some(vec![]));
    record(&mut bench, 5, vec![None], false);
    assert_eq!(used(&bench, 5, PoolsWait::Paused(None)), not_on_a);
}

/// A node of two, for whose process others have had both floors.
fn after_others(lines: &str) -> Bench {
    let mut node = Node::new(config("b", 2), SessionId(7), 1_000);
    node.set_budgets(&[(pool(0), 10)], 1_000);
    let mut bench = Bench::new(node);
    bench.records.insert("a".to_owned(), record_of(3));
    bench.put(ObjectName(vec!["floors".to_owned()]), &format!("weir-fleet 1\n{lines}"));
    bench.settle();
    bench
}

fn record_of(session: u64) -> NodeRecord {
    let mut node = Node::new(config("x", 2), SessionId(session), 0);
    match node.poll(0) {
        Some(Request::Join { record, .. }) => record,
        other => panic!("{other:?}"),
    }
}

fn backends(pids: &[u32]) -> Vec<Backend> {
    pids.iter().map(|pid| Backend { server: "s".into(), pid: *pid }).collect()
}

/// The other node says what it has.
fn report_of_a(bench: &mut Bench, pids: &[u32]) {
    let audit = bench.objects[&ObjectName(vec!["audit".to_owned()])].1.clone();
    let audit = String::from_utf8(audit).unwrap();
    let number: u64 = audit.split(' ').nth(2).unwrap().parse().unwrap();
    let lines: String = pids.iter().map(|pid| format!("s {pid}\n")).collect();
    let text = format!("weir-fleet 1\nsession 0000000000000003\naudit {number}\n{lines}");
    bench.put(ObjectName(vec!["backends".to_owned(), "a".to_owned()]), &text);
}

const A_AND_B: &str = "a 0000000000000003\nb 0000000000000001\n";

#[test]
fn a_process_in_place_of_another_has_its_floor_when_no_backends_of_that_are_left() {
    let bench = after_others("");
    assert_eq!((bench.allowance().floor, bench.floors()), (1, "b 0000000000000007\n".to_owned()));

    let mut bench = after_others(A_AND_B);
    assert_eq!(bench.floors(), "a 0000000000000003\nb 0000000000000007\n");
    assert_eq!(bench.allowance().floor, 0, "PostgreSQL cannot be asked");
    assert_eq!(bench.node.status(bench.now_us).floors.unlisted, 1);
    // Of two of the other node, and one of neither.
    bench.lists.insert(pool(0), backends(&[1, 2, 3]));
    bench.pass(10 * SECOND);
    assert_eq!(bench.allowance().floor, 0, "the other node has not said which it has");
    report_of_a(&mut bench, &[1, 2]);
    bench.pass(10 * SECOND);
    let status = bench.node.status(bench.now_us);
    assert_eq!((bench.allowance().floor, status.floors.suspects, status.budgets[0].withheld), (0, 1, 1));
    // Those that were opened since do not count.
    bench.lists.insert(pool(0), backends(&[4, 5]));
    bench.pass(10 * SECOND);
    let status = bench.node.status(bench.now_us);
    assert_eq!((bench.allowance().floor, status.floors.withheld), (1, 0));
    bench.requests.clear();
    bench.pass(60 * SECOND);
    assert!(!bench.requests.iter().any(|request| matches!(request, Request::ListBackends { .. })));
}

#[test]
fn without_a_floor_slots_are_leased() {
    let mut bench = after_others(A_AND_B);
    bench.use_slots(0, 1);
    let allowance = bench.allowance();
    assert_eq!((allowance.slots, allowance.floor), (1, 0));
    bench.use_slots(1, 0);
    bench.lists.insert(pool(0), Vec::new());
    bench.pass(10 * SECOND);
    bench.use_slots(1, 0);
    bench.pass(2 * SECOND);
    bench.use_slots(1, 0);
    assert_eq!((bench.allowance().slots, bench.text()), (1, None), "the floor covers it");
}

#[test]
fn one_more_process_than_there_are_floors_for_has_none() {
    let mut bench = after_others("a 0000000000000003\nc 0000000000000004\n");
    assert!(bench.floors().starts_with("a 0000000000000003\nb "), "the node that is gone makes place");
    let mut node = Node::new(config("b", 1), SessionId(7), 1_000);
    node.set_budgets(&[(pool(0), 10)], 1_000);
    bench.node = node;
    bench.records.remove("b");
    bench.put(ObjectName(vec!["floors".to_owned()]), "weir-fleet 1\na 0000000000000003\n");
    bench.lists.insert(pool(0), Vec::new());
    bench.settle();
    bench.pass(10 * SECOND);
    assert_eq!(bench.allowance().floor, 0);
    assert!(bench.node.status(bench.now_us).floors.has_none);
    let watch = bench.watch.unwrap();
    bench.node.handle(Event::NodeGone { watch, id: "a".into() }, bench.now_us);
    bench.settle();
    assert_eq!(bench.allowance().floor, 1);
}

#[test]
fn a_process_whose_name_another_one_has_taken_gives_up_its_floor() {
    let mut bench = Bench::with_budget(10, 2);
    assert_eq!(bench.allowance().floor, 1);
    bench.is_up = false;
    bench.pass(LEASE_US);
    assert_eq!(bench.allowance().floor, 1, "without the store it goes on with it");
    let Some(Request::Join { call, record }) = bench.requests.last().cloned() else { panic!("no join") };
    bench.records.insert("b".to_owned(), record_of(9));
    bench.answer(Request::Join { call, record });
    bench.settle();
    assert_eq!(bench.allowance().floor, 0);
}

#[test]
fn floors_that_are_proven_are_handed_over() {
    let mut bench = after_others(A_AND_B);
    bench.lists.insert(pool(0), Vec::new());
    bench.pass(10 * SECOND);
    assert_eq!(bench.allowance().floor, 1);
    let mut node = Node::resume(config("b", 2), bench.node.hand_over(), bench.now_us);
    node.set_budgets(&[(pool(0), 10), (pool(1), 10)], bench.now_us);
    bench.node = node;
    bench.settle();
    assert_eq!((bench.allowance().floor, bench.node.allowance(&pool(1)).floor), (1, 0));
}

#[test]
fn without_the_store_a_process_that_begins_has_its_floor_when_none_of_the_backends_before_it_is_left() {
    let mut node = Node::new(config("b", 2), SessionId(7), 1_000);
    node.set_budgets(&[(pool(0), 10)], 1_000);
    let mut bench = Bench::new(node);
    bench.is_up = false;
    bench.settle();
    let Some(Request::Join { call, .. }) = bench.requests.last().cloned() else { panic!("no join") };
    bench.node.handle(Event::Unanswered { call, why: String::new() }, bench.now_us);
    let ask = |bench: &mut Bench, pids: &[u32]| {
        bench.lists.insert(pool(0), backends(pids));
        bench.requests.clear();
        bench.pass(3 * SECOND);
        let is_list = |request: &&Request| matches!(request, Request::ListBackends { .. });
        let list = bench.requests.iter().rfind(is_list).cloned().expect("PostgreSQL is asked");
        bench.answer(list);
        bench.settle();
        bench.allowance().floor
    };
    assert_eq!(ask(&mut bench, &[1, 2]), 0);
    assert_eq!(ask(&mut bench, &[2, 3]), 0);
    assert_eq!(ask(&mut bench, &[3, 4]), 1);
}

#[test]
fn pools_of_a_store_that_was_restored_are_those_that_there_are() {
    let mut bench = Bench::with_budget(10, 2);
    bench.put(pools_object(), "weir-fleet 1\nrevision 9 by a\nnew");
    assert_eq!(bench.node.take_pools().map(|pools| pools.revision), Some(9));
    let watch = bench.watch.unwrap();
    bench.node.handle(Event::WatchLost { watch, why: String::new() }, bench.now_us);
    let restored = (Revision(1), b"weir-fleet 1\nrevision 5 by a\nold".to_vec());
    bench.objects.insert(pools_object(), restored);
    bench.pass(SECOND);
    assert_eq!(bench.node.take_pools().map(|pools| pools.revision), Some(5));
    assert_eq!(bench.node.pools_revision(), Some(5));
    let huge = format!("weir-fleet 1\nrevision {} by a\n", u64::MAX);
    bench.put(pools_object(), &huge);
    assert!(bench.node.status(bench.now_us).foreign.is_some());
    assert_eq!(bench.node.pools_revision(), None);
}

/// `[NAME]` or `[KIND, NODE]`.
fn object(path: &str) -> ObjectName {
    ObjectName(path.split('/').map(str::to_owned).collect())
}

#[test]
fn a_store_that_was_restored_is_followed_in_all_objects() {
    let mut bench = Bench::with_budget(10, 3);
    bench.see("a", 3);
    bench.use_slots(1, 2);
    let usage = |amount: u64| format!("weir-fleet 1\nsession 0000000000000003\nclients {amount} 0 0 \n");
    bench.put(object("usage/a"), &usage(1));
    bench.put(object("audit"), "weir-fleet 1\naudit 1 by a 0000000000000003\n");
    bench.put(object("drain/a"), "weir-fleet 1\ndrain 0000000000000003 resume by c\n");
    let backup = (bench.objects.clone(), bench.revision);
    // All objects get much later revisions.
    bench.revision += 1_000;
    for (name, (_, contents)) in bench.objects.clone() {
        bench.put(name, std::str::from_utf8(&contents).unwrap());
    }
    bench.put(object("audit"), "weir-fleet 1\naudit 9 by a 0000000000000003\n");
    bench.put(object("drain/b"), "weir-fleet 1\ndrain 0000000000000008 resume by a\n");
    bench.use_slots(3, 4);
    assert!(bench.text().unwrap().contains("b 0000000000000007 6 "), "{:?}", bench.text());
    assert!(bench.objects[&object("backends/b")].1.ends_with(b"audit 9\n"));
    // Back to what there was; the floors' object was not there yet.
    let watch = bench.watch.unwrap();
    (bench.objects, bench.revision) = backup;
    bench.objects.remove(&object("floors"));
    bench.node.handle(Event::WatchLost { watch, why: String::new() }, bench.now_us);
    bench.pass(SECOND);
    assert!(bench.text().unwrap().contains("b 0000000000000007 6 "), "it needs them and takes them again");
    assert_eq!(bench.floors(), "b 0000000000000007\n");
    // What others write from now on is known.
    let clients = SharedUsage { clients: true, ..SharedUsage::default() };
    bench.node.set_shared_usage(clients, bench.now_us);
    bench.put(object("usage/a"), &usage(5));
    let external: Vec<u64> = bench.node.next_external_usage(bench.now_us).unwrap().into_values().collect();
    assert_eq!(external, [5]);
    let _ = bench.node.next_peer_numbers(bench.now_us);
    bench.put(object("peers"), "weir-fleet 1\n4 a 0000000000000003\n7 b 0000000000000007\n");
    assert_eq!(bench.node.next_peer_numbers(bench.now_us).unwrap().own, Some(7));
    bench.put(object("drain/b"), "weir-fleet 1\ndrain 0000000000000007 all-clients by a\n");
    assert_eq!(bench.node.take_drain_order(), Some(DrainOrder::AllClients));
    assert!(!bench.objects.contains_key(&object("drain/b")), "it is removed");
    bench.node.order_drain(1, "a".into(), DrainOrder::Resume, bench.now_us);
    bench.settle();
    assert_eq!(bench.node.next_drain_result(), Some((1, Ok(()))));
    bench.put(object("floors"), "weir-fleet 1\na 0000000000000003\n");
    bench.pass(SECOND);
    assert_eq!(bench.floors(), "a 0000000000000003\nb 0000000000000007\n");
    // Answers are for the highest audit that there ever was: those to earlier ones tell too little.
    bench.put(object("audit"), "weir-fleet 1\naudit 2 by a 0000000000000003\n");
    assert!(bench.objects[&object("backends/b")].1.ends_with(b"audit 9\n"));
    bench.put(object("audit"), "weir-fleet 1\naudit 10 by a 0000000000000003\n");
    assert!(bench.objects[&object("backends/b")].1.ends_with(b"audit 10\n"));
    bench.put(slots_object(&pool(0)), "weir-fleet 1\na 0000000000000003 4 4 7\n");
    bench.use_slots(3, 4);
    assert!(bench.text().unwrap().contains("b 0000000000000007 3 "), "{:?}", bench.text());
}

#[test]
fn a_change_of_the_record_waits_for_the_renewal_under_way() {
    let mut bench = Bench::with_budget(10, 2);
    bench.is_up = false;
    bench.requests.clear();
    bench.node.set_draining(true, bench.now_us);
    bench.settle();
    let renewals = |bench: &Bench| -> Vec<Request> {
        let is_renewal = |request: &&Request| matches!(request, Request::Renew { .. });
        bench.requests.iter().filter(is_renewal).cloned().collect()
    };
    assert_eq!(renewals(&bench).len(), 1);
    bench.node.set_draining(false, bench.now_us);
    bench.settle();
    assert_eq!(renewals(&bench).len(), 1, "two at once may be carried out in any order");
    bench.is_up = true;
    bench.answer(renewals(&bench)[0].clone());
    assert!(bench.records["b"].is_draining);
    bench.settle();
    assert!(!bench.records["b"].is_draining, "it is written at once");
}
