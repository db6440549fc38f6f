//! The kernel's random bytes: where nonces, keys and cancel secrets come from.
//! Never goes on without them.

use std::process;

use auth::Entropy;

/// The kernel's random bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelEntropy;

impl KernelEntropy {
    /// 32 bytes for a key.
    pub(crate) fn key() -> [u8; 32] {
        let mut key = [0; 32];
        KernelEntropy.fill(&mut key);
        key
    }
}

impl Entropy for KernelEntropy {
    fn fill(&mut self, bytes: &mut [u8]) {
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()) {
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                // A pooler whose nonces can be guessed must not run.
                Err(_) => process::abort(),
            }
        }
    }
}
