//! Asks a real PostgreSQL what the corpus asks the model, and writes its answers down.
//!
//! The only part of the simulator with a socket and a clock; nothing deterministic may use it.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use crate::corpus::{self, Exchange};
use crate::protocol::{Frames, Next, text, untyped};

/// A server that has said nothing for so long has nothing more to say.
const SILENCE: Duration = Duration::from_millis(150);

/// Asks the server at `address` everything in the `.txt` files of `directory` and rewrites them with its answers. It
/// must let `postgres` into the database `postgres` without a password.
///
/// # Errors
/// What the system says of files or of the connection; a server that refuses is `ConnectionRefused`.
pub fn record(address: &str, directory: &Path) -> io::Result<usize> {
    let mut table = Conversation::begin(address)?;
    table.exchange(&corpus::frame("Q DROP TABLE IF EXISTS ledger").unwrap_or_default())?;
    table.exchange(&corpus::frame("Q CREATE TABLE ledger (tag text NOT NULL)").unwrap_or_default())?;
    let mut files = 0;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let mut conversation = Conversation::begin(address)?;
        let mut exchanges = corpus::read(&fs::read_to_string(&path)?);
        for Exchange { sent, answered, .. } in &mut exchanges {
            let bytes: Vec<u8> = sent.iter().filter_map(|line| corpus::frame(line)).flatten().collect();
            *answered = conversation.exchange(&bytes)?;
        }
        fs::write(&path, corpus::write(&exchanges))?;
        files += 1;
    }
    Ok(files)
}

/// A session with a real server.
struct Conversation {
    stream: TcpStream,
    frames: Frames,
}

impl Conversation {
    fn begin(address: &str) -> io::Result<Conversation> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        let mut conversation = Conversation { stream, frames: Frames::default() };
        let mut startup = Vec::new();
        untyped(&mut startup, |body| {
            body.extend_from_slice(&196_608_u32.to_be_bytes());
            for word in ["user", "postgres", "database", "postgres", ""] {
                text(body, word.as_bytes());
            }
        });
        let greeting = conversation.exchange(&startup)?;
        if greeting.last().is_none_or(|line| line != "Z I") {
            return Err(io::Error::new(ErrorKind::ConnectionRefused, greeting.join(", ")));
        }
        Ok(conversation)
    }

    fn exchange(&mut self, bytes: &[u8]) -> io::Result<Vec<String>> {
        self.stream.write_all(bytes)?;
        let (mut body, mut lines, mut chunk) = (Vec::new(), Vec::new(), [0; 8192]);
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => {
                    lines.push(corpus::CLOSED.to_owned());
                    return Ok(lines);
                }
                Ok(count) => self.frames.push(&chunk[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Ok(lines);
                }
                Err(error) => return Err(error),
            }
            while let Next::Frame(kind) = self.frames.next(&mut body) {
                lines.push(corpus::line(kind, &body));
            }
        }
    }
}
