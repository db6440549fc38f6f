//! The subjects of fair queues that have clients here, as rows for SHOW QUEUES.

use std::collections::BTreeMap;

use messages::QueueRow;

use crate::client::Phase;
use crate::connections::Conn;
use crate::core::Core;

pub(crate) fn rows(core: &Core) -> Vec<QueueRow> {
    let now_us = core.now.mono_us;
    let mut rows: BTreeMap<u64, QueueRow> = BTreeMap::new();
    for conn in core.conns.values() {
        let Conn::Client(client) = conn else { continue };
        let Some(share) = &client.fair_share else { continue };
        let Some(local_pool) = client.pool.and_then(|pool| core.local_pools.get(pool)) else { continue };
        let row = rows.entry(share.number()).or_insert_with(|| {
            let usage = share.usage();
            QueueRow {
                database: local_pool.database_name.to_string(),
                by: share.by(),
                subject: share.subject().to_owned(),
                weight: usage.weight,
                turns: usage.turns,
                server_us: usage.server_us,
                ..QueueRow::default()
            }
        });
        match client.phase {
            Phase::Waiting(_) => {
                row.waiting += 1;
                row.longest_wait_us = row.longest_wait_us.max(now_us.saturating_sub(client.request_us));
            }
            Phase::Linked(_) | Phase::Preparing(_) => row.active += 1,
            _ => {}
        }
    }
    rows.into_values().collect()
}
