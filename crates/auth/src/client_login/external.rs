//! Password authentication by an external backend: LDAP or PAM.
//! Owns the two messages. Never passes on an empty password, which LDAP would accept as an anonymous bind.

use super::{State, reject};
use crate::fault::{ClientFault, Malformed};
use crate::{Accepted, AuthBackend, CheckResult, OffloadedTask, PasswordCheck, Step, bytes};
use wire::{encode, frontend};
use zeroize::Zeroizing;

/// Waits for PasswordMessage with clear text.
pub(super) struct ExpectSecret {
    authority: AuthBackend,
    user: String,
    remote: String,
}

impl ExpectSecret {
    pub(super) fn begin(authority: AuthBackend, user: &str, remote: &str) -> (State, Step) {
        let expect = Self { authority, user: user.to_owned(), remote: remote.to_owned() };
        (State::Secret(expect), Step::Send(bytes(encode::authentication_cleartext)))
    }

    pub(super) fn message(self, body: &[u8]) -> (State, Step) {
        let fault = self.authority.refusal();
        let password = match frontend::password(body) {
            None => return reject(ClientFault::from(Malformed::Layout)),
            Some([]) => return reject(fault),
            Some(password) => Zeroizing::new(password.to_vec()),
        };
        let Self { authority, user, remote } = self;
        let check = PasswordCheck { authority, user, remote, password: password.clone() };
        (
            State::CheckResult(ExpectVerdict { password, fault }),
            Step::Ask(OffloadedTask::Check(Box::new(check))),
        )
    }
}

/// Waits for the backend's result.
pub(super) struct ExpectVerdict {
    password: Zeroizing<Vec<u8>>,
    fault: ClientFault,
}

impl ExpectVerdict {
    pub(super) fn answer(self, answer: &CheckResult) -> (State, Step) {
        match answer {
            CheckResult::Passed => {
                let password = std::str::from_utf8(&self.password).ok();
                let password = password.map(|text| Zeroizing::new(text.to_owned()));
                (State::Finished, Step::Accept(Accepted { password, ..Accepted::default() }))
            }
            CheckResult::Refused(_) => reject(self.fault),
        }
    }
}
