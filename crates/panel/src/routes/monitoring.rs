//! What monitoring asks for: liveness and readiness without a login, and `/metrics` for Prometheus, with a token of scope read or,
//! if `http_metrics_open` is set, without a login. Never counts anything itself.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header;
use axum::response::IntoResponse;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Access, Read};
use crate::context::PanelContext;
use crate::control_client::ControlClient;
use crate::failure::Failure;
use crate::metrics::MetricsSource;
use crate::routes::Routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(healthz)).routes(routes!(readyz)).routes(routes!(metrics))
}

/// The process lives.
#[utoipa::path(get, path = "/healthz", responses((status = 200, body = String)))]
async fn healthz() -> &'static str {
    "ok\n"
}

/// Shards answer, and the process neither drains nor is about to end.
#[utoipa::path(get, path = "/readyz", responses(
    (status = 200, body = String), (status = 503, body = crate::failure::FailureBody)))]
async fn readyz(
    State(context): State<PanelContext>,
    State(control_client): State<Arc<ControlClient>>,
) -> Result<&'static str, Failure> {
    if context.is_shutting_down() {
        return Err(Failure::ShuttingDown);
    }
    if context.is_draining() {
        return Err(Failure::Draining);
    }
    control_client.show(control::SHARDS).await?;
    Ok("ready\n")
}

/// Everything that is measured, in Prometheus' text format.
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, body = String), (status = 401, body = crate::failure::FailureBody)))]
async fn metrics(
    State(context): State<PanelContext>,
    State(access): State<Arc<Access>>,
    State(metrics): State<MetricsSource>,
    request: Request,
) -> Result<impl IntoResponse, Failure> {
    if !context.config().global.http_metrics_open {
        access.authorize::<Read>(&request)?;
    }
    let page = metrics.page().await?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page))
}
