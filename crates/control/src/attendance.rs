//! What console clients do beside asking: they cancel what they wait for, and they leave.
//!
//! Owns what that undoes, as in PgBouncer: nobody is to find the pooler standing still and no one there who would end it.

use messages::Subject;

use crate::gathered::Gathered;
use crate::request::{Asker, Purpose};
use crate::{CONSOLE, Control, Refusal};

impl Control {
    /// A cancel request for a console client: what it waits for ends, and PAUSE and SUSPEND are undone.
    pub(crate) fn console_cancelled(&mut self, asker: Asker) {
        let waits =
            |purpose: &Purpose| matches!(purpose, Purpose::Pause(_) | Purpose::Suspend | Purpose::WaitClose);
        let cancelled =
            self.requests.close_where(|request| request.asker == Some(asker) && waits(&request.purpose));
        for request in cancelled {
            self.refuse(asker, &Refusal::Cancelled);
            let undone = match request.purpose {
                Purpose::Pause(database) => database,
                Purpose::Suspend => None,
                _ => continue,
            };
            if !self.is_ending() && self.pausing.resume(undone.as_deref()).is_ok() {
                self.resume_shards(undone);
            }
        }
    }

    /// A console client has left; it may have been the last that could end a SUSPEND.
    pub(crate) fn console_left(&mut self) {
        if self.pausing.suspended() {
            self.list(None, &[Subject::Pools], Purpose::Attendance(Gathered::default()));
        }
    }

    /// Every shard has said who is there.
    pub(crate) fn attended(&mut self, gathered: &Gathered) {
        let mut pools = gathered.pools.iter();
        let anybody = pools.any(|((database, _), pool)| database == CONSOLE && pool.client_active > 0);
        if anybody || !self.pausing.suspended() || self.is_ending() {
            return;
        }
        self.log("admin disappeared when suspended, doing RESUME");
        if self.pausing.resume(None).is_ok() {
            self.resume_shards(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use messages::{Command, Listing, PoolRow, Report, ShardId};

    use super::*;
    use crate::Input;
    use crate::harness::Harness;

    fn cancel(harness: &mut Harness) {
        harness.input(Input::Report(Report::ConsoleCancelled {
            shard: ShardId(0),
            client: 3,
            client_id: 33,
        }));
    }

    #[test]
    fn who_cancels_a_pause_undoes_it() {
        for (statement, undone) in [("PAUSE", None), ("PAUSE app", Some("app")), ("SUSPEND", None)] {
            let mut harness = Harness::new();
            harness.ask(statement);
            harness.done(0, 0);
            cancel(&mut harness);
            assert_eq!(harness.error(), ("57014", "canceling statement due to user request"), "{statement}");
            let Some((1, Command::Resume { database })) = harness.told.last() else { panic!("{statement}") };
            assert_eq!(database.as_deref(), undone);
            let replies = harness.replies.len();
            harness.ask(statement);
            harness.done(0, 0);
            harness.done(1, 0);
            assert_eq!(harness.replies.len(), replies + 1, "as if it had never been said");
        }
    }

    #[test]
    fn a_cancel_ends_only_what_waits() {
        let mut harness = Harness::new();
        cancel(&mut harness);
        harness.ask("SHOW POOLS");
        cancel(&mut harness);
        assert!(harness.replies.is_empty());
        let mut harness = Harness::new();
        harness.ask("WAIT_CLOSE app");
        cancel(&mut harness);
        assert_eq!(harness.error().0, "57014");
        assert!(!harness.told.iter().any(|(_, command)| matches!(command, Command::Resume { .. })));
    }

    #[test]
    fn a_suspended_pooler_without_an_admin_resumes() {
        let mut harness = Harness::new();
        harness.input(Input::Report(Report::ConsoleLeft));
        assert!(harness.told.is_empty());
        harness.ask("SUSPEND");
        for (clients, resumed) in [(1, false), (0, true)] {
            harness.input(Input::Report(Report::ConsoleLeft));
            let console = PoolRow { database: CONSOLE.into(), client_active: clients, ..PoolRow::default() };
            harness.listing(0, Listing::Pools(vec![PoolRow::default()]), true);
            harness.listing(1, Listing::Pools(vec![console]), true);
            let last = harness.told.last();
            assert_eq!(matches!(last, Some((_, Command::Resume { database: None }))), resumed);
        }
        assert!(harness.logged("admin disappeared when suspended, doing RESUME"));
    }
}
