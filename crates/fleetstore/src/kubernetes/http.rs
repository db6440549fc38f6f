//! HTTP/1.1 over TLS to the API server.
//!
//! Owns connections: which are used again, and that a request is sent again only where it was certainly not sent before. One connection carries one request at a time;
//! a watch has its own.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt;
use serde_json::Value;
use settings::StoreEndpoint;
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::failure::Failure;
use super::token::Token;

/// The longest answer: pages of a snapshot are 100 objects of 1 MiB at most.
const ANSWER_BYTES: usize = 128 * 1024 * 1024;

/// The longest line of a watch: an object of 1 MiB in JSON.
const LINE_BYTES: usize = 16 * 1024 * 1024;

/// Connections that are kept for the next requests.
const MOST_IDLE: usize = 4;

/// A connection on which nothing comes for this long is probed by TCP …
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(5);

/// … so often …
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(2);

/// … and is lost after this many probes without an answer.
const KEEP_ALIVE_PROBES: u32 = 3;

type Sender = SendRequest<Full<Bytes>>;

/// The API server.
pub(crate) struct Http {
    endpoint: StoreEndpoint,
    tls: TlsConnector,
    token: Option<Token>,
    idle: Mutex<Vec<Sender>>,
    /// How many requests it has answered.
    answers: AtomicU64,
    /// How many times it has stopped answering.
    silences: watch::Sender<u64>,
}

/// A connection with an answer of which the body is still to come.
struct Answer {
    sender: Sender,
    response: Response<Incoming>,
}

impl Http {
    pub(crate) fn new(endpoint: StoreEndpoint, tls: Arc<ClientConfig>, token: Option<Token>) -> Http {
        let tls = TlsConnector::from(tls);
        let (idle, answers, silences) = (Mutex::default(), AtomicU64::new(0), watch::Sender::new(0));
        Http { endpoint, tls, token, idle, answers, silences }
    }

    /// For messages.
    pub(crate) fn words(&self, failure: &Failure) -> String {
        format!("{}: {failure}", self.endpoint)
    }

    pub(crate) fn label(&self) -> String {
        self.endpoint.to_string()
    }

    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Relaxed)
    }

    /// A request was not answered: connections are given up, and watches with them, if no other was answered meanwhile.
    pub(crate) fn unanswered(&self, answers_before: u64) {
        if self.answers() == answers_before {
            self.lock_idle().clear();
            self.silences.send_modify(|count| *count += 1);
        }
    }

    /// Returns when the API server stops answering requests.
    pub(crate) async fn silence(&self) {
        let _ = self.silences.subscribe().changed().await;
    }

    /// The object of an answer that does not refuse.
    ///
    /// # Errors
    /// [`Failure`]; after one of transport the request may have been carried out.
    pub(crate) async fn json(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        let Answer { sender, response } = self.answer(method, path, body).await?;
        let (status, bytes) = read(response).await?;
        self.keep(sender);
        self.answers.fetch_add(1, Relaxed);
        if !status.is_success() {
            return Err(Failure::refused(status, &bytes));
        }
        serde_json::from_slice(&bytes).map_err(|why| Failure::Answer(format!("the answer is no JSON: {why}")))
    }

    /// Lines of JSON, until the API server ends them.
    pub(crate) async fn lines(&self, path: &str) -> Result<Lines, Failure> {
        let Answer { sender, response } = self.answer(Method::GET, path, None).await?;
        self.answers.fetch_add(1, Relaxed);
        let status = response.status();
        if !status.is_success() {
            let (_, bytes) = read(response).await?;
            return Err(Failure::refused(status, &bytes));
        }
        Ok(Lines { _sender: sender, body: response.into_body(), buffer: Vec::new(), searched: 0 })
    }

    async fn answer(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer, Failure> {
        let mut is_first = true;
        loop {
            let bearer = self.token.as_ref().map(Token::header).transpose()?;
            let request = self.request(&method, path, body, bearer.as_ref())?;
            let answer = self.send(request).await?;
            let is_refused = answer.response.status() == StatusCode::UNAUTHORIZED;
            let is_replaced = || match (&self.token, &bearer) {
                (Some(token), Some(bearer)) => token.is_replaced(bearer),
                _ => false,
            };
            // Nothing was done.
            if !(is_refused && is_first && is_replaced()) {
                return Ok(answer);
            }
            is_first = false;
        }
    }

    fn request(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
        bearer: Option<&HeaderValue>,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let bytes = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.endpoint.to_string())
            .header(USER_AGENT, concat!("weir/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "application/json");
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(bearer) = bearer {
            request = request.header(AUTHORIZATION, bearer.clone());
        }
        request
            .body(Full::new(bytes))
            .map_err(|why| Failure::Answer(format!("no request can be made: {why}")))
    }

    /// By a connection that is there, else by a new one.
    async fn send(&self, mut request: Request<Full<Bytes>>) -> Result<Answer, Failure> {
        while let Some(mut sender) = self.take_idle() {
            match sender.try_send_request(request).await {
                Ok(response) => return Ok(Answer { sender, response }),
                // The API server had closed it before: only what was not sent comes back.
                Err(mut failed) => match failed.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(Failure::transport(failed.error())),
                },
            }
        }
        let mut sender = self.connect().await?;
        match sender.send_request(request).await {
            Ok(response) => Ok(Answer { sender, response }),
            Err(why) => Err(Failure::transport(&why)),
        }
    }

    async fn connect(&self) -> Result<Sender, Failure> {
        let StoreEndpoint { host, port } = &self.endpoint;
        let of_network = |why: io::Error| Failure::transport(&why);
        let addresses: Vec<_> = lookup_host((host.as_str(), *port)).await.map_err(of_network)?.collect();
        let stream = TcpStream::connect(&addresses[..]).await.map_err(of_network)?;
        // Those that the system does not have make a lost connection known later.
        let _ = stream.set_nodelay(true);
        let _ = sockopt::set_socket_keepalive(&stream, true);
        let _ = sockopt::set_tcp_keepidle(&stream, KEEP_ALIVE_IDLE);
        let _ = sockopt::set_tcp_keepintvl(&stream, KEEP_ALIVE_INTERVAL);
        let _ = sockopt::set_tcp_keepcnt(&stream, KEEP_ALIVE_PROBES);
        let name = ServerName::try_from(host.clone()).map_err(|why| Failure::transport(&why))?;
        let stream = self.tls.connect(name, stream).await.map_err(of_network)?;
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|why| Failure::transport(&why))?;
        // Ends with the sender, and with the connection.
        tokio::spawn(connection);
        Ok(sender)
    }

    /// One that is ready: others were closed, or their last answer's end is not read yet.
    fn take_idle(&self) -> Option<Sender> {
        let mut idle = self.lock_idle();
        while let Some(sender) = idle.pop() {
            if sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    fn keep(&self, sender: Sender) {
        let mut idle = self.lock_idle();
        idle.retain(|other| !other.is_closed());
        if idle.len() < MOST_IDLE && !sender.is_closed() {
            idle.push(sender);
        }
    }

    fn lock_idle(&self) -> std::sync::MutexGuard<'_, Vec<Sender>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn read(response: Response<Incoming>) -> Result<(StatusCode, Bytes), Failure> {
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES).collect().await;
    body.map(|body| (status, body.to_bytes())).map_err(|why| Failure::transport(&*why))
}

/// The answer to a watch.
pub(crate) struct Lines {
    /// The connection ends with it.
    _sender: Sender,
    body: Incoming,
    buffer: Vec<u8>,
    /// No line ends before this.
    searched: usize,
}

impl Lines {
    /// The next line; None at the end. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, Failure> {
        loop {
            let end = self.buffer.iter().skip(self.searched).position(|byte| *byte == b'\n');
            if let Some(end) = end.map(|end| end + self.searched) {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                self.searched = 0;
                return serde_json::from_slice(&line)
                    .map(Some)
                    .map_err(|why| Failure::Answer(format!("a line of the watch is no JSON: {why}")));
            }
            self.searched = self.buffer.len();
            if self.searched > LINE_BYTES {
                return Err(Failure::answer("a line of the watch is too long"));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.buffer.extend(frame.into_data().unwrap_or_default()),
                Some(Err(why)) => return Err(Failure::transport(&why)),
                None => return Ok(None),
            }
        }
    }
}
