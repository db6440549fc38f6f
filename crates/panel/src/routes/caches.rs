//! The query caches of entries (`query_cache`): whether they are of use, how fresh and how large, and what became of requests.
//! Never changes anything.

use std::sync::Arc;

use axum::Json;
use axum::extract;
use control::{CACHE, CacheColumn};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Authorized, Read};
use crate::control_client::ControlClient;
use crate::extract::QueryParameters;
use crate::failure::Failure;
use crate::routes::Routes;
use crate::table::ViewRow;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(caches))
}

/// Which caches.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct CachesQuery {
    /// Of this entry.
    database: Option<String>,
}

/// The query cache of an entry.
#[derive(Serialize, ToSchema)]
struct CacheView {
    /// The entry.
    database: String,
    /// `ok`, `starting`, `behind`, `other primary`, `lost` or `off`.
    state: String,
    /// What to do about it.
    detail: String,
    /// How long ago it was that all changes of the primary were known. Null if they never were.
    #[schema(required)]
    staleness_ms: Option<u64>,
    /// Answers that are stored, and what they take and may take.
    answers: u64,
    bytes: u64,
    max_bytes: u64,
    /// Requests that were answered from the cache.
    hits: u64,
    /// Requests that it might have answered, and had no answer to.
    misses: u64,
    /// Answers that were dropped because what they were made of has changed, or may have.
    invalidations: u64,
    /// Answers that were dropped to make room.
    evictions: u64,
}

/// Query caches.
#[derive(Serialize, ToSchema)]
struct Caches {
    caches: Vec<CacheView>,
}

/// Entries with a query cache.
#[utoipa::path(get, path = "/api/v1/caches", params(CachesQuery), responses(
    (status = 200, body = Caches), (status = 401, body = crate::failure::FailureBody)))]
async fn caches(
    _: Authorized<Read>,
    extract::State(control_client): extract::State<Arc<ControlClient>>,
    QueryParameters(wanted): QueryParameters<CachesQuery>,
) -> Result<Json<Caches>, Failure> {
    let caches = control_client.show(CACHE).await?;
    let is_wanted = |cache: &CacheView| wanted.database.as_deref().is_none_or(|wanted| wanted == cache.database);
    Ok(Json(Caches { caches: caches.iter().map(cache).filter(is_wanted).collect() }))
}

fn cache(row: ViewRow<'_, CacheColumn>) -> CacheView {
    CacheView {
        database: row.owned(CacheColumn::Database),
        state: row.owned(CacheColumn::State),
        detail: row.owned(CacheColumn::Detail),
        staleness_ms: (!row.is_null(CacheColumn::StalenessMs)).then(|| row.number(CacheColumn::StalenessMs)),
        answers: row.number(CacheColumn::Answers),
        bytes: row.number(CacheColumn::Bytes),
        max_bytes: row.number(CacheColumn::MaxBytes),
        hits: row.number(CacheColumn::Hits),
        misses: row.number(CacheColumn::Misses),
        invalidations: row.number(CacheColumn::Invalidations),
        evictions: row.number(CacheColumn::Evictions),
    }
}
