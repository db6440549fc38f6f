//! The end of the log: its last lines, and each further one as an event. Never reads the file.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::response::sse::Event;
use axum::{Json, extract};
use futures_core::Stream;
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Interval, interval};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{May, Read};
use crate::events::{Events, stream};
use crate::failure::Failure;
use crate::journal::Journal;
use crate::parameters::Parameters;
use crate::routes::Routes;
use crate::shared::State;

/// How many lines are told where nobody says how many.
const USUAL_LINES: usize = 200;

/// New lines are looked for as often as this.
const PACE: Duration = Duration::from_millis(300);

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(log)).routes(routes!(live))
}

/// How much of the log.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Wanted {
    /// At most so many lines, the newest; 200 if nothing is said.
    lines: Option<usize>,
}

/// The end of the log.
#[derive(Serialize, ToSchema)]
struct Lines {
    /// Oldest first, as they stand in the log.
    lines: Vec<String>,
}

/// The last lines of the log since the panel is on, 1,000 at most.
#[utoipa::path(get, path = "/api/v1/log", params(Wanted), responses((status = 200, body = Lines)))]
async fn log(
    _: May<Read>,
    extract::State(shared): State,
    Parameters(wanted): Parameters<Wanted>,
) -> Json<Lines> {
    let lines = shared.journal.last(wanted.lines.unwrap_or(USUAL_LINES));
    Json(Lines { lines: lines.iter().map(ToString::to_string).collect() })
}

/// Each further line, as a server-sent event `line` whose data is the line as JSON.
#[utoipa::path(get, path = "/api/v1/log/live", responses(
    (status = 200, content_type = "text/event-stream", body = String), (status = 503, body = crate::failure::FailureBody)))]
async fn live(caller: May<Read>, extract::State(shared): State) -> Result<Events<Follow>, Failure> {
    let Ok(place) = Arc::clone(&shared.log_readers).try_acquire_owned() else {
        return Err(Failure::unavailable("too many follow the log already"));
    };
    let journal = Arc::clone(&shared.journal);
    let from = journal.next();
    let follow = Follow { journal, from, untold: VecDeque::new(), pace: interval(PACE), _place: place };
    Ok(stream(&shared, caller, follow))
}

/// Tells one reader what is new.
struct Follow {
    journal: Arc<Journal>,
    from: u64,
    untold: VecDeque<Arc<str>>,
    pace: Interval,
    /// Among those who may follow; given back when the reader leaves.
    _place: OwnedSemaphorePermit,
}

impl Stream for Follow {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(line) = self.untold.pop_front() {
                let data = serde_json::Value::from(&*line).to_string();
                return Poll::Ready(Some(Ok(Event::default().event("line").data(data))));
            }
            ready!(self.pace.poll_tick(context));
            let (lines, from) = self.journal.since(self.from);
            self.from = from;
            self.untold = lines.into();
        }
    }
}
