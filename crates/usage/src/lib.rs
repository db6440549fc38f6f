//! The threads that look at quotas: twice a second one collects what shards have counted, and once a second the other stores what was used.
//!
//! Owns when that happens, and the file of usage (`quotas_file` with `.usage` added to its name). Whatever is wrong with that file, or however long its disk takes, queries go on and
//! usage is counted from memory.
#![forbid(unsafe_code)]

mod judge;
mod keeper;
mod late;
mod names;
mod store;

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use quota::Book;
use settings::Config;
use telemetry::{Level, Record};

use crate::judge::Judge;
use crate::keeper::Keeper;

/// Between two looks at what was counted.
const TICK: Duration = Duration::from_millis(500);

/// How long the end of the process waits for the last write.
const LAST_WRITE: Duration = Duration::from_secs(2);

/// The name of the thread that stores; a panic of the library that it writes with costs the file, not the process.
pub const THREAD: &str = "weir-usage";

/// The name of the thread that looks.
const JUDGE_THREAD: &str = "weir-quota";

/// Writes to the log.
pub type Log = Arc<dyn Fn(Record) + Send + Sync>;

/// The clocks, of which this crate has none.
#[derive(Clone, Copy)]
pub struct Clocks {
    /// Microseconds of a clock that is never set.
    pub monotonic_us: fn() -> u64,
    /// Seconds since 1970.
    pub wall_s: fn() -> u64,
}

impl Clocks {
    pub(crate) fn now(self) -> quota::Instant {
        quota::Instant { wall_s: (self.wall_s)(), mono_us: (self.monotonic_us)() }
    }
}

/// The threads.
#[derive(Clone)]
pub struct Usage {
    judge: Judge,
    /// Whether there are quotas, for the thread that looks.
    switch: Sender<bool>,
    orders: Sender<Order>,
}

pub(crate) enum Order {
    Configure(Arc<Config>),
    /// Another process has taken over: the file is its own.
    HandOver,
    /// It has not, or has ended.
    TakeBack,
    /// Write, and say so.
    Stop(SyncSender<()>),
}

impl Usage {
    /// Starts the threads. Without quotas they sleep.
    #[must_use]
    pub fn start(config: &Arc<Config>, book: Arc<Mutex<Book>>, clocks: Clocks, log: Log) -> Usage {
        let (switch, switched) = channel();
        let (orders, given) = channel();
        let judge = Judge::new(book, clocks, Arc::clone(&log));
        judge.configure(config);
        let mut keeper = Keeper::new(judge.clone(), clocks, Arc::clone(&log));
        keeper.configure(config);
        let (looking, has_quotas) = (judge.clone(), has_quotas(config));
        begin(JUDGE_THREAD, "nothing is limited but connections", &log, move || {
            judge_always(&looking, has_quotas, &switched);
        });
        begin(THREAD, "what is used is not stored", &log, move || keep_always(keeper, &given));
        Usage { judge, switch, orders }
    }

    /// A new configuration is in force.
    pub fn configure(&self, config: &Arc<Config>) {
        // At once: what the file has is put into accounts that are there by these rules.
        self.judge.configure(config);
        let _ = self.switch.send(has_quotas(config));
        let _ = self.orders.send(Order::Configure(Arc::clone(config)));
    }

    /// Another process has taken over, and has the file from now on; or it has not, and this one goes on.
    pub fn set_handed_over(&self, is_handed_over: bool) {
        let _ = self.orders.send(if is_handed_over { Order::HandOver } else { Order::TakeBack });
    }

    /// Writes what was used up to now; to be called before the process ends.
    pub fn stop(&self) {
        let (done, is_done) = sync_channel(1);
        if self.orders.send(Order::Stop(done)).is_ok() {
            let _ = is_done.recv_timeout(LAST_WRITE);
        }
    }
}

/// Begins a thread; `or_else` is what comes of it if the system has none.
fn begin(name: &str, or_else: &str, log: &Log, run: impl FnOnce() + Send + 'static) {
    if let Err(why) = thread::Builder::new().name(name.to_owned()).spawn(run) {
        log(Record::new(Level::Error, format!("quotas: cannot start the thread {name}, {or_else}: {why}")));
    }
}

fn has_quotas(config: &Config) -> bool {
    !config.quotas.is_empty()
}

/// Looks at what was counted, as long as the process is there. It does not wait for the file: what is used up is refused in time.
fn judge_always(judge: &Judge, mut is_on: bool, switched: &Receiver<bool>) {
    loop {
        // Without quotas it wakes for a configuration only.
        match next(switched, is_on) {
            Ok(has_quotas) => is_on = has_quotas,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        judge.look();
    }
}

/// The next order, or the end of a tick. A thread without work wakes for an order only.
fn next<T>(orders: &Receiver<T>, has_work: bool) -> Result<T, RecvTimeoutError> {
    match has_work {
        true => orders.recv_timeout(TICK),
        false => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
    }
}

/// Stores usage, and carries out orders.
fn keep_always(mut keeper: Keeper, orders: &Receiver<Order>) {
    keeper.tick();
    loop {
        match next(orders, keeper.has_work()) {
            Ok(Order::Configure(config)) => keeper.configure(&config),
            Ok(Order::HandOver) => keeper.hand_over(),
            Ok(Order::TakeBack) => keeper.take_back(),
            Ok(Order::Stop(done)) => {
                keeper.end();
                let _ = done.send(());
                return;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return keeper.end(),
        }
        keeper.tick();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io;
    use std::sync::mpsc::channel;

    use quota::ClientMeters;
    use settings::Files;

    use super::*;

    struct Ini;

    impl Files for Ini {
        fn read(&self, path: &str) -> io::Result<Vec<u8>> {
            match path {
                "weir.ini" => Ok(b"[pgbouncer]\nquotas_file = /dev/null/quotas\n".to_vec()),
                "/dev/null/quotas" => Ok(b"user alice queries/hour hard=1\n".to_vec()),
                _ => Err(io::ErrorKind::NotFound.into()),
            }
        }
    }

    #[test]
    fn what_is_used_up_is_seen_while_the_file_is_waited_for() {
        let config = Arc::new(settings::load(&Ini, "weir.ini", &[]).unwrap());
        let (is_released, released) = channel::<()>();
        let (is_waiting, waiting) = channel();
        let released = Mutex::new(released);
        // The thread that stores is kept where it says that it cannot open the file.
        let log: Log = Arc::new(move |record| {
            if record.text.contains("cannot open") {
                is_waiting.send(()).unwrap();
                let _ = released.lock().unwrap().recv();
            }
        });
        let book = Arc::new(Mutex::new(Book::default()));
        let clocks = Clocks { monotonic_us: || 1, wall_s: || 1_800_000_000 };
        let usage = Usage::start(&config, Arc::clone(&book), clocks, log);
        waiting.recv().unwrap();
        let meters = book.lock().unwrap().meters("alice", "app", "");
        let client = ClientMeters::enter(meters, false, 0).unwrap();
        client.add(0, 2, 0);
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while client.concern().is_none() {
            assert!(std::time::Instant::now() < deadline, "the limit was not noticed in 30 s");
            thread::sleep(Duration::from_millis(10));
        }
        drop((is_released, usage));
    }
}
