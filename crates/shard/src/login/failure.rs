//! Failed logins: how long their error is held back.
//!
//! Owns `auth_failure_delay`. Only refusals are held, and only to an address that has failed several times in a row: a
//! correct password is never slowed down, whatever other clients do, and a single wrong one is answered at once. What
//! waits is an unauthenticated connection, and counts as one: of too many, it is the first to be answered and closed.

use std::collections::BTreeMap;

use wire::sqlstate;

use crate::ConnId;
use crate::client::Phase;
use crate::client::login::HeldAnswer;
use crate::client::login_times::LoginPart;
use crate::core::Core;
use crate::link::{client_end, slow_login};
use crate::login::Logins;
use crate::login::unauthenticated::Origin;
use crate::time::{micros, passed};

/// Failures that are answered at once.
const FREE: u32 = 4;
/// After so long without a failure they are free again.
const FORGOTTEN_US: u64 = 10_000_000;
/// Origins that are remembered at most.
const ORIGINS: usize = 1024;

/// Failures by origin: how many in a row, and when the last one was.
#[derive(Default)]
pub(crate) struct Failures(BTreeMap<Origin, (u32, u64)>);

impl Failures {
    /// Counts one; whether there were too many before it.
    fn count(&mut self, origin: Origin, now_us: u64) -> bool {
        let is_recent = |last_us: u64| now_us.saturating_sub(last_us) < FORGOTTEN_US;
        if self.0.len() >= ORIGINS {
            self.0.retain(|_, (_, last_us)| is_recent(*last_us));
        }
        if self.0.len() >= ORIGINS {
            self.0.clear();
        }
        let (count, last_us) = self.0.entry(origin).or_insert((0, now_us));
        if !is_recent(*last_us) {
            *count = 0;
        }
        *count = count.saturating_add(1);
        *last_us = now_us;
        *count > FREE
    }
}

impl Logins {
    /// A login has failed: its client gets the error, now or later.
    pub(crate) fn fail_login(&mut self, core: &mut Core, conn: ConnId, sqlstate: &'static str, text: &str) {
        let now_us = core.now.mono_us;
        let Some(client) = core.client(conn) else { return };
        let origin = Origin::of(client.peer);
        let is_repeated = self.failures.count(origin, now_us);
        if !is_repeated || core.config.global.auth_failure_delay.is_zero() {
            return client_end::fail_client(core, conn, sqlstate, text);
        }
        let Some(client) = core.client(conn) else { return };
        let Phase::Login(login) = &mut client.phase else {
            return client_end::fail_client(core, conn, sqlstate, text);
        };
        login.exchange = None;
        login.held_answer = Some(Box::new(HeldAnswer { since_us: now_us, sqlstate, text: text.to_owned() }));
        client.request.held = Vec::new();
        slow_login::begins(client, LoginPart::Delay, now_us);
        let sent = std::mem::take(&mut client.login_bytes);
        self.forget_login_bytes(sent);
        self.decide_unauthenticated(core, conn);
    }

    /// PgBouncer's error after a query, whatever the authentication method.
    pub(crate) fn user_unknown(&mut self, core: &mut Core, conn: ConnId) {
        self.fail_login(core, conn, sqlstate::INVALID_AUTHORIZATION, "no such user");
    }

    /// Sends the held error at once, because the connection's place is needed. False: it waits for no such error.
    pub(crate) fn answer_at_once(&mut self, core: &mut Core, conn: ConnId) -> bool {
        let Some(Phase::Login(login)) = core.client(conn).map(|client| &mut client.phase) else {
            return false;
        };
        let Some(answer) = login.held_answer.take() else { return false };
        self.uncount_unauthenticated(core, conn); // At once: there may be room to be made for more.
        client_end::fail_client(core, conn, answer.sqlstate, &answer.text);
        true
    }

    /// Sends the held error once the delay is over.
    pub(crate) fn check_held_answer(&mut self, core: &mut Core, conn: ConnId) {
        let (now_us, delay_us) = (core.now.mono_us, micros(core.config.global.auth_failure_delay));
        let Some(client) = core.client(conn) else { return };
        let Phase::Login(login) = &mut client.phase else { return };
        // A delay that was turned off meanwhile is over.
        let is_due =
            |answer: &mut Box<HeldAnswer>| delay_us == 0 || passed(now_us, answer.since_us, delay_us);
        if let Some(answer) = login.held_answer.take_if(is_due) {
            client_end::fail_client(core, conn, answer.sqlstate, &answer.text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: Origin = Origin::UnixUser(7);

    #[test]
    fn the_first_failures_are_free_and_so_are_rare_ones() {
        let mut failures = Failures::default();
        let counted: Vec<bool> = (0..6).map(|number| failures.count(ORIGIN, number)).collect();
        assert_eq!(counted, [false, false, false, false, true, true]);
        assert!(failures.count(ORIGIN, FORGOTTEN_US), "since the last one, not the first");
        assert!(!failures.count(ORIGIN, 2 * FORGOTTEN_US));
    }

    #[test]
    fn memory_has_an_end() {
        let mut failures = Failures::default();
        for number in 0..3 * u32::try_from(ORIGINS).unwrap_or_default() {
            let address = std::net::SocketAddr::from((std::net::Ipv4Addr::from_bits(number), 5));
            let origin = Origin::of(crate::Peer::Inet { remote: address, local: address });
            failures.count(origin, 10);
            assert!(failures.0.len() <= ORIGINS);
        }
    }
}
