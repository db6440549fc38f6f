//! What Patroni's REST API has said of the clusters that entries name (`topology`).
//!
//! Owns the state of each API, and the log lines of a change. The hosts of entries are made of it (`settings::Members`); who asks the API is
//! not this crate's.

use std::collections::BTreeMap;

use settings::{Config, Member, Members, PatroniUrls};
use telemetry::{Level, Record};

/// Why Patroni is of no use at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatroniError {
    /// No URL answers: the text says why not.
    Unreachable(String),
    /// None answers, and of one of them the certificate cannot be verified.
    Untrusted(String),
    /// What answers is not Patroni, or makes no sense.
    Invalid(String),
}

impl PatroniError {
    /// Without what to do about it.
    #[must_use]
    pub fn why(&self) -> &str {
        match self {
            PatroniError::Unreachable(why) | PatroniError::Untrusted(why) | PatroniError::Invalid(why) => why,
        }
    }
}

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

/// The state of one API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum PatroniState {
    /// It has not answered yet.
    #[default]
    Waiting,
    /// It answers.
    Ok,
    /// It does not, or makes no sense; what was known before stays.
    Failed(PatroniError),
}

/// What is known of one cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownTopology {
    pub(crate) members: Members,
    pub(crate) state: PatroniState,
}

/// All clusters whose Patroni is asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Topologies(BTreeMap<PatroniUrls, KnownTopology>);

impl Topologies {
    /// Nothing is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn of(&self, urls: &PatroniUrls) -> Option<&KnownTopology> {
        self.0.get(urls)
    }

    /// The same configuration with what is known. What no entry names any more is forgotten.
    pub(crate) fn apply(&mut self, config: Config) -> Config {
        let named = config.patronis();
        self.0.retain(|urls, _| named.contains(urls));
        config.with_members(|urls| {
            self.0.get(urls).map(|known| known.members.clone()).filter(|members| !members.is_empty())
        })
    }

    /// Patroni has answered, or has not: what is to be logged, and whether other members are known now.
    pub(crate) fn answered(
        &mut self,
        urls: &PatroniUrls,
        answer: Result<Vec<Member>, PatroniError>,
    ) -> (Vec<Record>, bool) {
        let known = self.0.entry(urls.clone()).or_default();
        let listed = answer.and_then(|members| {
            let listed = known.members.listed(members);
            listed.map_err(|why| PatroniError::Invalid(format!("the answer makes no sense: {why}")))
        });
        let mut log = Vec::new();
        match listed {
            Ok(members) => {
                if matches!(known.state, PatroniState::Failed(_)) {
                    log.push(Record::new(Level::Log, format!("patroni {urls}: answers again")));
                }
                known.state = PatroniState::Ok;
                let has_changed = known.members != members;
                if has_changed && labels(&known.members) != labels(&members) {
                    log.push(Record::new(Level::Log, format!("patroni {urls}: {}", labels(&members))));
                }
                known.members = members;
                (log, has_changed)
            }
            Err(error) => {
                if !matches!(known.state, PatroniState::Failed(_)) {
                    log.push(Record::new(Level::Warning, failure(urls, known, &error)));
                }
                known.state = PatroniState::Failed(error);
                (log, false)
            }
        }
    }

    /// What a process that takes over has to know, a line for each member.
    pub(crate) fn note(&self) -> String {
        let line = |(urls, member): (&PatroniUrls, &Member)| {
            let Member { name, host, port, leads, takes_reads, .. } = member;
            format!("patroni {urls}\t{name}\t{host}\t{port}\t{leads}\t{takes_reads}\n")
        };
        let members =
            self.0.iter().flat_map(|(urls, known)| known.members.iter().map(move |one| (urls, one)));
        members.map(line).collect()
    }

    /// The inverse, for what this configuration names. Other lines are ignored.
    pub(crate) fn from_note(note: &str, config: &Config) -> Topologies {
        let mut topologies = Topologies::default();
        for urls in config.patronis() {
            let prefix = format!("patroni {urls}\t");
            let members = note.lines().filter_map(|line| member(line.strip_prefix(&prefix)?)).collect();
            if let Ok(members) = Members::default().listed(members) {
                topologies.0.insert(urls, KnownTopology { members, state: PatroniState::Waiting });
            }
        }
        topologies
    }
}

fn member(line: &str) -> Option<Member> {
    let mut fields = line.split('\t');
    let (name, host) = (fields.next()?.to_owned(), fields.next()?.to_owned());
    let port = fields.next()?.parse().ok()?;
    let (leads, takes_reads) = (fields.next()? == "true", fields.next()? == "true");
    Some(Member { name, host, port, leads, runs: true, takes_reads })
}

/// For the log: members with their hosts, and which leads.
fn labels(members: &Members) -> String {
    let label = |member: &Member| {
        let leads = if member.leads { ", leader" } else { "" };
        format!("{} ({}{leads})", member.name, member.label())
    };
    format!("members are {}", members.iter().map(label).collect::<Vec<_>>().join(", "))
}

/// What is wrong, what it means and what to do.
fn failure(urls: &PatroniUrls, known: &KnownTopology, error: &PatroniError) -> String {
    format!("patroni {urls}: {}", detail(known, error))
}

/// The same for SHOW CLUSTERS.
pub(crate) fn detail(known: &KnownTopology, error: &PatroniError) -> String {
    let remedy = match error {
        PatroniError::Unreachable(_) => "see that Patroni runs and its REST API can be reached",
        PatroniError::Untrusted(_) => {
            "see that otlp_ca_file has the CA of Patroni's REST API, and that its certificate names the host"
        }
        PatroniError::Invalid(_) => "see that topology names the URLs of Patroni's REST API",
    };
    let effect = match known.members.is_empty() {
        true => "no members are known, clients of entries without host wait",
        false => "the last known members stay",
    };
    format!("{}; {effect}: {remedy}", error.why())
}

impl PatroniState {
    /// As SHOW CLUSTERS has it.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            PatroniState::Waiting => "waiting",
            PatroniState::Ok => "ok",
            PatroniState::Failed(PatroniError::Unreachable(_)) => "unreachable",
            PatroniState::Failed(PatroniError::Untrusted(_)) => "untrusted",
            PatroniState::Failed(PatroniError::Invalid(_)) => "invalid",
        }
    }

    /// Why it is of no use.
    pub(crate) fn why(&self) -> Option<&str> {
        match self {
            PatroniState::Failed(error) => Some(error.why()),
            PatroniState::Waiting | PatroniState::Ok => None,
        }
    }
}
