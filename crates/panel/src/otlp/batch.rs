//! The table of metrics as OTLP's messages: counters are cumulative, monotonic sums, gauges are gauges, histograms have
//! explicit bounds (opentelemetry-proto, metrics/v1).
//!
//! Owns how much stands in one request. Families that repeat others under further names are left out. Never knows where
//! it goes.

use std::fs;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use uuid::Uuid;

use super::start_times::StartTimes;
use crate::metrics::{Distribution, Family, Labels, MetricKind, MetricUnit, MetricWriter, number};

/// More samples than this go in several requests, so that none is longer than collectors take.
const MAX_SAMPLES: usize = 5_000;

/// As OTLP has it of everything that is summed up since a start.
const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;

/// The sender: part of each request.
pub(super) struct OtlpResource {
    resource: Resource,
    scope: InstrumentationScope,
}

impl OtlpResource {
    /// What semantic conventions want known of a service and its host. The instance's id is a new one.
    pub(super) fn of_this_process() -> OtlpResource {
        let version = env!("CARGO_PKG_VERSION");
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let instance = Uuid::new_v4().to_string();
        let attributes = attributes(&[
            ("service.name", "weir"),
            ("service.version", version),
            ("service.instance.id", &instance),
            ("host.name", host.trim()),
        ]);
        let scope = InstrumentationScope {
            name: "weir".to_owned(),
            version: version.to_owned(),
            ..InstrumentationScope::default()
        };
        OtlpResource { resource: Resource { attributes, ..Resource::default() }, scope }
    }

    /// Of each request.
    pub(super) fn resource(&self) -> Resource {
        self.resource.clone()
    }

    /// Of each request.
    pub(super) fn scope(&self) -> InstrumentationScope {
        self.scope.clone()
    }

    /// The bytes of a request with these metrics.
    pub(super) fn request(&self, metrics: Vec<Metric>) -> Vec<u8> {
        let scope = Some(self.scope.clone());
        let scope_metrics = vec![ScopeMetrics { scope, metrics, ..ScopeMetrics::default() }];
        let resource = Some(self.resource.clone());
        let of_resource = ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() };
        ExportMetricsServiceRequest { resource_metrics: vec![of_resource] }.encode_to_vec()
    }
}

/// Metrics of one look, while they are written.
pub(super) struct Batch<'a> {
    start_times: &'a mut StartTimes,
    now_ns: u64,
    full: Vec<Vec<Metric>>,
    metrics: Vec<Metric>,
    samples: usize,
    /// The family that was begun last, without samples; None where those are left out.
    family: Option<(Metric, MetricUnit)>,
}

impl Batch<'_> {
    /// An empty one of a look at `now_ns`, nanoseconds since 1970.
    pub(super) fn new(start_times: &mut StartTimes, now_ns: u64) -> Batch<'_> {
        Batch { start_times, now_ns, full: Vec::new(), metrics: Vec::new(), samples: 0, family: None }
    }

    /// The metrics of each request; families without samples are not there.
    pub(super) fn finished(mut self) -> Vec<Vec<Metric>> {
        self.start_times.end_batch(self.now_ns);
        self.full.push(self.metrics);
        self.full.retain(|metrics| !metrics.is_empty());
        self.full
    }

    /// Where the next sample of the family belongs.
    fn data(&mut self) -> Option<&mut Data> {
        let (family, _) = self.family.as_ref()?;
        if self.samples == MAX_SAMPLES {
            self.full.push(std::mem::take(&mut self.metrics));
            self.samples = 0;
        }
        self.samples += 1;
        if self.metrics.last().is_none_or(|last| last.name != family.name) {
            self.metrics.push(family.clone());
        }
        self.metrics.last_mut()?.data.as_mut()
    }
}

impl MetricWriter for Batch<'_> {
    fn family(&mut self, family: &Family<'_>) {
        let data = match family.kind {
            MetricKind::Counter => {
                Data::Sum(Sum { aggregation_temporality: CUMULATIVE, is_monotonic: true, ..Sum::default() })
            }
            MetricKind::Gauge => Data::Gauge(Gauge::default()),
            MetricKind::Histogram => {
                Data::Histogram(Histogram { aggregation_temporality: CUMULATIVE, ..Histogram::default() })
            }
        };
        let metric = Metric {
            name: family.name.to_owned(),
            description: family.help.to_owned(),
            unit: family.unit.ucum(),
            data: Some(data),
            ..Metric::default()
        };
        self.family = (!family.is_alias).then_some((metric, family.unit));
    }

    fn sample(&mut self, labels: Labels<'_>, value: f64) {
        let Some((family, unit)) = &self.family else { return };
        let start_time_unix_nano = match &family.data {
            Some(Data::Sum(_)) => self.start_times.of(&family.name, labels, value),
            _ => 0,
        };
        let is_whole = matches!(unit, MetricUnit::Number(_) | MetricUnit::Bytes);
        let point = NumberDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano,
            time_unix_nano: self.now_ns,
            value: Some(if is_whole { Value::AsInt(whole(value)) } else { Value::AsDouble(value) }),
            ..NumberDataPoint::default()
        };
        match self.data() {
            Some(Data::Gauge(gauge)) => gauge.data_points.push(point),
            Some(Data::Sum(sum)) => sum.data_points.push(point),
            _ => {}
        }
    }

    fn distribution(&mut self, labels: Labels<'_>, distribution: &Distribution) {
        let Some((family, _)) = &self.family else { return };
        let Distribution { below, count, sum } = distribution;
        let counts = below.iter().map(|(_, count)| *count).chain([*count]);
        let mut before = 0;
        let point = HistogramDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano: self.start_times.of(&family.name, labels, number(*count)),
            time_unix_nano: self.now_ns,
            count: *count,
            sum: Some(*sum),
            bucket_counts: counts.map(|count| count - std::mem::replace(&mut before, count)).collect(),
            explicit_bounds: below.iter().map(|(bound, _)| *bound).collect(),
            ..HistogramDataPoint::default()
        };
        if let Some(Data::Histogram(histogram)) = self.data() {
            histogram.data_points.push(point);
        }
    }
}

fn attributes(labels: Labels<'_>) -> Vec<KeyValue> {
    let attribute = |(name, text): &(&str, &str)| KeyValue {
        key: (*name).to_owned(),
        value: Some(AnyValue { value: Some(any_value::Value::StringValue((*text).to_owned())) }),
        ..KeyValue::default()
    };
    labels.iter().map(attribute).collect()
}

/// A value that is whole already.
#[expect(clippy::cast_possible_truncation, reason = "it was made of a number of 64 bits")]
fn whole(value: f64) -> i64 {
    value as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(name: &str, kind: MetricKind, unit: MetricUnit) -> Family<'_> {
        Family::new(name, kind, unit, "What it is.")
    }

    #[test]
    fn every_kind_is_told_as_opentelemetry_has_it() {
        let mut start_times = StartTimes::new(1);
        let mut batch = Batch::new(&mut start_times, 7);
        batch.family(&family("a.count", MetricKind::Counter, MetricUnit::Number("thing")));
        batch.sample(&[("database", "d")], 3.0);
        batch.single(&family("a.again", MetricKind::Counter, MetricUnit::Number("")).alias(), 3.0);
        batch.single(&family("a.share", MetricKind::Gauge, MetricUnit::Ratio), 0.25);
        batch.family(&family("a.empty", MetricKind::Gauge, MetricUnit::Bytes));
        batch.family(&family("a.time", MetricKind::Histogram, MetricUnit::Seconds));
        batch.distribution(&[], &Distribution { below: vec![(0.5, 1), (1.0, 4)], count: 6, sum: 9.5 });
        let [metrics] = &batch.finished()[..] else { panic!("one request") };
        let names: Vec<_> = metrics.iter().map(|metric| (&*metric.name, &*metric.unit)).collect();
        assert_eq!(names, [("a.count", "{thing}"), ("a.share", "1"), ("a.time", "s")]);
        let Some(Data::Sum(sum)) = &metrics[0].data else { panic!("{:?}", metrics[0]) };
        assert!(sum.is_monotonic && sum.aggregation_temporality == CUMULATIVE);
        let point = &sum.data_points[0];
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (1, 7));
        assert_eq!((&point.value, &*point.attributes[0].key), (&Some(Value::AsInt(3)), "database"));
        let Some(Data::Gauge(gauge)) = &metrics[1].data else { panic!("{:?}", metrics[1]) };
        assert_eq!(gauge.data_points[0].value, Some(Value::AsDouble(0.25)));
        let Some(Data::Histogram(histogram)) = &metrics[2].data else { panic!("{:?}", metrics[2]) };
        let point = &histogram.data_points[0];
        assert_eq!((&point.explicit_bounds[..], &point.bucket_counts[..]), (&[0.5, 1.0][..], &[1, 3, 2][..]));
        assert_eq!((point.count, point.sum, point.start_time_unix_nano), (6, Some(9.5), 1));
    }

    #[test]
    fn many_samples_go_in_several_requests() {
        let mut start_times = StartTimes::new(1);
        let mut batch = Batch::new(&mut start_times, 7);
        for name in ["a", "b"] {
            batch.family(&family(name, MetricKind::Gauge, MetricUnit::Bytes));
            (0..MAX_SAMPLES - 1).for_each(|_| batch.sample(&[], 1.0));
        }
        let requests = batch.finished();
        let sizes = |metrics: &Vec<Metric>| {
            let of_one = |metric: &Metric| match &metric.data {
                Some(Data::Gauge(gauge)) => gauge.data_points.len(),
                _ => 0,
            };
            metrics.iter().map(of_one).collect::<Vec<_>>()
        };
        let found: Vec<_> = requests.iter().map(sizes).collect();
        assert_eq!(found, [vec![MAX_SAMPLES - 1, 1], vec![MAX_SAMPLES - 2]]);
    }

    #[test]
    fn a_request_says_who_sends_it() {
        let bytes = OtlpResource::of_this_process().request(Vec::new());
        let request = ExportMetricsServiceRequest::decode(&bytes[..]).expect("a request");
        let resource = request.resource_metrics[0].resource.as_ref().expect("a resource");
        let keys: Vec<_> = resource.attributes.iter().map(|attribute| &*attribute.key).collect();
        assert_eq!(keys, ["service.name", "service.version", "service.instance.id", "host.name"]);
    }
}
