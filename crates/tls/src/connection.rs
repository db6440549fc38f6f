//! One TLS connection without a socket: ciphertext in, plaintext out, and the reverse.
//!
//! Owns what is buffered between two reads (a partial record, nothing while idle) and its limit. Output is appended to the
//! caller's buffer.

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    AppDataRecord, ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};
use rustls::{CommonState, Error, NamedGroup, ProtocolVersion};

use crate::certificate::end_point;
use crate::{Certificate, ClientTlsConfig, HandshakeFault, PeerCertificate, ServerTlsConfig, ciphers};

/// Bytes that a handshake may take.
const MAX_HANDSHAKE_BYTES: usize = 96 * 1024;
/// Overhead of an encrypted record at most, with a key update before it.
const RECORD_OVERHEAD: usize = 128;
/// The most plaintext in a record.
const RECORD_BYTES: usize = 16 * 1024;

/// The negotiated parameters of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NegotiatedTls {
    /// `TLSv1.3` or `TLSv1.2`.
    pub version: &'static str,
    /// OpenSSL's name of the cipher suite.
    pub cipher: &'static str,
    /// OpenSSL's name of the curve, where OpenSSL would name one.
    pub curve: Option<&'static str>,
    /// Direct TLS may be spoken: the peer named `postgresql` by ALPN.
    pub has_alpn: bool,
    /// The peer's certificate; a client's only where there are roots to check it by.
    pub peer: Option<PeerCertificate>,
    /// `tls-server-end-point` (RFC 5929) of the server's certificate, whichever side that is.
    pub end_point: Option<Vec<u8>>,
}

impl NegotiatedTls {
    /// `TLSv1.3/TLS_AES_256_GCM_SHA384`, or `TLSv1.2/ECDHE-RSA-AES256-GCM-SHA384/ECDH=X25519`: as the log and SHOW write
    /// it.
    #[must_use]
    pub fn summary(&self) -> String {
        let curve = self.curve.map(|curve| format!("/ECDH={curve}")).unwrap_or_default();
        format!("{}/{}{curve}", self.version, self.cipher)
    }
}

/// The result of receiving bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The handshake has just completed; any plaintext came after it.
    pub secured: bool,
    /// The peer sent close_notify.
    pub ended: bool,
}

/// One end of one connection.
pub struct TlsConnection {
    role: Role,
    /// A partial record or handshake message.
    pending: Vec<u8>,
    handshake_bytes: usize,
    secured: bool,
    /// `tls-server-end-point` of our certificate, where we are the server.
    local_end_point: Option<Vec<u8>>,
}

enum Role {
    /// Towards a client we are the TLS server.
    Server(Box<UnbufferedServerConnection>),
    /// Towards a server we are the TLS client.
    Client(Box<UnbufferedClientConnection>),
}

impl TlsConnection {
    /// Towards a client that wants TLS.
    ///
    /// # Errors
    /// [`HandshakeFault::NotConfigured`] where TLS towards clients is disabled.
    pub fn accept(tls_config: &ClientTlsConfig) -> Result<TlsConnection, HandshakeFault> {
        let config = tls_config.config.clone().ok_or(HandshakeFault::NotConfigured)?;
        let connection = UnbufferedServerConnection::new(config)?;
        Ok(TlsConnection::new(Role::Server(Box::new(connection)), tls_config.end_point.clone()))
    }

    /// Towards a server that agreed to TLS; `host` is its name or address as configured. The first bytes for it come
    /// out of [`TlsConnection::receive`] of none.
    ///
    /// # Errors
    /// [`HandshakeFault`] where TLS towards servers is disabled, or for an invalid host name.
    pub fn connect(tls_config: &ServerTlsConfig, host: &str) -> Result<TlsConnection, HandshakeFault> {
        let config = tls_config.config.clone().ok_or(HandshakeFault::NotConfigured)?;
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| HandshakeFault::HostName(host.to_owned()))?;
        let connection = UnbufferedClientConnection::new(config, name)?;
        Ok(TlsConnection::new(Role::Client(Box::new(connection)), None))
    }

    fn new(role: Role, local_end_point: Option<Vec<u8>>) -> TlsConnection {
        TlsConnection { role, pending: Vec::new(), handshake_bytes: 0, secured: false, local_end_point }
    }

    /// The handshake is complete.
    #[must_use]
    pub fn is_handshake_complete(&self) -> bool {
        self.secured
    }

    /// We are the TLS server: the peer is a client.
    #[must_use]
    pub fn is_server_side(&self) -> bool {
        matches!(self.role, Role::Server(_))
    }

    /// Processes received bytes; appends plaintext to `plain` and the response to `out` (an alert on failure). `scratch` is
    /// reusable memory of the caller.
    ///
    /// # Errors
    /// [`HandshakeFault`]: the connection must be closed.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        scratch: &mut Vec<u8>,
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<Progress, HandshakeFault> {
        scratch.clear();
        scratch.extend_from_slice(&self.pending);
        scratch.extend_from_slice(bytes);
        let mut progress = Progress::default();
        let mut done = 0;
        loop {
            let rest = scratch.get_mut(done..).unwrap_or_default();
            let advance = match &mut self.role {
                Role::Server(connection) => advance(connection.process_tls_records(rest), plain, out),
                Role::Client(connection) => advance(connection.process_tls_records(rest), plain, out),
            };
            done += advance.discard;
            match advance.outcome {
                Ok(Step::Continue) => {}
                Ok(Step::Ended) => progress.ended = true,
                Ok(Step::NeedsInput) => break,
                Err(error) => {
                    self.send_alert(scratch.get_mut(done..).unwrap_or_default(), out);
                    return Err(error.into());
                }
            }
        }
        let rest = scratch.get(done..).unwrap_or_default();
        self.pending.clear();
        if rest.is_empty() {
            self.pending = Vec::new();
        } else {
            self.pending.extend_from_slice(rest);
        }
        if !self.secured {
            self.handshake_bytes = self.handshake_bytes.saturating_add(bytes.len());
            progress.secured = !self.common().is_handshaking();
            self.secured = progress.secured;
            if !self.secured && self.handshake_bytes > MAX_HANDSHAKE_BYTES {
                return Err(HandshakeFault::TooLong);
            }
        }
        Ok(progress)
    }

    /// Appends `plain` to `out` as records.
    ///
    /// # Errors
    /// [`HandshakeFault`] before the handshake is complete, or when the key's limit is reached.
    pub fn encrypt(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), HandshakeFault> {
        self.write(out, |traffic, out| {
            let room = plain.len() + (plain.len() / RECORD_BYTES + 1) * RECORD_OVERHEAD;
            append(out, room, |free| traffic.encrypt(plain, free))
        })
    }

    /// Appends close_notify. Does nothing before the handshake is complete.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        if self.secured {
            let _ = self.write(out, |traffic, out| {
                append(out, RECORD_OVERHEAD, |free| traffic.queue_close_notify(free))
            });
        }
    }

    /// The negotiated parameters, once the handshake is complete.
    #[must_use]
    pub fn negotiated(&self) -> NegotiatedTls {
        let common = self.common();
        let own = common.peer_certificates().and_then(|sent| sent.first());
        NegotiatedTls {
            version: match common.protocol_version() {
                Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
                Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
                _ => "unknown",
            },
            cipher: common.negotiated_cipher_suite().map_or("unknown", |suite| ciphers::name(suite.suite())),
            curve: self.curve(),
            has_alpn: common.alpn_protocol().is_some(),
            peer: own.and_then(|der| Certificate::read(der).ok()).map(|certificate| certificate.peer()),
            end_point: match self.role {
                Role::Server(_) => self.local_end_point.clone(),
                Role::Client(_) => own.and_then(end_point),
            },
        }
    }

    /// The curve as OpenSSL reports it: none for clients in TLS 1.3.
    fn curve(&self) -> Option<&'static str> {
        let common = self.common();
        let group = common.negotiated_key_exchange_group()?;
        match (common.protocol_version()?, group.name()) {
            (ProtocolVersion::TLSv1_3, _) if self.is_server_side() => None,
            (_, NamedGroup::X25519) => Some("X25519"),
            (_, NamedGroup::secp256r1) => Some("prime256v1"),
            (_, NamedGroup::secp384r1) => Some("secp384r1"),
            _ => None,
        }
    }

    fn common(&self) -> &CommonState {
        match &self.role {
            Role::Server(connection) => connection,
            Role::Client(connection) => connection,
        }
    }

    /// Advances rustls until application data can be written, and writes.
    fn write(
        &mut self,
        out: &mut Vec<u8>,
        mut write: impl FnMut(&mut dyn Traffic, &mut Vec<u8>) -> Result<(), EncryptError>,
    ) -> Result<(), HandshakeFault> {
        loop {
            let pending = &mut self.pending;
            let step = match &mut self.role {
                Role::Server(connection) => writing(connection.process_tls_records(pending), out, &mut write),
                Role::Client(connection) => writing(connection.process_tls_records(pending), out, &mut write),
            };
            pending.drain(..step.discard.min(pending.len()));
            match step.outcome {
                Ok(Step::NeedsInput) => return Ok(()),
                Ok(Step::Continue) => {}
                Ok(Step::Ended) => return Err(Error::HandshakeNotComplete.into()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// After a failure: sends what rustls has pending, the alert last, and no further, as it would process the bad bytes
    /// again. `rest` is what was not discarded: rustls expects it in place.
    fn send_alert(&mut self, rest: &mut [u8], out: &mut Vec<u8>) {
        let mut nothing = Vec::new();
        while self.common().wants_write() {
            let advance = match &mut self.role {
                Role::Server(connection) => advance(connection.process_tls_records(rest), &mut nothing, out),
                Role::Client(connection) => advance(connection.process_tls_records(rest), &mut nothing, out),
            };
            if !matches!(advance.outcome, Ok(Step::Continue)) {
                return;
            }
        }
    }
}

/// The result of one step.
enum Step {
    /// More may be available without input.
    Continue,
    /// The peer sends no more.
    Ended,
    /// More bytes are needed.
    NeedsInput,
}

struct Advance {
    discard: usize,
    outcome: Result<Step, Error>,
}

/// Handles one state of rustls.
fn advance<Data>(status: UnbufferedStatus<'_, '_, Data>, plain: &mut Vec<u8>, out: &mut Vec<u8>) -> Advance {
    let mut discard = status.discard;
    let outcome = status.state.and_then(|state| match state {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                let AppDataRecord { discard: more, payload, .. } = record?;
                discard += more;
                plain.extend_from_slice(payload);
            }
            Ok(Step::Continue)
        }
        ConnectionState::EncodeTlsData(mut data) => encode(&mut data, out).map(|()| Step::Continue),
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Ok(Step::Continue)
        }
        ConnectionState::PeerClosed => Ok(Step::Ended),
        ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) | ConnectionState::Closed => {
            Ok(Step::NeedsInput)
        }
        // Early data is never accepted.
        _ => Err(Error::HandshakeNotComplete),
    });
    Advance { discard, outcome }
}

/// The same on the way to write application data; [`Step::NeedsInput`] when it is written.
fn writing<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    out: &mut Vec<u8>,
    write: &mut impl FnMut(&mut dyn Traffic, &mut Vec<u8>) -> Result<(), EncryptError>,
) -> Advance {
    let discard = status.discard;
    let outcome = status.state.and_then(|state| match state {
        ConnectionState::WriteTraffic(mut traffic) => match write(&mut traffic, out) {
            Ok(()) => Ok(Step::NeedsInput),
            Err(_) => Err(Error::EncryptError),
        },
        ConnectionState::EncodeTlsData(mut data) => encode(&mut data, out).map(|()| Step::Continue),
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Ok(Step::Continue)
        }
        ConnectionState::PeerClosed => Ok(Step::Continue),
        _ => Ok(Step::Ended),
    });
    Advance { discard, outcome }
}

fn encode<Data>(data: &mut EncodeTlsData<'_, Data>, out: &mut Vec<u8>) -> Result<(), Error> {
    let start = out.len();
    let needed = match data.encode(&mut []) {
        Err(EncodeError::InsufficientSize(size)) => size.required_size,
        _ => return Ok(()),
    };
    out.resize(start + needed, 0);
    data.encode(&mut out[start..]).map(|_| ()).map_err(|_| Error::EncryptError)
}

/// Appends what `write` writes, giving it more room where it wants more.
fn append(
    out: &mut Vec<u8>,
    room: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> Result<(), EncryptError> {
    let start = out.len();
    out.resize(start + room, 0);
    let mut written = write(&mut out[start..]);
    if let Err(EncryptError::InsufficientSize(size)) = &written {
        out.resize(start + size.required_size, 0);
        written = write(&mut out[start..]);
    }
    out.truncate(start + written.as_ref().map_or(0, |count| *count));
    written.map(|_| ())
}

/// Writing application data, for either role.
trait Traffic {
    fn encrypt(&mut self, plain: &[u8], out: &mut [u8]) -> Result<usize, EncryptError>;
    fn queue_close_notify(&mut self, out: &mut [u8]) -> Result<usize, EncryptError>;
}

impl<Data> Traffic for WriteTraffic<'_, Data> {
    fn encrypt(&mut self, plain: &[u8], out: &mut [u8]) -> Result<usize, EncryptError> {
        WriteTraffic::encrypt(self, plain, out)
    }

    fn queue_close_notify(&mut self, out: &mut [u8]) -> Result<usize, EncryptError> {
        WriteTraffic::queue_close_notify(self, out)
    }
}
