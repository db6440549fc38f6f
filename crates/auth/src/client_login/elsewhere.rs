//! Clients whose password somebody else checks: a directory or PAM.
//! Owns the two messages of that. Never decides; and never asks about an empty password, which a directory would take
//! for an anonymous bind and let pass.

use super::{State, reject};
use crate::fault::{ClientFault, Malformed};
use crate::{Accepted, Authority, Check, Question, Step, Verdict, bytes};
use wire::{encode, frontend};
use zeroize::Zeroizing;

/// Waits for PasswordMessage with clear text.
pub(super) struct ExpectSecret {
    authority: Authority,
    user: String,
    remote: String,
}

impl ExpectSecret {
    pub(super) fn begin(authority: Authority, user: &str, remote: &str) -> (State, Step) {
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
        let check = Check { authority, user, remote, password: password.clone() };
        (State::Verdict(ExpectVerdict { password, fault }), Step::Ask(Question::Check(Box::new(check))))
    }
}

/// Waits for what the authority says.
pub(super) struct ExpectVerdict {
    password: Zeroizing<Vec<u8>>,
    fault: ClientFault,
}

impl ExpectVerdict {
    pub(super) fn answer(self, answer: &Verdict) -> (State, Step) {
        match answer {
            Verdict::Passed => {
                let password = std::str::from_utf8(&self.password).ok();
                let password = password.map(|text| Zeroizing::new(text.to_owned()));
                (State::Finished, Step::Accept(Accepted { password, ..Accepted::default() }))
            }
            Verdict::Refused(_) => reject(self.fault),
        }
    }
}
