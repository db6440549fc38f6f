//! What a step leaves to be done before its event ends: servers that became free, and what only an owner above the core can do.
//!
//! Owns that each free server stands there once, and that effects are carried out in their order. Carrying them out is
//! [`crate::state::ShardState::settle`]'s.

use std::collections::{BTreeSet, VecDeque};

use auth::Secret;
use messages::{Role, ServerQueryResult};
use tls::TlsConnection;

use crate::cancel_key::Key;
use crate::client::login::SecretNeeded;
use crate::connections::kinds::ReplyTo;
use crate::local_pools::table::PoolId;
use crate::{ConnId, Peer};

/// What is asked of the TLS layer; done before any action of the same event.
pub(crate) enum TlsRequest {
    /// A client requests TLS: send `answer` in clear, then take `received` for its first records.
    Accept { conn: ConnId, answer: &'static [u8], received: Vec<u8> },
    /// A server, or another node of the fleet, agreed to TLS; its name or address as configured.
    Connect { conn: ConnId, host: String, is_node: bool },
    /// A client comes from another shard with its session.
    Adopt { conn: ConnId, session: Box<TlsConnection> },
}

/// Something for an owner that the step's code does not know.
pub(crate) enum Effect {
    /// A client that counted among those that have not logged in, or whose login has sent much, is gone.
    LoginOver { id: u64, peer: Peer, was_unauthenticated: bool, login_bytes: u32 },
    /// A client is gone whose cancel request, which this connection carries, has not had its turn.
    CancelWithdrawn(ConnId),
    /// A client has left this server while cancel requests for it are under way.
    LeftWithCancels(ConnId),
    /// An internal query has ended; its result is for these.
    QueryOver { reply_to: Vec<ReplyTo>, result: ServerQueryResult },
    /// A startup packet was a cancel request.
    CancelRequest { conn: ConnId, key: Key },
    /// A client that logs in may use the console.
    ConsoleOpened(ConnId, Role),
    /// A login needs the secret of its user, or to know that there is one.
    FindSecret(ConnId, SecretNeeded),
    /// A login needs the roles of its user.
    QueryRoles(ConnId),
    /// What [`Effect::FindSecret`] has found.
    SecretKnown(ConnId, Option<Secret>),
    /// A server was asked for the user of a login and does not know it.
    UserUnknown(ConnId),
    /// What [`Effect::QueryRoles`] has found.
    RolesKnown(ConnId, BTreeSet<String>),
    /// A console client has taken its output, or has arrived from another process: its next statements can be read.
    ConsoleContinues(ConnId),
    /// A client has released its server while clients at rest are ended.
    ClientRested(ConnId),
    /// Another process takes over, and a server of this pool was opened or closed here.
    ServerCounted { pool: PoolId, opened: bool },
    /// Another process takes over, and has not been told what servers of this pool report.
    FirstServerReported(PoolId),
}

/// What is to be done before the event ends.
#[derive(Default)]
pub(crate) struct Effects {
    /// Servers that are idle and unlinked.
    servers: Vec<ConnId>,
    /// Pools with waiters whose server was closed when it was checked for them, or that may have a pin.
    unserved: Vec<PoolId>,
    queue: VecDeque<Effect>,
}

/// The next free server or unserved pool.
pub(crate) enum Next {
    Server(ConnId),
    Pool(PoolId),
}

impl Effects {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.unserved.is_empty() && self.queue.is_empty()
    }

    /// Something has been left to an owner.
    #[inline]
    pub(crate) fn is_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Leaves something to an owner.
    pub(crate) fn push(&mut self, effect: Effect) {
        self.queue.push_back(effect);
    }

    /// The oldest effect.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Effect> {
        self.queue.pop_front()
    }

    /// A server has been released.
    #[inline]
    pub(crate) fn server(&mut self, server: ConnId) {
        self.servers.push(server);
    }

    /// The same where it may have been noted before.
    pub(crate) fn server_once(&mut self, server: ConnId) {
        if !self.servers.contains(&server) {
            self.servers.push(server);
        }
    }

    /// A client of this pool has lost the server that was checked for it, or may have a pin.
    pub(crate) fn pool(&mut self, pool: PoolId) {
        self.unserved.push(pool);
    }

    /// The last server that was released, or else a pool.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Next> {
        self.servers.pop().map(Next::Server).or_else(|| self.unserved.pop().map(Next::Pool))
    }
}
