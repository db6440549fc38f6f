//! Classes of clients that wait for a server (`queue_priority`): what a client asks for itself.
//!
//! Owns nothing: the order is the queue's, and whether a client may ask is its pool's limits'. A request is looked at only when it has to wait.

use settings::Priority;

use crate::ConnId;
use crate::client::Client;
use crate::core::Core;
use crate::local_pools::local_pool::LocalPool;

/// The setting of a session that says in which class its requests wait, unless a comment does: `high`, `normal`, `low`, or anything else for that of its pool.
const PRIORITY: &str = "weir.priority";

/// A request is about to wait: notes what it says of its class, in a pool where clients may. `request` is empty if it is held.
#[cold]
#[inline(never)]
pub(crate) fn note(core: &mut Core, conn: ConnId, request: &[u8]) {
    let Some(client) = core.conns.client_mut(conn) else { return };
    let limits = core.local_pools.of(client.served_by()).map(|local_pool| &local_pool.pool.limits);
    if !matches!(limits.and_then(|limits| limits.priority), Some((_, true))) {
        return;
    }
    let bytes = if request.is_empty() { &client.request.held } else { request };
    let statements = client.request.statements.as_deref();
    let asked = session::request_priority(bytes, statements, &core.registry);
    client.asked_class = asked.or_else(|| of_session(client));
}

/// What the session's own setting says.
fn of_session(client: &Client) -> Option<Priority> {
    let mut others = client.parameters.others().iter();
    let (_, value) = others.find(|(name, _)| name.eq_ignore_ascii_case(PRIORITY))?;
    match value {
        value if value.eq_ignore_ascii_case("high") => Some(Priority::High),
        value if value.eq_ignore_ascii_case("normal") => Some(Priority::Normal),
        value if value.eq_ignore_ascii_case("low") => Some(Priority::Low),
        _ => None,
    }
}

/// The class in which a client waits in this pool.
#[inline]
pub(crate) fn class_of(client: &Client, local_pool: &LocalPool) -> Priority {
    match local_pool.pool.limits.priority {
        None => Priority::Normal,
        Some((class, false)) => class,
        Some((class, true)) => client.asked_class.unwrap_or(class),
    }
}
