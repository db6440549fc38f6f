//! Errors of the API in DigitalOcean's shape, with the field that caused them.
//! Owns the words of HTTP's own failures. Never says more about the inside than its reader could know.

use std::borrow::Cow;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use messages::ErrorKind;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::control_client::ControlError;

/// What kind of failure: the one place that knows statuses and ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    Conflict,
    PayloadTooLarge,
    Misdirected,
    Unprocessable,
    TooManyRequests,
    ServerError,
    Unavailable,
}

impl FailureKind {
    fn status(self) -> StatusCode {
        match self {
            FailureKind::BadRequest => StatusCode::BAD_REQUEST,
            FailureKind::Unauthorized => StatusCode::UNAUTHORIZED,
            FailureKind::Forbidden => StatusCode::FORBIDDEN,
            FailureKind::NotFound => StatusCode::NOT_FOUND,
            FailureKind::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            FailureKind::Conflict => StatusCode::CONFLICT,
            FailureKind::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            FailureKind::Misdirected => StatusCode::MISDIRECTED_REQUEST,
            FailureKind::Unprocessable => StatusCode::UNPROCESSABLE_ENTITY,
            FailureKind::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
            FailureKind::ServerError => StatusCode::INTERNAL_SERVER_ERROR,
            FailureKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The word that programs may rely on.
    fn id(self) -> &'static str {
        match self {
            FailureKind::BadRequest => "bad_request",
            FailureKind::Unauthorized => "unauthorized",
            FailureKind::Forbidden => "forbidden",
            FailureKind::NotFound => "not_found",
            FailureKind::MethodNotAllowed => "method_not_allowed",
            FailureKind::Conflict => "conflict",
            FailureKind::PayloadTooLarge => "payload_too_large",
            FailureKind::Misdirected => "misdirected_request",
            FailureKind::Unprocessable => "unprocessable_entity",
            FailureKind::TooManyRequests => "too_many_requests",
            FailureKind::ServerError => "server_error",
            FailureKind::Unavailable => "service_unavailable",
        }
    }
}

/// A request that is not done, and why.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: FailureKind,
    message: String,
    field: Option<Cow<'static, str>>,
    retry_after_s: Option<u64>,
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
    field: Option<Cow<'static, str>>,
}

impl Failure {
    fn new(kind: FailureKind, message: impl Into<String>) -> Failure {
        Failure { kind, message: message.into(), field: None, retry_after_s: None }
    }

    /// 421: the host name of the request is not allowed.
    pub(crate) fn misdirected(message: impl Into<String>) -> Failure {
        Failure::new(FailureKind::Misdirected, message)
    }

    /// 429: the caller's limit of requests is reached.
    pub(crate) fn rate_limited() -> Failure {
        Failure::new(FailureKind::TooManyRequests, "API rate limit exceeded.")
    }

    /// 500, where the caller may know the reason.
    pub(crate) fn failed(message: impl Into<String>) -> Failure {
        Failure::new(FailureKind::ServerError, message)
    }

    /// Its status.
    pub(crate) fn code(&self) -> u16 {
        self.kind.status().as_u16()
    }

    /// The field that is to blame.
    #[cfg(test)]
    pub(crate) fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    /// 429, with the seconds to wait.
    pub(crate) fn too_many(seconds: u64) -> Failure {
        let text = format!("Too many attempts: try again in {seconds} s.");
        let failure = Failure::new(FailureKind::TooManyRequests, text);
        Failure { retry_after_s: Some(seconds), ..failure }
    }

    /// 400: not what HTTP or JSON is made of.
    pub(crate) fn bad_request(message: impl Into<String>) -> Failure {
        Failure::new(FailureKind::BadRequest, message)
    }

    /// 401, in DigitalOcean's words.
    pub(crate) fn unauthorized() -> Failure {
        Failure::new(FailureKind::Unauthorized, "Unable to authenticate you.")
    }

    /// 403: known, and not allowed.
    pub(crate) fn forbidden(message: impl Into<String>) -> Failure {
        Failure::new(FailureKind::Forbidden, message)
    }

    /// 404, in DigitalOcean's words.
    pub(crate) fn not_found() -> Failure {
        let text = "The resource you requested could not be found.";
        Failure::new(FailureKind::NotFound, text)
    }

    /// 405.
    pub(crate) fn method_not_allowed() -> Failure {
        let text = "This method is not allowed here.";
        Failure::new(FailureKind::MethodNotAllowed, text)
    }

    /// 409: something is there already, or in the way.
    pub(crate) fn conflict(message: impl Into<String>) -> Failure {
        Failure::new(FailureKind::Conflict, message)
    }

    /// 413.
    pub(crate) fn too_large() -> Failure {
        let text = format!("A body has at most {} bytes.", crate::extract::MAX_BODY_BYTES);
        Failure::new(FailureKind::PayloadTooLarge, text)
    }

    /// 422: understood, and wrong.
    pub(crate) fn unprocessable(message: impl Into<String>) -> Failure {
        Failure::new(FailureKind::Unprocessable, message)
    }

    /// 500: Weir's fault; the log says more.
    pub(crate) fn server_error() -> Failure {
        Failure::new(FailureKind::ServerError, "Unexpected server-side error")
    }

    /// 503: not now.
    pub(crate) fn unavailable(message: impl Into<String>) -> Failure {
        let text = message.into();
        Failure { retry_after_s: Some(1), ..Failure::new(FailureKind::Unavailable, text) }
    }

    /// Names the field of the request that is to blame.
    pub(crate) fn of(mut self, field: impl Into<Cow<'static, str>>) -> Failure {
        self.field = Some(field.into());
        self
    }

    /// 422: a field that the request does not have. Left out of account, it could mean another change than is made.
    pub(crate) fn unknown_field(name: String) -> Failure {
        Failure::unprocessable(format!("unknown field `{name}`")).of(name)
    }
}

impl From<ControlError> for Failure {
    fn from(no: ControlError) -> Failure {
        match no {
            ControlError::Rejected { kind, message } => match kind {
                ErrorKind::Forbidden => Failure::forbidden(message),
                ErrorKind::NotFound => Failure { message, ..Failure::not_found() },
                ErrorKind::Unavailable => Failure::unavailable(message),
                ErrorKind::Conflict => Failure::conflict(message),
            },
            ControlError::Busy => Failure::unavailable("too many requests to the pooler are in flight"),
            ControlError::TimedOut => Failure::unavailable("the pooler did not answer in time"),
        }
    }
}

impl Failure {
    fn body(self) -> FailureBody {
        let request_id = Uuid::new_v4().to_string();
        FailureBody { id: self.kind.id(), message: self.message, request_id, field: self.field }
    }

    /// The body as text, for a connection that is closed before its request is read.
    pub(crate) fn text(self) -> String {
        serde_json::to_string(&self.body()).unwrap_or_default()
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let (status, retry_after_s) = (self.kind.status(), self.retry_after_s);
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
