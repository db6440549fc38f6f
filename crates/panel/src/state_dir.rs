//! `state_dir`: where what the panel keeps over restarts is.
//! Owns which directory that is, and that it is this user's. Never knows what is kept there.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use securefs::Directory;
use telemetry::{Level, Record};

use crate::context::LogWriter;

/// The directory, made when it is first wanted.
pub(crate) struct StateDir {
    path: Option<PathBuf>,
    opened: OnceLock<Option<Arc<Directory>>>,
    log: LogWriter,
}

impl StateDir {
    /// The directory of this path; no path, none.
    pub(crate) fn new(path: Option<PathBuf>, log: LogWriter) -> StateDir {
        StateDir { path, opened: OnceLock::new(), log }
    }

    /// Its handle; None where there is none, which is logged once. Opens the directory at the first call.
    pub(crate) fn directory(&self) -> Option<Arc<Directory>> {
        self.opened.get_or_init(|| self.open()).clone()
    }

    fn open(&self) -> Option<Arc<Directory>> {
        let kept = "history, audit trail and lab runs end with this process";
        let Some(path) = &self.path else {
            let text = format!("panel: state_dir is not set: {kept}");
            (self.log)(Record::new(Level::Log, text));
            return None;
        };
        // The lab's process works in another directory.
        let made = std::path::absolute(path).and_then(|path| Directory::private(&path));
        match made {
            Ok(directory) => Some(Arc::new(directory)),
            Err(why) => {
                let text = format!("panel: cannot use state_dir \"{}\": {why}; {kept}", path.display());
                (self.log)(Record::new(Level::Warning, text));
                None
            }
        }
    }

    /// A file in it.
    pub(crate) fn file(&self, name: &str) -> Option<PathBuf> {
        self.directory().map(|directory| Path::new(directory.path()).join(name))
    }
}
