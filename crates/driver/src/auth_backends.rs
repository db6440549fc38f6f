//! External authentication backends: directories and PAM, asked on threads of their own.
//!
//! Owns the number of concurrent checks and cancels those of clients that have disconnected.

use std::sync::Arc;
use std::time::Duration;

use auth::{AuthBackend, CheckResult, PasswordCheck, TaskResult};
use settings::hba::RuleMethod;
use settings::{AuthType, Config};

use crate::clock::monotonic_us;
use crate::ids::Requester;
use crate::ldap::Ldap;
use crate::mailbox::{MailboxMessage, Mailboxes};
use crate::pam::Pam;
use crate::thread_pool::{Overloaded, ThreadPool};

/// Logins that are asked about at once: a directory that is down holds one up for seconds, and the others must not wait
/// for that.
const THREADS: usize = 64;

/// The ways to them.
pub(crate) struct AuthBackends {
    mailboxes: Mailboxes,
    libraries: Arc<Libraries>,
    directories: ThreadPool,
    pam: ThreadPool,
}

/// The backend libraries, loaded on first use.
#[derive(Default)]
struct Libraries {
    ldap: Ldap,
    pam: Pam,
}

impl AuthBackends {
    /// No check is running, and no thread exists yet.
    pub(crate) fn new(mailboxes: &Mailboxes) -> AuthBackends {
        AuthBackends {
            mailboxes: mailboxes.clone(),
            libraries: Arc::default(),
            directories: ThreadPool::new("weir-ldap", THREADS),
            pam: ThreadPool::new("weir-pam", THREADS),
        }
    }

    /// What a configuration needs and this machine lacks: logins will be refused until it is there.
    pub(crate) fn lacking(&self, config: &Config) -> Option<String> {
        let by_rule = |rule: &settings::hba::Rule| matches!(rule.method, RuleMethod::Ldap(_));
        match config.global.auth_type {
            AuthType::Pam => self.libraries.pam.load().err(),
            AuthType::Ldap => self.libraries.ldap.load().err(),
            AuthType::Hba if config.hba.rules.iter().any(by_rule) => self.libraries.ldap.load().err(),
            _ => None,
        }
    }

    /// Asks; [`MailboxMessage::Answered`] follows. After `patience` (0 is never over) the client is gone, and a question that has
    /// not been asked by then is dropped.
    pub(crate) fn ask(&self, requester: Requester, check: PasswordCheck, patience: Duration) {
        let threads = match check.authority {
            AuthBackend::Ldap(_) => &self.directories,
            AuthBackend::Pam => &self.pam,
        };
        let (libraries, mailboxes) = (Arc::clone(&self.libraries), self.mailboxes.clone());
        let asked_us = monotonic_us();
        let job = move || {
            let waited = Duration::from_micros(monotonic_us().saturating_sub(asked_us));
            if patience.is_zero() || waited < patience {
                answer(&mailboxes, requester, libraries.check(&check));
            }
        };
        if let Err(Overloaded) = threads.take(Box::new(job)) {
            answer(&self.mailboxes, requester, Err("too many logins wait for an answer".to_owned()));
        }
    }
}

impl Libraries {
    fn check(&self, check: &PasswordCheck) -> Result<(), String> {
        match &check.authority {
            AuthBackend::Ldap(options) => self.ldap.check(options, &check.user, &check.password),
            AuthBackend::Pam => self.pam.check(&check.user, &check.remote, &check.password),
        }
    }
}

fn answer(mailboxes: &Mailboxes, requester: Requester, outcome: Result<(), String>) {
    let verdict = match outcome {
        Ok(()) => CheckResult::Passed,
        Err(reason) => CheckResult::Refused(reason),
    };
    let Requester { shard, conn, generation } = requester;
    mailboxes
        .post(shard, MailboxMessage::Answered { conn, generation, answer: TaskResult::Checked(verdict) });
}
