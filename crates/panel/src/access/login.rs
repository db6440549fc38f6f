//! Logging in and out: a password or a token for a cookie.
//! Owns in which order things are looked at, so that guessing is slow and says nothing. Never keeps a password.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use axum::http::HeaderMap;

use crate::access::credentials::{PasswordCredential, verify_dummy};
use crate::access::sessions::{LoginSession, Proof, SessionId};
use crate::access::{Access, Caller, cookie, cookie_name, held, is_own};
use crate::connection::RemoteAddress;
use crate::failure::Failure;

/// How long an attempt waits for its turn.
const TURN: Duration = Duration::from_secs(5);

/// Longer passwords are rejected unchecked.
const MAX_PASSWORD_BYTES: usize = 1_024;

/// The name that attempts with a token go by.
const TOKEN: &str = "token";

/// What a login is made with.
pub(crate) enum LoginAttempt {
    /// A user of the file.
    Password { user: String, password: String },
    /// A token, pasted.
    Token(String),
}

/// What came of it: the header that sets the cookie, the caller.
pub(crate) struct LoggedIn {
    pub(crate) cookie: String,
    pub(crate) caller: Caller,
}

impl LoginAttempt {
    /// The user that the attempt names.
    pub(crate) fn name(&self) -> &str {
        match self {
            LoginAttempt::Password { user, .. } => user,
            LoginAttempt::Token(_) => TOKEN,
        }
    }
}

/// Begins a session.
///
/// # Errors
/// [`Failure`]: 401 for wrong credentials, 403 where no login is possible, 429 after too many attempts.
pub(crate) async fn log_in(
    access: &Access,
    peer: RemoteAddress,
    headers: &HeaderMap,
    attempt: LoginAttempt,
) -> Result<LoggedIn, Failure> {
    if !peer.is_tls && !peer.address.ip().to_canonical().is_loopback() {
        return Err(Failure::PlainHttpLogin);
    }
    let origin = headers.get("origin").map(|origin| origin.to_str().unwrap_or_default());
    if origin.is_some_and(|origin| !is_own(origin, headers, peer)) {
        return Err(Failure::ForeignPage);
    }
    let address = network(peer.address.ip());
    let proof = match &attempt {
        LoginAttempt::Token(token) => of_token(access, address, token.trim())?,
        LoginAttempt::Password { user, password } => {
            let wait = held(&access.throttle).attempt(address, user, Instant::now());
            tokio::time::sleep(wait.map_err(|seconds| Failure::TooManyAttempts { seconds })?).await;
            of_password(access, address, user, password).await?
        }
    };
    let caller = proof.and_then(|proof| access.caller_by(&proof).map(|caller| (proof, caller)));
    let (proof, caller) = caller.ok_or(Failure::Unauthorized)?;
    if let LoginAttempt::Password { user, .. } = &attempt {
        held(&access.throttle).succeeded(address, user);
    }
    held(&access.trusted).add(address, Instant::now());
    let (word, LoginSession { csrf, .. }) = held(&access.sessions).begin(proof, Instant::now());
    let caller = Caller { csrf: Some(csrf), ..caller };
    Ok(LoggedIn { cookie: set_cookie(peer, &word, None), caller })
}

/// Ends the session of this request; gives the header that takes the cookie away.
pub(crate) fn log_out(access: &Access, peer: RemoteAddress, headers: &HeaderMap) -> String {
    if let Some(cookie) = cookie(headers, peer) {
        held(&access.sessions).end(SessionId::of(&cookie));
    }
    set_cookie(peer, "", Some(0))
}

/// The right token is never made to wait: 256 bits are not found by guessing, and looking at them costs nothing.
fn of_token(access: &Access, address: IpAddr, token: &str) -> Result<Option<Proof>, Failure> {
    let proof = access.proof(token);
    if proof.is_some() {
        return Ok(proof);
    }
    match held(&access.throttle).attempt(address, TOKEN, Instant::now()) {
        Ok(Duration::ZERO) => Ok(None),
        Ok(wait) => Err(Failure::TooManyAttempts { seconds: wait.as_secs().max(1) }),
        Err(seconds) => Err(Failure::TooManyAttempts { seconds }),
    }
}

/// Checks a password on a thread of its own; an unknown user takes as long as a known one.
async fn of_password(
    access: &Access,
    address: IpAddr,
    user: &str,
    password: &str,
) -> Result<Option<Proof>, Failure> {
    if password.len() > MAX_PASSWORD_BYTES {
        return Ok(None);
    }
    let busy = |_| Failure::TooManyAttempts { seconds: 1 };
    let is_trusted = held(&access.trusted).has(address);
    let queue = if is_trusted { &access.trusted_passwords } else { &access.passwords };
    let turn = tokio::time::timeout(TURN, queue.acquire()).await;
    let _turn = turn.map_err(busy)?.map_err(|_| Failure::ServerError)?;
    let known: Option<PasswordCredential> = held(&access.credentials).user(user).cloned();
    let password = password.to_owned();
    let looked = tokio::task::spawn_blocking(move || match known {
        Some(user) => user.is(&password).then_some(Proof::Password(user)),
        None => {
            verify_dummy(&password);
            None
        }
    });
    looked.await.map_err(|_| Failure::ServerError)
}

/// What counts as one address: a network of IPv6 has countless ones.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::from((v6.to_bits() >> 64 << 64).to_be_bytes()),
        v4 => v4,
    }
}

fn set_cookie(peer: RemoteAddress, value: &str, age_s: Option<u32>) -> String {
    let secure = if peer.is_tls { "; Secure" } else { "" };
    let age = age_s.map(|seconds| format!("; Max-Age={seconds}")).unwrap_or_default();
    format!("{}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{age}", cookie_name(peer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_tls_the_cookie_is_bound_to_the_host() {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 9));
        let tls = set_cookie(RemoteAddress { address, is_tls: true }, "x", None);
        assert_eq!(tls, "__Host-weir=x; Path=/; HttpOnly; SameSite=Strict; Secure");
        let plain = set_cookie(RemoteAddress { address, is_tls: false }, "", Some(0));
        assert_eq!(plain, "weir=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    }

    #[test]
    fn guesses_from_other_addresses_do_not_delay_one_that_has_logged_in_before() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let access = Access::new(crate::access::TokenOutput::Terminal);
        let [here, there] = [[127, 0, 0, 1], [192, 0, 2, 1]].map(IpAddr::from);
        held(&access.trusted).add(here, Instant::now());
        runtime.block_on(async {
            let _guesses = access.passwords.acquire().await.expect("a turn");
            assert!(matches!(of_password(&access, here, "ann", "x").await, Ok(None)));
            let soon = Duration::from_millis(50);
            assert!(tokio::time::timeout(soon, of_password(&access, there, "ann", "x")).await.is_err());
        });
    }

    #[test]
    fn one_network_is_one_address() {
        let network = |text: &str| network(text.parse().expect("an address"));
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
        assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.1"));
    }
}
