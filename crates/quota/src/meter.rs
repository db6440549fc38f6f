//! The counters that the shards' threads add to: atomics, touched when a client logs in, when a server is released, and read when a request begins.
//! What requests use is added to stripes, one for each thread as far as they go: threads that write the same cache line wait for each other.
//!
//! Owns counting connections exactly. What was used in a period, and what that means, is the [`crate::Book`]'s.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::subject::Subject;

/// How a subject stands with its quotas, as shards need to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Nothing to be said.
    Within,
    /// Above a soft limit: its clients are warned.
    OverSoft,
    /// Its requests are refused.
    Refused,
}

/// What its storage allows to a subject's clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StorageStanding {
    /// Everything.
    Free,
    /// It is full: they read, and may delete.
    ReadsAndDeletes,
    /// It is full: they read.
    ReadsOnly,
}

/// What one subject uses.
#[derive(Debug)]
pub struct Meter {
    subject: Subject,
    connections: AtomicU32,
    /// The number of connections that are allowed; 0 is any number.
    connections_most: AtomicU32,
    /// Connections that other nodes of a fleet have.
    connections_external: AtomicU32,
    standing: AtomicU8,
    storage: AtomicU8,
    /// Something was added since it was collected last: the stripes of those that use nothing are not looked at.
    is_used: AtomicBool,
    used: [Stripe; STRIPES],
}

/// Threads beyond these share stripes.
const STRIPES: usize = 8;

/// What threads have added, in a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Stripe {
    server_us: AtomicU64,
    queries: AtomicU64,
    bytes: AtomicU64,
}

/// What was counted since it was collected last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) server_us: u64,
    pub(crate) queries: u64,
    pub(crate) bytes: u64,
}

impl Meter {
    pub(crate) fn new(subject: Subject) -> Meter {
        Meter {
            subject,
            connections: AtomicU32::new(0),
            connections_most: AtomicU32::new(0),
            connections_external: AtomicU32::new(0),
            standing: AtomicU8::new(0),
            storage: AtomicU8::new(0),
            is_used: AtomicBool::new(false),
            used: Default::default(),
        }
    }

    /// Whose it is.
    #[must_use]
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Connections that are open now.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Acquire)
    }

    /// How it stands.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match self.standing.load(Ordering::Relaxed) {
            0 => Standing::Within,
            1 => Standing::OverSoft,
            _ => Standing::Refused,
        }
    }

    pub(crate) fn set_standing(&self, standing: Standing) {
        self.standing.store(standing as u8, Ordering::Relaxed);
    }

    /// What its storage allows.
    #[must_use]
    pub fn storage(&self) -> StorageStanding {
        match self.storage.load(Ordering::Relaxed) {
            0 => StorageStanding::Free,
            1 => StorageStanding::ReadsAndDeletes,
            _ => StorageStanding::ReadsOnly,
        }
    }

    pub(crate) fn set_storage(&self, storage: StorageStanding) {
        self.storage.store(storage as u8, Ordering::Relaxed);
    }

    pub(crate) fn set_connections_most(&self, most: u32) {
        self.connections_most.store(most, Ordering::Release);
    }

    pub(crate) fn set_connections_external(&self, external: u32) {
        self.connections_external.store(external, Ordering::Relaxed);
    }

    /// One more connection, if it is allowed or nobody asks whether it is.
    fn take(&self, is_bound: bool) -> bool {
        let most = if is_bound { self.connections_most.load(Ordering::Acquire) } else { 0 };
        let external = self.connections_external.load(Ordering::Relaxed);
        let more = |open: u32| (most == 0 || open.saturating_add(external) < most).then_some(open + 1);
        self.connections.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    fn release(&self) {
        let before = self.connections.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "a connection was released twice");
    }

    fn add(&self, stripe: usize, counted: Counted) {
        let used = &self.used[stripe];
        used.server_us.fetch_add(counted.server_us, Ordering::Relaxed);
        used.bytes.fetch_add(counted.bytes, Ordering::Relaxed);
        // In one order with `is_used`: either whoever collects finds this, or this finds that it has collected.
        used.queries.fetch_add(counted.queries, Ordering::SeqCst);
        if !self.is_used.load(Ordering::SeqCst) {
            self.is_used.store(true, Ordering::SeqCst);
        }
    }

    /// What was counted since the last call.
    pub(crate) fn collect(&self) -> Counted {
        let mut counted = Counted::default();
        if !self.is_used.load(Ordering::Relaxed) {
            return counted;
        }
        self.is_used.store(false, Ordering::SeqCst);
        for used in &self.used {
            if used.queries.load(Ordering::SeqCst) == 0
                && used.server_us.load(Ordering::Relaxed) == 0
                && used.bytes.load(Ordering::Relaxed) == 0
            {
                continue;
            }
            counted.queries += used.queries.swap(0, Ordering::Relaxed);
            counted.server_us += used.server_us.swap(0, Ordering::Relaxed);
            counted.bytes += used.bytes.swap(0, Ordering::Relaxed);
        }
        counted
    }
}

/// The meters of one client, in each of which its connection counts until it is dropped.
#[derive(Debug)]
pub struct ClientMeters {
    meters: Box<[Arc<Meter>]>,
    /// The stripe of its thread.
    stripe: usize,
    is_exempt: bool,
}

impl ClientMeters {
    /// Counts a connection in all of them; where one does not allow it, it counts in none and that one is returned. `thread` is the number of the one
    /// that the client is on.
    ///
    /// # Errors
    /// The meter that is full.
    pub fn enter(meters: Vec<Arc<Meter>>, is_exempt: bool, thread: u16) -> Result<ClientMeters, Arc<Meter>> {
        let full = meters.iter().position(|meter| !meter.take(!is_exempt));
        match full {
            None => Ok(ClientMeters::counted(meters, is_exempt, thread)),
            Some(full) => {
                meters[..full].iter().for_each(|meter| meter.release());
                Err(Arc::clone(&meters[full]))
            }
        }
    }

    /// Counts a connection that is there already, whether it is allowed or not.
    #[must_use]
    pub fn enter_anyway(meters: Vec<Arc<Meter>>, is_exempt: bool, thread: u16) -> ClientMeters {
        meters.iter().for_each(|meter| _ = meter.take(false));
        ClientMeters::counted(meters, is_exempt, thread)
    }

    fn counted(meters: Vec<Arc<Meter>>, is_exempt: bool, thread: u16) -> ClientMeters {
        ClientMeters { meters: meters.into_boxed_slice(), stripe: usize::from(thread) % STRIPES, is_exempt }
    }

    /// Counts the connection in these instead. Where it counted before and after, it counts all the time.
    #[must_use]
    pub fn moved_to(mut self, meters: Vec<Arc<Meter>>, is_exempt: bool) -> ClientMeters {
        let before = std::mem::take(&mut self.meters);
        let is_in = |among: &[Arc<Meter>], meter| among.iter().any(|other| Arc::ptr_eq(other, meter));
        meters.iter().filter(|meter| !is_in(&before, meter)).for_each(|meter| _ = meter.take(false));
        before.iter().filter(|meter| !is_in(&meters, meter)).for_each(|meter| meter.release());
        ClientMeters { meters: meters.into_boxed_slice(), stripe: self.stripe, is_exempt }
    }

    /// The meter that a request that begins has to look at: one that refuses it, else one that is above a soft limit.
    #[inline]
    #[must_use]
    pub fn concern(&self) -> Option<(Standing, &Arc<Meter>)> {
        if self.is_exempt {
            return None;
        }
        let mut worst: Option<(Standing, &Arc<Meter>)> = None;
        for meter in &self.meters {
            let standing = meter.standing();
            if standing > worst.map_or(Standing::Within, |(worst, _)| worst) {
                worst = Some((standing, meter));
            }
        }
        worst
    }

    /// What storage allows to its client.
    #[must_use]
    pub fn storage(&self) -> StorageStanding {
        self.full_storage().map_or(StorageStanding::Free, |meter| meter.storage())
    }

    /// The meter whose storage allows least, if one does not allow everything.
    #[must_use]
    pub fn full_storage(&self) -> Option<&Arc<Meter>> {
        let full = self.meters.iter().filter(|meter| meter.storage() > StorageStanding::Free);
        full.max_by_key(|meter| meter.storage()).filter(|_| !self.is_exempt)
    }

    /// What a turn of its client has used.
    pub fn add(&self, server_us: u64, queries: u64, bytes: u64) {
        let counted = Counted { server_us, queries, bytes };
        self.meters.iter().for_each(|meter| meter.add(self.stripe, counted));
    }
}

impl Drop for ClientMeters {
    fn drop(&mut self) {
        self.meters.iter().for_each(|meter| meter.release());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SubjectKind;

    fn meter(most: u32) -> Arc<Meter> {
        let meter = Arc::new(Meter::new(Subject::named(SubjectKind::User, "u")));
        meter.set_connections_most(most);
        meter
    }

    #[test]
    fn a_connection_counts_in_all_meters_or_in_none() {
        let (wide, narrow) = (meter(0), meter(1));
        let both = || vec![Arc::clone(&wide), Arc::clone(&narrow)];
        let first = ClientMeters::enter(both(), false, 0).expect("there is room");
        let full = ClientMeters::enter(both(), false, 0).expect_err("it is full");
        assert!(Arc::ptr_eq(&full, &narrow));
        assert_eq!((wide.connections(), narrow.connections()), (1, 1));
        let exempt = ClientMeters::enter(both(), true, 0).expect("it is exempt");
        let anyway = ClientMeters::enter_anyway(both(), false, 0);
        assert_eq!((wide.connections(), narrow.connections()), (3, 3));
        drop((first, exempt, anyway));
        assert_eq!((wide.connections(), narrow.connections()), (0, 0));
    }

    #[test]
    fn connections_of_other_nodes_count() {
        let (narrow, wide) = (meter(2), meter(0));
        let enters = |meter: &Arc<Meter>| ClientMeters::enter(vec![Arc::clone(meter)], false, 0).is_ok();
        [&narrow, &wide].iter().for_each(|meter| meter.set_connections_external(1));
        assert!(enters(&narrow) && enters(&wide));
        [&narrow, &wide].iter().for_each(|meter| meter.set_connections_external(u32::MAX));
        assert!(!enters(&narrow) && enters(&wide), "no limit is none");
    }

    #[test]
    fn a_connection_that_moves_never_counts_twice() {
        let (kept, left, new) = (meter(2), meter(1), meter(1));
        let client = ClientMeters::enter_anyway(vec![Arc::clone(&kept), Arc::clone(&left)], false, 0);
        let is_over = AtomicU8::new(0);
        let client = std::thread::scope(|scope| {
            let mover = scope.spawn(|| {
                let mut client = client;
                for _ in 0..20_000 {
                    client = client.moved_to(vec![Arc::clone(&new), Arc::clone(&kept)], false);
                    client = client.moved_to(vec![Arc::clone(&kept), Arc::clone(&left)], false);
                }
                is_over.store(1, Ordering::Release);
                client
            });
            while is_over.load(Ordering::Acquire) == 0 {
                drop(ClientMeters::enter(vec![Arc::clone(&kept)], false, 0).expect("one of two is there"));
            }
            mover.join().expect("it moves")
        });
        assert_eq!((kept.connections(), left.connections(), new.connections()), (1, 1, 0));
        drop(client);
        assert_eq!((kept.connections(), left.connections(), new.connections()), (0, 0, 0));
    }

    #[test]
    fn no_thread_takes_more_than_is_allowed() {
        let narrow = meter(7);
        let held: usize = std::thread::scope(|scope| {
            let take = || {
                let taken: Vec<_> = (0..100)
                    .filter_map(|_| ClientMeters::enter(vec![Arc::clone(&narrow)], false, 0).ok())
                    .collect();
                let count = taken.len();
                std::mem::forget(taken);
                count
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it counts")).sum()
        });
        assert_eq!((held, narrow.connections()), (7, 7));
    }

    #[test]
    fn the_worst_meter_is_a_requests_concern() {
        let (a, b) = (meter(0), meter(0));
        let of = |is_exempt| ClientMeters::enter_anyway(vec![Arc::clone(&a), Arc::clone(&b)], is_exempt, 0);
        assert!(of(false).concern().is_none());
        a.set_standing(Standing::OverSoft);
        assert!(matches!(of(false).concern(), Some((Standing::OverSoft, meter)) if Arc::ptr_eq(meter, &a)));
        b.set_standing(Standing::Refused);
        assert!(matches!(of(false).concern(), Some((Standing::Refused, meter)) if Arc::ptr_eq(meter, &b)));
        assert!(of(true).concern().is_none());
    }

    #[test]
    fn what_many_threads_add_is_collected_once_and_whole() {
        let meter = meter(0);
        let (threads, each) = (16, 20_000);
        let mut collected = Counted::default();
        std::thread::scope(|scope| {
            let adders: Vec<_> = (0..threads)
                .map(|thread| {
                    let client = ClientMeters::enter_anyway(vec![Arc::clone(&meter)], false, thread);
                    scope.spawn(move || (0..each).for_each(|_| client.add(3, 1, 7)))
                })
                .collect();
            while adders.iter().any(|adder| !adder.is_finished()) {
                let more = meter.collect();
                collected.server_us += more.server_us;
                collected.queries += more.queries;
                collected.bytes += more.bytes;
            }
        });
        let last = meter.collect();
        let all = u64::from(threads) * each;
        assert_eq!(
            (
                collected.server_us + last.server_us,
                collected.queries + last.queries,
                collected.bytes + last.bytes
            ),
            (3 * all, all, 7 * all)
        );
        assert_eq!(meter.collect(), Counted::default());
    }

    #[test]
    fn what_was_counted_is_collected_once() {
        let a = meter(0);
        let client = ClientMeters::enter_anyway(vec![Arc::clone(&a)], false, 0);
        client.add(5, 1, 100);
        client.add(6, 1, 0);
        assert_eq!(a.collect(), Counted { server_us: 11, queries: 2, bytes: 100 });
        assert_eq!(a.collect(), Counted::default());
    }
}
