//! Files for the settings' loader, from the disk.
//! Owns what is done when the control thread asks for a file. Never understands what it reads.

use std::io;
use std::sync::Arc;

use settings::hba::Network;
use settings::{Config, Files, Finding, TlsFiles, Userlist};

/// The file system.
pub(crate) struct Disk;

impl Files for Disk {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn networks(&self) -> Vec<Network> {
        driver::process::networks()
    }
}

/// Where the configuration comes from: a file, and what the command line adds.
pub(crate) struct Source {
    pub(crate) file: String,
    pub(crate) flags: Vec<(&'static str, String)>,
}

impl Source {
    /// The configuration to start with.
    ///
    /// # Errors
    /// Everything that is wrong with the file.
    pub(crate) fn load(&self) -> Result<Config, Vec<Finding>> {
        settings::load(&Disk, &self.file, &self.flags())
    }

    /// The configuration to go on with.
    ///
    /// # Errors
    /// Everything that is wrong with the file.
    pub(crate) fn reload(&self, old: &Config) -> Result<Config, Vec<Finding>> {
        settings::reload(&Disk, &self.file, &self.flags(), old)
    }

    fn flags(&self) -> Vec<(&str, &str)> {
        self.flags.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }
}

/// Reads the other files of a configuration into it: `auth_file`, HBA rules, keys and certificates; where the first
/// fails, the secrets stay. Its warnings are those found.
pub(crate) fn with_files(mut config: Config) -> Config {
    config.warnings = settings::read_rules(&Disk, &mut config);
    config.tls_files = TlsFiles::read(&Disk, &config.global);
    let Some(path) = config.global.auth_file.clone() else {
        config.secrets = Arc::default();
        return config;
    };
    match Userlist::read(&Disk, &path) {
        Ok(list) => {
            config.secrets = Arc::new(list.secrets);
            config.warnings.extend(list.warnings);
        }
        Err(finding) => config.warnings.push(finding),
    }
    config
}
