//! One connection's records: ciphertext in, plaintext out, and the other way.
//!
//! Owns what is kept between two reads (a part of a record, nothing while idle) and the bound on it. Never holds a
//! socket; whatever must be sent is appended to the caller's buffer.

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    AppDataRecord, ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};
use rustls::{CommonState, Error, NamedGroup, ProtocolVersion};

use crate::certificate::end_point;
use crate::{Certificate, ClientTerms, HandshakeFault, PeerCertificate, ServerTerms, ciphers};

/// Bytes that a handshake may take.
const HANDSHAKE_BYTES: usize = 96 * 1024;
/// What sealing adds to a record at most, with a key update before it.
const RECORD_OVERHEAD: usize = 128;
/// The most plaintext in a record.
const RECORD_BYTES: usize = 16 * 1024;

/// What was agreed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agreed {
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

impl Agreed {
    /// `TLSv1.3/TLS_AES_256_GCM_SHA384`, or `TLSv1.2/ECDHE-RSA-AES256-GCM-SHA384/ECDH=X25519`: as the log and SHOW write
    /// it.
    #[must_use]
    pub fn summary(&self) -> String {
        let curve = self.curve.map(|curve| format!("/ECDH={curve}")).unwrap_or_default();
        format!("{}/{}{curve}", self.version, self.cipher)
    }
}

/// What bytes have led to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The handshake ended well just now: what plaintext there is came behind it.
    pub secured: bool,
    /// The peer said by an alert that it sends no more.
    pub ended: bool,
}

/// One end of one connection.
pub struct Session {
    machine: Machine,
    /// A part of a record or of a handshake message.
    kept: Vec<u8>,
    handshake_bytes: usize,
    secured: bool,
    /// Our own certificate's end point, where we are the server.
    own_end_point: Option<Vec<u8>>,
}

enum Machine {
    /// Towards a client we are the TLS server.
    OfClient(Box<UnbufferedServerConnection>),
    /// Towards a server we are the TLS client.
    OfServer(Box<UnbufferedClientConnection>),
}

impl Session {
    /// Towards a client that wants TLS.
    ///
    /// # Errors
    /// [`HandshakeFault::NoTerms`] where clients get no TLS.
    pub fn accept(terms: &ClientTerms) -> Result<Session, HandshakeFault> {
        let config = terms.config.clone().ok_or(HandshakeFault::NoTerms)?;
        let connection = UnbufferedServerConnection::new(config)?;
        Ok(Session::new(Machine::OfClient(Box::new(connection)), terms.end_point.clone()))
    }

    /// Towards a server that agreed to TLS; `host` is its name or address as configured. The first bytes for it come
    /// out of [`Session::receive`] of none.
    ///
    /// # Errors
    /// [`HandshakeFault`] where servers get no TLS, or for a name that no certificate could have.
    pub fn connect(terms: &ServerTerms, host: &str) -> Result<Session, HandshakeFault> {
        let config = terms.config.clone().ok_or(HandshakeFault::NoTerms)?;
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| HandshakeFault::HostName(host.to_owned()))?;
        let connection = UnbufferedClientConnection::new(config, name)?;
        Ok(Session::new(Machine::OfServer(Box::new(connection)), None))
    }

    fn new(machine: Machine, own_end_point: Option<Vec<u8>>) -> Session {
        Session { machine, kept: Vec::new(), handshake_bytes: 0, secured: false, own_end_point }
    }

    /// The handshake is over.
    #[must_use]
    pub fn is_secured(&self) -> bool {
        self.secured
    }

    /// The peer is a client of ours.
    #[must_use]
    pub fn is_of_client(&self) -> bool {
        matches!(self.machine, Machine::OfClient(_))
    }

    /// Takes bytes of the peer; appends what they say to `plain` and what has to be answered to `out` (an alert, where
    /// this fails). `scratch` is memory that callers use again and again.
    ///
    /// # Errors
    /// [`HandshakeFault`]: nothing more can come of this connection.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        scratch: &mut Vec<u8>,
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<Progress, HandshakeFault> {
        scratch.clear();
        scratch.extend_from_slice(&self.kept);
        scratch.extend_from_slice(bytes);
        let mut progress = Progress::default();
        let mut done = 0;
        loop {
            let rest = scratch.get_mut(done..).unwrap_or_default();
            let turn = match &mut self.machine {
                Machine::OfClient(connection) => turn(connection.process_tls_records(rest), plain, out),
                Machine::OfServer(connection) => turn(connection.process_tls_records(rest), plain, out),
            };
            done += turn.discard;
            match turn.outcome {
                Ok(Step::GoOn) => {}
                Ok(Step::Ended) => progress.ended = true,
                Ok(Step::Waits) => break,
                Err(error) => {
                    self.send_alert(scratch.get_mut(done..).unwrap_or_default(), out);
                    return Err(error.into());
                }
            }
        }
        let rest = scratch.get(done..).unwrap_or_default();
        self.kept.clear();
        if rest.is_empty() {
            self.kept = Vec::new();
        } else {
            self.kept.extend_from_slice(rest);
        }
        if !self.secured {
            self.handshake_bytes = self.handshake_bytes.saturating_add(bytes.len());
            progress.secured = !self.common().is_handshaking();
            self.secured = progress.secured;
            if !self.secured && self.handshake_bytes > HANDSHAKE_BYTES {
                return Err(HandshakeFault::TooLong);
            }
        }
        Ok(progress)
    }

    /// Appends `plain` to `out` as records.
    ///
    /// # Errors
    /// [`HandshakeFault`] if the connection is not secured, or has sent all that one key may seal.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), HandshakeFault> {
        self.write(out, |traffic, out| {
            let room = plain.len() + (plain.len() / RECORD_BYTES + 1) * RECORD_OVERHEAD;
            append(out, room, |free| traffic.encrypt(plain, free))
        })
    }

    /// Appends the alert that says that we send no more. Does nothing where there is no secured connection.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        if self.secured {
            let _ = self.write(out, |traffic, out| {
                append(out, RECORD_OVERHEAD, |free| traffic.queue_close_notify(free))
            });
        }
    }

    /// What was agreed on, once it is secured.
    #[must_use]
    pub fn agreed(&self) -> Agreed {
        let common = self.common();
        let own = common.peer_certificates().and_then(|sent| sent.first());
        Agreed {
            version: match common.protocol_version() {
                Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
                Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
                _ => "unknown",
            },
            cipher: common.negotiated_cipher_suite().map_or("unknown", |suite| ciphers::name(suite.suite())),
            curve: self.curve(),
            has_alpn: common.alpn_protocol().is_some(),
            peer: own.and_then(|der| Certificate::read(der).ok()).map(|certificate| certificate.peer()),
            end_point: match self.machine {
                Machine::OfClient(_) => self.own_end_point.clone(),
                Machine::OfServer(_) => own.and_then(end_point),
            },
        }
    }

    /// OpenSSL names the other side's curve: of clients it knows none in TLS 1.3.
    fn curve(&self) -> Option<&'static str> {
        let common = self.common();
        let group = common.negotiated_key_exchange_group()?;
        match (common.protocol_version()?, group.name()) {
            (ProtocolVersion::TLSv1_3, _) if self.is_of_client() => None,
            (_, NamedGroup::X25519) => Some("X25519"),
            (_, NamedGroup::secp256r1) => Some("prime256v1"),
            (_, NamedGroup::secp384r1) => Some("secp384r1"),
            _ => None,
        }
    }

    fn common(&self) -> &CommonState {
        match &self.machine {
            Machine::OfClient(connection) => connection,
            Machine::OfServer(connection) => connection,
        }
    }

    /// Goes to where application data can be written, and writes.
    fn write(
        &mut self,
        out: &mut Vec<u8>,
        mut write: impl FnMut(&mut dyn Traffic, &mut Vec<u8>) -> Result<(), EncryptError>,
    ) -> Result<(), HandshakeFault> {
        loop {
            let kept = &mut self.kept;
            let step = match &mut self.machine {
                Machine::OfClient(connection) => {
                    writing(connection.process_tls_records(kept), out, &mut write)
                }
                Machine::OfServer(connection) => {
                    writing(connection.process_tls_records(kept), out, &mut write)
                }
            };
            kept.drain(..step.discard.min(kept.len()));
            match step.outcome {
                Ok(Step::Waits) => return Ok(()),
                Ok(Step::GoOn) => {}
                Ok(Step::Ended) => return Err(Error::HandshakeNotComplete.into()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// After a failure: what rustls has ready for the peer, the alert last, and not a step further, for it would look at
    /// the bad bytes again. `rest` is what was not discarded: rustls counts on finding it where it was.
    fn send_alert(&mut self, rest: &mut [u8], out: &mut Vec<u8>) {
        let mut nothing = Vec::new();
        while self.common().wants_write() {
            let turn = match &mut self.machine {
                Machine::OfClient(connection) => {
                    turn(connection.process_tls_records(rest), &mut nothing, out)
                }
                Machine::OfServer(connection) => {
                    turn(connection.process_tls_records(rest), &mut nothing, out)
                }
            };
            if !matches!(turn.outcome, Ok(Step::GoOn)) {
                return;
            }
        }
    }
}

/// Where a turn has led.
enum Step {
    /// There may be more at once.
    GoOn,
    /// The peer sends no more.
    Ended,
    /// More bytes are needed.
    Waits,
}

struct Turn {
    discard: usize,
    outcome: Result<Step, Error>,
}

/// Does what one state of rustls asks for.
fn turn<Data>(status: UnbufferedStatus<'_, '_, Data>, plain: &mut Vec<u8>, out: &mut Vec<u8>) -> Turn {
    let mut discard = status.discard;
    let outcome = status.state.and_then(|state| match state {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                let AppDataRecord { discard: more, payload, .. } = record?;
                discard += more;
                plain.extend_from_slice(payload);
            }
            Ok(Step::GoOn)
        }
        ConnectionState::EncodeTlsData(mut data) => encode(&mut data, out).map(|()| Step::GoOn),
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Ok(Step::GoOn)
        }
        ConnectionState::PeerClosed => Ok(Step::Ended),
        ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) | ConnectionState::Closed => {
            Ok(Step::Waits)
        }
        // Early data is never accepted.
        _ => Err(Error::HandshakeNotComplete),
    });
    Turn { discard, outcome }
}

/// The same on the way to write application data; [`Step::Waits`] when it is written.
fn writing<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    out: &mut Vec<u8>,
    write: &mut impl FnMut(&mut dyn Traffic, &mut Vec<u8>) -> Result<(), EncryptError>,
) -> Turn {
    let discard = status.discard;
    let outcome = status.state.and_then(|state| match state {
        ConnectionState::WriteTraffic(mut traffic) => match write(&mut traffic, out) {
            Ok(()) => Ok(Step::Waits),
            Err(_) => Err(Error::EncryptError),
        },
        ConnectionState::EncodeTlsData(mut data) => encode(&mut data, out).map(|()| Step::GoOn),
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Ok(Step::GoOn)
        }
        ConnectionState::PeerClosed => Ok(Step::GoOn),
        _ => Ok(Step::Ended),
    });
    Turn { discard, outcome }
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

/// Both sides' way to write.
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
