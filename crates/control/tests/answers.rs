//! The grammar and the control thread together, under random statements, answers, silences and signals.
//! Holds that every statement is answered exactly once, and that nothing that shards say breaks anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use messages::{
    AdminQuery, Command, ConsoleClient, Listing, PoolRow, Report, RequestId, Role, ShardId, SocketRow,
    StatementMode, Subject,
};
use settings::Config;
use weir_control::{COMMANDS, Control, Input, Output, ProcessInfo, Signal, VIEWS};

const SHARDS: u16 = 3;
const SEEDS: u64 = 300;
const STEPS: usize = 400;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap_or(0)
    }
}

/// Something a shard was asked and has not answered.
struct Owed {
    shard: u16,
    request: RequestId,
    subject: Option<Subject>,
}

struct World {
    control: Control,
    random: Random,
    now_us: u64,
    asked: u64,
    /// Client id to the number of last replies.
    answered: BTreeMap<u64, usize>,
    owed: Vec<Owed>,
    /// What is asked for however long it takes, and never lost.
    waits: Vec<Owed>,
    exited: bool,
}

impl World {
    fn new(seed: u64) -> World {
        let facts = ProcessInfo { shards: SHARDS, io_driver: "epoll" };
        let control = Control::new(Arc::new(Config::default()), facts, 0);
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        World {
            control,
            random,
            now_us: 0,
            asked: 0,
            answered: BTreeMap::new(),
            owed: Vec::new(),
            waits: Vec::new(),
            exited: false,
        }
    }

    fn input(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            self.control.handle(input, self.now_us);
            while let Some(output) = self.control.poll() {
                match output {
                    Output::Switchover(_) => panic!("no entry follows Patroni"),
                    Output::OrderDrain { request, .. } => {
                        inputs.push(Input::DrainOrdered { request, result: Ok(()) });
                    }
                    Output::Draining(_) => {}
                    Output::Tell { shard, command } => self.told(shard.0, command),
                    Output::Load if self.random.below(2) == 0 => inputs.push(Input::Loaded(Err(Vec::new()))),
                    Output::Load => inputs.push(Input::Loaded(Ok(Config::default()))),
                    Output::ReadFiles(config) => inputs.push(Input::FilesRead(*config)),
                    Output::List { request, subject } => {
                        let rows = rows(subject);
                        inputs.push(Input::Report(Report::Listing {
                            request,
                            shard: ShardId(0),
                            rows,
                            last: true,
                        }));
                    }
                    Output::Exit => self.exited = true,
                    Output::Log(_)
                    | Output::Operated(_)
                    | Output::PanelReply { .. }
                    | Output::ServerReply { .. }
                    | Output::Explained { .. }
                    | Output::ReadPools { .. }
                    | Output::WritePools { .. }
                    | Output::ChangeQuota { .. }
                    | Output::PoolReply { .. }
                    | Output::Configured(_)
                    | Output::ReopenLog
                    | Output::CloseTcp
                    | Output::HandOver { .. }
                    | Output::ResumePredecessor { .. }
                    | Output::ChangeFleetPools { .. }
                    | Output::FleetPoolsInUse(_)
                    | Output::AwaitFleetPools { .. }
                    | Output::ForgetFleetPools(_)
                    | Output::StrayCancel { .. } => {}
                }
            }
        }
    }

    fn told(&mut self, shard: u16, command: Command) {
        let (request, subject) = match command {
            Command::Reply(reply) => {
                *self.answered.entry(reply.client_id).or_default() += usize::from(reply.last);
                return;
            }
            Command::List { request, subject } => (request, Some(subject)),
            Command::Pause { request, .. }
            | Command::Kill { request, .. }
            | Command::KillClient { request, .. }
            | Command::CancelClient { request, .. }
            | Command::Suspend { request }
            | Command::Shutdown { request, .. } => (request, None),
            Command::WaitClose { request, .. } => {
                self.waits.push(Owed { shard, request, subject: None });
                return;
            }
            _ => return,
        };
        self.owed.push(Owed { shard, request, subject });
    }

    fn ask(&mut self) {
        let (view, command) = (self.random.below(VIEWS.len()), self.random.below(COMMANDS.len()));
        let sql = match self.random.below(8) {
            0..=2 => format!("SHOW {}", VIEWS[view].name),
            3 => "SET auth_file = 'x'; -- read first".to_owned(),
            4 => format!("{} pgbouncer", COMMANDS[command].word),
            5 => "SHUTDOWN WAIT_FOR_CLIENTS".to_owned(),
            // The one statement without an answer ends the process, and with it this test.
            _ if COMMANDS[command].word == "SHUTDOWN" => "frob".to_owned(),
            _ => COMMANDS[command].word.to_owned(),
        };
        self.asked += 1;
        let role = if self.random.below(4) == 0 { Role::Stats } else { Role::Admin };
        let mode = if self.random.below(8) == 0 { StatementMode::Describe } else { StatementMode::Run };
        let client_id = self.asked;
        let query = AdminQuery {
            shard: ShardId(0),
            client: 1,
            client_id,
            sender: ConsoleClient::default(),
            role,
            sql,
            parameters: None,
            mode,
        };
        self.input(Input::Report(Report::Query(query)));
    }

    /// A shard answers one of its commands, perhaps not for the last time.
    fn shard_answers(&mut self) {
        if self.owed.is_empty() {
            return;
        }
        let at = self.random.below(self.owed.len());
        let Owed { shard, request, subject } = self.owed.swap_remove(at);
        let (shard, last) = (ShardId(shard), self.random.below(3) > 0);
        let report = match subject {
            None => Report::Done { request, shard, count: self.random.below(2) as u64 },
            Some(subject) => {
                if !last {
                    self.owed.push(Owed { shard: shard.0, request, subject: Some(subject) });
                }
                Report::Listing { request, shard, rows: rows(subject), last }
            }
        };
        self.input(Input::Report(report));
    }

    fn step(&mut self) {
        self.now_us += self.random.below(200_000) as u64;
        match self.random.below(20) {
            0..=7 => self.ask(),
            8..=15 => self.shard_answers(),
            16 => {
                let signal = [Signal::Hup, Signal::Usr1, Signal::Usr2][self.random.below(3)];
                self.input(Input::Signal(signal));
            }
            17 => drop(self.owed.pop()),
            18 => {
                let request = RequestId(self.random.below(1_000) as u64);
                self.input(Input::Report(Report::Listing {
                    request,
                    shard: ShardId(9),
                    rows: rows(Subject::Users),
                    last: true,
                }));
            }
            _ => self.input(Input::Tick),
        }
    }
}

fn rows(subject: Subject) -> Listing {
    match subject {
        Subject::Clients | Subject::Servers => Listing::Sockets(vec![SocketRow::default(); 2]),
        Subject::Pools => Listing::Pools(vec![PoolRow { database: "d".into(), ..PoolRow::default() }]),
        Subject::Databases => Listing::Databases(vec![Default::default()]),
        Subject::Users => Listing::Users(vec![Default::default()]),
        Subject::Shards => Listing::Shards(vec![Default::default()]),
        Subject::Descriptors => Listing::Descriptors(vec![Default::default()]),
        Subject::Memory => Listing::Memory(vec![Default::default()]),
        Subject::PeerPools => Listing::PeerPools(vec![Default::default()]),
        Subject::Histograms => Listing::Histograms(vec![Default::default()]),
        Subject::Errors => Listing::Errors(vec![Default::default()]),
        Subject::Queries => Listing::Queries(Vec::new()),
        Subject::Listeners => Listing::Listeners(vec![Default::default()]),
        Subject::Hosts => Listing::Hosts(vec![Default::default()]),
        Subject::Zones => Listing::Zones(vec![Default::default()]),
        Subject::Clusters | Subject::ProbedHosts => Listing::Clusters(vec![Default::default()]),
        Subject::Caches => Listing::Caches(vec![Default::default()]),
        Subject::Queues => Listing::Queues(vec![Default::default()]),
        Subject::Spans => Listing::Spans(Vec::new()),
        Subject::Quotas => Listing::Quotas(Vec::new()),
        Subject::PoolSizes => Listing::PoolSizes(vec![Default::default()]),
        Subject::FleetNodes => Listing::FleetNodes(vec![Default::default()]),
        Subject::FleetBudgets => Listing::FleetBudgets(vec![Default::default()]),
        Subject::FleetLimits => Listing::FleetLimits(vec![Default::default()]),
    }
}

#[test]
fn every_statement_is_answered_once() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
            if world.exited {
                break;
            }
        }
        // Whoever waits for a PAUSE is freed; whoever waits for silent shards is told so in the end.
        world.now_us += 60_000_000;
        world.input(Input::Tick);
        let resume = AdminQuery {
            shard: ShardId(0),
            client: 1,
            client_id: u64::MAX,
            sender: ConsoleClient::default(),
            role: Role::Admin,
            sql: "resume".into(),
            parameters: None,
            mode: StatementMode::Run,
        };
        world.input(Input::Report(Report::Query(resume)));
        for Owed { shard, request, .. } in std::mem::take(&mut world.waits) {
            world.input(Input::Report(Report::Done { request, shard: ShardId(shard), count: 0 }));
        }
        let pausing = world.answered.values().filter(|count| **count != 1).count();
        assert_eq!(pausing, 0, "seed {seed}: {:?}", world.answered);
        let unanswered = (1..=world.asked).filter(|id| !world.answered.contains_key(id)).count();
        assert!(unanswered <= 1, "seed {seed}: {unanswered} of {} statements have no answer", world.asked);
    }
}
