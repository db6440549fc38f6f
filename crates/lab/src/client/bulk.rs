//! Large results and COPY, as a client that keeps up: nothing is kept, only counted. It reads and writes in pieces
//! of 64 KiB, so that what is measured is the pooler and not the client's system calls.

use std::io::ErrorKind;

use wire::encode;
use wire::frame::Splitter;
use wire::tag::backend::{ERROR, READY};

use crate::client::{Client, words};
use crate::error::{LabError, Result};

/// Bytes of one read or write.
const PIECE_BYTES: usize = 64 * 1024;

impl Client {
    /// Runs a query and counts the bytes of its answer, all messages included.
    ///
    /// # Errors
    /// [`LabError::Peer`] with the server's own words, after which the connection is of no further use.
    pub fn drain(&mut self, query: &str) -> Result<u64> {
        let mut out = Vec::new();
        encode::query(&mut out, query.as_bytes());
        self.send(&out)?;
        self.read_until_ready()
    }

    /// Sends `messages` CopyData messages of `line` and a newline each to `COPY table FROM STDIN`; gives the bytes
    /// sent, all messages included.
    ///
    /// # Errors
    /// As [`Client::drain`].
    pub fn copy_in(&mut self, table: &str, line: &[u8], messages: u64) -> Result<u64> {
        let mut out = Vec::new();
        encode::query(&mut out, format!("COPY {table} FROM STDIN").as_bytes());
        self.send(&out)?;
        match self.receive()? {
            (b'G', _) => self.frames = None,
            (_, body) => return Err(LabError::Peer(words(&body))),
        }
        let mut message = Vec::new();
        encode::copy_data(&mut message, &[line, b"\n"].concat());
        let mut sent = 0_u64;
        let mut piece = Vec::with_capacity(PIECE_BYTES + message.len());
        for _ in 0..messages {
            piece.extend_from_slice(&message);
            if piece.len() >= PIECE_BYTES {
                self.send(&piece)?;
                sent += piece.len() as u64;
                piece.clear();
            }
        }
        encode::copy_done(&mut piece);
        self.send(&piece)?;
        self.read_until_ready()?;
        Ok(sent + piece.len() as u64)
    }

    fn read_until_ready(&mut self) -> Result<u64> {
        let mut splitter = Splitter::new();
        let mut buffer = vec![0; PIECE_BYTES];
        let mut bytes = 0_u64;
        loop {
            let count = match self.stream.read(&mut buffer) {
                Ok(0) => return Err(LabError::Peer("the server closed the connection".to_owned())),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(LabError::system("reading a large result")(error)),
            };
            bytes += count as u64;
            let mut rest = &buffer[..count];
            loop {
                let piece = splitter
                    .next(&mut rest)
                    .map_err(|_| LabError::Peer("the server sent what is not the protocol".to_owned()))?;
                match piece {
                    None => break,
                    Some(piece) if piece.header.tag == ERROR => {
                        return Err(LabError::Peer(words(piece.body)));
                    }
                    Some(piece) if piece.header.tag == READY && piece.ends => return Ok(bytes),
                    Some(_) => {}
                }
            }
        }
    }
}
