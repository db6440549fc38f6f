//! One server: its line of `[databases]`, and of the user list.

use std::fmt::Write as _;

/// A server as variables describe it; what is None was not said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Server {
    /// What clients call the database; unless given, its own name, and `*` where it has none.
    pub(crate) name: Option<String>,
    pub(crate) host: Option<String>,
    pub(crate) port: Option<String>,
    pub(crate) database: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) sslmode: Option<String>,
    pub(crate) connect_query: Option<String>,
    /// Every client is this user at the server (Bitnami's PGBOUNCER_SET_DATABASE_USER).
    pub(crate) is_forced: bool,
}

impl Server {
    /// Its line of `[databases]`.
    pub(crate) fn entry(&self) -> String {
        let name = self.name.as_deref().or(self.database.as_deref()).unwrap_or("*");
        let mut line = if name == "*" { "* =".to_owned() } else { format!("{} =", quoted_name(name)) };
        let user = self.user.as_ref().filter(|_| self.is_forced);
        let keys = [
            ("host", self.host.as_ref()),
            ("port", self.port.as_ref()),
            ("dbname", self.database.as_ref()),
            ("user", user),
            ("connect_query", self.connect_query.as_ref()),
        ];
        for (key, value) in keys.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            // Writing to a String cannot fail.
            let _ = write!(line, " {key}='{}'", value.replace('\'', "''"));
        }
        line
    }

    /// Its line of the user list, if there is a user with a password.
    pub(crate) fn secret(&self) -> Option<String> {
        let (user, password) = (self.user.as_ref()?, self.password.as_ref()?);
        Some(format!("\"{}\" \"{}\"", user.replace('"', "\"\""), password.replace('"', "\"\"")))
    }
}

/// A name of an entry, in double quotes unless it is plain.
fn quoted_name(name: &str) -> String {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}
