//! What a quota limits, and over which time.

use std::fmt;

use crate::calendar;

/// Microseconds in a second.
const SECOND_US: u64 = 1_000_000;

const DAY_S: u64 = 86_400;

/// A resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Client connections, at a time.
    Connections,
    /// Time that clients had a server connection, in seconds.
    ServerSeconds,
    /// Requests that were answered.
    Queries,
    /// Bytes from clients and to them.
    Bytes,
    /// Bytes that a database has on disk, or that relations of a user have.
    Storage,
    /// Bytes of temporary files that exist for the sessions of a database or a user.
    TempFiles,
}

/// The time after which what was used is forgotten; all of them begin by UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Period {
    /// From minute 0.
    Hour,
    /// From midnight.
    Day,
    /// From the first of the month.
    Month,
}

/// A resource and its period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Measure {
    resource: Resource,
    period: Option<Period>,
}

impl Resource {
    /// All resources.
    pub const ALL: [Resource; 6] = [
        Resource::Connections,
        Resource::ServerSeconds,
        Resource::Queries,
        Resource::Bytes,
        Resource::Storage,
        Resource::TempFiles,
    ];

    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Resource::Connections => "connections",
            Resource::ServerSeconds => "server_seconds",
            Resource::Queries => "queries",
            Resource::Bytes => "bytes",
            Resource::Storage => "storage",
            Resource::TempFiles => "temp_files",
        }
    }

    /// Whether it is counted in bytes.
    #[must_use]
    pub fn is_in_bytes(self) -> bool {
        matches!(self, Resource::Bytes | Resource::Storage | Resource::TempFiles)
    }

    /// Whether PostgreSQL is asked how much of it there is: for users and databases only.
    #[must_use]
    pub fn is_measured(self) -> bool {
        matches!(self, Resource::Storage | Resource::TempFiles)
    }

    /// How many units are counted for one of the file's: server time is counted in microseconds.
    #[must_use]
    pub fn units(self) -> u64 {
        if self == Resource::ServerSeconds { SECOND_US } else { 1 }
    }

    /// The highest limit that makes sense.
    #[must_use]
    pub fn highest_limit(self) -> u64 {
        match self {
            Resource::Connections => 1_000_000,
            Resource::ServerSeconds => 1_000_000_000_000,
            Resource::Queries | Resource::Bytes | Resource::Storage | Resource::TempFiles => {
                1_000_000_000_000_000_000
            }
        }
    }
}

impl Period {
    /// All periods.
    pub const ALL: [Period; 3] = [Period::Hour, Period::Day, Period::Month];

    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Period::Hour => "hour",
            Period::Day => "day",
            Period::Month => "month",
        }
    }

    /// When the period of a time begins and when it ends, in seconds since 1970, UTC.
    ///
    /// ```
    /// use weir_quota::Period;
    /// assert_eq!(Period::Hour.around(3_700), (3_600, 7_200));
    /// assert_eq!(Period::Month.around(951_782_400), (949_363_200, 951_868_800)); // February 2000 has 29 days.
    /// ```
    #[must_use]
    pub fn around(self, at_s: u64) -> (u64, u64) {
        let whole = |length: u64| (at_s - at_s % length, (at_s - at_s % length).saturating_add(length));
        match self {
            Period::Hour => whole(3_600),
            Period::Day => whole(DAY_S),
            Period::Month => {
                let date = calendar::date(at_s / DAY_S);
                (date.month_begins * DAY_S, date.month_ends.saturating_mul(DAY_S))
            }
        }
    }
}

impl Measure {
    /// All of them.
    pub const ALL: [Measure; 12] = [
        Measure { resource: Resource::Connections, period: None },
        Measure { resource: Resource::ServerSeconds, period: Some(Period::Hour) },
        Measure { resource: Resource::ServerSeconds, period: Some(Period::Day) },
        Measure { resource: Resource::ServerSeconds, period: Some(Period::Month) },
        Measure { resource: Resource::Queries, period: Some(Period::Hour) },
        Measure { resource: Resource::Queries, period: Some(Period::Day) },
        Measure { resource: Resource::Queries, period: Some(Period::Month) },
        Measure { resource: Resource::Bytes, period: Some(Period::Hour) },
        Measure { resource: Resource::Bytes, period: Some(Period::Day) },
        Measure { resource: Resource::Bytes, period: Some(Period::Month) },
        Measure::STORAGE,
        Measure::TEMP_FILES,
    ];

    /// What is on disk.
    pub const STORAGE: Measure = Measure { resource: Resource::Storage, period: None };

    /// Temporary files.
    pub const TEMP_FILES: Measure = Measure { resource: Resource::TempFiles, period: None };

    /// Both that PostgreSQL is asked for.
    pub const MEASURED: [Measure; 2] = [Measure::STORAGE, Measure::TEMP_FILES];

    /// What is limited.
    #[must_use]
    pub fn resource(self) -> Resource {
        self.resource
    }

    /// Over which time; `None` for what is there or not.
    #[must_use]
    pub fn period(self) -> Option<Period> {
        self.period
    }

    /// Reads `connections` or `queries/day`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(text: &str) -> Result<Measure, String> {
        if let Some(measure) = Measure::ALL.into_iter().find(|measure| measure.to_string() == text) {
            return Ok(measure);
        }
        let (resource, period) = text.split_once('/').map_or((text, None), |(of, per)| (of, Some(per)));
        let Some(known) = Resource::ALL.into_iter().find(|known| known.word() == resource) else {
            return Err(format!(
                "unknown resource \"{resource}\": is not one of connections, server_seconds, queries, bytes, storage, temp_files"
            ));
        };
        Err(match (known, period) {
            (Resource::Connections, _) => "connections have no period: they are counted at a time".to_owned(),
            (Resource::Storage, _) => "storage has no period: it is what is there".to_owned(),
            (Resource::TempFiles, _) => "temp_files have no period: they are what is there".to_owned(),
            (_, None) => {
                format!("{resource} needs a period: {resource}/hour, {resource}/day or {resource}/month")
            }
            (_, Some(period)) => format!("unknown period \"{period}\": is not one of hour, day, month"),
        })
    }
}

/// As the file of quotas has it.
impl fmt::Display for Measure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.period {
            None => out.write_str(self.resource.word()),
            Some(period) => write!(out, "{}/{}", self.resource.word(), period.word()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_and_leap_years_are_those_of_the_calendar() {
        // 2024-02-29 12:00, 2100-02-28, 2026-12-31 23:59:59, 2370-01-01: `date -u -d`.
        for (at_s, begins, ends) in [
            (1_709_208_000, 1_706_745_600, 1_709_251_200),
            (4_107_456_000, 4_105_123_200, 4_107_542_400),
            (1_798_761_599, 1_796_083_200, 1_798_761_600),
            (12_622_780_800, 12_622_780_800, 12_625_459_200),
        ] {
            assert_eq!(Period::Month.around(at_s), (begins, ends), "{at_s}");
        }
        assert!(Period::Month.around(u64::MAX / 2).1 > u64::MAX / 2);
    }

    #[test]
    fn what_is_wrong_with_a_resource_is_told() {
        for measure in Measure::ALL {
            assert_eq!(Measure::read(&measure.to_string()), Ok(measure));
        }
        for (text, word) in [
            ("connections/day", "no period"),
            ("storage/month", "no period"),
            ("temp_files/day", "no period"),
            ("queries", "queries/hour"),
            ("queries/week", "\"week\""),
            ("frob", "\"frob\""),
        ] {
            assert!(Measure::read(text).is_err_and(|why| why.contains(word)), "{text}");
        }
    }
}
