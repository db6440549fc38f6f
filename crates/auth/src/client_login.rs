//! The exchange with clients, where we are the server: PgBouncer's rules for each `auth_type` and kind of stored secret.
//! Owns the order of the messages and the result.
//! Does not reveal whether a user exists: unknown users go through the same exchange with a mock.

mod account;
mod certificate;
mod external;
mod password;
mod scram;

use crate::cache::DerivedCache;
use crate::fault::{ClientFault, Fault, Malformed};
use crate::mock::MockKey;
use crate::secret::{Kind, Secret};
use crate::{Accepted, AuthBackend, Entropy, MAX_BODY, Method, Step, TaskResult};
use account::ExpectAccount;
pub use certificate::PresentedCertificate;
use external::{ExpectSecret, ExpectVerdict};
use password::{ExpectDerivedPassword, ExpectMd5, ExpectPassword};
use scram::{ExpectDerivedKeys, ExpectFinal, ExpectFirst};
use settings::ident::IdentMap;
use std::sync::Arc;

/// One client's login, from the startup packet to the result.
pub struct ClientLogin {
    state: State,
}

/// The awaited message; each state is a type that knows the next.
enum State {
    Password(ExpectPassword),
    DerivedPassword(ExpectDerivedPassword),
    Md5(ExpectMd5),
    Secret(ExpectSecret),
    CheckResult(ExpectVerdict),
    First(ExpectFirst),
    Final(ExpectFinal),
    DerivedKeys(ExpectDerivedKeys),
    Account(ExpectAccount),
    Finished,
}

impl ClientLogin {
    /// Begins the exchange. `secret` is `None` for an unknown user; `scram_iterations` are the rounds of ad-hoc
    /// verifiers (PgBouncer's setting of that name) and of mocks.
    pub fn begin(
        method: Method,
        user: &str,
        secret: Option<&Secret>,
        mock: &MockKey,
        cache: &DerivedCache,
        entropy: &mut dyn Entropy,
        scram_iterations: u32,
    ) -> (Self, Step) {
        Self::begin_bound(method, user, secret, mock, cache, entropy, scram_iterations, None)
    }

    /// The same on a connection with TLS: `end_point` is `tls-server-end-point` of our certificate, and SCRAM can be bound
    /// to it.
    pub fn begin_bound(
        method: Method,
        user: &str,
        secret: Option<&Secret>,
        mock: &MockKey,
        cache: &DerivedCache,
        entropy: &mut dyn Entropy,
        scram_iterations: u32,
        end_point: Option<&[u8]>,
    ) -> (Self, Step) {
        let known = secret.filter(|secret| !secret.is_empty());
        let (state, step) = match effective_method(method, known, mock) {
            Method::Any => pass(),
            Method::Trust if secret.is_some() => pass(),
            Method::Trust => (State::Finished, Step::Reject(ClientFault::Trust.into())),
            Method::Plain => ExpectPassword::begin(user, known, mock, scram_iterations),
            Method::Md5 => ExpectMd5::begin(user, known, mock, entropy),
            Method::Scram => {
                ExpectFirst::begin(user, known, mock, cache, entropy, scram_iterations, end_point)
            }
        };
        (Self { state }, step)
    }

    /// Begins a login by the system user at the other end of a unix socket (None: it came over TCP). `known` says
    /// whether there is such a user at all; a `map` maps system users to database users.
    pub fn peer(user: &str, known: bool, user_id: Option<u32>, map: Option<Arc<IdentMap>>) -> (Self, Step) {
        let (state, step) = ExpectAccount::begin(user, known, user_id, map);
        (Self { state }, step)
    }

    /// A login by the names in a client's certificate; the step is the result. `known` and `map` are as for
    /// [`ClientLogin::peer`].
    pub fn certificate(
        user: &str,
        known: bool,
        shown: PresentedCertificate<'_>,
        map: Option<&IdentMap>,
    ) -> (Self, Step) {
        let (state, step) = certificate::judge(user, known, shown, map);
        (Self { state }, step)
    }

    /// Begins an exchange that an external backend decides; `remote` is the client's address for its records.
    pub fn begin_external(authority: AuthBackend, user: &str, remote: &str) -> (Self, Step) {
        let (state, step) = ExpectSecret::begin(authority, user, remote);
        (Self { state }, step)
    }

    /// Takes the body of the client's next `p` message.
    pub fn message(&mut self, body: &[u8]) -> Step {
        if body.len() > MAX_BODY {
            self.state = State::Finished;
            return Step::Reject(ClientFault::from(Malformed::TooLong).into());
        }
        let (state, step) = match std::mem::replace(&mut self.state, State::Finished) {
            State::Password(expect) => expect.message(body),
            State::Md5(expect) => expect.message(body),
            State::Secret(expect) => expect.message(body),
            State::First(expect) => expect.message(body),
            State::Final(expect) => expect.message(body),
            State::DerivedPassword(_)
            | State::DerivedKeys(_)
            | State::Account(_)
            | State::CheckResult(_)
            | State::Finished => reject(Fault::Bug),
        };
        self.state = state;
        step
    }

    /// Takes the answer to the last [`Step::Ask`], and keeps what it cost in the cache.
    pub fn answer(&mut self, answer: TaskResult, cache: &mut DerivedCache) -> Step {
        let (state, step) = match (std::mem::replace(&mut self.state, State::Finished), answer) {
            (State::DerivedPassword(expect), TaskResult::SaltedPassword(salted)) => expect.answer(&salted),
            (State::DerivedKeys(expect), TaskResult::SaltedPassword(salted)) => expect.answer(&salted, cache),
            (State::Account(expect), TaskResult::Account(name)) => expect.answer(name.as_deref()),
            (State::CheckResult(expect), TaskResult::Checked(verdict)) => expect.answer(&verdict),
            _ => reject(Fault::Bug),
        };
        self.state = state;
        step
    }
}

/// `md5` means SCRAM for users with a SCRAM verifier, as in PgBouncer, and for unknown users where most known ones have
/// one.
fn effective_method(method: Method, secret: Option<&Secret>, mock: &MockKey) -> Method {
    let kind = secret.map_or(mock.kind(), Secret::kind);
    if method == Method::Md5 && kind == Kind::Scram { Method::Scram } else { method }
}

fn pass() -> (State, Step) {
    (State::Finished, Step::Accept(Accepted::default()))
}

fn reject(fault: impl Into<Fault>) -> (State, Step) {
    (State::Finished, Step::Reject(fault.into()))
}
