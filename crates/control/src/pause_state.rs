//! What is paused, as in PgBouncer: the whole pooler and single databases are paused independently; and what is disabled, detached and drained.
//! `commands.rs` sends the commands to the shards.

use std::collections::BTreeSet;

use messages::Drain;

use crate::CommandError;

/// The state after PAUSE, KILL, SUSPEND, DISABLE, DETACH and RESUME.
#[derive(Clone, Debug, Default)]
pub(crate) struct PauseState {
    /// PAUSE without a name, SIGUSR1, or SHUTDOWN WAIT_FOR_SERVERS.
    whole: bool,
    /// KILL without a name: every database is paused, the pooler is not.
    killed: bool,
    /// SUSPEND.
    suspended: bool,
    /// PAUSE or KILL with a name.
    named: BTreeSet<String>,
    /// DISABLE.
    disabled: BTreeSet<String>,
    /// DETACH: databases, and hosts by name and port.
    detached: BTreeSet<(String, String)>,
    drain: Drain,
}

impl PauseState {
    /// The state as text, a line each, for a process that takes over.
    pub(crate) fn note(&self) -> String {
        let whole = self.whole.then(|| "all\n".to_owned());
        let killed = self.killed.then(|| "killed\n".to_owned());
        let named = self.named.iter().map(|name| format!("database {name}\n"));
        let disabled = self.disabled.iter().map(|name| format!("disabled {name}\n"));
        let detached = self.detached.iter().map(|(name, host)| format!("detached {host}\t{name}\n"));
        let drain = match self.drain {
            Drain::Off => None,
            Drain::NewClients => Some("drain new-clients\n".to_owned()),
            Drain::AllClients => Some("drain all-clients\n".to_owned()),
        };
        whole.into_iter().chain(killed).chain(drain).chain(named).chain(disabled).chain(detached).collect()
    }

    /// The inverse of [`PauseState::note`]; unknown lines are ignored.
    pub(crate) fn from_note(note: &str) -> PauseState {
        let mut pause_state = PauseState::default();
        for line in note.lines() {
            match line {
                "all" => pause_state.whole = true,
                "killed" => pause_state.killed = true,
                "drain new-clients" => pause_state.drain = Drain::NewClients,
                "drain all-clients" => pause_state.drain = Drain::AllClients,
                other => {
                    pause_state.named.extend(other.strip_prefix("database ").map(str::to_owned));
                    pause_state.disabled.extend(other.strip_prefix("disabled ").map(str::to_owned));
                    let detached = other.strip_prefix("detached ").and_then(|rest| rest.split_once('\t'));
                    let owned = |(host, name): (&str, &str)| (name.to_owned(), host.to_owned());
                    pause_state.detached.extend(detached.map(owned));
                }
            }
        }
        pause_state
    }

    /// What shards have to pause: databases, and None for all.
    pub(crate) fn everything(&self) -> Vec<Option<String>> {
        let all = (self.whole || self.killed).then_some(None);
        all.into_iter().chain(self.named.iter().map(|name| Some(name.clone()))).collect()
    }

    /// Databases that take no new clients.
    pub(crate) fn all_disabled(&self) -> impl Iterator<Item = &String> {
        self.disabled.iter()
    }

    /// Databases and their hosts that get no reads.
    pub(crate) fn all_detached(&self) -> impl Iterator<Item = &(String, String)> {
        self.detached.iter()
    }

    /// This host of a database gets no reads.
    pub(crate) fn detaches(&self, database: &str, host: &str) -> bool {
        self.detached.iter().any(|(name, detached)| name == database && detached == host)
    }

    /// DETACH and ATTACH; both are idempotent.
    pub(crate) fn set_detached(&mut self, database: &str, host: &str, is_detached: bool) {
        let key = (database.to_owned(), host.to_owned());
        if is_detached {
            self.detached.insert(key);
        } else {
            self.detached.remove(&key);
        }
    }

    /// Databases that are paused, killed or disabled, each by its name; some twice.
    pub(crate) fn all_named(&self) -> impl Iterator<Item = &String> {
        self.named.iter().chain(&self.disabled)
    }

    /// The whole pooler is paused.
    pub(crate) fn whole(&self) -> bool {
        self.whole
    }

    /// The whole pooler is suspended.
    pub(crate) fn suspended(&self) -> bool {
        self.suspended
    }

    /// This database is disabled.
    pub(crate) fn disables(&self, database: &str) -> bool {
        self.disabled.contains(database)
    }

    /// DISABLE and ENABLE; both are idempotent.
    pub(crate) fn set_disabled(&mut self, database: &str, disabled: bool) {
        if disabled {
            self.disabled.insert(database.to_owned());
        } else {
            self.disabled.remove(database);
        }
    }

    /// Whether clients are refused or ended.
    pub(crate) fn drain(&self) -> Drain {
        self.drain
    }

    /// DRAIN and UNDRAIN; both are idempotent.
    pub(crate) fn set_drain(&mut self, drain: Drain) {
        self.drain = drain;
    }

    /// SUSPEND. Refused while anything is paused.
    pub(crate) fn suspend(&mut self) -> Result<(), CommandError> {
        if self.whole || self.suspended {
            return Err(CommandError::AlreadyPaused);
        }
        if self.killed || !self.named.is_empty() {
            return Err(CommandError::DatabasesPaused);
        }
        self.suspended = true;
        Ok(())
    }

    /// This database is paused for itself.
    pub(crate) fn holds(&self, database: &str) -> bool {
        self.killed || self.named.contains(database)
    }

    /// PAUSE. Refused while the whole pooler is paused.
    pub(crate) fn pause(&mut self, database: Option<&str>) -> Result<(), CommandError> {
        if self.whole || self.suspended {
            return Err(CommandError::AlreadyPaused);
        }
        match database {
            Some(name) => drop(self.named.insert(name.to_owned())),
            None => self.whole = true,
        }
        Ok(())
    }

    /// KILL. Refused while the whole pooler is paused.
    pub(crate) fn kill(&mut self, database: Option<&str>) -> Result<(), CommandError> {
        if self.whole || self.suspended {
            return Err(CommandError::AlreadyPaused);
        }
        match database {
            Some(name) => drop(self.named.insert(name.to_owned())),
            None => self.killed = true,
        }
        Ok(())
    }

    /// RESUME. Refused when there is nothing to resume.
    pub(crate) fn resume(&mut self, database: Option<&str>) -> Result<(), CommandError> {
        match database {
            Some(name) if self.named.remove(name) => Ok(()),
            Some(name) => Err(CommandError::DatabaseNotPaused(name.to_owned())),
            None if self.whole || self.killed || self.suspended => {
                (self.whole, self.killed, self.suspended) = (false, false, false);
                Ok(())
            }
            None => Err(CommandError::NotPaused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_and_one_database_are_resumed_apart() {
        let mut pause_state = PauseState::default();
        assert_eq!(pause_state.resume(None), Err(CommandError::NotPaused));
        pause_state.pause(Some("a")).expect("not paused before");
        pause_state.pause(None).expect("only one database was paused");
        assert_eq!(pause_state.pause(None), Err(CommandError::AlreadyPaused));
        assert_eq!(pause_state.kill(Some("b")), Err(CommandError::AlreadyPaused));
        pause_state.resume(None).expect("all was paused");
        assert!(pause_state.holds("a") && !pause_state.holds("b"));
        pause_state.resume(Some("a")).expect("it was paused");
        assert_eq!(pause_state.resume(Some("a")), Err(CommandError::DatabaseNotPaused("a".into())));
    }

    #[test]
    fn after_kill_of_all_one_resume_is_enough() {
        let mut pause_state = PauseState::default();
        pause_state.kill(None).expect("nothing was paused");
        assert!(pause_state.holds("any") && !pause_state.whole());
        pause_state.resume(None).expect("all were killed");
        assert!(!pause_state.holds("any"));
    }
}
