//! The messages between the shards of two processes while one takes over from the other (`-R`).
//!
//! Data only: the logic of both sides is in `transfer`. States are rows of
//! numbered fields ([`crate::takeover::fields`]), because the two processes may be of different versions.

pub mod fields;

use settings::Database;

use crate::ConnId;
use crate::takeover::fields::Fields;

/// From a shard to its successors.
#[derive(Debug)]
pub enum Export {
    /// A local pool: what new servers of it need, and how many of its servers are here.
    Pool {
        /// Its state.
        state: Vec<u8>,
    },
    /// A server of this pool was opened here all the same, for a client that cannot be exported.
    ServerOpened {
        /// The pool.
        state: Vec<u8>,
    },
    /// A server of this pool was closed here.
    ServerClosed {
        /// The pool.
        state: Vec<u8>,
    },
    /// A socket is exported. Its id is free at once, as after [`crate::Action::Move`].
    Socket {
        /// Which.
        conn: ConnId,
        /// What is known of it.
        state: Vec<u8>,
        /// Its client and server stay together: the same number on both.
        link: Option<u64>,
        /// It is a server's.
        is_server: bool,
    },
    /// Nothing is left here.
    Empty {
        /// The round of [`messages::Command::Export`] that this answers.
        round: u32,
        /// How many sockets have been exported in all.
        sockets: u64,
    },
    /// Nothing is exported any more: the answer to [`messages::Command::AbortExport`].
    Kept {
        /// How many sockets had been exported in all. Those that the other process did not take come back as [`Import`].
        sockets: u64,
    },
}

/// From the shards of the process being taken over.
#[derive(Debug)]
pub enum Import {
    /// See [`Export::Pool`].
    Pool {
        /// Its state.
        state: Vec<u8>,
    },
    /// See [`Export::ServerOpened`].
    ServerOpened {
        /// The pool.
        state: Vec<u8>,
    },
    /// See [`Export::ServerClosed`].
    ServerClosed {
        /// The pool.
        state: Vec<u8>,
    },
    /// A client without a server.
    Client {
        /// Where it is now.
        conn: ConnId,
        /// What is known of it.
        state: Vec<u8>,
    },
    /// A server without a client.
    Server {
        /// Where it is now.
        conn: ConnId,
        /// What is known of it.
        state: Vec<u8>,
    },
    /// A client with its server.
    Linked {
        /// Where the client is now.
        client: ConnId,
        /// What is known of it.
        client_state: Vec<u8>,
        /// Where the server is now.
        server: ConnId,
        /// What is known of it.
        server_state: Vec<u8>,
    },
    /// The other process has ended: it holds no servers any more.
    Gone,
}

impl Import {
    /// A client, a server, or both, each with its state; None if there is neither.
    #[must_use]
    pub fn sockets(client: Option<(ConnId, Vec<u8>)>, server: Option<(ConnId, Vec<u8>)>) -> Option<Import> {
        Some(match (client, server) {
            (Some((client, client_state)), Some((server, server_state))) => {
                Import::Linked { client, client_state, server, server_state }
            }
            (Some((conn, state)), None) => Import::Client { conn, state },
            (None, Some((conn, state))) => Import::Server { conn, state },
            (None, None) => return None,
        })
    }
}

/// Numbers of the fields. A number is never used again for something else.
pub(crate) mod field {
    pub(crate) const ID: u16 = 1;
    pub(crate) const DATABASE: u16 = 2;
    pub(crate) const USER: u16 = 3;
    pub(crate) const LOGIN_USER: u16 = 4;
    pub(crate) const PHASE: u16 = 5;
    pub(crate) const PEER: u16 = 6;
    pub(crate) const PARAMETER: u16 = 7;
    pub(crate) const STATEMENT: u16 = 8;
    pub(crate) const BACKEND: u16 = 9;
    pub(crate) const BACKEND_SECRET: u16 = 10;
    pub(crate) const SINCE: u16 = 11;
    pub(crate) const SINCE_WALL: u16 = 12;
    pub(crate) const REQUEST: u16 = 13;
    pub(crate) const HELD: u16 = 14;
    pub(crate) const QUERY: u16 = 15;
    pub(crate) const TRANSACTION: u16 = 16;
    pub(crate) const STATUS: u16 = 17;
    pub(crate) const LENT: u16 = 18;
    pub(crate) const DOUBTFUL: u16 = 19;
    pub(crate) const CLOSE: u16 = 20;
    pub(crate) const TARGET: u16 = 21;
    pub(crate) const SERVERS: u16 = 22;
    pub(crate) const CLIENT_KEY: u16 = 23;
    pub(crate) const SERVER_KEY: u16 = 24;
    pub(crate) const SALT: u16 = 25;
    pub(crate) const ITERATIONS: u16 = 26;
    pub(crate) const PASSWORD: u16 = 27;
    pub(crate) const HELLO: u16 = 28;
    pub(crate) const CANCEL_KEY: u16 = 30;
    pub(crate) const FOUND: u16 = 31;
    pub(crate) const SESSION_MODE: u16 = 32;
    /// Of a cancel key that is longer: all of it. An older process takes the short one, and keeps the client.
    pub(crate) const LONG_CANCEL_KEY: u16 = 33;
    pub(crate) const STARTUP: u16 = 34;
    /// Of a server: the number of the client whose unnamed statement it has.
    pub(crate) const UNNAMED: u16 = 35;
    pub(crate) const STATEMENT_SCOPE: u16 = 36;
    pub(crate) const STATEMENT_DESCRIPTION: u16 = 37;
    /// Of a server: the number of a statement whose name it has for what may be another one.
    pub(crate) const STALE_STATEMENT: u16 = 38;
    /// Of a server: its parameters include what it reported in bytes other than ASCII. An older process ignored that.
    pub(crate) const NON_ASCII: u16 = 39;
    /// Of a client with prepared statements: whether it has asked for descriptions. An older process does not say.
    pub(crate) const DESCRIBES: u16 = 40;
    /// Of a server: its session holds what cannot move, or is not known. An older process does not say.
    pub(crate) const SESSION_UNKNOWN: u16 = 41;
    /// Of a server: a function may have set parameters under names that are not known. An older process does not say.
    pub(crate) const UNKNOWN_SETTINGS: u16 = 42;
    /// Of a client or a server: number, name and text of a statement that SQL has prepared; no text where it cannot follow its client. An older
    /// process forgets it.
    pub(crate) const SQL_STATEMENT: u16 = 43;
    /// Of a server: the name of a statement that SQL may have prepared since its session was asked for; empty for names that no text has shown. An
    /// older process does not say.
    pub(crate) const NAMED_STATEMENT: u16 = 70;
    /// Of a server: its session has settings that it is not asked for by name. An older process does not say.
    pub(crate) const UNLISTED_SETTINGS: u16 = 44;
    /// Of a server: the one client whose values `currval` and `lastval` return there; without it they are any client's. Of a client: the number of the server
    /// that has its values.
    pub(crate) const SEQUENCES: u16 = 45;
    /// Of a server: clients of its pool ask for what `nextval` left in earlier transactions. An older process does not say.
    pub(crate) const KEEPS_SEQUENCES: u16 = 46;
    /// Of a server: its client keeps it for that. An older process does not say.
    pub(crate) const KEPT_BY_SEQUENCES: u16 = 47;
    /// Of a server: the transaction of its client has called `nextval` there. For an older process it has not.
    pub(crate) const CALLS_SEQUENCES: u16 = 48;
    /// Of a server: the timeline that it was on as a primary. An older process does not say.
    pub(crate) const TIMELINE: u16 = 61;
    /// Of a server or a pool: the system identifier of its entry's cluster, and the newest timeline of a primary there. An older process does not say.
    pub(crate) const SYSTEM: u16 = 62;
    pub(crate) const NEWEST_TIMELINE: u16 = 63;
    /// Of a server: its own system identifier. An older process does not say.
    pub(crate) const OWN_SYSTEM: u16 = 69;
    /// The hosts that these are known of. An older process does not say: then it is [`TARGET`] that has to be the same.
    pub(crate) const CLUSTER: u16 = 68;
    /// Host and port of a pool for reads.
    pub(crate) const HOST: u16 = 64;
    /// The place of a server's host in the list of the entry.
    pub(crate) const PLACE: u16 = 65;
    /// Of a pool with `pool_size = auto`: the size that it has found. An older process does not say.
    pub(crate) const POOL_SIZE: u16 = 67;
    /// The client has written, where its reads go to standbys.
    pub(crate) const WROTE: u16 = 66;
    /// Of a client: when it sent the BEGIN that goes in front of its next request. An older process forgets the BEGIN.
    pub(crate) const DEFERRED_BEGIN: u16 = 50;
    /// Of a client: since when it counts in `max_pinned`. An older process does not say.
    pub(crate) const PINNED: u16 = 60;
    /// Of a client: a channel on which it listens by way of a connection of its pool. An older process does not listen for it.
    pub(crate) const LISTENING: u16 = 51;
    /// Of such a client: notifications that it gets at the end of its transaction.
    pub(crate) const NOTIFICATIONS: u16 = 52;
}

/// The pool that a state belongs to: database and user. None for a console's client, or if it is no state.
#[must_use]
pub fn pool_of(state: &[u8]) -> Option<(String, String)> {
    let fields = Fields::read(state)?;
    Some((fields.text(field::DATABASE)?.to_owned(), fields.text(field::USER)?.to_owned()))
}

/// The hosts of an entry, or who lists them: with another text they may be another cluster's, as by RELOAD ([`settings::HostChange`]).
#[must_use]
pub fn cluster_text(database: &Database) -> String {
    match database.follows_members {
        true => format!("{:?}", database.topology),
        false => format!("({:?}, {})", database.host, database.port),
    }
}

/// How far handing on has come.
#[derive(Default)]
pub(crate) struct ExportState {
    pub(crate) round: u32,
    /// Round and number of sockets when it was last reported that nothing is left.
    pub(crate) told_empty: Option<(u32, u64)>,
    pub(crate) sockets: u64,
    pub(crate) links: u64,
    /// Clients that may be exported since this event.
    pub(crate) rested: Vec<ConnId>,
}
