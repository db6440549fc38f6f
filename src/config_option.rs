//! The option of commands that are about the running process: which configuration it has.

use clap::Args;
use settings::{Config, Finding};

use crate::files::Disk;

/// The configuration file where none is named.
const DEFAULT_FILE: &str = "/etc/weir/weir.ini";

#[derive(Args, Clone, Debug, PartialEq)]
pub(crate) struct ConfigOption {
    /// The configuration file of the running process.
    #[arg(short, long, value_name = "FILE.ini", default_value = DEFAULT_FILE)]
    pub(crate) config: String,
}

impl ConfigOption {
    /// Reads the file.
    pub(crate) fn load(&self) -> Result<Config, String> {
        settings::load(&Disk, &self.config, &[]).map_err(|findings| self.unusable(&findings))
    }

    /// The error that says what is wrong with the file.
    pub(crate) fn unusable(&self, findings: &[Finding]) -> String {
        let texts: Vec<_> = findings.iter().map(ToString::to_string).collect();
        format!("cannot use {}:\n{}", self.config, texts.join("\n"))
    }
}
