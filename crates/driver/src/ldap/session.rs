//! One talk with a directory: StartTLS, a search for the user's entry, binds.
//!
//! Owns the calls and how long each may take. Which are made, and of which server, is said by [`super::Ldap`].
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_long, c_ulong};
use std::ptr;
use std::time::Instant;

use auth::ldap;
use settings::ldap::{Options, Search, SearchScope};

use super::line::Line;
use super::{Api, Fault, Handle, OPTION_NETWORK_TIMEOUT, OPTION_VERSION, Reply, SUCCESS, Value, text};

/// Longest wait for a connection to one server, as in PgBouncer.
const CONNECT: c_long = 3;
const SIZE_LIMIT_EXCEEDED: c_int = 4;
const VERSION: c_int = 3;
const OPTION_DIAGNOSTIC: c_int = 0x0032;
const OPTION_TIMEOUT: c_int = 0x5002;
const OPTION_CONNECT_CALLBACK: c_int = 0x5011;
/// A server that could not be reached, that hung up, or that did not answer in time: the next one may.
const NO_SERVER: &[c_int] = &[-1, -5, -11];
/// "No attributes", as RFC 4511 spells it: only the entry's name is wanted.
const NO_ATTRIBUTES: &CStr = c"1.1";
/// One entry is the user's; a second shows that the filter is too wide.
const MOST_ENTRIES: c_int = 2;

/// One connection to a directory.
pub(super) struct Session<'a> {
    api: &'a Api,
    line: &'a Line<'a>,
    handle: Handle,
    server: &'a str,
    deadline: Instant,
}

impl<'a> Session<'a> {
    /// Prepares a connection, and makes it where TLS is to be started inside.
    pub(super) fn open(
        api: &'a Api,
        options: &Options,
        line: &'a Line<'a>,
        server: &'a str,
        deadline: Instant,
    ) -> Result<Session<'a>, Fault> {
        let url = text(&ldap::urls(options, std::iter::once(server)))?;
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
    pub(super) fn find(&self, search: &Search, user: &str) -> Result<String, Fault> {
        let Session { server, .. } = self;
        let who = &search.bind_name;
        self.bind(who, search.bind_password.as_bytes()).map_err(|fault| {
            fault.behind(format!(
                "could not perform initial LDAP bind for ldapbinddn \"{who}\" on server \"{server}\""
            ))
        })?;
        let filter = ldap::search_filter(&search.filter, user);
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
            SearchScope::Base => 0,
            SearchScope::One => 1,
            SearchScope::Subtree => 2,
            SearchScope::Children => 3,
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
    pub(super) fn bind(&self, name: &str, password: &[u8]) -> Result<(), Fault> {
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
        self.line.disarm();
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
