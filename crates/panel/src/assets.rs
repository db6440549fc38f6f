//! The control panel's own files, as a browser loads them: compressed in the binary, sent as they are. They hold no secret, so they
//! are served without a login. Never reads a file at run time.

use std::io::Read as _;

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use flate2::read::GzDecoder;

use crate::failure::Failure;

/// A file below web/dist.
struct Asset {
    /// From there, with slashes.
    path: &'static str,
    /// Compressed by gzip.
    gzip: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// Instead of the panel, where it was not built into the binary.
const PLACEHOLDER: &str = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Weir</title></head><body><main>\n\
     <h1>The control panel is not in this binary</h1>\n\
     <p>It was built without Node. <code>make build</code> installs what is missing, builds the panel and puts it in.</p>\n\
     <p>The API is there all the same: <a href=\"/api/v1/openapi.json\">/api/v1/openapi.json</a></p>\n</main></body></html>\n";

/// Names of these have a hash of what is in them.
const HASHED_PREFIX: &str = "assets/";

/// A file of the panel, for what no route of the API answers.
pub(crate) async fn serve(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let path = uri.path().trim_start_matches('/');
    let path = if path.is_empty() { "index.html" } else { path };
    if method != Method::GET && method != Method::HEAD {
        return Failure::NotFound.into_response();
    }
    match ASSETS.iter().find(|asset| asset.path == path) {
        Some(asset) => respond(asset, accepts_gzip(&headers)),
        None if path == "index.html" => ([(header::CONTENT_TYPE, kind(path))], PLACEHOLDER).into_response(),
        None => Failure::NotFound.into_response(),
    }
}

fn respond(asset: &Asset, gzip: bool) -> Response {
    let keep = if asset.path.starts_with(HASHED_PREFIX) {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    };
    let head = [
        (header::CONTENT_TYPE, kind(asset.path)),
        (header::CACHE_CONTROL, keep),
        (header::VARY, "accept-encoding"),
    ];
    if gzip {
        let mut response = (head, asset.gzip).into_response();
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        return response;
    }
    let mut bytes = Vec::new();
    match GzDecoder::new(asset.gzip).read_to_end(&mut bytes) {
        Ok(_) => (head, bytes).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let said = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    said.flat_map(|value| value.split(','))
        .any(|one| matches!(one.trim().split_once(';').unwrap_or((one.trim(), "")), ("gzip" | "*", weight) if !weight.trim().ends_with("q=0")))
}

fn kind(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, suffix)| suffix) {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    async fn ask(method: Method, path: &str, encoding: &str) -> Response {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_str(encoding).unwrap());
        serve(method, path.parse().unwrap(), headers).await
    }

    #[tokio::test]
    async fn the_first_page_is_there_with_a_panel_and_without() {
        let respond = ask(Method::GET, "/", "gzip, br").await;
        assert_eq!(respond.status(), StatusCode::OK);
        assert_eq!(respond.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8");
        assert_eq!(respond.headers().contains_key(header::CONTENT_ENCODING), !ASSETS.is_empty());
    }

    #[tokio::test]
    async fn nothing_else_is_found_and_nothing_is_posted() {
        for path in ["/nothing", "/../Cargo.toml", "/api/v1/nothing", "/assets/"] {
            assert_eq!(ask(Method::GET, path, "gzip").await.status(), StatusCode::NOT_FOUND, "{path}");
        }
        assert_eq!(ask(Method::POST, "/", "gzip").await.status(), StatusCode::NOT_FOUND);
    }

    #[test]
    fn packed_is_sent_only_to_those_who_can_unpack() {
        for (said, wanted) in [
            ("gzip", true),
            ("br, gzip;q=0.8", true),
            ("*", true),
            ("br", false),
            ("gzip;q=0", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(said));
            assert_eq!(accepts_gzip(&headers), wanted, "{said}");
        }
    }

    #[test]
    fn every_file_unpacks() {
        for asset in ASSETS {
            let mut bytes = Vec::new();
            GzDecoder::new(asset.gzip).read_to_end(&mut bytes).unwrap();
            assert!(!bytes.is_empty() && kind(asset.path) != "application/octet-stream", "{}", asset.path);
        }
    }
}
