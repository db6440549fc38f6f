//! The figures of sysbench and JMeter, which the lab has log each transaction in the form of pgbench's log. The
//! seconds that count begin where the lab saw the clients begin; everything is counted from the log.

use std::collections::BTreeMap;

use super::follow::{BEGAN, ENDED, OWN};
use crate::error::Result;
use crate::load::{Asked, Figures, RawFiles};
use crate::pgbench::{Tally, Window, is_for_want_of_room};
use crate::record::{Ended, RawKind, Second};

/// Complaints by their words, and how many clients got no connection.
#[derive(Debug, Default)]
pub(super) struct ErrorLines {
    pub(super) errors: BTreeMap<String, u64>,
    pub(super) refused: u32,
}

impl ErrorLines {
    /// Adds one.
    pub(super) fn add(&mut self, words: &str, times: u64) {
        *self.errors.entry(words.to_owned()).or_default() += times;
    }
}

/// Reads all of it; `complaints` finds them in what the generator said.
///
/// # Errors
/// [`LabError::Record`](crate::error::LabError::Record) with the name of a file that is cut.
pub(super) fn figures(
    files: &RawFiles<'_>,
    asked: &Asked,
    complaints: fn(&str) -> ErrorLines,
) -> Result<Figures> {
    let said = files.text(RawKind::Progress)?;
    let own = |name: &str| said.lines().rev().find_map(|line| line.strip_prefix(name));
    let began = own(BEGAN).and_then(|moment| moment.parse::<f64>().ok());
    let status = own(ENDED).unwrap_or_default();
    let theirs = said.lines().filter(|line| !line.starts_with(OWN)).flat_map(|line| [line, "\n"]);
    let theirs = theirs.collect::<String>() + &files.text(RawKind::Complaints)?;
    let ErrorLines { errors, refused } = complaints(&theirs);
    let mut figures = Figures { errors, refused, ..Figures::default() };
    let window = began.map(|began| Window::at(began, asked.span)).unwrap_or_default();
    let mut tally = Tally::new(&window, &asked.think_us);
    for path in files.of(RawKind::Transactions) {
        tally.read_transactions(&path)?;
    }
    figures.seconds = window.length();
    figures.transactions = tally.inside;
    figures.failed = tally.failed;
    figures.latency_us = tally.latency();
    figures.lag_us = tally.lag();
    figures.per_second = seconds(&tally, asked);
    figures.ended = ended(status, &figures);
    Ok(figures)
}

fn seconds(tally: &Tally<'_>, asked: &Asked) -> Vec<Second> {
    let count = asked.span.warm_up_s + asked.span.seconds;
    let second = |number: u32| {
        let found = tally.second(usize::try_from(number).unwrap_or(usize::MAX));
        let mean_ms = (found.count > 0).then(|| found.sum_us / found.count as f64 / 1000.0);
        let warm_up = number < asked.span.warm_up_s;
        Second {
            at_s: f64::from(number + 1),
            warm_up,
            tps: found.count as f64,
            mean_ms,
            failed: found.failed,
        }
    };
    (0..count).map(second).collect()
}

/// A program that is content with itself.
const GOOD: &str = "exit status: 0";

fn ended(status: &str, figures: &Figures) -> Ended {
    if status == GOOD && figures.transactions > 0 {
        return Ended::Whole;
    }
    let words = figures.errors.keys().map(String::as_str).collect::<Vec<_>>().join("; ");
    if figures.refused > 0 && is_for_want_of_room(&words) {
        Ended::Refused(words)
    } else if !words.is_empty() {
        Ended::Failed(words)
    } else if status == GOOD {
        Ended::Failed("no transaction ended in the measured time: it was too short".to_owned())
    } else {
        Ended::Failed(status.to_owned())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::load::Span;
    use crate::record::RawLog;

    const LOG: &str = "\
0 1 9000 0 1000 500000
0 2 4000 0 1002 2000
1 1 failed 0 1002 900000
0 3 6000 0 1002 900000 500
0 4 1000 0 1003 600000
";

    fn read(name: &str, said: &str, log: Option<&str>) -> Result<Figures> {
        let directory = std::env::temp_dir().join(format!("weir-timed-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let texts =
            [("progress.txt", RawKind::Progress, Some(said)), ("transactions", RawKind::Transactions, log)];
        let logs = texts.into_iter().filter_map(|(path, kind, text)| {
            std::fs::write(directory.join(path), text?).unwrap();
            Some(RawLog { path: path.to_owned(), kind, bytes: text?.len() as u64 })
        });
        let logs: Vec<RawLog> = logs.collect();
        let asked = Asked { span: Span::seconds(1, 2), sampling: 1.0, ..Asked::default() };
        let complaints = |said: &str| {
            let mut found = ErrorLines::default();
            said.lines().filter(|line| line.contains("too many")).for_each(|line| found.add(line, 1));
            found.refused = u32::try_from(found.errors.len()).unwrap();
            found
        };
        let found = figures(&RawFiles { directory: &directory, logs: &logs }, &asked, complaints);
        std::fs::remove_dir_all(directory).unwrap();
        found
    }

    #[test]
    fn everything_is_counted_from_the_log() {
        let said = "lab: sysbench run\nlab: began 1000.000\nlab: ended exit status: 0\n";
        let found = read("whole", said, Some(LOG)).unwrap();
        assert_eq!((found.transactions, found.failed, found.ended.clone()), (2, 1, Ended::Whole));
        assert!((found.seconds - 2.0).abs() < 1e-6);
        assert_eq!(found.latency_us.unwrap().mean, 5000.0);
        assert_eq!(found.lag_us.unwrap().mean, 500.0);
        let seconds: Vec<_> =
            found.per_second.iter().map(|second| (second.tps, second.warm_up, second.failed)).collect();
        assert_eq!(seconds, [(1.0, true, 0), (0.0, false, 0), (2.0, false, 1)]);
    }

    #[test]
    fn a_run_that_never_began_says_why() {
        let found = read("refused", "too many clients already\nlab: ended exit status: 1\n", None).unwrap();
        assert_eq!(found.ended, Ended::Refused("too many clients already".into()));
        let found = read("failed", "lab: ended exit status: 1\n", None).unwrap();
        assert_eq!(found.ended, Ended::Failed("exit status: 1".into()));
        let said = "lab: began 1000.000\nlab: ended exit status: 0\n";
        let Ended::Failed(why) = read("early", said, Some("0 1 900 0 999 500000\n")).unwrap().ended else {
            panic!("only the warm-up had a transaction")
        };
        assert!(why.contains("too short"), "{why}");
    }

    #[test]
    fn a_cut_log_is_named() {
        let error = read("cut", "lab: began 1000\nlab: ended exit status: 0\n", Some("0 1 9000 0 1000 5"))
            .unwrap_err();
        assert!(error.to_string().contains("transactions has been cut in line 1"), "{error}");
    }
}
