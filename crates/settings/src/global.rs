//! The table of `[pgbouncer]`: one row per setting, from which [`Global`], the parser, SHOW CONFIG, SET,
//! the sample file, the manual and docs/pgbouncer.md are made. To add a setting: a row here, and the place that uses it.
//! Never holds anything of one database or one user.

use crate::choice::{
    AuthType, ConnectionSharing, IoDriver, PinAction, PoolMode, QueueBy, QueueOrder, QueuePriority,
    SessionState, SslMode, SyslogFacility, Threads,
};
use crate::codec::{
    AuthDatabase, Boolean, Bytes, CheckQuery, FileMode, Limit, List, Milliseconds, NonEmptyText, Number,
    PeerId, Percent, Port, PortOrOff, Positive, PositiveSeconds, Seconds, Text, WholeSeconds,
};
use crate::collector::{Endpoint, Headers, Webhook};
use crate::fleet::{FleetLimits, FleetNode, FleetStore, LeaseTime};
use crate::fleet_peers::FleetAddress;
use crate::ldap::LdapRule;
use crate::pool_size::PoolSize;
use crate::table::{Row, default_of, live_row};
use crate::value::Codec;
use std::collections::BTreeMap;
use std::time::Duration;

/// Makes [`Global`] and [`GLOBAL`] from two lists of rows.
macro_rules! global {
    (live { $($name:ident: $type:ty, $codec:ty, $default:tt, $when:ident, $doc:literal
         $(, $compat:ident $($how:literal)?)?;)* }
     inert { $($idle:ident: $idle_codec:ty, $idle_default:tt, $idle_when:ident, $why:literal;)* }) => {
        /// The values of `[pgbouncer]`, one field per setting, named as the setting.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Global {
            $(#[doc = $doc] pub $name: $type,)*
            /// Values of settings without effect, for SHOW CONFIG alone.
            unread: BTreeMap<&'static str, String>,
        }

        impl Default for Global {
            fn default() -> Self {
                Self { $($name: or_default::<$codec>(default_of!($default)),)* unread: BTreeMap::new() }
            }
        }

        /// Every setting of `[pgbouncer]`: first the live ones, then the inert.
        pub static GLOBAL: &[Row<Global>] = &[
            $(live_row!(Global, Global, $name, $codec, $default, $when, $doc, [$($compat $($how)?)?]),)*
            $(inert_row!($idle, $idle_codec, $idle_default, $idle_when, $why),)*
        ];
    };
}

/// A row whose value is checked and kept for SHOW CONFIG, and otherwise unused.
macro_rules! inert_row {
    ($name:ident, $codec:ty, $default:tt, $when:ident, $why:literal) => {
        Row::<Global> {
            info: crate::table::SettingInfo {
                name: stringify!($name),
                scope: crate::table::Scope::Global,
                kind: <$codec as Codec>::KIND,
                default: default_of!($default),
                when: crate::table::TakesEffect::$when,
                effect: crate::table::Effect::Inert($why),
                compat: crate::table::Compat::Different($why),
                doc: concat!("Accepted but has no effect: ", $why, "."),
            },
            assign: |global, text| {
                <$codec as Codec>::read(text)?;
                global.keep_unread(stringify!($name), text);
                Ok(())
            },
            show: |global| global.unread(stringify!($name)),
        }
    };
}

global! {
live {
    admin_users: Vec<String>, List, "", Reload,
        "Users who may run every command of the console (database `pgbouncer`).";
    alert_budget: u32, Number, "90", Reload,
        "Weir's own. The control panel raises an alert when the pools of a server may use this part (percent) of its connections. 0 is never.",
        own;
    alert_errors: u32, Number, "10", Reload,
        "Weir's own. The control panel raises an alert when clients of a database are told of more errors a second than this, over ten seconds. 0 is never.",
        own;
    alert_wait: Duration, Seconds, "5", Reload,
        "Weir's own. The control panel raises an alert when a client has waited for a server for longer. 0 is never.",
        own;
    alert_webhook: Option<Webhook>, Webhook, "", Reload,
        "Weir's own. URL (http or https) that each alert is posted to as JSON when it is raised and when it is cleared, tried up to six times. The certificate of an https one is checked by otlp_ca_file, else by the system's roots. Empty is none.",
        own;
    application_name_add_host: bool, Boolean, "0", Reload,
        "Adds the client's address and port to the application_name sent to the server.";
    assign_server_at_login: bool, Boolean, "0", Reload,
        "Session pooling: a client gets its server connection when it logs in instead of with its first request, and BackendKeyData carries the process ID of its server process. While the pool has none for it, its login waits. No effect in transaction and statement pooling.",
        own;
    auth_dbname: Option<String>, AuthDatabase, unset, Reload,
        "Database, by its name in [databases], that auth_query runs in; unless given, the one that the client requested.";
    auth_file: Option<String>, Text, unset, Reload,
        "File of user names and secrets: lines of \"user\" \"secret\", where a secret is a password, md5... or SCRAM-SHA-256$....";
    auth_hba_file: Option<String>, Text, "", Reload,
        "File of host-based rules, in the form of PostgreSQL's pg_hba.conf; used with auth_type hba.",
        better "rules may also name samehost, samenet, +role and samerole (where auth_user can ask)";
    auth_ident_file: Option<String>, Text, unset, Reload,
        "File of user name maps (`map=` in HBA rules); used with auth_type hba.";
    auth_failure_delay: Duration, Seconds, "1", Reload,
        "How long the reply to a failed login is delayed, once logins from its address (on a unix socket: of its system user) have failed four times with less than ten seconds between them. It is sent earlier where max_login_conn needs the place. 0 disables the delay.",
        own;
    auth_ldap_options: LdapRule, LdapRule, unset, Reload,
        "The LDAP server of auth_type ldap and how to query it, in the syntax of pg_hba.conf: ldapserver=... ldapbasedn=\"...\".",
        better "names, values or whole pairs may be quoted, as in pg_hba.conf; invalid options are reported at start, too; SHOW CONFIG hides the password";
    auth_query: Option<String>, Text, "SELECT rolname, CASE WHEN rolvaliduntil OPERATOR(pg_catalog.<) pg_catalog.now() THEN NULL ELSE rolpassword END FROM pg_catalog.pg_authid WHERE rolname OPERATOR(pg_catalog.=) $1 AND rolcanlogin", Reload,
        "Query for a user who is not in auth_file: `$1` is the name, the row has the name and the secret. Used only where there is an auth_user. Names without a schema are looked up in pg_catalog, then by the search_path of that role.",
        better "logins that wait for the same query share one result; a server connection that clients have used is first cleaned by DISCARD ALL, and search_path is pg_catalog, then the role's own, then pg_temp, so that no object of a client replaces one that is named without a schema";
    auth_type: AuthType, AuthType, "md5", Reload,
        "How clients authenticate.",
        better "SCRAM binds to the TLS channel (SCRAM-SHA-256-PLUS), in both directions";
    auth_user: Option<String>, Text, unset, Reload,
        "User that auth_query runs as, with the secret of auth_file; without one auth_query is not used.";
    auto_pool_size_max: u32, Positive, "50", Reload,
        "Largest size that a pool with pool_size = auto may have.",
        own;
    auto_pool_size_min: u32, Positive, "2", Reload,
        "Least size that a pool with pool_size = auto may have; it begins with it.",
        own;
    autodb_idle_timeout: Duration, Seconds, "3600", Reload,
        "Pools made through `*` that were unused for this long are dropped, with their statistics.";
    cancel_wait_timeout: Duration, Seconds, "10", Reload,
        "How long a cancel request may wait for a server connection before it is dropped.";
    client_idle_timeout: Duration, Seconds, "0", Reload,
        "Closes clients that were idle for longer. Should exceed the client's own connection lifetime. 0 is never.";
    client_login_timeout: Duration, Seconds, "60", Reload,
        "Closes clients that connected and did not log in within this time. 0 is never.";
    client_tls13_ciphers: Option<String>, Text, unset, Reload,
        "Cipher suites of TLS 1.3 towards clients, separated by `:`; empty allows all.";
    client_tls_ca_file: Option<String>, Text, "", Reload,
        "CA certificates that client certificates are verified against, in PEM format.";
    client_tls_cert_file: Option<String>, Text, "", Reload,
        "Certificate presented to clients, with its chain, in PEM format.";
    client_tls_ciphers: Option<String>, Text, "default", Reload,
        "Ciphers of TLS 1.2 towards clients, in OpenSSL's list syntax; those that rustls lacks are skipped with a warning.",
        different "names that rustls does not have for TLS 1.2 and 1.3 are ignored with a warning";
    client_tls_ecdhcurve: Option<String>, Text, "auto", Reload,
        "Elliptic curve towards clients: auto, X25519, prime256v1 or secp384r1.";
    client_tls_key_file: Option<String>, Text, "", Reload,
        "Private key of client_tls_cert_file, in PEM format and without a passphrase.";
    client_tls_protocols: Option<String>, Text, "secure", Reload,
        "TLS versions towards clients: secure, all, tlsv1.2, tlsv1.3, separated by commas. Versions below 1.2 are not supported.",
        different "TLS below 1.2 is not supported: naming it gives a warning";
    client_tls_sslmode: SslMode, SslMode, "disable", Reload,
        "Whether clients may (allow, prefer) or must (require) use TLS, and present a certificate signed by client_tls_ca_file (verify-ca, verify-full).";
    connection_sharing: ConnectionSharing, ConnectionSharing, "none", Reload,
        "How pools share max_db_connections and max_user_connections, over all threads: `none` is first come, first served; with `guaranteed` a pool that has fewer connections than guaranteed_connections and clients that wait gets one that another pool has above its own guarantee, as soon as that is released; with `demand` also what is above guarantees is shared among the pools whose clients wait, most to none (max-min fairness).",
        own;
    conffile: Option<String>, Text, unset, Reload,
        "The file that the next RELOAD reads; by default the one of the command line.";
    default_pool_size: PoolSize, PoolSize, "20", Reload,
        "Server connections allowed per user and database, or `auto`: each pool finds the size with the most throughput itself, from auto_pool_size_min to auto_pool_size_max (transaction and statement pooling; with session pooling it has the largest). 0 is no limit.",
        better "`auto`";
    deferred_begin: bool, Boolean, "0", Reload,
        "Transaction pooling: a plain BEGIN or START TRANSACTION, alone in a simple query, is answered at once and sent in front of the client's next request, in the same write; a COMMIT or ROLLBACK with nothing between needs no server connection. now() is then the time of the first statement.",
        own;
    disable_pqexec: bool, Boolean, "0", Restart,
        "Refuses the simple query protocol, and with it several statements in one message; only clients that use the extended protocol throughout can work.";
    dns_max_ttl: Duration, Seconds, "15", Reload,
        "Longest time that the addresses of a host name are cached, whatever the TTL.";
    dns_nxdomain_ttl: Duration, Seconds, "15", Reload,
        "How long a host name that does not exist (NXDOMAIN) is cached.";
    dns_zone_check_period: Duration, Seconds, "0", Reload,
        "How often the serial numbers of the zones of host names are checked; a new one has all names of its zone looked up again. 0 is never.";
    guaranteed_connections: u32, Limit, "0", Reload,
        "Server connections that each pool gets of a limit that pools share (connection_sharing) while its clients ask for them; others may have them until then. 0 guarantees none.",
        own;
    fleet: FleetStore, FleetStore, "none", Restart,
        "Weir's own. The store by which the nodes of a fleet share limits of server connections: etcd (`etcd://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]…]/PREFIX`) or the API server of Kubernetes (`kubernetes` in a pod, else `kubernetes://[HOST[:PORT]]/[NAMESPACE[/NAME]]`). pool_size with its reserve, max_db_connections and max_user_connections hold for all nodes together (docs/fleet.md). none is no fleet.",
        own;
    fleet_address: Option<String>, FleetAddress, "", Restart,
        "Weir's own. Where the other nodes of the fleet reach this one, `host:port`: they forward cancel requests for its clients there. Empty is the name of the host with listen_port; with fleet = kubernetes in a pod, the pod's IP address.",
        own;
    fleet_lease_time: Duration, LeaseTime, "10", Restart,
        "Weir's own. How long a node of a fleet counts as alive after the store has last heard of it, in whole seconds, at least 3.",
        own;
    fleet_limits: FleetLimits, FleetLimits, "none", Reload,
        "Weir's own. Which limits besides those of server connections hold for all nodes of the fleet together, with a comma between them: `clients` (max_client_conn, max_db_client_connections, max_user_client_connections) and `quotas` (of connections, and of what is used in a period). Nodes tell each other what they use about once a second, so that such a limit is passed by what comes in that time. none: they are each node's own. The same on all nodes.",
        own;
    fleet_min_servers: u32, Limit, "1", Reload,
        "Weir's own. Server connections of each shared limit that every node of the fleet may have without asking, also while the store is gone; of a limit smaller than fleet_nodes times this, the whole part of it for each node. The same on all nodes.",
        own;
    fleet_node: Option<String>, FleetNode, "", Restart,
        "Weir's own. The id of this node in its fleet: letters, digits, dots, hyphens and underscores, and no other node's. Empty is the name of the host.",
        own;
    fleet_nodes: u32, Positive, "3", Reload,
        "Weir's own. How many nodes the fleet has at most: this many times fleet_min_servers is set aside of each shared limit. The same on all nodes.",
        own;
    fleet_peer_tls_ca_file: Option<String>, Text, "", Reload,
        "Weir's own. Certificates (PEM) by which the other nodes' are checked, with the host in their fleet_address, when cancel requests are forwarded to them; with it, they are forwarded by TLS only. Empty: by TLS to nodes that offer it (client_tls_sslmode), unchecked, else in plain text.",
        own;
    fleet_pools: bool, Boolean, "1", Reload,
        "Weir's own. All nodes of the fleet have the pools that are made, changed and deleted in the panel or API of one of them: they are kept in the store, and in the pools_file of each node.",
        own;
    fleet_tls_ca_file: Option<String>, Text, "", Restart,
        "Weir's own. Certificates (PEM) by which the store's are checked; with it, etcd is reached by TLS. Of Kubernetes, empty is the pod's own (its service account's ca.crt).",
        own;
    fleet_tls_cert_file: Option<String>, Text, "", Restart,
        "Weir's own. Certificate (with its chain, PEM) that is shown to the store, and to other nodes that want one (client_tls_sslmode); needs fleet_tls_key_file.",
        own;
    fleet_tls_key_file: Option<String>, Text, "", Restart,
        "Weir's own. Private key (PEM) of fleet_tls_cert_file.",
        own;
    fleet_token_file: Option<String>, Text, "", Restart,
        "Weir's own. File with the token that the API server of Kubernetes is shown (fleet = kubernetes); it is read again when it changes. Empty is the pod's own (its service account's), or none beside fleet_tls_cert_file.",
        own;
    fleet_user: Option<String>, Text, "", Reload,
        "Weir's own. User that looks in PostgreSQL whether connections of a node that is gone are still there, before their slots are used again; its password is in auth_file. Empty is the user of the entry, else auth_user. It needs CONNECT and nothing else.",
        own;
    idle_transaction_timeout: Duration, Seconds, "0", Reload,
        "Closes clients that were idle inside a transaction for longer. 0 is never.";
    ignore_startup_parameters: Vec<String>, List, "", Reload,
        "Startup parameters that are accepted and dropped, beside those that are tracked.";
    host_probe_interval: Duration, Seconds, "1", Reload,
        "Weir's own. How often each host of an entry with several hosts and target_session_attrs, read_write_split or topology is asked what it is, on a connection of its own. 0 is never.",
        own;
    host_probe_user: Option<String>, Text, "", Reload,
        "Weir's own. User that asks the hosts; its password is in auth_file. Empty is the user of the entry, else auth_user; without any of them hosts are not asked. It needs no privilege, and pg_monitor to see at once which timeline a standby follows.",
        own;
    http_addr: String, NonEmptyText, "127.0.0.1", Reload,
        "Weir's own. IP address of the control panel. Addresses other than loopback are refused until http_auth_file names a user.",
        own;
    http_allowed_hosts: Vec<String>, List, "", Reload,
        "Weir's own. Host names that the control panel answers to, besides localhost and addresses; it refuses others, against DNS rebinding.",
        own;
    http_audit_file: Option<String>, Text, "", Reload,
        "Weir's own. File that records logins to the control panel and changes made with it. Empty writes them to the log.",
        own;
    http_auth_file: Option<String>, Text, "", Reload,
        "Weir's own. File of the control panel's users, with lines as `weir panel password` and `weir panel token` print them. Without it Weir creates a token at start and shows it on the terminal, or writes it to a file that the log names.",
        own;
    http_lab: bool, Boolean, "1", Reload,
        "Weir's own. Lets callers of scope admin start runs of the lab (`weir-bench`, a program of its own) from the control panel.",
        own;
    http_metrics_open: bool, Boolean, "0", Reload,
        "Weir's own. Serves /metrics without a token to every client that can reach the panel's port. It contains names of databases, users and applications.",
        own;
    http_port: u16, PortOrOff, "0", Reload,
        "Weir's own. Port of the control panel and its API. 0 disables it.",
        own;
    http_tls_cert_file: Option<String>, Text, "", Reload,
        "Weir's own. Certificate (with its chain, PEM) of the control panel for TLS; needs http_tls_key_file.",
        own;
    http_tls_key_file: Option<String>, Text, "", Reload,
        "Weir's own. Private key (PEM) of http_tls_cert_file.",
        own;
    io_driver: IoDriver, IoDriver, "auto", Restart,
        "Weir's own. I/O driver; auto probes for io_uring and falls back to epoll.",
        own;
    listen_addr: Vec<String>, List, "", Restart,
        "Addresses to listen on for TCP; `*` is all of them, empty listens on the unix socket only.";
    listen_backlog: u32, Number, "128", Restart,
        "How many connections the kernel may keep that have not been accepted yet.";
    listen_port: u16, Port, "6432", Restart,
        "Port to listen on, for TCP and in the name of the unix socket.";
    lock_wait_interval: Duration, PositiveSeconds, "1", Reload,
        "Weir's own. How often each server is asked with track_lock_waits.",
        own;
    lock_wait_user: Option<String>, Text, "", Reload,
        "Weir's own. User that asks for track_lock_waits; its password is in auth_file. Empty is the user of the entry, else auth_user. It needs CONNECT on a database, and pg_monitor or pg_read_all_stats to see what the sessions of other users wait for.",
        own;
    log_connections: bool, Boolean, "1", Reload,
        "Logs successful logins.";
    log_disconnections: bool, Boolean, "1", Reload,
        "Logs disconnections with their reasons.";
    log_pooler_errors: bool, Boolean, "1", Reload,
        "Logs the error messages that the pooler itself sends to clients.";
    log_slow_queries: Duration, Seconds, "0", Reload,
        "Logs each request that took so long or longer, its waits included, with what its client waited for and its kind (its text without values), and each login; also turns track_queries on. 0 is never.",
        own;
    log_stats: bool, Boolean, "1", Reload,
        "Logs a line of aggregated statistics every stats_period.";
    logfile: Option<String>, Text, "", Reload,
        "File that log lines are appended to; empty logs to standard error.";
    login_notify_message: Option<String>, Text, "", Reload,
        "Notice sent to every client after login. Empty sends none.";
    max_client_conn: u32, Number, "100", Reload,
        "Client connections that have logged in allowed in all; 0 allows the console only. Raise the limit of open files with it.",
        better "exact over all threads; clients that have not logged in yet count in max_login_conn, not here";
    max_db_client_connections: u32, Limit, "0", Reload,
        "Client connections allowed per database, whatever the user. 0 is no limit.",
        better "exact over all threads";
    max_db_connections: u32, Limit, "0", Reload,
        "Server connections allowed per database, whatever the user. 0 is no limit.",
        better "exact over all threads, as PostgreSQL counts them";
    max_login_conn: u32, Limit, "1000", Reload,
        "Client connections that have not logged in yet, and cancel requests in progress, in addition to max_client_conn. Beyond it, each new one closes one whose login has failed, or the one that has waited longest for its client (a second at least). At four times this number (never more than half of the open files) a new one closes the oldest of the address that has the most, or is refused if that is its own address. 0 is no limit.",
        own;
    max_login_conn_per_address: u32, Limit, "250", Reload,
        "The same for connections from one address, one /64 of IPv6, or one system user on a unix socket, on each thread. The user that Weir runs as and root are never refused there. 0 is no limit.",
        own;
    max_packet_size: u32, Bytes, "2147483647", Reload,
        "The longest message that is passed on, in either direction.";
    max_pinned: u32, Limit, "0", Reload,
        "With session_state = virtual: clients of a pool that may keep a server connection because of their sessions (temporary tables, cursors WITH HOLD, session advisory locks and the like) at the same time. 0 is no limit.",
        own;
    max_pinned_action: PinAction, PinAction, "wait", Reload,
        "What becomes of a client while max_pinned is reached: with `wait`, a request that is known by its text to pin waits until another client's pin ends (at most query_wait_timeout); with `error`, and where only the server's answer shows it, the client and its server connection are closed with SQLSTATE 53400.",
        own;
    max_prepared_statements: u32, Number, "200", Reload,
        "Prepared statements kept per server connection, so that protocol-level ones work in transaction and statement mode. 0 passes them through unchanged.",
        better "\"cached plan must not change result type\" does not reach a client where preparing again is safe; a name that is unknown or taken gets PostgreSQL's error in its place, and the session continues";
    max_user_client_connections: u32, Limit, "0", Reload,
        "Client connections allowed per user, whatever the database. 0 is no limit.",
        better "exact over all threads";
    max_user_connections: u32, Limit, "0", Reload,
        "Server connections allowed per user, whatever the database. 0 is no limit.",
        better "exact over all threads, as PostgreSQL counts them";
    min_pool_size: u32, Limit, "0", Reload,
        "Server connections kept open in a pool that is in use, or whose database forces a user.";
    otlp_ca_file: Option<String>, Text, "", Reload,
        "Weir's own. Root certificates (PEM) that verify the certificate of an https otlp_endpoint. Empty uses the system's.",
        own;
    otlp_endpoint: Option<Endpoint>, Endpoint, "", Reload,
        "Weir's own. Base URL of an OpenTelemetry collector to which Weir sends metrics by OTLP over HTTP (`http://127.0.0.1:4318`); `/v1/metrics` is added. Empty disables the export.",
        own;
    otlp_headers: Headers, Headers, "", Reload,
        "Weir's own. HTTP headers of the export: NAME=VALUE, separated by commas, values percent-encoded (`authorization=Bearer%20...`).",
        own;
    otlp_interval: Duration, PositiveSeconds, "60", Reload,
        "Weir's own. Interval of exports to otlp_endpoint.",
        own;
    otlp_traces: bool, Boolean, "0", Reload,
        "Weir's own. Exports a span for each request whose text has a sampled W3C traceparent in a comment (sqlcommenter), to otlp_endpoint with `/v1/traces`; also turns track_queries on.",
        own;
    peer_id: u32, PeerId, "0", Reload,
        "Number of this process among those in [peers], to which cancel requests that belong to them are forwarded. 0 is none.";
    pidfile: Option<String>, Text, "", Restart,
        "File that the process id is written to. Needed to run as a daemon.";
    pool_idle_timeout: Duration, Seconds, "0", Reload,
        "Pools that have had no client for this long are dropped, with their idle server connections; not those that min_pool_size keeps. 0 is never.";
    pool_mode: PoolMode, PoolMode, "session", Reload,
        "When a server connection is returned to its pool.";
    pools_file: Option<String>, Text, "", Reload,
        "Weir's own. File of further entries of [databases], read as if included last; the panel and the API create, change and delete pools in this file only. It need not exist. A name that is also in another file is an error.",
        own;
    query_timeout: Duration, Seconds, "0", Reload,
        "Closes clients whose query took longer. 0 is never.";
    queue: QueueOrder, QueueOrder, "fifo", Reload,
        "In which order clients that wait for a server connection get one: `fifo` is who came first; `fair` is whose subject (queue_by) has had least of the pool's server time for its weight, over all threads.",
        own;
    queue_burst: Duration, Seconds, "0.1", Reload,
        "Server time, in seconds, that a subject of a fair queue may have saved up while it asked for nothing: so much it gets ahead of others.",
        own;
    queue_by: QueueBy, QueueBy, "user", Reload,
        "Whose server time a fair queue counts: the user that a client has logged in as (pools of a forced user have several), its application_name, or the address that it comes from. A client chooses its application_name itself.",
        own;
    queue_limit: u32, Limit, "0", Reload,
        "Clients of a pool that may wait for a server connection at the same time; a further one is refused (SQLSTATE 53300), with a time after which it may try again, and goes on if its request is here to its end. 0 is no limit.",
        own;
    queue_target: Duration, Seconds, "0", Reload,
        "While a pool's queue has not been empty for 0.1 s, clients that have waited for longer than this many seconds are refused as with queue_limit, so that those that are served are served in time. 0 is never.",
        own;
    quota_query_interval: Duration, PositiveSeconds, "60", Reload,
        "Weir's own. How often PostgreSQL is asked for what quotas need to know: the members of roles that are groups, and how much storage and temporary files databases and users have (docs/quotas.md). RELOAD asks at once.",
        own;
    quota_user: Option<String>, Text, "", Reload,
        "Weir's own. User that asks PostgreSQL for the members of roles that are groups of quotas, for storage, and for temporary files; its password is in auth_file. Empty is the user of the entry, else auth_user. It needs CONNECT on the databases, for temporary files pg_monitor, and nothing else.",
        own;
    quotas_file: Option<String>, Text, "", Reload,
        "Weir's own. File of quotas: how many connections, queries, bytes, how much server time, storage and temporary files users, groups, databases and application_names may have (docs/quotas.md). SET QUOTA writes it; it need not exist. What was used is kept beside it, in a file with `.usage` added to its name.",
        own;
    queue_priority: QueuePriority, QueuePriority, "none", Reload,
        "Whether clients that wait have classes (high, normal, low): `none` is no; with `settings` they have the class that `priority` of their user or database says; with `comment` a request may say another by a comment (`/* weir: priority=high */`), or a session by SET weir.priority. A client is served as if it had come 1 s later with normal, 5 s later with low; within a subject of its own where queue = fair.",
        own;
    query_wait_notify: Duration, WholeSeconds, "5", Reload,
        "Sends a notice to a client that has been waiting for a server for this long. 0 is never.";
    failover_timeout: Duration, Seconds, "30", Reload,
        "Longest wait for a server connection while no host of the entry is what `target_session_attrs` or `read_write_split` asks for, from the moment that this is known; then clients get an error (SQLSTATE 57P03). 0 waits as long as query_wait_timeout allows.",
        own;
    query_wait_timeout: Duration, Seconds, "120", Reload,
        "Closes clients that waited longer for a server connection. 0 waits without limit.";
    reserve_pool_size: u32, Limit, "0", Reload,
        "Further server connections that a pool may open when clients wait for longer than reserve_pool_timeout.";
    reserve_pool_timeout: Duration, Seconds, "5", Reload,
        "How long a client waits before the reserve pool is used. 0 never uses it.";
    resolv_conf: Option<String>, Text, "", Restart,
        "File that names the name servers (resolv.conf(5)); empty uses the system's. With it, only these and /etc/hosts are queried.";
    scram_iterations: u32, Positive, "4096", Reload,
        "Rounds of hashing for SCRAM secrets that are made from plain passwords.";
    server_check_delay: Duration, Seconds, "30", Reload,
        "An idle server connection is used without server_check_query for this long after its last use.";
    server_check_query: Option<String>, CheckQuery, "<empty>", Reload,
        "Query that checks whether an idle server connection is alive; `<empty>` is an empty query, no value disables the check.";
    server_connect_timeout: Duration, Seconds, "15", Reload,
        "Gives up connecting and logging in to a server after this long. 0 is never.";
    server_fast_close: bool, Boolean, "0", Reload,
        "On RECONNECT and changed settings, closes servers in session mode after their transaction rather than their session.";
    server_idle_timeout: Duration, Seconds, "600", Reload,
        "Closes server connections that were idle for longer. 0 is never.";
    server_lifetime: Duration, Seconds, "3600", Reload,
        "Closes idle server connections that are older. 0 closes each after it was used once.";
    server_login_retry: Duration, Seconds, "15", Reload,
        "Waits this long before it connects again to a server that failed to log in.",
        different "the pause after a failed login begins at 0.1 s and doubles up to this; clients wait meanwhile (query_wait_timeout), where PgBouncer refuses them";
    server_reset_query: Option<String>, Text, "DISCARD ALL", Reload,
        "Sent to a server when a client in session mode leaves it. Empty sends nothing.",
        better "if it fails, Weir closes the connection, so that no other client gets its session state";
    server_reset_query_always: bool, Boolean, "0", Reload,
        "Sends server_reset_query in every pool mode.";
    server_round_robin: bool, Boolean, "0", Reload,
        "Uses the server connection that was idle longest, rather than the one used last.";
    server_shuffle: bool, Boolean, "0", Reload,
        "A testing aid, not for production: each transaction of a client runs on another server connection than its last one, so that a test of an application shows at once what it keeps in its session. Implies server_round_robin; a pool without another idle connection closes the client's last one and opens a new one. Open the whole pool first (min_pool_size): leftovers of one client then reach the others, too.",
        own;
    server_tls13_ciphers: Option<String>, Text, unset, Reload,
        "Cipher suites of TLS 1.3 towards servers, separated by `:`; empty allows all.";
    server_socket_dir: Option<String>, Text, "", Reload,
        "Directory in which a PostgreSQL of this machine keeps its unix socket (`@` before it: the abstract namespace). Weir connects to a server whose host is localhost or a loopback address through its socket there, which costs less than TCP, and by its address where there is none. PostgreSQL then applies its rules for `local` to the login. Not used while server_tls_sslmode is require or above. Empty disables it.",
        own;
    server_tls_ca_file: Option<String>, Text, "", Reload,
        "CA certificates that server certificates are verified against, in PEM format.";
    server_tls_cert_file: Option<String>, Text, "", Reload,
        "Certificate presented to servers that request one, in PEM format.";
    server_tls_ciphers: Option<String>, Text, "default", Reload,
        "Ciphers of TLS 1.2 towards servers, in OpenSSL's list syntax; those that rustls lacks are skipped with a warning.",
        different "names that rustls does not have for TLS 1.2 and 1.3 are ignored with a warning";
    server_tls_key_file: Option<String>, Text, "", Reload,
        "Private key of server_tls_cert_file, in PEM format and without a passphrase.";
    server_tls_protocols: Option<String>, Text, "secure", Reload,
        "TLS versions towards servers: secure, all, tlsv1.2, tlsv1.3, separated by commas. Versions below 1.2 are not supported.",
        different "TLS below 1.2 is not supported: naming it gives a warning";
    server_tls_sslmode: SslMode, SslMode, "prefer", Reload,
        "Whether servers on TCP are asked for TLS (allow, prefer: they may decline; require: they may not), and must present a certificate signed by server_tls_ca_file (verify-ca), for the host's name (verify-full).";
    session_state: SessionState, SessionState, "virtual", Reload,
        "What becomes of what a client leaves in its session in transaction and statement pooling. With `virtual`, settings, statements prepared by SQL and the channels of LISTEN follow the client, other state (temporary tables, cursors WITH HOLD, session advisory locks) keeps the client on its server connection until it is gone, and any startup parameter is accepted; Weir asks the server what its session holds after each transaction that may have changed it. `off` leaves it on the server connection, as PgBouncer does.",
        own;
    so_reuseport: bool, Boolean, "0", Restart,
        "Lets several processes listen on the same port.",
        better "works as in PgBouncer; one process uses every core without it";
    spread_busy_percent: u32, Percent, "70", Reload,
        "Weir's own. A pool gets a further thread when its thread has been busier than this for a second.",
        own;
    spread_min_servers: u32, Positive, "8", Reload,
        "Weir's own. A pool with fewer server connections stays on one thread.",
        own;
    state_dir: Option<String>, Text, "", Restart,
        "Weir's own. Directory in which the control panel keeps its history, its audit trail and the results of the lab, so that they outlive the process (mode 0700 where Weir makes it). Unless given, the one that systemd names ($STATE_DIRECTORY); where there is neither, they are kept in memory.",
        own;
    stats_period: Duration, PositiveSeconds, "60", Reload,
        "How often the averages of SHOW STATS are made and the line of log_stats is written.";
    stats_users: Vec<String>, List, "", Reload,
        "Users who may run the read-only commands of the console.";
    suspend_timeout: Duration, Seconds, "10", Reload,
        "Closes connections whose output SUSPEND could not send within this time. 0 is never.";
    syslog: bool, Boolean, "0", Reload,
        "Logs to syslog too.";
    syslog_facility: SyslogFacility, SyslogFacility, "daemon", Reload,
        "Syslog facility.";
    syslog_ident: Option<String>, Text, "pgbouncer", Reload,
        "Program name in syslog.";
    tcp_defer_accept: bool, Boolean, "1", Reload,
        "Wakes the pooler only when a new connection has sent something (TCP_DEFER_ACCEPT).",
        different "1 means one second instead of 45, so that a silent client is visible while it waits";
    tcp_keepalive: bool, Boolean, "1", Reload,
        "Turns on the kernel's keepalive probes.";
    tcp_keepcnt: u32, Number, "0", Reload,
        "Unanswered probes before a connection is dead (TCP_KEEPCNT). 0 is the kernel's own.";
    tcp_keepidle: Duration, WholeSeconds, "0", Reload,
        "Idle time before the first probe (TCP_KEEPIDLE). 0 is the kernel's own.";
    tcp_keepintvl: Duration, WholeSeconds, "0", Reload,
        "Time between probes (TCP_KEEPINTVL). 0 is the kernel's own.";
    tcp_socket_buffer: u32, Bytes, "0", Reload,
        "Size of the kernel's socket buffers. 0 is the kernel's own.";
    tcp_user_timeout: Duration, Milliseconds, "0", Reload,
        "How long sent bytes may stay unacknowledged (TCP_USER_TIMEOUT). 0 is the kernel's own.";
    threads: Threads, Threads, "auto", Restart,
        "Weir's own. Threads that serve connections; auto is one per processor that the process may use.",
        own;
    track_extra_parameters: Vec<String>, List, "IntervalStyle", Restart,
        "Server parameters kept per client beside those that PostgreSQL reports and a client may set (client_encoding, DateStyle, TimeZone, standard_conforming_strings, application_name, IntervalStyle, session_authorization, default_transaction_read_only, scram_iterations, search_path).",
        better "all that PostgreSQL reports is tracked without being named, as in PgBouncer 1.26; RESET, DISCARD ALL and SET TO DEFAULT restore the values of the startup packet, as in PostgreSQL, except for what follows them in the same query string or pipeline segment";
    track_lock_waits: bool, Boolean, "0", Reload,
        "Weir's own. Asks pg_stat_activity of each server every lock_wait_interval which backends of Weir's connections wait for locks, files or anything else, on a connection of its own, for SHOW WAITS, and with track_queries or log_slow_queries for each query and client.",
        own;
    track_queries: bool, Boolean, "0", Reload,
        "Weir's own. Counts calls, times and errors of each kind of query (its text without values) for SHOW QUERIES; at most 1,000 kinds a thread.",
        own;
    transaction_timeout: Duration, Seconds, "0", Reload,
        "Closes clients whose transaction took longer. 0 is never.";
    unix_socket_dir: Option<String>, Text, "/tmp", Restart,
        "Directory of the unix socket; `@` before it is the abstract namespace, empty disables the unix socket.";
    unix_socket_group: Option<String>, Text, "", Restart,
        "Group that the unix socket is given to.";
    unix_socket_mode: u32, FileMode, "0777", Restart,
        "Permissions of the unix socket.";
    user: Option<String>, Text, unset, Restart,
        "User to become after start, for a process started by root.";
    verbose: u32, Number, unset, Reload,
        "How much more is logged; each -v adds one.";
}
inert {
    client_tls_dheparams: Text, "auto", Reload,
        "it sizes finite-field Diffie-Hellman, and Weir offers elliptic curves only";
    job_name: Text, "pgbouncer", Restart,
        "it names the Windows service, and Weir runs on Linux";
    pkt_buf: Number, "4096", Restart,
        "it sizes PgBouncer's buffer per connection, and Weir keeps none";
    sbuf_loopcnt: Number, "5", Reload,
        "it limits PgBouncer's turns on one socket, and Weir bounds its turns by bytes";
}
}

impl Global {
    /// Keeps the value of a setting without a field for SHOW CONFIG.
    fn keep_unread(&mut self, name: &'static str, text: &str) {
        self.unread.insert(name, text.to_owned());
    }

    /// The value of a setting without a field, else its default; empty is NULL where the default is NULL.
    fn unread(&self, name: &str) -> Option<String> {
        let default = row(name).and_then(|row| row.info.default);
        let value = self.unread.get(name).map(String::as_str).or(default);
        value.filter(|text| !text.is_empty() || default.is_some()).map(str::to_owned)
    }
}

/// The row of a setting of `[pgbouncer]`.
pub(crate) fn row(name: &str) -> Option<&'static Row<Global>> {
    GLOBAL.iter().find(|row| row.info.name == name)
}

/// A default as a value; a test holds that every default is one.
fn or_default<C: Codec>(default: Option<&str>) -> C::Value {
    default.and_then(|text| C::read(text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
