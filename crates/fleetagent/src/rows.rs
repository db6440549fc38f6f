//! What the node knows of its fleet, as rows for SHOW FLEET, SHOW FLEET_BUDGETS and SHOW FLEET_LIMITS.

use fleet::{
    BudgetKind, BudgetStatus, FleetStatus, FloorStatus, NodeRecord, NodeState, NodeStatus, PeerState,
    PoolsInUse, ReclaimStatus,
};
use messages::{FleetBudgetRow, FleetLimitRow, FleetNodeRow};

/// The rows of these views.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    pub(crate) nodes: Vec<FleetNodeRow>,
    pub(crate) budgets: Vec<FleetBudgetRow>,
    pub(crate) limits: Vec<FleetLimitRow>,
}

impl Rows {
    pub(crate) fn of(status: &FleetStatus, limits: Vec<FleetLimitRow>) -> Rows {
        let mut nodes: Vec<FleetNodeRow> = status.nodes.iter().map(|node| peer(node, status)).collect();
        if !nodes.iter().any(|row| row.is_own) {
            let row = FleetNodeRow {
                node: status.id.clone(),
                is_own: true,
                state: "joining",
                ..FleetNodeRow::default()
            };
            nodes.push(own_row(row, status));
        }
        Rows { nodes, budgets: status.budgets.iter().map(budget).collect(), limits }
    }
}

fn peer(node: &NodeStatus, status: &FleetStatus) -> FleetNodeRow {
    let is_own = node.id == status.id;
    let row = FleetNodeRow {
        node: node.id.clone(),
        is_own,
        leased: node.slots_leased,
        wanted: node.slots_wanted,
        ..FleetNodeRow::default()
    };
    let row = match &node.state {
        PeerState::Up(record) => with_record(row, "up", record),
        PeerState::Draining(record) => with_record(row, "draining", record),
        PeerState::Gone => FleetNodeRow {
            state: "gone",
            detail: "its slots are free once PostgreSQL shows that its connections are gone".to_owned(),
            ..row
        },
    };
    if is_own { own_row(row, status) } else { row }
}

/// What the store has of this node may be old: it says itself what it has.
fn own_row(row: FleetNodeRow, status: &FleetStatus) -> FleetNodeRow {
    FleetNodeRow {
        state: own_state(status),
        clients: Some(status.clients),
        servers: Some(status.servers),
        pools: Some(status.pools.revision),
        leased: status.budgets.iter().map(|budget| u64::from(budget.leased_here)).sum(),
        detail: match own_detail(status) {
            detail if detail.is_empty() => pools_detail(&status.pools),
            detail => detail,
        },
        ..row
    }
}

fn with_record(row: FleetNodeRow, state: &'static str, record: &NodeRecord) -> FleetNodeRow {
    FleetNodeRow {
        state,
        address: record.address.clone(),
        version: record.version.clone(),
        clients: Some(record.clients),
        servers: Some(record.servers),
        pools: Some(record.pools.revision),
        detail: pools_detail(&record.pools),
        ..row
    }
}

/// What a node does not use of the pools of all nodes.
fn pools_detail(pools: &PoolsInUse) -> String {
    match (pools.refused.as_str(), pools.uses_none) {
        ("", _) => String::new(),
        (why, true) => format!("the pools of the fleet are not used: {why}"),
        (why, false) => format!("pools of the fleet are left out: {why}"),
    }
}

fn own_state(status: &FleetStatus) -> &'static str {
    match &status.state {
        NodeState::Joined { .. } if status.is_draining => "draining",
        NodeState::Joined { .. } => "up",
        NodeState::Joining => "joining",
        NodeState::Alone { .. } => "alone",
        NodeState::IdTaken { .. } => "taken",
        NodeState::Leaving => "leaving",
        NodeState::Left => "left",
    }
}

/// What is wrong, and what follows.
pub(crate) fn own_detail(status: &FleetStatus) -> String {
    let (detail, floors) = (state_detail(status), floor_detail(&status.floors));
    let is_without_lease = matches!(status.state, NodeState::Alone { .. } | NodeState::IdTaken { .. });
    if is_without_lease && !floors.is_empty() { format!("{detail}; {floors}") } else { detail }
}

fn state_detail(status: &FleetStatus) -> String {
    match &status.state {
        NodeState::Alone { why, .. } => {
            format!("no lease, only fleet_min_servers of each shared limit are used: {why}")
        }
        NodeState::IdTaken { by } => format!(
            "another process has this fleet_node ({}, since {}), only fleet_min_servers of each shared limit are used",
            if by.address.is_empty() { "without an address" } else { &by.address },
            by.started_s,
        ),
        NodeState::Joined { is_watching: false } => {
            let because = status.unread.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            format!("slots are not taken before the store has been read{because}")
        }
        _ if status.foreign.is_none() && status.unshared > 0 => format!(
            "other nodes do not learn {} figures of clients and quotas: there are too many (fleet_limits)",
            status.unshared
        ),
        _ => status.foreign.clone().unwrap_or_else(|| floor_or_reclaim_detail(status)),
    }
}

fn floor_or_reclaim_detail(status: &FleetStatus) -> String {
    match floor_detail(&status.floors) {
        detail if detail.is_empty() => reclaim_detail(&status.reclaim),
        detail => detail,
    }
}

/// Why floors are withheld.
fn floor_detail(floors: &FloorStatus) -> String {
    let FloorStatus { withheld, has_none, suspects, unlisted, unreported } = floors;
    if *withheld == 0 {
        return String::new();
    }
    if *has_none {
        format!(
            "fleet_min_servers of {withheld} limits are not used yet: as many other nodes have them as fleet_nodes says"
        )
    } else if *unlisted > 0 {
        format!(
            "fleet_min_servers of {withheld} limits are not used yet: PostgreSQL could not be asked about {unlisted} of them"
        )
    } else if !unreported.is_empty() {
        format!(
            "fleet_min_servers of {withheld} limits are not used yet: no report of their connections from {}",
            unreported.join(", ")
        )
    } else if *suspects == 0 {
        format!(
            "fleet_min_servers of {withheld} limits are not used yet: it is not known yet whether connections of a process before this one are left"
        )
    } else {
        format!(
            "fleet_min_servers of {withheld} limits are not used yet: PostgreSQL has {suspects} backends that may be of a process before this one"
        )
    }
}

fn reclaim_detail(reclaim: &ReclaimStatus) -> String {
    match reclaim {
        ReclaimStatus::Idle | ReclaimStatus::Running => String::new(),
        ReclaimStatus::Unreported(nodes) => {
            format!(
                "slots of nodes that are gone stay taken: no report of their connections from {}",
                nodes.join(", ")
            )
        }
        ReclaimStatus::Unlisted(budgets) => {
            format!(
                "slots of nodes that are gone stay taken: PostgreSQL could not be asked about {budgets} limits"
            )
        }
        ReclaimStatus::StillOpen { slots } => {
            format!(
                "{slots} slots of nodes that are gone stay taken: PostgreSQL has backends that may be theirs"
            )
        }
    }
}

fn withheld_detail(withheld: u32) -> String {
    match withheld {
        0 => String::new(),
        some => format!("{some} of the floor are not used yet (SHOW FLEET says why)"),
    }
}

fn budget(status: &BudgetStatus) -> FleetBudgetRow {
    FleetBudgetRow {
        kind: match status.name.kind {
            BudgetKind::Pool => "pool",
            BudgetKind::Database => "database",
            BudgetKind::User => "user",
        },
        database: status.name.database.clone(),
        user: status.name.user.clone(),
        host: status.name.host.clone(),
        limit: status.limit,
        floor: status.floor,
        shared: status.shared,
        leased: status.leased_here,
        leased_total: status.leased,
        wanted_total: status.wanted,
        orphaned: status.orphaned,
        detail: status.foreign.clone().unwrap_or_else(|| withheld_detail(status.withheld)),
    }
}
