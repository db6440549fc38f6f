//! New configurations by RELOAD and SET, sent to all shards.
//! Does no I/O; an invalid configuration changes nothing.

use std::sync::Arc;

use messages::{Command, ReplyPart};
use settings::{Config, Finding, Severity};
use telemetry::{Level, Record};

use crate::interface::Output;
use crate::machine::Loading;
use crate::request::Requester;
use crate::{CommandError, Control};

/// Settings whose change requires files to be read.
const FILE_SETTINGS: &[&str] =
    &["auth_file", "auth_type", "auth_hba_file", "auth_ident_file", "pools_file", "quotas_file"];

impl Control {
    /// The file was read. An invalid one changes nothing.
    pub(crate) fn loaded(&mut self, outcome: Result<Config, Vec<Finding>>) {
        let config = match outcome {
            Ok(config) => config,
            Err(findings) => {
                self.log_findings(&findings);
                return match self.loading.pop_front().and_then(|loading| loading.requester) {
                    Some(requester) => self.refuse(requester, &CommandError::ReloadFailed),
                    None => self
                        .push(Output::Log(Record::new(Level::Error, CommandError::ReloadFailed.message()))),
                };
            }
        };
        self.files_loaded(config);
    }

    /// A SET was accepted. Files that it names are read before it takes effect.
    pub(crate) fn apply_setting(&mut self, requester: Requester, key: &str, value: &str, changed: Config) {
        let done = format!("SET {key}={value}");
        if names_files(key) {
            self.loading.push_back(Loading { requester: Some(requester), done });
            self.push(Output::ReadFiles(Box::new(changed)));
            return;
        }
        self.put_in_force(changed);
        self.reply(requester, vec![ReplyPart::CompleteAs(done)], true);
    }

    /// The files of a configuration were read, or could not be: it takes effect.
    pub(crate) fn files_loaded(&mut self, config: Config) {
        self.log_findings(&config.warnings);
        self.retry_fleet_pools();
        self.put_in_force(config);
        if let Some(Loading { requester: Some(requester), done }) = self.loading.pop_front() {
            self.reply(requester, vec![ReplyPart::CompleteAs(done)], true);
        }
    }

    pub(crate) fn put_in_force(&mut self, config: Config) {
        let config = self.topologies.apply(config);
        let config = Config { fleet_peers: Arc::clone(&self.fleet_peers), ..config };
        self.config = Arc::new(self.with_role_members(config));
        // A shorter `stats_period` does not wait for the end of a long one.
        self.shorten_sample_period();
        self.push(Output::Configured(Arc::clone(&self.config)));
        self.broadcast(&Command::Configure(Arc::clone(&self.config)));
        self.follow_fleet_pools();
    }

    fn log_findings(&mut self, findings: &[Finding]) {
        for finding in findings {
            let level = match finding.severity {
                Severity::Warning => Level::Warning,
                Severity::Error => Level::Error,
            };
            self.push(Output::Log(Record::new(level, finding.to_string())));
        }
    }
}

/// A setting that refers to files. All TLS settings do: a SET of one reads the files again.
fn names_files(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    FILE_SETTINGS.contains(&&*key)
        || ["client_tls", "server_tls", "fleet_peer_tls", "otlp_"].iter().any(|side| key.starts_with(side))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Harness, config};
    use crate::{Input, Signal};

    #[test]
    fn a_reload_reaches_every_shard_before_it_is_answered() {
        let mut harness = Harness::new();
        harness.ask("RELOAD");
        assert_eq!((harness.loads, harness.replies.len()), (1, 0));
        harness.input(Input::Loaded(config("[databases]\nnew = host=h\n")));
        assert!(matches!(harness.told[..], [(0, Command::Configure(_)), (1, Command::Configure(_))]));
        assert!(harness.control.config().databases.contains_key("new"));
        assert_eq!(harness.tag(), "RELOAD");
    }

    #[test]
    fn a_bad_file_changes_nothing_and_every_fault_is_logged() {
        let mut harness = Harness::new();
        harness.ask("RELOAD");
        harness.input(Input::Loaded(config("[databases]\na = frob=1\n[users]\nu = pool_mode=frob\n")));
        assert_eq!(harness.error(), ("F0000", "RELOAD failed, see logs for additional details"));
        assert!(harness.told.is_empty());
        assert!(harness.control.config().databases.contains_key("app"));
        let faults: Vec<_> =
            harness.log.iter().filter(|record| record.text.starts_with("weir.ini:")).collect();
        assert_eq!(faults.len(), 2, "{faults:?}");
    }

    #[test]
    fn a_shorter_period_counts_at_once() {
        let mut harness = Harness::new();
        assert_eq!(harness.control.deadline(), 60_000_000);
        harness.now_us = 5_000_000;
        harness.ask("RELOAD");
        harness.input(Input::Loaded(config("[pgbouncer]\nstats_period = 2\n")));
        assert_eq!(harness.control.deadline(), 7_000_000);
    }

    #[test]
    fn answers_go_to_those_who_asked_in_their_order() {
        let mut harness = Harness::new();
        harness.signal(Signal::Hup);
        harness.ask("RELOAD");
        harness.input(Input::Loaded(Err(Vec::new())));
        assert!(harness.replies.is_empty(), "the signal's outcome goes to the log");
        harness.input(Input::Loaded(config("")));
        assert_eq!(harness.tag(), "RELOAD");
    }

    #[test]
    fn set_changes_one_setting_everywhere() {
        let mut harness = Harness::new();
        harness.ask("SET default_pool_size = 3");
        assert_eq!((harness.tag(), harness.told.len()), ("SET default_pool_size=3", 2));
        assert_eq!(harness.control.config().global.default_pool_size, settings::PoolSize::Fixed(3));
        for (sql, sqlstate) in [
            ("SET frob = 1", "42704"),
            ("SET listen_port = 1", "55P02"),
            ("SET default_pool_size = many", "22023"),
        ] {
            harness.ask(sql);
            assert_eq!(harness.error().0, sqlstate, "{sql}");
            assert!(harness.error().1.starts_with("SET failed"));
        }
        assert_eq!(harness.told.len(), 2);
    }

    #[test]
    fn a_new_auth_file_is_read_before_it_is_in_force() {
        let mut harness = Harness::new();
        harness.ask("SET auth_file = /etc/users");
        assert!(harness.told.is_empty() && harness.replies.is_empty());
        let mut read = harness.secrets.remove(0);
        read.secrets = Arc::new([("ann".to_owned(), "secret".to_owned())].into());
        harness.input(Input::FilesRead(read));
        assert_eq!((harness.tag(), harness.told.len()), ("SET auth_file=/etc/users", 2));
        assert!(harness.control.config().secrets.contains_key("ann"));
    }
}
