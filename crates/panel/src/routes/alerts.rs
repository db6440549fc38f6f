//! Alerts: what is wrong, since when, and what was.
//! Never raises one.

use std::sync::Arc;

use axum::Json;
use axum::extract;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Authorized, Read};
use crate::alerts::{Alert, AlertRegistry};
use crate::context::PanelContext;
use crate::failure::FailureBody;
use crate::routes::Routes;

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
async fn alerts(_: Authorized<Read>, extract::State(context): extract::State<PanelContext>,
    extract::State(alerts): extract::State<Arc<AlertRegistry>>) -> Json<Alerts> {
    let webhook = context.config().global.alert_webhook.is_some();
    Json(Alerts { alerts: alerts.all(), webhook })
}
