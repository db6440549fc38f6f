//! One seed's world: shards, clients, servers and the network between them, moved on event by event.
//!
//! Three phases: chaos while the faults last, then healing, in which every session must come to its end, then probes,
//! in which everything must work. Nothing here knows a real clock, a socket or a thread.

mod actions;
mod audit;
mod clients;
mod faults;
mod finish;
mod operator;
mod orders;
mod probe;
mod process;
mod quotas;
mod reads;
mod reload;
mod replicas;
mod servers;
mod silence;
mod sockets;
mod takeover;
mod waiting;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use messages::{Command, ShardMessage};
use settings::Config;
use shard::{ClientMove, ConnId, Event, Now};

use crate::client::session::Client;
use crate::clock::{Clock, SECOND_US};
use crate::fault::Fault;
use crate::invariants::{InvariantChecker, Violation};
use crate::model::cluster::{Attempt, Cluster};
use crate::network::{End, Network, Notice, Wake};
use crate::pooler::Pooler;
use crate::prng::Prng;
use crate::steps::Steps;
use crate::swarm::Swarm;
use crate::trace::{Readable, Trace};
use operator::Operator;
use process::Process;
pub(crate) use process::Starter;
use sockets::Socket;
use takeover::Takeover;

pub(crate) use finish::Outcome;

/// What the clock may bring.
#[derive(Debug)]
enum What {
    /// The network.
    Net(Wake),
    /// A connection between a client and the pooler reaches the acceptor.
    Accept(End),
    /// There may be something to read on a pooler's socket.
    Readable(ConnRef),
    /// The system took what was sent.
    Completed(ConnRef),
    /// A pooler's socket is clogged, or no longer.
    Clogged(ConnRef),
    WriteFailed(ConnRef),
    /// See above.
    Drained(ConnRef),
    /// Its socket is gone.
    Closed(ConnRef),
    /// A connection attempt ends.
    Connect(ConnRef, Attempt, IpAddr),
    /// A login's question is answered.
    Answered(ConnRef, auth::TaskResult),
    /// A shard asked to be woken.
    Tick(usize),
    /// A letter to a shard.
    Letter(usize, ShardMessage),
    /// A client moves to a shard.
    Adopt(usize, End, Box<ClientMove>),
    /// The control thread speaks to a shard.
    Command(usize, Command),
    /// A shard's thread tells how busy it is.
    Busy(usize),
    /// A client may act.
    ClientWake(u32),
    /// A slot gets its next session.
    Session(u32),
    /// A server process goes on.
    BackendWake(u32),
    /// An operator undoes what was done.
    Undo(operator::Undo),
    /// A process that hands over speaks to one of its shards.
    Order(usize, Command),
    /// A shard hands something on.
    Gave(usize, usize, takeover::Item),
    /// Something from another process reaches a shard.
    Inherit(usize, takeover::ImportedConn),
    /// The process that takes over dies.
    SuccessorDies(usize),
    /// A process starts where one has ended.
    Start,
    /// Something goes wrong.
    Trouble(Fault, u64),
    /// A host that is no use any more is made a standby.
    Rejoin(usize),
    /// A process asks a host what it is, and hears of it.
    Probe(usize, usize),
    Probed(probe::Answer),
    /// The faults are over.
    Heal,
}

impl From<Wake> for What {
    fn from(wake: Wake) -> What {
        What::Net(wake)
    }
}

/// A pooler's socket; the serial number tells it from others that had the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnRef {
    shard: usize,
    conn: ConnId,
    serial: u64,
}

/// Who is at an end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Nobody,
    Pooler(ConnRef),
    Client(u32),
    Canceller,
    Backend(u32),
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Era {
    /// Faults happen.
    Chaos,
    /// No new faults and no new sessions.
    Healing,
    /// Everything must work.
    Probing,
}

struct ShardBox<P> {
    pooler: P,
    sockets: Vec<Option<Socket>>,
    tick_at_us: Option<u64>,
    late_ticks: u32,
    still: orders::Quiescence,
    /// Its process.
    process: usize,
    /// Its process has ended: nothing happens to it any more.
    ended: bool,
}

impl<P> ShardBox<P> {
    fn new(pooler: P, process: usize) -> ShardBox<P> {
        let still = orders::Quiescence::default();
        ShardBox {
            pooler,
            sockets: Vec::new(),
            tick_at_us: None,
            late_ticks: 0,
            still,
            process,
            ended: false,
        }
    }
}

/// Where and when a client came from.
#[derive(Debug)]
struct ProcessStart {
    at_us: u64,
    database: String,
}

/// A world.
pub(crate) struct World<P> {
    swarm: Swarm,
    clock: Clock<What>,
    network: Network,
    owners: Vec<[Owner; 2]>,
    shards: Vec<ShardBox<P>>,
    clients: Vec<Client>,
    /// The network end of each client.
    client_ends: Vec<Option<End>>,
    /// The session that each slot has now.
    slots: Vec<Option<u32>>,
    cluster: Cluster,
    processes: Vec<Process>,
    /// The process that accepts clients, and that an operator speaks to.
    current: Option<usize>,
    takeovers: Vec<Takeover>,
    starter: Starter<P>,
    /// Clients whose transaction must not be cut.
    spared: Vec<u32>,
    config: Arc<Config>,
    checker: InvariantChecker,
    trace: Trace,
    prng: Prng,
    /// The random numbers of each client.
    prngs: Vec<Prng>,
    steps: Steps,
    era: Era,
    cancels: Vec<sockets::CancelUnderWay>,
    /// Bytes that cancel requests were answered, by their connections.
    cancel_answers: BTreeMap<u32, usize>,
    /// When the last letter to a thread arrives.
    posted: BTreeMap<usize, u64>,
    serial: u64,
    events: u64,
    operator: Operator,
    /// How the quota of the first user stands.
    quotas: quotas::QuotaWatch,
    births: Vec<ProcessStart>,
    /// Clients on their way from one shard to another.
    moving: u32,
    /// Until then waits are excused: the process was stopped not long ago.
    excused_until_us: u64,
    /// No file descriptor is left until then.
    files_out_until_us: u64,
    /// How often a host name was moved, from 1.
    addresses: BTreeMap<&'static str, u8>,
    /// What clients' reads must see, and which timelines the pooler was shown.
    reads: reads::Reads,
    /// What hosts have answered that were asked what they are.
    probes: probe::Probes,
    silence: silence::Silence,
    /// Whether there are pools to be counted.
    pools: bool,
}

/// The event after which no fault happens, so that worlds of single bytes do not take minutes.
const CHAOS_EVENTS_MOST: u64 = 400_000;
/// More events than this mean that nothing comes to an end.
const EVENTS_MOST: u64 = 4_000_000;
/// How long healing may take: longer than the longest timeout that is configured.
const HEALING_US: u64 = 400 * SECOND_US;
/// How long connections that no client waits for may linger, such as cancel requests: longer than cancel_wait_timeout.
const REST_US: u64 = 15 * SECOND_US;
/// How long the pooler has to find its servers again before clients may complain.
const GRACE_US: u64 = 5 * SECOND_US;

impl<P: Pooler> World<P> {
    /// A world around a process, and those that follow it.
    pub(crate) fn new(
        swarm: Swarm,
        starter: Starter<P>,
        config: Arc<Config>,
        prng: &Prng,
        steps: Steps,
        keep_lines: bool,
    ) -> World<P> {
        let clock = Clock::new();
        let mut world = World {
            network: Network::new(swarm.network_conditions.clone(), prng.split(1)),
            cluster: Cluster::new(swarm.servers.clone(), swarm.hosts.as_ref(), prng.split(2)),
            prng: prng.split(3),
            slots: vec![None; swarm.client_mix.slots as usize],
            swarm,
            clock,
            owners: Vec::new(),
            shards: Vec::new(),
            clients: Vec::new(),
            client_ends: Vec::new(),
            processes: Vec::new(),
            current: None,
            takeovers: Vec::new(),
            starter,
            spared: Vec::new(),
            config,
            checker: InvariantChecker::default(),
            trace: Trace::new(keep_lines),
            prngs: Vec::new(),
            steps,
            era: Era::Chaos,
            cancels: Vec::new(),
            cancel_answers: BTreeMap::new(),
            posted: BTreeMap::new(),
            serial: 0,
            events: 0,
            operator: Operator::default(),
            quotas: quotas::QuotaWatch::default(),
            births: Vec::new(),
            moving: 0,
            excused_until_us: 0,
            files_out_until_us: 0,
            addresses: BTreeMap::new(),
            reads: reads::Reads::default(),
            probes: probe::Probes::default(),
            silence: silence::Silence::default(),
            pools: true,
        };
        world.prepare();
        world
    }

    /// The same, around something that has no pools.
    pub(crate) fn without_pools(mut self) -> World<P> {
        self.pools = false;
        self
    }

    /// Lives through the whole run and tells what came of it.
    pub(crate) fn run(mut self) -> Outcome {
        let chaos_until = self.clock.now_us() + self.swarm.chaos_us;
        self.clock.at(chaos_until, What::Heal);
        self.live_until(chaos_until + HEALING_US, |world| {
            world.era == Era::Healing && world.slots.iter().all(Option::is_none)
        });
        self.expect_nobody_waiting();
        self.end_silence();
        self.live_until(self.clock.now_us() + GRACE_US, |_| false);
        self.begin_probing();
        self.live_until(self.clock.now_us() + HEALING_US, |world| world.slots.iter().all(Option::is_none));
        self.expect_nobody_waiting();
        self.live_until(self.clock.now_us() + REST_US, |_| false);
        self.end_unanswered_attempts();
        self.finish()
    }

    fn prepare(&mut self) {
        for slot in 0..self.swarm.client_mix.slots {
            let delay = self.prng.below(self.swarm.client_mix.think_us.max(1_000));
            self.clock.after(delay, What::Session(slot));
        }
        for (fault, mean_us) in self.swarm.faults.clone() {
            let first = self.prng.below(mean_us * 2);
            self.clock.after(first, What::Trouble(fault, mean_us));
        }
        self.start_process();
    }

    fn live_until(&mut self, until_us: u64, mut enough: impl FnMut(&World<P>) -> bool) {
        while !self.checker.has_objected() && !enough(self) {
            let Some(what) = self.clock.next(until_us) else {
                self.clock.pass_to(until_us);
                return;
            };
            self.events += 1;
            self.trace.number(self.clock.now_us());
            if self.events == CHAOS_EVENTS_MOST {
                self.heal();
            }
            if self.events > EVENTS_MOST {
                return self.checker.object("I8", "the world never comes to rest");
            }
            self.happen(what);
        }
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Net(wake) => {
                if let Some(notice) = self.network.wake(wake, &mut self.clock) {
                    self.notice(notice);
                }
            }
            What::Accept(end) => self.accept(end),
            What::Readable(spot) => self.read_socket(spot),
            What::Completed(spot) => self.completed(spot),
            What::Clogged(spot) => self.tell(spot, Event::SendBufferFull { conn: spot.conn }),
            What::WriteFailed(spot) => self.tell(spot, Event::WriteFailed { conn: spot.conn }),
            What::Drained(spot) => self.tell(spot, Event::SendBufferEmpty { conn: spot.conn }),
            What::Closed(spot) => self.closed(spot),
            What::Connect(spot, attempt, address) => self.connect_ends(spot, attempt, address),
            What::Answered(spot, answer) => {
                self.tell(spot, Event::Answered { conn: spot.conn, answer });
            }
            What::Tick(shard) => self.tick(shard),
            What::Letter(shard, letter) => self.deliver(shard, Event::ShardMessage(letter)),
            What::Adopt(shard, end, client) => self.adopt(shard, end, client),
            What::Command(shard, command) => {
                self.note_command(shard, &command);
                self.deliver(shard, Event::Command(command));
            }
            What::Undo(undo) => self.undo_in_time(undo),
            What::Order(shard, command) => {
                self.shards[shard].still.note_order(&command);
                self.deliver(shard, Event::Command(command));
            }
            What::Gave(number, shard, item) => self.gave(number, shard, item),
            What::Inherit(shard, legacy) => self.inherit(shard, legacy),
            What::SuccessorDies(number) => self.successor_dies(number),
            What::Start => self.start_anew(),
            What::Busy(shard) => self.be_busy(shard),
            What::ClientWake(number) => self.wake_client(number),
            What::Session(slot) => self.begin_session(slot),
            What::BackendWake(number) => self.drive_backend(number),
            What::Trouble(fault, mean_us) => self.trouble(fault, mean_us),
            What::Rejoin(place) => self.rejoin(place),
            What::Probe(process, place) => self.probe_host(process, place),
            What::Probed(answer) => self.host_probed(answer),
            What::Heal => self.heal(),
        }
    }

    fn notice(&mut self, notice: Notice) {
        let (end, writable) = match notice {
            Notice::Readable(end) => (end, false),
            Notice::Writable(end) => (end, true),
        };
        match self.owner(end) {
            Owner::Nobody => (),
            Owner::Pooler(spot) if writable => self.flush(spot),
            Owner::Pooler(spot) => self.read_socket(spot),
            Owner::Client(number) if writable => self.client_writes(number),
            Owner::Client(number) => self.client_reads(number),
            Owner::Canceller => self.canceller_looks(end),
            Owner::Backend(number) => self.drive_backend(number),
        }
    }

    fn owner(&self, end: End) -> Owner {
        self.owners[end.link.0 as usize][usize::from(end.opener)]
    }

    fn set_owner(&mut self, end: End, owner: Owner) {
        let at = end.link.0 as usize;
        if self.owners.len() <= at {
            self.owners.resize(at + 1, [Owner::Nobody; 2]);
        }
        self.owners[at][usize::from(end.opener)] = owner;
    }

    fn now(&self) -> Now {
        Now { mono_us: self.clock.now_us(), wall_us: self.clock.wall_us() }
    }

    /// Hands a shard an event and does all that it wants done.
    fn deliver(&mut self, shard: usize, event: Event<'_>) {
        if self.shards[shard].ended {
            return;
        }
        if self.trace.keeps_lines() {
            match &event {
                Event::Received { conn, bytes, unsent } => {
                    let shown = Readable(bytes);
                    self.say(format_args!("shard {shard} < {conn:?} Received unsent={unsent} {shown}"));
                }
                Event::Command(command) => {
                    self.say(format_args!("shard {shard} < {}", operator::in_words(command)));
                }
                other => self.say(format_args!("shard {shard} < {other:?}")),
            }
        }
        let now = self.now();
        let received = if let Event::Received { bytes, .. } = &event { *bytes } else { &[] };
        self.shards[shard].pooler.handle(event, now);
        self.obey(shard, received);
        self.plan_tick(shard);
        self.expect_idle_servers_lent(shard);
        self.expect_idle_servers_bare(shard);
        self.audit_now_and_then();
    }

    fn say(&mut self, text: std::fmt::Arguments<'_>) {
        let now_us = self.clock.now_us();
        self.trace.line(now_us, text);
    }

    fn plan_tick(&mut self, shard: usize) {
        let now_us = self.clock.now_us();
        let place = &mut self.shards[shard];
        let Some(deadline) = place.pooler.deadline() else { return };
        if place.tick_at_us.is_some_and(|planned| planned <= deadline) {
            return;
        }
        // A timer never fires at once, and rarely exactly then; being a little early is allowed, too.
        let at_us = deadline.max(now_us + 1) + self.prng.below(self.swarm.driving.tick_late_us);
        place.tick_at_us = Some(at_us);
        self.clock.at(at_us, What::Tick(shard));
    }

    fn tick(&mut self, shard: usize) {
        let now_us = self.clock.now_us();
        // One that was planned later has taken its place; after a jump of the clock it is late.
        if self.shards[shard].tick_at_us.is_none_or(|planned| planned > now_us) {
            return;
        }
        self.shards[shard].tick_at_us = None;
        self.deliver(shard, Event::Tick);
        self.collect_quotas(self.shards[shard].process);
        let place = &mut self.shards[shard];
        let overdue = place.pooler.deadline().is_some_and(|deadline| deadline <= now_us);
        place.late_ticks = if overdue { place.late_ticks + 1 } else { 0 };
        if place.late_ticks > 10_000 {
            self.checker.object("I16", format!("shard {shard} asks to be woken at once, for ever"));
        }
    }

    fn be_busy(&mut self, shard: usize) {
        if self.shards[shard].ended {
            return;
        }
        let percent = if self.era == Era::Chaos { self.swarm.driving.busy_percent } else { 0 };
        self.deliver(shard, Event::Busy { percent });
        self.expect_idle_servers_given_up();
        self.expect_silent_primary_left(shard);
        self.expect_pauses_in_force();
        self.expect_sent_away_gone();
        self.clock.after(SECOND_US, What::Busy(shard));
    }
}

impl<P> World<P> {
    /// Whether a client that does nothing wrong may complain of anything that goes wrong.
    fn is_fair(&self) -> bool {
        self.era == Era::Probing || self.swarm.is_fair()
    }

    /// The end of the run, early or not.
    fn verdict(self) -> (Option<Violation>, Trace, Steps) {
        (self.checker.into_verdict(), self.trace, self.steps)
    }
}
