//! Threads for calls that would block a shard: name lookups, key derivation, password checks.
//!
//! Owns the threads. Results go to the mailbox of the requesting shard, which does not wait.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{io, thread};

use auth::{OffloadedTask, TaskResult};
use messages::ShardMessage;
use settings::{Config, Global};

use crate::auth_backends::AuthBackends;
use crate::ids::Requester;
use crate::mailbox::{MailboxMessage, Mailboxes};
use crate::names::Names;
use crate::sys;

/// Threads of each kind: one slow name server must not stop every look-up.
const THREADS: usize = 2;

/// The way to the helper threads; they end when it is dropped.
pub(crate) struct Helpers {
    names: Sender<(Requester, String)>,
    sums: Sender<(Requester, OffloadedTask)>,
    authorities: AuthBackends,
    known: Arc<Names>,
}

impl Helpers {
    /// Starts the threads.
    pub(crate) fn start(mailboxes: &Mailboxes, global: &Global) -> io::Result<Helpers> {
        let shards = mailboxes.clone();
        let tell = move |host: &str, gone: &[std::net::IpAddr]| {
            shards.post_all(|| {
                let moved = ShardMessage::HostMoved { host: host.to_owned(), gone: gone.to_vec() };
                MailboxMessage::ShardMessage(moved)
            });
        };
        let known = Arc::new(Names::new(global, Box::new(tell)));
        let (names, names_asked) = channel::<(Requester, String)>();
        let (sums, sums_asked) = channel::<(Requester, OffloadedTask)>();
        let (looks_up, watches) = (Arc::clone(&known), Arc::clone(&known));
        spawn("weir-names", names_asked, mailboxes, move |requester, host| MailboxMessage::Resolved {
            conn: requester.conn,
            generation: requester.generation,
            addresses: looks_up.look_up(&host),
        })?;
        let work = move || watches.watch_zones();
        thread::Builder::new().name("weir-zones".to_owned()).stack_size(256 * 1024).spawn(work)?;
        spawn("weir-keys", sums_asked, mailboxes, |requester, question| MailboxMessage::Answered {
            conn: requester.conn,
            generation: requester.generation,
            answer: answer(&question),
        })?;
        Ok(Helpers { names, sums, authorities: AuthBackends::new(mailboxes), known })
    }

    /// What a configuration needs and this machine lacks.
    pub(crate) fn lacking(&self, config: &Config) -> Option<String> {
        self.authorities.lacking(config)
    }

    /// What is known of names.
    pub(crate) fn known(&self) -> &Names {
        &self.known
    }

    /// Looks a name up; [`MailboxMessage::Resolved`] follows.
    pub(crate) fn resolve(&self, requester: Requester, host: &str) {
        let _ = self.names.send((requester, host.to_owned()));
    }

    /// Finds out; [`MailboxMessage::Answered`] follows. `patience` is how long the client is waited for (0 is for ever).
    pub(crate) fn ask(&self, requester: Requester, question: OffloadedTask, patience: Duration) {
        match question {
            OffloadedTask::Check(check) => self.authorities.ask(requester, *check, patience),
            quick => drop(self.sums.send((requester, quick))),
        }
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        self.known.close();
    }
}

/// What only the system knows is asked here, the rest is computed.
fn answer(question: &OffloadedTask) -> TaskResult {
    match question {
        OffloadedTask::Account { user_id } => TaskResult::Account(sys::account_name(*user_id)),
        OffloadedTask::Pbkdf2 { .. } | OffloadedTask::Check(_) => question.solve(),
    }
}

fn spawn<Asked: Send + 'static>(
    name: &str,
    asked: Receiver<(Requester, Asked)>,
    mailboxes: &Mailboxes,
    answer: impl Fn(Requester, Asked) -> MailboxMessage + Send + Sync + 'static,
) -> io::Result<()> {
    let (asked, answer) = (Arc::new(Mutex::new(asked)), Arc::new(answer));
    for _ in 0..THREADS {
        let (asked, answer, mailboxes) = (Arc::clone(&asked), Arc::clone(&answer), mailboxes.clone());
        let work = move || {
            loop {
                let next = asked.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok((requester, question)) = next else { return };
                mailboxes.post(requester.shard, answer(requester, question));
            }
        };
        thread::Builder::new().name(name.to_owned()).stack_size(256 * 1024).spawn(work)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::VecDeque;

    use messages::ShardId;
    use shard::ConnId;

    use super::*;
    use crate::ids::Generation;

    #[test]
    fn answers_come_by_mail() {
        let mailboxes = Mailboxes::new(1).unwrap();
        let helpers = Helpers::start(&mailboxes, &Global::default()).unwrap();
        let requester =
            Requester { shard: ShardId(0), conn: ConnId(7), generation: Generation::from_bits(3) };
        helpers.resolve(requester, "localhost");
        let mut messages = VecDeque::new();
        for _ in 0..6_000 {
            mailboxes.of(ShardId(0)).collect(&mut messages);
            if !messages.is_empty() {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let Some(MailboxMessage::Resolved { conn: ConnId(7), generation, addresses: Ok(addresses) }) =
            messages.pop_front()
        else {
            panic!("no answer");
        };
        assert_eq!(generation, requester.generation);
        assert!(addresses.list.iter().all(|address| address.ip().is_loopback()));
        let again = helpers.known().remembered("localhost").unwrap().unwrap();
        assert_ne!(again.turn, addresses.turn, "the next use begins with the next address");
    }
}
