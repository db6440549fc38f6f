//! The audit trail, and the marks that charts have of it.
//! Never notes anything itself.

use axum::Json;
use axum::extract;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Admin, May, Read};
use crate::failure::FailureBody;
use crate::live::DAY;
use crate::parameters::Parameters;
use crate::routes::Routes;
use crate::shared::State;
use crate::time::now_us;
use crate::trail::{EntryView, MOST, Mark};

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(audit)).routes(routes!(marks))
}

/// Which entries.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Wanted {
    /// At most so many, up to 2000.
    limit: Option<usize>,
    /// Only those before the entry with this number.
    before: Option<u64>,
}

/// The newest first.
#[derive(Serialize, ToSchema)]
struct Entries {
    entries: Vec<EntryView>,
}

/// Who did what: the last 2000 logins, changes and commands.
#[utoipa::path(get, path = "/api/v1/audit", params(Wanted), responses(
    (status = 200, body = Entries), (status = 403, body = FailureBody)))]
async fn audit(
    _: May<Admin>,
    extract::State(shared): State,
    Parameters(wanted): Parameters<Wanted>,
) -> Json<Entries> {
    let most = wanted.limit.unwrap_or(100).min(MOST);
    Json(Entries { entries: shared.trail.newest(wanted.before, most) })
}

/// Of what.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Of {
    /// One database; else all.
    database: Option<String>,
    /// How much of the past, up to 86400.
    seconds: Option<u64>,
}

/// The oldest first.
#[derive(Serialize, ToSchema)]
struct Marks {
    marks: Vec<Mark>,
}

/// What changed something of late: edits, commands, reloads, starts and takeovers.
#[utoipa::path(get, path = "/api/v1/marks", params(Of), responses(
    (status = 200, body = Marks), (status = 401, body = FailureBody)))]
async fn marks(_: May<Read>, extract::State(shared): State, Parameters(of): Parameters<Of>) -> Json<Marks> {
    let to = now_us() / 1_000_000 + 1;
    let from = to.saturating_sub(of.seconds.unwrap_or(600).clamp(1, DAY));
    Json(Marks { marks: shared.trail.marks(of.database.as_deref(), from, to) })
}
