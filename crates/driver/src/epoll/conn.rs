//! What epoll knows of one connection, and its reads and writes. Never talks to the shard.

use std::io::IoSlice;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};

use crate::conn_table::{self, State};
use crate::epoll::write_batch::{Bytes, WriteBatch};

/// What epoll knows of a connection besides the table.
#[derive(Debug, Default)]
pub(crate) struct EpollConn {
    /// The kernel reported input, and nothing since has shown that there is none.
    pub(crate) readable: bool,
    /// There is urgent data: a read ends before it, so that a short one says nothing about what is behind.
    pub(crate) has_urgent: bool,
    /// The peer's end of file or an error was seen: read until the end shows.
    pub(crate) hung_up: bool,
    pub(crate) is_unix: bool,
    /// It is registered.
    pub(crate) is_watched: bool,
    /// It is registered for writability too, for good.
    pub(crate) watches_room: bool,
    /// Output that the socket has not taken yet.
    pub(crate) backlog: Option<Box<Backlog>>,
}

/// One connection. Its id is listed ([`conn_table::Conn::is_listed`]) while it waits for a turn to be read.
pub(crate) type Conn = conn_table::Conn<EpollConn>;

/// Bytes that wait for writability.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    bytes: Vec<u8>,
    start: usize,
}

impl Backlog {
    /// Bytes to begin with.
    pub(crate) fn of(bytes: Vec<u8>) -> Box<Backlog> {
        Box::new(Backlog { bytes, start: 0 })
    }

    /// What waits.
    pub(crate) fn waiting(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// What waits, to be taken elsewhere.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.drain(..self.start);
        self.bytes
    }

    fn append(&mut self, batch: &WriteBatch, bytes: Bytes<'_>, mut skip: usize) {
        if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        for segment in batch.segments() {
            let segment = bytes.of(*segment);
            let gone = skip.min(segment.len());
            skip -= gone;
            self.bytes.extend_from_slice(&segment[gone..]);
        }
    }
}

impl Conn {
    /// It may be read now.
    pub(crate) fn may_read(&self) -> bool {
        self.state == State::Open && !self.is_paused() && !self.ended && (self.io.readable || self.io.hung_up)
    }

    /// Reads once, never waits.
    pub(crate) fn receive(&self, into: &mut [u8]) -> Result<usize, Errno> {
        let socket = self.socket.as_ref().ok_or(Errno::BADF)?;
        recv(socket, into, RecvFlags::DONTWAIT).map(|(count, _)| count)
    }

    /// Sends a batch as far as the socket accepts it and buffers the rest; true if some was buffered.
    pub(crate) fn send(&mut self, batch: &WriteBatch, bytes: Bytes<'_>) -> Result<bool, Errno> {
        self.emptied = false;
        let length = batch.length();
        let sent = if self.io.backlog.is_some() { 0 } else { self.transmit(batch, bytes)? };
        if sent < length {
            self.io.backlog.get_or_insert_default().append(batch, bytes, sent);
        }
        Ok(sent < length)
    }

    fn transmit(&self, batch: &WriteBatch, bytes: Bytes<'_>) -> Result<usize, Errno> {
        if let [only] = batch.segments() {
            return self.write(&[IoSlice::new(bytes.of(*only))]);
        }
        let count = batch.segments().len();
        self.write(&batch.slices(bytes)[..count])
    }

    /// Writes once, never waits; 0 if the socket takes nothing.
    fn write(&self, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
        const FLAGS: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
        let socket = self.socket.as_ref().ok_or(Errno::BADF)?;
        loop {
            let outcome = match slices {
                [only] => send(socket, only, FLAGS),
                several => sendmsg(socket, several, &mut SendAncillaryBuffer::default(), FLAGS),
            };
            match outcome {
                Err(Errno::AGAIN) => return Ok(0),
                Err(Errno::INTR) => {}
                other => return other,
            }
        }
    }

    /// Sends what waits as far as the socket takes it; true if nothing waits any more.
    pub(crate) fn flush(&mut self) -> Result<bool, Errno> {
        while let Some(backlog) = &self.io.backlog {
            let sent = self.write(&[IoSlice::new(backlog.waiting())])?;
            let Some(backlog) = &mut self.io.backlog else { break };
            backlog.start += sent;
            if backlog.waiting().is_empty() {
                self.io.backlog = None;
            } else if sent == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// How much waits, in bytes.
    pub(crate) fn waiting(&self) -> usize {
        self.io.backlog.as_ref().map_or(0, |backlog| backlog.waiting().len())
    }

    /// Last words as far as they go without waiting; then reads away a little of what is unread, because closing over
    /// unread bytes resets the connection and may cost the peer those last words. Most leave by a message of their own,
    /// which was just read: behind that nothing was said and nothing is to be read.
    pub(crate) fn last_write(&mut self) {
        const READS: usize = 16;
        if self.state != State::Open || self.ended || self.write_failed {
            return;
        }
        if self.emptied && !self.io.readable && self.io.backlog.is_none() {
            return;
        }
        let _ = self.flush();
        let mut sink = [0; 4096];
        for _ in 0..READS {
            if self.receive(&mut sink) != Ok(sink.len()) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        assert!(size_of::<Conn>() <= 48, "{}", size_of::<Conn>());
    }
}
