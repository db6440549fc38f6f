//! Three members of etcd, and Weirs that share a limit by way of them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lab::client::Client;
use lab::error::{LabError, Result};
use lab::laboratory::{Lab, ROLE};
use lab::pooler::{Invocation, Plan, Pooler};
use lab::postgres::free_port;
use lab::process::Daemon;
use rustix::process::Signal;

use super::proxy::Proxy;
use crate::signals;

/// The entry's name.
pub(super) const POOL: &str = "app";

const MEMBERS: usize = 3;

/// How long nodes may take to know each other, and an old process to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// The members of etcd.
pub(super) struct Store {
    _members: Vec<Daemon>,
    pub(super) ports: Vec<u16>,
}

impl Store {
    pub(super) fn start(lab: &Lab) -> Result<Self> {
        let program = lab.program(&etcd(), "install it (Debian, Ubuntu: apt-get install etcd-server)")?;
        let some_ports = || (0..MEMBERS).map(|_| free_port()).collect::<Result<Vec<u16>>>();
        let (ports, peers) = (some_ports()?, some_ports()?);
        let url = |port: &u16| format!("http://127.0.0.1:{port}");
        let named = |(number, port)| format!("etcd{}={}", number + 1, url(port));
        let cluster = peers.iter().enumerate().map(named).collect::<Vec<_>>().join(",");
        let mut members = Vec::new();
        for (number, (port, peer)) in ports.iter().zip(&peers).enumerate() {
            let name = format!("etcd{}", number + 1);
            let mut command = Command::new(&program);
            command.current_dir(lab.place().path()).args(["--name", &name]);
            command.arg("--data-dir").arg(lab.place().join(&format!("{name}.data")));
            command.args(["--listen-client-urls", &url(port), "--advertise-client-urls", &url(port)]);
            command.args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)]);
            command.args(["--initial-cluster", &cluster]);
            let log = lab.place().join(&format!("{name}.log"));
            members.push(Daemon::start(command, &name, lab.place().identity(), &log, &[Signal::TERM])?);
        }
        Ok(Self { _members: members, ports })
    }
}

/// Where PATH has it.
fn etcd() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|directory| directory.join("etcd"));
    places.find(|program| program.is_file()).unwrap_or_else(|| PathBuf::from("etcd"))
}

/// A Weir of the fleet.
pub(super) struct Node {
    pub(super) name: String,
    pub(super) pooler: Pooler,
    config: String,
}

/// A row of SHOW FLEET.
pub(super) struct FleetRow {
    pub(super) name: String,
    pub(super) state: String,
    /// Its server connections.
    pub(super) servers: String,
}

impl Node {
    /// Starts it; clients can log in. It reaches etcd by these ports.
    pub(super) fn start(
        lab: &Lab,
        program: &Path,
        number: usize,
        nodes: usize,
        limit: u32,
        store: &[u16],
    ) -> Result<Self> {
        let name = format!("node{number}");
        let (port, directory) = (free_port()?, lab.place().path().display());
        let members = store.iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",");
        lab.place().write("users.txt", &format!("\"{ROLE}\" \"\"\n"))?;
        let config = format!(
            "[databases]\n\
             {POOL} = host=127.0.0.1 port={} dbname={ROLE} user={ROLE} max_db_connections={limit}\n\
             [pgbouncer]\n\
             fleet = etcd://{members}/weir\n\
             fleet_nodes = {nodes}\n\
             fleet_node = {name}\n\
             fleet_lease_time = 3\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {port}\n\
             unix_socket_dir = {directory}\n\
             auth_type = trust\n\
             auth_file = {directory}/users.txt\n\
             admin_users = {ROLE}\n\
             pool_mode = transaction\n\
             default_pool_size = {limit}\n\
             threads = 1\n\
             logfile = {directory}/{name}.log\n",
            lab.cluster().port()
        );
        let pooler = launch(lab, program, &name, &config, port, Invocation::default())?;
        Ok(Self { name, pooler, config })
    }

    /// Ends it by kill -9.
    pub(super) fn kill(&self) -> Result<()> {
        signals::kill(&self.name, self.pooler.process_id())
    }

    /// A new process takes over from the running one, which ends by itself.
    pub(super) fn take_over(&mut self, lab: &Lab, program: &Path) -> Result<()> {
        let name = format!("{}-new", self.name);
        let file = lab.place().join(&format!("{name}.ini")).display().to_string();
        let manner = Invocation { arguments: vec!["-R".to_owned(), file], ..Invocation::default() };
        let new = launch(lab, program, &name, &self.config, self.pooler.port(), manner)?;
        let ended = lab.interrupt().wait_for(PATIENCE, || Ok((!self.pooler.is_alive()).then_some(())))?;
        ended.ok_or_else(|| LabError::program(&self.name, "the old process has not ended 30 s after -R"))?;
        self.pooler = new;
        Ok(())
    }

    /// The fleet as this node sees it.
    pub(super) fn fleet(&self) -> Result<Vec<FleetRow>> {
        let rows = Client::connect(self.pooler.port(), ROLE, "pgbouncer")?.query("SHOW FLEET")?;
        let cell =
            |row: &[Option<String>], column: usize| row.get(column).cloned().flatten().unwrap_or_default();
        Ok(rows
            .iter()
            .map(|row| FleetRow { name: cell(row, 0), state: cell(row, 2), servers: cell(row, 6) })
            .collect())
    }

    /// Waits until it sees this many nodes that are up.
    pub(super) fn wait_until_joined(&self, lab: &Lab, nodes: usize) -> Result<()> {
        let joined = lab.interrupt().wait_for(PATIENCE, || {
            let up = self.fleet()?.iter().filter(|row| row.state == "up").count();
            Ok((up == nodes).then_some(()))
        })?;
        joined
            .ok_or_else(|| LabError::program(&self.name, format!("it does not see {nodes} nodes after 30 s")))
    }
}

fn launch(
    lab: &Lab,
    program: &Path,
    name: &str,
    config: &str,
    port: u16,
    manner: Invocation<'_>,
) -> Result<Pooler> {
    // A login to the pool itself would open a server connection.
    let plan = Plan { name, program, config, port, user: ROLE, pool: "pgbouncer", manner };
    Pooler::start(&plan, lab.place(), lab.interrupt())
}

/// Proxies before all members, for a node that is to be cut off.
pub(super) fn proxies(store: &Store) -> Result<Vec<Proxy>> {
    store.ports.iter().map(|port| Proxy::start(*port)).collect()
}
