//! The console of the running process, over its unix socket: as the same user of the system, who needs no password there.
//!
//! Owns the connection and how long an answer may take; simple queries, one at a time. What is asked is the command's.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

use settings::Global;
use wire::frame::Frames;
use wire::tag::backend as tag;
use wire::{backend, encode};

/// The console's database, and its user on the unix socket.
const CONSOLE: &[u8] = b"pgbouncer";

/// A row of the console is far shorter.
const FRAME_BYTES: u32 = 1 << 20;

/// How long the next bytes of an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the sockets of a process that ends may take to close, one after another.
const CLOSING: Duration = Duration::from_secs(5);

/// Rows of text values; `None` is NULL.
pub(crate) type Rows = Vec<Vec<Option<String>>>;

/// What became of the process whose end was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// It has ended.
    Ended,
    /// It still runs, and the time is over.
    Runs,
}

/// A connection that is logged in.
pub(crate) struct Console {
    stream: UnixStream,
    frames: Frames,
    path: String,
    patience: Duration,
}

impl Console {
    /// Connects to the process that this configuration is of; its log calls the connection `application_name`.
    pub(crate) fn connect(global: &Global, application_name: &str) -> Result<Console, String> {
        Console::connect_within(global, application_name, PATIENCE)
    }

    /// The same, where answers may take no longer than this.
    pub(crate) fn connect_within(
        global: &Global,
        application_name: &str,
        patience: Duration,
    ) -> Result<Console, String> {
        let Some(path) = driver::unix_path(global) else {
            return Err("the console is reached by the unix socket, and unix_socket_dir is empty".to_owned());
        };
        let stream = connect(&path).map_err(|why| why.to_string());
        stream
            .and_then(|stream| Console::log_in(stream, &path, application_name, patience))
            .map_err(|why| format!("cannot use the console of the running process ({path}): {why}"))
    }

    /// Whether a process listens there.
    pub(crate) fn is_there(global: &Global) -> bool {
        driver::unix_path(global).is_some_and(|path| connect(&path).is_ok())
    }

    /// The rows of a statement.
    pub(crate) fn rows(&mut self, statement: &str) -> Result<Rows, String> {
        let mut query = Vec::new();
        encode::query(&mut query, statement.as_bytes());
        self.ask(&query)
    }

    /// Begins the end of the process; where the process has ended before it could answer, that is the answer.
    pub(crate) fn shut_down(&mut self, statement: &str) -> Result<Awaited, String> {
        match self.rows(statement) {
            Ok(_) => Ok(Awaited::Runs),
            Err(why) => self.until_closed().map_err(|_| why),
        }
    }

    /// Waits until the process has ended, or the deadline is over: the console's connection lasts as long as the process.
    pub(crate) fn until_end(&mut self, deadline: Option<Instant>) -> Result<Awaited, String> {
        let mut buffer = [0; 1024];
        loop {
            let rest = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if rest.is_some_and(|rest| rest.is_zero()) {
                return Ok(Awaited::Runs);
            }
            self.stream.set_read_timeout(rest).map_err(|why| why.to_string())?;
            match self.stream.read(&mut buffer) {
                Ok(0) => return self.until_closed(),
                Ok(_) => {}
                Err(why) if why.kind() == ErrorKind::Interrupted || is_timeout(&why) => {}
                Err(_) => return self.until_closed(),
            }
        }
    }

    /// The connection is gone: with the process, unless the process still listens.
    fn until_closed(&self) -> Result<Awaited, String> {
        let deadline = Instant::now() + CLOSING;
        while connect(&self.path).is_ok() {
            if Instant::now() > deadline {
                return Err(format!(
                    "the console has closed the connection ({}), and the process goes on running",
                    self.path
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Awaited::Ended)
    }

    fn log_in(
        stream: UnixStream,
        path: &str,
        application_name: &str,
        patience: Duration,
    ) -> Result<Console, String> {
        let frames = Frames::new(FRAME_BYTES);
        let mut console = Console { stream, frames, path: path.to_owned(), patience };
        let mut startup = Vec::new();
        let parameters: [(&[u8], &[u8]); 3] =
            [(b"user", CONSOLE), (b"database", CONSOLE), (b"application_name", application_name.as_bytes())];
        encode::startup(&mut startup, wire::startup::Version::V3_0, &parameters);
        console.ask(&startup)?;
        Ok(console)
    }

    fn ask(&mut self, bytes: &[u8]) -> Result<Rows, String> {
        self.stream.set_read_timeout(Some(self.patience)).map_err(|why| why.to_string())?;
        self.stream.write_all(bytes).map_err(|why| why.to_string())?;
        self.until_ready()
    }

    /// Reads up to ReadyForQuery: the rows, or the error that came.
    fn until_ready(&mut self) -> Result<Rows, String> {
        let (mut rows, mut error) = (Rows::new(), None);
        loop {
            let (tag, body) = self.message()?;
            match tag {
                tag::DATA_ROW => rows.extend(row(&body)),
                tag::READY => return error.map_or(Ok(rows), Err),
                tag::AUTHENTICATION
                    if backend::authentication(&body) != Some(backend::Authentication::Ok) =>
                {
                    return Err("the console asks for a password".to_owned());
                }
                tag::ERROR => {
                    let fields = wire::error::parse(&body);
                    let text = |field: Option<&[u8]>| {
                        String::from_utf8_lossy(field.unwrap_or_default()).into_owned()
                    };
                    let words = format!("{}:  {}", text(fields.severity()), text(fields.message()));
                    if fields.severity() != Some(b"ERROR") {
                        return Err(words);
                    }
                    error = Some(words);
                }
                _ => {}
            }
        }
    }

    fn message(&mut self) -> Result<(u8, Vec<u8>), String> {
        let mut buffer = [0; 16 * 1024];
        loop {
            if let Some(message) =
                self.frames.pop().map_err(|_| "its answer is not the protocol".to_owned())?
            {
                return Ok(message);
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err("it has closed the connection".to_owned()),
                Ok(count) => self.frames.push(&buffer[..count]),
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) if is_timeout(&why) => return Err("no answer in time".to_owned()),
                Err(why) => return Err(why.to_string()),
            }
        }
    }
}

fn is_timeout(why: &io::Error) -> bool {
    matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn row(body: &[u8]) -> Option<Vec<Option<String>>> {
    let text = |value: Option<&[u8]>| value.map(|value| String::from_utf8_lossy(value).into_owned());
    Some(backend::data_row(body)?.map(text).collect())
}

/// A first `@` means the abstract name space.
fn connect(path: &str) -> io::Result<UnixStream> {
    match path.strip_prefix('@') {
        Some(name) => UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?),
        None => UnixStream::connect(path),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// What a query's answer comes to, of a console that says this to it.
    fn told(answer: &[u8]) -> Result<Rows, String> {
        let (own, mut other) = UnixStream::pair().unwrap();
        other.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").unwrap();
        let mut console = Console::log_in(own, "/none", "a test", PATIENCE)?;
        other.write_all(answer).unwrap();
        other.shutdown(std::net::Shutdown::Write).unwrap();
        console.rows("SHOW QUOTAS")
    }

    #[test]
    fn rows_and_errors_are_read_up_to_the_end_of_an_answer() {
        let rows = told(b"D\0\0\0\x10\0\x02\0\0\0\x02ab\xff\xff\xff\xffZ\0\0\0\x05I");
        assert_eq!(rows, Ok(vec![vec![Some("ab".to_owned()), None]]));
        let refused = told(b"E\0\0\0\x10SERROR\0Mno\0\0Z\0\0\0\x05I");
        assert_eq!(refused, Err("ERROR:  no".to_owned()));
        assert_eq!(told(b"D\0\0\0\x10\0").err().as_deref(), Some("it has closed the connection"));
    }

    /// What had been waited for before does not shorten an answer's time.
    #[test]
    fn an_answer_has_its_own_time() {
        let (own, mut other) = UnixStream::pair().unwrap();
        other.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").unwrap();
        let mut console = Console::log_in(own, "/none", "a test", PATIENCE).unwrap();
        let soon = Instant::now() + Duration::from_millis(1);
        assert_eq!(console.until_end(Some(soon)), Ok(Awaited::Runs));
        let answer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            other.write_all(b"Z\0\0\0\x05I").unwrap();
            other
        });
        assert_eq!(console.shut_down("SHUTDOWN WAIT_FOR_SERVERS"), Ok(Awaited::Runs));
        drop(answer.join().unwrap());
        assert_eq!(console.until_end(None), Ok(Awaited::Ended));
        assert_eq!(console.shut_down("SHUTDOWN WAIT_FOR_SERVERS"), Ok(Awaited::Ended), "it ended before");
    }

    #[test]
    fn a_console_that_wants_a_password_is_said() {
        let (own, mut other) = UnixStream::pair().unwrap();
        other.write_all(b"R\0\0\0\x08\0\0\0\x03").unwrap();
        let refused = Console::log_in(own, "/none", "a test", PATIENCE).err();
        assert_eq!(refused.as_deref(), Some("the console asks for a password"));
    }
}
