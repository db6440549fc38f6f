//! The connections that there are: who is served, and who is told that there is no room.
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
use crate::connection::{self, Farewell, Peer};
use crate::connection_limits::ConnectionLimits;

/// At most so many connections, and at most the fourth part of the process's descriptors: the rest is for clients and servers. As
/// many further ones at once may be leaving.
const CONNECTIONS: usize = 512;

/// How long a handshake of TLS may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// All connections of the panel.
pub(crate) struct Guests {
    router: Router,
    served: JoinSet<Option<Farewell>>,
    /// The number in `limits` of each task.
    numbers: HashMap<task::Id, u64>,
    limits: ConnectionLimits,
    /// Those that are heard out, and those there was no room for.
    leaving: JoinSet<()>,
    /// So many may be served at once, and so many be leaving.
    most: usize,
}

impl Guests {
    /// None yet; all will be answered by these routes.
    pub(crate) fn new(router: Router) -> Guests {
        let files = getrlimit(Resource::Nofile).current.and_then(|files| usize::try_from(files).ok());
        let most = files.map_or(CONNECTIONS, |files| CONNECTIONS.min(files / 4));
        Guests {
            router,
            served: JoinSet::new(),
            numbers: HashMap::new(),
            limits: ConnectionLimits::new(most),
            leaving: JoinSet::new(),
            most,
        }
    }

    /// Serves a connection, for which one that has not authenticated may have to make room, or says that there are too many.
    pub(crate) fn welcome(&mut self, stream: TcpStream, address: SocketAddr, seal: Option<&TlsAcceptor>) {
        let Some((number, tracked)) = self.limits.admit(network(address.ip())) else {
            return self.turn_away(stream, seal.is_some());
        };
        connection::prepare(&stream);
        let router = self.router.clone();
        let peer = Peer { address, is_tls: seal.is_some() };
        let task = match seal {
            None => self.served.spawn(async move { connection::serve(stream, peer, &tracked, router).await }),
            Some(seal) => {
                let sealed = tokio::time::timeout(HANDSHAKE, seal.accept(stream));
                self.served.spawn(async move {
                    let stream = tokio::select! {
                        sealed = sealed => sealed.ok().and_then(Result::ok),
                        () = tracked.evicted() => None,
                    };
                    connection::serve(stream?, peer, &tracked, router).await
                })
            }
        };
        self.numbers.insert(task.id(), number);
    }

    fn turn_away(&mut self, stream: TcpStream, expects_tls: bool) {
        // Words in the clear are of no use to one who begins with TLS.
        if !expects_tls {
            self.part(connection::turn_away(stream));
        }
    }

    /// Hears a connection out; where too many are leaving, it is hung up on.
    fn part(&mut self, farewell: Farewell) {
        while self.leaving.try_join_next().is_some() {}
        if self.leaving.len() < self.most {
            self.leaving.spawn(farewell);
        }
    }

    /// Waits until one that was served has gone: true if that was because a request broke.
    pub(crate) async fn one_left(&mut self) -> bool {
        let Some(ended) = self.served.join_next_with_id().await else { return std::future::pending().await };
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        if let Some(number) = self.numbers.remove(&id) {
            self.limits.remove(number);
        }
        match ended {
            Ok((_, farewell)) => {
                farewell.into_iter().for_each(|farewell| self.part(farewell));
                false
            }
            Err(why) => why.is_panic(),
        }
    }

    /// Ends all of them.
    pub(crate) fn send_away(&mut self) {
        self.served.abort_all();
    }
}
