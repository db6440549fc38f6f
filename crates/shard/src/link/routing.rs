//! Which server a request goes to, where reads go to standbys (`read_write_split`): its pool's, which is the primary, or that of the pool of a standby.
//!
//! Owns that a read goes to a standby only if that is one, near enough, and has replayed what its client has written (`read_consistency`). What reads is
//! `session`'s and `sql`'s; how far a standby is, `local_pools::cluster`'s.

use session::{
    JudgedRequest, RequestRouting, SessionSettings, TransactionControl, request_routing, request_selects,
};
use settings::{ReadAfterWrite, ReadConsistency};
use sql::RouteHint;
use wire::sqlstate;

use crate::ConnId;
use crate::client::routed::Writes;
use crate::client::{self, Client};
use crate::close_reason::CloseReason;
use crate::core::Core;
use crate::link::{checkout, client_end, left_behind, opening, positions, relay, server_end};
use crate::local_pools::cluster::Needs;
use crate::local_pools::known_relations::KnownRelations;
use crate::local_pools::local_pool::LocalPool;
use crate::local_pools::table::{LocalPools, PoolId};

/// The setting of a session that says where its requests go, unless a comment does: `primary`, `standby`, or anything else for what they are.
const ROUTE: &str = "weir.route";

/// The pool whose server an idle client's request goes to. `request` is empty if it is held; None: the client has waited for its pin, and its request was judged before.
#[inline(never)]
pub(crate) fn pool_for(core: &mut Core, conn: ConnId, primary: PoolId, request: Option<&[u8]>) -> PoolId {
    let is_split = follow_timeline(core, primary);
    let Some(request) = request.filter(|_| is_split) else {
        match core.conns.client_mut(conn) {
            Some(client) if is_split && client.routed.standby().is_none() => {}
            Some(client) if is_split => client.routed.keeps_primary(),
            Some(client) => client.routed.end_split(),
            None => {}
        }
        return primary;
    };
    if let Some(client) = core.conns.client_mut(conn)
        && let Some(writes) = client.routed.repeats()
    {
        client.routed.go_to_primary(writes);
        return primary;
    }
    let JudgedRequest { routing, end, is_repeatable } = judge(core, conn, primary, request);
    let needs = needs(core, conn, primary, routing);
    let standby = needs.and_then(|needs| choose(core, primary, needs));
    if let (None, Some(needs)) = (standby, needs) {
        positions::request_sample(core, primary, needs);
    }
    let Some(client) = core.conns.client_mut(conn) else { return primary };
    let Some(standby) = standby else {
        let bytes = if request.is_empty() { &client.request.held } else { request };
        let statements = client.request.statements.as_deref();
        let selects = || request_selects(bytes, statements, &core.registry);
        let writes = writes(routing, &core.local_pools, primary, selects);
        client.routed.send_to_primary(writes, end);
        return primary;
    };
    client.routed.send_to_standby(standby, end, is_repeatable && routing != RequestRouting::Standby);
    standby
}

/// Another thread may have found a primary on a newer timeline: connections to the older one end, and standbys that follow that have nothing of what clients have
/// written since. False if the pool sends nothing elsewhere.
#[inline]
fn follow_timeline(core: &mut Core, primary: PoolId) -> bool {
    let Some((local_pool, cluster, _)) = core.local_pools.with_standbys(primary) else { return false };
    if let Some(known) = local_pool.pool.database().cluster.known()
        && (known.1 != cluster.timeline() || local_pool.has_not_seen(known))
    {
        if known.1 < cluster.timeline() {
            cluster.forget(); // RECONNECT, of which this thread has not heard yet, or another has told it of a server from before.
        }
        cluster.note_timeline(known.1);
        left_behind::leave_old_primary(core, primary);
    }
    true
}

/// Whether a request of the primary writes.
fn writes(
    judged: RequestRouting,
    local_pools: &LocalPools,
    primary: PoolId,
    selects: impl FnOnce() -> bool,
) -> Writes {
    let split = local_pools.get(primary).and_then(|local_pool| local_pool.serves.split());
    let is_unknown = split.is_none_or(|split| split.names.is_unknown());
    match judged {
        RequestRouting::Session | RequestRouting::Read | RequestRouting::ReadOnlyTransaction => Writes::No,
        RequestRouting::Write if is_unknown && selects() => Writes::Perhaps,
        // What a comment has sent to a standby may write.
        RequestRouting::Write | RequestRouting::Primary | RequestRouting::Standby => Writes::Yes,
    }
}

/// What the request is.
pub(crate) fn judge(core: &mut Core, conn: ConnId, primary: PoolId, request: &[u8]) -> JudgedRequest {
    let Some(local_pool) = core.local_pools.get_mut(primary) else {
        return JudgedRequest::WRITE;
    };
    let changes = local_pool.pool.database().cluster.schema_changes();
    let mode = local_pool.pool.limits.mode;
    let Some(split) = local_pool.serves.split_mut() else {
        return JudgedRequest::WRITE;
    };
    let Some(client) = core.conns.client_mut(conn) else {
        return JudgedRequest::WRITE;
    };
    let wish = wish(client);
    // Its notifications come in the order of its own server's commits.
    if client.listening.is_some() || client.routed.is_refused() {
        return JudgedRequest::WRITE;
    }
    // Its BEGIN is in front of the request.
    if client.deferred_begin.is_some() {
        let is_standbys = wish == Some(RouteHint::Standby);
        let routing = if is_standbys { RequestRouting::Standby } else { RequestRouting::Write };
        return JudgedRequest::without_end(routing);
    }
    let bytes = if request.is_empty() { &client.request.held } else { request };
    let names = &mut split.names;
    names.expire_if_changed(changes);
    let maps_names = !client.passes_names(&core.config, mode);
    let statements = client.request.statements.as_deref();
    let judged = request_routing(bytes, (statements, maps_names), &core.registry, names);
    let routing = match judged.routing {
        RequestRouting::ReadOnlyTransaction if is_serializable(client) => RequestRouting::Session,
        routing => routing,
    };
    JudgedRequest { routing: as_wished(wish, routing, bytes), ..judged }
}

/// Transactions of the session are serializable, unless they say otherwise: a standby would refuse each statement in them (PostgreSQL: Hot Standby).
fn is_serializable(client: &Client) -> bool {
    client.parameters.others().iter().any(|(name, value)| {
        name.eq_ignore_ascii_case("default_transaction_isolation")
            && value.eq_ignore_ascii_case("serializable")
    })
}

/// What it is where the session's own setting says where it goes; a comment is stronger.
#[inline]
fn as_wished(wish: Option<RouteHint>, judged: RequestRouting, bytes: &[u8]) -> RequestRouting {
    let begins = || TransactionControl::of_message(bytes).is_some_and(TransactionControl::begins);
    match (wish, judged) {
        (None, judged) | (Some(_), judged @ (RequestRouting::Primary | RequestRouting::Standby)) => judged,
        (Some(RouteHint::Standby), RequestRouting::Session) if !begins() => RequestRouting::Session,
        (Some(RouteHint::Primary), RequestRouting::Session) => RequestRouting::Session,
        (Some(RouteHint::Standby), _) => RequestRouting::Standby,
        (Some(RouteHint::Primary), _) => RequestRouting::Primary,
    }
}

/// Where the session's own setting sends its requests.
#[inline]
fn wish(client: &Client) -> Option<RouteHint> {
    let others = client.parameters.others();
    if others.is_empty() { None } else { wish_of(others) }
}

#[inline(never)]
fn wish_of(settings: &SessionSettings) -> Option<RouteHint> {
    match settings.iter().find(|(name, _)| name.eq_ignore_ascii_case(ROUTE))?.1 {
        "primary" => Some(RouteHint::Primary),
        "standby" => Some(RouteHint::Standby),
        _ => None,
    }
}

/// What a standby has to have replayed for such a request of this client; None if it is the primary's.
#[inline]
fn needs(core: &Core, conn: ConnId, primary: PoolId, judged: RequestRouting) -> Option<Needs> {
    match judged {
        RequestRouting::Write | RequestRouting::Primary | RequestRouting::Session => None,
        RequestRouting::Standby => Some(Needs::Nothing),
        RequestRouting::Read | RequestRouting::ReadOnlyTransaction => {
            needs_of_read(core.local_pools.get(primary)?, core.conns.client(conn)?)
        }
    }
}

/// The same for a read.
#[inline]
pub(crate) fn needs_of_read(local_pool: &LocalPool, client: &Client) -> Option<Needs> {
    let entry = &local_pool.database;
    let wrote = client.routed.wrote();
    match (entry.read_after_write, entry.read_consistency) {
        (ReadAfterWrite::AlwaysPrimary, _) => None,
        (ReadAfterWrite::Session, _) if client.routed.has_written() => None,
        (_, ReadConsistency::Eventual) => Some(Needs::Nothing),
        (_, ReadConsistency::Session) if wrote == 0 => Some(Needs::Nothing),
        (_, ReadConsistency::Session) => Some(Needs::Sample(wrote)),
        (_, ReadConsistency::Database) => {
            let writes = local_pool.pool.database().cluster.all_writes()?;
            Some(Needs::Writes { sample: wrote, writes })
        }
    }
}

/// The pool of the standby with the fewest requests, of those that may serve it.
#[inline]
fn choose(core: &mut Core, primary: PoolId, needs: Needs) -> Option<PoolId> {
    let now_us = core.now.mono_us;
    let (local_pool, cluster, pools) = core.local_pools.with_standbys(primary)?;
    let standbys = &local_pool.serves.split()?.standbys;
    let weights = &local_pool.database.weight;
    let load = |place: usize| {
        let standby = standbys.get(place).and_then(|standby| pools.get(*standby));
        standby.filter(|standby| standby.has_live_server()).map(|standby| standby.pool.in_use())
    };
    let place = cluster.least_loaded(needs, local_pool.database.max_replica_lag, load, weights, now_us)?;
    let standby = *standbys.get(place)?;
    cluster.read_goes_to(place, weights);
    Some(standby)
}

/// A client's request is answered, and with it its transaction if that `is_over`. Not to be called where
/// [`Routed::needs_answer`](crate::client::routed::Routed::needs_answer) says that there is nothing to do.
#[cold]
#[inline(never)]
pub(crate) fn answered(core: &mut Core, conn: ConnId, server_conn: ConnId, is_over: bool) {
    let Some((client, server)) = core.conns.linked(conn, server_conn) else { return };
    if is_over {
        if client.routed.may_have_written() {
            note_write(core, conn, server_conn);
        }
        return;
    }
    if !server.protocol.is_busy() && client.routed.goes_on() && !client.request.held.is_empty() {
        relay::send_blocked_requests(core, server_conn, conn);
    }
}

/// A client that would keep a standby's server for its session, by which it could write nothing any more, ends; true if it does.
#[cold]
pub(crate) fn refuse_to_keep(core: &mut Core, conn: ConnId, server_conn: ConnId) -> bool {
    const TEXT: &str = "the session holds what cannot leave its standby (cursor WITH HOLD, advisory lock or the like): \
        such requests need the comment /* weir: primary */";
    let server = core.conns.find_server(server_conn).filter(|server| server.protocol.keeps_client());
    let local_pool = server.and_then(|server| core.local_pools.get(server.pool));
    if local_pool.is_none_or(|local_pool| local_pool.serves.standby().is_none()) {
        return false;
    }
    server_end::close_server(core, server_conn, CloseReason::StateUnknown);
    client_end::fail_client(core, conn, sqlstate::FEATURE_NOT_SUPPORTED, TEXT);
    true
}

/// The transaction of a client of the primary is over, and may have written: a standby serves its reads once it has replayed that.
fn note_write(core: &mut Core, conn: ConnId, server_conn: ConnId) {
    let Some((client, server)) = core.conns.linked(conn, server_conn) else { return };
    let now_us = core.now.mono_us;
    let has_changed_schema = server.protocol.take_watched_change();
    let Some((local_pool, cluster)) = client.pool.and_then(|pool| core.local_pools.with_cluster(pool)) else {
        return;
    };
    client.routed.note_write(cluster.note_write(now_us));
    if local_pool.database.read_consistency == ReadConsistency::Database {
        local_pool.pool.database().cluster.note_write();
    }
    if has_changed_schema {
        local_pool.pool.database().cluster.note_schema_change();
        let standbys = local_pool.serves.split().map(|split| split.standbys.clone()).unwrap_or_default();
        for standby in standbys {
            if let Some(standby) = core.local_pools.get_mut(standby) {
                standby.relations.follow(&KnownRelations::default(), now_us);
            }
        }
    }
}

/// A client of another process goes on here, where no sample that has been replayed tells of its writes.
pub(crate) fn note_imported(core: &mut Core, conn: ConnId, has_written: bool) {
    let now_us = core.now.mono_us;
    let Some(client) = core.conns.client_mut(conn) else { return };
    if let Some((local_pool, cluster)) = client.pool.and_then(|pool| core.local_pools.with_cluster(pool)) {
        if !has_written {
            client.routed.go_to_primary(Writes::Perhaps);
        }
        client.routed.note_write(cluster.note_write(now_us));
        // A standby's server that it has is still one: what it sends behind its request there waits, as it did.
        if client.server().is_none() || client.routed.standby().is_none() {
            client.routed.end_split();
        }
        local_pool.pool.database().cluster.note_write();
    }
}

/// The pool of this client sends its reads elsewhere from here on, by servers of which nothing is known yet.
pub(crate) fn begin_split(core: &mut Core, conn: ConnId) {
    note_imported(core, conn, true);
    let Some(client) = core.conns.client_mut(conn) else { return };
    let server = client.server();
    // A request that waits for the primary's server goes there, as it is.
    let is_under_way = server.is_some() || matches!(client.phase, client::Phase::Waiting(_));
    if client.routed.standby().is_none() {
        match is_under_way {
            true => client.routed.keeps_primary(),
            false => client.routed.end_split(),
        }
    }
    if let Some(server) = server.and_then(|server| core.conns.server_mut(server)) {
        server.protocol.watch_schema();
    }
}

/// The clients that wait for a server of this pool, if it is a standby's, wait for the primary from here on, as long as they would have.
pub(crate) fn move_waiters(core: &mut Core, standby: PoolId) {
    let mut moved = None;
    while let Some(local_pool) = core.local_pools.get_mut(standby)
        && local_pool.serves.standby().is_some()
        && let Some(waiter) = local_pool.pool.queue.serve()
    {
        let conn = ConnId(waiter.client);
        let Some(client) = core.conns.client_mut(conn) else { continue };
        client.routed.go_to_primary(Writes::Yes);
        moved = client.pool;
        checkout::enqueue(core, conn, waiter.since_us);
    }
    if let Some(primary) = moved {
        opening::serve_or_open(core, primary);
    }
}
