//! A streaming standby of the private cluster: a copy of it that follows it, until it is promoted.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::client::Client;
use crate::error::{LabError, Result};
use crate::interrupt::Interrupt;
use crate::postgres::cluster::{ENDED_BY, SUPERUSER, free_port};
use crate::postgres::{Cluster, Programs};
use crate::process::{self, Daemon};
use crate::scratch_dir::ScratchDir;

const READY_WITHIN: Duration = Duration::from_secs(60);

/// A running standby.
#[derive(Debug)]
pub struct Standby {
    _daemon: Daemon,
    port: u16,
    /// Of its socket.
    directory: PathBuf,
}

impl Standby {
    /// Copies the cluster and starts the copy as its standby; `name` names its files.
    ///
    /// # Errors
    /// When the copy or the server fails: with the last lines of its log.
    pub fn start(
        programs: &Programs,
        place: &ScratchDir,
        primary: &Cluster,
        name: &str,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let (data, log, port) = (place.join(name), place.join(&format!("{name}.log")), free_port()?);
        let mut copy = Command::new(programs.program("pg_basebackup"));
        copy.current_dir(place.path()).arg("-D").arg(&data).arg("-h").arg(place.path());
        copy.args(["-p", &primary.port().to_string(), "-U", SUPERUSER, "-R", "-c", "fast", "-X", "stream"]);
        process::run(copy, place.identity(), interrupt, &mut |_| {})?.success("pg_basebackup")?;
        let mut command = Command::new(programs.program("postgres"));
        command.current_dir(place.path()).arg("-D").arg(&data);
        for setting in [
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={port}"),
            format!("unix_socket_directories={}", place.path().display()),
            format!("max_connections={}", primary.max_connections()),
        ] {
            command.arg("-c").arg(setting);
        }
        let mut daemon = Daemon::start(command, name, place.identity(), &log, ENDED_BY)?;
        let directory = place.path().to_path_buf();
        let connect = || Client::connect_unix(&directory, port, SUPERUSER, "postgres").ok();
        let ready = daemon.wait_until(READY_WITHIN, &log, interrupt, connect)?;
        if ready.is_none() {
            let said = process::tail(&log, process::LAST_WORDS);
            return Err(LabError::program(name, format!("not ready after a minute\n  {said}")));
        }
        Ok(Self { _daemon: daemon, port, directory })
    }

    /// The port on the loopback.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A connection as superuser, over the socket.
    ///
    /// # Errors
    /// As [`Client::connect_unix`].
    pub fn superuser(&self, database: &str) -> Result<Client> {
        Client::connect_unix(&self.directory, self.port, SUPERUSER, database)
    }

    /// How far it has received the WAL, in bytes.
    ///
    /// # Errors
    /// As the server.
    pub fn received(&self) -> Result<u64> {
        const QUERY: &str = "SELECT pg_wal_lsn_diff(pg_last_wal_receive_lsn(), '0/0')::int8";
        let rows = self.superuser("postgres")?.query(QUERY)?;
        let bytes = rows.first().and_then(|row| row.first()?.as_deref()?.parse().ok());
        bytes.ok_or_else(|| LabError::program("a standby", "it does not say how far it is"))
    }

    /// Makes it a primary, and waits until it is one.
    ///
    /// # Errors
    /// As the server.
    pub fn promote(&self) -> Result<()> {
        self.superuser("postgres")?.query("SELECT pg_promote()").map(drop)
    }

    /// Makes it follow this server, which was promoted.
    ///
    /// # Errors
    /// As the server.
    pub fn follow(&self, primary: &Standby) -> Result<()> {
        let mut superuser = self.superuser("postgres")?;
        let source = format!("host={} port={} user={SUPERUSER}", primary.directory.display(), primary.port);
        superuser.query(&format!("ALTER SYSTEM SET primary_conninfo = '{source}'"))?;
        superuser.query("SELECT pg_reload_conf()").map(drop)
    }
}
