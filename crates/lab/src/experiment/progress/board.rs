//! The table that grows while an experiment runs: a line for each combination, with the median so far and its runs as a
//! sparkline. Shown only where the terminal is high enough; draws nothing itself.

use rustix::termios::tcgetwinsize;

use super::words::name;
use crate::figures::{median, short, whole};
use crate::record::{Ended, Point, Run};
use crate::report::sparkline;

/// Lines of the terminal beside the table: its head, the bar, and what stands above.
const LINES_BESIDE: usize = 4;

/// Runs that a line's sparkline shows.
const SPARK_CELLS: usize = 12;

/// The table.
#[derive(Debug, Default)]
pub(super) struct Board {
    rows: Vec<Row>,
    overflows: bool,
}

#[derive(Debug)]
struct Row {
    name: String,
    /// Order in the table: target, workload, clients, load, size.
    key: (String, String, u32, u64, Option<u32>),
    tps: Vec<f64>,
    p99_ms: Vec<f64>,
    refused: u32,
    lost: u32,
}

impl Board {
    /// Whether one more line has room; once it had not, plain lines take over for good.
    pub(super) fn fits(&mut self) -> bool {
        let height = terminal().map_or(0, |(_, lines)| lines);
        self.overflows |= self.rows.len() + 1 + LINES_BESIDE > height;
        if self.overflows {
            self.rows.clear();
        }
        !self.overflows
    }

    /// Adds a run to its line.
    pub(super) fn add(&mut self, point: &Point, run: &Run) {
        let name = name(point);
        let at = self.rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            self.rows.push(Row::new(point, name));
            self.rows.len() - 1
        });
        let row = &mut self.rows[at];
        row.refused = row.refused.max(run.refused);
        match run.ended {
            Ended::Whole => {
                row.tps.push(run.tps);
                let percentiles = run.latency_us.as_ref().and_then(|latency| latency.percentiles);
                row.p99_ms.extend(percentiles.map(|found| found.p99 / 1000.0));
            }
            Ended::Failed(_) => row.lost += 1,
            Ended::Refused(_) | Ended::Interrupted => {}
        }
        self.rows.sort_by(|one, other| one.key.cmp(&other.key));
    }

    /// The table as lines; none before the first run.
    pub(super) fn lines(&self) -> Vec<String> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let width = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or_default();
        let head = format!("  {:width$}  {:>9}  {:>9}  runs", "", "TPS", "p99 ms");
        std::iter::once(head).chain(self.rows.iter().map(|row| row.line(width))).collect()
    }
}

impl Row {
    fn new(point: &Point, name: String) -> Self {
        let load = point.offered.map_or(0, |load| load.percent_of_peak.to_bits());
        let key = (point.target.clone(), point.workload.clone(), point.clients, load, point.pool_size);
        Self { name, key, tps: Vec::new(), p99_ms: Vec::new(), refused: 0, lost: 0 }
    }

    fn line(&self, width: usize) -> String {
        let figure = |values: &[f64], text: fn(f64) -> String| median(values).map_or("-".to_owned(), text);
        let mut line = format!(
            "  {:width$}  {:>9}  {:>9}  {}",
            self.name,
            figure(&self.tps, whole),
            figure(&self.p99_ms, short),
            sparkline(&self.tps, SPARK_CELLS)
        );
        for (count, what) in [(self.refused, "clients refused"), (self.lost, "runs failed")] {
            if count > 0 {
                line += &format!("  {count} {what}");
            }
        }
        line
    }
}

/// Columns and lines of the terminal at standard error.
pub(super) fn terminal() -> Option<(usize, usize)> {
    let size = tcgetwinsize(std::io::stderr()).ok()?;
    Some((usize::from(size.ws_col), usize::from(size.ws_row)))
        .filter(|(columns, lines)| *columns > 0 && *lines > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_the_median_of_its_runs() {
        let point = |size| Point {
            target: "weir".into(),
            workload: "w".into(),
            pool_size: Some(size),
            ..Point::default()
        };
        let run = |tps| Run { tps, ..Run::default() };
        let mut board = Board::default();
        assert!(board.lines().is_empty());
        for (size, tps) in [(8, 3000.0), (2, 100.0), (2, 300.0), (2, 200.0)] {
            board.add(&point(size), &run(tps));
        }
        board.add(&point(8), &Run { ended: Ended::Failed("x".into()), ..Run::default() });
        let lines = board.lines();
        assert_eq!(lines.len(), 3);
        assert!(
            lines[1].contains("size 2") && lines[1].contains("      200 ") && lines[1].ends_with("▃█▆"),
            "{lines:?}"
        );
        assert!(lines[2].contains("    3,000 ") && lines[2].ends_with("1 runs failed"), "{lines:?}");
    }
}
