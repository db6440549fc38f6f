//! One connection that libldap makes, from its making to its first answer.
//!
//! Owns the callbacks that libldap is given and the watchdog that ends a wait. Never says or reads anything on it.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, ptr};

use super::{Api, Handle, OPTION_NETWORK_TIMEOUT, SUCCESS};
use crate::watchdog::{SocketWatchdog, SocketWatchdogs};

/// Longest wait for the first answer on a connection, TLS included.
const GREETING: Duration = Duration::from_secs(5);
const FAILURE: c_int = -1;
const SOCKET_DESCRIPTOR: c_int = 1;

/// What libldap is to do about a connection that it has made; lives at one place as long as the session does.
#[repr(C)]
pub(super) struct Line<'a> {
    // SAFETY: the type of a callback; libldap calls it with what ldap_get_option(3) says of LDAP_OPT_CONNECT_CB.
    added: unsafe extern "C" fn(Handle, *mut c_void, *mut c_void, *mut c_void, *mut c_void) -> c_int,
    // SAFETY: see above.
    deleted: unsafe extern "C" fn(Handle, *mut c_void, *mut c_void),
    unused: *mut c_void,
    // The above is libldap's, what follows is ours.
    api: &'a Api,
    watchdogs: &'a SocketWatchdogs,
    has_tls: bool,
    burning: Mutex<Vec<SocketWatchdog>>,
}

impl<'a> Line<'a> {
    pub(super) fn new(api: &'a Api, watchdogs: &'a SocketWatchdogs, has_tls: bool) -> Line<'a> {
        let burning = Mutex::default();
        Line {
            added: line_added,
            deleted: line_deleted,
            unused: ptr::null_mut(),
            api,
            watchdogs,
            has_tls,
            burning,
        }
    }

    /// A watchdog ends the wait for the first answer, for libldap's own timeouts do not reach into TLS: with GnuTLS and a
    /// timeout for the network, it asks again and again for what does not come, without end and without a pause. So it
    /// is made to wait instead.
    fn guard(&self, handle: Handle, socket: *mut c_void) -> io::Result<()> {
        let mut descriptor: c_int = -1;
        // SAFETY: libldap's own socket; the place is of the option's type.
        unsafe { (self.api.ber_sockbuf_ctrl)(socket, SOCKET_DESCRIPTOR, (&raw mut descriptor).cast()) };
        if descriptor < 0 {
            return Err(io::ErrorKind::NotConnected.into());
        }
        // SAFETY: the descriptor is open: the connection was just made, by this thread.
        let socket = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()?;
        let watchdog = self.watchdogs.arm(socket, GREETING)?;
        self.burning().push(watchdog);
        if self.has_tls {
            // SAFETY: the handle is live; without a value the option is as if never set.
            unsafe { (self.api.ldap_set_option)(handle, OPTION_NETWORK_TIMEOUT, ptr::null()) };
        }
        Ok(())
    }

    fn burning(&self) -> MutexGuard<'_, Vec<SocketWatchdog>> {
        self.burning.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer came, or none will.
    pub(super) fn disarm(&self) {
        for watchdog in self.burning().drain(..) {
            self.watchdogs.disarm(watchdog);
        }
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        self.disarm();
    }
}

/// A connection was made.
///
/// # Safety
/// Called by libldap alone, with the [`Line`] that it was given.
// SAFETY: see the section above.
unsafe extern "C" fn line_added(
    handle: Handle,
    socket: *mut c_void,
    _server: *mut c_void,
    _address: *mut c_void,
    line: *mut c_void,
) -> c_int {
    // SAFETY: the line outlives the session, and is shared, never changed, while it lasts.
    match unsafe { line.cast::<Line<'_>>().as_ref() }.map(|line| line.guard(handle, socket)) {
        Some(Ok(())) => SUCCESS,
        _ => FAILURE,
    }
}

/// A connection is closed: nothing is to be done, and libldap wants a function all the same.
///
/// # Safety
/// Touches nothing.
// SAFETY: see the section above.
unsafe extern "C" fn line_deleted(_handle: Handle, _socket: *mut c_void, _line: *mut c_void) {}
