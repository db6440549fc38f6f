//! The exchange towards PostgreSQL, where we are the client: it answers whatever method the server asks for with
//! the credentials at hand. It owns the order of the messages and the check of the server's own proof.
//! It never accepts a server that began SCRAM and did not finish it.

use crate::cache::{self, CacheKey, ServerKeyCache};
use crate::fault::{Fault, Malformed, ServerFault};
use crate::scram::message::{self, Binding, ClientFinal, ServerFinal, ServerFirst};
use crate::scram::{self, Keys, MECHANISM, MECHANISM_PLUS, NONCE_LENGTH};
use crate::secret::Credentials;
use crate::{Accepted, Entropy, MAX_BODY, MAX_ITERATIONS, OffloadedTask, Step, TaskResult, bytes, md5};
use subtle::ConstantTimeEq;
use wire::backend::{self, Authentication, Mechanisms};
use wire::encode;
use zeroize::Zeroizing;

/// One login to a server, from the sent startup packet to AuthenticationOk.
pub struct ServerLogin {
    user: String,
    credentials: Credentials,
    /// `tls-server-end-point` of the server's certificate, where there is TLS.
    end_point: Option<Vec<u8>>,
    state: State,
}

/// What it waits for.
enum State {
    /// Any request, or AuthenticationOk of a server that asks for nothing.
    Request,
    /// AuthenticationOk, after a password went out or the server proved itself.
    CheckResult,
    /// server-first-message.
    ServerFirst {
        client_nonce: String,
        binding: Binding,
    },
    /// SaltedPassword.
    Derived {
        index: CacheKey,
        exchange: Exchange,
    },
    /// server-final-message.
    ServerFinal {
        signature: [u8; 32],
    },
    Finished,
}

/// The SCRAM exchange so far.
struct Exchange {
    client_nonce: String,
    server_first: String,
    nonce: String,
    binding: Binding,
    end_point: Vec<u8>,
}

type Next = Result<(State, Step), ServerFault>;

impl ServerLogin {
    /// A login of this user with these credentials. Without any, a server that asks gets the empty password, as from
    /// PgBouncer: the server rejects it with an error that clients know.
    #[must_use]
    pub fn new(user: &str, credentials: &Credentials) -> Self {
        let credentials = match credentials {
            Credentials::None => Credentials::Plain(Zeroizing::default()),
            known => known.clone(),
        };
        Self { user: user.to_owned(), credentials, end_point: None, state: State::Request }
    }

    /// The login runs inside TLS: SCRAM is bound to it where the server can.
    #[must_use]
    pub fn bound_to(mut self, end_point: Option<Vec<u8>>) -> Self {
        self.end_point = end_point;
        self
    }

    /// Takes the body of the server's next `R` message, code included. A [`Step::Send`] without bytes only waits.
    pub fn message(&mut self, body: &[u8], entropy: &mut dyn Entropy, cache: &ServerKeyCache) -> Step {
        let state = std::mem::replace(&mut self.state, State::Finished);
        if matches!(state, State::Derived { .. } | State::Finished) {
            return Step::Reject(Fault::Bug);
        }
        let next = self.read(state, body, entropy, cache);
        self.enter(next)
    }

    /// Takes the answer to the last [`Step::Ask`], and keeps what it cost in the cache.
    pub fn answer(&mut self, answer: TaskResult, cache: &mut ServerKeyCache) -> Step {
        let state = std::mem::replace(&mut self.state, State::Finished);
        let (State::Derived { index, exchange }, TaskResult::SaltedPassword(salted_password)) =
            (state, answer)
        else {
            return Step::Reject(Fault::Bug);
        };
        let keys = Keys::from_salted_password(&salted_password);
        let next = exchange.prove(&keys.client_key, &keys.server_key);
        cache.keep(index, keys);
        self.enter(Ok(next))
    }

    fn enter(&mut self, next: Next) -> Step {
        match next {
            Ok((state, step)) => {
                self.state = state;
                step
            }
            Err(fault) => Step::Reject(fault.into()),
        }
    }

    fn read(&self, state: State, body: &[u8], entropy: &mut dyn Entropy, cache: &ServerKeyCache) -> Next {
        if body.len() > MAX_BODY {
            return Err(Malformed::TooLong.into());
        }
        let request = backend::authentication(body).ok_or(Malformed::Layout)?;
        match (request, state) {
            (Authentication::Ok, State::Request | State::CheckResult) => {
                Ok((State::Finished, Step::Accept(Accepted::default())))
            }
            (Authentication::Ok, _) => Err(ServerFault::SkippedProof),
            (Authentication::CleartextPassword, State::Request) => self.send_password(),
            (Authentication::Md5 { salt }, State::Request) => self.send_md5(salt),
            (Authentication::Sasl { mechanisms }, State::Request) => self.begin_scram(mechanisms, entropy),
            (Authentication::SaslContinue(data), State::ServerFirst { client_nonce, binding }) => {
                self.answer_challenge(client_nonce, binding, data, cache)
            }
            (Authentication::SaslFinal(data), State::ServerFinal { signature }) => {
                check_server(data, &signature)
            }
            (Authentication::Other(code), _) => Err(ServerFault::Method(code)),
            _ => Err(ServerFault::OutOfTurn),
        }
    }

    fn send_password(&self) -> Next {
        match &self.credentials {
            Credentials::Plain(password) => Ok(send_password(password.as_bytes())),
            _ => Err(ServerFault::WrongPasswordType),
        }
    }

    fn send_md5(&self, salt: [u8; 4]) -> Next {
        let stored = match &self.credentials {
            Credentials::Plain(password) => md5::stored(password.as_bytes(), &self.user),
            Credentials::Md5(digits) => **digits,
            _ => return Err(ServerFault::WrongPasswordType),
        };
        Ok(send_password(&md5::reply(&stored, salt)))
    }

    fn begin_scram(&self, mechanisms: Mechanisms<'_>, entropy: &mut dyn Entropy) -> Next {
        let offers = |wanted: &str| mechanisms.clone().any(|name| name == wanted.as_bytes());
        let (mechanism, binding) = match &self.end_point {
            Some(_) if offers(MECHANISM_PLUS) => (MECHANISM_PLUS, Binding::EndPoint),
            _ if !offers(MECHANISM) => return Err(ServerFault::Mechanism),
            // A server that did offer it, and whose offer was taken away on the way, will notice.
            Some(_) => (MECHANISM, Binding::NotOffered),
            None => (MECHANISM, Binding::Unsupported),
        };
        if !matches!(self.credentials, Credentials::Plain(_) | Credentials::Keys(_)) {
            return Err(ServerFault::WrongPasswordType);
        }
        let mut nonce = [0; NONCE_LENGTH];
        entropy.fill(&mut nonce);
        let client_nonce = scram::nonce(nonce);
        let first = format!("{}{}", binding.header(), client_first_bare(&client_nonce));
        let step = Step::Send(bytes(|out| encode::sasl_initial(out, mechanism, first.as_bytes())));
        Ok((State::ServerFirst { client_nonce, binding }, step))
    }

    fn answer_challenge(
        &self,
        client_nonce: String,
        binding: Binding,
        payload: &[u8],
        cache: &ServerKeyCache,
    ) -> Next {
        let first = ServerFirst::parse(payload, &client_nonce)?;
        if first.iterations > MAX_ITERATIONS {
            return Err(ServerFault::TooManyIterations);
        }
        let server_first = String::from_utf8(payload.to_vec()).map_err(|_| Malformed::Text)?;
        let end_point = self.end_point.clone().unwrap_or_default();
        let nonce = first.nonce.to_owned();
        let exchange = Exchange { nonce, client_nonce, server_first, binding, end_point };
        match &self.credentials {
            Credentials::Keys(keys) if keys.salt == first.salt && keys.iterations == first.iterations => {
                Ok(exchange.prove(&keys.client_key, &keys.server_key))
            }
            Credentials::Keys(_) => Err(ServerFault::KeysDoNotFit),
            Credentials::Plain(password) => {
                let password = scram::prepare_password(password.as_bytes());
                let index = cache::index("", &password, &first.salt, first.iterations);
                if let Some(keys) = cache.find(&index) {
                    return Ok(exchange.prove(&keys.client_key, &keys.server_key));
                }
                let question =
                    OffloadedTask::Pbkdf2 { password, salt: first.salt, iterations: first.iterations };
                Ok((State::Derived { index, exchange }, Step::Ask(question)))
            }
            _ => Err(ServerFault::WrongPasswordType),
        }
    }
}

impl Exchange {
    /// client-final-message, and the signature the server has to answer with.
    fn prove(&self, client_key: &[u8; 32], server_key: &[u8; 32]) -> (State, Step) {
        let without_proof = ClientFinal::write_without_proof(self.binding, &self.end_point, &self.nonce);
        let bare = client_first_bare(&self.client_nonce);
        let auth_message = message::auth_message(&bare, &self.server_first, &without_proof);
        let proof = scram::client_proof(client_key, auth_message.as_bytes());
        let signature = scram::server_signature(server_key, auth_message.as_bytes());
        let last = ClientFinal::write(&without_proof, &proof);
        (
            State::ServerFinal { signature },
            Step::Send(bytes(|out| encode::sasl_response(out, last.as_bytes()))),
        )
    }
}

fn send_password(text: &[u8]) -> (State, Step) {
    (State::CheckResult, Step::Send(bytes(|out| encode::password(out, text))))
}

/// The server's half of the proof: without the right signature it does not know the secret.
fn check_server(payload: &[u8], expected: &[u8; 32]) -> Next {
    match ServerFinal::parse(payload)? {
        ServerFinal::Signature(signature) if bool::from(signature.ct_eq(expected)) => {
            Ok((State::CheckResult, Step::Send(Vec::new())))
        }
        ServerFinal::Signature(_) => Err(ServerFault::Signature),
        ServerFinal::Refusal => Err(ServerFault::Refused),
    }
}

/// The user is left empty, as libpq does: PostgreSQL takes the one of the startup packet.
fn client_first_bare(client_nonce: &str) -> String {
    format!("n=,r={client_nonce}")
}
