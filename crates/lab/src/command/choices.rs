//! What an option may be: a name with a value, a load generator, a pool mode, a kind of progress.

use std::str::FromStr;

use clap::ValueEnum;

/// A name with a value, as `pgbouncer=/usr/sbin/pgbouncer`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// What reports call it.
    pub name: String,
    /// What it is.
    pub value: String,
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or("NAME=URI or NAME=PROGRAM is wanted")?;
        let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if name.is_empty() || name.len() > 40 || !name.chars().all(fits) {
            return Err("a name has letters, digits, '-', '_' and '.', at most 40".to_owned());
        }
        if name == "direct" {
            return Err("'direct' is the name of PostgreSQL itself".to_owned());
        }
        Ok(Self { name: name.to_owned(), value: value.to_owned() })
    }
}

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
