//! Listens on one connection between the pooler and a server, from outside, and tells whose turn it is there.
//!
//! It knows clients by the tags in their requests and objects when a server changes hands before it was quiet (I2), or
//! when bytes of two clients mix. It never sees the pooler's own idea of who is linked to whom.

use std::collections::VecDeque;

use crate::invariants::InvariantChecker;
use crate::protocol::{Fields, Frames, Next, RequestEnd};
use crate::sql::Tag;

const CANCEL: u32 = 80_877_102;
const SSL: u32 = 80_877_103;

/// What the world knows of cancel requests.
pub(crate) struct Cancels<'a> {
    /// Whether one with this key was sent and is not over.
    pub(crate) under_way: &'a dyn Fn((u32, u32)) -> bool,
    /// Whether this client has ever asked for one: then it may be its own that is under way.
    pub(crate) asked_by: &'a dyn Fn(u32) -> bool,
}

/// What kind of connection it turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Nothing was sent yet.
    Unknown,
    /// A session, in this database as this user.
    Session {
        /// The database.
        database: String,
        /// The user.
        user: String,
        /// It is one client's own, which replicates.
        own: bool,
    },
    /// A cancel request with this key.
    Cancel {
        /// Process id and secret.
        key: (u32, u32),
    },
}

/// A request that ReadyForQuery will answer.
#[derive(Debug)]
struct Point {
    /// Whose; None for the pooler's own and for those that cannot be told.
    owner: Option<u32>,
    /// The server has read it, and will answer it.
    read: bool,
}

/// How quiet a server is.
#[derive(Clone, Copy, Debug, Default)]
struct TimePoint {
    /// Answers owed to the client that used it last.
    owed: usize,
    /// Transaction status as last told.
    status: u8,
    /// A cancel request is under way to it.
    cancel: bool,
}

/// The listener on one connection.
#[derive(Debug)]
pub(crate) struct Tap {
    /// What it is for.
    pub(crate) purpose: Purpose,
    /// The session's key, once the server has told it.
    pub(crate) key: Option<(u32, u32)>,
    /// The last message of a client's that was sent to it.
    pub(crate) last: Option<Tag>,
    /// Messages of clients that were sent to it.
    pub(crate) requests: u64,
    /// The server was asked which timeline it is on, what it has said, and that this is all that it says.
    asks_timeline: bool,
    told_timeline: Option<u32>,
    shown_timeline: Option<u32>,
    /// The databases of each RECONNECT since it was opened; None is all of them.
    reconnects: Vec<Option<String>>,
    /// The timeline that it has told of as a primary.
    pub(crate) primary_timeline: Option<u32>,
    /// When something was sent or received last.
    pub(crate) active_us: u64,
    /// The pooler makes it like a client, which gets it next: it was chosen before.
    prepares: bool,
    /// A request was sent behind one of the same client that is not answered.
    follows: bool,
    /// One byte, not a frame, answers.
    asked_for_tls: bool,
    to_server: Frames,
    to_pooler: Frames,
    body: Vec<u8>,
    points: VecDeque<Point>,
    /// Whose messages were sent since the last Query or Sync.
    batch: Option<u32>,
    /// The client that used the server last.
    owner: Option<u32>,
    status: u8,
    /// Messages were sent that a Sync must end.
    amidst: bool,
    /// How quiet the server was when what is being sent began.
    began: TimePoint,
    /// It has been quiet since the last message that tells whose it is: those behind it may be another client's.
    quiet_since: bool,
    /// Half of something unbelievably long was sent: nothing sensible can follow.
    spoiled: bool,
    /// The server has asked for the data of a COPY.
    takes_data: bool,
}

impl Tap {
    /// A connection that has just been made.
    pub(crate) fn new() -> Tap {
        Tap {
            purpose: Purpose::Unknown,
            key: None,
            last: None,
            requests: 0,
            asks_timeline: false,
            prepares: false,
            follows: false,
            told_timeline: None,
            shown_timeline: None,
            reconnects: Vec::new(),
            primary_timeline: None,
            active_us: 0,
            asked_for_tls: false,
            to_server: Frames::default(),
            to_pooler: Frames::default(),
            body: Vec::new(),
            points: VecDeque::new(),
            batch: None,
            owner: None,
            status: b'I',
            amidst: false,
            began: TimePoint::default(),
            quiet_since: false,
            spoiled: false,
            takes_data: false,
        }
    }

    /// The server has read this many more of the messages that ReadyForQuery answers, unless it skips them, or ignores a Sync
    /// amidst the data of a COPY: then what was sent since is no request of its own yet.
    pub(crate) fn read(&mut self, ends: impl IntoIterator<Item = RequestEnd>) {
        for end in ends {
            let Some(at) = self.points.iter().position(|point| !point.read) else { return };
            let RequestEnd::Ignored { awaits_sync } = end else {
                self.points[at].read = true;
                continue;
            };
            self.amidst |= awaits_sync && at + 1 == self.points.len();
            if let Some(point) = self.points.remove(at) {
                let next = self.points.get_mut(at).map_or(&mut self.batch, |point| &mut point.owner);
                *next = next.or(point.owner);
            }
        }
    }

    /// The pooler sends bytes.
    pub(crate) fn sent(&mut self, bytes: &[u8], checker: &mut InvariantChecker, cancels: &Cancels<'_>) {
        if self.to_server.is_empty() && !self.amidst {
            self.begin(cancels);
        }
        self.to_server.push(bytes);
        let mut body = std::mem::take(&mut self.body);
        if self.purpose == Purpose::Unknown {
            while let Next::Frame(_) = self.to_server.next_startup(&mut body) {
                if Fields(&body).long() != Some(SSL) {
                    self.purpose = purpose(&body);
                    break;
                }
                self.asked_for_tls = true;
            }
        }
        while self.purpose != Purpose::Unknown && !self.spoiled {
            match self.to_server.next(&mut body) {
                Next::Partial => break,
                Next::Malformed => self.spoiled = true,
                Next::Frame(kind) => {
                    self.take_request(kind, &body, checker, cancels);
                    // What belongs together begins anew behind each Query and Sync.
                    match kind {
                        b'Q' | b'S' | b'F' => self.amidst = false,
                        b'P' | b'B' | b'D' | b'E' | b'C' => self.amidst = true,
                        // Whatever is said now the pooler does not look at.
                        b'X' => self.asks_timeline = false,
                        _ => (),
                    }
                    if !self.amidst {
                        self.begin(cancels);
                    }
                }
            }
        }
        self.body = body;
    }

    /// The pooler has received bytes.
    pub(crate) fn received(&mut self, bytes: &[u8], checker: &mut InvariantChecker) {
        self.to_pooler.push(bytes);
        if self.asked_for_tls && self.to_pooler.peek_byte().is_some() {
            self.to_pooler.skip_byte();
            self.asked_for_tls = false;
        }
        let mut body = std::mem::take(&mut self.body);
        while let Next::Frame(kind) = self.to_pooler.next(&mut body) {
            match kind {
                b'K' => {
                    let mut fields = Fields(&body);
                    self.key = fields.long().zip(fields.long());
                }
                b'Z' => {
                    self.status = body.first().copied().unwrap_or(0);
                    (self.asks_timeline, self.takes_data) = (false, false);
                    self.shown_timeline = self.told_timeline.take();
                    self.primary_timeline = self.primary_timeline.or(self.shown_timeline);
                    if let Some(owner) = self.points.pop_front().and_then(|point| point.owner) {
                        checker.server_answered(owner);
                    }
                }
                b'G' => self.takes_data = true,
                b'D' if self.asks_timeline => self.told_timeline = timeline(&body),
                _ => (),
            }
        }
        self.body = body;
    }

    /// The timeline of a primary that the server has just told of.
    pub(crate) fn take_shown_timeline(&mut self) -> Option<u32> {
        self.shown_timeline.take()
    }

    /// RECONNECT of this database, or of all.
    pub(crate) fn note_reconnect(&mut self, database: Option<&str>) {
        self.reconnects.push(database.map(str::to_owned));
    }

    /// It was opened before RECONNECT of its database: what it says of its cluster is of the time before.
    pub(crate) fn is_before_reconnect(&self) -> bool {
        let Purpose::Session { database, .. } = &self.purpose else { return false };
        self.reconnects.iter().any(|one| one.as_ref().is_none_or(|one| one == database))
    }

    /// Nothing is owed, half sent or open, and it is no client's yet.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.points.is_empty()
            && !self.prepares
            && self.status == b'I'
            && !self.amidst
            && self.to_server.is_empty()
    }

    /// It is the server's turn to answer a client.
    pub(crate) fn owes_client(&self) -> bool {
        self.points.iter().any(|point| point.owner.is_some())
            && !self.amidst
            && !self.takes_data
            && self.to_server.is_empty()
    }

    /// A client's request was sent behind another one of it that is not answered.
    pub(crate) fn take_follows(&mut self) -> bool {
        std::mem::take(&mut self.follows)
    }

    fn begin(&mut self, cancels: &Cancels<'_>) {
        self.began = self.moment(cancels);
        let TimePoint { owed, status, cancel } = self.began;
        self.quiet_since |= owed == 0 && status == b'I' && !cancel;
    }

    fn moment(&self, cancels: &Cancels<'_>) -> TimePoint {
        let owed =
            self.points.iter().filter(|point| point.owner.is_some() && point.owner == self.owner).count();
        TimePoint { owed, status: self.status, cancel: self.key.is_some_and(cancels.under_way) }
    }

    fn take_request(&mut self, kind: u8, body: &[u8], checker: &mut InvariantChecker, cancels: &Cancels<'_>) {
        let Some(tag) = tag_of(kind, body) else {
            let text = format!(
                "a server was sent a torn `{}` after c{:?} had used it",
                char::from(kind),
                self.owner
            );
            return checker.object("I2", text);
        };
        if let Some(Tag { client, .. }) = tag {
            self.requests += 1;
            self.last = tag;
            let is_first = kind != b'd' && !self.amidst && self.batch.is_none();
            self.follows |= is_first && self.points.back().is_some_and(|point| point.owner == Some(client));
            self.claim(client, kind, checker, cancels);
        }
        match kind {
            b'Q' => {
                self.asks_timeline = body.starts_with(b"SELECT system_identifier,");
                self.prepares =
                    tag.is_none() && body.starts_with(b"SET ") && !body.starts_with(b"SET LOCAL ");
                self.points.push_back(Point { owner: tag.map(|tag| tag.client), read: false });
                self.batch = None;
            }
            b'S' | b'F' => {
                let owner = self.batch.take();
                self.points.push_back(Point { owner, read: false });
            }
            _ => (),
        }
    }

    /// A message of this client's is being sent: if it was another's turn before, the server must have been quiet.
    fn claim(&mut self, client: u32, kind: u8, checker: &mut InvariantChecker, cancels: &Cancels<'_>) {
        if kind != b'd'
            && let Some(other) = self.batch.replace(client).filter(|other| *other != client)
        {
            let text = format!(
                "a server got `{}` of c{client} amidst an unfinished request of c{other}",
                char::from(kind)
            );
            checker.object("I2", text);
        }
        let own = matches!(self.purpose, Purpose::Session { own: true, .. });
        if own != checker.must_have_own_server(client) {
            checker.object("I2", format!("c{client} was given a server that is not of the kind it wants"));
        }
        let was_quiet = std::mem::take(&mut self.quiet_since);
        let Some(before) = self.owner.replace(client).filter(|before| *before != client) else { return };
        if own {
            checker.object("I2", format!("c{client} was given the server that is c{before}'s own"));
        }
        if was_quiet {
            return;
        }
        let TimePoint { owed, status, cancel } = self.began;
        if owed > 0 {
            checker
                .object("I2", format!("a server went from c{before} to c{client} with {owed} answers owed"));
        }
        if status != b'I' {
            let status = char::from(status);
            checker.object("I2", format!("a server went from c{before} to c{client} in status {status}"));
        }
        if cancel && !(cancels.asked_by)(client) {
            checker.object(
                "I5",
                format!("a server went from c{before} to c{client} with a cancel under way to it"),
            );
        }
    }
}

/// What a primary says of its timeline, behind its system identifier.
fn timeline(row: &[u8]) -> Option<u32> {
    let mut fields = Fields(row);
    fields.short()?;
    fields.value()?;
    u32::from_str_radix(str::from_utf8(fields.value()?).ok()?, 16).ok()
}

fn purpose(body: &[u8]) -> Purpose {
    let mut fields = Fields(body);
    if fields.long() == Some(CANCEL) {
        let key = fields.long().zip(fields.long()).unwrap_or((0, 0));
        return Purpose::Cancel { key };
    }
    let (mut database, mut user, mut own) = (String::new(), String::new(), false);
    while let (Some(name), Some(value)) = (fields.text().filter(|name| !name.is_empty()), fields.text()) {
        let value = || String::from_utf8_lossy(value).into_owned();
        match name {
            b"user" => user = value(),
            b"database" => database = value(),
            b"replication" => own = true,
            _ => (),
        }
    }
    Purpose::Session { database, user, own }
}

/// Whose message it is, if it tells; None if it is no whole message of its type, which only a torn one is.
fn tag_of(kind: u8, body: &[u8]) -> Option<Option<Tag>> {
    let mut fields = Fields(body);
    match kind {
        b'Q' => {
            let text = fields.text()?;
            fields.0.is_empty().then(|| Tag::in_comment(text))
        }
        b'P' => {
            fields.text()?;
            let text = fields.text()?;
            let types = usize::from(fields.short()?);
            (fields.0.len() == types * 4).then(|| Tag::in_comment(text))
        }
        b'B' => {
            fields.text()?;
            fields.text()?;
            let formats = usize::from(fields.short()?);
            fields.bytes(formats * 2)?;
            let count = fields.short()?;
            let values: Option<Vec<&[u8]>> = (0..count).map(|_| fields.value()).collect();
            let results = usize::from(fields.short()?);
            let tag = values?.first().and_then(|value| Tag::at_start(value));
            (fields.0.len() == results * 2).then_some(tag)
        }
        b'd' => Some(Tag::at_start(body)),
        b'S' | b'H' | b'c' | b'X' => body.is_empty().then_some(None),
        // What no PostgreSQL knows is its client's doing.
        b'D' | b'C' | b'E' | b'f' | b'p' | b'F' | b'y' | b'z' | b'!' => Some(None),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{message, text};

    const QUIET: &Cancels<'_> = &Cancels { under_way: &|_| false, asked_by: &|_| false };

    fn query(client: u32) -> Vec<u8> {
        let mut out = Vec::new();
        message(&mut out, b'Q', |body| text(body, format!("SELECT 1 /*c{client}.1*/").as_bytes()));
        out
    }

    fn ready(status: u8) -> [u8; 6] {
        [b'Z', 0, 0, 0, 5, status]
    }

    fn verdict(act: impl FnOnce(&mut Tap, &mut InvariantChecker)) -> Option<&'static str> {
        let (mut tap, mut checker) = (Tap::new(), InvariantChecker::default());
        tap.sent(b"\0\0\0\x09\0\x03\0\0\0", &mut checker, QUIET);
        tap.received(&ready(b'I'), &mut checker);
        act(&mut tap, &mut checker);
        checker.into_verdict().map(|violation| violation.invariant)
    }

    #[test]
    fn a_quiet_server_may_change_hands() {
        let found = verdict(|tap, checker| {
            tap.sent(&query(1), checker, QUIET);
            tap.received(&ready(b'I'), checker);
            tap.sent(&query(2), checker, QUIET);
        });
        assert_eq!(found, None);
    }

    #[test]
    fn owed_answers_open_transactions_and_torn_messages_are_seen() {
        let owed = verdict(|tap, checker| {
            tap.sent(&query(1), checker, QUIET);
            tap.sent(&query(2), checker, QUIET);
        });
        let open = verdict(|tap, checker| {
            tap.sent(&query(1), checker, QUIET);
            tap.received(&ready(b'T'), checker);
            tap.sent(&query(2), checker, QUIET);
        });
        let torn = verdict(|tap, checker| {
            tap.sent(&query(1)[..12], checker, QUIET);
            tap.sent(&query(2), checker, QUIET);
        });
        assert_eq!([owed, open, torn], [Some("I2"); 3]);
    }

    #[test]
    fn what_a_server_skips_goes_on_until_a_sync() {
        verdict(|tap, checker| {
            tap.sent(&query(1), checker, QUIET);
            tap.read([RequestEnd::Ignored { awaits_sync: true }]);
            assert!(!tap.is_at_rest(), "a Query that is skipped ends nothing");
            tap.sent(&query(1), checker, QUIET);
            assert!(!tap.take_follows(), "it is no request of its own");
            tap.sent(b"S\0\0\0\x04", checker, QUIET);
            tap.read([RequestEnd::Ignored { awaits_sync: true }, RequestEnd::Answered]);
            tap.received(&ready(b'I'), checker);
            assert!(tap.is_at_rest());
        });
    }

    #[test]
    fn a_request_behind_one_that_is_not_answered_is_seen() {
        verdict(|tap, checker| {
            tap.sent(&query(1), checker, QUIET);
            assert!(!tap.take_follows());
            tap.sent(&query(1), checker, QUIET);
            assert!(tap.take_follows() && !tap.take_follows());
        });
    }

    #[test]
    fn a_connection_is_before_each_reconnect_that_came_while_it_was_open() {
        for (reconnected, is_before) in [(None, true), (Some("d"), true), (Some("e"), false)] {
            let (mut tap, mut checker) = (Tap::new(), InvariantChecker::default());
            tap.note_reconnect(reconnected);
            tap.sent(b"\0\0\0\x14\0\x03\0\0database\0d\0\0", &mut checker, QUIET);
            assert_eq!(tap.is_before_reconnect(), is_before, "{reconnected:?}");
        }
    }

    #[test]
    fn a_server_of_ones_own_is_for_nobody_else() {
        let begun = |act: fn(&mut Tap, &mut InvariantChecker)| {
            let (mut tap, mut checker) = (Tap::new(), InvariantChecker::default());
            checker.wants_own_server(1);
            tap.sent(b"\0\0\0\x1e\0\x03\0\0replication\0database\0\0", &mut checker, QUIET);
            tap.received(&ready(b'I'), &mut checker);
            act(&mut tap, &mut checker);
            checker.into_verdict().map(|violation| violation.invariant)
        };
        assert_eq!(begun(|tap, checker| tap.sent(&query(1), checker, QUIET)), None);
        assert_eq!(begun(|tap, checker| tap.sent(&query(2), checker, QUIET)), Some("I2"));
        let shared = verdict(|tap, checker| {
            checker.wants_own_server(1);
            tap.sent(&query(1), checker, QUIET);
        });
        assert_eq!(shared, Some("I2"));
    }

    #[test]
    fn a_cancel_under_way_is_seen() {
        let busy = Cancels { under_way: &|key| key == (7, 9), asked_by: &|_| false };
        let found = verdict(|tap, checker| {
            tap.received(b"K\0\0\0\x0c\0\0\0\x07\0\0\0\x09", checker);
            tap.sent(&query(1), checker, QUIET);
            tap.received(&ready(b'I'), checker);
            tap.sent(&query(2), checker, &busy);
        });
        assert_eq!(found, Some("I5"));
    }
}
