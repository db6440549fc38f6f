//! A private cluster: made by initdb in the lab's directory, reached over the loopback by one ordinary role and
//! over its own socket by the superuser, ended and removed with its guard.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::client::Client;
use crate::error::{LabError, Result};
use crate::interrupt::Interrupt;
use crate::postgres::Programs;
use crate::process::{self, Daemon};
use crate::scratch_dir::ScratchDir;

/// The cluster's superuser; it may log in only through the socket in the lab's closed directory.
pub const SUPERUSER: &str = "postgres";

const READY_WITHIN: Duration = Duration::from_secs(60);

/// The data is thrown away: the quickest end is the right one.
pub(super) const ENDED_BY: &[Signal] = &[Signal::QUIT];

/// A running server.
#[derive(Debug)]
pub struct Cluster {
    daemon: Daemon,
    port: u16,
    max_connections: u32,
    directory: PathBuf,
}

impl Cluster {
    /// Makes a cluster in `place` with `max_connections` (three of them reserved for the superuser), starts it,
    /// and makes the role and database `owner`, which may come in over the loopback without a password.
    /// All other settings are PostgreSQL's own: fsync is on.
    ///
    /// # Errors
    /// When initdb or the server fails: with the last lines of its log.
    pub fn start(
        programs: &Programs,
        place: &ScratchDir,
        max_connections: u32,
        owner: &str,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        make(programs, place, interrupt)?;
        let rules = format!(
            "local all all trust\nlocal replication {SUPERUSER} trust\nhost {owner} {owner} 127.0.0.0/8 trust\n"
        );
        place.write("data/pg_hba.conf", &rules)?;
        let port = free_port()?;
        let log = place.join("postgres.log");
        let mut command = Command::new(programs.program("postgres"));
        command.current_dir(place.path()).arg("-D").arg(place.join("data"));
        for setting in [
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={port}"),
            format!("unix_socket_directories={}", place.path().display()),
            format!("max_connections={max_connections}"),
            "superuser_reserved_connections=3".to_owned(),
        ] {
            command.arg("-c").arg(setting);
        }
        let daemon = Daemon::start(command, "postgres", place.identity(), &log, ENDED_BY)?;
        let mut cluster = Self { daemon, port, max_connections, directory: place.path().to_path_buf() };
        cluster.wait_until_ready(interrupt)?;
        cluster.superuser("postgres")?.query(&format!("CREATE ROLE {owner} LOGIN"))?;
        cluster.superuser("postgres")?.query(&format!("CREATE DATABASE {owner} OWNER {owner}"))?;
        Ok(cluster)
    }

    /// The port on the loopback.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its max_connections.
    pub(super) fn max_connections(&self) -> u32 {
        self.max_connections
    }

    /// The server's first process.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.daemon.process_id()
    }

    /// A connection as superuser, over the socket.
    ///
    /// # Errors
    /// As [`Client::connect_unix`].
    pub fn superuser(&self, database: &str) -> Result<Client> {
        Client::connect_unix(&self.directory, self.port, SUPERUSER, database)
    }

    fn wait_until_ready(&mut self, interrupt: &Interrupt) -> Result<()> {
        let log = self.directory.join("postgres.log");
        let connect = || Client::connect_unix(&self.directory, self.port, SUPERUSER, "postgres").ok();
        let ready = self.daemon.wait_until(READY_WITHIN, &log, interrupt, connect)?;
        ready.map(drop).ok_or_else(|| {
            LabError::program(
                "postgres",
                format!("not ready after a minute\n  {}", process::tail(&log, process::LAST_WORDS)),
            )
        })
    }
}

fn make(programs: &Programs, place: &ScratchDir, interrupt: &Interrupt) -> Result<()> {
    let mut command = Command::new(programs.program("initdb"));
    command.current_dir(place.path()).arg("-D").arg(place.join("data")).args([
        "--no-sync",
        "-E",
        "UTF8",
        "--locale=C.UTF-8",
        "-A",
        "trust",
        "-U",
        SUPERUSER,
    ]);
    process::run(command, place.identity(), interrupt, &mut |_| {})?.success("initdb").map(drop)
}

/// A free port of the loopback interface.
///
/// # Errors
/// Where the kernel has none.
pub fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))
        .map_err(LabError::system("looking for a port"))?;
    let address = listener.local_addr().map_err(LabError::system("looking for a port"))?;
    Ok(address.port())
}
