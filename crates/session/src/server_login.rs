//! Logging in to a server: from its first byte to its first ReadyForQuery.
//!
//! Owns the startup packet, the authentication exchange, the parameters and key that the server reports, the queries behind it (which cluster it belongs to,
//! `connect_query`), and how much a server may send for all of it. Never connects and never decides whether a login is retried.

use auth::{Credentials, Entropy, ServerKeyCache, Step, TaskResult};
use wire::frame::Frames;
use wire::startup::Version;
use wire::tag::backend as tag;
use wire::{backend, encode};

use crate::parameters::CLIENT_ENCODING;
use crate::reported::is_utf8;
use crate::server_identity::{self, ServerIdentity};
use crate::{ServerFault, Tracked};

/// No message of a login is larger.
const FRAME_BYTES: u32 = 256 * 1024;

/// What a server may send before its first ReadyForQuery, in bytes: hundreds of notices, thousands of times what
/// PostgreSQL reports.
const GREETING_BYTES: usize = 1024 * 1024;

/// The same together with the reply to `connect_query`, of which nothing is kept.
const LOGIN_BYTES: usize = 16 * 1024 * 1024;

/// The most parameters that a server may report, and their bytes: they are kept, and sent to every client.
/// PostgreSQL 18 reports 15 in 400 bytes.
const PARAMETERS: usize = 256;
const PARAMETER_BYTES: usize = 64 * 1024;

/// What a server reported during the login.
#[derive(Clone, Debug, Default)]
pub struct ServerInfo {
    /// ParameterStatus in the order received.
    pub parameters: Vec<(Vec<u8>, Vec<u8>)>,
    /// BackendKeyData: process id and secret (4 bytes, up to 256 since protocol 3.2).
    pub key: Option<(u32, Vec<u8>)>,
    /// Which cluster it belongs to, where that was asked and answered.
    pub identity: Option<ServerIdentity>,
    /// The body of the ErrorResponse to that question: it is logged and changes nothing else.
    pub identity_error: Option<Vec<u8>>,
    /// The body of the ErrorResponse to `connect_query`, likewise.
    pub connect_query_error: Option<Vec<u8>>,
}

/// What the login needs next.
#[derive(Debug)]
pub enum LoginStep {
    /// These bytes sent (possibly none), then more from the server.
    Send(Vec<u8>),
    /// An answer; [`ServerLogin::answer`] continues.
    Ask(auth::OffloadedTask),
    /// The server has said which cluster it belongs to, or could not: [`ServerLogin::info`] has all that is known of it, and
    /// [`ServerLogin::identified`] continues if it is to be used.
    Identified,
    /// The server is ready; this is what it reported, and the bytes that came behind (half a notice, for example).
    Ready(Box<ServerInfo>, Vec<u8>),
    /// The server refused: the body of its ErrorResponse.
    Refused(Vec<u8>),
    /// Weir cannot authenticate, or the server could not.
    Auth(auth::Fault),
    /// What the server sends is no login.
    Fault(ServerFault),
}

/// The query that runs behind the authentication: its errors are not the login's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Running {
    Nothing,
    /// Which cluster the server belongs to.
    Identity,
    ConnectQuery,
}

/// What a login borrows from its shard.
pub struct LoginContext<'a> {
    /// Where nonces come from.
    pub entropy: &'a mut dyn Entropy,
    /// Keys that were derived before.
    pub keys: &'a mut ServerKeyCache,
}

/// The login on one server connection.
pub struct ServerLogin {
    frames: Frames,
    exchange: auth::ServerLogin,
    info: ServerInfo,
    asks_identity: bool,
    connect_query: Option<String>,
    running: Running,
    authenticated: bool,
    asking: bool,
    /// Bytes received, of whatever kind.
    received: usize,
}

impl ServerLogin {
    /// The login runs inside TLS; `end_point` is `tls-server-end-point` of the server's certificate.
    #[must_use]
    pub fn bound_to(mut self, end_point: Option<Vec<u8>>) -> ServerLogin {
        self.exchange = self.exchange.bound_to(end_point);
        self
    }

    /// The server is asked which cluster it belongs to ([`LoginStep::Identified`]).
    #[must_use]
    pub fn asking_identity(mut self, asks: bool) -> ServerLogin {
        self.asks_identity = asks;
        self
    }

    /// An exchange with the credentials to use; `connect_query` is run before the server counts as ready.
    #[must_use]
    pub fn new(user: &str, credentials: &Credentials, connect_query: Option<String>) -> ServerLogin {
        ServerLogin {
            frames: Frames::new(FRAME_BYTES),
            exchange: auth::ServerLogin::new(user, credentials),
            info: ServerInfo::default(),
            asks_identity: false,
            connect_query,
            running: Running::Nothing,
            authenticated: false,
            asking: false,
            received: 0,
        }
    }

    /// The startup packet.
    #[must_use]
    pub fn startup(parameters: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut packet = Vec::new();
        encode::startup(&mut packet, Version::V3_0, parameters);
        packet
    }

    /// Takes bytes from the server.
    pub fn receive(&mut self, bytes: &[u8], context: &mut LoginContext<'_>) -> LoginStep {
        self.received = self.received.saturating_add(bytes.len());
        if self.received > if self.running == Running::ConnectQuery { LOGIN_BYTES } else { GREETING_BYTES } {
            return LoginStep::Fault(ServerFault::LongLogin);
        }
        self.frames.push(bytes);
        self.proceed(context)
    }

    /// Takes the answer to [`LoginStep::Ask`].
    pub fn answer(&mut self, answer: TaskResult, context: &mut LoginContext<'_>) -> LoginStep {
        self.asking = false;
        match self.exchange.answer(answer, context.keys) {
            Step::Send(bytes) => {
                let LoginStep::Send(more) = self.proceed(context) else { return LoginStep::Send(bytes) };
                LoginStep::Send([bytes, more].concat())
            }
            Step::Reject(fault) => LoginStep::Auth(fault),
            Step::Ask(question) => self.ask(question),
            Step::Accept(_) => self.proceed(context),
        }
    }

    fn ask(&mut self, question: auth::OffloadedTask) -> LoginStep {
        self.asking = true;
        LoginStep::Ask(question)
    }

    fn proceed(&mut self, context: &mut LoginContext<'_>) -> LoginStep {
        let mut send = Vec::new();
        while !self.asking {
            let (frame_tag, body) = match self.frames.pop() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(_) => return LoginStep::Fault(ServerFault::FrameLength),
            };
            match self.frame(frame_tag, &body, context) {
                LoginStep::Send(bytes) => send.extend(bytes),
                other => return other,
            }
        }
        LoginStep::Send(send)
    }

    fn frame(&mut self, frame_tag: u8, body: &[u8], context: &mut LoginContext<'_>) -> LoginStep {
        match frame_tag {
            tag::AUTHENTICATION => match self.exchange.message(body, context.entropy, context.keys) {
                Step::Send(bytes) => LoginStep::Send(bytes),
                Step::Ask(question) => self.ask(question),
                Step::Accept(_) => {
                    self.authenticated = true;
                    LoginStep::Send(Vec::new())
                }
                Step::Reject(fault) => LoginStep::Auth(fault),
            },
            tag::ERROR if self.is_of_query(body) => LoginStep::Send(Vec::new()),
            tag::ERROR => LoginStep::Refused(body.to_vec()),
            tag::NOTICE | tag::NEGOTIATE => LoginStep::Send(Vec::new()),
            _ if !self.authenticated => LoginStep::Fault(ServerFault::OutOfStep(frame_tag)),
            tag::PARAMETER_STATUS => match backend::parameter_status(body) {
                Some((name, value)) => self.parameter(name, value),
                None => LoginStep::Fault(ServerFault::Malformed),
            },
            tag::KEY_DATA => {
                self.info.key =
                    backend::key_data(body).map(|(process_id, secret)| (process_id, secret.to_vec()));
                LoginStep::Send(Vec::new())
            }
            tag::READY => self.ready(),
            tag::DATA_ROW if self.running == Running::Identity => {
                self.info.identity = server_identity::read(body);
                LoginStep::Send(Vec::new())
            }
            // Replies to connect_query are not passed on.
            tag::ROW_DESCRIPTION | tag::DATA_ROW | tag::COMMAND_COMPLETE | tag::EMPTY_QUERY => {
                LoginStep::Send(Vec::new())
            }
            other => LoginStep::Fault(ServerFault::UnexpectedTag(other)),
        }
    }

    fn parameter(&mut self, name: &[u8], value: &[u8]) -> LoginStep {
        let parameters = &mut self.info.parameters;
        parameters.retain(|(known, _)| known != name);
        let kept: usize = parameters.iter().map(|(name, value)| name.len() + value.len()).sum();
        if parameters.len() >= PARAMETERS || kept + name.len() + value.len() > PARAMETER_BYTES {
            return LoginStep::Fault(ServerFault::LongLogin);
        }
        parameters.push((name.to_vec(), value.to_vec()));
        LoginStep::Send(Vec::new())
    }

    /// Notes an ERROR if the query that runs has failed, and not the login.
    fn is_of_query(&mut self, body: &[u8]) -> bool {
        let noted = match self.running {
            Running::Nothing => return false,
            Running::Identity => &mut self.info.identity_error,
            Running::ConnectQuery => &mut self.info.connect_query_error,
        };
        let is_error = wire::error::parse(body).severity() == Some(b"ERROR");
        if is_error {
            *noted = Some(body.to_vec());
        }
        is_error
    }

    /// What the server has reported so far.
    #[must_use]
    pub fn info(&self) -> &ServerInfo {
        &self.info
    }

    fn ready(&mut self) -> LoginStep {
        if std::mem::take(&mut self.asks_identity) {
            return self.run(Running::Identity, server_identity::QUERY);
        }
        match self.running {
            Running::Identity => LoginStep::Identified,
            _ => self.identified(),
        }
    }

    /// The server is to be used.
    pub fn identified(&mut self) -> LoginStep {
        match self.connect_query.take() {
            Some(sql) => self.run(Running::ConnectQuery, &sql),
            None => {
                let behind = self.frames.unread().to_vec();
                LoginStep::Ready(Box::new(std::mem::take(&mut self.info)), behind)
            }
        }
    }

    fn run(&mut self, query: Running, sql: &str) -> LoginStep {
        self.running = query;
        let mut bytes = Vec::new();
        encode::query(&mut bytes, sql.as_bytes());
        LoginStep::Send(bytes)
    }
}

impl ServerInfo {
    /// The tracked parameters among those reported, over `base`. A value that is neither ASCII nor in UTF-8 counts as not
    /// reported: it is never set, RESET goes back to it.
    #[must_use]
    pub fn tracked(&self, tracked: &Tracked, mut base: crate::Parameters) -> crate::Parameters {
        let is_utf8 = self.parameters.iter().any(|(name, value)| {
            tracked.position(name) == Some(CLIENT_ENCODING) && std::str::from_utf8(value).is_ok_and(is_utf8)
        });
        for (name, value) in &self.parameters {
            if let (Some(position), Ok(value)) = (tracked.position(name), std::str::from_utf8(value))
                && (is_utf8 || value.is_ascii())
            {
                base.set(position, value);
            }
        }
        base
    }
}
