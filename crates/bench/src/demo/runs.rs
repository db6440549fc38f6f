//! The runs of the demo, in the tutorial's order: 50 direct, 150 direct, 150 pooled, 50 pooled, and one more that
//! shows what the pool's size is worth. Measures and keeps; what it means is for `words`.

use std::path::PathBuf;

use crate::client::Client;
use crate::demo::{MAX_CONNECTIONS, Options, POOL};
use crate::error::{LabError, Result};
use crate::figures;
use crate::lab::{Lab, Measured, ROLE};
use crate::pgbench::{Load, Target, Workload};
use crate::pooler::{Plan, Pooler};
use crate::postgres::free_port;
use crate::screen::Screen;

/// Clients of the small runs.
const FEW: u32 = 50;
/// Clients of the large runs: more than PostgreSQL lets in.
const MANY: u32 = 150;
/// The largest pool that PostgreSQL has room for: its max_connections without the superuser's three.
const LARGEST_POOL: u32 = MAX_CONNECTIONS - 3;
/// Seconds before the first measured run, which fill PostgreSQL's cache.
const WARM_UP_SECONDS: u32 = 3;
/// Above this many seconds a run's transactions are logged in part only.
const LOG_ALL_UP_TO_SECONDS: u32 = 120;

/// By which way clients come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Straight to PostgreSQL.
    Direct,
    /// Through a pool of this many server connections.
    Pooled(u32),
}

/// One run.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// By which way.
    pub(super) way: Way,
    /// How many clients asked to come in.
    pub(super) asked: u32,
    /// How many of them were refused.
    pub(super) refused: u32,
    /// The words of the refusal.
    pub(super) fatal: Option<String>,
    /// The load of those that came in.
    pub(super) measured: Measured,
}

impl Run {
    /// How many clients were served to the end: not refused, and not given up by pgbench after an error.
    pub(super) fn served(&self) -> u32 {
        let gave_up =
            self.measured.outcome.complaints.iter().filter(|line| line.contains(" aborted")).count();
        let gave_up = u32::try_from(gave_up).unwrap_or(u32::MAX);
        self.asked.saturating_sub(self.refused).saturating_sub(gave_up)
    }

    /// As the table names it: `direct`, `test-pool`, `pool of 97`.
    #[must_use]
    pub(super) fn name(&self, usual_size: u32) -> String {
        match self.way {
            Way::Direct => "direct".to_owned(),
            Way::Pooled(size) if size == usual_size => format!("{POOL} (size {size})"),
            Way::Pooled(size) => format!("a pool of {size}"),
        }
    }
}

/// All runs of one demo.
#[derive(Clone, Debug)]
pub(super) struct Runs {
    /// 50 clients, direct.
    pub(super) few_direct: Run,
    /// 150 clients, direct: those that came in.
    pub(super) many_direct: Run,
    /// 150 clients, pooled.
    pub(super) many_pooled: Run,
    /// 50 clients, pooled.
    pub(super) few_pooled: Run,
    /// 150 clients over the largest pool.
    pub(super) many_largest: Run,
}

impl Runs {
    /// The four of the tutorial, then the one about the size.
    pub(super) fn in_order(&self) -> [&Run; 5] {
        [&self.few_direct, &self.many_direct, &self.many_pooled, &self.few_pooled, &self.many_largest]
    }
}

/// The demo under way.
pub(super) struct Journey<'a> {
    lab: &'a Lab,
    options: &'a Options,
    program: PathBuf,
    port: u16,
}

impl<'a> Journey<'a> {
    /// Finds the pooler's binary.
    pub(super) fn new(lab: &'a Lab, options: &'a Options) -> Result<Self> {
        let beside = std::env::current_exe().unwrap_or_default().with_file_name("weir");
        let binary = options.pooler_binary.clone().unwrap_or(beside);
        let program = lab.program(&binary, "build it: cargo build --release -p weir")?;
        Ok(Self { lab, options, program, port: free_port()? })
    }

    /// Makes all runs; the pooler of the usual size is up at the end.
    pub(super) fn make(&mut self, screen: &mut Screen) -> Result<(Runs, Pooler)> {
        self.warm_up(screen)?;
        let few_direct = self.direct(FEW, screen)?;
        let many_direct = self.many_direct(screen)?;
        self.lab.wait_until_left()?;
        let size = self.options.pool_size;
        let pooler = self.start_pooler(size, screen)?;
        let many_pooled = self.pooled(MANY, size, &pooler, screen)?;
        let few_pooled = self.pooled(FEW, size, &pooler, screen)?;
        drop(pooler);
        self.lab.wait_until_left()?;
        let pooler = self.start_pooler(LARGEST_POOL, screen)?;
        let many_largest = self.pooled(MANY, LARGEST_POOL, &pooler, screen)?;
        drop(pooler);
        self.lab.wait_until_left()?;
        let pooler = self.start_pooler(size, screen)?;
        Ok((Runs { few_direct, many_direct, many_pooled, few_pooled, many_largest }, pooler))
    }

    fn warm_up(&self, screen: &mut Screen) -> Result<()> {
        screen.step(&format!("Warming up for {WARM_UP_SECONDS} s, not measured"));
        let load = Load { seconds: WARM_UP_SECONDS, sampling: 0.0, ..self.load(FEW) };
        self.lab.measure(&self.lab.direct(), &load, None, &mut |_| {}).map(drop)
    }

    fn direct(&self, clients: u32, screen: &mut Screen) -> Result<Run> {
        self.lab.wait_until_left()?;
        screen.step(&format!("{clients} clients, direct"));
        let measured = self.measure(&self.lab.direct(), clients, None, screen)?;
        Ok(Run { way: Way::Direct, asked: clients, refused: 0, fatal: None, measured })
    }

    /// pgbench with all of them, which PostgreSQL refuses; then as many as do get in.
    fn many_direct(&self, screen: &mut Screen) -> Result<Run> {
        self.lab.wait_until_left()?;
        screen.step(&format!("{MANY} clients, direct: PostgreSQL has {LARGEST_POOL} places for them"));
        let load = self.load(MANY);
        let measured = self.lab.measure(&self.lab.direct(), &load, None, &mut |_| {})?;
        for line in &measured.outcome.complaints {
            screen.remark(&format!("pgbench: {line}"));
        }
        self.lab.wait_until_left()?;
        let (refused, fatal) = self.ask_for_admission(MANY)?;
        screen.remark(&format!(
            "pgbench stops there. Of {MANY} clients {refused} are refused, {} get in",
            MANY - refused
        ));
        let measured = self.direct(MANY - refused, screen)?.measured;
        Ok(Run { way: Way::Direct, asked: MANY, refused, fatal, measured })
    }

    fn pooled(&self, clients: u32, size: u32, pooler: &Pooler, screen: &mut Screen) -> Result<Run> {
        screen.step(&format!("{clients} clients through {POOL}, {size} server connections"));
        let target = Target { port: pooler.port(), user: ROLE.to_owned(), database: POOL.to_owned() };
        let measured = self.measure(&target, clients, Some(pooler), screen)?;
        Ok(Run { way: Way::Pooled(size), asked: clients, refused: 0, fatal: None, measured })
    }

    fn measure(
        &self,
        target: &Target,
        clients: u32,
        pooler: Option<&Pooler>,
        screen: &mut Screen,
    ) -> Result<Measured> {
        self.lab.settle()?;
        let load = self.load(clients);
        let seconds = f64::from(load.seconds);
        let measured = self.lab.measure(target, &load, pooler, &mut |now| {
            let text = format!("{:.0} of {seconds:.0} s  {} TPS", now.seconds, figures::whole(now.tps));
            screen.progress(now.seconds / seconds, &text);
        })?;
        let Some(tps) = measured.tps() else {
            return Err(LabError::program("pgbench", measured.outcome.complaints.join("\n  ")));
        };
        screen.remark(&format!("{} TPS", figures::whole(tps)));
        for line in &measured.outcome.complaints {
            screen.remark(&format!("pgbench: {line}"));
        }
        Ok(measured)
    }

    fn load(&self, clients: u32) -> Load {
        let seconds = self.options.seconds;
        let sampling = if seconds <= LOG_ALL_UP_TO_SECONDS { 1.0 } else { 0.1 };
        Load { workload: Workload::TpcB, clients, seconds, sampling, query_mode: "simple".to_owned() }
    }

    /// Opens `clients` connections and holds them all: how many are refused, and in which words.
    fn ask_for_admission(&self, clients: u32) -> Result<(u32, Option<String>)> {
        let mut inside = Vec::new();
        let mut refused = 0;
        let mut fatal = None;
        for _ in 0..clients {
            self.lab.interrupt().check()?;
            match Client::connect(self.lab.cluster().port(), ROLE, ROLE) {
                Ok(client) => inside.push(client),
                Err(LabError::Peer(words)) => {
                    refused += 1;
                    fatal = Some(words);
                }
                Err(error) => return Err(error),
            }
        }
        Ok((refused, fatal))
    }

    fn start_pooler(&self, size: u32, screen: &mut Screen) -> Result<Pooler> {
        let config = self.config(size);
        self.lab.place().write("users.txt", &format!("\"{ROLE}\" \"\"\n"))?;
        let plan = Plan {
            name: "pooler",
            program: &self.program,
            config: &config,
            port: self.port,
            user: ROLE,
            pool: POOL,
        };
        let pooler = Pooler::start(&plan, self.lab.place(), self.lab.interrupt())?;
        let driver = pooler.io_driver().map(|name| format!(", io_driver {name}")).unwrap_or_default();
        screen.step(&format!("{} on port {}, {POOL} of size {size}{driver}", pooler.version(), self.port));
        Ok(pooler)
    }

    fn config(&self, size: u32) -> String {
        let server = self.lab.cluster().port();
        let directory = self.lab.place().path().display();
        format!(
            "[databases]\n\
             {POOL} = host=127.0.0.1 port={server} dbname={ROLE} pool_size={size}\n\
             \n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {port}\n\
             unix_socket_dir = {directory}\n\
             auth_type = trust\n\
             auth_file = {directory}/users.txt\n\
             admin_users = {ROLE}\n\
             pool_mode = transaction\n\
             max_client_conn = 1000\n\
             logfile = {directory}/pooler.log\n",
            port = self.port,
        )
    }
}
