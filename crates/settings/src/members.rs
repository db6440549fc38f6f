//! A configuration with the members that Patroni lists: the hosts of entries that name none, and which of them leads.
//! What a list of members is, and which lists are taken, is `topology`'s.

use std::sync::Arc;

use crate::per_host::Ports;
use crate::topology::{Member, Members, PatroniUrls};
use crate::{Config, Database};

/// Puts hosts, leader and the hosts without reads into an entry. An entry with hosts of its own keeps them.
fn apply(members: &Members, entry: &mut Database) {
    if entry.follows_members {
        entry.host = members.iter().map(|member| member.host.clone()).collect();
        entry.port = Ports::each(members.iter().map(|member| member.port));
    }
    let place_of = |member: &Member| {
        (0..entry.host.len())
            .find(|place| entry.host[*place] == member.host && entry.port.of(*place) == member.port)
    };
    entry.leader = members.leader().and_then(place_of);
    entry.without_reads = members.iter().filter(|member| !member.takes_reads).filter_map(place_of).collect();
}

impl Config {
    /// The APIs that entries name, each once.
    #[must_use]
    pub fn patronis(&self) -> Vec<PatroniUrls> {
        let entries = self.databases.values().chain(&self.fallback);
        let mut urls: Vec<PatroniUrls> = entries.filter_map(|entry| entry.patroni().cloned()).collect();
        urls.sort();
        urls.dedup();
        urls
    }

    /// The same with what Patroni has said.
    #[must_use]
    pub fn with_members(mut self, known: impl Fn(&PatroniUrls) -> Option<Members>) -> Config {
        for entry in self.databases.values_mut().chain(&mut self.fallback) {
            if let Some(members) = entry.patroni().and_then(&known) {
                apply(&members, Arc::make_mut(entry));
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::files::memory::Memory;
    use crate::load;

    fn member(name: &str, port: u16) -> Member {
        let host = "10.0.0.1".to_owned();
        Member { name: name.to_owned(), host, port, leads: false, runs: true, takes_reads: true }
    }

    #[test]
    fn an_error_shows_no_password() {
        let text = "[databases]\na = topology='patroni http://me:hidden@'\n[pgbouncer]\n";
        let findings = load(&Memory(&[("w.ini", text)]), "w.ini", &[]).unwrap_err();
        let shown = findings.iter().map(ToString::to_string).collect::<String>();
        assert!(shown.contains("topology") && !shown.contains("hidden"), "{shown}");
    }

    #[test]
    fn entries_get_what_patroni_says() {
        let text = "[databases]\nown = host=10.0.0.1,h port=2,9 topology='patroni http://p'\nall = topology='patroni http://p'\nplain = host=x\n[pgbouncer]\n";
        let config = load(&Memory(&[("w.ini", text)]), "w.ini", &[]).unwrap();
        assert!(config.databases["all"].awaits_members() && !config.databases["own"].awaits_members());
        let urls = config.patronis();
        assert_eq!(urls.len(), 1);
        let leader = Member { leads: true, ..member("b", 2) };
        let quiet = Member { takes_reads: false, ..member("a", 1) };
        let members = Members::default().listed(vec![leader, quiet]).unwrap();
        let config = config.with_members(|_| Some(members.clone()));
        let (all, own) = (&config.databases["all"], &config.databases["own"]);
        assert_eq!((all.host.len(), all.port.of(0), all.port.of(1)), (2, 1, 2));
        assert_eq!((all.leader, &*all.without_reads), (Some(1), &[0][..]));
        assert_eq!((own.host.len(), own.leader, &*own.without_reads), (2, Some(0), &[][..]));
        let again = config.clone().with_members(|_| Some(members.clone()));
        assert_eq!(again.databases["all"], config.databases["all"], "the same twice changes nothing");
    }
}
