//! SET QUOTA: a line of `quotas_file`, changed. Reading, checking and writing the file is an output ([`Output::ChangeQuota`]); on any error nothing is changed.

use std::sync::Arc;

use messages::ReplyPart;
use quota::Rules;
use settings::{Config, quotas_path};

use crate::interface::Output;
use crate::machine::dispatch::CommandContext;
use crate::request::Requester;
use crate::{CommandError, Control};

impl Control {
    /// A line is to be changed.
    pub(crate) fn set_quota(&mut self, context: &CommandContext<'_>, line: &str) -> Result<(), CommandError> {
        let Some(path) = quotas_path(&self.config.global) else { return Err(CommandError::NoQuotasFile) };
        let path = path.to_owned();
        self.quota_changes.push_back((context.requester, line.to_owned()));
        self.push(Output::ChangeQuota { path, line: line.to_owned() });
        Ok(())
    }

    /// The file was written, or could not be.
    pub(crate) fn quota_changed(&mut self, outcome: Result<Rules, String>) {
        let Some((requester, line)) = self.quota_changes.pop_front() else { return };
        match outcome {
            Ok(rules) => self.quota_is_set(requester, &line, rules),
            Err(why) => self.refuse(requester, &CommandError::Quota(why)),
        }
    }

    fn quota_is_set(&mut self, requester: Requester, line: &str, rules: Rules) {
        self.log(format!("SET QUOTA {line}"));
        self.put_in_force(Config { quotas: Arc::new(rules), ..Config::clone(&self.config) });
        self.reply(requester, vec![ReplyPart::Complete("SET")], true);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Input;
    use crate::harness::Harness;
    use messages::Role;

    #[test]
    fn a_line_is_written_before_it_is_in_force() {
        let mut harness = Harness::with(1, "[databases]\napp =\n[pgbouncer]\nquotas_file = q\n");
        harness.ask_as(Role::Stats, "SET QUOTA user alice queries/day hard=5");
        assert_eq!(harness.error().0, "42501");
        harness.ask("SET QUOTA user \"al ice\" queries/day soft=3 hard=5;");
        assert_eq!(
            harness.quota_changes,
            [("q".to_owned(), "user \"al ice\" queries/day soft=3 hard=5".to_owned())]
        );
        assert!(harness.told.is_empty());
        harness
            .input(Input::QuotaChanged(Rules::read(b"user a connections hard=1").map_err(|_| String::new())));
        assert!(!harness.control.config().quotas.is_empty());
        assert_eq!((harness.tag(), harness.told.len()), ("SET", 1));
        harness.ask("SET QUOTA user alice queries/day soft=6 hard=5");
        harness.input(Input::QuotaChanged(Err("soft limit 6 is above the hard limit 5".to_owned())));
        assert_eq!(harness.error(), ("22023", "SET QUOTA failed: soft limit 6 is above the hard limit 5"));
        assert_eq!(harness.told.len(), 1);
    }

    #[test]
    fn without_a_file_nothing_is_set() {
        let mut harness = Harness::new();
        harness.ask("SET QUOTA user alice queries/day hard=5");
        assert_eq!(harness.error().0, "55000");
        assert!(harness.quota_changes.is_empty());
    }
}
