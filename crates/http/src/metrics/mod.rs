//! The one table of metrics: everything that the console can show, for whoever collects.
//!
//! Owns which views are looked at and under which names their columns go out: those of pgbouncer_exporter (0.11 and later, and
//! the shorter ones before it), and Weir's own. It is read twice: as `/metrics` ([`Exposition`]), and by `otlp`. Never counts
//! anything itself.

mod durations;
mod exposition;
mod family;
mod gauges;
mod process;
mod statistics;

use std::collections::BTreeMap;

use messages::Role;
use settings::Config;

use crate::bridge::{Bridge, NoAnswer, show};
use crate::shared::Shared;
use crate::table::{Row, Table};
use crate::threads;
use exposition::Exposition;
pub(crate) use family::{Distribution, Family, Kind, Labels, Page, Unit, number};
use process::Figure;

/// Clients are counted by so many combinations of database, user, application_name and state; the others together.
const COMBINATIONS: usize = 1_000;

/// What application_name is called beyond that.
const OTHER: &str = "(other)";

/// What the metrics are made of.
pub(crate) struct Looked {
    lists: Table,
    databases: Table,
    pools: Table,
    totals: Table,
    histograms: Table,
    errors: Table,
    shards: Table,
    clients: BTreeMap<[String; 4], u64>,
    process: Vec<Figure>,
    alerts: Vec<(&'static str, String)>,
}

/// Looks at all of it.
///
/// # Errors
/// The control thread has not answered.
pub(crate) async fn look(shared: &Shared) -> Result<Looked, NoAnswer> {
    let bridge = &shared.bridge;
    let process = tokio::task::spawn_blocking(process::figures);
    // At once: whoever answers wakes once for all of them.
    let (lists, databases, pools, totals, histograms, errors, shards, clients) = tokio::try_join!(
        bridge.show("LISTS"),
        bridge.show("DATABASES"),
        bridge.show("POOLS"),
        bridge.show("STATS_TOTALS"),
        bridge.show("HISTOGRAMS"),
        bridge.show("ERRORS"),
        bridge.show("SHARDS"),
        clients(bridge),
    )?;
    let process = process.await.unwrap_or_default();
    let alerts = shared.alerts.active();
    Ok(Looked { lists, databases, pools, totals, histograms, errors, shards, clients, process, alerts })
}

impl Looked {
    /// Writes every metric, each family once.
    pub(crate) fn write(&self, page: &mut dyn Page, config: &Config, version: &str) {
        gauges::write(page, self, config, version);
        statistics::write(page, &self.totals);
        durations::write(page, &self.histograms, &self.errors);
        process::write(page, &self.process);
        let help = "Bugs that the panel's threads ran into and went on from: the log has them.";
        let panics = Family::new("weir.panel.panics", Kind::Counter, Unit::Number("panic"), help);
        page.single(&panics, number(threads::panics()));
        let help = "Alerts of the panel that hold, by kind and pool or server.";
        page.family(&Family::new("weir.alert", Kind::Gauge, Unit::Number("alert"), help));
        for (kind, subject) in &self.alerts {
            page.sample(&[("alert", kind), ("subject", subject)], 1.0);
        }
    }
}

/// The page that Prometheus scrapes.
///
/// # Errors
/// The control thread has not answered.
pub(crate) async fn page(shared: &Shared) -> Result<String, NoAnswer> {
    let mut page = Exposition::default();
    look(shared).await?.write(&mut page, &shared.config(), shared.version);
    Ok(page.finished())
}

/// How many clients there are of each combination; the listing goes by in slices.
async fn clients(bridge: &Bridge) -> Result<BTreeMap<[String; 4], u64>, NoAnswer> {
    let mut counts = BTreeMap::new();
    let count = |columns: &[messages::Column], rows: Vec<Vec<messages::Cell>>| {
        for cells in &rows {
            let row = Row { columns, cells };
            let mut key = ["database", "user", "application_name", "state"]
                .map(|name| row.text(name).unwrap_or_default().to_owned());
            if counts.len() >= COMBINATIONS && !counts.contains_key(&key) {
                OTHER.clone_into(&mut key[2]);
            }
            *counts.entry(key).or_insert(0) += 1;
        }
    };
    bridge.each(Role::Stats, show("CLIENTS"), count).await?;
    Ok(counts)
}
