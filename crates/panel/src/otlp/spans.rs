//! Requests of sampled traces as OTLP's spans (`otlp_traces`; opentelemetry-proto, trace/v1): children of their callers' spans.
//!
//! Owns which have been sent, and how much stands in one request. Names and attributes are those of OpenTelemetry's semantic conventions for databases;
//! the waits are Weir's own. What is not taken by the collector is not sent again.

use std::collections::BTreeMap;
use std::time::Duration;

use control::{SPANS, SpanColumn};
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use prost::Message as _;

use super::batch::OtlpResource;
use super::error::ExportError;
use super::trace_messages::{
    ExportTraceServiceRequest, ExportTraceServiceResponse, ResourceSpans, SPAN_KIND_SERVER,
    STATUS_CODE_ERROR, ScopeSpans, Span, Status,
};
use crate::control_client::ControlClient;
use crate::table::{ViewRow, ViewTable};

/// From one export to the next: no thread keeps more spans than it has in so long under a load that is worth tracing.
pub(super) const INTERVAL: Duration = Duration::from_secs(2);

/// Requests with more are several.
const MAX_SPANS: usize = 1_000;

/// What has been sent of each thread: the number of the next span.
#[derive(Debug, Default)]
pub(super) struct SentSpans(BTreeMap<u64, u64>);

impl SentSpans {
    /// The requests with what has not been sent yet; it counts as sent then.
    pub(super) fn requests(&mut self, table: &ViewTable<SpanColumn>, sender: &OtlpResource) -> Vec<Vec<u8>> {
        let mut spans = Vec::new();
        for row in table.iter() {
            let next = self.0.entry(row.number(SpanColumn::Shard)).or_default();
            let number = row.number(SpanColumn::Number);
            if number >= *next {
                *next = number + 1;
                spans.extend(span(row));
            }
        }
        spans.chunks(MAX_SPANS).map(|spans| request(spans.to_vec(), sender)).collect()
    }
}

/// The last spans of all threads.
///
/// # Errors
/// [`ExportError::NoData`]: the control thread has not answered.
pub(super) async fn collect(control_client: &ControlClient) -> Result<ViewTable<SpanColumn>, ExportError> {
    control_client.show(SPANS).await.map_err(|_| ExportError::NoData)
}

/// What a collector's answer means.
///
/// # Errors
/// [`ExportError`]: it has not taken all.
pub(super) fn check_response(body: axum::body::Bytes) -> Result<(), ExportError> {
    let told = ExportTraceServiceResponse::decode(body).map_err(|_| ExportError::NotOtlp)?;
    match told.partial_success {
        Some(partial) if partial.rejected_spans != 0 => Err(ExportError::Partial {
            rejected: partial.rejected_spans,
            of: "spans",
            message: partial.error_message,
        }),
        _ => Ok(()),
    }
}

fn request(spans: Vec<Span>, sender: &OtlpResource) -> Vec<u8> {
    let scope_spans = vec![ScopeSpans { scope: Some(sender.scope()), spans }];
    let of_resource = ResourceSpans { resource: Some(sender.resource()), scope_spans };
    ExportTraceServiceRequest { resource_spans: vec![of_resource] }.encode_to_vec()
}

/// None without entropy for its id.
fn span(row: ViewRow<'_, SpanColumn>) -> Option<Span> {
    let mut span_id = vec![0; 8];
    getrandom::fill(&mut span_id).ok()?;
    let database = row.owned(SpanColumn::Database);
    let query = row.text(SpanColumn::Query);
    let end_ns = row.number(SpanColumn::EndUs).saturating_mul(1_000);
    let failed = row.number(SpanColumn::Failed) > 0;
    Some(Span {
        trace_id: bytes(row.text(SpanColumn::TraceId)?),
        span_id,
        parent_span_id: bytes(row.text(SpanColumn::ParentId)?),
        name: name(query, &database),
        kind: SPAN_KIND_SERVER,
        start_time_unix_nano: end_ns.saturating_sub(row.number(SpanColumn::TookUs).saturating_mul(1_000)),
        end_time_unix_nano: end_ns,
        attributes: attributes(row, database, query),
        status: failed.then_some(Status { code: STATUS_CODE_ERROR }),
    })
}

fn attributes(row: ViewRow<'_, SpanColumn>, database: String, query: Option<&str>) -> Vec<KeyValue> {
    let text = |key: &str, value: String| attribute(key, any_value::Value::StringValue(value));
    let seconds = |key: &str, column| {
        let us = row.number(column);
        #[expect(clippy::cast_precision_loss)]
        (us > 0).then(|| attribute(key, any_value::Value::DoubleValue(us as f64 / 1e6)))
    };
    let mut all = vec![
        text("db.system.name", "postgresql".to_owned()),
        text("db.namespace", database),
        text("db.user", row.owned(SpanColumn::User)),
    ];
    all.extend(query.map(|query| text("db.query.text", query.to_owned())));
    all.extend(seconds("weir.wait.queue", SpanColumn::QueueUs));
    all.extend(seconds("weir.wait.connect", SpanColumn::ConnectUs));
    all.extend(seconds("weir.wait.settings", SpanColumn::SettingsUs));
    all.extend(seconds("weir.wait.reader", SpanColumn::ReaderUs));
    all
}

fn attribute(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

/// The command and what it is asked of, as far as that says little.
fn name(query: Option<&str>, database: &str) -> String {
    let command = query.and_then(|query| query.split_whitespace().next());
    let is_word = |command: &&str| command.bytes().all(|byte| byte.is_ascii_alphabetic());
    match command.filter(is_word) {
        Some(command) => format!("{} {database}", command.to_ascii_uppercase()),
        None => database.to_owned(),
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .filter_map(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::rows_of;
    use messages::Cell;

    fn row(shard: u64, number: u64) -> Vec<(SpanColumn, Cell)> {
        vec![
            (SpanColumn::Shard, Cell::from(shard)),
            (SpanColumn::Number, Cell::Sum(number)),
            (SpanColumn::TraceId, "0af7651916cd43dd8448eb211c80319c".into()),
            (SpanColumn::ParentId, "b7ad6b7169203331".into()),
            (SpanColumn::Database, "shop".into()),
            (SpanColumn::EndUs, Cell::Sum(5_000)),
            (SpanColumn::TookUs, Cell::Sum(2_000)),
            (SpanColumn::QueueUs, Cell::Sum(500)),
            (SpanColumn::Failed, Cell::from(number % 2)),
            (SpanColumn::Query, "select ?".into()),
        ]
    }

    fn sent(sent_spans: &mut SentSpans, rows: &[Vec<(SpanColumn, Cell)>]) -> Vec<Span> {
        let rows: Vec<&[(SpanColumn, Cell)]> = rows.iter().map(Vec::as_slice).collect();
        let requests = sent_spans.requests(&rows_of(&rows), &OtlpResource::of_this_process());
        let decoded = requests
            .iter()
            .map(|request| ExportTraceServiceRequest::decode(&request[..]).expect("an OTLP request"));
        decoded.flat_map(|request| request.resource_spans[0].scope_spans[0].spans.clone()).collect()
    }

    #[test]
    fn each_span_is_sent_once() {
        let mut sent_spans = SentSpans::default();
        assert_eq!(sent(&mut sent_spans, &[row(0, 0), row(0, 1), row(1, 0)]).len(), 3);
        let more = sent(&mut sent_spans, &[row(0, 1), row(0, 2), row(1, 0), row(1, 7)]);
        assert_eq!(more.len(), 2);
        assert!(sent(&mut sent_spans, &[row(0, 2), row(1, 7)]).is_empty());
    }

    #[test]
    fn a_span_is_a_child_of_its_callers_with_its_waits() {
        let spans = sent(&mut SentSpans::default(), &[row(0, 0), row(0, 1)]);
        let first = &spans[0];
        assert_eq!((first.trace_id[0], first.parent_span_id[0], first.span_id.len()), (0x0a, 0xb7, 8));
        assert_eq!((first.start_time_unix_nano, first.end_time_unix_nano), (3_000_000, 5_000_000));
        assert_eq!((first.name.as_str(), &first.status), ("SELECT shop", &None));
        let has = |key: &str| first.attributes.iter().any(|attribute| attribute.key == key);
        assert!(has("weir.wait.queue") && !has("weir.wait.reader") && has("db.query.text"));
        assert_ne!(spans[0].span_id, spans[1].span_id);
        assert_eq!(spans[1].status.as_ref().map(|status| status.code), Some(STATUS_CODE_ERROR));
    }

    #[test]
    fn a_name_has_no_values_and_no_punctuation() {
        assert_eq!(name(Some("insert into t values (?)"), "d"), "INSERT d");
        assert_eq!(name(Some("(select ?)"), "d"), "d");
        assert_eq!(name(None, "d"), "d");
    }
}
