//! A small client of PostgreSQL for Weir's threads that ask servers by themselves: where servers are, login, TLS, simple queries, streams.
//!
//! Owns how such a thread begins, and no state; which server is asked what, and when, is its callers'.
#![forbid(unsafe_code)]

mod account;
mod complaints;
mod config_thread;
mod connection;
mod place;
pub mod question;
mod tasks;

pub use account::Account;
pub use complaints::Complaints;
pub use config_thread::ConfigThread;
pub use connection::{Connection, Failure, Outcome, Refusal};
pub use place::{Place, places};
pub use session::Row;
pub use tasks::Tasks;

/// What only the system knows.
#[derive(Clone, Copy)]
pub struct System {
    /// Bytes that cannot be guessed.
    pub fill_random: fn(&mut [u8]),
}

impl auth::Entropy for System {
    fn fill(&mut self, bytes: &mut [u8]) {
        (self.fill_random)(bytes);
    }
}
