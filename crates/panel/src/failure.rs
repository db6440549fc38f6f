//! Why a request is not done: one enum, one text for each, in DigitalOcean's shape.
//! Owns their statuses, their words and the fields that they blame. Never says more about the inside than its reader could know.

use std::fmt;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use control::PoolError;
use messages::ErrorKind;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::control_client::ControlError;

/// A request that is not done, and why. A text stands in here only where another part has found it.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was sent is not what HTTP or JSON is made of; the parser's words.
    Malformed(String),
    /// The body did not come in time.
    BodyTimedOut,
    /// No caller is known, in DigitalOcean's words.
    Unauthorized,
    /// A login from another machine without TLS.
    PlainHttpLogin,
    /// A page of another origin asks.
    ForeignPage,
    /// The page does not know its session's word.
    WrongCsrf,
    /// The caller lacks this scope.
    ScopeNeeded(&'static str),
    /// The user or token of this name has scopes that the caller lacks.
    HasOtherScopes(String),
    /// The caller lacks what it would grant or revoke.
    GrantsOtherScopes,
    /// `http_lab` is off.
    LabDisabled,
    /// In DigitalOcean's words.
    NotFound,
    /// The path has other methods.
    MethodNotAllowed,
    /// `http_auth_file` is empty.
    NoAuthFile,
    /// `http_auth_file` cannot be read.
    AuthFileBroken(String),
    /// A user or token of this name exists.
    CredentialExists { kind: &'static str, name: String },
    /// No admin would be left.
    LastAdmin,
    /// The lab runs.
    RunInProgress,
    /// A run without an advised size.
    NoAdvice,
    /// The server has no `GENERIC_PLAN`.
    NoGenericPlan,
    /// The server's or Weir's reason why there is no plan.
    ExplainFailed(String),
    /// Only the beginning of the statement is known.
    StatementTooLong,
    /// A statement without a plan.
    NotExplainable,
    /// Nothing to log in to the server with.
    NoServerUser,
    /// The body is longer than this.
    BodyTooLarge { limit: usize },
    /// The host name of the request is not the panel's.
    Misdirected,
    /// A value that cannot be, and why: the words of what reads it.
    Invalid { field: Option<&'static str>, why: String },
    /// A field that the request does not have. Left out of account, it could mean another change than is made.
    UnknownField(String),
    /// A body where none is read.
    NoBodyWanted,
    /// A pool's name in the body is another one.
    Renamed,
    /// A login with both.
    TokenAndUser,
    /// A login with neither.
    UserMissing,
    /// A login without a password.
    PasswordMissing,
    /// A password for a token.
    PasswordOfToken,
    /// KILL without the name of the database.
    NotConfirmed,
    /// A run on a pool whose clients bring their users.
    PoolWithoutUser,
    /// The caller's limit of requests is reached.
    RateLimited,
    /// Too many logins: the next may come then.
    TooManyAttempts { seconds: u64 },
    /// Weir's fault; the log says more.
    ServerError,
    /// The process is going to end.
    ShuttingDown,
    /// New clients are to go to another process (DRAIN).
    Draining,
    /// The panel's limit of connections.
    TooManyConnections,
    /// The connection makes room for another.
    Evicted,
    /// The limit of streams of live figures.
    TooManyStreams,
    /// The limit of readers of the log.
    TooManyLogReaders,
    /// The limit of changes in flight.
    TooManyChanges,
    /// PostgreSQL has not answered.
    ServerTimedOut,
    /// What to install, to have a lab.
    LabNotInstalled(String),
    /// The system's reason why the lab's process does not start.
    LabNotStarted(String),
    /// The system's reason why `http_auth_file` stays as it is.
    AuthFileUnwritable { path: String, why: String },
    /// The control thread's answer.
    Control(ControlError),
    /// Why a change of pools is not made.
    Pool(PoolError),
}

/// A failure as JSON.
#[derive(Serialize, ToSchema)]
pub(crate) struct FailureBody {
    /// A word that programs may rely on.
    #[schema(example = "unprocessable_entity")]
    id: &'static str,
    /// A sentence for people.
    message: String,
    /// Of this one request.
    request_id: String,
    /// The field of the request that is to blame.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
}

impl Failure {
    /// Its status.
    pub(crate) fn code(&self) -> u16 {
        self.status().as_u16()
    }

    fn status(&self) -> StatusCode {
        match self {
            Failure::Malformed(_) | Failure::BodyTimedOut => StatusCode::BAD_REQUEST,
            Failure::Unauthorized => StatusCode::UNAUTHORIZED,
            Failure::PlainHttpLogin
            | Failure::ForeignPage
            | Failure::WrongCsrf
            | Failure::ScopeNeeded(_)
            | Failure::HasOtherScopes(_)
            | Failure::GrantsOtherScopes
            | Failure::LabDisabled => StatusCode::FORBIDDEN,
            Failure::NotFound => StatusCode::NOT_FOUND,
            Failure::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Failure::NoAuthFile
            | Failure::AuthFileBroken(_)
            | Failure::CredentialExists { .. }
            | Failure::LastAdmin
            | Failure::RunInProgress
            | Failure::NoAdvice
            | Failure::NoGenericPlan
            | Failure::ExplainFailed(_)
            | Failure::StatementTooLong
            | Failure::NotExplainable
            | Failure::NoServerUser => StatusCode::CONFLICT,
            Failure::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Failure::Misdirected => StatusCode::MISDIRECTED_REQUEST,
            Failure::Invalid { .. }
            | Failure::UnknownField(_)
            | Failure::NoBodyWanted
            | Failure::Renamed
            | Failure::TokenAndUser
            | Failure::UserMissing
            | Failure::PasswordMissing
            | Failure::PasswordOfToken
            | Failure::NotConfirmed
            | Failure::PoolWithoutUser => StatusCode::UNPROCESSABLE_ENTITY,
            Failure::RateLimited | Failure::TooManyAttempts { .. } => StatusCode::TOO_MANY_REQUESTS,
            Failure::ServerError => StatusCode::INTERNAL_SERVER_ERROR,
            Failure::LabNotInstalled(_) => StatusCode::NOT_IMPLEMENTED,
            Failure::ShuttingDown
            | Failure::Draining
            | Failure::TooManyConnections
            | Failure::Evicted
            | Failure::TooManyStreams
            | Failure::TooManyLogReaders
            | Failure::TooManyChanges
            | Failure::ServerTimedOut
            | Failure::LabNotStarted(_)
            | Failure::AuthFileUnwritable { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Failure::Control(error) => control_status(error),
            Failure::Pool(error) => pool_status(error),
        }
    }

    /// The field of the request that is to blame.
    pub(crate) fn field(&self) -> Option<&str> {
        Some(match self {
            Failure::UnknownField(name) => name,
            Failure::Invalid { field, .. } => return *field,
            Failure::Pool(error) => return error.of_field(),
            Failure::CredentialExists { .. } | Failure::Renamed => "name",
            Failure::GrantsOtherScopes => "scopes",
            Failure::TokenAndUser => "token",
            Failure::UserMissing => "user",
            Failure::PasswordMissing | Failure::PasswordOfToken => "password",
            Failure::NotConfirmed => "confirm",
            Failure::PoolWithoutUser => "target",
            _ => return None,
        })
    }

    /// When the same request may succeed.
    fn retry_after_s(&self) -> Option<u64> {
        match self {
            Failure::TooManyAttempts { seconds } => Some(*seconds),
            _ => (self.status() == StatusCode::SERVICE_UNAVAILABLE).then_some(1),
        }
    }

    /// A value of this field that cannot be.
    pub(crate) fn invalid(field: &'static str, why: impl Into<String>) -> Failure {
        Failure::Invalid { field: Some(field), why: why.into() }
    }

    /// The word that programs may rely on.
    fn id(&self) -> &'static str {
        match self {
            Failure::LabNotInstalled(_) => "lab_not_installed",
            _ => id(self.status()),
        }
    }

    fn body(&self) -> FailureBody {
        FailureBody {
            id: self.id(),
            message: self.to_string(),
            request_id: Uuid::new_v4().to_string(),
            field: self.field().map(str::to_owned),
        }
    }

    /// The body as text, for a connection that is closed before its request is read.
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(&self.body()).unwrap_or_default()
    }
}

/// The word of a status.
fn id(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "bad_request",
        StatusCode::UNAUTHORIZED => "unauthorized",
        StatusCode::FORBIDDEN => "forbidden",
        StatusCode::NOT_FOUND => "not_found",
        StatusCode::METHOD_NOT_ALLOWED => "method_not_allowed",
        StatusCode::CONFLICT => "conflict",
        StatusCode::PAYLOAD_TOO_LARGE => "payload_too_large",
        StatusCode::MISDIRECTED_REQUEST => "misdirected_request",
        StatusCode::UNPROCESSABLE_ENTITY => "unprocessable_entity",
        StatusCode::TOO_MANY_REQUESTS => "too_many_requests",
        StatusCode::SERVICE_UNAVAILABLE => "service_unavailable",
        _ => "server_error",
    }
}

fn control_status(error: &ControlError) -> StatusCode {
    match error {
        ControlError::Rejected { kind, .. } => match kind {
            ErrorKind::Forbidden => StatusCode::FORBIDDEN,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Conflict => StatusCode::CONFLICT,
        },
        ControlError::Busy | ControlError::TimedOut => StatusCode::SERVICE_UNAVAILABLE,
    }
}

fn pool_status(error: &PoolError) -> StatusCode {
    match error {
        PoolError::Field { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        PoolError::Exists { .. } | PoolError::Broken(_) | PoolError::NeedsReload(_) => StatusCode::CONFLICT,
        PoolError::NotFound(_) => StatusCode::NOT_FOUND,
        PoolError::NotOurs { .. } | PoolError::NoPoolsFile | PoolError::NewServers => StatusCode::FORBIDDEN,
        PoolError::Unreadable { .. } | PoolError::Unwritable { .. } | PoolError::NotHere(_) => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        PoolError::Fleet(_) | PoolError::Ending => StatusCode::SERVICE_UNAVAILABLE,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Malformed(why) => out.write_str(why),
            Failure::BodyTimedOut => out.write_str("the body was not complete in time"),
            Failure::Unauthorized => out.write_str("Unable to authenticate you."),
            Failure::PlainHttpLogin => out.write_str("Logins over plain HTTP are accepted from this machine only: set http_tls_cert_file and http_tls_key_file."),
            Failure::ForeignPage => out.write_str("the request does not come from the panel's own page"),
            Failure::WrongCsrf => out.write_str("the header X-Weir-CSRF does not match the session"),
            Failure::ScopeNeeded(scope) => write!(out, "scope {scope} is needed"),
            Failure::HasOtherScopes(name) => write!(out, "{name} has scopes that you do not have"),
            Failure::GrantsOtherScopes => out.write_str("users cannot grant or revoke scopes that they do not have"),
            Failure::LabDisabled => out.write_str("the lab is disabled: http_lab is 0"),
            Failure::NotFound | Failure::Pool(PoolError::NotFound(_)) => out.write_str(NOT_FOUND),
            Failure::MethodNotAllowed => out.write_str("This method is not allowed here."),
            Failure::NoAuthFile => out.write_str("users cannot be changed here: http_auth_file names no file"),
            Failure::AuthFileBroken(why) => write!(out, "http_auth_file {why}"),
            Failure::CredentialExists { kind, name } => write!(out, "a {kind} {name} exists already"),
            Failure::LastAdmin => out.write_str("this is the last user or token with scope admin: it must keep that scope"),
            Failure::RunInProgress => out.write_str("another run is in progress: two would disturb each other"),
            Failure::NoAdvice => out.write_str("the run advises no size"),
            Failure::NoGenericPlan => out.write_str("The server is older than PostgreSQL 16, the first version that plans statements without values"),
            Failure::ExplainFailed(why) => write!(out, "EXPLAIN failed: {why}"),
            Failure::StatementTooLong => out.write_str("The statement is too long to be kept whole, so it cannot be explained"),
            Failure::NotExplainable => out.write_str("Only SELECT, INSERT, UPDATE, DELETE, MERGE, VALUES and WITH have a plan"),
            Failure::NoServerUser => out.write_str("No user is known to log in to the pool's server"),
            Failure::BodyTooLarge { limit } => write!(out, "A body has at most {limit} bytes."),
            Failure::Misdirected => out.write_str("This host name is not allowed. http_allowed_hosts lists further ones."),
            Failure::Invalid { why, .. } => out.write_str(why),
            Failure::UnknownField(name) => write!(out, "unknown field `{name}`"),
            Failure::NoBodyWanted => out.write_str("this request takes no body"),
            Failure::Renamed => out.write_str("a pool cannot be renamed: create another one and delete this one"),
            Failure::TokenAndUser => out.write_str("either a token or user and password"),
            Failure::UserMissing => out.write_str("user or token is needed"),
            Failure::PasswordMissing => out.write_str("a password is needed"),
            Failure::PasswordOfToken => out.write_str("a token has no password"),
            Failure::NotConfirmed => out.write_str("KILL ends every transaction of the database: enter its name to confirm"),
            Failure::PoolWithoutUser => out.write_str("the pool has no user, and the lab has none to log in as"),
            Failure::RateLimited => out.write_str("API rate limit exceeded."),
            Failure::TooManyAttempts { seconds } => write!(out, "Too many attempts: try again in {seconds} s."),
            Failure::ServerError => out.write_str("Unexpected server-side error"),
            Failure::ShuttingDown => out.write_str("the pooler is shutting down"),
            Failure::Draining => out.write_str("the pooler is draining"),
            Failure::TooManyConnections => out.write_str("too many connections are open"),
            Failure::Evicted => out.write_str("too many connections without a login are open: closing the oldest"),
            Failure::TooManyStreams => out.write_str("too many streams are open: 200"),
            Failure::TooManyLogReaders => out.write_str("too many readers follow the log"),
            Failure::TooManyChanges => out.write_str("too many changes are under way"),
            Failure::ServerTimedOut => out.write_str("the server did not answer in time"),
            Failure::LabNotInstalled(why) => write!(out, "the lab is not installed: {why}"),
            Failure::LabNotStarted(why) => write!(out, "the lab cannot be started: {why}"),
            Failure::AuthFileUnwritable { path, why } => {
                write!(out, "http_auth_file \"{path}\" cannot be changed: {why}")
            }
            Failure::Control(error) => error.fmt(out),
            Failure::Pool(error) => error.fmt(out),
        }
    }
}

/// In DigitalOcean's words.
const NOT_FOUND: &str = "The resource you requested could not be found.";

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Failure {
        Failure::Control(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let (status, retry_after_s) = (self.status(), self.retry_after_s());
        let mut response = (status, Json(self.body())).into_response();
        if let Some(seconds) = retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            // The client reconnects later; its place is free until then.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_its_status_word_text_and_field() {
        let body = |failure: Failure| {
            let FailureBody { id, message, field, .. } = failure.body();
            (failure.code(), id, message, field)
        };
        let name = Some("name".to_owned());
        let exists = Failure::CredentialExists { kind: "user", name: "ann".to_owned() };
        assert_eq!(body(exists), (409, "conflict", "a user ann exists already".to_owned(), name));
        let text = "the pooler did not answer in time".to_owned();
        assert_eq!(body(ControlError::TimedOut.into()), (503, "service_unavailable", text, None));
        let missing = Failure::Pool(PoolError::NotFound("app".to_owned()));
        assert_eq!(body(missing), (404, "not_found", NOT_FOUND.to_owned(), None));
        let missing = Failure::LabNotInstalled("install it".to_owned());
        let text = "the lab is not installed: install it".to_owned();
        assert_eq!(body(missing), (501, "lab_not_installed", text, None));
        assert_eq!(Failure::TooManyAttempts { seconds: 7 }.retry_after_s(), Some(7));
        assert_eq!((Failure::Evicted.retry_after_s(), Failure::Renamed.retry_after_s()), (Some(1), None));
    }
}
