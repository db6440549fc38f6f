//! The environment of an experiment: a private PostgreSQL or a user's, inspected and with the tables that the workloads need; brought to
//! the same state before each run as far as it is the lab's to do so. Never changes tables that it did not make.

use std::time::{Duration, Instant};

use super::progress::ProgressReporter;
use super::{ExperimentOptions, cells};
use crate::cpu;
use crate::error::{LabError, Result};
use crate::identity::Identity;
use crate::interrupt::Interrupt;
use crate::laboratory::{BYTES_BESIDE, BYTES_PER_SCALE, ROLE, raise_open_files};
use crate::listener::listening_on;
use crate::load::Generator;
use crate::machine::Machine;
use crate::options::Driver;
use crate::pgbench::{self, Loader};
use crate::postgres::{Cluster, Programs, SUPERUSER, Standby};
use crate::record::ServerRecord;
use crate::scratch_dir::ScratchDir;
use crate::target::{Address, Inspection, Psql, Tables};
use crate::workload::needs_tables;

/// How long connections of an earlier run may take to go away.
const LEAVING: Duration = Duration::from_secs(20);

/// How long a standby may take to replay what was written.
const REPLAYING: Duration = Duration::from_secs(120);

/// Behind the last record there may be a page's header that no record follows.
const NEARLY_BYTES: u32 = 1024;

/// Connections that are still there after this time without change are there to stay.
const STAYING: Duration = Duration::from_secs(1);

/// A server that is ready to be measured.
#[derive(Debug)]
pub(super) struct Environment {
    /// Where clients reach PostgreSQL itself; of a primary and its standbys the primary.
    pub(super) address: Address,
    /// Its standbys.
    pub(super) standbys: Vec<Address>,
    pub(super) psql: Psql,
    pub(super) record: ServerRecord,
    pub(super) machine: Machine,
    /// The server's first process, where it can be seen.
    pub(super) process: Option<u32>,
    inspection: Inspection,
    /// Somebody who may write a checkpoint.
    admin: Address,
    tables: Option<Tables>,
    interrupt: Interrupt,
    // The order of these three is the order in which they go.
    _standbys: Vec<Standby>,
    _cluster: Option<Cluster>,
    pub(super) place: ScratchDir,
}

/// The servers of an environment.
#[derive(Debug)]
struct Servers {
    primary: Address,
    standbys: Vec<Address>,
    /// Somebody who may write a checkpoint at the primary.
    admin: Address,
}

impl Servers {
    /// Of the user's: one, or a primary and its standbys.
    ///
    /// # Errors
    /// When one cannot be reached, or there is not one primary.
    fn of(psql: &Psql, address: &Address) -> Result<Self> {
        if address.others.is_empty() {
            return Ok(Self { primary: address.clone(), standbys: Vec::new(), admin: address.clone() });
        }
        let (mut primaries, mut standbys) = (Vec::new(), Vec::new());
        for server in address.each() {
            let is_standby = Inspection::is_standby(psql, &server)?;
            if is_standby { standbys.push(server) } else { primaries.push(server) }
        }
        match &primaries[..] {
            [primary] => Ok(Self { primary: primary.clone(), standbys, admin: primary.clone() }),
            found => Err(LabError::Missing {
                what: format!("{address}: {} of these servers are primaries", found.len()),
                remedy: "name one primary and its standbys".to_owned(),
            }),
        }
    }
}

/// What makes the load: looked for before anything is started.
///
/// # Errors
/// [`LabError::Missing`] with the package that has it.
pub(super) fn generator(wish: &ExperimentOptions) -> Result<Box<dyn Generator>> {
    match wish.driver {
        Driver::Pgbench => Ok(Box::new(Loader::new(&programs(wish)?.program("pgbench"), wish.threads)?)),
        Driver::Sysbench => Ok(Box::new(wish.tools.find_sysbench()?)),
        Driver::Jmeter => Ok(Box::new(wish.tools.find_jmeter()?)),
    }
}

/// PostgreSQL's programs: all of them for a private server, else those of a client.
fn programs(wish: &ExperimentOptions) -> Result<Programs> {
    let wished = wish.pg_bin.as_deref();
    if wish.server.is_none() { Programs::find(wished) } else { Programs::clients(wished) }
}

impl Environment {
    /// Makes or inspects the server, and its tables.
    ///
    /// # Errors
    /// When the machine lacks something, the server cannot be reached, has too little room, or tables are in the way.
    pub(super) fn set(
        wish: &ExperimentOptions,
        interrupt: &Interrupt,
        news: &mut ProgressReporter,
    ) -> Result<Self> {
        raise_open_files();
        let programs = programs(wish)?;
        let mut environment = match &wish.server {
            None => Self::private(wish, programs, interrupt, news)?,
            Some(address) => Self::given(address, &programs, interrupt)?,
        };
        environment.require_room(wish, news)?;
        environment.need_tables(wish, news)?;
        Ok(environment)
    }

    fn private(
        wish: &ExperimentOptions,
        programs: Programs,
        interrupt: &Interrupt,
        news: &mut ProgressReporter,
    ) -> Result<Self> {
        let identity = Identity::choose()?;
        let scale = wish.scale.unwrap_or(wish.usual_scale);
        let needed_bytes = u64::from(scale) * BYTES_PER_SCALE + BYTES_BESIDE;
        let needed_bytes = needed_bytes * u64::from(1 + wish.standbys);
        let machine = Machine::look(programs.version());
        let place = ScratchDir::create(None, "bench", needed_bytes, &identity)?;
        let programs = programs.reachable(&place)?;
        news.step(&format!("starting a private {}", programs.version()));
        let cluster = Cluster::start(&programs, &place, wish.max_connections, ROLE, interrupt)?;
        let psql = Psql::of(&programs, interrupt)?;
        let address = Address::local(cluster.port(), ROLE, ROLE);
        let host = place.path().to_string_lossy().into_owned();
        let admin = Address { host, user: SUPERUSER.to_owned(), ..address.clone() };
        let process = Some(cluster.process_id());
        let standbys = (1..=wish.standbys).map(|number| {
            news.step(&format!("starting standby {number}"));
            Standby::start(&programs, &place, &cluster, &format!("standby{number}"), interrupt)
        });
        let standbys: Vec<Standby> = standbys.collect::<Result<_>>()?;
        let addresses = standbys.iter().map(|standby| Address::local(standby.port(), ROLE, ROLE)).collect();
        let servers = Servers { primary: address, standbys: addresses, admin };
        let own = Some((cluster, standbys));
        Self::look(servers, psql, machine, process, own, place, interrupt)
    }

    fn given(address: &Address, programs: &Programs, interrupt: &Interrupt) -> Result<Self> {
        let psql = Psql::of(programs, interrupt)?;
        let servers = Servers::of(&psql, address)?;
        let address = &servers.primary;
        let place = ScratchDir::create(None, "bench", 1_000_000, &Identity::choose()?)?;
        let machine = Machine::look("");
        // The listening process may be a proxy to a container.
        let listener = || listening_on(address.port).filter(|process| cpu::is_named(*process, "postgres"));
        let seen = || listener().or_else(|| process(&psql, address));
        let process = address.is_local().then(seen).flatten();
        Self::look(servers, psql, machine, process, None, place, interrupt)
    }

    fn look(
        servers: Servers,
        psql: Psql,
        machine: Machine,
        process: Option<u32>,
        own: Option<(Cluster, Vec<Standby>)>,
        place: ScratchDir,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let (cluster, own_standbys) = own.map_or((None, Vec::new()), |(cluster, own)| (Some(cluster), own));
        let Servers { primary, standbys, admin } = servers;
        let mut environment = Self {
            record: ServerRecord { embedded: cluster.is_some(), ..ServerRecord::default() },
            // Of several servers it would be the time of one.
            process: process.filter(|_| standbys.is_empty()),
            address: primary,
            standbys,
            psql,
            machine,
            inspection: Inspection::default(),
            admin,
            tables: None,
            interrupt: interrupt.clone(),
            _standbys: own_standbys,
            _cluster: cluster,
            place,
        };
        environment.look_again()?;
        Ok(environment)
    }

    /// How many connections the server has left for the load.
    pub(super) fn room(&self) -> Option<u32> {
        self.inspection.room()
    }

    /// pgbench's scale, where its tables are there.
    pub(super) fn scale(&self) -> Option<u32> {
        self.record.database.scale
    }

    /// A pool must fit; clients that come direct may be refused: that is what a pool is for.
    fn require_room(&self, wish: &ExperimentOptions, news: &mut ProgressReporter) -> Result<()> {
        let largest = wish.pool_sizes.iter().copied().max().unwrap_or(1);
        let room = self.room().unwrap_or(u32::MAX);
        if !wish.started.is_empty() && largest > room {
            return Err(LabError::Missing {
                what: self.inspection.shortage(largest).unwrap_or_default(),
                remedy: "name smaller pool sizes, close what is open, or raise max_connections".to_owned(),
            });
        }
        if let Some(what) = cells::shortage(wish, self.room()) {
            let remedy = "name --pool-sizes, close what is open, or raise max_connections".to_owned();
            return Err(LabError::Missing { what, remedy });
        }
        let clients = wish.clients.iter().copied().max().unwrap_or(1);
        if let Some(shortage) = self.inspection.shortage(clients).filter(|_| wish.direct) {
            news.remark(&format!("direct: {shortage}"));
        }
        Ok(())
    }

    fn need_tables(&mut self, wish: &ExperimentOptions, news: &mut ProgressReporter) -> Result<()> {
        if wish.driver == Driver::Sysbench {
            return self.need_sysbench_tables(wish, news);
        }
        // A plan of the user's has tables of its own.
        let is_ours = wish.driver == Driver::Pgbench || wish.tools.jmeter_plan.is_none();
        if !is_ours || !wish.workloads.iter().any(needs_tables) {
            return Ok(());
        }
        let found = &self.inspection.tables;
        let tables = found.decide(wish.scale, wish.usual_scale, wish.force)?;
        if let Tables::Fill { scale } = tables {
            news.step(&format!("pgbench -i -s {scale}"));
            let program = programs(wish)?.program("pgbench");
            pgbench::fill(&program, &self.address, scale, &self.interrupt, &mut |done, line| {
                news.bar(done, line);
            })?;
        } else {
            news.remark(&format!(
                "pgbench's tables are there, of scale {}: used as they are",
                tables.scale()
            ));
        }
        self.look_again()?;
        let tables = if wish.owns_tables { Tables::Fill { scale: tables.scale() } } else { tables };
        self.record.database.made = tables.are_made();
        self.tables = Some(tables);
        Ok(())
    }

    /// What the tables have added belongs into the record.
    fn look_again(&mut self) -> Result<()> {
        self.inspection = Inspection::look(&self.psql, &self.address)?;
        self.record = self.inspection.record(&self.address, self.record.embedded);
        for standby in &self.standbys {
            // A pool has its size at each of them: the server with the least room counts.
            self.inspection.others = self.inspection.others.max(Inspection::others(&self.psql, standby)?);
        }
        self.record.others = self.inspection.others;
        self.record.standbys = self.standbys.iter().map(Address::label).collect();
        Ok(())
    }

    fn need_sysbench_tables(&mut self, wish: &ExperimentOptions, news: &mut ProgressReporter) -> Result<()> {
        let sysbench = wish.tools.find_sysbench()?;
        // Scripts may share their tables: those that one makes suit the next.
        for (number, workload) in wish.workloads.iter().enumerate() {
            news.step(&format!("sysbench: looking for the tables of {}", workload.name));
            let force = wish.force && number == 0;
            let remark = sysbench.prepare(&self.psql, &self.address, workload, force, &self.interrupt)?;
            news.remark(&remark);
        }
        self.look_again()
    }

    /// Brings the server to the same state before each run: no client is connected and, where the lab made the tables, the
    /// small ones are as `pgbench -i` makes them and what was written is on disk.
    ///
    /// # Errors
    /// When the server is gone.
    pub(super) fn settle(&self, writes: bool) -> Result<()> {
        self.wait_until_left()?;
        if writes && self.tables.is_some_and(Tables::are_made) {
            self.tidy_up()?;
        }
        self.standbys.iter().try_for_each(|standby| self.wait_until_replayed(standby))?;
        self.interrupt.check()
    }

    fn tidy_up(&self) -> Result<()> {
        for statement in ["VACUUM pgbench_branches", "VACUUM pgbench_tellers", "TRUNCATE pgbench_history"] {
            self.psql.rows(&self.address, statement)?;
        }
        // Only some roles may; without, the server's own checkpoints fall where they fall.
        let _ = self.psql.rows(&self.admin, "CHECKPOINT");
        Ok(())
    }

    /// Waits until a standby has what was written: it would not serve the next reads, or still be busy with it.
    fn wait_until_replayed(&self, standby: &Address) -> Result<()> {
        let value = |address: &Address, question: &str| {
            let rows = self.psql.rows(address, question)?;
            Ok(rows.into_iter().next().and_then(|row| row.into_iter().next()).unwrap_or_default())
        };
        let written = value(&self.address, "SELECT pg_current_wal_flush_lsn()")?;
        let question =
            format!("SELECT pg_wal_lsn_diff('{written}', pg_last_wal_replay_lsn()) < {NEARLY_BYTES}");
        let replayed =
            self.interrupt.wait_for(REPLAYING, || Ok((value(standby, &question)? == "t").then_some(())))?;
        replayed.ok_or_else(|| {
            let seconds = REPLAYING.as_secs();
            LabError::Peer(format!(
                "{standby}: the standby has not replayed what was written {seconds} s ago"
            ))
        })
    }

    /// Waits until the load's earlier connections have gone: their places are free again. A pooler that runs keeps its
    /// own, so it is enough that no more go.
    fn wait_until_left(&self) -> Result<()> {
        let question = "SELECT count(*) FROM pg_stat_activity \
            WHERE backend_type = 'client backend' AND usename = current_user AND pid <> pg_backend_pid()";
        let mut last = (u32::MAX, Instant::now());
        self.interrupt
            .wait_for(LEAVING, || {
                let rows = self.psql.rows(&self.address, question)?;
                let count = rows.first().and_then(|row| row.first()?.parse::<u32>().ok()).unwrap_or(0);
                if count != last.0 {
                    last = (count, Instant::now());
                }
                Ok((count <= self.record.others || last.1.elapsed() > STAYING).then_some(()))
            })
            .map(drop)
    }
}

/// The server's first process, by the parent of one of its own that a question finds.
fn process(psql: &Psql, address: &Address) -> Option<u32> {
    let question = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'";
    let rows = psql.rows(address, question).ok()?;
    cpu::parent_named(rows.first()?.first()?.parse().ok()?, "postgres")
}
