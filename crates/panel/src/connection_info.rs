//! How a client gets to a pool: the connection details in every form that people paste.
//! Owns their quoting. Never decides which passwords may be shown: the caller does.

use serde::Serialize;
use settings::{AuthType, Config, SslMode};
use utoipa::ToSchema;

/// What stands where a password is not to be read, as it is: no form quotes it.
const MASK: &str = "••••••••";

/// The connection details of a pool.
#[derive(Clone, Serialize, ToSchema)]
pub(crate) struct PoolConnection {
    #[serde(flatten)]
    pub(crate) forms: ConnectionForms,
    /// To be looked at: a mask where the password stands, and nowhere else; where each client logs in as itself, `USER` and `PASSWORD` in the
    /// places of its own.
    masked: ConnectionForms,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The pool's name.
    pub(crate) database: String,
    /// The pool's user; empty where each client logs in as itself.
    pub(crate) user: String,
    /// Empty where it is not known, or not to be shown.
    pub(crate) password: String,
    /// Why there is no password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) password_reason: Option<&'static str>,
    pub(crate) sslmode: &'static str,
    /// `/api/v1/ca.crt` has a certificate to check this pooler's by.
    ca_available: bool,
}

/// What a client puts its own user and password in the place of.
const OWN_USER: &str = "USER";
const OWN_PASSWORD: &str = "PASSWORD";

/// The forms that people paste.
#[derive(Clone, Default, Serialize, ToSchema)]
pub(crate) struct ConnectionForms {
    /// `postgres://…`
    pub(crate) uri: String,
    /// A command line of psql with everything apart.
    flags: String,
    /// A command line of psql with the URI.
    psql: String,
    /// Empty where the driver cannot get there.
    jdbc: String,
    /// Lines of a file of environment variables.
    env: String,
}

/// A password as it stands in a text.
#[derive(Clone, Copy)]
enum Secret<'a> {
    /// As it is, quoted as the text wants it.
    Plain(&'a str),
    Masked,
}

impl Secret<'_> {
    fn quoted(self, quote: fn(&str) -> String) -> String {
        match self {
            Secret::Plain(password) => quote(password),
            Secret::Masked => MASK.to_owned(),
        }
    }
}

/// The caller, as far as it matters here.
#[derive(Clone, Copy)]
pub(crate) struct Viewer<'a> {
    /// The host by which the panel was reached.
    pub(crate) host: Option<&'a str>,
    /// Passwords may be shown.
    pub(crate) may_see_passwords: bool,
}

impl PoolConnection {
    /// The details of the pool `name` that logs in as `user`.
    pub(crate) fn of(config: &Config, name: &str, user: Option<&str>, asker: Viewer<'_>) -> PoolConnection {
        let secret = password(config, user, asker.may_see_passwords);
        let (password, password_reason) = match secret {
            Ok(password) => (password.to_owned(), None),
            Err(reason) => (String::new(), Some(reason)),
        };
        let sslmode = sslmode(config);
        let host = host(config, asker.host);
        let port = config.global.listen_port;
        let mut details = PoolConnection {
            forms: ConnectionForms::default(),
            masked: ConnectionForms::default(),
            host,
            port,
            database: name.to_owned(),
            user: user.unwrap_or_default().to_owned(),
            password,
            password_reason,
            sslmode,
            ca_available: authority(config).is_some(),
        };
        details.forms = details.forms(Secret::Plain(&details.password));
        details.masked = match user {
            Some(_) => details.forms(Secret::Masked),
            None => {
                let password = if asks_for_password(config) { OWN_PASSWORD } else { "" };
                let (user, password) = (OWN_USER.to_owned(), password.to_owned());
                let own = PoolConnection { user, password, ..details.clone() };
                own.forms(Secret::Plain(&own.password))
            }
        };
        details
    }

    /// Every form, with the password as it is or with the mask in its place; without one where there is none.
    fn forms(&self, secret: Secret<'_>) -> ConnectionForms {
        let secret = Some(secret).filter(|_| !self.password.is_empty());
        let uri = self.uri(secret);
        ConnectionForms {
            flags: self.flags(secret),
            psql: format!("psql {}", shell(&uri)),
            jdbc: self.jdbc(secret),
            env: self.env(secret, &uri),
            uri,
        }
    }

    fn uri(&self, secret: Option<Secret<'_>>) -> String {
        let who = match (self.user.as_str(), secret) {
            ("", _) => String::new(),
            (user, None) => format!("{}@", percent(user)),
            (user, Some(secret)) => format!("{}:{}@", percent(user), secret.quoted(percent)),
        };
        let (name, sslmode) = (percent(&self.database), self.sslmode);
        if self.host.starts_with('/') {
            let host = percent(&self.host);
            return format!("postgres://{who}/{name}?host={host}&port={}", self.port);
        }
        format!("postgres://{who}{}:{}/{name}?sslmode={sslmode}", bracketed(&self.host), self.port)
    }

    fn flags(&self, secret: Option<Secret<'_>>) -> String {
        let mut words = Vec::new();
        words.extend(secret.map(|secret| format!("PGPASSWORD={}", secret.quoted(shell))));
        words.push(format!("PGSSLMODE={} psql -h {} -p {}", self.sslmode, shell(&self.host), self.port));
        if !self.user.is_empty() {
            words.push(format!("-U {}", shell(&self.user)));
        }
        words.push(format!("-d {}", shell(&self.database)));
        words.join(" ")
    }

    fn jdbc(&self, secret: Option<Secret<'_>>) -> String {
        if self.host.starts_with('/') {
            // The driver speaks TCP only.
            return String::new();
        }
        let (host, name) = (bracketed(&self.host), percent(&self.database));
        let mut text = format!("jdbc:postgresql://{host}:{}/{name}?sslmode={}", self.port, self.sslmode);
        let user = Some(self.user.as_str()).filter(|user| !user.is_empty());
        for (key, value) in [("user", user.map(percent)), ("password", secret.map(|it| it.quoted(percent)))] {
            text.extend(value.map(|value| format!("&{key}={value}")));
        }
        text
    }

    fn env(&self, secret: Option<Secret<'_>>, uri: &str) -> String {
        let given = |value: &str| Some(value).filter(|value| !value.is_empty()).map(shell);
        let lines = [
            ("PGHOST", given(&self.host)),
            ("PGPORT", Some(self.port.to_string())),
            ("PGDATABASE", given(&self.database)),
            ("PGUSER", given(&self.user)),
            ("PGPASSWORD", secret.map(|secret| secret.quoted(shell))),
            ("PGSSLMODE", given(self.sslmode)),
            ("DATABASE_URL", given(uri)),
        ];
        lines.into_iter().filter_map(|(name, value)| Some(format!("{name}={}\n", value?))).collect()
    }
}

/// The password that a client logs in with as this user, or why there is none to show.
fn password<'a>(config: &'a Config, user: Option<&str>, may_be_shown: bool) -> Result<&'a str, &'static str> {
    let Some(user) = user else { return Err("each client logs in as itself, with its own password") };
    if !asks_for_password(config) {
        return Err("auth_type asks for no password");
    }
    let Some(secret) = config.secrets.get(user) else {
        return Err("auth_file does not have this user's password");
    };
    if secret.is_empty() {
        return Err("auth_file has an empty password for this user");
    }
    if is_verifier(secret) {
        return Err("auth_file has only a verifier of this user's password, not the password");
    }
    if may_be_shown { Ok(secret) } else { Err("scope view_credentials is needed to see it") }
}

/// A secret of auth_file by which a password can be checked, and nothing else.
pub(crate) fn is_verifier(secret: &str) -> bool {
    let is_md5 = secret.len() == 35 && secret.starts_with("md5");
    is_md5 || secret.starts_with("SCRAM-SHA-256$")
}

fn asks_for_password(config: &Config) -> bool {
    !matches!(config.global.auth_type, AuthType::Any | AuthType::Trust)
}

/// What a client has to set so that it gets in.
fn sslmode(config: &Config) -> &'static str {
    match config.global.client_tls_sslmode {
        SslMode::Disable => "disable",
        SslMode::Allow | SslMode::Prefer => "prefer",
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => "require",
    }
}

/// Where clients find the pooler: the first address that it listens on; where that is all of them, the host by which the
/// panel was reached; where there is none, the directory of the unix socket.
fn host(config: &Config, reached_by: Option<&str>) -> String {
    match config.global.listen_addr.first().map(String::as_str) {
        Some("*" | "0.0.0.0" | "::") => reached_by.unwrap_or("127.0.0.1").to_owned(),
        Some(address) => address.to_owned(),
        None => config.global.unix_socket_dir.clone().unwrap_or_default(),
    }
}

/// The certificates by which clients can check the pooler's own: those of `client_tls_ca_file`, else the last of the
/// chain that it shows. Nothing but certificates: a key may stand in the same file.
pub(crate) fn authority(config: &Config) -> Option<String> {
    if config.global.client_tls_sslmode == SslMode::Disable {
        return None;
    }
    let files = &config.tls_files.client;
    let of = |pem: &settings::Pem| {
        let bytes = pem.as_ref()?.as_ref().ok()?;
        Some(certificates(&String::from_utf8_lossy(bytes)))
    };
    let roots = of(&files.ca).map(|all| all.concat()).filter(|text| !text.is_empty());
    roots.or_else(|| of(&files.cert)?.pop())
}

/// Every certificate of a file in PEM format.
fn certificates(text: &str) -> Vec<String> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let ends = |part: &str| part.find(END).map(|end| format!("{BEGIN}{}{END}\n", &part[..end]));
    text.split(BEGIN).skip(1).filter_map(ends).collect()
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// A part of a URI (RFC 3986, 2.3).
pub(crate) fn percent(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
        encoded
    })
}

/// A word for a shell.
fn shell(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/:@%+,".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn config(secret: &str) -> Config {
        let mut config = Config::default();
        config.global.listen_addr = vec!["127.0.0.1".to_owned()];
        config.global.auth_type = AuthType::ScramSha256;
        config.secrets = Arc::new([("o'x y".to_owned(), secret.to_owned())].into());
        config
    }

    fn details(config: &Config, user: Option<&str>, may_see_passwords: bool) -> PoolConnection {
        PoolConnection::of(config, "test-pool", user, Viewer { host: Some("db.example"), may_see_passwords })
    }

    #[test]
    fn every_form_is_quoted_as_its_readers_want_it() {
        let it = details(&config("p@:/?#' w"), Some("o'x y"), true);
        let uri = "postgres://o%27x%20y:p%40%3A%2F%3F%23%27%20w@127.0.0.1:6432/test-pool?sslmode=disable";
        assert_eq!(it.forms.uri, uri);
        assert_eq!(
            it.forms.flags,
            r"PGPASSWORD='p@:/?#'\'' w' PGSSLMODE=disable psql -h 127.0.0.1 -p 6432 -U 'o'\''x y' -d test-pool"
        );
        assert_eq!(it.forms.psql, format!("psql '{uri}'"));
        assert!(
            it.forms
                .jdbc
                .ends_with("/test-pool?sslmode=disable&user=o%27x%20y&password=p%40%3A%2F%3F%23%27%20w")
        );
        assert!(
            it.forms.env.contains("PGPORT=6432\n")
                && it.forms.env.ends_with(&format!("DATABASE_URL='{uri}'\n"))
        );
    }

    #[test]
    fn a_mask_stands_where_the_password_stands_and_nowhere_else() {
        let mut config = config("");
        for secret in ["app", "post", "6432", "scram sha", "•"] {
            config.secrets = Arc::new([("app".to_owned(), secret.to_owned())].into());
            let it = PoolConnection::of(
                &config,
                "app",
                Some("app"),
                Viewer { host: None, may_see_passwords: true },
            );
            assert_eq!(it.password, secret);
            let uri = "postgres://app:••••••••@127.0.0.1:6432/app?sslmode=disable";
            assert_eq!(it.masked.uri, uri, "{secret}");
            assert_eq!(it.masked.psql, format!("psql '{uri}'"));
            let flags = "PGPASSWORD=•••••••• PGSSLMODE=disable psql -h 127.0.0.1 -p 6432 -U app -d app";
            assert_eq!(it.masked.flags, flags);
            let jdbc = "jdbc:postgresql://127.0.0.1:6432/app?sslmode=disable&user=app&password=••••••••";
            assert_eq!(it.masked.jdbc, jdbc);
            let env = "PGHOST=127.0.0.1\nPGPORT=6432\nPGDATABASE=app\nPGUSER=app\nPGPASSWORD=••••••••\n";
            assert_eq!(it.masked.env, format!("{env}PGSSLMODE=disable\nDATABASE_URL='{uri}'\n"));
        }
        let it = details(&config, None, true);
        assert_eq!(it.masked.uri, "postgres://USER:PASSWORD@127.0.0.1:6432/test-pool?sslmode=disable");
        assert_eq!((it.user.as_str(), it.password.as_str()), ("", ""), "programs are not told so");
        config.global.auth_type = AuthType::Trust;
        let it = details(&config, None, true);
        assert_eq!(it.masked.uri, "postgres://USER@127.0.0.1:6432/test-pool?sslmode=disable");
    }

    #[test]
    fn a_password_is_shown_to_whom_it_may_be_and_where_one_is_known() {
        let user = Some("o'x y");
        assert_eq!(details(&config("secret"), user, false).password, "");
        assert!(
            details(&config("secret"), user, false)
                .password_reason
                .is_some_and(|why| why.contains("view_cred"))
        );
        let verifier = "SCRAM-SHA-256$4096:c2FsdA==$a:b";
        for (config, user) in
            [(config(verifier), user), (config(""), user), (config("x"), None), (config("x"), Some("b"))]
        {
            let it = details(&config, user, true);
            assert!(it.password.is_empty() && it.password_reason.is_some());
        }
        assert_eq!(
            details(&config("x"), None, true).forms.uri,
            "postgres://127.0.0.1:6432/test-pool?sslmode=disable"
        );
    }

    #[test]
    fn the_host_is_one_that_clients_can_reach() {
        let mut config = config("");
        config.global.listen_addr = vec!["*".to_owned()];
        assert_eq!(details(&config, None, true).host, "db.example");
        config.global.listen_addr = vec!["::1".to_owned()];
        assert!(details(&config, None, true).forms.uri.starts_with("postgres://[::1]:6432/"));
        config.global.listen_addr.clear();
        config.global.unix_socket_dir = Some("/run/weir".to_owned());
        let it = details(&config, None, true);
        assert_eq!(it.forms.uri, "postgres:///test-pool?host=%2Frun%2Fweir&port=6432");
        assert_eq!(it.forms.jdbc, "");
    }

    #[test]
    fn only_certificates_are_given_away() {
        let mut config = config("");
        let pem = "-----BEGIN PRIVATE KEY-----\nk\n-----END PRIVATE KEY-----\n-----BEGIN CERTIFICATE-----\nown\n-----END CERTIFICATE-----\nx\n\
            -----BEGIN CERTIFICATE-----\nroot\n-----END CERTIFICATE-----\n";
        config.tls_files.client.cert = Some(Ok(pem.as_bytes().into()));
        assert_eq!(authority(&config), None);
        config.global.client_tls_sslmode = SslMode::Require;
        let root = "-----BEGIN CERTIFICATE-----\nroot\n-----END CERTIFICATE-----\n";
        assert_eq!(authority(&config).as_deref(), Some(root));
    }
}
