//! Parses `otlp_endpoint` and `otlp_headers`, in the syntax of OpenTelemetry's OTEL_EXPORTER_OTLP_ENDPOINT and
//! OTEL_EXPORTER_OTLP_HEADERS (specification, "OpenTelemetry Protocol Exporter").
//!
//! Owns which URLs and headers are taken. Never looks up a name and never sends anything.

use crate::percent::percent_decode;
use crate::value::{BadValue, Codec, ValueKind};
use std::fmt;
use std::net::Ipv6Addr;

/// What the specification adds to the base URL for metrics.
const METRICS_PATH: &str = "v1/metrics";

/// The same for traces.
const TRACES_PATH: &str = "v1/traces";

/// Headers that the exporter sets itself.
const RESERVED_HEADERS: [&str; 8] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// A collector's base URL, parsed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    text: String,
    /// Uses TLS.
    pub is_https: bool,
    /// Name or address; an IPv6 address without its brackets.
    pub host: String,
    /// The scheme's own unless given.
    pub port: u16,
    /// Of the metrics: the base URL's path and `v1/metrics`.
    pub path: String,
}

impl Endpoint {
    /// Parses a URL.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence.
    fn parse(text: &str) -> Result<Endpoint, &'static str> {
        if text.contains(['?', '#']) {
            return Err("queries and fragments are not allowed");
        }
        let base = Endpoint::with_path(text)?;
        let path = format!("{}/{METRICS_PATH}", base.path.trim_end_matches('/'));
        Ok(Endpoint { path, ..base })
    }

    /// Takes a URL apart whose path, with its query, is as it is written.
    pub(crate) fn with_path(text: &str) -> Result<Endpoint, &'static str> {
        let (scheme, rest) = text.split_once("://").ok_or("it does not begin with http:// or https://")?;
        let is_https = scheme.eq_ignore_ascii_case("https");
        if !is_https && !scheme.eq_ignore_ascii_case("http") {
            return Err("it does not begin with http:// or https://");
        }
        if rest.contains('#') {
            return Err("fragments are not allowed");
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err("credentials belong in otlp_headers");
        }
        let (host, port) = host_and_port(authority)?;
        // RFC 3986, section 3.3: whatever else there is must be percent-encoded.
        let is_of_path = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@%/?".contains(&byte);
        if !path.bytes().all(is_of_path) {
            return Err("its path has characters that must be percent-encoded");
        }
        let port = port.unwrap_or(default_port(is_https));
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Endpoint { text: text.to_owned(), is_https, host: host.to_owned(), port, path })
    }

    /// Host and port for the Host header; the scheme's default port is left out.
    #[must_use]
    pub fn authority(&self) -> String {
        let Endpoint { host, port, .. } = self;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        if *port == default_port(self.is_https) { host } else { format!("{host}:{port}") }
    }

    /// The same collector's endpoint for traces.
    #[must_use]
    pub fn of_traces(&self) -> Endpoint {
        let base = self.path.strip_suffix(METRICS_PATH).unwrap_or(&self.path);
        Endpoint { path: format!("{base}{TRACES_PATH}"), ..self.clone() }
    }

    /// The URL that metrics are sent to.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.is_https { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.path)
    }
}

fn default_port(is_https: bool) -> u16 {
    if is_https { 443 } else { 80 }
}

fn host_and_port(authority: &str) -> Result<(&str, Option<u16>), &'static str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(bracketed) => {
            let (host, port) = bracketed.split_once(']').ok_or("the address has no closing bracket")?;
            host.parse::<Ipv6Addr>().map_err(|_| "the text in brackets is not an IPv6 address")?;
            (host, (!port.is_empty()).then_some(port))
        }
        None => {
            let (host, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
            let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
            if host.is_empty() || !host.bytes().all(is_letter) {
                return Err("it names no host");
            }
            (host, (!port.is_empty()).then_some(port))
        }
    };
    let Some(port) = port else { return Ok((host, None)) };
    let digits = port.strip_prefix(':').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let number = digits.and_then(|digits| digits.parse().ok()).filter(|number| *number != 0);
    number.map(|number| (host, Some(number))).ok_or("its port is not a number from 1 to 65535")
}

impl Codec for Endpoint {
    type Value = Option<Endpoint>;
    const KIND: ValueKind = ValueKind::Text;
    fn read(text: &str) -> Result<Self::Value, BadValue> {
        if text.is_empty() {
            return Ok(None);
        }
        Endpoint::parse(text).map(Some).map_err(BadValue::NotAUrl)
    }
    fn show(value: &Self::Value) -> Option<String> {
        value.as_ref().map(|endpoint| endpoint.text.clone())
    }
}

/// The URL that alerts are posted to. Its path often authenticates the sender, so it is a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Webhook {
    /// With the whole path.
    pub endpoint: Endpoint,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.endpoint.authority())
    }
}

impl Codec for Webhook {
    type Value = Option<Webhook>;
    const KIND: ValueKind = ValueKind::Secret;
    fn read(text: &str) -> Result<Self::Value, BadValue> {
        if text.is_empty() {
            return Ok(None);
        }
        let endpoint = Endpoint::with_path(text).map_err(BadValue::NotAUrl)?;
        Ok(Some(Webhook { endpoint }))
    }
    fn show(value: &Self::Value) -> Option<String> {
        value.as_ref().map(|hook| hook.endpoint.text.clone())
    }
}

/// Headers sent with every request: comma-separated `NAME=VALUE` with percent-encoded values. They are secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers {
    text: String,
    pairs: Vec<(String, String)>,
}

impl Headers {
    /// Names in small letters, and values; in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// Shows the names, never the values.
impl fmt::Debug for Headers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

impl Codec for Headers {
    type Value = Headers;
    const KIND: ValueKind = ValueKind::Secret;
    fn read(text: &str) -> Result<Headers, BadValue> {
        let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty()).map(pair);
        let pairs = pairs.collect::<Result<_, _>>().map_err(BadValue::NotHeaders)?;
        Ok(Headers { text: text.to_owned(), pairs })
    }
    fn show(value: &Headers) -> Option<String> {
        Some(value.text.clone()).filter(|text| !text.is_empty())
    }
}

fn pair(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE, with commas between them")?;
    let name = name.trim().to_ascii_lowercase();
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_letter) {
        return Err("a name is not a valid header name");
    }
    if RESERVED_HEADERS.contains(&name.as_str()) {
        return Err("a header is set by the exporter itself");
    }
    let value = percent_decode(value.trim()).ok_or("a value is not correctly percent-encoded")?;
    if !value.bytes().all(|byte| byte == b'\t' || matches!(byte, b' '..=b'~')) {
        return Err("a value has characters that a header cannot have");
    }
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_base_url_leads_to_its_metrics() {
        for (text, url) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/metrics"),
            ("http://collector:4318/", "http://collector:4318/v1/metrics"),
            ("HTTPS://otel.example.com", "https://otel.example.com/v1/metrics"),
            ("http://c:80", "http://c/v1/metrics"),
            ("https://h:8443/otlp", "https://h:8443/otlp/v1/metrics"),
            ("https://h/api/v1/otlp//", "https://h/api/v1/otlp/v1/metrics"),
            ("http://[::1]:4318", "http://[::1]:4318/v1/metrics"),
            ("http://[fd00::2]", "http://[fd00::2]/v1/metrics"),
        ] {
            let endpoint = Endpoint::read(text).unwrap().unwrap();
            assert_eq!((endpoint.url().as_str(), &endpoint.text[..]), (url, text));
        }
        assert_eq!(Endpoint::read(""), Ok(None));
    }

    #[test]
    fn what_is_no_url_of_a_collector_is_refused() {
        for text in [
            "127.0.0.1:4318",
            "collector",
            "grpc://h:4317",
            "http:/h",
            "http://",
            "http:///x",
            "http://:4318",
            "http://h:",
            "http://h:0",
            "http://h:65536",
            "http://h:+1",
            "http://h:1:2",
            "http://[::1",
            "http://[h]:1",
            "http://[::1]x",
            "http://u:p@h",
            "http://h?x",
            "http://h/#x",
            "http://h/a b",
            "http://h/<a>",
            "http://h/a\\b",
            "http://h/\u{e4}",
            "http://h h",
        ] {
            assert!(matches!(Endpoint::read(text), Err(BadValue::NotAUrl(_))), "{text}");
        }
    }

    #[test]
    fn headers_are_read_as_opentelemetry_writes_them() {
        let read = |text: &str| {
            let headers = Headers::read(text).unwrap();
            headers.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>()
        };
        assert_eq!(
            read("Authorization=Bearer%20a%3D%2C, x-tenant = 7 ,"),
            ["authorization: Bearer a=,", "x-tenant: 7"]
        );
        assert_eq!(read("authorization=Basic dTpwPT0="), ["authorization: Basic dTpwPT0="]);
        assert_eq!(read("a="), ["a: "]);
        assert!(read("").is_empty());
        for text in [
            "a",
            "=b",
            "a b=c",
            "a=%",
            "a=%4",
            "a=%zz",
            "a=%0d%0ab: c",
            "a=%ff",
            "Content-Length=3",
            "a=\u{e4}",
        ] {
            assert!(matches!(Headers::read(text), Err(BadValue::NotHeaders(_))), "{text}");
        }
    }

    #[test]
    fn a_webhook_keeps_its_path_and_query_and_is_not_shown() {
        let hook = |text: &str| Webhook::read(text).unwrap().unwrap();
        for (text, url) in [
            ("https://h/services/T0/key?x=1", "https://h/services/T0/key?x=1"),
            ("http://h:81", "http://h:81/"),
            ("http://h?x", "http://h/?x"),
        ] {
            assert_eq!(hook(text).endpoint.url(), url);
        }
        assert_eq!(format!("{:?}", hook("https://h/key")), "h");
        assert!(Webhook::read("h/key").is_err() && Webhook::read("http://u:p@h/").is_err());
        assert!(Webhook::read("http://h/#x").is_err() && Webhook::read("").unwrap().is_none());
    }

    #[test]
    fn what_headers_say_is_not_for_logs() {
        assert_eq!(format!("{:?}", Headers::read("authorization=secret").unwrap()), r#"["authorization"]"#);
    }
}
