//! Who may use the panel: users and tokens of `http_auth_file`, seen and changed by an admin.
//! Never tells a password or a hash; the text of a token only when it is made.

use std::sync::Arc;

use axum::extract::{self, Path};
use axum::http::StatusCode;
use axum::Json;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::editing::{Change, Kind, change, listed};
use crate::access::{Admin, May};
use crate::body::Body;
use crate::failure::{Failure, FailureBody};
use crate::routes::Routes;
use crate::shared::State;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(users, add_user))
        .routes(routes!(change_user, remove_user))
        .routes(routes!(add_token))
        .routes(routes!(remove_token))
}

/// Somebody who may log in.
#[derive(Serialize, ToSchema)]
struct Somebody {
    /// user (with a password) or token.
    kind: &'static str,
    name: String,
    scopes: Vec<&'static str>,
}

/// Everybody.
#[derive(Serialize, ToSchema)]
struct Users {
    /// Users can be changed here: `http_auth_file` names a file.
    writable: bool,
    users: Vec<Somebody>,
}

/// A user to be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewUser {
    name: String,
    /// At least 8 characters.
    password: String,
    /// read, operate, admin, view_credentials: none but the caller's own.
    scopes: Vec<String>,
}

/// What is to be another; what is left out stays.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct OtherUser {
    #[serde(default)]
    password: Option<String>,
    #[serde(default)]
    scopes: Option<Vec<String>>,
}

/// A token to be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewToken {
    name: String,
    scopes: Vec<String>,
}

/// A token, told once.
#[derive(Serialize, ToSchema)]
struct MadeToken {
    token: String,
}

/// Who may use the panel.
#[utoipa::path(get, path = "/api/v1/users", responses((status = 200, body = Users), (status = 403, body = FailureBody)))]
async fn users(_: May<Admin>, extract::State(shared): State) -> Json<Users> {
    let writable = shared.config().global.http_auth_file.as_ref().is_some_and(|path| !path.is_empty());
    let view = |one: crate::access::editing::Listed| Somebody {
        kind: one.kind.word(),
        name: one.name,
        scopes: one.scopes.names(),
    };
    Json(Users { writable, users: listed(&shared).into_iter().map(view).collect() })
}

/// Adds a user.
#[utoipa::path(post, path = "/api/v1/users", request_body = NewUser, responses(
    (status = 204), (status = 403, body = FailureBody), (status = 409, body = FailureBody), (status = 422, body = FailureBody)))]
async fn add_user(
    May(caller, _): May<Admin>,
    extract::State(shared): State,
    Body(user): Body<NewUser>,
) -> Result<StatusCode, Failure> {
    let add = Change::AddUser { scopes: user.scopes.join(","), password: user.password };
    change(&Arc::clone(&shared), &caller, Kind::User, &user.name, add).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Changes a user's scopes or password; their sessions end.
#[utoipa::path(put, path = "/api/v1/users/{name}", params(("name" = String, Path)), request_body = OtherUser, responses(
    (status = 204), (status = 403, body = FailureBody), (status = 404, body = FailureBody), (status = 409, body = FailureBody), (status = 422, body = FailureBody)))]
async fn change_user(
    May(caller, _): May<Admin>,
    extract::State(shared): State,
    Path(name): Path<String>,
    Body(other): Body<OtherUser>,
) -> Result<StatusCode, Failure> {
    let wanted = Change::Replace { scopes: other.scopes.map(|scopes| scopes.join(",")), password: other.password };
    change(&shared, &caller, Kind::User, &name, wanted).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a user; their sessions end.
#[utoipa::path(delete, path = "/api/v1/users/{name}", params(("name" = String, Path)), responses(
    (status = 204), (status = 403, body = FailureBody), (status = 404, body = FailureBody), (status = 409, body = FailureBody)))]
async fn remove_user(
    May(caller, _): May<Admin>,
    extract::State(shared): State,
    Path(name): Path<String>,
) -> Result<StatusCode, Failure> {
    change(&shared, &caller, Kind::User, &name, Change::Remove).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Makes a token, and tells it once.
#[utoipa::path(post, path = "/api/v1/tokens", request_body = NewToken, responses(
    (status = 201, body = MadeToken), (status = 403, body = FailureBody), (status = 409, body = FailureBody), (status = 422, body = FailureBody)))]
async fn add_token(
    May(caller, _): May<Admin>,
    extract::State(shared): State,
    Body(token): Body<NewToken>,
) -> Result<(StatusCode, Json<MadeToken>), Failure> {
    let add = Change::AddToken { scopes: token.scopes.join(",") };
    let token = change(&shared, &caller, Kind::Token, &token.name, add).await?.unwrap_or_default();
    Ok((StatusCode::CREATED, Json(MadeToken { token })))
}

/// Removes every token of this name.
#[utoipa::path(delete, path = "/api/v1/tokens/{name}", params(("name" = String, Path)), responses(
    (status = 204), (status = 403, body = FailureBody), (status = 404, body = FailureBody), (status = 409, body = FailureBody)))]
async fn remove_token(
    May(caller, _): May<Admin>,
    extract::State(shared): State,
    Path(name): Path<String>,
) -> Result<StatusCode, Failure> {
    change(&shared, &caller, Kind::Token, &name, Change::Remove).await?;
    Ok(StatusCode::NO_CONTENT)
}
