//! Where clients are led to: the entries of `[databases]` and who logs in, of all the ways in which the two images are told.

use crate::server::Server;
use crate::uri;
use crate::variables::{EnvironmentError, Variables};

/// Whose image the variables are of: what each leaves out differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Edoburu,
    Bitnami,
}

/// Where Bitnami's image looks for PostgreSQL by default: the name of its own PostgreSQL in its compose files.
const BITNAMI_HOST: &str = "postgresql";

/// What its clients call the database by default.
const BITNAMI_DATABASE: &str = "postgres";

/// All that is said of servers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Servers {
    pub(crate) family: Family,
    pub(crate) servers: Vec<Server>,
    /// Whole entries (Bitnami's PGBOUNCER_DSN_0 and so on), as they were given.
    pub(crate) entries: Vec<String>,
}

impl Servers {
    pub(crate) fn read(variables: &Variables<'_>) -> Result<Servers, EnvironmentError> {
        let mut entries = Vec::new();
        for name in variables.entries() {
            entries.extend(variables.get(&name)?);
        }
        let mut servers = of_uris(variables)?;
        if servers.is_empty() {
            servers.extend(of_edoburu(variables)?);
        }
        let family = if servers.is_empty() { Family::Bitnami } else { Family::Edoburu };
        if servers.is_empty() {
            servers.extend(of_bitnami(variables)?);
        }
        Ok(Servers { family, servers, entries })
    }

    /// What is incomplete, and ignored by the two images without a word.
    pub(crate) fn notes(&self) -> Vec<String> {
        let has_no_user = |server: &Server| server.user.is_none() && server.password.is_some();
        let note = "a password is given and no user (DB_USER, or the user of DATABASE_URL): it is not used";
        self.servers.iter().filter(|server| has_no_user(server)).map(|_| note.to_owned()).collect()
    }
}

fn of_uris(variables: &Variables<'_>) -> Result<Vec<Server>, EnvironmentError> {
    for name in ["DATABASE_URLS", "DATABASE_URL"] {
        let Some(uris) = variables.get(name)? else { continue };
        let failed = |why| EnvironmentError { variable: name.to_owned(), why };
        return uris.split(',').map(|uri| uri::read(uri).map_err(failed)).collect();
    }
    Ok(Vec::new())
}

fn of_edoburu(variables: &Variables<'_>) -> Result<Option<Server>, EnvironmentError> {
    let Some(host) = variables.get("DB_HOST")? else { return Ok(None) };
    Ok(Some(Server {
        host: Some(host),
        port: variables.get("DB_PORT")?,
        database: variables.get("DB_NAME")?,
        user: variables.get("DB_USER")?,
        password: variables.get("DB_PASSWORD")?,
        ..Server::default()
    }))
}

fn of_bitnami(variables: &Variables<'_>) -> Result<Option<Server>, EnvironmentError> {
    let host = match variables.get("POSTGRESQL_HOST")? {
        Some(host) => host,
        None if variables
            .first(&["POSTGRESQL_PASSWORD", "POSTGRESQL_USERNAME", "POSTGRESQL_DATABASE"])?
            .is_some() =>
        {
            BITNAMI_HOST.to_owned()
        }
        None => return Ok(None),
    };
    let is_yes =
        |value: Option<String>| value.is_some_and(|text| matches!(text.as_str(), "yes" | "true" | "1"));
    let sets_password = is_yes(variables.get("PGBOUNCER_SET_DATABASE_PASSWORD")?);
    let name = variables.get("PGBOUNCER_DATABASE")?.unwrap_or_else(|| BITNAMI_DATABASE.to_owned());
    let database = variables.get("POSTGRESQL_DATABASE")?;
    Ok(Some(Server {
        host: Some(host),
        port: variables.get("POSTGRESQL_PORT")?,
        // Any database is its own.
        database: database.filter(|_| name != "*"),
        name: Some(name),
        user: variables.get("POSTGRESQL_USERNAME")?.or_else(|| Some("postgres".to_owned())),
        password: variables.get("POSTGRESQL_PASSWORD")?,
        connect_query: variables.get("PGBOUNCER_CONNECT_QUERY")?,
        is_forced: is_yes(variables.get("PGBOUNCER_SET_DATABASE_USER")?) || sets_password,
        ..Server::default()
    }))
}
