//! Zones of known names, and the serial numbers of their SOA records (`dns_zone_check_period`).
//!
//! Owns when a zone is due and whether it has changed. Does no I/O.

use std::collections::BTreeMap;

/// The zone that a name is taken to be in: what follows its first dot, as in PgBouncer. None for a name without one.
pub(crate) fn zone_of(host: &str) -> Option<&str> {
    let (_, zone) = host.trim_end_matches('.').split_once('.')?;
    (!zone.is_empty() && !zone.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')).then_some(zone)
}

/// All zones.
#[derive(Debug, Default)]
pub(crate) struct Zones {
    zones: BTreeMap<String, Zone>,
    /// 0 checks nothing.
    period_us: u64,
}

#[derive(Debug, Default)]
struct Zone {
    serial: Option<u32>,
    /// Due at once until it was checked for the first time.
    due_us: u64,
}

impl Zones {
    /// `dns_zone_check_period`; a shorter one counts from now on.
    pub(crate) fn set_period(&mut self, period_us: u64) {
        if period_us != self.period_us {
            self.period_us = period_us;
            self.zones.values_mut().for_each(|zone| zone.due_us = 0);
        }
    }

    /// The zones that there are: new ones are due, others are forgotten.
    pub(crate) fn set_names<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        let mut before = std::mem::take(&mut self.zones);
        for name in names {
            if !self.zones.contains_key(name) {
                self.zones.insert(name.to_owned(), before.remove(name).unwrap_or_default());
            }
        }
    }

    /// Those that are to be checked now.
    pub(crate) fn due(&self, now_us: u64) -> Vec<String> {
        if self.period_us == 0 {
            return Vec::new();
        }
        let due = self.zones.iter().filter(|(_, zone)| zone.due_us <= now_us);
        due.map(|(name, _)| name.clone()).collect()
    }

    /// When the next is due; None is never.
    pub(crate) fn next_us(&self) -> Option<u64> {
        self.zones.values().map(|zone| zone.due_us).min().filter(|_| self.period_us > 0)
    }

    /// A zone was checked; true if its serial number is another than before. No answer changes nothing.
    pub(crate) fn checked(&mut self, name: &str, serial: Option<u32>, now_us: u64) -> bool {
        let Some(zone) = self.zones.get_mut(name) else { return false };
        zone.due_us = now_us.saturating_add(self.period_us);
        let before = zone.serial;
        zone.serial = serial.or(before);
        before.is_some() && zone.serial != before
    }

    /// Names with their serial numbers, 0 where none was seen.
    pub(crate) fn serials(&self) -> impl Iterator<Item = (&str, u32)> {
        self.zones.iter().map(|(name, zone)| (name.as_str(), zone.serial.unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_follows_the_first_dot() {
        assert_eq!(zone_of("db.example.org"), Some("example.org"));
        assert_eq!(zone_of("db.test."), Some("test"));
        assert_eq!(zone_of("localhost"), None);
        assert_eq!(zone_of("10.0.0.1"), None);
    }

    #[test]
    fn a_changed_serial_is_told_once() {
        let mut zones = Zones::default();
        zones.set_names(["test", "test"].into_iter());
        assert!(zones.due(0).is_empty() && zones.next_us().is_none(), "no period, no check");
        zones.set_period(10);
        assert_eq!(zones.due(5), ["test"]);
        assert!(!zones.checked("test", Some(1), 5), "the first is no change");
        assert!(zones.due(14).is_empty());
        assert_eq!((zones.next_us(), zones.due(15)), (Some(15), vec!["test".to_owned()]));
        assert!(!zones.checked("test", None, 15), "nobody answered");
        assert!(zones.checked("test", Some(2), 25) && !zones.checked("test", Some(2), 35));
        assert_eq!(zones.serials().collect::<Vec<_>>(), [("test", 2)]);
        zones.set_names(["test", "other"].into_iter());
        assert_eq!(zones.due(36), ["other"], "what is known stays known");
    }
}
