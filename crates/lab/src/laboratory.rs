//! The set-up that the demo and the comparison share: a private PostgreSQL with pgbench's tables, and one way to
//! run and account a load. Owns the server and the directory; what is started on top must be dropped before.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::cpu::{MachineTime, Spent};
use crate::error::{LabError, Result};
use crate::identity::Identity;
use crate::interrupt::Interrupt;
use crate::machine::Machine;
use crate::pgbench::{self, Load, Loader, Outcome};
use crate::pooler::Pooler;
use crate::postgres::{Cluster, Programs};
use crate::record::Second;
use crate::scratch_dir::ScratchDir;
use crate::screen::Screen;
use crate::target::Address;

/// The role, and the database of the same name, that the loads use.
pub const ROLE: &str = "bench";

/// Bytes on disk for one unit of pgbench's scale, indexes included, rounded up.
pub(crate) const BYTES_PER_SCALE: u64 = 17_000_000;
/// Bytes on disk beside the tables: an empty cluster, and the write-ahead log at its default largest.
pub(crate) const BYTES_BESIDE: u64 = 1_400_000_000;

/// Threads of the generator, as the tutorial's `-j 2`.
const THREADS: u32 = 2;

/// What a laboratory is set up from.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Names the directory.
    pub purpose: &'static str,
    /// Where PostgreSQL's programs are, when the caller knows.
    pub pg_bin: Option<PathBuf>,
    /// PostgreSQL's max_connections.
    pub max_connections: u32,
    /// pgbench's scale.
    pub scale: u32,
}

/// A running laboratory.
#[derive(Debug)]
pub struct Lab {
    /// Where it stands.
    pub machine: Machine,
    programs: Programs,
    loader: Loader,
    interrupt: Interrupt,
    // The order of these two is the order in which they go.
    cluster: Cluster,
    place: ScratchDir,
}

/// A load's outcome with what it cost.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// pgbench's figures.
    pub outcome: Outcome,
    /// CPU time of the pooler, where there was one.
    pub pooler: Option<Spent>,
    /// CPU time of the whole machine, in microseconds.
    pub machine_us: f64,
}

impl Measured {
    /// Transactions per second.
    #[must_use]
    pub fn tps(&self) -> Option<f64> {
        self.outcome.summary.as_ref().map(|summary| summary.tps)
    }

    /// `spent` divided by the transactions.
    #[must_use]
    pub fn per_transaction(&self, spent_us: f64) -> Option<f64> {
        let summary = self.outcome.summary.as_ref()?;
        (summary.transactions > 0).then(|| spent_us / summary.transactions as f64)
    }

    /// The pooler's CPU microseconds for a transaction.
    #[must_use]
    pub fn pooler_us(&self) -> Option<f64> {
        self.per_transaction(self.pooler?.total_us())
    }

    /// The whole machine's CPU microseconds for a transaction.
    #[must_use]
    pub fn machine_us(&self) -> Option<f64> {
        self.per_transaction(self.machine_us)
    }
}

impl Lab {
    /// Makes the directory, starts PostgreSQL in it and fills pgbench's tables.
    ///
    /// # Errors
    /// When the machine lacks something, or a program fails.
    pub fn set_up(setup: &Setup, interrupt: &Interrupt, screen: &mut Screen) -> Result<Self> {
        let lab = Self::start(setup, interrupt, screen)?;
        lab.fill(setup.scale, screen)?;
        Ok(lab)
    }

    /// Makes the directory and starts PostgreSQL in it, without tables; the disk has room for them.
    ///
    /// # Errors
    /// As [`Lab::set_up`].
    pub fn start(setup: &Setup, interrupt: &Interrupt, screen: &mut Screen) -> Result<Self> {
        raise_open_files();
        let identity = Identity::choose()?;
        let programs = Programs::find(setup.pg_bin.as_deref())?;
        let machine = Machine::look(programs.version());
        let needed_bytes = u64::from(setup.scale) * BYTES_PER_SCALE + BYTES_BESIDE;
        let place = ScratchDir::create(None, setup.purpose, needed_bytes, &identity)?;
        let programs = programs.reachable(&place)?;
        screen.step(&format!("Starting a private {}", programs.version()));
        let cluster = Cluster::start(&programs, &place, setup.max_connections, ROLE, interrupt)?;
        screen.remark(&format!(
            "in {}, port {}, max_connections {}, as user {}",
            place.path().display(),
            cluster.port(),
            setup.max_connections,
            identity.name
        ));
        let loader = Loader::new(&programs.program("pgbench"), THREADS)?;
        Ok(Self { machine, programs, loader, interrupt: interrupt.clone(), cluster, place })
    }

    /// PostgreSQL's programs, where the lab's user can reach them.
    #[must_use]
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Where the lab's files are.
    #[must_use]
    pub fn place(&self) -> &ScratchDir {
        &self.place
    }

    /// PostgreSQL.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The flag of Ctrl-C.
    #[must_use]
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// PostgreSQL itself as a target.
    #[must_use]
    pub fn direct(&self) -> Address {
        Address::local(self.cluster.port(), ROLE, ROLE)
    }

    /// Runs a load and accounts it; `watch` gets each second.
    ///
    /// # Errors
    /// When pgbench does not start or the lab is interrupted.
    pub fn measure(
        &self,
        target: &Address,
        load: &Load,
        pooler: Option<&Pooler>,
        watch: &mut dyn FnMut(&Second),
    ) -> Result<Measured> {
        let directory = load.keep.clone().unwrap_or_else(|| self.place.join("load"));
        fs::create_dir_all(&directory)
            .map_err(LabError::system(format!("making {}", directory.display())))?;
        let machine_before = MachineTime::read();
        let pooler_before = pooler.map(Pooler::time);
        let outcome = load.run(&self.loader, target, &directory, &self.interrupt, watch);
        let spent = pooler.zip(pooler_before).map(|(pooler, before)| pooler.time().since(&before));
        let machine_us = MachineTime::read().since_us(&machine_before);
        if load.keep.is_none() {
            fs::remove_dir_all(&directory)
                .map_err(LabError::system(format!("removing {}", directory.display())))?;
        }
        Ok(Measured { outcome: outcome?, pooler: spent, machine_us })
    }

    /// Brings the server to the same state before each run: no client is connected, the small tables are as pgbench
    /// itself would make them, what was written is on disk.
    ///
    /// # Errors
    /// As the server.
    pub fn settle(&self) -> Result<()> {
        let mut superuser = self.cluster.superuser(ROLE)?;
        for statement in
            ["VACUUM pgbench_branches", "VACUUM pgbench_tellers", "TRUNCATE pgbench_history", "CHECKPOINT"]
        {
            self.interrupt.check()?;
            superuser.query(statement)?;
        }
        Ok(())
    }

    /// Waits until no connection of the loads' role is left: their slots are free again.
    ///
    /// # Errors
    /// If clients are still connected after half a minute.
    pub fn wait_until_left(&self) -> Result<()> {
        let mut superuser = self.cluster.superuser("postgres")?;
        let question = format!("SELECT 1 FROM pg_stat_activity WHERE usename = '{ROLE}'");
        let left = self.interrupt.wait_for(Duration::from_secs(30), || {
            let rows = superuser.query(&question)?;
            Ok(rows.is_empty().then_some(()))
        })?;
        left.ok_or_else(|| {
            LabError::program("postgres", "connections stay open that should have been closed")
        })
    }

    /// A program where the lab's user can run it.
    ///
    /// # Errors
    /// [`LabError::Missing`] when it is not there.
    pub fn program(&self, path: &Path, remedy: &str) -> Result<PathBuf> {
        if !path.is_file() {
            return Err(LabError::Missing {
                what: format!("{} is not there", path.display()),
                remedy: remedy.to_owned(),
            });
        }
        self.place.reachable_program(path)
    }

    fn fill(&self, scale: u32, screen: &mut Screen) -> Result<()> {
        screen
            .step(&format!("pgbench -i -s {scale}: {} rows", crate::figures::whole(f64::from(scale) * 1e5)));
        let program = self.programs.program("pgbench");
        pgbench::fill(&program, &self.direct(), scale, &self.interrupt, &mut |done, line| {
            screen.progress(done, line);
        })?;
        screen.close();
        Ok(())
    }
}

/// Lets this process and its children open as many files as the system allows.
pub(crate) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// How many files this process, and so each of its children, may open.
#[must_use]
pub fn open_files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
