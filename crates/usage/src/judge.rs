//! What subjects have used, against their limits.
//!
//! Owns that each change of a verdict is logged once. Never waits but for the accounts and the log.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quota::{Book, Verdict};
use settings::Config;
use telemetry::{Level, Record};

use crate::{Clocks, Log};

/// The most lines about subjects that are logged at a time.
const MOST_LINES: usize = 50;

#[derive(Clone)]
pub(crate) struct Judge {
    book: Arc<Mutex<Book>>,
    clocks: Clocks,
    log: Log,
}

impl Judge {
    pub(crate) fn new(book: Arc<Mutex<Book>>, clocks: Clocks, log: Log) -> Judge {
        Judge { book, clocks, log }
    }

    pub(crate) fn configure(&self, config: &Config) {
        let is_shared = config.global.fleet.is_some() && config.global.fleet_limits.quotas;
        let mut book = self.book();
        book.set_shared(is_shared);
        book.set_rules(&config.quotas);
    }

    /// Collects what was counted.
    pub(crate) fn look(&self) {
        let changes = {
            let mut book = self.book();
            book.tick(self.clocks.now())
        };
        for change in changes.iter().take(MOST_LINES) {
            let level = if change.verdict == Verdict::Within { Level::Log } else { Level::Warning };
            (self.log)(Record::new(level, change.text()));
        }
        if let Some(more @ 1..) = changes.len().checked_sub(MOST_LINES) {
            (self.log)(Record::new(
                Level::Warning,
                format!("quotas: {more} more have changed; SHOW QUOTAS has them"),
            ));
        }
    }

    /// The accounts.
    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
