//! Whole logins in memory, both machines against each other: every method with every kind of secret and credentials,
//! pass-through of SCRAM keys, the caches, and what an unknown user sees.
#![allow(clippy::unwrap_used)]

mod support;

use support::{PASSWORD, World, credentials, login, md5_secret, plain, verifier};
use weir_auth::{ClientFault, Credentials, Fault, Kind, Method, MockKey, Secret, ServerFault};

fn stored(kind: Kind) -> Secret {
    match kind {
        Kind::Plain => plain(PASSWORD),
        Kind::Md5 => md5_secret(),
        Kind::Scram => verifier(PASSWORD, b"salt", 5),
    }
}

const KINDS: [Kind; 3] = [Kind::Plain, Kind::Md5, Kind::Scram];

#[test]
fn the_right_password_passes_where_the_secret_can_check_it() {
    for method in [Method::Trust, Method::Any, Method::Plain, Method::Md5, Method::Scram] {
        for kind in KINDS {
            let outcome =
                login(&mut World::default(), method, Some(&stored(kind)), &credentials(&plain(PASSWORD)));
            if (method, kind) == (Method::Scram, Kind::Md5) {
                assert_eq!(outcome.fault(), Fault::Client(ClientFault::WrongPasswordType));
            } else {
                assert!(outcome.accepted(), "{method:?} {kind:?}: {outcome:?}");
            }
        }
    }
}

#[test]
fn a_wrong_password_never_passes() {
    for wrong in ["Secret", "secre", "secrets", "\u{e9}", "md5"] {
        for kind in KINDS {
            for method in [Method::Plain, Method::Md5, Method::Scram] {
                let outcome =
                    login(&mut World::default(), method, Some(&stored(kind)), &credentials(&plain(wrong)));
                let scram = method == Method::Scram || (method, kind) == (Method::Md5, Kind::Scram);
                let expected = match (scram, kind) {
                    (true, Kind::Md5) => ClientFault::WrongPasswordType,
                    (true, _) => ClientFault::Proof,
                    (false, _) => ClientFault::Password,
                };
                assert_eq!(outcome.fault(), Fault::Client(expected), "{method:?} {kind:?} {wrong}");
            }
        }
    }
}

#[test]
fn unknown_users_fail_as_wrong_passwords_do() {
    let mut world = World::default();
    for (method, expected) in [
        (Method::Trust, ClientFault::Trust),
        (Method::Plain, ClientFault::Password),
        (Method::Md5, ClientFault::Password),
        (Method::Scram, ClientFault::Proof),
    ] {
        let outcome = login(&mut world, method, None, &credentials(&plain(PASSWORD)));
        assert_eq!(outcome.fault(), Fault::Client(expected), "{method:?}");
    }
    assert!(login(&mut world, Method::Any, None, &Credentials::None).accepted());
}

#[test]
fn an_empty_secret_lets_nobody_in_but_is_known_to_trust() {
    let mut world = World::default();
    let empty = plain("");
    assert!(login(&mut world, Method::Trust, Some(&empty), &Credentials::None).accepted());
    for method in [Method::Plain, Method::Md5, Method::Scram] {
        let outcome = login(&mut world, method, Some(&empty), &credentials(&empty));
        assert!(outcome.verdict.is_err(), "{method:?}");
    }
}

#[test]
fn md5_digits_log_in_where_md5_is_asked_for() {
    let mut world = World::default();
    let digits = credentials(&md5_secret());
    assert!(login(&mut world, Method::Md5, Some(&plain(PASSWORD)), &digits).accepted());
    assert!(login(&mut world, Method::Md5, Some(&md5_secret()), &digits).accepted());
    for method in [Method::Plain, Method::Scram] {
        let outcome = login(&mut world, method, Some(&plain(PASSWORD)), &digits);
        assert_eq!(outcome.login_fault(), Fault::Server(ServerFault::WrongPasswordType), "{method:?}");
    }
}

#[test]
fn without_a_secret_only_open_servers_let_us_in() {
    let mut world = World::default();
    assert!(login(&mut world, Method::Trust, Some(&plain(PASSWORD)), &Credentials::None).accepted());
    for method in [Method::Plain, Method::Md5, Method::Scram] {
        let outcome = login(&mut world, method, Some(&plain(PASSWORD)), &Credentials::None);
        assert!(matches!(outcome.fault(), Fault::Client(_)), "{method:?}: the server says no");
    }
    let bare = credentials(&stored(Kind::Scram));
    let outcome = login(&mut world, Method::Scram, Some(&stored(Kind::Scram)), &bare);
    assert_eq!(outcome.login_fault(), Fault::Server(ServerFault::WrongPasswordType));
}

#[test]
fn keys_of_a_client_log_in_to_the_server_with_the_same_verifier() {
    let mut world = World::default();
    let secret = stored(Kind::Scram);
    let first = login(&mut world, Method::Scram, Some(&secret), &credentials(&plain(PASSWORD)));
    let keys = first.verdict.unwrap().keys.unwrap();
    let passed_on = Credentials::from_secret(Some(&secret), Some(&keys));
    let onward = login(&mut world, Method::Scram, Some(&secret), &passed_on);
    assert!(onward.accepted());
    assert_eq!(onward.asked, (0, 0), "keys need no derivation");

    for other in [verifier(PASSWORD, b"SALT", 5), verifier(PASSWORD, b"salt", 6)] {
        let outcome = login(&mut world, Method::Scram, Some(&other), &passed_on);
        assert_eq!(outcome.login_fault(), Fault::Server(ServerFault::KeysDoNotFit));
    }
    let outcome = login(&mut world, Method::Md5, Some(&plain(PASSWORD)), &passed_on);
    assert_eq!(outcome.login_fault(), Fault::Server(ServerFault::WrongPasswordType));

    let changed = verifier("changed", b"salt", 5);
    assert!(matches!(Credentials::from_secret(Some(&changed), Some(&keys)), Credentials::Verifier));
}

#[test]
fn only_stored_verifiers_give_keys_and_no_stored_secret_gives_the_password() {
    let right = credentials(&plain(PASSWORD));
    for (method, kind, keys) in [
        (Method::Scram, Kind::Scram, true),
        (Method::Scram, Kind::Plain, false),
        (Method::Md5, Kind::Scram, true),
        (Method::Md5, Kind::Plain, false),
        (Method::Plain, Kind::Scram, false),
        (Method::Plain, Kind::Md5, false),
        (Method::Plain, Kind::Plain, false),
    ] {
        let mut world = World::default();
        for attempt in ["first", "from the cache"] {
            let accepted = login(&mut world, method, Some(&stored(kind)), &right).verdict.unwrap();
            let found = (accepted.keys.is_some(), accepted.password.is_some());
            assert_eq!(found, (keys, false), "{method:?} {kind:?} {attempt}");
        }
    }
}

#[test]
fn a_plain_secret_is_derived_once_on_each_side() {
    let mut world = World::default();
    let (secret, right) = (plain(PASSWORD), credentials(&plain(PASSWORD)));
    assert_eq!(login(&mut world, Method::Scram, Some(&secret), &right).asked, (1, 1));
    let again = login(&mut world, Method::Scram, Some(&secret), &right);
    assert!(again.accepted());
    assert_eq!(again.asked, (0, 0));

    let (changed, new) = (plain("Secret"), credentials(&plain("Secret")));
    assert_eq!(login(&mut world, Method::Scram, Some(&changed), &right).asked, (1, 0));
    let outcome = login(&mut world, Method::Scram, Some(&changed), &new);
    assert!(outcome.accepted());
    assert_eq!(outcome.asked, (0, 1));
}

#[test]
fn passwords_outside_ascii_are_prepared_alike_on_both_sides() {
    let mut world = World::default();
    let decomposed = verifier("IX-caf\u{e9}", b"salt", 2);
    let compatible = credentials(&plain("\u{2168}-cafe\u{301}"));
    assert!(login(&mut world, Method::Scram, Some(&decomposed), &compatible).accepted());
    assert!(login(&mut world, Method::Plain, Some(&decomposed), &compatible).accepted());
}

#[test]
fn the_longest_passwords_pass() {
    let long = "x".repeat(65_530);
    for method in [Method::Plain, Method::Md5, Method::Scram] {
        let outcome = login(&mut World::default(), method, Some(&plain(&long)), &credentials(&plain(&long)));
        assert!(outcome.accepted(), "{method:?}");
    }
}

#[test]
fn an_unknown_user_sees_what_a_known_one_sees() {
    for kind in KINDS {
        for method in [Method::Plain, Method::Md5, Method::Scram] {
            let mock = MockKey::new([42; 32]).imitating(kind);
            let mut world = World { mock, iterations: 5, ..World::default() };
            let wrong = credentials(&plain("wrong"));
            let secret = match kind {
                Kind::Scram => verifier(PASSWORD, b"sixteen bytes ok", 5),
                kind => stored(kind),
            };
            // The first login of a plain secret fills the cache; see `DerivedCache`.
            login(&mut world, method, Some(&secret), &wrong);
            let known = login(&mut world, method, Some(&secret), &wrong);
            let unknown = login(&mut world, method, None, &wrong);
            let shape = |bodies: &[Vec<u8>]| bodies.iter().map(Vec::len).collect::<Vec<_>>();
            assert_eq!(shape(&known.requests), shape(&unknown.requests), "{method:?} {kind:?}");
            assert_eq!(known.asked.0, unknown.asked.0, "{method:?} {kind:?}");
            assert_eq!(known.fault().message(), unknown.fault().message());
            assert_eq!(known.fault().sqlstate(), unknown.fault().sqlstate());
        }
    }
}

#[test]
fn a_mock_salt_stays_and_a_nonce_does_not() {
    let mut world = World::default();
    let wrong = credentials(&plain("wrong"));
    let mut challenge = || {
        let outcome = login(&mut world, Method::Scram, None, &wrong);
        let text = String::from_utf8(outcome.requests[1][4..].to_vec()).unwrap();
        let (nonce, rest) = text.split_once(",s=").unwrap();
        (nonce.to_owned(), rest.to_owned())
    };
    let (first, second) = (challenge(), challenge());
    assert_ne!(first.0, second.0);
    assert_eq!(first.1, second.1);
    assert!(first.1.ends_with(",i=3"));
}
