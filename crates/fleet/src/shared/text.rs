//! The text of a node's object of shared usage: the session that wrote it, and a line for each figure.
//!
//! `KIND AMOUNT BEGINS ENDS NAME`, with the name percent-encoded, since clients choose it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{UsageKind, UsageName};
use crate::SessionId;
use crate::text::{FORMAT, lines, read_session, shown};

/// No object has more figures.
pub(super) const MOST_FIGURES: usize = 4_096;
/// No object is written longer; a store of Kubernetes takes a mebibyte, encoded.
pub(super) const MOST_BYTES: usize = 256 * 1_024;
/// One that is longer is not read.
const MOST_READ_BYTES: usize = 2 * MOST_BYTES;
/// No name is longer, in bytes.
pub(super) const MOST_NAME_BYTES: usize = 1_024;
/// A period is no longer, in seconds.
const MOST_PERIOD_S: u64 = 32 * 86_400;

const KINDS: [(&str, UsageKind); 4] = [
    ("clients", UsageKind::Clients),
    ("database", UsageKind::Database),
    ("user", UsageKind::User),
    ("quota", UsageKind::Quota),
];

/// What a node has written that it uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) session: SessionId,
    pub(crate) amounts: BTreeMap<UsageName, u64>,
}

/// What of it cannot be read is the error.
pub(crate) fn read(contents: &[u8]) -> Result<Contents, String> {
    if contents.len() > MOST_READ_BYTES {
        return Err(format!("{} bytes, more than {MOST_READ_BYTES}", contents.len()));
    }
    let mut lines = lines(contents)?;
    let head = lines.next().unwrap_or_default();
    let session = head.strip_prefix("session ").and_then(read_session);
    let session = session.ok_or_else(|| format!("the usage of a node cannot be read: {}", shown(head)))?;
    let mut amounts = BTreeMap::new();
    for line in lines {
        let (name, amount) =
            read_figure(line).ok_or_else(|| format!("a figure cannot be read: {}", shown(line)))?;
        if amounts.len() >= MOST_FIGURES {
            return Err(format!("more than {MOST_FIGURES} figures"));
        }
        if amounts.insert(name, amount).is_some() {
            return Err(format!("a figure appears twice: {}", shown(line)));
        }
    }
    Ok(Contents { session, amounts })
}

fn read_figure(line: &str) -> Option<(UsageName, u64)> {
    let mut words = line.splitn(5, ' ');
    let word = words.next()?;
    let (_, kind) = KINDS.into_iter().find(|(known, _)| *known == word)?;
    let mut number = || words.next()?.parse::<u64>().ok();
    let (amount, begins_s, ends_s) = (number()?, number()?, number()?);
    let name = decoded(words.next()?)?;
    let is_period = begins_s < ends_s && ends_s - begins_s <= MOST_PERIOD_S && kind == UsageKind::Quota;
    let is_now = (begins_s, ends_s) == (0, 0);
    let name = UsageName { kind, name: name.as_str().into(), period_s: (begins_s, ends_s) };
    (is_period || is_now).then_some((name, amount))
}

pub(crate) fn write(contents: &Contents) -> Vec<u8> {
    let Contents { session, amounts } = contents;
    let mut text = format!("{FORMAT}\nsession {:016x}\n", session.0);
    amounts.iter().for_each(|(name, amount)| write_figure(name, *amount, &mut text));
    text.into_bytes()
}

fn write_figure(name: &UsageName, amount: u64, text: &mut String) {
    let word = KINDS.iter().find(|(_, kind)| *kind == name.kind).map_or("", |(word, _)| word);
    let (begins_s, ends_s) = name.period_s;
    // Writing to a string does not fail.
    let _ = write!(text, "{word} {amount} {begins_s} {ends_s} ");
    encode(&name.name, text);
    text.push('\n');
}

/// The bytes of a figure in the object.
pub(super) fn length(name: &UsageName, amount: u64) -> usize {
    let mut text = String::new();
    write_figure(name, amount, &mut text);
    text.len()
}

fn encode(name: &str, text: &mut String) {
    for letter in name.chars() {
        if letter == '%' || letter.is_control() || letter.is_whitespace() {
            for byte in letter.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(text, "%{byte:02X}");
            }
        } else {
            text.push(letter);
        }
    }
}

fn decoded(word: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut parts = word.split('%');
    bytes.extend(parts.next()?.bytes());
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend(rest.bytes());
    }
    String::from_utf8(bytes).ok().filter(|name| name.len() <= MOST_NAME_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(kind: UsageKind, name: &str, period_s: (u64, u64)) -> UsageName {
        UsageName { kind, name: name.into(), period_s }
    }

    #[test]
    fn figures_are_read_as_written_whatever_the_names() {
        let hostile = "a\nuser 9 0 0 b\r\n%0A \"q\" \u{2028}\u{85}\0é%";
        let amounts = BTreeMap::from([
            (name(UsageKind::Clients, "", (0, 0)), 3),
            (name(UsageKind::Database, hostile, (0, 0)), u64::MAX),
            (name(UsageKind::User, "", (0, 0)), 1),
            (name(UsageKind::Quota, "user alice queries/hour", (3_600, 7_200)), 12),
            (name(UsageKind::Quota, "user alice connections", (0, 0)), 2),
        ]);
        let contents = Contents { session: SessionId(0xab), amounts: amounts.clone() };
        let text = write(&contents);
        assert_eq!(read(&text), Ok(contents));
        let text = String::from_utf8_lossy(&text).into_owned();
        assert_eq!(text.lines().count(), 2 + amounts.len());
        assert!(
            text.lines().all(|line| !line.contains(char::is_control)),
            "it is shown in a line of a terminal"
        );
        assert!(text.starts_with("weir-fleet 1\nsession 00000000000000ab\nclients 3 0 0 \n"), "{text}");
        assert!(text.contains("\nquota 12 3600 7200 user%20alice%20queries/hour\n"), "{text}");
        assert!(text.lines().all(|line| line.split(' ').count() <= 5));
        let lengths: usize = amounts.iter().map(|(name, amount)| length(name, *amount)).sum();
        assert_eq!(lengths, text.len() - "weir-fleet 1\nsession 00000000000000ab\n".len());
    }

    #[test]
    fn what_is_not_of_this_format_is_refused() {
        let month_and_more = format!("quota 1 0 {} x", MOST_PERIOD_S + 1);
        for line in [
            "",
            "clients 1 0 0",
            "clients -1 0 0 ",
            "clients 18446744073709551616 0 0 ",
            "clients 1 0 3600 ",
            "quota 1 3600 3600 x",
            "quota 1 3600 0 x",
            month_and_more.as_str(),
            "other 1 0 0 x",
            "user 1 0 0 x%",
            "user 1 0 0 x%1",
            "user 1 0 0 x%+1",
            "user 1 0 0 x%ff",
            "user 1 0 0 x%é",
            "user 1 0 0 x\nuser 2 0 0 x",
        ] {
            let text = format!("weir-fleet 1\nsession 0000000000000001\n{line}\n");
            assert!(read(text.as_bytes()).is_err(), "{line:?}");
        }
        let long = format!(
            "weir-fleet 1\nsession 0000000000000001\nuser 1 0 0 {}\n",
            "x".repeat(MOST_NAME_BYTES + 1)
        );
        assert!(read(long.as_bytes()).is_err());
        for text in
            ["", "weir-fleet 2\nsession 0000000000000001\n", "weir-fleet 1\n", "weir-fleet 1\nsession 1\n"]
        {
            assert!(read(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(read(&[0xff]).is_err());
        assert!(read(&vec![b'\n'; MOST_READ_BYTES + 1]).is_err());
        let many = (0..=MOST_FIGURES).map(|number| (name(UsageKind::User, &number.to_string(), (0, 0)), 1));
        assert!(read(&write(&Contents { session: SessionId(1), amounts: many.collect() })).is_err());
    }
}
