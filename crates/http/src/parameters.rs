//! What follows the question mark of an address, refused in the API's own shape.
//! Never looks at what a parameter means.

use axum::extract::{self, FromRequestParts};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// The parameters of a request.
pub(crate) struct Parameters<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Parameters<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Parameters<T>, Failure> {
        let read = extract::Query::<T>::from_request_parts(parts, state).await;
        let extract::Query(value) = read.map_err(|why| Failure::bad_request(why.body_text()))?;
        Ok(Parameters(value))
    }
}
