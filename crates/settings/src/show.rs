//! SHOW CONFIG and SET.
//! Owns which settings may change while the process runs.

use crate::ldap::LdapRule;
use crate::resolver::missing_for_cert_auth;
use crate::table::TakesEffect;
use crate::value::{BadValue, ValueKind};
use crate::{Config, global};
use std::fmt;

/// Shown in place of a secret.
const HIDDEN: &str = "(hidden)";

/// A row of SHOW CONFIG.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShowRow {
    /// The setting.
    pub key: &'static str,
    /// Its value; `None` is NULL.
    pub value: Option<String>,
    /// Its default; `None` is NULL.
    pub default: Option<&'static str>,
    /// Whether SET and RELOAD change it.
    pub changeable: bool,
}

/// PairErrorKind SET did nothing. Displays as the end of a sentence that begins with the setting's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetError {
    /// There is no such setting.
    Unknown,
    /// It cannot change while the process runs.
    Fixed,
    /// The value is not valid for this setting.
    Bad(BadValue),
    /// The configuration as a whole would be rejected.
    Whole(&'static str),
}

impl fmt::Display for SetError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetError::Unknown => out.write_str("is not a setting"),
            SetError::Fixed => out.write_str("cannot be changed without a restart"),
            SetError::Bad(bad) => bad.fmt(out),
            SetError::Whole(why) => write!(out, "is refused: {why}"),
        }
    }
}

impl std::error::Error for SetError {}

/// Every setting of `[pgbouncer]` in the order of its name, as SHOW CONFIG lists them.
pub fn show(config: &Config) -> Vec<ShowRow> {
    let row = |row: &'static crate::Row<crate::Global>| ShowRow {
        key: row.info.name,
        // PgBouncer has NULL only where there is no default either.
        value: shown(row, config).or_else(|| row.info.default.map(|_| String::new())),
        default: row.info.default,
        changeable: row.info.when == TakesEffect::Reload,
    };
    let mut rows: Vec<ShowRow> = global::GLOBAL.iter().map(row).collect();
    rows.sort_by_key(|row| row.key);
    rows
}

/// What SHOW CONFIG has of one setting.
#[must_use]
pub fn shown_value(config: &Config, name: &str) -> Option<String> {
    shown(global::row(&name.to_ascii_lowercase())?, config)
}

/// The value; of a secret only that it is set, as read-only users must not see it.
fn shown(row: &crate::Row<crate::Global>, config: &Config) -> Option<String> {
    let value = (row.show)(&config.global);
    match row.info.kind {
        ValueKind::Secret => value.map(|_| HIDDEN.to_owned()),
        ValueKind::LdapOptions => value.map(|text| LdapRule::without_password(&text, HIDDEN)),
        _ => value,
    }
}

/// The configuration after `SET name = value`. It holds until RELOAD, as in PgBouncer. After a SET of
/// `auth_file` the caller reads the secrets ([`crate::Userlist::read`]): this does no I/O.
///
/// # Errors
/// [`SetError`], and the configuration stays.
pub fn set(config: &Config, name: &str, value: &str) -> Result<Config, SetError> {
    let row = global::row(&name.to_ascii_lowercase()).ok_or(SetError::Unknown)?;
    if row.info.when != TakesEffect::Reload {
        return Err(SetError::Fixed);
    }
    let mut changed = config.clone();
    (row.assign)(&mut changed.global, value.trim()).map_err(SetError::Bad)?;
    if !changed.has_auto_pool_sizes() {
        return Err(SetError::Whole(
            "auto_pool_size_min above auto_pool_size_max, here or in an entry, allows no size",
        ));
    }
    match missing_for_cert_auth(&changed.global) {
        Some(lack) => Err(SetError::Whole(lack)),
        None => Ok(changed),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    fn shown(config: &Config, key: &str) -> ShowRow {
        show(config).into_iter().find(|row| row.key == key).unwrap()
    }

    #[test]
    fn values_are_spelled_as_pgbouncer_spells_them() {
        let mut config = Config::default();
        config.global.query_wait_timeout = Duration::from_millis(500);
        config.global.log_stats = false;
        config.global.listen_addr = vec!["a".to_owned(), "b".to_owned()];
        let value = |key| shown(&config, key).value;
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(value("query_wait_timeout"), text("0.5"));
        assert_eq!(value("server_lifetime"), text("3600"));
        assert_eq!(value("log_stats"), text("0"));
        assert_eq!(value("listen_addr"), text("a,b"));
        assert_eq!(value("unix_socket_mode"), text("511"));
        assert_eq!(value("server_check_query"), text("<empty>"));
        assert_eq!((value("logfile"), value("auth_file")), (text(""), None));
        assert_eq!((value("verbose"), value("pool_mode")), (text("0"), text("session")));
        assert_eq!(shown(&config, "unix_socket_mode").default, Some("0777"));
    }

    #[test]
    fn what_no_start_would_take_is_no_set_either() {
        let reported = |key, value| set(&Config::default(), key, value).unwrap_err().to_string();
        assert!(reported("auth_dbname", "pgbouncer").contains("reserved"));
        assert!(reported("auth_type", "cert").ends_with("requires client_tls_sslmode=verify-full"));
        let mut proven = set(&Config::default(), "client_tls_sslmode", "verify-full").unwrap();
        for (key, value) in
            [("client_tls_ca_file", "ca"), ("auth_type", "cert"), ("client_tls_ca_file", "other")]
        {
            proven = set(&proven, key, value).unwrap();
        }
        assert!(set(&proven, "client_tls_sslmode", "require").is_err());
        assert!(set(&proven, "client_tls_ca_file", "").is_err());
        assert!(reported("auto_pool_size_min", "51").contains("allows no size"));
    }

    #[test]
    fn of_a_secret_only_that_it_is_there_is_shown() {
        let config = set(&Config::default(), "otlp_headers", "authorization=x").unwrap();
        assert_eq!(shown(&config, "otlp_headers").value.as_deref(), Some("(hidden)"));
        assert_eq!(shown(&Config::default(), "otlp_headers").value.as_deref(), Some(""));
    }

    #[test]
    fn of_a_directorys_options_the_password_is_not_shown() {
        let shown = |options: &str| {
            shown(&set(&Config::default(), "auth_ldap_options", options).unwrap(), "auth_ldap_options")
                .value
                .unwrap()
        };
        let plain = "ldapserver=h ldapprefix=\"cn=\"";
        assert_eq!(shown(plain), plain);
        let search = "ldapserver=h ldapbasedn=\"dc=x, dc=y\"";
        for password in ["=geheim", "=\"geheim, \"\"geheim\"", "=\"geheim"] {
            let text = shown(&format!("{search} ldapbindpasswd{password}"));
            assert!(text.ends_with("(hidden)") && !text.contains("geheim"), "{text}");
        }
        let text = shown(&format!("ldapbindpasswd=geheim {search} \"ldapbindpasswd\"=geheim"));
        let expected =
            "ldapbindpasswd=(hidden) ldapserver=\"h\" ldapbasedn=\"dc=x, dc=y\" ldapbindpasswd=(hidden)";
        assert_eq!(text, expected);
        assert_eq!(shown("LDAPBINDPASSWD=geheim"), "(hidden)", "it means nothing");
    }

    #[test]
    fn rows_stand_in_the_order_of_their_names() {
        let rows = show(&Config::default());
        assert!(rows.is_sorted_by_key(|row| row.key));
        assert!(shown(&Config::default(), "pool_mode").changeable);
        assert!(!shown(&Config::default(), "listen_port").changeable);
    }

    #[test]
    fn set_makes_a_new_configuration() {
        let old = Config::default();
        let new = set(&old, "Pool_Mode", " transaction ").unwrap();
        assert_eq!((old.global.pool_mode.word(), new.global.pool_mode.word()), ("session", "transaction"));
    }

    #[test]
    fn set_says_why_it_did_nothing() {
        let config = Config::default();
        let fault = |name, value| set(&config, name, value).unwrap_err();
        assert_eq!(fault("colour", "red"), SetError::Unknown);
        assert_eq!(fault("listen_port", "1"), SetError::Fixed);
        assert_eq!(fault("verbose", "x"), SetError::Bad(BadValue::NotANumber));
        assert!(matches!(fault("syslog_facility", "x"), SetError::Bad(BadValue::NotAChoice(_))));
    }
}
