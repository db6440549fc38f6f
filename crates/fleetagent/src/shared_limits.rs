//! Limits for which no slots are leased: what this node uses of them goes to the node, and what the others use to the counts of clients and to the accounts of quotas.
//!
//! Owns which of these limits are shared (`fleet_limits`), and how each is called in the store. What counts, and when it is written, is [`fleet::Node`]'s to decide.

use std::collections::HashMap;
use std::sync::Arc;

use fleet::{ExternalUsage, Node, SharedUsage, UsageFigure, UsageKind, UsageName};
use messages::FleetLimitRow;
use pool::{Counted, ExternalClients, FleetCounts};
use quota::{ExternalQuota, SharedQuota};
use settings::Config;

/// The accounts of quotas are read so often; their thread collects what was used as often.
const QUOTAS_US: u64 = 500_000;

/// No more of them are told to the node.
const MOST_QUOTAS: usize = 4_096;

/// What is shared without slots.
pub(crate) struct SharedLimits {
    counts: Arc<dyn FleetCounts>,
    config: Arc<Config>,
    /// Of quotas, as read last: those of which most is used, in parts of their limits.
    quotas: Vec<UsageFigure>,
    /// How many more there are.
    left_out: usize,
    /// When they are read next.
    quotas_us: u64,
    external: ExternalClients,
}

impl SharedLimits {
    pub(crate) fn new(counts: Arc<dyn FleetCounts>, config: Arc<Config>) -> SharedLimits {
        SharedLimits {
            counts,
            config,
            quotas: Vec::new(),
            left_out: 0,
            quotas_us: 0,
            external: ExternalClients::default(),
        }
    }

    /// A new configuration is in force: other limits may be shared.
    pub(crate) fn configure(&mut self, config: Arc<Config>) {
        (self.config, self.quotas_us) = (config, 0);
    }

    /// Tells the node what is used, and sets what the others use.
    pub(crate) fn look(&mut self, node: &mut Node, now_us: u64, wall_s: u64) {
        let limits = self.config.global.fleet_limits;
        if now_us >= self.quotas_us {
            self.quotas_us = now_us + QUOTAS_US;
            (self.quotas, self.left_out) =
                if limits.quotas { self.read_quotas() } else { Default::default() };
        }
        let mut figures = self.quotas.clone();
        if limits.clients {
            figures.extend(self.clients().iter().map(figure));
        }
        let SharedLimits { left_out, .. } = *self;
        let usage = SharedUsage { clients: limits.clients, quotas: limits.quotas, figures, left_out, wall_s };
        node.set_shared_usage(usage, now_us);
        if let Some(external) = node.next_external_usage(now_us) {
            self.set_external(&external);
        }
    }

    fn read_quotas(&self) -> (Vec<UsageFigure>, usize) {
        let mut quotas: Vec<SharedQuota> = Vec::new();
        self.counts.with_quotas(&mut |book| quotas = book.shared());
        let left_out = quotas.len().saturating_sub(MOST_QUOTAS);
        if left_out > 0 {
            // The thread has no time for all of them: slots wait for it, too.
            let share =
                |quota: &SharedQuota| u128::from(quota.used) * 1_000_000 / u128::from(quota.limit.max(1));
            quotas.select_nth_unstable_by_key(MOST_QUOTAS, |quota| std::cmp::Reverse(share(quota)));
            quotas.truncate(MOST_QUOTAS);
        }
        (quotas.into_iter().map(figure_of_quota).collect(), left_out)
    }

    fn set_external(&mut self, external: &ExternalUsage) {
        let of = |kind| external.iter().filter(move |(name, _)| name.kind == kind);
        let count = |amount: u64| u32::try_from(amount).unwrap_or(u32::MAX);
        let names = |kind| -> HashMap<Arc<str>, u32> {
            of(kind).map(|(name, amount)| (Arc::clone(&name.name), count(*amount))).collect()
        };
        let all = of(UsageKind::Clients).map(|(_, amount)| *amount).fold(0, u64::saturating_add);
        let clients = ExternalClients {
            all: count(all),
            databases: names(UsageKind::Database),
            users: names(UsageKind::User),
        };
        if clients != self.external {
            self.external.clone_from(&clients);
            self.counts.set_external_clients(clients);
        }
        let quotas = of(UsageKind::Quota).map(|(name, amount)| ExternalQuota {
            key: &name.name,
            period_s: name.period_s.0,
            used: *amount,
        });
        let mut quotas = Some(quotas);
        self.counts.with_quotas(&mut |book| {
            if let Some(quotas) = quotas.take() {
                book.set_external(quotas);
            }
        });
    }

    /// The limits of clients that are set, with what is used of them; none where they are not shared.
    pub(crate) fn rows(&self) -> Vec<FleetLimitRow> {
        if self.config.global.fleet_limits.clients { self.clients() } else { Vec::new() }
    }

    fn clients(&self) -> Vec<FleetLimitRow> {
        let config = &self.config;
        let mut rows = vec![FleetLimitRow {
            kind: "clients",
            limit: config.global.max_client_conn,
            clients: self.counts.counted_clients(),
            external: self.external.all,
            ..FleetLimitRow::default()
        }];
        self.counts.each(&mut |counted| {
            let row = match counted {
                Counted::Pool { .. } => return,
                // The console's database has no entry: who looks at a node does not count at another.
                Counted::Database { name, counts } => config.database(name).map(|entry| FleetLimitRow {
                    kind: "database",
                    database: name.into(),
                    limit: config.max_db_client_connections(&entry),
                    clients: counts.clients.taken(),
                    external: counts.clients.external(),
                    ..FleetLimitRow::default()
                }),
                Counted::User { name, counts } => Some(FleetLimitRow {
                    kind: "user",
                    user: name.into(),
                    limit: config.max_user_client_connections(config.user(name).map(|user| &**user)),
                    clients: counts.clients.taken(),
                    external: counts.clients.external(),
                    ..FleetLimitRow::default()
                }),
            };
            rows.extend(row.filter(|row| row.limit > 0));
        });
        rows
    }
}

fn figure(row: &FleetLimitRow) -> UsageFigure {
    let (kind, name) = match row.kind {
        "clients" => (UsageKind::Clients, "".into()),
        "database" => (UsageKind::Database, Arc::clone(&row.database)),
        _ => (UsageKind::User, Arc::clone(&row.user)),
    };
    let name = UsageName { kind, name, period_s: (0, 0) };
    UsageFigure { name, amount: row.clients.into(), limit: row.limit.into() }
}

fn figure_of_quota(quota: SharedQuota) -> UsageFigure {
    let SharedQuota { key, period_s, used, limit } = quota;
    let name = UsageName { kind: UsageKind::Quota, name: key.into(), period_s };
    UsageFigure { name, amount: used, limit }
}
