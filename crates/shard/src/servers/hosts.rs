//! Which host a server connection goes to, and closing servers whose host name has moved.
//!
//! Owns the choice among the hosts of an entry (`load_balance_hosts`), and between a near server's socket and its
//! address (`server_socket_dir`). Never looks a name up.

use std::net::IpAddr;
use std::sync::Arc;

use settings::{Global, LoadBalance, SslMode};

use crate::close_reason::CloseReason;
use crate::connections::Conn;
use crate::core::Core;
use crate::link::server_end;
use crate::local_pools::local_pool::LocalPool;
use crate::local_pools::table::PoolId;
use crate::server::{Phase, Server};
use crate::{ConnId, Target};

/// PostgreSQL's default directory of unix sockets.
const DEFAULT_SOCKET_DIRECTORY: &str = "/tmp";

/// A name does not stand for these addresses any more: idle servers there go now, the others when they are free.
pub(crate) fn host_moved(core: &mut Core, host: &str, gone: &[IpAddr]) {
    let moved = |local_pool: PoolId| {
        core.local_pools
            .get(local_pool)
            .is_some_and(|local_pool| local_pool.database.host.iter().any(|name| name == host))
    };
    let servers = core.conns.ids(|conn| matches!(conn, Conn::Server(server) if moved(server.pool)));
    for conn in servers {
        let Some(server) = core.server(conn) else { continue };
        // One that is being connected may have been given the old address just before.
        let is_there = match server.remote {
            Some(remote) => gone.contains(&remote.ip()),
            None => matches!(server.phase, Phase::Connecting),
        };
        if is_there {
            server.close_when_free = Some(CloseReason::HostMoved);
            close_if_idle(core, conn);
        }
    }
}

fn close_if_idle(core: &mut Core, conn: ConnId) {
    let is_idle = |server: &mut Server| matches!(server.phase, Phase::Idle);
    if core.server(conn).is_some_and(is_idle) {
        server_end::close_server(core, conn, CloseReason::HostMoved);
    }
}

impl LocalPool {
    /// Where the next connection goes: each configured host in turn, or the same until it fails.
    pub(crate) fn next_target(&mut self, global: &Global) -> Target {
        let index = self.next_host % self.database.host.len().max(1);
        if self.database.load_balance_hosts == LoadBalance::RoundRobin {
            self.next_host = index + 1;
        }
        self.target_at(index, global)
    }

    /// A connection failed: where there is no turn, the next one tries the next host.
    pub(crate) fn leave_failing_host(&mut self) {
        if self.database.load_balance_hosts == LoadBalance::Disable {
            self.next_host = self.next_host.wrapping_add(1) % self.database.host.len().max(1);
        }
    }

    /// Where its unix socket is, or else its first host: of a server whose own target is not known any more.
    pub(crate) fn first_target(&self, global: &Global) -> Target {
        let unix = self.database.host.iter().position(|host| host.starts_with(['/', '@']));
        self.target_at(unix.unwrap_or(0), global)
    }

    fn target_at(&self, index: usize, global: &Global) -> Target {
        let port = self.database.port;
        let host = self.database.host.get(index).map_or(DEFAULT_SOCKET_DIRECTORY, String::as_str);
        if host.starts_with(['/', '@']) {
            return Target::Unix { path: socket(host, port) };
        }
        match sockets_nearby(global).filter(|_| is_this_machine(host)) {
            Some(directory) => Target::Near { path: socket(directory, port), host: host.into(), port },
            None => Target::Inet { host: host.into(), port },
        }
    }
}

fn socket(directory: &str, port: u16) -> Arc<str> {
    format!("{directory}/.s.PGSQL.{port}").into()
}

/// `server_socket_dir`, unless servers have to encrypt: a unix socket has no TLS.
fn sockets_nearby(global: &Global) -> Option<&str> {
    global.server_socket_dir.as_deref().filter(|_| global.server_tls_sslmode < SslMode::Require)
}

fn is_this_machine(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_this_machine() {
        let near = ["localhost", "LOCALHOST", "127.0.0.1", "127.8.0.1", "::1"];
        assert!(near.into_iter().all(is_this_machine));
        let far = ["10.0.0.1", "localhost.example.org", "0.0.0.0", "", "::"];
        assert!(!far.into_iter().any(is_this_machine));
    }

    #[test]
    fn who_must_encrypt_is_not_led_around_tls() {
        let mut global = Global::default();
        global.server_socket_dir = Some("/run".to_owned());
        assert_eq!(sockets_nearby(&global), Some("/run"));
        global.server_tls_sslmode = SslMode::VerifyFull;
        assert_eq!(sockets_nearby(&global), None);
    }
}
