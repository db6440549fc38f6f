//! A very small PostgreSQL client for what psql would be too large for: is the server there, a statement as
//! superuser, one value of the console, thousands of idle logins, large results both ways. Blocking; simple queries.

mod bulk;
mod login;
mod stream;

use std::io::ErrorKind;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use wire::frame::Frames;
use wire::{encode, tag};

pub use login::{Keyring, Login};
pub use stream::{SERVER_NAME, connect, trusting};

use crate::error::{LabError, Result};
use stream::Stream;

/// The largest message that is waited for: a row of the console is far smaller.
const LIMIT_BYTES: u32 = 1 << 20;

/// How long a login may take.
const LOGIN_PATIENCE: Duration = Duration::from_secs(10);

/// How long an answer may take; a CHECKPOINT of the lab's data is the slowest.
const PATIENCE: Duration = Duration::from_secs(300);

/// Rows of text values; `None` is NULL.
pub type Rows = Vec<Vec<Option<String>>>;

/// A logged-in connection.
pub struct Client {
    stream: Box<dyn Stream>,
    /// Set while a message is half read; an idle client holds no buffer.
    frames: Option<Frames>,
}

impl Client {
    /// Logs in over TCP to a port of this machine, where no password is asked for.
    ///
    /// # Errors
    /// [`LabError::Peer`] with the server's own words when it refuses, [`LabError::System`] when nobody is there.
    pub fn connect(port: u16, user: &str, database: &str) -> Result<Self> {
        Self::connect_as(port, &Login::plain(user, database), &mut Keyring::default())
    }

    /// Logs in over TCP as `login` says, with TLS where it says so.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_as(port: u16, login: &Login<'_>, keyring: &mut Keyring) -> Result<Self> {
        let socket = connect(login.source, port)?;
        socket.set_patience(LOGIN_PATIENCE).map_err(LabError::system("setting how long a login may take"))?;
        let stream: Box<dyn Stream> = match login.tls {
            Some(config) => Box::new(stream::secure(socket, config)?),
            None => Box::new(socket),
        };
        Self::log_in(stream, login, keyring)
    }

    /// Logs in over a TCP connection that the caller keeps, and gives it back ready for the first query.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn socket(port: u16, login: &Login<'_>) -> Result<TcpStream> {
        let socket = connect(login.source, port)?;
        let kept = socket.try_clone().map_err(LabError::system("keeping a connection"))?;
        Self::log_in(Box::new(socket), login, &mut Keyring::default())?;
        Ok(kept)
    }

    /// Logs in over the unix socket in `directory`.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_unix(directory: &Path, port: u16, user: &str, database: &str) -> Result<Self> {
        let path = directory.join(format!(".s.PGSQL.{port}"));
        let doing = || LabError::system(format!("connecting to {}", path.display()));
        let stream = UnixStream::connect(&path).map_err(doing())?;
        Self::log_in(Box::new(stream), &Login::plain(user, database), &mut Keyring::default())
    }

    /// Runs one simple query and gives its rows.
    ///
    /// # Errors
    /// [`LabError::Peer`] with the server's own words, after which the connection is of no further use.
    pub fn query(&mut self, text: &str) -> Result<Rows> {
        let mut out = Vec::new();
        encode::query(&mut out, text.as_bytes());
        self.send(&out)?;
        let mut rows = Vec::new();
        loop {
            let (tag, body) = self.receive()?;
            match tag {
                tag::backend::DATA_ROW => rows.push(values(&body)),
                tag::backend::READY => {
                    self.frames = None;
                    return Ok(rows);
                }
                tag::backend::ERROR => return Err(LabError::Peer(words(&body))),
                _ => {}
            }
        }
    }

    fn log_in(stream: Box<dyn Stream>, login: &Login<'_>, keyring: &mut Keyring) -> Result<Self> {
        let patience = |stream: &dyn Stream, time| {
            stream.set_patience(time).map_err(LabError::system("setting how long an answer may take"))
        };
        patience(stream.as_ref(), LOGIN_PATIENCE)?;
        let mut client = Self { stream, frames: None };
        let mut out = Vec::new();
        let parameters: [(&[u8], &[u8]); 3] = [
            (b"user", login.user.as_bytes()),
            (b"database", login.database.as_bytes()),
            (b"application_name", login.application_name.as_bytes()),
        ];
        encode::startup(&mut out, wire::startup::Version::V3_0, &parameters);
        client.send(&out)?;
        let mut exchange = keyring.exchange(login.user);
        loop {
            let (tag, body) = client.receive()?;
            match tag {
                tag::backend::READY => {
                    client.frames = None;
                    patience(client.stream.as_ref(), PATIENCE)?;
                    return Ok(client);
                }
                tag::backend::ERROR => return Err(LabError::Peer(words(&body))),
                tag::backend::AUTHENTICATION => {
                    let answer = keyring.answer(&mut exchange, &body)?;
                    client.send(&answer)?;
                }
                _ => {}
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.stream.write_all(bytes).and_then(|()| self.stream.flush());
        written.map_err(LabError::system("sending to the server"))
    }

    fn receive(&mut self) -> Result<(u8, Vec<u8>)> {
        let frames = self.frames.get_or_insert_with(|| Frames::new(LIMIT_BYTES));
        let mut buffer = [0; 4096];
        loop {
            match frames.pop() {
                Ok(Some(frame)) => return Ok(frame),
                Ok(None) => {}
                Err(_) => return Err(LabError::Peer("the server sent what is not the protocol".to_owned())),
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(LabError::Peer("the server closed the connection".to_owned())),
                Ok(count) => frames.push(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(LabError::system("reading from the server")(error)),
            }
        }
    }
}

/// The text values of a DataRow; a body that ends early gives what was there.
fn values(body: &[u8]) -> Vec<Option<String>> {
    let mut rest = body.get(2..).unwrap_or_default();
    let mut values = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
            values.push(None);
            rest = after;
            continue;
        };
        let Some(value) = after.get(..length) else { return values };
        values.push(Some(String::from_utf8_lossy(value).into_owned()));
        rest = &after[length..];
    }
    values
}

/// An ErrorResponse as psql would say it: severity and message.
fn words(body: &[u8]) -> String {
    let field = |code: u8| {
        body.split(|byte| *byte == 0)
            .find(|field| field.first() == Some(&code))
            .map(|field| String::from_utf8_lossy(&field[1..]).into_owned())
            .unwrap_or_default()
    };
    format!("{}:  {}", field(b'S'), field(b'M'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_with_their_nulls() {
        let body = b"\0\x03\0\0\0\x02ab\xff\xff\xff\xff\0\0\0\0";
        assert_eq!(values(body), [Some("ab".to_owned()), None, Some(String::new())]);
        assert_eq!(values(b"\0\x01\0\0\0\x09ab"), Vec::<Option<String>>::new());
        assert_eq!(values(b""), Vec::<Option<String>>::new());
    }

    #[test]
    fn errors_are_said_in_the_servers_words() {
        assert_eq!(words(b"SFATAL\0VFATAL\0C53300\0Mtoo many\0\0"), "FATAL:  too many");
    }
}
