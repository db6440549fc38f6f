//! `DATABASE_URL`: libpq's connection URI, `postgresql://user:password@host:port/database?parameter=value` (PostgreSQL, 34.1.1.2).

use percent_encoding::percent_decode_str;

use crate::server::Server;

/// Reads a URI. The error does not repeat it: a password may stand in it.
pub(crate) fn read(uri: &str) -> Result<Server, String> {
    let rest = ["postgresql://", "postgres://"].iter().find_map(|scheme| uri.trim().strip_prefix(scheme));
    let rest = rest.ok_or("it does not begin with postgresql:// or postgres://")?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, place) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let (host, port) = host_and_port(place)?;
    let mut server = Server {
        host: part(host, "host")?,
        port: part(port, "port")?,
        database: part(database, "database")?,
        user: part(user, "user")?,
        password: part(password, "password")?,
        ..Server::default()
    };
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').ok_or("a parameter behind the ? has no value")?;
        let value = part(value, "parameter")?;
        match name {
            "sslmode" => server.sslmode = value,
            "host" => server.host = value,
            "port" => server.port = value,
            "user" => server.user = value,
            "password" => server.password = value,
            "dbname" => server.database = value,
            // Of the client's session, which it sets itself.
            _ => {}
        }
    }
    Ok(server)
}

fn host_and_port(place: &str) -> Result<(&str, &str), String> {
    if let Some(rest) = place.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("an address in [ has no ]")?;
        return Ok((host, rest.strip_prefix(':').unwrap_or("")));
    }
    Ok(place.rsplit_once(':').unwrap_or((place, "")))
}

/// A part without its percent-encoding; None where it is empty.
fn part(text: &str, name: &str) -> Result<Option<String>, String> {
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| format!("its {name} is no UTF-8"))?;
    Ok(Some(decoded.into_owned()).filter(|text| !text.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_decoded() {
        let server = read(
            "postgres://shop%40web:p%3A%2Fss@db.example:5433/my%20shop?sslmode=require&application_name=x",
        );
        let server = server.expect("a URI");
        let parts =
            [&server.user, &server.password, &server.host, &server.port, &server.database, &server.sslmode];
        let parts: Vec<&str> = parts.into_iter().map(|part| part.as_deref().unwrap_or("-")).collect();
        assert_eq!(parts, ["shop@web", "p:/ss", "db.example", "5433", "my shop", "require"]);
    }

    #[test]
    fn what_is_left_out_is_none() {
        let server = read("postgresql://[::1]").expect("a URI");
        assert_eq!(
            (server.host.as_deref(), server.port, server.user, server.database),
            (Some("::1"), None, None, None)
        );
        let socket = read("postgresql:///shop?host=/run/postgresql").expect("a URI");
        assert_eq!(
            (socket.host.as_deref(), socket.database.as_deref()),
            (Some("/run/postgresql"), Some("shop"))
        );
    }

    #[test]
    fn an_error_does_not_repeat_the_password() {
        for uri in [
            "mysql://me:secret@host/db",
            "postgres://me:secret@host/db?sslmode",
            "postgres://me:secret%FF@host/db",
            "postgres://me:secret@[::1/db",
        ] {
            assert!(!read(uri).expect_err("no URI").contains("secret"), "{uri}");
        }
    }
}
