//! What an operator does to a database, one of its hosts or a client: the console's commands, one route each.
//! Never knows how they are done: the control thread does them.

use std::sync::Arc;

use axum::extract::{self, Path};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::Json;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Authorized, Operate};
use crate::extract::{JsonBody, QueryParameters};
use crate::control_client::{ControlClient, ControlError};
use crate::failure::{Failure, FailureBody};
use crate::routes::Routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(act)).routes(routes!(act_on_host)).routes(routes!(kill)).routes(routes!(kill_client)).routes(routes!(cancel_client))
}

/// That it is meant.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct KillConfirmation {
    /// The database's name, typed again.
    confirm: Option<String>,
}

/// What has begun and takes as long as it takes.
#[derive(Serialize, ToSchema)]
struct Accepted {
    message: &'static str,
}

/// On which nodes of the fleet.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct NodesQuery {
    /// On all nodes, also those that come later; the answer comes when every node has done it. Of pause, resume, enable and disable.
    fleet: Option<bool>,
}

/// Pauses, resumes, reconnects, enables or disables a database. A pause that still waits for transactions answers 202.
#[utoipa::path(post, path = "/api/v1/databases/{name}/{verb}",
    params(("name" = String, Path), ("verb" = String, Path, description = "pause, resume, reconnect, enable or disable"), NodesQuery),
    responses((status = 204), (status = 202, body = Accepted), (status = 404, body = FailureBody), (status = 409, body = FailureBody)))]
async fn act(
    _: Authorized<Operate>,
    extract::State(control_client): extract::State<Arc<ControlClient>>,
    Path((name, verb)): Path<(String, String)>,
    QueryParameters(NodesQuery { fleet }): QueryParameters<NodesQuery>,
) -> Result<Response, Failure> {
    let word = match verb.as_str() {
        "pause" => "PAUSE",
        "resume" => "RESUME",
        "reconnect" => "RECONNECT",
        "enable" => "ENABLE",
        "disable" => "DISABLE",
        _ => return Err(Failure::NotFound),
    };
    let outcome = match fleet {
        Some(true) if word == "RECONNECT" => return Err(Failure::NotFound),
        Some(true) => control_client.host_command(word, name, "FLEET".to_owned()).await,
        _ => command(&control_client, word, name).await,
    };
    match outcome {
        Err(ControlError::TimedOut) if word == "PAUSE" => {
            let message = "The database is being paused: running transactions are completed first.";
            Ok((StatusCode::ACCEPTED, Json(Accepted { message })).into_response())
        }
        outcome => Ok(outcome.map(|()| StatusCode::NO_CONTENT)?.into_response()),
    }
}

/// Detaches one of the hosts of an entry with `read_write_split`, or attaches it again: a host that is detached gets no reads.
#[utoipa::path(post, path = "/api/v1/databases/{name}/hosts/{host}/{verb}",
    params(("name" = String, Path), ("host" = String, Path, description = "a host of the entry, with its port (`db2:5433`) where it has several"),
        ("verb" = String, Path, description = "detach or attach")),
    responses((status = 204), (status = 404, body = FailureBody), (status = 409, body = FailureBody)))]
async fn act_on_host(
    _: Authorized<Operate>,
    extract::State(control_client): extract::State<Arc<ControlClient>>,
    Path((name, host, verb)): Path<(String, String, String)>,
) -> Result<StatusCode, Failure> {
    let word = match verb.as_str() {
        "detach" => "DETACH",
        "attach" => "ATTACH",
        _ => return Err(Failure::NotFound),
    };
    control_client.host_command(word, name, host).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Closes every client and server connection of a database, and lets new clients wait until it is resumed.
#[utoipa::path(post, path = "/api/v1/databases/{name}/kill", request_body = KillConfirmation, params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = FailureBody), (status = 422, body = FailureBody)))]
async fn kill(
    _: Authorized<Operate>,
    extract::State(control_client): extract::State<Arc<ControlClient>>,
    Path(name): Path<String>,
    JsonBody(confirmation): JsonBody<KillConfirmation>,
) -> Result<StatusCode, Failure> {
    if confirmation.confirm.as_deref() != Some(name.as_str()) {
        return Err(Failure::NotConfirmed);
    }
    command(&control_client, "KILL", name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Closes a client.
#[utoipa::path(post, path = "/api/v1/clients/{id}/kill", params(("id" = u64, Path)),
    responses((status = 204), (status = 404, body = FailureBody)))]
async fn kill_client(
    _: Authorized<Operate>,
    extract::State(control_client): extract::State<Arc<ControlClient>>,
    Path(id): Path<String>,
) -> Result<StatusCode, Failure> {
    let id: u64 = id.parse().map_err(|_| Failure::NotFound)?;
    command(&control_client, "KILL_CLIENT", id.to_string()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Cancels the query that a client is running. The client stays connected.
#[utoipa::path(post, path = "/api/v1/clients/{id}/cancel", params(("id" = u64, Path)),
    responses((status = 204), (status = 404, body = FailureBody)))]
async fn cancel_client(
    _: Authorized<Operate>,
    extract::State(control_client): extract::State<Arc<ControlClient>>,
    Path(id): Path<String>,
) -> Result<StatusCode, Failure> {
    let id: u64 = id.parse().map_err(|_| Failure::NotFound)?;
    command(&control_client, "CANCEL_CLIENT", id.to_string()).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn command(control_client: &ControlClient, word: &str, argument: String) -> Result<(), ControlError> {
    control_client.command(word, Some(argument)).await
}
