//! Environments of compose files and charts, and what is made of them.

use std::collections::BTreeMap;
use std::io;

use super::*;

struct Mounted(BTreeMap<&'static str, &'static str>);

impl settings::Files for Mounted {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        self.0.get(path).map(|text| text.as_bytes().to_vec()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn made_with(
    files: &[(&'static str, &'static str)],
    given: &[(&str, &str)],
) -> Result<Made, EnvironmentError> {
    let files = Mounted(files.iter().copied().collect());
    let given = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    convert(&Variables::new(given, &files))
}

fn made(given: &[(&str, &str)]) -> Made {
    made_with(&[], given).expect("an environment")
}

fn has(made: &Made, line: &str) -> bool {
    made.ini.lines().any(|one| one == line)
}

#[test]
fn a_compose_file_for_edoburus_image() {
    let made = made(&[
        ("DATABASE_URL", "postgres://web:s%22ecret@db:5433/shop"),
        ("POOL_MODE", "transaction"),
        ("MAX_CLIENT_CONN", "500"),
        ("USER", "root"),
    ]);
    assert!(has(&made, "shop = host='db' port='5433' dbname='shop'"), "{}", made.ini);
    for line in [
        "pool_mode = transaction",
        "max_client_conn = 500",
        "listen_port = 5432",
        "auth_type = md5",
        "auth_user = web",
    ] {
        assert!(has(&made, line), "{line}: {}", made.ini);
    }
    assert!(!made.ini.contains("\nuser ="), "USER is the shell's");
    assert_eq!(made.userlist.as_deref(), Some("\"web\" \"s\"\"ecret\"\n"));
    assert_eq!(made.notes, Vec::<String>::new());
}

#[test]
fn parts_instead_of_a_uri_and_any_database() {
    let made = made(&[("DB_HOST", "db"), ("DB_USER", "web"), ("DB_PASSWORD", "x"), ("LISTEN_PORT", "7000")]);
    assert!(has(&made, "* = host='db'") && has(&made, "listen_port = 7000"), "{}", made.ini);
}

#[test]
fn a_chart_for_bitnamis_image() {
    let made = made(&[
        ("POSTGRESQL_HOST", "pg"),
        ("POSTGRESQL_DATABASE", "shop"),
        ("POSTGRESQL_PASSWORD", "pw"),
        ("PGBOUNCER_DATABASE", "front"),
        ("PGBOUNCER_POOL_MODE", "session"),
        ("PGBOUNCER_PORT", "6543"),
        ("PGBOUNCER_DSN_0", "other = host=pg2 dbname=other"),
        ("PGBOUNCER_USERLIST", "\"a\" \"b\""),
        ("PGBOUNCER_EXTRA_FLAGS", "-v"),
        ("PGBOUNCER_SERVICE_HOST", "10.0.0.1"),
    ]);
    for line in [
        "front = host='pg' dbname='shop'",
        "other = host=pg2 dbname=other",
        "pool_mode = session",
        "listen_port = 6543",
        "auth_type = scram-sha-256",
    ] {
        assert!(has(&made, line), "{line}: {}", made.ini);
    }
    assert_eq!(made.userlist.as_deref(), Some("\"postgres\" \"pw\"\n\"a\" \"b\"\n"));
    assert_eq!(made.notes, ["PGBOUNCER_EXTRA_FLAGS has no meaning for Weir"]);
}

#[test]
fn bitnamis_server_and_database_have_names_unless_given() {
    let shop = made(&[("POSTGRESQL_PASSWORD", "pw"), ("POSTGRESQL_DATABASE", "shop")]);
    assert!(has(&shop, "postgres = host='postgresql' dbname='shop'"), "{}", shop.ini);
    assert!(has(&shop, "admin_users = postgres"), "{}", shop.ini);
    let any = made(&[
        ("POSTGRESQL_USERNAME", "web"),
        ("POSTGRESQL_DATABASE", "shop"),
        ("PGBOUNCER_DATABASE", "*"),
        ("PGBOUNCER_LISTEN_ADDRESS", "127.0.0.1"),
        ("PGBOUNCER_SOCKET_DIR", "/sockets"),
    ]);
    for line in [
        "* = host='postgresql'",
        "listen_addr = 127.0.0.1",
        "unix_socket_dir = /sockets",
        "admin_users = web",
    ] {
        assert!(has(&any, line), "{line}: {}", any.ini);
    }
}

#[test]
fn whole_entries_come_from_files_too() {
    let files = [("/run/secrets/dsn", "other = host=pg2 password=pw\n")];
    let dsn = ("PGBOUNCER_DSN_0_FILE", "/run/secrets/dsn");
    let made =
        made_with(&files, &[dsn, ("PGBOUNCER_DSN_10", "b = host=x"), ("PGBOUNCER_DSN_9", "a = host=x")]);
    let ini = made.expect("an environment").ini;
    let entries: Vec<_> = ini.lines().skip(1).take(3).collect();
    assert_eq!(entries, ["other = host=pg2 password=pw", "a = host=x", "b = host=x"]);
}

#[test]
fn what_is_shown_has_no_password() {
    let made = made(&[
        ("POSTGRESQL_HOST", "pg"),
        ("POSTGRESQL_PASSWORD", "hush-1"),
        ("PGBOUNCER_DSN_0", "other = host=pg2 PassWord='hush-2'"),
        ("PGBOUNCER_USERLIST", "\"a\" \"hush-3\""),
        ("WEIR_OTLP_HEADERS", "authorization=hush-4"),
    ]);
    assert!(made.ini.contains("hush-2") && made.ini.contains("hush-4"), "{}", made.ini);
    assert!(!made.shown.contains("hush"), "{}", made.shown);
    assert!(
        made.shown.contains("; other has a password") && made.shown.contains("otlp_headers = (not shown)")
    );
    assert_eq!(made.shown.lines().count(), made.ini.lines().count());
}

#[test]
fn a_password_of_no_user_is_noted() {
    let made = made(&[("DB_HOST", "db"), ("DB_PASSWORD", "hush")]);
    assert!(made.notes.len() == 1 && made.notes[0].contains("DB_USER") && !made.notes[0].contains("hush"));
}

#[test]
fn every_client_may_be_one_user() {
    let made = made(&[
        ("POSTGRESQL_HOST", "pg"),
        ("POSTGRESQL_DATABASE", "it's"),
        ("PGBOUNCER_DATABASE", "it's"),
        ("PGBOUNCER_SET_DATABASE_USER", "yes"),
    ]);
    assert!(has(&made, "\"it's\" = host='pg' dbname='it''s' user='postgres'"), "{}", made.ini);
}

#[test]
fn a_service_of_kubernetes_is_no_port() {
    let made = made(&[("DB_HOST", "db"), ("PGBOUNCER_PORT", "tcp://10.0.0.1:6432")]);
    assert!(has(&made, "listen_port = 5432"), "{}", made.ini);
}

#[test]
fn secrets_come_from_files() {
    let made = made_with(
        &[("/run/secrets/url", "postgres://web:pw@db/shop\n"), ("/etc/users", "\"bob\" \"x\"")],
        &[("DATABASE_URL_FILE", "/run/secrets/url"), ("AUTH_FILE", "/etc/users")],
    )
    .expect("an environment");
    assert_eq!(made.userlist.as_deref(), Some("\"bob\" \"x\"\n\"web\" \"pw\"\n"));
    let error =
        made_with(&[], &[("DB_HOST", "db"), ("DB_PASSWORD_FILE", "/none")]).expect_err("no such file");
    assert_eq!(error.variable, "DB_PASSWORD_FILE");
}

#[test]
fn a_user_list_of_its_own_is_named() {
    let made = made(&[("DB_HOST", "db"), ("AUTH_FILE", "/etc/users")]);
    assert!(has(&made, "auth_file = /etc/users") && made.userlist.is_none());
}

#[test]
fn what_cannot_be_names_its_variable_and_no_secret() {
    let of = |given: &[(&str, &str)]| made_with(&[], given).expect_err("it cannot be").variable;
    assert_eq!(of(&[]), "DATABASE_URL");
    assert_eq!(of(&[("DB_HOST", "db"), ("POOL_MODE", "sometimes")]), "POOL_MODE");
    assert_eq!(of(&[("DB_HOST", "db"), ("PGBOUNCER_MAX_CLIENT_CONN", "many")]), "PGBOUNCER_MAX_CLIENT_CONN");
    assert_eq!(of(&[("DB_USER", "web"), ("DB_PASSWORD", "hush")]), "DATABASE_URL");
    assert_eq!(of(&[("DB_HOST", "db"), ("AUTH_QUERY", "select 1\nadmin_users = eve")]), "AUTH_QUERY");
    for uri in ["postgres://a:b%0A@h/x", "postgres://a:b@h/x%0Aadmin", "postgres://a:b@h%0D/x"] {
        assert!(made_with(&[], &[("DATABASE_URL", uri)]).is_err(), "{uri}");
    }
    let error = made_with(&[], &[("DATABASE_URL", "mysql://me:secret@host/db")]).expect_err("no URI");
    assert!(!error.to_string().contains("secret"), "{error}");
}

/// What is made is what the process reads: nothing in it is refused.
#[test]
fn what_is_made_is_a_configuration() {
    let made = made(&[
        ("DATABASE_URLS", "postgres://a:b@h1/x?sslmode=require,postgres://c:d@h2/y"),
        ("DEFAULT_POOL_SIZE", "7"),
    ]);
    let files = Mounted([("weir.ini", made.ini.leak() as &str)].into_iter().collect());
    let config = settings::load(&files, "weir.ini", &[]).expect("a configuration");
    assert_eq!(config.databases.len(), 2);
    assert_eq!(config.global.default_pool_size, settings::PoolSize::Fixed(7));
}

#[test]
fn a_value_that_is_no_text_is_refused_where_it_is_used() {
    use std::os::unix::ffi::OsStringExt;

    let files = Mounted(BTreeMap::new());
    let with = |name: &str| {
        let broken = std::ffi::OsString::from_vec(b"a\xff".to_vec());
        let given = [("DB_HOST".to_owned(), "db".into()), (name.to_owned(), broken)];
        convert(&Variables::new(given, &files))
    };
    for name in ["DB_PASSWORD", "DB_PASSWORD_FILE", "POOL_MODE", "PGBOUNCER_USERLIST"] {
        let refusal = with(name).err().map(|error| error.to_string());
        assert_eq!(refusal, Some(format!("{name}: is no text in UTF-8")));
    }
    assert!(with("LESSOPEN").is_ok(), "what is not used may be anything");
}
