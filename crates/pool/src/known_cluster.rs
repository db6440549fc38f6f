//! Which cluster the servers of an entry belong to, and the newest timeline of its primaries, as all shards have seen them.
//!
//! Owns which servers are refused for it: those of another cluster, and primaries that were left behind by a promotion, whose writes would be lost or,
//! worse, kept beside those of the new one.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What is known of a cluster; nothing at first.
#[derive(Debug, Default)]
pub struct KnownCluster {
    /// `system_identifier`; 0 is not known.
    system: AtomicU64,
    /// 0 is not known.
    timeline: AtomicU32,
    /// The last [`ProbedCluster`].
    majority: AtomicU64,
    probed_system: AtomicU64,
    probed_timeline: AtomicU32,
    /// How often clients have written, where that is counted.
    writes: AtomicU64,
    /// The number of pools whose clients' writes are not counted.
    uncounted: AtomicU32,
    /// How often the schema may have changed.
    schema_changes: AtomicU64,
}

/// What the hosts of an entry that were asked are (`host_probe_interval`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbedCluster {
    /// The `system_identifier` that more than half of them have; 0 is none.
    pub majority: u64,
    /// The primary on the newest timeline, if any is one.
    pub primary: Option<ProbedPrimary>,
}

/// A primary that was asked what it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbedPrimary {
    /// `system_identifier`.
    pub system: u64,
    /// What it writes.
    pub timeline: u32,
}

/// Why a server is none of the cluster's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The others have another `system_identifier`, this one.
    OtherCluster(u64),
    /// None was used yet, and more than half of the hosts have another, this one.
    Minority(u64),
    /// There has been a primary on this timeline.
    OlderTimeline(u32),
}

impl KnownCluster {
    /// A server has this identifier, and is a primary on this timeline, if it is one. The first one says what the others must have, if it has that of the majority
    /// of the entry's hosts, as far as there is one that is known.
    ///
    /// # Errors
    /// It is a mismatch: nothing is noted of it.
    pub fn admit(&self, system: u64, timeline: Option<u32>) -> Result<(), Mismatch> {
        let majority = self.majority.load(Ordering::Acquire);
        if majority != 0 && majority != system && self.known().is_none() {
            return Err(Mismatch::Minority(majority));
        }
        self.remember(system, timeline)
    }

    /// The same whatever the hosts have answered: another process has used the server, or this one has, before the entry had no pool.
    ///
    /// # Errors
    /// It is a mismatch: nothing is noted of it.
    pub fn remember(&self, system: u64, timeline: Option<u32>) -> Result<(), Mismatch> {
        match self.system.compare_exchange(0, system, Ordering::AcqRel, Ordering::Acquire) {
            Err(known) if known != system => return Err(Mismatch::OtherCluster(known)),
            Ok(_) if self.probed_system.load(Ordering::Acquire) == system => {
                self.timeline.fetch_max(self.probed_timeline.load(Ordering::Acquire), Ordering::AcqRel);
            }
            _ => {}
        }
        let Some(timeline) = timeline else { return Ok(()) };
        let newest = self.timeline.fetch_max(timeline, Ordering::AcqRel);
        let known = self.system.load(Ordering::Acquire);
        if known != system && known != 0 {
            // The probe has said meanwhile that it is another cluster, of which this timeline is none.
            self.timeline.store(0, Ordering::Release);
            return Err(Mismatch::OtherCluster(known));
        }
        if newest > timeline { Err(Mismatch::OlderTimeline(newest)) } else { Ok(()) }
    }

    /// The identifier and the newest timeline (0 where no primary was seen), if any server was.
    #[must_use]
    pub fn known(&self) -> Option<(u64, u32)> {
        let system = self.system.load(Ordering::Acquire);
        (system != 0).then(|| (system, self.timeline.load(Ordering::Acquire)))
    }

    /// A server that is not used is a primary on this timeline. What is known of another cluster, or of none, stays.
    pub fn note_primary(&self, system: u64, timeline: u32) {
        if self.system.load(Ordering::Acquire) == system {
            self.timeline.fetch_max(timeline, Ordering::AcqRel);
        }
    }

    /// What has come of asking the hosts. Their primary counts, while no cluster is known, once a server of that one is used. While none but standbys of a cluster
    /// were used, that of the majority takes its place. For one thread at a time.
    pub fn note_probed(&self, ProbedCluster { majority, primary }: ProbedCluster) {
        self.majority.store(majority, Ordering::Release);
        if let Some((system, 0)) = self.known()
            && majority != 0
        {
            // Where it is another one by now, a thread has forgotten it.
            let _ = self.system.compare_exchange(system, majority, Ordering::AcqRel, Ordering::Acquire);
        }
        let ProbedPrimary { system, timeline } = primary.unwrap_or_default();
        self.note_primary(system, timeline);
        self.probed_system.store(0, Ordering::Release);
        self.probed_timeline.store(timeline, Ordering::Release);
        self.probed_system.store(system, Ordering::Release);
    }

    /// A client has written, and knows it.
    pub fn note_write(&self) {
        self.writes.fetch_add(1, Ordering::AcqRel);
    }

    /// How often clients have written, as far as that is counted.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Acquire)
    }

    /// How often clients have written; None while some may write that are not counted.
    #[must_use]
    pub fn all_writes(&self) -> Option<u64> {
        // In this order: what is not counted any more is part of the count.
        (self.uncounted.load(Ordering::Acquire) == 0).then(|| self.writes())
    }

    /// Clients of a pool may write without being counted from here on.
    pub(crate) fn begin_uncounted(&self) {
        self.uncounted.fetch_add(1, Ordering::AcqRel);
    }

    /// The end of [`KnownCluster::begin_uncounted`]. It counts as one write, because clients may have written.
    pub(crate) fn end_uncounted(&self) {
        self.note_write();
        self.uncounted.fetch_sub(1, Ordering::AcqRel);
    }

    /// The schema may have changed.
    pub fn note_schema_change(&self) {
        self.schema_changes.fetch_add(1, Ordering::AcqRel);
    }

    /// How often it may have.
    #[inline]
    #[must_use]
    pub fn schema_changes(&self) -> u64 {
        self.schema_changes.load(Ordering::Acquire)
    }

    /// The servers of the entry may be those of another cluster from here on.
    pub fn forget(&self) {
        self.system.store(0, Ordering::Release);
        self.timeline.store(0, Ordering::Release);
        self.majority.store(0, Ordering::Release);
        self.probed_system.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probed(majority: u64, primary: Option<(u64, u32)>) -> ProbedCluster {
        let primary = primary.map(|(system, timeline)| ProbedPrimary { system, timeline });
        ProbedCluster { majority, primary }
    }

    #[test]
    fn a_primary_that_is_not_used_leaves_older_ones_behind() {
        let cluster = KnownCluster::default();
        cluster.note_primary(7, 2);
        assert_eq!((cluster.known(), cluster.admit(7, Some(1))), (None, Ok(())), "none is known yet");
        cluster.note_primary(8, 3);
        assert_eq!(cluster.known(), Some((7, 1)), "another cluster's");
        cluster.note_primary(7, 2);
        assert_eq!(cluster.admit(7, Some(1)), Err(Mismatch::OlderTimeline(2)));
    }

    #[test]
    fn a_primary_that_was_asked_before_any_is_used_leaves_older_ones_behind() {
        let cluster = KnownCluster::default();
        let probed = |system, timeline| cluster.note_probed(probed(0, Some((system, timeline))));
        probed(7, 2);
        assert_eq!(cluster.known(), None, "it says nothing of the cluster");
        assert_eq!(cluster.admit(7, Some(1)), Err(Mismatch::OlderTimeline(2)));
        probed(7, 3);
        probed(7, 1);
        assert_eq!(cluster.known(), Some((7, 3)), "what was used is remembered");
        cluster.note_probed(ProbedCluster::default());
        cluster.forget();
        assert_eq!(cluster.admit(7, Some(1)), Ok(()), "what was only asked is not");
        cluster.forget();
        probed(8, 9);
        assert_eq!(cluster.admit(7, Some(1)), Ok(()), "another cluster's");
    }

    #[test]
    fn the_first_server_says_which_cluster_it_is() {
        let cluster = KnownCluster::default();
        assert_eq!(cluster.admit(7, None), Ok(()));
        assert_eq!(cluster.admit(8, Some(9)), Err(Mismatch::OtherCluster(7)));
        assert_eq!(cluster.admit(7, Some(1)), Ok(()), "the mismatch's timeline counts for nothing");
        cluster.forget();
        assert_eq!(cluster.admit(8, Some(1)), Ok(()));
    }

    #[test]
    fn the_majority_of_the_hosts_says_it_before_the_first_server() {
        let cluster = KnownCluster::default();
        cluster.note_probed(probed(7, None));
        assert_eq!(cluster.admit(8, None), Err(Mismatch::Minority(7)));
        assert_eq!((cluster.known(), cluster.admit(7, Some(1))), (None, Ok(())));
        cluster.note_probed(probed(8, Some((8, 5))));
        assert_eq!(cluster.admit(8, Some(5)), Err(Mismatch::OtherCluster(7)), "a primary was used");
        cluster.forget();
        assert_eq!(cluster.admit(9, Some(1)), Ok(()), "what was asked before says nothing");
    }

    #[test]
    fn a_standby_that_was_used_first_gives_way_to_the_majority() {
        let cluster = KnownCluster::default();
        assert_eq!(cluster.admit(8, None), Ok(()));
        cluster.note_probed(probed(0, Some((7, 3))));
        assert_eq!(cluster.known(), Some((8, 0)), "there is none");
        cluster.note_probed(probed(7, Some((7, 3))));
        assert_eq!(cluster.known(), Some((7, 3)));
        assert_eq!(cluster.admit(8, None), Err(Mismatch::OtherCluster(7)));
        assert_eq!(cluster.admit(7, Some(2)), Err(Mismatch::OlderTimeline(3)));
    }

    #[test]
    fn a_primary_on_an_older_timeline_was_left_behind() {
        let cluster = KnownCluster::default();
        assert_eq!(
            (cluster.known(), cluster.admit(7, Some(1)), cluster.known()),
            (None, Ok(()), Some((7, 1)))
        );
        assert_eq!((cluster.admit(7, Some(3)), cluster.known()), (Ok(()), Some((7, 3))));
        assert_eq!(cluster.admit(7, Some(2)), Err(Mismatch::OlderTimeline(3)));
        assert_eq!(cluster.admit(7, None), Ok(()), "a standby writes nothing");
    }
}
