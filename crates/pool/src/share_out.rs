//! The division of a shared budget of connections among the pools that draw on it, told to each of them.

use std::sync::Arc;

use crate::SharedPool;
use crate::shares::{Budget, Member, UNBOUNDED, allowances};

/// Divides a budget of connections (0: no limit) among the pools that draw on it.
pub fn share_out(budget: Budget, limit: u32, pools: &[Arc<SharedPool>]) {
    let members: Vec<Member> =
        pools.iter().map(|pool| pool.share().member(pool.servers.staying(), budget)).collect();
    let is_asked = limit > 0 && members.iter().any(|member| member.waiting > 0);
    let allowed = if is_asked { allowances(limit, &members) } else { vec![UNBOUNDED; members.len()] };
    for (pool, allowed) in pools.iter().zip(allowed) {
        pool.share().allow(budget, allowed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sharing;
    use crate::shares::ShareReport;

    #[test]
    fn nothing_is_bounded_where_nobody_waits_or_nothing_is_limited() {
        let pools = [Arc::new(SharedPool::on(0)), Arc::new(SharedPool::on(0))];
        for pool in &pools {
            pool.share().set(Some(Sharing { guaranteed: 0, by_demand: true }), 20);
        }
        (0..4).for_each(|_| pools[0].servers.add());
        let divide = |limit| {
            share_out(Budget::Database, limit, &pools);
            [0, 1].map(|place: usize| pools[place].share().allowed(Budget::Database))
        };
        assert_eq!(divide(4), [None, None]);
        pools[1].share().change(ShareReport::default(), ShareReport { waiting: 3, ..ShareReport::default() });
        pools[1].share().set_claim(2, true);
        assert_eq!(divide(4), [Some(2), Some(2)]);
        let exceeds = |held| pools[0].share().exceeded(held).is_some();
        assert!(exceeds(3) && !exceeds(2));
        pools[0].servers.leaves();
        assert_eq!(pools[0].servers.staying(), 3);
        assert_eq!(divide(0), [None, None]);
        pools[1].share().set(Some(Sharing { guaranteed: 0, by_demand: true }), 1);
        assert_eq!(divide(4), [Some(3), Some(1)], "its size is 1, however many wait");
        pools[1].share().set(Some(Sharing { guaranteed: 0, by_demand: true }), 20);
        pools[0].share().set(None, 20);
        assert_eq!(divide(4), [None, Some(1)], "who takes no part keeps all, one of which is being closed");
    }
}
