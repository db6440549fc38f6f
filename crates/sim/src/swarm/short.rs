//! A seed's world with much less work in it, so that many runs cost what one did: few requests far apart, and as much happening beside them.

use settings::AuthType;

use super::{Length, Swarm};
use crate::fault::Fault;
use crate::prng::Prng;

/// What arrives, is sent or is held in smaller pieces than this makes too many events.
const PIECE_BYTES: u64 = 512;
const PIPE_BYTES: u64 = 2_048;
/// The least `server_lifetime`, in milliseconds.
const LIFETIME_MS: u64 = 50;

/// How many worlds in a million have each of what happens to hosts, of those in which servers may fail.
fn share_per_million(fault: Fault) -> u32 {
    match fault {
        Fault::Promote => 850_000,
        Fault::StandStill | Fault::Freeze | Fault::Rejoin => 450_000,
        Fault::SilencePrimary | Fault::CrashStandby => 450_000,
        _ => 200_000,
    }
}

impl Swarm {
    /// As long as was asked for.
    pub(crate) fn of_length(self, length: Length, prng: &mut Prng) -> Swarm {
        match length {
            Length::Long => self,
            Length::Short => self.shortened(prng),
        }
    }

    fn shortened(mut self, prng: &mut Prng) -> Swarm {
        self.chaos_us = prng.log_between(500_000, 2_000_000);
        self.shorten_clients(prng);
        self.widen_pipes();
        if prng.chance(700_000) {
            (self.pooling.databases, self.pooling.users, self.pooling.looks_up) = (1, 1, false);
            self.pooling.auth_type = AuthType::Trust;
        }
        self.pooling.server_lifetime_ms = self.pooling.server_lifetime_ms.max(LIFETIME_MS);
        let is_calm = self.faults.is_empty();
        for (_, mean_us) in &mut self.faults {
            *mean_us = (*mean_us).max(self.chaos_us / 4);
        }
        if self.hosts.is_some() {
            self.draw_faults_of_hosts(is_calm && prng.chance(500_000), prng);
        }
        self
    }

    fn shorten_clients(&mut self, prng: &mut Prng) {
        let client_mix = &mut self.client_mix;
        client_mix.slots = client_mix.slots.min(u32::try_from(prng.between(2, 4)).unwrap_or(2));
        client_mix.requests = prng.between(2, 12);
        client_mix.think_us = prng.log_between(20_000, 500_000);
        client_mix.away_us = (50_000, 1_000_000);
        client_mix.rows_most = client_mix.rows_most.min(8);
        client_mix.slow_per_million /= 4;
    }

    fn widen_pipes(&mut self) {
        let network = &mut self.network_conditions;
        for (least, of) in [
            (PIECE_BYTES, &mut self.driving.read_most),
            (PIECE_BYTES, &mut network.piece_most),
            (PIPE_BYTES, &mut network.capacity_least),
            (PIPE_BYTES, &mut network.capacity_most),
        ] {
            *of = (*of).max(least);
        }
    }

    /// The faults of hosts that come at least once in most runs; in calm ones only those by which no client sees an error.
    fn draw_faults_of_hosts(&mut self, is_calm: bool, prng: &mut Prng) {
        self.faults.retain(|(fault, _)| !Fault::OF_CLUSTERS.contains(fault));
        for fault in Fault::OF_CLUSTERS {
            let mean_us = prng.between(self.chaos_us / 8, self.chaos_us / 2);
            if prng.chance(share_per_million(fault)) && !(is_calm && fault.hurts()) {
                self.faults.push((fault, mean_us));
            }
        }
    }
}
