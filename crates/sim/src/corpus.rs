//! Conversations as readable lines: what is sent to a server and what it answers, in its tags and key fields.
//!
//! `> Q SELECT 1` is sent, `< C SELECT 1` is answered. The answers in `corpus/` are a real PostgreSQL's (`record`); the
//! test below holds the model against them. Values of rows and texts of errors are left out: the model's are its own.

use crate::protocol::{Fields, error_field, message, text};

/// The answer of a server that closes the connection.
pub(crate) const CLOSED: &str = "closed";

/// The frame that a request line stands for: a letter, then fields with `|` between them.
pub(crate) fn frame(line: &str) -> Option<Vec<u8>> {
    let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
    let kind = *kind.as_bytes().first()?;
    let mut out = Vec::new();
    let mut fields = rest.split('|').map(str::trim);
    let mut field = || fields.next().unwrap_or("").as_bytes().to_vec();
    match kind {
        b'Q' | b'f' => message(&mut out, kind, |body| text(body, rest.as_bytes())),
        b'P' => message(&mut out, kind, |body| {
            text(body, &field());
            text(body, &field());
            body.extend_from_slice(&[0; 2]);
        }),
        b'B' => {
            let (portal, statement) = (field(), field());
            let values: Vec<&str> = rest.split('|').skip(2).map(str::trim).collect();
            message(&mut out, kind, |body| bind(body, &portal, &statement, &values));
        }
        b'D' | b'C' => message(&mut out, kind, |body| {
            let (what, name) = rest.split_once(' ').unwrap_or((rest, ""));
            body.extend_from_slice(what.as_bytes());
            text(body, name.as_bytes());
        }),
        b'E' => message(&mut out, kind, |body| {
            let (limit, portal) = rest.split_once(' ').unwrap_or((rest, ""));
            text(body, portal.as_bytes());
            body.extend_from_slice(&limit.parse::<u32>().unwrap_or(0).to_be_bytes());
        }),
        b'd' => message(&mut out, kind, |body| body.extend_from_slice(format!("{rest}\n").as_bytes())),
        b'S' | b'H' | b'c' | b'X' | b'y' => message(&mut out, kind, |_| ()),
        _ => return None,
    }
    Some(out)
}

fn bind(body: &mut Vec<u8>, portal: &[u8], statement: &[u8], values: &[&str]) {
    text(body, portal);
    text(body, statement);
    body.extend_from_slice(&[0; 2]);
    body.extend_from_slice(&u16::try_from(values.len()).unwrap_or(0).to_be_bytes());
    for value in values {
        body.extend_from_slice(&u32::try_from(value.len()).unwrap_or(0).to_be_bytes());
        body.extend_from_slice(value.as_bytes());
    }
    body.extend_from_slice(&[0; 2]);
}

/// Whether a server says something once it has got this (perhaps nothing but silence, for a while).
pub(crate) fn is_flushed(line: &str) -> bool {
    matches!(line.as_bytes().first(), Some(b'Q' | b'S' | b'H' | b'c' | b'f' | b'y'))
}

/// The line that an answer is compared by.
pub(crate) fn line(kind: u8, body: &[u8]) -> String {
    let mut fields = Fields(body);
    let readable = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or(b"?")).into_owned();
    let key = match kind {
        b'C' => readable(fields.text()),
        b'Z' => readable(Some(body)),
        b'E' | b'N' => {
            format!("{} {}", readable(error_field(body, b'V')), readable(error_field(body, b'C')))
        }
        b'S' => format!("{}={}", readable(fields.text()), readable(fields.text())),
        b'T' | b'D' => fields.short().unwrap_or(0).to_string(),
        b't' => {
            let count = fields.short().unwrap_or(0);
            let types: Vec<String> = (0..count).filter_map(|_| Some(fields.long()?.to_string())).collect();
            types.join(" ")
        }
        _ => String::new(),
    };
    format!("{} {key}", char::from(kind)).trim_end().to_owned()
}

/// One exchange of a conversation: what is sent at once, and what is answered to it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Exchange {
    /// Comments before it.
    pub(crate) remarks: Vec<String>,
    /// Requests, without `> `.
    pub(crate) sent: Vec<String>,
    /// Answers, without `< `.
    pub(crate) answered: Vec<String>,
}

/// Reads a file of the corpus. An exchange ends with the first request that a server answers at once.
pub(crate) fn read(file: &str) -> Vec<Exchange> {
    let mut exchanges: Vec<Exchange> = Vec::new();
    let mut open = Exchange::default();
    for line in file.lines() {
        if let Some(request) = line.strip_prefix('>') {
            let request = request.strip_prefix(' ').unwrap_or(request);
            open.sent.push(request.to_owned());
            if is_flushed(request) {
                exchanges.push(std::mem::take(&mut open));
            }
        } else if let Some(answer) = line.strip_prefix("< ") {
            if let Some(exchange) = exchanges.last_mut() {
                exchange.answered.push(answer.to_owned());
            }
        } else if line.starts_with('#') {
            open.remarks.push(line.to_owned());
        }
    }
    exchanges
}

/// Writes a file of the corpus.
pub(crate) fn write(exchanges: &[Exchange]) -> String {
    let mut out = String::new();
    for exchange in exchanges {
        let remarks = exchange.remarks.iter().cloned();
        let sent = exchange.sent.iter().map(|line| format!("> {line}").trim_end().to_owned());
        let answered = exchange.answered.iter().map(|line| format!("< {line}"));
        for line in remarks.chain(sent).chain(answered) {
            out.push_str(&line);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::cluster::Cluster;
    use crate::model::session::Progress;
    use crate::network::{End, LinkId};
    use crate::prng::Prng;
    use crate::protocol::{Frames, Next, untyped};
    use crate::swarm::Servers;

    /// A session of the model without other sessions.
    struct SingleBackend(Cluster);

    impl SingleBackend {
        fn log_in() -> SingleBackend {
            let servers = Servers {
                modern: false,
                work_us: 1,
                chatter_per_million: 0,
                ddl_per_million: 0,
                max_connections: 1_000,
                starting_us: 0,
                lookup_us: 0,
                secret: "",
                keeps_sessions: false,
                question_fails_per_million: 0,
            };
            let mut cluster = Cluster::new(servers, None, Prng::new(1));
            let number = cluster.accept(End { link: LinkId(0), opener: false }, 0);
            let mut startup = Vec::new();
            untyped(&mut startup, |body| {
                body.extend_from_slice(&196_608_u32.to_be_bytes());
                body.extend_from_slice(b"user\0postgres\0database\0postgres\0\0");
            });
            cluster.backend(number).feed(&startup);
            let mut lonely = SingleBackend(cluster);
            lonely.answers();
            lonely
        }

        fn say(&mut self, exchange: &Exchange) -> Vec<String> {
            for request in &exchange.sent {
                self.0.backend(0).feed(&frame(request).unwrap());
            }
            self.answers()
        }

        fn answers(&mut self) -> Vec<String> {
            while !matches!(self.0.step(0, 0), Progress::Waiting | Progress::Ended) {}
            let mut frames = Frames::default();
            let output = std::mem::take(&mut self.0.backend(0).output);
            frames.push(&output.into_iter().collect::<Vec<u8>>());
            let (mut body, mut lines) = (Vec::new(), Vec::new());
            while let Next::Frame(kind) = frames.next(&mut body) {
                lines.push(line(kind, &body));
            }
            if self.0.backend(0).has_ended() {
                lines.push(CLOSED.to_owned());
            }
            lines
        }
    }

    fn files() -> Vec<(String, String)> {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
        let paths = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let texts = paths.filter(|path| path.extension().is_some_and(|extension| extension == "txt"));
        texts.map(|path| (path.display().to_string(), std::fs::read_to_string(&path).unwrap())).collect()
    }

    #[test]
    fn the_model_answers_as_postgresql_does() {
        let mut exchanges = 0;
        for (path, file) in files() {
            let mut lonely = SingleBackend::log_in();
            for exchange in read(&file) {
                let answered = lonely.say(&exchange);
                assert_eq!(answered, exchange.answered, "{path}: {:#?}", exchange.sent);
                exchanges += 1;
            }
        }
        assert!(exchanges > 100, "the corpus is gone");
    }

    #[test]
    fn files_are_written_as_they_are_read() {
        for (path, file) in files() {
            assert_eq!(write(&read(&file)), file, "{path}");
        }
    }
}
