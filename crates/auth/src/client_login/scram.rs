//! Clients that prove themselves by SCRAM-SHA-256, against a stored verifier, against one made ad hoc from a plain
//! secret, or against a mock. A mock does all that a verifier does and then fails.

use super::{State, reject};
use crate::cache::{self, CacheKey, DerivedCache};
use crate::fault::{ClientFault, Malformed};
use crate::mock::MockKey;
use crate::scram::message::{self, Binding, ClientFinal, ClientFirst, ServerFinal, ServerFirst};
use crate::scram::{self, Keys, MECHANISM, MECHANISM_PLUS, NONCE_LENGTH};
use crate::secret::{ScramKeys, Secret, Verifier};
use crate::{Accepted, Entropy, OffloadedTask, Step, bytes};
use subtle::Choice;
use wire::{encode, sasl};
use zeroize::Zeroizing;

/// Waits for SASLInitialResponse with client-first-message.
pub(super) struct ExpectFirst {
    salt: Vec<u8>,
    iterations: u32,
    check: Check,
    server_nonce: String,
    end_point: Option<Vec<u8>>,
}

/// What the proof is checked against.
enum Check {
    /// A verifier from auth_file or auth_query: the client's key can be handed on.
    Stored(Proving),
    /// A plain secret whose keys are known already.
    Derived(Proving),
    /// A plain secret whose keys are not known yet.
    Plain { password: Zeroizing<Vec<u8>>, index: CacheKey },
    /// Every client is rejected with this fault.
    Mock(Proving, ClientFault),
}

/// The part of a verifier that proofs are checked with.
struct Proving {
    stored_key: [u8; 32],
    server_key: [u8; 32],
}

impl ExpectFirst {
    pub(super) fn begin(
        user: &str,
        secret: Option<&Secret>,
        mock: &MockKey,
        cache: &DerivedCache,
        entropy: &mut dyn Entropy,
        iterations: u32,
        end_point: Option<&[u8]>,
    ) -> (State, Step) {
        let mut nonce = [0; NONCE_LENGTH];
        entropy.fill(&mut nonce);
        let iterations = iterations.max(1);
        let (salt, iterations, check) = match secret {
            Some(Secret::Scram(verifier)) => {
                (verifier.salt.clone(), verifier.iterations, Check::Stored(Proving::from_verifier(verifier)))
            }
            Some(Secret::Plain(password)) => {
                let salt = mock.salt(user);
                let check = Check::for_password(user, password, &salt, iterations, cache);
                (salt, iterations, check)
            }
            Some(Secret::Md5(_)) => {
                (mock.salt(user), iterations, Check::mock(mock, user, ClientFault::WrongPasswordType))
            }
            None => (mock.salt(user), iterations, Check::mock(mock, user, ClientFault::Proof)),
        };
        let offered: &[&str] = if end_point.is_some() { &[MECHANISM_PLUS, MECHANISM] } else { &[MECHANISM] };
        let end_point = end_point.map(<[u8]>::to_vec);
        let expect = Self { salt, iterations, check, server_nonce: scram::nonce(nonce), end_point };
        (State::First(expect), Step::Send(bytes(|out| encode::authentication_sasl(out, offered))))
    }

    pub(super) fn message(self, body: &[u8]) -> (State, Step) {
        let Some((mechanism, data)) = sasl::initial_response(body) else {
            return reject(ClientFault::from(Malformed::Layout));
        };
        let binds = mechanism == MECHANISM_PLUS.as_bytes() && self.end_point.is_some();
        if !binds && mechanism != MECHANISM.as_bytes() {
            return reject(ClientFault::Mechanism);
        }
        let first = match ClientFirst::parse(data.unwrap_or_default()) {
            Ok(first) => first,
            Err(malformed) => return reject(ClientFault::from(malformed)),
        };
        // A client that believes we cannot bind, although we offered it, indicates a downgrade attack (RFC 5802 section 6).
        let misled = first.binding == Binding::NotOffered && self.end_point.is_some();
        if misled || binds != (first.binding == Binding::EndPoint) {
            return reject(ClientFault::from(Malformed::ChannelBinding));
        }
        let end_point = self.end_point.unwrap_or_default();
        let nonce = format!("{}{}", first.nonce, self.server_nonce);
        let server_first =
            ServerFirst { nonce: &nonce, salt: self.salt.clone(), iterations: self.iterations };
        let server_first = server_first.write();
        let step = Step::Send(bytes(|out| encode::sasl_continue(out, server_first.as_bytes())));
        let (binding, client_first_bare) = (first.binding, first.bare.to_owned());
        let (salt, iterations, check) = (self.salt, self.iterations, self.check);
        let expect = ExpectFinal {
            salt,
            iterations,
            check,
            binding,
            end_point,
            nonce,
            client_first_bare,
            server_first,
        };
        (State::Final(expect), step)
    }
}

/// Waits for SASLResponse with client-final-message.
pub(super) struct ExpectFinal {
    salt: Vec<u8>,
    iterations: u32,
    check: Check,
    binding: Binding,
    end_point: Vec<u8>,
    nonce: String,
    client_first_bare: String,
    server_first: String,
}

impl ExpectFinal {
    pub(super) fn message(self, body: &[u8]) -> (State, Step) {
        let last = match ClientFinal::parse(body, self.binding, &self.end_point, &self.nonce) {
            Ok(last) => last,
            Err(malformed) => return reject(ClientFault::from(malformed)),
        };
        let auth_message =
            message::auth_message(&self.client_first_bare, &self.server_first, last.without_proof);
        let proof = Proof { auth_message, proof: last.proof };
        match self.check {
            Check::Stored(proving) => proof.verify(&proving, Some((self.salt, self.iterations))),
            Check::Derived(proving) => proof.verify(&proving, None),
            Check::Mock(proving, fault) => proof.fail(&proving, fault),
            Check::Plain { password, index } => {
                let question =
                    OffloadedTask::Pbkdf2 { password, salt: self.salt, iterations: self.iterations };
                (State::DerivedKeys(ExpectDerivedKeys { proof, index }), Step::Ask(question))
            }
        }
    }
}

/// Waits for SaltedPassword of a plain secret.
pub(super) struct ExpectDerivedKeys {
    proof: Proof,
    index: CacheKey,
}

impl ExpectDerivedKeys {
    pub(super) fn answer(self, salted_password: &[u8; 32], cache: &mut DerivedCache) -> (State, Step) {
        let keys = Keys::from_salted_password(salted_password);
        let proving = Proving::from_keys(&keys);
        // Cached even if the proof is wrong: a guesser must not cause a derivation with every guess.
        cache.keep(self.index, keys);
        self.proof.verify(&proving, None)
    }
}

impl Check {
    fn for_password(user: &str, password: &str, salt: &[u8], iterations: u32, cache: &DerivedCache) -> Self {
        let password = scram::prepare_password(password.as_bytes());
        let index = cache::index(user, &password, salt, iterations);
        match cache.find(&index) {
            Some(keys) => Self::Derived(Proving::from_keys(&keys)),
            None => Self::Plain { password, index },
        }
    }

    fn mock(mock: &MockKey, user: &str, fault: ClientFault) -> Self {
        let stored_key = mock.stored_key(user);
        Self::Mock(Proving { stored_key, server_key: stored_key }, fault)
    }
}

impl Proving {
    fn from_verifier(verifier: &Verifier) -> Self {
        Self { stored_key: verifier.stored_key, server_key: verifier.server_key }
    }

    fn from_keys(keys: &Keys) -> Self {
        Self { stored_key: scram::hash(&[&keys.client_key]), server_key: keys.server_key }
    }
}

/// A client's proof and the message it covers.
struct Proof {
    auth_message: String,
    proof: [u8; 32],
}

impl Proof {
    /// The verdict. `stored` are salt and rounds of a stored verifier, for which the client's key is handed on.
    fn verify(&self, proving: &Proving, stored: Option<(Vec<u8>, u32)>) -> (State, Step) {
        let auth_message = self.auth_message.as_bytes();
        let (fits, client_key) = scram::check_proof(&proving.stored_key, auth_message, &self.proof);
        if !bool::from(fits) {
            return reject(ClientFault::Proof);
        }
        let signature = scram::server_signature(&proving.server_key, auth_message);
        let last = ServerFinal::write_signature(&signature);
        let send = bytes(|out| encode::sasl_final(out, last.as_bytes()));
        let server_key = proving.server_key;
        let keys = stored.map(|(salt, iterations)| ScramKeys {
            client_key: *client_key,
            server_key,
            salt,
            iterations,
        });
        (State::Finished, Step::Accept(Accepted { send, keys, password: None }))
    }

    /// Rejects a mock: does the work of [`Proof::verify`] up to a wrong proof, then returns this fault in any case.
    fn fail(&self, proving: &Proving, fault: ClientFault) -> (State, Step) {
        let (fits, _) = scram::check_proof(&proving.stored_key, self.auth_message.as_bytes(), &self.proof);
        // `Choice` is opaque to the optimiser, so the work is not left out.
        let fault = if bool::from(fits & Choice::from(0)) { ClientFault::Proof } else { fault };
        reject(fault)
    }
}
