//! A pooler under measurement: started from its binary and its ini file as a user would, asked through its port
//! whether it is there and through its console which I/O driver it uses. Nothing here knows which pooler it is.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::client::Client;
use crate::cpu::ProcessTime;
use crate::error::{LabError, Result};
use crate::interrupt::Interrupt;
use crate::process::{self, Daemon};
use crate::workplace::Workplace;

const READY_WITHIN: Duration = Duration::from_secs(20);

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
    pub fn start(plan: &Plan<'_>, place: &Workplace, interrupt: &Interrupt) -> Result<Self> {
        let file = place.write(&format!("{}.ini", plan.name), plan.config)?;
        place.write(&format!("{}.log", plan.name), "")?;
        let console = place.join(&format!("{}.out", plan.name));
        let mut command = Command::new(plan.program);
        command.arg(&file).current_dir(place.path());
        let version = version(plan.program);
        let mut daemon = Daemon::start(command, plan.name, place.identity(), &console, ENDED_BY)?;
        let ready = interrupt.wait_for(READY_WITHIN, || {
            if let Some(status) = daemon.ended() {
                return Err(LabError::program(
                    plan.name,
                    format!("{status}\n  {}", process::tail(&console, 8)),
                ));
            }
            Ok(Client::connect(plan.port, plan.user, plan.pool).ok())
        })?;
        if ready.is_none() {
            let said = process::tail(&console, 8);
            return Err(LabError::program(plan.name, format!("nobody can log in after 20 s\n  {said}")));
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

    /// What SHOW CONFIG says for `io_driver`; `None` from a pooler that has no such setting.
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

fn version(program: &Path) -> String {
    let output = Command::new(program).arg("-V").output();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    said.lines().next().unwrap_or("unknown").trim().to_owned()
}

fn io_driver(plan: &Plan<'_>) -> Option<String> {
    let rows = Client::connect(plan.port, plan.user, "pgbouncer").ok()?.query("SHOW CONFIG").ok()?;
    let row =
        rows.into_iter().find(|row| row.first().is_some_and(|key| key.as_deref() == Some("io_driver")))?;
    row.into_iter().nth(1).flatten()
}
