//! What is known: of members of roles, and of sizes.
//!
//! Owns that what is known stays while a server cannot be asked, and that the log says each change once.

use std::collections::{BTreeMap, BTreeSet};

use pgclient::Complaints;
use quota::{Measure, RoleMembers, Subject, SubjectKind};
use telemetry::{Level, Record};

use crate::Log;
use crate::plan::{Ask, Plan};
use crate::questions::Answer;

/// What one database has said of sizes.
#[derive(Clone, Default)]
struct Known {
    size: Option<u64>,
    owners: Option<BTreeMap<String, u64>>,
    temp_files: Option<BTreeMap<String, u64>>,
}

#[derive(Default)]
pub(crate) struct Answers {
    members: RoleMembers,
    /// The members have changed since they were told.
    is_changed: bool,
    known: Vec<(Ask, Known)>,
    complaints: Complaints,
}

impl Answers {
    /// Another round begins: what is not asked any more is forgotten. The first one begins with what the process before this one knew.
    pub(crate) fn begin(&mut self, plan: &Plan, log: &Log, inherited: &RoleMembers) {
        let wanted: BTreeSet<_> =
            plan.asks.iter().flat_map(|ask| ask.roles.iter().map(|role| &role.question)).collect();
        for (question, members) in &inherited.0 {
            self.members.0.entry(question.clone()).or_insert_with(|| members.clone());
        }
        self.members.0.retain(|question, _| wanted.contains(question));
        self.known.retain(|(of, _)| plan.asks.iter().any(|ask| ask.is_of(of)));
        let about: BTreeSet<_> = plan
            .asks
            .iter()
            .flat_map(|ask| ask.roles.iter().map(|role| role.line.clone()).chain([ask.label()]))
            .chain(plan.unasked.iter().cloned())
            .collect();
        self.complaints.keep(|of| about.contains(of));
        for why in &plan.unasked {
            self.complain(why, why.clone(), log);
        }
    }

    /// A database was asked.
    pub(crate) fn take(&mut self, ask: &Ask, outcome: Result<Answer, String>, log: &Log) {
        let label = ask.label();
        let answer = match outcome {
            Ok(answer) => answer,
            Err(why) => {
                let text = format!(
                    "{label} cannot be asked: {why}; members of roles, storage and temporary files stay as they were known"
                );
                return self.complain(&label, text, log);
            }
        };
        match answer.unanswered.is_empty() {
            true => self.recovered(&label, &format!("{label} answers"), log),
            false => self.complain(&label, format!("{label}: {}", answer.unanswered.join("; ")), log),
        }
        for role in &ask.roles {
            let Some(members) = answer.members.get(&role.question) else { continue };
            let name = &role.question.role;
            match members {
                None => {
                    let text = format!(
                        "{}: role \"{name}\" does not exist on the server of {label}; group {} has no members",
                        role.line, role.group
                    );
                    self.complain(&role.line, text, log);
                }
                Some(_) => self.recovered(&role.line, &format!("{}: role \"{name}\" exists", role.line), log),
            }
            let members = members.clone().unwrap_or_default();
            if self.members.0.get(&role.question) != Some(&members) {
                self.is_changed = true;
                self.members.0.insert(role.question.clone(), members);
            }
        }
        let at = self.known.iter().position(|(of, _)| of.is_of(ask)).unwrap_or_else(|| {
            self.known.push((ask.clone(), Known::default()));
            self.known.len() - 1
        });
        let Some((_, known)) = self.known.get_mut(at) else { return };
        known.size = answer.size.or(known.size);
        if answer.owners.is_some() {
            known.owners = answer.owners;
        }
        if answer.temp_files.is_some() {
            known.temp_files = answer.temp_files;
        }
    }

    /// How much each subject has of this, and whether that is known of all users.
    pub(crate) fn measured(&self, plan: &Plan, measure: Measure) -> (BTreeMap<Subject, u64>, bool) {
        if measure == Measure::STORAGE { self.sizes(plan) } else { self.temp_files(plan) }
    }

    /// The same of temporary files: a database has those of its sessions, whoever they are.
    fn temp_files(&self, plan: &Plan) -> (BTreeMap<Subject, u64>, bool) {
        let (mut files, mut is_all) = (BTreeMap::new(), true);
        for ask in plan.asks.iter().filter(|ask| ask.temp_files) {
            let known = self.known.iter().find(|(of, _)| of.is_of(ask));
            let Some(users) = known.and_then(|(_, known)| known.temp_files.as_ref()) else {
                is_all = false;
                continue;
            };
            for entry in &ask.entries {
                files.insert(Subject::named(SubjectKind::Database, entry), users.values().sum());
            }
            for (user, bytes) in users {
                *files.entry(Subject::named(SubjectKind::User, user)).or_insert(0) += bytes;
            }
        }
        (files, is_all)
    }

    /// How much storage each subject has, and whether that is known of all users.
    fn sizes(&self, plan: &Plan) -> (BTreeMap<Subject, u64>, bool) {
        let (mut sizes, mut is_all) = (BTreeMap::new(), true);
        for ask in &plan.asks {
            let known = self.known.iter().find(|(of, _)| of.is_of(ask)).map(|(_, known)| known);
            if let Some(size) = known.and_then(|known| known.size) {
                for entry in &ask.entries {
                    sizes.insert(Subject::named(SubjectKind::Database, entry), size);
                }
            }
            let owners = known.and_then(|known| known.owners.as_ref());
            is_all &= !ask.owners || owners.is_some();
            for (user, bytes) in owners.into_iter().flatten() {
                *sizes.entry(Subject::named(SubjectKind::User, user)).or_insert(0) += bytes;
            }
        }
        (sizes, is_all)
    }

    /// The members of roles, if they have changed since the last call.
    pub(crate) fn changed_members(&mut self) -> Option<RoleMembers> {
        std::mem::take(&mut self.is_changed).then(|| self.members.clone())
    }

    fn complain(&mut self, about: &str, text: String, log: &Log) {
        if let Some(text) = self.complaints.raise(about, text) {
            log(Record::new(Level::Warning, format!("quotas: {text}")));
        }
    }

    fn recovered(&mut self, about: &str, text: &str, log: &Log) {
        if self.complaints.settle(about) {
            log(Record::new(Level::Log, format!("quotas: {text} again")));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::{Arc, Mutex};

    use quota::RoleQuestion;

    use super::*;

    struct Ini(String);

    impl settings::Files for Ini {
        fn read(&self, path: &str) -> std::io::Result<Vec<u8>> {
            let (ini, quotas) = self.0.split_once('|').unwrap();
            Ok(if path == "q" { quotas } else { ini }.as_bytes().to_vec())
        }
    }

    fn plan(databases: &str, quotas: &str) -> Plan {
        let text =
            format!("[databases]\n{databases}\n[pgbouncer]\nquotas_file = q\nquota_user = w\n|{quotas}");
        Plan::of(&settings::load(&Ini(text), "w.ini", &[]).unwrap())
    }

    fn log() -> (Log, Arc<Mutex<Vec<String>>>) {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&lines);
        (Arc::new(move |record: Record| into.lock().unwrap().push(record.text)), lines)
    }

    fn question(role: &str, entry: Option<&str>) -> RoleQuestion {
        RoleQuestion { role: role.into(), entry: entry.map(Into::into) }
    }

    #[test]
    fn each_database_is_asked_once_for_all_that_is_needed() {
        let databases = "a = host=h\nb = host=h dbname=a\nc = host=h\nd = host=other dbname=a";
        let plan = plan(
            databases,
            "group g = role\ngroup x = role y in d\ngroup z = role in gone\ndatabase c storage hard=1G\ndatabase b storage hard=1G\ndatabase e storage hard=1G",
        );
        let asks: Vec<_> = plan
            .asks
            .iter()
            .map(|ask| (ask.entries.join(","), ask.size, ask.owners, ask.roles.len()))
            .collect();
        let expected = [("b,a", true, false, 1), ("c", true, false, 0), ("d", false, false, 1)];
        assert_eq!(
            asks,
            expected.map(|(entries, size, owners, roles)| (entries.to_owned(), size, owners, roles))
        );
        assert!(
            plan.unasked.iter().any(|why| why.contains("database e is not in [databases]")),
            "{:?}",
            plan.unasked
        );
        assert!(
            plan.unasked.iter().any(|why| why.starts_with("q:3: database \"gone\" is not")),
            "{:?}",
            plan.unasked
        );
    }

    #[test]
    fn what_was_known_stays_while_a_server_is_away() {
        let plan =
            plan("a = host=h", "group g = role\ndatabase a storage hard=1G\nuser default storage hard=1G");
        let ((log, lines), mut answers) = (log(), Answers::default());
        answers.begin(&plan, &log, &RoleMembers::default());
        answers.take(&plan.asks[0], Err("away".to_owned()), &log);
        assert_eq!(
            (answers.changed_members(), answers.measured(&plan, Measure::STORAGE)),
            (None, (BTreeMap::new(), false))
        );
        let members = Some(BTreeSet::from(["alice".into()]));
        let answer = Answer {
            size: Some(7),
            owners: Some(BTreeMap::from([("alice".to_owned(), 5)])),
            members: BTreeMap::from([(question("g", None), members)]),
            temp_files: Some(BTreeMap::from([("bob".to_owned(), 3)])),
            unanswered: Vec::new(),
        };
        answers.take(&plan.asks[0], Ok(answer), &log);
        assert_eq!(answers.changed_members().unwrap().0.len(), 1);
        let (known, is_all) = answers.measured(&plan, Measure::STORAGE);
        assert_eq!((known.len(), is_all), (2, true));
        for _ in 0..3 {
            answers.begin(&plan, &log, &RoleMembers::default());
            answers.take(&plan.asks[0], Err("away".to_owned()), &log);
        }
        assert_eq!(
            (answers.changed_members(), answers.measured(&plan, Measure::STORAGE)),
            (None, (known, true))
        );
        assert_eq!(lines.lock().unwrap().len(), 3, "{lines:?}");
    }

    #[test]
    fn temporary_files_are_those_of_the_sessions_of_all_databases_together() {
        let plan = plan(
            "a = host=h\nb = host=h dbname=a\nc = host=h",
            "user bob temp_files hard=1G\ndatabase c temp_files hard=1G",
        );
        let asks: Vec<_> = plan.asks.iter().map(|ask| (ask.size, ask.owners, ask.temp_files)).collect();
        assert_eq!((asks, &*plan.measured), (vec![(false, false, true); 2], &[Measure::TEMP_FILES][..]));
        let ((log, _), mut answers) = (log(), Answers::default());
        answers.begin(&plan, &log, &RoleMembers::default());
        let answer = |of: &[(&str, u64)]| {
            let files = of.iter().map(|(user, bytes)| ((*user).to_owned(), *bytes)).collect();
            Ok(Answer { temp_files: Some(files), ..Answer::default() })
        };
        answers.take(&plan.asks[0], answer(&[("bob", 5), ("eve", 1)]), &log);
        assert!(!answers.measured(&plan, Measure::TEMP_FILES).1, "c was not asked");
        answers.take(&plan.asks[1], answer(&[("bob", 3)]), &log);
        let (known, is_all) = answers.measured(&plan, Measure::TEMP_FILES);
        let known: Vec<_> = known.iter().map(|(of, bytes)| format!("{of} {bytes}")).collect();
        assert_eq!(
            (known, is_all),
            (
                ["user bob 8", "user eve 1", "database a 6", "database b 6", "database c 3"]
                    .map(str::to_owned)
                    .to_vec(),
                true
            )
        );
        answers.take(&plan.asks[1], answer(&[]), &log);
        assert!(answers.measured(&plan, Measure::TEMP_FILES).0.values().all(|bytes| *bytes != 8));
    }

    #[test]
    fn only_what_is_limited_is_asked() {
        assert_eq!(plan("a = host=h", "user a queries/day hard=1").asks.len(), 0);
        let plan =
            plan("a = host=h\nb = host=h", "database b temp_files hard=1G\ndatabase gone temp_files hard=1");
        let asks: Vec<_> = plan.asks.iter().map(|ask| (&*ask.entries[0], ask.temp_files)).collect();
        assert_eq!(asks, [("b", true)]);
        assert!(plan.unasked[0].contains("database gone is not in [databases]"), "{:?}", plan.unasked);
    }

    #[test]
    fn a_role_that_is_gone_has_no_members_and_is_told_once_with_its_line() {
        let plan = plan("a = host=h", "\ngroup g = role r");
        let ((log, lines), mut answers) = (log(), Answers::default());
        let inherited =
            RoleMembers(BTreeMap::from([(question("r", None), BTreeSet::from(["alice".into()]))]));
        answers.begin(&plan, &log, &inherited);
        let gone = || Answer { members: BTreeMap::from([(question("r", None), None)]), ..Answer::default() };
        answers.take(&plan.asks[0], Ok(gone()), &log);
        answers.take(&plan.asks[0], Ok(gone()), &log);
        let told = lines.lock().unwrap().clone();
        assert!(told.len() == 1 && told[0].starts_with("quotas: q:2: role \"r\" does not exist"), "{told:?}");
        assert!(answers.changed_members().unwrap().0[&question("r", None)].is_empty());
        let back = Some(BTreeSet::from(["bob".into()]));
        let answer = Answer { members: BTreeMap::from([(question("r", None), back)]), ..Answer::default() };
        answers.take(&plan.asks[0], Ok(answer), &log);
        assert!(lines.lock().unwrap()[1].contains("exists again"));
        assert_eq!(answers.changed_members().unwrap().0[&question("r", None)].len(), 1);
    }
}
