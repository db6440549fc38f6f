//! ONE table of pgpool-II's settings (4.3 to 4.6, and names from before 4.2 that files still have) and of what becomes of each.
//! The list of `weir import` and docs/pgpool.md are made from it. Never knows how a value is read: `convert` does.

use crate::fate::{Fate, Numbered, Party, Setting};

/// Settings that belong together, as pgpool-II's own files have them.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Its heading.
    pub name: &'static str,
    /// Its settings.
    pub settings: &'static [Setting],
}

/// The first part of a row: a name, `N` if it always has a number, `or_N` if it may have one.
macro_rules! numbered {
    () => {
        Numbered::No
    };
    (N) => {
        Numbered::Only
    };
    (or_N) => {
        Numbered::Also
    };
}

/// The second part of a row.
macro_rules! fate {
    (equivalent [$($setting:ident)+] $how:literal) => {
        Fate::Equivalent { settings: &[$(stringify!($setting)),+], how: $how }
    };
    (once [$($setting:ident)+] $how:literal $until:literal) => {
        Fate::Once { settings: &[$(stringify!($setting)),+], how: $how, until: $until }
    };
    (elsewhere [$party:ident] $sentence:literal) => {
        Fate::Elsewhere(Party::$party, $sentence)
    };
    (not_supported [] $sentence:literal) => {
        Fate::NotSupported($sentence)
    };
    (not_needed [] $sentence:literal) => {
        Fate::NotNeeded($sentence)
    };
}

macro_rules! table {
    ($($group:literal { $($name:ident $($number:ident)?: $fate:ident $([$($word:ident)*])? $($text:literal)+;)* })*) => {
        /// Every setting, by group.
        pub static TABLE: &[Group] = &[$(Group {
            name: $group,
            settings: &[$(Setting {
                name: stringify!($name),
                numbered: numbered!($($number)?),
                fate: fate!($fate [$($($word)*)?] $($text)+),
            }),*],
        }),*];
    };
}

table! {
"Clustering mode" {
    backend_clustering_mode: equivalent [host target_session_attrs] "`streaming_replication`: all backends in one entry with `target_session_attrs=primary`. `raw`: all backends, tried in their order. `logical_replication` and `slony`: the first backend only. `native_replication` and `snapshot_isolation` have no equivalent, because Weir sends a statement to one server: the first backend only.";
    replicate_select: elsewhere [PostgreSql] "Streaming replication copies the data; Weir sends a statement to one server.";
    insert_lock: elsewhere [PostgreSql] "Streaming replication copies sequences with the data.";
    lobj_lock_table: elsewhere [PostgreSql] "Streaming replication copies large objects with the data.";
    replication_stop_on_mismatch: elsewhere [PostgreSql] "With streaming replication no statement runs on two servers, so that no results can differ.";
    failover_if_affected_tuples_mismatch: elsewhere [PostgreSql] "With streaming replication no statement runs on two servers, so that no results can differ.";
}
"Connections of clients" {
    listen_addresses: equivalent [listen_addr] "The same addresses; pgpool-II's default is `localhost`, Weir's none.";
    port: equivalent [listen_port] "The same port; pgpool-II's default is 9999, Weir's 6432.";
    unix_socket_directories: equivalent [unix_socket_dir] "The first directory; Weir listens in one.";
    unix_socket_group: equivalent [unix_socket_group] "The same group.";
    unix_socket_permissions: equivalent [unix_socket_mode] "The same permissions.";
    reserved_connections: equivalent [max_client_conn] "Above 0, clients beyond `num_init_children - reserved_connections` are refused, as in pgpool-II.";
    listen_backlog_multiplier: equivalent [listen_backlog max_client_conn] "`num_init_children` times this many connections may wait to be accepted. As many clients may log in to Weir in addition to those that are served, and wait there.";
    serialize_accept: not_needed "One thread of Weir accepts connections.";
    pcp_listen_addresses: not_needed "The console is the database `pgbouncer` on Weir's own port.";
    pcp_port: not_needed "The console is the database `pgbouncer` on Weir's own port.";
    pcp_socket_dir: not_needed "The console is the database `pgbouncer` on Weir's own unix socket.";
}
"Backends" {
    backend_hostname N: equivalent [host] "One of the hosts of the entry `*` of [databases]; an empty name is the unix socket in /tmp.";
    backend_port N: equivalent [port] "One port where all are the same, else one for each host; a backend without one has 5432.";
    backend_weight N: equivalent [weight] "Whole numbers in the same proportion. The primary's counts once it is a standby: it takes no reads as long as a standby can.";
    backend_data_directory N: not_needed "Only pgpool-II's failover and recovery commands use it.";
    backend_flag N: equivalent [host] "With `ALWAYS_PRIMARY` the entry has this backend only. `ALLOW_TO_FAILOVER` and `DISALLOW_TO_FAILOVER` mean nothing to Weir, which asks each server what it is.";
    backend_application_name N: not_needed "It is for pgpool-II's SHOW POOL_NODES; PostgreSQL's pg_stat_replication shows standbys.";
}
"Authentication" {
    enable_pool_hba: equivalent [auth_type auth_hba_file] "`on`: `auth_type = hba` with the rules of `--pool-hba`. `off`: `md5`, or `scram-sha-256` where `--pool-passwd` has no md5 secret.";
    pool_passwd: equivalent [auth_file] "`--pool-passwd` is written as a user list: md5 and SCRAM secrets and plain passwords. AES ones cannot be read.";
    authentication_timeout: equivalent [client_login_timeout] "The same time.";
    allow_clear_text_frontend_auth: not_supported "Weir checks a password by `auth_file`, `auth_query`, LDAP or PAM; it does not pass one on to find out whether PostgreSQL takes it. `auth_user` with `auth_query` asks PostgreSQL for the secrets of all users.";
}
"TLS" {
    ssl: equivalent [client_tls_sslmode server_tls_sslmode] "`on`: `allow` for clients, `prefer` for servers. `off`: `disable` for both.";
    ssl_key: equivalent [client_tls_key_file] "The same file; the key must have no passphrase.";
    ssl_cert: equivalent [client_tls_cert_file] "The same file.";
    ssl_ca_cert: equivalent [client_tls_ca_file] "The same file. To have servers' certificates verified, too, set `server_tls_ca_file` and `server_tls_sslmode = verify-full`.";
    ssl_ca_cert_dir: not_supported "Weir reads one file of certificates: put them into `client_tls_ca_file`.";
    ssl_crl_file: not_supported "Weir reads no revocation lists.";
    ssl_ciphers: equivalent [client_tls_ciphers] "The same list; names that rustls does not have are ignored.";
    ssl_prefer_server_ciphers: not_supported "Weir has no setting for the order of preference.";
    ssl_ecdh_curve: equivalent [client_tls_ecdhcurve] "The same curve, if it is X25519, prime256v1 or secp384r1.";
    ssl_dh_params_file: not_needed "Weir offers elliptic curves only.";
    ssl_passphrase_command: not_supported "Weir's key files have no passphrase.";
}
"Pools" {
    num_init_children: equivalent [default_pool_size max_client_conn] "A child serves one client at a time: as many server connections in each pool, and as many clients plus those that may wait.";
    max_pool: equivalent [max_db_connections] "A child keeps up to this many server connections: `num_init_children * max_pool` is the most that a database may have.";
    process_management_mode: not_needed "Weir has a thread per core, however many clients there are.";
    process_management_strategy: not_needed "Weir has a thread per core, however many clients there are.";
    min_spare_children: not_needed "Weir has a thread per core, however many clients there are.";
    max_spare_children: not_needed "Weir has a thread per core, however many clients there are.";
    child_life_time: not_needed "Weir has a thread per core, however many clients there are.";
    child_max_connections: not_needed "Weir has a thread per core, however many clients there are.";
    connection_life_time: equivalent [server_idle_timeout] "The same time; 0 is never.";
    client_idle_limit: equivalent [client_idle_timeout idle_transaction_timeout] "The same time, outside and inside of transactions.";
    connection_cache: equivalent [server_lifetime] "`off`: `server_lifetime = 0` closes each server connection after its session.";
    reset_query_list: equivalent [server_reset_query] "Without ABORT: Weir closes a server connection that a client leaves inside a transaction. A list with DISCARD ALL becomes DISCARD ALL.";
}
"Log" {
    log_destination: equivalent [syslog] "With `syslog` in the list, Weir logs to syslog too.";
    log_line_prefix: not_supported "The log has PgBouncer's format.";
    log_connections: equivalent [log_connections] "The same.";
    log_disconnections: equivalent [log_disconnections] "The same.";
    log_hostname: not_supported "The log has addresses, not names.";
    log_statement: elsewhere [PostgreSql] "`log_statement` of PostgreSQL logs statements; `track_queries` of Weir counts them.";
    log_per_node_statement: elsewhere [PostgreSql] "`log_statement` of each server logs the statements that it gets.";
    notice_per_node_statement: not_supported "Weir sends no notice about which server runs a statement.";
    log_client_messages: not_supported "Weir does not log messages of the protocol.";
    log_backend_messages: not_supported "Weir does not log messages of the protocol.";
    log_pcp_processes: not_needed "There is no PCP process.";
    log_standby_delay: elsewhere [PostgreSql] "`pg_stat_replication` shows the delay of each standby.";
    log_error_verbosity: not_supported "Weir's log lines have one form; `verbose` adds lines.";
    client_min_messages: not_needed "It limits messages of pgpool-II itself; PostgreSQL's setting of this name belongs to each client's session.";
    log_min_messages: not_supported "Weir's log has no minimum level; `verbose` and `-q` say how much is logged.";
    syslog_facility: equivalent [syslog_facility] "The same facility.";
    syslog_ident: equivalent [syslog_ident] "The same name.";
    logging_collector: equivalent [logfile] "`on`: the file weir.log in `log_directory`.";
    log_directory: equivalent [logfile] "The directory of the log file, with `logging_collector`.";
    log_filename: elsewhere [Logrotate] "Weir appends to one file; after it was moved away, RELOAD (SIGHUP) opens it anew.";
    log_file_mode: not_supported "Weir chooses the mode of its log file.";
    log_truncate_on_rotation: elsewhere [Logrotate] "Rotation is the system's.";
    log_rotation_age: elsewhere [Logrotate] "Rotation is the system's.";
    log_rotation_size: elsewhere [Logrotate] "Rotation is the system's.";
    pid_file_name: equivalent [pidfile] "The file weir.pid in the same directory.";
    logdir: not_needed "Weir keeps no file about which backends are down: it asks them.";
}
"Load balancing" {
    load_balance_mode: once [read_write_split] "`on`: `read_write_split = 1` in the entry, in streaming replication mode; it takes effect with `pool_mode = transaction`." "This version of Weir sends all statements of an entry to the same servers: use a second entry with `target_session_attrs=prefer-standby` for reads.";
    ignore_leading_white_space: not_needed "Blanks in front of a statement mean nothing to Weir.";
    read_only_function_list: once [read_write_split] "Weir learns from the server's catalog which functions may write; a list is not needed." "This version of Weir does not route by functions.";
    write_function_list: once [read_write_split] "Weir learns from the server's catalog which functions may write; a list is not needed." "This version of Weir does not route by functions.";
    primary_routing_query_pattern_list: not_supported "Weir has no patterns of statements: an application that must read from the primary uses an entry with `target_session_attrs=primary`.";
    user_redirect_preference_list: not_supported "Weir does not choose servers by user: give the application an entry of its own with `target_session_attrs`.";
    database_redirect_preference_list: not_supported "A list of redirections moves reads only, and an entry moves all statements: for a database that is only read, add an entry with `target_session_attrs=prefer-standby`.";
    app_name_redirect_preference_list: not_supported "Weir does not choose servers by application_name: give the application an entry of its own with `target_session_attrs`.";
    allow_sql_comments: not_needed "Comments do not keep Weir from reading a statement.";
    disable_load_balance_on_write: once [read_after_write] "`transaction` and `dml_adaptive`: `transaction`. `trans_transaction` and `always`: `session`. `off`: not converted." "This version of Weir sends all statements of an entry to the same servers.";
    dml_adaptive_object_relationship_list: not_supported "Weir does not follow which tables depend on each other.";
    statement_level_load_balance: once [read_write_split] "Weir chooses a standby for each statement or transaction, not for the session." "This version of Weir sends all statements of an entry to the same servers.";
}
"Streaming replication" {
    sr_check_period: equivalent [host_probe_interval] "The same time; 0 is never. Databases of the entry `*`, which `weir import` writes, are not asked: name them.";
    sr_check_user: equivalent [host_probe_user] "The same user, likewise.";
    sr_check_password: not_needed "`auth_file` has the password of `host_probe_user`, as those of all users.";
    sr_check_database: not_needed "Weir asks in the database `postgres`, or in the entry's if that has none.";
    delay_threshold: once [max_replica_lag] "The same number of bytes; 0 is not converted." "This version of Weir does not look at replication lag.";
    delay_threshold_by_time: once [max_replica_lag] "The same time; wins over `delay_threshold`." "This version of Weir does not look at replication lag.";
    prefer_lower_delay_standby: not_supported "Weir does not order standbys by their lag.";
    follow_primary_command: elsewhere [Patroni] "It has the other standbys follow a new primary.";
}
"Health checks" {
    health_check_period or_N: elsewhere [Patroni] "Weir notices that a server is gone by its own connections (`tcp_user_timeout`, `tcp_keepidle`); a manager of failovers checks servers.";
    health_check_timeout or_N: elsewhere [Patroni] "A manager of failovers checks servers.";
    health_check_user or_N: elsewhere [Patroni] "A manager of failovers checks servers.";
    health_check_password or_N: elsewhere [Patroni] "A manager of failovers checks servers.";
    health_check_database or_N: elsewhere [Patroni] "A manager of failovers checks servers.";
    health_check_max_retries or_N: elsewhere [Patroni] "A manager of failovers checks servers.";
    health_check_retry_delay or_N: elsewhere [Patroni] "A manager of failovers checks servers.";
    connect_timeout: equivalent [server_connect_timeout] "The same time, in seconds.";
    connect_timeout N: not_supported "`server_connect_timeout` is one for all hosts.";
}
"Failover and recovery" {
    failover_command: elsewhere [Patroni] "Weir promotes no server and runs no commands; it goes to the new primary once there is one.";
    failback_command: elsewhere [Patroni] "Weir runs no commands; it uses a server again when it can log in to it.";
    failover_on_backend_error: elsewhere [Patroni] "Weir promotes no server: an error ends one connection, not the use of a server.";
    failover_on_backend_shutdown: elsewhere [Patroni] "Weir promotes no server: it tries one that shuts down again.";
    detach_false_primary: equivalent [target_session_attrs] "With `target_session_attrs=primary` Weir uses no primary on an older timeline than one that it has seen.";
    search_primary_node_timeout: not_needed "Weir looks for the primary twice a second; clients wait for it for at most `failover_timeout`, 30 s unless set, and `query_wait_timeout`.";
    auto_failback: not_needed "Weir detaches no server: it uses one again when it can log in to it.";
    auto_failback_interval: not_needed "Weir detaches no server: it uses one again when it can log in to it.";
    recovery_user: elsewhere [Patroni] "It makes new standbys.";
    recovery_password: elsewhere [Patroni] "It makes new standbys.";
    recovery_1st_stage_command: elsewhere [Patroni] "It makes new standbys.";
    recovery_2nd_stage_command: elsewhere [Patroni] "It makes new standbys.";
    recovery_timeout: elsewhere [Patroni] "It makes new standbys.";
    client_idle_limit_in_recovery: elsewhere [Patroni] "A new standby needs no pause of the clients.";
}
"Watchdog" {
    use_watchdog: elsewhere [Keepalived] "A virtual address, or several hosts in the clients' connection strings, choose between several Weirs. What they share (limits, pools, cancel requests) they share as a fleet.";
    trusted_servers: elsewhere [Keepalived] "It decides which machine has the address.";
    trusted_server_command: elsewhere [Keepalived] "It decides which machine has the address.";
    hostname N: elsewhere [Keepalived] "Weir elects no pooler.";
    wd_port N: elsewhere [Keepalived] "Weir elects no pooler.";
    pgpool_port N: elsewhere [Keepalived] "Weir elects no pooler.";
    wd_priority: elsewhere [Keepalived] "It decides which machine has the address.";
    wd_authkey: elsewhere [Keepalived] "It decides which machine has the address.";
    wd_ipc_socket_dir: elsewhere [Keepalived] "Weir elects no pooler.";
    delegate_ip: elsewhere [Keepalived] "It moves the virtual address.";
    if_cmd_path: elsewhere [Keepalived] "It moves the virtual address.";
    if_up_cmd: elsewhere [Keepalived] "It moves the virtual address.";
    if_down_cmd: elsewhere [Keepalived] "It moves the virtual address.";
    arping_path: elsewhere [Keepalived] "It moves the virtual address.";
    arping_cmd: elsewhere [Keepalived] "It moves the virtual address.";
    ping_path: elsewhere [Keepalived] "It decides which machine has the address.";
    clear_memqcache_on_escalation: not_needed "A new process begins with an empty cache.";
    wd_escalation_command: elsewhere [Keepalived] "It runs commands when the address moves.";
    wd_de_escalation_command: elsewhere [Keepalived] "It runs commands when the address moves.";
    failover_when_quorum_exists: elsewhere [Patroni] "Its store of configurations (etcd, Consul, ZooKeeper) has the quorum.";
    failover_require_consensus: elsewhere [Patroni] "Its store of configurations (etcd, Consul, ZooKeeper) has the quorum.";
    allow_multiple_failover_requests_from_node: elsewhere [Patroni] "Its store of configurations (etcd, Consul, ZooKeeper) has the quorum.";
    enable_consensus_with_half_votes: elsewhere [Patroni] "Its store of configurations (etcd, Consul, ZooKeeper) has the quorum.";
    wd_remove_shutdown_nodes: elsewhere [Patroni] "Its store of configurations (etcd, Consul, ZooKeeper) has the quorum.";
    wd_lost_node_removal_timeout: elsewhere [Patroni] "Its store of configurations (etcd, Consul, ZooKeeper) has the quorum.";
    wd_no_show_node_removal_timeout: elsewhere [Patroni] "Its store of configurations (etcd, Consul, ZooKeeper) has the quorum.";
    wd_monitoring_interfaces_list: elsewhere [Keepalived] "It decides which machine has the address.";
    wd_lifecheck_method: elsewhere [Keepalived] "It checks whether a pooler answers.";
    wd_interval: elsewhere [Keepalived] "It checks whether a pooler answers.";
    heartbeat_hostname N: elsewhere [Keepalived] "It checks whether the other machine answers.";
    heartbeat_port N: elsewhere [Keepalived] "It checks whether the other machine answers.";
    heartbeat_device N: elsewhere [Keepalived] "It checks whether the other machine answers.";
    wd_heartbeat_keepalive: elsewhere [Keepalived] "It checks whether the other machine answers.";
    wd_heartbeat_deadtime: elsewhere [Keepalived] "It checks whether the other machine answers.";
    wd_life_point: elsewhere [Keepalived] "It checks whether a pooler answers.";
    wd_lifecheck_query: elsewhere [Keepalived] "It checks whether a pooler answers.";
    wd_lifecheck_dbname: elsewhere [Keepalived] "It checks whether a pooler answers.";
    wd_lifecheck_user: elsewhere [Keepalived] "It checks whether a pooler answers.";
    wd_lifecheck_password: elsewhere [Keepalived] "It checks whether a pooler answers.";
}
"Catalog cache" {
    relcache_expire: not_needed "It tunes pgpool-II's own cache of the catalog.";
    relcache_size: not_needed "It tunes pgpool-II's own cache of the catalog.";
    relcache_query_target: not_needed "It tunes pgpool-II's own cache of the catalog.";
    enable_shared_relcache: not_needed "It tunes pgpool-II's own cache of the catalog.";
    check_temp_table: not_needed "It tells pgpool-II how to find temporary tables.";
    check_unlogged_table: not_needed "It tells pgpool-II how to find unlogged tables.";
}
"Query cache" {
    memory_cache_enabled: equivalent [query_cache] "`on`: `query_cache`, in an entry of the database's own, which a comment shows. It needs `wal_level = logical` on the primary, and `query_cache_user`, a user with REPLICATION.";
    memqcache_method: not_needed "Weir keeps answers in its own memory.";
    memqcache_memcached_host: not_needed "Weir keeps answers in its own memory.";
    memqcache_memcached_port: not_needed "Weir keeps answers in its own memory.";
    memqcache_total_size: equivalent [query_cache] "The same size, for the entry.";
    memqcache_max_num_cache: not_needed "Only the memory of `query_cache` is limited.";
    memqcache_expire: not_needed "An answer is used until what it was made of changes, by whomever.";
    memqcache_auto_cache_invalidation: not_needed "Weir follows the primary's changes, those of other clients and programs, too.";
    memqcache_maxcache: not_needed "Answers above 256 KiB are not kept.";
    memqcache_cache_block_size: not_needed "Weir keeps answers in its own memory.";
    memqcache_oiddir: not_needed "Weir keeps no file about tables.";
    cache_safe_memqcache_table_list: not_needed "Weir learns from the catalog which tables and views can be kept.";
    cache_unsafe_memqcache_table_list: not_supported "Weir keeps answers from all tables whose changes logical decoding tells.";
}
"Older names" {
    socket_dir: equivalent [unix_socket_dir] "As `unix_socket_directories`.";
    replication_mode: not_supported "As `backend_clustering_mode = native_replication`: Weir sends a statement to one server.";
    master_slave_mode: equivalent [host target_session_attrs] "`on`: `backend_clustering_mode` by `master_slave_sub_mode`.";
    master_slave_sub_mode: equivalent [host target_session_attrs] "`stream`, `logical` and `slony` are the clustering modes `streaming_replication`, `logical_replication` and `slony`.";
    white_function_list: once [read_write_split] "As `read_only_function_list`." "This version of Weir does not route by functions.";
    black_function_list: once [read_write_split] "As `write_function_list`." "This version of Weir does not route by functions.";
    black_query_pattern_list: not_supported "As `primary_routing_query_pattern_list`: Weir has no patterns of statements.";
    follow_master_command: elsewhere [Patroni] "It has the other standbys follow a new primary.";
    fail_over_on_backend_error: elsewhere [Patroni] "Weir promotes no server: an error ends one connection, not the use of a server.";
    white_memqcache_table_list: not_needed "As `cache_safe_memqcache_table_list`.";
    black_memqcache_table_list: not_supported "As `cache_unsafe_memqcache_table_list`.";
    debug_level: not_supported "Weir's log has no levels of debugging; `verbose` adds lines.";
    ifconfig_path: elsewhere [Keepalived] "It moves the virtual address.";
    wd_hostname: elsewhere [Keepalived] "Weir elects no pooler.";
    wd_port: elsewhere [Keepalived] "Weir elects no pooler.";
    wd_heartbeat_port: elsewhere [Keepalived] "It checks whether the other machine answers.";
    heartbeat_destination N: elsewhere [Keepalived] "It checks whether the other machine answers.";
    heartbeat_destination_port N: elsewhere [Keepalived] "It checks whether the other machine answers.";
    other_pgpool_hostname N: elsewhere [Keepalived] "Weir elects no pooler.";
    other_pgpool_port N: elsewhere [Keepalived] "Weir elects no pooler.";
    other_wd_port N: elsewhere [Keepalived] "Weir elects no pooler.";
    pcp_timeout: not_needed "There is no PCP process.";
}
}

/// The row of a name as a file has it, in lower case, and its number.
pub(crate) fn find(name: &str) -> Option<(&'static Setting, Option<u32>)> {
    let rows = || TABLE.iter().flat_map(|group| group.settings);
    if let Some(row) = rows().find(|row| row.numbered != Numbered::Only && row.name == name) {
        return Some((row, None));
    }
    let base = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let digits = &name[base.len()..];
    // `backend_port00` is another name.
    let number = digits.parse().ok().filter(|number: &u32| number.to_string() == digits)?;
    rows().find(|row| row.numbered != Numbered::No && row.name == base).map(|row| (row, Some(number)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::fate::is_known;
    use std::collections::BTreeSet;

    fn rows() -> impl Iterator<Item = &'static Setting> {
        TABLE.iter().flat_map(|group| group.settings)
    }

    #[test]
    fn each_setting_is_there_once_with_a_sentence() {
        let mut seen = BTreeSet::new();
        for row in rows() {
            assert!(seen.insert((row.name, row.numbered)), "{} is there twice", row.name);
            for known in [true, false] {
                let sentence = row.verdict_with(|_| known).sentence();
                assert!(sentence.len() > 8 && sentence.ends_with('.'), "{}: {sentence:?}", row.name);
                assert!(!sentence.contains('|') && !sentence.contains('\n'), "{}", row.name);
            }
        }
        assert!(seen.len() > 190, "{}", seen.len());
    }

    #[test]
    fn an_equivalent_is_a_setting_of_this_version() {
        for row in rows() {
            if let crate::Verdict::Equivalent { settings, .. } = row.verdict() {
                assert!(!settings.is_empty());
                assert!(settings.iter().all(|name| is_known(name)), "{}: {settings:?}", row.name);
            }
        }
    }

    #[test]
    fn names_are_found_with_their_numbers() {
        let number = |name: &str| find(name).map(|(row, number)| (row.numbered, number));
        assert_eq!(number("port"), Some((Numbered::No, None)));
        assert_eq!(number("backend_port12"), Some((Numbered::Only, Some(12))));
        assert_eq!(number("health_check_period"), Some((Numbered::Also, None)));
        assert_eq!(number("health_check_period0"), Some((Numbered::Also, Some(0))));
        assert_eq!(number("connect_timeout0").unwrap().0, Numbered::Only);
        for unknown in ["backend_port", "port0", "backend_port01", "backend_port99999999999", "", "7", "frob"]
        {
            assert!(find(unknown).is_none(), "{unknown}");
        }
    }
}
