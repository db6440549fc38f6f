//! What a process that was taken over has counted since then, while its last clients are with it: a small file beside the store, which the other process adds to its own count.
//!
//! Owns the form of that file. It has what was counted since the takeover in all, so that it can be read again and again; how much of it has been added is in the store, written with the sum.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use quota::StoredUsage;

use crate::names::with_ending;

/// The first word of such a file.
const HEAD: &str = "weir-usage-1";

/// What stands before the token in its name.
const ENDING: &str = "late-";

/// A file is not longer than this; one that is was not written by Weir.
const LONGEST_FILE: u64 = 256 << 20;

/// What this process has counted since it was taken over.
pub(crate) struct Late {
    token: String,
    path: PathBuf,
    counted: BTreeMap<(String, u64), u64>,
}

impl Late {
    /// Nothing yet, of a process with this token.
    pub(crate) fn new(store: &Path, token: &str) -> Late {
        Late {
            token: token.to_owned(),
            path: with_ending(store, &format!("{ENDING}{token}")),
            counted: BTreeMap::new(),
        }
    }

    /// Adds what was counted, and writes all of it.
    ///
    /// # Errors
    /// The system's; what was counted is written the next time.
    pub(crate) fn write(&mut self, counted: &[StoredUsage]) -> Result<(), String> {
        for usage in counted.iter().filter(|usage| usage.added > 0) {
            *self.counted.entry((usage.key.clone(), usage.period_s)).or_default() += usage.added;
        }
        let mut text = format!("{HEAD} {}\n", self.token);
        for ((key, period_s), added) in &self.counted {
            text.push_str(&format!("{period_s} {added} {key}\n"));
        }
        securefs::replace(&self.path, text.as_bytes(), 0o600).map_err(|why| why.to_string())
    }
}

/// How much of such files has been added to the store, by token.
#[derive(Clone, Default)]
pub(crate) struct Absorbed {
    counted: BTreeMap<String, BTreeMap<(String, u64), u64>>,
    changed: BTreeSet<(String, String, u64)>,
}

impl Absorbed {
    /// So much was added already.
    pub(crate) fn note(&mut self, token: &str, key: &str, period_s: u64, added: u64) {
        self.counted.entry(token.to_owned()).or_default().insert((key.to_owned(), period_s), added);
    }

    /// A file of this token has been added.
    pub(crate) fn has(&self, token: &str) -> bool {
        self.counted.contains_key(token)
    }

    /// What has changed since it was stored.
    pub(crate) fn changed(&self) -> impl Iterator<Item = (&str, &str, u64, u64)> {
        self.changed.iter().filter_map(|(token, key, period_s)| {
            let added = self.counted.get(token)?.get(&(key.clone(), *period_s))?;
            Some((token.as_str(), key.as_str(), *period_s, *added))
        })
    }

    /// All of it is stored.
    pub(crate) fn stored(&mut self) {
        self.changed.clear();
    }

    /// What the files beside a store have that was not added yet; it counts as added now. Files that nobody can write any more are to be removed once it is stored.
    pub(crate) fn take(&mut self, store: &Path) -> Vec<StoredUsage> {
        let mut found = Vec::new();
        for (path, token) in files(store) {
            let Some(text) = read(&path) else { continue };
            let mut lines = text.lines();
            if lines.next() != Some(&format!("{HEAD} {token}")) {
                continue;
            }
            let known = self.counted.entry(token.clone()).or_default();
            for (key, period_s, added) in lines.filter_map(fields) {
                let before = known.insert((key.to_owned(), period_s), added).unwrap_or(0);
                if let Some(more @ 1..) = added.checked_sub(before) {
                    self.changed.insert((token.clone(), key.to_owned(), period_s));
                    found.push(StoredUsage {
                        key: key.to_owned(),
                        period_s,
                        used: 0,
                        added: more,
                        over_since_s: 0,
                    });
                }
            }
        }
        found
    }

    /// Removes the files of processes that do not run any more. What was added of them must be stored.
    pub(crate) fn remove_files(&mut self, store: &Path, runs: &dyn Fn(&str) -> bool) {
        for (path, token) in files(store) {
            if self.has(&token) && !runs(&token) && fs::remove_file(path).is_ok() {
                self.counted.remove(&token);
            }
        }
    }
}

fn fields(line: &str) -> Option<(&str, u64, u64)> {
    let (period_s, rest) = line.split_once(' ')?;
    let (added, key) = rest.split_once(' ')?;
    Some((key, period_s.parse().ok()?, added.parse().ok()?))
}

fn read(path: &Path) -> Option<String> {
    let is_plain =
        fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && found.len() <= LONGEST_FILE);
    if is_plain { fs::read_to_string(path).ok() } else { None }
}

/// The files beside a store, and their tokens.
fn files(store: &Path) -> Vec<(PathBuf, String)> {
    let directory = store.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(name) = store.file_name().and_then(|name| name.to_str()) else { return Vec::new() };
    let begin = format!("{name}.{ENDING}");
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter_map(|entry| {
            let token = entry.file_name().to_str()?.strip_prefix(&begin)?.to_owned();
            Some((entry.path(), token))
        })
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn counted(key: &str, added: u64) -> StoredUsage {
        StoredUsage { key: key.to_owned(), period_s: 7, used: 0, added, over_since_s: 0 }
    }

    #[test]
    fn what_was_counted_late_is_added_once() {
        let place = securefs::Directory::scratch(&std::env::temp_dir(), "weir-late").unwrap();
        let store = place.path().join("q.usage");
        let (mut late, mut absorbed) = (Late::new(&store, "1-2"), Absorbed::default());
        late.write(&[counted("user a queries/day", 5)]).unwrap();
        assert_eq!(absorbed.take(&store), [counted("user a queries/day", 5)]);
        assert!(absorbed.take(&store).is_empty());
        late.write(&[counted("user a queries/day", 2), counted("user b queries/day", 1)]).unwrap();
        let mut again = absorbed.clone();
        assert_eq!(
            absorbed.take(&store),
            [counted("user a queries/day", 2), counted("user b queries/day", 1)]
        );
        assert_eq!(again.take(&store).len(), 2, "what was not stored is added again");
        absorbed.remove_files(&store, &|_| true);
        assert!(store.with_extension("usage.late-1-2").exists());
        absorbed.remove_files(&store, &|_| false);
        assert!(!store.with_extension("usage.late-1-2").exists() && !absorbed.has("1-2"));
        fs::write(store.with_extension("usage.late-x"), "something else\n7 5 user a queries/day\n").unwrap();
        assert!(absorbed.take(&store).is_empty());
        fs::remove_dir_all(place.path()).unwrap();
    }
}
