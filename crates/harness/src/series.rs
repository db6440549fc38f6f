//! What `compare` and `full` let choose alike: the programs and files of the compared, the tables, where results go.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;

use lab::error::{LabError, Result};
use lab::laboratory::{Lab, Setup};

/// Options of every series.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Scale of pgbench's tables
    #[arg(long, env = "BENCH_SCALE", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub scale: u32,
    /// Weir's binary; by default `weir` beside this program
    #[arg(long)]
    pub weir: Option<PathBuf>,
    /// PgBouncer's binary
    #[arg(long, env = "PGBOUNCER", default_value = "/usr/sbin/pgbouncer")]
    pub pgbouncer: PathBuf,
    /// Directory of the subjects' files
    #[arg(long, default_value = "crates/harness/configs")]
    pub configs: PathBuf,
    /// Directory of PostgreSQL's programs, where they are not in the usual places
    #[arg(long, env = "WEIR_PG_BIN")]
    pub pg_bin: Option<PathBuf>,
    /// Directory for the results; `full` keeps the raw logs of every run there too
    #[arg(long, default_value = "bench-result")]
    pub out: PathBuf,
}

impl Common {
    /// The laboratory of a series.
    pub(crate) fn setup(&self, purpose: &'static str, max_connections: u32, scale: u32) -> Setup {
        Setup { purpose, pg_bin: self.pg_bin.clone(), max_connections, scale }
    }

    /// Weir's program, where it can be started from.
    ///
    /// # Errors
    /// When it is not there.
    pub(crate) fn weir(&self, lab: &Lab) -> Result<PathBuf> {
        let beside = std::env::current_exe().unwrap_or_default().with_file_name("weir");
        lab.program(self.weir.as_deref().unwrap_or(&beside), "build it: cargo build --release -p weir")
    }

    /// PgBouncer's.
    ///
    /// # Errors
    /// When it is not there.
    pub(crate) fn pgbouncer(&self, lab: &Lab) -> Result<PathBuf> {
        lab.program(&self.pgbouncer, "install it: apt-get install pgbouncer")
    }

    /// The file by which a subject is configured like PgBouncer.
    pub(crate) fn file(&self, subject: &str) -> PathBuf {
        self.configs.join(format!("{subject}.ini"))
    }
}

/// Writes `result.md` and `result.json` into `directory`.
///
/// # Errors
/// As the system.
pub(crate) fn write(directory: &Path, markdown: &str, json: &Value) -> Result<()> {
    let doing = || LabError::system(format!("writing to {}", directory.display()));
    std::fs::create_dir_all(directory).map_err(doing())?;
    std::fs::write(directory.join("result.md"), markdown).map_err(doing())?;
    std::fs::write(directory.join("result.json"), format!("{json:#}\n")).map_err(doing())
}
