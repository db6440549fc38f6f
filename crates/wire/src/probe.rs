//! What must hold for any bytes a peer may send (I11 of ARCHITECTURE.md), as functions that panic when it does not.
//! Called by the fuzz targets and, over seeds and their mutations, by an ordinary test; never by the pooler.

use crate::frame::{self, BadLength, Frames, HEADER_BYTES, Splitter};
use crate::frontend::Found;
use crate::startup::First;
use crate::tag::{backend as from_server, frontend as from_client};
use crate::{backend, encode, error, frontend, rename, sasl, startup};

/// A first packet is complete at exactly one length, whatever follows it, and says all its bytes say: writing
/// what was read gives the same bytes.
///
/// # Panics
/// When that does not hold.
pub fn startup(bytes: &[u8]) {
    let answer = startup::first(bytes);
    let Ok(Some((first, packet_bytes))) = answer else {
        let at_four = startup::first(&bytes[..bytes.len().min(3)]);
        assert_eq!(at_four, Ok(None), "an answer before the length is here");
        return;
    };
    assert!((8..=startup::MAX_STARTUP_BYTES.min(bytes.len())).contains(&packet_bytes));
    for cut in 0..packet_bytes {
        assert_eq!(startup::first(&bytes[..cut]), Ok(None), "complete at {cut} of {packet_bytes}");
    }
    let packet = &bytes[..packet_bytes];
    assert_eq!(startup::first(packet), answer);
    let mut again = Vec::new();
    match first {
        First::Ssl => encode::ssl_request(&mut again),
        First::Gss => encode::gss_request(&mut again),
        First::Cancel(cancel) => encode::cancel_request(&mut again, cancel.process_id, cancel.secret),
        First::Startup(startup) => {
            let pairs: Vec<_> = startup.parameters().collect();
            for (name, _) in &pairs {
                let last = pairs.iter().rev().find(|(other, _)| other == name).map(|(_, value)| *value);
                let asked = std::str::from_utf8(name).map(|name| startup.parameter(name));
                assert!(asked.is_err() || asked == Ok(last));
            }
            encode::startup(&mut again, startup.version, &pairs);
        }
    }
    assert_eq!(again, packet);
}

/// A client's bytes fall into the same frames however they are cut; each name is found as soon as its NUL is
/// here and never changes; a statement renamed to its own name is the frame it was.
///
/// # Panics
/// When that does not hold.
pub fn frontend(bytes: &[u8]) {
    for (tag, body) in frames(bytes) {
        match tag {
            from_client::PARSE => parse(&body),
            from_client::BIND => bind(&body),
            from_client::DESCRIBE | from_client::CLOSE => target(tag, &body),
            from_client::QUERY => same(tag, &body, frontend::query_text(&body), encode::query),
            from_client::EXECUTE => same(tag, &body, frontend::execute(&body), |out, (portal, limit)| {
                encode::execute(out, portal, limit);
            }),
            from_client::PASSWORD => {
                same(tag, &body, frontend::password(&body), encode::password);
                let initial = sasl::initial_response(&body)
                    .and_then(|(mechanism, data)| Some((std::str::from_utf8(mechanism).ok()?, data?)));
                same(tag, &body, initial, |out, (mechanism, data)| {
                    encode::sasl_initial(out, mechanism, data)
                });
            }
            _ => {}
        }
    }
}

/// A server's bytes fall into the same frames however they are cut, and what a view reads is all there was:
/// writing it gives the same frame.
///
/// # Panics
/// When that does not hold.
pub fn backend(bytes: &[u8]) {
    for (tag, body) in frames(bytes) {
        let body = body.as_slice();
        match tag {
            from_server::AUTHENTICATION => authentication(body),
            from_server::KEY_DATA => same(tag, body, backend::key_data(body), |out, (process_id, secret)| {
                encode::key_data(out, process_id, secret);
            }),
            from_server::PARAMETER_STATUS => {
                same(tag, body, backend::parameter_status(body), |out, (name, value)| {
                    encode::parameter_status(out, name, value);
                });
            }
            from_server::READY => same(tag, body, backend::ready_status(body), encode::ready),
            from_server::DATA_ROW => same(tag, body, backend::data_row(body), |out, row| {
                encode::data_row(out, row);
            }),
            from_server::COMMAND_COMPLETE => {
                let text = backend::command_tag(body).and_then(|text| std::str::from_utf8(text).ok());
                same(tag, body, text, encode::command_complete);
            }
            from_server::NEGOTIATE => {
                let read = backend::negotiate(body).filter(|(version, _)| version.major == 3);
                same(tag, body, read, |out, (version, names)| encode::negotiate(out, version.minor, &names));
            }
            from_server::ERROR | from_server::NOTICE => fields(body),
            _ => {}
        }
    }
}

/// The whole frames in `bytes`, cut in three ways that must agree.
fn frames(bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let whole = collected(bytes, bytes.len().max(1));
    let step = 1 + usize::from(bytes.last().copied().unwrap_or(0) % 13);
    assert_eq!(whole, collected(bytes, step), "in steps of {step}");
    assert_eq!(whole, split(bytes, step), "split in steps of {step}");
    whole.0
}

type Outcome = (Vec<(u8, Vec<u8>)>, Option<BadLength>);

fn collected(bytes: &[u8], step: usize) -> Outcome {
    let mut collector = Frames::new(u32::MAX);
    let mut whole = Vec::new();
    for part in bytes.chunks(step) {
        collector.push(part);
        loop {
            match collector.pop() {
                Ok(Some(found)) => whole.push(found),
                Ok(None) => break,
                Err(fault) => return (whole, Some(fault)),
            }
        }
    }
    (whole, None)
}

fn split(bytes: &[u8], step: usize) -> Outcome {
    let mut splitter = Splitter::new();
    let (mut whole, mut body) = (Vec::new(), Vec::new());
    for mut part in bytes.chunks(step) {
        loop {
            match splitter.next(&mut part) {
                Ok(Some(piece)) => {
                    assert_eq!(piece.begins, piece.begins && body.is_empty());
                    body.extend_from_slice(piece.body);
                    if piece.ends {
                        whole.push((piece.header.tag, std::mem::take(&mut body)));
                    }
                }
                Ok(None) => break,
                Err(fault) => return (whole, Some(fault)),
            }
        }
    }
    (whole, None)
}

/// Frames `body` under `tag`.
fn framed(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let declared = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
    out.extend_from_slice(&declared.to_be_bytes());
    out.extend_from_slice(body);
    out
}

/// Writing what was read, if it was read, gives the frame it was read from.
fn same<T>(tag: u8, body: &[u8], read: Option<T>, write: impl FnOnce(&mut Vec<u8>, T)) {
    if let Some(read) = read {
        let mut again = Vec::new();
        write(&mut again, read);
        assert_eq!(again, framed(tag, body));
    }
}

/// Every prefix either asks for more or gives the answer the whole body gives.
fn steady<'a, T: PartialEq + std::fmt::Debug>(body: &'a [u8], find: impl Fn(&'a [u8]) -> Found<T>) {
    let answer = find(body);
    let mut answered = false;
    for cut in 0..body.len() {
        let part = find(&body[..cut]);
        assert!(part == answer || (part == Found::More && !answered), "{part:?} at {cut}, then {answer:?}");
        answered |= part != Found::More;
    }
}

fn parse(body: &[u8]) {
    steady(body, frontend::parse_name);
    let Some((name, rest)) = frontend::parse_name(body).complete() else { return };
    let original = framed(from_client::PARSE, body);
    if let Ok(Some(header)) = frame::header(&original) {
        let mut renamed = Vec::new();
        rename::parse(&mut renamed, header, name.len(), name);
        renamed.extend_from_slice(&body[rest..]);
        assert_eq!(renamed, original);
    }
    same(from_client::PARSE, body, frontend::parse_rest(&body[rest..]), |out, (query, types)| {
        encode::parse(out, name, query, &types.collect::<Vec<_>>());
    });
}

fn bind(body: &[u8]) {
    steady(body, frontend::bind_names);
    let Some((portal, statement, rest)) = frontend::bind_names(body).complete() else { return };
    let original = framed(from_client::BIND, body);
    if let Ok(Some(header)) = frame::header(&original) {
        let mut renamed = Vec::new();
        rename::bind(&mut renamed, header, portal, statement.len(), b"another");
        renamed.extend_from_slice(&body[rest..]);
        let declared = frame::header(&renamed).ok().flatten().map(|header| header.frame_bytes);
        assert_eq!(declared, u32::try_from(renamed.len()).ok());
        let names = frontend::bind_names(&renamed[HEADER_BYTES..]).complete();
        assert_eq!(names, Some((portal, &b"another"[..], portal.len() + 9)));
    }
}

fn target(tag: u8, body: &[u8]) {
    // The last byte is the NUL, so no shorter prefix can have the answer.
    for cut in 0..body.len() {
        let part = frontend::target(&body[..cut]);
        let whole = frontend::target(body).complete();
        assert!(whole.is_none() || part == Found::More, "{part:?} at {cut}");
    }
    same(tag, body, frontend::target(body).complete(), |out, (kind, name)| {
        rename::target(out, tag, kind, name);
    });
}

fn authentication(body: &[u8]) {
    use backend::Authentication as Read;
    same(from_server::AUTHENTICATION, body, backend::authentication(body), |out, read| match read {
        Read::Ok => encode::authentication_ok(out),
        Read::CleartextPassword => encode::authentication_cleartext(out),
        Read::Md5 { salt } => encode::authentication_md5(out, salt),
        Read::Sasl { mechanisms } => {
            let names = mechanisms.map(String::from_utf8_lossy).collect::<Vec<_>>();
            if names.iter().any(|name| name.contains(char::REPLACEMENT_CHARACTER)) {
                out.extend_from_slice(&framed(from_server::AUTHENTICATION, body));
            } else {
                encode::authentication_sasl(out, &names.iter().map(AsRef::as_ref).collect::<Vec<_>>());
            }
        }
        Read::SaslContinue(data) => encode::sasl_continue(out, data),
        Read::SaslFinal(data) => encode::sasl_final(out, data),
        Read::Other(_) => out.extend_from_slice(&framed(from_server::AUTHENTICATION, body)),
    });
}

/// The fields lie in the body one behind the other.
fn fields(body: &[u8]) {
    let read = error::parse(body);
    let mut again = Vec::new();
    for (kind, value) in read.fields() {
        again.push(kind);
        again.extend_from_slice(value);
        again.push(0);
    }
    assert!(body.starts_with(&again));
    assert_eq!(read.code().is_some(), read.fields().any(|(kind, _)| kind == b'C'));
    let _ = (read.severity(), read.message());
}
