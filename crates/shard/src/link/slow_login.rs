//! Logins that took long (`log_slow_queries`): what the log says of them.
//!
//! Owns the line's text, and which logins are measured: those that begin while the setting is on. What a login waits for is told here where that begins and ends; nothing
//! is measured of others.

use std::fmt::Write as _;

use auth::{AuthBackend, OffloadedTask};
use telemetry::Level;

use crate::ConnId;
use crate::client::login_times::{LoginPart, LoginTimes};
use crate::client::{Client, Phase};
use crate::core::Core;
use crate::time::{micros, milliseconds};

/// A client has connected.
#[cold]
#[inline(never)]
pub(crate) fn measure(client: &mut Client) {
    client.login_times = Some(Box::default());
}

/// The login waits for this from now on.
pub(crate) fn begins(client: &mut Client, part: LoginPart, now_us: u64) {
    if let Some(times) = &mut client.login_times {
        times.begin(part, now_us);
    }
}

/// It waits for its client again.
pub(crate) fn ends(client: &mut Client, now_us: u64) {
    if let Some(times) = &mut client.login_times {
        times.end(now_us);
    }
}

/// Who works on a task of a login.
pub(crate) fn part_of(task: &OffloadedTask) -> LoginPart {
    match task {
        OffloadedTask::Check(check) => match check.authority {
            AuthBackend::Ldap(_) => LoginPart::Ldap,
            AuthBackend::Pam => LoginPart::Pam,
        },
        OffloadedTask::Pbkdf2 { .. } | OffloadedTask::Account { .. } => LoginPart::Helper,
    }
}

/// The client has logged in.
pub(crate) fn succeeded(core: &mut Core, conn: ConnId) {
    let Some(client) = core.conns.client_mut(conn) else { return };
    if let Some(times) = client.login_times.take() {
        log(core, conn, *times, false);
    }
}

/// The client disconnects, or is disconnected. Of those that have not said who they are nothing is logged: load balancers check this way.
pub(crate) fn failed(core: &mut Core, conn: ConnId) {
    let Some(client) = core.conns.find_client_mut(conn) else { return };
    let Some(times) = client.login_times.take() else { return };
    let is_unknown =
        matches!(client.phase, Phase::Startup { .. } | Phase::Handshake { .. } | Phase::CancelRequest(_));
    if !is_unknown {
        log(core, conn, *times, true);
    }
}

#[cold]
#[inline(never)]
fn log(core: &mut Core, conn: ConnId, mut times: LoginTimes, is_failed: bool) {
    let (now_us, least_us) = (core.now.mono_us, micros(core.config.global.log_slow_queries));
    let Some(client) = core.conns.client(conn) else { return };
    let took_us = now_us.saturating_sub(client.since_us);
    times.end(now_us);
    if least_us > 0 && took_us >= least_us {
        core.log_client(conn, Level::Log, &line(&times, took_us, is_failed));
    }
}

/// What is no part is the client's: its messages, and the network on the way to it.
fn line(times: &LoginTimes, took_us: u64, is_failed: bool) -> String {
    let mut line = format!("slow login: {} ms (", milliseconds(took_us));
    let mut rest_us = took_us;
    for part in LoginPart::ALL {
        let us = times.us(part);
        if us > 0 {
            let _ = write!(line, "{} {}, ", part.word(), milliseconds(us));
            rest_us = rest_us.saturating_sub(us);
        }
    }
    let end = if is_failed { "; failed)" } else { ")" };
    let _ = write!(line, "client {}{end}", milliseconds(rest_us));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_add_up() {
        let mut times = LoginTimes::default();
        times.begin(LoginPart::Tls, 0);
        times.begin(LoginPart::Ldap, 12_100);
        times.end(512_100);
        let expected = "slow login: 522.1 ms (tls 12.1, ldap 500.0, client 10.0)";
        assert_eq!(line(&times, 522_100, false), expected);
        assert_eq!(line(&LoginTimes::default(), 1_000, true), "slow login: 1.0 ms (client 1.0; failed)");
    }
}
