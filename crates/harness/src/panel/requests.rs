//! Requests to the panel's API at a fixed rate, as monitoring and some open pages would make them: on connections that stay,
//! each due at its time whether or not the one before was quick. Never retries one.

use std::io::{self, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What is asked for, in turn: what the panel's pages and Prometheus ask for.
const PATHS: [&str; 6] =
    ["/api/v1/pools", "/api/v1/clients", "/metrics", "/api/v1/history", "/api/v1/servers", "/v2/databases"];
/// Connections that share the rate.
const CONNECTIONS: u32 = 8;
/// An answer that takes longer will not come.
const PATIENCE: Duration = Duration::from_secs(10);
/// Who looks at a panel does so from another machine, mostly; here it takes what is left of this one.
const NICENESS: i32 = 19;

/// What came of the requests of one run.
#[derive(Clone, Debug, Default)]
pub(super) struct Responses {
    pub(super) answered: u64,
    /// 503: too much at once.
    pub(super) refused: u64,
    /// No answer, or another one.
    pub(super) broken: u64,
    /// Of those that were answered, in milliseconds from the time at which each was due.
    pub(super) times_ms: Vec<f64>,
}

/// Requests under way.
pub(super) struct Requests {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Responses>>,
}

impl Requests {
    /// Sends this many in a second, until [`Requests::end`].
    pub(super) fn begin(port: u16, token: &str, per_second: u32) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let connections = CONNECTIONS.min(per_second);
        let pace = Duration::from_secs(1) * connections / per_second;
        let threads = (0..connections).map(|number| {
            let asker = PanelClient { port, token: token.to_owned(), is_over: Arc::clone(&is_over) };
            let first = Instant::now() + pace * number / connections;
            thread::spawn(move || {
                let _ = rustix::process::nice(NICENESS);
                asker.ask(first, pace, number as usize)
            })
        });
        Self { threads: threads.collect(), is_over }
    }

    /// Waits for the last answers.
    pub(super) fn end(self) -> Responses {
        self.is_over.store(true, Ordering::Relaxed);
        let mut all = Responses::default();
        for thread in self.threads {
            let told = thread.join().unwrap_or_else(|bug| std::panic::resume_unwind(bug));
            all.answered += told.answered;
            all.refused += told.refused;
            all.broken += told.broken;
            all.times_ms.extend(told.times_ms);
        }
        all
    }
}

struct PanelClient {
    port: u16,
    token: String,
    is_over: Arc<AtomicBool>,
}

impl PanelClient {
    fn ask(&self, first: Instant, pace: Duration, offset: usize) -> Responses {
        let (mut told, mut connection, mut due) = (Responses::default(), None, first);
        for path in PATHS.iter().cycle().skip(offset) {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            match self.one(&mut connection, path) {
                Ok(200) => {
                    told.answered += 1;
                    told.times_ms.push(due.elapsed().as_secs_f64() * 1e3);
                }
                Ok(503) => (told.refused, connection) = (told.refused + 1, None),
                _ => (told.broken, connection) = (told.broken + 1, None),
            }
            due += pace;
        }
        told
    }

    fn one(&self, connection: &mut Option<BufReader<TcpStream>>, path: &str) -> io::Result<u16> {
        if connection.is_none() {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_nodelay(true)?;
            *connection = Some(BufReader::new(stream));
        }
        let Some(reader) = connection else { return Err(io::ErrorKind::NotConnected.into()) };
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAuthorization: Bearer {}\r\n\r\n",
            self.port, self.token
        );
        reader.get_mut().write_all(head.as_bytes())?;
        answer(reader)
    }
}

/// Reads a whole answer; its status.
fn answer(reader: &mut impl io::BufRead) -> io::Result<u16> {
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(wrong)?;
    let mut length = None;
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse::<u64>().ok();
            }
            Some(_) => {}
            None if line == "\r\n" => break,
            None => return Err(wrong()),
        }
    }
    let length = length.ok_or_else(wrong)?;
    let read = io::copy(&mut reader.by_ref().take(length), &mut io::sink())?;
    if read == length { Ok(status) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_to_its_end_and_not_further() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nx: y\r\n\r\nabcHTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n";
        let mut reader = BufReader::new(&text[..]);
        assert_eq!(answer(&mut reader).ok(), Some(200));
        assert_eq!(answer(&mut reader).ok(), Some(503));
        assert!(answer(&mut reader).is_err());
        assert!(answer(&mut &b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"[..]).is_err());
    }
}
