//! Answers Weir's own Describe of each statement that it has parsed, so that a test about something else neither sees nor answers it.

use std::collections::{BTreeMap, VecDeque};

use shard::ConnId;
use wire::encode;

use super::message;

/// What a server owes, as far as it matters here.
enum Owed {
    Parse { described: bool },
    Ready,
}

#[derive(Default)]
struct Stream {
    /// The frame that is not whole yet.
    frame: Vec<u8>,
}

impl Stream {
    /// Adds a byte; the frame that it ends.
    fn push(&mut self, byte: u8) -> Option<Vec<u8>> {
        self.frame.push(byte);
        let length = self.frame.get(1..5).map(|length| u32::from_be_bytes(length.try_into().unwrap()));
        (length.map(|length| length as usize + 1) == Some(self.frame.len()))
            .then(|| std::mem::take(&mut self.frame))
    }
}

#[derive(Default)]
struct Server {
    asked: Stream,
    said: Stream,
    owed: VecDeque<Owed>,
    /// The last message was a Parse of this name.
    parsed: Option<Vec<u8>>,
}

#[derive(Default)]
pub struct Describer {
    servers: BTreeMap<ConnId, Server>,
    /// What it answers: no parameters, and these columns of type int; without any, no rows.
    pub columns: Vec<&'static str>,
}

impl Describer {
    fn description(&self) -> Vec<u8> {
        let column = |name: &&'static str| encode::Column { name, type_oid: 23, type_bytes: 4 };
        let columns: Vec<_> = self.columns.iter().map(column).collect();
        message(|out| {
            encode::parameter_description(out, &[]);
            match columns.is_empty() {
                true => encode::no_data(out),
                false => encode::row_description(out, &columns),
            }
        })
    }

    /// A server's login is over: from here on it speaks in frames.
    pub fn follow(&mut self, server: ConnId) {
        self.servers.insert(server, Server::default());
    }

    /// What goes to a server, without Weir's own Describes.
    pub fn asked(&mut self, conn: ConnId, bytes: &[u8]) -> Vec<u8> {
        let Some(server) = self.servers.get_mut(&conn) else { return bytes.to_vec() };
        let mut out = vec![];
        for byte in bytes {
            out.push(*byte);
            let Some(frame) = server.asked.push(*byte) else { continue };
            let parsed = server.parsed.take();
            match frame[0] {
                b'P' => {
                    let name = frame[5..].split(|byte| *byte == 0).next().unwrap().to_vec();
                    server.owed.push_back(Owed::Parse { described: false });
                    server.parsed = Some(name);
                }
                b'D' if parsed.is_some_and(|name| {
                    !name.is_empty() && frame[5..] == [b"S", &name[..], b"\0"].concat()
                }) =>
                {
                    *server.owed.back_mut().unwrap() = Owed::Parse { described: true };
                    out.truncate(out.len().saturating_sub(frame.len()));
                }
                b'S' | b'Q' => server.owed.push_back(Owed::Ready),
                _ => {}
            }
        }
        out
    }

    /// What a server says, with the descriptions.
    pub fn said(&mut self, conn: ConnId, bytes: &[u8]) -> Vec<u8> {
        let description = self.description();
        let Some(server) = self.servers.get_mut(&conn) else { return bytes.to_vec() };
        let mut out = vec![];
        for byte in bytes {
            out.push(*byte);
            let Some(frame) = server.said.push(*byte) else { continue };
            match (frame[0], server.owed.front()) {
                (b'1', Some(Owed::Parse { described })) => {
                    if *described {
                        out.extend(&description);
                    }
                    server.owed.pop_front();
                }
                (b'E', _) => {
                    while server.owed.pop_front_if(|owed| matches!(owed, Owed::Parse { .. })).is_some() {}
                }
                (b'Z', Some(Owed::Ready)) => drop(server.owed.pop_front()),
                _ => {}
            }
        }
        out
    }
}
