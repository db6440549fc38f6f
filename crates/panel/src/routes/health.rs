//! Liveness and readiness for monitoring, without a login.
//! Never says more than that.

use axum::extract;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::failure::Failure;
use crate::routes::Routes;
use crate::shared::State;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(healthz)).routes(routes!(readyz))
}

/// The process lives.
#[utoipa::path(get, path = "/healthz", responses((status = 200, body = String)))]
async fn healthz() -> &'static str {
    "ok\n"
}

/// Shards answer, and the process is not about to end.
#[utoipa::path(get, path = "/readyz", responses(
    (status = 200, body = String), (status = 503, body = crate::failure::FailureBody)))]
async fn readyz(extract::State(shared): State) -> Result<&'static str, Failure> {
    if shared.panel_state.borrow().is_shutting_down {
        return Err(Failure::unavailable("the pooler is shutting down"));
    }
    shared.control_client.show(control::SHARDS).await?;
    Ok("ready\n")
}
