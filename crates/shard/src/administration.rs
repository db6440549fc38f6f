//! What operators have ordered and what is still in force: pauses, disabled databases, drain, suspension, shutdown, and commands that are
//! answered when they are complete.
//!
//! Owns these facts; carrying a command out is that of `commands`.

use std::collections::BTreeSet;

use messages::{Drain, RequestId, ShutdownMode};

/// A command that is answered when it is complete.
pub(crate) struct Pending {
    pub(crate) request: RequestId,
    pub(crate) what: PendingKind,
}

pub(crate) enum PendingKind {
    /// No server of this database (all) is in use or open, here or still with a process before.
    Paused(Option<String>),
    /// No server of this database (all) is open here.
    Killed(Option<String>),
    /// No output is left to be sent.
    Suspended,
    /// No server of this database (all) is obsolete.
    ObsoleteClosed(Option<String>),
    /// Shutdown of this mode.
    Shutdown(ShutdownMode),
}

/// Orders of operators that are in force on this shard.
#[derive(Default)]
pub(crate) struct Administration {
    /// All databases and single ones are paused apart: one that was paused by its name stays so when all resume.
    all_paused: bool,
    paused_databases: BTreeSet<String>,
    disabled_databases: BTreeSet<String>,
    drain: Drain,
    /// Databases and hosts.
    detached_hosts: BTreeSet<(String, String)>,
    suspended_since_us: Option<u64>,
    shutdown: Option<ShutdownMode>,
    pending: Vec<Pending>,
}

impl Administration {
    /// PAUSE or KILL is in force for this database.
    pub(crate) fn is_paused(&self, database: &str) -> bool {
        self.all_paused || self.paused_databases.contains(database)
    }

    /// Pauses or resumes one database, or all.
    pub(crate) fn set_paused(&mut self, database: Option<&str>, paused: bool) {
        match database {
            None => self.all_paused = paused,
            Some(name) if paused => {
                self.paused_databases.insert(name.to_owned());
            }
            Some(name) => {
                self.paused_databases.remove(name);
            }
        }
    }

    /// An operator has closed this database to new clients.
    pub(crate) fn is_disabled(&self, database: &str) -> bool {
        self.disabled_databases.contains(database)
    }

    pub(crate) fn set_disabled(&mut self, database: String, disabled: bool) {
        if disabled {
            self.disabled_databases.insert(database);
        } else {
            self.disabled_databases.remove(&database);
        }
    }

    pub(crate) fn drain(&self) -> Drain {
        self.drain
    }

    pub(crate) fn set_drain(&mut self, drain: Drain) {
        self.drain = drain;
    }

    /// Clients are ended when they are at rest.
    #[inline]
    pub(crate) fn ends_clients(&self) -> bool {
        self.drain == Drain::AllClients
    }

    /// DETACH is in force for this host of a database.
    pub(crate) fn is_detached(&self, database: &str, host: &str) -> bool {
        self.detached_hosts.iter().any(|(of, detached)| of == database && detached == host)
    }

    pub(crate) fn set_detached(&mut self, database: String, host: String, is_detached: bool) {
        if is_detached {
            self.detached_hosts.insert((database, host));
        } else {
            self.detached_hosts.remove(&(database, host));
        }
    }

    #[inline]
    pub(crate) fn is_suspended(&self) -> bool {
        self.suspended_since_us.is_some()
    }

    pub(crate) fn suspended_since_us(&self) -> Option<u64> {
        self.suspended_since_us
    }

    pub(crate) fn suspend(&mut self, now_us: u64) {
        self.suspended_since_us = Some(now_us);
    }

    /// Ends the suspension; false if there was none.
    pub(crate) fn end_suspension(&mut self) -> bool {
        self.suspended_since_us.take().is_some()
    }

    pub(crate) fn shutdown(&self) -> Option<ShutdownMode> {
        self.shutdown
    }

    pub(crate) fn shut_down(&mut self, mode: ShutdownMode) {
        self.shutdown = Some(mode);
    }

    /// A command is answered when this is so.
    pub(crate) fn answer_when(&mut self, request: RequestId, what: PendingKind) {
        self.pending.push(Pending { request, what });
    }

    pub(crate) fn pending(&self) -> &[Pending] {
        &self.pending
    }

    pub(crate) fn retain_pending(&mut self, stays: impl FnMut(&Pending) -> bool) {
        self.pending.retain(stays);
    }

    pub(crate) fn take_pending(&mut self) -> Vec<Pending> {
        std::mem::take(&mut self.pending)
    }
}
