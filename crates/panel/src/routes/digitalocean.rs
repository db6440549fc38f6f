//! DigitalOcean's API of managed databases, as far as connection pools go: godo, and with it doctl and the provider for
//! Terraform, work with it when their URL is changed.
//!
//! Owns that API's shapes and its limit of requests. What is done is done by the same means as in `pools`.

use std::collections::{BTreeMap, BTreeSet};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::Json;
use control::{Cluster, PoolChange, PoolSpec, RequestedSize, cluster_id, clusters};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use settings::{Config, Database};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Admin, Caller, Authorized, Read};
use crate::extract::JsonBody;
use crate::connection_info::PoolConnection;
use crate::failure::Failure;
use crate::inventory::{Mode, Inventory, cluster, databases, entries};
use crate::pool_service::PoolService;
use crate::routes::Routes;
use crate::extract::QueryParameters;
use crate::routes::pools::{viewer, same_name};

/// Requests of a caller in [`WINDOW`], as DigitalOcean allows.
const LIMIT: u32 = 5_000;
const WINDOW: Duration = Duration::from_secs(3_600);

pub(crate) fn routes() -> Routes {
    let counts: Arc<RateLimits> = Arc::default();
    OpenApiRouter::new()
        .routes(routes!(list_clusters))
        .routes(routes!(get_cluster))
        .routes(routes!(list, create))
        .routes(routes!(get, update, delete))
        .layer(from_fn(move |request, next| limited(Arc::clone(&counts), request, next)))
}

/// A cluster.
#[derive(Serialize, ToSchema)]
struct DatabaseCluster {
    id: String,
    name: String,
    engine: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    connection: DatabaseConnection,
    // The same way: clients such as the provider for Terraform read both.
    private_connection: DatabaseConnection,
    num_nodes: usize,
    db_names: BTreeSet<String>,
    status: &'static str,
}

/// How to get there.
#[derive(Clone, Serialize, ToSchema)]
struct DatabaseConnection {
    protocol: &'static str,
    uri: String,
    database: String,
    host: String,
    port: u16,
    user: String,
    password: String,
    ssl: bool,
}

/// A pool.
#[derive(Serialize, ToSchema)]
struct ConnectionPool {
    user: String,
    name: String,
    size: u32,
    db: String,
    mode: Mode,
    connection: DatabaseConnection,
    private_connection: DatabaseConnection,
}

#[derive(Serialize, ToSchema)]
struct DatabaseClusters {
    databases: Vec<DatabaseCluster>,
}

#[derive(Serialize, ToSchema)]
struct DatabaseClusterResponse {
    database: DatabaseCluster,
}

#[derive(Serialize, ToSchema)]
struct ConnectionPools {
    pools: Vec<ConnectionPool>,
}

#[derive(Serialize, ToSchema)]
struct ConnectionPoolResponse {
    pool: ConnectionPool,
}

/// What a pool is to be. DigitalOcean's API gives a pool with its connections: a client that sends them back changes nothing by that.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ConnectionPoolSpec {
    #[serde(default)]
    name: String,
    #[schema(value_type = Mode)]
    mode: String,
    size: i64,
    db: String,
    user: Option<String>,
    #[serde(default, rename = "connection")]
    #[schema(value_type = Option<Object>, read_only)]
    _connection: Option<IgnoredAny>,
    #[serde(default, rename = "private_connection")]
    #[schema(value_type = Option<Object>, read_only)]
    _private_connection: Option<IgnoredAny>,
    #[serde(default, rename = "standby_connection")]
    #[schema(value_type = Option<Object>, read_only)]
    _standby_connection: Option<IgnoredAny>,
    #[serde(default, rename = "standby_private_connection")]
    #[schema(value_type = Option<Object>, read_only)]
    _standby_private_connection: Option<IgnoredAny>,
}

/// Which page, as godo asks: all is on the first.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct PageQuery {
    page: Option<u32>,
    /// However many are wanted, all come.
    #[serde(rename = "per_page")]
    #[param(rename = "per_page")]
    _per_page: Option<u32>,
}

impl PageQuery {
    /// A client that requests page by page gets an empty page after the first.
    fn of<T>(&self, all: Vec<T>) -> Vec<T> {
        if self.page.is_some_and(|page| page > 1) { Vec::new() } else { all }
    }
}

/// Every cluster.
#[utoipa::path(get, path = "/v2/databases", operation_id = "do_clusters", params(PageQuery), responses((status = 200, body = DatabaseClusters)))]
async fn list_clusters(
    Authorized(caller, ..): Authorized<Read>,
    extract::State(service): extract::State<PoolService>,
    QueryParameters(page): QueryParameters<PageQuery>,
    headers: HeaderMap,
) -> Result<Json<DatabaseClusters>, Failure> {
    let inventory = service.inventory().await?;
    let mut all = Vec::new();
    for cluster in clusters(&service.config()) {
        all.push(cluster_view(&service, &inventory, cluster, &caller, &headers).await);
    }
    Ok(Json(DatabaseClusters { databases: page.of(all) }))
}

/// A cluster.
#[utoipa::path(get, path = "/v2/databases/{id}", operation_id = "do_cluster", responses((status = 200, body = DatabaseClusterResponse)))]
async fn get_cluster(
    Authorized(caller, ..): Authorized<Read>,
    extract::State(service): extract::State<PoolService>,
    extract::Path(id): extract::Path<String>,
    headers: HeaderMap,
) -> Result<Json<DatabaseClusterResponse>, Failure> {
    let cluster = find_cluster(&service.config(), &id)?;
    let inventory = service.inventory().await?;
    Ok(Json(DatabaseClusterResponse { database: cluster_view(&service, &inventory, cluster, &caller, &headers).await }))
}

/// The pools of a cluster.
#[utoipa::path(get, path = "/v2/databases/{id}/pools", operation_id = "do_pools", params(PageQuery), responses((status = 200, body = ConnectionPools)))]
async fn list(
    Authorized(caller, ..): Authorized<Read>,
    extract::State(service): extract::State<PoolService>,
    extract::Path(id): extract::Path<String>,
    QueryParameters(page): QueryParameters<PageQuery>,
    headers: HeaderMap,
) -> Result<Json<ConnectionPools>, Failure> {
    find_cluster(&service.config(), &id)?;
    let config = service.config();
    let all = entries(&config, Some(&id)).into_values();
    let pools = all.map(|pool| shown(&config, pool, &caller, &headers)).collect();
    Ok(Json(ConnectionPools { pools: page.of(pools) }))
}

/// Makes a pool.
#[utoipa::path(post, path = "/v2/databases/{id}/pools", operation_id = "do_create_pool", request_body = ConnectionPoolSpec, responses((status = 201, body = ConnectionPoolResponse)))]
async fn create(
    Authorized(caller, ..): Authorized<Admin>,
    extract::State(service): extract::State<PoolService>,
    extract::Path(id): extract::Path<String>,
    headers: HeaderMap,
    JsonBody(request): JsonBody<ConnectionPoolSpec>,
) -> Result<Response, Failure> {
    find_cluster(&service.config(), &id)?;
    let name = request.name.clone();
    let change = PoolChange::Create(request.spec(name.clone(), Some(id)));
    let (_, outcome) = service.change(change, false, false).await?;
    let made = outcome.config.databases.get(&name).ok_or(Failure::ServerError)?;
    let pool = shown(&outcome.config, made, &caller, &headers);
    Ok((StatusCode::CREATED, Json(ConnectionPoolResponse { pool })).into_response())
}

/// A pool.
#[utoipa::path(get, path = "/v2/databases/{id}/pools/{name}", operation_id = "do_pool", responses((status = 200, body = ConnectionPoolResponse)))]
async fn get(
    Authorized(caller, ..): Authorized<Read>,
    extract::State(service): extract::State<PoolService>,
    extract::Path((id, name)): extract::Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Json<ConnectionPoolResponse>, Failure> {
    let config = service.config();
    let pool = find_pool(&config, &id, &name)?;
    Ok(Json(ConnectionPoolResponse { pool: shown(&config, pool, &caller, &headers) }))
}

/// Changes a pool.
#[utoipa::path(put, path = "/v2/databases/{id}/pools/{name}", operation_id = "do_change_pool", request_body = ConnectionPoolSpec, responses((status = 204)))]
async fn update(
    _: Authorized<Admin>,
    extract::State(service): extract::State<PoolService>,
    extract::Path((id, name)): extract::Path<(String, String)>,
    JsonBody(request): JsonBody<ConnectionPoolSpec>,
) -> Result<StatusCode, Failure> {
    find_pool(&service.config(), &id, &name)?;
    same_name(&name, &request.name)?;
    let change = PoolChange::Update(request.spec(name, None));
    service.change(change, false, false).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Deletes a pool.
#[utoipa::path(delete, path = "/v2/databases/{id}/pools/{name}", operation_id = "do_delete_pool", responses((status = 204)))]
async fn delete(
    _: Authorized<Admin>,
    extract::State(service): extract::State<PoolService>,
    extract::Path((id, name)): extract::Path<(String, String)>,
) -> Result<StatusCode, Failure> {
    find_pool(&service.config(), &id, &name)?;
    service.delete(name).await?;
    Ok(StatusCode::NO_CONTENT)
}

impl ConnectionPoolSpec {
    fn spec(self, name: String, cluster: Option<String>) -> PoolSpec {
        let user = self.user.filter(|user| !user.is_empty());
        let settings = BTreeMap::new();
        PoolSpec { name, cluster, db: self.db, user, mode: self.mode, size: RequestedSize::Shown(self.size), settings }
    }
}

fn find_cluster(config: &Config, id: &str) -> Result<Cluster, Failure> {
    cluster(config, id).ok_or(Failure::NotFound)
}

fn find_pool<'a>(config: &'a Config, id: &str, name: &str) -> Result<&'a Database, Failure> {
    let found = config.databases.get(name).filter(|database| cluster_id(database) == id);
    found.map(|database| &**database).ok_or(Failure::NotFound)
}

fn connection(config: &Config, name: &str, user: Option<&str>, caller: &Caller, headers: &HeaderMap) -> DatabaseConnection {
    let details = PoolConnection::of(config, name, user, viewer(caller, headers));
    DatabaseConnection {
        protocol: "postgresql",
        uri: details.forms.uri,
        database: details.database,
        host: details.host,
        port: details.port,
        user: details.user,
        password: details.password,
        ssl: details.sslmode != "disable",
    }
}

fn shown(config: &Config, database: &Database, caller: &Caller, headers: &HeaderMap) -> ConnectionPool {
    let user = database.user.as_deref();
    let connection = connection(config, &database.name, user, caller, headers);
    let of_user = user.and_then(|user| config.user(user)).map(|user| &**user);
    ConnectionPool {
        user: user.unwrap_or_default().to_owned(),
        name: database.name.clone(),
        size: config.pool_size(database, of_user).largest(),
        db: database.dbname.clone(),
        mode: config.pool_mode(database, of_user).into(),
        private_connection: connection.clone(),
        connection,
    }
}

async fn cluster_view(
    service: &PoolService,
    inventory: &Inventory,
    cluster: Cluster,
    caller: &Caller,
    headers: &HeaderMap,
) -> DatabaseCluster {
    let server_info = service.server_info(inventory, &cluster).await;
    let config = service.config();
    let first = cluster.entries.first().and_then(|name| config.databases.get(name));
    let (name, user) = first.map_or(("*", None), |entry| (entry.name.as_str(), entry.user.as_deref()));
    let db_names = databases(&cluster, server_info.as_ref());
    // As DigitalOcean: the major version alone.
    let major = |version: String| version.split('.').next().unwrap_or_default().to_owned();
    let connection = connection(&config, name, user, caller, headers);
    DatabaseCluster {
        name: format!("{}:{}", cluster.host.join(","), cluster.port),
        engine: "pg",
        status: if server_info.is_some() { "online" } else { "unknown" },
        version: server_info.map(|server_info| major(server_info.version)),
        private_connection: connection.clone(),
        connection,
        num_nodes: cluster.host.len().max(1),
        db_names,
        id: cluster.id,
    }
}

/// The requests of each caller: when its window ends, and how many are left.
#[derive(Default)]
struct RateLimits(Mutex<HashMap<String, (u64, u32)>>);

impl RateLimits {
    /// Counts a request: what is left, and when all is there again. None is left for one that is too many.
    fn count(&self, caller: &str, now_s: u64) -> (Option<u32>, u64) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.retain(|_, (end_s, _)| *end_s > now_s);
        let window = (now_s + WINDOW.as_secs(), LIMIT);
        let (end_s, left) = counts.entry(caller.to_owned()).or_insert(window);
        let after = left.checked_sub(1);
        *left = after.unwrap_or(0);
        (after, *end_s)
    }
}

/// Rejects requests above the limit, and reports the limit in headers.
async fn limited(counts: Arc<RateLimits>, request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>().map_or("", |caller| caller.name.as_str());
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (left, end_s) = counts.count(caller, now_s);
    let mut response = match left {
        Some(_) => next.run(request).await,
        None => Failure::RateLimited.into_response()
    };
    let headers = response.headers_mut();
    headers.insert("ratelimit-limit", HeaderValue::from(LIMIT));
    headers.insert("ratelimit-remaining", HeaderValue::from(left.unwrap_or(0)));
    headers.insert("ratelimit-reset", HeaderValue::from(end_s));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_so_many_requests_in_an_hour() {
        let counts = RateLimits::default();
        assert_eq!(counts.count("a", 10), (Some(LIMIT - 1), 3_610));
        for _ in 1..LIMIT {
            counts.count("a", 11);
        }
        assert_eq!(counts.count("a", 12), (None, 3_610));
        assert_eq!(counts.count("b", 12).0, Some(LIMIT - 1));
        assert_eq!(counts.count("a", 3_610).0, Some(LIMIT - 1));
    }
}
