//! `/metrics` for Prometheus: with a token of scope read, or without a login if `http_metrics_open` is set.

use axum::extract::{Request, State as Extract};
use axum::http::header;
use axum::response::IntoResponse;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Read;
use crate::failure::Failure;
use crate::routes::Routes;
use crate::shared::State;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(metrics))
}

/// Everything that is measured, in Prometheus' text format.
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, body = String), (status = 401, body = crate::failure::FailureBody)))]
async fn metrics(Extract(shared): State, request: Request) -> Result<impl IntoResponse, Failure> {
    if !shared.config().global.http_metrics_open {
        shared.access.authorize::<Read>(&request)?;
    }
    let page = crate::metrics::page(&shared).await?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page))
}
