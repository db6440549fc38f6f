//! Savepoints of a session's transaction: set, gone back to, released.

use super::session::{Savepoint, Session, Status};

impl Session {
    pub(super) fn savepoint(&mut self, name: &str) -> Result<&'static str, (&'static str, &'static str)> {
        self.must_be_in_block()?;
        let (rows, parameters) = (self.pending.len(), self.parameters.snapshot());
        let held = self.holdings.snapshot();
        self.savepoints.push(Savepoint { name: name.to_owned(), rows, parameters, held });
        Ok("SAVEPOINT")
    }

    pub(super) fn roll_back_to(&mut self, name: &str) -> Result<&'static str, (&'static str, &'static str)> {
        let at = self.find_savepoint(name)?;
        self.savepoints.truncate(at + 1);
        self.portals.retain(|_, portal| portal.level <= at);
        self.holdings.end_cursors_behind(at);
        self.undo_to_savepoint();
        self.status = Status::Open;
        Ok("ROLLBACK")
    }

    pub(super) fn release(&mut self, name: &str) -> Result<&'static str, (&'static str, &'static str)> {
        let at = self.find_savepoint(name)?;
        self.savepoints.truncate(at);
        self.holdings.release(at);
        for portal in self.portals.values_mut() {
            portal.level = portal.level.min(at);
        }
        Ok("RELEASE")
    }

    fn find_savepoint(&self, name: &str) -> Result<usize, (&'static str, &'static str)> {
        self.must_be_in_block()?;
        let at = self.savepoints.iter().rposition(|savepoint| savepoint.name == name);
        at.ok_or(("3B001", "savepoint does not exist"))
    }

    fn must_be_in_block(&self) -> Result<(), (&'static str, &'static str)> {
        match self.status {
            Status::Idle => Err(("25P01", "savepoints can only be used in transaction blocks")),
            Status::Open | Status::Failed => Ok(()),
        }
    }
}
