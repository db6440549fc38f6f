//! One HTTP request to another server: a collector's metrics, a webhook's alerts.
//!
//! Each request has its own connection: an idle one would usually be closed by the time of the next. Never retries, and
//! reads no more of an answer than 64 KiB.
#![forbid(unsafe_code)]

use std::future::Future;
use std::time::{Duration, SystemTime};
use std::{fmt, io};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full, Limited};
pub use hyper::StatusCode;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use settings::{Endpoint, Headers, PemFiles};
use tls::{HandshakeFault, SetupFault, collector_tls_config};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::ServerName;

/// From the first packet to the last byte of the answer, as OpenTelemetry's own exporters wait.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The same for the connection alone.
const CONNECT: Duration = TIMEOUT;

/// An answer is a few words; a longer one is none.
const ANSWER_BYTES: usize = 64 * 1024;

/// Why a request has not arrived.
#[derive(Debug)]
pub enum PostError {
    /// The file's: there are no roots to check the server's certificate by.
    TlsSetup(String),
    /// The network's: the host does not resolve, or refuses the connection.
    Unreachable(io::Error),
    /// The server's, or that of the roots: no TLS could be agreed on.
    Handshake(io::Error),
    /// The server's, or that of the roots: its certificate is not one that they vouch for, or is another host's.
    Untrusted(HandshakeFault),
    /// The server's: it did not answer in time.
    TimedOut,
    /// The server's: what it says is not HTTP, or it hung up.
    Http(hyper::Error),
    /// The server's, or that of the headers: it says no.
    Refused {
        /// Its code.
        status: StatusCode,
        /// How long it wants to be left alone.
        retry_after: Option<Duration>,
    },
    /// The server's: its answer is too long, or breaks off.
    Unreadable,
}

impl PostError {
    /// The same may arrive if it is sent again soon (OTLP specification, "Retryable Response Codes").
    pub fn is_retryable(&self) -> bool {
        match self {
            PostError::Unreachable(_)
            | PostError::Handshake(_)
            | PostError::Untrusted(_)
            | PostError::TimedOut
            | PostError::Http(_) => true,
            PostError::Refused { status, .. } => matches!(status.as_u16(), 429 | 502 | 503 | 504),
            PostError::TlsSetup(_) | PostError::Unreadable => false,
        }
    }

    /// How long the server wants to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            PostError::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

impl fmt::Display for PostError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PostError::TlsSetup(why) => out.write_str(why),
            PostError::Unreachable(why) => why.fmt(out),
            PostError::Handshake(why) => write!(out, "TLS handshake failed: {why}"),
            PostError::Untrusted(why) => write!(out, "TLS handshake failed: {why}"),
            PostError::TimedOut => out.write_str("no answer in time"),
            PostError::Http(why) => write!(out, "no HTTP response: {why}"),
            PostError::Refused { status, .. } => write!(out, "the answer is {status}"),
            PostError::Unreadable => out.write_str("the response cannot be read"),
        }
    }
}

/// How to reach a collector or a webhook.
pub struct HttpTarget {
    endpoint: Endpoint,
    headers: HeaderMap,
    tls: Option<TlsConnector>,
}

impl HttpTarget {
    /// The way to any server, for bodies of one type.
    ///
    /// # Errors
    /// [`SetupFault`]: there are no roots to check the server's certificate by.
    pub fn to(
        endpoint: &Endpoint,
        headers: &Headers,
        content_type: &'static str,
        roots: &PemFiles,
    ) -> Result<HttpTarget, SetupFault> {
        let tls = endpoint.is_https.then(|| collector_tls_config(roots)).transpose()?.map(TlsConnector::from);
        let mut all = HeaderMap::new();
        all.insert(header::USER_AGENT, HeaderValue::from_static(concat!("weir/", env!("CARGO_PKG_VERSION"))));
        for (name, value) in headers.iter() {
            let name = HeaderName::from_bytes(name.as_bytes());
            if let (Ok(name), Ok(mut value)) = (name, HeaderValue::from_str(value)) {
                value.set_sensitive(true);
                all.insert(name, value);
            }
        }
        all.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        all.insert(header::CONNECTION, HeaderValue::from_static("close"));
        if let Ok(host) = HeaderValue::from_str(&endpoint.authority()) {
            all.insert(header::HOST, host);
        }
        Ok(HttpTarget { endpoint: endpoint.clone(), headers: all, tls })
    }

    /// Adds `Authorization: Basic`, for `user:password`.
    #[must_use]
    pub fn authorized(mut self, credentials: &str) -> HttpTarget {
        let value = format!("Basic {}", STANDARD.encode(credentials));
        if let Ok(mut value) = HeaderValue::from_str(&value) {
            value.set_sensitive(true);
            self.headers.insert(header::AUTHORIZATION, value);
        }
        self
    }

    /// Gets what is at this path, which begins with the endpoint's own, or posts to it. The answer may say no.
    ///
    /// # Errors
    /// [`PostError`]: there is no answer within this time, or it cannot be read.
    pub async fn exchange(
        &self,
        path: &str,
        body: Option<Vec<u8>>,
        limit: Duration,
    ) -> Result<(StatusCode, Bytes), PostError> {
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let answer = self.answer(method, path, body.unwrap_or_default(), limit, read);
        answer.await
    }

    /// Sends the bytes of a request, and gives the answer's unless it says no.
    ///
    /// # Errors
    /// [`PostError`]: they have not arrived, or are not wanted.
    pub async fn send(&self, body: Vec<u8>) -> Result<Bytes, PostError> {
        self.answer(Method::POST, &self.endpoint.path, body, TIMEOUT, accepted).await
    }

    async fn answer<T, F: Future<Output = Result<T, PostError>>>(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        limit: Duration,
        read: impl FnOnce(Response<Incoming>) -> F,
    ) -> Result<T, PostError> {
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().unwrap_or_default();
        *request.headers_mut() = self.headers.clone();
        let Endpoint { host, port, .. } = &self.endpoint;
        // The system's resolver ends by itself. Its thread would go on if it were not waited for, and others come to it.
        let addresses = lookup_host((host.as_str(), *port)).await.map_err(PostError::Unreachable)?;
        let addresses: Vec<_> = addresses.collect();
        let exchange = async {
            let stream = timeout(limit.min(CONNECT), TcpStream::connect(&addresses[..])).await;
            let stream = stream.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            let stream = stream.map_err(PostError::Unreachable)?;
            let Some(tls) = &self.tls else { return exchange_on(stream, request, read).await };
            let name = ServerName::try_from(host.clone()).map_err(io::Error::other);
            let name = name.map_err(PostError::Handshake)?;
            let tls_stream = tls.connect(name, stream).await.map_err(handshake_error)?;
            exchange_on(tls_stream, request, read).await
        };
        timeout(limit, exchange).await.map_err(|_| PostError::TimedOut)?
    }
}

fn handshake_error(error: io::Error) -> PostError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(why @ rustls::Error::InvalidCertificate(_)) => PostError::Untrusted(why.clone().into()),
        _ => PostError::Handshake(error),
    }
}

async fn exchange_on<T, F: Future<Output = Result<T, PostError>>>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<Full<Bytes>>,
    read: impl FnOnce(Response<Incoming>) -> F,
) -> Result<T, PostError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(PostError::Http)?;
    let exchange = async move {
        let answer = sender.send_request(request).await.map_err(PostError::Http)?;
        read(answer).await
    };
    tokio::join!(exchange, connection).0
}

/// The bytes of any answer, with its status.
async fn read(answer: Response<Incoming>) -> Result<(StatusCode, Bytes), PostError> {
    let status = answer.status();
    Ok((status, bytes(answer).await?))
}

async fn bytes(answer: Response<Incoming>) -> Result<Bytes, PostError> {
    let body = Limited::new(answer.into_body(), ANSWER_BYTES).collect().await;
    body.map(|body| body.to_bytes()).map_err(|_| PostError::Unreadable)
}

/// The bytes of an answer that does not say no.
async fn accepted(answer: Response<Incoming>) -> Result<Bytes, PostError> {
    let status = answer.status();
    if !status.is_success() {
        let wanted = answer.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = wanted.and_then(|text| retry_after(text, SystemTime::now()));
        return Err(PostError::Refused { status, retry_after });
    }
    bytes(answer).await
}

/// Seconds, or a date (RFC 9110, section 10.2.3).
fn retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    let seconds = text.parse().ok().map(Duration::from_secs);
    seconds.or_else(|| httpdate::parse_http_date(text).ok()?.duration_since(now).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_come_again_is_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let seconds = |text| retry_after(text, now).map(|wanted| wanted.as_secs());
        assert_eq!((seconds("120"), seconds(" 0 ")), (Some(120), Some(0)));
        assert_eq!(seconds("Sun, 09 Sep 2001 01:47:40 GMT"), Some(60));
        assert_eq!(seconds("Sun, 09 Sep 2001 01:46:39 GMT"), None, "it has passed");
        assert_eq!((seconds("soon"), seconds("-1"), seconds("1.5")), (None, None, None));
    }

    #[test]
    fn headers_of_the_message_itself_are_never_others() {
        let config = settings::Config::default();
        let config = settings::set(&config, "otlp_endpoint", "http://[::1]:4318/base").expect("a URL");
        let headers = "authorization=Bearer%20x,user-agent=other";
        let config = settings::set(&config, "otlp_headers", headers).expect("headers");
        let (global, roots) = (&config.global, &config.tls_files.collector);
        let endpoint = global.otlp_endpoint.as_ref().expect("a URL");
        let target = HttpTarget::to(endpoint, &global.otlp_headers, "application/x-protobuf", roots);
        let target = target.expect("a way");
        let said = |name: &str| target.headers.get(name).and_then(|value| value.to_str().ok());
        assert_eq!((said("host"), said("user-agent")), (Some("[::1]:4318"), Some("other")));
        assert_eq!(said("content-type"), Some("application/x-protobuf"));
        assert!(target.headers["authorization"].is_sensitive());
    }
}
