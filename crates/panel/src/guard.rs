//! What stands before every route: whose name the panel is called by, and what a browser may do with the answer.
//!
//! A page elsewhere can make a browser ask for a name that it then lets stand for this machine (DNS rebinding): so only
//! known names are answered. Never looks at the caller; `access` does.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use settings::Global;

use crate::context::PanelContext;
use crate::failure::Failure;

/// What a page of the panel may load and do.
const POLICY: &str = "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; \
     form-action 'self'; frame-ancestors 'none'";

/// On every answer that does not say otherwise.
static HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

/// Refuses names that are not the panel's, and seals the answer.
pub(crate) async fn guard(State(context): State<PanelContext>, request: Request, next: Next) -> Response {
    let mut response = if is_known(host(request.headers()), &context.config().global) {
        next.run(request).await
    } else {
        Failure::Misdirected.into_response()
    };
    for (name, value) in &HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// The host and port that the request is for, as it says itself.
pub(crate) fn host(headers: &HeaderMap) -> Option<&str> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next()?.to_str().ok()?;
    hosts.next().is_none().then_some(host)
}

/// An address is no name that could be made to stand for another; of names, only those that are configured.
fn is_known(host: Option<&str>, global: &Global) -> bool {
    let Some(host) = host else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let is_named = |known: &String| known.eq_ignore_ascii_case(name);
    bare.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || global.http_allowed_hosts.iter().any(is_named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_known_names_are_answered() {
        let mut global = Global::default();
        global.http_allowed_hosts = vec!["weir.test".to_owned()];
        for host in ["127.0.0.1:8432", "[::1]:8432", "localhost", "LOCALHOST:1", "192.0.2.1", "Weir.test:443"]
        {
            assert!(is_known(Some(host), &global), "{host}");
        }
        for host in
            ["", "evil.test", "localhost.evil.test:80", "127.0.0.1.evil.test", "[::1", "evil.test:localhost"]
        {
            assert!(!is_known(Some(host), &global), "{host}");
        }
        assert!(!is_known(None, &global));
    }
}
