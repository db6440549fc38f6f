//! Asking an LDAP directory about a password: OpenLDAP's libldap, loaded when first asked, so that ldap.conf and the
//! environment mean what they mean to PgBouncer and PostgreSQL (certificates, referrals, name services).
//!
//! Owns the order of the steps and how long they may take. Waits, so it is called on a helper thread. What is sent is
//! made in [`auth::directory`].
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_ulong, c_void};
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use std::{io, ptr};

use auth::directory;
use settings::ldap::{Options, Scheme, Scope, Search, Way};

use crate::fuse::{Fuse, Fuses};
use crate::library::functions;

/// Names that libldap goes by: OpenLDAP 2.6, 2.5, and 2.4's variant for threads.
const NAMES: &[&str] = &["libldap.so.2", "libldap-2.5.so.0", "libldap_r-2.4.so.2", "libldap.so"];
/// Longest wait for a connection to one server, as in PgBouncer.
const CONNECT: c_long = 3;
/// Longest wait for the first answer on a connection, TLS included.
const GREETING: Duration = Duration::from_secs(5);
/// Longest wait for all answers to one login together.
const PATIENCE: Duration = Duration::from_secs(30);

const SUCCESS: c_int = 0;
const FAILURE: c_int = -1;
const SIZE_LIMIT_EXCEEDED: c_int = 4;
const VERSION: c_int = 3;
const OPTION_VERSION: c_int = 0x0011;
const OPTION_DIAGNOSTIC: c_int = 0x0032;
const OPTION_TIMEOUT: c_int = 0x5002;
const OPTION_NETWORK_TIMEOUT: c_int = 0x5005;
const OPTION_CONNECT_CALLBACK: c_int = 0x5011;
const SOCKET_DESCRIPTOR: c_int = 1;
/// A server that could not be reached, that hung up, or that did not answer in time: the next one may.
const NO_SERVER: &[c_int] = &[-1, -5, -11];
/// "No attributes", as RFC 4511 spells it: only the entry's name is wanted.
const NO_ATTRIBUTES: &CStr = c"1.1";
/// One entry is the user's; a second shows that the filter is too wide.
const MOST_ENTRIES: c_int = 2;

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
    fuses: Fuses,
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
        let line = Line::new(api, &self.fuses, options.scheme == Scheme::Ldaps || options.start_tls);
        let session = Session::open(api, options, &line, server, deadline)?;
        let name = match &options.way {
            Way::Bind { prefix, suffix } => directory::bind_name(prefix, user, suffix),
            Way::Search(search) => session.find(search, user)?,
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
            Way::Search(search) => text(&search.base)?,
            Way::Bind { .. } => CString::default(),
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

/// What libldap is to do about a connection that it has made; lives at one place as long as the session does.
#[repr(C)]
struct Line<'a> {
    // SAFETY: the type of a callback; libldap calls it with what ldap_get_option(3) says of LDAP_OPT_CONNECT_CB.
    added: unsafe extern "C" fn(Handle, *mut c_void, *mut c_void, *mut c_void, *mut c_void) -> c_int,
    // SAFETY: see above.
    deleted: unsafe extern "C" fn(Handle, *mut c_void, *mut c_void),
    unused: *mut c_void,
    // The above is libldap's, what follows is ours.
    api: &'a Api,
    fuses: &'a Fuses,
    has_tls: bool,
    burning: Mutex<Vec<Fuse>>,
}

impl<'a> Line<'a> {
    fn new(api: &'a Api, fuses: &'a Fuses, has_tls: bool) -> Line<'a> {
        let burning = Mutex::default();
        Line {
            added: line_added,
            deleted: line_deleted,
            unused: ptr::null_mut(),
            api,
            fuses,
            has_tls,
            burning,
        }
    }

    /// A fuse ends the wait for the first answer, for libldap's own timeouts do not reach into TLS: with GnuTLS and a
    /// timeout for the network, it asks again and again for what does not come, without end and without a pause. So it
    /// is made to wait instead.
    fn guard(&self, handle: Handle, socket: *mut c_void) -> io::Result<()> {
        let mut descriptor: c_int = -1;
        // SAFETY: libldap's own socket; the place is of the option's type.
        unsafe { (self.api.ber_sockbuf_ctrl)(socket, SOCKET_DESCRIPTOR, (&raw mut descriptor).cast()) };
        if descriptor < 0 {
            return Err(io::ErrorKind::NotConnected.into());
        }
        // SAFETY: the descriptor is open: the connection was just made, by this thread.
        let socket = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()?;
        let fuse = self.fuses.light(socket, GREETING)?;
        self.burning().push(fuse);
        if self.has_tls {
            // SAFETY: the handle is live; without a value the option is as if never set.
            unsafe { (self.api.ldap_set_option)(handle, OPTION_NETWORK_TIMEOUT, ptr::null()) };
        }
        Ok(())
    }

    fn burning(&self) -> MutexGuard<'_, Vec<Fuse>> {
        self.burning.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer came, or none will.
    fn put_out(&self) {
        for fuse in self.burning().drain(..) {
            self.fuses.put_out(fuse);
        }
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        self.put_out();
    }
}

/// A connection was made.
///
/// # Safety
/// Called by libldap alone, with the [`Line`] that it was given.
// SAFETY: see the section above.
unsafe extern "C" fn line_added(
    handle: Handle,
    socket: *mut c_void,
    _server: *mut c_void,
    _address: *mut c_void,
    line: *mut c_void,
) -> c_int {
    // SAFETY: the line outlives the session, and is shared, never changed, while it lasts.
    match unsafe { line.cast::<Line<'_>>().as_ref() }.map(|line| line.guard(handle, socket)) {
        Some(Ok(())) => SUCCESS,
        _ => FAILURE,
    }
}

/// A connection is closed: nothing is to be done, and libldap wants a function all the same.
///
/// # Safety
/// Touches nothing.
// SAFETY: see the section above.
unsafe extern "C" fn line_deleted(_handle: Handle, _socket: *mut c_void, _line: *mut c_void) {}

/// One connection to a directory.
struct Session<'a> {
    api: &'a Api,
    line: &'a Line<'a>,
    handle: Handle,
    server: &'a str,
    deadline: Instant,
}

impl<'a> Session<'a> {
    /// Prepares a connection, and makes it where TLS is to be started inside.
    fn open(
        api: &'a Api,
        options: &Options,
        line: &'a Line<'a>,
        server: &'a str,
        deadline: Instant,
    ) -> Result<Session<'a>, Fault> {
        let url = text(&directory::urls(options, std::iter::once(server)))?;
        let mut handle = ptr::null_mut();
        // SAFETY: a C string that is copied, and a place for the handle.
        let status = unsafe { (api.ldap_initialize)(&raw mut handle, url.as_ptr()) };
        if status != SUCCESS || handle.is_null() {
            return Err(format!("could not initialize LDAP: {}", api.error_text(status)).into());
        }
        let session = Session { api, line, handle, server, deadline };
        session.set_option(OPTION_VERSION, &VERSION)?;
        session.set_option(OPTION_CONNECT_CALLBACK, line)?;
        if options.start_tls {
            session.hurry()?;
            // SAFETY: the handle is live; there are no controls.
            let status = unsafe { (api.ldap_start_tls_s)(handle, ptr::null_mut(), ptr::null_mut()) };
            session
                .outcome(status)
                .map_err(|fault| fault.behind(format!("could not start LDAP TLS session with {server}")))?;
        }
        Ok(session)
    }

    /// The name of the one entry that is this user's.
    fn find(&self, search: &Search, user: &str) -> Result<String, Fault> {
        let Session { server, .. } = self;
        let who = &search.bind_name;
        self.bind(who, search.bind_password.as_bytes()).map_err(|fault| {
            fault.behind(format!(
                "could not perform initial LDAP bind for ldapbinddn \"{who}\" on server \"{server}\""
            ))
        })?;
        let filter = directory::search_filter(&search.filter, user);
        let found = self.search(search, &filter).map_err(|fault| {
            fault.behind(format!("could not search LDAP for filter \"{filter}\" on server \"{server}\""))
        })?;
        let place = format!("LDAP search for filter \"{filter}\" on server \"{server}\"");
        // SAFETY: handle and reply are live.
        let trouble = match unsafe { (self.api.ldap_count_entries)(self.handle, found.reply) } {
            1 => match found.name() {
                Some(name) => return Ok(name),
                None => format!("could not get dn for the first entry: {place}"),
            },
            0 => format!("LDAP user \"{user}\" does not exist: {place} returned no entries"),
            _ => format!("LDAP user \"{user}\" is not unique: {place} returned several entries"),
        };
        Err(trouble.into())
    }

    fn search(&self, search: &Search, filter: &str) -> Result<Found<'_>, Fault> {
        self.hurry()?;
        let (base, filter) = (text(&search.base)?, text(filter)?);
        let scope = match search.scope {
            Scope::Base => 0,
            Scope::One => 1,
            Scope::Subtree => 2,
            Scope::Children => 3,
        };
        let attributes = [NO_ATTRIBUTES.as_ptr(), ptr::null()];
        let (limit, mut reply) = (self.left()?, ptr::null_mut());
        let none = ptr::null_mut();
        // SAFETY: the handle is live, all strings and the list end in NUL and NULL, and the reply is freed by `Found`.
        let status = unsafe {
            (self.api.ldap_search_ext_s)(
                self.handle,
                base.as_ptr(),
                scope,
                filter.as_ptr(),
                attributes.as_ptr(),
                0,
                none,
                none,
                &raw const limit,
                MOST_ENTRIES,
                &raw mut reply,
            )
        };
        let found = Found { session: self, reply };
        // More than were asked for: those that came are counted.
        if status == SIZE_LIMIT_EXCEEDED && !reply.is_null() {
            return Ok(found);
        }
        self.outcome(status).map(|()| found)
    }

    /// Proves a name with a password; no name and no password is anonymous.
    fn bind(&self, name: &str, password: &[u8]) -> Result<(), Fault> {
        self.hurry()?;
        let name = text(name)?;
        let bytes = c_ulong::try_from(password.len()).map_err(|fault| fault.to_string())?;
        let secret = Value { bytes, start: password.as_ptr().cast() };
        let (none, nowhere) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the handle is live; name and secret are copied into the request; no mechanism means a simple bind.
        let status = unsafe {
            (self.api.ldap_sasl_bind_s)(
                self.handle,
                name.as_ptr(),
                ptr::null(),
                &raw const secret,
                none,
                none,
                nowhere,
            )
        };
        self.outcome(status)
    }

    /// Lets the next step take what is left of the patience, and no more.
    fn hurry(&self) -> Result<(), Fault> {
        self.set_option(OPTION_NETWORK_TIMEOUT, &libc::timeval { tv_sec: CONNECT, tv_usec: 0 })?;
        self.set_option(OPTION_TIMEOUT, &self.left()?)
    }

    fn left(&self) -> Result<libc::timeval, Fault> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err("timed out".to_owned().into());
        }
        let seconds = libc::time_t::try_from(left.as_secs()).map_err(|fault| fault.to_string())?;
        Ok(libc::timeval { tv_sec: seconds, tv_usec: left.subsec_micros().into() })
    }

    fn set_option<Setting>(&self, option: c_int, setting: &Setting) -> Result<(), Fault> {
        // SAFETY: the handle is live, and each caller gives the type that its option has; all are copied, but for the
        // line, which outlives the session.
        let status = unsafe { (self.api.ldap_set_option)(self.handle, option, (&raw const *setting).cast()) };
        if status == SUCCESS { Ok(()) } else { Err(format!("could not set LDAP option {option:#x}").into()) }
    }

    /// Whether a step went well; if not, in the words of the library and those of the server or of TLS behind it.
    fn outcome(&self, status: c_int) -> Result<(), Fault> {
        self.line.put_out();
        if status == SUCCESS {
            return Ok(());
        }
        let mut diagnostic: *mut c_char = ptr::null_mut();
        // SAFETY: the handle is live, and the option is a string that is given away.
        unsafe {
            (self.api.ldap_get_option)(self.handle, OPTION_DIAGNOSTIC, (&raw mut diagnostic).cast());
        }
        let told = self.api.error_text(status);
        let reason = match self.api.owned(diagnostic).filter(|more| !more.is_empty()) {
            Some(more) => format!("{told} ({})", more.trim_end()),
            None => told,
        };
        Err(Fault { reason, no_server: NO_SERVER.contains(&status) })
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is live and not used again; it is freed whatever the call returns.
        unsafe { (self.api.ldap_unbind_ext_s)(self.handle, ptr::null_mut(), ptr::null_mut()) };
    }
}

/// What a search found.
struct Found<'a> {
    session: &'a Session<'a>,
    reply: Reply,
}

impl Found<'_> {
    /// The distinguished name of the first entry.
    fn name(&self) -> Option<String> {
        let Session { api, handle, .. } = *self.session;
        // SAFETY: handle and reply are live, and the entry is looked at only where there is one.
        let name = unsafe {
            let entry = (api.ldap_first_entry)(handle, self.reply);
            if entry.is_null() { ptr::null_mut() } else { (api.ldap_get_dn)(handle, entry) }
        };
        api.owned(name).filter(|name| !name.is_empty())
    }
}

impl Drop for Found<'_> {
    fn drop(&mut self) {
        if !self.reply.is_null() {
            // SAFETY: the reply is live and not used again.
            unsafe { (self.session.api.ldap_msgfree)(self.reply) };
        }
    }
}

fn text(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| "a name holds a NUL".to_owned())
}
