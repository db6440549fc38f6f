//! What stands beside the advice, for a reader to check it by: the rule of thumb, Little's law (Little, "A Proof for
//! the Queuing Formula L = λW", 1961) and the connections that the server can give. None of it moves the advice, but for
//! the last: what the server cannot give is never advised.

use crate::advisor::curve::Curve;
use crate::record::Experiment;

/// What PostgreSQL keeps for superusers unless told otherwise.
const RESERVED_FOR_SUPERUSERS: u32 = 3;

/// A pool above this part of what can be given leaves little for a second pooler, a migration, a psql.
pub const CROWDED: f64 = 0.8;

/// The rule of thumb for a server of its own: twice the cores and the spindles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prior {
    /// CPUs of the server.
    pub cores: u32,
    /// Disks that move on their own; one is assumed.
    pub spindles: u32,
}

/// Connections that the server can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// `max_connections`.
    pub max_connections: u32,
    /// `superuser_reserved_connections` and `reserved_connections`.
    pub reserved: u32,
    /// What others had open before, or will need as the user said: the larger of the two.
    pub others: u32,
}

/// Connections in use by Little's law: throughput times the time that a transaction holds one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LittlesLaw {
    /// How long a transaction holds a connection when nothing is in its way, in µs: as measured at the smallest size,
    /// all of whose connections were in use.
    pub alone_us: f64,
    /// The connections of that size.
    pub at: u32,
    /// Connections that the best throughput would keep busy if nothing got into anything's way: no fewer can carry it.
    pub least: f64,
}

impl Prior {
    /// Twice the cores and the spindles.
    #[must_use]
    pub fn connections(self) -> u32 {
        self.cores.saturating_mul(2).saturating_add(self.spindles)
    }

    /// Of the server, if it is on the machine whose cores are known.
    pub(super) fn of(experiment: &Experiment) -> Option<Self> {
        let known = experiment.server.same_machine && experiment.machine.cores > 0;
        known.then_some(Self { cores: experiment.machine.cores, spindles: 1 })
    }
}

impl Budget {
    /// What is left for the pool.
    #[must_use]
    pub fn available(self) -> u32 {
        self.max_connections.saturating_sub(self.reserved).saturating_sub(self.others)
    }

    /// Of the server, if it has said how many it allows.
    pub(super) fn of(experiment: &Experiment) -> Option<Self> {
        let server = &experiment.server;
        let superusers = server.number("superuser_reserved_connections").unwrap_or(RESERVED_FOR_SUPERUSERS);
        Some(Self {
            max_connections: server.number("max_connections")?,
            reserved: superusers.saturating_add(server.number("reserved_connections").unwrap_or(0)),
            others: server.others.max(experiment.plan.other_pools),
        })
    }
}

impl LittlesLaw {
    /// Of a curve whose smallest size had more clients than connections.
    pub(super) fn of(curve: &Curve, clients: u32) -> Option<Self> {
        let smallest = curve.sizes.first().filter(|found| found.connections < clients)?;
        let best = curve.sizes.iter().map(|found| found.tps.middle).fold(0.0, f64::max);
        let alone_s = f64::from(smallest.connections) / smallest.tps.middle;
        Some(Self { alone_us: alone_s * 1e6, at: smallest.connections, least: best * alone_s })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advisor::curve::{Round, Size, curve};
    use crate::record::{MachineRecord, Plan, ServerRecord};

    fn server(settings: &[(&str, &str)], others: u32, other_pools: u32) -> Experiment {
        let settings =
            settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Experiment {
            machine: MachineRecord { cores: 2, ..MachineRecord::default() },
            server: ServerRecord { settings, others, same_machine: true, ..ServerRecord::default() },
            plan: Plan { other_pools, ..Plan::default() },
            ..Experiment::default()
        }
    }

    #[test]
    fn the_budget_is_what_the_server_can_give() {
        let settings = [
            ("max_connections", "100"),
            ("superuser_reserved_connections", "3"),
            ("reserved_connections", "2"),
        ];
        assert_eq!(Budget::of(&server(&settings, 5, 40)).map(Budget::available), Some(55));
        assert_eq!(Budget::of(&server(&settings, 50, 40)).map(Budget::available), Some(45));
        assert_eq!(Budget::of(&server(&settings[..1], 0, 0)).map(Budget::available), Some(97));
        assert_eq!(Budget::of(&server(&settings[..1], 200, 0)).map(Budget::available), Some(0));
        assert_eq!(Budget::of(&server(&[], 0, 0)), None);
    }

    #[test]
    fn the_rule_of_thumb_needs_the_servers_own_cores() {
        let mut experiment = server(&[], 0, 0);
        assert_eq!(Prior::of(&experiment).map(Prior::connections), Some(5));
        experiment.server.same_machine = false;
        assert_eq!(Prior::of(&experiment), None);
    }

    #[test]
    fn littles_law_needs_a_pool_that_was_full() {
        let size = |connections, tps| Size { connections, rounds: vec![Some(Round { tps, p99_us: None })] };
        let curve = curve(&[size(2, 1000.0), size(4, 1600.0)], 50);
        let little = LittlesLaw::of(&curve, 50).expect("a full pool");
        assert!((little.alone_us - 2000.0).abs() < 1e-6 && (little.least - 3.2).abs() < 1e-9, "{little:?}");
        assert_eq!(LittlesLaw::of(&curve, 2), None);
    }
}
