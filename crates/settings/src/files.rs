//! Where the content of files comes from: [`Files`], which the caller implements. This crate opens no file.

use crate::network::Network;
use std::io;

/// Where files come from; the caller does the I/O, tests pass a map.
pub trait Files {
    /// The whole file at `path`, as written: relative to the working directory.
    ///
    /// # Errors
    /// The system's error.
    fn read(&self, path: &str) -> io::Result<Vec<u8>>;

    /// The addresses and masks of this machine's interfaces, for `samehost` and `samenet` in HBA files. Empty where the
    /// caller has none.
    fn networks(&self) -> Vec<Network> {
        Vec::new()
    }
}

/// The system's error text, without Rust's "(os error 2)".
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Files for tests: names and texts.
#[cfg(test)]
pub(crate) mod memory {
    use super::Files;
    use std::io;

    pub(crate) struct Memory<'a>(pub(crate) &'a [(&'a str, &'a str)]);

    impl Files for Memory<'_> {
        fn read(&self, path: &str) -> io::Result<Vec<u8>> {
            let found = self.0.iter().find(|(name, _)| *name == path);
            found.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| io::Error::from_raw_os_error(2))
        }
    }
}
