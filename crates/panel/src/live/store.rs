//! The history on disk: one file (redb) in `state_dir`, which one process has at a time.
//!
//! Owns the file: its lock, its tables, that it does not grow beyond what history keeps, and that one which cannot be read is put aside
//! instead of stopping anything. A process that takes over tries again until the one before has closed it. Never runs on the thread
//! that serves the panel, but for [`Store::close`].

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::{
    Database, DatabaseError, ReadTransaction, ReadableDatabase as _, ReadableTable as _, TableDefinition,
};

use crate::audit_trail::AuditEntry;
use crate::live::history::{TIERS, UnsavedRows};
use crate::live::hosts::{self, HostPoints};
use crate::live::point::HistoryPoint;

/// Tier and second of each row.
const ROWS: TableDefinition<'_, (u8, u64), &[u8]> = TableDefinition::new("rows_1");

/// The hosts of a row. A table of its own, so that an older version reads the rows as they were.
const HOSTS: TableDefinition<'_, (u8, u64), &[u8]> = TableDefinition::new("hosts_1");

/// What was done, by its number.
const TRAIL: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("trail_1");

/// The library's own default is a gibibyte.
const CACHE_BYTES: usize = 2 << 20;

/// The most that history needs is a third of this; a file that is longer is compacted when it is opened.
const LARGE_FILE: u64 = 256 << 20;

/// Only this user's.
const MODE: u32 = 0o600;

/// The file, while this process has it.
#[derive(Default)]
pub(crate) struct Store(Mutex<Option<Database>>);

/// What a file holds.
#[derive(Default)]
pub(crate) struct Stored {
    pub(super) rows: UnsavedRows,
    pub(crate) audit_trail: Vec<AuditEntry>,
}

/// What came of opening the file.
pub(crate) enum Opened {
    /// It is open.
    Yes(Stored),
    /// It could not be read, for this reason; it has this name now, and a new one is open.
    Recreated(String, PathBuf),
    /// Another process has it.
    Busy,
    /// There is none, for this reason.
    No(String),
}

impl Store {
    /// Opens the file, or makes it.
    pub(crate) fn open(&self, path: &Path) -> Opened {
        let mut held = self.held();
        let why = match opened(path) {
            Ok((database, stored)) => {
                *held = Some(database);
                return Opened::Yes(stored);
            }
            Err(OpenError::Busy) => return Opened::Busy,
            Err(OpenError::System(why)) => return Opened::No(why),
            Err(OpenError::Unreadable(why)) => why,
        };
        let aside = path.with_extension("unreadable");
        let again = fs::rename(path, &aside).map_err(|why| why.to_string());
        match again.and_then(|()| opened(path).map_err(OpenError::text)) {
            Ok((database, _)) => {
                *held = Some(database);
                Opened::Recreated(why, aside)
            }
            Err(other) => Opened::No(format!("{why}; {other}")),
        }
    }

    /// Writes rows and entries, and removes what is older than `begins` or than the `most` newest entries.
    ///
    /// # Errors
    /// Why nothing was written.
    pub(crate) fn write(
        &self,
        rows: &UnsavedRows,
        begins: [u64; 3],
        audit_trail: &[AuditEntry],
        most: u64,
    ) -> Result<(), String> {
        let held = self.held();
        let Some(database) = &*held else { return Err("the file is not open".to_owned()) };
        caught(|| written(database, rows, begins, audit_trail, most).map_err(|why| why.to_string()))?
    }

    /// Leaves the file to others.
    pub(crate) fn close(&self) {
        if let Some(database) = self.held().take() {
            let _ = caught(|| drop(database));
        }
    }

    /// This process has the file.
    pub(crate) fn is_open(&self) -> bool {
        self.held().is_some()
    }

    fn held(&self) -> MutexGuard<'_, Option<Database>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum OpenError {
    Busy,
    System(String),
    Unreadable(String),
}

impl OpenError {
    fn text(self) -> String {
        match self {
            OpenError::Busy => "another process has the file".to_owned(),
            OpenError::System(why) | OpenError::Unreadable(why) => why,
        }
    }
}

/// A damaged file can be one that the library has a bug for: it must cost the file, not the panel's thread.
fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| "the library panicked; see the log".to_owned())
}

fn opened(path: &Path) -> Result<(Database, Stored), OpenError> {
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
        if length > LARGE_FILE {
            database.compact().map_err(|why| OpenError::System(why.to_string()))?;
        }
        let stored = read(&database).map_err(|why| OpenError::Unreadable(why.to_string()))?;
        Ok((database, stored))
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
    let hosts = stored_hosts(&reading)?;
    match reading.open_table(ROWS) {
        Ok(table) => {
            for row in table.iter()? {
                let (key, bytes) = row?;
                let (tier, second) = key.value();
                let Some(point) = HistoryPoint::read(second, bytes.value()) else { continue };
                let hosts = hosts.get(&(tier, second)).cloned().unwrap_or_default();
                stored.rows.push((tier, Arc::new(HistoryPoint { hosts, ..point })));
            }
        }
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(stored),
        Err(other) => return Err(other.into()),
    }
    for row in reading.open_table(TRAIL)?.iter()? {
        stored.audit_trail.extend(serde_json::from_slice::<AuditEntry>(row?.1.value()));
    }
    Ok(stored)
}

/// The hosts by tier and second. None in a file of an older version.
fn stored_hosts(reading: &ReadTransaction) -> Result<BTreeMap<(u8, u64), HostPoints>, redb::Error> {
    let table = match reading.open_table(HOSTS) {
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(BTreeMap::new()),
        table => table?,
    };
    let mut found = BTreeMap::new();
    for row in table.iter()? {
        let (key, bytes) = row?;
        found.extend(hosts::read(bytes.value()).map(|hosts| (key.value(), hosts)));
    }
    Ok(found)
}

fn written(
    database: &Database,
    rows: &UnsavedRows,
    begins: [u64; 3],
    audit_trail: &[AuditEntry],
    most: u64,
) -> Result<(), redb::Error> {
    let writing = database.begin_write()?;
    {
        let mut table = writing.open_table(ROWS)?;
        let mut hosts_table = writing.open_table(HOSTS)?;
        for (tier, row) in rows {
            table.insert((*tier, row.second), row.bytes().as_slice())?;
            if !row.hosts.is_empty() {
                hosts_table.insert((*tier, row.second), hosts::bytes(&row.hosts).as_slice())?;
            }
        }
        for (tier, (begin, (step, keep, _))) in (0_u8..).zip(begins.into_iter().zip(TIERS)) {
            // After a clock that was set back there are rows of a time to come.
            let end = begin + step * (keep as u64 + 60);
            for range in [(tier, 0)..(tier, begin), (tier, end)..(tier, u64::MAX)] {
                table.retain_in(range.clone(), |_, _| false)?;
                hosts_table.retain_in(range, |_, _| false)?;
            }
        }
        let mut table = writing.open_table(TRAIL)?;
        for entry in audit_trail {
            table.insert(entry.number, serde_json::to_vec(entry).unwrap_or_default().as_slice())?;
        }
        let newest = table.last()?.map_or(0, |(number, _)| number.value());
        table.retain_in(0..(newest + 1).saturating_sub(most), |_, _| false)?;
    }
    writing.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::live::hosts::{HostKey, HostPoint, HostState};
    use securefs::Directory;

    fn place() -> Directory {
        Directory::scratch(&std::env::temp_dir(), "weir-store").unwrap()
    }

    fn row(tier: u8, second: u64) -> (u8, Arc<HistoryPoint>) {
        let key = HostKey { database: "app".into(), label: format!("h:{second}").as_str().into() };
        let point = HostPoint { state: HostState::Down, timeline: 1, lag_bytes: 1.0, lag_seconds: 2.0 };
        let hosts = vec![(key, point)];
        (tier, Arc::new(HistoryPoint { second, process: [1.0; 4], databases: Vec::new(), hosts }))
    }

    fn seconds(opened: Opened) -> Vec<(u8, u64)> {
        let Opened::Yes(stored) = opened else { panic!("it is not open") };
        stored.rows.iter().map(|(tier, row)| (*tier, row.second)).collect()
    }

    #[test]
    fn what_is_written_is_read_and_what_is_old_is_gone() {
        let (place, store) = (place(), Store::default());
        let path = place.path().join("h");
        assert!(store.write(&vec![row(0, 1)], [0; 3], &[], 9).is_err(), "not before it is open");
        assert!(seconds(store.open(&path)).is_empty());
        let audit_trail = [1, 2, 3].map(|number| AuditEntry { number, ..AuditEntry::default() });
        store.write(&vec![row(0, 10), row(0, 11), row(1, 20)], [11, 0, 0], &audit_trail, 2).unwrap();
        store.close();
        let Opened::Yes(stored) = store.open(&path) else { panic!("it is there") };
        assert_eq!(stored.rows.iter().map(|(_, row)| row.second).collect::<Vec<_>>(), [11, 20]);
        assert_eq!(stored.rows, [row(0, 11), row(1, 20)], "with their hosts");
        assert_eq!(stored.audit_trail.iter().map(|entry| entry.number).collect::<Vec<_>>(), [2, 3]);
        fs::remove_dir_all(place.path()).unwrap();
    }

    #[test]
    fn one_process_has_it_and_the_next_gets_it_whole() {
        let (place, one, other) = (place(), Store::default(), Store::default());
        let path = place.path().join("h");
        one.open(&path);
        assert!(matches!(other.open(&path), Opened::Busy) && !other.is_open());
        one.write(&vec![row(0, 5)], [0; 3], &[], 9).unwrap();
        one.close();
        assert_eq!(seconds(other.open(&path)), [(0, 5)]);
        fs::remove_dir_all(place.path()).unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_read_is_put_aside() {
        let (place, store) = (place(), Store::default());
        let path = place.path().join("h.redb");
        store.open(&path);
        let rows: UnsavedRows = (0..500).map(|second| row(0, second)).collect();
        store.write(&rows, [0; 3], &[], 9).unwrap();
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
            let Opened::Recreated(_, aside) = store.open(&path) else {
                panic!("file {number} was taken for good")
            };
            assert_eq!(fs::read(aside).unwrap().first(), bytes.first());
            store.write(&vec![row(0, 5)], [0; 3], &[], 9).unwrap();
            store.close();
            assert_eq!(seconds(store.open(&path)), [(0, 5)]);
            store.close();
        }
        fs::remove_dir_all(place.path()).unwrap();
    }
}
