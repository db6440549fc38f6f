//! The fleet that the process is a node of: its nodes by state, and the limits of server connections that they share.
//! Owns the names; the columns are the console's. A process that is no node of a fleet has none of these families.

use std::collections::BTreeMap;

use control::{FleetBudgetColumn, FleetColumn, FleetLimitColumn};

use super::family::{Family, MetricKind, MetricUnit, MetricWriter, number};
use crate::table::{ViewRow, ViewTable};

const NODES: MetricUnit = MetricUnit::Number("node");

/// States that have a sample even while no node is in them, so that an alert on them has a series.
const STATES: [&str; 7] = ["up", "draining", "gone", "joining", "alone", "taken", "leaving"];

pub(super) fn write(
    page: &mut dyn MetricWriter,
    nodes: &ViewTable<FleetColumn>,
    budgets: &ViewTable<FleetBudgetColumn>,
    node_limit: u32,
) {
    let Some(own) = nodes.iter().find(|row| row.number(FleetColumn::IsOwn) > 0) else { return };
    let gauge = |name, unit, help| Family::new(name, MetricKind::Gauge, unit, help);
    let help = "1 if this node is sure of its lease in the fleet, 0 if it uses no more than its floors.";
    let has_lease = matches!(own.text(FleetColumn::State), Some("up" | "draining"));
    page.single(&gauge("weir.fleet.up", MetricUnit::Number(""), help), f64::from(u8::from(has_lease)));
    let mut counts: BTreeMap<&str, u64> = STATES.iter().map(|state| (*state, 0)).collect();
    for row in nodes.iter() {
        *counts.entry(row.text(FleetColumn::State).unwrap_or_default()).or_default() += 1;
    }
    let help = "Nodes of the fleet by state, as this one knows them; `gone` are those that still have slots.";
    page.family(&gauge("weir.fleet.nodes", NODES, help));
    for (state, count) in counts {
        page.sample(&[("state", state)], number(count));
    }
    let help = "How many nodes the fleet may have (fleet_nodes).";
    page.single(&gauge("weir.fleet.nodes_limit", NODES, help), f64::from(node_limit));
    let help = "Which revision of the pools of all nodes this node has dealt with (fleet_pools).";
    let revision = number(own.number(FleetColumn::Pools));
    page.single(&gauge("weir.fleet.pools_revision", MetricUnit::Number(""), help), revision);
    write_budgets(page, budgets);
}

fn write_budgets(page: &mut dyn MetricWriter, budgets: &ViewTable<FleetBudgetColumn>) {
    use FleetBudgetColumn::{Floor, Leased, LeasedTotal, Limit, Orphaned, Shared, WantedTotal};
    for (name, column, help) in [
        (
            "weir.fleet.slots_limit",
            Limit,
            "Server connections that all nodes of the fleet may have together.",
        ),
        ("weir.fleet.slots_floor", Floor, "Server connections that each node may have without a lease."),
        ("weir.fleet.slots_shared", Shared, "Server connections of a limit that can be leased."),
        ("weir.fleet.slots_leased", Leased, "Slots of a limit that this node has leased."),
        ("weir.fleet.slots_leased_all", LeasedTotal, "Slots of a limit that all nodes have leased."),
        (
            "weir.fleet.slots_wanted",
            WantedTotal,
            "Slots of a limit that all nodes would lease if there were enough.",
        ),
        (
            "weir.fleet.slots_orphaned",
            Orphaned,
            "Leased slots of nodes that are gone, which no node can use yet.",
        ),
    ] {
        page.family(&Family::new(name, MetricKind::Gauge, MetricUnit::Number("connection"), help));
        for row in budgets.iter() {
            page.sample(&labels(row), number(row.number(column)));
        }
    }
}

/// Limits of clients that hold for all nodes (`fleet_limits`); no family where there is none.
pub(super) fn write_limits(page: &mut dyn MetricWriter, limits: &ViewTable<FleetLimitColumn>) {
    use FleetLimitColumn::{Clients, Database, External, Kind, Limit, User};
    if limits.iter().next().is_none() {
        return;
    }
    for (name, column, help) in [
        ("weir.fleet.clients_limit", Limit, "Clients that all nodes of the fleet may have together."),
        ("weir.fleet.clients", Clients, "Clients of this node that count in the limit."),
        ("weir.fleet.clients_external", External, "Clients of the other nodes that count in the limit here."),
    ] {
        page.family(&Family::new(name, MetricKind::Gauge, MetricUnit::Number("connection"), help));
        for row in limits.iter() {
            let label = |column| row.text(column).unwrap_or_default();
            let labels = [("kind", label(Kind)), ("database", label(Database)), ("user", label(User))];
            page.sample(&labels, number(row.number(column)));
        }
    }
}

fn labels(row: ViewRow<'_, FleetBudgetColumn>) -> [(&'static str, &str); 4] {
    let label = |column| row.text(column).unwrap_or_default();
    [
        ("kind", label(FleetBudgetColumn::Kind)),
        ("database", label(FleetBudgetColumn::Database)),
        ("user", label(FleetBudgetColumn::User)),
        ("host", label(FleetBudgetColumn::Host)),
    ]
}

#[cfg(test)]
mod tests {
    use messages::Cell;

    use super::*;
    use crate::metrics::exposition::Exposition;
    use crate::table::rows_of;

    fn page(nodes: &[(&str, &str, i64)], budgets: &[&[(FleetBudgetColumn, Cell)]]) -> String {
        let node = |&(node, state, is_own): &(&str, &str, i64)| {
            [
                (FleetColumn::Node, Cell::from(node)),
                (FleetColumn::State, Cell::from(state)),
                (FleetColumn::IsOwn, Cell::Number(is_own)),
            ]
        };
        let nodes: Vec<_> = nodes.iter().map(node).collect();
        let nodes: Vec<&[_]> = nodes.iter().map(<[_; 3]>::as_slice).collect();
        let mut page = Exposition::default();
        write(&mut page, &rows_of(&nodes), &rows_of(budgets), 5);
        page.finished()
    }

    fn samples<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
        let rest = page.lines().filter_map(|line| line.strip_prefix(name));
        rest.filter(|rest| rest.starts_with(['{', ' '])).collect()
    }

    #[test]
    fn a_process_without_a_fleet_has_no_family_of_it() {
        assert!(!page(&[], &[]).contains("weir_fleet"));
    }

    #[test]
    fn nodes_are_counted_by_state_and_each_state_has_a_sample() {
        let page = page(&[("a", "up", 0), ("b", "up", 1), ("c", "gone", 0), ("d", "odd", 0)], &[]);
        let counts = samples(&page, "weir_fleet_nodes");
        assert_eq!(counts.len(), STATES.len() + 1, "{counts:?}");
        for sample in [
            "{state=\"up\"} 2",
            "{state=\"gone\"} 1",
            "{state=\"odd\"} 1",
            "{state=\"alone\"} 0",
            "{state=\"draining\"} 0",
        ] {
            assert!(counts.contains(&sample), "{sample}: {counts:?}");
        }
        assert_eq!(samples(&page, "weir_fleet_nodes_limit"), [" 5"]);
    }

    #[test]
    fn a_node_is_up_while_it_is_sure_of_its_lease() {
        for (state, up) in [
            ("up", " 1"),
            ("draining", " 1"),
            ("joining", " 0"),
            ("alone", " 0"),
            ("taken", " 0"),
            ("leaving", " 0"),
        ] {
            // The state of another node does not count.
            let page = page(&[("a", if up == " 1" { "gone" } else { "up" }, 0), ("b", state, 1)], &[]);
            assert_eq!(samples(&page, "weir_fleet_up"), [up], "{state}");
        }
    }

    #[test]
    fn limits_of_clients_have_their_figures_and_none_has_no_family() {
        let written = |limits: &[&[(FleetLimitColumn, Cell)]]| {
            let mut page = Exposition::default();
            write_limits(&mut page, &rows_of(limits));
            page.finished()
        };
        assert!(!written(&[]).contains("weir_fleet"));
        let page = written(&[&[
            (FleetLimitColumn::Kind, Cell::from("user")),
            (FleetLimitColumn::User, Cell::from("ann")),
            (FleetLimitColumn::Limit, Cell::Number(10)),
            (FleetLimitColumn::Clients, Cell::Number(3)),
            (FleetLimitColumn::External, Cell::Number(4)),
        ]]);
        for (name, count) in [("clients_limit", 10), ("clients", 3), ("clients_external", 4)] {
            let expected = format!("{{kind=\"user\",database=\"\",user=\"ann\"}} {count}");
            assert_eq!(samples(&page, &format!("weir_fleet_{name}")), [expected], "{name}");
        }
    }

    #[test]
    fn each_budget_has_each_figure() {
        let counts = [
            (FleetBudgetColumn::Limit, 60, "limit"),
            (FleetBudgetColumn::Floor, 2, "floor"),
            (FleetBudgetColumn::Shared, 50, "shared"),
            (FleetBudgetColumn::Leased, 7, "leased"),
            (FleetBudgetColumn::LeasedTotal, 40, "leased_all"),
            (FleetBudgetColumn::WantedTotal, 55, "wanted"),
            (FleetBudgetColumn::Orphaned, 3, "orphaned"),
        ];
        let mut of_pool = vec![
            (FleetBudgetColumn::Kind, Cell::from("pool")),
            (FleetBudgetColumn::Database, Cell::from("app")),
            (FleetBudgetColumn::User, Cell::from("ann")),
            (FleetBudgetColumn::Host, Cell::from("db2:5433")),
        ];
        of_pool.extend(counts.iter().map(|(column, count, _)| (*column, Cell::Number(*count))));
        let of_user: &[_] =
            &[(FleetBudgetColumn::Kind, Cell::from("user")), (FleetBudgetColumn::User, Cell::from("ann"))];
        let page = page(&[("a", "up", 1)], &[&of_pool, of_user]);
        for (_, count, name) in counts {
            let pool = format!("{{kind=\"pool\",database=\"app\",user=\"ann\",host=\"db2:5433\"}} {count}");
            let user = "{kind=\"user\",database=\"\",user=\"ann\",host=\"\"} 0".to_owned();
            assert_eq!(samples(&page, &format!("weir_fleet_slots_{name}")), [pool, user], "{name}");
        }
    }
}
