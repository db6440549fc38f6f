//! The pools of all nodes, between the node's state machine and the control thread.

use fleet::{Node, PoolsChange, PoolsError, PoolsInUse};
use messages::{FleetPools, FleetPoolsError, FleetPoolsInUse, RequestId};

use crate::FleetNews;

/// Requests that wait; a further one is refused.
const MOST_WAITING: usize = 256;

/// Changes under way, and who waits for all nodes to have dealt with one.
#[derive(Default)]
pub(crate) struct Pools {
    waiting: Vec<(RequestId, u64)>,
    refused: Vec<RequestId>,
}

impl Pools {
    pub(crate) fn change(node: &mut Node, base: u64, pools: FleetPools, now_us: u64) {
        let pools = fleet::FleetPools { revision: pools.revision, by: None, text: pools.text };
        node.change_pools(PoolsChange { number: pools.revision, base, pools }, now_us);
    }

    pub(crate) fn use_them(node: &mut Node, in_use: FleetPoolsInUse, now_us: u64) {
        let FleetPoolsInUse { revision, uses_none, refused } = in_use;
        node.set_pools_in_use(PoolsInUse { revision, uses_none, refused }, now_us);
    }

    pub(crate) fn wait(&mut self, request: RequestId, revision: u64) {
        match self.waiting.len() < MOST_WAITING {
            true => self.waiting.push((request, revision)),
            false => self.refused.push(request),
        }
    }

    /// What the control thread has to hear, in order: what there is now comes before why a change was not made to what there was.
    pub(crate) fn news(&mut self, node: &mut Node, now_us: u64) -> Vec<FleetNews> {
        let mut news = Vec::new();
        news.extend(node.take_pools().map(|pools| {
            let by = pools.by.map(|by| by.to_string()).unwrap_or_default();
            FleetNews::Pools(FleetPools { revision: pools.revision, by, text: pools.text })
        }));
        while let Some((_, result)) = node.next_pools_result() {
            news.push(FleetNews::PoolsChanged(result.map_err(words)));
        }
        for request in self.refused.drain(..) {
            let result = Err(format!("more than {MOST_WAITING} commands wait for all nodes"));
            news.push(FleetNews::PoolsUsed { request, result });
        }
        self.waiting.retain(|(request, revision)| match node.pools_used(*revision, now_us) {
            None => true,
            Some(without) => {
                let each = without.iter().map(|(node, why)| format!("{node} ({why})"));
                let result = match without.is_empty() {
                    true => Ok(()),
                    false => Err(format!("not on {}", each.collect::<Vec<_>>().join(", "))),
                };
                news.push(FleetNews::PoolsUsed { request: *request, result });
                false
            }
        });
        news
    }
}

fn words(why: PoolsError) -> FleetPoolsError {
    FleetPoolsError::Failed(match why {
        PoolsError::Superseded => return FleetPoolsError::Superseded,
        PoolsError::NoStore => "this node has no lease in the store (SHOW FLEET)".to_owned(),
        PoolsError::Foreign(what) => format!("what the store has of them cannot be read: {what}"),
        PoolsError::TooLong(bytes, most) => format!("they have {bytes} bytes, and may have {most}"),
        PoolsError::Unanswered(why) => {
            format!("the store has not answered, the change may have been made: {why}")
        }
    })
}
