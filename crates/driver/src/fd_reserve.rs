//! The descriptor in reserve, for when file descriptors run out.
//!
//! Owns one descriptor in reserve: it is given up to let a client of the unix socket in (an administrator who could
//! help), and taken back as soon as one is free. Never accepts by itself.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// How long accepting rests after descriptors ran out, if no connection closes before.
pub(crate) const REST_US: u64 = 1_000_000;

/// The reserve of a process.
pub(crate) struct FdReserve {
    spare: Mutex<Option<OwnedFd>>,
}

impl FdReserve {
    /// Takes a descriptor into reserve.
    pub(crate) fn new() -> FdReserve {
        FdReserve { spare: Mutex::new(spare()) }
    }

    /// Gives the reserve up; true if there was one, so that one more descriptor is free now.
    pub(crate) fn give_up(&self) -> bool {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
    }

    /// Takes a descriptor into reserve again if it can; false if there is none in reserve afterwards.
    pub(crate) fn refill(&self) -> bool {
        let mut reserve = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if reserve.is_none() {
            *reserve = spare();
        }
        reserve.is_some()
    }
}

/// The cheapest descriptor there is.
fn spare() -> Option<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC).ok()
}

/// No descriptor (or memory for one) is left.
pub(crate) fn is_exhaustion(fault: Errno) -> bool {
    matches!(fault, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_given_up_once() {
        let fd_reserve = FdReserve::new();
        assert!(fd_reserve.give_up());
        assert!(!fd_reserve.give_up());
        assert!(fd_reserve.refill());
        assert!(fd_reserve.give_up());
    }
}
