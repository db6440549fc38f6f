//! A request that is refused without a server: what is answered to its messages, as PostgreSQL would answer them.
//!
//! Owns the order of the answers: the first message of an extended request gets the error, all that follows up to the Sync is skipped, and Sync is answered by
//! ReadyForQuery (PostgreSQL 54.2.4, pipelining). Requests behind it that are here already are refused, too. A Close is not: PostgreSQL refuses none, and drivers
//! take it for granted.

use wire::frame;
use wire::tag::frontend as tag;

/// A request that is being refused.
#[derive(Debug, Default)]
pub struct RefusedRequest {
    /// Its error is sent, and the Sync has not come.
    skips: bool,
}

/// What becomes of its next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedMessage {
    /// It is this long, in bytes, and is answered like this.
    Done(usize, RefusedAnswer),
    /// It is not here to its end.
    Incomplete,
    /// Another request begins, which is not refused.
    Spared,
    /// It is no message of a request, or cannot be read.
    Other,
}

/// What a message of a refused request is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedAnswer {
    /// Nothing.
    None,
    /// The error.
    Error,
    /// ReadyForQuery.
    Ready,
    /// Both.
    ErrorAndReady,
}

impl RefusedRequest {
    /// Whether a request that begins so can be refused.
    #[must_use]
    pub fn can_be(request: &[u8]) -> bool {
        request.first() != Some(&tag::CLOSE)
    }

    /// The next message of those that are here.
    pub fn next(&mut self, bytes: &[u8]) -> RefusedMessage {
        let header = match frame::header(bytes) {
            Ok(Some(header)) => header,
            Ok(None) => return RefusedMessage::Incomplete,
            Err(_) => return RefusedMessage::Other,
        };
        if bytes.len() < header.frame_bytes as usize {
            return RefusedMessage::Incomplete;
        }
        let answer = match header.tag {
            tag::SYNC => {
                self.skips = false;
                RefusedAnswer::Ready
            }
            tag::FLUSH | tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL => RefusedAnswer::None,
            tag::QUERY | tag::FUNCTION_CALL if !self.skips => RefusedAnswer::ErrorAndReady,
            tag::CLOSE if !self.skips => return RefusedMessage::Spared,
            tag::PARSE | tag::BIND | tag::DESCRIBE | tag::EXECUTE if !self.skips => {
                self.skips = true;
                RefusedAnswer::Error
            }
            tag::QUERY | tag::FUNCTION_CALL => RefusedAnswer::None,
            tag::PARSE | tag::BIND | tag::DESCRIBE | tag::EXECUTE | tag::CLOSE => RefusedAnswer::None,
            _ => return RefusedMessage::Other,
        };
        RefusedMessage::Done(header.frame_bytes as usize, answer)
    }

    /// Its error is sent, and what comes up to a Sync is skipped.
    #[must_use]
    pub fn skips(&self) -> bool {
        self.skips
    }
}

#[cfg(test)]
mod tests {
    use wire::encode;

    use super::*;

    fn answers(write: impl FnOnce(&mut Vec<u8>)) -> (Vec<RefusedAnswer>, RefusedMessage) {
        let (mut bytes, mut request, mut answers) = (Vec::new(), RefusedRequest::default(), Vec::new());
        write(&mut bytes);
        let mut at = 0;
        loop {
            match request.next(&bytes[at..]) {
                RefusedMessage::Done(length, answer) => {
                    at += length;
                    answers.push(answer);
                }
                last => return (answers, last),
            }
        }
    }

    #[test]
    fn what_follows_an_error_is_skipped_up_to_the_sync() {
        use RefusedAnswer::{Error, ErrorAndReady, None, Ready};
        let (answers, last) = answers(|out| {
            encode::query(out, b"select 1");
            encode::parse(out, b"", b"select 1", &[]);
            encode::flush(out);
            encode::query(out, b"select 2");
            encode::sync(out);
            encode::sync(out);
            encode::flush(out);
            encode::query(out, b"select 3");
            out.push(tag::QUERY);
        });
        assert_eq!(answers, [ErrorAndReady, Error, None, None, Ready, Ready, None, ErrorAndReady]);
        assert_eq!(last, RefusedMessage::Incomplete);
    }

    #[test]
    fn a_close_is_skipped_but_never_refused() {
        let close = |out: &mut Vec<u8>| encode::close(out, b'S', b"s");
        assert_eq!(answers(close), (vec![], RefusedMessage::Spared));
        let (answers, last) = answers(|out| {
            encode::parse(out, b"", b"select 1", &[]);
            close(out);
            encode::sync(out);
            close(out);
        });
        assert_eq!(answers, [RefusedAnswer::Error, RefusedAnswer::None, RefusedAnswer::Ready]);
        assert_eq!(last, RefusedMessage::Spared);
    }

    #[test]
    fn what_is_no_request_is_told() {
        assert_eq!(answers(encode::terminate).1, RefusedMessage::Other);
        assert_eq!(answers(|out| out.extend_from_slice(&[b'Q', 0, 0, 0, 3])).1, RefusedMessage::Other);
        assert_eq!(
            answers(|out| out.extend_from_slice(&[b'Q', 0, 0, 0, 9, 0])).1,
            RefusedMessage::Incomplete
        );
    }
}
