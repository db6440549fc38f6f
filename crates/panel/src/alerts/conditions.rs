//! Looks for what alerts are raised by: in each sample of the live figures, and every so often at servers.
//! Owns the conditions. Never asks a server that no pool has a connection to.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use settings::Global;
use telemetry::{Level, Record};

use super::{Alert, AlertKind, Condition};
use crate::alerts::AlertRegistry;
use crate::context::PanelContext;
use crate::live::{LiveSample, LiveSampler};
use crate::pool_service::PoolService;
use crate::time::now_us;

/// Servers that are down are checked once in this many samples, budgets at every tenth of these checks.
const SAMPLES: u32 = 3;
const BUDGET_LOOKS: u32 = 10;

/// Errors are averaged over this many samples.
const ERROR_SAMPLES: usize = 10;

/// Recent errors a second, by database.
type Errors = BTreeMap<String, VecDeque<f64>>;

/// Watches until it is dropped.
pub(crate) async fn run_alert_checks(
    context: PanelContext,
    live: Arc<LiveSampler>,
    pools: PoolService,
    alerts: Arc<AlertRegistry>,
) {
    let mut samples = live.watch();
    let observe = |kinds: &[AlertKind], conditions| observe(&context, &alerts, kinds, conditions);
    let (mut errors, mut count) = (Errors::new(), 0_u32);
    while samples.changed().await.is_ok() {
        let sample = Arc::clone(&samples.borrow_and_update());
        // The process that takes over watches.
        if context.is_handed_over() {
            continue;
        }
        let config = context.config();
        let mut found = waiting(&config.global, &sample);
        found.extend(too_many(&config.global, &mut errors, &sample));
        observe(&[AlertKind::Waiting, AlertKind::Errors], found);
        count = count.wrapping_add(1);
        if !count.is_multiple_of(SAMPLES) {
            continue;
        }
        if let Ok(inventory) = pools.inventory().await {
            let down = inventory.servers_down(&config).into_iter().map(|(subject, text)| Condition {
                kind: AlertKind::ServerDown,
                subject,
                text,
            });
            observe(&[AlertKind::ServerDown], down.collect());
        }
        let asks = config.global.alert_budget > 0 && sample.totals.servers > 0;
        if asks && count.is_multiple_of(SAMPLES * BUDGET_LOOKS) {
            if let Ok(views) = pools.cluster_views().await {
                let over = views.iter().filter_map(|view| view.over_budget(config.global.alert_budget));
                let over = over.map(|(subject, text)| Condition { kind: AlertKind::Budget, subject, text });
                observe(&[AlertKind::Budget], over.collect());
            }
        } else if !asks {
            observe(&[AlertKind::Budget], Vec::new());
        }
    }
}

fn observe(context: &PanelContext, alerts: &AlertRegistry, kinds: &[AlertKind], conditions: Vec<Condition>) {
    let changes = alerts.observe(kinds, conditions, now_us());
    changes.iter().for_each(|alert| context.write(record(alert)));
    if !changes.is_empty() && context.config().global.alert_webhook.is_some() {
        alerts.enqueue(changes);
    }
}

fn record(alert: &Alert) -> Record {
    let (level, word) =
        if alert.cleared.is_none() { (Level::Warning, "alert") } else { (Level::Log, "alert cleared") };
    let text = telemetry::printable(&alert.text);
    Record::new(level, format!("panel: {word}: {}: {text}", alert.alert.word()))
}

#[expect(clippy::cast_precision_loss)]
fn waiting(global: &Global, sample: &LiveSample) -> Vec<Condition> {
    let limit = u64::try_from(global.alert_wait.as_micros()).unwrap_or(u64::MAX);
    let mut longest: BTreeMap<&str, u64> = BTreeMap::new();
    for pool in sample.pools.iter().filter(|pool| limit > 0 && pool.maxwait_us > limit) {
        let wait = longest.entry(&pool.database).or_default();
        *wait = (*wait).max(pool.maxwait_us);
    }
    let condition = |(name, us): (&str, u64)| Condition {
        kind: AlertKind::Waiting,
        subject: name.to_owned(),
        text: format!("a client of {name} has waited for a server for {:.1} s", us as f64 / 1e6),
    };
    longest.into_iter().map(condition).collect()
}

#[expect(clippy::cast_precision_loss)]
fn too_many(global: &Global, errors: &mut Errors, sample: &LiveSample) -> Vec<Condition> {
    errors.retain(|name, _| sample.databases.iter().any(|one| one.database == *name));
    let mut found = Vec::new();
    for database in &sample.databases {
        let rates = errors.entry(database.database.clone()).or_default();
        rates.push_back(database.errors_rate);
        if rates.len() > ERROR_SAMPLES {
            rates.pop_front();
        }
        let rate = rates.iter().sum::<f64>() / ERROR_SAMPLES as f64;
        if global.alert_errors > 0 && rate > f64::from(global.alert_errors) {
            let name = database.database.clone();
            let text = format!("clients of {name} receive {rate:.1} errors a second");
            found.push(Condition { kind: AlertKind::Errors, subject: name, text });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::{DatabaseSample, PoolSample};

    #[test]
    fn long_waits_and_many_errors_are_conditions() {
        let mut global = Global::default();
        let pool = |database: &str, maxwait_us| PoolSample {
            database: database.to_owned(),
            maxwait_us,
            ..PoolSample::default()
        };
        let sample = LiveSample {
            pools: vec![pool("app", 6_000_000), pool("app", 7_000_000), pool("other", 4_000_000)],
            databases: vec![DatabaseSample {
                database: "app".to_owned(),
                errors_rate: 60.0,
                ..DatabaseSample::default()
            }],
            ..LiveSample::default()
        };
        let found = waiting(&global, &sample);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].text, "a client of app has waited for a server for 7.0 s");
        let mut errors = Errors::new();
        assert!(too_many(&global, &mut errors, &sample).is_empty(), "60 in ten seconds are 6 a second");
        assert_eq!(too_many(&global, &mut errors, &sample).len(), 1);
        (global.alert_wait, global.alert_errors) = (std::time::Duration::ZERO, 0);
        assert!(waiting(&global, &sample).is_empty() && too_many(&global, &mut errors, &sample).is_empty());
    }
}
