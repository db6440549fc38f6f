//! The workloads that the lab brings along, one row each. Their scripts use what pgbench has had since version 10
//! and its tables, whose size stands in `:scale`.

use crate::record::{Script, WorkloadRecord};

/// A unit of pgbench's scale is 100,000 accounts. No plain random: a cache holds what is asked for often.
const POINT_READ: &str = "\
\\set aid random_exponential(1, 100000 * :scale, 10)
SELECT aid, bid, abalance, filler FROM pgbench_accounts WHERE aid = :aid;
";

const WRITE: &str = "\
\\set aid random(1, 100000 * :scale)
\\set tid random(1, 10 * :scale)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, (:tid - 1) / 10 + 1, :aid, :delta, CURRENT_TIMESTAMP);
END;
";

const SLOW: &str = "\
\\set aid random(1, 100000 * :scale - 50000)
SELECT count(*), avg(abalance) FROM pgbench_accounts WHERE aid BETWEEN :aid AND :aid + 50000;
";

/// How long a client of `idle-heavy` thinks, in milliseconds: five kinds of clients, so that they do not come in waves.
const THINK_MS: [u32; 5] = [50, 150, 250, 350, 450];

/// The workload of this name.
pub(super) fn find(name: &str) -> Option<WorkloadRecord> {
    match name {
        "tpcb-like" => Some(builtin(
            name,
            "pgbench's own: a transaction of five statements, close to TPC-B",
            "tpcb-like",
        )),
        "simple-update" => Some(builtin(
            name,
            "pgbench's own: TPC-B without the tables that all contend for",
            "simple-update",
        )),
        "select-only" => Some(builtin(name, "pgbench's own: one SELECT by key", "select-only")),
        "point-read" => {
            let what = "a whole row by key, some rows far oftener than others";
            Some(mix(name, what, vec![script("read", POINT_READ, 1)]))
        }
        "read-write" => {
            let what = "four of five transactions read a row, the fifth changes one and writes another";
            Some(mix(name, what, vec![script("read", POINT_READ, 80), script("write", WRITE, 20)]))
        }
        "connect-storm" => {
            let what = "each transaction on a connection of its own: one SELECT by key";
            let mut storm = builtin(name, what, "select-only");
            storm.arguments.push("-C".to_owned());
            Some(storm)
        }
        "idle-heavy" => {
            let what = "clients that think for a quarter of a second between two transactions, as those of a web application";
            Some(mix(name, what, THINK_MS.iter().map(|&think_ms| thinking(think_ms)).collect()))
        }
        "slow-mix" => {
            let what =
                "of twenty transactions one adds up 50,000 rows, the others read one: who waits behind whom";
            Some(mix(name, what, vec![script("read", POINT_READ, 19), script("slow", SLOW, 1)]))
        }
        _ => None,
    }
}

fn builtin(name: &str, what: &str, script: &str) -> WorkloadRecord {
    WorkloadRecord {
        name: name.to_owned(),
        what: what.to_owned(),
        arguments: vec!["-b".to_owned(), script.to_owned()],
        writes: script != "select-only",
        ..WorkloadRecord::default()
    }
}

fn mix(name: &str, what: &str, scripts: Vec<Script>) -> WorkloadRecord {
    let writes = scripts.iter().any(|script| script.text == WRITE);
    WorkloadRecord {
        name: name.to_owned(),
        what: what.to_owned(),
        scripts,
        writes,
        ..WorkloadRecord::default()
    }
}

fn script(name: &str, text: &str, weight: u32) -> Script {
    Script { name: name.to_owned(), text: text.to_owned(), weight, think_us: 0 }
}

fn thinking(think_ms: u32) -> Script {
    let text = format!("\\sleep {think_ms} ms\n{POINT_READ}");
    Script { think_us: u64::from(think_ms) * 1000, ..script(&format!("think-{think_ms}"), &text, 1) }
}
