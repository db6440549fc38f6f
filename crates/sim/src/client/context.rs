//! What the world lends a client while it acts, and what it may expect there. Never a client's own state.

use crate::invariants::InvariantChecker;
use crate::prng::Prng;
use crate::steps::Steps;
use crate::swarm::ClientMix;

/// What a client needs of the world while it acts.
pub(crate) struct ClientContext<'a> {
    /// Chance.
    pub(crate) prng: &'a mut Prng,
    /// What of all this is left out.
    pub(crate) steps: &'a mut Steps,
    /// The judge.
    pub(crate) checker: &'a mut InvariantChecker,
    /// How clients are.
    pub(crate) client_mix: &'a ClientMix,
    /// Monotonic microseconds.
    pub(crate) now_us: u64,
    /// Nothing may go wrong for a client that does nothing wrong.
    pub(crate) fair: bool,
    /// Whoever logs in is asked for a password.
    pub(crate) asks: bool,
    /// Statements keep their names when servers change.
    pub(crate) named: bool,
    /// Names that SQL gives to statements are those of the protocol, and stay with the client.
    pub(crate) sql_names: bool,
    /// What a client leaves in its session is there in its next transaction, and nothing of others (`session_state = virtual`).
    pub(crate) keeps_sessions: bool,
    /// Clients may give settings at startup that no server reports. Where the pooler's question for session state fails several times, such a
    /// setting is not set again behind RESET before it succeeds.
    pub(crate) gives_settings: bool,
    /// The server is PostgreSQL 18 rather than 15.
    pub(crate) modern: bool,
    /// DDL spoils prepared statements, or a client deallocates them.
    pub(crate) spoils: bool,
    /// What DDL does to prepared statements is mended where it can be.
    pub(crate) mends: bool,
    /// The pooler may answer a plain BEGIN itself, and what ends a transaction without a request.
    pub(crate) defers: bool,
    /// A client that waits for a server may be refused.
    pub(crate) refuses: bool,
    /// What the quota of its user says, if that has one.
    pub(crate) quota: Option<QuotaContext>,
    /// A client outside a transaction holds no server.
    pub(crate) shares: bool,
    /// The faults are still on: bad manners are allowed.
    pub(crate) chaos: bool,
}

/// What the quota of a client's user says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuotaContext {
    /// Connections are limited.
    pub(crate) limits_connections: bool,
    /// It has refused requests, or does.
    pub(crate) has_refused: bool,
    /// It refuses those that begin, since then.
    pub(crate) refuses_since_us: Option<u64>,
}
