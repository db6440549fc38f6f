//! The hosts of entries whose reads go to standbys: what each was and how far behind, in a sample, in a step of the history, and as the bytes
//! that a step is stored as. Owns the words of the states, and how a longer step is made of seconds. Never decides how long a row is kept.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use control::HostColumn;
use serde::Serialize;
use settings::Config;
use utoipa::ToSchema;

use crate::live::point::take;
use crate::table::{ViewRow, ViewTable};

/// Hosts that are kept of each step, the first by entry.
const HOSTS: usize = 100;

/// What a host is, for a chart. The order is that of the codes in which it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum HostState {
    #[default]
    Unknown,
    Primary,
    Standby,
    /// A standby that is further behind than `max_replica_lag`: it gets no reads.
    Lagging,
    /// It cannot be connected or logged in to.
    Down,
    Detached,
    NoLoadBalance,
}

use HostState::{Detached, Down, Lagging, NoLoadBalance, Primary, Standby, Unknown};

const STATES: [(HostState, &str); 7] = [
    (Unknown, "unknown"),
    (Primary, "primary"),
    (Standby, "standby"),
    (Lagging, "lagging"),
    (Down, "down"),
    (Detached, "detached"),
    (NoLoadBalance, "noloadbalance"),
];

impl HostState {
    /// Of SHOW HOSTS.
    fn of(word: &str) -> HostState {
        STATES.iter().find(|(_, name)| *name == word).map_or(Unknown, |(state, _)| *state)
    }

    pub(super) fn word(self) -> &'static str {
        STATES[self as usize].1
    }

    /// Of a longer step the worst is kept.
    fn severity(self) -> u8 {
        match self {
            Down => 2,
            Lagging => 1,
            _ => 0,
        }
    }
}

/// A host now.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct HostSample {
    /// The entry.
    pub(crate) database: String,
    pub(crate) host: String,
    pub(crate) port: u64,
    #[schema(inline)]
    pub(crate) state: HostState,
    #[schema(required)]
    pub(crate) timeline: Option<u64>,
    /// How far a standby is behind; null where that is not known.
    #[schema(required)]
    pub(crate) lag_bytes: Option<u64>,
    #[schema(required)]
    pub(crate) lag_seconds: Option<f64>,
}

/// The hosts of SHOW HOSTS; what `max_replica_lag` excludes from reads is lagging.
pub(super) fn samples(table: &ViewTable<HostColumn>, config: &Config) -> Vec<HostSample> {
    table.iter().map(|row| sample(row, config)).collect()
}

/// A standby that is further behind than its entry's `max_replica_lag`.
pub(crate) fn is_lagging(row: ViewRow<'_, HostColumn>, config: &Config) -> bool {
    let number = |column| (!row.is_null(column)).then(|| row.number(column));
    let lag = number(HostColumn::LagBytes).zip(number(HostColumn::LagMs).map(Duration::from_millis));
    let entry = config.database(row.text(HostColumn::Database).unwrap_or_default());
    row.text(HostColumn::State) == Some("standby")
        && entry.is_some_and(|entry| !entry.max_replica_lag.allows(lag))
}

fn sample(row: ViewRow<'_, HostColumn>, config: &Config) -> HostSample {
    let number = |column| (!row.is_null(column)).then(|| row.number(column));
    let state = HostState::of(row.text(HostColumn::State).unwrap_or_default());
    let milliseconds = number(HostColumn::LagMs).and_then(|ms| u32::try_from(ms).ok());
    HostSample {
        database: row.owned(HostColumn::Database),
        host: row.owned(HostColumn::Host),
        port: row.number(HostColumn::Port),
        state: if is_lagging(row, config) { Lagging } else { state },
        timeline: number(HostColumn::Timeline),
        lag_bytes: number(HostColumn::LagBytes),
        lag_seconds: milliseconds.map(|ms| f64::from(ms) / 1_000.0),
    }
}

/// The entry, and the host with its port.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HostKey {
    pub(super) database: Arc<str>,
    pub(super) label: Arc<str>,
}

/// A host in a step. A lag that is not known is NaN, a timeline 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct HostPoint {
    pub(super) state: HostState,
    pub(super) timeline: u32,
    pub(super) lag_bytes: f32,
    pub(super) lag_seconds: f32,
}

/// The hosts of a step, by entry and in the order of its list.
pub(super) type HostPoints = Vec<(HostKey, HostPoint)>;

/// What is kept of a second. Names that the second before had are not stored again.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
pub(super) fn points(samples: &[HostSample], before: &HostPoints) -> HostPoints {
    let point = |(place, sample): (usize, &HostSample)| {
        let label = format!("{}:{}", sample.host, sample.port);
        let known = before.get(place).map(|(key, _)| key);
        let known = known.filter(|key| *key.database == *sample.database && *key.label == *label);
        let key = known.cloned().unwrap_or_else(|| HostKey {
            database: sample.database.as_str().into(),
            label: label.as_str().into(),
        });
        let point = HostPoint {
            state: sample.state,
            timeline: sample.timeline.and_then(|timeline| u32::try_from(timeline).ok()).unwrap_or(0),
            lag_bytes: sample.lag_bytes.map_or(f32::NAN, |bytes| bytes as f32),
            lag_seconds: sample.lag_seconds.map_or(f32::NAN, |seconds| seconds as f32),
        };
        (key, point)
    };
    samples.iter().take(HOSTS).enumerate().map(point).collect()
}

/// As they are stored.
pub(super) fn bytes(hosts: &HostPoints) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(hosts.len() * 48);
    for (key, point) in hosts {
        for name in [&key.database, &key.label] {
            let length = u16::try_from(name.len()).unwrap_or(u16::MAX);
            bytes.extend(length.to_le_bytes());
            bytes.extend(name.as_bytes().iter().take(length.into()));
        }
        bytes.push(point.state as u8);
        bytes.extend(point.timeline.to_le_bytes());
        bytes.extend(point.lag_bytes.to_le_bytes());
        bytes.extend(point.lag_seconds.to_le_bytes());
    }
    bytes
}

/// What was stored; None for bytes that are none.
pub(super) fn read(bytes: &[u8]) -> Option<HostPoints> {
    let mut rest = bytes;
    let mut hosts = HostPoints::new();
    while !rest.is_empty() && hosts.len() < HOSTS {
        let key = HostKey { database: name(&mut rest)?, label: name(&mut rest)? };
        let [state] = take::<1>(&mut rest)?;
        let point = HostPoint {
            state: STATES.get(usize::from(state))?.0,
            timeline: u32::from_le_bytes(take(&mut rest)?),
            lag_bytes: f32::from_le_bytes(take(&mut rest)?),
            lag_seconds: f32::from_le_bytes(take(&mut rest)?),
        };
        hosts.push((key, point));
    }
    Some(hosts)
}

fn name(rest: &mut &[u8]) -> Option<Arc<str>> {
    let length = u16::from_le_bytes(take(rest)?);
    let (name, behind) = rest.split_at_checked(length.into())?;
    *rest = behind;
    Some(str::from_utf8(name).ok()?.into())
}

/// A longer step, as its seconds come: of each host its place in the first second and what it was. The highest lag counts, and the worst state; a
/// mean would hide a standby that was away.
#[derive(Debug, Default)]
pub(super) struct HostSums(BTreeMap<HostKey, (usize, HostPoint)>);

impl HostSums {
    pub(super) fn add(&mut self, hosts: &HostPoints) {
        for (place, (key, point)) in hosts.iter().enumerate() {
            if let Some((_, sum)) = self.0.get_mut(key) {
                let is_worse = point.state.severity() >= sum.state.severity();
                sum.state = if is_worse { point.state } else { sum.state };
                sum.timeline = if point.timeline > 0 { point.timeline } else { sum.timeline };
                // A number is higher than none.
                sum.lag_bytes = sum.lag_bytes.max(point.lag_bytes);
                sum.lag_seconds = sum.lag_seconds.max(point.lag_seconds);
            } else if self.0.len() < HOSTS {
                self.0.insert(key.clone(), (place, *point));
            }
        }
    }

    pub(super) fn so_far(&self) -> HostPoints {
        let mut hosts: Vec<_> =
            self.0.iter().map(|(key, (place, point))| (*place, key.clone(), *point)).collect();
        hosts.sort_by_key(|(place, ..)| *place);
        hosts.into_iter().map(|(_, key, point)| (key, point)).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use messages::Cell;
    use settings::{Database, Origin, ReplicaLag};

    use super::*;
    use crate::table::rows_of;

    fn host(label: &str, state: HostState, lag: f32) -> (HostKey, HostPoint) {
        let key = HostKey { database: "app".into(), label: label.into() };
        (key, HostPoint { state, timeline: 3, lag_bytes: lag, lag_seconds: lag / 10.0 })
    }

    #[test]
    fn what_is_stored_is_read_back_and_nothing_else_is() {
        let hosts = vec![host("b:5432", Standby, 7.0), host("a:5432", NoLoadBalance, 0.0)];
        let stored = bytes(&hosts);
        assert_eq!(read(&stored).unwrap(), hosts);
        let half = stored.len() / 2;
        for length in (1..stored.len()).filter(|length| *length != half) {
            assert_eq!(read(&stored[..length]), None, "{length}");
        }
        assert_eq!(read(&[0xff; 90]), None);
        for (place, (state, word)) in STATES.into_iter().enumerate() {
            assert_eq!((state as usize, HostState::of(word), state.word()), (place, state, word));
        }
    }

    #[test]
    fn a_longer_step_has_the_highest_lag_and_the_worst_state() {
        let mut sums = HostSums::default();
        for (state, lag) in [(Standby, f32::NAN), (Lagging, 9.0), (Standby, 4.0)] {
            sums.add(&vec![
                host("b:1", state, lag),
                host("a:1", if lag > 5.0 { Down } else { Primary }, f32::NAN),
            ]);
        }
        let found = sums.so_far();
        assert_eq!(found[0], host("b:1", Lagging, 9.0), "in the order of the entry's list");
        assert_eq!((found[1].1.state, found[1].1.lag_bytes.is_nan()), (Down, true));
        let mut promoted = HostSums::default();
        promoted.add(&vec![host("b:1", Standby, 1.0)]);
        promoted.add(&vec![host("b:1", Primary, 0.0)]);
        assert_eq!(promoted.so_far()[0].1.state, Primary, "the last of states that are no worse");
    }

    #[test]
    fn a_standby_beyond_max_replica_lag_is_lagging() {
        let mut config = Config::default();
        for (name, max_replica_lag) in
            [("app", ReplicaLag::Time(Duration::from_secs(2))), ("free", ReplicaLag::Unlimited)]
        {
            let at = Origin { file: "weir.ini".into(), line: 1 };
            let entry = Database { max_replica_lag, ..Database::new(name, at) };
            config.databases.insert(name.to_owned(), Arc::new(entry));
        }
        let row = |database: &str, ms: Option<i64>| {
            let lag = ms.map_or(Cell::Null, Cell::Number);
            vec![
                (HostColumn::Database, Cell::from(database)),
                (HostColumn::State, Cell::from("standby")),
                (HostColumn::LagMs, lag.clone()),
                (HostColumn::LagBytes, lag),
            ]
        };
        let rows =
            [row("app", Some(2_000)), row("app", Some(2_001)), row("app", None), row("free", Some(9_000))];
        let rows: Vec<&[(HostColumn, Cell)]> = rows.iter().map(Vec::as_slice).collect();
        let states: Vec<HostState> =
            samples(&rows_of(&rows), &config).iter().map(|host| host.state).collect();
        assert_eq!(states, [Standby, Lagging, Lagging, Standby]);
    }
}
