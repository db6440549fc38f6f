//! The pools file on disk: read, validated as at a start, and replaced atomically.
//! A file that could not be loaded is not written.

use std::fs;
use std::io;

use control::WriteFault;
use settings::hba::Network;
use settings::{Config, Files};

use crate::files::{Disk, Source};

/// Passwords of forced users may stand in it.
const FILE_MODE: u32 = 0o600;

/// The file's bytes; none if there is no such file.
///
/// # Errors
/// The system's error.
pub(crate) fn read(path: &str) -> Result<Vec<u8>, String> {
    match fs::read(path) {
        Ok(bytes) => Ok(bytes),
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(fault) => Err(error_text(&fault)),
    }
}

/// Writes the file, unless the configuration as a whole could then not be loaded.
///
/// # Errors
/// [`WriteFault`]; the file is as it was.
pub(crate) fn write(path: &str, bytes: &[u8], source: &Source, config: &Config) -> Result<(), WriteFault> {
    let files = Overlay { path, bytes };
    source.reload_with(&files, config).map_err(WriteFault::Config)?;
    securefs::replace(path, bytes, FILE_MODE).map_err(|fault| WriteFault::Io(error_text(&fault)))
}

/// The disk, but for one file.
struct Overlay<'a> {
    path: &'a str,
    bytes: &'a [u8],
}

impl Files for Overlay<'_> {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        if path == self.path { Ok(self.bytes.to_vec()) } else { Disk.read(path) }
    }

    fn networks(&self) -> Vec<Network> {
        Disk.networks()
    }
}

/// Without Rust's "(os error 2)".
fn error_text(fault: &io::Error) -> String {
    let text = fault.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::path::PathBuf;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("weir-pools-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Scratch(path)
        }

        fn file(&self, name: &str, text: &str) -> String {
            let path = self.0.join(name);
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_could_not_be_loaded_is_not_written() {
        let scratch = Scratch::new("judged");
        let pools = scratch.file("p.ini", "[databases]\n");
        let main =
            scratch.file("w.ini", &format!("[databases]\napp = host=h\n[pgbouncer]\npools_file = {pools}\n"));
        let source = Source { file: main.clone(), flags: Vec::new() };
        let config = source.load().unwrap();
        let fault = write(&pools, b"[databases]\napp = host=x\n", &source, &config).unwrap_err();
        let WriteFault::Config(findings) = fault else { panic!("{fault:?}") };
        assert!(findings[0].to_string().ends_with(&format!("database \"app\" is defined in {main}:2 too")));
        assert_eq!(read(&pools).unwrap(), b"[databases]\n");
        write(&pools, b"[databases]\nb = host=x\n", &source, &config).unwrap();
        assert_eq!(read(&pools).unwrap(), b"[databases]\nb = host=x\n");
        assert_eq!(read("/nonexistent/p.ini").unwrap(), b"");
        let fault = write(&format!("{pools}/below.ini"), b"", &source, &config).unwrap_err();
        assert!(matches!(&fault, WriteFault::Io(why) if why == "Not a directory"), "{fault:?}");
    }
}
