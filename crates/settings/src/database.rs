//! A database that clients may ask for, and the table of the keys of its entry in `[databases]`.
//! Never says which value wins over a wider setting: that is `config.rs`.

use crate::finding::Origin;
use crate::table::{Row, live_row, not_yet_row};
use crate::value::{Inherited, List, LoadBalance, Number, PoolMode, Port, Seconds, Text, Word};
use std::time::Duration;

/// An entry of `[databases]`: what a name that clients ask for stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct Database {
    /// The name that clients ask for; `*` in [`crate::Config::fallback`].
    pub name: String,
    /// The name that the server is asked for; the same as `name` unless the entry says otherwise.
    pub dbname: String,
    /// Hosts, of which each connection takes one: names, addresses, or directories of unix sockets (`/...`, `@...`).
    /// None is the unix socket in the default directory.
    pub host: Vec<String>,
    /// TCP port, or the number in the name of the unix socket.
    pub port: u16,
    /// The user that every server connection logs in as, whoever the client is.
    pub user: Option<String>,
    /// The secret of `user`, in clear.
    pub password: Option<String>,
    /// Server connections per user; `None` follows `default_pool_size`.
    pub pool_size: Option<u32>,
    /// Server connections kept open; `None` follows the global setting.
    pub min_pool_size: Option<u32>,
    /// Further connections for long waits; `None` follows the global setting.
    pub reserve_pool_size: Option<u32>,
    /// Server connections of all users; `None` follows the global setting.
    pub max_db_connections: Option<u32>,
    /// Client connections of all users; `None` follows the global setting.
    pub max_db_client_connections: Option<u32>,
    /// Oldest age of an idle server connection; `None` follows the global setting.
    pub server_lifetime: Option<Duration>,
    /// Longest wait for a server connection; `None` follows the global setting.
    pub query_wait_timeout: Option<Duration>,
    /// When server connections go back; `None` follows the global setting.
    pub pool_mode: Option<PoolMode>,
    /// How one of several hosts is chosen.
    pub load_balance_hosts: LoadBalance,
    /// Query that is run on each new server connection.
    pub connect_query: Option<String>,
    /// Startup parameter `client_encoding` of server connections.
    pub client_encoding: Option<String>,
    /// Startup parameter `datestyle` of server connections.
    pub datestyle: Option<String>,
    /// Startup parameter `timezone` of server connections.
    pub timezone: Option<String>,
    /// Startup parameter `application_name` of server connections.
    pub application_name: Option<String>,
    /// Made from `*` for a name that has no entry of its own.
    pub auto: bool,
    /// Where the entry stands.
    pub at: Origin,
}

impl Database {
    /// An entry that says nothing, under this name.
    pub fn new(name: &str, at: Origin) -> Self {
        Self {
            name: name.to_owned(),
            dbname: name.to_owned(),
            host: Vec::new(),
            port: 5432,
            user: None,
            password: None,
            pool_size: None,
            min_pool_size: None,
            reserve_pool_size: None,
            max_db_connections: None,
            max_db_client_connections: None,
            server_lifetime: None,
            query_wait_timeout: None,
            pool_mode: None,
            load_balance_hosts: LoadBalance::default(),
            connect_query: None,
            client_encoding: None,
            datestyle: None,
            timezone: None,
            application_name: None,
            auto: false,
            at,
        }
    }

    /// The fallback under the name that a client asked for: `dbname` follows it unless the entry fixed one.
    pub(crate) fn under(&self, name: &str) -> Self {
        let dbname = if self.dbname == self.name { name.to_owned() } else { self.dbname.clone() };
        Self { name: name.to_owned(), dbname, auto: true, ..self.clone() }
    }

    /// Nothing without effect is shown per database, so nothing needs to be kept.
    fn keep_unread(&mut self, _name: &str, _text: &str) {}

    /// See [`Self::keep_unread`].
    fn unread(&self, _name: &str) -> Option<String> {
        None
    }
}

/// Rows of one table, each a `live_row`.
macro_rules! rows {
    (live { $($name:ident: $codec:ty, $default:tt, $doc:literal;)* }
     not_yet { $($later:ident: $later_doc:literal;)* }) => {
        /// Every key of an entry of `[databases]`. `reserve_pool` is an old name of `reserve_pool_size`.
        pub static DATABASE: &[Row<Database>] = &[
            $(live_row!(Database, Database, $name, $codec, $default, Reload, $doc),)*
            $(not_yet_row!(Database, Database, $later, unset, [], Reload, $later_doc),)*
        ];
    };
}

rows! {
live {
    dbname: Word, unset, "Name of the database on the server; the entry's own name unless given.";
    host: List, unset, "Host names, addresses or directories of unix sockets, with commas between them; none is the unix socket in the default directory.";
    port: Port, "5432", "Port of the server.";
    user: Text, unset, "Logs in to the server as this user, whoever the client is.";
    password: Text, unset, "Password of `user`; unless given, the one in auth_file.";
    pool_size: Inherited<Number>, unset, "Server connections allowed per user; unless given, default_pool_size.";
    min_pool_size: Inherited<Number>, unset, "Server connections kept open; unless given, the global min_pool_size.";
    reserve_pool_size: Inherited<Number>, unset, "Further server connections for long waits; unless given, the global reserve_pool_size.";
    max_db_connections: Inherited<Number>, unset, "Server connections of all users together; unless given, the global max_db_connections.";
    max_db_client_connections: Inherited<Number>, unset, "Client connections of all users together; unless given, the global max_db_client_connections.";
    server_lifetime: Inherited<Seconds>, unset, "Age at which idle server connections are closed; unless given, the global server_lifetime.";
    query_wait_timeout: Inherited<Seconds>, unset, "Longest wait for a server connection; unless given, the global query_wait_timeout.";
    pool_mode: Inherited<PoolMode>, unset, "When server connections go back; unless given, the global pool_mode.";
    load_balance_hosts: LoadBalance, "round-robin", "How one of several hosts is chosen.";
    connect_query: Text, unset, "Query that is run on each new server connection before clients get it.";
    client_encoding: Text, unset, "Startup parameter of server connections.";
    datestyle: Text, unset, "Startup parameter of server connections.";
    timezone: Text, unset, "Startup parameter of server connections.";
    application_name: Text, unset, "Startup parameter of server connections.";
}
not_yet {
    auth_dbname: "Database that auth_query runs in.";
    auth_query: "Query for the secret of a user who is not in auth_file.";
    auth_user: "User that auth_query runs as.";
}
}

/// The row of a key of `[databases]`, by its name or by an old one.
pub(crate) fn row(name: &str) -> Option<&'static Row<Database>> {
    let name = if name == "reserve_pool" { "reserve_pool_size" } else { name };
    DATABASE.iter().find(|row| row.about.name == name)
}
