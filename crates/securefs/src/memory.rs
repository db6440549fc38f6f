//! Files in the memory of this process: for what is read by its path and must not be, or cannot be, in a directory.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;

use rustix::fs::{MemfdFlags, memfd_create};

/// A file with this text, and a path by which this process can read it as long as the file is held. `name` is for listings of descriptors only.
///
/// # Errors
/// The system's.
pub fn in_memory(name: &str, text: &[u8]) -> io::Result<(File, String)> {
    let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
    file.write_all(text)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok((file, path))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn it_is_read_by_its_path_as_often_as_one_likes() {
        let (file, path) = in_memory("settings", b"a = 1").unwrap();
        for _ in 0..2 {
            assert_eq!(std::fs::read(&path).unwrap(), b"a = 1");
        }
        drop(file);
        assert!(std::fs::read(&path).is_err());
    }
}
