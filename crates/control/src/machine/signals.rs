//! Signals as PgBouncer 1.25 takes them. What they lead to is what the commands of the same meaning lead to.

use messages::{ShutdownMode, Signal};

use crate::Control;
use crate::interface::{Operation, OperationKind, Output};

impl Control {
    pub(crate) fn signal(&mut self, signal: Signal) {
        match signal {
            Signal::Hup => {
                self.log("got SIGHUP, re-reading config");
                self.push(Output::Operated(Operation {
                    user: String::new(),
                    from: String::new(),
                    command: "SIGHUP".to_owned(),
                    argument: None,
                    database: None,
                    kind: OperationKind::Reload,
                }));
                self.request_reload(None);
            }
            Signal::Int => self.end_by("SIGINT", ShutdownMode::WaitForServers),
            Signal::Term => self.end_by("SIGTERM", ShutdownMode::WaitForClients),
            Signal::Quit => {
                self.log("got SIGQUIT, fast exit");
                self.push(Output::Exit);
            }
            Signal::Usr1 => self.pause_by_signal(),
            Signal::Usr2 => self.resume_by_signal(),
        }
    }

    fn end_by(&mut self, name: &str, mode: ShutdownMode) {
        if self.is_ending() {
            self.log(format!("got {name} while shutting down, fast exit"));
            self.push(Output::Exit);
            return;
        }
        if self.set_shutdown_mode(mode) {
            self.log(format!(
                "got {name}, another process has taken over: exiting when every connection is gone"
            ));
            return;
        }
        let what = match mode {
            ShutdownMode::WaitForServers => "all servers connections to be released",
            ShutdownMode::WaitForClients => "all clients disconnect",
        };
        self.log(format!("got {name}, shutting down, waiting for {what}"));
        self.begin_shutdown(mode);
    }

    fn pause_by_signal(&mut self) {
        if self.pause_state.pause(None).is_err() {
            self.log("got SIGUSR1, but already paused/suspended");
            return;
        }
        self.log("got SIGUSR1, pausing all activity");
        self.pause_shards(None, None);
    }

    fn resume_by_signal(&mut self) {
        if self.is_ending() {
            self.log("got SIGUSR2 while shutting down, ignoring");
        } else if self.pause_state.resume(None).is_err() {
            self.log("got SIGUSR2, but not paused/suspended");
        } else {
            self.log("got SIGUSR2, continuing from PAUSE");
            self.resume_shards(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Harness;
    use messages::Command;

    #[test]
    fn a_second_request_to_end_ends_at_once() {
        for (first, second) in
            [(Signal::Term, Signal::Term), (Signal::Int, Signal::Int), (Signal::Term, Signal::Int)]
        {
            let mut harness = Harness::new();
            harness.signal(first);
            assert!(harness.closed_tcp && !harness.exited);
            harness.signal(second);
            assert!(harness.exited);
        }
    }

    #[test]
    fn gentle_ends_end_when_every_shard_is_empty() {
        for (signal, mode) in
            [(Signal::Term, ShutdownMode::WaitForClients), (Signal::Int, ShutdownMode::WaitForServers)]
        {
            let mut harness = Harness::new();
            harness.signal(signal);
            assert!(matches!(harness.told[0].1, Command::Shutdown { mode: told, .. } if told == mode));
            harness.done(0, 0);
            assert!(!harness.exited);
            harness.done(1, 0);
            assert!(harness.exited);
        }
    }

    #[test]
    fn commands_and_a_reload_by_signal_are_operations() {
        let mut harness = Harness::new();
        harness.ask("PAUSE app");
        harness.ask("SHOW POOLS");
        harness.signal(Signal::Hup);
        let done: Vec<_> = harness
            .operations
            .iter()
            .map(|one| (one.command.as_str(), one.argument.as_deref(), one.kind, one.user.as_str()))
            .collect();
        let expected = [
            ("PAUSE", Some("app"), OperationKind::Command, "boss"),
            ("SIGHUP", None, OperationKind::Reload, ""),
        ];
        assert_eq!(done, expected);
    }

    #[test]
    fn quit_waits_for_nothing() {
        let mut harness = Harness::new();
        harness.signal(Signal::Quit);
        assert!(harness.exited);
    }

    #[test]
    fn usr1_pauses_and_usr2_resumes() {
        let mut harness = Harness::new();
        harness.signal(Signal::Usr2);
        assert!(harness.logged("got SIGUSR2, but not paused/suspended") && harness.told.is_empty());
        harness.signal(Signal::Usr1);
        harness.signal(Signal::Usr1);
        assert!(harness.logged("got SIGUSR1, but already paused/suspended"));
        harness.signal(Signal::Usr2);
        assert!(matches!(harness.told[..], [_, _, (0, Command::Resume { database: None }), _]));
        harness.signal(Signal::Term);
        harness.signal(Signal::Usr2);
        assert!(harness.logged("got SIGUSR2 while shutting down, ignoring"));
    }
}
