//! One connection of a browser or a program: bytes to requests, within limits.
//! Owns how long and how large the head of a request may be, and how a connection ends. Never knows a route.

use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower::ServiceExt as _;

use crate::failure::Failure;

/// The head of a request must come within this; so long a connection may do nothing, too.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);

/// Who does not take what it is sent for so long has gone.
const DEAF_MS: u32 = 30_000;

/// The head of a request, and what is held of a body at once, has at most so many bytes.
const BUFFER_BYTES: usize = 16 * 1024;

/// Who still talks when its connection ends is heard out for so long, and not for more bytes: where one hangs up on a peer that
/// sends, the peer's system throws away the answer (RFC 9112, 9.6).
const FAREWELL: Duration = Duration::from_secs(2);
const FAREWELL_BYTES: u64 = 16 * 1024 * 1024;

/// Whom a request came from, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) is_tls: bool,
}

/// Makes a connection ready: what is small is sent at once, and nobody is sent to for ever who does not listen. Where the system
/// refuses that, it is served all the same.
pub(crate) fn prepare(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = set_tcp_user_timeout(stream, DEAF_MS);
}

/// What is left to do for a connection that is served no more.
pub(crate) type Farewell = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Answers requests until the connection ends. What went wrong with it is nobody's business but the peer's.
pub(crate) async fn serve<S>(stream: S, peer: Peer, router: Router) -> Option<Farewell>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        router.clone().oneshot(request.map(Body::new))
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE).max_buf_size(BUFFER_BYTES);
    let ended = builder.serve_connection(TokioIo::new(stream), service).without_shutdown().await.ok()?;
    Some(Box::pin(part(ended.io.into_inner())))
}

/// Tells a connection that there is no room for it.
pub(crate) fn turn_away(stream: TcpStream) -> Farewell {
    let body = Failure::unavailable("as many connections are open as may be").text();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Retry-After: 1\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    // It is shorter than what the system keeps for a connection; where it is not, there is no room indeed.
    let _ = stream.try_write(answer.as_bytes());
    Box::pin(part(stream))
}

/// Ends a connection so that the peer gets to read what it was told.
async fn part(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    if stream.shutdown().await.is_ok() {
        let (mut rest, mut nowhere) = (stream.take(FAREWELL_BYTES), tokio::io::sink());
        let _ = timeout(FAREWELL, tokio::io::copy(&mut rest, &mut nowhere)).await;
    }
}
