//! Authentication and scopes: every request to the API has a caller with scopes before a route sees it.
//!
//! [`authenticate`] runs before all routes that need a caller; a route then states by a type which scope it needs
//! ([`Authorized`]). Never decides what a scope is needed for: the routes do.

pub(crate) mod audit_log;
pub(crate) mod auth_file;
mod credentials;
pub(crate) mod login;
mod scope;
mod sessions;
mod start_token;
mod throttle;
mod token;

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use settings::Global;
use telemetry::{Level, Record};
use tokio::sync::Semaphore;

pub use credentials::{AuthFileError, CredentialError, password_line, token_line};
pub(crate) use scope::{Admin, Operate, Read, RequiredScope, ScopeName, Scopes, ViewCredentials};
pub use start_token::TokenOutput;

use crate::connection::RemoteAddress;
use crate::connection_limits::TrackedConnection;
use crate::context::LogWriter;
use crate::failure::Failure;
use crate::guard::host;
use audit_log::AuditLog;
use credentials::PanelCredentials;
use sessions::{LoginSession, Proof, SessionId, Sessions};
use start_token::StartToken;
use throttle::{Throttle, TrustedAddresses};
pub(crate) use token::{entropy, hex};

/// The header that a page repeats its session's word in.
const CSRF: &str = "x-weir-csrf";

/// Passwords that are checked at once, each on 19 MiB: one from any address, and one more from an address that has logged in before.
const PASSWORDS_AT_ONCE: usize = 1;

/// The credentials, sessions and limits of the panel.
pub(crate) struct Access {
    start_token: StartToken,
    credentials: Mutex<PanelCredentials>,
    sessions: Mutex<Sessions>,
    throttle: Mutex<Throttle>,
    passwords: Semaphore,
    /// For addresses that have logged in before: guesses from others never make them wait.
    trusted_passwords: Semaphore,
    trusted: Mutex<TrustedAddresses>,
    /// Held during a change of the file.
    auth_file: tokio::sync::Mutex<()>,
}

/// Whose request it is.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) name: String,
    pub(crate) scopes: Scopes,
    /// What the header of CSRF must say, if the caller has logged in.
    pub(crate) csrf: Option<String>,
    credential: Credential,
}

/// What a request was sent with; whether it still counts can be asked again.
#[derive(Clone, Debug)]
enum Credential {
    /// A token in the request itself.
    Proof(Proof),
    /// The cookie of a session.
    Session(SessionId),
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Access {
    pub(crate) fn new(place: TokenOutput) -> Access {
        Access {
            start_token: StartToken::new(place),
            credentials: Mutex::default(),
            sessions: Mutex::default(),
            throttle: Mutex::default(),
            passwords: Semaphore::new(PASSWORDS_AT_ONCE),
            trusted_passwords: Semaphore::new(PASSWORDS_AT_ONCE),
            trusted: Mutex::default(),
            auth_file: tokio::sync::Mutex::default(),
        }
    }

    /// `http_auth_file` has users or tokens: the start token does not count.
    pub(crate) fn has_credentials(&self) -> bool {
        !held(&self.credentials).is_empty()
    }

    /// Reads `http_auth_file` again; one that is wrong leaves the keys before. Where none is named the start token is made; once
    /// one was in force, that token is revoked for good.
    pub(crate) fn reload(&self, global: &Global, log: &LogWriter) {
        match load_credentials(global) {
            Ok(credentials) => *held(&self.credentials) = credentials,
            Err(why) => {
                let text = format!("panel: http_auth_file {why}; logins work as before");
                return log(Record::new(Level::Error, text));
            }
        }
        let is_named = global.http_auth_file.as_ref().is_some_and(|path| !path.is_empty());
        if is_named {
            self.start_token.revoke();
        } else {
            self.start_token.make(log);
        }
        if !self.has_credentials() && self.start_token.is_revoked() {
            let text = "panel: no http_auth_file names a user or a token: logins fail";
            log(Record::new(Level::Warning, text));
        }
    }

    /// The process ends.
    pub(crate) fn close(&self) {
        self.start_token.revoke();
    }

    /// For a route that only its settings keep closed: whose request it is, if they have scope `S`.
    ///
    /// # Errors
    /// 401 or 403.
    pub(crate) fn authorize<S: RequiredScope>(&self, request: &Request) -> Result<Caller, Failure> {
        self.caller(request).and_then(with_scope::<S>)
    }

    /// Whose request it is; its connection counts as authenticated from now on.
    fn caller(&self, request: &Request) -> Result<Caller, Failure> {
        let caller = self.known(request)?;
        if let Some(tracked) = request.extensions().get::<Arc<TrackedConnection>>() {
            tracked.authenticate();
        }
        Ok(caller)
    }

    fn known(&self, request: &Request) -> Result<Caller, Failure> {
        let headers = request.headers();
        if let Some(value) = headers.get(header::AUTHORIZATION) {
            let token = value.to_str().ok().and_then(|value| value.split_once(' '));
            let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            let proof = token.and_then(|(_, token)| self.proof(token.trim()));
            return proof.and_then(|proof| self.caller_by(&proof)).ok_or(Failure::Unauthorized);
        }
        let peer = request.extensions().get::<RemoteAddress>().copied().ok_or(Failure::Unauthorized)?;
        let cookie = cookie(headers, peer).ok_or(Failure::Unauthorized)?;
        let id = SessionId::of(&cookie);
        let session = self.session(id).ok_or(Failure::Unauthorized)?;
        let caller = self.caller_by(&session.proof).ok_or(Failure::Unauthorized)?;
        if !is_safe(request.method()) {
            check_page(headers, peer, &session)?;
        }
        Ok(Caller { csrf: Some(session.csrf), credential: Credential::Session(id), ..caller })
    }

    /// The caller's token or session is valid now, and has these scopes: not after logout, expiry, or a RELOAD that took its line
    /// out or changed it.
    pub(crate) fn still_allows(&self, caller: &Caller, needed: Scopes) -> bool {
        let caller = match &caller.credential {
            Credential::Proof(proof) => self.caller_by(proof),
            Credential::Session(id) => self.session(*id).and_then(|session| self.caller_by(&session.proof)),
        };
        caller.is_some_and(|caller| caller.scopes.have(needed))
    }

    fn session(&self, id: SessionId) -> Option<LoginSession> {
        held(&self.sessions).find(id, Instant::now()).cloned()
    }

    /// Whose token this is.
    fn proof(&self, token: &str) -> Option<Proof> {
        if self.start_token.is(token) {
            return Some(Proof::Start);
        }
        held(&self.credentials).token(token).cloned().map(Proof::Token)
    }

    /// What a proof is worth now: a file that has changed counts at once.
    fn caller_by(&self, proof: &Proof) -> Option<Caller> {
        let credentials = held(&self.credentials);
        let (name, scopes) = match proof {
            Proof::Start => self.start_token.is_valid().then(|| ("token".to_owned(), Scopes::ALL)),
            Proof::Token(key) => credentials.has_token(key).then(|| (key.name.clone(), key.scopes)),
            Proof::Password(user) => {
                let is_same = credentials.user(&user.name) == Some(user);
                is_same.then(|| (user.name.clone(), user.scopes))
            }
        }?;
        Some(Caller { name, scopes, csrf: None, credential: Credential::Proof(proof.clone()) })
    }
}

/// The keys that the settings name.
///
/// # Errors
/// [`AuthFileError`], with the file's name before it.
pub(crate) fn load_credentials(global: &Global) -> Result<PanelCredentials, String> {
    let path = global.http_auth_file.as_deref().unwrap_or_default();
    PanelCredentials::of_file(path).map_err(|why| format!("\"{path}\" {why}"))
}

fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// What a browser adds by itself is no proof that the panel's own page asks: that page knows its session's word, and the
/// browser states its origin.
fn check_page(headers: &HeaderMap, peer: RemoteAddress, session: &LoginSession) -> Result<(), Failure> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if !text(CSRF).is_some_and(|said| session.has_csrf(said)) {
        return Err(Failure::WrongCsrf);
    }
    match text("origin") {
        Some(origin) if is_own(origin, headers, peer) => Ok(()),
        _ => Err(Failure::ForeignPage),
    }
}

/// The page that asks is one of the panel's.
fn is_own(origin: &str, headers: &HeaderMap, peer: RemoteAddress) -> bool {
    let scheme = if peer.is_tls { "https" } else { "http" };
    host(headers).is_some_and(|host| origin.eq_ignore_ascii_case(&format!("{scheme}://{host}")))
}

/// The cookie's name: browsers keep one that begins so to this very host, and to TLS.
fn cookie_name(peer: RemoteAddress) -> &'static str {
    if peer.is_tls { "__Host-weir" } else { "weir" }
}

fn cookie(headers: &HeaderMap, peer: RemoteAddress) -> Option<String> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == cookie_name(peer)).map(|(_, value)| value.to_owned())
}

/// Finds the caller of a request; without one the request is rejected. Requests that could change something are recorded.
pub(crate) async fn authenticate(
    State((access, audit_log)): State<(Arc<Access>, AuditLog)>,
    mut request: Request,
    next: Next,
) -> Result<Response, Failure> {
    let caller = access.caller(&request)?;
    let noted = (!is_safe(request.method())).then(|| (caller.name.clone(), request.method().clone()));
    let path = request.uri().path().to_owned();
    let peer = request.extensions().get::<RemoteAddress>().copied();
    request.extensions_mut().insert(caller);
    let response = next.run(request).await;
    if let (Some((name, method)), Some(peer)) = (noted, peer) {
        audit_log.note(&name, peer.address, method.as_str(), &path, response.status().as_u16());
    }
    Ok(response)
}

fn with_scope<S: RequiredScope>(caller: Caller) -> Result<Caller, Failure> {
    if caller.scopes.have(S::SCOPE) {
        return Ok(caller);
    }
    Err(Failure::ScopeNeeded(S::NAME))
}

/// In the arguments of a route: its caller has scope `S`.
pub(crate) struct Authorized<S>(pub(crate) Caller, pub(crate) PhantomData<S>);

impl<S: RequiredScope, T: Sync> FromRequestParts<T> for Authorized<S> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &T) -> Result<Authorized<S>, Failure> {
        let caller = parts.extensions.get::<Caller>().cloned().ok_or(Failure::Unauthorized)?;
        with_scope::<S>(caller).map(|caller| Authorized(caller, PhantomData))
    }
}
