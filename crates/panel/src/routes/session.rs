//! Login, logout, and the caller's session.
//! Never checks a credential: `access` does.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::{Extension, Json, extract};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::audit_log::AuditLog;
use crate::access::login::{LoginAttempt, LoggedIn, log_in, log_out};
use crate::access::{Access, Authorized, Caller, Read, ScopeName};
use crate::extract::JsonBody;
use crate::connection::RemoteAddress;
use crate::context::PanelContext;
use crate::failure::{Failure, FailureBody};
use crate::routes::Routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(session)).routes(routes!(logout))
}

/// What one needs no key for.
pub(crate) fn open_routes() -> Routes {
    OpenApiRouter::new().routes(routes!(login))
}

/// The caller.
#[derive(Serialize, ToSchema)]
struct SessionInfo {
    /// Its name.
    user: String,
    /// What it may do.
    scopes: Vec<ScopeName>,
    /// What the header X-Weir-CSRF must say in requests that change something; null for one with a token.
    #[schema(required)]
    csrf: Option<String>,
    /// Of Weir, as SHOW VERSION has it.
    version: &'static str,
    /// The methods of login.
    methods: [&'static str; 2],
    /// The process is a node of a fleet.
    is_fleet_node: bool,
}

impl SessionInfo {
    fn of(caller: Caller, context: &PanelContext) -> SessionInfo {
        SessionInfo {
            scopes: caller.scopes.names(),
            user: caller.name,
            csrf: caller.csrf,
            version: context.version(),
            methods: ["password", "token"],
            is_fleet_node: context.config().global.fleet.is_some(),
        }
    }
}

/// A login: user and password, or a token.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct LoginRequest {
    user: Option<String>,
    password: Option<String>,
    token: Option<String>,
}

/// The caller and its scopes.
#[utoipa::path(get, path = "/api/v1/session", responses(
    (status = 200, body = SessionInfo), (status = 401, body = FailureBody)))]
async fn session(Authorized(caller, ..): Authorized<Read>, extract::State(context): extract::State<PanelContext>) -> Json<SessionInfo> {
    Json(SessionInfo::of(caller, &context))
}

/// Gives a cookie for a password or a token.
#[utoipa::path(post, path = "/api/v1/login", request_body = LoginRequest, responses(
    (status = 200, body = SessionInfo), (status = 401, body = FailureBody), (status = 429, body = FailureBody)))]
async fn login(
    extract::State(access): extract::State<Arc<Access>>,
    extract::State(audit_log): extract::State<AuditLog>,
    extract::State(context): extract::State<PanelContext>,
    Extension(peer): Extension<RemoteAddress>,
    headers: HeaderMap,
    JsonBody(login): JsonBody<LoginRequest>,
) -> Result<([(HeaderName, String); 1], Json<SessionInfo>), Failure> {
    let attempt = match login {
        LoginRequest { token: Some(token), user: None, password: None } => LoginAttempt::Token(token),
        LoginRequest { token: Some(_), .. } => {
            return Err(Failure::TokenAndUser);
        }
        LoginRequest { user: Some(user), password: Some(password), .. } => LoginAttempt::Password { user, password },
        LoginRequest { user: None, .. } => return Err(Failure::UserMissing),
        LoginRequest { .. } => return Err(Failure::PasswordMissing),
    };
    let name = attempt.name().to_owned();
    let outcome = log_in(&access, peer, &headers, attempt).await;
    // A token says whose it is only once it is known.
    let name = outcome.as_ref().map_or(name, |logged_in| logged_in.caller.name.clone());
    let status = outcome.as_ref().map_or_else(Failure::code, |_| StatusCode::OK.as_u16());
    // What was not even looked at would fill the log.
    if status != StatusCode::TOO_MANY_REQUESTS.as_u16() {
        audit_log.note(&name, peer.address, "POST", "/api/v1/login", status);
    }
    let LoggedIn { cookie, caller } = outcome?;
    Ok(([(header::SET_COOKIE, cookie)], Json(SessionInfo::of(caller, &context))))
}

/// Ends the session.
#[utoipa::path(post, path = "/api/v1/logout", responses((status = 204), (status = 401, body = FailureBody)))]
async fn logout(
    extract::State(access): extract::State<Arc<Access>>,
    Extension(peer): Extension<RemoteAddress>,
    headers: HeaderMap,
) -> (StatusCode, [(HeaderName, String); 1]) {
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, log_out(&access, peer, &headers))])
}
