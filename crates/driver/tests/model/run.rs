//! One run of a script on one loop: carries its steps out, waits for what must come of them, and counts what is left.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use messages::Command;
use messages::ShardId;
use rustix::net::{SocketAddrUnix, bind, connect, sockopt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use settings::{Config, IoDriver};
use weir_driver::{Engine, Held, Listeners, Plan, TakeoverImport};

use crate::peers::{PeerSocket, SeenEnd, address_of, new_socket};
use crate::recorder::{ModelShard, PeerEnd, Shared, Stage, State};
use crate::script::{Act, Habits, Key, Place, Script, Start, Step};
use crate::support::{assert_driver, own_address};

/// Longest wait for something that must happen.
const PATIENCE: Duration = Duration::from_secs(10);

/// What came of a connection, as far as it does not depend on who was quicker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub failed: Option<String>,
    pub received: Option<usize>,
    pub read: Option<usize>,
}

/// All outcomes, or what was wrong.
pub type Verdict = Result<Vec<Outcome>, String>;

pub fn run(script: &Script, io: IoDriver) -> Verdict {
    let before = files_at_rest();
    let mut run = Run::start(script, io);
    run.settle_files();
    let idle = open_files() - run.spares.len();
    for step in &script.steps {
        run.step(step);
        if run.has_failed() {
            return run.end(None);
        }
    }
    run.finish();
    if run.has_failed() {
        return run.end(None);
    }
    run.spares.clear();
    run.peers.iter_mut().for_each(|peer| *peer = PeerSocket::new());
    let mut open = 0;
    run.wait("descriptors to be closed", |_| {
        open = open_files();
        open == idle
    });
    if open != idle {
        run.shared.state().fault(format!("{open} descriptors are open, {idle} were at first"));
    }
    run.end(Some(before))
}

struct Run<'a> {
    script: &'a Script,
    io: IoDriver,
    engine: Option<Engine>,
    shared: Arc<Shared>,
    address: SocketAddr,
    unix: PathBuf,
    peers: Vec<PeerSocket>,
    posted: usize,
    /// Sockets for clients that connect while no descriptor is left.
    spares: Vec<(bool, OwnedFd)>,
    hoard: Option<(Vec<OwnedFd>, Rlimit)>,
}

impl<'a> Run<'a> {
    fn start(script: &'a Script, io: IoDriver) -> Run<'a> {
        let shared = Arc::new(Shared::default());
        let keys = script.keys();
        shared.state().conns.resize_with(keys, Default::default);
        let config = config(script.start);
        let unix = PathBuf::from(config.global.unix_socket_dir.clone().unwrap()).join(".s.PGSQL.0");
        let listeners = Listeners::open(&config.global, Vec::new()).unwrap();
        let address = listeners.tcp_address().unwrap();
        let plan = Plan {
            config: Arc::new(config),
            threads: 1,
            io,
            receive_buffers: script.start.buffers,
            ring: script.start.ring,
            inheritance: TakeoverImport::default(),
            listeners,
            log: Arc::new(|_| {}),
            reports: Arc::new(|_| {}),
            want_slots: None,
        };
        let told = Arc::clone(&shared);
        let engine = Engine::start_with(plan, move |seat| ModelShard {
            config: seat.config,
            shared: Arc::clone(&told),
            actions: Default::default(),
            written: Vec::new(),
            stall_us: 0,
        })
        .unwrap();
        assert_driver(&engine, io);
        let spares = if script.takes_files() {
            [false, false, false, true].map(|is_unix| (is_unix, new_socket(is_unix).unwrap())).into()
        } else {
            Vec::new()
        };
        let peers = (0..keys).map(|_| PeerSocket::new()).collect();
        Run { script, io, engine: Some(engine), shared, address, unix, peers, posted: 0, spares, hoard: None }
    }

    /// A shard's thread opens what it needs before it does anything else.
    fn settle_files(&mut self) {
        self.order(Vec::new());
        self.wait_for_orders();
    }

    fn has_failed(&self) -> bool {
        !self.shared.state().faults.is_empty()
    }

    fn step(&mut self, step: &Step) {
        self.shared.state().note(format!("step {step:?}"));
        match step {
            Step::Connect(key, place, buffer, first, habits) => {
                self.connect(*key, *place, *buffer, *first, *habits);
            }
            Step::Serve(key, place) => self.serve(*key, *place),
            Step::Shard(acts) => self.shard(acts),
            Step::Write(key, length) => self.peer(*key).write(*length),
            Step::Urgent(key) => self.ending(*key, PeerSocket::urgent),
            Step::Read(key, length) => self.peer(*key).read(Some(*length)),
            Step::ReadAll(key) => self.peer(*key).read(None),
            Step::ShutdownWrite(key) => self.ending(*key, PeerSocket::shutdown_write),
            Step::Close(key) => self.ending(*key, |peer, key, shared| peer.close(key, shared, false)),
            Step::Reset(key) => self.ending(*key, |peer, key, shared| peer.close(key, shared, true)),
            Step::Admit(key) => self.peer(*key).admit(),
            Step::TakeFiles => self.take_files(),
            Step::GiveFiles => self.give_files(),
            Step::Sleep(time) => std::thread::sleep(Duration::from_micros(*time)),
            Step::Sync => self.sync(),
        }
        self.pump();
    }

    fn peer(&mut self, key: Key) -> &mut PeerSocket {
        &mut self.peers[key]
    }

    /// An end is the same on both loops only if the connection was there.
    fn ending(&mut self, key: Key, end: impl Fn(&mut PeerSocket, Key, &Shared)) {
        self.wait_for_orders();
        let is_connecting = matches!(self.stage(key), Stage::Connecting | Stage::Open);
        if self.peers[key].expects_server() && is_connecting && self.hoard.is_none() {
            self.wait("a server connection", |run| {
                run.pump();
                run.peers[key].socket.is_some() || run.shared.state().conns[key].stage == Stage::Gone
            });
        }
        self.pump();
        // Whether a server connection is there that follows another one depends on how quickly that one closed.
        self.shared.state().conns[key].cut |= self.peers[key].socket.is_none();
        end(&mut self.peers[key], key, &self.shared);
    }

    fn stage(&self, key: Key) -> Stage {
        self.shared.state().conns[key].stage
    }

    fn connect(&mut self, key: Key, place: Place, buffer: usize, first: usize, habits: Habits) {
        let is_unix = place == Place::Unix;
        let spare = self.spares.iter().position(|(spare, _)| *spare == is_unix);
        let socket = match (&self.hoard, spare) {
            (None, _) => new_socket(is_unix).unwrap(),
            (Some(_), Some(index)) => self.spares.swap_remove(index).1,
            (Some(_), None) => return,
        };
        let takes = self.takes(is_unix);
        let mut state = self.shared.state();
        let one = &mut state.conns[key];
        (one.habits, one.takes, one.is_unix) = (habits, takes, is_unix);
        if is_unix {
            state.unix.push_back(key);
            drop(state);
            connect(&socket, &SocketAddrUnix::new(&self.unix).unwrap()).unwrap();
        } else {
            if buffer > 0 {
                sockopt::set_socket_recv_buffer_size(&socket, buffer).unwrap();
            }
            let _ = sockopt::set_tcp_nodelay(&socket, true);
            bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
            state.addresses.insert(address_of(&socket), key);
            drop(state);
            connect(&socket, &self.address).unwrap();
        }
        let peer = self.peer(key);
        (peer.is_unix, peer.socket) = (is_unix, Some(socket));
        peer.write(first);
    }

    /// What the shard's side of a socket takes whatever the peer does. A small buffer may be full of what the peer has read
    /// and not acknowledged yet.
    fn takes(&self, is_unix: bool) -> usize {
        if is_unix || self.script.start.tcp_buffer == 0 { 8_000 } else { 0 }
    }

    fn serve(&mut self, key: Key, place: Place) {
        if self.hoard.is_none() {
            let target = self.peers[key].serve(key, place);
            let is_unix = self.peers[key].is_unix;
            let takes = self.takes(is_unix);
            let mut state = self.shared.state();
            let one = &mut state.conns[key];
            (one.target, one.takes, one.is_unix) = (Some(target), takes, is_unix);
        }
    }

    fn shard(&mut self, acts: &[Act]) {
        for act in acts {
            if let Act::Dial(key, place, _) = act {
                self.serve(*key, *place);
            }
        }
        self.order(acts.to_vec());
        if acts.len() != 2 {
            self.wait_for_orders();
        }
    }

    fn order(&mut self, acts: Vec<Act>) {
        self.posted += 1;
        self.shared.state().orders.push_back(acts);
        self.engine.as_ref().unwrap().command(ShardId(0), Command::Resume { database: None });
    }

    fn wait_for_orders(&mut self) {
        self.wait("the shard to act", |run| run.shared.state().orders_done == run.posted);
    }

    fn pump(&mut self) {
        for (key, peer) in self.peers.iter_mut().enumerate() {
            peer.pump(key, &self.shared);
        }
    }

    fn wait(&mut self, what: &str, mut is_so: impl FnMut(&mut Run<'a>) -> bool) {
        let (begun, mut turns) = (Instant::now(), 0_u32);
        while !is_so(self) {
            if self.has_failed() {
                return;
            }
            // A process that was stopped meanwhile has not waited.
            if begun.elapsed() > PATIENCE && turns > 2_000 {
                return self.shared.state().fault(format!("waited in vain for {what}"));
            }
            turns += 1;
            if turns > 3 {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }

    fn take_files(&mut self) {
        let before = getrlimit(Resource::Nofile);
        let highest = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let highest = highest.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok()).max();
        let limit = Rlimit { current: highest.map(|number| number + 1), ..before };
        setrlimit(Resource::Nofile, limit).unwrap();
        let hoard = std::iter::from_fn(|| new_socket(false).ok()).collect();
        self.hoard = Some((hoard, before));
    }

    fn give_files(&mut self) {
        if let Some((hoard, before)) = self.hoard.take() {
            drop(hoard);
            setrlimit(Resource::Nofile, before).unwrap();
        }
    }

    fn sync(&mut self) {
        self.wait_for_orders();
        let mut last = None;
        self.wait("what must happen", |run| {
            run.pump();
            last = run.missing();
            last.is_none()
        });
        let mut state = self.shared.state();
        if let Some(last) = last.filter(|_| !state.faults.is_empty()) {
            state.fault(last);
            return;
        }
        for (one, peer) in state.conns.iter_mut().zip(&self.peers) {
            if peer.has_arrived() {
                one.arrived = one.written;
            }
        }
    }

    /// Something that has not happened yet and must.
    fn missing(&self) -> Option<String> {
        let state = self.shared.state();
        // What a peer does not read may hold all the receive buffers of io_uring.
        let is_stuck = |(key, peer): (Key, &PeerSocket)| {
            let one = &state.conns[key];
            one.stage == Stage::Open && one.read < one.out.len() && !one.write_failed && !peer.reads_all()
        };
        let may_starve = self.io == IoDriver::IoUring && self.peers.iter().enumerate().any(is_stuck);
        let look = |key| self.missing_of(key, &state, may_starve).map(|what| format!("{key}: {what}"));
        (0..self.peers.len()).find_map(look)
    }

    fn missing_of(&self, key: Key, state: &State, may_starve: bool) -> Option<&'static str> {
        let (one, peer) = (&state.conns[key], &self.peers[key]);
        let is_here = peer.socket.is_some();
        match one.stage {
            Stage::Unknown if is_here && self.hoard.is_none() => return Some("to be accepted"),
            Stage::Connecting if !peer.is_full() => return Some("to be connected"),
            Stage::Closing => return Some("to be closed"),
            Stage::Gone if is_here && peer.reads_all() && peer.seen_end.is_none() => {
                return Some("the peer to see the end");
            }
            Stage::Gone if !peer.is_let_go() => return Some("the other socket to be closed"),
            Stage::Open => {}
            _ => return None,
        }
        if peer.expects_server() {
            return self.hoard.is_none().then_some("the peer to accept");
        }
        if is_here && peer.reads_all() && !one.write_failed {
            if one.read < one.out.len() {
                return Some("the peer to read all");
            }
            if one.owes_drained {
                return Some("Drained");
            }
        }
        let is_dead = matches!(one.end, Some(PeerEnd::Closed | PeerEnd::Reset));
        if is_dead && one.owes_drained && !one.hung_up {
            return Some("WriteFailed");
        }
        if one.sent_to_none && !one.write_failed {
            return Some("WriteFailed of a send to a closed socket");
        }
        if one.hung_up {
            return None;
        }
        if one.paused {
            let unread = one.written - one.received;
            let shows = match one.end {
                None => false,
                Some(PeerEnd::ShutdownWrite) => peer.has_arrived(),
                Some(PeerEnd::Closed) => one.floor == one.written && unread < 1_000,
                Some(PeerEnd::Reset) => true,
            };
            return (shows && !one.half_closed).then_some("HalfClosed");
        }
        if may_starve {
            return None;
        }
        if is_here && (peer.has_to_write() || one.received < one.written) {
            return Some("all to be received");
        }
        one.end.is_some().then_some("HungUp")
    }

    /// Everybody reads and writes what is left; then half of the connections are closed by each side.
    fn finish(&mut self) {
        self.give_files();
        self.shared.state().note("finish".to_owned());
        self.shared.state().finishing = true;
        self.peers.iter_mut().for_each(|peer| peer.read(None));
        let all = 0..self.peers.len();
        self.order(all.clone().map(Act::Resume).collect());
        self.sync();
        // Some were paused by what the others did meanwhile.
        self.order(all.clone().map(Act::Resume).collect());
        self.sync();
        let by_shard = |key: &Key| key.is_multiple_of(2) || self.peers[*key].is_full();
        let (closing, leaving): (Vec<Key>, Vec<Key>) = all.partition(by_shard);
        for key in leaving {
            self.peers[key].close(key, &self.shared, false);
        }
        self.order(closing.into_iter().map(Act::Close).collect());
        self.sync();
        let all = 0..self.peers.len();
        self.order(all.map(Act::Close).collect());
        self.sync();
    }

    /// Stops the loop; None of `before` means that something was wrong already.
    fn end(mut self, before: Option<usize>) -> Verdict {
        self.give_files();
        self.spares.clear();
        let outcomes = self.outcomes();
        self.shared.state().is_over = before.is_none();
        self.peers.clear();
        if let Some(engine) = self.engine.take() {
            engine.join();
        }
        let mut state = self.shared.state();
        if let Some(before) = before {
            let held = state.held;
            if held != Some(Held::default()) {
                state.fault(format!("held at the end: {held:?}"));
            }
            let after = files_at_rest();
            if after != before {
                state.fault(format!("{after} descriptors instead of {before}"));
            }
        }
        if state.faults.is_empty() {
            return Ok(outcomes);
        }
        let log: Vec<&str> = state.log.iter().map(String::as_str).collect();
        Err(format!("{}\nlast events:\n{}", state.faults.join("\n"), log.join("\n")))
    }

    fn outcomes(&self) -> Vec<Outcome> {
        let state = self.shared.state();
        let outcome = |(one, peer): (&crate::recorder::Conn, &PeerSocket)| Outcome {
            failed: one.failed.clone(),
            received: (one.hung_up && one.floor == one.written && !one.cut).then_some(one.received),
            read: (one.must_all_arrive && peer.seen_end == Some(SeenEnd::Eof)).then_some(one.read),
        };
        state.conns.iter().zip(&self.peers).map(outcome).collect()
    }
}

fn config(start: Start) -> Config {
    let directory = directory();
    fs::create_dir_all(&directory).unwrap();
    let mut config = Config::default();
    let global = &mut config.global;
    (global.listen_addr, global.listen_port) = (vec![own_address().to_string()], 0);
    global.unix_socket_dir = Some(directory.display().to_string());
    global.tcp_defer_accept = start.defers_accept;
    global.tcp_socket_buffer = start.tcp_buffer;
    config
}

/// Where the unix sockets of this process are.
pub fn directory() -> PathBuf {
    std::env::temp_dir().join(format!("weir-model-{}", std::process::id()))
}

/// The open descriptors of a process without a loop. Helper threads end in their own time, and keep mailboxes until then.
fn files_at_rest() -> usize {
    static FEWEST: OnceLock<usize> = OnceLock::new();
    let (fewest, begun) = (*FEWEST.get_or_init(open_files), Instant::now());
    while open_files() != fewest && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_micros(100));
    }
    open_files()
}

fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count() - 1
}
