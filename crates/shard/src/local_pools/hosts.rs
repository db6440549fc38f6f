//! Which host of its entry a pool's next server connection goes to.
//!
//! Owns the choice among the hosts (`load_balance_hosts`, `target_session_attrs`), and between a near server's socket and its
//! address (`server_socket_dir`). Never looks a name up.

use std::net::IpAddr;
use std::sync::Arc;

use pool::{Mismatch, OpenFor};
use session::{ServerIdentity, ServerInfo};
use settings::{Global, HostChange, LoadBalance, SslMode, TargetSessionAttrs};
use wire::sqlstate;

use crate::Target;
use crate::close_reason::CloseReason;
use crate::local_pools::local_pool::LocalPool;

/// PostgreSQL's default directory of unix sockets.
const DEFAULT_SOCKET_DIRECTORY: &str = "/tmp";

/// While no host is what the entry's connections go to, all are tried this often: after a failover clients wait for nothing else.
const ROLE_RETRY_US: u64 = 500_000;

/// The same so soon after Patroni has named another leader, which is being promoted mostly.
const LEADER_RETRY_US: u64 = 100_000;

/// How long that is.
const LEADER_NEWS_US: u64 = 3_000_000;

/// A host of several that does not accept a connection for so long is taken to be down.
const CONNECT_US: u64 = 2_000_000;

/// For so long a pool that prefers standbys and has found none takes any server (`target_session_attrs`).
const SETTLES_US: u64 = 15_000_000;

/// Classes of errors that say nothing of the server: insufficient resources, operator intervention (also `statement_timeout`), and what the system could not do.
const PASSING: [&[u8]; 3] = [b"53", b"57", b"58"];

/// The server may answer the next time.
pub(crate) fn may_pass(error: &[u8]) -> bool {
    let fields = wire::error::parse(error);
    let code = fields.code().unwrap_or_default();
    PASSING.iter().any(|class| code.starts_with(class))
}

/// What a primary is refused with where a standby is wanted, in libpq's words.
pub(crate) const NOT_STANDBY: &str = "server is not in hot standby mode";

/// Which of an entry's hosts a pool connects to next.
#[derive(Debug, Default)]
pub(crate) struct NextHost {
    /// Its place in the list.
    place: usize,
    /// How many in a row were of no use.
    useless: usize,
    /// Until then any server will do, because none was a standby.
    settles_until_us: u64,
    /// Since when no host was of use, if all were tried since one was.
    none_since_us: Option<u64>,
    /// The last one has refused the login, or Weir its credentials.
    was_refused: bool,
    /// The cluster, and the newest timeline, for which connections to others were ended.
    system: u64,
    timeline: u32,
    /// So long Patroni's word of another leader is news.
    leader_is_news_until_us: u64,
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
                Some(NOT_STANDBY)
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

    /// Why the server that has logged in is none that the entry's connections go to (`target_session_attrs`); None if it is one. Of one that takes no query, its role
    /// alone is known.
    pub(crate) fn refuses(
        &mut self,
        (info, was_asked): (&ServerInfo, bool),
        target: &Target,
        global: &Global,
        now_us: u64,
    ) -> Option<String> {
        if self.database.target_session_attrs == TargetSessionAttrs::Any {
            return None;
        }
        let refused = self.refuses_role(info, now_us).map(str::to_owned);
        if refused.is_some() {
            self.note_primary(info);
        }
        let refused = refused.or_else(|| was_asked.then(|| self.refuses_mismatch(info)).flatten());
        // One that was not asked may be a primary that was left behind: others are not to be sent there for it.
        if refused.is_none() && (was_asked || self.pool.database().cluster.known().is_none()) {
            self.note_used(target, global);
        }
        refused
    }

    /// It is not what is wanted here. If it is a primary, those of older timelines are left all the same.
    fn note_primary(&self, info: &ServerInfo) {
        if let Some(identity) = info.identity
            && let Some(timeline) = identity.timeline
        {
            self.pool.database().cluster.note_primary(identity.system, timeline);
        }
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
        (self.next_host.useless, self.next_host.none_since_us) = (0, None);
        let wanted = self.database.target_session_attrs;
        if matches!(wanted, TargetSessionAttrs::Primary | TargetSessionAttrs::ReadWrite) {
            self.next_host.place = self.place_of(target, global).unwrap_or(self.next_host.place);
        }
    }

    /// The place of this target's host in the list of the entry.
    pub(crate) fn place_of(&self, target: &Target, global: &Global) -> Option<usize> {
        (0..self.database.host.len()).find(|place| self.target_at(*place, global) == *target)
    }

    /// Why the server is none of the cluster that the entry's other servers are of, or a primary that was left behind; None where it may be used, or could not say.
    fn refuses_mismatch(&self, info: &ServerInfo) -> Option<String> {
        let Some(identity) = info.identity else { return self.refuses_unknown(info) };
        let mismatch = self.pool.database().cluster.admit(identity.system, identity.timeline).err()?;
        let name = &self.database_name;
        let (system, timeline) = (identity.system, identity.timeline.unwrap_or_default());
        Some(match mismatch {
            Mismatch::OtherCluster(known) => {
                format!(
                    "its system identifier is {system} and that of the others is {known}: RECONNECT {name} if it is to be used"
                )
            }
            Mismatch::Minority(majority) => {
                format!(
                    "its system identifier is {system} and that of most hosts is {majority}: take those out of the list, or stop them and RECONNECT {name}, if it is to be used"
                )
            }
            Mismatch::OlderTimeline(newest) => {
                format!(
                    "it is on timeline {timeline} and there has been a primary on timeline {newest}: RECONNECT {name} if it is to be used"
                )
            }
        })
    }

    /// It has not said which cluster it belongs to: where that is known of others, or the next try may tell, it may be a mismatch, unless nobody may ask it.
    fn refuses_unknown(&self, info: &ServerInfo) -> Option<String> {
        let error = info.identity_error.as_deref().map(wire::error::parse);
        let code = error.as_ref().and_then(|error| error.code()).unwrap_or_default();
        let cannot_say = [sqlstate::INSUFFICIENT_PRIVILEGE, sqlstate::UNDEFINED_FUNCTION];
        let may_be = cannot_say.iter().any(|known| known.as_bytes() == code)
            || (self.pool.database().cluster.known().is_none()
                && !PASSING.iter().any(|class| code.starts_with(class)));
        (!may_be).then(|| "it has not answered which cluster it belongs to".to_owned())
    }

    /// The entry's hosts are not known yet (`topology`): its clients wait, as for a server that is not there.
    pub(crate) fn awaits_hosts(&mut self, now_us: u64) -> bool {
        let awaits = self.database.awaits_members();
        if awaits {
            self.next_host.none_since_us.get_or_insert(now_us);
        }
        awaits
    }

    /// The next connection for a primary goes to the host that leads as Patroni has it. What that says of itself at login counts.
    pub(crate) fn try_leader_first(&mut self, now_us: u64) {
        use TargetSessionAttrs::{Primary, ReadWrite};
        let wants_primary = matches!(self.database.target_session_attrs, Primary | ReadWrite);
        if let Some(leader) = self.database.leader.filter(|_| wants_primary) {
            (self.next_host.place, self.next_host.useless) = (leader, 0);
            self.next_host.leader_is_news_until_us = now_us + LEADER_NEWS_US;
        }
    }

    /// Some of the list were not tried since one was of use.
    pub(crate) fn has_untried_host(&self) -> bool {
        self.seeks_role() && self.next_host.useless + 1 < self.database.host.len()
    }

    /// Its servers are to be of a certain role (`target_session_attrs`).
    pub(crate) fn seeks_role(&self) -> bool {
        self.database.target_session_attrs != TargetSessionAttrs::Any
    }

    /// How long a connection to one of several hosts may take: behind a host that has gone without a word another one waits to be tried.
    pub(crate) fn connect_limit_us(&self, connect_timeout_us: u64) -> u64 {
        let has_others = self.database.host.len() > 1 || self.serves.standby().is_some();
        match self.seeks_role() && has_others {
            true if connect_timeout_us == 0 => CONNECT_US,
            true => connect_timeout_us.min(CONNECT_US),
            false => connect_timeout_us,
        }
    }

    /// A login ended without a server that can be used: when the next is tried, and where. An entry with `target_session_attrs` tries the next host at
    /// once, until all were of no use.
    pub(crate) fn login_ended_badly(&mut self, open_for: OpenFor, now_us: u64) {
        let was_refused = std::mem::take(&mut self.next_host.was_refused);
        if self.leave_host(now_us) {
            self.pool.login_withdrawn(open_for);
        } else if self.seeks_role() && !was_refused && self.serves.standby().is_none() {
            let is_news = now_us < self.next_host.leader_is_news_until_us;
            let retry_us = if is_news { LEADER_RETRY_US } else { ROLE_RETRY_US };
            self.pool.found_none(open_for, now_us, retry_us);
        } else {
            self.pool.logged_in(open_for, false, now_us);
        }
    }

    /// Since when no host has been what the entry's connections go to; None while one is, or that is not known, as while nothing is tried (PAUSE).
    pub(crate) fn unavailable_since_us(&self) -> Option<u64> {
        let has_none = self.seeks_role() && !self.pool.paused && self.pool.open() <= self.pool.logging_in();
        self.next_host.none_since_us.filter(|_| has_none)
    }

    /// RELOAD, or Patroni, has changed the list.
    pub(crate) fn hosts_changed(&mut self, change: HostChange) {
        if change == HostChange::Others {
            self.forget_cluster();
        }
        if change != HostChange::None {
            self.forget_unavailability();
        }
    }

    /// Whether the hosts are of use is to be found out anew.
    pub(crate) fn forget_unavailability(&mut self) {
        (self.next_host.useless, self.next_host.none_since_us) = (0, None);
    }

    /// The server has refused the credentials, or Weir the server: trying again soon would change nothing.
    pub(crate) fn note_refusal(&mut self) {
        self.next_host.was_refused = true;
    }

    /// True if the next host is to be tried at once. The next connection goes to the next host, also where there is no turn.
    fn leave_host(&mut self, now_us: u64) -> bool {
        let hosts = self.database.host.len().max(1);
        if self.database.load_balance_hosts == LoadBalance::Disable {
            self.next_host.place = self.next_host.place.wrapping_add(1) % hosts;
        }
        if !self.seeks_role() {
            return false;
        }
        self.next_host.useless += 1;
        if self.next_host.useless < hosts {
            return true;
        }
        self.next_host.useless = 0;
        self.next_host.none_since_us.get_or_insert(now_us);
        let may_settle = self.database.target_session_attrs == TargetSessionAttrs::PreferStandby
            && now_us >= self.next_host.settles_until_us;
        if may_settle {
            self.next_host.settles_until_us = now_us + SETTLES_US;
        }
        may_settle
    }

    /// The servers may be those of another cluster from here on.
    pub(crate) fn forget_cluster(&mut self) {
        self.pool.database().cluster.forget();
        (self.next_host.system, self.next_host.timeline) = (0, 0);
    }

    /// A primary was seen on a newer timeline than this.
    pub(crate) fn has_newer_primary(&self, timeline: u32) -> bool {
        self.pool.database().cluster.known().is_some_and(|(_, newest)| newest > timeline)
    }

    /// Why a server that was this at its login is none of the entry's any more.
    pub(crate) fn reason_to_leave(&self, identity: ServerIdentity) -> Option<CloseReason<'static>> {
        let (system, newest) = self.pool.database().cluster.known()?;
        // One that a process of an earlier version has handed over says only on which timeline it is.
        if identity.system != system && identity.system != 0 {
            return Some(CloseReason::OtherCluster);
        }
        identity.timeline.is_some_and(|timeline| timeline < newest).then_some(CloseReason::LeftBehind)
    }

    /// [`LocalPool::take_news_of_cluster`] has not been true since this was known of the cluster.
    #[inline]
    pub(crate) fn has_not_seen(&self, (system, timeline): (u64, u32)) -> bool {
        self.next_host.timeline < timeline || self.next_host.system != system
    }

    /// A primary was seen on a newer timeline, or another cluster is the entry's: true the first time.
    pub(crate) fn take_news_of_cluster(&mut self) -> bool {
        let known = self.pool.database().cluster.known().filter(|_| self.seeks_role());
        let Some((system, newest)) = known.filter(|known| self.has_not_seen(*known)) else { return false };
        (self.next_host.system, self.next_host.timeline) = (system, newest);
        true
    }

    /// The server is in recovery no longer: its connections are none for this entry any more.
    pub(crate) fn refuses_promoted(&self) -> bool {
        matches!(
            self.database.target_session_attrs,
            TargetSessionAttrs::Standby | TargetSessionAttrs::ReadOnly
        )
    }

    /// The host at this place; if that is not known, its first unix socket, or else its first host.
    pub(crate) fn target_of(&self, place: Option<u32>, global: &Global) -> Target {
        let unix = || self.database.host.iter().position(|host| host.starts_with(['/', '@']));
        let place = place.and_then(|place| usize::try_from(place).ok()).or_else(unix);
        self.target_at(place.unwrap_or(0), global)
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
