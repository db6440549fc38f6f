//! Statistics by query and errors by code: SHOW QUERIES and SHOW ERRORS as JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract;
use control::{ERRORS, ErrorColumn, QUERIES, QueryColumn};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Authorized, Read};
use crate::context::PanelContext;
use crate::control_client::ControlClient;
use crate::failure::Failure;
use crate::extract::QueryParameters;
use crate::routes::Routes;
use crate::table::ViewRow;
use crate::time::rfc3339;

/// How many are listed where nothing is asked, and the most.
const DEFAULT_ROWS: usize = 100;
const MAX_ROWS: usize = 1_000;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(queries)).routes(routes!(errors))
}

/// Which, and how many.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct QueriesQuery {
    /// Of this database.
    database: Option<String>,
    /// The largest first: time (default), calls, mean, p95 or errors.
    sort: Option<String>,
    /// Queries whose text or fingerprint contains this, in any case.
    search: Option<String>,
    /// The number of rows, up to 1,000.
    limit: Option<usize>,
}

/// Of which database.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ErrorsQuery {
    /// Of this database.
    database: Option<String>,
}

/// A kind of query.
#[derive(Serialize, ToSchema)]
pub(crate) struct QueryView {
    pub(crate) fingerprint: String,
    database: String,
    /// Without values.
    text: String,
    calls: u64,
    total_seconds: f64,
    mean_seconds: f64,
    p95_seconds: f64,
    max_seconds: f64,
    /// What its clients waited for beside it, in all: server connections that others had, new ones, their settings on these, and themselves, while they
    /// did not read its answers.
    queue_seconds: f64,
    connect_seconds: f64,
    settings_seconds: f64,
    reader_seconds: f64,
    /// What servers were found waiting for in it, in all (`track_lock_waits`): part of its time.
    lock_seconds: f64,
    io_seconds: f64,
    other_seconds: f64,
    errors: u64,
    /// Of the time of all queries of its database, between 0 and 1.
    share: f64,
    /// When its first run was counted, RFC 3339.
    since: String,
}

impl QueryView {
    /// Its text or fingerprint contains this, which is in lower case.
    fn has(&self, search: &str) -> bool {
        self.text.to_lowercase().contains(search) || self.fingerprint.contains(search)
    }

    /// Gives each its share of its database's time.
    pub(crate) fn share(queries: &mut [QueryView]) {
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
    queries: Vec<QueryView>,
    /// `track_queries` is on.
    tracking: bool,
}

/// How many errors of one code clients of a database received.
#[derive(Serialize, ToSchema)]
struct ErrorCount {
    /// Five characters, or `other`.
    sqlstate: String,
    /// Empty for clients of no configured one.
    database: String,
    count: u64,
}

/// Errors by code.
#[derive(Serialize, ToSchema)]
struct Errors {
    errors: Vec<ErrorCount>,
}

/// Kinds of queries, the most expensive first.
#[utoipa::path(get, path = "/api/v1/queries", params(QueriesQuery), responses(
    (status = 200, body = Queries), (status = 401, body = crate::failure::FailureBody)))]
async fn queries(
    _: Authorized<Read>,
    extract::State(context): extract::State<PanelContext>,
    extract::State(control_client): extract::State<Arc<ControlClient>>,
    QueryParameters(wanted): QueryParameters<QueriesQuery>,
) -> Result<Json<Queries>, Failure> {
    let by: fn(&QueryView) -> f64 = match wanted.sort.as_deref() {
        None | Some("time") => |query| query.total_seconds,
        #[expect(clippy::cast_precision_loss)]
        Some("calls") => |query| query.calls as f64,
        Some("mean") => |query| query.mean_seconds,
        #[expect(clippy::cast_precision_loss)]
        Some("errors") => |query| query.errors as f64,
        Some("p95") => |query| query.p95_seconds,
        Some(_) => return Err(Failure::invalid("sort", "sort is one of time, calls, mean, p95, errors")),
    };
    let table = control_client.show(QUERIES).await?;
    let search = wanted.search.unwrap_or_default().to_lowercase();
    let is_wanted = |row: &ViewRow<'_, QueryColumn>| is_of(row.text(QueryColumn::Database), wanted.database.as_deref());
    let mut queries: Vec<QueryView> = table.iter().filter(is_wanted).map(query).collect();
    QueryView::share(&mut queries);
    queries.retain(|query| query.has(&search));
    queries.sort_by(|one, other| by(other).total_cmp(&by(one)));
    queries.truncate(wanted.limit.unwrap_or(DEFAULT_ROWS).clamp(1, MAX_ROWS));
    Ok(Json(Queries { queries, tracking: context.config().global.track_queries }))
}

/// Errors that clients received since the start.
#[utoipa::path(get, path = "/api/v1/errors", params(ErrorsQuery), responses(
    (status = 200, body = Errors), (status = 401, body = crate::failure::FailureBody)))]
async fn errors(
    _: Authorized<Read>,
    extract::State(control_client): extract::State<Arc<ControlClient>>,
    QueryParameters(wanted): QueryParameters<ErrorsQuery>,
) -> Result<Json<Errors>, Failure> {
    let table = control_client.show(ERRORS).await?;
    let told = |row: ViewRow<'_, ErrorColumn>| ErrorCount {
        sqlstate: row.owned(ErrorColumn::Sqlstate),
        database: row.owned(ErrorColumn::Database),
        count: row.number(ErrorColumn::Count),
    };
    let is_wanted = |row: &ViewRow<'_, ErrorColumn>| is_of(row.text(ErrorColumn::Database), wanted.database.as_deref());
    Ok(Json(Errors { errors: table.iter().filter(is_wanted).map(told).collect() }))
}

fn is_of(own: Option<&str>, database: Option<&str>) -> bool {
    database.is_none_or(|name| name.is_empty() || own == Some(name))
}

pub(crate) fn query(row: ViewRow<'_, QueryColumn>) -> QueryView {
    #[expect(clippy::cast_precision_loss)]
    let seconds = |name| row.number(name) as f64 / 1e6;
    QueryView {
        fingerprint: row.owned(QueryColumn::Fingerprint),
        database: row.owned(QueryColumn::Database),
        text: row.owned(QueryColumn::Query),
        calls: row.number(QueryColumn::Calls),
        total_seconds: seconds(QueryColumn::TotalUs),
        mean_seconds: seconds(QueryColumn::MeanUs),
        p95_seconds: seconds(QueryColumn::P95Us),
        max_seconds: seconds(QueryColumn::MaxUs),
        queue_seconds: seconds(QueryColumn::QueueUs),
        connect_seconds: seconds(QueryColumn::ConnectUs),
        settings_seconds: seconds(QueryColumn::SettingsUs),
        reader_seconds: seconds(QueryColumn::ReaderUs),
        lock_seconds: seconds(QueryColumn::LockUs),
        io_seconds: seconds(QueryColumn::IoUs),
        other_seconds: seconds(QueryColumn::OtherUs),
        errors: row.number(QueryColumn::Errors),
        share: 0.0,
        since: rfc3339(row.text(QueryColumn::Since)),
    }
}
