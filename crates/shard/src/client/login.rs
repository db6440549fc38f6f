//! What is known of a client while it logs in, and of one that moves to the shard that has its pool.
//!
//! Data only; the logic is in `login` and `auth_query`.

use std::sync::Arc;

use auth::{Accepted, AuthBackend, ClientLogin, Method, Zeroizing};
use messages::{Role, ShardId};
use session::StartupRequest;
use settings::ident::IdentMap;

use crate::client::Client;

/// A login in progress.
pub(crate) struct Login {
    pub(crate) startup_request: Arc<StartupRequest>,
    pub(crate) exchange: Option<ClientLogin>,
    pub(crate) role: Option<Role>,
    /// What it has to prove itself by, until that begins.
    pub(crate) requirement: Option<AuthRequirement>,
    /// The user name map of the HBA rule, if it names one.
    pub(crate) map: Option<Arc<IdentMap>>,
    /// The user and secret from `auth_query`, if it ran.
    pub(crate) found: Option<QueriedSecret>,
    /// The query that it waits for.
    pub(crate) asks: Option<PendingAuthQuery>,
    /// A helper is at work for it.
    pub(crate) asks_helper: bool,
    /// It has failed; the error has not been sent yet.
    pub(crate) held_answer: Option<Box<HeldAnswer>>,
}

impl Login {
    /// Nothing asked yet, of the client or of a server.
    pub(crate) fn new(startup_request: StartupRequest, role: Option<Role>) -> Login {
        Login {
            startup_request: Arc::new(startup_request),
            exchange: None,
            role,
            requirement: None,
            map: None,
            found: None,
            asks: None,
            asks_helper: false,
            held_answer: None,
        }
    }

    /// The next message of the exchange is the client's.
    pub(crate) fn waits_for_client(&self) -> bool {
        self.exchange.is_some() && self.asks.is_none() && !self.asks_helper
    }
}

/// What a client has to authenticate with.
pub(crate) enum AuthRequirement {
    /// An exchange by messages, or none.
    Exchange(Method),
    /// A certificate with the user's name, or one that this map has for it.
    Certificate(Option<Arc<IdentMap>>),
    /// To be this system user, by this map if there is one.
    Peer(Option<Arc<IdentMap>>),
    /// A password that is checked externally.
    External(AuthBackend),
    /// Nothing yet: a rule hangs on the roles of its user.
    Roles,
    /// It is refused.
    Refusal(Refusal),
}

/// What must be known of a user before its authentication begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SecretNeeded {
    /// Nothing: others decide.
    Nothing,
    /// That there is one of that name.
    User,
    /// Its secret.
    Secret,
}

impl AuthRequirement {
    /// What is to be known first.
    pub(crate) fn secret_needed(&self) -> SecretNeeded {
        match self {
            AuthRequirement::External(_) => SecretNeeded::Nothing,
            AuthRequirement::Exchange(Method::Trust | Method::Any)
            | AuthRequirement::Certificate(_)
            | AuthRequirement::Peer(_) => SecretNeeded::User,
            AuthRequirement::Exchange(Method::Plain | Method::Md5 | Method::Scram)
            | AuthRequirement::Roles
            | AuthRequirement::Refusal(_) => SecretNeeded::Secret,
        }
    }
}

/// Why a client is refused without authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No rule fits.
    NoRule,
    /// The matching rule has the method `reject`.
    Rejected,
    /// A directory decides, and where that is makes no sense.
    NoDirectory,
}

/// The answer to a login that has failed.
pub(crate) struct HeldAnswer {
    pub(crate) since_us: u64,
    pub(crate) sqlstate: &'static str,
    pub(crate) text: String,
}

/// A user found at a server.
pub(crate) struct QueriedSecret {
    /// The name in the answer, which is the one that counts from now on.
    pub(crate) user: String,
    /// As `auth_file` would have it.
    pub(crate) secret: Zeroizing<String>,
}

/// What a client's login asked a server for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The secret that it has to prove (`auth_query`).
    Secret,
    /// The roles that its user is a member of.
    Roles,
}

/// A question that a login waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingAuthQuery {
    /// The shard that has the pool.
    pub(crate) home: ShardId,
    pub(crate) purpose: Purpose,
}

/// The state of a client that moves from one shard to another: opaque to the driver.
pub struct ClientMove {
    pub(crate) client: Box<Client>,
    pub(crate) pool_user: String,
    pub(crate) startup_request: StartupRequest,
    pub(crate) accepted: Accepted,
    /// The secret of `pool_user` from `auth_query`.
    pub(crate) found: Option<Zeroizing<String>>,
    /// Its TLS; put in by the record layer.
    pub(crate) session: Option<Box<tls::TlsConnection>>,
}

impl std::fmt::Debug for ClientMove {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "Handover {{ client: {}, pool: {}/{} }}",
            self.client.id, self.startup_request.database, self.pool_user
        )
    }
}
