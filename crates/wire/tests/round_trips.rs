//! Over generated values: what is written reads back as it was, however the bytes are cut on the way.
#![allow(clippy::unwrap_used, missing_docs)]

use proptest::collection::vec;
use proptest::prelude::*;

use wire::backend::{self, Authentication, Status};
use wire::frame::{self, Frames, HEADER_BYTES};
use wire::frontend::{self, Found};
use wire::startup::{self, First, Version};
use wire::{encode, error, probe, rename, sasl, tag};

/// A string the wire can hold.
fn text() -> impl Strategy<Value = Vec<u8>> {
    vec(1..=u8::MAX, 0..40)
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    vec(1..=u8::MAX, 1..40)
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..300)
}

/// The only frame in `bytes`.
fn sole_frame(bytes: &[u8]) -> (u8, Vec<u8>) {
    let mut frames = Frames::new(u32::MAX);
    frames.push(bytes);
    let found = frames.pop().unwrap().unwrap();
    assert!(frames.unread().is_empty());
    found
}

fn encoded(write: impl FnOnce(&mut Vec<u8>)) -> (u8, Vec<u8>) {
    let mut out = Vec::new();
    write(&mut out);
    sole_frame(&out)
}

proptest! {
    #[test]
    fn frames_are_the_same_wherever_the_input_is_cut(
        bodies in vec((any::<u8>(), bytes()), 0..8),
        cuts in vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut input = Vec::new();
        for (tag, body) in &bodies {
            input.push(*tag);
            input.extend_from_slice(&u32::try_from(body.len() + 4).unwrap().to_be_bytes());
            input.extend_from_slice(body);
        }
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
        cuts.extend([0, input.len()]);
        cuts.sort_unstable();
        let (mut frames, mut found) = (Frames::new(u32::MAX), Vec::new());
        let (mut splitter, mut pieces) = (frame::Splitter::new(), Vec::<(u8, Vec<u8>)>::new());
        for cut in cuts.windows(2) {
            let mut part = &input[cut[0]..cut[1]];
            frames.push(part);
            while let Some(frame) = frames.pop().unwrap() {
                found.push(frame);
            }
            while let Some(piece) = splitter.next(&mut part).unwrap() {
                if piece.begins {
                    pieces.push((piece.header.tag, Vec::new()));
                }
                pieces.last_mut().unwrap().1.extend_from_slice(piece.body);
            }
        }
        prop_assert!(splitter.is_between_frames());
        prop_assert_eq!(&found, &bodies);
        prop_assert_eq!(&pieces, &bodies);
    }

    #[test]
    fn any_first_packet_is_read_or_refused(bytes in bytes()) {
        probe::startup(&bytes);
    }

    #[test]
    fn any_packet_of_a_plausible_length_is_read_or_refused(code in 0x2_ffff_u32..0x3_0004, rest in bytes()) {
        let mut packet = u32::try_from(rest.len() + 8).unwrap().to_be_bytes().to_vec();
        packet.extend_from_slice(&code.to_be_bytes());
        packet.extend_from_slice(&rest);
        probe::startup(&packet);
    }

    #[test]
    fn startups_read_back_and_only_when_complete(
        minor in any::<u16>(),
        pairs in vec((name(), text()), 0..10),
        after in bytes(),
    ) {
        let version = Version { major: 3, minor };
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        let mut packet = Vec::new();
        encode::startup(&mut packet, version, &pairs);
        for cut in 0..packet.len() {
            prop_assert_eq!(startup::first(&packet[..cut]), Ok(None));
        }
        let packet_bytes = packet.len();
        packet.extend_from_slice(&after);
        let Ok(Some((First::Startup(read), consumed))) = startup::first(&packet) else {
            return Err(TestCaseError::fail("no startup"));
        };
        prop_assert_eq!((read.version, consumed), (version, packet_bytes));
        prop_assert_eq!(read.parameters().collect::<Vec<_>>(), pairs);
    }

    #[test]
    fn names_are_found_in_the_first_prefix_that_holds_them(
        portal in text(), statement in text(), query in text(), values in vec(proptest::option::of(bytes()), 0..4),
    ) {
        let (_, body) = encoded(|out| encode::parse(out, &statement, &query, &[]));
        for cut in 0..=body.len() {
            let expected = if cut > statement.len() {
                Found::Yes((&statement[..], statement.len() + 1))
            } else {
                Found::More
            };
            prop_assert_eq!(frontend::parse_name(&body[..cut]), expected);
        }
        let values: Vec<_> = values.iter().map(Option::as_deref).collect();
        let (_, body) = encoded(|out| encode::bind_simple(out, &portal, &statement, &values));
        let names_bytes = portal.len() + statement.len() + 2;
        for cut in 0..=body.len() {
            let expected = if cut >= names_bytes {
                Found::Yes((&portal[..], &statement[..], names_bytes))
            } else {
                Found::More
            };
            prop_assert_eq!(frontend::bind_names(&body[..cut]), expected);
        }
        let (_, body) = encoded(|out| encode::describe(out, b'S', &statement));
        for cut in 0..body.len() {
            prop_assert_eq!(frontend::target(&body[..cut]), Found::More);
        }
        prop_assert_eq!(frontend::target(&body), Found::Yes((b'S', &statement[..])));
    }

    #[test]
    fn renaming_is_writing_with_the_other_name(
        old in text(), new in text(), portal in text(), query in text(), oids in vec(any::<u32>(), 0..5),
        values in vec(proptest::option::of(bytes()), 0..4),
    ) {
        let (mut before, mut after, mut renamed) = (Vec::new(), Vec::new(), Vec::new());
        encode::parse(&mut before, &old, &query, &oids);
        encode::parse(&mut after, &new, &query, &oids);
        let header = frame::header(&before).unwrap().unwrap();
        rename::parse(&mut renamed, header, old.len(), &new);
        renamed.extend_from_slice(&before[HEADER_BYTES + old.len() + 1..]);
        prop_assert_eq!(&renamed, &after);

        before.clear();
        after.clear();
        renamed.clear();
        let values: Vec<_> = values.iter().map(Option::as_deref).collect();
        encode::bind_simple(&mut before, &portal, &old, &values);
        encode::bind_simple(&mut after, &portal, &new, &values);
        let header = frame::header(&before).unwrap().unwrap();
        rename::bind(&mut renamed, header, &portal, old.len(), &new);
        renamed.extend_from_slice(&before[HEADER_BYTES + portal.len() + old.len() + 2..]);
        prop_assert_eq!(&renamed, &after);
    }

    #[test]
    fn what_a_client_says_reads_back(text in text(), data in bytes(), limit in any::<u32>()) {
        let (tag, body) = encoded(|out| encode::query(out, &text));
        prop_assert_eq!((tag, frontend::query_text(&body)), (tag::frontend::QUERY, Some(&text[..])));
        let (tag, body) = encoded(|out| encode::password(out, &text));
        prop_assert_eq!((tag, frontend::password(&body)), (tag::frontend::PASSWORD, Some(&text[..])));
        let (_, body) = encoded(|out| encode::execute(out, &text, limit));
        prop_assert_eq!(frontend::execute(&body), Some((&text[..], limit)));
        let (_, body) = encoded(|out| encode::sasl_initial(out, "SCRAM-SHA-256", &data));
        prop_assert_eq!(sasl::initial_response(&body), Some((&b"SCRAM-SHA-256"[..], Some(&data[..]))));
        let (tag, body) = encoded(|out| encode::sasl_response(out, &data));
        prop_assert_eq!((tag, &body), (tag::frontend::PASSWORD, &data));
    }

    #[test]
    fn what_a_server_says_reads_back(
        first in text(), second in text(), data in bytes(), number in any::<u32>(),
        secret in vec(any::<u8>(), 4..=256), row in vec(proptest::option::of(bytes()), 0..20),
    ) {
        let (_, body) = encoded(|out| encode::parameter_status(out, &first, &second));
        prop_assert_eq!(backend::parameter_status(&body), Some((&first[..], &second[..])));
        let (_, body) = encoded(|out| encode::key_data(out, number, &secret));
        prop_assert_eq!(backend::key_data(&body), Some((number, &secret[..])));
        let (_, body) = encoded(|out| encode::authentication_md5(out, number.to_be_bytes()));
        let salt = number.to_be_bytes();
        prop_assert_eq!(backend::authentication(&body), Some(Authentication::Md5 { salt }));
        let (_, body) = encoded(|out| encode::sasl_continue(out, &data));
        prop_assert_eq!(backend::authentication(&body), Some(Authentication::SaslContinue(&data)));
        let (_, body) = encoded(|out| encode::sasl_final(out, &data));
        prop_assert_eq!(backend::authentication(&body), Some(Authentication::SaslFinal(&data)));
        let row: Vec<_> = row.iter().map(Option::as_deref).collect();
        let (_, body) = encoded(|out| encode::data_row(out, row.iter().copied()));
        prop_assert_eq!(backend::data_row(&body).unwrap().collect::<Vec<_>>(), row);
        let minor = salt[0].into();
        let (_, body) = encoded(|out| encode::negotiate(out, minor, &[&first, &second]));
        let expected = (Version { major: 3, minor }, vec![&first[..], &second[..]]);
        prop_assert_eq!(backend::negotiate(&body), Some(expected));
    }

    #[test]
    fn errors_read_back(message in "[^\0]{0,60}") {
        let (tag, body) = encoded(|out| encode::error(out, "FATAL", wire::sqlstate::ADMIN_SHUTDOWN, &message));
        let read = error::parse(&body);
        prop_assert_eq!(tag, tag::backend::ERROR);
        prop_assert_eq!(read.severity(), Some(&b"FATAL"[..]));
        prop_assert_eq!(read.code(), Some(&b"57P01"[..]));
        prop_assert_eq!(read.message(), Some(message.as_bytes()));
        prop_assert_eq!(read.fields().count(), 4);
        for cut in 0..body.len() {
            prop_assert!(error::parse(&body[..cut]).fields().count() <= 4);
        }
    }

    #[test]
    fn any_stream_is_read_or_refused(bytes in bytes()) {
        probe::frontend(&bytes);
        probe::backend(&bytes);
    }
}

#[test]
fn statuses_read_back() {
    for status in [Status::Idle, Status::InTransaction, Status::Failed] {
        let (tag, body) = encoded(|out| encode::ready(out, status));
        assert_eq!((tag, backend::ready_status(&body)), (tag::backend::READY, Some(status)));
    }
}
