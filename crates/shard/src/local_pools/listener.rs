//! The connection that listens for all clients of a pool, as data: who listens on what, and the clients that are being handed over.
//!
//! Owns what the connection is to listen on next. Sending and receiving is `link`'s.

use std::collections::{BTreeMap, BTreeSet};

use pool::ListenerUnit;

use crate::ConnId;

/// On this channel the server of a client that is handed over and the shared connection get the same marker.
pub(crate) const MARKERS: &str = "weir_handover";

/// The most channels it listens on: PostgreSQL goes through all of them for each notification.
const MAX_CHANNELS: usize = 16_384;
/// The most of them in one command, so that it answers in time.
const CHANNELS_AT_A_TIME: usize = 1_000;

/// Where the connection is.
#[derive(Debug, Default)]
enum Connection {
    #[default]
    None,
    /// A server of the pool is waited for, by this internal client.
    Requested(ConnId),
    Open(Open),
}

#[derive(Debug)]
struct Open {
    conn: ConnId,
    on: BTreeSet<Box<str>>,
    /// What the command that runs begins and ends to listen on.
    asked: Option<Asked>,
}

#[derive(Debug)]
struct Asked {
    new: Vec<Box<str>>,
    old: Vec<Box<str>>,
}

/// How far a client is handed over.
#[derive(Debug)]
pub(crate) enum Step {
    /// The shared connection does not listen on all of its channels yet.
    Begun,
    /// Its server is sent the marker. What has come before that: on the server, and on the shared connection.
    Marked { server: Option<FromServer>, shared: Option<Vec<u8>> },
    /// Nothing is handed over: its server has delivered notifications of its own that the shared connection has not yet.
    AwaitsOwn,
    /// The client keeps its server, which stops listening for markers: all is there, or the marker did not come.
    Over,
}

/// What a server has delivered before and behind a marker.
#[derive(Debug)]
pub(crate) struct FromServer {
    pub(crate) before: Vec<u8>,
    pub(crate) behind: Vec<u8>,
}

/// Who listens for the client from the marker on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToShared,
    /// Its own server, which it keeps.
    ToServer,
}

/// A client that listens on its own server and is to do so by way of the shared connection, or the other way round.
#[derive(Debug)]
pub(crate) struct HandOver {
    pub(crate) client: ConnId,
    pub(crate) server: ConnId,
    pub(crate) direction: Direction,
    /// The channels that are new to the shared connection, or new for this client.
    pub(crate) channels: Vec<String>,
    /// The payload of its marker.
    pub(crate) marker: String,
    pub(crate) since_us: u64,
    pub(crate) step: Step,
}

/// What listens for all clients of a pool.
#[derive(Debug, Default)]
pub(crate) struct Listener {
    connection: Connection,
    subscribers: BTreeMap<Box<str>, BTreeSet<ConnId>>,
    /// Channels that may be wanted since it was last sent a command, or no longer.
    changed: BTreeSet<Box<str>>,
    /// Counts in the limits as long as there are clients that listen.
    unit: Option<ListenerUnit>,
    /// A connection that was lost is not sought before this time.
    retry_us: u64,
    hand_overs: Vec<HandOver>,
    /// Since when no client listens.
    unused_since_us: Option<u64>,
    /// Clients may have notifications that they could not take, since this was asked last.
    some_wait: bool,
}

impl Listener {
    /// The connection, once it is open.
    pub(crate) fn conn(&self) -> Option<ConnId> {
        match &self.connection {
            Connection::Open(open) => Some(open.conn),
            Connection::None | Connection::Requested(_) => None,
        }
    }

    /// The internal client that waits for a server to listen on.
    pub(crate) fn requested(&self) -> Option<ConnId> {
        match &self.connection {
            Connection::Requested(conn) => Some(*conn),
            Connection::None | Connection::Open(_) => None,
        }
    }

    pub(crate) fn request(&mut self, internal_client: ConnId) {
        self.connection = Connection::Requested(internal_client);
    }

    /// This server is the shared connection from here on, and listens on these channels.
    pub(crate) fn open<'a>(&mut self, conn: ConnId, on: impl IntoIterator<Item = &'a str>) {
        let on: BTreeSet<Box<str>> = on.into_iter().map(Box::from).collect();
        let handed = self.hand_overs.iter().flat_map(|hand_over| &hand_over.channels);
        let wanted =
            self.subscribers.keys().cloned().chain(handed.map(|channel| Box::from(channel.as_str())));
        self.changed = wanted.chain(on.iter().cloned()).chain([Box::from(MARKERS)]).collect();
        self.connection = Connection::Open(Open { conn, on, asked: None });
    }

    /// There is no connection any more. Another one is not sought before this time.
    pub(crate) fn close(&mut self, retry_us: u64) {
        (self.connection, self.retry_us) = (Connection::None, retry_us);
    }

    /// Another connection may be sought.
    pub(crate) fn may_request(&self, now_us: u64) -> bool {
        now_us >= self.retry_us
    }

    /// It counts in the limits from here on.
    pub(crate) fn count(&mut self, unit: impl FnOnce() -> Option<ListenerUnit>) -> bool {
        if self.unit.is_none() {
            self.unit = unit();
        }
        self.unit.is_some()
    }

    /// It can take this many channels more.
    pub(crate) fn has_room(&self, channels: usize) -> bool {
        self.subscribers.len() + channels <= MAX_CHANNELS
    }

    /// The statements that make it listen on what is wanted, on some of that if it is much. None if it does so or a command runs.
    pub(crate) fn next_command(&mut self) -> Option<String> {
        let mut asked = Asked { new: Vec::new(), old: Vec::new() };
        while let Connection::Open(open) = &self.connection
            && open.asked.is_none()
            && asked.new.len() + asked.old.len() < CHANNELS_AT_A_TIME
            && let Some(channel) = self.changed.pop_first()
        {
            match (self.wants(&channel), open.on.contains(&channel)) {
                (true, false) => asked.new.push(channel),
                (false, true) => asked.old.push(channel),
                _ => {}
            }
        }
        let Connection::Open(open) = &mut self.connection else { return None };
        if asked.new.is_empty() && asked.old.is_empty() {
            return None;
        }
        let sql = session::listening::listen(asked.new.iter().map(|channel| &**channel))
            + &session::listening::unlisten(asked.old.iter().map(|channel| &**channel));
        open.asked = Some(asked);
        Some(sql)
    }

    /// The command is answered.
    pub(crate) fn command_done(&mut self) {
        if let Connection::Open(open) = &mut self.connection
            && let Some(asked) = open.asked.take()
        {
            open.on.retain(|channel| !asked.old.contains(channel));
            open.on.extend(asked.new);
        }
    }

    fn wants(&self, channel: &str) -> bool {
        let is_handed = |hand_over: &HandOver| hand_over.channels.iter().any(|one| one == channel);
        channel == MARKERS || self.subscribers.contains_key(channel) || self.hand_overs.iter().any(is_handed)
    }

    /// It does so already, and is not about to end it.
    pub(crate) fn listens_on(&self, channel: &str) -> bool {
        let ends = |asked: &Asked| asked.old.iter().any(|old| **old == *channel);
        matches!(&self.connection, Connection::Open(open) if open.on.contains(channel) && !open.asked.as_ref().is_some_and(ends))
    }

    pub(crate) fn subscribe(&mut self, client: ConnId, channel: &str) {
        self.unused_since_us = None;
        let clients = self.subscribers.entry(channel.into()).or_default();
        if clients.is_empty() {
            self.changed.insert(channel.into());
        }
        clients.insert(client);
    }

    pub(crate) fn unsubscribe(&mut self, client: ConnId, channel: &str) {
        if let Some(clients) = self.subscribers.get_mut(channel) {
            clients.remove(&client);
            if clients.is_empty() {
                self.subscribers.remove(channel);
                self.changed.insert(channel.into());
            }
        }
    }

    /// The client is gone.
    pub(crate) fn forget<'a>(&mut self, client: ConnId, channels: impl Iterator<Item = &'a str>) {
        channels.for_each(|channel| self.unsubscribe(client, channel));
        self.end(client);
    }

    /// The clients that hear what is sent on this channel.
    pub(crate) fn subscribers_of(&self, channel: &[u8]) -> Vec<ConnId> {
        let clients = std::str::from_utf8(channel).ok().and_then(|channel| self.subscribers.get(channel));
        clients.into_iter().flatten().copied().collect()
    }

    /// Some client could not take a notification.
    pub(crate) fn note_waiting(&mut self) {
        self.some_wait = true;
    }

    /// That was so since this was asked before. It may be so still.
    pub(crate) fn take_waiting(&mut self) -> bool {
        std::mem::take(&mut self.some_wait)
    }

    /// A client listens.
    pub(crate) fn has_clients(&self) -> bool {
        !self.subscribers.is_empty()
    }

    /// All clients that listen on anything.
    pub(crate) fn clients(&self) -> BTreeSet<ConnId> {
        self.subscribers.values().flatten().copied().collect()
    }

    /// A client listens, or is handed over.
    pub(crate) fn is_used(&self) -> bool {
        !self.subscribers.is_empty() || !self.hand_overs.is_empty()
    }

    /// Since when it has been unused, noted when this was first asked.
    pub(crate) fn unused_since_us(&mut self, now_us: u64) -> Option<u64> {
        if self.is_used() {
            self.unused_since_us = None;
            return None;
        }
        Some(*self.unused_since_us.get_or_insert(now_us))
    }

    pub(crate) fn begin(&mut self, hand_over: HandOver) {
        self.changed.extend(hand_over.channels.iter().map(|channel| Box::from(channel.as_str())));
        self.hand_overs.push(hand_over);
    }

    pub(crate) fn hand_over_of(&mut self, client: ConnId) -> Option<&mut HandOver> {
        self.hand_overs.iter_mut().find(|hand_over| hand_over.client == client)
    }

    pub(crate) fn hand_over_by(&mut self, marker: &[u8]) -> Option<&mut HandOver> {
        self.hand_overs.iter_mut().find(|hand_over| hand_over.marker.as_bytes() == marker)
    }

    pub(crate) fn end(&mut self, client: ConnId) -> Option<HandOver> {
        let place = self.hand_overs.iter().position(|hand_over| hand_over.client == client)?;
        let over = self.hand_overs.swap_remove(place);
        self.changed.extend(over.channels.iter().map(|channel| Box::from(channel.as_str())));
        Some(over)
    }

    /// The clients all of whose channels the connection listens on: their servers are sent the marker now.
    pub(crate) fn mark_ready(&mut self) -> Vec<(ConnId, String)> {
        let is_ready = |hand_over: &HandOver| {
            let mut channels = hand_over.channels.iter().map(String::as_str).chain([MARKERS]);
            matches!(hand_over.step, Step::Begun) && channels.all(|channel| self.listens_on(channel))
        };
        let ready: Vec<bool> = self.hand_overs.iter().map(is_ready).collect();
        let mut servers = Vec::new();
        for (hand_over, _) in self.hand_overs.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            hand_over.step = Step::Marked { server: None, shared: None };
            servers.push((hand_over.server, hand_over.marker.clone()));
        }
        servers
    }

    /// The clients whose hand-over began before this time.
    pub(crate) fn begun_before(&self, time_us: u64) -> Vec<ConnId> {
        let late = self.hand_overs.iter().filter(|hand_over| hand_over.since_us < time_us);
        late.filter(|hand_over| !matches!(hand_over.step, Step::Over))
            .map(|hand_over| hand_over.client)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hand_over(channels: &[&str]) -> HandOver {
        HandOver {
            client: ConnId(1),
            server: ConnId(2),
            direction: Direction::ToShared,
            channels: channels.iter().map(ToString::to_string).collect(),
            marker: "m".to_owned(),
            since_us: 5,
            step: Step::Begun,
        }
    }

    #[test]
    fn it_listens_on_what_is_wanted_with_one_command_at_a_time() {
        let mut listener = Listener::default();
        listener.subscribe(ConnId(1), "a");
        assert_eq!(listener.next_command(), None, "there is no connection");
        listener.open(ConnId(9), ["a", "old"]);
        let sql = "LISTEN \"weir_handover\";UNLISTEN \"old\";";
        assert_eq!(listener.next_command().as_deref(), Some(sql));
        listener.subscribe(ConnId(2), "b");
        assert_eq!(listener.next_command(), None, "one runs");
        listener.command_done();
        assert_eq!(listener.next_command().as_deref(), Some("LISTEN \"b\";"));
        listener.command_done();
        listener.forget(ConnId(2), ["b"].into_iter());
        assert_eq!(listener.next_command().as_deref(), Some("UNLISTEN \"b\";"));
        assert!(!listener.listens_on("b") && listener.listens_on("a"), "not any more");
    }

    #[test]
    fn a_marker_is_sent_when_the_connection_listens() {
        let mut listener = Listener::default();
        listener.open(ConnId(9), []);
        listener.begin(hand_over(&["a"]));
        assert!(listener.mark_ready().is_empty() && listener.is_used());
        assert_eq!(listener.next_command().as_deref(), Some("LISTEN \"a\";LISTEN \"weir_handover\";"));
        assert!(listener.mark_ready().is_empty());
        listener.command_done();
        assert_eq!(listener.mark_ready(), [(ConnId(2), "m".to_owned())]);
        assert!(listener.mark_ready().is_empty());
        assert_eq!((listener.begun_before(5), listener.begun_before(6)), (vec![], vec![ConnId(1)]));
        assert!(listener.hand_over_by(b"m").is_some() && listener.hand_over_by(b"x").is_none());
        assert!(listener.end(ConnId(1)).is_some() && !listener.is_used());
    }

    #[test]
    fn it_is_unused_since_the_last_client() {
        let mut listener = Listener::default();
        listener.subscribe(ConnId(1), "a");
        listener.subscribe(ConnId(2), "a");
        assert_eq!(listener.subscribers_of(b"a"), [ConnId(1), ConnId(2)]);
        assert_eq!(listener.unused_since_us(1), None);
        listener.unsubscribe(ConnId(1), "a");
        listener.forget(ConnId(2), ["a"].into_iter());
        assert_eq!((listener.unused_since_us(2), listener.unused_since_us(3)), (Some(2), Some(2)));
    }
}
