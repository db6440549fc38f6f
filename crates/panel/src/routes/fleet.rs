//! The fleet that the process is a node of: its nodes, and the limits of server connections and of clients that they share.
//! Never changes anything.

use std::cmp::Reverse;
use std::sync::Arc;

use axum::Json;
use axum::extract;
use control::{FLEET, FLEET_BUDGETS, FLEET_LIMITS, FleetBudgetColumn, FleetColumn, FleetLimitColumn};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Authorized, Read};
use crate::control_client::ControlClient;
use crate::extract::QueryParameters;
use crate::failure::Failure;
use crate::routes::Routes;
use crate::table::{ViewRow, ViewTable};

/// The most limits of a kind in an answer.
const MOST: usize = 500;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(fleet))
}

/// Which limits.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct FleetQuery {
    /// Of this entry.
    database: Option<String>,
}

/// A node of the fleet, as this one knows it.
#[derive(Serialize, ToSchema)]
struct FleetNodeView {
    /// Its `fleet_node`.
    node: String,
    /// It is this process.
    is_own: bool,
    /// `up`, `draining` or `gone`; of this process `joining`, `alone`, `taken` or `leaving`, too.
    state: String,
    /// Its host's name and `listen_port`; null of a node that is gone.
    #[schema(required)]
    address: Option<String>,
    /// Of its program; null of a node that is gone.
    #[schema(required)]
    version: Option<String>,
    /// Client connections; null of a node that is gone.
    #[schema(required)]
    clients: Option<u64>,
    /// Server connections; null of a node that is gone.
    #[schema(required)]
    servers: Option<u64>,
    /// Slots that it has leased, over all limits, above its floors.
    leased: u64,
    /// Slots that it would use.
    wanted: u64,
    /// Which revision of the pools of all nodes it has dealt with; null of a node that is gone.
    #[schema(required)]
    pools: Option<u64>,
    /// What is wrong, and what follows.
    #[schema(required)]
    detail: Option<String>,
}

/// A limit of server connections that the nodes share.
#[derive(Serialize, ToSchema)]
struct FleetBudgetView {
    /// `pool`, `database` or `user`.
    kind: String,
    /// The entry; null of a user.
    #[schema(required)]
    database: Option<String>,
    /// Null of a database.
    #[schema(required)]
    user: Option<String>,
    /// The host of a pool for reads.
    #[schema(required)]
    host: Option<String>,
    /// Over all nodes.
    limit: u64,
    /// What each node may have without a lease.
    floor: u64,
    /// What can be leased.
    shared: u64,
    /// What this node has leased.
    leased: u64,
    /// What all nodes have leased, those that are gone included.
    leased_total: u64,
    /// What all nodes would lease.
    wanted_total: u64,
    /// Leased by nodes that are gone, and not free yet.
    orphaned: u64,
    /// What is wrong.
    #[schema(required)]
    detail: Option<String>,
}

/// A limit of clients that holds for all nodes together (`fleet_limits`).
#[derive(Serialize, ToSchema)]
struct FleetClientLimitView {
    /// `clients` (`max_client_conn`), `database` or `user`.
    kind: String,
    /// The entry; null but of a database.
    #[schema(required)]
    database: Option<String>,
    /// Null but of a user.
    #[schema(required)]
    user: Option<String>,
    /// Over all nodes.
    limit: u64,
    /// Clients of this node.
    clients: u64,
    /// Those of the other nodes, as far as they count here: as they were about a second ago, and none while this node has no lease.
    external: u64,
}

/// The fleet.
#[derive(Serialize, ToSchema)]
struct Fleet {
    /// The `fleet_node` of this process; null if it is no node of a fleet.
    #[schema(required)]
    node: Option<String>,
    nodes: Vec<FleetNodeView>,
    budgets: Vec<FleetBudgetView>,
    /// How many limits there are; the answer has 500 at most: those with something wrong first, then those that are wanted most.
    total: usize,
    /// Empty where they are each node's own.
    client_limits: Vec<FleetClientLimitView>,
    /// How many there are; the answer has 500 at most: those of which most is used.
    client_limits_total: usize,
}

/// Nodes of the fleet and the limits that they share; empty where the process is no node of a fleet.
#[utoipa::path(get, path = "/api/v1/fleet", params(FleetQuery), responses(
    (status = 200, body = Fleet), (status = 401, body = crate::failure::FailureBody)))]
async fn fleet(
    _: Authorized<Read>,
    extract::State(control_client): extract::State<Arc<ControlClient>>,
    QueryParameters(wanted): QueryParameters<FleetQuery>,
) -> Result<Json<Fleet>, Failure> {
    let (nodes, budgets, limits) = tokio::try_join!(
        control_client.show(FLEET),
        control_client.show(FLEET_BUDGETS),
        control_client.show(FLEET_LIMITS)
    )?;
    Ok(Json(Fleet::of(&nodes, &budgets, &limits, wanted.database.as_deref())))
}

impl Fleet {
    fn of(
        nodes: &ViewTable<FleetColumn>,
        budgets: &ViewTable<FleetBudgetColumn>,
        limits: &ViewTable<FleetLimitColumn>,
        database: Option<&str>,
    ) -> Fleet {
        let nodes: Vec<FleetNodeView> = nodes.iter().map(node).collect();
        let is_of_database = |name: Option<&str>| database.is_none() || database == name;
        let (budgets, total) = first_by_rank(
            budgets.iter().filter(|row| is_of_database(row.text(FleetBudgetColumn::Database))).collect(),
            rank,
        );
        let (limits, client_limits_total) = first_by_rank(
            limits.iter().filter(|row| is_of_database(row.text(FleetLimitColumn::Database))).collect(),
            used_share,
        );
        Fleet {
            node: nodes.iter().find(|node| node.is_own).map(|node| node.node.clone()),
            nodes,
            budgets: budgets.into_iter().map(budget).collect(),
            total,
            client_limits: limits.into_iter().map(client_limit).collect(),
            client_limits_total,
        }
    }
}

/// Those of the highest rank, in the order that they had, and how many there were.
fn first_by_rank<Row, Rank: Ord>(rows: Vec<Row>, rank: impl Fn(&Row) -> Rank) -> (Vec<Row>, usize) {
    let total = rows.len();
    let mut rows: Vec<_> = rows.into_iter().enumerate().collect();
    if total > MOST {
        rows.sort_by_key(|(_, row)| Reverse(rank(row)));
        rows.truncate(MOST);
        rows.sort_by_key(|(place, _)| *place);
    }
    (rows.into_iter().map(|(_, row)| row).collect(), total)
}

/// How much of a limit of clients is used, in millionths.
fn used_share(row: &ViewRow<'_, FleetLimitColumn>) -> u64 {
    use FleetLimitColumn::{Clients, External, Limit};
    row.number(Clients).saturating_add(row.number(External)).saturating_mul(1_000_000) / row.number(Limit).max(1)
}

/// The higher, the more worth seeing.
fn rank(row: &ViewRow<'_, FleetBudgetColumn>) -> [u64; 4] {
    use FleetBudgetColumn::{Detail, LeasedTotal, Orphaned, WantedTotal};
    let is_wrong = row.text(Detail).is_some_and(|detail| !detail.is_empty());
    [is_wrong.into(), row.number(Orphaned), row.number(WantedTotal), row.number(LeasedTotal)]
}

fn node(row: ViewRow<'_, FleetColumn>) -> FleetNodeView {
    let count = |column| (!row.is_null(column)).then(|| row.number(column));
    FleetNodeView {
        node: row.owned(FleetColumn::Node),
        is_own: row.number(FleetColumn::IsOwn) > 0,
        state: row.owned(FleetColumn::State),
        address: row.non_empty(FleetColumn::Address),
        version: row.non_empty(FleetColumn::Version),
        clients: count(FleetColumn::Clients),
        servers: count(FleetColumn::Servers),
        leased: row.number(FleetColumn::Leased),
        wanted: row.number(FleetColumn::Wanted),
        pools: count(FleetColumn::Pools),
        detail: row.non_empty(FleetColumn::Detail),
    }
}

fn budget(row: ViewRow<'_, FleetBudgetColumn>) -> FleetBudgetView {
    FleetBudgetView {
        kind: row.owned(FleetBudgetColumn::Kind),
        database: row.non_empty(FleetBudgetColumn::Database),
        user: row.non_empty(FleetBudgetColumn::User),
        host: row.non_empty(FleetBudgetColumn::Host),
        limit: row.number(FleetBudgetColumn::Limit),
        floor: row.number(FleetBudgetColumn::Floor),
        shared: row.number(FleetBudgetColumn::Shared),
        leased: row.number(FleetBudgetColumn::Leased),
        leased_total: row.number(FleetBudgetColumn::LeasedTotal),
        wanted_total: row.number(FleetBudgetColumn::WantedTotal),
        orphaned: row.number(FleetBudgetColumn::Orphaned),
        detail: row.non_empty(FleetBudgetColumn::Detail),
    }
}

fn client_limit(row: ViewRow<'_, FleetLimitColumn>) -> FleetClientLimitView {
    FleetClientLimitView {
        kind: row.owned(FleetLimitColumn::Kind),
        database: row.non_empty(FleetLimitColumn::Database),
        user: row.non_empty(FleetLimitColumn::User),
        limit: row.number(FleetLimitColumn::Limit),
        clients: row.number(FleetLimitColumn::Clients),
        external: row.number(FleetLimitColumn::External),
    }
}

#[cfg(test)]
mod tests {
    use messages::Cell;
    use serde_json::json;

    use super::*;
    use crate::table::rows_of;

    #[test]
    fn a_process_without_a_fleet_has_an_empty_one() {
        let fleet = Fleet::of(&rows_of(&[]), &rows_of(&[]), &rows_of(&[]), None);
        assert_eq!(
            serde_json::to_value(fleet).expect("JSON"),
            json!({"node": null, "nodes": [], "budgets": [], "total": 0, "client_limits": [], "client_limits_total": 0})
        );
    }

    #[test]
    fn what_is_not_known_or_empty_is_null_and_any_state_is_passed_on() {
        let own: &[_] = &[
            (FleetColumn::Node, Cell::from("b")),
            (FleetColumn::IsOwn, Cell::Number(1)),
            (FleetColumn::State, Cell::from("a state of a later version")),
            (FleetColumn::Address, Cell::from("10.0.0.2:6432")),
            (FleetColumn::Version, Cell::from("0.3.0")),
            (FleetColumn::Clients, Cell::Number(0)),
            (FleetColumn::Servers, Cell::Number(4)),
            (FleetColumn::Leased, Cell::Sum(3)),
            (FleetColumn::Wanted, Cell::Sum(5)),
            (FleetColumn::Pools, Cell::Sum(7)),
            (FleetColumn::Detail, Cell::from("")),
        ];
        let gone: &[_] = &[
            (FleetColumn::Node, Cell::from("c")),
            (FleetColumn::State, Cell::from("gone")),
            (FleetColumn::Address, Cell::from("")),
            (FleetColumn::Version, Cell::from("")),
            (FleetColumn::Detail, Cell::from("why")),
        ];
        let fleet = serde_json::to_value(Fleet::of(&rows_of(&[gone, own]), &rows_of(&[]), &rows_of(&[]), None)).expect("JSON");
        let expected = json!([
            {"node": "c", "is_own": false, "state": "gone", "address": null, "version": null, "clients": null, "servers": null,
             "leased": 0, "wanted": 0, "pools": null, "detail": "why"},
            {"node": "b", "is_own": true, "state": "a state of a later version", "address": "10.0.0.2:6432", "version": "0.3.0",
             "clients": 0, "servers": 4, "leased": 3, "wanted": 5, "pools": 7, "detail": null},
        ]);
        assert_eq!((&fleet["node"], &fleet["nodes"]), (&json!("b"), &expected));
    }

    #[test]
    fn a_limit_has_its_names_and_figures_and_is_found_by_its_database() {
        use FleetBudgetColumn as Column;
        let of_database: &[_] = &[
            (Column::Kind, Cell::from("database")),
            (Column::Database, Cell::from("app")),
            (Column::Limit, Cell::Number(60)),
            (Column::Floor, Cell::Number(2)),
            (Column::Shared, Cell::Number(50)),
            (Column::Leased, Cell::Number(7)),
            (Column::LeasedTotal, Cell::Number(40)),
            (Column::WantedTotal, Cell::Number(55)),
            (Column::Orphaned, Cell::Number(3)),
            (Column::Detail, Cell::from("")),
        ];
        let of_user: &[_] = &[(Column::Kind, Cell::from("user")), (Column::User, Cell::from("ann"))];
        let table = rows_of(&[of_database, of_user]);
        let kinds = |database| -> Vec<String> {
            Fleet::of(&rows_of(&[]), &table, &rows_of(&[]), database).budgets.into_iter().map(|budget| budget.kind).collect()
        };
        assert_eq!((kinds(None).len(), kinds(Some("app")), kinds(Some("x")).len()), (2, vec!["database".to_owned()], 0));
        let fleet = serde_json::to_value(Fleet::of(&rows_of(&[]), &table, &rows_of(&[]), Some("app"))).expect("JSON");
        let expected = json!({"kind": "database", "database": "app", "user": null, "host": null, "limit": 60, "floor": 2, "shared": 50,
            "leased": 7, "leased_total": 40, "wanted_total": 55, "orphaned": 3, "detail": null});
        assert_eq!((&fleet["budgets"], &fleet["total"]), (&json!([expected]), &json!(1)));
    }

    #[test]
    fn of_too_many_limits_those_that_matter_are_shown_in_the_consoles_order() {
        use FleetBudgetColumn as Column;
        let row = |place: usize| {
            let mut row = vec![(Column::Database, Cell::from(format!("d{place}").as_str()))];
            match place {
                510 => row.push((Column::Detail, Cell::from("wrong"))),
                520 => row.push((Column::Orphaned, Cell::Number(1))),
                530 => row.push((Column::WantedTotal, Cell::Number(1))),
                _ => {}
            }
            row
        };
        let rows: Vec<_> = (0..600).map(row).collect();
        let rows: Vec<&[_]> = rows.iter().map(Vec::as_slice).collect();
        let fleet = Fleet::of(&rows_of(&[]), &rows_of(&rows), &rows_of(&[]), None);
        let names: Vec<_> = fleet.budgets.iter().filter_map(|budget| budget.database.as_deref()).collect();
        assert_eq!((fleet.total, names.len(), names[0], &names[496..]), (600, MOST, "d0", &["d496", "d510", "d520", "d530"][..]));
    }

    #[test]
    fn limits_of_clients_have_those_of_this_node_and_of_the_others() {
        use FleetLimitColumn as Column;
        let all: &[_] = &[
            (Column::Kind, Cell::from("clients")),
            (Column::Limit, Cell::Number(100)),
            (Column::Clients, Cell::Number(7)),
            (Column::External, Cell::Number(5)),
        ];
        let of_user: &[_] = &[(Column::Kind, Cell::from("user")), (Column::User, Cell::from("ann")), (Column::Limit, Cell::Number(3))];
        let fleet = Fleet::of(&rows_of(&[]), &rows_of(&[]), &rows_of(&[all, of_user]), None);
        let expected = json!([
            {"kind": "clients", "database": null, "user": null, "limit": 100, "clients": 7, "external": 5},
            {"kind": "user", "database": null, "user": "ann", "limit": 3, "clients": 0, "external": 0},
        ]);
        let fleet = serde_json::to_value(fleet).expect("JSON");
        assert_eq!((&fleet["client_limits"], &fleet["client_limits_total"]), (&expected, &json!(2)));
        let many = |place: u64| -> Vec<(Column, Cell)> {
            let used = if place == 590 { 10 } else { 1 };
            vec![(Column::Database, Cell::from(format!("d{place}").as_str())), (Column::Limit, Cell::Number(10)), (Column::Clients, Cell::Number(used))]
        };
        let rows: Vec<_> = (0..600).map(many).collect();
        let rows: Vec<&[_]> = rows.iter().map(Vec::as_slice).collect();
        let limits = Fleet::of(&rows_of(&[]), &rows_of(&[]), &rows_of(&rows), None).client_limits;
        assert_eq!((limits.len(), limits[MOST - 1].database.as_deref()), (MOST, Some("d590")));
    }
}
