//! Pools and clusters: list, look, preview, create, change, delete.
//! Never judges a change (the control thread does) and never shows a password to whom it is not for.

use std::collections::BTreeMap;

use axum::extract;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::Json;
use control::{PoolChange, PoolSpec, RequestedSize};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Admin, Caller, Authorized, Read, RequiredScope, ViewCredentials};
use crate::extract::JsonBody;
use crate::connection_info::{Viewer, PoolConnection, authority};
use crate::context::PanelContext;
use crate::failure::Failure;
use crate::inventory::{Mode, BudgetView, ClusterView, PoolUser, PoolView, entries};
use crate::extract::QueryParameters;
use crate::pool_service::PoolService;
use crate::routes::Routes;

/// The page's length where none is asked for, and the longest.
const DEFAULT_ROWS: usize = 200;
const MAX_ROWS: usize = 1_000;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(all_clusters))
        .routes(routes!(list, create))
        .routes(routes!(get, change, delete))
        .routes(routes!(ca))
}

/// Which page.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct PoolsPage {
    /// The number of pools, up to 1,000.
    limit: Option<usize>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Whether a change is only to be shown.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct PreviewQuery {
    /// Answers with what would change, and changes nothing.
    preview: Option<bool>,
}

/// What a pool is to be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CreatePool {
    /// 3 to 63 letters, digits, `_` and `-`. A pool keeps its name: in a change it may be left out.
    #[serde(default)]
    name: String,
    /// A database of the cluster.
    db: String,
    /// Logs in to the server as this user; null: each client's own user.
    user: Option<String>,
    /// `session`, `transaction` or `statement`.
    #[schema(value_type = Mode)]
    mode: String,
    /// Server connections: a number, or `auto`: the pool finds its size itself, from `auto_pool_size_min` to `auto_pool_size_max` (`settings`, or the
    /// global ones). A pool that is `auto` is shown with its largest size, and given that number back it stays `auto`; as a text (`"12"`) a number makes it
    /// one of that size in any case.
    size: PoolSizeInput,
    /// Needed where there are several clusters, unless `settings` name the servers. In a change it may be left out.
    cluster_id: Option<String>,
    /// Other keys of an entry of `[databases]`, as a file has them (`GET /api/v1/settings/pools` lists them); null or empty takes one out, and those
    /// that are not named stay. With `host`, or with `topology` of Patroni, a new pool needs no cluster.
    #[serde(default)]
    settings: BTreeMap<String, Option<String>>,
}

/// A number, or a word as a file has it.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
enum PoolSizeInput {
    Number(i64),
    Word(String),
}

impl PoolSizeInput {
    fn requested(self) -> Result<RequestedSize, Failure> {
        match self {
            PoolSizeInput::Number(size) => Ok(RequestedSize::Shown(size)),
            PoolSizeInput::Word(word) if word.eq_ignore_ascii_case("auto") => Ok(RequestedSize::Auto),
            PoolSizeInput::Word(word) => {
                let size = word.parse().map_err(|_| Failure::invalid("size", "size is a whole number, or auto"))?;
                Ok(RequestedSize::Fixed(size))
            }
        }
    }
}

/// All clusters.
#[derive(Serialize, ToSchema)]
struct Clusters {
    clusters: Vec<ClusterView>,
}

/// A page of pools.
#[derive(Serialize, ToSchema)]
struct Pools {
    pools: Vec<PoolView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// A pool.
#[derive(Serialize, ToSchema)]
struct PoolResponse {
    pool: PoolView,
}

/// A pool with how to get there.
#[derive(Serialize, ToSchema)]
struct PoolDetailsResponse {
    pool: PoolDetails,
}

/// A pool, how clients get there, and its parts.
#[derive(Serialize, ToSchema)]
struct PoolDetails {
    #[serde(flatten)]
    pool: PoolView,
    connection: PoolConnection,
    parts: Vec<PoolUser>,
}

/// What a change would do.
#[derive(Serialize, ToSchema)]
struct ChangePreview {
    /// The lines of the pools file that would differ; passwords are masked.
    diff: Vec<DiffLine>,
    budget: BudgetView,
    warnings: Vec<String>,
}

/// A line of the pools file.
#[derive(Serialize, ToSchema)]
struct DiffLine {
    line: u32,
    #[schema(required)]
    before: Option<String>,
    #[schema(required)]
    after: Option<String>,
}

/// Every cluster: one host list and port of [databases].
#[utoipa::path(get, path = "/api/v1/clusters", operation_id = "clusters", responses(
    (status = 200, body = Clusters), (status = 401, body = crate::failure::FailureBody)))]
async fn all_clusters(_: Authorized<Read>, extract::State(pools): extract::State<PoolService>) -> Result<Json<Clusters>, Failure> {
    Ok(Json(Clusters { clusters: pools.cluster_views().await? }))
}

/// Pools, in the order of their names.
#[utoipa::path(get, path = "/api/v1/pools", operation_id = "pools", params(PoolsPage), responses(
    (status = 200, body = Pools), (status = 401, body = crate::failure::FailureBody)))]
async fn list(
    _: Authorized<Read>,
    extract::State(service): extract::State<PoolService>,
    QueryParameters(page): QueryParameters<PoolsPage>,
) -> Result<Json<Pools>, Failure> {
    let inventory = service.inventory().await?;
    let config = service.config();
    let limit = page.limit.unwrap_or(DEFAULT_ROWS).clamp(1, MAX_ROWS);
    let after = page.cursor.unwrap_or_default();
    let all = entries(&config, None);
    let mut wanted = all.iter().filter(|(name, _)| **name > after.as_str());
    let pools: Vec<PoolView> =
        wanted.by_ref().take(limit).map(|(_, database)| inventory.pool(&config, database)).collect();
    let next_cursor = wanted.next().and(pools.last()).map(|pool| pool.name.clone());
    Ok(Json(Pools { pools, next_cursor }))
}

/// A pool and how clients get there.
#[utoipa::path(get, path = "/api/v1/pools/{name}", operation_id = "pool", responses(
    (status = 200, body = PoolDetailsResponse), (status = 404, body = crate::failure::FailureBody)))]
async fn get(
    Authorized(caller, ..): Authorized<Read>,
    extract::State(service): extract::State<PoolService>,
    extract::Path(name): extract::Path<String>,
    headers: HeaderMap,
) -> Result<Json<PoolDetailsResponse>, Failure> {
    let config = service.config();
    let database = config.databases.get(&name).ok_or(Failure::NotFound)?;
    let inventory = service.inventory().await?;
    let pool = inventory.pool(&config, database);
    let connection = PoolConnection::of(&config, &name, database.user.as_deref(), viewer(&caller, &headers));
    Ok(Json(PoolDetailsResponse { pool: PoolDetails { pool, connection, parts: inventory.parts(&name) } }))
}

/// Makes a pool.
#[utoipa::path(post, path = "/api/v1/pools", operation_id = "create_pool", params(PreviewQuery), request_body = CreatePool, responses(
    (status = 201, body = PoolResponse), (status = 200, description = "what would change", body = ChangePreview),
    (status = 403, body = crate::failure::FailureBody), (status = 409, body = crate::failure::FailureBody),
    (status = 422, body = crate::failure::FailureBody)))]
async fn create(
    Authorized(caller, ..): Authorized<Admin>,
    extract::State(service): extract::State<PoolService>,
    QueryParameters(only): QueryParameters<PreviewQuery>,
    JsonBody(request): JsonBody<CreatePool>,
) -> Result<Response, Failure> {
    let change = PoolChange::Create(request.spec()?);
    put(&service, &caller, change, only, StatusCode::CREATED).await
}

/// Changes a pool: its database, user, mode, size and other settings.
#[utoipa::path(put, path = "/api/v1/pools/{name}", operation_id = "change_pool", params(PreviewQuery), request_body = CreatePool, responses(
    (status = 200, description = "the pool, or what would change", body = PoolResponse),
    (status = 403, body = crate::failure::FailureBody), (status = 404, body = crate::failure::FailureBody),
    (status = 422, body = crate::failure::FailureBody)))]
async fn change(
    Authorized(caller, ..): Authorized<Admin>,
    extract::State(service): extract::State<PoolService>,
    extract::Path(name): extract::Path<String>,
    QueryParameters(only): QueryParameters<PreviewQuery>,
    JsonBody(request): JsonBody<CreatePool>,
) -> Result<Response, Failure> {
    same_name(&name, &request.name)?;
    let change = PoolChange::Update(PoolSpec { name, ..request.spec()? });
    put(&service, &caller, change, only, StatusCode::OK).await
}

/// Deletes a pool. Its clients get an error and are closed.
#[utoipa::path(delete, path = "/api/v1/pools/{name}", operation_id = "delete_pool", responses(
    (status = 204), (status = 403, body = crate::failure::FailureBody), (status = 404, body = crate::failure::FailureBody)))]
async fn delete(
    _: Authorized<Admin>,
    extract::State(service): extract::State<PoolService>,
    extract::Path(name): extract::Path<String>,
) -> Result<StatusCode, Failure> {
    service.delete(name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The certificates by which clients can check the pooler's.
#[utoipa::path(get, path = "/api/v1/ca.crt", operation_id = "ca", responses(
    (status = 200, content_type = "application/x-pem-file", body = String), (status = 404, body = crate::failure::FailureBody)))]
async fn ca(_: Authorized<Read>, extract::State(context): extract::State<PanelContext>) -> Result<Response, Failure> {
    let text = authority(&context.config()).ok_or(Failure::NotFound)?;
    let headers = [
        (header::CONTENT_TYPE, "application/x-pem-file"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"ca.crt\""),
    ];
    Ok((headers, text).into_response())
}

impl CreatePool {
    fn spec(self) -> Result<PoolSpec, Failure> {
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        Ok(PoolSpec {
            name: self.name,
            cluster: given(self.cluster_id),
            db: self.db,
            user: given(self.user),
            mode: self.mode,
            size: self.size.requested()?,
            settings: self.settings,
        })
    }
}

/// The name in the address and, if it is given, the one in the body are one.
pub(super) fn same_name(name: &str, given: &str) -> Result<(), Failure> {
    if given.is_empty() || given == name {
        return Ok(());
    }
    Err(Failure::Renamed)
}

/// Makes a change, or says what it would be.
async fn put(service: &PoolService, caller: &Caller, change: PoolChange, only: PreviewQuery, done: StatusCode) -> Result<Response, Failure> {
    let preview = only.preview.unwrap_or(false);
    let name = change.name().to_owned();
    let (inventory, outcome) = service.change(change, preview, caller.scopes.have(ViewCredentials::SCOPE)).await?;
    if preview {
        let line = |change: settings::LineChange| DiffLine { line: change.line, before: change.before, after: change.after };
        let diff = outcome.changes.into_iter().map(line).collect();
        let budget = (&outcome.budget).into();
        return Ok(Json(ChangePreview { diff, budget, warnings: outcome.warnings }).into_response());
    }
    let config = &outcome.config;
    let database = config.databases.get(&name).ok_or(Failure::ServerError)?;
    Ok((done, Json(PoolResponse { pool: inventory.pool(config, database) })).into_response())
}

/// The caller's view of connection details: host and permission.
pub(super) fn viewer<'a>(caller: &Caller, headers: &'a HeaderMap) -> Viewer<'a> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    // The port is cut off, and the brackets of IPv6.
    let name = host.map(|host| match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.split(':').next().unwrap_or(host),
    });
    Viewer { host: name, may_see_passwords: caller.scopes.have(ViewCredentials::SCOPE) }
}
