//! Whole files: what is written, and what is listed.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Arc;

use settings::{Config, LoadBalance, PoolMode, TargetSessionAttrs};

use crate::fate::{Numbered, Verdict};
use crate::probe::{Memory, Same};
use crate::table::TABLE;
use crate::{Conf, ImportError, Imported, Request, convert};

const PATH: &str = "/etc/pgpool2/pgpool.conf";

fn import(text: &str) -> Result<Imported, ImportError> {
    let conf = Conf::read(&Memory(&[(PATH, text)]), PATH);
    convert(&Request { path: PATH, conf: &conf, directory: "/etc/pgpool2", rules: None, users: None })
}

fn config(text: &str) -> Arc<Config> {
    let ini = import(text).unwrap().ini;
    settings::check(&Same(ini.as_bytes()), "weir.ini").config.unwrap()
}

fn list(text: &str) -> String {
    import(text).unwrap().list
}

const THREE: &str = "backend_hostname0 = 'db1'\nbackend_hostname1 = 'db2'\nbackend_hostname2 = 'db3'\n";

#[test]
fn a_cluster_is_one_entry_whose_connections_go_to_the_primary() {
    let config = config(&format!("{THREE}backend_port1 = 5433\n"));
    let entry = config.fallback.clone().unwrap();
    assert_eq!(entry.host, ["db1", "db2", "db3"]);
    assert_eq!(entry.target_session_attrs, TargetSessionAttrs::Primary);
    assert!(import(&format!("{THREE}backend_port1 = 5433")).unwrap().ini.contains(" port=5432,5433,5432 "));
    assert!(config.databases.is_empty());
    assert_eq!((config.global.listen_port, config.global.pool_mode), (9999, PoolMode::Session));
    assert_eq!(config.global.listen_addr, ["localhost"]);
    assert_eq!(
        (config.global.default_pool_size, config.global.max_db_connections),
        (settings::PoolSize::Fixed(32), 128)
    );
    assert_eq!((config.global.max_client_conn, config.global.listen_backlog), (96, 64));
}

#[test]
fn weights_are_whole_numbers_in_the_same_proportion() {
    for (weights, expected) in [
        (["1", "1", "1"], [1, 1, 1]),
        (["1", "0.5", "0.5"], [2, 1, 1]),
        (["0", "3", "1"], [0, 3, 1]),
        (["0", "0.7", "0.3"], [0, 23, 10]),
        (["1", "100000", "1"], [0, 1, 0]),
        (["1", "x", "2"], [1, 1, 2]),
    ] {
        let lines =
            weights.iter().enumerate().map(|(place, weight)| format!("backend_weight{place} = {weight}\n"));
        let entry = config(&format!("{THREE}{}", lines.collect::<String>())).fallback.clone().unwrap();
        assert_eq!([0, 1, 2].map(|place| entry.weight.of(place)), expected, "{weights:?}");
    }
    assert!(list(&format!("{THREE}backend_weight1 = x")).contains("no number from 0 on"));
}

#[test]
fn one_backend_needs_no_word_on_which() {
    let entry = config("backend_hostname3 = ''\nbackend_port3 = 5433").fallback.clone().unwrap();
    assert_eq!(
        (entry.host.join(","), entry.target_session_attrs),
        ("/tmp".to_owned(), TargetSessionAttrs::Any)
    );
    let entry = config("backend_hostname0 = '/run/it''s here'").fallback.clone().unwrap();
    assert_eq!(entry.host, ["/run/it's here"]);
}

#[test]
fn other_modes_have_the_hosts_that_take_writes() {
    for (line, hosts, attrs) in [
        ("backend_clustering_mode = 'raw'", "db1,db2,db3", TargetSessionAttrs::Any),
        ("backend_clustering_mode = native_replication", "db1", TargetSessionAttrs::Any),
        ("backend_clustering_mode = snapshot_isolation", "db1", TargetSessionAttrs::Any),
        ("backend_clustering_mode = logical_replication", "db1", TargetSessionAttrs::Any),
        ("replication_mode = on", "db1", TargetSessionAttrs::Any),
        (
            "master_slave_mode = on\nmaster_slave_sub_mode = 'stream'",
            "db1,db2,db3",
            TargetSessionAttrs::Primary,
        ),
        ("master_slave_mode = on\nmaster_slave_sub_mode = 'slony'", "db1", TargetSessionAttrs::Any),
        ("master_slave_mode = off", "db1,db2,db3", TargetSessionAttrs::Any),
        ("backend_flag1 = 'ALWAYS_PRIMARY|DISALLOW_TO_FAILOVER'", "db2", TargetSessionAttrs::Any),
        ("backend_clustering_mode = sideways", "db1,db2,db3", TargetSessionAttrs::Primary),
    ] {
        let entry = config(&format!("{THREE}{line}")).fallback.clone().unwrap();
        assert_eq!((entry.host.join(","), entry.target_session_attrs), (hosts.to_owned(), attrs), "{line}");
    }
    let raw = config(&format!("{THREE}backend_clustering_mode = raw")).fallback.clone().unwrap();
    assert_eq!(raw.load_balance_hosts, LoadBalance::Disable);
    assert!(import(&format!("{THREE}replication_mode = 1")).unwrap().ini.contains("GET NO MORE WRITES"));
}

#[test]
fn limits_are_those_that_pgpool_had() {
    let global = config(&format!("{THREE}num_init_children = 50\nmax_pool = 1\nreserved_connections = 2"))
        .global
        .clone();
    assert_eq!(
        (global.default_pool_size, global.max_db_connections, global.max_client_conn),
        (settings::PoolSize::Fixed(50), 50, 48)
    );
    let global = config(&format!(
        "{THREE}num_init_children = 2147483647\nmax_pool = 9\nlisten_backlog_multiplier = 7"
    ))
    .global
    .clone();
    assert_eq!((global.max_db_connections, global.max_client_conn), (2_147_483_647, 2_147_483_647));
}

#[test]
fn a_value_that_makes_no_sense_is_listed_and_costs_only_its_line() {
    for line in [
        "num_init_children = 0",
        "num_init_children = 99999999999999999999",
        "max_pool = many",
        "port = 99999",
        "client_idle_limit = -1",
        "unix_socket_permissions = 9999",
        "ssl = perhaps",
        "ssl = on\nssl_cert = 'c'",
        "backend_flag0 = 'FROB'",
        "backend_port7 = 1",
        "backend_hostname128 = 'x'",
        "backend_hostname3 = 'a,b'",
        "backend_hostname4 = 'x'\nbackend_port4 = 0",
        "log_directory = 'a\\nb'\nlogging_collector = on",
        "syslog_facility = 'frob'",
        "unix_socket_directories = '/a,/b'",
        "port = 1\nport = 2",
        "backend_clustering_mode = sideways",
    ] {
        let list = list(&format!("{THREE}{line}"));
        let first = list.lines().nth(1).unwrap_or_default();
        assert!(
            list.starts_with("Look at these first:\n") && first.contains(&format!("{PATH}:")),
            "{line}: {list}"
        );
        assert!(first.contains(":4: ") || first.contains(":5: "), "{line}: {first}");
    }
    let line = format!("{THREE}port = 0\nconnect_timeout = never");
    assert_eq!(
        (config(&line).global.listen_port, config(&line).global.server_connect_timeout.as_secs()),
        (9999, 15)
    );
    assert!(!list(THREE).contains("Look at"), "{}", list(THREE));
    assert_eq!(config(&format!("{THREE}port = 1\nPort = 2")).global.listen_port, 2, "the last counts");
}

#[test]
fn without_a_backend_or_with_a_bad_line_nothing_is_written() {
    let refused = import("port = 9999\nbackend_hostname0 = 'a,b'").unwrap_err().to_string();
    assert!(
        refused.contains("pgpool.conf:2: backend_hostname0: left out") && refused.contains("no backend"),
        "{refused}"
    );
    assert!(import("").is_err());
    let refused = import("backend_hostname0 = 'open\nport").unwrap_err();
    assert!(matches!(&refused, ImportError::Syntax(findings) if findings.len() == 2), "{refused}");
}

#[test]
fn unknown_settings_and_passwords_are_listed_without_values() {
    let list = list(&format!(
        "{THREE}frob = 'hidden'\nsr_check_password = 'hidden'\nhealth_check_password1 = 'hidden'"
    ));
    assert!(list.contains(":4: frob: not known") && list.contains("1 unknown"), "{list}");
    assert!(list.contains(":6: health_check_password1: Patroni. "), "{list}");
    assert!(!list.contains("hidden"), "{list}");
}

#[test]
fn logins_are_checked_as_far_as_weir_can() {
    let conf = Conf::read(&Memory(&[(PATH, &format!("{THREE}enable_pool_hba = on"))]), PATH);
    let users = Some(crate::Users { path: "/x/userlist.txt", has_md5: true });
    let request =
        Request { path: PATH, conf: &conf, directory: "/etc/pgpool2", rules: Some("/x/rules"), users };
    let ini = convert(&request).unwrap().ini;
    assert!(ini.contains("\nauth_type = hba\n") && ini.contains("\nauth_hba_file = /x/rules\n"), "{ini}");
    assert!(ini.contains("\nauth_file = /x/userlist.txt\n"), "{ini}");
    let conf = Conf::read(&Memory(&[(PATH, THREE)]), PATH);
    let auth_type = |has_md5| {
        let users = Some(crate::Users { path: "/x/userlist.txt", has_md5 });
        convert(&Request { conf: &conf, users, ..request })
            .unwrap()
            .ini
            .lines()
            .find(|line| line.starts_with("auth_type"))
            .map(str::to_owned)
    };
    assert_eq!(auth_type(true).as_deref(), Some("auth_type = md5"));
    assert_eq!(auth_type(false).as_deref(), Some("auth_type = scram-sha-256"));
}

/// A file in which every setting with an equivalent has a value that is converted.
const EVERYTHING: &str = "backend_clustering_mode = 'streaming_replication'\nlisten_addresses = '*'\nport = 5433\nunix_socket_directories = '/run/p'\n\
    unix_socket_group = 'g'\nunix_socket_permissions = 0770\nlisten_backlog_multiplier = 3\nnum_init_children = 10\nmax_pool = 2\n\
    enable_pool_hba = off\nauthentication_timeout = 1min\nssl = on\nssl_key = 'server.key'\nssl_cert = '/tls/server.crt'\nssl_ca_cert = 'ca.crt'\n\
    ssl_ciphers = 'HIGH'\nssl_ecdh_curve = 'prime256v1'\nconnection_life_time = 10min\nclient_idle_limit = 300\nconnection_cache = off\n\
    reset_query_list = 'ABORT; RESET ALL; SET SESSION AUTHORIZATION DEFAULT'\nlog_destination = 'stderr,syslog'\nlog_connections = on\n\
    log_disconnections = off\nsyslog_facility = 'LOCAL3'\nsyslog_ident = 'pgpool'\nlogging_collector = on\nlog_directory = '/log'\n\
    pid_file_name = '/run/p/pgpool.pid'\nconnect_timeout = 2500\npool_passwd = 'pool_passwd'\nload_balance_mode = on\n\
    disable_load_balance_on_write = 'trans_transaction'\ndelay_threshold = 10MB\nbackend_hostname0 = 'a'\nbackend_hostname1 = 'b'\n\
    backend_port0 = 1\nbackend_port1 = 2\nbackend_flag0 = 'ALLOW_TO_FAILOVER'\ndetach_false_primary = on\nstatement_level_load_balance = on\n\
    read_only_function_list = 'f'\nwrite_function_list = 'g'\nmemory_cache_enabled = on\nmemqcache_total_size = 32MB\n\
    sr_check_period = 5\nsr_check_user = 'checks'\n";

#[test]
fn each_equivalent_is_written() {
    let conf = Conf::read(&Memory(&[(PATH, EVERYTHING)]), PATH);
    let users = Some(crate::Users { path: "/x/userlist.txt", has_md5: false });
    let request = Request { path: PATH, conf: &conf, directory: "/etc/pgpool2", rules: None, users };
    let Imported { ini, list } = convert(&request).unwrap();
    assert!(!list.contains("Look at"), "no problem: {list}");
    assert!(ini.contains("query_cache=33554432B") && ini.contains("query_cache_user=USER"), "{ini}");
    for line in [
        "listen_addr = *",
        "listen_port = 5433",
        "unix_socket_dir = /run/p",
        "unix_socket_group = g",
        "unix_socket_mode = 0770",
        "listen_backlog = 30",
        "default_pool_size = 10",
        "max_db_connections = 20",
        "max_client_conn = 40",
        "client_login_timeout = 60",
        "client_tls_sslmode = allow",
        "server_tls_sslmode = prefer",
        "client_tls_key_file = /etc/pgpool2/server.key",
        "client_tls_cert_file = /tls/server.crt",
        "client_tls_ca_file = /etc/pgpool2/ca.crt",
        "client_tls_ciphers = HIGH",
        "client_tls_ecdhcurve = prime256v1",
        "server_idle_timeout = 600",
        "client_idle_timeout = 300",
        "idle_transaction_timeout = 300",
        "server_lifetime = 0",
        "server_reset_query = RESET ALL; SET SESSION AUTHORIZATION DEFAULT",
        "syslog = 1",
        "log_connections = 1",
        "log_disconnections = 0",
        "syslog_facility = local3",
        "syslog_ident = pgpool",
        "logfile = /log/weir.log",
        "pidfile = /run/p/weir.pid",
        "server_connect_timeout = 2.5",
        "auth_type = scram-sha-256",
        "auth_file = /x/userlist.txt",
        "host_probe_interval = 5",
        "host_probe_user = checks",
    ] {
        assert!(ini.lines().any(|written| written == line), "{line}:\n{ini}");
    }
    // What the table promises is in the file, under the name that the table has.
    let written: BTreeSet<&str> =
        ini.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').collect();
    let groups = TABLE.iter().filter(|group| group.name != "Older names");
    for setting in groups.flat_map(|group| group.settings).filter(|setting| setting.numbered == Numbered::No)
    {
        let Verdict::Equivalent { settings, .. } = setting.verdict() else { continue };
        // Only with `enable_pool_hba = on`, which has a test of its own.
        for name in settings.iter().filter(|name| **name != "auth_hba_file") {
            assert!(written.contains(name), "{}: {name} is not written", setting.name);
        }
    }
}
