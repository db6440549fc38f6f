//! Alerts: what is wrong, since when, and what was.
//! Never raises one.

use axum::Json;
use axum::extract;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Authorized, Read};
use crate::alerts::Alert;
use crate::failure::FailureBody;
use crate::routes::Routes;
use crate::shared::State;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(alerts))
}

/// Those that hold, then those that are over; each the newest first.
#[derive(Serialize, ToSchema)]
struct Alerts {
    alerts: Vec<Alert>,
    /// They are posted to `alert_webhook`.
    webhook: bool,
}

/// Alerts: those that hold and the last 200 that are over.
#[utoipa::path(get, path = "/api/v1/alerts", responses((status = 200, body = Alerts), (status = 401, body = FailureBody)))]
async fn alerts(_: Authorized<Read>, extract::State(shared): State) -> Json<Alerts> {
    let webhook = shared.config().global.alert_webhook.is_some();
    Json(Alerts { alerts: shared.alerts.all(), webhook })
}
