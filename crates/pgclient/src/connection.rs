//! A connection to a server: socket, TLS, login, and simple queries one at a time.
//!
//! Owns how long each step may take and how much a server may send. What is asked, and what an answer means, is others' to know.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use auth::ServerKeyCache;
use session::{LoginContext, LoginStep, Row, ServerLogin};
use settings::SslMode;
use tls::{TlsConfig, TlsConnection};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;
use wire::frame::Frames;
use wire::tag::backend as tag;
use wire::{backend, encode};

use crate::System;
use crate::account::Account;
use crate::place::Place;

/// The longest message of an answer.
const FRAME_BYTES: u32 = 1024 * 1024;

/// What the rows of an answer may have together: the names of 100,000 partitions.
const ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// Bytes read at a time.
const READ_BYTES: usize = 64 * 1024;

/// Why a server cannot be used.
#[derive(Debug)]
pub enum Failure {
    /// The network's.
    Io(io::Error),
    /// No answer in time.
    TimedOut,
    /// The server's own words.
    Refused(Refusal),
    /// The peer's, or that of a setting.
    Other(String),
}

/// An ErrorResponse.
#[derive(Clone, Debug, Default)]
pub struct Refusal {
    /// Its SQLSTATE.
    pub code: String,
    /// Its message.
    pub message: String,
}

impl Refusal {
    /// Reads its body.
    pub fn read(body: &[u8]) -> Refusal {
        let fields = wire::error::parse(body);
        let text = |field: Option<&[u8]>| String::from_utf8_lossy(field.unwrap_or_default()).into_owned();
        Refusal { code: text(fields.code()), message: text(fields.message()) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Io(why) if why.kind() == io::ErrorKind::UnexpectedEof => {
                out.write_str("the server has closed the connection")
            }
            Failure::Io(why) => why.fmt(out),
            Failure::TimedOut => out.write_str("no answer in time"),
            Failure::Refused(refusal) => write!(out, "{} ({})", refusal.message, refusal.code),
            Failure::Other(why) => out.write_str(why),
        }
    }
}

impl Failure {
    /// Its words for the log, with what helps where that is known.
    #[must_use]
    pub fn explained(&self, account: &Account) -> String {
        let code = if let Failure::Refused(Refusal { code, .. }) = self { code.as_str() } else { "" };
        let advice = match code {
            "28P01" | "28000" => {
                format!("; check the password of \"{}\" in auth_file, and pg_hba.conf", account.user)
            }
            "42501" => format!("; GRANT CONNECT to \"{}\"", account.user),
            "53300" => "; raise max_connections".to_owned(),
            _ => String::new(),
        };
        format!("{self}{advice}")
    }
}

impl From<io::Error> for Failure {
    fn from(why: io::Error) -> Failure {
        Failure::Io(why)
    }
}

/// The result of a step.
pub type Outcome<T> = Result<T, Failure>;

/// A socket of either kind.
trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// The bytes both ways, under TLS or not.
struct Channel {
    socket: Box<dyn Socket>,
    /// The peer's, where it is not a unix socket.
    address: Option<IpAddr>,
    tls: Option<TlsConnection>,
    read: Box<[u8]>,
    scratch: Vec<u8>,
    plain: Vec<u8>,
    /// Records of TLS's own that are to be sent with the next bytes.
    unsent: Vec<u8>,
}

impl Channel {
    fn new(socket: Box<dyn Socket>, address: Option<IpAddr>) -> Channel {
        let read = vec![0; READ_BYTES].into_boxed_slice();
        let (scratch, plain, unsent) = (Vec::new(), Vec::new(), Vec::new());
        Channel { socket, address, tls: None, read, scratch, plain, unsent }
    }

    /// The next bytes of the server; none only where records held no data. May be dropped and called again.
    async fn receive(&mut self) -> Outcome<&[u8]> {
        let count = self.socket.read(&mut self.read).await?;
        if count == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let bytes = self.read.get(..count).unwrap_or_default();
        let Some(tls) = &mut self.tls else { return Ok(bytes) };
        self.plain.clear();
        let progress = tls.receive(bytes, &mut self.scratch, &mut self.plain, &mut self.unsent);
        let progress = progress.map_err(|fault| Failure::Other(format!("TLS failed: {fault}")))?;
        if progress.ended && self.plain.is_empty() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        Ok(&self.plain)
    }

    async fn send(&mut self, bytes: &[u8]) -> Outcome<()> {
        match &mut self.tls {
            None => self.socket.write_all(bytes).await?,
            Some(tls) => {
                let encrypted = tls.encrypt(bytes, &mut self.unsent);
                encrypted.map_err(|fault| Failure::Other(format!("TLS failed: {fault}")))?;
                let records = std::mem::take(&mut self.unsent);
                self.socket.write_all(&records).await?;
            }
        }
        Ok(())
    }

    /// Asks for TLS, and agrees on it where the server has it.
    async fn secure(&mut self, tls_config: &TlsConfig, host: &str) -> Outcome<()> {
        let mut request = Vec::new();
        encode::ssl_request(&mut request);
        self.socket.write_all(&request).await?;
        let mut answer = [0];
        self.socket.read_exact(&mut answer).await?;
        match answer {
            [b'S'] => {}
            [b'N'] if tls_config.servers.mode < SslMode::Require => return Ok(()),
            [b'N'] => {
                return Err(Failure::Other(
                    "the server has no TLS, which server_tls_sslmode demands".to_owned(),
                ));
            }
            _ => return Err(Failure::Other("the answer to SSLRequest is not PostgreSQL's".to_owned())),
        }
        let failed = |fault| Failure::Other(format!("TLS failed: {fault}"));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        tls_config.set_time(u64::try_from(now.as_micros()).unwrap_or(u64::MAX));
        let mut tls = TlsConnection::connect(&tls_config.servers, host).map_err(failed)?;
        let (mut plain, mut out, mut count) = (Vec::new(), Vec::new(), 0);
        loop {
            let bytes = self.read.get(..count).unwrap_or_default();
            let progress = tls.receive(bytes, &mut self.scratch, &mut plain, &mut out);
            self.socket.write_all(&out).await?;
            out.clear();
            progress.map_err(failed)?;
            if tls.is_handshake_complete() {
                break;
            }
            count = self.socket.read(&mut self.read).await?;
            if count == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
        if !plain.is_empty() {
            return Err(Failure::Other("the server speaks before it is asked to".to_owned()));
        }
        self.tls = Some(tls);
        Ok(())
    }
}

/// A connection that is logged in.
pub struct Connection {
    channel: Channel,
    /// Received with the end of the login.
    behind: Vec<u8>,
    limit: Duration,
}

impl Connection {
    /// Connects and logs in; `is_replication` for a WAL sender of the database.
    pub async fn open(
        account: &Account,
        place: &Place,
        tls_config: &TlsConfig,
        (system, is_replication): (System, bool),
    ) -> Outcome<Connection> {
        let opening = async {
            let (socket, host, address) = connect(place).await?;
            let mut channel = Channel::new(socket, address);
            if let Some(host) = host.filter(|_| tls_config.servers.mode != SslMode::Disable) {
                channel.secure(tls_config, host).await?;
            }
            login(channel, account, system, is_replication).await
        };
        timeout(account.connect_timeout, opening).await.map_err(|_| Failure::TimedOut)?
    }

    /// The server's address, unless it was reached by a unix socket.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.channel.address
    }

    /// Runs one or several statements; the rows of all of them, in order.
    pub async fn ask(&mut self, text: &str) -> Outcome<Vec<Row>> {
        let limit = self.limit;
        timeout(limit, self.ask_for_long(text)).await.map_err(|_| Failure::TimedOut)?
    }

    /// The same without a limit of time.
    pub async fn ask_for_long(&mut self, text: &str) -> Outcome<Vec<Row>> {
        self.query(text).await?;
        let (mut frames, mut answer) = (Frames::new(FRAME_BYTES), Answer::default());
        frames.push(&std::mem::take(&mut self.behind));
        loop {
            while let Some((tag, body)) =
                frames.pop().map_err(|_| Failure::Other("a message is too long".to_owned()))?
            {
                if answer.take(tag, &body)? {
                    self.behind = frames.unread().to_vec();
                    return answer.error.map_or(Ok(answer.rows), |refusal| Err(Failure::Refused(refusal)));
                }
            }
            frames.push(self.channel.receive().await?);
        }
    }

    /// Begins to stream: the bytes that came behind the server's agreement.
    pub async fn start_stream(&mut self, text: &str) -> Outcome<Vec<u8>> {
        self.query(text).await?;
        let mut frames = Frames::new(FRAME_BYTES);
        frames.push(&std::mem::take(&mut self.behind));
        let agreed = async {
            loop {
                match frames.pop().map_err(|_| Failure::Other("a message is too long".to_owned()))? {
                    Some((tag::COPY_BOTH, _)) => return Ok(frames.unread().to_vec()),
                    Some((tag::ERROR, body)) => return Err(Failure::Refused(Refusal::read(&body))),
                    Some((tag::NOTICE | tag::PARAMETER_STATUS, _)) => {}
                    Some(_) => return Err(Failure::Other("the server does not stream".to_owned())),
                    None => frames.push(self.channel.receive().await?),
                }
            }
        };
        timeout(self.limit, agreed).await.map_err(|_| Failure::TimedOut)?
    }

    async fn query(&mut self, text: &str) -> Outcome<()> {
        let mut bytes = Vec::new();
        encode::query(&mut bytes, text.as_bytes());
        self.channel.send(&bytes).await
    }

    /// The next bytes. May be dropped and called again.
    pub async fn receive(&mut self) -> Outcome<&[u8]> {
        self.channel.receive().await
    }

    /// Sends a message inside of CopyData.
    pub async fn send_copy(&mut self, data: &[u8]) -> Outcome<()> {
        let mut bytes = Vec::new();
        encode::copy_data(&mut bytes, data);
        let limit = self.limit;
        timeout(limit, self.channel.send(&bytes)).await.map_err(|_| Failure::TimedOut)?
    }
}

/// An answer so far.
#[derive(Default)]
struct Answer {
    rows: Vec<Row>,
    bytes: usize,
    error: Option<Refusal>,
}

impl Answer {
    /// Takes a message; true for the last one.
    fn take(&mut self, tag: u8, body: &[u8]) -> Outcome<bool> {
        match tag {
            tag::DATA_ROW => {
                self.bytes += body.len() + size_of::<Row>();
                let columns = backend::data_row(body).filter(|_| self.bytes <= ANSWER_BYTES);
                let columns = columns.ok_or_else(|| Failure::Other("an answer is too long".to_owned()))?;
                self.rows.push(columns.map(|value| value.map(<[u8]>::to_vec)).collect());
            }
            tag::ERROR => {
                let refusal = Refusal::read(body);
                if wire::error::parse(body).severity() != Some(b"ERROR") {
                    return Err(Failure::Refused(refusal));
                }
                self.error = Some(refusal);
            }
            tag::READY => return Ok(true),
            tag::ROW_DESCRIPTION
            | tag::COMMAND_COMPLETE
            | tag::EMPTY_QUERY
            | tag::NOTICE
            | tag::PARAMETER_STATUS
            | tag::NOTIFICATION => {}
            _ => return Err(Failure::Other("an answer is out of step".to_owned())),
        }
        Ok(false)
    }
}

/// The socket, the host for TLS, and the address that was connected to.
async fn connect(place: &Place) -> Outcome<(Box<dyn Socket>, Option<&str>, Option<IpAddr>)> {
    let (host, port) = match place {
        Place::Unix(path) => return Ok((unix(path).await?, None, None)),
        Place::Inet { host, port, near } => {
            if let Some(path) = near
                && let Ok(socket) = unix(path).await
            {
                return Ok((socket, None, None));
            }
            (host, *port)
        }
    };
    let addresses: Vec<_> = lookup_host((host.as_str(), port)).await?.collect();
    let socket = TcpStream::connect(&addresses[..]).await?;
    socket.set_nodelay(true)?;
    let address = socket.peer_addr()?.ip();
    Ok((Box::new(socket), Some(host), Some(address)))
}

async fn unix(path: &str) -> io::Result<Box<dyn Socket>> {
    let name = path.strip_prefix('@').map(|name| format!("\0{name}"));
    Ok(Box::new(UnixStream::connect(name.as_deref().unwrap_or(path)).await?))
}

async fn login(
    mut channel: Channel,
    account: &Account,
    mut system: System,
    is_replication: bool,
) -> Outcome<Connection> {
    let mut parameters: Vec<(&[u8], &[u8])> = vec![
        (b"user", account.user.as_bytes()),
        (b"database", account.dbname.as_bytes()),
        (b"application_name", account.application_name.as_bytes()),
        (b"client_encoding", b"UTF8"),
    ];
    if is_replication {
        parameters.push((b"replication", b"database"));
    }
    channel.send(&ServerLogin::startup(&parameters)).await?;
    let end_point = channel.tls.as_ref().and_then(|tls| tls.negotiated().end_point);
    let mut exchange = ServerLogin::new(&account.user, &account.credentials(), None).bound_to(end_point);
    let mut keys = ServerKeyCache::default();
    let mut step = LoginStep::Send(Vec::new());
    loop {
        step = match step {
            LoginStep::Send(bytes) => {
                if !bytes.is_empty() {
                    channel.send(&bytes).await?;
                }
                let bytes = channel.receive().await?;
                exchange.receive(bytes, &mut LoginContext { entropy: &mut system, keys: &mut keys })
            }
            LoginStep::Ask(task) => {
                let answer = tokio::task::spawn_blocking(move || task.solve()).await;
                let answer = answer.map_err(|_| Failure::Other("the key cannot be derived".to_owned()))?;
                exchange.answer(answer, &mut LoginContext { entropy: &mut system, keys: &mut keys })
            }
            LoginStep::Identified => exchange.identified(),
            LoginStep::Ready(_, behind) => {
                return Ok(Connection { channel, behind, limit: account.connect_timeout });
            }
            LoginStep::Refused(body) => return Err(Failure::Refused(Refusal::read(&body))),
            LoginStep::Auth(fault) => return Err(Failure::Other(format!("login failed: {fault}"))),
            LoginStep::Fault(fault) => {
                return Err(Failure::Other(format!("login failed: {}", fault.message())));
            }
        };
    }
}
