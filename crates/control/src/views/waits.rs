//! SHOW WAITS: what the clients of each pool have waited for. CLIENT_WAITS: the same of each client, while queries are tracked, those that have waited
//! longest first.
//!
//! Weir's own. Times are of clients: while one waits for its server, the server may do nothing.

use messages::{Cell, SocketRow};
use telemetry::{Counters, ServerWait, Wait, Waits};

use super::ViewContext;

/// Those that are measured for each request.
pub(super) const MEASURED: [Wait; 4] = [Wait::Queue, Wait::Connect, Wait::Settings, Wait::Reader];

/// Rows for each pool that has been used, one for each kind of wait.
pub(super) fn of_pools(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for (pool, durations) in &context.aggregate.histograms {
        let counters = context.aggregate.pools.get(pool).map(|row| row.counters).unwrap_or_default();
        let waits =
            Wait::ALL.map(|wait| (wait.word(), durations.waits.count(wait), durations.waits.us(wait)));
        let of_transactions = of_transactions(&counters, &durations.waits);
        let sampled = ServerWait::ALL
            .map(|wait| (wait.word(), durations.server_waits.count(wait), durations.server_waits.us(wait)));
        let row = |(wait, count, us): (&str, u64, u64)| {
            vec![
                pool.0.as_str().into(),
                pool.1.as_str().into(),
                wait.into(),
                Cell::Sum(count),
                Cell::Sum(us),
                us.checked_div(count).map_or(Cell::Null, Cell::from),
            ]
        };
        rows.extend(waits.into_iter().chain(of_transactions).chain(sampled).map(row));
    }
    rows
}

/// Where the time of transactions went while clients had their servers: in queries, and between them.
fn of_transactions(counters: &Counters, waits: &Waits) -> [(&'static str, u64, u64); 2] {
    let server_us = counters.query_time.saturating_sub(waits.us(Wait::Reader));
    let client_us = counters.xact_time.saturating_sub(counters.query_time);
    [("server", counters.query_count, server_us), ("client", counters.xact_count, client_us)]
}

/// Rows for clients that have waited, the longest first.
pub(super) fn of_clients(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let waited = |socket: &&SocketRow| {
        let locked_us = socket.server_waits.as_ref().map_or(0, |waits| waits.us(ServerWait::Lock));
        let us = socket.wait_us + socket.waits.as_ref().map_or(0, |waits| waits.total_us()) + locked_us;
        (us > 0).then_some(us)
    };
    let mut clients: Vec<&SocketRow> =
        context.aggregate.sockets.iter().filter(|socket| waited(socket).is_some()).collect();
    clients.sort_by_key(|socket| std::cmp::Reverse(waited(socket)));
    clients.into_iter().map(of_client).collect()
}

fn of_client(socket: &SocketRow) -> Vec<Cell> {
    let waits = socket.waits.unwrap_or_default();
    let server_waits = socket.server_waits.unwrap_or_default();
    let mut row = vec![
        socket.database.as_str().into(),
        socket.user.as_str().into(),
        socket.id.into(),
        socket.address.as_str().into(),
        Cell::Number(socket.port.into()),
        socket.application_name.as_str().into(),
        socket.state.into(),
        socket.wait_us.into(),
        socket.login_us.into(),
    ];
    row.extend(MEASURED.map(|wait| Cell::Sum(waits.us(wait))));
    row.extend(ServerWait::ALL.map(|wait| Cell::Sum(server_waits.us(wait))));
    row
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, shown};
    use crate::views::example::of_shards;

    #[test]
    fn each_kind_has_its_row_and_the_rest_of_transactions_too() {
        let rows = shown(&Harness::new().show("SHOW WAITS", &of_shards));
        let expected = [
            "app|ann|login|1|70|70",
            "app|ann|queue|2|83|41",
            "app|ann|connect|0|0|NULL",
            "app|ann|settings|0|0|NULL",
            "app|ann|reader|0|0|NULL",
            "app|ann|server|120|600|5",
            "app|ann|client|60|0|0",
            "app|ann|lock|2|1900000|950000",
            "app|ann|io|0|0|NULL",
            "app|ann|other|1|30|30",
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn who_has_waited_longest_comes_first() {
        let rows = shown(&Harness::new().show("SHOW CLIENT_WAITS", &of_shards));
        assert_eq!(rows, ["app|ann|31|127.0.0.1|5||active|1000002|900|100|200|0|300|40|0|0"]);
    }
}
