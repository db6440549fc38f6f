//! The file of pools on the disk: read, judged as a start would judge it, and exchanged for a new one in one step.
//! Owns that a crash or a full disk leaves either the old file or the new one. Never decides what stands in it.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use control::WriteFault;
use settings::hba::Network;
use settings::{Config, Files};

use crate::files::{Disk, Source};

/// Passwords of forced users may stand in it.
const MODE: u32 = 0o600;

/// The file's bytes; none if there is no such file.
///
/// # Errors
/// What the system said, for people.
pub(crate) fn read(path: &str) -> Result<Vec<u8>, String> {
    match fs::read(path) {
        Ok(bytes) => Ok(bytes),
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(fault) => Err(plain(&fault)),
    }
}

/// Writes the file, unless the configuration as a whole could then not be loaded.
///
/// # Errors
/// [`WriteFault`]; the file is as it was.
pub(crate) fn write(path: &str, bytes: &[u8], source: &Source, config: &Config) -> Result<(), WriteFault> {
    let files = With { path, bytes };
    source.reload_with(&files, config).map_err(WriteFault::Config)?;
    exchange(Path::new(path), bytes).map_err(|fault| WriteFault::Io(plain(&fault)))
}

/// The disk, but for one file.
struct With<'a> {
    path: &'a str,
    bytes: &'a [u8],
}

impl Files for With<'_> {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        if path == self.path { Ok(self.bytes.to_vec()) } else { Disk.read(path) }
    }

    fn networks(&self) -> Vec<Network> {
        Disk.networks()
    }
}

/// Puts a new file in the place of an old one: written beside it, on the disk before it has its name. Of a link, what it
/// leads to is exchanged.
fn exchange(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mode = fs::metadata(&path).map_or(MODE, |found| found.permissions().mode() & 0o7777);
    let beside = beside(&path);
    let written = fill(&beside, bytes, mode).and_then(|()| fs::rename(&beside, &path));
    if let Err(fault) = written {
        // It is nobody's file; where it was never made there is nothing to remove.
        let _ = fs::remove_file(&beside);
        return Err(fault);
    }
    // Without this the new name could be lost with the power; the file is exchanged whether or not it can be done.
    let _ = File::open(directory(&path)).and_then(|directory| directory.sync_all());
    Ok(())
}

fn fill(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(MODE);
    let mut file = match options.open(path) {
        // What an earlier process of the same number has left.
        Err(fault) if fault.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            options.open(path)?
        }
        opened => opened?,
    };
    file.write_all(bytes)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()
}

/// A name in the same directory, so that it can be renamed.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    directory(path).join(format!(".{name}.{}.new", std::process::id()))
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Without Rust's "(os error 2)".
fn plain(fault: &io::Error) -> String {
    let text = fault.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

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

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_new_file_is_nobody_elses_and_an_old_one_keeps_its_mode() {
        let scratch = Scratch::new("mode");
        let path = scratch.0.join("p.ini");
        exchange(&path, b"one").unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"one".to_vec(), 0o600));
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        exchange(&path, b"two").unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"two".to_vec(), 0o640));
        assert_eq!(scratch.names(), ["p.ini"]);
    }

    #[test]
    fn a_link_stays_one() {
        let scratch = Scratch::new("link");
        let target = scratch.file("target.ini", "old");
        let link = scratch.0.join("link.ini");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        exchange(&link, b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&target).unwrap(), b"new");
    }

    #[test]
    fn what_cannot_be_written_leaves_nothing_behind() {
        let scratch = Scratch::new("fault");
        let missing = scratch.0.join("gone/p.ini");
        let fault = exchange(&missing, b"x").unwrap_err();
        assert_eq!(plain(&fault), "No such file or directory");
        // A directory stands where the file should be: the rename fails, after all has been written.
        fs::create_dir(scratch.0.join("dir.ini")).unwrap();
        exchange(&scratch.0.join("dir.ini"), b"x").unwrap_err();
        assert_eq!(scratch.names(), ["dir.ini"]);
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
    }
}
