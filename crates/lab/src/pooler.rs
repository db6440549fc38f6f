//! A pooler under measurement: started from its binary and its ini file as a user would, asked through its port
//! whether it is there and through its console which I/O driver it uses. Nothing here knows which pooler it is.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use rustls::ClientConfig;

use crate::client::{Client, Keyring, Login, Rows};
use crate::cpu::ProcessTime;
use crate::error::{LabError, Result};
use crate::interrupt::Interrupt;
use crate::process::{self, Daemon};
use crate::record::Placement;
use crate::scratch_dir::ScratchDir;

const READY_WITHIN: Duration = Duration::from_secs(20);

/// How long a pooler may take to know its standbys and what reads.
const SPLIT_WITHIN: Duration = Duration::from_secs(60);

/// Columns of SHOW HOSTS.
const HOST: usize = 1;
const PORT: usize = 2;
const STATE: usize = 3;
const READS: usize = 10;

/// Of SHOW POOL_SIZES.
const FOUND: usize = 7;

/// Of SHOW STATS_TOTALS.
const QUERY_COUNT: usize = 3;

/// First without hurry, then at once: both have these meanings in every version of PgBouncer.
const ENDED_BY: &[Signal] = &[Signal::TERM, Signal::QUIT];

/// What a pooler is started from.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// Names its files in the lab's directory.
    pub name: &'a str,
    /// The binary, reachable for the lab's user.
    pub program: &'a Path,
    /// The text of its ini file.
    pub config: &'a str,
    /// The port that the file names.
    pub port: u16,
    /// A role that the file makes an admin.
    pub user: &'a str,
    /// A pool of the file.
    pub pool: &'a str,
    /// How it is called and entered, where that is not PgBouncer's way without passwords.
    pub manner: Invocation<'a>,
}

/// How a pooler is called and entered. The default is PgBouncer's way: the file is its only argument, `-V` says its
/// version, nobody needs a password.
#[derive(Clone, Debug, Default)]
pub struct Invocation<'a> {
    /// Its arguments; none is the file alone.
    pub arguments: Vec<String>,
    /// What makes it say its version; empty is `-V`.
    pub version_by: &'a str,
    /// The user's password, where one is asked for.
    pub password: Option<&'a str>,
    /// TLS, where it is demanded.
    pub tls: Option<&'a Arc<ClientConfig>>,
    /// Variables of its environment, beside what the lab itself has.
    pub environment: Vec<(&'a str, PathBuf)>,
    /// The number of standbys to which it sends reads before it counts as ready.
    pub standbys: usize,
}

impl Plan<'_> {
    fn connect(&self, database: &str) -> Result<Client> {
        let login = Login { tls: self.manner.tls, ..Login::plain(self.user, database) };
        let mut keyring = self.manner.password.map(Keyring::new).unwrap_or_default();
        Client::connect_as(self.port, &login, &mut keyring)
    }

    fn command(&self, file: &Path) -> Command {
        let mut command = Command::new(self.program);
        if self.manner.arguments.is_empty() {
            command.arg(file);
        }
        command.args(&self.manner.arguments);
        command.envs(self.manner.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// A running pooler.
#[derive(Debug)]
pub struct Pooler {
    daemon: Daemon,
    port: u16,
    version: String,
    io_driver: Option<String>,
}

impl Pooler {
    /// Starts it and waits until a client can log in to the pool.
    ///
    /// # Errors
    /// When it ends or is not ready in time: with the last lines that it said.
    pub fn start(plan: &Plan<'_>, place: &ScratchDir, interrupt: &Interrupt) -> Result<Self> {
        let file = place.write(&format!("{}.ini", plan.name), plan.config)?;
        place.write(&format!("{}.log", plan.name), "")?;
        let console = place.join(&format!("{}.out", plan.name));
        let mut command = plan.command(&file);
        command.current_dir(place.path());
        let version = version(plan);
        let mut daemon = Daemon::start(command, plan.name, place.identity(), &console, ENDED_BY)?;
        let ready = daemon.wait_until(READY_WITHIN, &console, interrupt, || plan.connect(plan.pool).ok())?;
        if ready.is_none() {
            let refusal = plan.connect(plan.pool).err().map(|error| error.to_string()).unwrap_or_default();
            let said = process::tail(&console, process::LAST_WORDS);
            return Err(LabError::program(
                plan.name,
                format!("no client can log in after 20 s: {refusal}\n  {said}"),
            ));
        }
        let splits =
            || (plan.manner.standbys == 0 || standbys_read(plan)? >= plan.manner.standbys).then_some(());
        if daemon.wait_until(SPLIT_WITHIN, &console, interrupt, splits)?.is_none() {
            let why = console_rows(plan, "SHOW CLUSTERS")
                .and_then(|rows| rows.into_iter().next()?.into_iter().nth(7)?);
            let why = why.unwrap_or_else(|| "it has no SHOW CLUSTERS".to_owned());
            let said = format!("no reads reach {} standbys after a minute: {why}", plan.manner.standbys);
            return Err(LabError::program(plan.name, said));
        }
        Ok(Self { daemon, port: plan.port, version, io_driver: io_driver(plan) })
    }

    /// Its port on the loopback.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.daemon.process_id()
    }

    /// Whether its process is still there.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        ProcessTime::read(self.process_id()).is_some_and(|time| !time.is_ended())
    }

    /// The first line of `-V`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The value of `io_driver` in SHOW CONFIG; `None` if there is no such setting.
    #[must_use]
    pub fn io_driver(&self) -> Option<&str> {
        self.io_driver.as_deref()
    }

    /// The CPU time that it used so far.
    #[must_use]
    pub fn time(&self) -> ProcessTime {
        ProcessTime::read(self.process_id()).unwrap_or_default()
    }
}

fn version(plan: &Plan<'_>) -> String {
    let by = if plan.manner.version_by.is_empty() { "-V" } else { plan.manner.version_by };
    let output = Command::new(plan.program).arg(by).output();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = output.map(|output| text(&output.stdout) + &text(&output.stderr)).unwrap_or_default();
    said.lines().next().unwrap_or("unknown").trim().to_owned()
}

/// How many standbys have served a read; a few more are sent.
fn standbys_read(plan: &Plan<'_>) -> Option<usize> {
    let mut client = plan.connect(plan.pool).ok()?;
    for _ in 0..2 * plan.manner.standbys {
        client.query("SELECT 1").ok()?;
    }
    let placement = placement(&mut plan.connect("pgbouncer").ok()?, plan.pool).ok()?;
    Some(placement.reads.values().filter(|reads| **reads > 0).count())
}

/// Where the requests of a pool went so far, by the pooler's console: those of its life.
///
/// # Errors
/// [`LabError::Peer`] where it has no such console.
pub fn placement(console: &mut Client, pool: &str) -> Result<Placement> {
    let hosts = console.query("SHOW HOSTS")?;
    let totals = console.query("SHOW STATS_TOTALS")?;
    let cell = |row: &[Option<String>], place: usize| row.get(place).cloned().flatten().unwrap_or_default();
    let mut placement = Placement::default();
    for row in hosts.iter().filter(|row| cell(row, 0) == pool && cell(row, STATE) == "standby") {
        let reads = cell(row, READS).parse().unwrap_or(0);
        placement.reads.insert(format!("{}:{}", cell(row, HOST), cell(row, PORT)), reads);
    }
    let total = totals.iter().find(|row| cell(row, 0) == pool);
    placement.queries = total.and_then(|row| cell(row, QUERY_COUNT).parse().ok()).unwrap_or(0);
    Ok(placement)
}

/// The size that a pool which sizes itself has found so far, by the pooler's console.
///
/// # Errors
/// [`LabError::Peer`] where it has no such console.
pub fn found_size(console: &mut Client, pool: &str) -> Result<Option<u32>> {
    let sizes = console.query("SHOW POOL_SIZES")?;
    let row = sizes.iter().find(|row| row.first().is_some_and(|database| database.as_deref() == Some(pool)));
    Ok(row.and_then(|row| row.get(FOUND)?.as_ref()?.parse().ok()))
}

fn console_rows(plan: &Plan<'_>, command: &str) -> Option<Rows> {
    plan.connect("pgbouncer").ok()?.query(command).ok()
}

fn io_driver(plan: &Plan<'_>) -> Option<String> {
    let rows = console_rows(plan, "SHOW CONFIG")?;
    let row =
        rows.into_iter().find(|row| row.first().is_some_and(|key| key.as_deref() == Some("io_driver")))?;
    row.into_iter().nth(1).flatten()
}
