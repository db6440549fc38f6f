//! A scripted shard on real sockets, and what tests need around it. It echoes, or relays to a target.
#![allow(dead_code, clippy::unwrap_used, clippy::cast_possible_truncation, unreachable_pub)]

use std::collections::{BTreeSet, VecDeque};
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use messages::Command;
use settings::{Config, IoDriver};
use shard::Peer;
use shard::{Action, ConnId, Event, Now, Source, Target};
use weir_driver::{Core, Engine, Listeners, Plan, ReceiveBuffers, RingSize, ShardArgs};

/// What scripted shards have seen, added up.
#[derive(Default)]
pub struct Seen {
    pub accepted: AtomicUsize,
    pub received: AtomicUsize,
    pub clogged: AtomicUsize,
    pub drained: AtomicUsize,
    pub half_closed: AtomicUsize,
    pub write_failed: AtomicUsize,
    pub hung_up: AtomicUsize,
    pub closed: AtomicUsize,
    /// Clients that are closed when descriptors have run out, one at a time.
    pub expendable: AtomicUsize,
    pub peers: Mutex<Vec<Peer>>,
    pub shards: Mutex<Vec<u16>>,
    pub faults: Mutex<Vec<String>>,
    pub log: Mutex<Vec<String>>,
}

/// A shard by script.
pub struct Script {
    shard: u16,
    config: Arc<Config>,
    seen: Arc<Seen>,
    target: Option<Target>,
    actions: VecDeque<Action>,
    written: Vec<u8>,
    /// The other side of each connection; itself while it is alone.
    links: Vec<Option<ConnId>>,
    free: Vec<u32>,
    paused: Vec<ConnId>,
    clients: BTreeSet<ConnId>,
}

impl Script {
    pub fn new(seat: ShardArgs, seen: Arc<Seen>, target: Option<Target>) -> Script {
        Script {
            shard: seat.id.0,
            config: seat.config,
            seen,
            target,
            actions: VecDeque::new(),
            written: Vec::new(),
            links: Vec::new(),
            free: Vec::new(),
            paused: Vec::new(),
            clients: BTreeSet::new(),
        }
    }

    fn link(&self, conn: ConnId) -> Option<ConnId> {
        self.links[conn.0 as usize].filter(|link| *link != conn)
    }

    fn say(&mut self, to: ConnId, bytes: &[u8]) {
        let start = self.written.len() as u32;
        self.written.extend_from_slice(bytes);
        let end = self.written.len() as u32;
        self.actions.push_back(Action::Send { to, source: Source::Written, start, end });
    }

    fn forward(&mut self, to: ConnId, start: usize, end: usize) {
        let (start, end) = (start as u32, end as u32);
        self.actions.push_back(Action::Send { to, source: Source::Received, start, end });
    }

    fn accepted(&mut self, conn: ConnId, peer: Peer) {
        self.seen.accepted.fetch_add(1, Ordering::SeqCst);
        self.seen.peers.lock().unwrap().push(peer);
        self.seen.shards.lock().unwrap().push(self.shard);
        self.links[conn.0 as usize] = Some(conn);
        self.clients.insert(conn);
        if let Some(target) = self.target.clone() {
            let server = self.allocate_id();
            self.links[conn.0 as usize] = Some(server);
            self.links[server.0 as usize] = Some(conn);
            self.actions.push_back(Action::Pause { conn });
            self.actions.push_back(Action::Connect { conn: server, target: Box::new(target) });
        }
    }

    /// `!pause`, `!bye`, `!big` are orders; all else comes back in brackets.
    fn echo(&mut self, conn: ConnId, bytes: &[u8]) {
        if bytes.starts_with(b"!pause") {
            self.paused.push(conn);
            self.actions.push_back(Action::Pause { conn });
        } else if bytes.starts_with(b"!bye") {
            self.say(conn, &vec![b'.'; 64 * 1024]);
            self.actions.push_back(Action::Close { conn });
        } else if bytes.starts_with(b"!big") {
            self.say(conn, &vec![b'.'; 16 * 1024 * 1024]);
        } else if bytes.starts_with(b"!settle") {
            self.actions.push_back(Action::LoginComplete { conn });
            self.say(conn, b"ok");
        } else {
            self.say(conn, b"[");
            self.forward(conn, 0, bytes.len() / 2);
            self.forward(conn, bytes.len() / 2, bytes.len());
            self.say(conn, b"]");
        }
    }

    fn files_ran_out(&mut self) {
        let is_left = |count: usize| count.checked_sub(1);
        let is_expendable =
            self.seen.expendable.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_left).is_ok();
        if let Some(conn) = self.clients.first().copied().filter(|_| is_expendable) {
            self.close_both(conn);
        }
    }

    fn hung_up(&mut self, conn: ConnId) {
        self.seen.hung_up.fetch_add(1, Ordering::SeqCst);
        self.close_both(conn);
    }

    fn close_both(&mut self, conn: ConnId) {
        if let Some(link) = self.link(conn) {
            self.links[link.0 as usize] = Some(link);
            self.actions.push_back(Action::Close { conn: link });
        }
        self.actions.push_back(Action::Close { conn });
    }

    fn closed(&mut self, conn: ConnId) {
        self.seen.closed.fetch_add(1, Ordering::SeqCst);
        assert!(self.links[conn.0 as usize].take().is_some(), "closed twice");
        self.paused.retain(|paused| *paused != conn);
        self.clients.remove(&conn);
        self.free.push(conn.0);
    }

    fn connected(&mut self, conn: ConnId) {
        if let Some(client) = self.link(conn) {
            self.actions.push_back(Action::LoginComplete { conn: client });
            self.actions.push_back(Action::Resume { conn: client });
        }
    }
}

impl Core for Script {
    fn start(&mut self, _now: Now) {}

    fn allocate_id(&mut self) -> ConnId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.links.push(None);
            self.links.len() as u32 - 1
        });
        ConnId(id)
    }

    fn handle(&mut self, event: Event<'_>, _now: Now) {
        assert!(self.actions.is_empty(), "actions were left");
        self.written.clear();
        match event {
            Event::Accepted { conn, peer } => self.accepted(conn, peer),
            Event::Received { conn, bytes, .. } => {
                self.seen.received.fetch_add(1, Ordering::SeqCst);
                match self.target {
                    None => self.echo(conn, bytes),
                    Some(_) => {
                        if let Some(link) = self.link(conn) {
                            self.forward(link, 0, bytes.len());
                        }
                    }
                }
            }
            Event::SendBufferFull { conn } => {
                self.seen.clogged.fetch_add(1, Ordering::SeqCst);
                let feeder = self.link(conn).unwrap_or(conn);
                self.actions.push_back(Action::Pause { conn: feeder });
                if self.clients.contains(&conn) {
                    self.actions.push_back(Action::Pause { conn });
                }
            }
            Event::SendBufferEmpty { conn } => {
                self.seen.drained.fetch_add(1, Ordering::SeqCst);
                let feeder = self.link(conn).unwrap_or(conn);
                self.actions.push_back(Action::Resume { conn: feeder });
                if self.clients.contains(&conn) {
                    self.actions.push_back(Action::Resume { conn });
                }
            }
            Event::HalfClosed { .. } => {
                self.seen.half_closed.fetch_add(1, Ordering::SeqCst);
            }
            Event::WriteFailed { conn } => {
                self.seen.write_failed.fetch_add(1, Ordering::SeqCst);
                if self.clients.contains(&conn) {
                    self.close_both(conn);
                }
            }
            Event::FilesRanOut => self.files_ran_out(),
            Event::HungUp { conn } => self.hung_up(conn),
            Event::Closed { conn } => self.closed(conn),
            Event::Connected { conn, .. } => self.connected(conn),
            Event::ConnectFailed { conn, fault } => {
                self.seen.faults.lock().unwrap().push(format!("{fault:?}"));
                if let Some(client) = self.link(conn) {
                    self.links[client.0 as usize] = Some(client);
                    self.actions.push_back(Action::Close { conn: client });
                }
            }
            Event::Command(Command::Resume { .. }) => {
                for conn in std::mem::take(&mut self.paused) {
                    self.actions.push_back(Action::Resume { conn });
                }
            }
            _ => {}
        }
    }

    fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn written(&self) -> &[u8] {
        &self.written
    }

    fn deadline(&self) -> Option<u64> {
        None
    }

    fn config(&self) -> &Arc<Config> {
        &self.config
    }
}

/// Running scripted shards.
pub struct Stage {
    pub engine: Option<Engine>,
    pub address: SocketAddr,
    pub seen: Arc<Seen>,
}

/// How shards are started.
#[derive(Clone)]
pub struct Setup {
    pub io: IoDriver,
    pub threads: u16,
    pub config: Config,
    pub target: Option<Target>,
    pub buffers: ReceiveBuffers,
}

impl Setup {
    pub fn new(io: IoDriver) -> Setup {
        let mut config = Config::default();
        config.global.listen_addr = vec![own_address().to_string()];
        config.global.listen_port = 0;
        config.global.unix_socket_dir = None;
        config.global.tcp_defer_accept = false;
        Setup { io, threads: 1, config, target: None, buffers: ReceiveBuffers::default() }
    }

    pub fn relay(io: IoDriver, target: SocketAddr) -> Setup {
        let target = Target::Inet { host: target.ip().to_string().into(), port: target.port() };
        Setup { target: Some(target), ..Setup::new(io) }
    }

    pub fn start(self) -> Stage {
        let seen = Arc::new(Seen::default());
        let plan = plan(&self, &seen);
        let address = plan.listeners.tcp_address().unwrap_or_else(|| "0.0.0.0:0".parse().unwrap());
        let (told, target) = (Arc::clone(&seen), self.target);
        let make = move |seat: ShardArgs| Script::new(seat, Arc::clone(&told), target.clone());
        let engine = Engine::start_with(plan, make).unwrap();
        assert_driver(&engine, self.io);
        Stage { engine: Some(engine), address, seen }
    }
}

/// A plan whose log is kept.
pub fn plan(setup: &Setup, seen: &Arc<Seen>) -> Plan {
    let told = Arc::clone(seen);
    Plan {
        config: Arc::new(setup.config.clone()),
        threads: setup.threads,
        io: setup.io,
        receive_buffers: setup.buffers,
        ring: RingSize::default(),
        inheritance: weir_driver::TakeoverImport::default(),
        listeners: Listeners::open(&setup.config.global, Vec::new()).unwrap(),
        log: Arc::new(move |record| told.log.lock().unwrap().push(record.text)),
        reports: Arc::new(|_| {}),
        want_slots: None,
    }
}

/// A test of io_uring that ran on epoll has tested nothing.
pub fn assert_driver(engine: &Engine, io: IoDriver) {
    let wanted = if io == IoDriver::Epoll { "epoll" } else { "io_uring" };
    assert_eq!(engine.io_driver_in_use(), (wanted, None));
}

impl Stage {
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub fn resume_all(&self) {
        self.engine.as_ref().unwrap().broadcast(&Command::Resume { database: None });
    }

    pub fn all_closed(&self, count: usize) {
        wait_for("connections to close", || self.seen.closed.load(Ordering::SeqCst) == count);
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.engine.take().unwrap().join();
    }
}

/// Longest wait for anything.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something is so.
pub fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Reads exactly so many bytes.
pub fn read(stream: &mut impl Read, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// A loopback address that no other test uses: a port that one test has given up is not another one's by chance.
pub fn own_address() -> Ipv4Addr {
    static TAKEN: AtomicUsize = AtomicUsize::new(0);
    let number = TAKEN.fetch_add(1, Ordering::SeqCst) as u8;
    Ipv4Addr::new(
        127,
        1 + (std::process::id() / 250 % 250) as u8,
        1 + (std::process::id() % 250) as u8,
        number,
    )
}

/// A server that runs `serve` for each connection on a thread of its own.
pub fn serve(serve: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind((own_address(), 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Foreseeable numbers.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}
