//! The arithmetic of SCRAM-SHA-256 (RFC 5802 section 3, RFC 7677) and PostgreSQL's way with SASLprep.
//! Pure functions over bytes; the messages are in `message`, the order of an exchange in the two login machines.

pub mod message;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};
use zeroize::{Zeroize, Zeroizing};

/// The mechanism's name. `SCRAM-SHA-256-PLUS` will stand beside it once TLS is there.
pub const MECHANISM: &str = "SCRAM-SHA-256";
/// The same, bound to the TLS connection that it runs in.
pub const MECHANISM_PLUS: &str = "SCRAM-SHA-256-PLUS";

/// Bytes of entropy in a nonce; PostgreSQL's own number (`scram-common.h`), 24 characters of base64.
pub const NONCE_LENGTH: usize = 18;

/// ClientKey and ServerKey made from a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) client_key: [u8; 32],
    pub(crate) server_key: [u8; 32],
}

impl Keys {
    pub(crate) fn from_salted_password(salted_password: &[u8; 32]) -> Self {
        Self { client_key: client_key(salted_password), server_key: server_key(salted_password) }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.client_key.zeroize();
        self.server_key.zeroize();
    }
}

/// `Hi(password, salt, iterations)`: PBKDF2-HMAC-SHA-256 with one block of output. Slow by design.
#[must_use]
pub fn salted_password(password: &[u8], salt: &[u8], iterations: u32) -> [u8; 32] {
    let keyed = keyed(password);
    let mut round = finish(&keyed, &[salt, &1_u32.to_be_bytes()]);
    let mut result = round;
    for _ in 1..iterations {
        round = finish(&keyed, &[&round]);
        for (sum, byte) in result.iter_mut().zip(round) {
            *sum ^= byte;
        }
    }
    round.zeroize();
    result
}

/// A password as SCRAM hashes it: SASLprep (RFC 4013) where it applies, else its raw bytes, as PostgreSQL does
/// (`saslprep.c`: bytes that are not UTF-8, prohibited characters and an empty result are not errors).
#[must_use]
pub fn prepare_password(password: &[u8]) -> Zeroizing<Vec<u8>> {
    if password.is_ascii() {
        return Zeroizing::new(password.to_vec());
    }
    let prepared = std::str::from_utf8(password).ok().and_then(|text| stringprep::saslprep(text).ok());
    match prepared {
        Some(text) if !text.is_empty() => Zeroizing::new(text.into_owned().into_bytes()),
        _ => Zeroizing::new(password.to_vec()),
    }
}

/// `HMAC(SaltedPassword, "Client Key")`.
#[must_use]
pub fn client_key(salted_password: &[u8; 32]) -> [u8; 32] {
    hmac(salted_password, &[b"Client Key"])
}

/// `HMAC(SaltedPassword, "Server Key")`.
#[must_use]
pub fn server_key(salted_password: &[u8; 32]) -> [u8; 32] {
    hmac(salted_password, &[b"Server Key"])
}

/// `ClientKey XOR HMAC(H(ClientKey), AuthMessage)`.
#[must_use]
pub fn client_proof(client_key: &[u8; 32], auth_message: &[u8]) -> [u8; 32] {
    let signature = hmac(&hash(&[client_key]), &[auth_message]);
    exclusive_or(client_key, &signature)
}

/// `HMAC(ServerKey, AuthMessage)`.
#[must_use]
pub fn server_signature(server_key: &[u8; 32], auth_message: &[u8]) -> [u8; 32] {
    hmac(server_key, &[auth_message])
}

/// Recovers ClientKey from a proof, and says in constant time whether it is the one behind `stored_key`.
#[must_use]
pub fn check_proof(
    stored_key: &[u8; 32],
    auth_message: &[u8],
    proof: &[u8; 32],
) -> (Choice, Zeroizing<[u8; 32]>) {
    let signature = hmac(stored_key, &[auth_message]);
    let client_key = Zeroizing::new(exclusive_or(proof, &signature));
    (hash(&[&*client_key]).ct_eq(stored_key), client_key)
}

/// A nonce from these bytes of entropy: printable, without a comma.
pub(crate) fn nonce(entropy: [u8; NONCE_LENGTH]) -> String {
    STANDARD.encode(entropy)
}

/// Rounds in decimal, from 1 up; nothing but digits.
pub(crate) fn parse_iterations(text: &str) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|&iterations| iterations > 0)
}

/// 32 bytes in base64.
pub(crate) fn decode_key(text: &str) -> Option<[u8; 32]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

/// SHA-256 over the parts in a row.
pub(crate) fn hash(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().into()
}

/// HMAC-SHA-256 over the parts in a row.
pub(crate) fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    finish(&keyed(key), parts)
}

/// HMAC with its key taken in. Padding the key to a block here (RFC 2104 section 2) leaves no error to handle.
fn keyed(key: &[u8]) -> Hmac<Sha256> {
    let mut block = Zeroizing::new([0_u8; 64]);
    if key.len() > block.len() {
        block[..32].copy_from_slice(&hash(&[key]));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    Hmac::new((&*block).into())
}

fn finish(keyed: &Hmac<Sha256>, parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = keyed.clone();
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

fn exclusive_or(left: &[u8; 32], right: &[u8; 32]) -> [u8; 32] {
    std::array::from_fn(|at| left[at] ^ right[at])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    // RFC 7677 section 3: user "user", password "pencil".
    const AUTH_MESSAGE: &[u8] = b"n=user,r=rOprNGfwEbeRWgbNEkqO,\
        r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,\
        c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const PROOF: &str = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    const SIGNATURE: &str = "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    fn rfc_keys() -> Keys {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        Keys::from_salted_password(&salted_password(b"pencil", &salt, 4096))
    }

    #[test]
    fn rfc_7677_proof_and_signature() {
        let keys = rfc_keys();
        assert_eq!(STANDARD.encode(client_proof(&keys.client_key, AUTH_MESSAGE)), PROOF);
        assert_eq!(STANDARD.encode(server_signature(&keys.server_key, AUTH_MESSAGE)), SIGNATURE);
    }

    #[test]
    fn a_right_proof_gives_the_client_key_back() {
        let keys = rfc_keys();
        let stored_key = hash(&[&keys.client_key]);
        let proof = decode_key(PROOF).unwrap();
        let (fits, recovered) = check_proof(&stored_key, AUTH_MESSAGE, &proof);
        assert!(bool::from(fits));
        assert_eq!(*recovered, keys.client_key);
        let (fits, _) = check_proof(&stored_key, &AUTH_MESSAGE[1..], &proof);
        assert!(!bool::from(fits));
    }

    #[test]
    fn rfc_4231_hmac_with_short_and_long_keys() {
        let short = hmac(b"Jefe", &[b"what do ya want ", b"for nothing?"]);
        assert_eq!(short[..4], [0x5b, 0xdc, 0xc1, 0x46]);
        let long = hmac(&[0xaa; 131], &[b"Test Using Larger Than Block-Size Key - Hash Key First"]);
        assert_eq!(long[..4], [0x60, 0xe4, 0x31, 0x59]);
    }

    #[test]
    fn saslprep_falls_back_to_raw_bytes() {
        assert_eq!(*prepare_password("I\u{ad}X".as_bytes()), b"IX"); // RFC 4013 section 3
        assert_eq!(*prepare_password("\u{2168}".as_bytes()), b"IX");
        assert_eq!(*prepare_password("\u{ad}".as_bytes()), "\u{ad}".as_bytes());
        assert_eq!(*prepare_password("\u{627}1".as_bytes()), "\u{627}1".as_bytes());
        assert_eq!(*prepare_password(b"\x07"), b"\x07");
        assert_eq!(*prepare_password(b"\xff\xfe"), b"\xff\xfe");
    }

    #[test]
    fn iterations_are_digits_from_one_up() {
        assert_eq!(parse_iterations("4096"), Some(4096));
        for text in ["", "0", "+1", "-1", " 1", "4294967296", "1e3"] {
            assert_eq!(parse_iterations(text), None, "{text}");
        }
    }
}
