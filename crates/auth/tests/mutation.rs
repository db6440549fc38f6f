//! Recorded logins with one message changed at random: nothing panics, and no changed proof passes.
//! Seeds are fixed, so a failure happens again.
#![allow(clippy::unwrap_used)]

mod support;

use support::{PASSWORD, Seeded, World, credentials, login, md5_secret, plain, verifier};
use weir_auth::{ClientLogin, Credentials, Method, Secret, ServerLogin, Step, probe};

const ROUNDS: usize = 400;

#[test]
fn changed_client_messages_never_pass() {
    let mut random = Seeded(1);
    for (method, secret) in cases() {
        let recorded = login(&mut World::default(), method, Some(&secret), &credentials(&plain(PASSWORD)));
        assert!(recorded.accepted());
        for _ in 0..ROUNDS {
            let at = random.below(recorded.replies.len());
            let mut replies = recorded.replies.clone();
            mutate(&mut replies[at], &mut random);
            // The name in client-first is ignored, but both sides sign it.
            if replies[at] != recorded.replies[at] {
                let passed = replay_client(method, &secret, &replies);
                assert!(!passed, "{method:?}: {}", String::from_utf8_lossy(&replies[at]));
            }
        }
    }
}

#[test]
fn changed_server_messages_never_pass_scram() {
    let mut random = Seeded(2);
    let (secret, right) = (verifier(PASSWORD, b"salt", 2), credentials(&plain(PASSWORD)));
    let recorded = login(&mut World::default(), Method::Scram, Some(&secret), &right);
    for _ in 0..ROUNDS * 3 {
        // The offer itself is not signed without channel binding, so it may change.
        let at = 1 + random.below(recorded.requests.len() - 1);
        let mut requests = recorded.requests.clone();
        mutate(&mut requests[at], &mut random);
        if requests[at] != recorded.requests[at] {
            assert!(!replay_server(&right, &requests), "{}", String::from_utf8_lossy(&requests[at]));
        }
    }
}

#[test]
fn replayed_as_they_were_they_pass() {
    for (method, secret) in cases() {
        let recorded = login(&mut World::default(), method, Some(&secret), &credentials(&plain(PASSWORD)));
        assert!(replay_client(method, &secret, &recorded.replies));
        assert!(replay_server(&credentials(&plain(PASSWORD)), &recorded.requests));
    }
}

#[test]
fn arbitrary_bytes_never_panic() {
    let mut random = Seeded(3);
    let recorded =
        login(&mut World::default(), Method::Scram, Some(&plain(PASSWORD)), &credentials(&plain(PASSWORD)));
    for _ in 0..ROUNDS {
        for conversation in [&recorded.replies, &recorded.requests] {
            let mut bytes = conversation.join(&0xFE);
            for _ in 0..1 + random.below(4) {
                mutate(&mut bytes, &mut random);
            }
            probe::client_messages(&bytes);
            probe::server_messages(&bytes);
            probe::parsers(&bytes);
        }
    }
}

fn cases() -> [(Method, Secret); 6] {
    [
        (Method::Plain, plain(PASSWORD)),
        (Method::Plain, md5_secret()),
        (Method::Plain, verifier(PASSWORD, b"salt", 2)),
        (Method::Md5, md5_secret()),
        (Method::Scram, plain(PASSWORD)),
        (Method::Scram, verifier(PASSWORD, b"salt", 2)),
    ]
}

fn replay_client(method: Method, secret: &Secret, replies: &[Vec<u8>]) -> bool {
    let mut world = World::default();
    let (mock, entropy) = (&world.mock, &mut world.entropy);
    let (mut login, _) = ClientLogin::begin(method, "alice", Some(secret), mock, &world.derived, entropy, 3);
    for reply in replies {
        let mut step = login.message(reply);
        if let Step::Ask(question) = step {
            step = login.answer(question.solve(), &mut world.derived);
        }
        match step {
            Step::Accept(_) => return true,
            Step::Reject(_) => return false,
            Step::Send(_) | Step::Ask(_) => {}
        }
    }
    false
}

fn replay_server(credentials: &Credentials, requests: &[Vec<u8>]) -> bool {
    let mut world = World::default();
    // The other side drew its bytes first when this was recorded; skip as many.
    skip_recorded_entropy(&mut world, requests);
    let mut login = ServerLogin::new("alice", credentials);
    for request in requests {
        let mut step = login.message(request, &mut world.entropy, &world.server_keys);
        if let Step::Ask(weir_auth::OffloadedTask::Pbkdf2 { iterations: 10.., .. }) = step {
            return false; // A changed count of rounds: it cannot fit, and deriving would only take time.
        }
        if let Step::Ask(question) = step {
            step = login.answer(question.solve(), &mut world.server_keys);
        }
        match step {
            Step::Accept(_) => return true,
            Step::Reject(_) => return false,
            Step::Send(_) | Step::Ask(_) => {}
        }
    }
    false
}

fn skip_recorded_entropy(world: &mut World, requests: &[Vec<u8>]) {
    let drawn = match requests[0].get(..4) {
        Some([0, 0, 0, 5]) => 4,
        Some([0, 0, 0, 10]) => 18,
        _ => 0,
    };
    weir_auth::Entropy::fill(&mut world.entropy, &mut vec![0; drawn]);
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Seeded) {
    let at = random.below(bytes.len());
    let byte = random.next().to_be_bytes()[0];
    match random.below(6) {
        0 => bytes.truncate(at),
        1 => bytes.insert(at, byte),
        2 => bytes[at..].reverse(),
        3 => bytes.extend_from_within(at..),
        4 if !bytes.is_empty() => drop(bytes.remove(at)),
        _ if !bytes.is_empty() => bytes[at] ^= 1 << (byte % 8),
        _ => bytes.push(byte),
    }
}
