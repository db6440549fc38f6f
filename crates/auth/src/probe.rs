//! Entry points for fuzzers and mutation tests: each passes arbitrary bytes to the parsers of peer messages
//! (I11 of ARCHITECTURE.md).
//! The test passes if nothing panics.

use crate::cache::{DerivedCache, ServerKeyCache};
use crate::scram::message::{Binding, ClientFinal, ClientFirst, ServerFinal, ServerFirst};
use crate::{
    AuthBackend, CheckResult, ClientLogin, Credentials, Entropy, Method, MockKey, Secret, ServerLogin, Step,
    TaskResult, scram,
};

/// Bodies of `p` messages, divided by the byte 0xFE, against every method and kind of secret.
pub fn client_messages(bytes: &[u8]) {
    for method in [Method::Plain, Method::Md5, Method::Scram] {
        for secret in [None, Some("secret"), Some(MD5), Some(VERIFIER)] {
            let secret = secret.map(Secret::parse);
            converse_as_server(method, secret.as_ref(), bytes);
        }
    }
    let (mut login, mut cache) =
        (ClientLogin::begin_external(AuthBackend::Pam, "user", "unix").0, DerivedCache::default());
    for body in bytes.split(|&byte| byte == DIVIDER) {
        if let Step::Ask(_) = login.message(body) {
            assert!(!body.starts_with(b"\0"), "an empty password");
            login.answer(TaskResult::Checked(CheckResult::Passed), &mut cache);
        }
    }
}

/// Bodies of `R` messages, divided by the byte 0xFE, against every kind of credentials.
pub fn server_messages(bytes: &[u8]) {
    for secret in [None, Some("secret"), Some(MD5), Some(VERIFIER)] {
        let secret = secret.map(Secret::parse);
        let mut login = ServerLogin::new("user", &Credentials::from_secret(secret.as_ref(), None));
        let mut cache = ServerKeyCache::default();
        for body in bytes.split(|&byte| byte == DIVIDER) {
            if let Step::Ask(_) = login.message(body, &mut Counting(0), &cache) {
                // Rounds come from the bytes, so the real computation would only make the fuzzer slow.
                login.answer(TaskResult::SaltedPassword([1; 32]), &mut cache);
            }
        }
    }
}

/// Every parser on its own.
pub fn parsers(bytes: &[u8]) {
    let _ = ClientFirst::parse(bytes);
    let _ = ClientFinal::parse(bytes, Binding::Unsupported, b"", "nonce");
    let _ = ServerFirst::parse(bytes, "nonce");
    let _ = ServerFinal::parse(bytes);
    let _ = scram::prepare_password(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Secret::parse(text);
    }
}

fn converse_as_server(method: Method, secret: Option<&Secret>, bytes: &[u8]) {
    let (mock, mut cache) = (MockKey::new([1; 32]), DerivedCache::default());
    let (mut login, _) = ClientLogin::begin(method, "user", secret, &mock, &cache, &mut Counting(0), 1);
    for body in bytes.split(|&byte| byte == DIVIDER) {
        if let Step::Ask(_) = login.message(body) {
            login.answer(TaskResult::SaltedPassword([1; 32]), &mut cache);
        }
    }
}

/// Deterministic "entropy", so that failures are reproducible.
struct Counting(u8);

impl Entropy for Counting {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_add(1);
            *byte = self.0;
        }
    }
}

/// No UTF-8 text holds it.
const DIVIDER: u8 = 0xFE;
const MD5: &str = "md5d41d8cd98f00b204e9800998ecf8427e";
const VERIFIER: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
    WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
