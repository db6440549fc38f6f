//! The audit trail, and the marks that charts have of it.
//! Never notes anything itself.

use std::sync::Arc;

use axum::Json;
use axum::extract;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Admin, Authorized, Read};
use crate::failure::FailureBody;
use crate::gauges::Gauges;
use crate::live::DAY;
use crate::extract::QueryParameters;
use crate::routes::Routes;
use crate::time::now_us;
use crate::audit_trail::{AuditEntryView, AuditTrail, MAX_ENTRIES, Mark};

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(audit)).routes(routes!(marks))
}

/// Which entries.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct AuditQuery {
    /// The number of entries, up to 2000.
    limit: Option<usize>,
    /// Only those before the entry with this number.
    before: Option<u64>,
}

/// The newest first.
#[derive(Serialize, ToSchema)]
struct AuditEntries {
    entries: Vec<AuditEntryView>,
}

/// The audit trail: the last 2000 logins, changes and commands.
#[utoipa::path(get, path = "/api/v1/audit", params(AuditQuery), responses(
    (status = 200, body = AuditEntries), (status = 403, body = FailureBody)))]
async fn audit(
    _: Authorized<Admin>,
    extract::State(audit_trail): extract::State<Arc<AuditTrail>>,
    QueryParameters(wanted): QueryParameters<AuditQuery>,
) -> Json<AuditEntries> {
    let most = wanted.limit.unwrap_or(100).min(MAX_ENTRIES);
    Json(AuditEntries { entries: audit_trail.newest(wanted.before, most) })
}

/// Of what.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct MarksQuery {
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

/// What changed something between two seconds, the oldest first: what was done, and sizes that pools have found.
pub(super) fn all_marks(audit_trail: &AuditTrail, gauges: &Gauges, database: Option<&str>, from: u64, to: u64) -> Vec<Mark> {
    let mut marks = audit_trail.marks(database, from, to);
    marks.extend(gauges.size_marks(database, from, to));
    marks.sort_by(|one, other| one.t.total_cmp(&other.t));
    marks
}

/// Recent changes: edits, commands, reloads, starts and takeovers, and sizes that pools with `pool_size = auto` have found.
#[utoipa::path(get, path = "/api/v1/marks", params(MarksQuery), responses(
    (status = 200, body = Marks), (status = 401, body = FailureBody)))]
async fn marks(_: Authorized<Read>, extract::State(audit_trail): extract::State<Arc<AuditTrail>>, extract::State(gauges): extract::State<Arc<Gauges>>, QueryParameters(of): QueryParameters<MarksQuery>) -> Json<Marks> {
    let to = now_us() / 1_000_000 + 1;
    let from = to.saturating_sub(of.seconds.unwrap_or(600).clamp(1, DAY));
    Json(Marks { marks: all_marks(&audit_trail, &gauges, of.database.as_deref(), from, to) })
}
