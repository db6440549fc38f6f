//! Figures as they come, once a second, and those of the last ten minutes.
//! Never takes a sample: `live` does, for everybody.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract;
use axum::response::sse::Event;
use axum::Json;
use futures_util::stream::{Stream, unfold};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{May, Read};
use crate::events::{Events, stream};
use crate::failure::{Failure, FailureBody};
use crate::live::{Past, Sample};
use crate::parameters::Parameters;
use crate::routes::Routes;
use crate::shared::State;

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
    /// How much of the past, up to 600.
    seconds: Option<usize>,
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

/// A number a second of what is sampled, for a chart.
#[utoipa::path(get, path = "/api/v1/history", params(Of), responses(
    (status = 200, body = Past), (status = 401, body = FailureBody)))]
async fn history(
    _: May<Read>,
    extract::State(shared): State,
    Parameters(of): Parameters<Of>,
) -> Json<Past> {
    Json(shared.live.past(of.database.as_deref(), of.seconds.unwrap_or(600)))
}

fn only(sample: &Sample, name: &str) -> Sample {
    Sample {
        t: sample.t,
        pools: sample.pools.iter().filter(|pool| pool.database == name).cloned().collect(),
        databases: sample.databases.iter().filter(|one| one.database == name).cloned().collect(),
        totals: sample.totals.clone(),
    }
}
