//! When clients get their greeting: once a server of their pool has logged in.
//!
//! Owns the moment. What a greeting says is `greeting`'s.

use session::ServerInfo;

use crate::client::Phase;
use crate::core::Core;
use crate::greeting::{ClientGreeting, PoolerInfo};
use crate::link::{first_message, waits};
use crate::local_pools::table::PoolId;
use crate::{Action, ConnId};

/// Sends the greeting to every client of this pool that waits for it, unless each waits for a server of its own.
pub(crate) fn send_greetings(core: &mut Core, pool_id: PoolId) {
    let Some(local_pool) = core.local_pools.get(pool_id) else { return };
    if local_pool.pool.limits.assigns_at_login || local_pool.server_greeting.is_none() {
        return;
    }
    let waiting: Vec<ConnId> = local_pool.waiting().collect();
    for conn in waiting {
        // Internal clients wait there too.
        let Some(client) = core.conns.find_client(conn) else { continue };
        let Phase::AwaitingGreeting(position) = client.phase else { continue };
        if let Some(local_pool) = core.local_pools.get_mut(pool_id) {
            local_pool.pool.queue.leave(position);
        }
        send_greeting(core, conn);
    }
}

/// Sends AuthenticationOk, the parameters that servers of this pool report, the cancel key, ReadyForQuery.
pub(crate) fn send_greeting(core: &mut Core, conn: ConnId) {
    let Some(client) = core.conns.client_mut(conn) else { return };
    let Some(local_pool) = core.local_pools.of_mut(client.pool) else { return };
    client.phase = Phase::Idle;
    if let Some(server_greeting) = &mut local_pool.server_greeting {
        let pooler = PoolerInfo { global: &core.config.global, mode: local_pool.pool.limits.mode };
        let greeting =
            server_greeting.greeting(&client.parameters, &local_pool.default_params, &core.tracked, &pooler);
        client.parameters = greeting.parameters.clone();
        let key = &client.cancel_key;
        core.outbox.write(conn, |out| greeting.write(out, key, &pooler));
        core.act(Action::LoginComplete { conn });
        waits::for_login(core, conn);
    }
    if core.client(conn).is_some_and(|client| !client.request.held.is_empty()) {
        first_message::idle_client_received_held(core, conn);
    }
}

/// Sends the same with the parameters of a dedicated server.
pub(crate) fn send_own_greeting(core: &mut Core, conn: ConnId, own: &ServerInfo) {
    let Some(client) = core.conns.client_mut(conn) else { return };
    let Some(local_pool) = core.local_pools.of(client.pool) else { return };
    let pooler = PoolerInfo { global: &core.config.global, mode: local_pool.pool.limits.mode };
    let greeting = ClientGreeting::new(own, client.parameters.clone(), &core.tracked, &pooler);
    let key = &client.cancel_key;
    core.outbox.write(conn, |out| greeting.write(out, key, &pooler));
    core.act(Action::LoginComplete { conn });
    waits::for_login(core, conn);
}
