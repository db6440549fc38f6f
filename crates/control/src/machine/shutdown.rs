//! Shutdown: immediate, when servers are idle, or when clients have disconnected.

use messages::{Command, ShutdownMode};

use crate::Control;
use crate::interface::Output;
use crate::request::{Purpose, Request};

impl Control {
    /// A graceful shutdown is in progress.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// TCP is closed at once; the unix socket stays for the console until every shard is empty of what is waited for.
    pub(crate) fn begin_shutdown(&mut self, mode: ShutdownMode) {
        // Clients that wait for servers that are no longer assigned would not leave.
        let waits_for_servers = self.ending == Some(ShutdownMode::WaitForServers);
        let mode = if waits_for_servers { ShutdownMode::WaitForServers } else { mode };
        self.ending = Some(mode);
        if mode == ShutdownMode::WaitForServers {
            // Servers are no longer assigned, as under PAUSE; RESUME is rejected from here on.
            let _ = self.pause_state.pause(None);
        }
        self.requests.close_where(|request| matches!(request.purpose, Purpose::Shutdown));
        self.push(Output::CloseTcp);
        let owed = usize::from(self.facts.shards);
        let request = Request { requester: None, owed, deadline_us: None, purpose: Purpose::Shutdown };
        let request = self.requests.open(request);
        self.broadcast(&Command::Shutdown { request, mode });
    }

    /// Every shard is empty.
    pub(crate) fn end(&mut self) {
        match self.ending {
            Some(ShutdownMode::WaitForClients) => self.log("client connections dropped, exiting"),
            _ => self.log("server connections dropped, exiting"),
        }
        self.push(Output::Exit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Harness;

    #[test]
    fn at_once_is_at_once() {
        let mut harness = Harness::new();
        harness.ask("SHUTDOWN");
        assert!(harness.exited && harness.replies.is_empty() && harness.told.is_empty());
    }

    #[test]
    fn gently_is_answered_at_once_and_resumes_no_more() {
        let mut harness = Harness::new();
        harness.ask("SHUTDOWN wait_for_servers");
        assert_eq!(harness.tag(), "SHUTDOWN");
        assert!(harness.closed_tcp);
        harness.ask("RESUME");
        assert_eq!(harness.error(), ("08P01", "pooler is shutting down"));
        harness.ask("PAUSE");
        assert_eq!(harness.error(), ("08P01", "already suspended/paused"));
        harness.done(0, 0);
        harness.done(1, 0);
        assert!(harness.exited && harness.logged("server connections dropped, exiting"));
    }

    #[test]
    fn servers_that_are_no_longer_assigned_are_all_that_is_waited_for() {
        let mut harness = Harness::new();
        harness.ask("SHUTDOWN WAIT_FOR_SERVERS");
        harness.ask("SHUTDOWN WAIT_FOR_CLIENTS");
        assert_eq!(harness.tag(), "SHUTDOWN");
        let modes = harness.told.iter().filter_map(|(_, command)| match command {
            Command::Shutdown { mode, .. } => Some(*mode),
            _ => None,
        });
        let modes: Vec<_> = modes.collect();
        assert!(modes.len() == 4 && modes.iter().all(|mode| *mode == ShutdownMode::WaitForServers));
    }

    #[test]
    fn the_later_mode_counts() {
        let mut harness = Harness::new();
        harness.ask("SHUTDOWN WAIT_FOR_CLIENTS");
        let first = harness.request();
        harness.ask("SHUTDOWN WAIT_FOR_SERVERS");
        for shard in 0..2 {
            let report = messages::Report::Done { request: first, shard: messages::ShardId(shard), count: 0 };
            harness.input(crate::Input::Report(report));
        }
        assert!(!harness.exited);
        harness.done(0, 0);
        harness.done(1, 0);
        assert!(harness.exited);
    }
}
