//! The shard of a run: it does what the script and its habits say, and checks every event against what it knows.
//!
//! Never touches a socket. What it finds wrong is kept as text: a panic here would end the process.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use settings::Config;
use shard::Peer;
use shard::{Action, ConnId, Event, Export, Now, Source, Target};
use weir_driver::{Core, Held};

use crate::script::{Act, Habits, Key, OnHalfClosed, OnReceived};

/// The shard's state of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// The shard has not heard of it.
    #[default]
    Unknown,
    Connecting,
    Open,
    Closing,
    Gone,
}

/// How a peer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerEnd {
    ShutdownWrite,
    Closed,
    Reset,
}

/// Both sides of one connection, as far as either knows.
#[derive(Debug, Default)]
pub struct Conn {
    pub stage: Stage,
    pub id: Option<ConnId>,
    pub habits: Habits,
    pub link: Option<Key>,
    pub target: Option<Target>,
    pub failed: Option<String>,
    pub paused: bool,
    pub hung_up: bool,
    /// HalfClosed was delivered in this pause.
    pub half_closed: bool,
    pub write_failed: bool,
    pub clogged: bool,
    pub owes_drained: bool,
    /// Paused because this one does not read.
    stopped_for: Option<Key>,
    pub received: usize,
    /// All that was sent to it.
    pub out: Vec<u8>,
    /// As much of `out` as is known to have gone to the system.
    pub flushed: usize,
    /// The shard closed it when all of `out` was known to be with the system, and nothing of the peer's was unread.
    pub must_all_arrive: bool,
    /// What of `out` a socket takes for sure.
    pub takes: usize,
    /// Bytes of the peer that may be on their way, and those that its socket took.
    pub attempted: usize,
    pub written: usize,
    /// As much of them as is known to be in the buffers of the shard's socket.
    pub arrived: usize,
    /// What the peer has read of `out`.
    pub read: usize,
    pub urgent: bool,
    /// Not all that the script has either side do was done: how much depends on who was quicker.
    pub cut: bool,
    pub end: Option<PeerEnd>,
    pub is_unix: bool,
    /// The peer's socket is closed.
    pub is_gone: bool,
    /// It was sent something after that, of which a unix socket says at once that it went nowhere.
    pub sent_to_none: bool,
    /// What must be delivered before the end.
    pub floor: usize,
}

#[derive(Default)]
pub struct State {
    pub conns: Vec<Conn>,
    /// Occupants of the shard's ids; None is taken but has no name yet.
    ids: BTreeMap<u32, Option<Key>>,
    free: Vec<u32>,
    pub addresses: BTreeMap<SocketAddr, Key>,
    /// Clients of the unix socket, in the order in which they connected.
    pub unix: VecDeque<Key>,
    pub orders: VecDeque<Vec<Act>>,
    pub orders_done: usize,
    pub faults: Vec<String>,
    pub log: VecDeque<String>,
    /// How often the last line of the log has come again.
    repeated: usize,
    /// Habits that pause are over.
    pub finishing: bool,
    pub files_ran_out: usize,
    /// The script has ended or failed: what follows is not checked.
    pub is_over: bool,
    pub held: Option<Held>,
}

/// What the shard and the peers share.
#[derive(Default)]
pub struct Shared(Mutex<State>);

impl Shared {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    pub fn note(&mut self, text: String) {
        if self.log.back() == Some(&text) {
            self.repeated += 1;
            return;
        }
        if self.repeated > 0 {
            let repeated = format!("    ({} times more)", std::mem::take(&mut self.repeated));
            self.log.push_back(repeated);
        }
        if self.log.len() >= 300 {
            self.log.pop_front();
        }
        self.log.push_back(text);
    }

    pub fn fault(&mut self, text: String) {
        if self.is_over {
            return;
        }
        self.note(format!("FAULT {text}"));
        self.faults.push(text);
    }
}

const POOL: usize = 65_521;

/// Byte `at` of what one side of a connection says: every connection and side has bytes of its own.
pub fn stream(key: Key, is_peer: bool, at: usize, length: usize) -> Vec<u8> {
    static BYTES: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    let bytes = BYTES.get_or_init(|| {
        let mut dice = crate::support::Dice(0x5EED);
        (0..POOL).map(|_| dice.below(256) as u8).collect()
    });
    let mut at = ((2 * key + usize::from(is_peer)) * 7_919 + at) % POOL;
    let mut all = Vec::with_capacity(length);
    while all.len() < length {
        let count = (length - all.len()).min(POOL - at);
        all.extend_from_slice(&bytes[at..at + count]);
        at = 0;
    }
    all
}

/// Where bytes come from that are in the wrong place.
fn whence(keys: usize, bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(16)];
    for (key, is_peer) in (0..keys).flat_map(|key| [(key, true), (key, false)]) {
        let all = stream(key, is_peer, 0, POOL + start.len());
        if let Some(at) = all.windows(start.len()).position(|window| window == start) {
            return format!("what {key} says from {at} on (by its peer: {is_peer})");
        }
    }
    format!("{start:?}")
}

pub struct ModelShard {
    pub config: Arc<Config>,
    pub shared: Arc<Shared>,
    pub actions: VecDeque<Action>,
    pub written: Vec<u8>,
    pub stall_us: u64,
}

impl Core for ModelShard {
    fn start(&mut self, _now: Now) {}

    fn allocate_id(&mut self) -> ConnId {
        allocate_id(&mut self.shared.state())
    }

    fn handle(&mut self, event: Event<'_>, _now: Now) {
        self.written.clear();
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
        if !self.actions.is_empty() {
            state.fault("actions were left behind".to_owned());
        }
        if !matches!(event, Event::Busy { .. } | Event::Command(_) | Event::Tick) {
            state.note(shorten(&event));
        }
        Turn { shard: self, state: &mut state }.event(event);
        drop(state);
        std::thread::sleep(Duration::from_micros(std::mem::take(&mut self.stall_us)));
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

    fn stopped(&mut self, held: Held) {
        self.shared.state().held = Some(held);
    }
}

fn shorten(event: &Event<'_>) -> String {
    match event {
        Event::Received { conn, bytes, unsent } => {
            format!("{conn:?} Received {} bytes, unsent: {unsent}", bytes.len())
        }
        other => format!("{other:?}"),
    }
}

fn allocate_id(state: &mut State) -> ConnId {
    let next = state.ids.len() + state.free.len();
    let id = state.free.pop().unwrap_or(next as u32);
    state.ids.insert(id, None);
    ConnId(id)
}

/// One event being handled.
struct Turn<'a> {
    shard: &'a mut ModelShard,
    state: &'a mut State,
}

impl Turn<'_> {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Accepted { conn, peer } => self.accepted(conn, peer),
            Event::Connected { conn, .. } => self.connected(conn),
            Event::ConnectFailed { conn, fault } => {
                let Some(key) = self.known(conn) else { return };
                self.expect(key, "ConnectFailed", |c| matches!(c.stage, Stage::Connecting | Stage::Closing));
                self.expect(key, "a second failure", |c| c.failed.is_none());
                let one = self.conn(key);
                (one.stage, one.failed) = (Stage::Closing, Some(format!("{fault:?}")));
            }
            Event::Received { conn, bytes, unsent } => self.received(conn, bytes, unsent),
            Event::SendBufferFull { conn } => self.clogged(conn),
            Event::SendBufferEmpty { conn } => self.drained(conn),
            Event::WriteFailed { conn } => self.write_failed(conn),
            Event::HungUp { conn } => self.hung_up(conn),
            Event::HalfClosed { conn } => self.half_closed(conn),
            Event::Closed { conn } => {
                let Some(key) = self.known(conn) else { return };
                self.expect(key, "Closed", |c| c.stage == Stage::Closing);
                self.conn(key).stage = Stage::Gone;
                self.free(conn);
                if let Some(follower) = self.conn(key).habits.follower.filter(|_| !self.state.finishing) {
                    self.dial(follower, Habits { pauses_at_once: true, ..Habits::default() });
                }
            }
            Event::FilesRanOut => self.state.files_ran_out += 1,
            Event::Command(_) => {
                while let Some(acts) = self.state.orders.pop_front() {
                    acts.into_iter().for_each(|act| self.act(act));
                    self.state.orders_done += 1;
                }
            }
            _ => {}
        }
    }

    fn known(&mut self, conn: ConnId) -> Option<Key> {
        let known = self.state.ids.get(&conn.0).copied().flatten();
        if known.is_none() {
            self.state.fault(format!("an event of {conn:?}, which is nobody's"));
        }
        known
    }

    fn conn(&mut self, key: Key) -> &mut Conn {
        &mut self.state.conns[key]
    }

    fn expect(&mut self, key: Key, what: &str, holds: impl Fn(&Conn) -> bool) {
        if !holds(&self.state.conns[key]) {
            let mut text = format!("{what} of {key} is not possible now");
            let one = &self.state.conns[key];
            text += &format!(
                " ({:?}, paused {}, hung up {}, write failed {}, end {:?})",
                one.stage, one.paused, one.hung_up, one.write_failed, one.end
            );
            self.state.fault(text);
        }
    }

    fn free(&mut self, conn: ConnId) {
        self.state.ids.remove(&conn.0);
        self.state.free.push(conn.0);
    }

    fn name(&mut self, conn: ConnId, key: Key, stage: Stage) {
        self.state.note(format!("{conn:?} is {key}"));
        self.state.ids.insert(conn.0, Some(key));
        let one = self.conn(key);
        (one.id, one.stage) = (Some(conn), stage);
    }

    fn accepted(&mut self, conn: ConnId, peer: Peer) {
        let key = match peer {
            Peer::Inet { remote, .. } => self.state.addresses.get(&remote).copied(),
            Peer::Unix { .. } => self.state.unix.pop_front(),
        };
        match key.filter(|key| self.state.conns[*key].stage == Stage::Unknown) {
            Some(key) => {
                self.name(conn, key, Stage::Open);
                self.begin(key);
            }
            None => self.state.fault(format!("{conn:?} was accepted, and nobody has connected")),
        }
    }

    fn connected(&mut self, conn: ConnId) {
        let Some(key) = self.known(conn) else { return };
        self.expect(key, "Connected", |c| c.stage == Stage::Connecting);
        self.conn(key).stage = Stage::Open;
        self.begin(key);
    }

    fn begin(&mut self, key: Key) {
        if self.conn(key).habits.pauses_at_once {
            self.act(Act::Pause(key));
        }
    }

    fn received(&mut self, conn: ConnId, bytes: &[u8], unsent: bool) {
        let Some(key) = self.known(conn) else { return };
        self.expect(key, "Received", |c| c.stage == Stage::Open && !c.paused && !c.hung_up);
        let one = self.conn(key);
        one.owes_drained |= unsent;
        let at = one.received;
        one.received += bytes.len();
        let is_known = one.received <= one.attempted.max(one.written);
        if bytes.is_empty() || !is_known || stream(key, true, at, bytes.len()) != bytes {
            let found = whence(self.state.conns.len(), bytes);
            let text =
                format!("{key}: {} bytes from {at} on are not what was sent, but {found}", bytes.len());
            self.state.fault(text);
        }
        if let Some(to) = self.conn(key).link {
            return self.forward(to, bytes, 0, bytes.len());
        }
        let habits = self.conn(key).habits;
        match habits.received {
            OnReceived::Note => {}
            OnReceived::Echo => self.forward(key, bytes, 0, bytes.len()),
            OnReceived::EchoInPieces => {
                let step = bytes.len().div_ceil(40);
                for start in (0..bytes.len()).step_by(step) {
                    self.forward(key, bytes, start, (start + step).min(bytes.len()));
                    self.send(key, 3);
                }
            }
            OnReceived::Pause if self.state.finishing => {}
            OnReceived::Pause => self.act(Act::Pause(key)),
            // However small the pieces are that the request came in.
            OnReceived::Answer(_) if self.conn(key).out.len() > 1_000_000 => {}
            OnReceived::Answer(length) => self.send(key, length),
            OnReceived::AnswerAndClose(length) => {
                self.send(key, length);
                self.close(key);
            }
        }
    }

    fn feeder(&self, key: Key) -> Key {
        self.state.conns[key].link.unwrap_or(key)
    }

    fn clogged(&mut self, conn: ConnId) {
        let Some(key) = self.known(conn) else { return };
        self.expect(key, "Clogged", |c| c.stage == Stage::Open && !c.clogged && !c.write_failed);
        let one = self.conn(key);
        (one.clogged, one.owes_drained) = (true, true);
        let feeder = self.feeder(key);
        if !self.conn(key).habits.ignores_clog && self.conn(feeder).stage == Stage::Open {
            self.act(Act::Pause(feeder));
            self.conn(feeder).stopped_for = Some(key);
        }
    }

    fn drained(&mut self, conn: ConnId) {
        let Some(key) = self.known(conn) else { return };
        self.expect(key, "Drained", |c| c.stage == Stage::Open && c.owes_drained && !c.write_failed);
        let one = self.conn(key);
        (one.clogged, one.owes_drained) = (false, false);
        one.flushed = one.out.len();
        self.start_feeder(key);
    }

    fn start_feeder(&mut self, key: Key) {
        for feeder in 0..self.state.conns.len() {
            if self.conn(feeder).stopped_for.take_if(|stopped| *stopped == key).is_some() {
                self.act(Act::Resume(feeder));
            }
        }
    }

    fn write_failed(&mut self, conn: ConnId) {
        let Some(key) = self.known(conn) else { return };
        self.expect(key, "WriteFailed", |c| {
            c.stage == Stage::Open
                && !c.write_failed
                && matches!(c.end, Some(PeerEnd::Closed | PeerEnd::Reset))
        });
        let one = self.conn(key);
        (one.write_failed, one.clogged, one.owes_drained) = (true, false, false);
        self.start_feeder(key);
        if self.conn(key).habits.closes_on_failed_write {
            self.close(key);
        }
    }

    fn hung_up(&mut self, conn: ConnId) {
        let Some(key) = self.known(conn) else { return };
        self.expect(key, "HungUp", |c| {
            c.stage == Stage::Open && !c.paused && !c.hung_up && c.end.is_some() && c.received >= c.floor
        });
        self.conn(key).hung_up = true;
        if !self.conn(key).habits.stays_after_end {
            self.close(key);
        }
    }

    fn half_closed(&mut self, conn: ConnId) {
        let Some(key) = self.known(conn) else { return };
        self.expect(key, "HalfClosed", |c| {
            c.stage == Stage::Open && c.paused && !c.hung_up && !c.half_closed && c.end.is_some()
        });
        self.conn(key).half_closed = true;
        match self.conn(key).habits.half_closed {
            OnHalfClosed::Note => {}
            OnHalfClosed::Close => self.close(key),
            OnHalfClosed::Resume => self.act(Act::Resume(key)),
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Dial(key, _, habits) => self.dial(key, habits),
            Act::Send(key, lengths) => lengths.into_iter().for_each(|length| self.send(key, length)),
            Act::Link(one, other) => {
                if one != other {
                    self.conn(one).link = Some(other);
                    self.conn(other).link = Some(one);
                }
            }
            Act::Close(key) => self.close(key),
            Act::Stall(time) => self.shard.stall_us += time,
            Act::Pause(key) | Act::Resume(key) | Act::Settle(key) | Act::HandOn(key) => {
                let stage = self.conn(key).stage;
                if let (Stage::Open, Some(conn)) = (stage, self.conn(key).id) {
                    self.act_on_open(act, key, conn);
                }
            }
        }
    }

    fn act_on_open(&mut self, act: Act, key: Key, conn: ConnId) {
        self.state.note(format!("    {act:?}"));
        let one = self.conn(key);
        let action = match act {
            Act::Pause(_) => {
                one.paused = true;
                Action::Pause { conn }
            }
            Act::Resume(_) => {
                (one.paused, one.half_closed, one.stopped_for) = (false, false, None);
                Action::Resume { conn }
            }
            Act::Settle(_) => Action::LoginComplete { conn },
            _ => {
                (one.stage, one.must_all_arrive) = (Stage::Gone, false);
                self.free(conn);
                self.start_feeder(key);
                Action::Export(Box::new(Export::Socket {
                    conn,
                    state: Vec::new(),
                    link: None,
                    is_server: false,
                }))
            }
        };
        self.shard.actions.push_back(action);
    }

    fn dial(&mut self, key: Key, habits: Habits) {
        let Some(target) = self.conn(key).target.clone() else { return };
        let conn = allocate_id(self.state);
        self.name(conn, key, Stage::Connecting);
        self.conn(key).habits = habits;
        self.shard.actions.push_back(Action::Connect { conn, target: Box::new(target) });
    }

    fn send(&mut self, key: Key, length: usize) {
        let at = self.conn(key).out.len();
        let bytes = stream(key, false, at, length);
        let start = self.shard.written.len();
        self.shard.written.extend_from_slice(&bytes);
        self.queue(key, &bytes, Source::Written, start);
    }

    fn forward(&mut self, key: Key, bytes: &[u8], start: usize, end: usize) {
        self.queue(key, &bytes[start..end], Source::Received, start);
    }

    /// Sends to connections that are being closed must be without effect.
    fn queue(&mut self, key: Key, bytes: &[u8], source: Source, start: usize) {
        let one = self.conn(key);
        let (true, Some(to)) = (matches!(one.stage, Stage::Open | Stage::Closing), one.id) else { return };
        if one.stage == Stage::Open && !one.write_failed {
            one.out.extend_from_slice(bytes);
            one.sent_to_none |= one.is_unix && one.is_gone;
        }
        let (start, end) = (start as u32, (start + bytes.len()) as u32);
        self.state.note(format!("    Send {} bytes to {key}", bytes.len()));
        self.shard.actions.push_back(Action::Send { to, source, start, end });
    }

    fn close(&mut self, key: Key) {
        let one = self.conn(key);
        let (Stage::Open | Stage::Connecting, Some(conn)) = (one.stage, one.id) else { return };
        let is_taken = one.flushed == one.out.len() || one.out.len().saturating_sub(one.read) <= one.takes;
        let is_read = one.attempted == one.written
            && (one.received == one.written
                || one.arrived == one.written && one.written - one.received < 32_000);
        let hears = !matches!(one.end, Some(PeerEnd::Closed | PeerEnd::Reset));
        // An urgent byte is never read, so closing resets.
        let is_read = is_read && !one.urgent;
        one.must_all_arrive = one.stage == Stage::Open && is_taken && is_read && hears && !one.write_failed;
        one.stage = Stage::Closing;
        self.state.note(format!("    Close {key}"));
        self.shard.actions.push_back(Action::Close { conn });
        self.start_feeder(key);
    }
}
