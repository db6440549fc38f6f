//! The thread that looks at quotas: twice a second it collects what shards have counted, and once a second it stores what was used.
//!
//! Owns when that happens, and the file of usage (`quotas_file` with `.usage` added to its name). Whatever is wrong with that file, queries go on and usage is counted from memory.
#![forbid(unsafe_code)]

mod keeper;
mod late;
mod names;
mod store;

use std::sync::mpsc::{RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use quota::Book;
use settings::Config;
use telemetry::{Level, Record};

use crate::keeper::Keeper;

/// Between two looks at what was counted.
const TICK: Duration = Duration::from_millis(500);

/// How long the end of the process waits for the last write.
const LAST_WRITE: Duration = Duration::from_secs(2);

/// The thread's name; a panic of the library that it writes with costs the file, not the process.
pub const THREAD: &str = "weir-usage";

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

/// The thread.
#[derive(Clone)]
pub struct Usage {
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
    /// Starts the thread. Without quotas it sleeps.
    #[must_use]
    pub fn start(config: &Arc<Config>, book: Arc<Mutex<Book>>, clocks: Clocks, log: Log) -> Usage {
        let (orders, given) = channel();
        let mut keeper = Keeper::new(book, clocks, Arc::clone(&log));
        keeper.configure(config);
        let run = move || {
            keeper.tick();
            loop {
                // A thread without work wakes for an order only.
                let order = match keeper.has_work() {
                    true => given.recv_timeout(TICK),
                    false => given.recv().map_err(|_| RecvTimeoutError::Disconnected),
                };
                match order {
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
        };
        if let Err(why) = thread::Builder::new().name(THREAD.to_owned()).spawn(run) {
            log(Record::new(
                Level::Error,
                format!("quotas: cannot start the thread, nothing is limited but connections: {why}"),
            ));
        }
        Usage { orders }
    }

    /// A new configuration is in force.
    pub fn configure(&self, config: &Arc<Config>) {
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
