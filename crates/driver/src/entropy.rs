//! The kernel's random bytes: where nonces, keys and cancel secrets come from.
//! Never goes on without them.

use std::process;

use auth::Entropy;

/// Bytes taken from the kernel at once by a [`BufferedEntropy`].
const DRAUGHT: usize = 256;

/// The kernel's random bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelEntropy;

/// The same, asked for many at a time: what one thread's logins need. None is given out twice, nor kept once it is.
pub(crate) struct BufferedEntropy {
    bytes: [u8; DRAUGHT],
    given: usize,
}

impl BufferedEntropy {
    /// None drawn yet.
    pub(crate) fn new() -> BufferedEntropy {
        BufferedEntropy { bytes: [0; DRAUGHT], given: DRAUGHT }
    }
}

impl Entropy for BufferedEntropy {
    fn fill(&mut self, bytes: &mut [u8]) {
        if bytes.len() > DRAUGHT - self.given {
            KernelEntropy.fill(&mut self.bytes);
            self.given = 0;
        }
        match self.bytes.get_mut(self.given..self.given + bytes.len()) {
            Some(drawn) => {
                bytes.copy_from_slice(drawn);
                drawn.fill(0);
                self.given += bytes.len();
            }
            None => KernelEntropy.fill(bytes),
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_is_given_twice_nor_kept() {
        let mut entropy_buffer = BufferedEntropy::new();
        let mut all = Vec::new();
        for _ in 0..100 {
            let mut key = [0; 16];
            entropy_buffer.fill(&mut key);
            assert!(!all.contains(&key));
            all.push(key);
        }
        assert!(entropy_buffer.bytes[..entropy_buffer.given].iter().all(|byte| *byte == 0));
        let mut long = [0; 4 * DRAUGHT];
        entropy_buffer.fill(&mut long);
        assert!(long.chunks(16).all(|part| part != [0; 16]));
    }
}
