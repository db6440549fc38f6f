//! What kinds of queries take, and what clients were told of: SHOW QUERIES and SHOW ERRORS as JSON.

use std::collections::BTreeMap;

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
use crate::time::rfc3339;

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
    /// What comes first is the largest: time (default), calls, mean, p95 or errors.
    sort: Option<String>,
    /// Queries whose text or fingerprint contains this, in any case.
    search: Option<String>,
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
pub(crate) struct Query {
    pub(crate) fingerprint: String,
    database: String,
    /// Without values.
    text: String,
    calls: u64,
    total_seconds: f64,
    mean_seconds: f64,
    p95_seconds: f64,
    max_seconds: f64,
    errors: u64,
    /// Of the time of all queries of its database, between 0 and 1.
    share: f64,
    /// When its first run was counted, RFC 3339.
    since: String,
}

impl Query {
    /// Its text or fingerprint contains this, which is in lower case.
    fn has(&self, search: &str) -> bool {
        self.text.to_lowercase().contains(search) || self.fingerprint.contains(search)
    }

    /// Gives each its share of its database's time.
    pub(crate) fn share(queries: &mut [Query]) {
        let mut sums: BTreeMap<String, f64> = BTreeMap::new();
        for query in queries.iter() {
            *sums.entry(query.database.clone()).or_default() += query.total_seconds;
        }
        for query in queries {
            let sum = sums.get(&query.database).copied().unwrap_or_default();
            query.share = if sum > 0.0 { query.total_seconds / sum } else { 0.0 };
        }
    }
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
        #[expect(clippy::cast_precision_loss)]
        Some("errors") => |query| query.errors as f64,
        Some("p95") => |query| query.p95_seconds,
        Some(_) => return Err(Failure::unprocessable("sort is one of time, calls, mean, p95, errors").of("sort")),
    };
    let table = shared.bridge.show("QUERIES").await?;
    let search = wanted.search.unwrap_or_default().to_lowercase();
    let is_wanted = |row: &Row<'_>| is_of(*row, wanted.database.as_deref());
    let mut queries: Vec<Query> = table.iter().filter(is_wanted).map(query).collect();
    Query::share(&mut queries);
    queries.retain(|query| query.has(&search));
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

pub(crate) fn query(row: Row<'_>) -> Query {
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
        max_seconds: seconds("max_us"),
        errors: row.number("errors"),
        share: 0.0,
        since: rfc3339(row.text("since")),
    }
}
