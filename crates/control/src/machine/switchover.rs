//! Patroni on the control thread: its answers become hosts of entries, and SWITCHOVER is sent to it. Until another server leads, the clients of the
//! entries wait between two transactions, so that none is cut.
//! Elects nothing: which server becomes the primary is Patroni's to decide.

use std::sync::Arc;

use messages::{Command, ReplyPart, RequestId};
use settings::{Member, PatroniUrls};

use crate::interface::Output;
use crate::machine::commands::log_host_command;
use crate::machine::dispatch::CommandContext;
use crate::request::{Purpose, Request, Requester};
use crate::topology::{PatroniError, PatroniState, Switchover};
use crate::{CONSOLE, CommandError, Control};

/// Patroni answers after the switchover, or after half a minute at most. Who asks it gives up before this.
const TIMEOUT_US: u64 = 120_000_000;

/// So long transactions that run may take to end before Patroni is asked.
const DRAIN_US: u64 = 2_000_000;

/// Clients wait no longer than this for another leader.
const HOLD_US: u64 = 30_000_000;

/// Entries whose clients wait between two transactions, until another member leads.
#[derive(Debug)]
pub(crate) struct Held {
    urls: PatroniUrls,
    databases: Vec<String>,
    /// Whatever happens, they wait no longer.
    pub(crate) until_us: u64,
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
    log_host_command(control, context, "SWITCHOVER", name, target.as_deref().unwrap_or(name));
    let name = name.to_owned();
    control.hold(context.requester, &name, Switchover { id: 0, urls, leader, candidate });
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
    /// Clients of the entries that follow this Patroni get no server until another member leads. Patroni is asked when no transaction runs any more.
    fn hold(&mut self, requester: Requester, name: &str, switchover: Switchover) {
        let follows = |entry: &settings::Database| entry.patroni() == Some(&switchover.urls);
        let named = self.config.databases.iter().filter(|(_, entry)| follows(entry)).map(|(name, _)| name);
        let mut databases: Vec<String> = named.cloned().chain([name.to_owned()]).collect();
        databases.sort();
        databases.dedup();
        databases.retain(|name| !self.pause_state.holds(name));
        let (urls, until_us) = (switchover.urls.clone(), self.now_us + HOLD_US);
        let request = self.requests.open(Request {
            requester: Some(requester),
            owed: usize::from(self.facts.shards) * databases.len(),
            deadline_us: Some(self.now_us + DRAIN_US),
            purpose: Purpose::SwitchoverDrain(Box::new(switchover)),
        });
        for database in databases.iter().cloned().map(Some) {
            self.broadcast(&Command::Pause { request, database });
        }
        let is_idle = databases.is_empty();
        self.held.push(Held { urls, databases, until_us });
        if is_idle {
            self.finish(request);
        }
    }

    /// No transaction runs any more, or one has for too long.
    pub(crate) fn ask_patroni(&mut self, requester: Option<Requester>, switchover: Switchover) {
        let deadline_us = Some(self.now_us + TIMEOUT_US);
        let RequestId(id) =
            self.requests.open(Request { requester, owed: 1, deadline_us, purpose: Purpose::Switchover });
        self.push(Output::Switchover(Switchover { id, ..switchover }));
    }

    /// Held clients get servers again. What an operator has paused meanwhile stays so.
    fn release(&mut self, is_over: impl Fn(&Held) -> bool) {
        let over: Vec<Held> = self.held.extract_if(.., |held| is_over(held)).collect();
        for database in over.into_iter().flat_map(|held| held.databases) {
            if !self.pause_state.holds(&database) {
                self.broadcast(&Command::Resume { database: Some(database) });
            }
        }
    }

    /// Clients wait for no switchover that takes too long.
    pub(crate) fn release_late(&mut self) {
        let now_us = self.now_us;
        self.release(|held| held.until_us <= now_us);
    }

    fn leader(&self, urls: &PatroniUrls) -> Option<String> {
        self.topologies.of(urls)?.members.leader().map(|leader| leader.name.clone())
    }

    /// Patroni was asked for its members.
    pub(crate) fn patroni_answered(&mut self, urls: &PatroniUrls, answer: Result<Vec<Member>, PatroniError>) {
        if !self.config.patronis().contains(urls) {
            return; // A RELOAD has been faster.
        }
        let before = self.leader(urls);
        let (log, has_changed) = self.topologies.answered(urls, answer);
        log.into_iter().for_each(|record| self.push(Output::Log(record)));
        if has_changed {
            let config = Arc::clone(&self.config);
            self.put_in_force(settings::Config::clone(&config));
        }
        let after = self.leader(urls);
        if after.is_some() && after != before {
            self.release(|held| held.urls == *urls);
        }
    }

    /// Patroni has answered to SWITCHOVER, in its own words.
    pub(crate) fn switched_over(&mut self, id: u64, urls: &PatroniUrls, outcome: Result<String, String>) {
        self.release(|held| held.urls == *urls);
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
        answer(&mut harness, Err(PatroniError::Untrusted("TLS handshake failed".to_owned())));
        assert!(harness.logged("the last known members stay: see that otlp_ca_file has the CA"));
        answer(&mut harness, Ok(pair()));
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
            harness.done(0, 0);
            let asked = harness.switchovers.pop().unwrap();
            assert_eq!((asked.leader.as_str(), asked.candidate.as_deref()), ("a", candidate), "{sql}");
            harness.input(Input::SwitchedOver {
                id: asked.id,
                urls: asked.urls,
                outcome: Ok("done".to_owned()),
            });
            assert_eq!(
                harness.parts(),
                [ReplyPart::Notice("done".to_owned()), ReplyPart::Complete("SWITCHOVER")]
            );
        }
        harness.ask("SWITCHOVER app");
        harness.done(0, 0);
        let asked = harness.switchovers.pop().unwrap();
        harness.input(Input::SwitchedOver {
            id: asked.id,
            urls: asked.urls,
            outcome: Err("412: no".to_owned()),
        });
        assert_eq!(harness.error(), ("58000", "Patroni has not switched over: 412: no"));
        answer(&mut harness, Ok(vec![member("a", 1, false)]));
        harness.ask("SWITCHOVER app");
        assert_eq!(harness.error().1, "Patroni knows no leader");
    }

    /// The databases that shards were told to pause and to resume.
    fn held(harness: &mut Harness) -> (Vec<String>, Vec<String>) {
        let (mut paused, mut resumed) = (Vec::new(), Vec::new());
        for (_, command) in harness.told.drain(..) {
            match command {
                Command::Pause { database: Some(database), .. } => paused.push(database),
                Command::Resume { database: Some(database) } => resumed.push(database),
                _ => {}
            }
        }
        (paused, resumed)
    }

    #[test]
    fn clients_wait_between_transactions_until_another_member_leads() {
        let more = "[databases]\napp = topology='patroni http://p:8008'\nreads = topology='patroni http://p:8008'\nown = host=h1\n";
        let mut harness = Harness::with(1, more);
        answer(&mut harness, Ok(pair()));
        let names = |text: &[&str]| text.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        harness.ask("SWITCHOVER app");
        let Some((_, Command::Pause { request, .. })) = harness.told.last().cloned() else { panic!() };
        assert_eq!(held(&mut harness), (names(&["app", "reads"]), Vec::new()));
        let done = messages::Report::Done { request, shard: messages::ShardId(0), count: 0 };
        harness.input(Input::Report(done.clone()));
        assert!(harness.switchovers.is_empty(), "a transaction of the other entry still runs");
        harness.input(Input::Report(done));
        assert_eq!(harness.switchovers.len(), 1);
        answer(&mut harness, Ok(vec![member("a", 1, false), member("b", 2, false)]));
        assert_eq!(held(&mut harness).1, names(&[]), "nobody leads");
        answer(&mut harness, Ok(vec![member("a", 1, false), member("b", 2, true)]));
        assert_eq!(held(&mut harness).1, names(&["app", "reads"]));
        let asked = harness.switchovers.pop().unwrap();
        harness.input(Input::SwitchedOver { id: asked.id, urls: asked.urls, outcome: Ok("done".to_owned()) });
        assert_eq!(harness.tag(), "SWITCHOVER");
        assert_eq!(held(&mut harness).1, names(&[]));
    }

    #[test]
    fn no_client_waits_for_a_transaction_or_an_answer_that_takes_too_long() {
        let mut harness = Harness::with(1, ENTRIES);
        answer(&mut harness, Ok(pair()));
        harness.ask("SWITCHOVER app");
        harness.now_us = harness.control.deadline();
        assert_eq!(harness.now_us, DRAIN_US);
        harness.input(Input::Tick);
        assert_eq!(harness.switchovers.len(), 1, "Patroni is asked all the same");
        harness.told.clear();
        harness.now_us = HOLD_US;
        harness.input(Input::Tick);
        assert_eq!(held(&mut harness).1, ["app"]);
        harness.ask("SWITCHOVER app");
        harness.ask("PAUSE app");
        harness.told.clear();
        let asked = harness.switchovers.pop().unwrap();
        harness.input(Input::SwitchedOver { id: asked.id, urls: asked.urls, outcome: Err("no".to_owned()) });
        assert!(held(&mut harness).1.is_empty(), "what an operator has paused stays so");
    }
}
