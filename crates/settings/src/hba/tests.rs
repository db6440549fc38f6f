//! Typical HBA files, and invalid lines.

#![allow(clippy::unwrap_used)]
use super::*;
use crate::files::memory::Memory;
use crate::ldap::LdapRule as Directory;
use std::io;

const IDENT: &str = "staff root alice\n\"two words\" root all\n";

fn parse(text: &str) -> (Hba, Vec<String>) {
    let (maps, _) = crate::ident::parse(&"ident".into(), IDENT.as_bytes());
    let (hba, findings) = Hba::parse(&Memory(&[]), &"hba".into(), text.as_bytes(), &maps, false);
    (hba, findings.iter().map(ToString::to_string).collect())
}

fn one(line: &str) -> Rule {
    let (mut hba, reported) = parse(line);
    assert!(reported.is_empty(), "{reported:?}");
    assert_eq!(hba.rules.len(), 1);
    hba.rules.remove(0)
}

fn why(line: &str) -> String {
    let (hba, reported) = parse(line);
    assert!(hba.rules.is_empty(), "{line}");
    let reported = reported.concat();
    let inner = reported.strip_prefix("hba:1: hba line 1: ").unwrap();
    inner.strip_suffix("; could not parse hba config line 1").unwrap().to_owned()
}

#[test]
fn rules_keep_the_order_and_lines_of_the_file() {
    let text = "# TYPE DATABASE USER ADDRESS METHOD

            local   all             all                     peer map=staff
        \thost\tall all\t127.0.0.1/32 \ttrust # why not\r
        hostssl sameuser,\"a b\" bob , \"c\"\"d\" ::1/128 scram-sha-256
        hostnossl replication all 10.0.0.0 255.0.0.0 reject
        host all all all md5";
    let (hba, reported) = parse(text);
    assert!(reported.is_empty(), "{reported:?}");
    let lines: Vec<_> =
        hba.rules.iter().map(|rule| (rule.line, rule.transport, rule.method.clone())).collect();
    let expected = [
        (3, Transport::Local, RuleMethod::Peer),
        (4, Transport::Host, RuleMethod::Trust),
        (5, Transport::HostSsl, RuleMethod::Scram),
        (6, Transport::HostNoSsl, RuleMethod::Reject),
        (7, Transport::Host, RuleMethod::Md5),
    ];
    assert_eq!(lines, expected);
    assert_eq!(hba.rules[0].map.as_ref().unwrap().name, "staff");
    assert!(hba.rules[2].databases.same_user && hba.rules[2].databases.listed.contains("a b"));
    assert!(hba.rules[2].users.listed.contains("c\"d"));
    assert!(hba.rules[3].databases.replication && !hba.rules[3].databases.all);
    assert_eq!(hba.rules[4].addresses, Addresses::All);
}

#[test]
fn every_method_and_every_style_of_map() {
    for (word, method) in [
        ("trust", RuleMethod::Trust),
        ("reject", RuleMethod::Reject),
        ("password", RuleMethod::Plain),
        ("md5", RuleMethod::Md5),
        ("scram-sha-256", RuleMethod::Scram),
        ("cert", RuleMethod::Cert),
        ("peer", RuleMethod::Peer),
    ] {
        assert_eq!(one(&format!("host all all all {word}")).method, method);
    }
    for map in ["map=staff", "map=\"staff\"", "\"map=staff\"", "map=\"two words\""] {
        assert!(one(&format!("hostssl all all all cert {map}")).map.is_some(), "{map}");
    }
}

#[test]
fn options_of_ldap_are_kept_as_they_were_written() {
    let options =
        r#"ldapserver=127.0.0.1 "ldapport"=389, ldapbasedn="dc=net" ldapsearchfilter="uid=$username""#;
    let rule = one(&format!("host all all 0.0.0.0/0 ldap  {options} \r"));
    assert_eq!(rule.method, RuleMethod::Ldap(Directory::read(options)));
}

#[test]
fn invalid_ldap_options_leave_a_rule_that_rejects_all_logins() {
    let (hba, reported) = parse("host all all all ldap ldapserver=h");
    assert!(matches!(&hba.rules[0].method, RuleMethod::Ldap(rule) if rule.options().is_err()));
    assert!(
        reported[0].starts_with("hba:1: hba line 1: authentication method \"ldap\" requires"),
        "{reported:?}"
    );
}

#[test]
fn a_bad_line_is_reported_in_pgbouncers_words() {
    for (line, expected) in [
        ("hostgssenc all all all trust", "unknown type"),
        ("\"local\" all all trust", "unknown type"),
        ("local samerole all trust", "samerole is not supported without auth_user"),
        ("local all", "expected a name"),
        ("local all all", "unsupported method: buf="),
        ("host all all", "did not find address"),
        ("host all all example.org trust", "failed to parse address - example.org"),
        ("host all all 127.0.0.1 trust", "failed to parse mask: trust"),
        ("host all all 127.0.0.1", "did not find mask"),
        ("host all all 127.0.0.1/64 trust", "invalid mask"),
        ("host all all all pam", "unsupported method: buf=pam"),
        ("host all all all any", "unsupported method: buf=any"),
        ("local all all trust extra", "Ident map extra is malformed. It is not in map=value format."),
        ("local all all peer map=nope", "Ident map nope is not found in ident config file"),
        ("local all all peer map=staff more", "unsupported parameters"),
        ("local all all trust, md5", "unsupported parameters"),
        ("local all \"all trust", "expected a name"),
    ] {
        assert_eq!(why(line), expected, "{line}");
    }
}

#[test]
fn a_bad_line_costs_no_other() {
    let (hba, reported) = parse("host all all all nonsense\nhost all all all trust\n\0\nlocal all all trust");
    assert_eq!((hba.rules.len(), reported.len()), (2, 2));
}

#[test]
fn an_address_outside_its_mask_matches_nobody_and_is_reported() {
    let (hba, reported) = parse("host all all 10.1.2.3/8 trust");
    assert_eq!(reported, ["hba:1: address does not match mask in hba line #1: 10.1.2.3 / 255.0.0.0"]);
    assert!(!hba.rules[0].addresses.contain("10.1.2.3".parse().unwrap()));
}

#[test]
fn the_machines_own_addresses_are_asked_for() {
    struct Machine;
    impl Files for Machine {
        fn read(&self, _: &str) -> io::Result<Vec<u8>> {
            Err(io::Error::from_raw_os_error(2))
        }
        fn networks(&self) -> Vec<Network> {
            let network = |address: &str, mask: &str| Network {
                address: address.parse().unwrap(),
                mask: mask.parse().unwrap(),
            };
            vec![network("10.1.2.3", "255.255.255.0"), network("fe80::5", "ffff:ffff:ffff:ffff::")]
        }
    }
    let text = "host all all samehost trust\nhost all all samenet md5";
    let (hba, reported) = Hba::parse(&Machine, &"hba".into(), text.as_bytes(), &IdentMaps::new(), false);
    assert!(reported.is_empty());
    let let_in = |rule: usize, address: &str| hba.rules[rule].addresses.contain(address.parse().unwrap());
    assert!(let_in(0, "10.1.2.3") && let_in(0, "fe80::5") && !let_in(0, "10.1.2.4"));
    assert!(let_in(1, "10.1.2.4") && let_in(1, "fe80::6") && !let_in(1, "10.1.3.4"));
}

#[test]
fn a_rule_by_the_machines_own_addresses_is_reported_where_they_are_unknown() {
    for word in ["samehost", "samenet"] {
        assert_eq!(why(&format!("host all all {word} trust")), "no address of this machine is known");
    }
}

#[test]
fn an_unreadable_file_rejects_all_logins() {
    let (hba, findings) = Hba::read(&Memory(&[]), "gone", &IdentMaps::new(), false);
    assert!(hba.rules.is_empty());
    let expected = "gone: could not open hba config file gone: No such file or directory";
    assert_eq!(findings[0].to_string(), expected);
}
