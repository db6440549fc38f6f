//! One connection of a browser or a program: bytes to requests, within limits.
//! Owns how long and how large the head of a request may be, and how a connection ends. Never knows a route.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
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

use crate::connection_limits::TrackedConnection;
use crate::failure::Failure;

/// The head of a request must come within this; so long a connection may do nothing, too.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// A peer that acknowledges nothing for this long is gone.
const USER_TIMEOUT_MS: u32 = 30_000;

/// The largest head of a request, and the buffer for its body.
const BUFFER_BYTES: usize = 16 * 1024;

/// Who still talks when its connection ends is heard out for so long, and not for more bytes: where one hangs up on a peer that
/// sends, the peer's system throws away the answer (RFC 9112, 9.6).
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_DRAIN_BYTES: u64 = 16 * 1024 * 1024;

/// Whom a request came from, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteAddress {
    pub(crate) address: SocketAddr,
    pub(crate) is_tls: bool,
}

/// Sets the socket's options: no delay, and a limit for a peer that does not acknowledge. Where the system
/// refuses that, it is served all the same.
pub(crate) fn prepare(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = set_tcp_user_timeout(stream, USER_TIMEOUT_MS);
}

/// What is left to do for a connection that is served no more.
pub(crate) type Draining = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Answers requests until the connection ends. Errors of the connection concern its peer only.
pub(crate) async fn serve<S>(
    stream: S,
    peer: RemoteAddress,
    tracked: &Arc<TrackedConnection>,
    router: Router,
) -> Option<Draining>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let own = Arc::clone(tracked);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(Arc::clone(&own));
        let (answer, own) = (router.clone().oneshot(request.map(Body::new)), Arc::clone(&own));
        Box::pin(async move { answer.await.inspect(|_| own.answer()) })
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(BUFFER_BYTES);
    let mut connection = builder.serve_connection(TokioIo::new(stream), service);
    loop {
        tokio::select! {
            biased; // A complete request is answered first: it may authenticate.
            ended = poll_fn(|context| connection.poll_without_shutdown(context)) => break ended.ok()?,
            () = tracked.evicted() => {}
        }
        if !tracked.is_authenticated() {
            // Behind a part of an answer nothing else may stand.
            let may_say = !tracked.has_answered();
            return may_say.then(|| reject_with(connection.into_parts().io.into_inner(), &Failure::Evicted));
        }
    }
    Some(Box::pin(drain(connection.into_parts().io.into_inner())))
}

/// Rejects a connection: the limit is reached.
pub(crate) fn reject(stream: TcpStream) -> Draining {
    reject_with(stream, &Failure::TooManyConnections)
}

fn reject_with<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(mut stream: S, why: &Failure) -> Draining {
    let body = why.text();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Retry-After: 1\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    Box::pin(async move {
        if matches!(timeout(DRAIN_TIMEOUT, stream.write_all(answer.as_bytes())).await, Ok(Ok(()))) {
            drain(stream).await;
        }
    })
}

/// Ends a connection so that the peer can read the answer.
async fn drain(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    if stream.shutdown().await.is_ok() {
        let (mut rest, mut nowhere) = (stream.take(MAX_DRAIN_BYTES), tokio::io::sink());
        let _ = timeout(DRAIN_TIMEOUT, tokio::io::copy(&mut rest, &mut nowhere)).await;
    }
}
