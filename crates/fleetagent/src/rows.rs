//! What the node knows of its fleet, as rows for SHOW FLEET and SHOW FLEET_BUDGETS.

use fleet::{
    BudgetKind, BudgetStatus, FleetStatus, NodeRecord, NodeState, NodeStatus, PeerState, ReclaimStatus,
};
use messages::{FleetBudgetRow, FleetNodeRow};

/// The rows of both views.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    pub(crate) nodes: Vec<FleetNodeRow>,
    pub(crate) budgets: Vec<FleetBudgetRow>,
}

impl Rows {
    pub(crate) fn of(status: &FleetStatus) -> Rows {
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
        Rows { nodes, budgets: status.budgets.iter().map(limit).collect() }
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
        leased: status.budgets.iter().map(|budget| u64::from(budget.leased_here)).sum(),
        detail: own_detail(status),
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
        ..row
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
        _ => status.foreign.clone().unwrap_or_else(|| reclaim_detail(&status.reclaim)),
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

fn limit(status: &BudgetStatus) -> FleetBudgetRow {
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
        detail: status.foreign.clone().unwrap_or_default(),
    }
}
