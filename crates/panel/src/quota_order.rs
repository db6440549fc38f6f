//! A change of a limit as the API is given it: read, checked, and written as a line for SET QUOTA.
//! Owns which field of a request is to blame for what is wrong with it. The words and rules are the `quota` crate's.

use quota::{Measure, Rules, Subject, SubjectKind};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::failure::Failure;

/// A figure as `quotas_file` has it.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Figure {
    /// 0 is none; of a grace time, seconds.
    Number(u64),
    /// With a unit behind it: `500G` of bytes, `7d` of a grace time.
    Text(String),
}

/// What a limit is to be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuotaLimits {
    /// May be exceeded for the grace time; 0, and where it is left out: none.
    #[serde(default)]
    #[schema(value_type = Option<Figure>)]
    soft: Option<Figure>,
    /// May not be exceeded; 0, and where it is left out: none.
    #[serde(default)]
    #[schema(value_type = Option<Figure>)]
    hard: Option<Figure>,
    /// How long the soft limit may be exceeded: seconds, or a number with s, m, h, d or w; 0 does not end; seven days where it is left out.
    #[serde(default)]
    #[schema(value_type = Option<Figure>)]
    grace: Option<Figure>,
}

/// Whose limit for what.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct QuotaKey {
    pub(crate) subject: Subject,
    pub(crate) measure: Measure,
}

impl QuotaKey {
    /// Reads the words of an address; without a name it is the default of its kind.
    ///
    /// # Errors
    /// The word that is wrong.
    pub(crate) fn read(kind: &str, name: Option<&str>, measure: &str) -> Result<QuotaKey, Failure> {
        let Some(kind) = SubjectKind::of(kind) else {
            let words: Vec<&str> = SubjectKind::ALL.into_iter().map(SubjectKind::word).collect();
            return Err(Failure::invalid("subject", format!("subject is one of {}", words.join(", "))));
        };
        let measure = Measure::read(measure).map_err(|why| Failure::invalid("measure", why))?;
        let subject = name.map_or_else(|| Subject::default_of(kind), |name| Subject::named(kind, name));
        if let Some(name) = name {
            // A group would have to have members, too.
            let line = format!("{} connections hard=1", Subject::named(SubjectKind::User, name));
            if let Some(why) = fault_of(&line) {
                return Err(Failure::invalid("name", why));
            }
        }
        Ok(QuotaKey { subject, measure })
    }

    /// The line that removes the limit.
    pub(crate) fn removal(&self) -> String {
        format!("{} {} none", self.subject, self.measure)
    }

    /// The line that sets it.
    ///
    /// # Errors
    /// What is wrong with the limits.
    pub(crate) fn setting(&self, limits: &QuotaLimits) -> Result<String, Failure> {
        let mut words = String::new();
        let fields = [("soft", &limits.soft), ("hard", &limits.hard), ("grace", &limits.grace)];
        for (field, figure) in fields {
            let text = match (figure, field) {
                (Some(figure), _) => figure.word(field)?,
                (None, "grace") => continue,
                (None, _) => "0".to_owned(),
            };
            words.push_str(&format!(" {field}={text}"));
        }
        if let Some(why) = fault_of(&format!("user x {}{words}", self.measure)) {
            let field = ["hard", "grace"].into_iter().find(|field| why.starts_with(&format!("{field}: ")));
            return Err(Failure::invalid(field.unwrap_or("soft"), why));
        }
        Ok(format!("{} {}{words}", self.subject, self.measure))
    }
}

impl Figure {
    /// The word of a line; one that could be more than a word is refused.
    fn word(&self, field: &'static str) -> Result<String, Failure> {
        match self {
            Figure::Number(number) => Ok(number.to_string()),
            Figure::Text(text) if !text.is_empty() && text.chars().all(char::is_alphanumeric) => {
                Ok(text.clone())
            }
            Figure::Text(text) => Err(Failure::invalid(
                field,
                format!(
                    "{field}: invalid figure \"{text}\": must be a whole number of 0 or more, with its unit behind it or not"
                ),
            )),
        }
    }
}

/// What is wrong with a line by itself.
fn fault_of(line: &str) -> Option<String> {
    Rules::read(line.as_bytes()).err().and_then(|errors| errors.into_iter().next()).map(|error| error.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(json: &str) -> QuotaLimits {
        serde_json::from_str(json).expect("limits")
    }

    fn key() -> QuotaKey {
        QuotaKey::read("user", Some("al ice"), "bytes/day").expect("a key")
    }

    #[test]
    fn a_change_is_a_line_of_the_file() {
        let line = |json| key().setting(&limits(json)).ok();
        assert_eq!(
            line(r#"{"soft": 5, "hard": "1K", "grace": "2h"}"#).as_deref(),
            Some("user \"al ice\" bytes/day soft=5 hard=1K grace=2h")
        );
        assert_eq!(line("{}").as_deref(), Some("user \"al ice\" bytes/day soft=0 hard=0"));
        assert_eq!(key().removal(), "user \"al ice\" bytes/day none");
        let default = QuotaKey::read("database", None, "connections").expect("a key");
        assert_eq!(default.removal(), "database default connections none");
        let named_so = QuotaKey::read("database", Some("default"), "connections").expect("a key");
        assert_eq!(named_so.removal(), "database \"default\" connections none");
    }

    #[test]
    fn what_is_wrong_is_a_fault_of_its_field() {
        for (json, field) in [
            (r#"{"soft": 9, "hard": 5}"#, "soft"),
            (r#"{"hard": "many"}"#, "hard"),
            (r#"{"hard": "5 grace=0"}"#, "hard"),
            (r#"{"soft": ""}"#, "soft"),
            (r#"{"soft": "5\nuser bob connections hard=0"}"#, "soft"),
            (r#"{"soft": 5, "grace": "4000d"}"#, "grace"),
            (r#"{"hard": "99999999T"}"#, "hard"),
        ] {
            let failure = key().setting(&limits(json)).expect_err(json);
            assert_eq!((failure.code(), failure.field()), (422, Some(field)), "{json}: {failure}");
        }
        for (kind, name, measure, field) in [
            ("users", Some("a"), "connections", "subject"),
            ("user", Some(""), "connections", "name"),
            ("group", Some("a\nb"), "connections", "name"),
            ("user", Some("a"), "queries", "measure"),
            ("user", Some("a"), "frob/day", "measure"),
        ] {
            let failure = QuotaKey::read(kind, name, measure).expect_err(measure);
            assert_eq!((failure.code(), failure.field()), (422, Some(field)), "{failure}");
        }
    }
}
