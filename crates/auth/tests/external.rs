//! Logins with LDAP or PAM: what is sent to the backend, and the effect of its result.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use settings::ldap::Options;
use weir_auth::{
    AuthBackend, CheckResult, ClientFault, ClientLogin, DerivedCache, Fault, OffloadedTask, Step, TaskResult,
};

fn directory() -> AuthBackend {
    AuthBackend::Ldap(Arc::new(Options::parse("ldapserver=h ldapprefix=uid=").unwrap()))
}

fn begun(authority: AuthBackend) -> ClientLogin {
    let (login, step) = ClientLogin::begin_external(authority, "alice", "10.0.0.1");
    let Step::Send(asked) = step else { panic!("{step:?}") };
    assert_eq!(asked, b"R\0\0\0\x08\0\0\0\x03", "AuthenticationCleartextPassword");
    login
}

fn refusal(step: Step) -> Fault {
    let Step::Reject(fault) = step else { panic!("{step:?}") };
    fault
}

#[test]
fn the_authority_is_asked_and_its_word_counts() {
    for authority in [directory(), AuthBackend::Pam] {
        let mut login = begun(authority.clone());
        let Step::Ask(OffloadedTask::Check(check)) = login.message(b"s3cret\0") else { panic!("not asked") };
        assert_eq!(
            (&*check.user, &*check.remote, &check.password[..]),
            ("alice", "10.0.0.1", &b"s3cret"[..])
        );
        assert_eq!(check.authority, authority);
        assert!(!format!("{check:?}").contains("s3cret"));
        let step = login.answer(TaskResult::Checked(CheckResult::Passed), &mut DerivedCache::default());
        let Step::Accept(accepted) = step else { panic!("{step:?}") };
        assert_eq!(accepted.password.unwrap().as_str(), "s3cret", "servers are logged in to with it");

        let mut login = begun(authority.clone());
        login.message(b"wrong\0");
        let no = TaskResult::Checked(CheckResult::Refused("because".to_owned()));
        let fault = refusal(login.answer(no, &mut DerivedCache::default()));
        assert_eq!(fault, Fault::Client(authority.refusal()));
        assert_eq!(fault.sqlstate(), "28000");
    }
}

#[test]
fn an_empty_password_is_never_asked_about() {
    let mut login = begun(directory());
    let fault = refusal(login.message(b"\0"));
    assert_eq!((fault, fault.message()), (ClientFault::Ldap.into(), "LDAP authentication failed"));
    assert_eq!(refusal(begun(AuthBackend::Pam).message(b"\0")).message(), "PAM authentication failed");
}

#[test]
fn a_message_that_is_none_is_not_asked_about() {
    for body in [&b""[..], b"no end", b"two\0ends\0", b"\0behind"] {
        assert_eq!(refusal(begun(directory()).message(body)).sqlstate(), "08P01", "{body:?}");
    }
    let long = [&[b'x'; 70_000][..], b"\0"].concat();
    assert_eq!(refusal(begun(directory()).message(&long)).message(), "authentication message too long");
}

#[test]
fn nothing_may_come_out_of_turn() {
    let mut cache = DerivedCache::default();
    let mut early = begun(directory());
    assert_eq!(refusal(early.answer(TaskResult::Checked(CheckResult::Passed), &mut cache)), Fault::Bug);
    let mut again = begun(directory());
    again.message(b"x\0");
    assert_eq!(refusal(again.message(b"y\0")), Fault::Bug);
    let mut crossed = begun(directory());
    crossed.message(b"x\0");
    assert_eq!(refusal(crossed.answer(TaskResult::SaltedPassword([0; 32]), &mut cache)), Fault::Bug);
    let mut late = begun(directory());
    late.message(b"x\0");
    late.answer(TaskResult::Checked(CheckResult::Refused(String::new())), &mut cache);
    assert_eq!(refusal(late.answer(TaskResult::Checked(CheckResult::Passed), &mut cache)), Fault::Bug);
}

#[test]
fn a_password_that_is_no_text_is_no_servers() {
    let mut login = begun(AuthBackend::Pam);
    login.message(b"\xff\0");
    let step = login.answer(TaskResult::Checked(CheckResult::Passed), &mut DerivedCache::default());
    let Step::Accept(accepted) = step else { panic!("{step:?}") };
    assert!(accepted.password.is_none());
}
