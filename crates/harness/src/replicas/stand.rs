//! Weir before a primary and its standbys, and what it says of them.

use std::fmt;
use std::time::{Duration, Instant};

use lab::client::Client;
use lab::error::{LabError, Result};
use lab::interrupt::Interrupt;
use lab::laboratory::{Lab, ROLE};
use lab::pooler::{Invocation, Plan, Pooler};
use lab::postgres::{Standby, free_port};

use super::{Options, POOL};
use crate::signals;

/// How long Weir may take to know all servers.
const KNOWN_WITHIN: Duration = Duration::from_secs(20);

/// Weir, up.
pub(super) struct Stand {
    pooler: Pooler,
    entry: String,
}

/// A row of SHOW HOSTS.
pub(super) struct HostLine {
    port: String,
    state: String,
    /// Requests that went there because they read.
    pub(super) reads: u64,
}

impl fmt::Display for HostLine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "127.0.0.1:{} {:<8} {} reads", self.port, self.state, self.reads)
    }
}

impl Stand {
    /// Starts it; clients can log in.
    pub(super) fn start(lab: &Lab, standbys: &[Standby], options: &Options) -> Result<Self> {
        let program = options.programs.weir(lab)?;
        let port = free_port()?;
        let ports = std::iter::once(lab.cluster().port()).chain(standbys.iter().map(Standby::port));
        let ports: Vec<String> = ports.map(|port| port.to_string()).collect();
        let hosts = vec!["127.0.0.1"; ports.len()].join(",");
        let entry = format!(
            "{POOL} = host={hosts} port={} dbname={ROLE} user={ROLE} read_write_split=1",
            ports.join(",")
        );
        let place = lab.place();
        place.write("users.txt", &format!("\"{ROLE}\" \"\"\n"))?;
        let directory = place.path().display();
        let config = format!(
            "[databases]\n{entry}\n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {port}\n\
             unix_socket_dir = {directory}\n\
             auth_type = trust\n\
             auth_file = {directory}/users.txt\n\
             admin_users = {ROLE}\n\
             pool_mode = transaction\n\
             default_pool_size = 10\n\
             max_client_conn = 1000\n\
             logfile = {directory}/weir.log\n"
        );
        let plan = Plan {
            name: "weir",
            program: &program,
            config: &config,
            port,
            user: ROLE,
            pool: POOL,
            manner: Invocation::default(),
        };
        Ok(Self { pooler: Pooler::start(&plan, place, lab.interrupt())?, entry })
    }

    /// The line of `[databases]`.
    pub(super) fn entry(&self) -> &str {
        &self.entry
    }

    pub(super) fn port(&self) -> u16 {
        self.pooler.port()
    }

    /// What Weir says of the servers.
    pub(super) fn hosts(&self) -> Result<Vec<HostLine>> {
        let rows = Client::connect(self.port(), ROLE, "pgbouncer")?.query("SHOW HOSTS")?;
        let line = |row: &Vec<Option<String>>| {
            let cell = |column: usize| row.get(column).cloned().flatten().unwrap_or_default();
            HostLine { port: cell(2), state: cell(3), reads: cell(10).parse().unwrap_or_default() }
        };
        Ok(rows.iter().map(line).collect())
    }

    /// Waits until a client's reads can go to this many standbys.
    pub(super) fn wait_until_known(&self, standbys: u32, interrupt: &Interrupt) -> Result<()> {
        let mut client = Client::connect(self.port(), ROLE, POOL)?;
        let known = interrupt.wait_for(KNOWN_WITHIN, || {
            client.query("SELECT count(*) FROM pgbench_branches")?;
            let reading = self.hosts()?.iter().filter(|host| host.reads > 0).count();
            Ok((reading >= standbys as usize).then_some(()))
        })?;
        known.ok_or_else(|| LabError::program("weir", "no reads went to the standbys within 20 s"))
    }
}

/// kill -9 of the primary's first process, at which its others end. When that was.
pub(super) fn kill(lab: &Lab) -> Result<Instant> {
    signals::kill("the primary", lab.cluster().process_id())?;
    Ok(Instant::now())
}
