//! pgbench through every node at once, and what its logs say.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use lab::error::{LabError, Result};
use lab::laboratory::{Lab, ROLE};
use lab::process::{self, Daemon};
use rustix::process::Signal;

use super::account::{self, Transaction};
use super::nodes::POOL;

/// How long the last transactions may take once the time is over.
const PATIENCE: Duration = Duration::from_secs(20);

/// One pgbench for each node.
pub(super) struct Load {
    generators: Vec<Generator>,
}

struct Generator {
    daemon: Daemon,
    printed: PathBuf,
    log: PathBuf,
}

impl Load {
    /// Runs this many clients through each of these ports, for this many seconds.
    pub(super) fn start(lab: &Lab, ports: &[u16], clients: u32, seconds: u64) -> Result<Self> {
        let start = |(number, port): (usize, &u16)| {
            let name = format!("pgbench{}", number + 1);
            let mut command = Command::new(lab.programs().program("pgbench"));
            command.current_dir(lab.place().path()).env("LC_ALL", "C");
            command.args(["-n", "-N", "-j", "1", "-l", "--log-prefix", &name]);
            command.args(["-c", &clients.to_string(), "-T", &seconds.to_string()]);
            command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", ROLE, POOL]);
            let printed = lab.place().join(&format!("{name}.out"));
            let daemon = Daemon::start(command, &name, lab.place().identity(), &printed, &[Signal::TERM])?;
            let log = lab.place().join(&format!("{name}.{}", daemon.process_id()));
            Ok(Generator { daemon, printed, log })
        };
        Ok(Self { generators: ports.iter().enumerate().map(start).collect::<Result<_>>()? })
    }

    /// Clients of each node that have lost their connection so far.
    pub(super) fn errors(&self) -> Vec<u64> {
        let count = |one: &Generator| account::given_up(&read(&one.printed));
        self.generators.iter().map(count).collect()
    }

    /// Waits for their end.
    ///
    /// # Errors
    /// Where one does not end, or, but for the clients of the node `killed`, does not end well.
    pub(super) fn end(mut self, lab: &Lab, killed: usize) -> Result<Vec<Transaction>> {
        let mut transactions = Vec::new();
        for (number, one) in self.generators.iter_mut().enumerate() {
            let name = format!("pgbench through node{}", number + 1);
            let status = lab.interrupt().wait_for(PATIENCE, || Ok(one.daemon.ended()))?;
            let status = status.ok_or_else(|| LabError::program(&name, "a transaction has no end"))?;
            if !status.success() && number != killed {
                let last = process::tail(&one.printed, process::LAST_WORDS);
                return Err(LabError::program(&name, format!("{status}\n  {last}")));
            }
            transactions.extend(account::transactions(&read(&one.log))?);
        }
        Ok(transactions)
    }
}

fn read(path: &PathBuf) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}
