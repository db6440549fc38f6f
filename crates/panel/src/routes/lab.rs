//! The lab: runs begun, watched, interrupted, read.
//! Never runs anything but the lab's own workloads, which `lab` sees to.

use std::collections::BTreeMap;
use std::convert::Infallible;

use axum::extract::{self, Path};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::sse::Event;
use axum::Json;
use control::{PoolChange, PoolSpec, RequestedSize};
use futures_util::stream::{Stream, unfold};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Access, Admin, Authorized, Read};
use crate::context::PanelContext;
use crate::extract::JsonBody;
use crate::events::{Events, stream};
use crate::failure::{Failure, FailureBody};
use crate::lab::{LabRun, LabRunView, LabRunner, REPORT, StartRun};
use crate::live::LiveSampler;
use crate::pool_service::PoolService;
use crate::routes::Routes;

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
    /// What to install before a run can begin; null where the lab is installed.
    #[schema(required)]
    missing: Option<String>,
}

/// One run.
#[derive(Serialize, ToSchema)]
struct LabRunResponse {
    run: LabRunView,
}

/// The runs that are remembered.
#[utoipa::path(get, path = "/api/v1/lab/runs", operation_id = "lab_runs", responses(
    (status = 200, body = LabRuns), (status = 401, body = FailureBody)))]
async fn runs(_: Authorized<Read>, extract::State(lab): extract::State<Arc<LabRunner>>) -> Json<LabRuns> {
    Json(LabRuns { runs: lab.all().iter().map(|run| run.view()).collect(), missing: lab.missing() })
}

/// Begins a run; there is one at a time.
#[utoipa::path(post, path = "/api/v1/lab/runs", operation_id = "begin_lab_run", request_body = StartRun, responses(
    (status = 201, body = LabRunResponse), (status = 403, body = FailureBody), (status = 409, body = FailureBody), (status = 422, body = FailureBody), (status = 501, body = FailureBody)))]
async fn begin(
    _: Authorized<Admin>,
    extract::State(context): extract::State<PanelContext>,
    extract::State(lab): extract::State<Arc<LabRunner>>,
    JsonBody(request): JsonBody<StartRun>,
) -> Result<(StatusCode, Json<LabRunResponse>), Failure> {
    let config = context.config();
    if !config.global.http_lab {
        return Err(Failure::LabDisabled);
    }
    let command = request.command(&config)?;
    let run = lab.start(request, &command)?;
    Ok((StatusCode::CREATED, Json(LabRunResponse { run: run.view() })))
}

/// One run.
#[utoipa::path(get, path = "/api/v1/lab/runs/{id}", operation_id = "lab_run", params(("id" = String, Path)), responses(
    (status = 200, body = LabRunResponse), (status = 404, body = FailureBody)))]
async fn run(_: Authorized<Read>, extract::State(lab): extract::State<Arc<LabRunner>>, Path(id): Path<String>) -> Result<Json<LabRunResponse>, Failure> {
    Ok(Json(LabRunResponse { run: found(&lab, &id)?.view() }))
}

/// Interrupts a run; what was measured is kept.
#[utoipa::path(delete, path = "/api/v1/lab/runs/{id}", operation_id = "interrupt_lab_run", params(("id" = String, Path)), responses(
    (status = 204), (status = 404, body = FailureBody)))]
async fn interrupt(
    _: Authorized<Admin>,
    extract::State(lab): extract::State<Arc<LabRunner>>,
    Path(id): Path<String>,
) -> Result<StatusCode, Failure> {
    found(&lab, &id)?.interrupt();
    Ok(StatusCode::NO_CONTENT)
}

/// Server-sent events: what a run has said and says, a `progress` each, as `weir-bench --progress json` does; it ends with the run.
#[utoipa::path(get, path = "/api/v1/lab/runs/{id}/events", operation_id = "lab_run_events", params(("id" = String, Path)), responses(
    (status = 200, content_type = "text/event-stream", body = String), (status = 404, body = FailureBody)))]
async fn events(
    caller: Authorized<Read>,
    extract::State(access): extract::State<Arc<Access>>,
    extract::State(live): extract::State<Arc<LiveSampler>>,
    extract::State(lab): extract::State<Arc<LabRunner>>,
    Path(id): Path<String>,
) -> Result<Events<impl Stream<Item = Result<Event, Infallible>>>, Failure> {
    let run = found(&lab, &id)?;
    let place = live.admit().ok_or(Failure::TooManyStreams)?;
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
    Ok(stream(&access, caller, events))
}

/// The page that a run has written.
#[utoipa::path(get, path = "/api/v1/lab/runs/{id}/report", operation_id = "lab_run_report", params(("id" = String, Path)), responses(
    (status = 200, content_type = "text/html", body = String), (status = 404, body = FailureBody)))]
async fn report(
    _: Authorized<Read>,
    extract::State(lab): extract::State<Arc<LabRunner>>,
    Path(id): Path<String>,
) -> Result<([(HeaderName, &'static str); 2], Vec<u8>), Failure> {
    let run = found(&lab, &id)?;
    let read = tokio::task::spawn_blocking(move || run.read(REPORT, MAX_REPORT_BYTES).ok().flatten());
    let page = read.await.map_err(|_| Failure::ServerError)?.ok_or(Failure::NotFound)?;
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
    extract::State(lab): extract::State<Arc<LabRunner>>,
    extract::State(pools): extract::State<PoolService>,
    Path(id): Path<String>,
    JsonBody(meant): JsonBody<ApplySize>,
) -> Result<StatusCode, Failure> {
    let size = found(&lab, &id)?.advised_size();
    let size = size.ok_or(Failure::NoAdvice)?;
    let config = pools.config();
    let pool = config.databases.get(&meant.pool).ok_or(Failure::NotFound)?;
    let change = PoolChange::Update(PoolSpec {
        name: meant.pool,
        cluster: None,
        db: pool.dbname.clone(),
        user: pool.user.clone(),
        mode: config.pool_mode(pool, None).word().to_owned(),
        size: RequestedSize::Fixed(size.into()),
        settings: BTreeMap::new(),
    });
    pools.change(change, false, false).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn found(lab: &LabRunner, id: &str) -> Result<Arc<LabRun>, Failure> {
    lab.find(id).ok_or(Failure::NotFound)
}
