//! Clients that write numbers and read them back, and what became of each: acknowledged ones must be there once, whatever happens to the servers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lab::client::Client;
use lab::error::{LabError, Result};
use lab::figures;
use lab::laboratory::{Lab, ROLE};

use super::POOL;

/// Between two transactions of a client.
const PAUSE: Duration = Duration::from_millis(10);

/// How long clients may take to end.
const PATIENCE: Duration = Duration::from_secs(40);

/// Clients at work.
pub(super) struct Ledger {
    clients: Vec<JoinHandle<Account>>,
    is_over: Arc<AtomicBool>,
}

/// What one client has seen.
#[derive(Default)]
struct Account {
    acknowledged: Vec<u64>,
    /// When each of them was.
    at: Vec<Instant>,
    longest: Duration,
    /// Reads that did not see the number that their client had written before.
    missed: u64,
    errors: Vec<String>,
}

/// What became of all.
pub(super) struct Outcome {
    account: Account,
    lost: usize,
    doubled: usize,
}

impl Ledger {
    /// Makes the table and starts the clients.
    pub(super) fn open(lab: &Lab, port: u16, clients: u32) -> Result<Ledger> {
        let mut owner = Client::connect(lab.cluster().port(), ROLE, ROLE)?;
        owner.query("CREATE TABLE ledger (n bigint)")?;
        owner.query("CREATE INDEX ON ledger (n)")?;
        let is_over = Arc::new(AtomicBool::new(false));
        let numbers = Arc::new(AtomicU64::new(1));
        let begin = |_| {
            let (is_over, numbers) = (Arc::clone(&is_over), Arc::clone(&numbers));
            thread::spawn(move || work(port, &numbers, &is_over))
        };
        let clients = (0..clients).map(begin).collect();
        Ok(Ledger { clients, is_over })
    }

    /// Ends the clients and looks for their numbers on `server`, which is the primary now.
    pub(super) fn close(self, server: &mut Client) -> Result<Outcome> {
        self.is_over.store(true, Ordering::Relaxed);
        let until = Instant::now() + PATIENCE;
        let mut account = Account::default();
        for client in self.clients {
            while !client.is_finished() {
                if Instant::now() > until {
                    return Err(LabError::program("a client", "its request is not answered"));
                }
                thread::sleep(PAUSE);
            }
            let of_one = client.join().map_err(|_| LabError::program("a client", "it panicked"))?;
            account.take(of_one);
        }
        let mut there: BTreeMap<u64, usize> = BTreeMap::new();
        for row in server.query("SELECT n FROM ledger")? {
            let number = row.first().cloned().flatten().and_then(|number| number.parse().ok());
            *there.entry(number.unwrap_or_default()).or_default() += 1;
        }
        let lost = account.acknowledged.iter().filter(|number| !there.contains_key(number)).count();
        let doubled = there.values().filter(|count| **count > 1).count();
        Ok(Outcome { account, lost, doubled })
    }
}

impl Account {
    fn take(&mut self, other: Account) {
        self.acknowledged.extend(other.acknowledged);
        self.at.extend(other.at);
        self.longest = self.longest.max(other.longest);
        self.missed += other.missed;
        self.errors.extend(other.errors);
    }
}

impl Outcome {
    /// For the reader; the time is that of the promotion.
    pub(super) fn lines(&self, promoted: Instant) -> Vec<String> {
        let account = &self.account;
        let first = account.at.iter().filter(|at| **at >= promoted).min();
        let first = first.map_or(f64::NAN, |at| at.duration_since(promoted).as_secs_f64());
        let mut lines = vec![
            format!(
                "first commit {first:.2} s after the promotion; longest wait of a client {:.2} s",
                account.longest.as_secs_f64()
            ),
            format!(
                "{} acknowledged, {} lost, {} doubled; {} reads did not see their client's own write",
                figures::whole(account.acknowledged.len() as f64),
                self.lost,
                self.doubled,
                account.missed
            ),
            format!("{} errors, of what was under way on the primary when it died", account.errors.len()),
        ];
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        account.errors.iter().for_each(|error| *kinds.entry(error).or_default() += 1);
        lines.extend(kinds.iter().map(|(error, count)| format!("  {count} x {error}")));
        lines
    }

    /// # Errors
    /// An acknowledged transaction is not there, one is there twice, or a read missed its client's own write.
    pub(super) fn verdict(&self) -> Result<()> {
        if self.lost + self.doubled > 0 || self.account.missed > 0 {
            return Err(LabError::program(
                "the ledger",
                "a transaction is lost or doubled, or a read missed a write",
            ));
        }
        Ok(())
    }
}

/// One client until it is over.
fn work(port: u16, numbers: &AtomicU64, is_over: &AtomicBool) -> Account {
    let (mut account, mut client) = (Account::default(), None);
    while !is_over.load(Ordering::Relaxed) {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        let begun = Instant::now();
        if let Err(error) = write_and_read(port, number, &mut client, &mut account) {
            account.errors.push(error.to_string());
            client = None;
        }
        account.longest = account.longest.max(begun.elapsed());
        thread::sleep(PAUSE);
    }
    account
}

/// Writes a number, which is acknowledged then, and reads it.
fn write_and_read(port: u16, number: u64, client: &mut Option<Client>, account: &mut Account) -> Result<()> {
    let client = match client {
        Some(client) => client,
        None => client.insert(Client::connect(port, ROLE, POOL)?),
    };
    client.query(&format!("INSERT INTO ledger VALUES ({number})"))?;
    account.acknowledged.push(number);
    account.at.push(Instant::now());
    let rows = client.query(&format!("SELECT n FROM ledger WHERE n = {number}"))?;
    account.missed += u64::from(rows.len() != 1);
    Ok(())
}
