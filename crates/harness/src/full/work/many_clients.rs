//! A hundred active clients, first alone, then among thousands of idle ones that come from four addresses: what the
//! idle ones cost the others.

use std::net::Ipv4Addr;

use crate::full::Bench;
use crate::full::sample::Sample;
use crate::full::subjects::Contender;
use crate::full::work::{Label, loads};
use lab::client::{Client, Keyring, Login};
use lab::error::{LabError, Result};
use lab::laboratory::{ROLE, open_files};
use lab::pgbench::{Load, Workload};
use lab::screen::Screen;

/// Addresses that clients come from: 127.0.0.1 and the next.
const ADDRESSES: u32 = 4;
/// Files that a pooler and the lab have open beside the clients.
const FILES_BESIDE: u64 = 300;

/// Runs the active clients twice.
pub(super) fn run(
    bench: &Bench<'_>,
    contender: &Contender,
    label: &Label,
    screen: &mut Screen,
) -> Result<Sample> {
    let (idle, active) = bench.sizes.crowd;
    let needed = u64::from(idle + active) + FILES_BESIDE;
    if open_files() < needed {
        return Err(LabError::Missing {
            what: format!("{needed} open files are needed, {} are allowed", open_files()),
            remedy: format!("ulimit -n {needed}"),
        });
    }
    let seconds = bench.sizes.seconds;
    let alone = active_load(bench, contender, seconds, label, "alone", screen)?;
    let clients = crowd(bench, contender, idle, screen)?;
    let crowded = active_load(bench, contender, seconds, label, "crowded", screen)?;
    drop(clients);
    let mut sample = crowded;
    sample.alone_p99_ms = alone.p99_ms;
    sample.complaints.extend(alone.complaints);
    sample.logs.extend(alone.logs);
    Ok(sample)
}

/// The active clients alone.
pub(super) fn warm_up(bench: &Bench<'_>, contender: &Contender, screen: &mut Screen) -> Result<()> {
    let label = Label { row: "crowd", round: 0, subject: contender.name.clone() };
    let load = load(bench, bench.sizes.warm_up_seconds, 0.0);
    loads::run(bench, contender, load, &label, false, screen).map(drop)
}

fn active_load(
    bench: &Bench<'_>,
    contender: &Contender,
    seconds: u32,
    label: &Label,
    phase: &str,
    screen: &mut Screen,
) -> Result<Sample> {
    let label = Label { subject: format!("{}.{phase}", label.subject), ..label.clone() };
    loads::run(bench, contender, load(bench, seconds, 0.2), &label, true, screen)
}

fn load(bench: &Bench<'_>, seconds: u32, sampling: f64) -> Load {
    Load {
        workload: Workload::SelectOnly,
        clients: bench.sizes.crowd.1,
        seconds,
        sampling,
        query_mode: "simple".to_owned(),
        ..Load::default()
    }
}

/// Logs the idle ones in; each runs a query, so that it is a client like any other.
fn crowd(bench: &Bench<'_>, contender: &Contender, count: u32, screen: &mut Screen) -> Result<Vec<Client>> {
    let mut keyring = Keyring::default();
    let mut clients = Vec::new();
    for number in 0..count {
        bench.lab.interrupt().check()?;
        let source = Ipv4Addr::from(u32::from(Ipv4Addr::LOCALHOST) + number % ADDRESSES);
        let login = Login { source, ..Login::plain(ROLE, ROLE) };
        let mut client = Client::connect_as(contender.target.port, &login, &mut keyring)?;
        client.query("SELECT 1")?;
        clients.push(client);
        if number % 500 == 499 {
            let text = format!("{}: {} idle clients", contender.name, number + 1);
            screen.progress(f64::from(number) / f64::from(count), &text);
        }
    }
    screen.close();
    Ok(clients)
}
