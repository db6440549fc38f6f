//! One shard with its clients and servers, driven as its thread drives it: events in, actions out.
//! Owns the clock and what was sent to whom; only what the shard itself does is counted. An answer that is not the
//! expected one ends the program: what is counted must be what it says it is.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use ::messages::ShardId;
use auth::{Credentials, Entropy, MockKey, ServerKeyCache, ServerLogin, Step, Zeroizing};
use settings::Files;
use shard::{Action, ConnId, Event, Now, Peer, Shard, Source};
use sim::Names;
use wire::backend::Status;
use wire::encode;
use wire::frame::Frames;
use wire::startup::Version;

use crate::counted::counted_region;
use crate::messages::{self, message};

/// What a client of pgbench's or psql's says of itself.
const APPLICATION: &str = "pgbench";

/// The password of the user `bench`, whose verifier is in [`Ini`].
const PASSWORD: &str = "secret";

/// Looks at the timers until the servers of a cluster have said all that they are asked.
const SETTLING_TICKS: usize = 20;

/// Between two events.
const PAUSE_US: u64 = 50;

/// The shard and all around it.
pub(crate) struct World {
    shard: Shard,
    now: Now,
    /// What happens from now on is counted.
    pub(crate) counts: bool,
    actions: Vec<Action>,
    /// Bytes sent to each connection that have not been read.
    sent: BTreeMap<ConnId, Vec<u8>>,
    connecting: Vec<ConnId>,
    entropy: Counter,
    keys: ServerKeyCache,
}

impl World {
    /// A shard of PgBouncer's defaults in transaction mode, but for these lines, before one server.
    pub(crate) fn new(settings: &str) -> World {
        World::before("host=10.0.0.1 port=5432", settings)
    }

    /// The same before the servers of this entry.
    pub(crate) fn before(entry: &str, settings: &str) -> World {
        let config = match settings::load(&Ini { entry, settings }, "weir.ini", &[]) {
            Ok(config) => Arc::new(config),
            Err(findings) => panic!("the configuration is wrong: {findings:?}"),
        };
        let (names, mock) = (Arc::new(Names::new(1)), Arc::new(MockKey::new([7; 32])));
        World {
            shard: Shard::new(ShardId(0), config, names, Box::new(Counter(0)), mock),
            now: Now { mono_us: 1_000_000_000, wall_us: 1_790_000_000_000_000 },
            counts: false,
            actions: Vec::with_capacity(1024),
            sent: BTreeMap::new(),
            connecting: Vec::new(),
            entropy: Counter(100),
            keys: ServerKeyCache::new(10),
        }
    }

    /// Passes an event to the shard and runs its actions.
    pub(crate) fn event(&mut self, event: Event<'_>) {
        self.now.mono_us += PAUSE_US;
        self.now.wall_us += PAUSE_US;
        let received = if let Event::Received { bytes, .. } = &event { *bytes } else { &[] };
        let World { shard, now, actions, .. } = self;
        if self.counts {
            counted_region(|| step(shard, event, *now, actions));
        } else {
            step(shard, event, *now, actions);
        }
        self.obey(received);
    }

    fn obey(&mut self, received: &[u8]) {
        let mut closing = Vec::new();
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            match action {
                Action::Send { to, source, start, end } => {
                    let from = if source == Source::Received { received } else { self.shard.written() };
                    let bytes = &from[start as usize..end as usize];
                    self.sent.entry(to).or_default().extend_from_slice(bytes);
                }
                Action::Connect { conn, .. } => self.connecting.push(conn),
                Action::Close { conn } => closing.push(conn),
                _ => {}
            }
        }
        self.actions = actions; // Grown once, as a thread's would be.
        for conn in closing {
            self.sent.remove(&conn);
            self.event(Event::Closed { conn });
        }
    }

    /// Bytes arrive.
    pub(crate) fn receive(&mut self, conn: ConnId, bytes: &[u8]) {
        self.event(Event::Received { conn, bytes, unsent: false });
    }

    /// `bytes` come from one side and have to go to the other, message by message.
    pub(crate) fn pass(&mut self, from: ConnId, bytes: &[u8], to: ConnId) {
        self.receive(from, bytes);
        assert_eq!(self.tags(to), tags(bytes), "what was sent on");
    }

    /// The same for a stretch of bytes that ends anywhere.
    pub(crate) fn pass_part(&mut self, from: ConnId, bytes: &[u8], to: ConnId) -> usize {
        self.receive(from, bytes);
        self.sent.remove(&to).map_or(0, |sent| sent.len())
    }

    /// Time goes by, and the shard looks at its timers.
    pub(crate) fn tick(&mut self) {
        self.now.mono_us = self.shard.deadline().unwrap_or(self.now.mono_us);
        self.event(Event::Tick);
    }

    /// Tags of what was sent to a connection since the last look.
    pub(crate) fn tags(&mut self, conn: ConnId) -> String {
        tags(&self.sent.remove(&conn).unwrap_or_default())
    }

    /// A client logs in, to its greeting if the pool has met a server before.
    pub(crate) fn client(&mut self) -> ConnId {
        let conn = self.shard.allocate_id();
        let address = |port| std::net::SocketAddr::from(([127, 0, 0, 1], port));
        self.event(Event::Accepted {
            conn,
            peer: Peer::Inet { remote: address(50_000), local: address(6432) },
        });
        let parameters: [(&[u8], &[u8]); 3] =
            [(b"user", b"bench"), (b"database", b"bench"), (b"application_name", APPLICATION.as_bytes())];
        self.receive(conn, &message(|out| encode::startup(out, Version::V3_0, &parameters)));
        self.prove(conn);
        conn
    }

    /// The client proves that it knows the password, if it is asked.
    fn prove(&mut self, conn: ConnId) {
        let password = Credentials::Plain(Zeroizing::new(PASSWORD.to_owned()));
        let mut login = ServerLogin::new("bench", &password);
        while let Some(asked) = self.authentication(conn) {
            let mut step = login.message(&asked, &mut self.entropy, &self.keys);
            if let Step::Ask(question) = step {
                step = login.answer(question.solve(), &mut self.keys);
            }
            match step {
                Step::Send(reply) if !reply.is_empty() => self.receive(conn, &reply),
                Step::Send(_) | Step::Accept(_) => {}
                other => panic!("the login failed: {other:?}"),
            }
        }
    }

    /// The next authentication message that the client was sent.
    fn authentication(&mut self, conn: ConnId) -> Option<Vec<u8>> {
        let sent = self.sent.get_mut(&conn)?;
        let header = wire::frame::header(sent).ok().flatten().filter(|header| header.tag == b'R')?;
        let rest = sent.split_off(header.frame_bytes as usize);
        let frame = std::mem::replace(sent, rest);
        Some(frame[wire::frame::HEADER_BYTES..].to_vec())
    }

    /// A client says goodbye.
    pub(crate) fn leave(&mut self, conn: ConnId) {
        self.receive(conn, &message(encode::terminate));
    }

    /// The server connection that is being opened succeeds, and its server lets Weir in.
    pub(crate) fn server(&mut self) -> ConnId {
        self.server_of_role(false)
    }

    fn server_of_role(&mut self, is_standby: bool) -> ConnId {
        let conn = self.connecting.remove(0);
        let address = |last, port| Some(std::net::SocketAddr::from(([10, 0, 0, last], port)));
        self.event(Event::Connected { conn, remote: address(1, 5432), local: address(2, 50_001) });
        self.sent.remove(&conn);
        self.receive(conn, &messages::hello(is_standby));
        conn
    }

    /// A client, and a connection to the first host of the entry, which is the primary, and to each of its standbys, all of which have said what they are asked. The
    /// client's first transaction has been on the standbys, too.
    pub(crate) fn cluster(&mut self, standbys: usize) -> (ConnId, Vec<ConnId>) {
        let client = self.client();
        let mut servers = vec![self.server_of_role(false)];
        while servers.len() <= standbys {
            self.answer_own(&servers);
            self.tick();
            while self.opening() > 0 {
                servers.push(self.server_of_role(true));
            }
        }
        // They are asked again as time goes by, for how far they are.
        for _ in 0..SETTLING_TICKS {
            self.answer_own(&servers);
            self.tick();
        }
        self.answer_own(&servers);
        for _ in 0..standbys {
            self.ask_first(client);
            servers.iter().for_each(|server| self.finish(*server));
        }
        self.answer_own(&servers);
        self.sent.clear();
        (client, servers)
    }

    /// The servers of a cluster, whose first one is its primary, answer Weir's own questions: who they are, what reads, and how far they are.
    fn answer_own(&mut self, servers: &[ConnId]) {
        while let Some((place, asked)) =
            servers.iter().enumerate().find_map(|(place, server)| Some((place, self.sent.remove(server)?)))
        {
            let has = |word: &str| asked.windows(word.len()).any(|part| part == word.as_bytes());
            let is_standby = place > 0;
            let row = if has("pg_control_system") {
                [Some("7000"), (!is_standby).then_some("00000001")]
            } else if has("pg_rewrite") {
                [Some("end"), Some("")]
            } else {
                assert!(has("pg_last_wal_replay_lsn"), "a question of Weir's own");
                [Some(if is_standby { "t" } else { "f" }), Some("100")]
            };
            let answer = message(|out| {
                encode::data_row(out, row.iter().map(|cell| cell.map(str::as_bytes)));
                encode::command_complete(out, "SELECT 1");
                encode::ready(out, Status::Idle);
            });
            self.receive(servers[place], &answer);
        }
    }

    /// The place of the server that the request of a client goes to, and what it is sent.
    pub(crate) fn ask_one_of(
        &mut self,
        servers: &[ConnId],
        client: ConnId,
        request: &[u8],
    ) -> (usize, Vec<u8>) {
        self.receive(client, request);
        let sent = |(place, server)| Some((place, self.sent.remove(server)?));
        servers.iter().enumerate().find_map(sent).expect("one of them is asked")
    }

    /// A client and a server that have been through a first transaction, in which the server was made like the client.
    pub(crate) fn pair(&mut self) -> (ConnId, ConnId) {
        let client = self.client();
        let server = self.server();
        self.ask_first(client);
        self.finish(server);
        self.sent.clear();
        (client, server)
    }

    /// A client's first transaction begins.
    pub(crate) fn ask_first(&mut self, client: ConnId) {
        self.receive(client, &messages::query(messages::SELECT));
    }

    /// A server answers all that it is asked.
    pub(crate) fn finish(&mut self, server: ConnId) {
        while let Some(asked) = self.sent.remove(&server) {
            assert_eq!(tags(&asked), "Q", "one question after the other");
            let sets = asked.windows(4).any(|word| word == b"SET ");
            let answer = message(|out| {
                if sets {
                    encode::parameter_status(out, b"application_name", APPLICATION.as_bytes());
                }
                encode::command_complete(out, if sets { "SET" } else { "SELECT 1" });
                encode::ready(out, Status::Idle);
            });
            self.receive(server, &answer);
        }
    }

    /// Server connections that are being opened.
    pub(crate) fn opening(&self) -> usize {
        self.connecting.len()
    }
}

/// What the thread of a shard does with an event.
fn step(shard: &mut Shard, event: Event<'_>, now: Now, actions: &mut Vec<Action>) {
    shard.handle(event, now);
    while let Some(action) = shard.poll() {
        actions.push(action);
    }
}

fn tags(bytes: &[u8]) -> String {
    let mut frames = Frames::new(u32::MAX);
    frames.push(bytes);
    std::iter::from_fn(|| frames.pop().ok().flatten()).map(|(tag, _)| char::from(tag)).collect()
}

/// The configuration: these lines below what they all have in common.
struct Ini<'a> {
    entry: &'a str,
    settings: &'a str,
}

impl Files for Ini<'_> {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        match path {
            "weir.ini" => Ok(format!(
                "[databases]\nbench = {}\n[pgbouncer]\nauth_file = users\n\
                 pool_mode = transaction\nserver_tls_sslmode = disable\n{}\n",
                self.entry, self.settings
            )
            .into_bytes()),
            // The password is "secret"; 4096 rounds, as PostgreSQL makes them.
            "users" => Ok(b"\"bench\" \"SCRAM-SHA-256$4096:d2VpciBjb3VudHMgdGhpcw==$\
                H/X3G+5rF7kVqD0lfEw+UCIYOH2HRzNZnS7AOETSlrc=:dWk7eqy/fmOLnxYSPRyNhrlPFA93iw/6zst9KLRS/bQ=\"\n"
                .to_vec()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// Entropy that is the same every time.
struct Counter(u8);

impl Entropy for Counter {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_add(1);
            *byte = self.0;
        }
    }
}
