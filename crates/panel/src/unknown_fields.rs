//! Refuses what an operation does not know: parameters behind the question mark, and a body where it takes none.
//!
//! The OpenAPI document says which parameters an operation has, so the page that programs read is the rule that they are held to.
//! Never looks at what a parameter means, nor into a body that an operation takes ([`crate::extract`] does).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{MatchedPath, Query, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use serde_json::Value;

use crate::extract;
use crate::failure::Failure;

/// What an operation takes.
#[derive(Debug, Default)]
struct Operation {
    parameters: BTreeSet<String>,
    has_body: bool,
}

/// Every operation, by its method and path.
#[derive(Debug, Default)]
pub(crate) struct Operations(HashMap<(String, String), Operation>);

impl Operations {
    /// Reads them from the document.
    pub(crate) fn of(document: &Value) -> Operations {
        let mut operations = HashMap::new();
        for (path, methods) in document["paths"].as_object().into_iter().flatten() {
            for (method, described) in methods.as_object().into_iter().flatten() {
                let parameters = described["parameters"].as_array().into_iter().flatten();
                let of_query = parameters.filter(|parameter| parameter["in"] == "query");
                let names = of_query.filter_map(|parameter| parameter["name"].as_str().map(str::to_owned));
                let has_body = described.get("requestBody").is_some();
                let operation = Operation { parameters: names.collect(), has_body };
                operations.insert((method.to_uppercase(), path.clone()), operation);
            }
        }
        Operations(operations)
    }

    fn classify_request(&self, request: &Request) -> Option<&Operation> {
        let path = request.extensions().get::<MatchedPath>()?.as_str().to_owned();
        let method = request.method().as_str();
        // axum answers HEAD by the route of GET.
        let method = if method == "HEAD" { "GET" } else { method };
        self.0.get(&(method.to_owned(), path))
    }
}

/// Stands before the routes of the API.
pub(crate) async fn reject_unknown_fields(
    operations: Arc<Operations>,
    request: Request,
    next: Next,
) -> Response {
    let none = Operation::default();
    let operation = operations.classify_request(&request).unwrap_or(&none);
    if let Err(failure) = check_query(operation, &request) {
        return failure.into_response();
    }
    if operation.has_body {
        return next.run(request).await;
    }
    match without_body(request).await {
        Ok(request) => next.run(request).await,
        Err(failure) => failure.into_response(),
    }
}

fn check_query(operation: &Operation, request: &Request) -> Result<(), Failure> {
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(request.uri());
    let Query(pairs) = pairs.map_err(|why| Failure::Malformed(why.body_text()))?;
    match pairs.into_iter().find(|(name, _)| !operation.parameters.contains(name)) {
        Some((name, _)) => Err(Failure::UnknownField(name)),
        None => Ok(()),
    }
}

/// A body that an operation does not take may be `{}`, as some clients send always.
async fn without_body(request: Request) -> Result<Request, Failure> {
    let (parts, sent) = request.into_parts();
    let bytes = extract::read_body(sent).await?;
    if !bytes.iter().all(u8::is_ascii_whitespace) {
        match serde_json::from_slice(&bytes) {
            Ok(Value::Object(fields)) => {
                if let Some(name) = fields.into_iter().map(|(name, _)| name).next() {
                    return Err(Failure::UnknownField(name));
                }
            }
            Ok(_) | Err(_) => return Err(Failure::NoBodyWanted),
        }
    }
    Ok(Request::from_parts(parts, Body::empty()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn operations_are_read_from_the_document() {
        let document = serde_json::json!({"paths": {"/a/{id}": {
            "get": {"parameters": [{"name": "id", "in": "path"}, {"name": "limit", "in": "query"}]},
            "put": {"requestBody": {}},
        }}});
        let Operations(operations) = Operations::of(&document);
        let of = |method: &str| &operations[&(method.to_owned(), "/a/{id}".to_owned())];
        assert_eq!(of("GET").parameters.iter().collect::<Vec<_>>(), ["limit"]);
        assert!(!of("GET").has_body && of("PUT").has_body && of("PUT").parameters.is_empty());
    }
}
