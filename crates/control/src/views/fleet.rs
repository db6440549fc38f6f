//! SHOW FLEET, SHOW FLEET_BUDGETS and SHOW FLEET_LIMITS: the nodes of the fleet, and the limits that they share.

use messages::{Cell, FleetBudgetRow, FleetLimitRow, FleetNodeRow};

use super::ViewContext;

pub(super) fn nodes(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    context.aggregate.fleet_nodes.iter().map(node).collect()
}

fn node(row: &FleetNodeRow) -> Vec<Cell> {
    let count = |count: Option<u32>| count.map_or(Cell::Null, |count| Cell::Number(count.into()));
    vec![
        (&*row.node).into(),
        Cell::Number(row.is_own.into()),
        row.state.into(),
        row.address.as_str().into(),
        row.version.as_str().into(),
        count(row.clients),
        count(row.servers),
        Cell::Sum(row.leased),
        Cell::Sum(row.wanted),
        row.pools.map_or(Cell::Null, Cell::Sum),
        row.detail.as_str().into(),
    ]
}

pub(super) fn budgets(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    context.aggregate.fleet_budgets.iter().map(budget).collect()
}

pub(super) fn limits(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    context.aggregate.fleet_limits.iter().map(limit).collect()
}

fn limit(row: &FleetLimitRow) -> Vec<Cell> {
    let count = |count: u32| Cell::Number(count.into());
    let (database, user) = (name(&row.database), name(&row.user));
    vec![row.kind.into(), database, user, count(row.limit), count(row.clients), count(row.external)]
}

fn name(name: &str) -> Cell {
    if name.is_empty() { Cell::Null } else { name.into() }
}

fn budget(row: &FleetBudgetRow) -> Vec<Cell> {
    let count = |count: u32| Cell::Number(count.into());
    vec![
        row.kind.into(),
        name(&row.database),
        name(&row.user),
        name(&row.host),
        count(row.limit),
        count(row.floor),
        count(row.shared),
        count(row.leased),
        count(row.leased_total),
        count(row.wanted_total),
        count(row.orphaned),
        row.detail.as_str().into(),
    ]
}
