//! Asking an LDAP directory about a password: OpenLDAP's libldap, loaded when first asked, so that ldap.conf and the
//! environment mean what they mean to PgBouncer and PostgreSQL (certificates, referrals, name services).
//!
//! Owns which servers are asked, in what order and for how long. Waits, so it is called on a helper thread. What is sent is
//! made in [`auth::ldap`].
#![allow(unsafe_code)]

mod line;
mod session;

use std::ffi::{CStr, CString, c_char, c_int, c_ulong, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use auth::ldap;
use settings::ldap::{BindMethod, Options, Scheme};

use crate::library::functions;
use crate::watchdog::SocketWatchdogs;
use line::Line;
use session::Session;

/// Names that libldap goes by: OpenLDAP 2.6, 2.5, and 2.4's variant for threads.
const NAMES: &[&str] = &["libldap.so.2", "libldap-2.5.so.0", "libldap_r-2.4.so.2", "libldap.so"];
/// Longest wait for all answers to one login together.
const PATIENCE: Duration = Duration::from_secs(30);

const SUCCESS: c_int = 0;
const OPTION_VERSION: c_int = 0x0011;
const OPTION_NETWORK_TIMEOUT: c_int = 0x5005;

type Handle = *mut c_void;
type Reply = *mut c_void;

#[repr(C)]
struct Value {
    bytes: c_ulong,
    start: *const c_char,
}

functions! {
    /// libldap, and one function of liblber behind it.
    Api {
        ber_sockbuf_ctrl: fn(*mut c_void, c_int, *mut c_void) -> c_int;
        ldap_initialize: fn(*mut Handle, *const c_char) -> c_int;
        ldap_set_option: fn(Handle, c_int, *const c_void) -> c_int;
        ldap_get_option: fn(Handle, c_int, *mut c_void) -> c_int;
        ldap_start_tls_s: fn(Handle, *mut c_void, *mut c_void) -> c_int;
        ldap_sasl_bind_s: fn(Handle, *const c_char, *const c_char, *const Value, *mut c_void, *mut c_void, *mut *mut c_void) -> c_int;
        ldap_search_ext_s: fn(Handle, *const c_char, c_int, *const c_char, *const *const c_char, c_int, *mut c_void, *mut c_void, *const libc::timeval, c_int, *mut Reply) -> c_int;
        ldap_count_entries: fn(Handle, Reply) -> c_int;
        ldap_first_entry: fn(Handle, Reply) -> Reply;
        ldap_get_dn: fn(Handle, Reply) -> *mut c_char;
        ldap_msgfree: fn(Reply) -> c_int;
        ldap_memfree: fn(*mut c_void) -> ();
        ldap_err2string: fn(c_int) -> *const c_char;
        ldap_dn2domain: fn(*const c_char, *mut *mut c_char) -> c_int;
        ldap_domain2hostlist: fn(*const c_char, *mut *mut c_char) -> c_int;
        ldap_unbind_ext_s: fn(Handle, *mut c_void, *mut c_void) -> c_int;
    }
}

/// The system's LDAP client.
#[derive(Default)]
pub(crate) struct Ldap {
    api: OnceLock<Api>,
    watchdogs: SocketWatchdogs,
}

impl Ldap {
    /// Whether the directory knows the user by that password; waits.
    ///
    /// # Errors
    /// It does not, or it could not be found out: words for the log.
    pub(crate) fn check(&self, options: &Options, user: &str, password: &[u8]) -> Result<(), String> {
        // RFC 4513 section 5.1.2: a bind with a name and no password proves nothing, and succeeds.
        if password.is_empty() {
            return Err("empty password".to_owned());
        }
        let api = self.api()?;
        let domains;
        let servers: Vec<&str> = match &*options.servers {
            [] => {
                domains = api.servers_of_domain(options)?;
                domains.split_ascii_whitespace().collect()
            }
            named => named.iter().map(String::as_str).collect(),
        };
        let deadline = Instant::now() + PATIENCE;
        let mut told = Vec::new();
        for server in servers {
            match self.ask(api, options, server, deadline, user, password) {
                Err(Fault { reason, no_server: true }) => told.push(reason),
                Err(fault) => return Err(fault.reason),
                Ok(()) => return Ok(()),
            }
        }
        Err(told.join("; "))
    }

    /// Asks one server.
    fn ask(
        &self,
        api: &Api,
        options: &Options,
        server: &str,
        deadline: Instant,
        user: &str,
        password: &[u8],
    ) -> Result<(), Fault> {
        let line = Line::new(api, &self.watchdogs, options.scheme == Scheme::Ldaps || options.start_tls);
        let session = Session::open(api, options, &line, server, deadline)?;
        let name = match &options.way {
            BindMethod::Bind { prefix, suffix } => ldap::bind_name(prefix, user, suffix),
            BindMethod::Search(search) => session.find(search, user)?,
        };
        if name.is_empty() {
            return Err("a bind without a name proves nothing".to_owned().into());
        }
        session
            .bind(&name, password)
            .map_err(|fault| fault.behind(format!("LDAP login failed for user {name} on server {server}")))
    }

    /// Loads libldap before it is needed.
    ///
    /// # Errors
    /// It is not on this machine.
    pub(crate) fn load(&self) -> Result<(), String> {
        self.api().map(|_| ())
    }

    fn api(&self) -> Result<&Api, String> {
        if let Some(api) = self.api.get() {
            return Ok(api);
        }
        let api = Api::load(NAMES).map_err(|why| format!("cannot load libldap: {why}"))?;
        Ok(self.api.get_or_init(|| {
            // It reads ldap.conf when it is first asked for anything; several threads must not have it do so at once.
            let mut version: c_int = 0;
            // SAFETY: without a handle it tells the default; the place is of the option's type.
            unsafe { (api.ldap_get_option)(ptr::null_mut(), OPTION_VERSION, (&raw mut version).cast()) };
            api
        }))
    }
}

impl Api {
    /// DNS names the servers of a domain (SRV records), and the base names the domain.
    fn servers_of_domain(&self, options: &Options) -> Result<String, String> {
        let base = match &options.way {
            BindMethod::Search(search) => text(&search.base)?,
            BindMethod::Bind { .. } => CString::default(),
        };
        let mut domain = ptr::null_mut();
        // SAFETY: a C string, and a place for one that is to be freed.
        let status = unsafe { (self.ldap_dn2domain)(base.as_ptr(), &raw mut domain) };
        let domain = self.owned(domain).filter(|domain| status == SUCCESS && !domain.is_empty());
        let domain = domain.ok_or("could not extract domain name from ldapbasedn")?;
        let (name, mut hosts) = (text(&domain)?, ptr::null_mut());
        // SAFETY: as above.
        let status = unsafe { (self.ldap_domain2hostlist)(name.as_ptr(), &raw mut hosts) };
        let hosts = self.owned(hosts).filter(|hosts| status == SUCCESS && !hosts.is_empty());
        hosts.ok_or_else(|| format!("LDAP authentication could not find DNS SRV records for \"{domain}\""))
    }

    /// A string that libldap gave away, copied and freed.
    fn owned(&self, string: *mut c_char) -> Option<String> {
        if string.is_null() {
            return None;
        }
        // SAFETY: a C string of libldap's, freed once and not used after.
        let copy = unsafe {
            let copy = CStr::from_ptr(string).to_string_lossy().into_owned();
            (self.ldap_memfree)(string.cast());
            copy
        };
        Some(copy)
    }

    fn error_text(&self, status: c_int) -> String {
        // SAFETY: it gives a constant string for every number.
        unsafe { CStr::from_ptr((self.ldap_err2string)(status)) }.to_string_lossy().into_owned()
    }
}

/// Why a step failed.
struct Fault {
    reason: String,
    /// Another server may do better.
    no_server: bool,
}

impl Fault {
    /// The same, with what was tried before it.
    fn behind(self, what: String) -> Fault {
        Fault { reason: format!("{what}: {}", self.reason), ..self }
    }
}

impl From<String> for Fault {
    fn from(reason: String) -> Fault {
        Fault { reason, no_server: false }
    }
}

fn text(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| "a name holds a NUL".to_owned())
}
