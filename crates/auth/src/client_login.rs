//! The exchange towards our clients, where we are the server: PgBouncer's rules of which `auth_type` meets which
//! stored secret. It owns the order of the messages and the verdict.
//! It never tells a client whether the user exists: unknown users go through the same exchange with a mock.

mod account;
mod certificate;
mod elsewhere;
mod password;
mod scram;

use crate::cache::DerivedCache;
use crate::fault::{ClientFault, Fault, Malformed};
use crate::mock::MockKey;
use crate::secret::{Kind, Secret};
use crate::{Accepted, Answer, Authority, Entropy, MAX_BODY, Method, Step};
use account::ExpectAccount;
pub use certificate::Shown;
use elsewhere::{ExpectSecret, ExpectVerdict};
use password::{ExpectDerivedPassword, ExpectMd5, ExpectPassword};
use scram::{ExpectDerivedKeys, ExpectFinal, ExpectFirst};
use settings::ident::IdentMap;
use std::sync::Arc;

/// One client's login, from the accepted startup packet to the verdict.
pub struct ClientLogin {
    state: State,
}

/// What it waits for; each state is a type of its own that knows the next.
enum State {
    Password(ExpectPassword),
    DerivedPassword(ExpectDerivedPassword),
    Md5(ExpectMd5),
    Secret(ExpectSecret),
    Verdict(ExpectVerdict),
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
    /// whether there is such a user at all; a `map` says who may be whom.
    pub fn peer(user: &str, known: bool, user_id: Option<u32>, map: Option<Arc<IdentMap>>) -> (Self, Step) {
        let (state, step) = ExpectAccount::begin(user, known, user_id, map);
        (Self { state }, step)
    }

    /// A login by the names in a client's certificate; the step is the verdict. `known` and `map` are as for
    /// [`ClientLogin::peer`].
    pub fn certificate(user: &str, known: bool, shown: Shown<'_>, map: Option<&IdentMap>) -> (Self, Step) {
        let (state, step) = certificate::judge(user, known, shown, map);
        (Self { state }, step)
    }

    /// Begins an exchange whose verdict is somebody else's; `remote` is the client's address for their records.
    pub fn begin_elsewhere(authority: Authority, user: &str, remote: &str) -> (Self, Step) {
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
            | State::Verdict(_)
            | State::Finished => reject(Fault::Bug),
        };
        self.state = state;
        step
    }

    /// Takes the answer to the last [`Step::Ask`], and keeps what it cost in the cache.
    pub fn answer(&mut self, answer: Answer, cache: &mut DerivedCache) -> Step {
        let (state, step) = match (std::mem::replace(&mut self.state, State::Finished), answer) {
            (State::DerivedPassword(expect), Answer::SaltedPassword(salted)) => expect.answer(&salted),
            (State::DerivedKeys(expect), Answer::SaltedPassword(salted)) => expect.answer(&salted, cache),
            (State::Account(expect), Answer::Account(name)) => expect.answer(name.as_deref()),
            (State::Verdict(expect), Answer::Verdict(verdict)) => expect.answer(&verdict),
            _ => reject(Fault::Bug),
        };
        self.state = state;
        step
    }
}

/// `md5` means SCRAM for whoever has a SCRAM verifier (PgBouncer does the same), and for unknown users where most
/// known ones have one.
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
