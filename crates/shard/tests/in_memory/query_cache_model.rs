//! `query_cache` beside a model of a primary, its two standbys and the thread that follows its changes: in whatever order things happen, a client's own writes are in its
//! answers, and no stored answer lacks what was committed longer ago than `query_cache_max_staleness`.
//!
//! Owns the model: transactions are written to the WAL, become visible a while later and in another order, are replayed by each standby, and are told to the shard in the order of the WAL.
//! An answer names the transactions that its server has shown.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use messages::{CacheNews, CacheNewsKind, Command};
use shard::{ConnId, Event, Target};
use wire::backend::Status;
use wire::encode;
use wire::frame::Frames;

use crate::world::{World, message};

const SETTINGS: &str = "session_state = virtual\npool_mode = transaction\nserver_check_query =\n[databases]\nd = query_cache=1MB pool_size=3 ";
const ENTRIES: [&str; 2] = ["host=a", "host=a,b,c read_write_split=1"];
const SYSTEM: u64 = 7_000;
const STALENESS_US: u64 = 1_000_000;
const RELATIONS: [&str; 2] = ["t", "v"];
const CLIENTS: usize = 4;
const STEPS: u32 = 1_000;
const HOSTS: [&str; 3] = ["a", "b", "c"];

/// Pseudo-random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % most
    }
}

/// A transaction that is in the WAL.
struct Commit {
    /// What it has changed: a relation, or the schema.
    relation: Option<usize>,
    /// The client, and its connection's server: None is another program.
    by: Option<usize>,
    /// Where it ends.
    lsn: u64,
    visible_since_us: Option<u64>,
}

/// What a server has been sent, and how far it is with it.
enum Stage {
    Waits(String),
    /// The transaction that it has written.
    Written(usize),
    Done(Vec<u8>),
}

#[derive(Default)]
struct Server {
    place: usize,
    requests: VecDeque<Stage>,
    frames: Option<Frames>,
    /// The first word of the statement that was parsed last.
    parsed: String,
}

/// What a client waits for.
#[derive(Clone)]
enum Request {
    /// A relation's rows, in which these transactions have to be.
    Read(usize, BTreeSet<usize>),
    Write,
}

struct Client {
    conn: ConnId,
    request: Option<Request>,
    /// Transactions that it was told of.
    own: BTreeSet<usize>,
}

/// The thread that follows the changes.
#[derive(Default)]
struct Follower {
    /// The first transaction of the stream.
    first: usize,
    /// The next one to be told.
    next: usize,
    is_on: bool,
    /// What the catalog holds has to be told before further changes.
    needs_catalog: bool,
    /// When a question was sent.
    asked_us: Option<u64>,
    /// Its time, position and how many changes were visible.
    sample: Option<(u64, u64, u64)>,
}

struct Model {
    world: World,
    random: Random,
    commits: Vec<Commit>,
    replayed: [u64; 3],
    servers: BTreeMap<ConnId, Server>,
    clients: Vec<Client>,
    follower: Follower,
    /// One change in this many is of the schema.
    calm: usize,
    /// One in this many chances of a change is taken.
    rest: usize,
    /// The same of replaying.
    lag: usize,
    hits: u32,
}

impl Model {
    fn new(seed: u64) -> Model {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let mut world = World::new(&format!("{SETTINGS}{}", ENTRIES[random.below(2)]));
        world.describer = None;
        let clients = (0..CLIENTS)
            .map(|_| Client { conn: world.client(&[]), request: None, own: BTreeSet::new() })
            .collect();
        let mut model = Model {
            world,
            calm: 4 << random.below(6),
            rest: 1 << random.below(6),
            lag: 1 << random.below(5),
            random,
            commits: Vec::new(),
            replayed: [0; 3],
            servers: BTreeMap::new(),
            clients,
            follower: Follower::default(),
            hits: 0,
        };
        for _ in 0..10 {
            model.pass(50);
            while model.serve(false) {}
        }
        model
    }

    fn end(&self) -> u64 {
        100 + 10 * u64::try_from(self.commits.len()).unwrap()
    }

    fn pass(&mut self, milliseconds: u64) {
        self.world.pass(milliseconds);
        self.settle();
    }

    /// Opens what is to be opened, and takes in what servers and clients were sent.
    fn settle(&mut self) {
        while !self.world.connecting.is_empty() {
            let conn = self.world.connected();
            let Target::Inet { host, .. } = self.world.targets[&conn].clone() else { panic!("no address") };
            let place = HOSTS.iter().position(|name| **name == *host).unwrap();
            self.log_in(conn, place);
        }
        for conn in std::mem::take(&mut self.world.closed) {
            self.servers.remove(&conn);
        }
        for (conn, server) in &mut self.servers {
            let frames = server.frames.get_or_insert_with(|| Frames::new(1 << 20));
            frames.push(&self.world.sent.remove(conn).unwrap_or_default());
            while let Ok(Some((tag, body))) = frames.pop() {
                match tag {
                    b'Q' => {
                        let text = String::from_utf8_lossy(&body[..body.len() - 1]).into_owned();
                        server.requests.push_back(Stage::Waits(text));
                    }
                    b'P' => {
                        let text = String::from_utf8_lossy(&body).into_owned();
                        server.parsed =
                            text.trim_matches('\0').split(' ').next().unwrap_or_default().to_owned();
                        server.requests.push_back(Stage::Done(message(encode::parse_complete)));
                    }
                    b'B' => server.requests.push_back(Stage::Done(message(encode::bind_complete))),
                    b'E' => {
                        let done = message(|out| encode::command_complete(out, &server.parsed));
                        server.requests.push_back(Stage::Done(done));
                    }
                    b'C' => server.requests.push_back(Stage::Done(message(encode::close_complete))),
                    b'S' => {
                        let ready = message(|out| encode::ready(out, Status::Idle));
                        server.requests.push_back(Stage::Done(ready));
                    }
                    b'X' => {}
                    tag => panic!("the model knows no {}", char::from(tag)),
                }
            }
        }
        for client in 0..CLIENTS {
            let sent = self.world.sent.remove(&self.clients[client].conn).unwrap_or_default();
            if !sent.is_empty() {
                self.answered(client, &sent, false);
            }
        }
    }

    fn log_in(&mut self, conn: ConnId, place: usize) {
        let in_hot_standby: &[u8] = if place == 0 { b"off" } else { b"on" };
        let hello = message(|out| {
            encode::authentication_ok(out);
            for (name, value) in [
                (&b"server_version"[..], &b"18.0"[..]),
                (b"in_hot_standby", in_hot_standby),
                (b"default_transaction_read_only", b"off"),
                (b"search_path", b"public"),
            ] {
                encode::parameter_status(out, name, value);
            }
            encode::key_data(out, 77, &[1, 2, 3, 4]);
            encode::ready(out, Status::Idle);
        });
        self.world.sent.remove(&conn);
        self.world.receive(conn, &hello);
        assert!(self.world.text(conn).contains("pg_control_system"));
        let timeline = (place == 0).then_some(&b"00000001"[..]);
        let system = SYSTEM.to_string();
        self.world.receive(conn, &rows(&[&[Some(system.as_bytes()), timeline]], "SELECT 1"));
        self.servers.insert(conn, Server { place, ..Server::default() });
    }

    /// Something happens.
    fn step(&mut self) {
        match self.random.below(100) {
            0..25 => self.client_reads(),
            25..31 => self.client_writes(),
            31 => self.client_changes_schema(),
            32..36 if self.random.below(self.rest) > 0 => {}
            32..36 => {
                let relation = (self.random.below(self.calm) > 0).then(|| self.random.below(RELATIONS.len()));
                self.write(relation, None);
            }
            36..38 => {}
            38..46 => self.show(),
            46..66 => drop(self.serve(true)),
            66..84 => self.follow(),
            84..92 => self.replay(),
            92..99 => {
                let milliseconds = 1 + self.random.below(40) as u64;
                self.pass(milliseconds);
            }
            _ => self.pass(400),
        }
        self.settle();
    }

    fn idle_client(&mut self) -> Option<usize> {
        let client = self.random.below(CLIENTS);
        self.clients[client].request.is_none().then_some(client)
    }

    fn sends(&mut self, client: usize, sql: &str, request: Request) {
        let conn = self.clients[client].conn;
        self.clients[client].request = Some(request);
        self.world.receive(conn, &message(|out| encode::query(out, sql.as_bytes())));
        let sent = self.world.sent.remove(&conn).unwrap_or_default();
        if !sent.is_empty() {
            self.answered(client, &sent, true);
        }
    }

    fn client_reads(&mut self) {
        let Some(client) = self.idle_client() else { return };
        let relation = self.random.below(RELATIONS.len());
        let owed = self.clients[client].own.clone();
        self.sends(client, &read(relation), Request::Read(relation, owed));
    }

    fn client_writes(&mut self) {
        if self.random.below(self.rest) > 0 {
            return;
        }
        let Some(client) = self.idle_client() else { return };
        let relation = RELATIONS[self.random.below(RELATIONS.len())];
        self.sends(client, &format!("UPDATE {relation} SET a = {client}"), Request::Write);
    }

    fn client_changes_schema(&mut self) {
        if self.random.below(self.calm) > 0 {
            return;
        }
        let Some(client) = self.idle_client() else { return };
        self.sends(client, &format!("ALTER TABLE t ADD COLUMN c{client} int"), Request::Write);
    }

    fn write(&mut self, relation: Option<usize>, by: Option<usize>) -> usize {
        self.commits.push(Commit { relation, by, lsn: self.end() + 10, visible_since_us: None });
        self.commits.len() - 1
    }

    /// A transaction of another program becomes visible.
    fn show(&mut self) {
        let hidden = |commit: &Commit| commit.visible_since_us.is_none() && commit.by.is_none();
        let hidden: Vec<usize> = (0..self.commits.len()).filter(|at| hidden(&self.commits[*at])).collect();
        if !hidden.is_empty() {
            let at = hidden[self.random.below(hidden.len())];
            self.commits[at].visible_since_us = Some(self.world.now.mono_us);
        }
    }

    fn replay(&mut self) {
        if self.random.below(self.lag) > 0 {
            return;
        }
        let place = 1 + self.random.below(2);
        let behind = self.end() - self.replayed[place];
        self.replayed[place] += if self.random.below(2) == 0 { behind } else { behind / 2 };
    }

    /// What a server shows of a relation: its transactions, and those of the schema.
    fn shown(&self, place: usize, relation: usize) -> String {
        let is_shown = |commit: &Commit| match place {
            0 => commit.visible_since_us.is_some(),
            _ => commit.lsn <= self.replayed[place],
        };
        let of_it = |commit: &Commit| commit.relation.is_none_or(|of| of == relation);
        let shown = self.commits.iter().enumerate().filter(|(_, commit)| is_shown(commit) && of_it(commit));
        let shown: Vec<String> = shown.map(|(at, _)| at.to_string()).collect();
        format!("{}:{}", RELATIONS[relation], shown.join(","))
    }

    /// A server goes on with what it has been sent; false if none has anything. `any`: one of them, which may have nothing.
    fn serve(&mut self, any: bool) -> bool {
        let conns: Vec<ConnId> = self.servers.keys().copied().collect();
        let busy = |conn: &ConnId| !self.servers[conn].requests.is_empty();
        let chosen = match any {
            true => conns.get(self.random.below(conns.len().max(1))).copied().filter(busy),
            false => conns.into_iter().find(busy),
        };
        let Some(conn) = chosen else { return false };
        let server = self.servers.get_mut(&conn).unwrap();
        let (place, stage) = (server.place, server.requests.pop_front().unwrap());
        let next = match stage {
            Stage::Waits(text) => self.execute(place, &text),
            Stage::Written(at) => {
                self.commits[at].visible_since_us = Some(self.world.now.mono_us);
                let tag = if self.commits[at].relation.is_some() { "UPDATE 1" } else { "ALTER TABLE" };
                Stage::Done(rows(&[], tag))
            }
            Stage::Done(answer) => {
                self.world.receive(conn, &answer);
                self.settle();
                return true;
            }
        };
        self.servers.get_mut(&conn).unwrap().requests.push_front(next);
        true
    }

    fn execute(&mut self, place: usize, text: &str) -> Stage {
        let number = |text: &str| text.trim_matches(|letter: char| !letter.is_ascii_digit()).parse().unwrap();
        if let Some(relation) = (0..RELATIONS.len()).find(|relation| text == read(*relation)) {
            let shown = self.shown(place, relation);
            return Stage::Done(rows(&[&[Some(shown.as_bytes())]], "SELECT 1"));
        }
        if let Some(rest) = text.strip_prefix("UPDATE ") {
            assert!(place == 0, "a write goes to the primary");
            let relation = RELATIONS.iter().position(|name| rest.starts_with(name));
            return Stage::Written(self.write(relation, Some(number(&rest[9..]))));
        }
        if let Some(rest) = text.strip_prefix("ALTER TABLE t ADD COLUMN c") {
            assert!(place == 0, "a change of the schema goes to the primary");
            return Stage::Written(self.write(None, Some(number(rest))));
        }
        let lsn = if place == 0 { self.end() } else { self.replayed[place] };
        let (lsn, in_recovery): (String, &[u8]) = (lsn.to_string(), if place == 0 { b"f" } else { b"t" });
        if text.contains("pg_last_wal_replay_lsn") {
            Stage::Done(rows(&[&[Some(in_recovery), Some(lsn.as_bytes()), Some(b"1")]], "SELECT 1"))
        } else if text.contains("WITH RECURSIVE functions(") {
            Stage::Done(rows(&[&[Some(b"end"), Some(b"")]], "SELECT 1"))
        } else {
            Stage::Done(rows(&[], "SELECT 0"))
        }
    }

    /// The thread that follows the changes goes on.
    fn follow(&mut self) {
        let all_visible = self.commits.iter().all(|commit| commit.visible_since_us.is_some());
        if !self.follower.is_on {
            // A stream begins when the transactions that run then have ended.
            if all_visible {
                let first = self.commits.len();
                self.follower =
                    Follower { first, next: first, is_on: true, needs_catalog: true, ..Follower::default() };
                self.news(CacheNewsKind::Begins { system: SYSTEM, timeline: 1 });
            }
            return;
        }
        match self.random.below(60) {
            0 if self.random.below(2) == 0 => {
                self.follower = Follower::default();
                self.news(CacheNewsKind::Lost { why: "no".into() });
            }
            0..20 => self.tell(),
            20..30 => self.tell_catalog(),
            30..45 => match self.follower.asked_us {
                None => self.follower.asked_us = Some(self.world.now.mono_us),
                Some(asked_us) => self.take_sample(asked_us),
            },
            _ => self.tell_current(),
        }
    }

    fn news(&mut self, what: CacheNewsKind) {
        self.world.event(Event::Command(Command::CacheNews(CacheNews { database: "d".into(), what })));
    }

    fn number(&self, at: usize) -> u64 {
        u64::try_from(at - self.follower.first).unwrap() + 1
    }

    fn tell(&mut self) {
        let at = self.follower.next;
        let Some(commit) = self.commits.get(at) else { return };
        let (lsn, number) = (commit.lsn, self.number(at));
        let what = match commit.relation {
            None => CacheNewsKind::SchemaChanged { number, lsn },
            Some(_) if self.follower.needs_catalog => return,
            Some(of) => CacheNewsKind::Changed { number, lsn, names: Arc::from([Box::from(RELATIONS[of])]) },
        };
        self.follower.needs_catalog |= commit.relation.is_none();
        self.follower.next += 1;
        self.news(what);
    }

    fn tell_catalog(&mut self) {
        let told = &self.commits[..self.follower.next];
        if self.follower.needs_catalog && told.iter().all(|commit| commit.visible_since_us.is_some()) {
            self.follower.needs_catalog = false;
            let number = u64::try_from(self.follower.next - self.follower.first).unwrap();
            self.news(CacheNewsKind::Catalog { number, uncached: Arc::default() });
        }
    }

    fn take_sample(&mut self, asked_us: u64) {
        self.follower.asked_us = None;
        let of_stream = &self.commits[self.follower.first..];
        let visible = of_stream.iter().take_while(|commit| commit.visible_since_us.is_some()).count();
        self.follower.sample = Some((asked_us, self.end(), u64::try_from(visible).unwrap()));
    }

    fn tell_current(&mut self) {
        let Some((as_of_us, lsn, visible)) = self.follower.sample else { return };
        let is_told = self.commits[self.follower.next..].iter().all(|commit| commit.lsn > lsn);
        if is_told && !self.follower.needs_catalog {
            self.follower.sample = None;
            self.news(CacheNewsKind::Current { as_of_us, lsn, visible });
        }
    }

    /// A client has its answer, from a server or, `at_once`, a stored one.
    fn answered(&mut self, client: usize, sent: &[u8], at_once: bool) {
        let mut frames = Frames::new(1 << 20);
        frames.push(sent);
        let mut row = None;
        let mut is_ready = false;
        while let Ok(Some((tag, body))) = frames.pop() {
            match tag {
                b'D' => row = Some(String::from_utf8_lossy(&body[6..]).into_owned()),
                b'E' => panic!("c{client}: {}", String::from_utf8_lossy(&body)),
                b'Z' => is_ready = true,
                _ => {}
            }
        }
        let Some(request) = self.clients[client].request.clone().filter(|_| is_ready) else { return };
        self.clients[client].request = None;
        let Request::Read(relation, mut owed) = request else {
            let own = |commit: &Commit| commit.by == Some(client) && commit.visible_since_us.is_some();
            let own = (0..self.commits.len()).filter(|at| own(&self.commits[*at]));
            return self.clients[client].own.extend(own);
        };
        let row = row.expect("a row");
        let (name, seen) = row.split_once(':').expect("a relation's rows");
        assert_eq!(name, RELATIONS[relation], "the answer to another text");
        let seen: BTreeSet<usize> = seen.split(',').filter_map(|at| at.parse().ok()).collect();
        if at_once {
            self.hits += 1;
            owed.extend(self.owed_by_all());
        }
        let of_it = |at: &usize| self.commits[*at].relation.is_none_or(|of| of == relation);
        let missed: Vec<usize> = owed.difference(&seen).copied().filter(of_it).collect();
        assert!(missed.is_empty(), "c{client} misses {missed:?} in {row}, stored: {at_once}");
    }

    /// What has to be in every stored answer: what has been visible for longer than the bound, and changes of the schema that clients were told of.
    fn owed_by_all(&self) -> BTreeSet<usize> {
        let bound_us = self.world.now.mono_us.saturating_sub(STALENESS_US);
        let is_old =
            |at: &usize| self.commits[*at].visible_since_us.is_some_and(|since_us| since_us < bound_us);
        let old = (0..self.commits.len()).filter(is_old);
        let told = self.clients.iter().flat_map(|client| client.own.iter().copied());
        old.chain(told.filter(|at| self.commits[*at].relation.is_none())).collect()
    }
}

fn read(relation: usize) -> String {
    format!("SELECT a FROM {}", RELATIONS[relation])
}

fn rows(rows: &[&[Option<&[u8]>]], tag: &str) -> Vec<u8> {
    message(|out| {
        if !rows.is_empty() {
            encode::row_description(out, &[encode::Column { name: "a", type_oid: 25, type_bytes: -1 }]);
        }
        for row in rows {
            encode::data_row(out, row.iter().copied());
        }
        encode::command_complete(out, tag);
        encode::ready(out, Status::Idle);
    })
}

#[test]
fn no_answer_is_older_than_promised() {
    let mut hits = 0;
    for seed in 1..=2_000 {
        let mut model = Model::new(seed);
        for _ in 0..STEPS {
            model.step();
        }
        hits += model.hits;
    }
    assert!(hits > 20_000, "{hits} answers were stored ones");
}
