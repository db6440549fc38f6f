//! A client connection: its phase, and what follows it from server to server.
//!
//! Data only; the logic is in `login`, `relay`, `checkout` and `maintain`.

pub(crate) mod counted;
pub(crate) mod held_pin;
pub(crate) mod login;
pub(crate) mod login_times;
pub(crate) mod routed;

use std::sync::Arc;

use pool::{CancelKeyPrefix, FairShare, QueuePosition};
use quota::ClientMeters;
use session::replication::Kind;
use session::{ClientStream, Listening, Parameters, RefusedRequest, Replication, StatementGuard, Tracked};
use settings::{Config, PoolMode};
use tls::NegotiatedTls;

use crate::cancel_key::Key;
use crate::client::counted::Counted;
use crate::client::held_pin::HeldPin;
use crate::client::login::Login;
use crate::client::login_times::LoginTimes;
use crate::client::routed::Routed;
use crate::console_session::ConsoleSession;
use crate::deferred_begin::DeferredBegin;
use crate::local_pools::table::PoolId;
use crate::queries::QueryTracker;
use crate::query_cache::recording::Recording;
use crate::{ConnId, Now, Peer};

/// Where a client is in its life.
pub(crate) enum Phase {
    /// Its startup packet is awaited.
    Startup { ssl_refused: bool, gss_refused: bool },
    /// TLS is being agreed on; `direct` is without an SSLRequest, which demands ALPN.
    Handshake { direct: bool },
    /// It is authenticating.
    Login(Box<Login>),
    /// Logged in; its greeting waits until a server of the pool has logged in.
    AwaitingGreeting(QueuePosition),
    /// No request is pending.
    Idle,
    /// It has sent a request and waits for a server.
    Waiting(QueuePosition),
    /// Its server is being made like it (parameters); its bytes are held.
    Preparing(ConnId),
    /// It talks to this server.
    Linked(ConnId),
    /// Its session could not be kept (`max_pinned`): it gets this error for its next request, and ends.
    PinRefused(Box<str>),
    /// It talks to the console.
    Console(Box<ConsoleSession>),
    /// It sent a cancel request and waits for its end, and for the connection that is to carry it from this shard.
    CancelRequest(Option<ConnId>),
    /// Its socket is being closed.
    Closing,
}

/// One client.
pub(crate) struct Client {
    pub(crate) id: u64,
    pub(crate) phase: Phase,
    pub(crate) request: ClientStream,
    /// The BEGIN that goes in front of its next request: it has no server, and its transaction has begun.
    pub(crate) deferred_begin: Option<DeferredBegin>,
    /// Bytes still to come of a message that is ignored; no server is taken for it.
    pub(crate) ignored_bytes: u32,
    pub(crate) parameters: Parameters,
    /// What its startup packet gave of them, which RESET goes back to; None if nothing, or if its server knows that.
    pub(crate) startup: Option<Parameters>,
    /// Its pool on this shard, once it has logged in to one.
    pub(crate) pool: Option<PoolId>,
    /// Where its last request went, where reads go elsewhere.
    pub(crate) routed: Routed,
    /// The class in which it has asked to wait.
    pub(crate) asked_class: Option<settings::Priority>,
    /// What it sends to have its query cancelled.
    pub(crate) cancel_key: Key,
    /// By what it is found with that key, while it can be.
    pub(crate) cancel_key_prefix: Option<CancelKeyPrefix>,
    /// The server that it used last.
    pub(crate) server_used_last: Option<u32>,
    /// Its values are spelled as servers do.
    pub(crate) is_spelled: bool,
    /// The number of the server on which it has last called `nextval`, perhaps; 0 is none (`session_state = virtual`).
    pub(crate) sequences_at: u64,
    /// What its subject has had of the servers of the pools that it has used, where their queues are fair.
    pub(crate) fair_shares: Vec<Arc<FairShare>>,
    /// The quotas that it counts for, if there are any.
    pub(crate) quota: Option<Box<ClientQuota>>,
    /// Requests of it that were answered, and have not counted for a quota.
    pub(crate) used_queries: u64,
    /// The same of bytes both ways.
    pub(crate) used_bytes: u64,
    /// The request that it is sending is refused.
    pub(crate) refusal: Option<Box<Refusal>>,
    /// It counts in `max_pinned`.
    pub(crate) pin: Option<Box<HeldPin>>,
    /// It needs a dedicated server.
    pub(crate) dedicated_request: Option<Box<DedicatedRequest>>,
    /// What it listens on by way of the connection that its pool's clients share.
    pub(crate) listening: Option<Box<Listening>>,
    /// What it was counted in, and is removed from when it disconnects.
    pub(crate) counted: Counted,
    /// The answer to its request is to be stored (`query_cache`).
    pub(crate) recording: Option<Box<Recording>>,
    /// What its login has sent so far; nothing once that is over.
    pub(crate) login_bytes: u32,
    /// How long it has waited for the end of its login.
    pub(crate) login_us: u32,
    /// What its login has waited for, while that lasts and slow ones are logged.
    pub(crate) login_times: Option<Box<LoginTimes>>,
    /// Asked not to be read, because its reader is slow or it waits.
    pub(crate) paused: bool,
    /// More output is queued for it than the driver accepts.
    pub(crate) send_buffer_full: bool,
    /// It has closed its side; seen while it was not read.
    pub(crate) half_closed: bool,
    /// It gets its greeting as soon as its server is like it (`assign_server_at_login`).
    pub(crate) greeting_due: bool,
    /// It got the notice that it is queued (`query_wait_notify`).
    pub(crate) wait_noted: bool,
    pub(crate) since_us: u64,
    pub(crate) since_wall_us: u64,
    /// Time of its last request or reply.
    pub(crate) request_us: u64,
    pub(crate) peer: Peer,
    pub(crate) login_user: Arc<str>,
    /// What was agreed on, where it uses TLS.
    pub(crate) tls: Option<Box<NegotiatedTls>>,
    /// What it asks, while queries are tracked.
    pub(crate) query_tracker: Option<Box<QueryTracker>>,
}

/// What a client counts for.
pub(crate) struct ClientQuota {
    pub(crate) meters: ClientMeters,
    /// Its server time has counted up to then.
    pub(crate) settled_us: u64,
    /// It got the warning that a soft limit is exceeded.
    pub(crate) was_warned: bool,
    /// The name that it has given at login.
    pub(crate) application_name: Box<str>,
    /// What storage quotas hold it to.
    pub(crate) storage: StorageState,
}

/// What a client with storage quotas is held to (`link/storage.rs`).
#[derive(Debug, Default)]
pub(crate) struct StorageState {
    pub(crate) guard: StatementGuard,
    /// The transaction that runs, or the next one, began with the setting on: PostgreSQL holds it to reading.
    pub(crate) is_read_only: bool,
    /// The setting is the quota's; the client's own value.
    pub(crate) own: Option<Option<Arc<str>>>,
}

/// A request that is refused (`queue_limit`, `queue_target`, quotas).
pub(crate) struct Refusal {
    pub(crate) text: String,
    /// Its SQLSTATE.
    pub(crate) code: &'static str,
    pub(crate) request: RefusedRequest,
    /// Its Close messages are done here, as far as that is possible, so that what is behind them is refused, too.
    pub(crate) closes: bool,
    /// Requests behind it are judged by themselves.
    pub(crate) once: bool,
}

/// A client's request for a dedicated server.
pub(crate) struct DedicatedRequest {
    pub(crate) replication: Replication,
    /// The connection that is being logged in to for it.
    pub(crate) server: Option<ConnId>,
}

impl DedicatedRequest {
    pub(crate) fn new(replication: Replication) -> DedicatedRequest {
        DedicatedRequest { replication, server: None }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.replication.kind
    }
}

impl Client {
    /// Whether its prepared statements have their own names on a server that it gets. Whose server is its own has its names
    /// there, where SQL sees them as well. Names from another mode, or from before they were turned off, stay mapped.
    #[inline]
    pub(crate) fn passes_names(&self, config: &Config, mode: PoolMode) -> bool {
        let maps = config.global.max_prepared_statements > 0 && mode != PoolMode::Session;
        !maps && self.request.statements.is_none()
    }

    pub(crate) fn new(id: u64, peer: Peer, tracked: &Tracked, nobody: Arc<str>, now: Now) -> Client {
        Client {
            id,
            phase: Phase::Startup { ssl_refused: false, gss_refused: false },
            request: ClientStream::default(),
            deferred_begin: None,
            ignored_bytes: 0,
            parameters: Parameters::unknown(tracked),
            startup: None,
            pool: None,
            routed: Routed::default(),
            asked_class: None,
            cancel_key: Key::default(),
            cancel_key_prefix: None,
            server_used_last: None,
            is_spelled: false,
            sequences_at: 0,
            fair_shares: Vec::new(),
            quota: None,
            used_queries: 0,
            used_bytes: 0,
            refusal: None,
            pin: None,
            dedicated_request: None,
            listening: None,
            counted: Counted::default(),
            recording: None,
            login_bytes: 0,
            login_us: 0,
            login_times: None,
            greeting_due: false,
            paused: false,
            send_buffer_full: false,
            half_closed: false,
            wait_noted: false,
            since_us: now.mono_us,
            since_wall_us: now.wall_us,
            request_us: now.mono_us,
            peer,
            login_user: nobody,
            tls: None,
            query_tracker: None,
        }
    }

    /// Goes on to another phase. Most own nothing, and are replaced without asking what they may own.
    #[inline(always)]
    pub(crate) fn go_on(&mut self, phase: Phase) {
        match self.phase {
            Phase::Idle | Phase::Linked(_) | Phase::Waiting(_) | Phase::Preparing(_) => {
                std::mem::forget(std::mem::replace(&mut self.phase, phase));
            }
            _ => self.phase = phase,
        }
    }

    /// The pool whose server it waits for or has.
    #[inline(always)]
    pub(crate) fn served_by(&self) -> Option<PoolId> {
        self.routed.standby().or(self.pool)
    }

    /// The server it is linked to, ready or not.
    pub(crate) fn server(&self) -> Option<ConnId> {
        match self.phase {
            Phase::Linked(server) | Phase::Preparing(server) => Some(server),
            _ => None,
        }
    }

    /// It has logged in and not disconnected.
    pub(crate) fn is_settled(&self) -> bool {
        !matches!(
            self.phase,
            Phase::Startup { .. }
                | Phase::Handshake { .. }
                | Phase::Login(_)
                | Phase::CancelRequest(_)
                | Phase::Closing
        )
    }

    /// PgBouncer's word for its state in SHOW CLIENTS, where it has one.
    pub(crate) fn state(&self) -> &'static str {
        match self.phase {
            Phase::Linked(_) | Phase::Preparing(_) | Phase::Console { .. } => "active",
            Phase::Waiting(_) | Phase::AwaitingGreeting(_) => "waiting",
            Phase::Idle if self.deferred_begin.is_some() => "deferred_begin",
            Phase::Idle | Phase::PinRefused(_) => "idle",
            Phase::Startup { .. } | Phase::Handshake { .. } | Phase::Login(_) => "login",
            Phase::CancelRequest(_) => "active_cancel_req",
            Phase::Closing => "closing",
        }
    }
}
