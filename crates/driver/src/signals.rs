//! Signals as messages: blocked in every thread, waited for by one.
//!
//! Never decides what a signal leads to.

use std::ffi::c_int;
use std::{io, thread};

use messages::Signal;

use crate::sys::{self, SignalSet};

const SIGNALS: [(c_int, Signal); 6] = [
    (libc::SIGHUP, Signal::Hup),
    (libc::SIGINT, Signal::Int),
    (libc::SIGTERM, Signal::Term),
    (libc::SIGQUIT, Signal::Quit),
    (libc::SIGUSR1, Signal::Usr1),
    (libc::SIGUSR2, Signal::Usr2),
];

/// The signals of this process, blocked: none is lost from here on.
pub struct Signals(SignalSet);

/// For a process that one of ours has started and that is no pooler: signals reach it as they reach any other.
pub fn unblock() {
    let _ = SignalSet::of(&SIGNALS.map(|(number, _)| number)).unblock();
}

impl Signals {
    /// Blocks them, and ignores SIGPIPE. To be called before any thread is started: threads inherit it.
    ///
    /// # Errors
    /// The system's.
    pub fn block() -> io::Result<Signals> {
        sys::ignore(libc::SIGPIPE);
        let set = SignalSet::of(&SIGNALS.map(|(number, _)| number));
        set.block()?;
        Ok(Signals(set))
    }

    /// Tells every signal from now on, from a thread of its own that ends with the process.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn deliver(self, tell: impl Fn(Signal) + Send + 'static) -> io::Result<()> {
        let work = move || {
            while let Ok(number) = self.0.wait() {
                if let Some((_, signal)) = SIGNALS.iter().find(|(of, _)| *of == number) {
                    tell(*signal);
                }
            }
        };
        thread::Builder::new().name("weir-signals".to_owned()).stack_size(128 * 1024).spawn(work).map(drop)
    }
}
