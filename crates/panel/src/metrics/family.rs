//! What a metric is: its name, kind, unit and meaning, for every reader of the one table.
//!
//! Names are OpenTelemetry's, with dots; Prometheus' are made of them as its own translation does (specification, "Prometheus
//! and OpenMetrics Compatibility"). So who gets the metrics by OTLP and stores them in Prometheus finds the names of
//! `/metrics`. Never knows what is measured.

use telemetry::Histogram;

/// What a family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

/// What a value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricUnit {
    /// Things that have no unit of their own; the word is for people.
    Number(&'static str),
    Bytes,
    Seconds,
    /// Between 0 and 1.
    Ratio,
}

/// Labels of a sample, in order.
pub(crate) type Labels<'a> = &'a [(&'a str, &'a str)];

/// A family of samples.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Family<'a> {
    /// With dots, and without unit and `total`.
    pub(crate) name: &'a str,
    pub(crate) kind: MetricKind,
    pub(crate) unit: MetricUnit,
    pub(crate) help: &'a str,
    /// The same figures are in another family: for dashboards that know it by this name.
    pub(crate) is_alias: bool,
}

impl<'a> Family<'a> {
    pub(crate) fn new(name: &'a str, kind: MetricKind, unit: MetricUnit, help: &'a str) -> Family<'a> {
        Family { name, kind, unit, help, is_alias: false }
    }

    /// The same as a further name of something.
    pub(crate) fn alias(self) -> Family<'a> {
        Family { is_alias: true, ..self }
    }

    /// What Prometheus calls it.
    pub(crate) fn prometheus_name(&self) -> String {
        let unit = match self.unit {
            MetricUnit::Number(_) => "",
            MetricUnit::Bytes => "_bytes",
            MetricUnit::Seconds => "_seconds",
            MetricUnit::Ratio => "_ratio",
        };
        let total = if self.kind == MetricKind::Counter { "_total" } else { "" };
        format!("{}{unit}{total}", self.name.replace('.', "_"))
    }
}

impl MetricUnit {
    /// As the Unified Code for Units of Measure writes it; words in braces count things.
    pub(crate) fn ucum(self) -> String {
        match self {
            MetricUnit::Number("") => String::new(),
            MetricUnit::Number(word) => format!("{{{word}}}"),
            MetricUnit::Bytes => "By".to_owned(),
            MetricUnit::Seconds => "s".to_owned(),
            MetricUnit::Ratio => "1".to_owned(),
        }
    }
}

/// How often what took how long.
pub(crate) struct Distribution {
    /// Bounds in seconds, rising, and how many took less than each.
    pub(crate) below: Vec<(f64, u64)>,
    /// All of them.
    pub(crate) count: u64,
    /// The time of all together, in seconds.
    pub(crate) sum: f64,
}

/// The first bound is 2^6 = 64 us, the last 2^25 us = 33.6 s: powers of two of microseconds, so that the counts are exact
/// ([`telemetry::Histogram::below`]).
const OCTAVES: std::ops::RangeInclusive<u32> = 6..=25;

impl Distribution {
    pub(crate) fn new(histogram: &Histogram, sum_us: u64) -> Distribution {
        let below = OCTAVES.map(|octave| (seconds(1 << octave), histogram.below(1 << octave))).collect();
        Distribution { below, count: histogram.count(), sum: seconds(sum_us) }
    }
}

/// What metrics are written on: begin a family, then give all its samples.
pub(crate) trait MetricWriter {
    /// Begins a family. No name comes twice.
    fn family(&mut self, family: &Family<'_>);

    /// One sample of the family, a counter or gauge.
    fn sample(&mut self, labels: Labels<'_>, value: f64);

    /// One sample of the family, a histogram.
    fn distribution(&mut self, labels: Labels<'_>, distribution: &Distribution);

    /// A family of a single sample without labels.
    fn single(&mut self, family: &Family<'_>, value: f64) {
        self.family(family);
        self.sample(&[], value);
    }
}

/// A count as a sample's value; exact up to 2^53.
#[expect(clippy::cast_precision_loss)]
pub(crate) fn number(count: u64) -> f64 {
    count as f64
}

/// Microseconds as seconds.
pub(crate) fn seconds(us: u64) -> f64 {
    number(us) / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_names_end_with_unit_and_total() {
        let name = |kind, unit| Family::new("weir.wait.some_thing", kind, unit, "").prometheus_name();
        assert_eq!(name(MetricKind::Counter, MetricUnit::Seconds), "weir_wait_some_thing_seconds_total");
        assert_eq!(name(MetricKind::Histogram, MetricUnit::Seconds), "weir_wait_some_thing_seconds");
        assert_eq!(name(MetricKind::Gauge, MetricUnit::Ratio), "weir_wait_some_thing_ratio");
        assert_eq!(name(MetricKind::Gauge, MetricUnit::Number("thing")), "weir_wait_some_thing");
        assert_eq!(
            (MetricUnit::Number("thing").ucum(), MetricUnit::Number("").ucum()),
            ("{thing}".to_owned(), String::new())
        );
    }

    #[test]
    fn a_distribution_counts_what_is_below_each_bound() {
        let mut histogram = Histogram::default();
        [1, 64, 127, 1 << 30].into_iter().for_each(|us| histogram.add(us));
        let found = Distribution::new(&histogram, 2_500_000);
        assert_eq!((found.count, found.sum, found.below.len()), (4, 2.5, 20));
        assert_eq!(found.below[..2], [(64e-6, 1), (128e-6, 3)]);
        assert_eq!(found.below[19], (33.554_432, 3));
    }
}
