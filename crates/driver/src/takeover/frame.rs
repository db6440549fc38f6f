//! Messages between two processes of which one takes over from the other, with the sockets that they carry.
//!
//! Owns the framing (kind, length, bytes; sockets by SCM_RIGHTS with the first byte). Never knows what a message means.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, send, sendmsg,
};

use super::peer;

/// Most sockets of one message.
const SOCKETS: usize = 2;
/// Kind and length.
const HEADER_BYTES: usize = 5;
/// A client with all the prepared statements that it may have is shorter.
const LONGEST: usize = 256 * 1024 * 1024;
/// Read at once, so that no memory is taken for what only a header promises.
const CHUNK: usize = 64 * 1024;

/// A message.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) payload: Vec<u8>,
    pub(crate) sockets: Vec<OwnedFd>,
}

/// Sends one message. Waits as long as the other side takes to read.
pub(crate) fn put(channel: &OwnedFd, kind: u8, payload: &[u8], sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    debug_assert!(sockets.len() <= SOCKETS);
    let length = u32::try_from(payload.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut header = [kind, 0, 0, 0, 0];
    header[1..].copy_from_slice(&length.to_be_bytes());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !sockets.is_empty() && !control.push(SendAncillaryMessage::ScmRights(sockets)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sent = loop {
        match sendmsg(channel, &[IoSlice::new(&header)], &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            outcome => break outcome?,
        }
    };
    put_all(channel, &header[sent..])?;
    put_all(channel, payload)
}

/// Sends bytes as they are.
pub(crate) fn put_all(channel: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match send(channel, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(Errno::INTR) => {}
            Err(fault) => return Err(fault.into()),
        }
    }
    Ok(())
}

/// Waits for the next message, however long that takes; UnexpectedEof if the other side has gone.
pub(crate) fn take(channel: &OwnedFd) -> io::Result<Frame> {
    take_whole(channel, None)
}

/// The same; TimedOut if it is not whole by then.
pub(crate) fn take_by(channel: &OwnedFd, until: Instant) -> io::Result<Frame> {
    take_whole(channel, Some(until))
}

fn take_whole(channel: &OwnedFd, until: Option<Instant>) -> io::Result<Frame> {
    let mut header = [0; HEADER_BYTES];
    let mut sockets = Vec::new();
    let got = take_header(channel, &mut header, &mut sockets, until)?;
    if got == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    take_exactly(channel, &mut header[got..], until)?;
    let [kind, length @ ..] = header;
    let length = u32::from_be_bytes(length) as usize;
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut payload = Vec::new();
    while payload.len() < length {
        let start = payload.len();
        payload.resize(length.min(start + CHUNK), 0);
        take_exactly(channel, &mut payload[start..], until)?;
    }
    Ok(Frame { kind, payload, sockets })
}

fn take_header(
    channel: &OwnedFd,
    header: &mut [u8],
    sockets: &mut Vec<OwnedFd>,
    until: Option<Instant>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(header)];
    let message = loop {
        until.map_or(Ok(()), |until| peer::wait_readable(channel, until))?;
        match recvmsg(channel, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            outcome => break outcome?,
        }
    };
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = part {
            sockets.extend(sent);
        }
    }
    Ok(message.bytes)
}

fn take_exactly(channel: &OwnedFd, mut into: &mut [u8], until: Option<Instant>) -> io::Result<()> {
    while !into.is_empty() {
        until.map_or(Ok(()), |until| peer::wait_readable(channel, until))?;
        match rustix::net::recv(channel, &mut *into, RecvFlags::empty()) {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((got, _)) => into = &mut into[got..],
            Err(Errno::INTR) => {}
            Err(fault) => return Err(fault.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    #[test]
    fn messages_arrive_whole_and_with_their_sockets() {
        let (near, far) = UnixStream::pair().unwrap();
        let (near, far) = (OwnedFd::from(near), OwnedFd::from(far));
        let (mut kept, given) = UnixStream::pair().unwrap();
        let long = vec![7; 3 * CHUNK];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                put(&near, 1, &long, &[]).unwrap();
                put(&near, 2, b"", &[given.as_fd()]).unwrap();
                put(&near, 3, b"x", &[]).unwrap();
            });
            let first = take(&far).unwrap();
            assert_eq!((first.kind, first.payload.len(), first.sockets.len()), (1, long.len(), 0));
            let mut second = take(&far).unwrap();
            let mut given = UnixStream::from(second.sockets.remove(0));
            kept.write_all(b"hi").unwrap();
            let mut got = [0; 2];
            given.read_exact(&mut got).unwrap();
            assert_eq!((second.kind, &got), (2, b"hi"));
            assert!(take(&far).unwrap().sockets.is_empty());
        });
        drop(near);
        assert_eq!(take(&far).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn one_that_speaks_a_byte_at_a_time_is_not_waited_for_longer() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let drip = std::thread::spawn(move || {
            while near.write_all(&[1]).is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let far = OwnedFd::from(far);
        let late = take_by(&far, Instant::now() + Duration::from_millis(60)).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        drop(far);
        drip.join().unwrap();
    }

    #[test]
    fn what_promises_too_much_is_refused() {
        let (mut near, far) = UnixStream::pair().unwrap();
        near.write_all(&[1, 0xff, 0xff, 0xff, 0xff]).unwrap();
        assert_eq!(take(&far.into()).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
