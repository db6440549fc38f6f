//! Answers to reads without a server, and which answers of servers are stored for that (`query_cache`).
//!
//! Owns which requests are looked up: those of clients without a server, outside of transactions, in sessions that are followed. A client gets no answer that is older than
//! what it has written itself (`read_consistency`). Which answers hold is `query_cache`'s.

use session::{CachedRequest, RequestRouting};
use settings::Database;
use sql::cached_read;
use wire::tag::frontend as tag;

use crate::client::Client;
use crate::core::Core;
use crate::link::{deferred_begin, quotas, relay, routing};
use crate::local_pools::serves::Serves;
use crate::local_pools::table::{LocalPools, PoolId};
use crate::query_cache::recording::{Recorded, Recording};
use crate::query_cache::{QueryCaches, Source, State};
use crate::server::Server;
use crate::time::micros;
use crate::{Action, ConnId};

/// Answers the request if its answer is stored and holds; false if it is a server's to answer, whose answer may be stored.
#[cold]
#[inline(never)]
pub(crate) fn answer(core: &mut Core, conn: ConnId, bytes: &[u8]) -> bool {
    let Some(client) = core.conns.client_mut(conn) else { return false };
    client.recording = None;
    let Some(primary) = pool_with_cache(core, conn, bytes) else { return false };
    let names = core.conns.client(conn).and_then(|client| client.request.statements.as_deref());
    let Some(request) = CachedRequest::read(bytes, names) else { return false };
    let Some(key) = key(core, conn, primary, &request, bytes) else { return false };
    match look_up(core, conn, primary, &key) {
        LookUp::Found(sent) => {
            answered(core, conn, primary, &request, (bytes, sent));
            true
        }
        LookUp::Missing => {
            record(core, conn, primary, &request, key, bytes);
            false
        }
        LookUp::Unusable => false,
    }
}

/// What a look-up comes to.
enum LookUp {
    /// This many bytes were sent to the client.
    Found(u64),
    Missing,
    /// The cache is of no use now.
    Unusable,
}

/// The client's pool, if its requests may be answered from a cache at the moment.
fn pool_with_cache(core: &Core, conn: ConnId, bytes: &[u8]) -> Option<PoolId> {
    let client = core.conns.client(conn)?;
    let local_pool = core.local_pools.get(client.pool?)?;
    let refuses = core.config.global.disable_pqexec && bytes.first() == Some(&tag::QUERY);
    let is_served = !local_pool.pool.paused
        && !core.administration.is_suspended()
        && core.administration.shutdown().is_none()
        && !refuses;
    let has_cache = local_pool.database.query_cache > 0
        && local_pool.pool.limits.follows_sessions
        && local_pool.serves.split().is_some();
    let is_plain = client.deferred_begin.is_none() && client.listening.is_none() && client.pin.is_none();
    client.pool.filter(|_| is_served && has_cache && is_plain)
}

/// All that decides the answer to a request: the user, the settings of the session, what is prepared under the name that it uses, and its bytes.
fn key(
    core: &Core,
    conn: ConnId,
    primary: PoolId,
    request: &CachedRequest<'_>,
    bytes: &[u8],
) -> Option<Box<[u8]>> {
    let client = core.conns.client(conn)?;
    let user = &core.local_pools.get(primary)?.user;
    let mut key = Vec::with_capacity(256 + bytes.len());
    key.extend_from_slice(user.as_bytes());
    key.push(0);
    if !client.parameters.append_key(&core.tracked, &mut key) {
        return None;
    }
    key.extend_from_slice(&request.statement.unwrap_or_default().to_be_bytes());
    key.extend_from_slice(bytes);
    Some(key.into_boxed_slice())
}

/// Sends the answer under this key, if there is one that this client may have.
fn look_up(core: &mut Core, conn: ConnId, primary: PoolId, key: &[u8]) -> LookUp {
    let now_us = core.now.mono_us;
    let (Some(client), Some(local_pool)) = (core.conns.client(conn), core.local_pools.get(primary)) else {
        return LookUp::Unusable;
    };
    let needs = routing::needs_of_read(local_pool, client);
    let entry = &local_pool.database;
    let Some(cache) = core.query_caches.get_mut(&local_pool.database_name) else { return LookUp::Unusable };
    cache.follow_schema(local_pool.pool.database());
    let (Some(needs), State::Current) = (needs, cache.state(most_staleness_us(entry), now_us)) else {
        return LookUp::Unusable;
    };
    let cluster = local_pool.serves.cluster().and_then(|cluster| core.local_pools.cluster(cluster));
    let has_writes = cluster.is_some_and(|cluster| cluster.has_at(cache.lsn(), needs));
    let found = if has_writes { cache.find(key) } else { None };
    let Some(answer) = found else {
        cache.counters.misses += 1;
        return LookUp::Missing;
    };
    let sent = answer.len() as u64;
    core.outbox.write(conn, |out| out.extend_from_slice(answer));
    cache.counters.hits += 1;
    LookUp::Found(sent)
}

fn most_staleness_us(entry: &Database) -> u64 {
    micros(entry.query_cache_max_staleness)
}

/// The client has its answer: counts it as a server's would be.
fn answered(
    core: &mut Core,
    conn: ConnId,
    primary: PoolId,
    request: &CachedRequest<'_>,
    (bytes, sent): (&[u8], u64),
) {
    let now_us = core.now.mono_us;
    let Some(client) = core.conns.client_mut(conn) else { return };
    client.request_us = now_us;
    if request.parses_unnamed {
        // No server has that statement: an older one without a name is not to be run in its place.
        client.server_used_last = None;
    }
    if request.describes_named
        && let Some(names) = client.request.statements.as_deref_mut()
    {
        names.note_description();
    }
    if let Some(local_pool) = core.local_pools.get_mut(primary) {
        local_pool.last_used_us = now_us;
        local_pool.answered(1, 0);
        local_pool.transacted(1, 0);
        local_pool.counters.bytes_received += bytes.len() as u64;
        local_pool.counters.bytes_sent += sent;
    }
    if core.has_quotas {
        quotas::answered_without_server(core, conn, bytes.len() as u64 + sent);
    }
    deferred_begin::track(core, conn, bytes);
    if core.exporting.is_some() {
        core.try_export(conn);
    }
}

/// The answer to this request is stored as it passes, if it depends on rows alone.
fn record(
    core: &mut Core,
    conn: ConnId,
    primary: PoolId,
    request: &CachedRequest<'_>,
    key: Box<[u8]>,
    bytes: &[u8],
) {
    if routing::judge(core, conn, primary, bytes).routing != RequestRouting::Read {
        return;
    }
    let Some(read) = request.text(&core.registry).and_then(cached_read) else { return };
    let Some(local_pool) = core.local_pools.get(primary) else { return };
    let cache = core.query_caches.get_mut(&local_pool.database_name);
    let Some(dependencies) = cache.and_then(|cache| cache.dependencies(&read)) else { return };
    if let Some(client) = core.conns.client_mut(conn) {
        client.recording = Some(Box::new(Recording::new(key, dependencies, bytes.len())));
    }
}

/// This of a client whose answer may be stored has been sent to its server.
#[cold]
#[inline(never)]
pub(crate) fn sent(
    (client, server): (&mut Client, &mut Server),
    local_pools: &LocalPools,
    caches: &mut QueryCaches,
    bytes: &[u8],
) {
    let Some(recording) = &mut client.recording else { return };
    let source = match local_pools.get(server.pool).map(|local_pool| &local_pool.serves) {
        Some(Serves::Standby(standby)) => {
            let cluster = local_pools.cluster(standby.cluster);
            cluster.and_then(|cluster| cluster.host(standby.place)?.replayed_lsn()).map(Source::Standby)
        }
        _ => Some(Source::Primary),
    };
    let database = client.pool.and_then(|pool| local_pools.get(pool)).map(|pool| &*pool.database_name);
    let cache = database.and_then(|database| caches.get_mut(database));
    let may_store =
        cache.zip(source).is_some_and(|(cache, source)| cache.may_store(&recording.dependencies, source));
    if may_store && recording.begin(bytes) {
        server.attempt.record();
    } else if !recording.is_passing() {
        client.recording = None;
    }
}

/// Passes on what a server has sent whose answer is recorded, or whose client's request the primary might have run instead.
pub(crate) fn pass_answer(
    core: &mut Core,
    server_conn: ConnId,
    client_conn: ConnId,
    bytes: &[u8],
    received: &[u8],
) {
    let is_recorded = core.conns.server(server_conn).is_some_and(|server| server.attempt.is_recorded());
    relay::answer(core, server_conn, Some(client_conn), bytes, received);
    if is_recorded {
        recorded(core, server_conn, client_conn, received);
    }
}

/// What of this event goes to the client is the next part of its answer.
fn recorded(core: &mut Core, server_conn: ConnId, client_conn: ConnId, received: &[u8]) {
    let Some(client) = core.conns.client_mut(client_conn) else { return };
    let Some(recording) = &mut client.recording else { return };
    let mut passed = Recorded::Open;
    for action in core.outbox.actions() {
        let Action::Send { to, source, start, end } = action else { continue };
        if *to == client_conn && passed == Recorded::Open {
            passed = recording.passed(core.outbox.bytes_of(*source, received, *start, *end));
        }
    }
    if passed == Recorded::Open {
        return;
    }
    let recording = client.recording.take();
    let pool = client.pool;
    if let Some(server) =
        core.conns.server_mut(server_conn).filter(|server| server.client() == Some(client_conn))
    {
        server.attempt.end();
    }
    if let (Recorded::Whole(answer), Some(recording)) = (passed, recording)
        && let Some(local_pool) = core.local_pools.of_mut(pool)
        && let Some(cache) = core.query_caches.get_mut(&local_pool.database_name)
    {
        let limit = local_pool.database.query_cache;
        cache.follow_schema(local_pool.pool.database());
        cache.store(recording.key, recording.dependencies, answer, limit);
    }
}
