//! SET QUOTA: a line of `quotas_file`, changed. Reading, checking and writing the file is an output ([`Output::ChangeQuota`]); on any error nothing is changed.
//! And the members of roles that are groups, which are put into each configuration; who asks for them is not this crate's.

use std::collections::BTreeSet;
use std::sync::Arc;

use messages::{ConsoleClient, ReplyPart};
use quota::{RoleMembers, RoleQuestion, Rules};
use settings::{Config, quotas_path};

use crate::interface::{OperationKind, Output};
use crate::machine::commands;
use crate::machine::dispatch::CommandContext;
use crate::request::Requester;
use crate::{CommandError, Control};

/// A line of `quotas_file` that is being changed, and for whom.
#[derive(Debug)]
pub(crate) struct QuotaChange {
    requester: Requester,
    /// None in the panel.
    sender: Option<ConsoleClient>,
    line: String,
}

/// Begins a line of the note for a process that takes over.
const NOTE: &str = "quota_role\t";

impl Control {
    /// A line is to be changed.
    pub(crate) fn set_quota(&mut self, context: &CommandContext<'_>, line: &str) -> Result<(), CommandError> {
        let Some(path) = quotas_path(&self.config.global) else { return Err(CommandError::NoQuotasFile) };
        let path = path.to_owned();
        let (requester, sender, line) = (context.requester, context.sender.cloned(), line.to_owned());
        self.quota_changes.push_back(QuotaChange { requester, sender, line: line.clone() });
        self.push(Output::ChangeQuota { path, line });
        Ok(())
    }

    /// The file was written, or could not be.
    pub(crate) fn quota_changed(&mut self, outcome: Result<Rules, String>) {
        let Some(change) = self.quota_changes.pop_front() else { return };
        match outcome {
            Ok(rules) => self.quota_is_set(&change, rules),
            Err(why) => self.refuse(change.requester, &CommandError::Quota(why)),
        }
    }

    /// PostgreSQL has said who the members of roles are.
    pub(crate) fn role_members_known(&mut self, members: RoleMembers) {
        if self.role_members != members {
            self.role_members = members;
            self.put_in_force(Config::clone(&self.config));
        }
    }

    /// The same configuration with what is known of the members of roles.
    pub(crate) fn with_role_members(&self, config: Config) -> Config {
        if config.quotas.role_groups().next().is_none() {
            return config;
        }
        let quotas = Arc::new(config.quotas.with_role_members(&self.role_members));
        Config { quotas, ..config }
    }

    /// What a process that takes over has to know, a line for each member.
    pub(crate) fn role_members_note(&self) -> String {
        let of = |(question, members): (&RoleQuestion, &BTreeSet<Box<str>>)| {
            let entry = question.entry.as_deref().unwrap_or_default();
            let line = |member: &str| format!("{NOTE}{}\t{entry}\t{member}\n", question.role);
            members.iter().map(|member| line(member)).collect::<String>()
        };
        self.role_members.0.iter().map(of).collect()
    }

    /// The inverse; whether anything is known. Other lines are ignored.
    pub(crate) fn import_role_members(&mut self, note: &str) -> bool {
        for line in note.lines().filter_map(|line| line.strip_prefix(NOTE)) {
            let mut fields = line.split('\t');
            let (Some(role), Some(entry), Some(member)) = (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let entry = (!entry.is_empty()).then(|| entry.into());
            let question = RoleQuestion { role: role.into(), entry };
            self.role_members.0.entry(question).or_default().insert(member.into());
        }
        !self.role_members.0.is_empty()
    }

    fn quota_is_set(&mut self, change: &QuotaChange, rules: Rules) {
        let QuotaChange { requester, sender, line } = change;
        self.log(format!("SET QUOTA {line}"));
        commands::note_unlogged(self, sender.as_ref(), OperationKind::Edit, "SET QUOTA", Some(line));
        self.put_in_force(Config { quotas: Arc::new(rules), ..Config::clone(&self.config) });
        self.reply(*requester, vec![ReplyPart::Complete("SET")], true);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Input;
    use crate::harness::Harness;
    use messages::Role;
    use std::collections::BTreeMap;

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
        let noted: Vec<_> =
            harness.operations.iter().map(|one| (&*one.user, &*one.command, one.kind)).collect();
        assert_eq!(noted, [("boss", "SET QUOTA", OperationKind::Edit)]);
        let line = harness.operations[0].argument.as_deref();
        assert_eq!(line, Some("user \"al ice\" queries/day soft=3 hard=5"));
        harness.ask("SET QUOTA user alice queries/day soft=6 hard=5");
        harness.input(Input::QuotaChanged(Err("soft limit 6 is above the hard limit 5".to_owned())));
        assert_eq!(harness.error(), ("22023", "SET QUOTA failed: soft limit 6 is above the hard limit 5"));
        assert_eq!((harness.told.len(), harness.operations.len()), (1, 1), "what failed is no change");
    }

    #[test]
    fn members_of_roles_stay_in_every_configuration_and_in_the_process_that_takes_over() {
        let rules = || Rules::read(b"group g = role in app\ngroup g connections hard=1").unwrap();
        let mut harness = Harness::with(1, "[databases]\napp =\n[pgbouncer]\nquotas_file = q\n");
        harness.ask("SET QUOTA group g connections hard=1");
        harness.input(Input::QuotaChanged(Ok(rules())));
        let question = RoleQuestion { role: "g".into(), entry: Some("app".into()) };
        let members = RoleMembers(BTreeMap::from([(question, BTreeSet::from(["alice".into()]))]));
        for _ in 0..2 {
            harness.input(Input::RoleMembers(members.clone()));
        }
        assert_eq!(harness.told.len(), 2, "what is known already is no news");
        assert_eq!(harness.control.config().quotas.role_members(), &members);
        harness.ask("SET QUOTA group g connections hard=2");
        harness.input(Input::QuotaChanged(Ok(rules())));
        assert_eq!(harness.control.config().quotas.role_members(), &members);
        let note = harness.control.role_members_note();
        let mut next = Harness::with(1, "[databases]\napp =\n[pgbouncer]\nquotas_file = q\n");
        assert!(!next.control.import_role_members("paused\tx\nquota_role\tx\n"));
        assert!(next.control.import_role_members(&note));
        assert_eq!(next.control.role_members, members);
    }

    #[test]
    fn without_a_file_nothing_is_set() {
        let mut harness = Harness::new();
        harness.ask("SET QUOTA user alice queries/day hard=5");
        assert_eq!(harness.error().0, "55000");
        assert!(harness.quota_changes.is_empty());
    }
}
