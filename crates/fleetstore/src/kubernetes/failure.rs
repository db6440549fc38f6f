//! Why the API server did not do what it was asked, in plain words.

use std::error::Error;
use std::fmt;

use http::StatusCode;
use serde_json::Value;

/// As much of the API server's own words as messages have.
const WORDS: usize = 400;

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No answer: the network's or the API server's fault.
    Transport(String),
    /// The token cannot be read, or cannot be sent: the file's fault.
    Token(String),
    /// The API server's refusal, with its own words.
    Refused(StatusCode, String),
    /// An answer that has no meaning.
    Answer(String),
}

impl Failure {
    /// Of a connection.
    pub(crate) fn transport(why: &(dyn Error + 'static)) -> Failure {
        let mut texts = vec![why.to_string()];
        let mut next = why.source();
        while let Some(error) = next {
            let text = error.to_string();
            if !texts.iter().any(|earlier| earlier.contains(&text)) {
                texts.push(text);
            }
            next = error.source();
        }
        Failure::Transport(texts.join(": "))
    }

    pub(crate) fn answer(message: &str) -> Failure {
        Failure::Answer(message.to_owned())
    }

    /// Of an answer with a status that is none of success: a `Status` of Kubernetes, or what a proxy says.
    pub(crate) fn refused(status: StatusCode, body: &[u8]) -> Failure {
        let value: Option<Value> = serde_json::from_slice(body).ok();
        let message = value.as_ref().and_then(|value| value.get("message")).and_then(Value::as_str);
        let words: String = message.unwrap_or_default().chars().take(WORDS).collect();
        Failure::Refused(status, words)
    }

    pub(crate) fn has_status(&self, wanted: StatusCode) -> bool {
        matches!(self, Failure::Refused(status, _) if *status == wanted)
    }

    /// Another revision, or another object of this name.
    pub(crate) fn is_conflict(&self) -> bool {
        self.has_status(StatusCode::CONFLICT)
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.has_status(StatusCode::NOT_FOUND)
    }

    /// The API server has not answered.
    pub(crate) fn is_of_transport(&self) -> bool {
        matches!(self, Failure::Transport(_))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure::Refused(status, message) = self else {
            let (Failure::Transport(why) | Failure::Token(why) | Failure::Answer(why)) = self else {
                return Ok(());
            };
            return out.write_str(why);
        };
        match *status {
            StatusCode::UNAUTHORIZED => out.write_str("the token is not valid (401 Unauthorized)"),
            StatusCode::FORBIDDEN => {
                write!(out, "the Role does not allow it (docs/fleet.md has one that does): {message}")
            }
            status if message.is_empty() => write!(out, "the answer is {status}"),
            status => write!(out, "the answer is {status}: {message}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_api_servers_words() {
        let body = br#"{"kind":"Status","message":"leases is forbidden: User \"x\" cannot list","code":403}"#;
        let text = Failure::refused(StatusCode::FORBIDDEN, body).to_string();
        assert!(
            text.ends_with("leases is forbidden: User \"x\" cannot list") && text.contains("Role"),
            "{text}"
        );
        let gateway = Failure::refused(StatusCode::BAD_GATEWAY, b"<html>");
        assert_eq!(gateway.to_string(), "the answer is 502 Bad Gateway");
        let unknown = Failure::refused(StatusCode::UNAUTHORIZED, body);
        assert!(unknown.to_string().contains("401") && !unknown.is_of_transport());
    }
}
