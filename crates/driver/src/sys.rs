//! System calls that no safe wrapper offers: signals, users and groups, interfaces, fork, passed descriptors,
//! syslog, one socket option.
//!
//! Every function here is safe to call; the reasons stand at each block.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_int};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::{io, mem, ptr};

/// TCP_DEFER_ACCEPT, in seconds; 0 turns it off. A refusal only costs a wake-up per connection.
pub(crate) fn set_defer_accept(socket: BorrowedFd<'_>, seconds: c_int) {
    let length = libc::socklen_t::try_from(size_of::<c_int>()).unwrap_or(0);
    // SAFETY: the descriptor is borrowed, the value lives on this stack and its length is given.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            length,
        );
    }
}

/// SO_BUF_LOCK: whether the process has fixed the size of the socket's buffers, so that the kernel does not adapt them.
pub(crate) fn has_fixed_buffers(socket: BorrowedFd<'_>) -> bool {
    let mut locks: c_int = 0;
    let mut length = libc::socklen_t::try_from(size_of::<c_int>()).unwrap_or(0);
    // SAFETY: the descriptor is borrowed, the value lives on this stack and its length is given.
    let code = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BUF_LOCK,
            (&raw mut locks).cast(),
            &raw mut length,
        )
    };
    code == 0 && locks != 0
}

/// SO_BUF_LOCK: lets the kernel adapt the buffers again.
pub(crate) fn free_buffers(socket: BorrowedFd<'_>) {
    let locks: c_int = 0;
    let length = libc::socklen_t::try_from(size_of::<c_int>()).unwrap_or(0);
    // SAFETY: the descriptor is borrowed, the value lives on this stack and its length is given.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BUF_LOCK,
            (&raw const locks).cast(),
            length,
        );
    }
}

/// SO_PEERCRED: process and user at the other end of a unix socket. The process is 0 where it belongs to another
/// process name space, which is why the safe wrapper (whose process ids are never 0) cannot be used.
pub(crate) fn peer_credentials(socket: BorrowedFd<'_>) -> Option<(u32, u32)> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).ok()?;
    // SAFETY: the descriptor is borrowed, the value lives on this stack and its length is given.
    let code = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    (code == 0).then_some((credentials.pid.unsigned_abs(), credentials.uid))
}

/// A user of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: CString,
    pub(crate) user_id: u32,
    pub(crate) group_id: u32,
}

/// Room for the strings that getpwnam_r and getgrnam_r return.
const STRINGS: usize = 16 * 1024;

/// A user by name.
pub(crate) fn account(name: &str) -> Option<Account> {
    let name = CString::new(name).ok()?;
    let mut strings = vec![0; STRINGS];
    let mut found = ptr::null_mut();
    // SAFETY: an all-zero passwd is a valid value of that C struct.
    let mut entry: libc::passwd = unsafe { mem::zeroed() };
    // SAFETY: all pointers are to live memory of the stated size, and `strings` outlives the use of `entry`.
    let code = unsafe {
        libc::getpwnam_r(name.as_ptr(), &raw mut entry, strings.as_mut_ptr(), strings.len(), &raw mut found)
    };
    let is_found = code == 0 && !found.is_null();
    is_found.then_some(Account { name, user_id: entry.pw_uid, group_id: entry.pw_gid })
}

/// The name of a user.
pub(crate) fn account_name(user_id: u32) -> Option<String> {
    let mut strings = vec![0; STRINGS];
    let mut found = ptr::null_mut();
    // SAFETY: an all-zero passwd is a valid value of that C struct.
    let mut entry: libc::passwd = unsafe { mem::zeroed() };
    // SAFETY: as in `account`.
    let code = unsafe {
        libc::getpwuid_r(user_id, &raw mut entry, strings.as_mut_ptr(), strings.len(), &raw mut found)
    };
    if code != 0 || found.is_null() {
        return None;
    }
    // SAFETY: pw_name was set by the call and points into `strings`, which ends in a zero.
    let name = unsafe { CStr::from_ptr(entry.pw_name) };
    Some(name.to_string_lossy().into_owned())
}

/// A group's number by its name.
pub(crate) fn group_id(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    let mut strings = vec![0; STRINGS];
    let mut found = ptr::null_mut();
    // SAFETY: an all-zero group is a valid value of that C struct.
    let mut entry: libc::group = unsafe { mem::zeroed() };
    // SAFETY: as in `account`.
    let code = unsafe {
        libc::getgrnam_r(name.as_ptr(), &raw mut entry, strings.as_mut_ptr(), strings.len(), &raw mut found)
    };
    (code == 0 && !found.is_null()).then_some(entry.gr_gid)
}

/// The addresses of this machine's interfaces that are up, each with its mask; none if the system refuses.
pub(crate) fn interfaces() -> Vec<(IpAddr, IpAddr)> {
    let mut first = ptr::null_mut();
    // SAFETY: the pointer is live; what is put there is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next: *const libc::ifaddrs = first;
    // SAFETY: each entry is null or a live one of the list, which is freed only behind the loop.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        let is_up = entry.ifa_flags & libc::IFF_UP.unsigned_abs() != 0;
        // SAFETY: both are null or socket addresses that belong to the entry.
        let pair = unsafe { (internet_address(entry.ifa_addr), internet_address(entry.ifa_netmask)) };
        if let (true, (Some(address), Some(mask))) = (is_up, pair) {
            found.push((address, mask));
        }
    }
    // SAFETY: it came from getifaddrs, and no reference to it is left.
    unsafe { libc::freeifaddrs(first) };
    found
}

/// The address in a C socket address of one of the internet families.
///
/// # Safety
/// The pointer is null, or leads to a socket address as long as its family says.
unsafe fn internet_address(socket: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: null or live, says the caller.
    match c_int::from(unsafe { socket.as_ref() }?.sa_family) {
        libc::AF_INET => {
            // SAFETY: of that family, so as long as that struct; read without asking for its alignment.
            let inet = unsafe { socket.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::V4(u32::from_be(inet.sin_addr.s_addr).into()))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let inet = unsafe { socket.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::V6(inet.sin6_addr.s6_addr.into()))
        }
        _ => None,
    }
}

/// Switches to a user permanently.
pub(crate) fn become_account(account: &Account) -> io::Result<()> {
    // SAFETY: the name is a C string that outlives the call.
    check(unsafe { libc::initgroups(account.name.as_ptr(), account.group_id) })?;
    // SAFETY: no memory is involved.
    check(unsafe { libc::setgid(account.group_id) })?;
    // SAFETY: no memory is involved.
    check(unsafe { libc::setuid(account.user_id) })
}

/// Continues in a child without a parent; the parent exits with 0. Only before any thread was started.
pub(crate) fn leave_parent() -> io::Result<()> {
    for first in [true, false] {
        // SAFETY: called while the process has one thread, so that the child finds every lock open.
        let child = unsafe { libc::fork() };
        if child < 0 {
            return Err(io::Error::last_os_error());
        }
        if child > 0 {
            // SAFETY: _exit runs nothing of ours; open files belong to the child now.
            unsafe { libc::_exit(0) };
        }
        if first {
            // SAFETY: no memory is involved.
            check(unsafe { libc::setsid() })?;
        }
    }
    Ok(())
}

/// The first descriptor that a service manager passes (SD_LISTEN_FDS_START).
const FIRST_PASSED: RawFd = 3;

/// Descriptors that were passed to this process, from 3 on. Only once, and before anything else was opened.
pub(crate) fn passed_descriptors(count: u32) -> Vec<OwnedFd> {
    let mut passed = Vec::new();
    for number in (FIRST_PASSED..).take(count as usize) {
        // SAFETY: fcntl takes no memory; a number that is no descriptor only makes it fail.
        if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
            break;
        }
        // SAFETY: it is open, and the service manager passed it to be this process's own.
        passed.push(unsafe { OwnedFd::from_raw_fd(number) });
    }
    passed
}

/// Opens the way to the system's log. `name` is kept by the C library, hence for ever.
pub(crate) fn open_syslog(name: &'static CStr, facility: c_int) {
    // SAFETY: the name is a C string that lives for ever.
    unsafe { libc::openlog(name.as_ptr(), libc::LOG_PID | libc::LOG_NDELAY, facility) };
}

/// Writes a line to the system's log.
pub(crate) fn write_syslog(priority: c_int, text: &CStr) {
    // SAFETY: both are C strings, and the format takes exactly the one that follows.
    unsafe { libc::syslog(priority, c"%s".as_ptr(), text.as_ptr()) };
}

/// A set of signals.
pub(crate) struct SignalSet(libc::sigset_t);

impl SignalSet {
    /// These signals.
    pub(crate) fn of(signals: &[c_int]) -> SignalSet {
        // SAFETY: an all-zero sigset_t may be handed to sigemptyset, which makes it valid.
        let mut set: libc::sigset_t = unsafe { mem::zeroed() };
        // SAFETY: `set` is live and ours.
        unsafe { libc::sigemptyset(&raw mut set) };
        for signal in signals {
            // SAFETY: `set` is live and ours; a wrong number only makes the call fail.
            unsafe { libc::sigaddset(&raw mut set, *signal) };
        }
        SignalSet(set)
    }

    /// Blocks them in the calling thread and in every thread it starts later.
    pub(crate) fn block(&self) -> io::Result<()> {
        // SAFETY: the set is valid, and no old mask is asked for.
        match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const self.0, ptr::null_mut()) } {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    /// The opposite of [`SignalSet::block`].
    pub(crate) fn unblock(&self) -> io::Result<()> {
        // SAFETY: the set is valid, and no old mask is asked for.
        match unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const self.0, ptr::null_mut()) } {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    /// Waits for one of them, which must be blocked.
    pub(crate) fn wait(&self) -> io::Result<c_int> {
        let mut signal = 0;
        // SAFETY: the set and the number are live.
        match unsafe { libc::sigwait(&raw const self.0, &raw mut signal) } {
            0 => Ok(signal),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

/// Ignores a signal.
pub(crate) fn ignore(signal: c_int) {
    // SAFETY: SIG_IGN runs no handler.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

fn check(code: c_int) -> io::Result<()> {
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_among_the_interfaces() {
        let loopback: (IpAddr, IpAddr) = ([127, 0, 0, 1].into(), [255, 0, 0, 0].into());
        assert!(interfaces().contains(&loopback), "{:?}", interfaces());
    }

    #[test]
    fn root_is_found_both_ways() {
        let root = account("root");
        assert_eq!(root.map(|root| (root.user_id, root.group_id)), Some((0, 0)));
        assert_eq!(account_name(0).as_deref(), Some("root"));
        assert_eq!(group_id("root"), Some(0));
        assert_eq!(account("no such user"), None);
        assert_eq!(group_id("no such group"), None);
    }
}
