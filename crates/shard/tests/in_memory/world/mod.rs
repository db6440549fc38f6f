//! A shard in memory: the test is its driver, its clients, its servers and its clock.
//!
//! Owns nothing but the plumbing; what is asserted stands in the tests.
#![allow(clippy::unwrap_used, dead_code, missing_docs, unreachable_pub)]

mod describer;
pub mod takeover;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use auth::{Entropy, MockKey};
use messages::{Report, ShardId, ShardMessage};
use pool::{
    Budget, CancelKeyPrefix, ConnectionCounts, FairPool, FairShare, FairShares, PoolRegistry, ProcessCounts,
    SharedPool,
};
use settings::{Config, Files, QueueBy};
use shard::{Action, ClientMove, ConnId, Event, Export, Now, Peer, Shard, Source, Target};
use wire::backend::Status;
use wire::startup::Version;
use wire::{encode, frame::Frames};

use describer::Describer;

pub struct Ini(pub String);

impl Files for Ini {
    fn read(&self, path: &str) -> std::io::Result<Vec<u8>> {
        match path {
            "weir.ini" => Ok(self.0.clone().into_bytes()),
            "users" => Ok(b"\"u\" \"pw\"\n\"boss\" \"pw\"\n\"v\" \"pw\"\n".to_vec()),
            "rules" => Ok(b"host all all 127.0.0.1/32 reject\n".to_vec()),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        }
    }
}

/// With PgBouncer's behaviour where a test says nothing else.
pub fn config(settings: &str) -> Arc<Config> {
    let session_state = if settings.contains("session_state") { "" } else { "session_state = off\n" };
    let head = "[databases]\nd = host=127.0.0.1 port=1\nother = host=127.0.0.1 port=1\n[pgbouncer]\nauth_type = trust\nauth_file = users\nadmin_users = boss\npool_mode = transaction\nserver_tls_sslmode = disable\n";
    Arc::new(settings::load(&Ini(format!("{head}{session_state}{settings}\n")), "weir.ini", &[]).unwrap())
}

#[derive(Default)]
struct Counts {
    pools: BTreeMap<(String, String), Arc<SharedPool>>,
    databases: BTreeMap<String, Arc<ConnectionCounts>>,
    users: BTreeMap<String, Arc<ConnectionCounts>>,
    fair_shares: FairShares,
    quotas: quota::Book,
    process: Arc<ProcessCounts>,
    cancel_keys: BTreeMap<CancelKeyPrefix, (u16, u32)>,
}

/// All pools are on the shard of the test, but those of the database `far`: they are on another.
#[derive(Default)]
pub struct OneShard {
    counts: Mutex<Counts>,
    others: u16,
}

impl OneShard {
    /// One of so many; a test plays the others itself.
    pub fn among(shards: u16) -> OneShard {
        OneShard { others: shards - 1, ..OneShard::default() }
    }
}

impl PoolRegistry for OneShard {
    fn host_pool(&self, database: &str, user: &str, host: &str) -> Arc<SharedPool> {
        self.pool(&format!("{database} on {host}"), user)
    }

    fn pool(&self, database: &str, user: &str) -> Arc<SharedPool> {
        let key = (database.to_owned(), user.to_owned());
        Arc::clone(
            self.counts
                .lock()
                .unwrap()
                .pools
                .entry(key)
                .or_insert_with(|| Arc::new(SharedPool::on(u16::from(database == "far")))),
        )
    }
    fn database(&self, name: &str) -> Arc<ConnectionCounts> {
        Arc::clone(self.counts.lock().unwrap().databases.entry(name.to_owned()).or_default())
    }
    fn user(&self, name: &str) -> Arc<ConnectionCounts> {
        Arc::clone(self.counts.lock().unwrap().users.entry(name.to_owned()).or_default())
    }
    fn pools_of(&self, budget: Budget, name: &str) -> Vec<Arc<SharedPool>> {
        let is_of = |database: &String, user: &String| match budget {
            Budget::Database => database == name,
            Budget::User => user == name,
        };
        let counts = self.counts.lock().unwrap();
        let pools = counts.pools.iter().filter(|((database, user), _)| is_of(database, user));
        pools.map(|(_, shared)| Arc::clone(shared)).collect()
    }
    fn fair_share(&self, pool: &Arc<FairPool>, by: QueueBy, subject: &str, weight: u32) -> Arc<FairShare> {
        self.counts.lock().unwrap().fair_shares.share(pool, by, subject, weight)
    }
    fn with_quotas(&self, look: &mut dyn FnMut(&mut quota::Book)) {
        look(&mut self.counts.lock().unwrap().quotas);
    }
    fn process(&self) -> Arc<ProcessCounts> {
        Arc::clone(&self.counts.lock().unwrap().process)
    }
    fn shards(&self) -> u16 {
        1 + self.others
    }
    fn keep_cancel_key(&self, key: CancelKeyPrefix, shard: u16, place: u32) -> bool {
        let mut counts = self.counts.lock().unwrap();
        let is_free = !counts.cancel_keys.contains_key(&key);
        if is_free {
            counts.cancel_keys.insert(key, (shard, place));
        }
        is_free
    }
    fn forget_cancel_key(&self, key: CancelKeyPrefix) {
        self.counts.lock().unwrap().cancel_keys.remove(&key);
    }
    fn find_cancel_key(&self, key: CancelKeyPrefix) -> Option<(u16, u32)> {
        self.counts.lock().unwrap().cancel_keys.get(&key).copied()
    }
    fn busy_percent(&self, _: u16) -> u32 {
        0
    }
    fn set_busy_percent(&self, _: u16, _: u32) {}
}

struct Counting(u8);

impl Entropy for Counting {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_add(1);
            *byte = self.0;
        }
    }
}

/// The world around one shard.
pub struct World {
    pub shard: Shard,
    pub now: Now,
    /// Bytes that were sent to each connection and not looked at.
    pub sent: BTreeMap<ConnId, Vec<u8>>,
    pub connecting: Vec<ConnId>,
    /// Where each connection was to go.
    pub targets: BTreeMap<ConnId, Target>,
    pub closed: Vec<ConnId>,
    pub paused: Vec<ConnId>,
    pub reports: Vec<Report>,
    pub shard_messages: Vec<ShardMessage>,
    pub exported: Vec<Export>,
    /// Clients whose pool is on another shard.
    pub moved: Vec<ClientMove>,
    pub log: Vec<String>,
    /// Of each connection, how many lines the log had when something was sent to it last.
    pub logged_before: BTreeMap<ConnId, usize>,
    /// The kernel is not done with the sockets that were closed.
    pub is_slow_to_close: bool,
    /// None in a test that is about descriptions.
    pub describer: Option<Describer>,
}

impl World {
    pub fn new(settings: &str) -> World {
        World::beside(Arc::new(OneShard::default()), settings)
    }

    /// The same where the test knows what all shards share.
    pub fn beside(directory: Arc<OneShard>, settings: &str) -> World {
        World::on(ShardId(0), directory, settings)
    }

    /// The same of one shard of several. A client of a pool that is on the first two stays on the shard that it comes to.
    pub fn on(id: ShardId, directory: Arc<OneShard>, settings: &str) -> World {
        let mock = Arc::new(MockKey::new([7; 32]));
        let entropy = Box::new(Counting(u8::try_from(id.0).unwrap()));
        let shard = Shard::new(id, config(settings), directory, entropy, mock);
        World {
            shard,
            now: Now { mono_us: 1_000_000, wall_us: 1_000_000 },
            sent: BTreeMap::new(),
            connecting: vec![],
            targets: BTreeMap::new(),
            closed: vec![],
            paused: vec![],
            reports: vec![],
            shard_messages: vec![],
            exported: vec![],
            moved: vec![],
            log: vec![],
            logged_before: BTreeMap::new(),
            is_slow_to_close: false,
            describer: Some(Describer::default()),
        }
    }

    pub fn event(&mut self, event: Event<'_>) {
        let received = if let Event::Received { bytes, .. } = &event { bytes.to_vec() } else { vec![] };
        self.shard.handle(event, self.now);
        let mut closing = vec![];
        while let Some(action) = self.shard.poll() {
            match action {
                Action::Send { to, source, start, end } => {
                    let from = if source == Source::Received { &received[..] } else { self.shard.written() };
                    let bytes = &from[start as usize..end as usize];
                    let bytes = match &mut self.describer {
                        Some(describer) => describer.asked(to, bytes),
                        None => bytes.to_vec(),
                    };
                    self.sent.entry(to).or_default().extend(bytes);
                    self.logged_before.insert(to, self.log.len());
                }
                Action::Connect { conn, target } => {
                    self.connecting.push(conn);
                    self.targets.insert(conn, *target);
                }
                Action::Close { conn } => closing.push(conn),
                Action::Pause { conn } => self.paused.push(conn),
                Action::Resume { conn } => self.paused.retain(|paused| *paused != conn),
                Action::Report(report) => self.reports.push(*report),
                Action::SendToShard { message, .. } => self.shard_messages.push(*message),
                Action::Export(what) => self.exported.push(*what),
                Action::Log(record) => self.log.push(record.text),
                Action::Move { client, .. } => self.moved.push(*client),
                Action::LoginComplete { .. } | Action::Ask { .. } => {}
            }
        }
        for conn in closing {
            self.closed.push(conn);
            if !self.is_slow_to_close {
                self.event(Event::Closed { conn });
            }
        }
    }

    /// The rows of SHOW CLIENTS.
    pub fn clients(&mut self) -> Vec<messages::SocketRow> {
        let (request, subject) = (messages::RequestId(1), messages::Subject::Clients);
        self.event(Event::Command(messages::Command::List { request, subject }));
        let reports = std::mem::take(&mut self.reports);
        let rows = reports.into_iter().filter_map(|report| match report {
            Report::Listing { rows: messages::Listing::Sockets(rows), .. } => Some(rows),
            _ => None,
        });
        rows.flatten().collect()
    }

    pub fn pass(&mut self, milliseconds: u64) {
        self.now.mono_us += milliseconds * 1_000;
        self.now.wall_us += milliseconds * 1_000;
        self.event(Event::Tick);
    }

    pub fn receive(&mut self, conn: ConnId, bytes: &[u8]) {
        let bytes = match &mut self.describer {
            Some(describer) => describer.said(conn, bytes),
            None => bytes.to_vec(),
        };
        self.event(Event::Received { conn, bytes: &bytes, unsent: false });
    }

    /// A socket that has said nothing yet.
    pub fn accept(&mut self) -> ConnId {
        let conn = self.shard.allocate_id();
        let address = "127.0.0.1:5".parse().unwrap();
        self.event(Event::Accepted { conn, peer: Peer::Inet { remote: address, local: address } });
        conn
    }

    /// A client that has sent its startup packet.
    pub fn client(&mut self, parameters: &[(&str, &str)]) -> ConnId {
        let conn = self.accept();
        let mut packet = vec![];
        let mut all: Vec<(&[u8], &[u8])> = vec![(b"user", b"u"), (b"database", b"d")];
        all.extend(parameters.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())));
        encode::startup(&mut packet, Version::V3_0, &all);
        self.receive(conn, &packet);
        conn
    }

    /// The same of this user.
    pub fn client_of(&mut self, user: &str) -> ConnId {
        let conn = self.accept();
        let startup = message(|out| {
            encode::startup(out, Version::V3_0, &[(b"user", user.as_bytes()), (b"database", b"d")]);
        });
        self.receive(conn, &startup);
        conn
    }

    /// A server answers so many statements that Weir has sent in front of a request, as it would before the answer to that.
    pub fn led(&mut self, server: ConnId, statements: usize) {
        let bytes = message(|out| {
            for tag in ["BEGIN"].into_iter().chain(vec!["SET"; statements]).chain(["COMMIT"]) {
                encode::parse_complete(out);
                encode::bind_complete(out);
                encode::command_complete(out, tag);
            }
            encode::close_complete(out);
        });
        self.receive(server, &bytes);
    }

    /// Lets the next server connection succeed and log in.
    pub fn server(&mut self) -> ConnId {
        self.server_with(&[])
    }

    /// The same, with these bytes right behind the login.
    pub fn server_with(&mut self, behind: &[u8]) -> ConnId {
        let conn = self.connected();
        self.sent.remove(&conn);
        self.log_in(conn, behind);
        conn
    }

    /// Lets the next server connection succeed, and no more: its startup packet is there to be read.
    pub fn connected(&mut self) -> ConnId {
        let conn = self.connecting.remove(0);
        self.event(Event::Connected {
            conn,
            remote: "127.0.0.1:1".parse().ok(),
            local: "127.0.0.1:2".parse().ok(),
        });
        conn
    }

    /// A server speaks in frames from here on: what Weir asks of descriptions is answered for the test.
    pub fn follow(&mut self, server: ConnId) {
        if let Some(describer) = &mut self.describer {
            describer.follow(server);
        }
    }

    /// The server lets Weir in.
    pub fn log_in(&mut self, conn: ConnId, behind: &[u8]) {
        let mut hello = vec![];
        encode::authentication_ok(&mut hello);
        encode::parameter_status(&mut hello, b"server_version", b"15.0");
        encode::parameter_status(&mut hello, b"application_name", b"");
        encode::parameter_status(&mut hello, b"DateStyle", b"ISO, MDY");
        encode::key_data(&mut hello, 77, &[1, 2, 3, 4]);
        encode::ready(&mut hello, Status::Idle);
        hello.extend_from_slice(behind);
        self.receive(conn, &hello);
        self.follow(conn);
    }

    /// Tags of the messages sent to a connection since the last look.
    pub fn tags(&mut self, conn: ConnId) -> String {
        let mut frames = Frames::new(1 << 20);
        frames.push(&self.sent.remove(&conn).unwrap_or_default());
        let mut tags = String::new();
        while let Ok(Some((tag, _))) = frames.pop() {
            tags.push(char::from(tag));
        }
        tags
    }

    /// Text of everything sent to a connection since the last look.
    pub fn text(&mut self, conn: ConnId) -> String {
        String::from_utf8_lossy(&self.sent.remove(&conn).unwrap_or_default()).into_owned()
    }

    pub fn query(&mut self, conn: ConnId, sql: &str) {
        let bytes = message(|out| encode::query(out, sql.as_bytes()));
        self.receive(conn, &bytes);
    }

    /// The server answers one simple query.
    pub fn answer(&mut self, conn: ConnId, status: Status) {
        let bytes = message(|out| {
            encode::command_complete(out, "SELECT 1");
            encode::ready(out, status);
        });
        self.receive(conn, &bytes);
    }
}

pub fn message(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = vec![];
    write(&mut bytes);
    bytes
}
