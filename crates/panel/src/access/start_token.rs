//! The token of the start: valid as long as no `http_auth_file` was ever in force in this process.
//!
//! Owns where an operator finds it: on the terminal, or in a file of this user alone that the log names. Never in the log itself.

use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use securefs::Directory;
use telemetry::{Level, Record};

use crate::access::held;
use crate::access::token::PanelToken;
use crate::context::LogWriter;

/// Readable by its owner only.
const MODE: u32 = 0o600;

/// Where the token may be shown.
#[derive(Clone, Debug)]
pub enum TokenOutput {
    /// On standard error, at which an operator sits.
    Terminal,
    /// In a file in the first of these directories that can be written to, else in a new one for temporary files.
    File(Vec<PathBuf>),
}

/// The token, from the time when it is first needed.
pub(crate) struct StartToken {
    place: TokenOutput,
    state: Mutex<State>,
}

enum State {
    NotMade,
    Valid {
        token: PanelToken,
        _file: Option<TokenFile>,
    },
    /// For good: a file that is emptied or no longer named must not open the panel again.
    Revoked,
}

impl StartToken {
    pub(crate) fn new(place: TokenOutput) -> StartToken {
        StartToken { place, state: Mutex::new(State::NotMade) }
    }

    /// Makes the token and shows it, unless it was made or revoked before.
    pub(crate) fn make(&self, log: &LogWriter) {
        let mut state = held(&self.state);
        if !matches!(*state, State::NotMade) {
            return;
        }
        let token = PanelToken::random();
        let file = match &self.place {
            TokenOutput::Terminal => {
                let _ = writeln!(io::stderr(), "panel token: {}", token.reveal());
                None
            }
            TokenOutput::File(directories) => match TokenFile::create(directories, token.reveal()) {
                Ok(file) => {
                    let text = format!("panel: start token in \"{}\"", file.path.display());
                    log(Record::new(Level::Log, text));
                    Some(file)
                }
                Err(why) => {
                    let text = format!(
                        "panel: the start token cannot be written to a file ({why}): logins need http_auth_file"
                    );
                    log(Record::new(Level::Error, text));
                    None
                }
            },
        };
        *state = State::Valid { token, _file: file };
    }

    /// From now on it opens nothing; its file is removed.
    pub(crate) fn revoke(&self) {
        *held(&self.state) = State::Revoked;
    }

    /// The token has been valid and is not any more, or never will be.
    pub(crate) fn is_revoked(&self) -> bool {
        matches!(*held(&self.state), State::Revoked)
    }

    /// It opens the panel.
    pub(crate) fn is_valid(&self) -> bool {
        matches!(*held(&self.state), State::Valid { .. })
    }

    /// This is the token, and it is valid. In constant time.
    pub(crate) fn is(&self, text: &str) -> bool {
        matches!(&*held(&self.state), State::Valid { token, .. } if token.is(text))
    }
}

/// The file; removed when it is dropped, unless it is another by now.
struct TokenFile {
    path: PathBuf,
    inode: u64,
    /// Made for this file alone.
    scratch_dir: Option<PathBuf>,
}

impl TokenFile {
    fn create(directories: &[PathBuf], token: &str) -> io::Result<TokenFile> {
        let text = format!("{token}\n");
        for directory in directories {
            let path = directory.join(format!("weir-panel-{}.token", std::process::id()));
            // What an earlier process of this number has left may have another mode.
            let written = securefs::replace_with_mode(&path, text.as_bytes(), MODE);
            if let Some(file) = written.ok().and_then(|()| TokenFile::at(path, None).ok()) {
                return Ok(file);
            }
        }
        let scratch = Directory::scratch(&std::env::temp_dir(), "weir-panel")?;
        scratch.write("token", text.as_bytes())?;
        TokenFile::at(scratch.path().join("token"), Some(scratch.path().to_owned()))
    }

    fn at(path: PathBuf, scratch_dir: Option<PathBuf>) -> io::Result<TokenFile> {
        let inode = inode(&path)?;
        Ok(TokenFile { path, inode, scratch_dir })
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        // Another process may have been given this number's name.
        if inode(&self.path).is_ok_and(|inode| inode == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
        if let Some(directory) = &self.scratch_dir {
            let _ = std::fs::remove_dir(directory);
        }
    }
}

fn inode(path: &Path) -> io::Result<u64> {
    Ok(std::fs::symlink_metadata(path)?.ino())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;
    use std::sync::Arc;

    /// A log, and what was written to it.
    fn log() -> (LogWriter, Arc<Mutex<String>>) {
        let lines: Arc<Mutex<String>> = Arc::default();
        let far = Arc::clone(&lines);
        (Arc::new(move |record: Record| held(&far).push_str(&record.text)), lines)
    }

    /// The path that the log names.
    fn named(lines: &Mutex<String>) -> PathBuf {
        held(lines).split('"').nth(1).unwrap().into()
    }

    #[test]
    fn it_is_in_a_file_of_this_user_alone_and_never_in_the_log() {
        let runtime = Directory::scratch(&std::env::temp_dir(), "weir-runtime").unwrap();
        let name = runtime.path().join(format!("weir-panel-{}.token", std::process::id()));
        fs::write(&name, "of an earlier process").unwrap();
        for (directories, expected) in
            [(vec!["/nonexistent".into(), runtime.path().to_owned()], Some(&name)), (Vec::new(), None)]
        {
            let ((log, lines), start) = (log(), StartToken::new(TokenOutput::File(directories)));
            assert!(!start.is_valid() && !start.is_revoked());
            start.make(&log);
            let path = named(&lines);
            assert!(expected.is_none_or(|expected| *expected == path), "{}", path.display());
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
            let token = fs::read_to_string(&path).unwrap();
            assert!(start.is(token.trim()) && !start.is("") && !held(&lines).contains(token.trim()));
            start.revoke();
            assert!(!start.is(token.trim()) && start.is_revoked() && !path.exists());
            assert!(expected.is_some() || !path.parent().unwrap().exists());
            start.make(&log);
            assert!(!start.is_valid() && !path.exists(), "it is revoked for good");
        }
        fs::remove_dir_all(runtime.path()).unwrap();
    }

    #[test]
    fn a_file_that_has_taken_its_place_stays() {
        let runtime = Directory::scratch(&std::env::temp_dir(), "weir-runtime").unwrap();
        let place = || TokenOutput::File(vec![runtime.path().to_owned()]);
        let ((log, lines), old, new) = (log(), StartToken::new(place()), StartToken::new(place()));
        old.make(&log);
        let first = fs::read_to_string(named(&lines)).unwrap();
        new.make(&log);
        drop(old);
        let second = fs::read_to_string(named(&lines)).unwrap();
        assert!(first != second && new.is(second.trim()));
        fs::remove_dir_all(runtime.path()).unwrap();
    }
}
