//! Sizes of pools: what is in force, within which bounds, why, and what it was.
//! Never changes anything.

use std::sync::Arc;

use axum::Json;
use axum::extract;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use control::{POOL_SIZES, PoolSizeColumn};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Authorized, Read};
use crate::audit_trail::{AuditTrail, Mark};
use crate::control_client::ControlClient;
use crate::extract::QueryParameters;
use crate::failure::{Failure, FailureBody};
use crate::gauges::Gauges;
use crate::live::{HistorySeries, TimeSpan};
use crate::routes::Routes;
use crate::routes::audit::all_marks;
use crate::routes::live::{HistoryFormat, csv_response};
use crate::table::ViewRow;

/// The most pools in an answer.
const MOST: usize = 500;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(pool_sizes)).routes(routes!(pool_size_history))
}

/// Of which pools.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct PoolSizesQuery {
    /// Of this entry.
    database: Option<String>,
}

/// The size of a pool.
#[derive(Serialize, ToSchema)]
struct PoolSizeView {
    /// The entry.
    database: String,
    /// The user of the pool.
    user: String,
    /// The host of a pool for reads.
    #[schema(required)]
    host: Option<String>,
    /// It finds its size itself (`pool_size = auto`).
    is_auto: bool,
    /// The least and the largest size that it may have.
    min: u64,
    max: u64,
    /// The size in force, which may be one that is tried.
    size: u64,
    /// The size that it has found.
    found: u64,
    /// Server connections that are open.
    open: u64,
    /// What it does now, as SHOW POOL_SIZES has it.
    #[schema(required)]
    state: Option<String>,
    /// Why the size is held.
    #[schema(required)]
    hold: Option<String>,
    /// How long ago the size that it has found was changed last; null where it never was.
    #[schema(required)]
    changed_seconds: Option<u64>,
    /// That change and its reason.
    #[schema(required)]
    change: Option<String>,
    /// How often it was changed.
    changes: u64,
}

/// Sizes of pools.
#[derive(Serialize, ToSchema)]
struct PoolSizes {
    pools: Vec<PoolSizeView>,
    /// How many there are; the answer has the first 500 of them.
    total: usize,
}

/// Which pool, and of when.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct PoolSizeHistoryQuery {
    /// The entry.
    database: String,
    /// The user of the pool.
    user: String,
    /// The host of a pool for reads.
    host: Option<String>,
    /// The last seconds, up to 86400; 600 where nothing is said.
    seconds: Option<u64>,
    /// From this second since 1970 on.
    from: Option<u64>,
    /// Up to this second.
    to: Option<u64>,
    /// csv for a table of comma-separated values; so does the header Accept: text/csv.
    #[param(inline)]
    format: Option<HistoryFormat>,
}

/// The past of a pool's size.
#[derive(Serialize, ToSchema)]
struct PoolSizeHistory {
    /// `size` in force and `found`; null where the pool had no size of its own.
    #[serde(flatten)]
    series: HistorySeries,
    /// What changed something in this time, sizes included.
    marks: Vec<Mark>,
}

/// Sizes of pools, as SHOW POOL_SIZES has them.
#[utoipa::path(get, path = "/api/v1/pool-sizes", params(PoolSizesQuery), responses(
    (status = 200, body = PoolSizes), (status = 401, body = FailureBody)))]
async fn pool_sizes(
    _: Authorized<Read>,
    extract::State(control_client): extract::State<Arc<ControlClient>>,
    QueryParameters(wanted): QueryParameters<PoolSizesQuery>,
) -> Result<Json<PoolSizes>, Failure> {
    let table = control_client.show(POOL_SIZES).await?;
    let is_wanted = |row: &ViewRow<'_, PoolSizeColumn>| {
        wanted.database.is_none() || wanted.database.as_deref() == row.text(PoolSizeColumn::Database)
    };
    let total = table.iter().filter(is_wanted).count();
    Ok(Json(PoolSizes { pools: table.iter().filter(is_wanted).take(MOST).map(view).collect(), total }))
}

/// The past of the size of a pool that sizes itself, since the panel was started.
#[utoipa::path(get, path = "/api/v1/pool-sizes/history", params(PoolSizeHistoryQuery), responses(
    (status = 200, body = PoolSizeHistory), (status = 401, body = FailureBody)))]
async fn pool_size_history(
    _: Authorized<Read>,
    extract::State(gauges): extract::State<Arc<Gauges>>,
    extract::State(audit_trail): extract::State<Arc<AuditTrail>>,
    headers: HeaderMap,
    QueryParameters(of): QueryParameters<PoolSizeHistoryQuery>,
) -> Response {
    let mut to = 0;
    let series = gauges.sizes(&of.database, &of.user, of.host.as_deref(), |newest| {
        let span = TimeSpan::asked(of.seconds, of.from, of.to, newest);
        to = span.to;
        span
    });
    if HistoryFormat::is_csv(of.format, &headers) {
        return csv_response("weir-pool-size.csv", series.csv());
    }
    let marks = all_marks(&audit_trail, &gauges, Some(&of.database), series.from, to);
    Json(PoolSizeHistory { series, marks }).into_response()
}

fn view(row: ViewRow<'_, PoolSizeColumn>) -> PoolSizeView {
    let text = |column| row.text(column).map(str::to_owned);
    let changed = PoolSizeColumn::ChangedSeconds;
    PoolSizeView {
        database: row.owned(PoolSizeColumn::Database),
        user: row.owned(PoolSizeColumn::User),
        host: text(PoolSizeColumn::Host),
        is_auto: row.text(PoolSizeColumn::Mode) == Some("auto"),
        min: row.number(PoolSizeColumn::Min),
        max: row.number(PoolSizeColumn::Max),
        size: row.number(PoolSizeColumn::Size),
        found: row.number(PoolSizeColumn::Found),
        open: row.number(PoolSizeColumn::Open),
        state: text(PoolSizeColumn::State),
        hold: text(PoolSizeColumn::Hold),
        changed_seconds: (!row.is_null(changed)).then(|| row.number(changed)),
        change: text(PoolSizeColumn::Change),
        changes: row.number(PoolSizeColumn::Changes),
    }
}
