//! The scene of an experiment: machine, server, targets, workloads, load generator, plan, warnings.
//! Plain data; what it says was found by asking the machine and the server, never assumed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// The machine that made the load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineRecord {
    /// The processor's name.
    pub processor: String,
    /// CPUs that this process may use.
    pub cores: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The distribution's name and version.
    pub system: String,
    /// The load average of the last minute before the first run.
    pub load_before: f64,
}

impl From<&Machine> for MachineRecord {
    fn from(machine: &Machine) -> Self {
        Self {
            processor: machine.processor.clone(),
            cores: u32::try_from(machine.cores).unwrap_or(u32::MAX),
            memory_mib: machine.memory_mib,
            kernel: machine.kernel.clone(),
            system: machine.system.clone(),
            load_before: machine.load,
        }
    }
}

/// The PostgreSQL that was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerRecord {
    /// `server_version`, as `18.6 (Debian 18.6-1)`.
    pub version: String,
    /// Whether the lab made it for this experiment and threw it away.
    pub embedded: bool,
    /// Whether it ran on the machine that made the load: then both share its CPUs.
    pub same_machine: bool,
    /// Where it is, as `127.0.0.1:5432/bench`, without password.
    pub place: String,
    /// Settings that matter for the figures, as SHOW says them: `max_connections`, `superuser_reserved_connections`,
    /// `reserved_connections` (16 and later), `shared_buffers`, `fsync`, `synchronous_commit`, `full_page_writes`,
    /// `max_wal_size`, `random_page_cost`, `max_parallel_workers_per_gather`.
    pub settings: BTreeMap<String, String>,
    /// Its standbys, to which poolers send reads, as `db2:5432`.
    #[serde(default)]
    pub standbys: Vec<String>,
    /// Connections of others that were open before the experiment; of several servers the most.
    pub others: u32,
    /// The data.
    pub database: Database,
}

impl ServerRecord {
    /// A setting that is a whole number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u32> {
        self.settings.get(name)?.parse().ok()
    }
}

/// The data that the workloads ran on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Database {
    /// Bytes on disk before the first run.
    pub bytes: u64,
    /// pgbench's scale; `None` where there are no tables of pgbench.
    pub scale: Option<u32>,
    /// Whether the lab made the tables, or found them.
    pub made: bool,
}

/// Something that clients were pointed at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetRecord {
    /// As points and reports name it: `direct`, `weir`, `pgbouncer`, …
    pub name: String,
    /// What it is.
    pub kind: TargetKind,
    /// What it says it is: `weir 0.1.0 (…)`, `PgBouncer 1.18.0`; empty for `direct`.
    pub version: String,
    /// The I/O driver that it says it uses, where it says so.
    pub io_driver: Option<String>,
    /// `session`, `transaction` or `statement`, where that is known.
    pub mode: Option<String>,
    /// Where clients connect, without password; `None` for what is started anew for each pool size.
    pub place: Option<String>,
}

/// What a target is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetKind {
    /// PostgreSQL itself.
    #[default]
    Direct,
    /// A pooler that the lab starts for each pool size, and ends.
    Started,
    /// Weir with a pool that sizes itself (`pool_size = auto`), started for each run, and ended.
    SelfSized,
    /// A pooler that was running; the lab changes nothing of it.
    Running,
}

/// What clients did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkloadRecord {
    /// As points and reports name it.
    pub name: String,
    /// What it does, in one sentence.
    pub what: String,
    /// The scripts, where it is scripts.
    pub scripts: Vec<Script>,
    /// Arguments for the generator beyond those of the plan (`-C`, `--rate`, names of its own workloads).
    pub arguments: Vec<String>,
    /// Whether it writes: then what it wrote is tidied up before each run.
    pub writes: bool,
}

/// A script in pgbench's language.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Script {
    /// Its name: a file's, or the lab's own.
    pub name: String,
    /// How often it is chosen, against the other scripts' weights.
    pub weight: u32,
    /// Its text.
    pub text: String,
    /// How long it does nothing, in microseconds, for certain: pgbench counts a `\sleep` into the time of its
    /// transaction, so readers of the log subtract this.
    #[serde(default)]
    pub think_us: u64,
}

/// What made the load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// `pgbench`, `sysbench` or `jmeter`.
    pub name: String,
    /// Its own version line.
    pub version: String,
    /// Threads that it was given.
    pub threads: u32,
}

/// How it was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Seconds at the begin of each run that count for nothing (they are kept and marked).
    pub warm_up_s: u32,
    /// Seconds of each run that count.
    pub seconds: u32,
    /// Transactions of each client in place of seconds.
    #[serde(default)]
    pub transactions: Option<u32>,
    /// Whether started poolers open all server connections of a pool at once: min_pool_size is its size.
    #[serde(default)]
    pub min_pool_size: bool,
    /// Runs of each point. Each round has one run of every point, in an order of its own.
    pub rounds: u32,
    /// Seed of the rounds' orders.
    pub seed: u64,
    /// What the 99th percentile should stay within, in milliseconds, where the user said it.
    pub p99_target_ms: Option<f64>,
    /// Pool sizes that were tried; empty where size was not the question.
    pub pool_sizes: Vec<u32>,
    /// Numbers of clients.
    pub clients: Vec<u32>,
    /// `simple`, `extended` or `prepared`.
    pub query_mode: String,
    /// How many runs were planned in all, open loop included.
    pub runs: u32,
    /// Server connections that other pools may need, as the user said.
    pub other_pools: u32,
}

/// What a reader must know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// What sort of thing.
    pub kind: WarningKind,
    /// One or two sentences.
    pub text: String,
}

/// The sorts of warnings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WarningKind {
    /// The server does not wait for the disk.
    FsyncOff,
    /// The load generator had no CPU left: the figures are its own limit, not the server's.
    GeneratorBound,
    /// The machine was busy with other things before the first run.
    BusyMachine,
    /// Clients were refused.
    Refused,
    /// Transactions failed.
    Failed,
    /// The experiment was interrupted.
    Interrupted,
    /// The load generator could not keep up with the offered load.
    RateMissed,
    /// Too few runs for an interval.
    FewRounds,
    /// Rounds in which not everything that is compared was measured count for no figure.
    Excluded,
    /// The load generator, the server and the pooler shared their CPUs.
    SharedMachine,
    /// A workload that does not write was not served by standbys.
    FewReadsOnStandbys,
    /// Anything else.
    Other,
}
