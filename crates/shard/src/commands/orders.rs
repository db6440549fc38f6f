//! Further commands: DISABLE and ENABLE, SUSPEND, WAIT_CLOSE.
//!
//! Owns how each is carried out here. PAUSE, KILL and what ends a process are in `commands`.

use messages::RequestId;
use wire::sqlstate;

use crate::administration::PendingKind;
use crate::link::client_end;
use crate::state::ShardState;
use crate::{ConnId, pending};

impl ShardState {
    /// New clients of this database are refused, or not any more.
    pub(crate) fn disable(&mut self, database: String, disabled: bool) {
        self.core.administration.set_disabled(database, disabled);
    }

    /// Whether an operator has closed a database to new clients.
    pub(crate) fn is_disabled(&self, database: &str) -> bool {
        self.core.administration.is_disabled(database)
    }

    /// Refuses a client whose database is disabled; true if it was.
    pub(crate) fn refuse_if_disabled(&mut self, conn: ConnId, database: &str) -> bool {
        let refuse = self.is_disabled(database);
        if refuse {
            let text = format!("database \"{database}\" is disabled");
            client_end::fail_client(&mut self.core, conn, sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, &text);
        }
        refuse
    }

    /// WAIT_CLOSE: done when what is obsolete is gone.
    pub(crate) fn wait_close(&mut self, request: RequestId, database: Option<String>) {
        self.core.administration.answer_when(request, PendingKind::ObsoleteClosed(database));
        pending::paused_progress(&mut self.core);
    }
}
