//! Cancel requests and disconnects of console clients.
//!
//! Undoes PAUSE and SUSPEND as PgBouncer does, so that the pooler does not stay suspended without an admin.

use messages::Subject;

use crate::aggregate::Aggregate;
use crate::request::{Purpose, Requester};
use crate::{CONSOLE, CommandError, Control};

impl Control {
    /// A cancel request of a console client: its pending command ends, and PAUSE and SUSPEND are undone.
    pub(crate) fn console_cancelled(&mut self, requester: Requester) {
        let waits =
            |purpose: &Purpose| matches!(purpose, Purpose::Pause(_) | Purpose::Suspend | Purpose::WaitClose);
        let of_fleet = self.requests.find_where(|request| {
            request.requester == Some(requester) && matches!(request.purpose, Purpose::Fleet(_))
        });
        for request in of_fleet {
            // It goes on: what is held on all nodes is undone by a command for all nodes.
            self.forget_fleet_pools(request);
            self.refuse_hold(request, &CommandError::Cancelled);
        }
        let cancelled = self
            .requests
            .close_where(|request| request.requester == Some(requester) && waits(&request.purpose));
        for request in cancelled {
            self.refuse(requester, &CommandError::Cancelled);
            let undone = match request.purpose {
                Purpose::Pause(database) => database,
                Purpose::Suspend => None,
                _ => continue,
            };
            if !self.is_ending() && self.pause_state.resume(undone.as_deref()).is_ok() {
                self.resume_shards(undone);
            }
        }
    }

    /// A console client has disconnected; it may have been the last admin during a SUSPEND.
    pub(crate) fn console_left(&mut self) {
        if self.pause_state.suspended() {
            self.list(None, &[Subject::Pools], Purpose::Attendance(Aggregate::default()));
        }
    }

    /// Every shard has listed its console clients.
    pub(crate) fn check_admins(&mut self, aggregate: &Aggregate) {
        let mut pools = aggregate.pools.iter();
        let anybody = pools.any(|((database, _), pool)| database == CONSOLE && pool.client_active > 0);
        if anybody || !self.pause_state.suspended() || self.is_ending() {
            return;
        }
        self.log("admin disappeared when suspended, doing RESUME");
        if self.pause_state.resume(None).is_ok() {
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
            assert_eq!(harness.replies.len(), replies + 1, "as if it had never been sent");
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
