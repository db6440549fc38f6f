//! The channels on which a client listens by way of a connection that its pool's clients share, and what has come for it meanwhile.
//!
//! Owns reading NotificationResponse, the text of LISTEN, and the bound of what waits for the end of a transaction. Which connection
//! delivers what is the shard's.

use std::collections::BTreeSet;

use wire::frame::{self, HEADER_BYTES};
use wire::tag::backend as tag;

/// How much may wait for the end of a client's transaction, in bytes.
const QUEUED_BYTES: usize = 1024 * 1024;

/// A NotificationResponse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification<'a> {
    /// The channel.
    pub channel: &'a [u8],
    /// The payload.
    pub payload: &'a [u8],
    /// All of the message.
    pub frame: &'a [u8],
}

/// The notifications that these bytes consist of.
pub fn notifications(mut bytes: &[u8]) -> impl Iterator<Item = Notification<'_>> {
    std::iter::from_fn(move || {
        let header = frame::header(bytes).ok()??;
        let (frame, rest) = bytes.split_at_checked(header.frame_bytes as usize)?;
        bytes = rest;
        read(frame)
    })
}

/// Takes a whole frame apart; None if it is another message.
#[must_use]
pub fn read(frame: &[u8]) -> Option<Notification<'_>> {
    let (first, body) = (frame.first()?, frame.get(HEADER_BYTES + 4..)?);
    let (channel, rest) = body.split_at_checked(body.iter().position(|byte| *byte == 0)?)?;
    let payload = rest.strip_prefix(&[0])?.strip_suffix(&[0])?;
    (*first == tag::NOTIFICATION).then_some(Notification { channel, payload, frame })
}

/// The statements that listen on these channels, each with a semicolon behind it.
#[must_use]
pub fn listen<'a>(channels: impl IntoIterator<Item = &'a str>) -> String {
    command("LISTEN", channels)
}

/// The statements that stop it.
#[must_use]
pub fn unlisten<'a>(channels: impl IntoIterator<Item = &'a str>) -> String {
    command("UNLISTEN", channels)
}

fn command<'a>(word: &str, channels: impl IntoIterator<Item = &'a str>) -> String {
    let quoted = |channel: &str| format!("{word} \"{}\";", channel.replace('"', "\"\""));
    channels.into_iter().map(quoted).collect()
}

/// Too much waits for the end of the client's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull;

/// What a client listens on by way of the shared connection.
#[derive(Debug, Default)]
pub struct Listening {
    channels: BTreeSet<Box<str>>,
    /// Notifications that came while it was in a transaction or did not read.
    queued: Vec<u8>,
    own: OwnNotifications,
    /// The ReadyForQuery of its transaction comes behind what waits.
    is_ready_withheld: bool,
}

/// What the client's own transactions notify it of: PostgreSQL delivers that in front of their ReadyForQuery, with the process ID that the
/// client was given at login.
#[derive(Debug, Default)]
struct OwnNotifications {
    client: u32,
    server: u32,
    /// What its server has delivered of them.
    frames: Vec<u8>,
    /// How many bytes of that the shared connection has delivered, too.
    matched: usize,
}

impl OwnNotifications {
    /// The shared connection has delivered this: if it is the next one, it gets the client's process ID.
    fn meet(&mut self, frame: &mut [u8]) {
        if !frame.is_empty() && self.frames[self.matched..].starts_with(frame) {
            self.matched += frame.len();
            set_process_id(frame, self.client);
        }
    }

    fn are_missing(&self) -> bool {
        self.matched < self.frames.len()
    }
}

/// The process ID of a NotificationResponse.
fn process_id(frame: &[u8]) -> Option<u32> {
    frame.get(HEADER_BYTES..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

fn set_process_id(frame: &mut [u8], process_id: u32) {
    if let Some(bytes) = frame.get_mut(HEADER_BYTES..HEADER_BYTES + 4) {
        bytes.copy_from_slice(&process_id.to_be_bytes());
    }
}

/// Gives each of these that has one process ID the other.
pub fn replace_process_id(mut frames: &mut [u8], from: u32, to: u32) {
    while let Ok(Some(header)) = frame::header(frames)
        && let Some((frame, rest)) = frames.split_at_mut_checked(header.frame_bytes as usize)
    {
        if process_id(frame) == Some(from) {
            set_process_id(frame, to);
        }
        frames = rest;
    }
}

impl Listening {
    /// It gets the notifications of this channel from the shared connection.
    #[must_use]
    pub fn is_on(&self, channel: &[u8]) -> bool {
        std::str::from_utf8(channel).is_ok_and(|channel| self.channels.contains(channel))
    }

    /// Its channels.
    pub fn channels(&self) -> impl Iterator<Item = &str> {
        self.channels.iter().map(|channel| &**channel)
    }

    /// It listens on none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    /// From here on it listens on this one.
    pub fn add(&mut self, channel: &str) {
        self.channels.insert(channel.into());
    }

    /// It does so no more: what waits of this channel is dropped, as PostgreSQL does.
    pub fn remove(&mut self, channel: &str) {
        self.channels.remove(channel);
        let kept = notifications(&self.queued).filter(|waiting| waiting.channel != channel.as_bytes());
        self.queued = kept.flat_map(|waiting| waiting.frame).copied().collect();
    }

    /// Keeps a notification until the client can take it.
    ///
    /// # Errors
    /// If more waits than may.
    pub fn queue(&mut self, frames: &[u8]) -> Result<(), QueueFull> {
        if self.queued.len() + frames.len() > QUEUED_BYTES {
            return Err(QueueFull);
        }
        let at = self.queued.len();
        self.queued.extend_from_slice(frames);
        self.own.meet(&mut self.queued[at..]);
        Ok(())
    }

    /// The client, which has this process ID, uses a server that has that one.
    pub fn use_server(&mut self, client: u32, server: u32) {
        self.own = OwnNotifications { client, server, ..OwnNotifications::default() };
    }

    /// This notification is of the client's own transactions.
    #[must_use]
    pub fn is_own(&self, frame: &[u8]) -> bool {
        self.own.server != 0 && process_id(frame) == Some(self.own.server)
    }

    /// The client's server has delivered it, and the shared connection does so as well.
    pub(crate) fn note_own(&mut self, frame: &[u8]) {
        if self.is_own(frame) && self.own.frames.len() + frame.len() <= QUEUED_BYTES {
            self.own.frames.extend_from_slice(frame);
        }
    }

    /// Finds out which of its own ones wait already.
    pub(crate) fn meet_own(&mut self) {
        let mut queued = self.queued.as_mut_slice();
        while self.own.are_missing()
            && let Ok(Some(header)) = frame::header(queued)
            && let Some((frame, rest)) = queued.split_at_mut_checked(header.frame_bytes as usize)
        {
            self.own.meet(frame);
            queued = rest;
        }
    }

    /// The shared connection has not delivered all that the client's server has of the client's own ones.
    #[must_use]
    pub fn awaits_own(&self) -> bool {
        self.own.are_missing()
    }

    /// The client's server has delivered some that the client has not been given.
    #[must_use]
    pub(crate) fn has_own(&self) -> bool {
        !self.own.frames.is_empty()
    }

    /// Those that are missing are not awaited any more.
    pub fn forget_own(&mut self) {
        self.own.frames.clear();
        self.own.matched = 0;
    }

    /// ReadyForQuery comes later, with what waits.
    pub(crate) fn withhold_ready(&mut self) {
        self.is_ready_withheld = true;
    }

    /// It does.
    #[must_use]
    pub fn is_ready_withheld(&self) -> bool {
        self.is_ready_withheld
    }

    /// It comes now; true if it was withheld.
    pub fn take_ready(&mut self) -> bool {
        let is_withheld = std::mem::take(&mut self.is_ready_withheld);
        if is_withheld {
            self.forget_own();
        }
        is_withheld
    }

    /// Notifications wait.
    #[must_use]
    pub fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    /// What waits.
    #[must_use]
    pub fn queued(&self) -> &[u8] {
        &self.queued
    }

    /// The same; nothing waits any more.
    pub fn take_queued(&mut self) -> Vec<u8> {
        if !self.awaits_own() {
            self.forget_own();
        }
        std::mem::take(&mut self.queued)
    }
}

/// What a client is to get at the end of a hand-over, in the order of commits: `server` is what its own server has delivered before the
/// marker, `shared` what the shared connection has delivered before it and waits. Notifications of channels that `was_on` come on both:
/// the last ones of `shared` are the same as the last ones of `server`, and those of `server` that are missing there the client has.
#[must_use]
pub fn merged(shared: &[u8], server: &[u8], was_on: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let on_both = notifications(server).filter(|one| was_on(one.channel)).count();
    let waiting = notifications(shared).count();
    let mut frames: Vec<u8> = notifications(shared)
        .take(waiting.saturating_sub(on_both))
        .flat_map(|one| one.frame)
        .copied()
        .collect();
    let mut had = on_both.saturating_sub(waiting);
    for one in notifications(server) {
        if was_on(one.channel) && had > 0 {
            had -= 1;
        } else {
            frames.extend_from_slice(one.frame);
        }
    }
    frames
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn frame(channel: &str, payload: &str) -> Vec<u8> {
        let body = [&7_u32.to_be_bytes()[..], channel.as_bytes(), &[0], payload.as_bytes(), &[0]].concat();
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[tag::NOTIFICATION][..], &length.to_be_bytes(), &body].concat()
    }

    fn frames(all: &[(&str, &str)]) -> Vec<u8> {
        all.iter().flat_map(|(channel, payload)| frame(channel, payload)).collect()
    }

    fn payloads(bytes: &[u8]) -> String {
        notifications(bytes)
            .map(|one| String::from_utf8(one.payload.to_vec()).unwrap())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn a_notification_is_read() {
        let bytes = frame("news", "x");
        let found = read(&bytes).unwrap();
        assert_eq!((found.channel, found.payload), (&b"news"[..], &b"x"[..]));
        assert_eq!((read(b"N\0\0\0\x04"), read(&bytes[..bytes.len() - 1]), read(b"A\0")), (None, None, None));
        assert_eq!(
            listen(["a", "B\"c"]) + &unlisten(["d"]),
            "LISTEN \"a\";LISTEN \"B\"\"c\";UNLISTEN \"d\";"
        );
    }

    #[test]
    fn what_waits_is_bounded_and_goes_with_its_channel() {
        let mut listening = Listening::default();
        listening.add("a");
        assert!(listening.is_on(b"a") && !listening.is_on(b"b") && !listening.is_on(b"\xff"));
        listening.queue(&frames(&[("a", "1"), ("b", "2"), ("a", "3")])).unwrap();
        listening.remove("a");
        assert_eq!((payloads(listening.queued()), listening.is_empty()), ("2".to_owned(), true));
        assert_eq!(listening.queue(&vec![0; QUEUED_BYTES]), Err(QueueFull));
        assert_eq!(payloads(&listening.take_queued()), "2");
    }

    #[test]
    fn its_own_ones_are_met_in_order_and_have_its_process_id() {
        let mut listening = Listening::default();
        listening.add("a");
        listening.use_server(99, 7);
        listening.queue(&frame("a", "1")).unwrap();
        for payload in ["1", "2"] {
            listening.note_own(&frame("a", payload));
        }
        listening.meet_own();
        assert!(listening.awaits_own());
        listening.queue(&frame("a", "of another")).unwrap();
        assert!(listening.awaits_own());
        listening.queue(&frame("a", "2")).unwrap();
        assert!(!listening.awaits_own());
        let ids: Vec<_> = notifications(listening.queued()).map(|one| process_id(one.frame)).collect();
        assert_eq!(ids, [Some(99), Some(7), Some(99)]);
        listening.withhold_ready();
        assert!(listening.take_ready() && !listening.take_ready());
    }

    #[test]
    fn what_came_on_both_connections_is_merged_in_the_order_of_commits() {
        let was_on = |channel: &[u8]| channel == b"old";
        let server = frames(&[("old", "2"), ("new", "3"), ("old", "4")]);
        let shared = frames(&[("old", "1"), ("old", "2"), ("old", "4")]);
        assert_eq!(payloads(&merged(&shared, &server, was_on)), "1 2 3 4");
        assert_eq!(payloads(&merged(&frames(&[("old", "4")]), &server, was_on)), "3 4", "the client has 2");
        assert_eq!(payloads(&merged(&[], &frames(&[("new", "3")]), was_on)), "3");
        assert_eq!(payloads(&merged(&shared, &[], was_on)), "1 2 4");
    }
}
