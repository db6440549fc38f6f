//! Which HBA rule a login meets: the first whose transport, address, database and user fit.
//! It never reads a file and never carries a rule out; no rule means that nobody is let in.

use settings::hba::{Hba, Names, Rule, Transport};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// What is known of a client when its method is chosen.
#[derive(Clone, Copy, Debug)]
pub struct Approach<'a> {
    /// Its address; None over a unix socket.
    pub address: Option<IpAddr>,
    /// TLS is in use.
    pub encrypted: bool,
    /// It wants physical replication, so that its database does not count.
    pub physical_replication: bool,
    /// The database it asked for.
    pub database: &'a str,
    /// The user it says it is.
    pub user: &'a str,
    /// The roles that user is a member of, itself among them; None while nobody has asked.
    pub roles: Option<&'a BTreeSet<String>>,
}

/// What comes of looking for a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// This rule counts.
    Rule(&'a Rule),
    /// No rule fits.
    Nothing,
    /// It hangs on the roles that the user is a member of, which are not known yet.
    NeedsRoles,
}

/// The rule that counts.
#[must_use]
pub fn rule<'a>(hba: &'a Hba, approach: &Approach<'_>) -> Found<'a> {
    for rule in hba.rules.iter().filter(|rule| reaches(rule, approach)) {
        let fits = [is_for_database(&rule.databases, approach), is_for_user(&rule.users, approach)];
        if fits == [Some(true); 2] {
            return Found::Rule(rule);
        }
        if !fits.contains(&Some(false)) {
            return Found::NeedsRoles;
        }
    }
    Found::Nothing
}

fn reaches(rule: &Rule, approach: &Approach<'_>) -> bool {
    let Some(address) = approach.address else { return rule.transport == Transport::Local };
    let over = match rule.transport {
        Transport::Local => false,
        Transport::Host => true,
        Transport::HostSsl => approach.encrypted,
        Transport::HostNoSsl => !approach.encrypted,
    };
    over && rule.addresses.contain(address)
}

/// None where only the user's roles would tell.
fn is_for_database(names: &Names, approach: &Approach<'_>) -> Option<bool> {
    if approach.physical_replication {
        return Some(names.replication);
    }
    let is_same_user = names.same_user && approach.database == approach.user;
    if names.all || is_same_user || names.listed.contains(approach.database) {
        return Some(true);
    }
    if names.same_role { approach.roles.map(|roles| roles.contains(approach.database)) } else { Some(false) }
}

/// None where only the user's roles would tell.
fn is_for_user(names: &Names, approach: &Approach<'_>) -> Option<bool> {
    if names.all || names.listed.contains(approach.user) {
        return Some(true);
    }
    if names.groups.is_empty() {
        return Some(false);
    }
    approach.roles.map(|roles| !names.groups.is_disjoint(roles))
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

    const FROM_TCP: Approach<'_> = Approach {
        address: Some(IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 2, 3))),
        encrypted: false,
        physical_replication: false,
        database: "app",
        user: "alice",
        roles: None,
    };

    /// The line that an approach meets.
    fn line(text: &str, approach: Approach<'_>) -> Option<u32> {
        let (hba, told) = Hba::parse(&NoFiles, &"hba".into(), text.as_bytes(), &IdentMaps::new(), true);
        assert!(told.is_empty(), "{told:?}");
        match rule(&hba, &approach) {
            Found::Rule(rule) => Some(rule.line),
            Found::Nothing => None,
            Found::NeedsRoles => Some(0),
        }
    }

    #[test]
    fn the_first_that_fits_counts_whatever_it_says() {
        let text = "host all bob all trust\nhost app alice all reject\nhost all all all trust";
        assert_eq!(line(text, FROM_TCP), Some(2));
        assert_eq!(line(text, Approach { database: "other", ..FROM_TCP }), Some(3));
        assert_eq!(line("host all bob all trust", FROM_TCP), None);
        assert_eq!(line("", FROM_TCP), None);
    }

    #[test]
    fn transports_keep_apart() {
        let text = "local all all trust\nhostssl all all all md5\nhostnossl all all all trust";
        assert_eq!(line(text, FROM_TCP), Some(3));
        assert_eq!(line(text, Approach { encrypted: true, ..FROM_TCP }), Some(2));
        assert_eq!(line(text, Approach { address: None, ..FROM_TCP }), Some(1));
        assert_eq!(line("host all all all trust", Approach { address: None, ..FROM_TCP }), None);
        assert_eq!(line("host all all all trust", Approach { encrypted: true, ..FROM_TCP }), Some(1));
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
        assert_eq!(line(text, Approach { database: "alice", ..FROM_TCP }), Some(1));
        assert_eq!(line(text, Approach { database: "all", ..FROM_TCP }), Some(2));
    }

    #[test]
    fn physical_replication_is_only_for_lines_that_name_it() {
        let text = "host all all all trust\nhost app all all trust\nhost replication all all md5";
        assert_eq!(line(text, Approach { physical_replication: true, ..FROM_TCP }), Some(3));
        assert_eq!(line("host all all all trust", Approach { physical_replication: true, ..FROM_TCP }), None);
        assert_eq!(line("host replication all all trust", FROM_TCP), None);
        let called_so = Approach { database: "replication", ..FROM_TCP };
        assert_eq!(line("host replication all all trust", called_so), None);
        assert_eq!(line("host \"replication\" all all trust", called_so), Some(1));
    }

    #[test]
    fn roles_are_asked_for_only_where_they_decide() {
        let text = "host app bob all trust\nhost app +staff all md5\nhost samerole alice all trust\nhost all all all reject";
        assert_eq!(line(text, FROM_TCP), Some(0));
        assert_eq!(line(text, Approach { user: "bob", ..FROM_TCP }), Some(1));
        assert_eq!(line(text, Approach { database: "other", ..FROM_TCP }), Some(0));
        assert_eq!(line(text, Approach { database: "other", user: "bob", ..FROM_TCP }), Some(4));
        let in_staff = BTreeSet::from(["alice".to_owned(), "staff".to_owned()]);
        let known = Approach { roles: Some(&in_staff), ..FROM_TCP };
        assert_eq!(line(text, known), Some(2));
        assert_eq!(line(text, Approach { database: "staff", ..known }), Some(3));
        assert_eq!(line(text, Approach { database: "other", ..known }), Some(4));
        let nobody = BTreeSet::new();
        assert_eq!(line(text, Approach { roles: Some(&nobody), ..FROM_TCP }), Some(4));
    }
}
