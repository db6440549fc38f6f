//! The other ends: sockets of the test, which never wait. What they are about to do is noted before they do it.
#![allow(unsafe_code)]

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionread};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, connect, getsockname, listen, recv, send, shutdown, socket_with, sockopt,
};
use shard::Target;

use crate::recorder::{Conn, PeerEnd, Shared, Stage, stream};
use crate::script::{Key, Place};
use crate::support::own_address;

/// What a peer saw at the end of what it read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenEnd {
    Eof,
    Reset,
}

/// One connection's other end.
#[derive(Default)]
pub struct PeerSocket {
    pub socket: Option<OwnedFd>,
    pub listener: Option<OwnedFd>,
    /// Keeps the queue of the listener full.
    filler: Option<OwnedFd>,
    pub is_unix: bool,
    to_write: usize,
    /// How much it may read; none is without limit.
    allowance: Option<usize>,
    pub seen_end: Option<SeenEnd>,
}

pub fn new_socket(is_unix: bool) -> rustix::io::Result<OwnedFd> {
    let family = if is_unix { AddressFamily::UNIX } else { AddressFamily::INET };
    socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// Bytes that the socket took and the other end has not acknowledged.
fn unacknowledged(socket: &OwnedFd) -> usize {
    let mut count: libc::c_int = 0;
    // SAFETY: the descriptor is open, and the call writes one integer, which lives on this stack.
    unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
    usize::try_from(count).unwrap_or(0)
}

impl PeerSocket {
    pub fn new() -> PeerSocket {
        PeerSocket { allowance: Some(0), ..PeerSocket::default() }
    }

    /// A server for the shard to connect to.
    pub fn serve(&mut self, key: Key, place: Place) -> Target {
        self.is_unix = place == Place::Unix;
        let listener = new_socket(self.is_unix).unwrap();
        if self.is_unix {
            let name = format!("weir-model-{}-{key}", std::process::id());
            bind(&listener, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
            listen(&listener, 10).unwrap();
            self.listener = Some(listener);
            return Target::Unix { path: format!("@{name}").into() };
        }
        let host = if place == Place::Name { [127, 0, 0, 1].into() } else { own_address() };
        bind(&listener, &SocketAddr::from((host, 0))).unwrap();
        let address = address_of(&listener);
        let host = if place == Place::Name { "localhost".into() } else { address.ip().to_string().into() };
        if place != Place::Refused {
            listen(&listener, if place == Place::Full { 0 } else { 10 }).unwrap();
            self.listener = Some(listener);
        }
        if place == Place::Full {
            let filler = new_socket(false).unwrap();
            connect(&filler, &address).unwrap();
            self.filler = Some(filler);
        }
        Target::Inet { host, port: address.port() }
    }

    /// Makes room in the listener's queue.
    pub fn admit(&mut self) {
        if let (Some(listener), Some(_)) = (&self.listener, self.filler.take()) {
            let _ = accept_with(listener, SocketFlags::CLOEXEC);
        }
    }

    /// Something should be accepted soon.
    pub fn expects_server(&self) -> bool {
        self.listener.is_some() && self.filler.is_none() && self.socket.is_none()
    }

    pub fn is_full(&self) -> bool {
        self.filler.is_some()
    }

    pub fn reads_all(&self) -> bool {
        self.allowance.is_none()
    }

    pub fn has_to_write(&self) -> bool {
        self.to_write > 0
    }

    pub fn write(&mut self, length: usize) {
        self.to_write += length;
    }

    pub fn read(&mut self, length: Option<usize>) {
        self.allowance = length.and_then(|length| self.allowance.map(|left| left + length));
    }

    pub fn shutdown_write(&mut self, key: Key, shared: &Shared) {
        let Some(socket) = &self.socket else { return };
        let mut state = shared.state();
        let one = &mut state.conns[key];
        if one.end.is_none() {
            (one.end, one.floor) = (Some(PeerEnd::ShutdownWrite), one.written);
            one.cut |= self.to_write > 0;
            state.note(format!("peer {key} ends writing"));
            drop(state);
            self.to_write = 0;
            let _ = shutdown(socket, Shutdown::Write);
        }
    }

    /// Closes as it is. What the other end acknowledged will be delivered.
    pub fn close(&mut self, key: Key, shared: &Shared, resets: bool) {
        let Some(socket) = self.socket.take() else { return };
        let is_cut = std::mem::take(&mut self.to_write) > 0;
        let left = if self.is_unix { 0 } else { unacknowledged(&socket) };
        let is_unread = ioctl_fionread(&socket).is_ok_and(|count| count > 0);
        let is_reset = is_unread || (resets && !self.is_unix);
        let mut state = shared.state();
        let one = &mut state.conns[key];
        one.floor = one.written.saturating_sub(left);
        one.cut |= is_cut;
        if one.end.is_none_or(|end| end == PeerEnd::ShutdownWrite) {
            one.end = Some(if is_reset { PeerEnd::Reset } else { PeerEnd::Closed });
        }
        (one.must_all_arrive, one.arrived) = (false, one.floor);
        state.note(format!("peer {key} closes, reset: {is_reset}, unacknowledged: {left}"));
        drop(state);
        if resets {
            let _ = sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
        }
        drop(socket);
        shared.state().conns[key].is_gone = true;
    }

    pub fn urgent(&mut self, key: Key, shared: &Shared) {
        let Some(socket) = &self.socket else { return };
        let mut state = shared.state();
        let one = &mut state.conns[key];
        if !one.urgent && one.end.is_none() && !self.is_unix {
            (one.urgent, one.must_all_arrive) = (true, false);
            drop(state);
            let _ = send(socket, b"!", SendFlags::OOB | SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    /// Accepts, writes and reads as far as it goes.
    pub fn pump(&mut self, key: Key, shared: &Shared) {
        if self.expects_server()
            && let Some(listener) = &self.listener
        {
            set_nonblocking(listener);
            self.socket = accept_with(listener, SocketFlags::CLOEXEC).ok();
            if self.socket.is_some() {
                self.listener = None;
            }
        }
        while self.to_write > 0 && self.write_some(key, shared) {}
        while self.seen_end.is_none() && self.read_some(key, shared) {}
    }

    fn write_some(&mut self, key: Key, shared: &Shared) -> bool {
        let Some(socket) = &self.socket else { return false };
        let (at, length) = {
            let mut state = shared.state();
            let one = &mut state.conns[key];
            if one.end.is_some() {
                self.to_write = 0;
                return false;
            }
            let length = self.to_write.min(64 * 1024);
            one.attempted = one.written + length;
            one.must_all_arrive &= !matches!(one.stage, Stage::Closing | Stage::Gone);
            (one.written, length)
        };
        let outcome = send(socket, &stream(key, true, at, length), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        let mut state = shared.state();
        let one = &mut state.conns[key];
        let count = outcome.unwrap_or(0);
        one.written += count;
        one.attempted = one.written;
        self.to_write -= count;
        if outcome.is_err_and(|fault| fault != Errno::AGAIN) {
            one.cut = true;
            self.to_write = 0;
        }
        count > 0
    }

    fn read_some(&mut self, key: Key, shared: &Shared) -> bool {
        let Some(socket) = &self.socket else { return false };
        let mut buffer = [0; 32 * 1024];
        let length = buffer.len().min(self.allowance.unwrap_or(usize::MAX));
        if length == 0 {
            return false;
        }
        let outcome = recv(socket, &mut buffer[..length], RecvFlags::DONTWAIT).map(|(count, _)| count);
        let mut state = shared.state();
        match outcome {
            Ok(0) => self.seen_end = Some(SeenEnd::Eof),
            Ok(count) => {
                let one = &mut state.conns[key];
                let at = one.read;
                one.read += count;
                if one.out.get(at..at + count) != Some(&buffer[..count]) {
                    let after = one.out.windows(16).position(|window| buffer[..count].starts_with(window));
                    let text = format!("peer {key}: {count} bytes from {at} on are not what was sent");
                    state.fault(format!("{text}, but what was from {after:?} on"));
                }
                self.allowance = self.allowance.map(|left| left - count);
            }
            Err(Errno::AGAIN | Errno::INTR) => return false,
            Err(_) => self.seen_end = Some(SeenEnd::Reset),
        }
        if let Some(end) = self.seen_end {
            self.to_write = 0;
            state.note(format!("peer {key} sees the end: {end:?}"));
            check_end(key, end, &mut state.conns[key]).into_iter().for_each(|text| state.fault(text));
        }
        true
    }

    /// The other socket is closed. A unix socket shows it at once, whatever is unread.
    pub fn is_let_go(&self) -> bool {
        let Some(socket) = self.socket.as_ref().filter(|_| self.is_unix) else { return true };
        let mut polled = [PollFd::new(socket, PollFlags::empty())];
        poll(&mut polled, Some(&Timespec::default())).is_ok() && polled[0].revents().contains(PollFlags::HUP)
    }

    /// All that it wrote is in the buffers of the shard's socket.
    pub fn has_arrived(&self) -> bool {
        self.is_unix || self.socket.as_ref().is_some_and(|socket| unacknowledged(socket) == 0)
    }
}

/// What a connection that the shard closed with nothing outstanding must look like from the other end.
fn check_end(key: Key, end: SeenEnd, one: &mut Conn) -> Option<String> {
    if !matches!(one.stage, Stage::Closing | Stage::Gone) {
        return Some(format!("peer {key} saw the end, and the shard has not closed it"));
    }
    let is_whole = one.read == one.out.len() && end == SeenEnd::Eof;
    (one.must_all_arrive && !is_whole)
        .then(|| format!("peer {key} saw {end:?} after {} of {} bytes", one.read, one.out.len()))
}

fn set_nonblocking(socket: impl AsFd) {
    let _ = rustix::io::ioctl_fionbio(socket, true);
}

/// Where a socket is bound.
pub fn address_of(socket: &OwnedFd) -> SocketAddr {
    let any: SocketAddrAny = getsockname(socket).unwrap();
    any.try_into().unwrap()
}
