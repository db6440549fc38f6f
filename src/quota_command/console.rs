//! The console of the running process, over its unix socket: as the same user of the system, who needs no password there.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use lab::client::{Client, Rows};
use settings::Config;

/// The console's database, and its user on the unix socket.
const CONSOLE: &str = "pgbouncer";

pub(super) struct Console(Client);

impl Console {
    /// Connects to the process that this configuration is of.
    pub(super) fn connect(config: &Config) -> Result<Console, String> {
        let Some(path) = socket(config) else {
            return Err("the console is reached by the unix socket, and unix_socket_dir is empty".to_owned());
        };
        let directory = path.parent().unwrap_or(Path::new("/"));
        let client = Client::connect_unix(directory, config.global.listen_port, CONSOLE, CONSOLE);
        client.map(Console).map_err(|why| {
            format!("cannot use the console of the running process ({}): {why}", path.display())
        })
    }

    /// Whether a process listens there.
    pub(super) fn is_there(config: &Config) -> bool {
        socket(config).is_some_and(|path| UnixStream::connect(path).is_ok())
    }

    /// The rows of a statement.
    pub(super) fn rows(&mut self, statement: &str) -> Result<Rows, String> {
        self.0.query(statement).map_err(|why| why.to_string())
    }
}

fn socket(config: &Config) -> Option<PathBuf> {
    driver::unix_path(&config.global).map(PathBuf::from)
}
