//! The pools of all nodes: each change adds a line of its own to what its process knew. A change that is said to be made is never lost, and one that is said not to be never comes.

use std::collections::BTreeSet;

use fleet::{FleetPools, ObjectName, PoolsChange, PoolsError, PoolsInUse};

use crate::pool_changes::SaidOfChanges;
use crate::process::State;
use crate::world::World;

impl World {
    /// Takes what the node knows, hears what became of a change, and makes one that is due.
    pub(crate) fn exchange_pools(&mut self, process: usize, clock_us: u64) {
        let found = &mut self.processes[process];
        if let Some(pools) = found.node.take_pools() {
            let in_use = PoolsInUse { revision: pools.revision, ..PoolsInUse::default() };
            found.node.set_pools_in_use(in_use, clock_us);
            found.shared_pools.known = Some(pools);
        }
        while let Some((_, result)) = found.node.next_pools_result() {
            let Some(line) = found.shared_pools.changing.take() else { continue };
            match result {
                Ok(()) => drop(self.said_of_changes.made.insert(line)),
                Err(PoolsError::Superseded | PoolsError::NoStore) => {
                    self.said_of_changes.not_made.insert(line);
                }
                // It may have been made.
                Err(_) => {}
            }
        }
        let pools = &mut found.shared_pools;
        let is_free = pools.is_change_due && pools.changing.is_none();
        let Some(known) = pools.known.as_ref().filter(|_| is_free) else { return };
        (pools.is_change_due, pools.changes) = (false, pools.changes + 1);
        let line = format!("{process}-{}\n", pools.changes);
        let text = [&*known.text, line.as_bytes()].concat().into();
        let (base, revision) = (known.revision, known.revision + 1);
        let changed = FleetPools { revision, by: None, text };
        pools.changing = Some(line);
        found.node.change_pools(PoolsChange { number: revision, base, pools: changed }, clock_us);
    }

    /// A change that was lost or came nevertheless, or a process that does not know what there is.
    pub(crate) fn wrong_pools(&self, running: &[usize]) -> Option<String> {
        let stored = self.store.objects.get(&ObjectName(vec!["pools".to_owned()]));
        let contents = stored.map(|(_, contents)| String::from_utf8_lossy(contents)).unwrap_or_default();
        let text = contents.splitn(3, '\n').nth(2).unwrap_or_default();
        let lines: Vec<String> = text.lines().map(|line| format!("{line}\n")).collect();
        let set: BTreeSet<String> = lines.iter().cloned().collect();
        let SaidOfChanges { made, not_made } = &self.said_of_changes;
        if let Some(line) = made.difference(&set).next() {
            return Some(format!("the change {line:?} is lost"));
        }
        if let Some(line) = not_made.intersection(&set).next() {
            return Some(format!("the change {line:?} was made, and said not to be"));
        }
        if set.len() != lines.len() {
            return Some("a change was made twice".to_owned());
        }
        let is_behind = |at: &&usize| {
            let process = &self.processes[**at];
            process.state == State::Running
                && process.shared_pools.known.as_ref().is_none_or(|known| &*known.text != text.as_bytes())
        };
        running
            .iter()
            .find(is_behind)
            .map(|at| format!("process {at} does not know the pools that there are"))
    }
}
