//! The subjects of fair queues that have clients here, as rows for SHOW QUEUES.

use std::collections::BTreeMap;

use messages::QueueRow;
use pool::FairShare;

use crate::client::{Client, Phase};
use crate::connections::Conn;
use crate::core::Core;
use crate::local_pools::local_pool::LocalPool;

pub(crate) fn rows(core: &Core) -> Vec<QueueRow> {
    let mut rows: BTreeMap<u32, QueueRow> = BTreeMap::new();
    for conn in core.conns.values() {
        let Conn::Client(client) = conn else { continue };
        for share in &client.fair_shares {
            let Some(local_pool) = pool_of(core, client, share) else { continue };
            let row = rows.entry(share.number()).or_insert_with(|| empty_row(local_pool, share));
            if client
                .served_by()
                .and_then(|pool| core.local_pools.get(pool))
                .is_some_and(|pool| share.is_of(pool.pool.shared().fair()))
            {
                count(row, client, core.now.mono_us);
            }
        }
    }
    rows.into_values().collect()
}

/// The pool of a share that a client has: most often the one whose server it used last.
fn pool_of<'a>(core: &'a Core, client: &Client, share: &FairShare) -> Option<&'a LocalPool> {
    let is_its = |local_pool: &&LocalPool| share.is_of(local_pool.pool.shared().fair());
    let likely = client.served_by().and_then(|pool| core.local_pools.get(pool)).filter(is_its);
    likely.or_else(|| core.local_pools.iter().map(|(_, local_pool)| local_pool).find(is_its))
}

fn empty_row(local_pool: &LocalPool, share: &FairShare) -> QueueRow {
    let usage = share.usage();
    QueueRow {
        database: local_pool.database_name.to_string(),
        user: local_pool.user.to_string(),
        host: local_pool.host().map(str::to_owned),
        by: share.by(),
        subject: share.subject().to_owned(),
        weight: usage.weight,
        turns: usage.turns,
        server_us: usage.server_us,
        ..QueueRow::default()
    }
}

fn count(row: &mut QueueRow, client: &Client, now_us: u64) {
    match client.phase {
        Phase::Waiting(_) => {
            row.waiting += 1;
            row.longest_wait_us = row.longest_wait_us.max(now_us.saturating_sub(client.request_us));
        }
        Phase::Linked(_) | Phase::Preparing(_) => row.active += 1,
        _ => {}
    }
}
