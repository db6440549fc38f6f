//! What was used, on disk: one file (redb), which one process has at a time.
//!
//! Owns the file: its lock, its tables, and that one that cannot be read is put aside instead of stopping anything.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use quota::StoredUsage;
use redb::{Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, TableDefinition};

use crate::late::Absorbed;
use crate::names::with_ending;

/// Subject and resource; when its period began, what was used in it, and since when the soft limit is exceeded.
const USAGE: TableDefinition<'_, &str, (u64, u64, u64)> = TableDefinition::new("usage_1");

/// What has been added of a process that was taken over: its token, subject and resource, and the period; how much.
const ABSORBED: TableDefinition<'_, (&str, &str, u64), u64> = TableDefinition::new("absorbed_1");

/// The library's own default is a gibibyte.
const CACHE_BYTES: usize = 2 << 20;

/// Only this user's.
const MODE: u32 = 0o600;

/// The file, while this process has it.
pub(crate) struct Store(Database);

/// What a file holds.
#[derive(Default)]
pub(crate) struct Stored {
    pub(crate) usage: Vec<StoredUsage>,
    pub(crate) absorbed: Absorbed,
}

/// What came of opening the file.
pub(crate) enum Opened {
    /// It is open.
    Yes(Store, Stored),
    /// It could not be read, for this reason; it has this name now, and a new one is open.
    Recreated(Store, String, PathBuf),
    /// Another process has it.
    Busy,
    /// There is none, for this reason.
    No(String),
}

enum OpenError {
    Busy,
    System(String),
    Unreadable(String),
}

impl Store {
    /// Opens the file, or makes it.
    pub(crate) fn open(path: &Path) -> Opened {
        let why = match opened(path) {
            Ok((store, stored)) => return Opened::Yes(store, stored),
            Err(OpenError::Busy) => return Opened::Busy,
            Err(OpenError::System(why)) => return Opened::No(why),
            Err(OpenError::Unreadable(why)) => why,
        };
        let aside = with_ending(path, "unreadable");
        if let Err(other) = fs::rename(path, &aside) {
            return Opened::No(format!("{why}; it cannot be put aside: {other}"));
        }
        match opened(path) {
            Ok((store, _)) => Opened::Recreated(store, why, aside),
            Err(OpenError::Busy) => Opened::Busy,
            Err(OpenError::System(other) | OpenError::Unreadable(other)) => {
                Opened::No(format!("{why}; {other}"))
            }
        }
    }

    /// Writes what has changed, at once or not at all.
    ///
    /// # Errors
    /// Why nothing was written.
    pub(crate) fn write(&self, usage: &[StoredUsage], absorbed: &Absorbed) -> Result<(), String> {
        caught(|| written(&self.0, usage, absorbed).map_err(|why| why.to_string()))?
    }

    /// Leaves the file to others.
    pub(crate) fn close(self) {
        let _ = caught(|| drop(self.0));
    }
}

/// A damaged file can be one that the library has a bug for: it must cost the file, not the process.
fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| "the library panicked; see the log".to_owned())
}

fn opened(path: &Path) -> Result<(Store, Stored), OpenError> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).mode(MODE).open(path);
    let file = file.map_err(|why| OpenError::System(why.to_string()))?;
    let length = file.metadata().map_or(0, |found| found.len());
    drop(file);
    let whole = caught(|| {
        let mut database =
            Database::builder().set_cache_size(CACHE_BYTES).create(path).map_err(open_error)?;
        if length > 0 {
            database.check_integrity().map_err(open_error)?;
        }
        let stored = read(&database).map_err(|why| OpenError::Unreadable(why.to_string()))?;
        Ok((Store(database), stored))
    });
    whole.map_err(OpenError::Unreadable)?
}

fn open_error(why: DatabaseError) -> OpenError {
    use redb::StorageError::Io;
    match why {
        DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => OpenError::Busy,
        DatabaseError::Storage(Io(why))
            if !matches!(why.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
        {
            OpenError::System(why.to_string())
        }
        other => OpenError::Unreadable(other.to_string()),
    }
}

fn read(database: &Database) -> Result<Stored, redb::Error> {
    let mut stored = Stored::default();
    let reading = database.begin_read()?;
    match reading.open_table(USAGE) {
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(stored),
        Err(other) => return Err(other.into()),
        Ok(table) => {
            for row in table.iter()? {
                let (key, value) = row?;
                let (period_s, used, over_since_s) = value.value();
                let key = key.value().to_owned();
                stored.usage.push(StoredUsage { key, period_s, used, added: 0, over_since_s });
            }
        }
    }
    for row in reading.open_table(ABSORBED)?.iter()? {
        let (key, value) = row?;
        let (token, key, period_s) = key.value();
        stored.absorbed.note(token, key, period_s, value.value());
    }
    Ok(stored)
}

fn written(database: &Database, usage: &[StoredUsage], absorbed: &Absorbed) -> Result<(), redb::Error> {
    let writing = database.begin_write()?;
    {
        let mut table = writing.open_table(USAGE)?;
        for StoredUsage { key, period_s, used, over_since_s, .. } in usage {
            if *used == 0 && *over_since_s == 0 {
                table.remove(key.as_str())?;
            } else {
                table.insert(key.as_str(), (*period_s, *used, *over_since_s))?;
            }
        }
        let mut table = writing.open_table(ABSORBED)?;
        table.retain(|(token, _, _), _| absorbed.has(token))?;
        for (token, key, period_s, added) in absorbed.changed() {
            table.insert((token, key, period_s), added)?;
        }
    }
    writing.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn usage(key: &str, used: u64) -> StoredUsage {
        StoredUsage { key: key.to_owned(), period_s: 3_600, used, added: used, over_since_s: 0 }
    }

    fn place() -> securefs::Directory {
        securefs::Directory::scratch(&std::env::temp_dir(), "weir-usage").unwrap()
    }

    fn open(path: &Path) -> (Store, Stored) {
        let Opened::Yes(store, stored) = Store::open(path) else { panic!("it is not open") };
        (store, stored)
    }

    #[test]
    fn one_process_has_it_and_the_next_gets_it_whole() {
        let place = place();
        let path = place.path().join("q.usage");
        let (one, stored) = open(&path);
        assert!(stored.usage.is_empty() && matches!(Store::open(&path), Opened::Busy));
        let none = Absorbed::default();
        one.write(&[usage("a", 5), usage("b", 6)], &none).unwrap();
        one.write(&[usage("b", 0), usage("a", 7)], &none).unwrap();
        one.close();
        let (_other, stored) = open(&path);
        assert_eq!(stored.usage, [StoredUsage { added: 0, ..usage("a", 7) }]);
        fs::remove_dir_all(place.path()).unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_read_is_put_aside() {
        let place = place();
        let path = place.path().join("q.usage");
        let (store, _) = open(&path);
        let many: Vec<_> = (1..500).map(|number| usage(&number.to_string(), number)).collect();
        store.write(&many, &Absorbed::default()).unwrap();
        store.close();
        let good = fs::read(&path).unwrap();
        let damaged = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = good.clone();
            change(&mut bytes);
            bytes
        };
        let files = [
            b"not a database at all".to_vec(),
            damaged(&|bytes| bytes.truncate(5_000)),
            damaged(&|bytes| bytes[..4_096].fill(0)),
            damaged(&|bytes| bytes[4_096..].fill(0xa5)),
        ];
        for (number, bytes) in files.into_iter().enumerate() {
            fs::write(&path, &bytes).unwrap();
            let Opened::Recreated(store, _, aside) = Store::open(&path) else {
                panic!("file {number} was taken for good")
            };
            assert_eq!(fs::read(aside).unwrap(), bytes);
            store.write(&[usage("a", 5)], &Absorbed::default()).unwrap();
            store.close();
            assert_eq!(open(&path).1.usage.len(), 1);
        }
        fs::remove_dir_all(place.path()).unwrap();
    }
}
