//! Clients that send a password, in clear text or hashed with MD5 and a salt.
//! Every comparison here takes the same time wherever the difference is, and one is made for unknown users, too.

use super::{State, reject};
use crate::fault::{ClientFault, Malformed};
use crate::mock::MockKey;
use crate::secret::{Kind, Secret, Verifier};
use crate::{Accepted, Entropy, MAX_ITERATIONS, OffloadedTask, Step, bytes, md5, scram};
use subtle::{Choice, ConstantTimeEq};
use wire::{encode, frontend};
use zeroize::Zeroizing;

/// Waits for PasswordMessage with clear text.
pub(super) struct ExpectPassword {
    user: String,
    check: Check,
}

/// What the clear text is compared with.
enum Check {
    Plain { digest: [u8; 32], known: bool },
    Md5(Zeroizing<[u8; 32]>),
    Scram { verifier: Verifier, known: bool },
}

impl ExpectPassword {
    pub(super) fn begin(
        user: &str,
        secret: Option<&Secret>,
        mock: &MockKey,
        iterations: u32,
    ) -> (State, Step) {
        let check = match secret {
            Some(Secret::Plain(password)) => {
                Check::Plain { digest: scram::hash(&[password.as_bytes()]), known: true }
            }
            Some(Secret::Md5(digits)) => Check::Md5(digits.clone()),
            Some(Secret::Scram(verifier)) => Check::Scram { verifier: verifier.clone(), known: true },
            None if mock.kind() == Kind::Scram => {
                let (salt, stored_key) = (mock.salt(user), mock.stored_key(user));
                let verifier = Verifier { iterations, salt, stored_key, server_key: stored_key };
                Check::Scram { verifier, known: false }
            }
            None => Check::Plain { digest: mock.stored_key(user), known: false },
        };
        let expect = Self { user: user.to_owned(), check };
        (State::Password(expect), Step::Send(bytes(encode::authentication_cleartext)))
    }

    pub(super) fn message(self, body: &[u8]) -> (State, Step) {
        let password = match read_password(body) {
            Ok(password) => Zeroizing::new(password.to_vec()),
            Err(fault) => return reject(fault),
        };
        match self.check {
            // Digests are compared, so that the time does not tell how long the password is.
            Check::Plain { digest, known } => {
                let fits = scram::hash(&[&password]).ct_eq(&digest) & Choice::from(u8::from(known));
                verdict(fits)
            }
            Check::Md5(digits) => verdict(md5::stored(&password, &self.user).ct_eq(&*digits)),
            Check::Scram { verifier, known } => {
                // A verifier may come from a server by auth_query: one that demands more fails instead of keeping a
                // helper thread busy.
                let iterations = verifier.iterations.min(MAX_ITERATIONS);
                let prepared = scram::prepare_password(&password);
                let question = OffloadedTask::Pbkdf2 { password: prepared, salt: verifier.salt, iterations };
                let expect = ExpectDerivedPassword { stored_key: verifier.stored_key, known };
                (State::DerivedPassword(expect), Step::Ask(question))
            }
        }
    }
}

/// Waits for SaltedPassword of a clear text that is checked against a SCRAM verifier.
pub(super) struct ExpectDerivedPassword {
    stored_key: [u8; 32],
    known: bool,
}

impl ExpectDerivedPassword {
    pub(super) fn answer(self, salted_password: &[u8; 32]) -> (State, Step) {
        let stored_key = scram::hash(&[&scram::client_key(salted_password)]);
        let fits = stored_key.ct_eq(&self.stored_key) & Choice::from(u8::from(self.known));
        verdict(fits)
    }
}

/// Waits for PasswordMessage with the MD5 reply.
pub(super) struct ExpectMd5 {
    reply: Zeroizing<[u8; 35]>,
    known: bool,
}

impl ExpectMd5 {
    pub(super) fn begin(
        user: &str,
        secret: Option<&Secret>,
        mock: &MockKey,
        entropy: &mut dyn Entropy,
    ) -> (State, Step) {
        let mut salt = [0; 4];
        entropy.fill(&mut salt);
        let (stored, known) = match secret {
            Some(Secret::Plain(password)) => (md5::stored(password.as_bytes(), user), true),
            Some(Secret::Md5(digits)) => (**digits, true),
            Some(Secret::Scram(_)) | None => (mock.md5(user), false),
        };
        let expect = Self { reply: Zeroizing::new(md5::reply(&stored, salt)), known };
        (State::Md5(expect), Step::Send(bytes(|out| encode::authentication_md5(out, salt))))
    }

    pub(super) fn message(self, body: &[u8]) -> (State, Step) {
        match read_password(body) {
            Ok(reply) => {
                let fits = reply.ct_eq(&self.reply[..]) & Choice::from(u8::from(self.known));
                if bool::from(fits) {
                    (State::Finished, Step::Accept(Accepted::default()))
                } else {
                    reject(ClientFault::Password)
                }
            }
            Err(fault) => reject(fault),
        }
    }
}

/// An empty password is never right (PostgreSQL and PgBouncer refuse it before they compare).
fn read_password(body: &[u8]) -> Result<&[u8], ClientFault> {
    match frontend::password(body) {
        Some([]) => Err(ClientFault::Password),
        Some(password) => Ok(password),
        None => Err(Malformed::Layout.into()),
    }
}

/// The typed password is not passed on: as in PgBouncer, servers get the stored secret, which it only confirmed.
fn verdict(fits: Choice) -> (State, Step) {
    if bool::from(fits) {
        (State::Finished, Step::Accept(Accepted::default()))
    } else {
        reject(ClientFault::Password)
    }
}
