//! libpq's password file: lines of `host:port:database:user:password` (PostgreSQL's manual, 34.16). Reads one that
//! libpq itself would read, and only the line that fits.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::Secret;

/// The permissions that a password file must not have, as in libpq: none for group and others.
const OTHERS: u32 = 0o077;

/// The password for this login in the file, if the file is there, closed to others, and has it.
pub(super) fn find(file: &Path, host: &str, port: u16, database: &str, user: &str) -> Option<Secret> {
    let metadata = fs::metadata(file).ok()?;
    if !metadata.is_file() || metadata.mode() & OTHERS != 0 {
        return None;
    }
    let text = fs::read_to_string(file).ok()?;
    // A connection by a socket is looked up as localhost.
    let host = if host.starts_with('/') { "localhost" } else { host };
    let wanted = [host, &port.to_string(), database, user];
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = fields(line);
        let (names, password) = fields.split_at_checked(wanted.len())?;
        let fits = names.iter().zip(wanted).all(|(name, wanted)| name == "*" || name == wanted);
        fits.then(|| password.first().map(Secret::new))?
    })
}

/// Divided at colons; a backslash takes the next letter as it is.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ':' => fields.push(String::new()),
            letter => {
                let letter = if letter == '\\' { letters.next().unwrap_or(letter) } else { letter };
                if let Some(last) = fields.last_mut() {
                    last.push(letter);
                }
            }
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_first_line_that_fits_counts_in_a_file_that_is_closed() {
        let path = std::env::temp_dir().join(format!("weir-passfile-{}", std::process::id()));
        fs::write(&path, "# a:1:*:*:no\nshort:1\nh:1:d:u:one\\:\\\\x\nlocalhost:*:*:u:two\n*:*:*:*:three\n")
            .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let found =
            |host, port, user| find(&path, host, port, "d", user).map(|secret| secret.reveal().to_owned());
        assert_eq!(found("h", 1, "u").as_deref(), Some("one:\\x"));
        assert_eq!(found("/run/postgresql", 5, "u").as_deref(), Some("two"));
        assert_eq!(found("h", 2, "u").as_deref(), Some("three"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(found("h", 1, "u"), None);
        fs::remove_file(&path).unwrap();
        assert_eq!(found("h", 1, "u"), None);
    }
}
