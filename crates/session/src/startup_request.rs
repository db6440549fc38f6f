//! What a client's startup packet means.
//!
//! Owns which parameters are known, tracked, ignored or refused, and the negotiation of newer protocols. Never looks up
//! a user or a database.

use settings::truncate_identifier;
use wire::startup::{Startup, Version};

use crate::encodings::reported_name;
use crate::options;
use crate::parameters::CLIENT_ENCODING;
use crate::replication::Kind;
use crate::{ClientFault, Replication, Tracked};

/// The newest protocol that is spoken. What came with 3.2 are long secrets in cancel keys.
pub const NEWEST: Version = Version::V3_2;

/// A startup packet, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartupRequest {
    /// The user, cut as PostgreSQL cuts names; so is the database.
    pub user: String,
    /// The database; the user's name if none was given.
    pub database: String,
    /// Tracked parameters by position in [`Tracked`]; a later one wins.
    pub parameters: Vec<(usize, String)>,
    /// Parameters that are not tracked, where any are taken.
    pub others: Vec<(String, String)>,
    /// The minor version of the protocol that is spoken.
    pub minor: u16,
    /// What NegotiateProtocolVersion must name: Some if it is owed at all.
    pub negotiate: Option<Vec<String>>,
    /// The client wants to replicate, on a server of its own.
    pub replication: Option<Replication>,
}

impl StartupRequest {
    /// Reads a startup packet.
    ///
    /// `ignored` is `ignore_startup_parameters`; `options` in it lets unknown settings inside `options` pass. `takes_any`
    /// says whether any parameter of PostgreSQL is taken for a database and a user.
    ///
    /// # Errors
    /// What the client did that is not served.
    pub fn read(
        startup: &Startup<'_>,
        ignored: &[String],
        tracked: &Tracked,
        takes_any: impl Fn(&str, &str) -> bool,
    ) -> Result<StartupRequest, ClientFault> {
        // Asked only where it makes a difference.
        let takes_any = || {
            let named = |name| startup.parameter(name).and_then(|name| std::str::from_utf8(name).ok());
            let user = named("user").unwrap_or_default();
            takes_any(named("database").filter(|database| !database.is_empty()).unwrap_or(user), user)
        };
        let mut reader =
            StartupReader { ignored, tracked, takes_any: &takes_any, request: StartupRequest::empty() };
        // First of all: who replicates may say more.
        if let Some(value) = startup.parameter("replication") {
            reader.request.replication = Kind::read(text(value)?)?.map(Replication::new);
        }
        for (name, value) in startup.parameters() {
            reader.parameter(name, value)?;
        }
        let mut request = reader.request;
        request.minor = startup.version.minor.min(NEWEST.minor);
        if startup.version.minor > NEWEST.minor {
            request.negotiate.get_or_insert_default();
        }
        if request.user.is_empty() {
            return Err(ClientFault::NoUser);
        }
        if request.database.is_empty() {
            request.database = request.user.clone();
        }
        Ok(request)
    }

    fn empty() -> StartupRequest {
        StartupRequest {
            user: String::new(),
            database: String::new(),
            parameters: Vec::new(),
            others: Vec::new(),
            minor: 0,
            negotiate: None,
            replication: None,
        }
    }
}

struct StartupReader<'a> {
    ignored: &'a [String],
    tracked: &'a Tracked,
    takes_any: &'a dyn Fn() -> bool,
    request: StartupRequest,
}

impl StartupReader<'_> {
    fn parameter(&mut self, name: &[u8], value: &[u8]) -> Result<(), ClientFault> {
        match name {
            b"user" if value.len() > settings::USER_BYTES => return Err(ClientFault::LongUser),
            b"user" => truncate_identifier(text(value)?).clone_into(&mut self.request.user),
            b"database" => truncate_identifier(text(value)?).clone_into(&mut self.request.database),
            b"options" => self.options(text(value)?)?,
            b"replication" => {}
            extension if extension.starts_with(b"_pq_.") => {
                let name = String::from_utf8_lossy(extension).into_owned();
                self.request.negotiate.get_or_insert_default().push(name);
            }
            other => {
                let name = text(other)?;
                if !self.takes(name, text(value)?) {
                    return Err(ClientFault::UnsupportedParameter(name.to_owned()));
                }
            }
        }
        Ok(())
    }

    fn options(&mut self, options: &str) -> Result<(), ClientFault> {
        if let Some(replication) = &mut self.request.replication {
            replication.passed.push(("options".to_owned(), options.to_owned()));
            return Ok(());
        }
        let lenient = self.ignores("options");
        let settings = match options::settings(options) {
            Ok(settings) => settings,
            Err(_) if lenient => return Ok(()),
            Err(fault) => return Err(fault),
        };
        for (name, value) in settings {
            // Whoever has named `options` wants the others dropped.
            let is_taken = if lenient { self.tracks(&name, &value) } else { self.takes(&name, &value) };
            if !is_taken && !lenient {
                return Err(ClientFault::UnsupportedOption(name));
            }
        }
        Ok(())
    }

    /// Tracked, ignored, or for a server of its own; false if none of these.
    fn takes(&mut self, name: &str, value: &str) -> bool {
        if self.tracks(name, value) || self.ignores(name) {
            return true;
        }
        let Some(replication) = &mut self.request.replication else {
            let is_taken = (self.takes_any)();
            if is_taken {
                self.request.others.push((name.to_ascii_lowercase(), value.to_owned()));
            }
            return is_taken;
        };
        replication.passed.push((name.to_owned(), value.to_owned()));
        true
    }

    fn tracks(&mut self, name: &str, value: &str) -> bool {
        let Some(position) = self.tracked.settable(name.as_bytes()) else { return false };
        // The login reports this value, before any server has replaced it by its own spelling.
        let value = if position == CLIENT_ENCODING { reported_name(value) } else { value };
        self.request.parameters.push((position, value.to_owned()));
        true
    }

    fn ignores(&self, name: &str) -> bool {
        self.ignored.iter().any(|ignored| ignored.eq_ignore_ascii_case(name))
    }
}

fn text(bytes: &[u8]) -> Result<&str, ClientFault> {
    std::str::from_utf8(bytes).map_err(|_| ClientFault::BadName)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use wire::encode;
    use wire::startup::{First, Version, first};

    use super::*;

    fn read(
        version: Version,
        parameters: &[(&str, &str)],
        ignored: &[&str],
    ) -> Result<StartupRequest, ClientFault> {
        let mut packet = Vec::new();
        let parameters: Vec<(&[u8], &[u8])> =
            parameters.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        encode::startup(&mut packet, version, &parameters);
        let Some((First::Startup(startup), _)) = first(&packet).unwrap() else {
            panic!("not a startup packet")
        };
        let ignored: Vec<String> = ignored.iter().map(ToString::to_string).collect();
        StartupRequest::read(&startup, &ignored, &Tracked::new([]), |_, _| false)
    }

    #[test]
    fn the_database_defaults_to_the_user() {
        let request = read(Version::V3_0, &[("user", "u"), ("application_name", "")], &[]).unwrap();
        assert_eq!((&*request.user, &*request.database), ("u", "u"));
        assert_eq!(request.parameters, [(crate::parameters::APPLICATION_NAME, String::new())]);
        assert_eq!(request.negotiate, None);
    }

    #[test]
    fn long_names_of_databases_are_cut_as_postgresql_cuts_them() {
        let long = "ü".repeat(40);
        let request = read(Version::V3_0, &[("user", "u"), ("database", &long)], &[]).unwrap();
        assert_eq!(request.database.len(), 62, "63 bytes would cut a character in two");
    }

    #[test]
    fn long_names_of_users_are_cut_before_anything_is_decided_by_them() {
        let name = "u".repeat(settings::USER_BYTES);
        let request = read(Version::V3_0, &[("user", &name)], &[]).unwrap();
        assert_eq!((request.user, request.database), ("u".repeat(63), "u".repeat(63)));
        let wide = "ü".repeat(40);
        assert_eq!(read(Version::V3_0, &[("user", &wide)], &[]).unwrap().user.len(), 62);
        let longer = name + "u";
        assert_eq!(read(Version::V3_0, &[("user", &longer)], &[]), Err(ClientFault::LongUser));
    }

    #[test]
    fn unknown_parameters_are_refused_unless_ignored() {
        let parameters = [("user", "u"), ("extra_float_digits", "3")];
        let refused = read(Version::V3_0, &parameters, &[]);
        assert_eq!(refused, Err(ClientFault::UnsupportedParameter("extra_float_digits".to_owned())));
        assert!(read(Version::V3_0, &parameters, &["extra_float_digits"]).is_ok());
    }

    #[test]
    fn options_are_tracked_ignored_or_refused() {
        let options = [("user", "u"), ("options", "-c intervalstyle=iso_8601 -c enable_seqscan=off")];
        let refused = read(Version::V3_0, &options, &[]);
        assert_eq!(refused, Err(ClientFault::UnsupportedOption("enable_seqscan".to_owned())));
        let request = read(Version::V3_0, &options, &["options"]).unwrap();
        assert_eq!(request.parameters, [(5, "iso_8601".to_owned())]);
    }

    #[test]
    fn newer_minors_and_extensions_are_negotiated() {
        let spoken = |minor| {
            let request = read(Version { major: 3, minor }, &[("user", "u")], &[]).unwrap();
            (request.minor, request.negotiate)
        };
        assert_eq!([spoken(0), spoken(1), spoken(2)], [(0, None), (1, None), (2, None)]);
        assert_eq!(spoken(3), (2, Some(vec![])));
        assert_eq!(spoken(9999), (2, Some(vec![])));
        let extended = read(Version::V3_0, &[("user", "u"), ("_pq_.x", "1")], &[]).unwrap();
        assert_eq!(extended.negotiate, Some(vec!["_pq_.x".to_owned()]));
    }

    #[test]
    fn a_missing_user_is_refused() {
        assert_eq!(read(Version::V3_0, &[("database", "d")], &[]), Err(ClientFault::NoUser));
    }

    #[test]
    fn who_replicates_may_say_more() {
        let said = [
            ("user", "u"),
            ("options", "-c datestyle=ISO -d 3"),
            ("extra_float_digits", "3"),
            ("wal_sender_timeout", "1s"),
            ("application_name", "a"),
            ("replication", "database"),
        ];
        let request = read(Version::V3_0, &said, &["extra_float_digits"]).unwrap();
        let passed = [("options", "-c datestyle=ISO -d 3"), ("wal_sender_timeout", "1s")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(request.replication, Some(Replication { kind: Kind::Logical, passed: passed.to_vec() }));
        assert_eq!(request.parameters, [(crate::parameters::APPLICATION_NAME, "a".to_owned())]);
        let off = read(Version::V3_0, &[("user", "u"), ("replication", "false")], &[]).unwrap();
        assert_eq!(off.replication, None);
    }
}
