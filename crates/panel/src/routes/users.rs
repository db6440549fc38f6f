//! Users and tokens of `http_auth_file`, listed and changed by an admin.
//! Never shows a password or a hash; the text of a token only when it is created.

use std::sync::Arc;

use axum::extract::{self, Path};
use axum::http::StatusCode;
use axum::Json;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::auth_file::{CredentialChange, CredentialKind, change, list};
use crate::access::{Access, Admin, Authorized, ScopeName};
use crate::context::PanelContext;
use crate::extract::JsonBody;
use crate::failure::{Failure, FailureBody};
use crate::routes::Routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(users, add_user))
        .routes(routes!(change_user, remove_user))
        .routes(routes!(add_token))
        .routes(routes!(remove_token))
}

/// A user or a token.
#[derive(Serialize, ToSchema)]
struct UserEntry {
    /// user (with a password) or token.
    kind: CredentialKind,
    name: String,
    scopes: Vec<ScopeName>,
}

/// All users and tokens.
#[derive(Serialize, ToSchema)]
struct Users {
    /// Users can be changed here: `http_auth_file` names a file.
    writable: bool,
    users: Vec<UserEntry>,
}

/// A user to be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewUser {
    name: String,
    /// At least 8 characters.
    password: String,
    /// read, operate, admin, view_credentials: none but the caller's own.
    #[schema(value_type = Vec<ScopeName>)]
    scopes: Vec<String>,
}

/// What is to be another; what is left out stays.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct UserChange {
    #[serde(default)]
    password: Option<String>,
    #[serde(default)]
    #[schema(value_type = Option<Vec<ScopeName>>)]
    scopes: Option<Vec<String>>,
}

/// A token to be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewToken {
    name: String,
    #[schema(value_type = Vec<ScopeName>)]
    scopes: Vec<String>,
}

/// A new token, shown once.
#[derive(Serialize, ToSchema)]
struct CreatedToken {
    token: String,
}

/// The users and tokens of the panel.
#[utoipa::path(get, path = "/api/v1/users", responses((status = 200, body = Users), (status = 403, body = FailureBody)))]
async fn users(_: Authorized<Admin>, extract::State(access): extract::State<Arc<Access>>,
    extract::State(context): extract::State<PanelContext>) -> Json<Users> {
    let writable = context.config().global.http_auth_file.as_ref().is_some_and(|path| !path.is_empty());
    let view = |one: crate::access::auth_file::CredentialInfo| UserEntry {
        kind: one.kind,
        name: one.name,
        scopes: one.scopes.names(),
    };
    Json(Users { writable, users: list(&access).into_iter().map(view).collect() })
}

/// Adds a user.
#[utoipa::path(post, path = "/api/v1/users", request_body = NewUser, responses(
    (status = 204), (status = 403, body = FailureBody), (status = 409, body = FailureBody), (status = 422, body = FailureBody)))]
async fn add_user(
    Authorized(caller, _): Authorized<Admin>,
    extract::State(access): extract::State<Arc<Access>>,
    extract::State(context): extract::State<PanelContext>,
    JsonBody(user): JsonBody<NewUser>,
) -> Result<StatusCode, Failure> {
    let add = CredentialChange::AddUser { scopes: user.scopes.join(","), password: user.password };
    change(&access, &context, &caller, CredentialKind::User, &user.name, add).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Changes a user's scopes or password; their sessions end.
#[utoipa::path(put, path = "/api/v1/users/{name}", params(("name" = String, Path)), request_body = UserChange, responses(
    (status = 204), (status = 403, body = FailureBody), (status = 404, body = FailureBody), (status = 409, body = FailureBody), (status = 422, body = FailureBody)))]
async fn change_user(
    Authorized(caller, _): Authorized<Admin>,
    extract::State(access): extract::State<Arc<Access>>,
    extract::State(context): extract::State<PanelContext>,
    Path(name): Path<String>,
    JsonBody(other): JsonBody<UserChange>,
) -> Result<StatusCode, Failure> {
    let wanted = CredentialChange::Replace { scopes: other.scopes.map(|scopes| scopes.join(",")), password: other.password };
    change(&access, &context, &caller, CredentialKind::User, &name, wanted).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a user; their sessions end.
#[utoipa::path(delete, path = "/api/v1/users/{name}", params(("name" = String, Path)), responses(
    (status = 204), (status = 403, body = FailureBody), (status = 404, body = FailureBody), (status = 409, body = FailureBody)))]
async fn remove_user(
    Authorized(caller, _): Authorized<Admin>,
    extract::State(access): extract::State<Arc<Access>>,
    extract::State(context): extract::State<PanelContext>,
    Path(name): Path<String>,
) -> Result<StatusCode, Failure> {
    change(&access, &context, &caller, CredentialKind::User, &name, CredentialChange::Remove).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Creates a token; its text is shown once.
#[utoipa::path(post, path = "/api/v1/tokens", request_body = NewToken, responses(
    (status = 201, body = CreatedToken), (status = 403, body = FailureBody), (status = 409, body = FailureBody), (status = 422, body = FailureBody)))]
async fn add_token(
    Authorized(caller, _): Authorized<Admin>,
    extract::State(access): extract::State<Arc<Access>>,
    extract::State(context): extract::State<PanelContext>,
    JsonBody(token): JsonBody<NewToken>,
) -> Result<(StatusCode, Json<CreatedToken>), Failure> {
    let add = CredentialChange::AddToken { scopes: token.scopes.join(",") };
    let token = change(&access, &context, &caller, CredentialKind::Token, &token.name, add).await?.unwrap_or_default();
    Ok((StatusCode::CREATED, Json(CreatedToken { token })))
}

/// Removes every token of this name.
#[utoipa::path(delete, path = "/api/v1/tokens/{name}", params(("name" = String, Path)), responses(
    (status = 204), (status = 403, body = FailureBody), (status = 404, body = FailureBody), (status = 409, body = FailureBody)))]
async fn remove_token(
    Authorized(caller, _): Authorized<Admin>,
    extract::State(access): extract::State<Arc<Access>>,
    extract::State(context): extract::State<PanelContext>,
    Path(name): Path<String>,
) -> Result<StatusCode, Failure> {
    change(&access, &context, &caller, CredentialKind::Token, &name, CredentialChange::Remove).await?;
    Ok(StatusCode::NO_CONTENT)
}
