//! The file of quotas on disk: a line of it changed, the whole checked, and replaced atomically.
//! A file that is not valid is not written.

use std::fs;
use std::io;

use quota::{QuotasText, Rules};

/// It has no secrets, and users may be allowed to look at it.
const FILE_MODE: u32 = 0o644;

/// Changes a line, as SET QUOTA says it; the rules of the new file are returned.
///
/// # Errors
/// What is wrong with the line, with the file as it is, or with writing it; the file is as it was.
pub(crate) fn change(path: &str, line: &str) -> Result<Rules, String> {
    let mut text = read(path)?;
    let rules = text.change(line)?;
    write(path, text.bytes())?;
    Ok(rules)
}

/// The file, valid; empty if there is none.
///
/// # Errors
/// The system's error, or the lines that are wrong.
pub(crate) fn read(path: &str) -> Result<QuotasText, String> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(fault) => return Err(format!("cannot read {path}: {fault}")),
    };
    checked(path, &bytes)
}

/// A text that is to be the file.
///
/// # Errors
/// The lines that are wrong.
pub(crate) fn checked(path: &str, bytes: &[u8]) -> Result<QuotasText, String> {
    let told = |errors: Vec<quota::QuotaError>| {
        let lines: Vec<_> =
            errors.iter().map(|error| format!("{path}:{}: {}", error.line, error.message)).collect();
        lines.join("\n")
    };
    QuotasText::read(bytes).map(|(text, _)| text).map_err(told)
}

/// Puts the file in place.
///
/// # Errors
/// The system's; the file is as it was.
pub(crate) fn write(path: &str, bytes: &[u8]) -> Result<(), String> {
    securefs::replace(path, bytes, FILE_MODE).map_err(|fault| format!("cannot write {path}: {fault}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_line_is_changed_in_the_file_or_the_file_is_as_it_was() {
        let place = securefs::Directory::scratch(&std::env::temp_dir(), "weir-quotas").unwrap();
        let path = place.path().join("quotas").to_str().unwrap().to_owned();
        assert!(!change(&path, "user a connections hard=5").unwrap().is_empty());
        let text = "user a connections soft=0 hard=5\n";
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert!(change(&path, "user a connections soft=9 hard=5").unwrap_err().contains("above"));
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        fs::write(&path, "user a connections\n").unwrap();
        let why = change(&path, "user b connections hard=5").unwrap_err();
        assert!(why.contains(":1: a limit is expected"), "{why}");
        fs::remove_dir_all(place.path()).unwrap();
    }
}
