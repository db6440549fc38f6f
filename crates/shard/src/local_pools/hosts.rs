//! Which host of its entry a pool's next server connection goes to.
//!
//! Owns the choice among the hosts (`load_balance_hosts`, `target_session_attrs`), and between a near server's socket and its
//! address (`server_socket_dir`). Never looks a name up.

use std::net::IpAddr;
use std::sync::Arc;

use pool::Stranger;
use session::ServerInfo;
use settings::{Global, LoadBalance, SslMode, TargetSessionAttrs};

use crate::Target;
use crate::local_pools::local_pool::LocalPool;

/// PostgreSQL's default directory of unix sockets.
const DEFAULT_SOCKET_DIRECTORY: &str = "/tmp";

/// For so long a pool that prefers standbys and has found none takes any server (`target_session_attrs`).
const SETTLES_US: u64 = 15_000_000;

/// Which of an entry's hosts a pool connects to next.
#[derive(Debug, Default)]
pub(crate) struct NextHost {
    /// Its place in the list.
    place: usize,
    /// How many in a row were of no use.
    useless: usize,
    /// Until then any server will do, because none was a standby.
    settles_until_us: u64,
}

/// What a server has reported of itself at login, as far as `target_session_attrs` asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Role {
    is_standby: bool,
    is_read_only: bool,
}

impl Role {
    /// None of a server before PostgreSQL 14, which does not report it.
    fn reported(info: &ServerInfo) -> Option<Role> {
        let is_on = |name: &[u8]| {
            let reported = info.parameters.iter().find(|(reported, _)| reported == name);
            reported.map(|(_, value)| value == b"on")
        };
        let is_standby = is_on(b"in_hot_standby")?;
        Some(Role { is_standby, is_read_only: is_standby || is_on(b"default_transaction_read_only")? })
    }

    /// Why a connection to such a server is not used, in libpq's words.
    fn refused(self, target: TargetSessionAttrs) -> Option<&'static str> {
        let Role { is_standby, is_read_only } = self;
        match target {
            TargetSessionAttrs::ReadWrite if is_read_only => Some("session is read-only"),
            TargetSessionAttrs::ReadOnly if !is_read_only => Some("session is not read-only"),
            TargetSessionAttrs::Primary if is_standby => Some("server is in hot standby mode"),
            TargetSessionAttrs::Standby | TargetSessionAttrs::PreferStandby if !is_standby => {
                Some("server is not in hot standby mode")
            }
            _ => None,
        }
    }
}

impl LocalPool {
    /// Where the next connection goes: each configured host in turn, or the same until it fails.
    pub(crate) fn next_target(&mut self, global: &Global) -> Target {
        let place = self.next_host.place % self.database.host.len().max(1);
        if self.database.load_balance_hosts == LoadBalance::RoundRobin {
            self.next_host.place = place + 1;
        }
        self.target_at(place, global)
    }

    /// Why the server that has logged in is none that the entry's connections go to (`target_session_attrs`); None if it is one.
    pub(crate) fn refuses(
        &mut self,
        info: &ServerInfo,
        target: &Target,
        global: &Global,
        now_us: u64,
    ) -> Option<String> {
        if self.database.target_session_attrs == TargetSessionAttrs::Any {
            return None;
        }
        let refused = self.refuses_role(info, now_us).map(str::to_owned);
        let refused = refused.or_else(|| self.refuses_stranger(info));
        if refused.is_none() {
            self.note_used(target, global);
        }
        refused
    }

    fn refuses_role(&self, info: &ServerInfo, now_us: u64) -> Option<&'static str> {
        let wanted = self.database.target_session_attrs;
        if wanted == TargetSessionAttrs::PreferStandby && now_us < self.next_host.settles_until_us {
            return None;
        }
        match Role::reported(info) {
            Some(role) => role.refused(wanted),
            None => Some(
                "server does not report whether it is in hot standby mode, as PostgreSQL does since version 14",
            ),
        }
    }

    /// The server is used. There is one primary: the other hosts need not be asked again for the next connection.
    fn note_used(&mut self, target: &Target, global: &Global) {
        self.next_host.useless = 0;
        let wanted = self.database.target_session_attrs;
        if matches!(wanted, TargetSessionAttrs::Primary | TargetSessionAttrs::ReadWrite) {
            let place = (0..self.database.host.len()).find(|place| self.target_at(*place, global) == *target);
            self.next_host.place = place.unwrap_or(self.next_host.place);
        }
    }

    /// Why the server is none of the cluster that the entry's other servers are of, or a primary that was left behind; None where it may be used, or could not say.
    fn refuses_stranger(&self, info: &ServerInfo) -> Option<String> {
        let identity = info.identity?;
        let stranger = self.pool.database().cluster.admit(identity.system, identity.timeline).err()?;
        let (system, timeline) = (identity.system, identity.timeline.unwrap_or_default());
        Some(match stranger {
            Stranger::OtherCluster(known) => {
                let name = &self.database_name;
                format!(
                    "its system identifier is {system} and that of the others is {known}: RECONNECT {name} if it is to be used"
                )
            }
            Stranger::OlderTimeline(newest) => {
                format!("it is on timeline {timeline} and there has been a primary on timeline {newest}")
            }
        })
    }

    /// A connection failed, or is none that the entry's connections go to. True if the next host is to be tried at once, because some of the list were
    /// not tried since one was of use: an entry with `target_session_attrs` looks for the right one. The next connection goes to the next host, also
    /// where there is no turn.
    pub(crate) fn leave_host(&mut self, now_us: u64) -> bool {
        let hosts = self.database.host.len().max(1);
        if self.database.load_balance_hosts == LoadBalance::Disable {
            self.next_host.place = self.next_host.place.wrapping_add(1) % hosts;
        }
        if self.database.target_session_attrs == TargetSessionAttrs::Any {
            return false;
        }
        self.next_host.useless += 1;
        if self.next_host.useless < hosts {
            return true;
        }
        self.next_host.useless = 0;
        let may_settle = self.database.target_session_attrs == TargetSessionAttrs::PreferStandby
            && now_us >= self.next_host.settles_until_us;
        if may_settle {
            self.next_host.settles_until_us = now_us + SETTLES_US;
        }
        may_settle
    }

    /// The server is in recovery no longer: its connections are none for this entry any more.
    pub(crate) fn refuses_promoted(&self) -> bool {
        matches!(
            self.database.target_session_attrs,
            TargetSessionAttrs::Standby | TargetSessionAttrs::ReadOnly
        )
    }

    /// Where its unix socket is, or else its first host: of a server whose own target is not known any more.
    pub(crate) fn first_target(&self, global: &Global) -> Target {
        let unix = self.database.host.iter().position(|host| host.starts_with(['/', '@']));
        self.target_at(unix.unwrap_or(0), global)
    }

    fn target_at(&self, place: usize, global: &Global) -> Target {
        let port = self.database.port.of(place);
        let host = self.database.host.get(place).map_or(DEFAULT_SOCKET_DIRECTORY, String::as_str);
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
