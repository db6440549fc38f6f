//! What an experiment is told by options: the load generator and its tools, the pool mode, the kind of progress.
//! Owns their words on the command line. Never decides what they mean for a run.

mod tools;

pub use tools::Tools;

use clap::ValueEnum;
use commandline::Paint;

/// Which program makes the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Driver {
    /// PostgreSQL's own.
    #[default]
    Pgbench,
    /// Its oltp scripts, sysbench-tpcc, or your own.
    Sysbench,
    /// JMeter 5 with pgjdbc.
    Jmeter,
}

impl Driver {
    /// As the option has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pgbench => "pgbench",
            Self::Sysbench => "sysbench",
            Self::Jmeter => "jmeter",
        }
    }
}

/// When a pool takes a server connection back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// When the client leaves.
    Session,
    /// After each transaction.
    #[default]
    Transaction,
}

impl Mode {
    /// As the setting `pool_mode` has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Transaction => "transaction",
        }
    }
}

/// How the result is printed on standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultForm {
    /// Tables and sentences.
    Text(Paint),
    /// One JSON object.
    Json,
}

impl Default for ResultForm {
    fn default() -> Self {
        Self::Text(Paint::PLAIN)
    }
}

/// How progress is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ProgressKind {
    /// A bar where standard error is a terminal, else lines.
    #[default]
    Auto,
    /// Lines on standard error.
    Plain,
    /// One JSON object a line on standard output, for programs; no table at the end.
    Json,
    /// Nothing but the result.
    None,
}
