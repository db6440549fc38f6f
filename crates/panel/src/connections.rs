//! The panel's connections: those that are served, and those rejected at the limit.
//! Owns how many. Never reads what they ask.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use rustix::process::{Resource, getrlimit};
use tokio::net::TcpStream;
use tokio::task::{self, JoinError, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::access::login::network;
use crate::connection::{self, Draining, RemoteAddress};
use crate::connection_limits::ConnectionLimits;

/// The most connections, and at most the fourth part of the process's descriptors: the rest is for clients and servers. As
/// many further ones at once may be leaving.
const MAX_CONNECTIONS: usize = 512;

/// How long a handshake of TLS may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// All connections of the panel.
pub(crate) struct Connections {
    router: Router,
    served: JoinSet<Option<Draining>>,
    /// The number in `limits` of each task.
    ids: HashMap<task::Id, u64>,
    limits: ConnectionLimits,
    /// Connections that are being drained before they are closed.
    draining: JoinSet<()>,
    /// Connections that may be served at once, and as many that may drain.
    limit: usize,
}

impl Connections {
    /// None yet; all will be answered by these routes.
    pub(crate) fn new(router: Router) -> Connections {
        let files = getrlimit(Resource::Nofile).current.and_then(|files| usize::try_from(files).ok());
        let limit = files.map_or(MAX_CONNECTIONS, |files| MAX_CONNECTIONS.min(files / 4));
        Connections {
            router,
            served: JoinSet::new(),
            ids: HashMap::new(),
            limits: ConnectionLimits::new(limit),
            draining: JoinSet::new(),
            limit,
        }
    }

    /// Serves a connection, for which one that has not authenticated may have to make room, or says that there are too many.
    pub(crate) fn add(&mut self, stream: TcpStream, address: SocketAddr, tls: Option<&TlsAcceptor>) {
        let Some((id, tracked)) = self.limits.admit(network(address.ip())) else {
            return self.reject(stream, tls.is_some());
        };
        connection::prepare(&stream);
        let router = self.router.clone();
        let peer = RemoteAddress { address, is_tls: tls.is_some() };
        let task = match tls {
            None => self.served.spawn(async move { connection::serve(stream, peer, &tracked, router).await }),
            Some(tls) => {
                let handshake = tokio::time::timeout(HANDSHAKE, tls.accept(stream));
                self.served.spawn(async move {
                    let stream = tokio::select! {
                        handshake = handshake => handshake.ok().and_then(Result::ok),
                        () = tracked.evicted() => None,
                    };
                    connection::serve(stream?, peer, &tracked, router).await
                })
            }
        };
        self.ids.insert(task.id(), id);
    }

    fn reject(&mut self, stream: TcpStream, expects_tls: bool) {
        // A client that begins with TLS cannot read an answer in plain text.
        if !expects_tls {
            self.drain(connection::reject(stream));
        }
    }

    /// Hears a connection out; where too many are leaving, it is hung up on.
    fn drain(&mut self, draining: Draining) {
        while self.draining.try_join_next().is_some() {}
        if self.draining.len() < self.limit {
            self.draining.spawn(draining);
        }
    }

    /// Waits until one that was served has gone: true if that was because a request broke.
    pub(crate) async fn next_closed(&mut self) -> bool {
        let Some(ended) = self.served.join_next_with_id().await else { return std::future::pending().await };
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        if let Some(id) = self.ids.remove(&id) {
            self.limits.remove(id);
        }
        match ended {
            Ok((_, draining)) => {
                draining.into_iter().for_each(|draining| self.drain(draining));
                false
            }
            Err(why) => why.is_panic(),
        }
    }

    /// Ends all of them.
    pub(crate) fn close_all(&mut self) {
        self.served.abort_all();
    }
}
