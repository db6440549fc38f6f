//! What a program is told when something is not done: DigitalOcean's shape, with the field that is to blame.
//! Owns the words of HTTP's own failures. Never says more about the inside than its reader could know.

use std::borrow::Cow;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::bridge::NoAnswer;

/// A request that is not done, and why.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    id: &'static str,
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
    fn new(status: StatusCode, id: &'static str, message: impl Into<String>) -> Failure {
        Failure { status, id, message: message.into(), field: None, retry_after_s: None }
    }

    /// One that no other function makes.
    pub(crate) fn with_status(status: StatusCode, id: &'static str, message: impl Into<String>) -> Failure {
        Failure::new(status, id, message)
    }

    /// Its status.
    pub(crate) fn code(&self) -> u16 {
        self.status.as_u16()
    }

    /// The field that is to blame.
    #[cfg(test)]
    pub(crate) fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    /// 429: again after so many seconds.
    pub(crate) fn too_many(seconds: u64) -> Failure {
        let text = format!("Too many attempts: try again in {seconds} s.");
        let failure = Failure::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", text);
        Failure { retry_after_s: Some(seconds), ..failure }
    }

    /// 400: not what HTTP or JSON is made of.
    pub(crate) fn bad_request(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    /// 401, in DigitalOcean's words.
    pub(crate) fn unauthorized() -> Failure {
        Failure::new(StatusCode::UNAUTHORIZED, "unauthorized", "Unable to authenticate you.")
    }

    /// 403: known, and not allowed.
    pub(crate) fn forbidden(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    /// 404, in DigitalOcean's words.
    pub(crate) fn not_found() -> Failure {
        let text = "The resource you requested could not be found.";
        Failure::new(StatusCode::NOT_FOUND, "not_found", text)
    }

    /// 405.
    pub(crate) fn method_not_allowed() -> Failure {
        let text = "This address does not understand this method.";
        Failure::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", text)
    }

    /// 409: something is there already, or in the way.
    pub(crate) fn conflict(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::CONFLICT, "conflict", message)
    }

    /// 413.
    pub(crate) fn too_large() -> Failure {
        let text = format!("A body has at most {} bytes.", crate::body::MOST_BYTES);
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", text)
    }

    /// 422: understood, and wrong.
    pub(crate) fn unprocessable(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "unprocessable_entity", message)
    }

    /// 500: Weir's fault; the log says more.
    pub(crate) fn server_error() -> Failure {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", "Unexpected server-side error")
    }

    /// 503: not now.
    pub(crate) fn unavailable(message: impl Into<String>) -> Failure {
        let text = message.into();
        Failure {
            retry_after_s: Some(1),
            ..Failure::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", text)
        }
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

impl From<NoAnswer> for Failure {
    fn from(no: NoAnswer) -> Failure {
        match no {
            NoAnswer::Refused { sqlstate: "42501", message } => Failure::forbidden(message),
            NoAnswer::Refused { message, .. } if message.starts_with("no such") => {
                Failure { message, ..Failure::not_found() }
            }
            NoAnswer::Refused { message, .. } if message == "client not found" => {
                Failure { message, ..Failure::not_found() }
            }
            NoAnswer::Refused { sqlstate: "58000", message } => Failure::unavailable(message),
            NoAnswer::Refused { message, .. } => Failure::conflict(message),
            NoAnswer::Busy => Failure::unavailable("too many questions are under way"),
            NoAnswer::Late => Failure::unavailable("the pooler did not answer in time"),
        }
    }
}

impl Failure {
    fn body(self) -> FailureBody {
        let request_id = Uuid::new_v4().to_string();
        FailureBody { id: self.id, message: self.message, request_id, field: self.field }
    }

    /// Its body as text, for who has not asked yet.
    pub(crate) fn text(self) -> String {
        serde_json::to_string(&self.body()).unwrap_or_default()
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let (status, retry_after_s) = (self.status, self.retry_after_s);
        let mut response = (status, Json(self.body())).into_response();
        if let Some(seconds) = retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            // Its place is somebody else's until it comes again.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
