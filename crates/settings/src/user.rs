//! Settings of one user, and the table of the keys of an entry in `[users]`.
//! Never holds a secret: those are in `auth_file` ([`crate::userlist`]).

use crate::choice::{PinAction, PoolMode, Priority, SessionState};
use crate::codec::{Boolean, Inherited, InheritedLimit, Number, Seconds};
use crate::pool_size::PoolSize;
use crate::table::{Row, live_row};
use std::time::Duration;

/// An entry of `[users]`; what is `None` follows the database's or the global setting.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct User {
    /// The user's name.
    pub name: String,
    /// Server connections of each of the user's pools.
    pub pool_size: Option<PoolSize>,
    /// Further connections of each pool for long waits.
    pub reserve_pool_size: Option<u32>,
    /// Server connections that each of the user's pools gets of a shared limit when it asks.
    pub guaranteed_connections: Option<u32>,
    /// When server connections are returned.
    pub pool_mode: Option<PoolMode>,
    /// What becomes of session state.
    pub session_state: Option<SessionState>,
    /// Whether clients get a server at login.
    pub assign_server_at_login: Option<bool>,
    /// Whether a plain BEGIN waits for the next request.
    pub deferred_begin: Option<bool>,
    /// Clients of each of the user's pools that may keep a server.
    pub max_pinned: Option<u32>,
    /// What becomes of more.
    pub max_pinned_action: Option<PinAction>,
    /// Server connections over all databases.
    pub max_user_connections: Option<u32>,
    /// Client connections over all databases.
    pub max_user_client_connections: Option<u32>,
    /// The class of the user's clients that wait.
    pub priority: Option<Priority>,
    /// Longest query.
    pub query_timeout: Option<Duration>,
    /// Longest wait for a server connection.
    pub query_wait_timeout: Option<Duration>,
    /// Longest idleness inside a transaction.
    pub idle_transaction_timeout: Option<Duration>,
    /// Longest transaction.
    pub transaction_timeout: Option<Duration>,
    /// Longest idleness of a client.
    pub client_idle_timeout: Option<Duration>,
}

/// Rows of one table, each a `live_row` without a default of its own.
macro_rules! rows {
    ($($name:ident: $codec:ty, $doc:literal $(, $compat:ident)?;)*) => {
        /// Every key of an entry of `[users]`.
        pub static USER: &[Row<User>] = &[$(live_row!(User, User, $name, $codec, unset, Reload, $doc, [$($compat)?]),)*];
    };
}

rows! {
    pool_size: Inherited<PoolSize>, "Server connections of each of the user's pools, or `auto`; wins over the database's.";
    reserve_pool_size: Inherited<Number>, "Further server connections for long waits; wins over the database's.";
    guaranteed_connections: Inherited<Number>, "Server connections that each of the user's pools gets of a limit that pools share (connection_sharing) while its clients ask for them; wins over the database's.", own;
    pool_mode: Inherited<PoolMode>, "When server connections are returned; wins over the database's.";
    session_state: Inherited<SessionState>, "What becomes of what clients leave in their sessions; wins over the database's.", own;
    assign_server_at_login: Inherited<Boolean>, "Session pooling: gives clients their server connections at login; wins over the database's.", own;
    deferred_begin: Inherited<Boolean>, "Sends a plain BEGIN with the client's next request; wins over the database's.", own;
    max_pinned: InheritedLimit, "Clients of each of the user's pools that may keep a server connection because of their sessions; wins over the database's.", own;
    max_pinned_action: Inherited<PinAction>, "What becomes of a client while max_pinned is reached; wins over the database's.", own;
    max_user_connections: InheritedLimit, "Server connections over all databases.";
    max_user_client_connections: InheritedLimit, "Client connections over all databases.";
    priority: Inherited<Priority>, "The class of the user's clients that wait, with queue_priority: high, normal or low; wins over the database's.", own;
    query_timeout: Inherited<Seconds>, "Closes clients whose query took longer.";
    query_wait_timeout: Inherited<Seconds>, "Longest wait for a server connection; wins over the database's.";
    idle_transaction_timeout: Inherited<Seconds>, "Closes clients that were idle inside a transaction for longer.";
    transaction_timeout: Inherited<Seconds>, "Closes clients whose transaction took longer.";
    client_idle_timeout: Inherited<Seconds>, "Closes clients that were idle for longer.";
}

/// The row of a key of `[users]`.
pub(crate) fn row(name: &str) -> Option<&'static Row<User>> {
    USER.iter().find(|row| row.info.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_writes_its_own_field_and_no_other() {
        for row in USER {
            let mut user = User::default();
            let changed = ["7", "statement", "virtual", "error", "high"]
                .iter()
                .any(|word| (row.assign)(&mut user, word).is_ok());
            assert!(changed, "{} takes no value", row.info.name);
            let differing: Vec<&str> = USER
                .iter()
                .filter(|other| !other.same(&user, &User::default()))
                .map(|row| row.info.name)
                .collect();
            assert_eq!(differing, [row.info.name]);
        }
    }
}
