//! A server connection.
//!
//! Data only; the logic is in `servers`, `relay`, `checkout` and `maintain`.

use std::net::SocketAddr;
use std::sync::Arc;

use pool::{FairTurn, OpenFor};
use session::replication::Kind;
use session::{ServerIdentity, ServerInfo, ServerLogin, ServerProtocol};
use settings::PoolMode;
use tls::NegotiatedTls;

use crate::attempt::Attempt;
use crate::close_reason::CloseReason;
use crate::close_when_free::CloseWhenFree;
use crate::local_pools::local_pool::LocalPool;
use crate::local_pools::table::{LocalPools, PoolId};
use crate::{ConnId, Target};

/// Where a server connection is in its life.
pub(crate) enum Phase {
    /// The socket is being connected.
    Connecting,
    /// TLS was requested and the server has not answered.
    AskedTls,
    /// It agreed; the handshake runs.
    Handshake,
    /// It is being logged in to.
    Login(Box<ServerLogin>),
    /// Linked to a client.
    Linked(ConnId),
    /// It runs a query of Weir's own.
    InternalQuery(InternalQuery),
    /// It listens for all clients of its pool.
    Listening,
    /// On the pool's idle list.
    Idle,
    /// Unlinked, and not to be checked out yet: a cancel request may still be on its way to it, or half a notice has come.
    AwaitingCancel,
    /// Terminate was sent; its end of file is awaited, so that the backend is gone before the permit is released.
    Leaving { since_us: u64 },
    /// Its socket is being closed.
    Closing,
}

/// Why a server runs a query of Weir's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InternalQuery {
    /// `server_check_query`, before it is checked out again.
    Check,
    /// `server_reset_query`, after it was released.
    Reset,
    /// It is given this client's parameters.
    Apply(ConnId),
    /// It is given what this client has prepared by SQL.
    Statements(ConnId),
    /// It is given what this client, which keeps it, has again after a RESET.
    Restore(ConnId),
    /// DISCARD SEQUENCES, before a request of this client that asks for what it has not left there.
    Sequences(ConnId),
    /// It is asked what its session holds, before it may leave this client; None if the client has disconnected meanwhile. How
    /// often that has failed.
    SessionState { client: Option<ConnId>, failed: u8 },
    /// The channels of this client, which keeps it, are handed over to the connection that all share.
    HandOver(ConnId),
    /// UNLISTEN, behind a client with channels.
    Unlisten,
    /// It is asked which tables and views may change a session, for its pool.
    Relations,
    /// It is asked how far it is in the WAL; a primary for this sample.
    Position(u64),
    /// It is asked which names decide what only reads, for its pool.
    RoutingNames,
    /// It is asked what it is, which it has not said at its login; None if it has no client.
    Identity(Option<ConnId>),
    /// DISCARD ALL, before this internal client's query.
    Freshen(ConnId),
    /// `connect_query` runs again after that.
    ConnectQuery(ConnId),
    /// It answers this question of Weir's own.
    Ask(ConnId),
}

/// Whether a server is to say what it is although it has logged in already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IdentityCheck {
    #[default]
    NotNeeded,
    /// Before its next request.
    Due,
    /// It has met an error that may pass.
    Failed,
    /// It has said so, or may not be asked.
    Done,
}

/// What has used a server since its login or its last DISCARD ALL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UsedBy {
    /// Nobody.
    Nothing,
    /// Questions of Weir's own, which leave nothing behind.
    InternalQueries,
    /// A client.
    Client,
}

/// The client of a dedicated server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dedicated {
    pub(crate) kind: Kind,
    pub(crate) client: ConnId,
}

/// One server connection.
pub(crate) struct Server {
    pub(crate) id: u64,
    pub(crate) pool: PoolId,
    pub(crate) phase: Phase,
    pub(crate) protocol: ServerProtocol,
    /// It listens, or has listened, for all clients of its pool, and does not count as a server of it.
    pub(crate) listens: bool,
    /// It is for one client alone.
    pub(crate) dedicated: Option<Dedicated>,
    /// What it reported at login, where its clients are told that at theirs (`assign_server_at_login`).
    pub(crate) info: Option<Box<ServerInfo>>,
    /// The error that a query of Weir's own got.
    pub(crate) internal_error: Option<Vec<u8>>,
    /// The backend's process id and secret, for cancels.
    pub(crate) key: Option<(u32, Vec<u8>)>,
    /// What it was at its login, or when it was asked later, where that was answered (`target_session_attrs`).
    pub(crate) identity: Option<ServerIdentity>,
    /// Whether that is asked for now.
    pub(crate) identity_check: IdentityCheck,
    /// What its client has asked for, where that may be repeated elsewhere.
    pub(crate) attempt: Attempt,
    /// It is being closed, and its pool counts it so.
    pub(crate) leaves: bool,
    /// Output has not all gone to the system; [`crate::Event::SendBufferEmpty`] will come.
    pub(crate) unsent: bool,
    /// It has been asked how far it is since it last had a client.
    pub(crate) was_asked: bool,
    /// It is connected to a standby, and serves nothing before it was asked how far that is.
    pub(crate) position_unknown: bool,
    /// What it has sent since it last had a client or answered a query of Weir's own.
    pub(crate) unasked_bytes: u32,
    /// Asked not to be read, because its client reads slowly.
    pub(crate) paused: bool,
    /// Since when it is not read for that.
    pub(crate) reader_since_us: Option<u64>,
    /// More output is queued for it than the driver accepts.
    pub(crate) send_buffer_full: bool,
    /// Cancel requests on their way to its backend.
    pub(crate) cancels: u32,
    pub(crate) used_by: UsedBy,
    /// Its client's turn, where the queue is fair.
    pub(crate) turn: Option<Box<FairTurn>>,
    /// Its client's prepared statements have their own names here, as decided when the client got it: what was begun by one
    /// rule is not read by another.
    pub(crate) names_as_they_are: bool,
    /// Close it as soon as it is free.
    pub(crate) close_when_free: CloseWhenFree,
    /// Its client has got a FATAL of its, which is the end of the client's connection, too.
    pub(crate) has_ended_client: bool,
    pub(crate) since_us: u64,
    pub(crate) since_wall_us: u64,
    /// When it was last assigned or freed.
    pub(crate) request_us: u64,
    /// When the running query was sent.
    pub(crate) query_us: u64,
    /// When the transaction that runs began.
    pub(crate) transaction_us: u64,
    /// When it last sent something for its client, or was left behind, or was seen to owe its client nothing.
    pub(crate) heard_us: u64,
    /// Where it was asked for: a cancel goes to the same unix socket.
    pub(crate) target: Target,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) local: Option<SocketAddr>,
    /// What was agreed on, where it uses TLS.
    pub(crate) tls: Option<Box<NegotiatedTls>>,
}

impl Server {
    /// That which it was on as a primary at its login, as far as that is known.
    #[inline]
    pub(crate) fn timeline(&self) -> Option<u32> {
        self.identity.and_then(|identity| identity.timeline)
    }

    /// It has said that it ends, and its client with it or not.
    pub(crate) fn note_fatal(&mut self, ends_client: bool) {
        self.close_when_free.set(CloseReason::SentFatal);
        self.has_ended_client |= ends_client;
    }

    /// The client it is linked to, ready or not.
    pub(crate) fn client(&self) -> Option<ConnId> {
        match self.phase {
            Phase::Linked(client)
            | Phase::InternalQuery(
                InternalQuery::Apply(client)
                | InternalQuery::Statements(client)
                | InternalQuery::Restore(client)
                | InternalQuery::Sequences(client)
                | InternalQuery::HandOver(client)
                | InternalQuery::Identity(Some(client))
                | InternalQuery::SessionState { client: Some(client), .. },
            ) => Some(client),
            _ => None,
        }
    }

    /// A query is answered, and with it a transaction if it `is_idle` now.
    #[inline(always)]
    pub(crate) fn note_answer(&mut self, now_us: u64, is_idle: bool) {
        self.query_us = now_us;
        if is_idle {
            self.transaction_us = now_us;
        }
    }

    /// It leaves its client, whose values are no business of the next.
    #[inline(always)]
    pub(crate) fn unlink(&mut self) {
        if self.client().is_some() {
            self.phase = Phase::AwaitingCancel;
        }
        self.attempt.end();
        self.protocol.leave_client();
    }

    /// It is unlinked and quiet. True if no cancel is on its way to it: then it is free.
    #[inline(always)]
    pub(crate) fn await_cancels(&mut self, now_us: u64) -> bool {
        self.request_us = now_us;
        self.phase = Phase::AwaitingCancel;
        self.cancels == 0
    }

    /// What it was opened for.
    pub(crate) fn opened_for(&self) -> OpenFor {
        if self.dedicated.is_some() { OpenFor::Dedicated } else { OpenFor::Any }
    }

    /// It serves any client of the pool, and is logged in.
    pub(crate) fn is_pooled(&self) -> bool {
        self.dedicated.is_none() && !self.listens && self.is_live()
    }

    /// The mode of its pool; a dedicated server is in session mode.
    #[inline]
    pub(crate) fn mode(&self, local_pools: &LocalPools) -> Option<PoolMode> {
        self.mode_in(local_pools.get(self.pool))
    }

    /// The same where its local pool is at hand.
    #[inline]
    pub(crate) fn mode_in(&self, local_pool: Option<&LocalPool>) -> Option<PoolMode> {
        match self.dedicated {
            Some(_) => Some(PoolMode::Session),
            None => local_pool.map(|local_pool| local_pool.pool.limits.mode),
        }
    }

    /// A physical WAL sender takes none.
    pub(crate) fn takes_sql(&self) -> bool {
        !matches!(self.dedicated, Some(Dedicated { kind: Kind::Physical, .. }))
    }

    /// It is logged in, and not being closed.
    pub(crate) fn is_live(&self) -> bool {
        matches!(
            self.phase,
            Phase::Linked(_)
                | Phase::InternalQuery(_)
                | Phase::Listening
                | Phase::Idle
                | Phase::AwaitingCancel
        )
    }

    /// Its name or address as configured; None for a unix socket, which has no TLS.
    pub(crate) fn host(&self) -> Option<&Arc<str>> {
        match &self.target {
            Target::Near { .. } if self.remote.is_none() => None,
            target => target.host(),
        }
    }

    /// It has not been logged in to yet.
    pub(crate) fn is_logging_in(&self) -> bool {
        matches!(self.phase, Phase::Connecting | Phase::AskedTls | Phase::Handshake | Phase::Login(_))
    }

    /// PgBouncer's word for its state in SHOW SERVERS.
    pub(crate) fn state(&self, is_used: bool) -> &'static str {
        match self.phase {
            Phase::Connecting | Phase::AskedTls | Phase::Handshake | Phase::Login(_) => "login",
            Phase::Linked(_) => "active",
            Phase::InternalQuery(
                InternalQuery::Apply(_)
                | InternalQuery::Statements(_)
                | InternalQuery::Restore(_)
                | InternalQuery::Sequences(_)
                | InternalQuery::SessionState { .. }
                | InternalQuery::Identity(Some(_))
                | InternalQuery::HandOver(_)
                | InternalQuery::Freshen(_)
                | InternalQuery::ConnectQuery(_)
                | InternalQuery::Ask(_),
            ) => "active",
            Phase::InternalQuery(_) => "tested",
            Phase::Listening => "listening",
            Phase::Idle if is_used => "used",
            Phase::Idle => "idle",
            Phase::AwaitingCancel => "being_canceled",
            Phase::Leaving { .. } | Phase::Closing => "closing",
        }
    }
}
