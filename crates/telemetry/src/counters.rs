//! The table of counters: field, unit, column names, metric, help.
//!
//! SHOW STATS, STATS_TOTALS, STATS_AVERAGES, TOTALS, the periodic log line and the metrics read this table; the
//! hot path only adds to the fields. Counters never go down and are never shared between threads: each shard has its
//! own per pool, and the control thread adds them up.

/// What a counter counts; decides how an average is formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Occurrences; the average is per second.
    Count,
    /// Bytes; the average is per second.
    Bytes,
    /// Microseconds; the average is per [`Counter::per`].
    Microseconds,
}

/// One row of the table.
#[derive(Clone, Copy)]
pub struct Counter {
    /// Name in SHOW STATS_TOTALS, and with `total_` before it in SHOW STATS (see [`Counter::total`]).
    pub name: &'static str,
    /// Name among the metrics, behind what pgbouncer_exporter puts before it and before unit and `total`. Durations go out in seconds.
    pub metric: &'static str,
    /// Column of SHOW STATS for the sum.
    pub total: &'static str,
    /// Column of SHOW STATS for the average.
    pub average: &'static str,
    /// Column of SHOW STATS_AVERAGES; PgBouncer prefixes only its newest ones.
    pub average_view: &'static str,
    /// What is counted.
    pub unit: Unit,
    /// For [`Unit::Microseconds`]: the counter whose growth the average is divided by.
    pub per: Option<fn(&Counters) -> u64>,
    /// One sentence for documentation.
    pub help: &'static str,
    /// Reads the field.
    pub read: fn(&Counters) -> u64,
}

macro_rules! counters {
    ($( $field:ident, $metric:literal, $total:literal, $average:literal, $view:literal, $unit:ident, $per:expr, $help:literal; )*) => {
        /// One pool's counters on one shard, or a sum of such.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters { $( #[doc = $help] pub $field: u64, )* }

        impl Counters {
            /// Adds another shard's (or pool's) counters to these.
            pub fn add(&mut self, other: &Counters) { $( self.$field += other.$field; )* }

            /// Counters by their places in [`COUNTERS`].
            #[must_use]
            pub fn of(values: impl IntoIterator<Item = u64>) -> Counters {
                let mut values = values.into_iter();
                Counters { $( $field: values.next().unwrap_or_default(), )* }
            }

            /// What was counted since `earlier`.
            #[must_use]
            pub fn since(&self, earlier: &Counters) -> Counters {
                Counters { $( $field: self.$field.saturating_sub(earlier.$field), )* }
            }
        }

        /// The table, in PgBouncer's column order.
        pub const COUNTERS: &[Counter] = &[ $( Counter {
            name: stringify!($field), metric: $metric, total: $total, average: $average, average_view: $view,
            unit: Unit::$unit, per: $per, help: $help, read: |counters| counters.$field,
        }, )* ];
    };
}

counters! {
    server_assignment_count, "server_assignments", "total_server_assignment_count", "avg_server_assignment_count", "server_assignment_count", Count, None, "Times a server connection was given to a client.";
    xact_count, "sql_transactions_pooled", "total_xact_count", "avg_xact_count", "xact_count", Count, None, "Transactions.";
    query_count, "queries_pooled", "total_query_count", "avg_query_count", "query_count", Count, None, "Queries.";
    bytes_received, "received", "total_received", "avg_recv", "bytes_received", Bytes, None, "Bytes received from clients.";
    bytes_sent, "sent", "total_sent", "avg_sent", "bytes_sent", Bytes, None, "Bytes sent to clients.";
    xact_time, "server_in_transaction", "total_xact_time", "avg_xact_time", "xact_time", Microseconds, Some(|c| c.xact_count), "Time in transactions.";
    query_time, "queries_duration", "total_query_time", "avg_query_time", "query_time", Microseconds, Some(|c| c.query_count), "Time in queries.";
    wait_time, "client_wait", "total_wait_time", "avg_wait_time", "wait_time", Microseconds, Some(|c| c.server_assignment_count), "Time clients waited for a server connection.";
    client_parse_count, "client_parses", "total_client_parse_count", "avg_client_parse_count", "avg_client_parse_count", Count, None, "Prepared statements made by clients.";
    server_parse_count, "server_parses", "total_server_parse_count", "avg_server_parse_count", "avg_server_parse_count", Count, None, "Prepared statements made on servers.";
    bind_count, "binds", "total_bind_count", "avg_bind_count", "avg_bind_count", Count, None, "Prepared statements bound by clients.";
    client_login_count, "client_logins", "total_client_login_count", "avg_client_login_count", "avg_client_login_count", Count, None, "Client logins.";
}

impl Counter {
    /// This counter's average over a period: per second, or microseconds per [`Counter::per`].
    ///
    /// `grown` is what was counted in the period; `period_us` its length. Zero where nothing happened.
    #[must_use]
    pub fn average_of(&self, grown: &Counters, period_us: u64) -> u64 {
        let amount = (self.read)(grown);
        match self.per {
            Some(per) => amount.checked_div(per(grown)).unwrap_or(0),
            None => mul_div(amount, 1_000_000, period_us),
        }
    }
}

fn mul_div(amount: u64, times: u64, by: u64) -> u64 {
    if by == 0 {
        return 0;
    }
    u64::try_from(u128::from(amount) * u128::from(times) / u128::from(by)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_differences_cover_every_row() {
        let mut one =
            Counters { xact_count: 3, bytes_sent: 10, client_login_count: 1, ..Counters::default() };
        let two = one;
        one.add(&two);
        assert_eq!(one.xact_count, 6);
        assert_eq!(one.since(&two), two);
        assert_eq!(COUNTERS.len(), 12);
    }

    #[test]
    fn averages_are_per_second_or_per_event() {
        let grown =
            Counters { query_count: 100, query_time: 5_000, bytes_sent: 4_000, ..Counters::default() };
        let average =
            |name| COUNTERS.iter().find(|c| c.name == name).map(|c| c.average_of(&grown, 2_000_000));
        assert_eq!(average("query_count"), Some(50));
        assert_eq!(average("query_time"), Some(50));
        assert_eq!(average("bytes_sent"), Some(2_000));
        assert_eq!(average("wait_time"), Some(0), "nothing was assigned: no division by zero");
    }
}
