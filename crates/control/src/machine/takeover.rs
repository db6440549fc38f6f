//! A takeover by another process (`-R`): its console command, and the exit of this process.
//! The driver and the shards move the connections.

use std::sync::Arc;

use messages::{Command, Drain, RequestId, ShutdownMode};
use settings::Config;
use telemetry::{Level, Record};

use crate::interface::Output;
use crate::machine::commands::log_command;
use crate::machine::dispatch::CommandContext;
use crate::pause_state::PauseState;
use crate::topology::Topologies;
use crate::{CommandError, Control, TakeoverEvent};

/// TAKEOVER, sent by another Weir process: names the channel that it waits on.
pub(crate) fn take_over(control: &mut Control, context: &CommandContext<'_>) -> Result<(), CommandError> {
    if control.is_ending() {
        return Err(CommandError::ShuttingDown);
    }
    let line = context.argument.ok_or_else(|| context.invalid())?.to_owned();
    log_command(control, context, "TAKEOVER", None);
    let note = control.pause_state.note() + &control.topologies.note();
    let note = note + &control.role_members_note() + &control.fleet_peers_note() + &control.fleet_held_note();
    control.push(Output::HandOver { line, note });
    control.complete(context.requester, "TAKEOVER");
    Ok(())
}

impl Control {
    pub(crate) fn takeover_event(&mut self, what: TakeoverEvent) {
        match what {
            TakeoverEvent::Begun => {
                self.hands_over = true;
                self.log("another process has taken over, handing over every connection");
            }
            TakeoverEvent::Failed(why) => {
                let text = format!("takeover failed, continuing as before: {why}");
                self.push(Output::Log(Record::new(Level::Warning, text)));
                // A shutdown was requested meanwhile and deferred to the takeover.
                let ending = self.ending.filter(|_| self.hands_over);
                self.hands_over = false;
                self.configure_shards();
                if let Some(mode) = ending {
                    self.begin_shutdown(mode);
                }
                self.retry_fleet_pools();
                self.follow_fleet_pools();
            }
            TakeoverEvent::Orphaned => {
                self.hands_over = false;
                self.configure_shards();
                self.log("the process that took over has ended, waiting for all clients disconnect");
                self.begin_shutdown(ShutdownMode::WaitForClients);
            }
            TakeoverEvent::Resumed { database } => {
                if self.pause_state.resume(database.as_deref()).is_ok() {
                    self.resume_shards(database);
                }
            }
            TakeoverEvent::Over => {
                self.log("everything handed over, exiting");
                self.push(Output::Exit);
            }
        }
    }

    /// While they hand over, shards take no configuration: the one in force is told when they go on.
    fn configure_shards(&mut self) {
        self.broadcast(&Command::Configure(Arc::clone(&self.config)));
    }

    /// A graceful shutdown is requested during a takeover. True if it had not been before.
    pub(crate) fn set_shutdown_mode(&mut self, mode: ShutdownMode) -> bool {
        let is_news = self.hands_over && self.ending.is_none();
        if is_news {
            self.ending = Some(mode);
        }
        is_news
    }

    /// Imports the predecessor's state ([`Output::HandOver`]'s note): what was paused there is paused here. To be called
    /// before any of its connections arrive.
    pub fn import(&mut self, note: &str) {
        self.pause_state = PauseState::from_note(note);
        self.topologies = Topologies::from_note(note, &self.config);
        self.import_fleet_held(note);
        let knows_members = self.import_role_members(note);
        let knows_peers = self.import_fleet_peers(note);
        if knows_members || knows_peers || !self.topologies.is_empty() {
            self.put_in_force(Config::clone(&self.config.clone()));
        }
        // These have no requester.
        let request = RequestId(0);
        for database in self.pause_state.everything() {
            self.broadcast(&Command::Pause { request, database });
        }
        let disabled: Vec<String> = self.pause_state.all_disabled().cloned().collect();
        for database in disabled {
            self.broadcast(&Command::Disable { database, disabled: true });
        }
        if self.pause_state.drain() != Drain::Off {
            self.broadcast(&Command::Drain(self.pause_state.drain()));
            self.push(Output::Draining(true));
        }
        let detached: Vec<(String, String)> = self.pause_state.all_detached().cloned().collect();
        for (database, host) in detached {
            self.broadcast(&Command::Detach { request, database, host, detached: true });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Harness;
    use crate::{Input, Signal};

    #[test]
    fn what_is_paused_stays_paused_in_the_next_process() {
        let mut old = Harness::new();
        old.ask("PAUSE app");
        old.ask("DISABLE other");
        old.ask("TAKEOVER line");
        assert_eq!(old.tag(), "TAKEOVER");
        let (line, note) = old.handed_over.clone().expect("an output");
        assert_eq!(line, "line");
        let mut new = Harness::new();
        new.control.import(&note);
        new.input(Input::Tick);
        let [
            (0, Command::Pause { database: Some(paused), .. }),
            _,
            (0, Command::Disable { database, .. }),
            _,
        ] = &new.told[..]
        else {
            panic!("{:?}", new.told)
        };
        assert_eq!((paused.as_str(), database.as_str()), ("app", "other"));
        new.ask("RESUME app");
        assert_eq!(new.tag(), "RESUME");
    }

    #[test]
    fn what_is_detached_stays_detached_in_the_next_process() {
        let entries = "[databases]\nmy-db = host=h1,h2 pool_mode=transaction read_write_split=1\n";
        let mut old = Harness::with(1, entries);
        old.ask("DETACH my-db h2");
        old.ask("TAKEOVER line");
        let (_, note) = old.handed_over.clone().expect("an output");
        let mut new = Harness::with(1, entries);
        new.control.import(&note);
        new.input(Input::Tick);
        let [(0, Command::Detach { database, host, detached: true, .. })] = &new.told[..] else {
            panic!("{:?}", new.told)
        };
        assert_eq!((database.as_str(), host.as_str()), ("my-db", "h2:5432"));
        let rows = new.show("SHOW HOSTS", &crate::harness::empty);
        assert_eq!(rows[1][3], messages::Cell::from("detached"));
    }

    #[test]
    fn what_could_not_leave_is_resumed_with_the_rest() {
        let mut harness = Harness::new();
        harness.ask("PAUSE app");
        harness.input(Input::Takeover(TakeoverEvent::Begun));
        harness.told.clear();
        let database = Some("app".to_owned());
        harness.input(Input::Takeover(TakeoverEvent::Resumed { database: database.clone() }));
        assert!(
            matches!(&harness.told[..], [(0, Command::Resume { database: resumed }), (1, _)] if *resumed == database)
        );
        assert_eq!(harness.resumed_before, [database], "and a process before, if there is one, too");
        harness.told.clear();
        harness.input(Input::Takeover(TakeoverEvent::Resumed { database: None }));
        assert!(harness.told.is_empty(), "it was not paused here");
    }

    #[test]
    fn it_ends_when_everything_has_left_and_at_once_when_told_twice() {
        let mut harness = Harness::new();
        harness.input(Input::Takeover(TakeoverEvent::Begun));
        harness.signal(Signal::Term);
        assert!(!harness.exited && harness.told.is_empty() && !harness.closed_tcp);
        harness.input(Input::Takeover(TakeoverEvent::Over));
        assert!(harness.exited);
        let mut harness = Harness::new();
        harness.input(Input::Takeover(TakeoverEvent::Begun));
        harness.signal(Signal::Term);
        harness.signal(Signal::Term);
        assert!(harness.exited);
    }

    #[test]
    fn a_takeover_that_fails_leaves_everything_as_it_was() {
        let mut harness = Harness::new();
        harness.input(Input::Takeover(TakeoverEvent::Begun));
        harness.input(Input::Takeover(TakeoverEvent::Failed("gone".to_owned())));
        assert!(harness.logged("takeover failed, continuing as before: gone"));
        harness.signal(Signal::Term);
        assert!(harness.closed_tcp);
    }

    #[test]
    fn what_was_told_to_end_meanwhile_ends_also_if_the_takeover_fails() {
        let mut harness = Harness::new();
        harness.input(Input::Takeover(TakeoverEvent::Begun));
        harness.signal(Signal::Term);
        assert!(harness.told.is_empty());
        harness.input(Input::Takeover(TakeoverEvent::Failed("gone".to_owned())));
        assert!(harness.closed_tcp);
        let is_told = |harness: &Harness| {
            let told = harness.told.iter().map(|(_, command)| command);
            let is_end = |command: &&Command| {
                matches!(command, Command::Shutdown { mode: ShutdownMode::WaitForClients, .. })
            };
            let before = told.take_while(|command| !is_end(command)).collect::<Vec<_>>();
            let is_in_force = |command: &&Command| matches!(command, Command::Configure(config) if Arc::ptr_eq(config, &harness.control.config));
            before.len() < harness.told.len() && !before.is_empty() && before.iter().all(is_in_force)
        };
        assert!(is_told(&harness), "what was reloaded meanwhile, and the end");
        let mut harness = Harness::new();
        harness.input(Input::Takeover(TakeoverEvent::Begun));
        harness.input(Input::Takeover(TakeoverEvent::Orphaned));
        assert!(is_told(&harness));
        harness.ask("TAKEOVER line");
        assert_eq!(harness.error(), ("08P01", "pooler is shutting down"));
    }
}
