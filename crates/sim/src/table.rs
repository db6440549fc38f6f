//! The list of invariants, each with what checks it: what must be true of the pooler whatever happens.
//!
//! Quoted in `ARCHITECTURE.md`; a test holds the two together. Names only; the checks are where the third column says.

/// One invariant.
#[derive(Clone, Copy, Debug)]
pub struct Invariant {
    /// By which violations name it.
    pub number: &'static str,
    /// What must be true.
    pub text: &'static str,
    /// What looks for a violation.
    pub checked_by: &'static str,
}

const fn row(number: &'static str, text: &'static str, checked_by: &'static str) -> Invariant {
    Invariant { number, text, checked_by }
}

/// All of them.
pub const INVARIANTS: [Invariant; 23] = [
    row(
        "I1",
        "Every byte that a client gets answers its own oldest unanswered request, in order.",
        "simulator: model clients compare each message with what its request may be answered",
    ),
    row(
        "I2",
        "A server changes clients only when nothing is owed, half sent, open or being cancelled.",
        "simulator: a tap on each server connection, by the tags of requests",
    ),
    row(
        "I3",
        "Weir never says ReadyForQuery for a request before the server has, but to a BEGIN that it defers and to the end of a transaction without a request.",
        "simulator: the taps count ReadyForQuery per client",
    ),
    row(
        "I4",
        "A client sees the session state that its own history has made, and no other client's.",
        "simulator: rows carry the server's state, and clients ask for theirs in pools that follow it; the end-to-end tests for state that the model lacks",
    ),
    row(
        "I5",
        "A cancel request meets only the query of its client that runs when it is forwarded.",
        "simulator: taps and the model server, with delayed cancel connections",
    ),
    row(
        "I6",
        "Each request is applied at most once, and its client is told what is true.",
        "simulator: the ledger of the model server against what clients were told",
    ),
    row(
        "I7",
        "No limit of connections is passed, and every count is what the tables hold.",
        "simulator: sockets per pool and database; the shard's tables counted anew every 13 events",
    ),
    row(
        "I8",
        "Each waiter is served or refused by its deadline, and no client waits beside an idle server.",
        "simulator: after every event on a shard, every second across shards and beside a primary that is silent, and at the end",
    ),
    row(
        "I9",
        "A statement that is taken for prepared on a server is there, with the same text and types.",
        "simulator: caches of 1 to 3 statements; a wrong one is an answer of I1",
    ),
    row(
        "I10",
        "Memory is bounded by the configuration, and nothing of a client outlives it.",
        "simulator: leftovers of a shard without clients; bounds by unit tests and the lab, not yet the simulator",
    ),
    row(
        "I11",
        "No input makes a parser panic or read past a limit, however it is split.",
        "fuzzers and the probes of the parsers; the simulator only splits and sends some nonsense",
    ),
    row(
        "I12",
        "Who has not proven who it is changes nothing and gets nothing.",
        "simulator: strangers among the clients; the end-to-end tests of logins",
    ),
    row(
        "I13",
        "Nothing in plain text crosses the beginning of TLS.",
        "unit and end-to-end tests; the simulator has no TLS",
    ),
    row(
        "I14",
        "A failed request gets one error, and nothing follows FATAL but the end.",
        "simulator: model clients",
    ),
    row(
        "I15",
        "Commands and takeovers do what they say, to those whom they concern, and nothing else.",
        "simulator: every command at random moments, takeovers in rows, and such as break off",
    ),
    row(
        "I16",
        "Timers follow the monotonic clock; jumps of the other clock change nothing.",
        "simulator: jumps of both clocks, and timers that never come to rest",
    ),
    row(
        "I17",
        "Failing servers are tried again more and more slowly, and one login at a time.",
        "unit tests of the pool; not yet the simulator",
    ),
    row(
        "I18",
        "No two sides wait for each other to read.",
        "simulator: buffers of a few bytes both ways, by I8",
    ),
    row(
        "I19",
        "A read goes to a standby only where that is allowed: it is known to read, the standby has what its client has written, and nothing else of the client's goes there. No transaction begins on a primary of an older timeline than one that was seen.",
        "simulator: in one seed of six, a model primary and standbys that lag, are promoted, cut off and started again, and crash behind connections that seem to live (`weir-sim --clusters` runs only these, with `--short` very many); whole shards in memory (`crates/shard/tests/in_memory/read_write_split.rs`); the end-to-end tests, with a corpus of statements on real servers",
    ),
    row(
        "I20",
        "A gentle shutdown cuts no transaction, and holds nothing when it is over.",
        "simulator: SHUTDOWN of each kind; the end-to-end tests for its words",
    ),
    row(
        "I21",
        "A client gets each notification of its channels once, in the order of commits, between its transactions, its own ones before ReadyForQuery, and none of other channels; what it misses while no connection listens is logged.",
        "simulator: model clients compare with what was committed",
    ),
    row(
        "I22",
        "No pool waits below what it is guaranteed (`connection_sharing`) while others are served with what they have above their guarantees.",
        "simulator: every second, by the queues of pools that share a limit; whole shards in memory (`crates/shard/tests/in_memory/shares.rs`); the end-to-end tests",
    ),
    row(
        "I23",
        "No quota is passed: each connection counts once, no more than are allowed get in, and a client that arrives when a period's use is used up is served no request. No other client is refused.",
        "simulator: quotas of a user in one seed of eight; the end-to-end tests for grace times, stores and clocks",
    ),
];

/// As `ARCHITECTURE.md` has it.
#[must_use]
pub fn markdown() -> String {
    let rows = INVARIANTS
        .iter()
        .map(|Invariant { number, text, checked_by }| format!("| {number} | {text} | {checked_by} |\n"));
    let head = "| | what must be true | what checks it |\n|---|---|---|\n";
    std::iter::once(head.to_owned()).chain(rows).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_architecture_quotes_the_table() {
        let page = include_str!("../../../ARCHITECTURE.md");
        let table = markdown();
        assert!(page.contains(&table), "put this between the comments `invariants`:\n{table}");
    }

    #[test]
    fn numbers_are_in_order() {
        for (at, invariant) in INVARIANTS.iter().enumerate() {
            assert_eq!(invariant.number, format!("I{}", at + 1));
        }
    }
}
