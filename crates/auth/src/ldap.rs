//! LDAP bind names, search filters and URLs.
//! Owns escaping, so that a user name is always a single value. Does no I/O and never sees a password.

use settings::ldap::{Filter, Options};
use std::fmt::Write;

/// The placeholder for the user name in a filter.
const PLACEHOLDER: &str = "$username";

/// The name a user binds as. Behind a prefix like `uid=` it is the value of an attribute and escaped as such (RFC 4514);
/// `DOMAIN\` and `@example.net` around it make no distinguished name, and it is taken as it is.
#[must_use]
pub fn bind_name(prefix: &str, user: &str, suffix: &str) -> String {
    let user = if prefix.contains('=') { escaped_value(user) } else { user.to_owned() };
    format!("{prefix}{user}{suffix}")
}

/// The filter that finds a user's entry, the name escaped (RFC 4515).
#[must_use]
pub fn search_filter(filter: &Filter, user: &str) -> String {
    let user = escaped_assertion(user);
    match filter {
        Filter::Attribute(attribute) => format!("({attribute}={user})"),
        Filter::Pattern(pattern) => pattern.replace(PLACEHOLDER, &user),
    }
}

/// The URLs of these hosts, with blanks between them, in the order they are tried. A host may bring its own port.
pub fn urls<'a>(options: &Options, hosts: impl Iterator<Item = &'a str>) -> String {
    let mut urls = String::new();
    for host in hosts {
        let blank = if urls.is_empty() { "" } else { " " };
        let behind_brackets = host.rsplit(']').next().unwrap_or(host);
        let _ = write!(urls, "{blank}{}://{host}", options.scheme.word());
        if !behind_brackets.contains(':') {
            let _ = write!(urls, ":{}", options.port);
        }
    }
    urls
}

/// An attribute's value inside a distinguished name.
fn escaped_value(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for (at, letter) in value.char_indices() {
        let is_last = at + letter.len_utf8() == value.len();
        match letter {
            '\0'..='\x1f' | '\x7f' => {
                let _ = write!(escaped, "\\{:02x}", u32::from(letter));
            }
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=' => escaped.extend(['\\', letter]),
            '#' if at == 0 => escaped.extend(['\\', letter]),
            ' ' if at == 0 || is_last => escaped.extend(['\\', letter]),
            _ => escaped.push(letter),
        }
    }
    escaped
}

/// A value inside a filter.
fn escaped_assertion(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for letter in value.chars() {
        match letter {
            '*' | '(' | ')' | '\\' | '\0'..='\x1f' | '\x7f' => {
                let _ = write!(escaped, "\\{:02x}", u32::from(letter));
            }
            _ => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_name_is_one_value_of_a_distinguished_name() {
        let bound = |user| bind_name("uid=", user, ",dc=net");
        assert_eq!(bound("alice"), "uid=alice,dc=net");
        assert_eq!(bound("Müller, Ann"), "uid=Müller\\, Ann,dc=net");
        assert_eq!(bound("x,ou=admins"), "uid=x\\,ou\\=admins,dc=net");
        assert_eq!(bound("a+cn=b"), "uid=a\\+cn\\=b,dc=net");
        assert_eq!(bound(" #a "), "uid=\\ #a\\ ,dc=net");
        assert_eq!(bound("#a\"\\<>;"), "uid=\\#a\\\"\\\\\\<\\>\\;,dc=net");
        assert_eq!(bound(" "), "uid=\\ ,dc=net");
        assert_eq!(bound("a\nb"), "uid=a\\0ab,dc=net");
    }

    #[test]
    fn a_name_in_no_distinguished_name_stays_as_it_is() {
        assert_eq!(bind_name("", "a+b", "@example.net"), "a+b@example.net");
        assert_eq!(bind_name("DOMAIN\\", "a.b", ""), "DOMAIN\\a.b");
    }

    #[test]
    fn a_name_is_one_value_of_a_filter() {
        let attribute = Filter::Attribute("uid".to_owned());
        assert_eq!(search_filter(&attribute, "alice"), "(uid=alice)");
        assert_eq!(search_filter(&attribute, "*"), "(uid=\\2a)");
        assert_eq!(search_filter(&attribute, "a)(|(uid=*"), "(uid=a\\29\\28|\\28uid=\\2a)");
        let pattern = Filter::Pattern("(|(uid=$username)(mail=$username@x))".to_owned());
        assert_eq!(search_filter(&pattern, "b\\c"), "(|(uid=b\\5cc)(mail=b\\5cc@x))");
        assert_eq!(search_filter(&pattern, "$username"), "(|(uid=$username)(mail=$username@x))");
    }

    #[test]
    fn every_host_is_a_url() {
        let text = "ldapserver=\"one two:1 [::1] [::1]:3\" ldapport=7 ldapscheme=ldaps ldapprefix=cn=";
        let options = Options::parse(text).unwrap();
        let expected = "ldaps://one:7 ldaps://two:1 ldaps://[::1]:7 ldaps://[::1]:3";
        assert_eq!(urls(&options, options.servers.iter().map(String::as_str)), expected);
    }
}
