//! Tokens: 256 random bits. Kept as their SHA-256 wherever they are kept at all.
//! Never written to a file by this.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// Before the digits, so that one is recognised where it should not be (in a repository, say).
const PREFIX: &str = "weir_";

/// A token that this process made.
pub(crate) struct PanelToken {
    text: String,
    hash: [u8; 32],
}

impl PanelToken {
    /// A new one.
    pub(crate) fn random() -> PanelToken {
        let text = format!("{PREFIX}{}", hex(&entropy::<32>()));
        PanelToken { hash: hash(&text), text }
    }

    /// The text that is to be shown, once.
    pub(crate) fn reveal(&self) -> &str {
        &self.text
    }

    /// In constant time.
    pub(crate) fn is(&self, text: &str) -> bool {
        self.hash.ct_eq(&hash(text)).into()
    }
}

/// Random bytes of the system.
///
/// # Panics
/// Where the system has no entropy; nothing could be kept secret then.
pub(crate) fn entropy<const LENGTH: usize>() -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    #[expect(clippy::expect_used)]
    getrandom::fill(&mut bytes).expect("the system gives entropy");
    bytes
}

/// SHA-256 of a token. It has 256 bits of entropy, so nothing slower is needed.
pub(crate) fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// Lower case.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_tokens_are_the_same_and_each_is_itself() {
        let (one, other) = (PanelToken::random(), PanelToken::random());
        assert!(one.is(one.reveal()) && !one.is(other.reveal()) && !one.is(""));
        assert_eq!(one.reveal().len(), PREFIX.len() + 64);
    }
}
