//! The past of the hosts of an entry as the API shows it: lag by step, and when state or timeline were others than before.
//! Owns which changes are listed, and the table of values. Never decides how long anything is kept.

use std::fmt::Write as _;

use serde::Serialize;
use utoipa::ToSchema;

use crate::live::history::SpanRows;
use crate::live::hosts::{HostPoint, HostState};
use crate::time::us_rfc3339;

/// This many seconds without a sample, or two steps, are a gap in what is known of a host's state.
const GAP_SECONDS: u64 = 10;

/// A span of the history of an entry's hosts.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct HostSeries {
    pub(crate) step_seconds: u64,
    /// Seconds since 1970 of the first number of each series.
    pub(crate) from: u64,
    /// In the order of the entry's list; those that it had, too.
    pub(crate) hosts: Vec<HostHistory>,
}

/// A host in it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HostHistory {
    /// Host and port.
    pub(crate) host: String,
    /// Null where it is not known, as of a primary. Over steps of more than a second the highest.
    lag_bytes: Vec<Option<f64>>,
    lag_seconds: Vec<Option<f64>>,
    /// What it was at the beginning, and each change since.
    changes: Vec<HostChange>,
    #[serde(skip)]
    steps: Vec<Option<(HostState, u32)>>,
}

/// A host's state from a moment on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct HostChange {
    /// Seconds since 1970.
    t: u64,
    /// Null while nothing was sampled. Over steps of more than a second the worst: `down`, `lagging`, then the last of the others.
    #[schema(required)]
    state: Option<HostState>,
    #[schema(required)]
    timeline: Option<u32>,
}

impl HostSeries {
    pub(super) fn of(database: &str, span: &SpanRows) -> HostSeries {
        let mut hosts: Vec<HostHistory> = Vec::new();
        // The newest row has the entry's list as it is.
        for (place, row) in span.rows.iter().rev() {
            for (key, point) in row.hosts.iter().filter(|(key, _)| *key.database == *database) {
                let known = hosts.iter().position(|host| *host.host == *key.label);
                let known = known.unwrap_or_else(|| {
                    hosts.push(HostHistory::empty(key.label.to_string(), span.length));
                    hosts.len() - 1
                });
                hosts[known].set(*place, *point);
            }
        }
        for host in &mut hosts {
            host.changes = changes(&host.steps, span.from, span.step);
        }
        HostSeries { step_seconds: span.step, from: span.from, hosts }
    }

    /// A line for each step and host that was sampled.
    pub(crate) fn csv(&self) -> String {
        let mut text = String::from("time,host,state,timeline,lag_bytes,lag_seconds\n");
        let length = self.hosts.iter().map(|host| host.steps.len()).max().unwrap_or(0);
        for (place, step) in (0_u64..).enumerate().take(length) {
            let time = us_rfc3339((self.from + step * self.step_seconds) * 1_000_000);
            for host in &self.hosts {
                let Some(Some((state, timeline))) = host.steps.get(place) else { continue };
                let _ = write!(text, "{time},{},{},{}", host.host, state.word(), known(*timeline));
                for column in [&host.lag_bytes, &host.lag_seconds] {
                    text.push(',');
                    if let Some(Some(number)) = column.get(place) {
                        let _ = write!(text, "{}", (number * 1e3).round() / 1e3);
                    }
                }
                text.push('\n');
            }
        }
        text
    }
}

impl HostHistory {
    fn empty(host: String, length: usize) -> HostHistory {
        let none = || vec![None; length];
        HostHistory {
            host,
            lag_bytes: none(),
            lag_seconds: none(),
            changes: Vec::new(),
            steps: vec![None; length],
        }
    }

    fn set(&mut self, place: usize, point: HostPoint) {
        let number = |value: f32| value.is_finite().then(|| f64::from(value));
        self.lag_bytes[place] = number(point.lag_bytes);
        self.lag_seconds[place] = number(point.lag_seconds);
        self.steps[place] = Some((point.state, point.timeline));
    }
}

/// Empty where it is not known.
fn known(timeline: u32) -> String {
    if timeline == 0 { String::new() } else { timeline.to_string() }
}

/// The first state, and every other that follows one. A timeline that is not known for a while is no change.
fn changes(steps: &[Option<(HostState, u32)>], from: u64, step: u64) -> Vec<HostChange> {
    let mut found: Vec<HostChange> = Vec::new();
    let (mut timeline, mut last_seen) = (0, None);
    for (second, point) in (0_u64..).map(|place| from + place * step).zip(steps) {
        let Some((state, own)) = point else { continue };
        let is_gap = |last: u64| second - last > GAP_SECONDS.max(2 * step);
        if let Some(last) = last_seen.filter(|last| is_gap(*last)) {
            found.push(HostChange { t: last + step, state: None, timeline: None });
        }
        last_seen = Some(second);
        timeline = if *own == 0 { timeline } else { *own };
        let change =
            HostChange { t: second, state: Some(*state), timeline: (timeline > 0).then_some(timeline) };
        let is_same = |last: &HostChange| (last.state, last.timeline) == (change.state, change.timeline);
        if !found.last().is_some_and(is_same) {
            found.push(change);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use HostState::{Down, Primary, Standby};

    #[test]
    fn changes_are_those_of_state_and_timeline_and_gaps() {
        let mut steps =
            vec![Some((Standby, 1)), None, Some((Standby, 1)), Some((Standby, 0)), Some((Down, 0))];
        steps.extend([None; 11]);
        steps.extend([Some((Standby, 2)), Some((Primary, 2)), Some((Primary, 3))]);
        let change = |t, state, timeline| HostChange { t, state, timeline };
        let expected = [
            change(100, Some(Standby), Some(1)),
            change(104, Some(Down), Some(1)),
            change(105, None, None),
            change(116, Some(Standby), Some(2)),
            change(117, Some(Primary), Some(2)),
            change(118, Some(Primary), Some(3)),
        ];
        assert_eq!(changes(&steps, 100, 1), expected);
        assert_eq!(changes(&[None, None], 100, 60), []);
        assert!(changes(&steps[..5], 0, 60).iter().all(|change| change.state.is_some()));
    }
}
