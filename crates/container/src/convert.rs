//! The configuration and the user list that are made of the variables.

use std::collections::BTreeSet;

use settings::{GLOBAL, Global, ValueKind};

use crate::server::Server;
use crate::servers::{Family, Servers};
use crate::variables::{EnvironmentError, Variables};

/// What was made of an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// The configuration but for `auth_file`, which names the user list once that is somewhere.
    pub ini: String,
    /// The same without passwords, to be looked at.
    pub shown: String,
    /// The user list; None where `auth_file` is a file of its own.
    pub userlist: Option<String>,
    /// What is said to whoever starts it: variables that have no meaning.
    pub notes: Vec<String>,
}

/// Settings that the two images call otherwise, and that Kubernetes may give another meaning: it sets `PGBOUNCER_PORT=tcp://10.0.0.1:6432` where
/// a Service has that name.
const OTHER_NAMES: [(&str, &str); 6] = [
    ("listen_port", "PGBOUNCER_PORT"),
    ("listen_addr", "PGBOUNCER_LISTEN_ADDRESS"),
    // Its name in older images.
    ("listen_addr", "PGBOUNCER_BIND_ADDRESS"),
    ("unix_socket_dir", "PGBOUNCER_SOCKET_DIR"),
    ("unix_socket_mode", "PGBOUNCER_SOCKET_MODE"),
    ("unix_socket_group", "PGBOUNCER_SOCKET_GROUP"),
];

/// No settings of a container, or none that a variable of this name means: every shell has USER.
const NOT_TAKEN: [&str; 4] = ["conffile", "user", "pidfile", "auth_file"];

/// Makes a configuration of an environment.
///
/// # Errors
/// A variable that cannot be used, or none that says where PostgreSQL is.
pub fn convert(variables: &Variables<'_>) -> Result<Made, EnvironmentError> {
    let servers = Servers::read(variables)?;
    if servers.servers.is_empty() && servers.entries.is_empty() {
        let why = "neither it nor DB_HOST, POSTGRESQL_HOST or PGBOUNCER_DSN_0 says where PostgreSQL is";
        return Err(EnvironmentError { variable: "DATABASE_URL".into(), why: why.into() });
    }
    let mut ini = Ini::default();
    ini.line("[databases]", None);
    for entry in servers.servers.iter().map(Server::entry).chain(servers.entries.iter().cloned()) {
        ini.line(one_line(&entry)?, without_password(&entry).as_deref());
    }
    ini.line("\n[pgbouncer]", None);
    let given = settings(variables)?;
    let named: BTreeSet<&str> = given.iter().map(|(name, _)| *name).collect();
    let defaults = defaults(&servers).into_iter().filter(|(name, _)| !named.contains(name));
    for (name, value) in defaults.chain(given.iter().map(|(name, value)| (*name, value.clone()))) {
        let hidden = is_secret(name).then(|| format!("{name} = (not shown)"));
        ini.line(&format!("{name} = {value}"), hidden.as_deref());
    }
    let own_file = variables.first(&["WEIR_AUTH_FILE", "PGBOUNCER_AUTH_FILE", "AUTH_FILE"])?;
    let userlist = userlist(variables, &servers)?;
    let userlist = match (own_file, userlist) {
        (Some(path), None) => {
            ini.line(&format!("auth_file = {}", one_line(&path)?), None);
            None
        }
        (Some(path), Some(made)) => Some(variables.text_of("AUTH_FILE", &path)? + "\n" + &made),
        (None, made) => Some(made.unwrap_or_default()),
    };
    let unknown = variables.unknown().into_iter().map(|name| format!("{name} has no meaning for Weir"));
    let notes = unknown.chain(servers.notes()).collect();
    Ok(Made { ini: ini.text, shown: ini.shown, userlist, notes })
}

/// A configuration as it is used, and as it may be shown.
#[derive(Default)]
struct Ini {
    text: String,
    shown: String,
}

impl Ini {
    /// `shown` is in its place where the line holds a secret.
    fn line(&mut self, line: &str, shown: Option<&str>) {
        for (text, line) in [(&mut self.text, line), (&mut self.shown, shown.unwrap_or(line))] {
            text.push_str(line);
            text.push('\n');
        }
    }
}

fn is_secret(setting: &str) -> bool {
    GLOBAL.iter().any(|row| row.info.name == setting && row.info.kind == ValueKind::Secret)
}

/// What is shown in place of an entry, given as a whole, that may hold a password.
fn without_password(entry: &str) -> Option<String> {
    let name = entry.split('=').next().unwrap_or_default().trim();
    entry
        .to_ascii_lowercase()
        .contains("password")
        .then(|| format!("; {name} has a password and is not shown"))
}

/// A line break in a name or a password would begin a line of its own.
fn one_line(text: &str) -> Result<&str, EnvironmentError> {
    if text.contains(['\n', '\r']) {
        let why = "what they say of a server or of its user has a line break".to_owned();
        return Err(EnvironmentError { variable: "DATABASE_URL, DB_* or POSTGRESQL_*".into(), why });
    }
    Ok(text)
}

/// Each setting that a variable gives a value, which is checked.
fn settings(variables: &Variables<'_>) -> Result<Vec<(&'static str, String)>, EnvironmentError> {
    let mut given = Vec::new();
    let mut scratch = Global::default();
    for row in GLOBAL.iter().filter(|row| !NOT_TAKEN.contains(&row.info.name)) {
        let name = row.info.name;
        let upper = name.to_uppercase();
        let other = OTHER_NAMES.iter().filter(|(setting, _)| *setting == name);
        let other = other.map(|(_, variable)| (*variable).to_owned());
        let names = [format!("WEIR_{upper}"), format!("PGBOUNCER_{upper}"), upper].into_iter().chain(other);
        for variable in names {
            let Some(value) = variables.get(&variable)? else { continue };
            if value.starts_with("tcp://") {
                continue;
            }
            if value.contains(['\n', '\r']) {
                return Err(EnvironmentError { variable, why: "it has several lines".into() });
            }
            (row.assign)(&mut scratch, &value)
                .map_err(|bad| EnvironmentError { variable: variable.clone(), why: bad.to_string() })?;
            given.push((name, value));
            break;
        }
    }
    Ok(given)
}

/// What the images have without being told, where Weir's own default is another.
fn defaults(servers: &Servers) -> Vec<(&'static str, String)> {
    let (port, auth_type) = match servers.family {
        Family::Edoburu => ("5432", "md5"),
        Family::Bitnami => ("6432", "scram-sha-256"),
    };
    let mut defaults = vec![
        ("listen_addr", "0.0.0.0".to_owned()),
        ("listen_port", port.to_owned()),
        // For the console: `weir container --drain`. The image has the directory.
        ("unix_socket_dir", "/run/weir".to_owned()),
        ("auth_type", auth_type.to_owned()),
        ("ignore_startup_parameters", "extra_float_digits".to_owned()),
        // For the health check of the image, and for probes.
        ("http_port", "8432".to_owned()),
    ];
    let user = servers.servers.iter().find_map(|server| server.user.clone());
    match servers.family {
        Family::Edoburu => {
            defaults.push(("admin_users", "postgres".to_owned()));
            defaults.extend(user.map(|user| ("auth_user", user)));
        }
        Family::Bitnami => defaults.extend(user.map(|user| ("admin_users", user))),
    }
    if let Some(mode) = servers.servers.iter().find_map(|server| server.sslmode.clone()) {
        defaults.push(("server_tls_sslmode", mode));
    }
    defaults
}

fn userlist(variables: &Variables<'_>, servers: &Servers) -> Result<Option<String>, EnvironmentError> {
    let mut lines: Vec<String> = servers.servers.iter().filter_map(Server::secret).collect();
    lines.iter().try_for_each(|line| one_line(line).map(drop))?;
    lines.extend(variables.get("PGBOUNCER_USERLIST")?);
    lines.dedup();
    Ok((!lines.is_empty()).then(|| lines.join("\n") + "\n"))
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod tests;
