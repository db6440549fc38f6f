//! Both login state machines connected in memory: bytes are passed from one to the other and recorded.
#![allow(dead_code, clippy::unwrap_used, unreachable_pub)]

use weir_auth::{
    Accepted, ClientLogin, Credentials, DerivedCache, Entropy, Fault, Method, MockKey, Secret,
    ServerKeyCache, ServerLogin, Step, Verifier, scram,
};

/// A small generator (xorshift64*), so that every run has the same "entropy".
pub struct Seeded(pub u64);

impl Seeded {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % bound.max(1)
    }
}

impl Entropy for Seeded {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = self.next().to_be_bytes()[0];
        }
    }
}

/// State that both sides share over several logins.
pub struct World {
    pub entropy: Seeded,
    pub mock: MockKey,
    pub derived: DerivedCache,
    pub server_keys: ServerKeyCache,
    pub iterations: u32,
}

impl Default for World {
    fn default() -> Self {
        Self {
            entropy: Seeded(0x9E37_79B9_7F4A_7C15),
            mock: MockKey::new([42; 32]),
            derived: DerivedCache::default(),
            server_keys: ServerKeyCache::default(),
            iterations: 3,
        }
    }
}

/// How a login went, seen from both sides.
#[derive(Debug)]
pub struct Outcome {
    /// The verdict of the side that checks the client.
    pub verdict: Result<Accepted, Fault>,
    /// The verdict of the side that logs in; `None` if it was still waiting when the other rejected.
    pub login: Option<Result<(), Fault>>,
    /// Bodies of `R` messages, in order.
    pub requests: Vec<Vec<u8>>,
    /// Bodies of `p` messages, in order.
    pub replies: Vec<Vec<u8>>,
    /// Questions of the checking side, then of the other.
    pub asked: (usize, usize),
}

impl Outcome {
    pub fn accepted(&self) -> bool {
        self.verdict.is_ok() && matches!(self.login, Some(Ok(())))
    }

    pub fn fault(&self) -> Fault {
        *self.verdict.as_ref().unwrap_err()
    }

    pub fn login_fault(&self) -> Fault {
        self.login.unwrap().unwrap_err()
    }
}

/// The whole exchange of one user.
pub fn login(
    world: &mut World,
    method: Method,
    secret: Option<&Secret>,
    credentials: &Credentials,
) -> Outcome {
    let mut server = ServerLogin::new(USER, credentials);
    let (mut client, mut step) = ClientLogin::begin(
        method,
        USER,
        secret,
        &world.mock,
        &world.derived,
        &mut world.entropy,
        world.iterations,
    );
    let (mut requests, mut replies, mut asked) = (Vec::new(), Vec::new(), (0, 0));
    loop {
        let (send, verdict) = match step {
            Step::Ask(question) => {
                asked.0 += 1;
                step = client.answer(question.solve(), &mut world.derived);
                continue;
            }
            Step::Reject(fault) => {
                return Outcome { verdict: Err(fault), login: None, requests, replies, asked };
            }
            Step::Send(send) => (send, None),
            Step::Accept(mut accepted) => {
                let mut send = std::mem::take(&mut accepted.send);
                send.extend_from_slice(b"R\0\0\0\x08\0\0\0\0");
                (send, Some(accepted))
            }
        };
        let mut sent = Vec::new();
        let mut verdict_of_login = None;
        for body in bodies(b'R', &send) {
            match carry(world, &mut server, &body, &mut asked.1) {
                Step::Send(bytes) => sent.extend(bytes),
                Step::Accept(_) => verdict_of_login = Some(Ok(())),
                Step::Reject(fault) => verdict_of_login = Some(Err(fault)),
                Step::Ask(_) => unreachable!("answered by carry"),
            }
            requests.push(body);
        }
        let verdict = match (verdict, verdict_of_login) {
            (Some(accepted), login) => {
                return Outcome { verdict: Ok(accepted), login, requests, replies, asked };
            }
            (None, Some(login)) => {
                return Outcome { verdict: Err(Fault::Bug), login: Some(login), requests, replies, asked };
            }
            (None, None) => bodies(b'p', &sent),
        };
        let [reply] = <[Vec<u8>; 1]>::try_from(verdict).unwrap();
        step = client.message(&reply);
        replies.push(reply);
    }
}

fn carry(world: &mut World, server: &mut ServerLogin, body: &[u8], asked: &mut usize) -> Step {
    match server.message(body, &mut world.entropy, &world.server_keys) {
        Step::Ask(question) => {
            *asked += 1;
            server.answer(question.solve(), &mut world.server_keys)
        }
        step => step,
    }
}

/// The bodies of whole messages, all with this tag.
pub fn bodies(tag: u8, mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<5>() {
        assert_eq!(header[0], tag);
        let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]);
        let (body, rest) = rest.split_at(usize::try_from(length).unwrap() - 4);
        bodies.push(body.to_vec());
        bytes = rest;
    }
    assert!(bytes.is_empty());
    bodies
}

/// A stored verifier for this password.
pub fn verifier(password: &str, salt: &[u8], iterations: u32) -> Secret {
    let prepared = scram::prepare_password(password.as_bytes());
    let salted = scram::salted_password(&prepared, salt, iterations);
    Secret::Scram(Verifier::from_salted_password(&salted, salt.to_vec(), iterations))
}

/// `md5…` of "secret" for [`USER`], by md5sum.
pub fn md5_secret() -> Secret {
    Secret::parse("md54a0a68b43b6cd5cf266fa02f196e2371")
}

pub fn plain(password: &str) -> Secret {
    Secret::parse(password)
}

pub fn credentials(secret: &Secret) -> Credentials {
    Credentials::from_secret(Some(secret), None)
}

pub const USER: &str = "alice";
pub const PASSWORD: &str = "secret";
