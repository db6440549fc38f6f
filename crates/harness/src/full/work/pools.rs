//! Many pools at once, each a database of its own: pgbench has one database for each process, and hundreds of
//! processes would measure the scheduler. So a small generator here: two threads, each with half of the clients on
//! one epoll, each client as fast as it can, pgbench's select-only query.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use wire::encode;
use wire::frame::Splitter;
use wire::tag::backend::{ERROR, READY};

use crate::full::Bench;
use crate::full::account::accounted;
use crate::full::sample::Sample;
use crate::full::subjects::Contender;
use crate::full::work::Label;
use crate::template::pool;
use lab::client::{Client, Login};
use lab::error::{LabError, Result};
use lab::interrupt::Interrupt;
use lab::interval::SplitMix;
use lab::laboratory::ROLE;

const CLIENTS_A_POOL: u32 = 2;
const THREADS: usize = 2;
/// How long the last transactions may take after the end.
const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST_US: u64 = 3_600_000_000;
/// Accounts for one unit of pgbench's scale.
const ACCOUNTS: u64 = 100_000;

/// Runs all pools for `seconds`.
pub(super) fn run(bench: &Bench<'_>, contender: &Contender, label: &Label, seconds: u32) -> Result<Sample> {
    let mut shares = connect(bench, contender)?;
    let accounts = u64::from(bench.sizes.scale) * ACCOUNTS;
    let interrupt = bench.lab.interrupt();
    let time = Duration::from_secs(u64::from(seconds));
    let (tallies, cost) = accounted(contender.leader(), || {
        std::thread::scope(|scope| {
            let threads: Vec<_> = shares
                .drain(..)
                .enumerate()
                .map(|(number, sockets)| {
                    let random = SplitMix(number as u64);
                    scope.spawn(move || {
                        Generator::new(sockets, accounts, random).and_then(|it| it.run(time, interrupt))
                    })
                })
                .collect();
            let ended = threads.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|_| Err(LabError::program("the generator", "it panicked")))
            });
            ended.collect::<Result<Vec<Tally>>>()
        })
    })?;
    let mut times = empty()?;
    for tally in &tallies {
        times.add(&tally.times).map_err(|error| LabError::program("the generator", error.to_string()))?;
    }
    let at = |quantile| times.value_at_quantile(quantile) as f64 / 1000.0;
    let units: f64 = tallies.iter().map(|tally| tally.transactions as f64).sum();
    let took = tallies.iter().map(|tally| tally.seconds).fold(0.0, f64::max);
    let said =
        format!("{units} transactions in {took:.6} s\np50 {} ms, p99 {} ms\n{cost:#?}\n", at(0.5), at(0.99));
    Ok(Sample {
        units,
        rate: (took > 0.0).then(|| units / took),
        mean_ms: Some(times.mean() / 1000.0),
        p50_ms: Some(at(0.5)),
        p99_ms: Some(at(0.99)),
        cost,
        complaints: tallies.into_iter().filter_map(|tally| tally.complaint).take(1).collect(),
        logs: vec![bench.keep(label, "pools", &said)?],
        ..Sample::default()
    })
}

/// Logs the clients in, the two of a pool on different threads.
fn connect(bench: &Bench<'_>, contender: &Contender) -> Result<Vec<Vec<TcpStream>>> {
    let mut shares: Vec<Vec<TcpStream>> = (0..THREADS).map(|_| Vec::new()).collect();
    for number in 0..bench.sizes.pools {
        for client in 0..CLIENTS_A_POOL {
            bench.lab.interrupt().check()?;
            let database = pool(number);
            let socket = Client::socket(contender.target.port, &Login::plain(ROLE, &database))?;
            let share = usize::try_from(client).unwrap_or_default() % THREADS;
            shares[share].push(socket);
        }
    }
    Ok(shares)
}

fn empty() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LONGEST_US, 3)
        .map_err(|error| LabError::program("the generator", error.to_string()))
}

/// What one thread did.
struct Tally {
    transactions: u64,
    seconds: f64,
    times: Histogram<u64>,
    /// What the first client that was refused was told.
    complaint: Option<String>,
}

/// One thread's clients.
struct Generator {
    epoll: OwnedFd,
    clients: Vec<Connection>,
    accounts: u64,
    random: SplitMix,
    tally: Tally,
}

struct Connection {
    socket: TcpStream,
    splitter: Splitter,
    /// When its present transaction began; `None` when it has none.
    begun: Option<Instant>,
}

impl Generator {
    fn new(sockets: Vec<TcpStream>, accounts: u64, random: SplitMix) -> Result<Self> {
        let doing = || LabError::system("preparing many clients");
        let errno = |error: rustix::io::Errno| doing()(error.into());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(errno)?;
        let mut clients = Vec::new();
        for (number, socket) in sockets.into_iter().enumerate() {
            socket.set_nonblocking(true).map_err(doing())?;
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&epoll, &socket, data, epoll::EventFlags::IN).map_err(errno)?;
            clients.push(Connection { socket, splitter: Splitter::new(), begun: None });
        }
        let tally = Tally { transactions: 0, seconds: 0.0, times: empty()?, complaint: None };
        Ok(Self { epoll, clients, accounts, random, tally })
    }

    fn run(mut self, time: Duration, interrupt: &Interrupt) -> Result<Tally> {
        let begin = Instant::now();
        for number in 0..self.clients.len() {
            self.ask(number)?;
        }
        let mut open = self.clients.len();
        let mut events = Vec::with_capacity(256);
        let tick = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        while open > 0 && begin.elapsed() < time + PATIENCE {
            interrupt.check()?;
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&tick)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(LabError::system("waiting for answers")(error.into())),
            }
            for event in &events {
                let number = usize::try_from(event.data.u64()).unwrap_or_default();
                if self.answered(number)? {
                    if begin.elapsed() < time {
                        self.ask(number)?;
                    } else {
                        open -= 1;
                    }
                }
            }
        }
        self.tally.seconds = begin.elapsed().as_secs_f64();
        Ok(self.tally)
    }

    fn ask(&mut self, number: usize) -> Result<()> {
        let account = 1 + self.random.bits() % self.accounts.max(1);
        let text = format!("SELECT abalance FROM pgbench_accounts WHERE aid = {account};");
        let mut out = Vec::with_capacity(96);
        encode::query(&mut out, text.as_bytes());
        let client = &mut self.clients[number];
        client.begun = Some(Instant::now());
        client.socket.write_all(&out).map_err(LabError::system("asking one of many pools"))
    }

    /// Reads what is there; true when it ends a transaction.
    fn answered(&mut self, number: usize) -> Result<bool> {
        let client = &mut self.clients[number];
        let mut buffer = [0; 4096];
        let count = match client.socket.read(&mut buffer) {
            Ok(0) => return Err(LabError::Peer("one of many pools closed a connection".to_owned())),
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(false);
            }
            Err(error) => return Err(LabError::system("reading from one of many pools")(error)),
        };
        let mut rest = &buffer[..count];
        let mut is_done = false;
        while let Ok(Some(piece)) = client.splitter.next(&mut rest) {
            if piece.header.tag == ERROR {
                self.tally.complaint = Some(format!("error: {}", String::from_utf8_lossy(piece.body)));
            }
            is_done |= piece.header.tag == READY && piece.ends;
        }
        if let Some(begun) = client.begun.take_if(|_| is_done) {
            let time_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(LONGEST_US);
            self.tally.times.saturating_record(time_us.max(1));
            self.tally.transactions += 1;
        }
        Ok(is_done)
    }
}
