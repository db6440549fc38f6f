//! The file of quotas as it is written: its lines, and changes that leave the others as they are.

use crate::line::{Line, Members, RoleQuestion, Token, Tokens, kind_of, read_line, subject};
use crate::resource::Measure;
use crate::rules::{QuotaError, Rules};
use crate::subject::{Subject, SubjectKind, quoted};

/// What a change says of its subject and resource.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Order {
    Put(Line),
    /// The line is to be removed.
    Remove(Subject, Measure),
}

/// The file's text, to be edited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotasText {
    text: String,
}

impl QuotasText {
    /// A file with these bytes.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read(bytes: &[u8]) -> Result<(QuotasText, Rules), Vec<QuotaError>> {
        let rules = Rules::read(bytes)?;
        Ok((QuotasText { text: String::from_utf8_lossy(bytes).into_owned() }, rules))
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }

    /// Does what an order says: a line as in the file, which replaces the one of its subject and resource or is put behind the last line of its subject; with
    /// `none` in place of the limits that line is removed. The rules that follow are returned.
    ///
    /// ```
    /// let (mut text, _) = weir_quota::QuotasText::read(b"user a queries/day hard=5 # few\n").unwrap();
    /// text.change("user a queries/day soft=3 hard=9").unwrap();
    /// assert_eq!(text.bytes(), b"user a queries/day soft=3 hard=9 # few\n");
    /// text.change("user a queries/day none").unwrap();
    /// assert_eq!(text.bytes(), b"");
    /// ```
    ///
    /// # Errors
    /// What is wrong with the order; nothing is changed.
    pub fn change(&mut self, order: &str) -> Result<Rules, String> {
        if order.contains(['\n', '\r']) {
            return Err("more than one line".to_owned());
        }
        let order = read_order(order)?;
        let mut lines: Vec<String> = self.text.lines().map(str::to_owned).collect();
        let said: Vec<Line> = lines.iter().map(|line| read_line(line).unwrap_or(Line::Empty)).collect();
        let place = said.iter().position(|line| is_about(line, &order));
        match (&order, place) {
            (Order::Put(line), Some(place)) => {
                let comment =
                    comment_of(&lines[place]).map_or(String::new(), |comment| format!(" {comment}"));
                lines[place] = written(line) + &comment;
            }
            (Order::Put(line), None) => {
                let behind = said.iter().rposition(|other| has_same_subject(other, line));
                lines.insert(behind.map_or(lines.len(), |last| last + 1), written(line));
            }
            (Order::Remove(..), Some(place)) => drop(lines.remove(place)),
            (Order::Remove(subject, measure), None) => {
                return Err(format!("{subject} has no line for {measure}"));
            }
        }
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let rules = Rules::read(text.as_bytes())
            .map_err(|errors| errors.first().map_or(String::new(), |error| error.message.clone()))?;
        self.text = text;
        Ok(rules)
    }
}

fn read_order(order: &str) -> Result<Order, String> {
    let mut tokens = Tokens(order);
    let (kind, name) = (tokens.next()?, tokens.next()?);
    if let (Some(Token::Word(kind)), Some(_), Some(Token::Word(measure)), Some(Token::Word("none")), None) =
        (&kind, &name, tokens.next()?, tokens.next()?, tokens.next()?)
    {
        let kind = kind_of(kind)?;
        return Ok(Order::Remove(subject(kind, name)?, Measure::read(measure)?));
    }
    match read_line(order)? {
        Line::Empty => Err("a quota is expected: SUBJECT NAME RESOURCE soft=N hard=N".to_owned()),
        line => Ok(Order::Put(line)),
    }
}

fn is_about(line: &Line, order: &Order) -> bool {
    match (line, order) {
        (Line::Group(name, _), Order::Put(Line::Group(wanted, _))) => name == wanted,
        (
            Line::Limit(subject, measure, _),
            Order::Put(Line::Limit(wanted, of, _)) | Order::Remove(wanted, of),
        ) => subject == wanted && measure == of,
        _ => false,
    }
}

fn has_same_subject(line: &Line, other: &Line) -> bool {
    match (line, other) {
        (Line::Limit(subject, ..), Line::Limit(wanted, ..)) => subject == wanted,
        (Line::Group(name, _), Line::Limit(wanted, ..)) => {
            wanted.kind == SubjectKind::Group && wanted.name.as_ref() == Some(name)
        }
        _ => false,
    }
}

fn written(line: &Line) -> String {
    match line {
        Line::Empty => String::new(),
        Line::Group(name, Members::Role(RoleQuestion { role, entry })) => {
            let role = if role == name { String::new() } else { format!(" {}", quoted_role(role)) };
            let entry = entry.as_ref().map_or(String::new(), |entry| format!(" in {}", quoted(entry)));
            format!("group {} = role{role}{entry}", quoted(name))
        }
        Line::Group(name, Members::List(members)) => {
            let members: Vec<_> = members.iter().map(|member| quoted_member(member)).collect();
            format!("group {} = {}", quoted(name), members.join(", "))
        }
        Line::Limit(subject, measure, limit) => format!("{subject} {measure} {limit}"),
    }
}

/// `in` is a word of the line.
fn quoted_role(role: &str) -> String {
    if role == "in" { format!("\"{role}\"") } else { quoted(role) }
}

/// A list whose only member has the name of a word of the line.
fn quoted_member(member: &str) -> String {
    if member == "role" { format!("\"{member}\"") } else { quoted(member) }
}

/// What stands behind the last token of a line.
fn comment_of(line: &str) -> Option<&str> {
    let mut tokens = Tokens(line);
    while let Ok(Some(_)) = tokens.next() {}
    let rest = tokens.0.trim();
    rest.starts_with('#').then_some(rest)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const FILE: &str = "# quotas\n\ngroup staff = alice, \"the b\"\nuser alice queries/day soft=10 hard=20 # hers\n  \
        user default connections hard=3\ngroup staff bytes/month hard=1G grace=2d\n";

    fn changed(order: &str) -> Result<String, String> {
        let (mut text, _) = QuotasText::read(FILE.as_bytes()).unwrap();
        let outcome = text.change(order);
        let text = String::from_utf8(text.bytes().to_vec()).unwrap();
        if outcome.is_err() {
            assert_eq!(text, FILE);
        }
        outcome.map(|_| text)
    }

    #[test]
    fn a_change_leaves_other_lines_as_they_are() {
        let with = |from: &str, to: &str| FILE.replace(from, to);
        let hers = "user alice queries/day soft=10 hard=20 # hers\n";
        assert_eq!(
            changed("user alice queries/day hard=5 grace=1d").unwrap(),
            with("soft=10 hard=20", "soft=0 hard=5 grace=1d")
        );
        assert_eq!(changed("user alice queries/day none").unwrap(), with(hers, ""));
        assert_eq!(
            changed("user alice connections hard=5").unwrap(),
            with(hers, &format!("{hers}user alice connections soft=0 hard=5\n"))
        );
        assert_eq!(
            changed("database x connections soft=5").unwrap(),
            format!("{FILE}database x connections soft=5 hard=0\n")
        );
        assert_eq!(
            changed("group staff = bob").unwrap(),
            with("group staff = alice, \"the b\"", "group staff = bob")
        );
        assert_eq!(
            changed("user \"default\" connections soft=1").unwrap(),
            format!("{FILE}user \"default\" connections soft=1 hard=0\n")
        );
    }

    #[test]
    fn a_change_that_is_wrong_changes_nothing() {
        for (order, word) in [
            ("", "expected"),
            ("# x", "expected"),
            ("user alice queries/day soft=9 hard=5", "above the hard limit"),
            ("user bob queries/day none", "has no line"),
            ("user bob queries/day none none", "= and a figure"),
            ("group nobody connections hard=1", "has no list"),
            ("user a connections hard=1\nuser b connections hard=1", "more than one line"),
        ] {
            let why = changed(order).unwrap_err();
            assert!(why.contains(word), "{order}: {why}");
        }
    }
}
