//! Parses `auth_ldap_options` and the options of an HBA line with method `ldap`: PostgreSQL's option names (chapter
//! 20.10), in the syntax of PgBouncer or pg_hba.conf.
//! Never sees a user's password and never connects to a directory.

mod fault;
mod option_set;
mod pairs;
mod url;

use crate::value::{BadValue, Codec, ValueKind};
pub use fault::OptionsError;
use option_set::OptionSet;
use std::fmt;
use std::sync::Arc;

/// LDAP options as written, and parsed. Invalid options are kept with their error: as in PgBouncer they do not prevent a
/// start, and logins that need them are refused.
#[derive(Clone, PartialEq, Eq)]
pub struct LdapRule {
    text: String,
    parsed: Result<Arc<Options>, OptionsError>,
}

impl LdapRule {
    /// Parses the options; never fails.
    pub fn read(text: &str) -> LdapRule {
        LdapRule { text: text.to_owned(), parsed: Options::parse(text).map(Arc::new) }
    }

    /// The parsed options.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn options(&self) -> Result<&Arc<Options>, &OptionsError> {
        self.parsed.as_ref()
    }

    /// As it was written, passwords included.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text without the bind password. Invalid text is hidden as a whole, as the password may be anywhere in it.
    pub(crate) fn without_password(text: &str, hidden: &str) -> String {
        let is_valid = Options::parse(text).is_ok();
        let Some(pairs) = pairs::pairs(text).ok().filter(|_| is_valid) else { return hidden.to_owned() };
        if !text.contains(PASSWORD) {
            return text.to_owned();
        }
        let shown = pairs.iter().map(|(name, value)| match name.as_str() {
            PASSWORD => format!("{name}={hidden}"),
            _ => format!("{name}=\"{}\"", value.replace('"', "\"\"")),
        });
        shown.collect::<Vec<_>>().join(" ")
    }
}

impl Default for LdapRule {
    fn default() -> LdapRule {
        LdapRule::read("")
    }
}

/// Hides `ldapbindpasswd`.
impl fmt::Debug for LdapRule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parsed.fmt(out)
    }
}

/// The option whose value is a secret.
const PASSWORD: &str = "ldapbindpasswd";

impl Codec for LdapRule {
    type Value = LdapRule;
    const KIND: ValueKind = ValueKind::LdapOptions;
    fn read(text: &str) -> Result<LdapRule, BadValue> {
        Ok(LdapRule::read(text))
    }
    fn show(value: &LdapRule) -> Option<String> {
        Some(value.text.clone()).filter(|text| !text.is_empty())
    }
}

/// How to reach and query an LDAP directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Plain LDAP or LDAP over TLS.
    pub scheme: Scheme,
    /// Hosts, tried in order, each perhaps with a port of its own; none are looked up by the domain in the base.
    pub servers: Vec<String>,
    /// The port of hosts without one.
    pub port: u16,
    /// Uses StartTLS before the first request.
    pub start_tls: bool,
    /// How a user is checked.
    pub way: BindMethod,
}

/// How a user name is turned into a bind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindMethod {
    /// Simple bind: bind as prefix, user name and suffix.
    Bind {
        /// Before the user's name.
        prefix: String,
        /// Behind it.
        suffix: String,
    },
    /// Search and bind: search for the user's entry, then bind as that.
    Search(Search),
}

/// A search for a user's entry.
#[derive(Clone, PartialEq, Eq)]
pub struct Search {
    /// The search base.
    pub base: String,
    /// The search scope.
    pub scope: SearchScope,
    /// The bind DN for the search; empty is anonymous.
    pub bind_name: String,
    /// The bind password for the search.
    pub bind_password: String,
    /// What the entry must match.
    pub filter: Filter,
}

/// Hides the password.
impl fmt::Debug for Search {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Search")
            .field("base", &self.base)
            .field("scope", &self.scope)
            .field("bind_name", &self.bind_name)
            .field("filter", &self.filter)
            .finish_non_exhaustive()
    }
}

/// What the entry of a user must match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// This attribute is the user's name.
    Attribute(String),
    /// A filter (RFC 4515) in which `$username` stands for the user's name.
    Pattern(String),
}

/// How the connection is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Plain, port 389.
    Ldap,
    /// Over TLS from its first byte, port 636.
    Ldaps,
}

impl Scheme {
    /// The URL scheme.
    pub fn word(self) -> &'static str {
        match self {
            Scheme::Ldap => "ldap",
            Scheme::Ldaps => "ldaps",
        }
    }

    /// The port where none is named.
    pub fn port(self) -> u16 {
        match self {
            Scheme::Ldap => 389,
            Scheme::Ldaps => 636,
        }
    }

    fn read(word: &str) -> Option<Scheme> {
        [Scheme::Ldap, Scheme::Ldaps].into_iter().find(|scheme| scheme.word() == word)
    }
}

/// How deep below the base a search goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchScope {
    /// The base alone.
    Base,
    /// Its direct children.
    One,
    /// The base and all below it.
    Subtree,
    /// All below it.
    Children,
}

impl Options {
    /// Reads `name=value` pairs with blanks or commas between them; names, values or whole pairs may stand in double
    /// quotes, in which two are one. Of two values for one option the later counts.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(text: &str) -> Result<Options, OptionsError> {
        let mut options = OptionSet::default();
        for (name, value) in pairs::pairs(text)? {
            options.assign(&name, value)?;
        }
        options.options()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn search(text: &str) -> (Options, Search) {
        let options = Options::parse(text).unwrap();
        let BindMethod::Search(search) = options.way.clone() else { panic!("{options:?}") };
        (options, search)
    }

    fn reported(text: &str) -> String {
        Options::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_plain_bind() {
        let text = r#"ldapserver=ldap.example.net ldapprefix="cn=" ldapsuffix=", dc=example, dc=net""#;
        let way = BindMethod::Bind { prefix: "cn=".to_owned(), suffix: ", dc=example, dc=net".to_owned() };
        let servers = vec!["ldap.example.net".to_owned()];
        let expected = Options { scheme: Scheme::Ldap, servers, port: 389, start_tls: false, way };
        assert_eq!(Options::parse(text), Ok(expected));
    }

    #[test]
    fn a_search_in_every_style_of_quotes() {
        let styles = [
            r#"ldapserver=h ldapport=7 ldapbasedn="dc=a,dc=b" ldapsearchfilter="(uid=$username)" ldaptls=1"#,
            r#""ldapserver"=h,"ldapport"=7,"ldapbasedn"="dc=a,dc=b","ldapsearchfilter"="(uid=$username)","ldaptls"=1"#,
            r#""ldapserver=h" "ldapport=7" "ldapbasedn=dc=a,dc=b" "ldapsearchfilter=(uid=$username)" "ldaptls=1""#,
            "  ldapserver=h\t, ldapport=7 ,ldapbasedn=\"dc=a,dc=b\" ,ldapsearchfilter=(uid=$username) ldaptls=1 \n",
            r#"ldapserver=h ldapport=7 ldapbasedn="dc=a,dc=b" ldapsearchfilter=(uid=$username) ldaptls=1 # ldapport=8"#,
            r#"ldaptls=0 ldapport=1 ldapserver=x ldapserver=h ldapport=7 ldapbasedn="dc=a,dc=b" ldapsearchfilter=(uid=$username) ldaptls=1"#,
        ];
        for style in styles {
            let (options, search) = search(style);
            assert_eq!((options.servers, options.port, options.start_tls), (vec!["h".to_owned()], 7, true));
            assert_eq!((&*search.base, search.scope), ("dc=a,dc=b", SearchScope::Subtree), "{style}");
            assert_eq!(search.filter, Filter::Pattern("(uid=$username)".to_owned()), "{style}");
        }
    }

    #[test]
    fn who_searches_and_for_what() {
        let (_, found) = search(r#"ldapserver=h ldapbasedn=b ldapbinddn="cn=x y" ldapbindpasswd="a""b, c""#);
        assert_eq!((&*found.bind_name, &*found.bind_password), ("cn=x y", "a\"b, c"));
        assert_eq!(found.filter, Filter::Attribute("uid".to_owned()));
        let (_, found) = search(r#"ldapserver=h ldapbasedn="" ldapsearchattribute=cn ldapbinddn="""#);
        assert_eq!((&*found.base, &*found.bind_name), ("", ""));
        assert_eq!(found.filter, Filter::Attribute("cn".to_owned()));
    }

    #[test]
    fn several_servers() {
        let (options, _) = search(r#"ldapserver="one two:1636  [::1]" ldapscheme=ldaps ldapbasedn=b"#);
        assert_eq!(options.servers, ["one", "two:1636", "[::1]"]);
        assert_eq!((options.scheme, options.port), (Scheme::Ldaps, 636));
        let (options, _) = search("ldapbasedn=\"dc=example,dc=net\" ldaptls=1");
        assert!(options.servers.is_empty(), "found by the domain of the base");
    }

    #[test]
    fn a_url_says_several_things() {
        let (options, found) = search(r#"ldapurl="ldap://127.0.0.1:12345/dc=example,dc=net?uid?sub""#);
        assert_eq!((&*options.servers, options.port), (&["127.0.0.1".to_owned()][..], 12345));
        assert_eq!((&*found.base, found.scope), ("dc=example,dc=net", SearchScope::Subtree));
        assert_eq!(found.filter, Filter::Attribute("uid".to_owned()));
        let (options, found) = search(r#"ldapurl="ldaps://h/dc=a??one?(cn=$username)" ldapport=9"#);
        assert_eq!((options.scheme, options.port, found.scope), (Scheme::Ldaps, 9, SearchScope::One));
        assert_eq!(found.filter, Filter::Pattern("(cn=$username)".to_owned()));
        let (options, found) = search("ldapport=9 ldapurl=ldaps://h");
        assert_eq!((options.port, &*found.base, found.scope), (636, "", SearchScope::Base));
    }

    #[test]
    fn a_very_long_name_is_a_name() {
        let base = format!("ou={},dc=net", "long,ou=".repeat(5000));
        assert_eq!(search(&format!("ldapserver=h ldapbasedn=\"{base}\"")).1.base, base);
    }

    #[test]
    fn options_that_do_not_go_together() {
        let mixed = "cannot use ldapbasedn, ldapbinddn, ldapbindpasswd, ldapsearchattribute, ldapsearchfilter, or ldapurl together with ldapprefix";
        for other in ["ldapbasedn=b", "ldapbinddn=b", "ldapsearchattribute=b", "ldapurl=ldap://h/dc=a"] {
            assert_eq!(reported(&format!("ldapserver=h ldapprefix=cn= {other}")), mixed);
            assert_eq!(reported(&format!("ldapserver=h {other} ldapsuffix=x")), mixed);
        }
        let no_way = "authentication method \"ldap\" requires argument \"ldapbasedn\", \"ldapprefix\", or \"ldapsuffix\" to be set";
        for text in ["", "ldapserver=h", "ldapserver=h ldapbinddn=b ldapbindpasswd=c"] {
            assert_eq!(reported(text), no_way, "{text}");
        }
        let two = "ldapserver=h ldapbasedn=b ldapsearchattribute=cn ldapsearchfilter=(cn=$username)";
        assert_eq!(reported(two), "cannot use ldapsearchattribute together with ldapsearchfilter");
        for text in ["ldapprefix=cn=", "ldapbasedn=\"\"", "ldapurl=ldap:///"] {
            assert_eq!(reported(text), "LDAP server not specified, and no ldapbasedn", "{text}");
        }
    }

    #[test]
    fn invalid_options_are_reported_and_kept() {
        assert_eq!(reported("ldapserver=h colour=red"), "invalid LDAP key parameter: \"colour\"");
        for port in ["0", "x", "65536", "-1", "\"\""] {
            let expected = format!("invalid LDAP port number: \"{}\"", port.trim_matches('"'));
            assert_eq!(reported(&format!("ldapport={port}")), expected);
        }
        assert_eq!(reported("ldapscheme=ldapi"), "invalid ldapscheme value: \"ldapi\"");
        assert_eq!(reported("ldapurl=http://h/"), "unsupported LDAP URL scheme: http");
        for text in
            ["ldaptls", "ldapport=1 ldaptls", "ldapserver =h", "ldapserver= h", "=h", "\"ldapserver=h"]
        {
            assert!(reported(text).starts_with("expected name=value at byte"), "{text}");
        }
        assert_eq!(reported("ldapbindpasswd= secret"), "expected name=value at byte 17 of the LDAP options");
        let rule = LdapRule::read("ldaptls");
        assert_eq!((rule.text(), rule.options().is_err()), ("ldaptls", true));
    }

    #[test]
    fn the_password_of_the_searcher_never_shows() {
        let rule = LdapRule::read("ldapserver=h ldapbasedn=b ldapbinddn=x ldapbindpasswd=hidden");
        assert!(!format!("{rule:?}").contains("hidden"));
    }
}
