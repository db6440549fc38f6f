//! What happens to the hosts of a cluster: promotions, hosts that stand still or are cut off or started again, DETACH, and reads that are split no more.

use std::sync::Arc;

use messages::Command;

use super::operator::{Awaited, Undo};
use super::{What, World};
use crate::fault::Fault;
use crate::network::Ending;
use crate::pooler::Pooler;
use crate::setup::{self, PORT};

/// The longest that something lasts.
const LASTS_US: u64 = 4_000_000;

/// How often a primary that is replaced is dead by then, in a million.
const DEAD: u32 = 500_000;

impl<P: Pooler> World<P> {
    /// Something happens to a host.
    pub(super) fn trouble_hosts(&mut self, fault: Fault, while_us: u64) {
        let now_us = self.clock.now_us();
        let until_us = now_us + self.prng.log_between(10_000, LASTS_US);
        let Some(hosts) = &mut self.cluster.replication else { return };
        match fault {
            Fault::Promote => self.promote(until_us),
            Fault::StandStill => {
                let place = hosts.any();
                hosts.stand_still(place, until_us);
            }
            Fault::Freeze => {
                let place = hosts.any();
                hosts.freeze(place, until_us);
            }
            Fault::RestartHost => {
                let place = hosts.any();
                hosts.events.restarts += 1;
                hosts.go_down(place, now_us + while_us);
                self.end_sessions(place, false);
            }
            Fault::Rejoin => {
                let mut useless = [hosts.left_behind(), hosts.old_primaries()].concat();
                useless.retain(|place| hosts.silent_since_us(*place, now_us).is_none());
                if let Some(place) = useless.first() {
                    self.rejoin(*place);
                }
            }
            Fault::SilencePrimary => self.silence_primary(),
            Fault::CrashStandby => self.crash_standby(),
            order => self.operate(order, while_us),
        }
    }

    /// A standby is promoted. The primary before it is dead, or goes on for a while.
    fn promote(&mut self, until_us: u64) {
        let now_us = self.clock.now_us();
        let is_dead = self.prng.chance(DEAD);
        let comes_back_us = self.prng.log_between(10_000, LASTS_US);
        let Some(hosts) = &mut self.cluster.replication else { return };
        let (Some(before), Some(next)) = (hosts.primary(), hosts.candidate(now_us)) else { return };
        hosts.events.promotions += 1;
        hosts.events.split_brains += u64::from(!is_dead);
        if is_dead {
            hosts.go_down(before, until_us);
        }
        hosts.promote(next, now_us);
        self.say(format_args!(
            "pg{next} is promoted, pg{before} is {}",
            if is_dead { "dead" } else { "alive" }
        ));
        if is_dead {
            self.end_sessions(before, true);
        }
        self.clock.after(comes_back_us, What::Rejoin(before));
    }

    /// A server that is no use any more is made a standby.
    pub(super) fn rejoin(&mut self, place: usize) {
        let now_us = self.clock.now_us();
        let Some(hosts) = &mut self.cluster.replication else { return };
        let is_useless = hosts.left_behind().contains(&place) || hosts.old_primaries().contains(&place);
        if is_useless && hosts.silent_since_us(place, now_us).is_none() {
            hosts.rejoin(place, now_us);
            self.say(format_args!("pg{place} becomes a standby"));
            self.end_sessions(place, true);
        }
    }

    fn end_sessions(&mut self, place: usize, is_killed: bool) {
        for number in self.cluster.end_sessions(place, is_killed) {
            if is_killed {
                self.end_backend(number, Ending::Reset);
            } else {
                self.drive_backend(number);
            }
        }
    }

    /// The faults are over: there is one primary, and the others follow it, but those that are silent beyond that.
    pub(super) fn heal_hosts(&mut self) {
        let Some(hosts) = &self.cluster.replication else { return };
        for place in [hosts.left_behind(), hosts.old_primaries()].concat() {
            self.rejoin(place);
        }
        self.cluster.replication.iter_mut().for_each(|hosts| hosts.heal(false));
        let all: Vec<u32> = self.cluster.backends().map(|(number, _)| number).collect();
        all.into_iter().for_each(|number| self.drive_backend(number));
    }

    /// DETACH and ATTACH.
    pub(super) fn detach(&mut self, database: String, for_us: u64) {
        let Some(hosts) = &mut self.cluster.replication else { return };
        let host = format!("{}:{PORT}", setup::replica(hosts.any()));
        self.order_detach(&database, &host, true);
        self.undo_later(Undo::Attach(database, host), for_us);
    }

    pub(super) fn order_detach(&mut self, database: &str, host: &str, detached: bool) {
        let (database, host) = (database.to_owned(), host.to_owned());
        let order =
            |request| Command::Detach { request, database: database.clone(), host: host.clone(), detached };
        self.ask(Awaited::Detach, order);
    }

    /// RELOAD that ends, or begins, to send reads elsewhere.
    pub(super) fn split(&mut self, database: &str, is_split: bool) {
        let mut config = (*self.config).clone();
        if let Some(entry) = config.databases.get_mut(database) {
            let entry = Arc::make_mut(entry);
            entry.read_write_split = is_split;
            // Writes go to the primary all the same.
            let Some(hosts) = &self.swarm.hosts else { return };
            entry.target_session_attrs =
                if is_split { hosts.attrs } else { settings::TargetSessionAttrs::Primary };
        }
        self.config = Arc::new(config);
        self.configure_again();
    }
}
