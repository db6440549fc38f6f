//! The pools of all nodes, between the node's state machine and the control thread.

use fleet::{Node, PoolsChange, PoolsError, PoolsInUse, PoolsWait};
use messages::{FleetPools, FleetPoolsError, FleetPoolsInUse, FleetPoolsWait, RequestId};

use crate::FleetNews;

/// Requests that wait; where there are more, the oldest is refused.
const MOST_WAITING: usize = 256;

/// Changes under way, and who waits for all nodes to have dealt with one.
#[derive(Default)]
pub(crate) struct Pools {
    waiting: Vec<Waiting>,
    /// Requests that are answered without waiting.
    refused: Vec<(RequestId, String)>,
}

/// Waits until all nodes have dealt with a revision, or have paused what it says.
struct Waiting {
    request: RequestId,
    revision: u64,
    wait: PoolsWait,
}

impl Pools {
    pub(crate) fn change(node: &mut Node, base: u64, pools: FleetPools, now_us: u64) {
        let pools = fleet::FleetPools { revision: pools.revision, by: None, text: pools.text };
        node.change_pools(PoolsChange { number: pools.revision, base, pools }, now_us);
    }

    pub(crate) fn use_them(node: &mut Node, in_use: FleetPoolsInUse, now_us: u64) {
        let FleetPoolsInUse { revision, paused, resumed, uses_none, refused } = in_use;
        node.set_pools_in_use(PoolsInUse { revision, paused, resumed, uses_none, refused }, now_us);
    }

    pub(crate) fn wait(&mut self, request: RequestId, revision: u64, wait: FleetPoolsWait) {
        // The client of the oldest may have left.
        if self.waiting.len() >= MOST_WAITING {
            let why = format!("it is done, but more than {MOST_WAITING} commands wait for all nodes");
            self.refused.push((self.waiting.remove(0).request, why));
        }
        let wait = match wait {
            FleetPoolsWait::InUse => PoolsWait::InUse,
            FleetPoolsWait::Paused(what) => PoolsWait::Paused(what),
        };
        self.waiting.push(Waiting { request, revision, wait });
    }

    /// The requester no longer waits.
    pub(crate) fn forget(&mut self, request: RequestId) {
        self.waiting.retain(|waiting| waiting.request != request);
    }

    /// Another process goes on as this node, and does not know who waits.
    pub(crate) fn hand_over(&mut self) -> Vec<FleetNews> {
        let why =
            "another process has taken over, which does not wait for all nodes: SHOW FLEET has what each has";
        let answer =
            |waiting: Waiting| FleetNews::PoolsUsed { request: waiting.request, result: Err(why.to_owned()) };
        self.waiting.drain(..).map(answer).collect()
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
        for (request, why) in self.refused.drain(..) {
            news.push(FleetNews::PoolsUsed { request, result: Err(why) });
        }
        let there_are = node.pools_revision();
        self.waiting.retain(|Waiting { request, revision, wait }| {
            let result = match node.pools_used(*revision, wait, now_us) {
                _ if there_are.is_some_and(|there_are| there_are < *revision) => {
                    Some(Err("the store has lost the change".to_owned()))
                }
                None => None,
                Some(without) if without.is_empty() => Some(Ok(())),
                Some(without) => {
                    let each = without.iter().map(|(node, why)| format!("{node} ({why})"));
                    Some(Err(format!("not on {}", each.collect::<Vec<_>>().join(", "))))
                }
            };
            let is_waiting = result.is_none();
            news.extend(result.map(|result| FleetNews::PoolsUsed { request: *request, result }));
            is_waiting
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
