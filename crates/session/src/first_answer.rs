//! How a standby begins to answer a read (`read_write_split`), and whether the request may be sent to the primary instead.
//!
//! Owns which errors of a standby the primary would not have, and that nothing of an answer that is dropped has been passed on. PostgreSQL: Hot Standby;
//! PostgreSQL Error Codes.

use wire::frame::{self, HEADER_BYTES};
use wire::tag::backend;
use wire::{error, sqlstate};

/// An answer that has not said anything by then is passed on.
const MAX_BYTES: usize = 64 * 1024;

/// A ReadyForQuery outside a transaction, which ends most answers.
const IDLE: [u8; 6] = [backend::READY, 0, 0, 0, 5, b'I'];

/// The beginning of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstAnswer {
    /// More has to come before it can be told.
    Open,
    /// It is the client's.
    Passed,
    /// An error that the primary would not have, before the first row; or the end of the standby, in the bytes that begin with it.
    Refused(Refusal),
}

/// Why a standby has not run a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What it is due to.
    pub cause: Cause,
    /// The standby's SQLSTATE and message.
    pub text: String,
    /// What comes of the connection.
    pub connection: AfterRefusal,
}

/// What comes of a standby's connection behind a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterRefusal {
    /// It goes on.
    GoesOn,
    /// The standby ends it.
    EndedByStandby,
    /// It is to be closed: the session may have some of its client's settings, of which the standby has refused one.
    SettingsRefused,
}

/// What a refusal is due to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The statement writes after all, or asks for what a server in recovery has not.
    Statement,
    /// The session asks for what no standby has, as serializable isolation, or for what this one does not have yet, as a role.
    Session,
    /// A conflict with what is replayed, the end of the standby, or something that it has not replayed yet.
    Moment,
}

impl Refusal {
    /// A standby has answered a setting of its client's with an error of this body. Unless the standby ends, or what it replays was in the way, it
    /// would refuse that again.
    #[must_use]
    pub fn of_setting(body: &[u8]) -> Refusal {
        if let Some(ending) = refusal(body).filter(Refusal::ends_connection) {
            return ending;
        }
        let fields = error::parse(body);
        let conflicts = [sqlstate::SERIALIZATION_FAILURE, sqlstate::DEADLOCK_DETECTED];
        let is_conflict = conflicts.iter().any(|code| fields.code() == Some(code.as_bytes()));
        let cause = if is_conflict { Cause::Moment } else { Cause::Session };
        Refusal { cause, text: words(&fields), connection: AfterRefusal::SettingsRefused }
    }

    fn ends_connection(&self) -> bool {
        self.connection == AfterRefusal::EndedByStandby
    }
}

impl FirstAnswer {
    /// The bytes are a complete answer that is passed on to the client. If false, [`FirstAnswer::judge`] decides.
    #[inline]
    #[must_use]
    pub fn is_passed_whole(bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while let Ok(Some(header)) = frame::header(rest) {
            if !says_nothing(header.tag) {
                return header.tag != backend::ERROR && bytes.ends_with(&IDLE);
            }
            rest = rest.get(header.frame_bytes as usize..).unwrap_or_default();
        }
        false
    }

    /// What the bytes since the request was sent are. `leading_replies`: the number of replies, at their beginning, to settings that Weir has sent in front of the
    /// request.
    #[must_use]
    pub fn judge(bytes: &[u8], mut leading_replies: usize) -> FirstAnswer {
        let mut at = 0;
        loop {
            let header = match frame::header(bytes.get(at..).unwrap_or_default()) {
                Ok(Some(header)) => header,
                Ok(None) if bytes.len() < MAX_BYTES => return FirstAnswer::Open,
                Ok(None) | Err(_) => return FirstAnswer::Passed,
            };
            let is_rest_to_come = bytes.len() < MAX_BYTES;
            let body = bytes.get(at + HEADER_BYTES..at + header.frame_bytes as usize);
            match (header.tag, body) {
                (backend::ERROR, Some(body)) if leading_replies > 0 => {
                    return FirstAnswer::Refused(Refusal::of_setting(body));
                }
                (tag, Some(_)) if leading_replies > 0 => {
                    leading_replies -= usize::from(completes(tag));
                    at += header.frame_bytes as usize;
                }
                (_, None) if leading_replies > 0 && is_rest_to_come => return FirstAnswer::Open,
                (tag, _) if !says_nothing(tag) && tag != backend::ERROR => {
                    return ending(&bytes[at..]).map_or(FirstAnswer::Passed, FirstAnswer::Refused);
                }
                (_, None) if is_rest_to_come => return FirstAnswer::Open,
                (_, None) => return FirstAnswer::Passed,
                (backend::ERROR, Some(body)) => {
                    return refusal(body).map_or(FirstAnswer::Passed, FirstAnswer::Refused);
                }
                (_, Some(_)) => at += header.frame_bytes as usize,
            }
        }
    }
}

/// The end of the standby behind rows that came with it: between the last of them and ReadyForQuery a server that is stopped ends its connections, too.
fn ending(mut bytes: &[u8]) -> Option<Refusal> {
    if bytes.ends_with(&IDLE) {
        return None;
    }
    while let Ok(Some(header)) = frame::header(bytes) {
        let (message, rest) = bytes.split_at_checked(header.frame_bytes as usize)?;
        match header.tag {
            backend::READY => return None,
            backend::ERROR => {
                return refusal(&message[HEADER_BYTES..]).filter(Refusal::ends_connection);
            }
            _ => bytes = rest,
        }
    }
    None
}

/// The reply to a Parse, Bind, Execute or Close of a setting that Weir has sent in front of a request.
fn completes(tag: u8) -> bool {
    matches!(
        tag,
        backend::PARSE_COMPLETE
            | backend::BIND_COMPLETE
            | backend::COMMAND_COMPLETE
            | backend::CLOSE_COMPLETE
    )
}

/// What comes before the first row, and is the same from any server.
#[inline]
fn says_nothing(tag: u8) -> bool {
    matches!(
        tag,
        backend::PARSE_COMPLETE
            | backend::BIND_COMPLETE
            | backend::CLOSE_COMPLETE
            | backend::PARAMETER_DESCRIPTION
            | backend::ROW_DESCRIPTION
            | backend::NO_DATA
            | backend::NOTICE
            | backend::PARAMETER_STATUS
    )
}

/// The refusal in the body of an ErrorResponse, if it is one.
fn refusal(body: &[u8]) -> Option<Refusal> {
    let fields = error::parse(body);
    let connection = match fields.severity() {
        Some(b"FATAL" | b"PANIC") => AfterRefusal::EndedByStandby,
        _ => AfterRefusal::GoesOn,
    };
    let code = std::str::from_utf8(fields.code()?).ok()?;
    // A statement whose result has changed is prepared anew on the same server.
    if code == sqlstate::FEATURE_NOT_SUPPORTED && fields.field(b'R') == Some(b"RevalidateCachedQuery") {
        return None;
    }
    let cause = match code {
        sqlstate::READ_ONLY_TRANSACTION | sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE => Cause::Statement,
        sqlstate::FEATURE_NOT_SUPPORTED => Cause::Session,
        sqlstate::SERIALIZATION_FAILURE
        | sqlstate::DEADLOCK_DETECTED
        | sqlstate::ADMIN_SHUTDOWN
        | sqlstate::CRASH_SHUTDOWN
        | sqlstate::CANNOT_CONNECT_NOW => Cause::Moment,
        sqlstate::UNDEFINED_TABLE
        | sqlstate::UNDEFINED_COLUMN
        | sqlstate::UNDEFINED_OBJECT
        | sqlstate::UNDEFINED_FUNCTION
        | sqlstate::INVALID_SCHEMA_NAME => Cause::Moment,
        _ => return None,
    };
    Some(Refusal { cause, text: words(&fields), connection })
}

/// The SQLSTATE and message of an error.
fn words(fields: &error::ErrorFields<'_>) -> String {
    let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
    format!("{}: {}", text(fields.code()), text(fields.message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(severity: &str, code: &str, routine: &str) -> Vec<u8> {
        let mut body = Vec::new();
        for (kind, value) in [(b'S', severity), (b'V', severity), (b'C', code), (b'M', "no"), (b'R', routine)]
        {
            body.push(kind);
            body.extend_from_slice(value.as_bytes());
            body.push(0);
        }
        body.push(0);
        message(backend::ERROR, &body)
    }

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).expect("short");
        [&[tag][..], &length.to_be_bytes(), body].concat()
    }

    #[test]
    fn an_answer_is_told_by_its_first_row_or_error() {
        let before =
            [message(backend::PARSE_COMPLETE, b""), message(backend::ROW_DESCRIPTION, &[0, 0])].concat();
        assert_eq!(FirstAnswer::judge(&before, 0), FirstAnswer::Open);
        for (tag, body) in [
            (backend::DATA_ROW, &[0, 0][..]),
            (backend::COMMAND_COMPLETE, b"BEGIN\0"),
            (backend::COPY_OUT, b""),
        ] {
            let answer = [&before[..], &message(tag, body)].concat();
            assert_eq!(FirstAnswer::judge(&answer, 0), FirstAnswer::Passed);
        }
        let refused = [&before[..], &error("ERROR", "25006", "x")].concat();
        let expected = FirstAnswer::Refused(Refusal {
            cause: Cause::Statement,
            text: "25006: no".to_owned(),
            connection: AfterRefusal::GoesOn,
        });
        assert_eq!(FirstAnswer::judge(&refused, 0), expected);
        assert!(!FirstAnswer::is_passed_whole(&[&refused[..], &message(backend::READY, b"I")].concat()));
        for end in before.len()..refused.len() {
            assert_eq!(FirstAnswer::judge(&refused[..end], 0), FirstAnswer::Open, "{end}");
        }
    }

    #[test]
    fn a_standby_that_ends_behind_its_rows_has_not_answered() {
        let rows =
            [message(backend::DATA_ROW, &[0, 0]), message(backend::COMMAND_COMPLETE, b"SELECT 1\0")].concat();
        let ready = message(backend::READY, b"I");
        let end = error("FATAL", "57P01", "x");
        let judged = FirstAnswer::judge(&[&rows[..], &end].concat(), 0);
        assert!(matches!(&judged, FirstAnswer::Refused(refusal) if refusal.ends_connection()), "{judged:?}");
        let whole = [&rows[..], &ready].concat();
        assert!(FirstAnswer::is_passed_whole(&whole) && !FirstAnswer::is_passed_whole(&rows));
        for answer in [
            whole,
            [&rows[..], &ready, &end].concat(),
            [&rows[..], &end[..end.len() - 1]].concat(),
            [&rows[..], &error("ERROR", "40001", "x"), &ready].concat(),
            [&rows[..], &error("FATAL", "53300", "x")].concat(),
        ] {
            assert_eq!(FirstAnswer::judge(&answer, 0), FirstAnswer::Passed);
        }
    }

    #[test]
    fn only_what_the_primary_would_not_say_is_a_refusal() {
        let judge = |severity: &str, code: &str, routine: &str| match FirstAnswer::judge(
            &error(severity, code, routine),
            0,
        ) {
            FirstAnswer::Refused(refusal) => Some((refusal.ends_connection(), refusal.cause)),
            FirstAnswer::Open | FirstAnswer::Passed => None,
        };
        assert_eq!(judge("FATAL", "57P01", "x"), Some((true, Cause::Moment)));
        assert_eq!(judge("ERROR", "40001", "x"), Some((false, Cause::Moment)));
        assert_eq!(judge("ERROR", "42P01", "x"), Some((false, Cause::Moment)));
        assert_eq!(judge("ERROR", "0A000", "x"), Some((false, Cause::Session)));
        assert_eq!(judge("ERROR", "0A000", "RevalidateCachedQuery"), None);
        for code in ["22012", "57014", "26000"] {
            assert_eq!(judge("ERROR", code, "x"), None);
        }
    }

    #[test]
    fn what_never_says_anything_is_passed_on() {
        let notice = message(backend::NOTICE, &vec![0; 2 * MAX_BYTES]);
        assert_eq!(FirstAnswer::judge(&notice[..100], 0), FirstAnswer::Open);
        assert_eq!(FirstAnswer::judge(&notice[..MAX_BYTES], 0), FirstAnswer::Passed);
        assert_eq!(FirstAnswer::judge(&[backend::NOTICE, 0, 0, 0, 0], 0), FirstAnswer::Passed);
    }

    #[test]
    fn what_was_sent_in_front_of_a_request_is_not_its_answer() {
        let one = [
            message(backend::PARSE_COMPLETE, b""),
            message(backend::BIND_COMPLETE, b""),
            message(backend::DATA_ROW, &[0, 0]),
            message(backend::COMMAND_COMPLETE, b"SELECT 1\0"),
        ]
        .concat();
        let led = [&one[..], &one, &message(backend::CLOSE_COMPLETE, b"")].concat();
        let row = message(backend::DATA_ROW, &[0, 0]);
        for end in 0..=led.len() {
            assert_eq!(FirstAnswer::judge(&led[..end], 7), FirstAnswer::Open, "{end}");
        }
        assert_eq!(FirstAnswer::judge(&[&led[..], &row].concat(), 7), FirstAnswer::Passed);
        let is_refused =
            |bytes: &[&[u8]]| matches!(FirstAnswer::judge(&bytes.concat(), 7), FirstAnswer::Refused(_));
        assert!(is_refused(&[&led, &error("ERROR", "25006", "x")]));
        assert!(is_refused(&[&one, &error("FATAL", "57P01", "x")]));
        for (code, cause) in [("22023", Cause::Session), ("42704", Cause::Session), ("40001", Cause::Moment)]
        {
            let connection = AfterRefusal::SettingsRefused;
            let of_setting = Refusal { cause, text: format!("{code}: no"), connection };
            let judged = FirstAnswer::judge(&[&one[..], &error("ERROR", code, "x")].concat(), 7);
            assert_eq!(judged, FirstAnswer::Refused(of_setting));
        }
    }
}
