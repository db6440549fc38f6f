//! What clients have waited for besides their queries, and what servers have waited for in these: how often and how long, for each kind of wait.
//!
//! Owns the kinds and their words. SHOW WAITS, CLIENT_WAITS, QUERIES, the metrics and the log read the same table. Adding to one is a plain add.

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The end of the client's login, from its connection on.
    Login,
    /// A server connection that others have.
    Queue,
    /// A server connection that is being opened.
    Connect,
    /// The client's settings and prepared statements, which its server is given first.
    Settings,
    /// The client, which does not read its answer.
    Reader,
}

/// How many kinds there are.
const KINDS: usize = Wait::ALL.len();

impl Wait {
    /// Each kind, in the order in which a client meets them.
    pub const ALL: [Wait; 5] = [Wait::Login, Wait::Queue, Wait::Connect, Wait::Settings, Wait::Reader];

    /// As SHOW WAITS names it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Wait::Login => "login",
            Wait::Queue => "queue",
            Wait::Connect => "connect",
            Wait::Settings => "settings",
            Wait::Reader => "reader",
        }
    }
}

/// How often each was waited for, and how long in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    counts: [u64; KINDS],
    us: [u64; KINDS],
}

impl Waits {
    /// One more wait.
    #[inline]
    pub fn add(&mut self, wait: Wait, us: u64) {
        self.counts[wait as usize] += 1;
        self.us[wait as usize] += us;
    }

    /// Adds other waits to these.
    pub fn merge(&mut self, other: &Waits) {
        for kind in 0..KINDS {
            self.counts[kind] += other.counts[kind];
            self.us[kind] += other.us[kind];
        }
    }

    /// How often it was waited for.
    #[must_use]
    pub fn count(&self, wait: Wait) -> u64 {
        self.counts[wait as usize]
    }

    /// How long in all, in microseconds.
    #[must_use]
    pub fn us(&self, wait: Wait) -> u64 {
        self.us[wait as usize]
    }

    /// All of them together, in microseconds.
    #[must_use]
    pub fn total_us(&self) -> u64 {
        self.us.iter().sum()
    }
}

/// What a backend waits for while it runs a query: part of the time that the server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerWait {
    /// A lock that another session has: of a table, a row, a transaction, or an advisory one.
    Lock,
    /// Files.
    Io,
    /// Anything else: locks and buffers inside PostgreSQL, other processes, a timeout.
    Other,
}

/// How many kinds there are.
const SERVER_KINDS: usize = ServerWait::ALL.len();

impl ServerWait {
    /// Each kind.
    pub const ALL: [ServerWait; 3] = [ServerWait::Lock, ServerWait::Io, ServerWait::Other];

    /// As SHOW WAITS names it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            ServerWait::Lock => "lock",
            ServerWait::Io => "io",
            ServerWait::Other => "other",
        }
    }

    /// The kind of a `wait_event_type` of pg_stat_activity; none where the backend waits for its client or for work.
    #[must_use]
    pub fn of_event_type(event_type: &str) -> Option<ServerWait> {
        match event_type {
            "Lock" => Some(ServerWait::Lock),
            "IO" => Some(ServerWait::Io),
            "" | "Activity" | "Client" => None,
            _ => Some(ServerWait::Other),
        }
    }
}

/// How often a backend was found waiting for each, and for how long in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerWaits {
    counts: [u64; SERVER_KINDS],
    us: [u64; SERVER_KINDS],
}

impl ServerWaits {
    /// A backend was found waiting, since it was looked at before.
    pub fn add(&mut self, wait: ServerWait, us: u64) {
        self.counts[wait as usize] += 1;
        self.us[wait as usize] += us;
    }

    /// Adds other waits to these.
    pub fn merge(&mut self, other: &ServerWaits) {
        for kind in 0..SERVER_KINDS {
            self.counts[kind] += other.counts[kind];
            self.us[kind] += other.us[kind];
        }
    }

    /// How often it was found.
    #[must_use]
    pub fn count(&self, wait: ServerWait) -> u64 {
        self.counts[wait as usize]
    }

    /// How long in all, in microseconds.
    #[must_use]
    pub fn us(&self, wait: ServerWait) -> u64 {
        self.us[wait as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_events_of_postgresql_have_their_kinds() {
        let of = |text| ServerWait::of_event_type(text).map(ServerWait::word);
        assert_eq!(["Lock", "IO"].map(of), [Some("lock"), Some("io")]);
        assert_eq!(["LWLock", "BufferPin", "Buffer", "IPC", "Timeout"].map(of), [Some("other"); 5]);
        assert_eq!(["Client", "Activity", ""].map(of), [None; 3]);
        let mut waits = ServerWaits::default();
        for (place, wait) in ServerWait::ALL.into_iter().enumerate() {
            assert_eq!(wait as usize, place);
            waits.add(wait, 1 << place);
        }
        let mut sum = waits;
        sum.merge(&waits);
        for (place, wait) in ServerWait::ALL.into_iter().enumerate() {
            assert_eq!((sum.count(wait), sum.us(wait)), (2, 2 << place));
        }
    }

    #[test]
    fn each_kind_has_a_place_of_its_own() {
        let mut waits = Waits::default();
        for (place, wait) in Wait::ALL.into_iter().enumerate() {
            assert_eq!(wait as usize, place);
            waits.add(wait, 1 << place);
        }
        let mut sum = waits;
        sum.merge(&waits);
        for (place, wait) in Wait::ALL.into_iter().enumerate() {
            assert_eq!((waits.count(wait), waits.us(wait)), (1, 1 << place));
            assert_eq!((sum.count(wait), sum.us(wait)), (2, 2 << place));
        }
        assert_eq!(waits.total_us(), 31);
    }
}
