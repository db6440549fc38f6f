//! Threads for what would hold a shard up: looking up names and deriving keys.
//!
//! Owns the cache of names. Answers go to the mailbox of the shard that asked; nobody waits for them.

use std::collections::HashMap;
use std::net::ToSocketAddrs;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{io, thread};

use auth::{Answer, Question};
use mail::ShardId;
use shard::ConnId;

use crate::authorities::Authorities;
use crate::clock::monotonic_us;
use crate::connect::Addresses;
use crate::mailbox::{Letter, Mailbox, Ticket};
use crate::sys;

/// How long an answer about a name is kept, good or bad (PgBouncer's `dns_max_ttl` and `dns_nxdomain_ttl`).
const KEPT_US: u64 = 15_000_000;
/// Names that are kept at once; beyond, the cache starts anew.
const NAMES: usize = 1_000;
/// Threads of each kind: one slow name server must not stop every look-up.
const THREADS: usize = 2;

/// Whom an answer is for.
#[derive(Clone, Copy)]
pub(crate) struct Asker {
    pub(crate) shard: ShardId,
    pub(crate) conn: ConnId,
    pub(crate) ticket: Ticket,
}

/// The way to the helper threads; they end when it is dropped.
pub(crate) struct Helpers {
    names: Sender<(Asker, String)>,
    sums: Sender<(Asker, Question)>,
    authorities: Authorities,
    cache: Arc<Cache>,
}

#[derive(Default)]
struct Cache(Mutex<HashMap<String, Kept>>);

struct Kept {
    answer: Result<Addresses, String>,
    until_us: u64,
}

impl Helpers {
    /// Starts the threads.
    pub(crate) fn start(mailboxes: &Arc<[Mailbox]>) -> io::Result<Helpers> {
        let cache = Arc::new(Cache::default());
        let (names, names_asked) = channel::<(Asker, String)>();
        let (sums, sums_asked) = channel::<(Asker, Question)>();
        let known = Arc::clone(&cache);
        spawn("weir-names", names_asked, mailboxes, move |asker, host| Letter::Resolved {
            conn: asker.conn,
            ticket: asker.ticket,
            addresses: known.look_up(&host),
        })?;
        spawn("weir-keys", sums_asked, mailboxes, |asker, question| Letter::Answered {
            conn: asker.conn,
            ticket: asker.ticket,
            answer: answer(&question),
        })?;
        Ok(Helpers { names, sums, authorities: Authorities::new(mailboxes), cache })
    }

    /// A name's addresses, if they were looked up lately.
    pub(crate) fn remembered(&self, host: &str) -> Option<Result<Addresses, String>> {
        self.cache.remembered(host)
    }

    /// Looks a name up; [`Letter::Resolved`] follows.
    pub(crate) fn resolve(&self, asker: Asker, host: &str) {
        let _ = self.names.send((asker, host.to_owned()));
    }

    /// Finds out; [`Letter::Answered`] follows. `patience` is how long the client is waited for (0 is for ever).
    pub(crate) fn ask(&self, asker: Asker, question: Question, patience: Duration) {
        match question {
            Question::Check(check) => self.authorities.ask(asker, *check, patience),
            quick => drop(self.sums.send((asker, quick))),
        }
    }
}

/// What only the system knows is asked here, the rest is computed.
fn answer(question: &Question) -> Answer {
    match question {
        Question::Account { user_id } => Answer::Account(sys::account_name(*user_id)),
        Question::Pbkdf2 { .. } | Question::Check(_) => question.solve(),
    }
}

fn spawn<Asked: Send + 'static>(
    name: &str,
    asked: Receiver<(Asker, Asked)>,
    mailboxes: &Arc<[Mailbox]>,
    answer: impl Fn(Asker, Asked) -> Letter + Send + Sync + 'static,
) -> io::Result<()> {
    let (asked, answer) = (Arc::new(Mutex::new(asked)), Arc::new(answer));
    for _ in 0..THREADS {
        let (asked, answer, mailboxes) = (Arc::clone(&asked), Arc::clone(&answer), Arc::clone(mailboxes));
        let work = move || {
            loop {
                let next = asked.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok((asker, question)) = next else { return };
                if let Some(mailbox) = mailboxes.get(usize::from(asker.shard.0)) {
                    mailbox.post(answer(asker, question));
                }
            }
        };
        thread::Builder::new().name(name.to_owned()).stack_size(256 * 1024).spawn(work)?;
    }
    Ok(())
}

impl Cache {
    fn remembered(&self, host: &str) -> Option<Result<Addresses, String>> {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = names.get_mut(host).filter(|kept| kept.until_us > monotonic_us())?;
        if let Ok(addresses) = &mut kept.answer {
            addresses.turn = addresses.turn.wrapping_add(1);
        }
        Some(kept.answer.clone())
    }

    fn look_up(&self, host: &str) -> Result<Addresses, String> {
        if let Some(answer) = self.remembered(host) {
            return answer;
        }
        let answer = ask_system(host);
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= NAMES {
            names.clear();
        }
        let kept = Kept { answer: answer.clone(), until_us: monotonic_us() + KEPT_US };
        names.insert(host.to_owned(), kept);
        answer
    }
}

/// getaddrinfo; waits.
fn ask_system(host: &str) -> Result<Addresses, String> {
    let mut list = Vec::new();
    for address in (host, 0).to_socket_addrs().map_err(|fault| fault.to_string())? {
        if !list.contains(&address) {
            list.push(address);
        }
    }
    if list.is_empty() {
        return Err("no address".to_owned());
    }
    Ok(Addresses { list: list.into(), turn: 0 })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn answers_come_by_mail() {
        let mailboxes: Arc<[Mailbox]> = Arc::new([Mailbox::new().unwrap()]);
        let helpers = Helpers::start(&mailboxes).unwrap();
        let asker = Asker { shard: ShardId(0), conn: ConnId(7), ticket: 3 };
        helpers.resolve(asker, "localhost");
        let mut letters = VecDeque::new();
        for _ in 0..500 {
            mailboxes[0].collect(&mut letters);
            if !letters.is_empty() {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let Some(Letter::Resolved { conn: ConnId(7), ticket: 3, addresses: Ok(addresses) }) =
            letters.pop_front()
        else {
            panic!("no answer");
        };
        assert!(addresses.list.iter().all(|address| address.ip().is_loopback()));
        let again = helpers.remembered("localhost").unwrap().unwrap();
        assert_ne!(again.turn, addresses.turn, "the next use begins with the next address");
    }
}
