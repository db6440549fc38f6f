//! Invalid messages of a peer, and the error for each. Attributes inside SCRAM
//! messages have their cases beside the parser.
#![allow(clippy::unwrap_used)]

mod support;

use support::{PASSWORD, World, bodies, credentials, plain, verifier};
use weir_auth::{
    ClientFault, ClientLogin, Credentials, Fault, MAX_BODY, Malformed, Method, Secret, ServerFault,
    ServerLogin, Step, TaskResult,
};

/// An empty password of "alice", by md5sum.
const MD5_OF_NOTHING: &str = "md56384e2b2184bcbf58eccf10ca7a6563c";

fn client(world: &mut World, method: Method, secret: &Secret) -> ClientLogin {
    let (mock, cache, entropy) = (&world.mock, &world.derived, &mut world.entropy);
    ClientLogin::begin(method, "alice", Some(secret), mock, cache, entropy, 3).0
}

fn fault(step: Step) -> Fault {
    match step {
        Step::Reject(fault) => fault,
        other => panic!("not rejected: {other:?}"),
    }
}

fn client_fault(method: Method, body: &[u8]) -> Fault {
    fault(client(&mut World::default(), method, &plain(PASSWORD)).message(body))
}

fn malformed(malformed: Malformed) -> Fault {
    Fault::Client(ClientFault::Malformed(malformed))
}

fn initial(mechanism: &str, data: &str) -> Vec<u8> {
    let length = i32::try_from(data.len()).unwrap().to_be_bytes();
    [mechanism.as_bytes(), b"\0", &length, data.as_bytes()].concat()
}

#[test]
fn passwords_that_are_no_passwords() {
    for method in [Method::Plain, Method::Md5] {
        assert_eq!(client_fault(method, b"\0"), Fault::Client(ClientFault::Password));
        assert_eq!(client_fault(method, b""), malformed(Malformed::Layout));
        assert_eq!(client_fault(method, b"secret"), malformed(Malformed::Layout));
        assert_eq!(client_fault(method, b"secret\0x\0"), malformed(Malformed::Layout));
        assert_eq!(client_fault(method, &vec![b'x'; MAX_BODY + 1]), malformed(Malformed::TooLong));
    }
    assert_eq!(client_fault(Method::Md5, b"secret\0"), Fault::Client(ClientFault::Password));
}

#[test]
fn an_empty_password_is_refused_even_where_it_would_fit() {
    let (md5, scram) = (Secret::parse(MD5_OF_NOTHING), verifier("", b"salt", 2));
    for secret in [md5, scram] {
        let mut login = client(&mut World::default(), Method::Plain, &secret);
        assert_eq!(fault(login.message(b"\0")), Fault::Client(ClientFault::Password));
    }
}

#[test]
fn sasl_responses_that_do_not_begin_scram() {
    let first = "n,,n=,r=abc";
    let cases = [
        (initial("SCRAM-SHA-256-PLUS", first), Fault::Client(ClientFault::Mechanism)),
        (initial("SCRAM-SHA-1", first), Fault::Client(ClientFault::Mechanism)),
        (initial("", first), Fault::Client(ClientFault::Mechanism)),
        (initial("SCRAM-SHA-256", ""), malformed(Malformed::Attribute)),
        (b"SCRAM-SHA-256\0\xff\xff\xff\xff".to_vec(), malformed(Malformed::Attribute)),
        (b"SCRAM-SHA-256\0\x7f\xff\xff\xffn,,".to_vec(), malformed(Malformed::Layout)),
        (b"SCRAM-SHA-256".to_vec(), malformed(Malformed::Layout)),
        (initial("SCRAM-SHA-256", "p=tls-unique,,n=,r=abc"), malformed(Malformed::ChannelBinding)),
        (initial("SCRAM-SHA-256", "n,a=bob,n=,r=abc"), malformed(Malformed::AuthorizationIdentity)),
        (initial("SCRAM-SHA-256", "n,,m=x,n=,r=abc"), malformed(Malformed::Extension)),
        (initial("SCRAM-SHA-256", &"x".repeat(MAX_BODY)), malformed(Malformed::TooLong)),
    ];
    for (body, expected) in cases {
        let found = client_fault(Method::Scram, &body);
        assert_eq!(found, expected, "{}", String::from_utf8_lossy(&body));
        assert_eq!(found.sqlstate(), "08P01");
    }
}

#[test]
fn a_final_message_without_nonce_or_proof_is_refused() {
    let mut world = World::default();
    for (last, expected) in [
        ("", Malformed::Attribute),
        ("c=biws", Malformed::Attribute),
        ("c=biws,p=AAAA", Malformed::Base64),
        ("c=biws,r=abc", Malformed::Attribute),
        ("c=biws,r=abc,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", Malformed::Nonce),
        ("c=eSws,r=abc,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", Malformed::ChannelBinding),
    ] {
        let mut login = client(&mut world, Method::Scram, &verifier(PASSWORD, b"salt", 2));
        assert!(matches!(login.message(&initial("SCRAM-SHA-256", "n,,n=,r=abc")), Step::Send(_)));
        assert_eq!(fault(login.message(last.as_bytes())), malformed(expected), "{last}");
    }
}

#[test]
fn messages_and_answers_out_of_turn_are_the_owners_fault() {
    let mut world = World::default();
    let mut login = client(&mut world, Method::Plain, &verifier(PASSWORD, b"salt", 2));
    assert_eq!(fault(login.answer(TaskResult::SaltedPassword([0; 32]), &mut world.derived)), Fault::Bug);
    assert_eq!(fault(login.message(b"secret\0")), Fault::Bug, "nothing follows a verdict");

    let mut login = client(&mut world, Method::Plain, &verifier(PASSWORD, b"salt", 2));
    assert!(matches!(login.message(b"secret\0"), Step::Ask(_)));
    assert_eq!(fault(login.message(b"secret\0")), Fault::Bug);

    let mut login = ServerLogin::new("alice", &Credentials::None);
    assert_eq!(fault(login.answer(TaskResult::SaltedPassword([0; 32]), &mut world.server_keys)), Fault::Bug);
}

/// A server's next body, given the nonce we sent.
type Says<'a> = &'a dyn Fn(&str) -> Vec<u8>;

/// Our login against a server that sends these bodies, each built from the nonce we sent.
fn server_fault(credentials: &Credentials, script: &[Says<'_>]) -> Fault {
    let mut world = World::default();
    let mut login = ServerLogin::new("alice", credentials);
    let mut nonce = String::new();
    for (at, says) in script.iter().enumerate() {
        let mut step = login.message(&says(&nonce), &mut world.entropy, &world.server_keys);
        if let Step::Ask(question) = step {
            step = login.answer(question.solve(), &mut world.server_keys);
        }
        match step {
            Step::Reject(fault) => {
                assert_eq!(at + 1, script.len(), "rejected too early: {fault:?}");
                return fault;
            }
            Step::Send(sent) if nonce.is_empty() => {
                let first = bodies(b'p', &sent).remove(0);
                let text = String::from_utf8_lossy(&first).into_owned();
                nonce = text.rsplit_once("r=").map(|(_, nonce)| nonce.to_owned()).unwrap_or_default();
            }
            Step::Send(_) => {}
            other => panic!("{other:?}"),
        }
    }
    panic!("not rejected");
}

fn request(code: u32, payload: &str) -> Vec<u8> {
    [&code.to_be_bytes()[..], payload.as_bytes()].concat()
}

fn offer(_: &str) -> Vec<u8> {
    request(10, "SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0")
}

fn challenge(nonce: &str) -> Vec<u8> {
    request(11, &format!("r={nonce}more,s=c2FsdA==,i=2"))
}

fn expect(script: &[Says<'_>], expected: ServerFault) {
    let found = server_fault(&credentials(&plain(PASSWORD)), script);
    assert_eq!(found, Fault::Server(expected));
}

#[test]
fn methods_we_do_not_speak() {
    for code in [2, 6, 7, 8, 9, 13, u32::MAX] {
        expect(&[&|_| request(code, "")], ServerFault::Method(code));
    }
    expect(&[&|_| request(10, "SCRAM-SHA-256-PLUS\0OAUTHBEARER\0\0")], ServerFault::Mechanism);
}

#[test]
fn requests_that_are_cut_or_too_long() {
    let layout = ServerFault::Malformed(Malformed::Layout);
    expect(&[&|_| Vec::new()], layout);
    expect(&[&|_| b"\0\0\0".to_vec()], layout);
    expect(&[&|_| request(0, "x")], layout);
    expect(&[&|_| request(3, "x")], layout);
    expect(&[&|_| request(5, "abc")], layout);
    expect(&[&|_| request(5, "abcde")], layout);
    expect(&[&|_| request(10, "SCRAM-SHA-256")], layout);
    expect(&[&offer, &|_| request(11, &"x".repeat(MAX_BODY))], ServerFault::Malformed(Malformed::TooLong));
}

#[test]
fn challenges_we_do_not_take_up() {
    let after_offer = |text: &'static str, expected: ServerFault| {
        expect(&[&offer, &|nonce| request(11, &text.replace("NONCE", nonce))], expected);
    };
    let malformed = ServerFault::Malformed;
    after_offer("r=NONCE,s=c2FsdA==,i=2", malformed(Malformed::Nonce));
    after_offer("r=other,s=c2FsdA==,i=2", malformed(Malformed::Nonce));
    after_offer("r=NONCEx,s=c2FsdA==,i=0", malformed(Malformed::Iterations));
    after_offer("r=NONCEx,s=c2FsdA==,i=2147483648999", malformed(Malformed::Iterations));
    after_offer("r=NONCEx,s=c2FsdA==,i=1000001", ServerFault::TooManyIterations);
    after_offer("r=NONCEx,s=!,i=2", malformed(Malformed::Base64));
    after_offer("m=x,r=NONCEx,s=c2FsdA==,i=2", malformed(Malformed::Extension));
    after_offer("e=other-error", malformed(Malformed::Attribute));
    after_offer("", malformed(Malformed::Attribute));
}

#[test]
fn a_server_that_does_not_know_the_secret_is_not_trusted() {
    let forged = "v=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    expect(&[&offer, &challenge, &|_| request(12, forged)], ServerFault::Signature);
    expect(&[&offer, &challenge, &|_| request(12, "e=invalid-proof")], ServerFault::Refused);
    expect(&[&offer, &challenge, &|_| request(12, "v=AAAA")], ServerFault::Malformed(Malformed::Base64));
    expect(&[&offer, &challenge, &|_| request(0, "")], ServerFault::SkippedProof);
    expect(&[&offer, &|_| request(0, "")], ServerFault::SkippedProof);
}

#[test]
fn a_server_asks_once_and_in_order() {
    expect(&[&challenge], ServerFault::OutOfTurn);
    expect(&[&|_| request(12, "v=AAAA")], ServerFault::OutOfTurn);
    expect(&[&offer, &offer], ServerFault::OutOfTurn);
    expect(&[&offer, &challenge, &challenge], ServerFault::OutOfTurn);
    expect(&[&|_| request(3, ""), &|_| request(3, "")], ServerFault::OutOfTurn);
    expect(&[&|_| request(5, "salt"), &|_| request(3, "")], ServerFault::OutOfTurn);
}
