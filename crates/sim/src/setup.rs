//! The configuration and the shards of a seed's pooler.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use auth::{Entropy, MockKey};
use messages::ShardId;
use pool::PoolRegistry;
use settings::{Config, Database, Origin, QueueOrder, SessionState, SslMode};
use shard::Shard;

use crate::directory::Names;
use crate::prng::Prng;
use crate::sql::Statement;
use crate::swarm::{Hosts, Pooling, Queueing, Quotas};

/// Where the model server is.
pub(crate) const HOST: &str = "db0.sim";
/// All its names.
pub(crate) const HOSTS: &[&str] = &[HOST, "db1.sim"];
/// Its port.
pub(crate) const PORT: u16 = 5432;

/// How the names of a cluster's hosts begin.
const REPLICA: &str = "pg";

/// The name of a cluster's host.
pub(crate) fn replica(place: usize) -> String {
    format!("{REPLICA}{place}.sim")
}

/// The place of the host at this address in its cluster; that of a single server is 0.
pub(crate) fn place_of(address: IpAddr) -> usize {
    match address {
        IpAddr::V4(address) if address.octets()[2] >= REPLICA_NET => {
            usize::from(address.octets()[2] - REPLICA_NET)
        }
        _ => 0,
    }
}

/// The network of the first host of a cluster.
const REPLICA_NET: u8 = 10;

/// The address of a name after a number of moves.
pub(crate) fn address_of(host: &str, moves: u8) -> IpAddr {
    let place = host.strip_prefix(REPLICA).and_then(|rest| rest.strip_suffix(".sim"));
    if let Some(place) = place.and_then(|place| place.parse::<u8>().ok()) {
        return IpAddr::V4(Ipv4Addr::new(10, 0, REPLICA_NET + place, 1));
    }
    let net = if host == HOST { 0 } else { 2 };
    IpAddr::V4(Ipv4Addr::new(10, 0, net, moves))
}

/// Address and port of a client, by the number of its connection.
pub(crate) fn peer_of(link: u32) -> (String, u16) {
    let low = u8::try_from(link % 250).unwrap_or(0) + 1;
    (Ipv4Addr::new(10, 0, 1, low).to_string(), 20_000 + u16::try_from(link % 30_000).unwrap_or(0))
}

/// How the names of users begin.
pub(crate) const USER: &str = "user";

/// The name of a user.
pub(crate) fn user(number: u32) -> String {
    format!("{USER}{number}")
}

/// The name of a database.
pub(crate) fn database(number: u32) -> String {
    format!("shop{number}")
}

/// The pooler's configuration; timeouts that bite are drawn from `prng`.
pub(crate) fn config(pooling: &Pooling, hosts: Option<&Hosts>, prng: &mut Prng) -> Config {
    let mut config = Config::default();
    let global = &mut config.global;
    global.auth_type = pooling.auth_type;
    global.server_tls_sslmode = SslMode::Disable; // rustls has entropy of its own, and a seed must replay
    global.max_client_conn = 10_000;
    global.default_pool_size = settings::PoolSize::Fixed(pooling.pool_size);
    if pooling.auto_size {
        global.default_pool_size = settings::PoolSize::Auto;
        (global.auto_pool_size_min, global.auto_pool_size_max) = (1, pooling.pool_size);
    }
    global.reserve_pool_size = pooling.reserve_pool_size;
    global.reserve_pool_timeout = Duration::from_millis(50);
    global.max_db_connections = pooling.max_db_connections;
    global.connection_sharing = pooling.sharing.mode;
    global.guaranteed_connections = pooling.sharing.guaranteed;
    global.pool_mode = pooling.pool_mode;
    global.max_prepared_statements = pooling.max_prepared_statements;
    global.session_state = if pooling.virtual_sessions { SessionState::Virtual } else { SessionState::Off };
    global.assign_server_at_login = pooling.assign_at_login;
    global.deferred_begin = pooling.deferred_begin;
    queue(&pooling.queueing, global);
    global.server_round_robin = pooling.round_robin;
    global.server_lifetime = Duration::from_millis(pooling.server_lifetime_ms);
    global.server_login_retry = Duration::from_millis(500);
    global.server_connect_timeout = Duration::from_secs(2);
    global.server_check_query = Some(String::new());
    global.server_check_delay = if pooling.checks { Duration::ZERO } else { Duration::from_secs(30) };
    global.query_wait_notify = Duration::ZERO;
    global.spread_min_servers = 2;
    if pooling.tight_timeouts {
        let mut milliseconds = |most| Duration::from_millis(prng.log_between(20, most));
        global.query_wait_timeout = milliseconds(3_000);
        global.query_timeout = milliseconds(3_000);
        global.idle_transaction_timeout = milliseconds(1_000);
        global.client_idle_timeout = milliseconds(3_000);
        global.server_idle_timeout = milliseconds(1_000);
        global.cancel_wait_timeout = milliseconds(1_000);
    }
    let known = if pooling.looks_up { 1 } else { pooling.users };
    if pooling.looks_up {
        global.auth_user = Some(user(0));
        global.auth_query = Some(Statement::Lookup.to_string());
    }
    let secrets = (0..known).map(|number| (user(number), pooling.secret.to_owned()));
    config.secrets = Arc::new(secrets.collect());
    config.quotas = Arc::new(quotas(pooling.quotas));
    for number in 0..pooling.databases {
        let origin = Origin { file: Arc::from("sim.ini"), line: number + 1 };
        let mut entry = Database::new(&database(number), origin);
        entry.host = vec![HOST.to_owned()];
        entry.port = settings::Ports::one(PORT);
        entry.priority = (number == 0).then_some(pooling.queueing.classes.1);
        if let Some(hosts) = hosts {
            entry.host = (0..usize::from(hosts.count)).map(replica).collect();
            entry.read_write_split = true;
            entry.read_consistency = hosts.consistency;
            entry.read_after_write = hosts.after_write;
            entry.max_replica_lag = hosts.most_lag;
            entry.target_session_attrs = hosts.attrs;
        }
        config.databases.insert(entry.name.clone(), Arc::new(entry));
    }
    config
}

fn queue(queueing: &Queueing, global: &mut settings::Global) {
    if let Some(by) = queueing.fair {
        (global.queue, global.queue_by) = (QueueOrder::Fair, by);
    }
    global.queue_burst = Duration::from_millis(queueing.burst_ms);
    global.queue_priority = queueing.classes.0;
    global.queue_limit = queueing.limit;
    global.queue_target = Duration::from_millis(queueing.target_ms);
}

/// The lines of `quotas_file`: above half of a limit there is a warning.
fn quotas(quotas: Quotas) -> quota::Rules {
    let line = |resource: &str, hard: u64| {
        if hard > 0 {
            format!("user {} {resource} soft={} hard={hard}\n", user(0), hard / 2)
        } else {
            String::new()
        }
    };
    let text = line("connections", quotas.connections.into()) + &line("queries/day", quotas.queries);
    quota::Rules::read(text.as_bytes()).unwrap_or_default()
}

/// The shards of a process after this many predecessors.
pub(crate) fn shards(config: &Arc<Config>, names: &Arc<Names>, prng: &Prng, before: u64) -> Vec<Shard> {
    let mock = Arc::new(MockKey::new([7; 32]));
    (0..names.shards())
        .map(|number| {
            let entropy = Box::new(Seeded(prng.split(1_000 + before * 64 + u64::from(number))));
            let directory: Arc<dyn PoolRegistry> = Arc::<Names>::clone(names);
            let mut shard =
                Shard::new(ShardId(number), Arc::clone(config), directory, entropy, Arc::clone(&mock));
            shard.follow(before);
            shard
        })
        .collect()
}

/// Entropy that a seed fixes.
struct Seeded(Prng);

impl Entropy for Seeded {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = self.0.next().to_le_bytes()[0];
        }
    }
}
