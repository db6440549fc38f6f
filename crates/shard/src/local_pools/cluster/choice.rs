//! Which of the standbys that may serve a read gets it.
//!
//! Owns how reads are shared among them, by load and weight.

use settings::{ReplicaLag, Weights};

use super::{Cluster, HostState, Needs};

/// The most by which a host counts as behind its share of the reads, or before it.
const MAX_OWED: i64 = 10_000;

/// A host that may serve a read.
#[derive(Clone, Copy)]
struct Choice {
    place: usize,
    load: u32,
    weight: u16,
    owed: i64,
}

impl Choice {
    /// The other one, if it is better.
    #[inline]
    fn or_better(self, other: Choice) -> Choice {
        let load = u64::from(self.load) * u64::from(other.weight);
        let other_load = u64::from(other.load) * u64::from(self.weight);
        if other_load < load || other_load == load && other.owed > self.owed { other } else { self }
    }
}

impl Cluster {
    /// Of the hosts that serve such a read, the one with the least `load` (requests under way; None: no connection to it is open) for its weight; between equals
    /// the one that is furthest behind its share, or the first of them.
    #[inline]
    pub(crate) fn least_loaded(
        &self,
        needs: Needs,
        most: ReplicaLag,
        load: impl Fn(usize) -> Option<u32>,
        weights: &Weights,
        now_us: u64,
    ) -> Option<usize> {
        let mut least: Option<Choice> = None;
        for (place, host) in self.hosts.iter().enumerate() {
            let weight = weights.of(place);
            if weight > 0
                && self.is_of_use(host, needs, most, now_us)
                && let Some(load) = load(place)
            {
                let choice = Choice { place, load, weight, owed: host.owed };
                least = Some(least.map_or(choice, |least| least.or_better(choice)));
            }
        }
        least.map(|choice| choice.place)
    }

    /// A read goes to this host.
    pub(crate) fn read_goes_to(&mut self, place: usize, weights: &Weights) {
        let mut all = 0;
        for (at, host) in self.hosts.iter_mut().enumerate() {
            if matches!(host.state, HostState::Standby) {
                let weight = i64::from(weights.of(at));
                all += weight;
                // One that has not served for a while does not get it all at once.
                host.owed = (host.owed + weight).min(MAX_OWED);
            }
        }
        if let Some(host) = self.hosts.get_mut(place) {
            host.reads += 1;
            host.owed = (host.owed - all).max(-MAX_OWED);
        }
    }
}
