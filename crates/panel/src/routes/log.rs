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

use crate::access::{Access, Authorized, Read};
use crate::events::{Events, stream};
use crate::failure::Failure;
use crate::log_ring::{LogReaders, LogRing};
use crate::extract::QueryParameters;
use crate::routes::Routes;

/// Lines without a parameter.
const DEFAULT_LINES: usize = 200;

/// New lines are looked for as often as this.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(log)).routes(routes!(live))
}

/// How much of the log.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct LogQuery {
    /// The number of lines, the newest; 200 by default.
    lines: Option<usize>,
}

/// The end of the log.
#[derive(Serialize, ToSchema)]
struct LogLines {
    /// Oldest first, as they stand in the log.
    lines: Vec<String>,
}

/// The last lines of the log since the panel is on, 1,000 at most.
#[utoipa::path(get, path = "/api/v1/log", params(LogQuery), responses((status = 200, body = LogLines)))]
async fn log(
    _: Authorized<Read>,
    extract::State(log): extract::State<Arc<LogReaders>>,
    QueryParameters(wanted): QueryParameters<LogQuery>,
) -> Json<LogLines> {
    let lines = log.ring().last(wanted.lines.unwrap_or(DEFAULT_LINES));
    Json(LogLines { lines: lines.iter().map(ToString::to_string).collect() })
}

/// Each further line, as a server-sent event `line` whose data is the line as JSON.
#[utoipa::path(get, path = "/api/v1/log/live", operation_id = "log_live", responses(
    (status = 200, content_type = "text/event-stream", body = String), (status = 503, body = crate::failure::FailureBody)))]
async fn live(
    caller: Authorized<Read>,
    extract::State(access): extract::State<Arc<Access>>,
    extract::State(log): extract::State<Arc<LogReaders>>,
) -> Result<Events<Follow>, Failure> {
    let place = log.admit().ok_or(Failure::TooManyLogReaders)?;
    let log_ring = Arc::clone(log.ring());
    let from = log_ring.next();
    let follow = Follow { log_ring, from, next_unsent: VecDeque::new(), pace: interval(POLL_INTERVAL), _place: place };
    Ok(stream(&access, caller, follow))
}

/// The new lines for one reader.
struct Follow {
    log_ring: Arc<LogRing>,
    from: u64,
    next_unsent: VecDeque<Arc<str>>,
    pace: Interval,
    /// Returned when the reader disconnects.
    _place: OwnedSemaphorePermit,
}

impl Stream for Follow {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(line) = self.next_unsent.pop_front() {
                let data = serde_json::Value::from(&*line).to_string();
                return Poll::Ready(Some(Ok(Event::default().event("line").data(data))));
            }
            ready!(self.pace.poll_tick(context));
            let (lines, from) = self.log_ring.since(self.from);
            self.from = from;
            self.next_unsent = lines.into();
        }
    }
}
