//! Makes the parameters of a linked client and server the same.
//!
//! Owns the canonical values that a client takes over, the read-only parameters (in_hot_standby) that are reported to it,
//! and what is known of values that no server reports. Which SET is sent is `session`'s; when, is `checkout`'s.

use session::{Parameters, Tracked};
use telemetry::Level;
use wire::{encode, sqlstate};

use crate::close_reason::CloseReason;
use crate::core::Core;
use crate::link::{checkout, client_end, hand_over, identity, leading_settings, sequences, sql_statements};
use crate::server::InternalQuery;
use crate::{ConnId, client, server};

/// The client has a parameter whose text is not known, and this server has another value: the client would run under that.
#[cold]
pub(crate) fn refuse_to_link(core: &mut Core, client_conn: ConnId, server_conn: ConnId, position: usize) {
    let text = format!(
        "parameter \"{}\" cannot be restored: its value is not known from the server's report",
        core.tracked.name(position)
    );
    client_end::fail_client(core, client_conn, sqlstate::FEATURE_NOT_SUPPORTED, &text);
    checkout::release_or_close(core, server_conn);
}

/// Links a client and a server whose parameters are not known to be the same: None if the server has to be prepared first.
#[cold]
#[inline(never)]
pub(crate) fn link_unlike(core: &mut Core, client_conn: ConnId, server_conn: ConnId) -> Option<ConnId> {
    let listens = hand_over::give_channels(core, client_conn, server_conn);
    let discards = sequences::discard_foreign(core, server_conn);
    let (client, server) = core.conns.linked(client_conn, server_conn)?;
    let sets = client.parameters.sets_from(&server.protocol.parameters, &core.tracked);
    if sets.is_some() || listens.is_some() || discards.is_some() {
        let sets = [discards.unwrap_or_default(), &sets.unwrap_or_default(), &listens.unwrap_or_default()];
        let sets = sets.concat();
        if leading_settings::may_lead(core, client_conn, server_conn, &sets) {
            return leading_settings::link(core, client_conn, server_conn, &sets);
        }
        checkout::prepare(core, client_conn, server_conn, InternalQuery::Apply(client_conn), &sets);
        return None;
    }
    if sql_statements::prepare(core, client_conn, server_conn) {
        return None;
    }
    let (client, server) = core.conns.linked(client_conn, server_conn)?;
    client.phase = client::Phase::Linked(server_conn);
    server.phase = server::Phase::Linked(client_conn);
    share_parameters(core, client_conn, server_conn);
    Some(server_conn)
}

/// Links a client and a server on which another client has run functions that may have set anything.
#[cold]
#[inline(never)]
pub(crate) fn reset_and_prepare(core: &mut Core, client_conn: ConnId, server_conn: ConnId) -> Option<ConnId> {
    let listens = hand_over::give_channels(core, client_conn, server_conn).unwrap_or_default();
    let discards = sequences::discard_foreign(core, server_conn).unwrap_or_default();
    let (client, server) = core.conns.linked(client_conn, server_conn)?;
    let local_pool = core.local_pools.get(server.pool)?;
    let (now, default_params) = (&server.protocol.parameters, &local_pool.default_params);
    let sets =
        [discards, &client.parameters.sets_from_any(now, default_params, &core.tracked), &listens].concat();
    server.protocol.unknown_settings_reset();
    if leading_settings::may_lead(core, client_conn, server_conn, &sets) {
        return leading_settings::link(core, client_conn, server_conn, &sets);
    }
    checkout::prepare(core, client_conn, server_conn, InternalQuery::Apply(client_conn), &sets);
    None
}

/// The server has the client's values; from now on both share one list, in the server's spelling.
pub(crate) fn share_parameters(core: &mut Core, client_conn: ConnId, server_conn: ConnId) {
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return };
    client.is_spelled = true;
    let (own, canonical) = (client.parameters.clone(), server.protocol.parameters.clone());
    // The client's own, which its servers of standbys share: a client goes from one to the other.
    if let Some(local_pool) = core.local_pools.get_mut(client.pool.unwrap_or(server.pool)) {
        // Equal lists become one, so that the next link is known to match without comparing the values.
        if !local_pool.last_params.same(&canonical) {
            local_pool.last_params = canonical.clone();
        }
        server.protocol.parameters = local_pool.last_params.clone();
    }
    client.parameters.take_over_settings(&server.protocol.parameters);
    if server.protocol.lacks_prepared() {
        server.protocol.parameters.unshare(); // Its next client, this one too, is given its own.
    }
    if let Some(startup) = &mut client.startup {
        startup.spell_as(&own, &canonical);
    }
    for position in own.differing(&canonical) {
        let (Some(old), Some(new)) = (own.text(position), canonical.text(position)) else { continue };
        let name = core.tracked.name(position).to_owned();
        if core.tracked.is_read_only(position) {
            core.outbox.write(client_conn, |out| {
                encode::parameter_status(out, name.as_bytes(), new.as_bytes());
            });
        } else {
            let text =
                format!("varcache_set_canonical: setting {name} to its canonical version {old} -> {new}");
            core.log_client(client_conn, Level::Debug, &text);
        }
    }
}

/// The SETs of an [`crate::server::InternalQuery::Apply`] have been run: what this server never reports is as its client
/// wanted it, because we say so.
pub(crate) fn note_unreported(core: &mut Core, client_conn: ConnId, server_conn: ConnId) {
    let Some(server) = core.conns.server(server_conn) else { return };
    let Some(local_pool) = core.local_pools.get(server.pool) else { return };
    let default_params = local_pool.default_params.clone();
    if let Some((client, server)) = core.conns.linked(client_conn, server_conn) {
        server.protocol.parameters.note_unreported(&default_params, &client.parameters);
        server.protocol.parameters.resolve_unknown(&client.parameters);
    }
}

/// The server runs something that may change what it does not report: until its end says more, nothing is known of
/// each such parameter that is not as in `sure`, or on a fresh server.
pub(crate) fn mark_unreported_unknown(core: &mut Core, server_conn: ConnId, sure: Option<&Parameters>) {
    let Some(server) = core.conns.server_mut(server_conn) else { return };
    let Some(local_pool) = core.local_pools.get(server.pool) else { return };
    let sure = sure.unwrap_or(&local_pool.default_params);
    let now = &mut server.protocol.parameters;
    for position in (0..core.tracked.count()).filter(|position| !core.tracked.is_read_only(*position)) {
        if local_pool.default_params.value(position).is_none() && now.value(position) != sure.value(position)
        {
            now.doubt(position);
        }
    }
}

/// DISCARD ALL was run here: what the server does not report has its default.
pub(crate) fn forget_unreported(core: &mut Core, server_conn: ConnId) {
    let Some(server) = core.conns.server_mut(server_conn) else { return };
    let Some(local_pool) = core.local_pools.get(server.pool) else { return };
    server.protocol.parameters.note_unreported(&local_pool.default_params, &local_pool.default_params);
}

/// A server has reported something: facts about it are facts for the clients to come.
pub(crate) fn update_read_only(core: &mut Core, server_conn: ConnId) {
    let Some(server) = core.conns.server_mut(server_conn) else { return };
    let Some(local_pool) = core.local_pools.get_mut(server.pool) else { return };
    for position in read_only_positions(&core.tracked) {
        if let Some(value) = server.protocol.parameters.value(position) {
            local_pool.default_params.set(position, value);
        }
    }
    let is_primary = is_in_recovery(&core.tracked, &server.protocol.parameters) == Some(false);
    // One that was a primary at its login is there for another reason (`read-only`).
    let was_standby = server.timeline().is_none();
    // One for reads is known by what it says of its position: clients have been told what the primary reports.
    let is_for_reads = local_pool.serves.standby().is_some();
    if !is_primary || !was_standby || is_for_reads {
        return;
    }
    if local_pool.refuses_promoted() && !server.close_when_free.is_set() {
        server.close_when_free.set(CloseReason::Promoted);
    }
    // What is kept for a session, or used all the same (`prefer-standby`), is a primary that may be left behind.
    if local_pool.seeks_role() {
        identity::require(server);
    }
}

/// What a server has reported last; None before PostgreSQL 14.
pub(crate) fn is_in_recovery(tracked: &Tracked, reported: &Parameters) -> Option<bool> {
    reported.text(tracked.position(b"in_hot_standby")?).map(|value| value != "off")
}

fn read_only_positions(tracked: &Tracked) -> impl Iterator<Item = usize> + '_ {
    (0..tracked.count()).filter(|position| tracked.is_read_only(*position))
}
