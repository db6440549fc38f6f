//! The lab: runs begun, watched, interrupted, read.
//! Never runs anything but the lab's own workloads, which `lab` sees to.

use std::convert::Infallible;

use axum::extract::{self, Path};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::sse::Event;
use axum::Json;
use control::{PoolChange, PoolSpec};
use futures_util::stream::{Stream, unfold};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Admin, Authorized, Read};
use crate::extract::JsonBody;
use crate::events::{Events, stream};
use crate::failure::{Failure, FailureBody};
use crate::inventory::Inventory;
use crate::lab::{REPORT, LabRun, LabRunView, StartRun};
use crate::routes::Routes;
use crate::routes::pools::server_of;
use crate::shared::{Shared, State};

/// A page of the lab has its own style and pictures, no script, and is shown in a frame of the panel's.
const POLICY: &str = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'";

/// A longer report is not the lab's.
const MAX_REPORT_BYTES: u64 = 32 << 20;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(runs, begin))
        .routes(routes!(run, interrupt))
        .routes(routes!(events))
        .routes(routes!(report))
        .routes(routes!(apply))
}

/// All runs, the newest first.
#[derive(Serialize, ToSchema)]
struct LabRuns {
    runs: Vec<LabRunView>,
}

/// One run.
#[derive(Serialize, ToSchema)]
struct LabRunResponse {
    run: LabRunView,
}

/// The runs that are remembered.
#[utoipa::path(get, path = "/api/v1/lab/runs", operation_id = "lab_runs", responses(
    (status = 200, body = LabRuns), (status = 401, body = FailureBody)))]
async fn runs(_: Authorized<Read>, extract::State(shared): State) -> Json<LabRuns> {
    Json(LabRuns { runs: shared.lab.all().iter().map(|run| run.view()).collect() })
}

/// Begins a run; there is one at a time.
#[utoipa::path(post, path = "/api/v1/lab/runs", operation_id = "begin_lab_run", request_body = StartRun, responses(
    (status = 201, body = LabRunResponse), (status = 403, body = FailureBody), (status = 409, body = FailureBody), (status = 422, body = FailureBody)))]
async fn begin(
    _: Authorized<Admin>,
    extract::State(shared): State,
    JsonBody(request): JsonBody<StartRun>,
) -> Result<(StatusCode, Json<LabRunResponse>), Failure> {
    let config = shared.config();
    if !config.global.http_lab {
        return Err(Failure::forbidden("the lab is disabled: http_lab is 0"));
    }
    let command = request.command(&config, shared.lab.workloads)?;
    let run = shared.lab.start(request, &command)?;
    Ok((StatusCode::CREATED, Json(LabRunResponse { run: run.view() })))
}

/// One run.
#[utoipa::path(get, path = "/api/v1/lab/runs/{id}", operation_id = "lab_run", params(("id" = String, Path)), responses(
    (status = 200, body = LabRunResponse), (status = 404, body = FailureBody)))]
async fn run(_: Authorized<Read>, extract::State(shared): State, Path(id): Path<String>) -> Result<Json<LabRunResponse>, Failure> {
    Ok(Json(LabRunResponse { run: found(&shared, &id)?.view() }))
}

/// Interrupts a run; what was measured is kept.
#[utoipa::path(delete, path = "/api/v1/lab/runs/{id}", operation_id = "interrupt_lab_run", params(("id" = String, Path)), responses(
    (status = 204), (status = 404, body = FailureBody)))]
async fn interrupt(
    _: Authorized<Admin>,
    extract::State(shared): State,
    Path(id): Path<String>,
) -> Result<StatusCode, Failure> {
    found(&shared, &id)?.interrupt();
    Ok(StatusCode::NO_CONTENT)
}

/// Server-sent events: what a run has said and says, a `progress` each, as `weir bench --progress json` does; it ends with the run.
#[utoipa::path(get, path = "/api/v1/lab/runs/{id}/events", operation_id = "lab_run_events", params(("id" = String, Path)), responses(
    (status = 200, content_type = "text/event-stream", body = String), (status = 404, body = FailureBody)))]
async fn events(
    caller: Authorized<Read>,
    extract::State(shared): State,
    Path(id): Path<String>,
) -> Result<Events<impl Stream<Item = Result<Event, Infallible>>>, Failure> {
    let run = found(&shared, &id)?;
    let place = Arc::clone(&shared.live.streams).try_acquire_owned();
    let place = place.map_err(|_| Failure::unavailable("too many streams are open: 200"))?;
    let state = (run.changes(), run, place, 0);
    let events = unfold(state, async |(mut changes, run, place, next)| {
        loop {
            changes.mark_unchanged();
            match run.line(next) {
                Ok((line, next)) => {
                    let event = Event::default().event("progress").data(&*line);
                    return Some((Ok(event), (changes, run, place, next)));
                }
                Err(false) => return None,
                Err(true) => changes.changed().await.ok()?,
            }
        }
    });
    Ok(stream(&shared, caller, events))
}

/// The page that a run has written.
#[utoipa::path(get, path = "/api/v1/lab/runs/{id}/report", operation_id = "lab_run_report", params(("id" = String, Path)), responses(
    (status = 200, content_type = "text/html", body = String), (status = 404, body = FailureBody)))]
async fn report(
    _: Authorized<Read>,
    extract::State(shared): State,
    Path(id): Path<String>,
) -> Result<([(HeaderName, &'static str); 2], Vec<u8>), Failure> {
    let run = found(&shared, &id)?;
    let read = tokio::task::spawn_blocking(move || run.read(REPORT, MAX_REPORT_BYTES).ok().flatten());
    let page = read.await.map_err(|_| Failure::server_error())?.ok_or_else(Failure::not_found)?;
    let head = [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, POLICY)];
    Ok((head, page))
}

/// The pool that is meant.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ApplySize {
    pool: String,
}

/// Gives the advised size to a pool, as if it were edited by hand.
#[utoipa::path(post, path = "/api/v1/lab/runs/{id}/apply", operation_id = "apply_lab_run", request_body = ApplySize, params(("id" = String, Path)), responses(
    (status = 204), (status = 403, body = FailureBody), (status = 404, body = FailureBody), (status = 409, body = FailureBody), (status = 422, body = FailureBody)))]
async fn apply(
    _: Authorized<Admin>,
    extract::State(shared): State,
    Path(id): Path<String>,
    JsonBody(meant): JsonBody<ApplySize>,
) -> Result<StatusCode, Failure> {
    let size = found(&shared, &id)?.advised_size();
    let size = size.ok_or_else(|| Failure::conflict("the run advises no size"))?;
    let config = shared.config();
    let pool = config.databases.get(&meant.pool).ok_or_else(Failure::not_found)?;
    let change = PoolChange::Update(PoolSpec {
        name: meant.pool,
        cluster: None,
        db: pool.dbname.clone(),
        user: pool.user.clone(),
        mode: config.pool_mode(pool, None).word().to_owned(),
        size: size.into(),
    });
    let inventory = Inventory::load(&shared).await?;
    let server = server_of(&shared, &inventory, &change).await;
    shared.pools.change(change, false, server).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn found(shared: &Shared, id: &str) -> Result<Arc<LabRun>, Failure> {
    shared.lab.find(id).ok_or_else(Failure::not_found)
}
