//! Figures as they come, once a second, and those of the last day.
//! Never takes a sample: `live` does, for everybody.

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

use crate::access::{May, Read};
use crate::events::{Events, stream};
use crate::failure::{Failure, FailureBody};
use crate::live::{DAY, Past, Sample, Span};
use crate::parameters::Parameters;
use crate::routes::Routes;
use crate::shared::State;
use crate::trail::Mark;

/// A stream ends after so many samples; browsers connect again by themselves.
const SAMPLES: u32 = 900;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(live)).routes(routes!(history))
}

/// Whose samples.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Watched {
    /// One database; else all.
    database: Option<String>,
}

/// Of what.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Of {
    /// One database; else the process.
    database: Option<String>,
    /// How much of the past, up to 86400: in steps of 1 s up to ten minutes ago, of 10 s up to two hours ago, else of a minute.
    seconds: Option<u64>,
    /// Instead: the first second, since 1970.
    from: Option<u64>,
    /// The last second; else the newest.
    to: Option<u64>,
    /// csv for a table of comma-separated values; so does the header Accept: text/csv.
    format: Option<Format>,
}

/// How a past is told.
#[derive(Clone, Copy, Deserialize, ToSchema, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Format {
    Csv,
    Json,
}

/// A past and what was done meanwhile.
#[derive(Serialize, ToSchema)]
struct History {
    #[serde(flatten)]
    past: Past,
    /// What changed something: edits, commands, reloads, starts and takeovers.
    marks: Vec<Mark>,
}

/// Server-sent events: a `sample` every second.
#[utoipa::path(get, path = "/api/v1/live", params(Watched), responses(
    (status = 200, body = Sample, content_type = "text/event-stream"), (status = 503, body = FailureBody)))]
async fn live(
    caller: May<Read>,
    extract::State(shared): State,
    Parameters(of): Parameters<Watched>,
) -> Result<Events<impl Stream<Item = Result<Event, Infallible>>>, Failure> {
    let place = Arc::clone(&shared.live.streams).try_acquire_owned();
    let place = place.map_err(|_| Failure::unavailable("as many are looking as can: 200"))?;
    let state = (shared.live.watch(), of.database, place, 0);
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
    Ok(stream(&shared, caller, events))
}

/// What was sampled, for a chart: a number for each step of time.
#[utoipa::path(get, path = "/api/v1/history", params(Of), responses(
    (status = 200, body = History), (status = 401, body = FailureBody)))]
async fn history(
    _: May<Read>,
    extract::State(shared): State,
    headers: HeaderMap,
    Parameters(of): Parameters<Of>,
) -> Response {
    let to = of.to.unwrap_or_else(|| shared.live.newest());
    let seconds = of.seconds.unwrap_or(600).clamp(1, DAY);
    let from = of.from.unwrap_or_else(|| (to + 1).saturating_sub(seconds));
    let past = shared.live.past(of.database.as_deref(), Span { from, to });
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    if of.format.map_or(accepts.is_some_and(|accepts| accepts.starts_with("text/csv")), |format| format == Format::Csv) {
        let disposition = (header::CONTENT_DISPOSITION, "attachment; filename=\"weir-history.csv\"");
        return ([(header::CONTENT_TYPE, "text/csv; charset=utf-8"), disposition], past.csv()).into_response();
    }
    let marks = shared.trail.marks(of.database.as_deref(), past.from, to);
    Json(History { past, marks }).into_response()
}

fn only(sample: &Sample, name: &str) -> Sample {
    Sample {
        t: sample.t,
        pools: sample.pools.iter().filter(|pool| pool.database == name).cloned().collect(),
        databases: sample.databases.iter().filter(|one| one.database == name).cloned().collect(),
        totals: sample.totals.clone(),
    }
}
