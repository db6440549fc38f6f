//! All routes: one file per theme, each a list of its own.
//!
//! To add a theme: a file beside this one with `pub(crate) fn routes() -> Routes`, and its name in [`themes!`]. What
//! stands before every route (limits of bodies, who may come in) stands here.

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::http::header;
use axum::{Router, middleware};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use crate::access::identify;
use crate::assets;
use crate::body::{MOST_BYTES, refuse_long};
use crate::failure::Failure;
use crate::fields::{Operations, refuse_unknown};
use crate::guard::guard;
use crate::shared::Shared;

/// The routes of one theme.
pub(crate) type Routes = OpenApiRouter<Arc<Shared>>;

/// Names the themes: those that everybody may see, and those that need a caller.
macro_rules! themes {
    (open: $($open:ident)*; known: $($known:ident)*;) => {
        $(#[allow(unused_qualifications, reason = "in what utoipa makes of a route")] mod $open;)*
        $(#[allow(unused_qualifications, reason = "in what utoipa makes of a route")] mod $known;)*
        fn open() -> Routes { Routes::new()$(.merge($open::routes()))* }
        fn known() -> Routes { Routes::new()$(.merge($known::routes()))* }
    };
}

themes! {
    open: health metrics;
    known: actions alerts clients digitalocean lab live log pools queries query session settings trail users;
}

#[derive(OpenApi)]
#[openapi(info(title = "Weir", description = "The control panel's API."))]
struct Document;

/// Every route, behind what stands before it.
pub(crate) fn router(shared: &Arc<Shared>) -> Router {
    let (known, mut document) = Routes::with_openapi(Document::openapi()).merge(known()).split_for_parts();
    let (open, open_document) = open().split_for_parts();
    let (login, login_document) = session::open_routes().split_for_parts();
    document.merge(open_document);
    document.merge(login_document);
    let document: Arc<str> = document.to_json().unwrap_or_default().into();
    let json = [(header::CONTENT_TYPE, "application/json")];
    let operations = Arc::new(Operations::of(&serde_json::from_str(&document).unwrap_or_default()));
    let refuse = move |request, next| refuse_unknown(Arc::clone(&operations), request, next);
    let openapi = axum::routing::get(async move || (json, document.to_string()));
    let known = known.route("/api/v1/openapi.json", openapi).layer(middleware::from_fn(refuse.clone()));
    let known = known.layer(middleware::from_fn_with_state(Arc::clone(shared), identify));
    known
        .merge(login.layer(middleware::from_fn(refuse)))
        .merge(open)
        .fallback(assets::serve)
        .method_not_allowed_fallback(|| async { Failure::method_not_allowed() })
        .layer(DefaultBodyLimit::max(MOST_BYTES))
        .layer(middleware::from_fn(refuse_long))
        .layer(middleware::from_fn_with_state(Arc::clone(shared), guard))
        .with_state(Arc::clone(shared))
}
