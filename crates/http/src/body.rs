//! Bodies of requests: JSON, no longer than [`MOST_BYTES`], and soon.
//! Owns what is said about those that are not. Never looks at what a body means.

use std::time::Duration;

use axum::Json;
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
            Ok(Err(JsonRejection::JsonDataError(why))) => Err(Failure::unprocessable(why.body_text())),
            Ok(Err(other)) if other.status() == StatusCode::PAYLOAD_TOO_LARGE => Err(Failure::too_large()),
            Ok(Err(other)) => Err(Failure::bad_request(other.body_text())),
            Err(_) => Err(Failure::bad_request("the body did not come in time")),
        }
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
