//! All routes: one file per theme, each a list of its own.
//!
//! To add a theme: a file beside this one with `pub(crate) fn routes() -> Routes`, and its name in [`route_groups!`]. What
//! runs before every route (limits of bodies, authentication) is here.

mod state;

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::http::header;
use axum::{Router, middleware};
use utoipa::OpenApi as _;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use crate::access::authenticate;
use crate::assets;
use crate::extract::{MAX_BODY_BYTES, reject_oversized};
use crate::failure::Failure;
use crate::guard::guard;
use crate::unknown_fields::{Operations, reject_unknown_fields};
pub(crate) use state::RouteState;

/// The routes of one theme.
pub(crate) type Routes = OpenApiRouter<RouteState>;

/// The groups: those without a login, and those that need a caller.
macro_rules! route_groups {
    (open: $($open:ident)*; known: $($known:ident)*;) => {
        $(#[allow(unused_qualifications, reason = "in what utoipa makes of a route")] mod $open;)*
        $(#[allow(unused_qualifications, reason = "in what utoipa makes of a route")] mod $known;)*
        fn open() -> Routes { Routes::new()$(.merge($open::routes()))* }
        fn known() -> Routes { Routes::new()$(.merge($known::routes()))* }
    };
}

route_groups! {
    open: monitoring;
    known: actions alerts caches clients digitalocean fleet hosts lab live log pool_sizes pools queries query queues quotas session settings audit users;
}

#[derive(utoipa::OpenApi)]
#[openapi(info(title = "Weir", description = "The control panel's API."))]
struct Document;

/// The routes that need a caller, those that do not, and the login, with the document of all.
fn documented() -> (OpenApi, [Router<RouteState>; 3]) {
    let (known, mut document) = Routes::with_openapi(Document::openapi()).merge(known()).split_for_parts();
    let (open, open_document) = open().split_for_parts();
    let (login, login_document) = session::open_routes().split_for_parts();
    document.merge(open_document);
    document.merge(login_document);
    (document, [known, open, login])
}

/// Every route, behind the checks that each request passes first.
pub(crate) fn router(state: &RouteState) -> Router {
    let (document, [known, open, login]) = documented();
    let document: Arc<str> = document.to_json().unwrap_or_default().into();
    let json = [(header::CONTENT_TYPE, "application/json")];
    let operations = Arc::new(Operations::of(&serde_json::from_str(&document).unwrap_or_default()));
    let refuse = move |request, next| reject_unknown_fields(Arc::clone(&operations), request, next);
    let openapi = axum::routing::get(async move || (json, document.to_string()));
    let known = known.route("/api/v1/openapi.json", openapi).layer(middleware::from_fn(refuse.clone()));
    let callers = (Arc::clone(&state.access), state.audit_log.clone());
    let known = known.layer(middleware::from_fn_with_state(callers, authenticate));
    known
        .merge(login.layer(middleware::from_fn(refuse)))
        .merge(open)
        .fallback(assets::serve)
        .method_not_allowed_fallback(|| async { Failure::MethodNotAllowed })
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn(reject_oversized))
        .layer(middleware::from_fn_with_state(state.context.clone(), guard))
        .with_state(state.clone())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// The types of the panel's pages are generated from this file (`npm run api` in web/).
    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../web/openapi.json");

    /// The JSON text as it stands in the file.
    fn text() -> String {
        documented().0.to_pretty_json().expect("a document") + "\n"
    }

    #[test]
    fn the_document_in_the_tree_is_that_of_the_code() {
        if std::env::var_os("WEIR_UPDATE_OPENAPI").is_some() {
            fs::write(FILE, text()).expect("web/openapi.json is written");
        }
        let known = fs::read_to_string(FILE).unwrap_or_default();
        assert!(known == text(), "web/openapi.json is stale: run scripts/panel-api");
    }

    #[test]
    fn no_two_types_have_one_schema() {
        let mut types: BTreeMap<String, usize> = BTreeMap::new();
        each_source(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut |source| {
            for (_, behind) in source.match_indices("ToSchema").map(|(at, _)| source.split_at(at)) {
                let declared = behind.lines().skip(1).take_while(|line| !line.trim().is_empty());
                let declared = declared.map(str::trim).find(|line| {
                    let line = line.trim_start_matches("pub(crate) ");
                    line.starts_with("struct ") || line.starts_with("enum ")
                });
                let words =
                    declared.into_iter().flat_map(|line| line.split(|sign: char| !sign.is_alphanumeric()));
                let name = words.skip_while(|word| !matches!(*word, "struct" | "enum")).nth(1);
                if behind.lines().next().is_some_and(|line| line.ends_with(")]")) {
                    name.into_iter().for_each(|name| *types.entry(name.to_owned()).or_default() += 1);
                }
            }
        });
        let twice: Vec<_> = types.iter().filter(|(_, count)| **count > 1).collect();
        assert!(types.len() > 50 && twice.is_empty(), "{} types, twice: {twice:?}", types.len());
    }

    fn each_source(directory: &Path, take: &mut impl FnMut(&str)) {
        for entry in fs::read_dir(directory).expect("sources").flatten() {
            let path = entry.path();
            if path.is_dir() {
                each_source(&path, take);
            } else {
                take(&fs::read_to_string(&path).expect("a source"));
            }
        }
    }
}
