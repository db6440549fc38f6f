//! One kind of query: its figures, its last hour, its plan; and the end of what was counted.
//!
//! A plan is that of EXPLAIN without ANALYZE: the statement is never run. Never sees a value.

use std::sync::Arc;

use axum::Json;
use axum::extract::{self, Path};
use axum::http::StatusCode;
use control::{QUERIES, QUERY_TEXTS, QueryColumn, QueryTextColumn, clusters};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Authorized, Operate, Read};
use crate::control_client::ControlClient;
use crate::extract::JsonBody;
use crate::failure::{Failure, FailureBody};
use crate::extract::QueryParameters;
use crate::pool_service::PoolService;
use crate::query_trends::{QueryHistory, QueryTrends};
use crate::routes::Routes;
use crate::routes::queries::{QueryView, query};
use crate::table::ViewRow;

/// The first words of statements that EXPLAIN takes. EXECUTE and CREATE TABLE AS are left out.
const EXPLAINABLE: &[&str] = &["select", "insert", "update", "delete", "merge", "values", "with", "table", "("];

/// The first version that plans a statement with parameters.
const GENERIC_PLAN_SINCE: u32 = 16;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(one)).routes(routes!(explain)).routes(routes!(reset))
}

/// In which database.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct DatabaseQuery {
    /// The pool.
    database: String,
}

/// A kind of query with its past.
#[derive(Serialize, ToSchema)]
struct QueryDetails {
    #[serde(flatten)]
    query: QueryView,
    history: QueryHistory,
}

/// Where to explain it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ExplainRequestBody {
    /// The pool.
    database: String,
}

/// A plan.
#[derive(Serialize, ToSchema)]
struct QueryPlan {
    /// What was explained, with parameters instead of values.
    statement: String,
    /// As psql shows it.
    lines: Vec<String>,
    /// It is the plan for any values (`GENERIC_PLAN`).
    generic: bool,
}

/// What to reset.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ResetRequest {
    /// A pool; all of them without it.
    database: Option<String>,
}

/// A kind of query: its figures and its last hour, ten seconds a number.
#[utoipa::path(get, path = "/api/v1/queries/{fingerprint}", params(("fingerprint" = String, Path), DatabaseQuery),
    responses((status = 200, body = QueryDetails), (status = 404, body = FailureBody)))]
async fn one(
    _: Authorized<Read>,
    extract::State(control_client): extract::State<Arc<ControlClient>>,
    extract::State(query_trends): extract::State<Arc<QueryTrends>>,
    Path(fingerprint): Path<String>,
    QueryParameters(DatabaseQuery { database }): QueryParameters<DatabaseQuery>,
) -> Result<Json<QueryDetails>, Failure> {
    let table = control_client.show(QUERIES).await?;
    let mut of_database: Vec<QueryView> =
        table.iter().filter(|row| row.text(QueryColumn::Database) == Some(&database)).map(query).collect();
    QueryView::share(&mut of_database);
    let found = of_database.into_iter().find(|query| query.fingerprint == fingerprint);
    let query = found.ok_or(Failure::NotFound)?;
    let history = query_trends.history(&database, &fingerprint);
    Ok(Json(QueryDetails { query, history }))
}

/// The plan of a kind of query, by EXPLAIN through its pool. The statement is not run.
#[utoipa::path(post, path = "/api/v1/queries/{fingerprint}/explain", request_body = ExplainRequestBody, params(("fingerprint" = String, Path)),
    responses((status = 200, body = QueryPlan), (status = 404, body = FailureBody), (status = 409, body = FailureBody)))]
async fn explain(
    _: Authorized<Operate>,
    extract::State(control_client): extract::State<Arc<ControlClient>>,
    extract::State(pools): extract::State<PoolService>,
    Path(fingerprint): Path<String>,
    JsonBody(ExplainRequestBody { database }): JsonBody<ExplainRequestBody>,
) -> Result<Json<QueryPlan>, Failure> {
    let statement = statement(&control_client, &database, &fingerprint).await?;
    let generic = statement.contains('$');
    let (user, version) = explain_user(&pools, &database).await?;
    if generic && version.is_some_and(|version| version < GENERIC_PLAN_SINCE) {
        return Err(Failure::NoGenericPlan);
    }
    let outcome = pools.explain(database, user, statement.clone(), generic).await?;
    let lines = outcome.map_err(|why| Failure::ExplainFailed(why.to_string()))?;
    Ok(Json(QueryPlan { statement, lines, generic }))
}

/// Discards what was counted of queries: counting begins anew.
#[utoipa::path(post, path = "/api/v1/queries/reset", request_body = ResetRequest,
    responses((status = 204), (status = 404, body = FailureBody)))]
async fn reset(
    _: Authorized<Operate>,
    extract::State(control_client): extract::State<Arc<ControlClient>>,
    JsonBody(ResetRequest { database }): JsonBody<ResetRequest>,
) -> Result<StatusCode, Failure> {
    let argument = database.filter(|name| !name.is_empty());
    control_client.command("RESET_QUERIES", argument).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The statement to explain.
async fn statement(control_client: &ControlClient, database: &str, fingerprint: &str) -> Result<String, Failure> {
    let table = control_client.show(QUERY_TEXTS).await?;
    let is_it = |row: &ViewRow<'_, QueryTextColumn>| {
        row.text(QueryTextColumn::Database) == Some(database) && row.text(QueryTextColumn::Fingerprint) == Some(fingerprint)
    };
    let row = table.iter().find(is_it).ok_or(Failure::NotFound)?;
    let Some(statement) = row.text(QueryTextColumn::Statement) else {
        return Err(Failure::StatementTooLong);
    };
    let first = statement.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
    if !EXPLAINABLE.contains(&first.as_str()) {
        return Err(Failure::NotExplainable);
    }
    Ok(statement.to_owned())
}

/// The user as whom the pool's server can be asked, and the server's version if it says so.
async fn explain_user(pools: &PoolService, database: &str) -> Result<(String, Option<u32>), Failure> {
    let inventory = pools.inventory().await?;
    let config = pools.config();
    let of_pool = |cluster: &control::Cluster| cluster.entries.iter().any(|entry| entry == database);
    let cluster = clusters(&config).into_iter().find(of_pool).ok_or(Failure::NotFound)?;
    let Some(user) = inventory.likely_user(&config, &cluster, database) else {
        return Err(Failure::NoServerUser);
    };
    let version = pools.server_info(&inventory, &cluster).await.and_then(|server_info| major(&server_info.version));
    Ok((user, version))
}

/// `18.1 (Debian …)`, `19beta1`.
fn major(version: &str) -> Option<u32> {
    let digits = version.find(|c: char| !c.is_ascii_digit()).map_or(version, |end| &version[..end]);
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_comes_first() {
        assert_eq!([major("18.1 (Debian)"), major("19beta1"), major("x")], [Some(18), Some(19), None]);
    }
}
