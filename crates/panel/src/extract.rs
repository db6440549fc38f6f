//! Bodies of requests: JSON, no longer than [`MAX_BODY_BYTES`], and soon.
//! Owns what is said about those that are not. Never looks at what a body means.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::JsonRejection;
use axum::extract::{self, FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// A longer body is not read.
pub(crate) const MAX_BODY_BYTES: usize = 64 * 1024;

/// What a longer one is refused with.
const TOO_LARGE: Failure = Failure::BodyTooLarge { limit: MAX_BODY_BYTES };

/// A body that has not come whole after this is not waited for.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A body of JSON, as the API understands it.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<JsonBody<T>, Failure> {
        let read = tokio::time::timeout(TIMEOUT, Json::<T>::from_request(request, state)).await;
        match read {
            Ok(Ok(Json(value))) => Ok(JsonBody(value)),
            Ok(Err(JsonRejection::JsonDataError(why))) => Err(data_error(why.body_text())),
            Ok(Err(other)) if other.status() == StatusCode::PAYLOAD_TOO_LARGE => Err(TOO_LARGE),
            Ok(Err(other)) => Err(Failure::Malformed(other.body_text())),
            Err(_) => Err(body_timeout()),
        }
    }
}

/// A body that no more is known of than its bytes.
///
/// # Errors
/// 413 and 400.
pub(crate) async fn read_body(body: axum::body::Body) -> Result<Bytes, Failure> {
    match tokio::time::timeout(TIMEOUT, axum::body::to_bytes(body, MAX_BODY_BYTES)).await {
        Ok(read) => read.map_err(|_| TOO_LARGE),
        Err(_) => Err(body_timeout()),
    }
}

fn body_timeout() -> Failure {
    Failure::BodyTimedOut
}

/// serde names a field that is not known in its message only.
fn data_error(text: String) -> Failure {
    let unknown = text.split_once("unknown field `").and_then(|(_, rest)| rest.rsplit_once("`, "));
    match unknown.map(|(name, _)| name.split("`, expected").next().unwrap_or(name)) {
        Some(name) => Failure::UnknownField(name.to_owned()),
        None => Failure::Invalid { field: None, why: text },
    }
}

/// The parameters of a request.
pub(crate) struct QueryParameters<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParameters<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<QueryParameters<T>, Failure> {
        let read = extract::Query::<T>::from_request_parts(parts, state).await;
        let extract::Query(value) = read.map_err(|why| Failure::Malformed(why.body_text()))?;
        Ok(QueryParameters(value))
    }
}

/// Refuses a body by its length alone, before anything of it is read.
pub(crate) async fn reject_oversized(request: Request, next: Next) -> Response {
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    match length.and_then(|length| length.parse::<usize>().ok()) {
        Some(length) if length > MAX_BODY_BYTES => TOO_LARGE.into_response(),
        _ => next.run(request).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Example {
        _name: Option<String>,
        _size: Option<u32>,
    }

    #[test]
    fn a_field_that_is_not_known_is_named() {
        for (sent, field) in
            [(r#"{"host": "x"}"#, "host"), (r#"{"_size": 1, "a`b": 2}"#, "a`b"), (r#"{"": 0}"#, "")]
        {
            let why = serde_json::from_str::<Example>(sent).expect_err("an unknown field").to_string();
            let failure =
                data_error(format!("Failed to deserialize the JSON body into the target type: {why}"));
            assert_eq!((failure.code(), failure.field()), (422, Some(field)), "{why}");
        }
        let why = serde_json::from_str::<Example>(r#"{"_size": "x"}"#).expect_err("no number").to_string();
        assert_eq!(data_error(why).field(), None);
    }
}
