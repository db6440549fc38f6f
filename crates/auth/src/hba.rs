//! Matches a login against HBA rules: the first with matching transport, address, database and user.
//! Without a matching rule the login is rejected.

use settings::hba::{Hba, Names, Rule, Transport};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// What is known of a connection when its method is chosen.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionInfo<'a> {
    /// Its address; None over a unix socket.
    pub address: Option<IpAddr>,
    /// TLS is in use.
    pub encrypted: bool,
    /// It wants physical replication, so that its database does not count.
    pub physical_replication: bool,
    /// The database it requested.
    pub database: &'a str,
    /// The user it requested.
    pub user: &'a str,
    /// The roles that user is a member of, including itself; None while not known.
    pub roles: Option<&'a BTreeSet<String>>,
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleLookup<'a> {
    /// The matching rule.
    Rule(&'a Rule),
    /// No rule matches.
    Nothing,
    /// Depends on the user's role memberships, which are not known yet.
    NeedsRoles,
}

/// The first matching rule.
#[must_use]
pub fn rule<'a>(hba: &'a Hba, connection: &ConnectionInfo<'_>) -> RuleLookup<'a> {
    for rule in hba.rules.iter().filter(|rule| reaches(rule, connection)) {
        let fits = [is_for_database(&rule.databases, connection), is_for_user(&rule.users, connection)];
        if fits == [Some(true); 2] {
            return RuleLookup::Rule(rule);
        }
        if !fits.contains(&Some(false)) {
            return RuleLookup::NeedsRoles;
        }
    }
    RuleLookup::Nothing
}

fn reaches(rule: &Rule, connection: &ConnectionInfo<'_>) -> bool {
    let Some(address) = connection.address else { return rule.transport == Transport::Local };
    let over = match rule.transport {
        Transport::Local => false,
        Transport::Host => true,
        Transport::HostSsl => connection.encrypted,
        Transport::HostNoSsl => !connection.encrypted,
    };
    over && rule.addresses.contain(address)
}

/// None if it depends on the user's roles.
fn is_for_database(names: &Names, connection: &ConnectionInfo<'_>) -> Option<bool> {
    if connection.physical_replication {
        return Some(names.replication);
    }
    let is_same_user = names.same_user && connection.database == connection.user;
    if names.all || is_same_user || names.listed.contains(connection.database) {
        return Some(true);
    }
    if names.same_role {
        connection.roles.map(|roles| roles.contains(connection.database))
    } else {
        Some(false)
    }
}

/// None if it depends on the user's roles.
fn is_for_user(names: &Names, connection: &ConnectionInfo<'_>) -> Option<bool> {
    if names.all || names.listed.contains(connection.user) {
        return Some(true);
    }
    if names.groups.is_empty() {
        return Some(false);
    }
    connection.roles.map(|roles| !names.groups.is_disjoint(roles))
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::hba::Hba;
    use settings::{Files, ident::IdentMaps};
    use std::io;

    struct NoFiles;

    impl Files for NoFiles {
        fn read(&self, _: &str) -> io::Result<Vec<u8>> {
            Err(io::Error::from_raw_os_error(2))
        }
    }

    const FROM_TCP: ConnectionInfo<'_> = ConnectionInfo {
        address: Some(IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 2, 3))),
        encrypted: false,
        physical_replication: false,
        database: "app",
        user: "alice",
        roles: None,
    };

    /// The line that a connection matches.
    fn line(text: &str, connection: ConnectionInfo<'_>) -> Option<u32> {
        let (hba, told) = Hba::parse(&NoFiles, &"hba".into(), text.as_bytes(), &IdentMaps::new(), true);
        assert!(told.is_empty(), "{told:?}");
        match rule(&hba, &connection) {
            RuleLookup::Rule(rule) => Some(rule.line),
            RuleLookup::Nothing => None,
            RuleLookup::NeedsRoles => Some(0),
        }
    }

    #[test]
    fn the_first_that_fits_counts_whatever_it_says() {
        let text = "host all bob all trust\nhost app alice all reject\nhost all all all trust";
        assert_eq!(line(text, FROM_TCP), Some(2));
        assert_eq!(line(text, ConnectionInfo { database: "other", ..FROM_TCP }), Some(3));
        assert_eq!(line("host all bob all trust", FROM_TCP), None);
        assert_eq!(line("", FROM_TCP), None);
    }

    #[test]
    fn transports_keep_apart() {
        let text = "local all all trust\nhostssl all all all md5\nhostnossl all all all trust";
        assert_eq!(line(text, FROM_TCP), Some(3));
        assert_eq!(line(text, ConnectionInfo { encrypted: true, ..FROM_TCP }), Some(2));
        assert_eq!(line(text, ConnectionInfo { address: None, ..FROM_TCP }), Some(1));
        assert_eq!(line("host all all all trust", ConnectionInfo { address: None, ..FROM_TCP }), None);
        assert_eq!(line("host all all all trust", ConnectionInfo { encrypted: true, ..FROM_TCP }), Some(1));
    }

    #[test]
    fn addresses_count() {
        assert_eq!(
            line("host all all 10.2.0.0/16 trust\nhost all all 10.1.0.0 255.255.0.0 trust", FROM_TCP),
            Some(2)
        );
        assert_eq!(line("host all all ::/0 trust", FROM_TCP), None);
    }

    #[test]
    fn databases_have_keywords() {
        let text = "host sameuser all all trust\nhost \"all\" all all trust\nhost \"app\",x all all md5";
        assert_eq!(line(text, FROM_TCP), Some(3));
        assert_eq!(line(text, ConnectionInfo { database: "alice", ..FROM_TCP }), Some(1));
        assert_eq!(line(text, ConnectionInfo { database: "all", ..FROM_TCP }), Some(2));
    }

    #[test]
    fn physical_replication_is_only_for_lines_that_name_it() {
        let text = "host all all all trust\nhost app all all trust\nhost replication all all md5";
        assert_eq!(line(text, ConnectionInfo { physical_replication: true, ..FROM_TCP }), Some(3));
        assert_eq!(
            line("host all all all trust", ConnectionInfo { physical_replication: true, ..FROM_TCP }),
            None
        );
        assert_eq!(line("host replication all all trust", FROM_TCP), None);
        let called_so = ConnectionInfo { database: "replication", ..FROM_TCP };
        assert_eq!(line("host replication all all trust", called_so), None);
        assert_eq!(line("host \"replication\" all all trust", called_so), Some(1));
    }

    #[test]
    fn roles_are_asked_for_only_where_they_decide() {
        let text = "host app bob all trust\nhost app +staff all md5\nhost samerole alice all trust\nhost all all all reject";
        assert_eq!(line(text, FROM_TCP), Some(0));
        assert_eq!(line(text, ConnectionInfo { user: "bob", ..FROM_TCP }), Some(1));
        assert_eq!(line(text, ConnectionInfo { database: "other", ..FROM_TCP }), Some(0));
        assert_eq!(line(text, ConnectionInfo { database: "other", user: "bob", ..FROM_TCP }), Some(4));
        let in_staff = BTreeSet::from(["alice".to_owned(), "staff".to_owned()]);
        let known = ConnectionInfo { roles: Some(&in_staff), ..FROM_TCP };
        assert_eq!(line(text, known), Some(2));
        assert_eq!(line(text, ConnectionInfo { database: "staff", ..known }), Some(3));
        assert_eq!(line(text, ConnectionInfo { database: "other", ..known }), Some(4));
        let nobody = BTreeSet::new();
        assert_eq!(line(text, ConnectionInfo { roles: Some(&nobody), ..FROM_TCP }), Some(4));
    }
}
