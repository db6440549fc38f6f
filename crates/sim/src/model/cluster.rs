//! The model server as a whole, or all servers of a cluster: who is connected, whether it takes connections, its table, its cancel requests.

use super::backend::{Asked, Backend, Gate};
use super::ledger::Ledger;
use super::replication::{Position, Replication};
use super::session::{Notification, Progress, SessionContext};
use crate::network::End;
use crate::prng::Prng;
use crate::sql::Tag;
use crate::swarm::{Hosts, Servers};

/// The server.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// What was committed.
    pub(crate) ledger: Ledger,
    /// What a server must never be sent, and was.
    pub(crate) strange: Vec<(&'static str, String)>,
    /// Backends that another session has woken: drive them.
    pub(crate) woken: Vec<u32>,
    /// Backends that were notified: drive them after this many microseconds.
    pub(crate) signalled: Vec<(u32, u64)>,
    /// Notifications that no one has asked for yet, in the order of commits.
    pub(crate) sent: Vec<Sent>,
    /// Reads of the table that no one has judged yet: by which session, and what its host had.
    pub(crate) reads: Vec<(Tag, u32, Position)>,
    /// How many of them were on standbys.
    pub(crate) standby_reads: u64,
    /// Its hosts, where it has several.
    pub(crate) replication: Option<Replication>,
    backends: Vec<Backend>,
    servers: Servers,
    prng: Prng,
    starting_until_us: u64,
    refusing_until_us: u64,
    silent_until_us: u64,
}

/// The stream of random numbers for what happens between hosts.
const HOSTS: u64 = 8_101;

/// The longest that a notification takes from one backend to another.
const SIGNAL_US: u64 = 20_000;

/// A notification that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) database: String,
    /// Who sent it, if it was a client.
    pub(crate) client: Option<u32>,
    pub(crate) one: Notification,
}

/// How a connection attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// Somebody listens.
    Accepted,
    /// Nobody does.
    Refused,
    /// No answer comes.
    Unanswered,
    /// The pooler has no file descriptor for it.
    NoFile,
}

impl Cluster {
    /// A server that has been up for a while.
    pub(crate) fn new(servers: Servers, hosts: Option<&Hosts>, prng: Prng) -> Cluster {
        Cluster {
            ledger: Ledger::default(),
            strange: Vec::new(),
            woken: Vec::new(),
            signalled: Vec::new(),
            sent: Vec::new(),
            reads: Vec::new(),
            standby_reads: 0,
            replication: hosts.map(|hosts| Replication::new(hosts, prng.split(HOSTS))),
            backends: Vec::new(),
            servers,
            prng,
            starting_until_us: 0,
            refusing_until_us: 0,
            silent_until_us: 0,
        }
    }

    /// What happens to a connection attempt now.
    pub(crate) fn attempt(&self, place: usize, now_us: u64) -> Attempt {
        let hosts = self.replication.as_ref();
        if now_us < self.silent_until_us || hosts.is_some_and(|hosts| now_us < hosts.silent_until_us(place)) {
            Attempt::Unanswered
        } else if now_us < self.refusing_until_us || hosts.is_some_and(|hosts| hosts.is_down(place, now_us)) {
            Attempt::Refused
        } else {
            Attempt::Accepted
        }
    }

    /// A connection was accepted at this end; returns its number.
    pub(crate) fn accept(&mut self, end: End, place: usize) -> u32 {
        let number = u32::try_from(self.backends.len()).unwrap_or(u32::MAX);
        let secret = u32::try_from(self.prng.below(1 << 32)).unwrap_or(0);
        self.backends.push(Backend::new(number, end, secret, place));
        number
    }

    /// A connection.
    pub(crate) fn backend(&mut self, number: u32) -> &mut Backend {
        &mut self.backends[number as usize]
    }

    /// The client whose statement came last on a connection that has not ended.
    pub(crate) fn used_by(&self, number: u32) -> Option<u32> {
        self.backends.get(number as usize).filter(|backend| backend.is_session()).and_then(Backend::used_by)
    }

    /// All connections there ever were.
    pub(crate) fn backends(&self) -> impl Iterator<Item = (u32, &Backend)> {
        (0..).zip(&self.backends)
    }

    /// A connection goes on by one step.
    pub(crate) fn step(&mut self, number: u32, now_us: u64) -> Progress {
        let gate = self.gate(now_us);
        let Cluster { backends, ledger, strange, servers, prng, replication, .. } = self;
        let place = backends[number as usize].place;
        let replica = replication.as_mut().map(|hosts| {
            hosts.others_write(place, now_us);
            hosts.replica(place, now_us)
        });
        let (mut notified, mut reads) = (Vec::new(), Vec::new());
        let mut near = SessionContext {
            prng,
            ledger,
            servers,
            strange,
            notified: &mut notified,
            replica,
            reads: &mut reads,
        };
        let (progress, asked) = backends[number as usize].step(gate, &mut near);
        if let Progress::Busy(us) = progress {
            backends[number as usize].busy_until_us = Some(now_us + us);
        }
        if let Asked::Cancel { process_id, secret } = asked {
            let mut hit = backends.iter_mut().filter(|other| {
                other.key == (process_id, secret) && other.is_session() && other.place == place
            });
            if let Some(other) = hit.next()
                && other.cancel(&mut near)
            {
                self.woken.push(process_id - 10_000);
            }
        }
        if let (Some(hosts), Some(replica)) = (replication, replica) {
            hosts.commit(place, &ledger.take_new(), now_us);
            self.standby_reads += if replica.is_standby { reads.len() as u64 } else { 0 };
            self.reads.extend(reads.into_iter().map(|tag| (tag, number, replica.at)));
        }
        self.notify(number, notified);
        progress
    }

    /// A transaction of this backend has committed that notifies others; it has notified itself.
    fn notify(&mut self, number: u32, notified: Vec<(String, String)>) {
        for (channel, payload) in notified {
            let sender = &self.backends[number as usize];
            let (database, client, process_id) =
                (sender.database().to_owned(), sender.used_by(), sender.key.0);
            let one = Notification { process_id, channel, payload };
            let place = sender.place;
            for (other, backend) in (0..).zip(&mut self.backends) {
                if other != number
                    && backend.place == place
                    && let Some(session) = backend.listener(&database, &one.channel)
                {
                    session.hear(one.clone());
                    self.signalled.push((other, self.prng.log_between(1, SIGNAL_US)));
                }
            }
            self.sent.push(Sent { database, client, one });
        }
    }

    /// See [`Backend::stream_on`].
    pub(crate) fn stream_on(&mut self, number: u32, now_us: u64) -> Option<u64> {
        let Cluster { backends, ledger, strange, servers, prng, .. } = self;
        let mut notified = Vec::new();
        let mut near = SessionContext {
            prng,
            ledger,
            servers,
            strange,
            notified: &mut notified,
            replica: None,
            reads: &mut Vec::new(),
        };
        let pause_us = backends[number as usize].stream_on(&mut near)?;
        backends[number as usize].busy_until_us = Some(now_us + pause_us);
        Some(pause_us)
    }

    /// Ends one of the sessions with FATAL 57P01; its number, if there is one.
    pub(crate) fn terminate_one(&mut self) -> Option<u32> {
        let open: Vec<u32> = self.sessions().collect();
        let number = *open.get(self.prng.index(open.len()))?;
        self.backends[number as usize].terminate("57P01");
        Some(number)
    }

    /// One process dies, the others are made to; for a while the server is starting. Returns all that ended.
    pub(crate) fn crash(&mut self, now_us: u64) -> Vec<u32> {
        let open: Vec<u32> = self.sessions().collect();
        let victim = self.prng.index(open.len());
        for (at, number) in open.iter().enumerate() {
            let backend = &mut self.backends[*number as usize];
            if at == victim { backend.kill() } else { backend.terminate("57P02") }
        }
        self.starting_until_us = now_us + self.servers.starting_us;
        open
    }

    /// The sessions of a host end: its processes are killed, or it is shut down. Returns them.
    pub(crate) fn end_sessions(&mut self, place: usize, is_killed: bool) -> Vec<u32> {
        let is_there = |(_, backend): &(u32, &mut Backend)| backend.place == place && !backend.has_ended();
        let mut ended = Vec::new();
        for (number, backend) in (0..).zip(&mut self.backends).filter(is_there) {
            if is_killed {
                backend.kill()
            } else {
                backend.terminate("57P01")
            }
            ended.push(number);
        }
        ended
    }

    /// Until then a host says nothing.
    pub(crate) fn frozen_until_us(&self, number: u32) -> u64 {
        let place = self.backends[number as usize].place;
        self.replication.as_ref().map_or(0, |hosts| hosts.frozen_until_us(place))
    }

    /// Nobody listens for a while.
    pub(crate) fn refuse_until(&mut self, until_us: u64) {
        self.refusing_until_us = until_us;
    }

    /// Connection attempts go unanswered for a while.
    pub(crate) fn be_silent_until(&mut self, until_us: u64) {
        self.silent_until_us = until_us;
    }

    /// The faults are over.
    pub(crate) fn heal(&mut self, now_us: u64) {
        self.starting_until_us = self.starting_until_us.min(now_us);
        self.refusing_until_us = 0;
        self.silent_until_us = 0;
        self.servers.max_connections = u32::MAX;
        self.replication.iter_mut().for_each(|hosts| hosts.heal(false));
    }

    fn gate(&self, now_us: u64) -> Gate {
        if now_us < self.starting_until_us {
            return Gate::Starting;
        }
        let limit = self.servers.max_connections as usize;
        if limit < 1_000 && self.sessions().count() >= limit { Gate::Full } else { Gate::Open }
    }

    fn sessions(&self) -> impl Iterator<Item = u32> {
        self.backends().filter(|(_, backend)| backend.is_session()).map(|(number, _)| number)
    }
}
