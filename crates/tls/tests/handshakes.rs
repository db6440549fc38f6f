//! Two sessions wired in memory, with certificates that the openssl command makes: version 1 with a common name, and
//! version 3. The time is a number.
#![allow(clippy::unwrap_used, missing_docs)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use settings::{Config, Pem, SslMode};
use tls::{HandshakeFault, Session, Terms};

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("weir-tls-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
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

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn terms(directory: &Directory, clients: SslMode, servers: SslMode) -> Terms {
    let mut config = Config::default();
    config.global.client_tls_sslmode = clients;
    config.global.server_tls_sslmode = servers;
    for side in [&mut config.tls_files.client, &mut config.tls_files.server] {
        side.ca = directory.pem("root.crt");
        side.cert = directory.pem("leaf.crt");
        side.key = directory.pem("leaf.key");
    }
    let terms = Terms::new(&config).unwrap();
    terms.tell_time(now_us());
    terms
}

fn now_us() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(now.as_micros()).unwrap()
}

/// One end with what it has heard.
struct End {
    session: Session,
    plain: Vec<u8>,
}

impl End {
    fn new(session: Session) -> End {
        End { session, plain: Vec::new() }
    }

    fn hear(&mut self, bytes: &[u8]) -> Result<Vec<u8>, HandshakeFault> {
        let (mut scratch, mut out) = (Vec::new(), Vec::new());
        let heard = self.session.receive(bytes, &mut scratch, &mut self.plain, &mut out);
        heard.map(|_| out)
    }
}

/// Passes bytes both ways, in pieces of `size`, until nobody has more to say.
fn shake(client: &mut End, server: &mut End, size: usize) -> Result<(), HandshakeFault> {
    let mut to_server = client.hear(b"")?;
    while !to_server.is_empty() {
        let mut to_client = Vec::new();
        for piece in to_server.chunks(size) {
            to_client.extend(server.hear(piece)?);
        }
        to_server.clear();
        for piece in to_client.chunks(size) {
            to_server.extend(client.hear(piece)?);
        }
    }
    Ok(())
}

fn pair(terms: &Terms, host: &str) -> (End, End) {
    let client = Session::connect(&terms.servers, host).unwrap();
    (End::new(client), End::new(Session::accept(&terms.clients).unwrap()))
}

#[test]
fn both_versions_of_certificates_serve_on_both_sides_in_pieces_of_any_size() {
    for is_v1 in [true, false] {
        let directory = Directory::new(if is_v1 { "v1" } else { "v3" });
        directory.make(is_v1);
        let terms = terms(&directory, SslMode::VerifyFull, SslMode::VerifyFull);
        for size in [1, 7, 100_000] {
            let (mut client, mut server) = pair(&terms, "localhost");
            shake(&mut client, &mut server, size).unwrap();
            assert!(client.session.is_secured() && server.session.is_secured());
            let agreed = server.session.agreed();
            assert_eq!(agreed.summary(), "TLSv1.3/TLS_AES_256_GCM_SHA384");
            assert_eq!(agreed.peer.unwrap().common_name.as_deref(), Some("localhost"));
            assert!(agreed.end_point.is_some() && agreed.end_point == client.session.agreed().end_point);
            let (text, mut sealed) = (vec![7; 100_000], Vec::new());
            client.session.seal(&text, &mut sealed).unwrap();
            for piece in sealed.chunks(size.max(7)) {
                server.hear(piece).unwrap();
            }
            assert!(server.plain == text);
        }
        let (mut client, mut server) = pair(&terms, "127.0.0.1");
        let fault = shake(&mut client, &mut server, 1_000).unwrap_err().to_string();
        assert_eq!(fault, "certificate verify failed: hostname mismatch");
        terms.tell_time(now_us() + 40 * 86_400 * 1_000_000);
        let (mut client, mut server) = pair(&terms, "localhost");
        let fault = shake(&mut client, &mut server, 1_000).unwrap_err().to_string();
        assert_eq!(fault, "certificate verify failed: certificate has expired");
    }
}

#[test]
fn a_root_of_the_same_name_is_still_another() {
    let (one, other) = (Directory::new("one"), Directory::new("other"));
    one.make(true);
    other.make(true);
    let (mine, theirs) =
        (terms(&one, SslMode::Allow, SslMode::VerifyCa), terms(&other, SslMode::Allow, SslMode::VerifyCa));
    let mut client = End::new(Session::connect(&mine.servers, "localhost").unwrap());
    let mut server = End::new(Session::accept(&theirs.clients).unwrap());
    let fault = shake(&mut client, &mut server, 1_000).unwrap_err().to_string();
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
    let directory = Directory::new("changed");
    directory.make(false);
    let terms = terms(&directory, SslMode::VerifyFull, SslMode::VerifyFull);
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = |most: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % most as u64).unwrap()
    };
    for _ in 0..300 {
        let (mut client, mut server) = pair(&terms, "localhost");
        let mut hello = client.hear(b"").unwrap();
        let spoils_hello = next(2) == 0;
        if spoils_hello {
            change(&mut hello, &mut next);
        }
        let cut = next(hello.len());
        let answer = server.hear(&hello[..cut]).and_then(|_| server.hear(&hello[cut..]));
        if let Ok(mut answer) = answer.map(|bytes| if bytes.is_empty() { vec![0] } else { bytes }) {
            change(&mut answer, &mut next);
            let _ = client.hear(&answer).and_then(|out| server.hear(&out));
        }
        assert!(client.plain.is_empty() && server.plain.is_empty());
        assert!(!(client.session.is_secured() && server.session.is_secured()));
    }
    for length in 0..200 {
        let bytes: Vec<u8> = (0..length).map(|_| u8::try_from(next(256)).unwrap()).collect();
        tls::probe::certificate(&bytes);
    }
}
