//! Patroni on the control thread: its answers become hosts of entries, and SWITCHOVER is sent to it.
//! Elects nothing: which server becomes the primary is Patroni's to decide.

use std::sync::Arc;

use messages::{ReplyPart, RequestId};
use settings::{Member, PatroniUrls};

use crate::interface::Output;
use crate::machine::commands::log_command;
use crate::machine::dispatch::CommandContext;
use crate::request::{Purpose, Request};
use crate::topology::{PatroniError, PatroniState};
use crate::{CONSOLE, CommandError, Control};

/// Patroni answers after the switchover, or after half a minute at most. Who asks it gives up before this.
const TIMEOUT_US: u64 = 120_000_000;

/// What Patroni is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switchover {
    /// Comes back in the answer.
    pub id: u64,
    /// Where Patroni is asked.
    pub urls: PatroniUrls,
    /// The member that leads.
    pub leader: String,
    /// The member that is to lead; none where Patroni chooses.
    pub candidate: Option<String>,
}

/// SWITCHOVER database [TO host].
pub(crate) fn switch_over(control: &mut Control, context: &CommandContext<'_>) -> Result<(), CommandError> {
    let name = match context.argument {
        None => return Err(CommandError::DatabaseNeeded),
        Some(CONSOLE) => return Err(CommandError::ConsoleDatabase { verb: "switch over" }),
        Some(name) => name,
    };
    let entry = control.config.database(name).ok_or_else(|| CommandError::NoSuchDatabase(name.to_owned()))?;
    let urls = entry.patroni().ok_or_else(|| CommandError::NotPatroni(name.to_owned()))?.clone();
    let known = control.topologies.of(&urls).ok_or(CommandError::PatroniSilent(None))?;
    if known.state != PatroniState::Ok {
        return Err(CommandError::PatroniSilent(known.state.why().map(str::to_owned)));
    }
    let leader = known.members.leader().ok_or(CommandError::NoLeader)?.name.clone();
    let candidate = match context.host {
        None => None,
        Some(written) => Some(candidate(known.members.iter(), name, written)?),
    };
    let target = candidate.as_ref().map(|candidate| format!("{name} TO {candidate}"));
    log_command(control, "SWITCHOVER", Some(target.as_deref().unwrap_or(name)));
    let deadline_us = Some(control.now_us + TIMEOUT_US);
    let request =
        Request { requester: Some(context.requester), owed: 1, deadline_us, purpose: Purpose::Switchover };
    let RequestId(id) = control.requests.open(request);
    control.push(Output::Switchover(Switchover { id, urls, leader, candidate }));
    Ok(())
}

/// The member that is meant: by Patroni's name of it, or by its host as SHOW HOSTS has it.
fn candidate<'a>(
    members: impl Iterator<Item = &'a Member> + Clone,
    database: &str,
    written: &str,
) -> Result<String, CommandError> {
    if members.clone().any(|member| member.name == written) {
        return Ok(written.to_owned());
    }
    let mut found = members.filter(|member| member.host == written || member.label() == written);
    match (found.next(), found.next()) {
        (Some(member), None) => Ok(member.name.clone()),
        (Some(first), Some(second)) => {
            let labels: Vec<String> = [first, second].into_iter().chain(found).map(Member::label).collect();
            Err(CommandError::SeveralHosts { host: written.to_owned(), labels: labels.join(", ") })
        }
        (None, _) => {
            Err(CommandError::NoSuchHost { database: database.to_owned(), host: written.to_owned() })
        }
    }
}

impl Control {
    /// Patroni was asked for its members.
    pub(crate) fn patroni_answered(&mut self, urls: &PatroniUrls, answer: Result<Vec<Member>, PatroniError>) {
        if !self.config.patronis().contains(urls) {
            return; // A RELOAD has been faster.
        }
        let (log, has_changed) = self.topologies.answered(urls, answer);
        log.into_iter().for_each(|record| self.push(Output::Log(record)));
        if has_changed {
            let config = Arc::clone(&self.config);
            self.put_in_force(settings::Config::clone(&config));
        }
    }

    /// Patroni has answered to SWITCHOVER, in its own words.
    pub(crate) fn switched_over(&mut self, id: u64, outcome: Result<String, String>) {
        let request = self.requests.close(RequestId(id));
        let Some(requester) = request.and_then(|request| request.requester) else { return };
        match outcome {
            Ok(words) => {
                self.log(format!("SWITCHOVER: Patroni answers: {words}"));
                let parts = vec![ReplyPart::Notice(words), ReplyPart::Complete("SWITCHOVER")];
                self.reply(requester, parts, true);
            }
            Err(why) => self.refuse(requester, &CommandError::Switchover(why)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use messages::{Command, Role};

    use super::*;
    use crate::Input;
    use crate::harness::Harness;

    const ENTRIES: &str = "[databases]\napp = topology='patroni http://p:8008'\nown = host=h1\n";

    fn member(name: &str, port: u16, leads: bool) -> Member {
        let (name, host) = (name.to_owned(), "10.0.0.1".to_owned());
        Member { name, host, port, leads, runs: true, takes_reads: true }
    }

    fn answer(harness: &mut Harness, answer: Result<Vec<Member>, PatroniError>) {
        let urls = harness.control.config().patronis().remove(0);
        harness.input(Input::Patroni { urls, answer });
    }

    fn pair() -> Vec<Member> {
        vec![member("a", 1, true), member("b", 2, false)]
    }

    #[test]
    fn members_become_the_hosts_of_every_shard_and_stay_over_reload_and_takeover() {
        let mut harness = Harness::with(2, ENTRIES);
        answer(&mut harness, Ok(pair()));
        let hosts = |harness: &Harness| harness.control.config().databases["app"].host.len();
        assert!(matches!(harness.told[..], [(0, Command::Configure(_)), (1, Command::Configure(_))]));
        assert_eq!(hosts(&harness), 2);
        assert!(harness.logged("patroni http://p:8008: members are a (10.0.0.1:1, leader), b (10.0.0.1:2)"));
        harness.told.clear();
        answer(&mut harness, Ok(pair()));
        assert!(harness.told.is_empty(), "the same members change nothing");
        harness.ask("RELOAD");
        harness.input(Input::Loaded(crate::harness::config(ENTRIES)));
        assert_eq!(hosts(&harness), 2);
        harness.ask("TAKEOVER line");
        let (_, note) = harness.handed_over.clone().unwrap();
        let mut next = Harness::with(1, ENTRIES);
        next.control.import(&note);
        next.input(Input::Tick);
        assert_eq!((hosts(&next), next.control.config().databases["app"].leader), (2, Some(0)));
    }

    #[test]
    fn an_api_that_fails_leaves_the_members_and_is_logged_once() {
        let mut harness = Harness::with(1, ENTRIES);
        answer(&mut harness, Err(PatroniError::Unreachable("refused".to_owned())));
        assert!(harness.logged("no members are known, clients of entries without host wait"));
        answer(&mut harness, Ok(pair()));
        assert!(harness.logged("answers again"));
        harness.told.clear();
        harness.log.clear();
        for _ in 0..2 {
            answer(&mut harness, Ok(Vec::new()));
        }
        assert_eq!(harness.log.len(), 1, "{:?}", harness.log);
        assert!(harness.logged("the last known members stay") && harness.told.is_empty());
        assert_eq!(harness.control.config().databases["app"].host.len(), 2);
        harness.ask("SWITCHOVER app");
        assert!(harness.error().1.starts_with("Patroni does not answer: "), "{:?}", harness.error());
    }

    #[test]
    fn switchover_is_patronis_to_answer() {
        let mut harness = Harness::with(1, ENTRIES);
        harness.ask("SWITCHOVER app");
        assert_eq!(harness.error(), ("08P01", "Patroni has not answered yet"));
        answer(&mut harness, Ok(pair()));
        for (sql, text) in [
            ("SWITCHOVER", "a database is required"),
            ("SWITCHOVER dne", "no such database: dne"),
            ("SWITCHOVER own", "database own does not use topology=patroni"),
            ("SWITCHOVER pgbouncer", "cannot switch over admin db: pgbouncer"),
            ("SWITCHOVER app TO c", "no such host of database app: c"),
            ("SWITCHOVER app TO 10.0.0.1", "10.0.0.1 has several ports, name one: 10.0.0.1:1, 10.0.0.1:2"),
        ] {
            harness.ask(sql);
            assert_eq!(harness.error(), ("08P01", text), "{sql}");
        }
        harness.ask_as(Role::Stats, "SWITCHOVER app");
        assert_eq!(harness.error().0, "42501");
        assert!(harness.switchovers.is_empty());
        for (sql, candidate) in [
            ("SWITCHOVER app", None),
            ("switchover app to b;", Some("b")),
            ("SWITCHOVER app TO 10.0.0.1:2", Some("b")),
        ] {
            harness.ask(sql);
            let asked = harness.switchovers.pop().unwrap();
            assert_eq!((asked.leader.as_str(), asked.candidate.as_deref()), ("a", candidate), "{sql}");
            harness.input(Input::SwitchedOver { id: asked.id, outcome: Ok("done".to_owned()) });
            assert_eq!(
                harness.parts(),
                [ReplyPart::Notice("done".to_owned()), ReplyPart::Complete("SWITCHOVER")]
            );
        }
        harness.ask("SWITCHOVER app");
        let asked = harness.switchovers.pop().unwrap();
        harness.input(Input::SwitchedOver { id: asked.id, outcome: Err("412: no".to_owned()) });
        assert_eq!(harness.error(), ("58000", "Patroni has not switched over: 412: no"));
        answer(&mut harness, Ok(vec![member("a", 1, false)]));
        harness.ask("SWITCHOVER app");
        assert_eq!(harness.error().1, "Patroni knows no leader");
    }
}
