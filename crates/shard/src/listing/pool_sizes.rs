//! The sizes of pools, as rows for SHOW POOL_SIZES: of those that size themselves by the shard that decides, of others by the first that has them.

use messages::PoolSizeRow;
use pool::{SizeController, SizeState};
use settings::SizeBounds;

use crate::core::Core;
use crate::local_pools::local_pool::LocalPool;

pub(crate) fn rows(core: &Core) -> Vec<PoolSizeRow> {
    let rows = core.local_pools.iter().filter_map(|(_, local_pool)| row(core, local_pool));
    rows.collect()
}

fn row(core: &Core, local_pool: &LocalPool) -> Option<PoolSizeRow> {
    let (pool, shared) = (&local_pool.pool, local_pool.pool.shared());
    let row = PoolSizeRow {
        database: local_pool.database_name.to_string(),
        user: local_pool.user.to_string(),
        host: local_pool.host().map(str::to_owned),
        size: pool.size(),
        found: pool.size(),
        open: shared.servers.taken(),
        ..PoolSizeRow::default()
    };
    match pool.limits.pool_size {
        SizeBounds::Auto { min, max } => {
            let search = local_pool.sizing.search.as_ref()?;
            let row = PoolSizeRow { mode: "auto", min, max, ..row };
            Some(searching(row, &search.controller))
        }
        SizeBounds::Fixed(size) => {
            let is_first = shared.shards().trailing_zeros() == u32::from(core.id.0);
            is_first.then_some(PoolSizeRow { mode: "fixed", min: size, max: size, ..row })
        }
    }
}

fn searching(row: PoolSizeRow, controller: &SizeController) -> PoolSizeRow {
    let state = controller.state();
    let change = controller.last_change();
    PoolSizeRow {
        found: controller.found(),
        state: state.word(),
        hold: if let SizeState::Holds(hold) = state { hold.text() } else { "" },
        changed_us: change.map(|(ago_us, _)| ago_us),
        change: change
            .map(|(_, change)| format!("{} -> {}: {}", change.from, change.to, change.reason))
            .unwrap_or_default(),
        changes: controller.changes(),
        ..row
    }
}
