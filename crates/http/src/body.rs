//! Bodies of requests: JSON, no longer than [`MOST_BYTES`], and soon.
//! Owns what is said about those that are not. Never looks at what a body means.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// A longer body is not read.
pub(crate) const MOST_BYTES: usize = 64 * 1024;

/// A body that has not come whole after this is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// A body of JSON, as the API understands it.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Body<T>, Failure> {
        let read = tokio::time::timeout(PATIENCE, Json::<T>::from_request(request, state)).await;
        match read {
            Ok(Ok(Json(value))) => Ok(Body(value)),
            Ok(Err(JsonRejection::JsonDataError(why))) => Err(refused(why.body_text())),
            Ok(Err(other)) if other.status() == StatusCode::PAYLOAD_TOO_LARGE => Err(Failure::too_large()),
            Ok(Err(other)) => Err(Failure::bad_request(other.body_text())),
            Err(_) => Err(late()),
        }
    }
}

/// A body that no more is known of than its bytes.
///
/// # Errors
/// 413 and 400.
pub(crate) async fn read(body: axum::body::Body) -> Result<Bytes, Failure> {
    match tokio::time::timeout(PATIENCE, axum::body::to_bytes(body, MOST_BYTES)).await {
        Ok(read) => read.map_err(|_| Failure::too_large()),
        Err(_) => Err(late()),
    }
}

fn late() -> Failure {
    Failure::bad_request("the body did not come in time")
}

/// serde names a field that is not known in its message only.
fn refused(text: String) -> Failure {
    let unknown = text.split_once("unknown field `").and_then(|(_, rest)| rest.rsplit_once("`, "));
    match unknown.map(|(name, _)| name.split("`, expected").next().unwrap_or(name)) {
        Some(name) => Failure::unknown_field(name.to_owned()),
        None => Failure::unprocessable(text),
    }
}

/// Refuses a body by its length alone, before anything of it is read.
pub(crate) async fn refuse_long(request: Request, next: Next) -> Response {
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    match length.and_then(|length| length.parse::<usize>().ok()) {
        Some(length) if length > MOST_BYTES => Failure::too_large().into_response(),
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
            let failure = refused(format!("Failed to deserialize the JSON body into the target type: {why}"));
            assert_eq!((failure.code(), failure.field()), (422, Some(field)), "{why}");
        }
        let why = serde_json::from_str::<Example>(r#"{"_size": "x"}"#).expect_err("no number").to_string();
        assert_eq!(refused(why).field(), None);
    }
}
