//! A password: it can be handed to a child's environment or a file that only its owner reads, and is never shown.

use std::fmt;

use crate::error::{LabError, Result};

/// A password.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides `text`.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// A random one, for as long as the lab's own processes live: 128 bits of the kernel's entropy.
    ///
    /// # Errors
    /// Where the kernel has none.
    pub fn once() -> Result<Self> {
        let mut bytes = [0; 16];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| LabError::system("asking for entropy")(errno.into()))?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// The password itself: for an environment or a closed file, never for a log or a list of processes.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
