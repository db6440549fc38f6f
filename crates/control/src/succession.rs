//! Another process takes over from this one (`-R`): what its console asks, and how that ends here.
//! Never moves a connection; the driver and the shards do.

use messages::{Command, RequestId, ShutdownMode};
use telemetry::{Level, Record};

use crate::ask::Ask;
use crate::control::Output;
use crate::pausing::Pausing;
use crate::{Control, Refusal};

/// What has become of a takeover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Succession {
    /// The other process listens now; connections leave for it.
    Begun,
    /// Nothing came of it, for this reason; everything that is still here stays.
    Failed(String),
    /// The other process has ended, and nobody can come to this one any more.
    Orphaned,
    /// RESUME was said to the other process: what could not leave was paused here.
    Resumed {
        /// One database, or all.
        database: Option<String>,
    },
    /// Everything has left.
    Over,
}

/// TAKEOVER, which only another process of ours says: it names the line that it waits at.
pub(crate) fn take_over(control: &mut Control, ask: &Ask<'_>) -> Result<(), Refusal> {
    if control.is_ending() {
        return Err(Refusal::ShuttingDown);
    }
    let line = ask.argument.ok_or_else(|| ask.invalid())?.to_owned();
    control.log("TAKEOVER command issued");
    let note = control.pausing.note();
    control.push(Output::HandOver { line, note });
    control.complete(ask.asker, "TAKEOVER");
    Ok(())
}

impl Control {
    pub(crate) fn succession(&mut self, what: Succession) {
        match what {
            Succession::Begun => {
                self.hands_over = true;
                self.log("another process has taken over, handing on every connection");
            }
            Succession::Failed(why) => {
                let text = format!("takeover failed, going on as before: {why}");
                self.push(Output::Log(Record::new(Level::Warning, text)));
                // It was told to end, and did not because it was ending anyway.
                let ending = self.ending.filter(|_| self.hands_over);
                self.hands_over = false;
                if let Some(mode) = ending {
                    self.begin_shutdown(mode);
                }
            }
            Succession::Orphaned => {
                self.hands_over = false;
                self.log("the process that took over has ended, waiting for all clients disconnect");
                self.begin_shutdown(ShutdownMode::WaitForClients);
            }
            Succession::Resumed { database } => {
                if self.pausing.resume(database.as_deref()).is_ok() {
                    self.resume_shards(database);
                }
            }
            Succession::Over => {
                self.log("everything handed over, exiting");
                self.push(Output::Exit);
            }
        }
    }

    /// A signal asks for a gentle end of a process that is about to end gently. True if that was news.
    pub(crate) fn ends_anyway(&mut self, mode: ShutdownMode) -> bool {
        let is_news = self.hands_over && self.ending.is_none();
        if is_news {
            self.ending = Some(mode);
        }
        is_news
    }

    /// What the predecessor said ([`Output::HandOver`]'s note): what was paused there is paused here. To be called before
    /// anything of it comes in.
    pub fn inherit(&mut self, note: &str) {
        self.pausing = Pausing::from_note(note);
        // Nobody waits for these to be done.
        let request = RequestId(0);
        for database in self.pausing.everything() {
            self.tell_all(&Command::Pause { request, database });
        }
        let disabled: Vec<String> = self.pausing.all_disabled().cloned().collect();
        for database in disabled {
            self.tell_all(&Command::Disable { database, disabled: true });
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
        new.control.inherit(&note);
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
    fn what_could_not_leave_is_resumed_with_the_rest() {
        let mut harness = Harness::new();
        harness.ask("PAUSE app");
        harness.input(Input::Succession(Succession::Begun));
        harness.told.clear();
        let database = Some("app".to_owned());
        harness.input(Input::Succession(Succession::Resumed { database: database.clone() }));
        assert!(
            matches!(&harness.told[..], [(0, Command::Resume { database: resumed }), (1, _)] if *resumed == database)
        );
        assert_eq!(harness.resumed_before, [database], "and a process before, if there is one, too");
        harness.told.clear();
        harness.input(Input::Succession(Succession::Resumed { database: None }));
        assert!(harness.told.is_empty(), "it was not paused here");
    }

    #[test]
    fn it_ends_when_everything_has_left_and_at_once_when_told_twice() {
        let mut harness = Harness::new();
        harness.input(Input::Succession(Succession::Begun));
        harness.signal(Signal::Term);
        assert!(!harness.exited && harness.told.is_empty() && !harness.closed_tcp);
        harness.input(Input::Succession(Succession::Over));
        assert!(harness.exited);
        let mut harness = Harness::new();
        harness.input(Input::Succession(Succession::Begun));
        harness.signal(Signal::Term);
        harness.signal(Signal::Term);
        assert!(harness.exited);
    }

    #[test]
    fn a_takeover_that_fails_leaves_everything_as_it_was() {
        let mut harness = Harness::new();
        harness.input(Input::Succession(Succession::Begun));
        harness.input(Input::Succession(Succession::Failed("gone".to_owned())));
        assert!(harness.logged("takeover failed, going on as before: gone"));
        harness.signal(Signal::Term);
        assert!(harness.closed_tcp);
    }

    #[test]
    fn what_was_told_to_end_meanwhile_ends_also_if_the_takeover_fails() {
        let mut harness = Harness::new();
        harness.input(Input::Succession(Succession::Begun));
        harness.signal(Signal::Term);
        assert!(harness.told.is_empty());
        harness.input(Input::Succession(Succession::Failed("gone".to_owned())));
        assert!(harness.closed_tcp);
        assert!(matches!(harness.told[0].1, Command::Shutdown { mode: ShutdownMode::WaitForClients, .. }));
        let mut harness = Harness::new();
        harness.input(Input::Succession(Succession::Begun));
        harness.input(Input::Succession(Succession::Orphaned));
        assert!(matches!(harness.told[0].1, Command::Shutdown { mode: ShutdownMode::WaitForClients, .. }));
        harness.ask("TAKEOVER line");
        assert_eq!(harness.error(), ("08P01", "pooler is shutting down"));
    }
}
