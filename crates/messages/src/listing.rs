//! Typed rows of what a shard holds; the control thread adds the shards up and turns them into SHOW views.

use std::collections::BTreeMap;
use std::sync::Arc;

use settings::PoolMode;
use telemetry::queries::{QueryFingerprint, QueryStats};
use telemetry::spans::Span;
use telemetry::{Counters, Histograms, ServerWaits, SqlstateCounts, Waits};

/// A listing comes in slices of at most this many rows, so that no shard is away from its sockets for long.
pub const SLICE_ROWS: usize = 500;

/// What can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// One [`SocketRow`] per client.
    Clients,
    /// One [`SocketRow`] per server connection.
    Servers,
    /// One [`PoolRow`] per (database, user).
    Pools,
    /// One [`DatabaseRow`] per database in use or configured.
    Databases,
    /// One [`UserRow`] per user in use.
    Users,
    /// One [`ShardRow`].
    Shards,
    /// One [`DescriptorRow`] per client and server connection.
    Descriptors,
    /// One [`MemoryRow`] per kind of thing.
    Memory,
    /// One [`PeerPoolRow`] per peer.
    PeerPools,
    /// One [`HistogramRow`] per pool that has been used.
    Histograms,
    /// One [`ErrorRow`] per database whose clients got an error.
    Errors,
    /// One [`QueryRow`] per kind of query that was run, if queries are tracked.
    Queries,
    /// One [`ListenerRow`] per listening socket; process-wide, no shard knows them.
    Listeners,
    /// One [`HostRow`] per name that was looked up; of the process.
    Hosts,
    /// One [`ZoneRow`] per zone of such names; of the process.
    Zones,
    /// One [`ClusterRow`] per entry whose reads go to standbys.
    Clusters,
    /// One [`crate::CacheRow`] per entry with a query cache.
    Caches,
    /// One [`crate::QueueRow`] per subject of a fair queue with clients.
    Queues,
    /// One [`SpanRow`] per request of a trace, of the last ones.
    Spans,
    /// One [`quota::QuotaRow`] per subject and resource that has a limit; of the process.
    Quotas,
    /// One [`crate::PoolSizeRow`] per pool.
    PoolSizes,
    /// One [`crate::ClusterRow`] per entry whose hosts are probed (`host_probe_interval`); of the process.
    ProbedHosts,
    /// One [`crate::FleetNodeRow`] per node of the fleet; of the process.
    FleetNodes,
    /// One [`crate::FleetBudgetRow`] per limit that the fleet shares; of the process.
    FleetBudgets,
    /// One [`crate::FleetLimitRow`] per limit of clients that the fleet shares; of the process.
    FleetLimits,
}

impl Subject {
    /// Listed once for the process; the others are listed by every shard.
    #[must_use]
    pub fn is_process_wide(self) -> bool {
        matches!(
            self,
            Subject::Listeners
                | Subject::Hosts
                | Subject::Zones
                | Subject::Quotas
                | Subject::ProbedHosts
                | Subject::FleetNodes
                | Subject::FleetBudgets
                | Subject::FleetLimits
        )
    }
}

/// A client or a server connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketRow {
    /// The one counter over all sockets.
    pub id: u64,
    /// Its shard.
    pub shard: u16,
    /// A server connection, not a client.
    pub is_server: bool,
    /// User of the pool.
    pub user: String,
    /// Database of the pool, as clients name it.
    pub database: String,
    /// PgBouncer's word: active, waiting, idle, used, tested, login, active_cancel, being_canceled…
    pub state: &'static str,
    /// The peer's address; `unix` for a unix socket.
    pub address: String,
    /// The peer's port.
    pub port: u16,
    /// The local address.
    pub local_address: String,
    /// The local port.
    pub local_port: u16,
    /// Microseconds since 1970 of the connection.
    pub connect_time_us: u64,
    /// Microseconds since 1970 of the last request (client) or assignment (server).
    pub request_time_us: u64,
    /// How long it has been waiting, in microseconds; 0 if it is not.
    pub wait_us: u64,
    /// How long a client's login took, in microseconds.
    pub login_us: u64,
    /// What a client has waited for; None where that is not tracked.
    pub waits: Option<Waits>,
    /// What a client's servers were found waiting for in its queries; None where that is not tracked.
    pub server_waits: Option<ServerWaits>,
    /// It will be closed as soon as it is free.
    pub close_needed: bool,
    /// PgBouncer's word: none, logical or physical.
    pub replication: &'static str,
    /// Why a client keeps its server outside of a request: session, transaction, failed_transaction, copy, no_sync,
    /// half_request, slow_reader, replication, unclear; empty if it does not.
    pub pinned: &'static str,
    /// What its session holds that cannot move, with commas between; empty if nothing.
    pub pins: String,
    /// Since when it holds any of that, microseconds since 1970; 0 if it does not.
    pub pinned_since_us: u64,
    /// How long it has held it, in microseconds.
    pub pinned_us: u64,
    /// Process id of the backend that a client has; 0 if it has none.
    pub server_pid: u32,
    /// `id` of the other side, 0 if it has none.
    pub link: u64,
    /// Process id of a server's backend, or of a unix client.
    pub remote_pid: u32,
    /// `TLSv1.3/TLS_AES_256_GCM_SHA384`; empty without TLS.
    pub tls: String,
    /// application_name as tracked.
    pub application_name: String,
    /// Prepared statements known here.
    pub prepared_statements: u64,
    /// Bytes received that are held, for a server or for the rest of their message.
    pub held_bytes: u64,
    /// Bytes of the message being passed on that have not come yet.
    pub remaining_bytes: u64,
}

/// One pool on one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolRow {
    /// As clients name it.
    pub database: String,
    /// The pool's user.
    pub user: String,
    /// Clients linked to a server, or idle (PgBouncer counts both as active).
    pub client_active: u64,
    /// Clients waiting for a server.
    pub client_waiting: u64,
    /// Cancel requests forwarded and not yet closed.
    pub client_active_cancel: u64,
    /// Cancel requests waiting to be forwarded.
    pub client_waiting_cancel: u64,
    /// Servers linked to a client.
    pub server_active: u64,
    /// Server connections that forward a cancel.
    pub server_active_cancel: u64,
    /// Servers that must not be reused until a cancel has finished.
    pub server_being_cancelled: u64,
    /// Servers free to use.
    pub server_idle: u64,
    /// Servers idle longer than `server_check_delay`.
    pub server_used: u64,
    /// Servers running a reset or check query.
    pub server_tested: u64,
    /// Servers logging in.
    pub server_login: u64,
    /// How long the oldest waiter has waited, microseconds.
    pub max_wait_us: u64,
    /// The mode in force.
    pub mode: Option<PoolMode>,
    /// The last failed login to the server, if none has succeeded since.
    pub server_error: Option<ServerError>,
    /// Clients that keep a server because of their sessions.
    pub pinned: u64,
    /// Those of them whose sessions hold this; one that holds more counts for each.
    pub pinned_by_reason: BTreeMap<&'static str, u64>,
    /// For how long they have, all together, in microseconds.
    pub pinned_us: u64,
    /// Clients that wait because of `max_pinned`.
    pub waiting_for_pin: u64,
    /// What became of them so far.
    pub pins: PinCounters,
    /// Not a pool: the sum of the counters of dropped pools of this database.
    pub retired: bool,
    /// The pool's counters on this shard.
    pub counters: Counters,
}

/// What became of sessions that keep their servers, in one pool on one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinCounters {
    /// Clients that began to keep a server.
    pub begun: u64,
    /// For how long all together, of those that have ended, in microseconds.
    pub ended_us: u64,
    /// Requests that waited because of `max_pinned`.
    pub waited: u64,
    /// Clients that were closed because of it.
    pub refused: u64,
}

impl PinCounters {
    /// Adds another shard's.
    pub fn add(&mut self, other: &PinCounters) {
        self.begun += other.begun;
        self.ended_us += other.ended_us;
        self.waited += other.waited;
        self.refused += other.refused;
    }
}

/// Failed connections or logins to the server of a pool, without a success since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerError {
    /// The last one's reason.
    pub message: String,
    /// The first one, microseconds since 1970.
    pub since_us: u64,
    /// The last one, microseconds since 1970.
    pub last_us: u64,
}

impl ServerError {
    /// Two shards' errors of one pool as one: since the first, with the message of the last.
    #[must_use]
    pub fn merged(self, other: ServerError) -> ServerError {
        let since_us = self.since_us.min(other.since_us);
        let later = if other.last_us > self.last_us { other } else { self };
        ServerError { since_us, ..later }
    }
}

/// One database on one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatabaseRow {
    /// As clients name it.
    pub name: String,
    /// Server connections.
    pub servers: u64,
    /// Client connections.
    pub clients: u64,
    /// PAUSE is in force.
    pub paused: bool,
    /// It came from the `*` entry.
    pub auto: bool,
}

/// One user on one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserRow {
    /// Its name.
    pub name: String,
    /// Server connections.
    pub servers: u64,
    /// Client connections.
    pub clients: u64,
}

/// What a shard as a whole is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardRow {
    /// Its number.
    pub shard: u16,
    /// Logged-in clients.
    pub clients: u64,
    /// Clients that are logging in.
    pub logins: u64,
    /// Server connections.
    pub servers: u64,
    /// Local pools.
    pub pools: u64,
    /// CPU time of its thread in the last second, in hundredths of the second.
    pub busy_percent: u64,
    /// Transactions so far.
    pub transactions: u64,
    /// Connections lost on which clients listened, so far.
    pub listener_losses: u64,
}

/// A socket as SHOW FDS has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescriptorRow {
    /// Its connection on its shard.
    pub conn: u32,
    /// The connection it is linked to, if any.
    pub link_conn: Option<u32>,
    /// Its file descriptor; filled in by the driver, which owns the socket.
    pub descriptor: i32,
    /// The descriptor that it is linked to, or 0; filled in likewise.
    pub link: i32,
    /// A server connection, not a client.
    pub is_server: bool,
    /// User of the pool.
    pub user: String,
    /// Database of the pool.
    pub database: String,
    /// The peer's address; `unix` for a unix socket.
    pub address: String,
    /// The peer's port.
    pub port: u16,
    /// The cancel key: process id above, secret below.
    pub cancel: u64,
    /// client_encoding, standard_conforming_strings, DateStyle and TimeZone as tracked.
    pub parameters: [Option<String>; 4],
}

/// The memory that objects of one kind take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryRow {
    /// The kind.
    pub name: &'static str,
    /// Bytes of one.
    pub size: u64,
    /// How many there are.
    pub used: u64,
    /// How many more fit without an allocation.
    pub free: u64,
}

/// Cancel requests for a peer, on one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerPoolRow {
    /// The peer.
    pub peer_id: u32,
    /// Cancel requests being forwarded.
    pub client_active_cancel: u64,
    /// Cancel requests that wait to be forwarded.
    pub client_waiting_cancel: u64,
    /// Connections to the peer that forward one.
    pub server_active_cancel: u64,
    /// Connections to the peer that are being opened.
    pub server_login: u64,
}

/// The latencies of one pool on one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramRow {
    /// As clients name it.
    pub database: String,
    /// The pool's user.
    pub user: String,
    /// In buckets.
    pub histograms: Box<Histograms>,
}

/// The errors that clients of one database got on one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorRow {
    /// As clients name it; empty for clients of no configured one.
    pub database: String,
    /// By code.
    pub errors: SqlstateCounts,
}

/// The statistics of one kind of query on one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryRow {
    /// As clients name it.
    pub database: String,
    /// The kind.
    pub shape: Arc<QueryFingerprint>,
    /// What was counted.
    pub figures: QueryStats,
}

/// A request of a trace on one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanRow {
    /// Its shard.
    pub shard: u16,
    /// Its number on that, from 0 on.
    pub number: u64,
    /// The request.
    pub span: Span,
}

/// A listening socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerRow {
    /// Its file descriptor.
    pub descriptor: i32,
    /// The address it is bound to; `unix` for a unix socket.
    pub address: String,
    /// The port.
    pub port: u16,
}

/// A host name that was looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostRow {
    /// The name, as configured.
    pub name: String,
    /// It has been looked up before; otherwise the first look-up is running.
    pub known: bool,
    /// How many look-ups of it are under way.
    pub underway: u64,
    /// Seconds that the answer will still be used.
    pub ttl_s: u64,
    /// The addresses; none where there is no such name.
    pub addresses: Vec<std::net::IpAddr>,
}

/// A zone of names that were looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneRow {
    /// Its name.
    pub name: String,
    /// The serial number of its SOA record, as last seen.
    pub serial: u32,
    /// How many known hosts are in it.
    pub hosts: u64,
}

/// The servers of an entry, as one shard whose reads go to standbys (`read_write_split`) has seen them, or the thread that probes hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterRow {
    /// As clients name it.
    pub database: String,
    /// The system identifier of its servers; 0 is not known.
    pub system: u64,
    /// The newest timeline of a primary; 0 is not known.
    pub timeline: u32,
    /// Its hosts, in the order of the entry.
    pub hosts: Vec<ClusterHostRow>,
}

/// What a server is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostRole {
    /// It has not been connected to.
    #[default]
    Unknown,
    /// It accepts writes.
    Primary,
    /// It is in recovery.
    Standby,
    /// It cannot be logged in to.
    Down,
}

/// One server of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterHostRow {
    /// Its name and port.
    pub label: String,
    /// What it is.
    pub role: HostRole,
    /// DETACH is in force, since then, microseconds since 1970.
    pub detached_us: Option<u64>,
    /// Since when it is what it is, microseconds since 1970; 0 where that is not known.
    pub since_us: u64,
    /// When that was last seen, microseconds since 1970; 0 is never.
    pub seen_us: u64,
    /// Of what the thread that probes hosts has seen: since when it is that; 0 of what connections for clients have seen.
    pub probed_since_us: u64,
    /// The timeline that it writes or follows; 0 is not known.
    pub timeline: u32,
    /// The position that a standby has replayed, or the last known of the primary.
    pub lsn: Option<u64>,
    /// How far a standby is behind.
    pub lag: Option<HostLag>,
    /// Requests that were sent there because they read.
    pub reads: u64,
    /// Server connections in use.
    pub server_active: u64,
    /// Those that are free to use.
    pub server_idle: u64,
    /// Those that are logging in.
    pub server_login: u64,
    /// The last failed connection or login, if none has succeeded since.
    pub error: Option<ServerError>,
}

/// How far a standby is behind the primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostLag {
    /// In bytes of WAL.
    pub bytes: u64,
    /// In microseconds.
    pub time_us: u64,
}

impl ClusterRow {
    /// Adds what another shard has seen of the same entry.
    pub fn add(&mut self, other: ClusterRow) {
        self.system = if self.system == 0 { other.system } else { self.system };
        self.timeline = self.timeline.max(other.timeline);
        for row in other.hosts {
            match self.hosts.iter_mut().find(|host| host.label == row.label) {
                Some(host) => host.add(row),
                None => self.hosts.push(row),
            }
        }
    }
}

impl ClusterHostRow {
    /// What the other one has seen holds. Of connections for clients that is what they have seen since the probe sees something else: a standby that lets only
    /// the probe log in is down, and does not change its state with each question.
    fn yields_to(&self, other: &ClusterHostRow) -> bool {
        match (self.probed_since_us, other.probed_since_us) {
            _ if self.role == other.role || self.seen_us == 0 || other.seen_us == 0 => {
                other.seen_us > self.seen_us
            }
            (0, probed_us @ 1..) => self.seen_us <= probed_us,
            (probed_us @ 1.., 0) => other.seen_us > probed_us,
            _ => other.seen_us > self.seen_us,
        }
    }

    /// Adds what another shard has seen: the newer is what it is, by all that agree with it.
    fn add(&mut self, other: ClusterHostRow) {
        let (reads, active) = (self.reads + other.reads, self.server_active + other.server_active);
        let (idle, login) = (self.server_idle + other.server_idle, self.server_login + other.server_login);
        let detached_us = earlier(self.detached_us, other.detached_us);
        let is_newer = self.yields_to(&other);
        let (newer, older) =
            if is_newer { (other, std::mem::take(self)) } else { (std::mem::take(self), other) };
        let since_us = match newer.role == older.role && older.seen_us > 0 {
            true => newer.since_us.min(older.since_us),
            false => newer.since_us,
        };
        let error = match (newer.error, older.error) {
            (Some(one), Some(other)) => Some(one.merged(other)),
            (one, other) => one.or(other),
        };
        *self = ClusterHostRow {
            detached_us,
            since_us,
            reads,
            server_active: active,
            server_idle: idle,
            server_login: login,
            error,
            ..newer
        };
    }
}

fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(role: HostRole, since_us: u64, seen_us: u64) -> ClusterHostRow {
        let error = ServerError { message: role_name(role).to_owned(), since_us, last_us: since_us };
        let error = (role == HostRole::Down).then_some(error);
        let (label, lsn) = ("a:1".to_owned(), Some(seen_us));
        ClusterHostRow { label, role, since_us, seen_us, lsn, reads: 3, error, ..ClusterHostRow::default() }
    }

    fn role_name(role: HostRole) -> &'static str {
        if role == HostRole::Down { "refused" } else { "" }
    }

    fn both(one: ClusterHostRow, other: ClusterHostRow) -> ClusterHostRow {
        let cluster = |row| ClusterRow { hosts: vec![row], ..ClusterRow::default() };
        let mut sum = cluster(one);
        sum.add(cluster(other));
        sum.hosts.remove(0)
    }

    #[test]
    fn a_host_is_what_it_was_last_seen_to_be() {
        let unseen = || ClusterHostRow { label: "a:1".to_owned(), ..ClusterHostRow::default() };
        for rows in [(unseen(), host(HostRole::Standby, 5, 9)), (host(HostRole::Standby, 5, 9), unseen())] {
            let sum = both(rows.0, rows.1);
            assert_eq!((sum.role, sum.since_us, sum.reads), (HostRole::Standby, 5, 3));
        }
        let sum = both(host(HostRole::Standby, 5, 9), host(HostRole::Standby, 3, 8));
        assert_eq!((sum.since_us, sum.seen_us, sum.lsn, sum.reads), (3, 9, Some(9), 6));
        let sum = both(host(HostRole::Standby, 5, 9), host(HostRole::Down, 10, 10));
        assert_eq!((sum.role, sum.since_us), (HostRole::Down, 10));
        let sum = both(host(HostRole::Standby, 5, 11), host(HostRole::Down, 10, 10));
        assert_eq!((sum.role, sum.since_us, sum.error.is_some()), (HostRole::Standby, 5, true));
    }

    #[test]
    fn what_connections_for_clients_have_seen_since_the_probe_sees_something_else_holds() {
        let probed = |role, since_us, seen_us| ClusterHostRow {
            probed_since_us: since_us,
            reads: 0,
            ..host(role, since_us, seen_us)
        };
        let role = |one: ClusterHostRow, other: ClusterHostRow| {
            let roles = [both(one.clone(), other.clone()).role, both(other, one).role];
            assert_eq!(roles[0], roles[1], "in either order");
            roles[0]
        };
        use HostRole::{Down, Primary, Standby};
        assert_eq!(role(host(Down, 10, 10), probed(Standby, 5, 11)), Down, "its clients cannot log in");
        assert_eq!(role(host(Down, 10, 10), probed(Standby, 12, 12)), Standby, "it has come back since");
        assert_eq!(role(host(Standby, 1, 9), probed(Primary, 10, 12)), Primary, "it was promoted");
        assert_eq!(role(host(Standby, 1, 13), probed(Down, 10, 12)), Standby, "it serves clients");
    }

    #[test]
    fn hosts_of_all_shards_are_there() {
        let mut sum = ClusterRow { system: 0, timeline: 2, ..ClusterRow::default() };
        sum.add(ClusterRow {
            system: 7,
            timeline: 1,
            hosts: vec![host(HostRole::Down, 1, 1)],
            ..ClusterRow::default()
        });
        assert_eq!((sum.system, sum.timeline, sum.hosts.len()), (7, 2, 1));
    }
}
