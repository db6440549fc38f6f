//! PostgreSQL's MD5 passwords (chapter "Password Authentication"): the stored form and the salted reply.
//! It owns the arithmetic only; comparing in constant time is its caller's duty.

use md5::{Digest, Md5};

/// 32 lower-case hexadecimal digits of `md5(password ‖ user)`: the stored form without its `md5` prefix.
pub(crate) fn stored(password: &[u8], user: &str) -> [u8; 32] {
    hexadecimal(&[password, user.as_bytes()])
}

/// The text of a client's reply: `md5` and the digits of `md5(stored ‖ salt)`.
pub(crate) fn reply(stored: &[u8; 32], salt: [u8; 4]) -> [u8; 35] {
    let mut text = *b"md5................................";
    text[3..].copy_from_slice(&hexadecimal(&[stored, &salt]));
    text
}

fn hexadecimal(parts: &[&[u8]]) -> [u8; 32] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut hash = Md5::new();
    for part in parts {
        hash.update(part);
    }
    let mut text = [0; 32];
    for (pair, byte) in text.chunks_exact_mut(2).zip(hash.finalize()) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_1321_vectors() {
        assert_eq!(&hexadecimal(&[]), b"d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(&hexadecimal(&[b"message", b" digest"]), b"f96b697d7cb7938d525a2f31aaf161d0");
    }

    #[test]
    fn a_reply_hashes_the_stored_digits_with_the_salt() {
        // md5("secretalice"), then md5(that ‖ 01020304), worked out with md5sum.
        let stored = stored(b"secret", "alice");
        assert_eq!(&stored, STORED);
        assert_eq!(&reply(&stored, [1, 2, 3, 4]), REPLY);
    }

    const STORED: &[u8; 32] = b"4a0a68b43b6cd5cf266fa02f196e2371";
    const REPLY: &[u8; 35] = b"md598a0412b9c31436fc53776e863350083";
}
