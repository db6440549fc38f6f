//! Who is paused, as PgBouncer counts it: the whole pooler and single databases are paused apart from each other.
//! Never tells a shard anything; `commands.rs` does.

use std::collections::BTreeSet;

use crate::Refusal;

/// What PAUSE, KILL and RESUME have left.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pausing {
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
}

impl Pausing {
    /// All of it in text, a line each, for a process that takes over.
    pub(crate) fn note(&self) -> String {
        let whole = self.whole.then(|| "all\n".to_owned());
        let killed = self.killed.then(|| "killed\n".to_owned());
        let named = self.named.iter().map(|name| format!("database {name}\n"));
        let disabled = self.disabled.iter().map(|name| format!("disabled {name}\n"));
        whole.into_iter().chain(killed).chain(named).chain(disabled).collect()
    }

    /// The opposite of [`Pausing::note`]; what is not understood is not paused.
    pub(crate) fn from_note(note: &str) -> Pausing {
        let mut pausing = Pausing::default();
        for line in note.lines() {
            match line {
                "all" => pausing.whole = true,
                "killed" => pausing.killed = true,
                other => {
                    pausing.named.extend(other.strip_prefix("database ").map(str::to_owned));
                    pausing.disabled.extend(other.strip_prefix("disabled ").map(str::to_owned));
                }
            }
        }
        pausing
    }

    /// What shards are to be told to pause: databases, and None for all.
    pub(crate) fn everything(&self) -> Vec<Option<String>> {
        let all = (self.whole || self.killed).then_some(None);
        all.into_iter().chain(self.named.iter().map(|name| Some(name.clone()))).collect()
    }

    /// Databases that take no new clients.
    pub(crate) fn all_disabled(&self) -> impl Iterator<Item = &String> {
        self.disabled.iter()
    }

    /// Databases that are paused, killed or disabled, each by its name; some twice.
    pub(crate) fn all_named(&self) -> impl Iterator<Item = &String> {
        self.named.iter().chain(&self.disabled)
    }

    /// The whole pooler is paused.
    pub(crate) fn whole(&self) -> bool {
        self.whole
    }

    /// The whole pooler stands still.
    pub(crate) fn suspended(&self) -> bool {
        self.suspended
    }

    /// This database lets nobody in.
    pub(crate) fn disables(&self, database: &str) -> bool {
        self.disabled.contains(database)
    }

    /// DISABLE and ENABLE; neither minds being repeated.
    pub(crate) fn set_disabled(&mut self, database: &str, disabled: bool) {
        if disabled {
            self.disabled.insert(database.to_owned());
        } else {
            self.disabled.remove(database);
        }
    }

    /// SUSPEND. Refused while anything is paused.
    pub(crate) fn suspend(&mut self) -> Result<(), Refusal> {
        if self.whole || self.suspended {
            return Err(Refusal::AlreadyPaused);
        }
        if self.killed || !self.named.is_empty() {
            return Err(Refusal::DatabasesPaused);
        }
        self.suspended = true;
        Ok(())
    }

    /// This database is paused for itself.
    pub(crate) fn holds(&self, database: &str) -> bool {
        self.killed || self.named.contains(database)
    }

    /// PAUSE. Refused while the whole pooler is paused.
    pub(crate) fn pause(&mut self, database: Option<&str>) -> Result<(), Refusal> {
        if self.whole || self.suspended {
            return Err(Refusal::AlreadyPaused);
        }
        match database {
            Some(name) => drop(self.named.insert(name.to_owned())),
            None => self.whole = true,
        }
        Ok(())
    }

    /// KILL. Refused while the whole pooler is paused.
    pub(crate) fn kill(&mut self, database: Option<&str>) -> Result<(), Refusal> {
        if self.whole || self.suspended {
            return Err(Refusal::AlreadyPaused);
        }
        match database {
            Some(name) => drop(self.named.insert(name.to_owned())),
            None => self.killed = true,
        }
        Ok(())
    }

    /// RESUME. Refused when there is nothing to resume.
    pub(crate) fn resume(&mut self, database: Option<&str>) -> Result<(), Refusal> {
        match database {
            Some(name) if self.named.remove(name) => Ok(()),
            Some(name) => Err(Refusal::DatabaseNotPaused(name.to_owned())),
            None if self.whole || self.killed || self.suspended => {
                (self.whole, self.killed, self.suspended) = (false, false, false);
                Ok(())
            }
            None => Err(Refusal::NotPaused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_and_one_database_are_resumed_apart() {
        let mut pausing = Pausing::default();
        assert_eq!(pausing.resume(None), Err(Refusal::NotPaused));
        pausing.pause(Some("a")).expect("not paused before");
        pausing.pause(None).expect("only one database was paused");
        assert_eq!(pausing.pause(None), Err(Refusal::AlreadyPaused));
        assert_eq!(pausing.kill(Some("b")), Err(Refusal::AlreadyPaused));
        pausing.resume(None).expect("all was paused");
        assert!(pausing.holds("a") && !pausing.holds("b"));
        pausing.resume(Some("a")).expect("it was paused");
        assert_eq!(pausing.resume(Some("a")), Err(Refusal::DatabaseNotPaused("a".into())));
    }

    #[test]
    fn after_kill_of_all_one_resume_is_enough() {
        let mut pausing = Pausing::default();
        pausing.kill(None).expect("nothing was paused");
        assert!(pausing.holds("any") && !pausing.whole());
        pausing.resume(None).expect("all were killed");
        assert!(!pausing.holds("any"));
    }
}
