//! Logging in and out, and who the caller is.
//! Never decides who may come in: `access` does.

use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::{Extension, Json, extract};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::audit;
use crate::access::login::{Attempt, LoggedIn, log_in, log_out};
use crate::access::{Caller, May, Read};
use crate::body::Body;
use crate::connection::Peer;
use crate::failure::{Failure, FailureBody};
use crate::routes::Routes;
use crate::shared::State;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(session)).routes(routes!(logout))
}

/// What one needs no key for.
pub(crate) fn open_routes() -> Routes {
    OpenApiRouter::new().routes(routes!(login))
}

/// The caller.
#[derive(Serialize, ToSchema)]
struct Session {
    /// Its name.
    user: String,
    /// What it may do.
    scopes: Vec<&'static str>,
    /// What the header X-Weir-CSRF must say in requests that change something; null for one with a token.
    csrf: Option<String>,
    /// Of Weir, as SHOW VERSION has it.
    version: &'static str,
    /// How one may log in.
    methods: [&'static str; 2],
}

impl Session {
    fn of(caller: Caller, version: &'static str) -> Session {
        let scopes = caller.scopes.names();
        Session { user: caller.name, scopes, csrf: caller.csrf, version, methods: ["password", "token"] }
    }
}

/// What somebody logs in by: user and password, or a token.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Login {
    user: Option<String>,
    password: Option<String>,
    token: Option<String>,
}

/// Who the caller is and what it may.
#[utoipa::path(get, path = "/api/v1/session", responses(
    (status = 200, body = Session), (status = 401, body = FailureBody)))]
async fn session(May(caller, ..): May<Read>, extract::State(shared): State) -> Json<Session> {
    Json(Session::of(caller, shared.version))
}

/// Gives a cookie for a password or a token.
#[utoipa::path(post, path = "/api/v1/login", request_body = Login, responses(
    (status = 200, body = Session), (status = 401, body = FailureBody), (status = 429, body = FailureBody)))]
async fn login(
    extract::State(shared): State,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Body(login): Body<Login>,
) -> Result<([(HeaderName, String); 1], Json<Session>), Failure> {
    let attempt = match login {
        Login { token: Some(token), user: None, password: None } => Attempt::Token(token),
        Login { token: Some(_), .. } => {
            return Err(Failure::unprocessable("either a token or user and password").of("token"));
        }
        Login { user: Some(user), password: Some(password), .. } => Attempt::Password { user, password },
        Login { user: None, .. } => return Err(Failure::unprocessable("user or token is needed").of("user")),
        Login { .. } => return Err(Failure::unprocessable("a password is needed").of("password")),
    };
    let name = attempt.name().to_owned();
    let outcome = log_in(&shared, peer, &headers, attempt).await;
    let status = outcome.as_ref().map_or_else(Failure::code, |_| StatusCode::OK.as_u16());
    // What was not even looked at would fill the log.
    if status != StatusCode::TOO_MANY_REQUESTS.as_u16() {
        audit::note(&shared, &name, peer.address, "POST", "/api/v1/login", status);
    }
    let LoggedIn { cookie, caller } = outcome?;
    Ok(([(header::SET_COOKIE, cookie)], Json(Session::of(caller, shared.version))))
}

/// Ends the session.
#[utoipa::path(post, path = "/api/v1/logout", responses((status = 204), (status = 401, body = FailureBody)))]
async fn logout(
    extract::State(shared): State,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> (StatusCode, [(HeaderName, String); 1]) {
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, log_out(&shared, peer, &headers))])
}
