//! What a seed decides before anything happens.

use fleet::{BudgetKind, BudgetName, Division};

use crate::prng::Prng;

pub(crate) const MS: u64 = 1_000;
pub(crate) const SECOND: u64 = 1_000_000;

/// Sizes and probabilities of a run.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    /// Different node ids.
    pub(crate) nodes: usize,
    /// A further process with an id that is in use.
    pub(crate) has_double: bool,
    /// `fleet_nodes`.
    pub(crate) configured: u32,
    pub(crate) min_servers: u32,
    pub(crate) budgets: Vec<(BudgetName, u32)>,
    pub(crate) lease_us: u64,
    /// Faults happen until then.
    pub(crate) chaos_us: u64,
    pub(crate) faults: u64,
    /// Of a message, at most.
    pub(crate) latency_us: u64,
    /// Requests that go wrong without a partition, of a hundred.
    pub(crate) lossy: u64,
    /// Of a login, at most.
    pub(crate) login_us: u64,
    /// From the reading of the usage to its report, at most.
    pub(crate) usage_us: u64,
    /// Limits differ between nodes for a while.
    pub(crate) has_limits: bool,
    /// Killed nodes' queries may go on.
    pub(crate) has_survivors: bool,
    /// A process that replaces a killed one may have another name.
    pub(crate) has_renames: bool,
    /// Names that keep their numbers.
    pub(crate) peer_names: usize,
}

impl Scenario {
    pub(crate) fn of(prng: &mut Prng) -> Scenario {
        let most = if prng.percent(15) { 5 } else { 3 };
        let nodes = 2 + prng.index(most);
        let has_double = prng.percent(10);
        let spare = u32::from(prng.percent(15));
        let budgets = 1 + prng.index(2);
        let budget = |at: usize, prng: &mut Prng| {
            let kind = [BudgetKind::Pool, BudgetKind::Database, BudgetKind::User][prng.index(3)];
            let database = if kind == BudgetKind::User { String::new() } else { format!("d{at}") };
            let user = if kind == BudgetKind::Database { String::new() } else { format!("u{at}") };
            let most = [4, 8, 16, 40][prng.index(4)];
            (
                BudgetName { kind, database: database.into(), user: user.into(), host: "".into() },
                prng.small(1, most),
            )
        };
        Scenario {
            nodes,
            has_double,
            configured: u32::try_from(nodes).unwrap_or(u32::MAX) + u32::from(has_double) + spare,
            min_servers: [0, 1, 1, 2, 3][prng.index(5)],
            budgets: (0..budgets).map(|at| budget(at, prng)).collect(),
            lease_us: prng.between(3, 7) * SECOND,
            chaos_us: prng.between(6, 18) * SECOND,
            faults: if prng.percent(10) { 0 } else { prng.between(1, 7) },
            latency_us: if prng.percent(15) { 400 * MS } else { prng.between(1, 20) * MS },
            lossy: if prng.percent(30) { prng.between(1, 15) } else { 0 },
            login_us: prng.between(1, 300) * MS,
            usage_us: if prng.percent(25) { 400 * MS } else { 10 * MS },
            has_limits: prng.percent(15),
            has_survivors: prng.percent(70),
            has_renames: prng.percent(20),
            peer_names: if prng.percent(50) { 1 + prng.index(nodes) } else { 1_000 },
        }
    }

    pub(crate) fn division(&self, budget: usize) -> Division {
        Division::new(self.budgets[budget].1, self.configured, self.min_servers)
    }
}
