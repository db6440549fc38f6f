//! Resident memory of a pooler with thousands of idle clients that each logged in and ran one query: the slope
//! between a thousand and five thousand, so that what a pooler needs in any case does not count.

use std::time::Duration;

use crate::compare::subjects::Subject;
use lab::client::Client;
use lab::cpu::resident_kib;
use lab::error::Result;
use lab::laboratory::{Lab, ROLE};
use lab::pooler::Pooler;
use lab::screen::Screen;

const FEW: u32 = 1_000;
const MANY: u32 = 5_000;

/// How long the pooler may tidy up before its memory is read.
const SETTLE: Duration = Duration::from_secs(2);

/// One pooler's memory.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Idle {
    pub(super) name: String,
    /// KiB with a thousand idle clients.
    pub(super) few_kib: u64,
    /// KiB with five thousand.
    pub(super) many_kib: u64,
}

impl Idle {
    /// KiB for one further client.
    pub(super) fn slope_kib(&self) -> f64 {
        (self.many_kib as f64 - self.few_kib as f64) / f64::from(MANY - FEW)
    }
}

/// Measures each pooler in a fresh process.
pub(super) fn measure(lab: &Lab, subjects: &[Subject], screen: &mut Screen) -> Result<Vec<Idle>> {
    let mut found = Vec::new();
    for subject in subjects {
        let Some(pooler) = subject.start(lab, "")? else { continue };
        screen.step(&format!("{}: {MANY} idle clients", subject.name));
        let mut clients = Vec::new();
        let few_kib = fill(lab, &pooler, &mut clients, FEW, screen)?;
        let many_kib = fill(lab, &pooler, &mut clients, MANY, screen)?;
        let idle = Idle { name: subject.name.clone(), few_kib, many_kib };
        screen.remark(&format!("{:.2} KiB a client", idle.slope_kib()));
        found.push(idle);
        drop(clients);
        drop(pooler);
        lab.wait_until_left()?;
    }
    Ok(found)
}

/// Logs clients in until there are `count`, and gives the pooler's memory after a pause.
fn fill(
    lab: &Lab,
    pooler: &Pooler,
    clients: &mut Vec<Client>,
    count: u32,
    screen: &mut Screen,
) -> Result<u64> {
    let wanted = usize::try_from(count).unwrap_or_default();
    while clients.len() < wanted {
        lab.interrupt().check()?;
        let mut client = Client::connect(pooler.port(), ROLE, ROLE)?;
        client.query("SELECT 1")?;
        clients.push(client);
        if clients.len().is_multiple_of(250) {
            screen.progress(clients.len() as f64 / f64::from(MANY), &format!("{} clients", clients.len()));
        }
    }
    lab.interrupt().sleep(SETTLE)?;
    Ok(resident_kib(pooler.process_id()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_leaves_out_what_is_needed_anyway() {
        let idle = Idle { name: "x".to_owned(), few_kib: 10_000, many_kib: 14_800 };
        assert_eq!(idle.slope_kib(), 1.2);
        let shrunk = Idle { many_kib: 9_000, ..idle };
        assert!(shrunk.slope_kib() < 0.0);
    }
}
