//! Further commands: DISABLE and ENABLE, SUSPEND, WAIT_CLOSE.
//!
//! Owns how each is carried out here. PAUSE, KILL and what ends a process are in `commands`.

use messages::RequestId;
use wire::sqlstate;

use crate::ConnId;
use crate::administration::PendingKind;
use crate::client;
use crate::connections::Conn;
use crate::core::Core;
use crate::server;
use crate::state::ShardState;
use crate::time::micros;

impl ShardState {
    /// New clients of this database are refused, or not any more.
    pub(crate) fn disable(&mut self, database: String, disabled: bool) {
        self.administration.set_disabled(database, disabled);
    }

    /// Whether an operator has closed a database to new clients.
    pub(crate) fn is_disabled(&self, database: &str) -> bool {
        self.administration.is_disabled(database)
    }

    /// Refuses a client whose database is disabled; true if it was.
    pub(crate) fn refuse_if_disabled(&mut self, conn: ConnId, database: &str) -> bool {
        let refuse = self.is_disabled(database);
        if refuse {
            let text = format!("database \"{database}\" is disabled");
            self.fail_client(conn, sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, &text);
        }
        refuse
    }

    /// No server is checked out and nothing is read any more, except the console and logins.
    pub(crate) fn suspend(&mut self, request: RequestId) {
        self.administration.suspend(self.core.now.mono_us);
        for local_pool in self.core.local_pools.values_mut() {
            local_pool.pool.paused = true;
        }
        let clients =
            self.core.conns.ids(|conn| matches!(conn, Conn::Client(client) if client.server().is_some()));
        let servers =
            self.core.conns.ids(|conn| matches!(conn, Conn::Server(server) if server.client().is_some()));
        for conn in clients {
            self.core.pause_client(conn);
        }
        for conn in servers {
            self.core.pause_server(conn);
        }
        self.administration.answer_when(request, PendingKind::Suspended);
        self.paused_progress();
    }

    /// Ends SUSPEND where no RESUME will come; false if it was not in force. The caller serves the pools.
    pub(crate) fn end_suspension(&mut self) -> bool {
        if !self.administration.is_suspended() {
            return false;
        }
        self.administration.retain_pending(|pending| !matches!(pending.what, PendingKind::Suspended));
        self.stand_no_more();
        for local_pool in self.core.local_pools.values_mut() {
            local_pool.pool.paused = local_pool.paused_by_command;
        }
        true
    }

    /// RESUME after SUSPEND: everything is read again. The caller resumes the pools.
    pub(crate) fn stand_no_more(&mut self) {
        if !self.administration.end_suspension() {
            return;
        }
        for conn in self.core.conns.ids(|conn| matches!(conn, Conn::Client(client) if client.paused)) {
            self.resume_client(conn);
        }
        for conn in self.core.conns.ids(|conn| matches!(conn, Conn::Server(server) if server.paused)) {
            let client = self.core.server(conn).and_then(|server| server.client());
            let send_buffer_full = client
                .and_then(|client| self.core.client(client))
                .is_some_and(|client| client.send_buffer_full);
            if !send_buffer_full {
                self.resume_server(conn);
            }
        }
    }

    /// Closes those that keep a SUSPEND waiting for too long.
    pub(crate) fn check_suspend_deadline(&mut self) {
        let limit_us = micros(self.core.config.global.suspend_timeout);
        let since_us = self.administration.suspended_since_us().unwrap_or(self.core.now.mono_us);
        if limit_us == 0 || self.core.now.mono_us.saturating_sub(since_us) < limit_us {
            return;
        }
        for conn in self.core.unsent_conns() {
            match self.core.conns.get(conn) {
                Some(Conn::Client(_)) => self.disconnect_client(conn, "suspend_timeout"),
                Some(Conn::Server(_)) => self.server_fault(conn, "suspend_timeout"),
                _ => {}
            }
        }
    }

    /// WAIT_CLOSE: done when what is obsolete is gone.
    pub(crate) fn wait_close(&mut self, request: RequestId, database: Option<String>) {
        self.administration.answer_when(request, PendingKind::ObsoleteClosed(database));
        self.paused_progress();
    }
}

impl Core {
    /// SUSPEND is done when no connection has output left to send; `suspend_timeout` closes slower connections.
    pub(crate) fn is_still(&self) -> bool {
        self.unsent_conns().is_empty()
    }

    fn unsent_conns(&self) -> Vec<ConnId> {
        self.conns.ids(|conn| match conn {
            Conn::Client(client) => {
                client.send_buffer_full && !matches!(client.phase, client::Phase::Closing)
            }
            Conn::Server(server) => server.unsent && server.is_live(),
            _ => false,
        })
    }

    /// No server of this database (all) is to be closed as soon as it is free, or is being closed.
    pub(crate) fn has_no_obsolete(&self, database: Option<&str>) -> bool {
        let going = |server: &server::Server| {
            server.close_when_free.is_some()
                || matches!(server.phase, server::Phase::Leaving { .. } | server::Phase::Closing)
        };
        !self.conns.iter().any(|(_, conn)| match conn {
            Conn::Server(server) if going(server) => self
                .local_pools
                .get(server.pool)
                .is_some_and(|local_pool| database.is_none_or(|name| name == &*local_pool.database_name)),
            _ => false,
        })
    }
}
