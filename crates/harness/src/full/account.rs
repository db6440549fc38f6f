//! What a load cost, from the kernel's accounting before and after it: CPU time and context switches of a pooler
//! with all its processes and threads, CPU time of the whole machine, the pooler's memory at the end.

use std::fs;

use lab::cpu::{MachineTime, ProcessTime, Spent, group, line_value};
use lab::error::Result;

/// Context switches.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Switches {
    /// It waited for something.
    pub(super) voluntary: f64,
    /// Preempted.
    pub(super) involuntary: f64,
}

/// Memory, in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Memory {
    /// In RAM.
    pub(super) resident_kib: f64,
    /// The same with shared pages divided among those who share them; 0 where the kernel does not say.
    pub(super) proportional_kib: f64,
}

/// What a load cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cost {
    pub(super) pooler: Option<Spent>,
    pub(super) machine_us: f64,
    pub(super) switches: Option<Switches>,
    pub(super) memory: Option<Memory>,
}

/// Runs `load` and accounts it to the pooler whose first process is `leader`, if there is one.
pub(super) fn accounted<T>(leader: Option<u32>, load: impl FnOnce() -> Result<T>) -> Result<(T, Cost)> {
    let pooler_before = leader.map(|leader| (ProcessTime::of_group(leader), switches(leader)));
    let machine_before = MachineTime::read();
    let outcome = load()?;
    let machine_us = MachineTime::read().since_us(&machine_before);
    let mut cost = Cost { machine_us, ..Cost::default() };
    if let (Some(leader), Some((time_before, switches_before))) = (leader, pooler_before) {
        cost.pooler = Some(ProcessTime::of_group(leader).since(&time_before));
        let now = switches(leader);
        cost.switches = Some(Switches {
            voluntary: (now.voluntary - switches_before.voluntary).max(0.0),
            involuntary: (now.involuntary - switches_before.involuntary).max(0.0),
        });
        cost.memory = Some(memory(leader));
    }
    Ok((outcome, cost))
}

/// The memory of a pooler's processes together.
pub(super) fn memory(leader: u32) -> Memory {
    let mut sum = Memory::default();
    for id in group(leader) {
        let read = |file: &str| fs::read_to_string(format!("/proc/{id}/{file}")).unwrap_or_default();
        sum.resident_kib += line_value(&read("status"), "VmRSS:").unwrap_or_default() as f64;
        sum.proportional_kib += line_value(&read("smaps_rollup"), "Pss:").unwrap_or_default() as f64;
    }
    sum
}

fn switches(leader: u32) -> Switches {
    let mut sum = Switches::default();
    for id in group(leader) {
        for thread in fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten() {
            let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
            let count = |name| line_value(&status, name).unwrap_or_default() as f64;
            sum.voluntary += count("voluntary_ctxt_switches:");
            sum.involuntary += count("nonvoluntary_ctxt_switches:");
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    #[test]
    fn a_program_that_works_is_accounted_with_its_children() {
        let script = "(while :; do :; done) & sleep 1000";
        let mut child = Command::new("sh").args(["-c", script]).process_group(0).spawn().unwrap();
        let leader = child.id();
        let ((), cost) = accounted(Some(leader), || {
            while ProcessTime::of_group(leader).since(&ProcessTime::default()).total_us() < 100_000.0 {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            Ok(())
        })
        .unwrap();
        let group_id = rustix::process::Pid::from_raw(i32::try_from(leader).unwrap()).unwrap();
        rustix::process::kill_process_group(group_id, rustix::process::Signal::KILL).unwrap();
        child.wait().unwrap();
        assert!(cost.pooler.unwrap().total_us() >= 50_000.0, "{cost:?}");
        assert!(cost.memory.unwrap().resident_kib > 100.0);
        assert!(cost.switches.is_some());
        let ((), alone) = accounted(None, || Ok(())).unwrap();
        assert_eq!((alone.pooler, alone.switches, alone.memory), (None, None, None));
    }
}
