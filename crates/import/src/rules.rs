//! pool_hba.conf as Weir's rules: the grammar is the same, and so the lines are copied. Owns what becomes of a line that Weir does not take:
//! logins that it matches are rejected, for a later line could let them in by less.

use std::sync::Arc;

use settings::hba::{Addresses, Hba, Transport};
use settings::ident::IdentMaps;
use settings::{Files, Finding, Origin};

/// What became of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The rules.
    pub text: String,
    /// Lines that Weir does not take, and why.
    pub problems: Vec<Finding>,
}

/// Converts a file; `path` is its own, `target` that of the rules, beside which Weir looks for files of names (`@names`).
#[must_use]
pub fn rules(files: &dyn Files, path: &str, target: &str, bytes: &[u8]) -> Rules {
    let (file, target): (Arc<str>, Arc<str>) = (path.into(), target.into());
    let mut rules = Rules { text: String::new(), problems: Vec::new() };
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (text, refused) = converted(files, &target, line);
        rules.text.push_str(&text);
        if let Some(why) = refused {
            let at = Origin { file: file.clone(), line: u32::try_from(index + 1).unwrap_or(u32::MAX) };
            rules.problems.push(Finding::warning(&at, why));
        }
    }
    // What follows the last line feed is no line.
    if bytes.ends_with(b"\n") {
        rules.text.pop();
    }
    rules
}

/// What stands for a line, and why that is not the line itself.
fn converted(files: &dyn Files, target: &Arc<str>, line: &[u8]) -> (String, Option<String>) {
    let read = |line: &[u8]| Hba::parse(files, target, line, &IdentMaps::default(), false);
    let (hba, findings) = read(line);
    let text = String::from_utf8_lossy(line);
    if findings.is_empty() {
        return (format!("{text}\n"), None);
    }
    let whys: Vec<&str> = findings.iter().map(|finding| reason(&finding.message)).collect();
    let why = whys.join("; ").replace(char::is_control, "?");
    // Weir keeps a rule whose LDAP options are wrong, and rejects the logins that it matches; one without an address matches none.
    if hba.rules.iter().any(|rule| rule.addresses != Addresses::Networks(Vec::new())) {
        return (format!("{text}\n"), Some(format!("Weir warns: {why}")));
    }
    let words: Vec<&str> = text.split('#').next().unwrap_or_default().split_whitespace().collect();
    let candidates = [3, 4, 5].into_iter().filter_map(|count| words.get(..count));
    let rejecting = candidates.map(|words| format!("{} reject", words.join(" "))).find(|text| {
        let (hba, findings) = read(text.as_bytes());
        hba.rules.len() == 1 && findings.is_empty() && is_as_wide(words.first(), hba.rules[0].transport)
    });
    let shown = text.replace(|letter: char| letter.is_control() && letter != '\t', "?");
    let refused = format!("# Weir does not take this line: {why}\n# {shown}\n");
    match rejecting {
        Some(text) => (
            format!("{refused}{text}\n"),
            Some(format!("Weir does not take this line ({why}): the logins that it matches are rejected")),
        ),
        None => {
            let all = if words.first() == Some(&"local") {
                "local all all reject"
            } else {
                "local all all reject\nhost all all all reject"
            };
            (
                format!("{refused}{all}\n"),
                Some(format!(
                    "Weir does not take this line ({why}): ALL logins that no line before it matches are rejected"
                )),
            )
        }
    }
}

/// The rule is of the kind that the line began with.
fn is_as_wide(word: Option<&&str>, transport: Transport) -> bool {
    let kind = match transport {
        Transport::Local => "local",
        Transport::Host => "host",
        Transport::HostSsl => "hostssl",
        Transport::HostNoSsl => "hostnossl",
    };
    word == Some(&kind)
}

/// Without the number of the line, which is that of a line alone.
fn reason(message: &str) -> &str {
    let message = message.strip_prefix("hba line 1: ").unwrap_or(message);
    message.split("; could not parse hba config line").next().unwrap_or(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Memory;

    fn convert(text: &str) -> (String, Vec<String>) {
        let files = [("out/names", "alice\n"), ("etc/others", "bob\n")];
        let rules = rules(&Memory(&files), "etc/pool_hba.conf", "out/weir_hba.conf", text.as_bytes());
        (rules.text, rules.problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn lines_that_weir_takes_are_copied() {
        let text = "# TYPE  DATABASE USER\n\nlocal\tall all trust\nhost all @names 10.0.0.0/8 scram-sha-256 # x\nhostssl a \"b c\" 10.0.0.0 255.0.0.0 md5\n";
        assert_eq!(convert(text), (text.to_owned(), vec![]));
        assert_eq!(convert("local all all trust").0, "local all all trust\n");
        assert_eq!(convert("local all all trust\r\n").0, "local all all trust\n");
    }

    #[test]
    fn a_line_that_weir_does_not_take_lets_nobody_in_by_a_later_one() {
        for (line, instead) in [
            ("host all all 10.0.0.0/8 pam pamservice=x", "host all all 10.0.0.0/8 reject"),
            ("host all all 10.0.0.0 255.0.0.0 pam", "host all all 10.0.0.0 255.0.0.0 reject"),
            ("local all all pam # y", "local all all reject"),
            ("hostssl a b ::1/128 gss", "hostssl a b ::1/128 reject"),
            ("host all all db.example.com md5", "local all all reject\nhost all all all reject"),
            ("local all @others md5", "local all all reject"), // Weir would not find them beside its own file.
            ("local all @gone md5", "local all all reject"),
            ("host all all 10.0.0.1/8 md5", "local all all reject\nhost all all all reject"),
            ("frob", "local all all reject\nhost all all all reject"),
        ] {
            let (text, problems) = convert(&format!("{line}\nhost all all all trust\n"));
            let kept: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
            assert_eq!(kept.join("\n"), format!("{instead}\nhost all all all trust"), "{line}");
            assert!(text.contains(&format!("# {line}")), "{text}");
            assert!(problems.len() == 1 && problems[0].starts_with("etc/pool_hba.conf:1: "), "{problems:?}");
        }
    }
}
