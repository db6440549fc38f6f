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
use crate::random;

/// A server that has said nothing for so long has nothing more to say.
const SILENCE: Duration = Duration::from_millis(150);

/// What the corpus's statements about sequences need.
const SEQUENCES: [&str; 5] = [
    "DROP TABLE IF EXISTS numbered; CREATE TABLE numbered (tag text, id serial)",
    "DROP SEQUENCE IF EXISTS sq0; CREATE SEQUENCE sq0",
    "DROP SEQUENCE IF EXISTS sq1; CREATE SEQUENCE sq1",
    "DROP FUNCTION IF EXISTS next_number",
    "CREATE FUNCTION next_number(name text) RETURNS bigint LANGUAGE sql AS 'SELECT nextval(name::regclass)'",
];

/// Asks the server at `address` everything in the `.txt` files of `directory` and rewrites them with its answers. It
/// must let `postgres` into the database `postgres` without a password.
///
/// # Errors
/// What the system says of files or of the connection; a server that refuses is `ConnectionRefused`.
pub fn record(address: &str, directory: &Path) -> io::Result<usize> {
    let mut table = Conversation::begin(address)?;
    table.exchange(&corpus::frame("Q DROP TABLE IF EXISTS ledger").unwrap_or_default())?;
    table.exchange(&corpus::frame("Q CREATE TABLE ledger (tag text NOT NULL)").unwrap_or_default())?;
    for sql in SEQUENCES {
        table.exchange(&corpus::frame(&format!("Q {sql}")).unwrap_or_default())?;
    }
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

/// Runs a number of random scripts on the server at `address`, says where the model differs, and writes the hashes of the
/// answers into `directory`. Returns how many scripts were answered otherwise than the model does.
///
/// # Errors
/// As [`record`].
pub fn record_random(address: &str, directory: &Path, scripts: u64) -> io::Result<u64> {
    let mut table = Conversation::begin(address)?;
    table.exchange(&corpus::frame("Q DROP TABLE IF EXISTS ledger").unwrap_or_default())?;
    table.exchange(&corpus::frame("Q CREATE TABLE ledger (tag text NOT NULL)").unwrap_or_default())?;
    let modern = table.version >= 18;
    let (mut hashes, mut different) = (String::new(), 0);
    for number in 0..scripts {
        let script = random::script(number, modern);
        let mut bytes = Vec::new();
        script.iter().for_each(|message| message.write(&mut bytes));
        let answered = random::in_order(Conversation::begin_as_app(address)?.all(&bytes)?);
        let expected = random::model_answers(&script, modern);
        if answered != expected {
            different += 1;
            eprintln!("script {number}:");
            script.iter().for_each(|message| eprintln!("    {message}"));
            let at = answered.iter().zip(&expected).take_while(|(one, other)| one == other).count();
            eprintln!("  agreed: {:?}", &expected[..at]);
            eprintln!("  PostgreSQL: {:?}\n  model: {:?}", &answered[at..], &expected[at..]);
        }
        hashes.push_str(&format!("{:08x}\n", random::hash(&answered)));
    }
    fs::write(directory.join(if modern { "random18.hashes" } else { "random15.hashes" }), hashes)?;
    Ok(different)
}

/// A session with a real server.
struct Conversation {
    stream: TcpStream,
    frames: Frames,
    /// The server's major version.
    version: u32,
}

impl Conversation {
    fn begin(address: &str) -> io::Result<Conversation> {
        Conversation::begin_with(address, &[])
    }

    /// As the clients of random scripts log in.
    fn begin_as_app(address: &str) -> io::Result<Conversation> {
        Conversation::begin_with(address, &["application_name", "app0", "TimeZone", "Etc/UTC"])
    }

    fn begin_with(address: &str, more: &[&str]) -> io::Result<Conversation> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        let mut conversation = Conversation { stream, frames: Frames::default(), version: 0 };
        let mut startup = Vec::new();
        untyped(&mut startup, |body| {
            body.extend_from_slice(&196_608_u32.to_be_bytes());
            for word in ["user", "postgres", "database", "postgres"].iter().chain(more).chain(&[""]) {
                text(body, word.as_bytes());
            }
        });
        let greeting = conversation.greeting(&startup)?;
        let version = greeting.iter().find_map(|line| line.strip_prefix("S server_version="));
        let major = version.and_then(|version| version.split(['.', ' ']).next());
        conversation.version = major.and_then(|major| major.parse().ok()).unwrap_or_default();
        if greeting.last().is_none_or(|line| line != "Z I") {
            return Err(io::Error::new(ErrorKind::ConnectionRefused, greeting.join(", ")));
        }
        Ok(conversation)
    }

    /// All up to the first ReadyForQuery.
    fn greeting(&mut self, startup: &[u8]) -> io::Result<Vec<String>> {
        self.stream.write_all(startup)?;
        let (mut body, mut lines, mut chunk) = (Vec::new(), Vec::new(), [0; 8192]);
        loop {
            let count = self.stream.read(&mut chunk)?;
            self.frames.push(&chunk[..count]);
            while let Next::Frame(kind) = self.frames.next(&mut body) {
                lines.push(corpus::line(kind, &body));
            }
            if count == 0 || lines.last().is_some_and(|line| line == "Z I") {
                return Ok(lines);
            }
        }
    }

    /// Sends everything, closes, and reads all that is answered.
    fn all(&mut self, bytes: &[u8]) -> io::Result<Vec<String>> {
        self.stream.set_read_timeout(None)?;
        self.stream.write_all(bytes)?;
        self.stream.shutdown(std::net::Shutdown::Write)?;
        let (mut body, mut lines, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => return Err(error),
        }
        self.frames.push(&rest);
        while let Next::Frame(kind) = self.frames.next(&mut body) {
            lines.push(corpus::line(kind, &body));
        }
        // What a COPY says of the end of the stream.
        if lines.ends_with(&["E ERROR 08006".to_owned(), "E FATAL 08P01".to_owned()]) {
            lines.truncate(lines.len() - 2);
        }
        Ok(lines)
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
