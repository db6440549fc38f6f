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

    /// The configuration to go on with, from the file that the present one names.
    ///
    /// # Errors
    /// Everything that is wrong with the file.
    pub(crate) fn reload(&self, old: &Config) -> Result<Config, Vec<Finding>> {
        self.reload_with(&Disk, old)
    }

    /// [`Source::reload`] with files that need not be on the disk yet.
    ///
    /// # Errors
    /// Everything that is wrong with the file.
    pub(crate) fn reload_with(&self, files: &dyn Files, old: &Config) -> Result<Config, Vec<Finding>> {
        let file = old.global.conffile.as_deref().unwrap_or(&self.file);
        settings::reload(files, file, &self.flags(), old)
    }

    fn flags(&self) -> Vec<(&str, &str)> {
        self.flags.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }
}

/// Reads the other files of a configuration into it: pools, `auth_file`, HBA rules, keys and certificates; where one of
/// the first two fails, what was known of it stays. Its warnings are those found.
pub(crate) fn with_files(config: Config) -> Config {
    let (mut config, unread) = match settings::read_pools(&Disk, &config) {
        Ok(config) => (config, Vec::new()),
        Err(findings) => (config, findings),
    };
    config.warnings = settings::read_rules(&Disk, &mut config);
    config.warnings.extend(unread);
    match settings::read_quotas(&Disk, &config.global) {
        Ok(quotas) => config.quotas = quotas,
        Err(findings) => config.warnings.extend(findings),
    }
    config.tls_files = TlsFiles::read(&Disk, &config.global, &config.patronis());
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
