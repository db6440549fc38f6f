//! Which programs the demos run: options that they have in common.

use std::path::PathBuf;

use clap::Args;
use lab::error::Result;
use lab::laboratory::Lab;

/// Programs that can be chosen.
#[derive(Clone, Debug, Args)]
pub struct Programs {
    /// The pooler; by default `weir` beside this program
    #[arg(long)]
    pub pooler_binary: Option<PathBuf>,
    /// Directory of PostgreSQL's programs, where they are not in the usual places
    #[arg(long, env = "WEIR_PG_BIN")]
    pub pg_bin: Option<PathBuf>,
}

impl Programs {
    /// Weir's program, where the lab's user can run it.
    ///
    /// # Errors
    /// When there is none, or that user cannot run it.
    pub fn weir(&self, lab: &Lab) -> Result<PathBuf> {
        let beside = || std::env::current_exe().unwrap_or_default().with_file_name("weir");
        let binary = self.pooler_binary.clone().unwrap_or_else(beside);
        lab.program(&binary, "build it: cargo build --release -p weir")
    }
}
