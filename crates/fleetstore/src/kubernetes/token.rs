//! The token by which the API server knows this process.
//!
//! Owns when its file is read again: a kubelet writes a new one before the old one is not valid any more.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use tokio::time::Instant;

use super::failure::Failure;

/// A token is used for this long before its file is looked at again.
const FRESH: Duration = Duration::from_secs(10);

/// A longer file is no token.
const MOST_BYTES: usize = 64 * 1024;

pub(crate) struct Token {
    file: PathBuf,
    read: Mutex<Option<(Instant, HeaderValue)>>,
}

impl Token {
    pub(crate) fn new(file: PathBuf) -> Token {
        Token { file, read: Mutex::new(None) }
    }

    /// `Bearer TOKEN`.
    ///
    /// # Errors
    /// The file cannot be read, or is no token.
    pub(crate) fn header(&self) -> Result<HeaderValue, Failure> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, header)) = read.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return Ok(header.clone());
        }
        let header = self.read_file()?;
        *read = Some((Instant::now(), header.clone()));
        Ok(header)
    }

    /// The API server has refused this one: whether the file has another by now, which the next request is sent with.
    pub(crate) fn is_replaced(&self, refused: &HeaderValue) -> bool {
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.header().is_ok_and(|now| now != *refused)
    }

    fn read_file(&self) -> Result<HeaderValue, Failure> {
        let file = self.file.display();
        // A few hundred bytes in memory (tmpfs), in a thread that no query waits for.
        let bytes = std::fs::read(&self.file)
            .map_err(|why| Failure::Token(format!("cannot read the token \"{file}\": {why}")))?;
        let token = bytes.trim_ascii();
        let bearer = [b"Bearer ", token].concat();
        let header =
            (!token.is_empty() && token.len() <= MOST_BYTES && token.iter().all(u8::is_ascii_graphic))
                .then(|| HeaderValue::from_bytes(&bearer).ok())
                .flatten();
        let mut header = header.ok_or_else(|| Failure::Token(format!("\"{file}\" has no token")))?;
        header.set_sensitive(true);
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn file(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("weir-token-{name}-{}", std::process::id()))
    }

    #[test]
    fn a_file_is_read_again_after_a_while_and_when_its_token_was_refused() {
        let path = file("again");
        std::fs::write(&path, "one\n").unwrap();
        let token = Token::new(path.clone());
        let one = token.header().unwrap();
        assert_eq!(one, "Bearer one");
        assert!(!token.is_replaced(&one), "it is still the one");
        std::fs::write(&path, "two").unwrap();
        assert_eq!(token.header().unwrap(), "Bearer one", "it is not read for each request");
        assert!(token.is_replaced(&one));
        assert_eq!(token.header().unwrap(), "Bearer two");
        std::fs::write(&path, "three").unwrap();
        token.read.lock().unwrap().as_mut().unwrap().0 = Instant::now().checked_sub(FRESH).unwrap();
        assert_eq!(token.header().unwrap(), "Bearer three");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_no_token_is_named() {
        let path = file("none");
        for contents in ["", " \n", "a b", "a\nb", "\u{e9}"] {
            std::fs::write(&path, contents).unwrap();
            let failure = Token::new(path.clone()).header().unwrap_err().to_string();
            assert!(failure.contains("has no token"), "{contents:?}: {failure}");
        }
        std::fs::remove_file(&path).unwrap();
        let failure = Token::new(path.clone()).header().unwrap_err().to_string();
        assert!(failure.starts_with("cannot read the token"), "{failure}");
    }
}
