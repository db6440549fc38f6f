//! Tests of the table of `[pgbouncer]`: names, defaults, and that each row reads what it shows.

#![allow(clippy::unwrap_used)]
use super::*;
use crate::table::{Compat, Effect};
use std::collections::BTreeSet;

/// PgBouncer 1.25.2's settings on Linux, with `pool_idle_timeout` and `login_notify_message` of 1.26.
const PGBOUNCER: &str = "admin_users application_name_add_host auth_dbname auth_file auth_hba_file \
    auth_ident_file auth_ldap_options auth_query auth_type auth_user autodb_idle_timeout cancel_wait_timeout \
    client_idle_timeout client_login_timeout client_tls13_ciphers client_tls_ca_file client_tls_cert_file \
    client_tls_ciphers client_tls_dheparams client_tls_ecdhcurve client_tls_key_file client_tls_protocols \
    client_tls_sslmode conffile default_pool_size disable_pqexec dns_max_ttl dns_nxdomain_ttl \
    dns_zone_check_period idle_transaction_timeout ignore_startup_parameters job_name listen_addr \
    listen_backlog listen_port log_connections log_disconnections log_pooler_errors log_stats logfile \
    login_notify_message max_client_conn max_db_client_connections max_db_connections max_packet_size \
    max_prepared_statements max_user_client_connections max_user_connections min_pool_size peer_id pidfile \
    pkt_buf pool_idle_timeout pool_mode query_timeout query_wait_notify query_wait_timeout reserve_pool_size \
    reserve_pool_timeout resolv_conf sbuf_loopcnt scram_iterations server_check_delay server_check_query \
    server_connect_timeout server_fast_close server_idle_timeout server_lifetime server_login_retry \
    server_reset_query server_reset_query_always server_round_robin server_tls13_ciphers server_tls_ca_file \
    server_tls_cert_file server_tls_ciphers server_tls_key_file server_tls_protocols server_tls_sslmode \
    so_reuseport stats_period stats_users suspend_timeout syslog syslog_facility syslog_ident tcp_defer_accept \
    tcp_keepalive tcp_keepcnt tcp_keepidle tcp_keepintvl tcp_socket_buffer tcp_user_timeout \
    track_extra_parameters transaction_timeout unix_socket_dir unix_socket_group unix_socket_mode user verbose";
#[test]
fn every_setting_of_pgbouncer_has_a_row_and_every_other_is_marked_as_own() {
    let shared = GLOBAL.iter().filter(|row| row.info.compat != Compat::Own).map(|row| row.info.name);
    assert_eq!(shared.collect::<BTreeSet<&str>>(), PGBOUNCER.split_whitespace().collect());
    let names: BTreeSet<&str> = GLOBAL.iter().map(|row| row.info.name).collect();
    assert_eq!(names.len(), GLOBAL.len(), "no name twice");
}

#[test]
fn every_default_is_a_value_and_is_the_default() {
    let default = Global::default();
    for row in GLOBAL {
        let mut global = Global::default();
        let text = row.info.default.unwrap_or_default();
        if row.info.default.is_some() || !matches!(row.info.kind, crate::ValueKind::Number) {
            (row.assign)(&mut global, text).unwrap();
        }
        assert!(row.same(&global, &default), "{}", row.info.name);
    }
}

#[test]
fn what_a_row_shows_it_reads_back() {
    let default = Global::default();
    for row in GLOBAL {
        let shown = (row.show)(&default).unwrap_or_default();
        let mut global = Global::default();
        (row.assign)(&mut global, &shown).unwrap();
        assert!(row.same(&global, &default), "{}", row.info.name);
    }
}

#[test]
fn a_row_writes_its_own_field_and_no_other() {
    for row in GLOBAL.iter().filter(|row| row.info.effect == Effect::Live) {
        let mut global = Global::default();
        let words = [
            "0",
            "1",
            "7",
            "statement",
            "trust",
            "epoll",
            "require",
            "local0",
            "http://h",
            "etcd://h/p",
            "a=b",
            "off",
            "error",
            "fair",
            "client_addr",
            "demand",
            "comment",
            "h:1",
            "quotas",
        ];
        let changed = words
            .iter()
            .any(|word| (row.assign)(&mut global, word).is_ok() && !row.same(&global, &Global::default()));
        assert!(changed, "{} takes no other value", row.info.name);
        let differing: Vec<&str> = GLOBAL
            .iter()
            .filter(|other| !other.same(&global, &Global::default()))
            .map(|row| row.info.name)
            .collect();
        assert_eq!(differing, [row.info.name]);
    }
}

#[test]
fn what_does_nothing_is_still_shown() {
    let mut global = Global::default();
    (row("pkt_buf").unwrap().assign)(&mut global, "75").unwrap();
    (row("job_name").unwrap().assign)(&mut global, "disable").unwrap();
    assert_eq!((row("pkt_buf").unwrap().show)(&global).as_deref(), Some("75"));
    assert_eq!((row("job_name").unwrap().show)(&global).as_deref(), Some("disable"));
    assert!((row("pkt_buf").unwrap().assign)(&mut global, "big").is_err());
}
