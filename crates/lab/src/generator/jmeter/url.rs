//! An address as pgjdbc's URL (its documentation, "Connecting to the Database"). The password is never in it.

use std::fmt::Write as _;

use crate::error::{LabError, Result};
use crate::target::Address;

/// The URL of `address`; `query_mode` decides how pgjdbc sends statements.
pub(super) fn of(address: &Address, query_mode: &str) -> Result<String> {
    let missing = |what: String, remedy: &str| LabError::Missing { what, remedy: remedy.to_owned() };
    if address.is_socket() {
        return Err(missing(
            "pgjdbc knows no unix sockets".to_owned(),
            "name the server by its host and port",
        ));
    }
    let mode = match query_mode {
        "simple" => "preferQueryMode=simple",
        "extended" => "prepareThreshold=0",
        "prepared" => "prepareThreshold=1",
        other => {
            return Err(missing(format!("JMeter has no query mode {other}"), "simple, extended or prepared"));
        }
    };
    let host = if address.host.contains(':') { format!("[{}]", address.host) } else { address.host.clone() };
    let mut url = format!("jdbc:postgresql://{host}:{}/{}?{mode}", address.port, encoded(&address.database));
    for (name, value) in &address.parameters {
        let name = match name.as_str() {
            "sslmode" | "sslrootcert" | "sslcert" | "sslkey" | "sslnegotiation" | "options" => name,
            "gssencmode" => "gssEncMode",
            "application_name" => "ApplicationName",
            "connect_timeout" => "connectTimeout",
            "channel_binding" => "channelBinding",
            "target_session_attrs" | "client_encoding" | "sslsni" => continue,
            other => return Err(missing(format!("pgjdbc knows no {other}"), "leave it out of the address")),
        };
        let _ = write!(url, "&{name}={}", encoded(value));
    }
    Ok(url)
}

fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_./".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_address_becomes_a_url_without_its_password() {
        let address =
            Address::parse("postgres://u:secret@h:1/a%20b?sslmode=require&options=-ca%3Db").unwrap();
        let url = of(&address, "simple").unwrap();
        assert!(url.starts_with("jdbc:postgresql://h:1/a%20b?preferQueryMode=simple&"), "{url}");
        assert!(url.contains("&sslmode=require") && url.contains("&options=-ca%3Db"), "{url}");
        assert!(!url.contains("secret"));
    }

    #[test]
    fn what_pgjdbc_has_not_is_said() {
        let socket = Address { host: "/run/pg".into(), ..Address::local(1, "u", "d") };
        assert!(of(&socket, "simple").unwrap_err().to_string().contains("unix sockets"));
        let plain = Address::local(1, "u", "d");
        assert!(of(&plain, "odd").is_err());
        assert_eq!(
            of(&plain, "prepared").unwrap(),
            "jdbc:postgresql://127.0.0.1:1/d?prepareThreshold=1&gssEncMode=disable&sslmode=disable"
        );
    }
}
