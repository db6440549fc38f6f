//! What kinds of queries take, and what clients were told of: SHOW QUERIES and SHOW ERRORS as JSON.

use axum::Json;
use axum::extract;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{May, Read};
use crate::failure::Failure;
use crate::parameters::Parameters;
use crate::routes::Routes;
use crate::shared::State;
use crate::table::Row;

/// How many are listed where nothing is asked, and the most.
const USUAL_ROWS: usize = 100;
const MOST_ROWS: usize = 1_000;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(queries)).routes(routes!(errors))
}

/// Which, and how many.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Wanted {
    /// Of this database.
    database: Option<String>,
    /// What comes first is the largest: time (default), calls, mean or p95.
    sort: Option<String>,
    /// At most so many, up to 1,000.
    limit: Option<usize>,
}

/// Of which database.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Of {
    /// Of this database.
    database: Option<String>,
}

/// A kind of query.
#[derive(Serialize, ToSchema)]
struct Query {
    fingerprint: String,
    database: String,
    /// Without values.
    text: String,
    calls: u64,
    total_seconds: f64,
    mean_seconds: f64,
    p95_seconds: f64,
    errors: u64,
}

/// Kinds of queries.
#[derive(Serialize, ToSchema)]
struct Queries {
    queries: Vec<Query>,
    /// `track_queries` is on.
    tracking: bool,
}

/// How often clients of a database were told of an error.
#[derive(Serialize, ToSchema)]
struct Told {
    /// Five characters, or `other`.
    sqlstate: String,
    /// Empty for clients of no configured one.
    database: String,
    count: u64,
}

/// Errors by code.
#[derive(Serialize, ToSchema)]
struct Errors {
    errors: Vec<Told>,
}

/// Kinds of queries, the most expensive first.
#[utoipa::path(get, path = "/api/v1/queries", params(Wanted), responses(
    (status = 200, body = Queries), (status = 401, body = crate::failure::FailureBody)))]
async fn queries(
    _: May<Read>,
    extract::State(shared): State,
    Parameters(wanted): Parameters<Wanted>,
) -> Result<Json<Queries>, Failure> {
    let by: fn(&Query) -> f64 = match wanted.sort.as_deref() {
        None | Some("time") => |query| query.total_seconds,
        #[expect(clippy::cast_precision_loss)]
        Some("calls") => |query| query.calls as f64,
        Some("mean") => |query| query.mean_seconds,
        Some("p95") => |query| query.p95_seconds,
        Some(_) => return Err(Failure::unprocessable("sort is one of time, calls, mean, p95").of("sort")),
    };
    let table = shared.bridge.show("QUERIES").await?;
    let is_wanted = |row: &Row<'_>| is_of(*row, wanted.database.as_deref());
    let mut queries: Vec<Query> = table.iter().filter(is_wanted).map(query).collect();
    queries.sort_by(|one, other| by(other).total_cmp(&by(one)));
    queries.truncate(wanted.limit.unwrap_or(USUAL_ROWS).clamp(1, MOST_ROWS));
    Ok(Json(Queries { queries, tracking: shared.config().global.track_queries }))
}

/// Errors that clients were told of since the start.
#[utoipa::path(get, path = "/api/v1/errors", params(Of), responses(
    (status = 200, body = Errors), (status = 401, body = crate::failure::FailureBody)))]
async fn errors(
    _: May<Read>,
    extract::State(shared): State,
    Parameters(wanted): Parameters<Of>,
) -> Result<Json<Errors>, Failure> {
    let table = shared.bridge.show("ERRORS").await?;
    let told = |row: Row<'_>| Told {
        sqlstate: owned(row, "sqlstate"),
        database: owned(row, "database"),
        count: row.number("count"),
    };
    let is_wanted = |row: &Row<'_>| is_of(*row, wanted.database.as_deref());
    Ok(Json(Errors { errors: table.iter().filter(is_wanted).map(told).collect() }))
}

fn is_of(row: Row<'_>, database: Option<&str>) -> bool {
    database.is_none_or(|name| name.is_empty() || row.text("database") == Some(name))
}

fn owned(row: Row<'_>, name: &str) -> String {
    row.text(name).unwrap_or_default().to_owned()
}

fn query(row: Row<'_>) -> Query {
    #[expect(clippy::cast_precision_loss)]
    let seconds = |name| row.number(name) as f64 / 1e6;
    Query {
        fingerprint: owned(row, "fingerprint"),
        database: owned(row, "database"),
        text: owned(row, "query"),
        calls: row.number("calls"),
        total_seconds: seconds("total_us"),
        mean_seconds: seconds("mean_us"),
        p95_seconds: seconds("p95_us"),
        errors: row.number("errors"),
    }
}
