//! How a standby begins to answer a read (`read_write_split`), and whether the request may be sent to the primary instead.
//!
//! Owns which errors of a standby the primary would not have, and that nothing of an answer that is dropped has been passed on. PostgreSQL: Hot Standby;
//! PostgreSQL Error Codes.

use wire::frame::{self, HEADER_BYTES};
use wire::frontend::{self, Found};
use wire::tag::{backend, frontend as tag};
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
    /// The connection ends with it.
    pub ends_connection: bool,
}

/// What a refusal is due to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The statement writes after all, or asks for what a server in recovery has not.
    Statement,
    /// The session asks for what no standby has, as serializable isolation.
    Session,
    /// A conflict with what is replayed, the end of the standby, or something that it has not replayed yet.
    Moment,
}

impl FirstAnswer {
    /// What the bytes since the request was sent are.
    #[must_use]
    pub fn judge(bytes: &[u8]) -> FirstAnswer {
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
                return refusal(&message[HEADER_BYTES..]).filter(|refusal| refusal.ends_connection);
            }
            _ => bytes = rest,
        }
    }
    None
}

/// What comes before the first row, and is the same from any server.
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
    let ends_connection = matches!(fields.severity(), Some(b"FATAL" | b"PANIC"));
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
    let message = String::from_utf8_lossy(fields.message().unwrap_or_default());
    Some(Refusal { cause, text: format!("{code}: {message}"), ends_connection })
}

/// This request, which is whole, leaves a client as it was as long as nothing of its answer was passed on: it prepares and closes no statement that has a name.
#[must_use]
pub fn is_repeatable(request: &[u8]) -> bool {
    let mut at = 0;
    while at < request.len() {
        let Ok(Some(header)) = frame::header(&request[at..]) else { return false };
        let Some(body) = request.get(at + HEADER_BYTES..at + header.frame_bytes as usize) else {
            return false;
        };
        let leaves_nothing = match header.tag {
            tag::QUERY | tag::BIND | tag::DESCRIBE | tag::EXECUTE | tag::SYNC => true,
            tag::PARSE => matches!(frontend::parse_name(body), Found::Yes((b"", _))),
            tag::CLOSE => matches!(frontend::target(body), Found::Yes((b'P', _))),
            _ => false,
        };
        if !leaves_nothing {
            return false;
        }
        at += header.frame_bytes as usize;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::encode;

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
        assert_eq!(FirstAnswer::judge(&before), FirstAnswer::Open);
        for (tag, body) in [
            (backend::DATA_ROW, &[0, 0][..]),
            (backend::COMMAND_COMPLETE, b"BEGIN\0"),
            (backend::COPY_OUT, b""),
        ] {
            let answer = [&before[..], &message(tag, body)].concat();
            assert_eq!(FirstAnswer::judge(&answer), FirstAnswer::Passed);
        }
        let refused = [&before[..], &error("ERROR", "25006", "x")].concat();
        let expected = FirstAnswer::Refused(Refusal {
            cause: Cause::Statement,
            text: "25006: no".to_owned(),
            ends_connection: false,
        });
        assert_eq!(FirstAnswer::judge(&refused), expected);
        for end in before.len()..refused.len() {
            assert_eq!(FirstAnswer::judge(&refused[..end]), FirstAnswer::Open, "{end}");
        }
    }

    #[test]
    fn a_standby_that_ends_behind_its_rows_has_not_answered() {
        let rows =
            [message(backend::DATA_ROW, &[0, 0]), message(backend::COMMAND_COMPLETE, b"SELECT 1\0")].concat();
        let ready = message(backend::READY, b"I");
        let end = error("FATAL", "57P01", "x");
        let judged = FirstAnswer::judge(&[&rows[..], &end].concat());
        assert!(matches!(&judged, FirstAnswer::Refused(refusal) if refusal.ends_connection), "{judged:?}");
        for answer in [
            [&rows[..], &ready].concat(),
            [&rows[..], &ready, &end].concat(),
            [&rows[..], &end[..end.len() - 1]].concat(),
            [&rows[..], &error("ERROR", "40001", "x"), &ready].concat(),
            [&rows[..], &error("FATAL", "53300", "x")].concat(),
        ] {
            assert_eq!(FirstAnswer::judge(&answer), FirstAnswer::Passed);
        }
    }

    #[test]
    fn only_what_the_primary_would_not_say_is_a_refusal() {
        let judge = |severity: &str, code: &str, routine: &str| match FirstAnswer::judge(&error(
            severity, code, routine,
        )) {
            FirstAnswer::Refused(refusal) => Some((refusal.ends_connection, refusal.cause)),
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
        assert_eq!(FirstAnswer::judge(&notice[..100]), FirstAnswer::Open);
        assert_eq!(FirstAnswer::judge(&notice[..MAX_BYTES]), FirstAnswer::Passed);
        assert_eq!(FirstAnswer::judge(&[backend::NOTICE, 0, 0, 0, 0]), FirstAnswer::Passed);
    }

    #[test]
    fn a_request_that_prepares_a_statement_is_not_repeatable() {
        let said = |name: &[u8], close: u8| {
            let mut bytes = Vec::new();
            encode::parse(&mut bytes, name, b"select 1", &[]);
            encode::bind_simple(&mut bytes, b"", name, &[]);
            encode::execute(&mut bytes, b"", 0);
            encode::close(&mut bytes, close, b"");
            encode::sync(&mut bytes);
            bytes
        };
        assert!(is_repeatable(&said(b"", b'P')));
        assert!(!is_repeatable(&said(b"s", b'P')) && !is_repeatable(&said(b"", b'S')));
        let mut query = Vec::new();
        encode::query(&mut query, b"select 1");
        assert!(is_repeatable(&query) && !is_repeatable(&query[..query.len() - 1]));
    }
}
