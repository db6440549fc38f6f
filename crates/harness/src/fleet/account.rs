//! What a run adds up to: transactions, errors, the longest stall and the most server connections of each phase. Times are seconds since 1970.

use lab::error::{LabError, Result};
use lab::figures;

/// A part of the run.
#[derive(Debug)]
pub(super) struct Phase {
    pub(super) name: String,
    pub(super) begin: f64,
    pub(super) end: f64,
    /// Clients of each node that have lost their connection meanwhile.
    pub(super) errors: Vec<u64>,
}

/// A line of pgbench's log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Transaction {
    pub(super) end: f64,
    /// Seconds that its client has waited for it.
    pub(super) took: f64,
}

/// How many server connections PostgreSQL had at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) at: f64,
    pub(super) connections: u32,
}

/// What a phase adds up to.
#[derive(Debug, PartialEq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) transactions: usize,
    pub(super) errors: u64,
    /// The longest transaction of a client that ended in this phase, seconds.
    pub(super) longest: f64,
    pub(super) most: u32,
}

impl Phase {
    pub(super) fn sum(&self, transactions: &[Transaction], samples: &[Sample]) -> Row {
        let is_inside = |time: f64| self.begin <= time && time < self.end;
        let ended: Vec<f64> =
            transactions.iter().filter(|one| is_inside(one.end)).map(|one| one.took).collect();
        Row {
            name: self.name.clone(),
            transactions: ended.len(),
            errors: self.errors.iter().sum(),
            longest: ended.into_iter().fold(0.0, f64::max),
            most: most(samples.iter().filter(|sample| is_inside(sample.at))),
        }
    }
}

/// The highest number of connections of these.
pub(super) fn most<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> u32 {
    samples.into_iter().map(|sample| sample.connections).max().unwrap_or(0)
}

/// The lines of `pgbench -l`: client, transaction, microseconds, script, time of day.
///
/// # Errors
/// [`LabError::Program`] with the line that is none.
pub(super) fn transactions(log: &str) -> Result<Vec<Transaction>> {
    let read = |line: &str| {
        let numbers: Vec<f64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
        let (took, seconds, rest) = (numbers.get(2)?, numbers.get(4)?, numbers.get(5)?);
        Some(Transaction { end: seconds + rest / 1e6, took: took / 1e6 })
    };
    let named =
        |line| read(line).ok_or_else(|| LabError::program("pgbench", format!("a line of its log: {line}")));
    log.lines().map(named).collect()
}

/// Clients that pgbench has given up, by what it has printed.
pub(super) fn given_up(printed: &str) -> u64 {
    printed.lines().filter(|line| line.contains("client ") && line.contains(" aborted")).count() as u64
}

/// The table for the reader.
pub(super) fn table(rows: &[Row], budget: u32) -> Vec<String> {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let head = format!("{:width$}  transactions  errors  longest stall  most connections", "");
    let line = |row: &Row| {
        format!(
            "{:width$}  {:>12}  {:>6}  {:>11.2} s  {:>10} of {budget}",
            row.name,
            figures::whole(row.transactions as f64),
            row.errors,
            row.longest,
            row.most
        )
    };
    std::iter::once(head).chain(rows.iter().map(line)).collect()
}

/// # Errors
/// PostgreSQL had more connections than the budget, or was not looked at; a client of another node than `killed` had an error; or there was a phase in which
/// no transaction went through.
pub(super) fn verdict(
    phases: &[Phase],
    rows: &[Row],
    samples: &[Sample],
    budget: u32,
    killed: usize,
) -> Result<()> {
    let most = most(samples);
    if samples.is_empty() || most > budget {
        let said = format!("{most} server connections, of {budget}, by {} samples", samples.len());
        return Err(LabError::program("the fleet", said));
    }
    for phase in phases {
        if let Some((node, errors)) =
            phase.errors.iter().enumerate().find(|(node, errors)| *node != killed && **errors > 0)
        {
            let said = format!("{errors} clients of node{} had an error ({})", node + 1, phase.name);
            return Err(LabError::program("the fleet", said));
        }
    }
    match rows.iter().find(|row| row.transactions == 0) {
        Some(row) => {
            Err(LabError::program("the fleet", format!("no transaction went through ({})", row.name)))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn phase(name: &str, begin: f64, errors: &[u64]) -> Phase {
        Phase { name: name.to_owned(), begin, end: begin + 10.0, errors: errors.to_vec() }
    }

    fn samples(all: &[(f64, u32)]) -> Vec<Sample> {
        all.iter().map(|&(at, connections)| Sample { at, connections }).collect()
    }

    #[test]
    fn what_ends_in_a_phase_counts_there() {
        let log =
            "0 1 2000000 0 1009 500000\n3 7 1500 0 1010 0\n3 8 40000 0 1019 999999 0\n0 2 9000000 0 1020 1\n";
        let found = transactions(log).unwrap();
        assert_eq!(found[0], Transaction { end: 1009.5, took: 2.0 });
        let seen = samples(&[(1009.9, 30), (1010.0, 19), (1015.0, 20), (1020.0, 31)]);
        let row = phase("two", 1010.0, &[0, 8]).sum(&found, &seen);
        assert_eq!(row, Row { name: "two".to_owned(), transactions: 2, errors: 8, longest: 0.04, most: 20 });
        assert!(transactions("0 1 x 0 1009 500000").is_err());
    }

    #[test]
    fn clients_that_are_given_up_are_counted_once() {
        let printed = "pgbench (15.8)\npgbench: error: client 3 aborted in command 4 (SQL) of script 0; perhaps the backend died while processing\n\
                       pgbench: error: client 0 script 0 aborted in command 4 query 0: FATAL:  x\npgbench: error: Run was aborted; the above results are incomplete.\n";
        assert_eq!(given_up(printed), 2);
    }

    #[test]
    fn only_the_killed_nodes_clients_may_have_errors_and_the_budget_holds() {
        let row = |transactions| Row { transactions, ..phase("p", 0.0, &[]).sum(&[], &[]) };
        let seen = samples(&[(1.0, 20)]);
        let judge = |errors: &[u64], transactions, seen: &[Sample]| {
            verdict(&[phase("p", 0.0, errors)], &[row(transactions)], seen, 20, 1)
        };
        assert!(judge(&[0, 8, 0], 1, &seen).is_ok());
        assert!(judge(&[0, 8, 1], 1, &seen).unwrap_err().to_string().contains("1 clients of node3"));
        assert!(judge(&[0, 8, 0], 0, &seen).is_err());
        assert!(
            judge(&[0, 0, 0], 1, &samples(&[(1.0, 21)]))
                .unwrap_err()
                .to_string()
                .contains("21 server connections, of 20")
        );
        assert!(judge(&[0, 0, 0], 1, &[]).is_err());
    }
}
