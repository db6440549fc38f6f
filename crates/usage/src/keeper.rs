//! Keeps the file of usage.
//!
//! Owns the state of that file: waited for, open, handed over. What could not be stored stays in the accounts and is stored later; nothing here ever makes a process wait.

use std::path::{Path, PathBuf};
use std::sync::MutexGuard;

use quota::Book;
use settings::{Config, quotas_path};
use telemetry::{Level, Record};

use crate::judge::Judge;
use crate::late::{Absorbed, Late};
use crate::names::with_ending;
use crate::store::{Opened, Store};
use crate::{Clocks, Log};

/// Between two writes, at least.
const WRITE_US: u64 = 900_000;

/// Between two tries to open a file that cannot be opened.
const RETRY_US: u64 = 5_000_000;

/// The file of usage.
enum File {
    /// There are no quotas, or nowhere to keep them.
    None,
    /// To be opened, not before then.
    Awaited { from_us: u64 },
    /// This process has it.
    Open { store: Store, absorbed: Absorbed },
    /// Another process has it.
    HandedOver(Late),
}

pub(crate) struct Keeper {
    judge: Judge,
    clocks: Clocks,
    log: Log,
    path: Option<PathBuf>,
    file: File,
    /// The accounts have what the file had.
    is_restored: bool,
    written_us: u64,
    /// What was logged last of the file, so that it is logged once.
    complaint: Option<String>,
    is_handed_over: bool,
    token: String,
}

impl Keeper {
    pub(crate) fn new(judge: Judge, clocks: Clocks, log: Log) -> Keeper {
        let token = format!("{}-{}", std::process::id(), (clocks.monotonic_us)());
        Keeper {
            judge,
            clocks,
            log,
            path: None,
            file: File::None,
            is_restored: false,
            written_us: 0,
            complaint: None,
            is_handed_over: false,
            token,
        }
    }

    /// Whether there is anything to be done without an order.
    pub(crate) fn has_work(&self) -> bool {
        !matches!(self.file, File::None)
    }

    pub(crate) fn configure(&mut self, config: &Config) {
        let path = quotas_path(&config.global).filter(|_| !config.quotas.is_empty());
        let path = path.map(|path| with_ending(Path::new(path), "usage"));
        if path == self.path {
            return;
        }
        self.close();
        if self.is_restored {
            self.book().mark_changed(); // The new file has nothing of it.
        }
        (self.path, self.complaint) = (path, None);
        self.file = match self.path {
            Some(_) if self.is_handed_over => self.late(),
            Some(_) => File::Awaited { from_us: 0 },
            None => File::None,
        };
    }

    /// Another process has taken over: it gets the file with all that was counted up to now.
    pub(crate) fn hand_over(&mut self) {
        self.is_handed_over = true;
        self.judge.look();
        self.open_awaited();
        self.close();
        self.file = self.late();
    }

    fn late(&self) -> File {
        self.path.as_ref().map_or(File::None, |path| File::HandedOver(Late::new(path, &self.token)))
    }

    /// The other process has not taken over, or has ended: what it has stored counts.
    pub(crate) fn take_back(&mut self) {
        if !std::mem::take(&mut self.is_handed_over) {
            return;
        }
        self.write();
        self.is_restored = false;
        if self.path.is_some() {
            self.file = File::Awaited { from_us: 0 };
        }
    }

    /// The process ends.
    pub(crate) fn end(&mut self) {
        self.judge.look();
        self.open_awaited();
        self.close();
    }

    /// Stores what was counted up to now, if it is time.
    pub(crate) fn tick(&mut self) {
        if !self.has_work() {
            return;
        }
        let now_us = (self.clocks.monotonic_us)();
        if matches!(self.file, File::Awaited { from_us } if now_us >= from_us) {
            self.open(now_us);
        }
        if now_us.saturating_sub(self.written_us) >= WRITE_US {
            self.written_us = now_us;
            self.judge.look();
            self.absorb();
            self.write();
        }
    }

    /// What was counted is to be stored now, if that is possible.
    fn open_awaited(&mut self) {
        if matches!(self.file, File::Awaited { .. }) {
            self.open((self.clocks.monotonic_us)());
        }
    }

    fn open(&mut self, now_us: u64) {
        let Some(path) = self.path.clone() else { return };
        let name = path.display().to_string();
        self.file = match Store::open(&path) {
            Opened::Yes(store, stored) => {
                if !std::mem::replace(&mut self.is_restored, true) {
                    let mut book = self.book();
                    book.restore(&stored.usage, self.clocks.now());
                }
                self.recovered(&name);
                File::Open { store, absorbed: stored.absorbed }
            }
            Opened::Recreated(store, why, aside) => {
                let text = format!(
                    "quotas: {name} cannot be read ({why}); it is {} now, and usage is counted from what this process has seen",
                    aside.display()
                );
                (self.log)(Record::new(Level::Error, text));
                self.is_restored = true;
                self.book().mark_changed();
                File::Open { store, absorbed: Absorbed::default() }
            }
            Opened::Busy => {
                let text = format!(
                    "quotas: another process has {name}; usage is counted from memory until it is free"
                );
                self.complain(Level::Log, text);
                File::Awaited { from_us: now_us }
            }
            Opened::No(why) => {
                let text = format!("quotas: cannot open {name}: {why}; usage is counted from memory");
                self.complain(Level::Error, text);
                File::Awaited { from_us: now_us + RETRY_US }
            }
        };
    }

    /// Adds what processes have counted since they were taken over.
    fn absorb(&mut self) {
        let Some(path) = self.path.clone() else { return };
        let File::Open { absorbed, .. } = &mut self.file else { return };
        let found = absorbed.take(&path);
        if !found.is_empty() {
            // The time as it is now: the accounts go on while files are read.
            let mut book = self.book();
            book.absorb(&found, self.clocks.now());
        }
    }

    /// Stores what has changed.
    fn write(&mut self) {
        if matches!(self.file, File::None | File::Awaited { .. }) {
            return;
        }
        let changed = self.book().take_changed();
        let outcome = match &mut self.file {
            File::Open { store, absorbed } => {
                let is_news = !changed.is_empty() || absorbed.changed().next().is_some();
                if is_news { store.write(&changed, absorbed) } else { Ok(()) }
            }
            File::HandedOver(late) if !changed.is_empty() => late.write(&changed),
            _ => Ok(()),
        };
        let name = self.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        match outcome {
            Ok(()) => {
                self.recovered(&name);
                self.forget_absorbed();
            }
            Err(why) => {
                let text = format!(
                    "quotas: cannot write {name}: {why}; usage is counted from memory and written later"
                );
                self.complain(Level::Error, text);
                if matches!(self.file, File::Open { .. }) {
                    self.book().put_back(&changed);
                    // After an error of the system the library wants the file to be opened again.
                    self.close_unwritten();
                    self.file = File::Awaited { from_us: (self.clocks.monotonic_us)() + RETRY_US };
                }
            }
        }
    }

    fn forget_absorbed(&mut self) {
        let Some(path) = self.path.clone() else { return };
        if let File::Open { absorbed, .. } = &mut self.file {
            absorbed.stored();
            absorbed.remove_files(&path, &runs);
        }
    }

    fn close(&mut self) {
        if let File::Open { .. } = self.file {
            self.absorb();
        }
        self.write();
        self.close_unwritten();
    }

    fn close_unwritten(&mut self) {
        if let File::Open { store, .. } = std::mem::replace(&mut self.file, File::None) {
            store.close();
        }
    }

    fn complain(&mut self, level: Level, text: String) {
        if self.complaint.as_ref() != Some(&text) {
            (self.log)(Record::new(level, text.clone()));
            self.complaint = Some(text);
        }
    }

    fn recovered(&mut self, name: &str) {
        if self.complaint.take().is_some() {
            (self.log)(Record::new(Level::Log, format!("quotas: usage is kept in {name} again")));
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.judge.book()
    }
}

/// Whether the process of a token still runs.
fn runs(token: &str) -> bool {
    let process = token.split('-').next().unwrap_or_default();
    !process.is_empty() && Path::new("/proc").join(process).exists()
}
