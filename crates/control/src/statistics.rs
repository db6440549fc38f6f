//! Samples of the counters, taken every `stats_period`, and the averages and the log line made from them.
//!
//! Averages reach from the sample before the last to now, as PgBouncer's do: never over less than a whole period, once
//! one has passed.

use std::collections::BTreeMap;

use telemetry::{COUNTERS, Counter, Counters};

/// The counters of each database at one time.
#[derive(Clone, Debug, Default)]
struct Sample {
    /// A second ahead of the clock, which may begin at 0, so that earlier times can be represented.
    at_us: u64,
    databases: BTreeMap<String, Counters>,
}

/// The samples that averages are computed from.
#[derive(Clone, Debug)]
pub(crate) struct Statistics {
    older: Sample,
    newer: Sample,
}

/// Counters over an interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delta {
    counters: Counters,
    period_us: u64,
}

impl Delta {
    /// The average of one counter; see [`Counter::average_of`].
    pub(crate) fn average(&self, counter: &Counter) -> u64 {
        counter.average_of(&self.counters, self.period_us)
    }
}

impl Statistics {
    /// The initial state; the interval before it counts as a second.
    pub(crate) fn new(now_us: u64) -> Statistics {
        let sample = |at_us| Sample { at_us, databases: BTreeMap::new() };
        Statistics { older: sample(now_us), newer: sample(shifted(now_us)) }
    }

    /// A period has passed.
    pub(crate) fn sample(&mut self, databases: BTreeMap<String, Counters>, now_us: u64) {
        self.older = std::mem::replace(&mut self.newer, Sample { at_us: shifted(now_us), databases });
    }

    /// What a database counted since the older sample.
    pub(crate) fn delta_of(&self, database: &str, counters: &Counters, now_us: u64) -> Delta {
        let before = self.older.databases.get(database).copied().unwrap_or_default();
        Delta {
            counters: counters.since(&before),
            period_us: shifted(now_us).saturating_sub(self.older.at_us),
        }
    }

    /// What all databases together counted since the older sample.
    pub(crate) fn delta(&self, databases: &BTreeMap<String, Counters>, now_us: u64) -> Delta {
        let mut counters = Counters::default();
        for (name, now) in databases {
            counters.add(&self.delta_of(name, now, now_us).counters);
        }
        Delta { counters, period_us: shifted(now_us).saturating_sub(self.older.at_us) }
    }

    /// PgBouncer's line of `log_stats`, about the sample that was just taken.
    pub(crate) fn line(&self, now_us: u64) -> String {
        let delta = self.delta(&self.newer.databases, now_us);
        let average = |name: &str| {
            COUNTERS.iter().find(|counter| counter.name == name).map_or(0, |counter| delta.average(counter))
        };
        format!(
            "stats: {} xacts/s, {} queries/s, {} client parses/s, {} server parses/s, {} binds/s, in {} B/s, \
             out {} B/s, xact {} us, query {} us, wait {} us",
            average("xact_count"),
            average("query_count"),
            average("client_parse_count"),
            average("server_parse_count"),
            average("bind_count"),
            average("bytes_received"),
            average("bytes_sent"),
            average("xact_time"),
            average("query_time"),
            average("wait_time"),
        )
    }
}

/// See [`Sample::at_us`].
fn shifted(now_us: u64) -> u64 {
    now_us + 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: u64 = 1_000_000;

    fn counted(query_count: u64) -> BTreeMap<String, Counters> {
        let counters = Counters { query_count, query_time: query_count * 7, ..Counters::default() };
        BTreeMap::from([("d".to_owned(), counters)])
    }

    #[test]
    fn averages_reach_back_to_the_sample_before_the_last() {
        let mut statistics = Statistics::new(0);
        statistics.sample(counted(600), 60 * SECOND_US);
        statistics.sample(counted(1_800), 120 * SECOND_US);
        let queries = COUNTERS.iter().find(|counter| counter.name == "query_count").expect("a counter");
        let delta = statistics.delta_of("d", &counted(2_100)["d"], 180 * SECOND_US);
        assert_eq!(delta.average(queries), 1_500 / 120);
    }

    #[test]
    fn the_line_is_pgbouncers() {
        let mut statistics = Statistics::new(0);
        let quiet = "stats: 0 xacts/s, 0 queries/s, 0 client parses/s, 0 server parses/s, 0 binds/s, in 0 B/s, out 0 B/s, xact 0 us, query 0 us, wait 0 us";
        assert_eq!(statistics.line(SECOND_US), quiet);
        statistics.sample(BTreeMap::new(), 60 * SECOND_US);
        statistics.sample(counted(600), 120 * SECOND_US);
        assert!(
            statistics.line(120 * SECOND_US).contains(" 10 queries/s,"),
            "{}",
            statistics.line(120 * SECOND_US)
        );
        assert!(statistics.line(120 * SECOND_US).ends_with("query 7 us, wait 0 us"));
    }
}
