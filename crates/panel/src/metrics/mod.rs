//! The one table of metrics: everything that the console can show, for every collector.
//!
//! Owns which views are looked at and under which names their columns go out: those of pgbouncer_exporter (0.11 and later, and
//! the shorter ones before it), and Weir's own. It is read twice: as `/metrics` ([`Exposition`]), and by `otlp`. Never counts
//! anything itself.

mod caches;
mod exposition;
mod family;
mod fleet;
mod gauges;
mod hosts;
mod pins;
mod pool_sizes;
mod process;
mod queues;
mod quotas;
mod statistics;
mod waits;

use std::collections::BTreeMap;
use std::sync::Arc;

use control::{
    CACHE, CacheColumn, DATABASES, DatabaseColumn, ERRORS, ErrorColumn, FLEET, FLEET_BUDGETS, FLEET_LIMITS,
    FleetBudgetColumn, FleetColumn, FleetLimitColumn, HISTOGRAMS, HOSTS, HistogramColumn, HostColumn, LISTS,
    ListColumn, PIN_TOTALS, POOL_SIZES, POOLS, PinTotalColumn, PoolColumn, PoolSizeColumn, QUEUES, QUOTAS,
    QueueColumn, QuotaColumn, SHARD_CLIENTS, SHARDS, STATS_TOTALS, ShardColumn, SocketColumn, TotalsColumn,
    WAITS, WaitColumn,
};
use settings::Config;

use crate::alerts::AlertRegistry;
use crate::context::PanelContext;
use crate::control_client::{ControlClient, ControlError};
use crate::supervision;
use crate::table::{ViewRow, ViewTable};
use exposition::Exposition;
pub(crate) use family::{Distribution, Family, Labels, MetricKind, MetricUnit, MetricWriter, number};
use process::ProcessMetric;

/// Clients are counted by this many combinations of database, user, application_name and state; the others together.
const COMBINATIONS: usize = 1_000;

/// What clients are counted by.
const LABELS: [SocketColumn; 4] =
    [SocketColumn::Database, SocketColumn::User, SocketColumn::ApplicationName, SocketColumn::State];

/// What application_name is called beyond that.
const OTHER: &str = "(other)";

/// What the metrics are made of.
pub(crate) struct MetricTables {
    lists: ViewTable<ListColumn>,
    databases: ViewTable<DatabaseColumn>,
    pools: ViewTable<PoolColumn>,
    totals: ViewTable<TotalsColumn>,
    histograms: ViewTable<HistogramColumn>,
    errors: ViewTable<ErrorColumn>,
    shards: ViewTable<ShardColumn>,
    pins: ViewTable<PinTotalColumn>,
    hosts: ViewTable<HostColumn>,
    caches: ViewTable<CacheColumn>,
    queues: ViewTable<QueueColumn>,
    waits: ViewTable<WaitColumn>,
    quotas: ViewTable<QuotaColumn>,
    pool_sizes: ViewTable<PoolSizeColumn>,
    fleet_nodes: ViewTable<FleetColumn>,
    fleet_budgets: ViewTable<FleetBudgetColumn>,
    fleet_limits: ViewTable<FleetLimitColumn>,
    clients: BTreeMap<[String; 4], u64>,
    process: Vec<ProcessMetric>,
    alerts: Vec<(&'static str, String)>,
}

/// Where the metrics come from.
#[derive(Clone)]
pub(crate) struct MetricsSource {
    context: PanelContext,
    control_client: Arc<ControlClient>,
    alerts: Arc<AlertRegistry>,
}

impl MetricsSource {
    pub(crate) fn new(
        context: PanelContext,
        control_client: Arc<ControlClient>,
        alerts: Arc<AlertRegistry>,
    ) -> MetricsSource {
        MetricsSource { context, control_client, alerts }
    }

    /// Looks at all of it.
    ///
    /// # Errors
    /// The control thread has not answered.
    pub(crate) async fn collect(&self) -> Result<MetricTables, ControlError> {
        let control_client = &*self.control_client;
        let process = tokio::task::spawn_blocking(process::read);
        // At once: the control thread wakes up once for all of them.
        let (
            lists,
            databases,
            pools,
            totals,
            histograms,
            errors,
            shards,
            pins,
            hosts,
            caches,
            queues,
            waits,
            quotas,
            pool_sizes,
            fleet_nodes,
            fleet_budgets,
            fleet_limits,
            clients,
        ) = tokio::try_join!(
            control_client.show(LISTS),
            control_client.show(DATABASES),
            control_client.show(POOLS),
            control_client.show(STATS_TOTALS),
            control_client.show(HISTOGRAMS),
            control_client.show(ERRORS),
            control_client.show(SHARDS),
            control_client.show(PIN_TOTALS),
            control_client.show(HOSTS),
            control_client.show(CACHE),
            control_client.show(QUEUES),
            control_client.show(WAITS),
            control_client.show(QUOTAS),
            control_client.show(POOL_SIZES),
            control_client.show(FLEET),
            control_client.show(FLEET_BUDGETS),
            control_client.show(FLEET_LIMITS),
            clients(control_client),
        )?;
        let process = process.await.unwrap_or_default();
        let alerts = self.alerts.active();
        Ok(MetricTables {
            lists,
            databases,
            pools,
            totals,
            histograms,
            errors,
            shards,
            pins,
            hosts,
            caches,
            queues,
            waits,
            quotas,
            pool_sizes,
            fleet_nodes,
            fleet_budgets,
            fleet_limits,
            clients,
            process,
            alerts,
        })
    }

    /// The page that Prometheus scrapes.
    ///
    /// # Errors
    /// The control thread has not answered.
    pub(crate) async fn page(&self) -> Result<String, ControlError> {
        let mut page = Exposition::default();
        self.write(&self.collect().await?, &mut page);
        Ok(page.finished())
    }

    /// Writes what was collected, under the configuration in force.
    pub(crate) fn write(&self, tables: &MetricTables, page: &mut dyn MetricWriter) {
        tables.write(page, &self.context.config(), self.context.version());
    }
}

impl MetricTables {
    /// Writes every metric, each family once.
    fn write(&self, page: &mut dyn MetricWriter, config: &Config, version: &str) {
        gauges::write(page, self, config, version);
        pins::write(page, &self.pins);
        hosts::write(page, &self.hosts);
        caches::write(page, &self.caches);
        queues::write(page, &self.queues);
        waits::write(page, &self.waits);
        quotas::write(page, &self.quotas);
        pool_sizes::write(page, &self.pool_sizes);
        fleet::write(page, &self.fleet_nodes, &self.fleet_budgets, config.global.fleet_nodes);
        fleet::write_limits(page, &self.fleet_limits);
        statistics::write(page, &self.totals, &self.histograms, &self.errors);
        process::write(page, &self.process);
        let help = "Panics of the panel's threads; the log has them.";
        let panics = Family::new("weir.panel.panics", MetricKind::Counter, MetricUnit::Number("panic"), help);
        page.single(&panics, number(supervision::panics()));
        let help = "Active alerts of the panel, by kind and pool or server.";
        page.family(&Family::new("weir.alert", MetricKind::Gauge, MetricUnit::Number("alert"), help));
        for (kind, subject) in &self.alerts {
            page.sample(&[("alert", kind), ("subject", subject)], 1.0);
        }
    }
}

/// The number of clients of each combination; the listing arrives in slices.
async fn clients(control_client: &ControlClient) -> Result<BTreeMap<[String; 4], u64>, ControlError> {
    let mut counts = BTreeMap::new();
    let count = |row: ViewRow<'_, SocketColumn>| {
        let mut key = LABELS.map(|column| row.owned(column));
        if counts.len() >= COMBINATIONS && !counts.contains_key(&key) {
            OTHER.clone_into(&mut key[2]);
        }
        *counts.entry(key).or_insert(0) += 1;
    };
    control_client.for_each_row(SHARD_CLIENTS, count).await?;
    Ok(counts)
}
