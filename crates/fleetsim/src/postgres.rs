//! The model PostgreSQL: which process ids are in use, and how many backends each process has in each budget.

use std::sync::Arc;

use fleet::Backend;

use crate::prng::Prng;

/// Process ids are used again soon.
const PIDS: usize = 512;

/// A backend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owned {
    pub(crate) budget: usize,
    /// None: of a client that is no node.
    pub(crate) process: Option<usize>,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Postgres {
    server: Arc<str>,
    backends: Vec<Option<Owned>>,
    next: usize,
    /// Backends of nodes, by process and budget.
    counts: Vec<[u32; 2]>,
}

impl Postgres {
    pub(crate) fn new() -> Postgres {
        Postgres { server: "p".into(), backends: vec![None; PIDS], next: 0, counts: Vec::new() }
    }

    pub(crate) fn backend(&self, pid: u32) -> Backend {
        Backend { server: Arc::clone(&self.server), pid }
    }

    /// A new backend: its process id, one of the free ones that come next.
    pub(crate) fn open(&mut self, owned: Owned, prng: &mut Prng) -> u32 {
        // After half of them it begins again: process ids that have just been freed are used soon.
        if prng.percent(30) {
            self.next = 0;
        }
        while self.backends[self.next % PIDS].is_some() {
            self.next += 1;
        }
        let pid = self.next % PIDS;
        self.backends[pid] = Some(owned);
        self.count(owned, 1);
        u32::try_from(pid).unwrap_or(0)
    }

    pub(crate) fn close(&mut self, pid: u32) {
        if let Some(owned) = self.backends[pid as usize].take() {
            self.count(owned, -1);
        }
    }

    /// The backend has another process: a takeover.
    pub(crate) fn give(&mut self, pid: u32, to: usize) {
        if let Some(owned) = self.backends[pid as usize] {
            self.close(pid);
            let owned = Owned { process: Some(to), ..owned };
            self.backends[pid as usize] = Some(owned);
            self.count(owned, 1);
        }
    }

    fn count(&mut self, owned: Owned, by: i32) {
        let Some(process) = owned.process else { return };
        if self.counts.len() <= process {
            self.counts.resize(process + 1, [0; 2]);
        }
        let count = &mut self.counts[process][owned.budget];
        *count = count.saturating_add_signed(by);
    }

    /// Backends of a budget, by process.
    pub(crate) fn counts(&self, budget: usize) -> impl Iterator<Item = u32> {
        self.counts.iter().map(move |counts| counts[budget])
    }

    pub(crate) fn list(&self, budget: usize) -> Vec<Backend> {
        let is_of = |owned: &Option<Owned>| owned.is_some_and(|owned| owned.budget == budget);
        let pids = self.backends.iter().enumerate().filter(|(_, owned)| is_of(owned)).map(|(pid, _)| pid);
        pids.map(|pid| self.backend(u32::try_from(pid).unwrap_or(0))).collect()
    }
}
