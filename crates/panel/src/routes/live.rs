//! Figures as they come, once a second, and those of the last day.
//! Never takes a sample: `live` does, once for all.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::extract;
use axum::http::{HeaderMap, header};
use axum::response::sse::Event;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{Stream, unfold};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Access, Authorized, Read};
use crate::events::{Events, stream};
use crate::failure::{Failure, FailureBody};
use crate::live::{HistorySeries, LiveSample, LiveSampler, TimeSpan};
use crate::extract::QueryParameters;
use crate::gauges::Gauges;
use crate::routes::Routes;
use crate::routes::audit::all_marks;
use crate::audit_trail::{AuditTrail, Mark};

/// A stream ends after this many samples; browsers reconnect by themselves.
const SAMPLES: u32 = 900;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(live)).routes(routes!(history))
}

/// Whose samples.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct LiveQuery {
    /// One database; else all.
    database: Option<String>,
}

/// Of what.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct HistoryQuery {
    /// One database; else the process.
    database: Option<String>,
    /// How much of the series, up to 86400: in steps of 1 s up to ten minutes ago, of 10 s up to two hours ago, else of a minute.
    seconds: Option<u64>,
    /// Instead: the first second, since 1970.
    from: Option<u64>,
    /// The last second; else the newest.
    to: Option<u64>,
    /// csv for a table of comma-separated values; so does the header Accept: text/csv.
    #[param(inline)]
    format: Option<HistoryFormat>,
}

/// The format of a history.
#[derive(Clone, Copy, Deserialize, ToSchema, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(super) enum HistoryFormat {
    Csv,
    Json,
}

impl HistoryFormat {
    /// A table was asked for, by the parameter or by the header Accept.
    pub(super) fn is_csv(given: Option<HistoryFormat>, headers: &HeaderMap) -> bool {
        let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
        let wants_csv = accepts.is_some_and(|accepts| accepts.starts_with("text/csv"));
        given.map_or(wants_csv, |format| format == HistoryFormat::Csv)
    }
}

/// A table as a file of this name.
pub(super) fn csv_response(file: &str, text: String) -> Response {
    let disposition = format!("attachment; filename=\"{file}\"");
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()),
        (header::CONTENT_DISPOSITION, disposition),
    ];
    (headers, text).into_response()
}

/// A series and what was done meanwhile.
#[derive(Serialize, ToSchema)]
struct History {
    #[serde(flatten)]
    series: HistorySeries,
    /// What changed something: edits, commands, reloads, starts and takeovers, and sizes that pools have found.
    marks: Vec<Mark>,
}

/// Server-sent events: a `sample` every second.
#[utoipa::path(get, path = "/api/v1/live", params(LiveQuery), responses(
    (status = 200, body = LiveSample, content_type = "text/event-stream"), (status = 503, body = FailureBody)))]
async fn live(
    caller: Authorized<Read>,
    extract::State(access): extract::State<Arc<Access>>,
    extract::State(sampler): extract::State<Arc<LiveSampler>>,
    QueryParameters(of): QueryParameters<LiveQuery>,
) -> Result<Events<impl Stream<Item = Result<Event, Infallible>>>, Failure> {
    let place = sampler.admit().ok_or(Failure::TooManyStreams)?;
    let state = (sampler.watch(), of.database, place, 0);
    let events = unfold(state, async |(mut samples, database, place, sent)| {
        if sent == SAMPLES || samples.changed().await.is_err() {
            return None;
        }
        let sample = Arc::clone(&samples.borrow_and_update());
        let event = Event::default().event("sample");
        let event = match &database {
            None => event.json_data(&*sample),
            Some(name) => event.json_data(only(&sample, name)),
        };
        Some((Ok(event.unwrap_or_default()), (samples, database, place, sent + 1)))
    });
    Ok(stream(&access, caller, events))
}

/// What was sampled, for a chart: a number for each step of time.
#[utoipa::path(get, path = "/api/v1/history", params(HistoryQuery), responses(
    (status = 200, body = History), (status = 401, body = FailureBody)))]
async fn history(
    _: Authorized<Read>,
    extract::State(sampler): extract::State<Arc<LiveSampler>>,
    extract::State(audit_trail): extract::State<Arc<AuditTrail>>,
    extract::State(gauges): extract::State<Arc<Gauges>>,
    headers: HeaderMap,
    QueryParameters(of): QueryParameters<HistoryQuery>,
) -> Response {
    let span = TimeSpan::asked(of.seconds, of.from, of.to, sampler.newest());
    let series = sampler.series(of.database.as_deref(), span);
    if HistoryFormat::is_csv(of.format, &headers) {
        return csv_response("weir-history.csv", series.csv());
    }
    let marks = all_marks(&audit_trail, &gauges, of.database.as_deref(), series.from, span.to);
    Json(History { series, marks }).into_response()
}

fn only(sample: &LiveSample, name: &str) -> LiveSample {
    LiveSample {
        t: sample.t,
        pools: sample.pools.iter().filter(|pool| pool.database == name).cloned().collect(),
        databases: sample.databases.iter().filter(|one| one.database == name).cloned().collect(),
        hosts: sample.hosts.iter().filter(|host| host.database == name).cloned().collect(),
        totals: sample.totals.clone(),
    }
}
