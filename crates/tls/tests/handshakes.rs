//! Two sessions wired in memory, with certificates that the openssl command makes: version 1 with a common name, and
//! version 3. The time is a number.
#![allow(clippy::unwrap_used, missing_docs)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use settings::{Config, Pem, SslMode};
use tls::{HandshakeFault, TlsConfig, TlsConnection};

struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> TempDir {
        let path = std::env::temp_dir().join(format!("weir-tls-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    fn openssl(&self, arguments: &str) {
        let done = Command::new("openssl").args(arguments.split(' ')).current_dir(&self.0).output().unwrap();
        assert!(done.status.success(), "{arguments}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// A root, and a certificate for localhost that it has signed.
    fn make(&self, is_v1: bool) {
        for name in ["root", "leaf"] {
            self.openssl(&format!("ecparam -name prime256v1 -genkey -noout -out {name}.key"));
        }
        self.openssl("req -new -key leaf.key -out leaf.csr -subj /CN=localhost");
        let sign =
            "x509 -req -in leaf.csr -CA root.crt -CAkey root.key -CAcreateserial -out leaf.crt -days 30";
        if is_v1 {
            self.openssl("req -new -key root.key -out root.csr -subj /CN=root");
            self.openssl("x509 -req -in root.csr -signkey root.key -out root.crt -days 30");
            self.openssl(sign);
        } else {
            std::fs::write(self.0.join("ext"), "subjectAltName=DNS:localhost\n").unwrap();
            self.openssl("req -x509 -new -key root.key -out root.crt -days 30 -subj /CN=root");
            self.openssl(&format!("{sign} -extfile ext"));
        }
    }

    fn pem(&self, name: &str) -> Pem {
        Some(Ok(Arc::from(std::fs::read(Path::new(&self.0).join(name)).unwrap())))
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn tls_config(directory: &TempDir, clients: SslMode, servers: SslMode) -> TlsConfig {
    let mut config = Config::default();
    config.global.client_tls_sslmode = clients;
    config.global.server_tls_sslmode = servers;
    for side in [&mut config.tls_files.client, &mut config.tls_files.server] {
        side.ca = directory.pem("root.crt");
        side.cert = directory.pem("leaf.crt");
        side.key = directory.pem("leaf.key");
    }
    let tls_config = TlsConfig::new(&config).unwrap();
    tls_config.set_time(now_us());
    tls_config
}

fn now_us() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(now.as_micros()).unwrap()
}

/// One end of a connection with the plaintext it received.
struct Peer {
    session: TlsConnection,
    plain: Vec<u8>,
}

impl Peer {
    fn new(session: TlsConnection) -> Peer {
        Peer { session, plain: Vec::new() }
    }

    fn receive_all(&mut self, bytes: &[u8]) -> Result<Vec<u8>, HandshakeFault> {
        let (mut scratch, mut out) = (Vec::new(), Vec::new());
        let heard = self.session.receive(bytes, &mut scratch, &mut self.plain, &mut out);
        heard.map(|_| out)
    }
}

/// Passes bytes both ways, in pieces of `size`, until neither side sends more.
fn handshake(client: &mut Peer, server: &mut Peer, size: usize) -> Result<(), HandshakeFault> {
    let mut to_server = client.receive_all(b"")?;
    while !to_server.is_empty() {
        let mut to_client = Vec::new();
        for piece in to_server.chunks(size) {
            to_client.extend(server.receive_all(piece)?);
        }
        to_server.clear();
        for piece in to_client.chunks(size) {
            to_server.extend(client.receive_all(piece)?);
        }
    }
    Ok(())
}

fn pair(tls_config: &TlsConfig, host: &str) -> (Peer, Peer) {
    let client = TlsConnection::connect(&tls_config.servers, host).unwrap();
    (Peer::new(client), Peer::new(TlsConnection::accept(&tls_config.clients).unwrap()))
}

#[test]
fn both_versions_of_certificates_serve_on_both_sides_in_pieces_of_any_size() {
    for is_v1 in [true, false] {
        let directory = TempDir::new(if is_v1 { "v1" } else { "v3" });
        directory.make(is_v1);
        let tls_config = tls_config(&directory, SslMode::VerifyFull, SslMode::VerifyFull);
        for size in [1, 7, 100_000] {
            let (mut client, mut server) = pair(&tls_config, "localhost");
            handshake(&mut client, &mut server, size).unwrap();
            assert!(client.session.is_handshake_complete() && server.session.is_handshake_complete());
            let negotiated = server.session.negotiated();
            assert_eq!(negotiated.summary(), "TLSv1.3/TLS_AES_256_GCM_SHA384");
            assert_eq!(negotiated.peer.unwrap().common_name.as_deref(), Some("localhost"));
            assert!(
                negotiated.end_point.is_some()
                    && negotiated.end_point == client.session.negotiated().end_point
            );
            let (text, mut sealed) = (vec![7; 100_000], Vec::new());
            client.session.encrypt(&text, &mut sealed).unwrap();
            for piece in sealed.chunks(size.max(7)) {
                server.receive_all(piece).unwrap();
            }
            assert!(server.plain == text);
        }
        let (mut client, mut server) = pair(&tls_config, "127.0.0.1");
        let fault = handshake(&mut client, &mut server, 1_000).unwrap_err().to_string();
        assert_eq!(fault, "certificate verify failed: hostname mismatch");
        tls_config.set_time(now_us() + 40 * 86_400 * 1_000_000);
        let (mut client, mut server) = pair(&tls_config, "localhost");
        let fault = handshake(&mut client, &mut server, 1_000).unwrap_err().to_string();
        assert_eq!(fault, "certificate verify failed: certificate has expired");
    }
}

#[test]
fn a_root_of_the_same_name_is_still_another() {
    let (one, other) = (TempDir::new("one"), TempDir::new("other"));
    one.make(true);
    other.make(true);
    let (mine, theirs) = (
        tls_config(&one, SslMode::Allow, SslMode::VerifyCa),
        tls_config(&other, SslMode::Allow, SslMode::VerifyCa),
    );
    let mut client = Peer::new(TlsConnection::connect(&mine.servers, "localhost").unwrap());
    let mut server = Peer::new(TlsConnection::accept(&theirs.clients).unwrap());
    let fault = handshake(&mut client, &mut server, 1_000).unwrap_err().to_string();
    assert_eq!(fault, "certificate verify failed: certificate signature failure");
}

/// Changes one bit, but none of the type and version in a record's head: the version must be ignored, and of a sealed
/// record both can only be what they should have been (RFC 8446, sections 5.1 and 5.2).
fn change(bytes: &mut [u8], next: &mut impl FnMut(usize) -> usize) {
    let place = next(bytes.len());
    let mut head = 0;
    while let Some([_, _, _, high, low]) = bytes.get(head..head + 5) {
        if (head..head + 3).contains(&place) {
            return change(bytes, next);
        }
        head += 5 + usize::from(u16::from_be_bytes([*high, *low]));
    }
    bytes[place] ^= 1 << next(8);
}

/// Whatever is wrong with the bytes, both ends refuse them or wait; nothing panics, and no plaintext comes of it.
#[test]
fn changed_bytes_never_pass() {
    let directory = TempDir::new("changed");
    directory.make(false);
    let tls_config = tls_config(&directory, SslMode::VerifyFull, SslMode::VerifyFull);
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = |most: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % most as u64).unwrap()
    };
    for _ in 0..300 {
        let (mut client, mut server) = pair(&tls_config, "localhost");
        let mut hello = client.receive_all(b"").unwrap();
        let spoils_hello = next(2) == 0;
        if spoils_hello {
            change(&mut hello, &mut next);
        }
        let cut = next(hello.len());
        let answer = server.receive_all(&hello[..cut]).and_then(|_| server.receive_all(&hello[cut..]));
        if let Ok(mut answer) = answer.map(|bytes| if bytes.is_empty() { vec![0] } else { bytes }) {
            change(&mut answer, &mut next);
            let _ = client.receive_all(&answer).and_then(|out| server.receive_all(&out));
        }
        assert!(client.plain.is_empty() && server.plain.is_empty());
        assert!(!(client.session.is_handshake_complete() && server.session.is_handshake_complete()));
    }
    for length in 0..200 {
        let bytes: Vec<u8> = (0..length).map(|_| u8::try_from(next(256)).unwrap()).collect();
        tls::probe::certificate(&bytes);
    }
}
