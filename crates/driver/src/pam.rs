//! Asking the system's PAM about a password: libpam, loaded when first asked.
//!
//! Owns the conversation that a module may have: it is told the password, and nothing else. Waits as long as the modules
//! do, so it is called on a helper thread.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use crate::library::functions;

/// PgBouncer's name for itself: the file in /etc/pam.d.
const SERVICE: &CStr = c"pgbouncer";

const SUCCESS: c_int = 0;
const MEMORY_FAULT: c_int = 5;
const CONVERSATION_FAULT: c_int = 19;
const REMOTE_HOST: c_int = 4;
const SILENT: c_int = 0x8000;
const PROMPT_ECHO_OFF: c_int = 1;
/// Linux-PAM's PAM_MAX_NUM_MSG.
const MOST_MESSAGES: usize = 32;

#[repr(C)]
struct Message {
    style: c_int,
    text: *const c_char,
}

#[repr(C)]
struct Response {
    text: *mut c_char,
    unused: c_int,
}

// SAFETY: this is the type of a callback; libpam calls it with what its manual page says.
type Converse = unsafe extern "C" fn(c_int, *mut *const Message, *mut *mut Response, *mut c_void) -> c_int;

#[repr(C)]
struct Conversation {
    converse: Converse,
    data: *mut c_void,
}

type Handle = *mut c_void;

functions! {
    /// libpam.
    Api {
        pam_start: fn(*const c_char, *const c_char, *const Conversation, *mut Handle) -> c_int;
        pam_set_item: fn(Handle, c_int, *const c_void) -> c_int;
        pam_authenticate: fn(Handle, c_int) -> c_int;
        pam_acct_mgmt: fn(Handle, c_int) -> c_int;
        pam_strerror: fn(Handle, c_int) -> *const c_char;
        pam_end: fn(Handle, c_int) -> c_int;
    }
}

/// The system's PAM.
#[derive(Default)]
pub(crate) struct Pam {
    api: OnceLock<Api>,
}

impl Pam {
    /// Whether the user may log in from there with that password; waits.
    ///
    /// # Errors
    /// No, or it could not be found out: words for the log.
    pub(crate) fn check(&self, user: &str, remote: &str, password: &[u8]) -> Result<(), String> {
        let api = self.api()?;
        let text =
            |bytes: &[u8]| CString::new(bytes).map_err(|_| "a name or password holds a NUL".to_owned());
        let (user, remote, password) =
            (text(user.as_bytes())?, text(remote.as_bytes())?, Secret(text(password)?));
        let session = Session::start(api, &user, &password)?;
        session.set_remote(&remote)?;
        session.run("pam_authenticate", api.pam_authenticate)?;
        session.run("pam_acct_mgmt", api.pam_acct_mgmt)
    }

    /// Loads libpam before it is needed.
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
        let api =
            Api::load(&["libpam.so.0", "libpam.so"]).map_err(|why| format!("cannot load libpam: {why}"))?;
        Ok(self.api.get_or_init(|| api))
    }
}

/// A password as C wants it; overwritten when it goes.
struct Secret(CString);

impl Drop for Secret {
    fn drop(&mut self) {
        drop(auth::Zeroizing::new(std::mem::take(&mut self.0).into_bytes()));
    }
}

/// One login's transaction with PAM.
struct Session<'a> {
    api: &'a Api,
    handle: Handle,
    /// What the last step came to; modules clean up by it.
    status: Cell<c_int>,
}

impl<'a> Session<'a> {
    fn start(api: &'a Api, user: &CStr, password: &'a Secret) -> Result<Session<'a>, String> {
        let data = password.0.as_ptr().cast_mut().cast();
        let conversation = Conversation { converse, data };
        let mut handle = ptr::null_mut();
        // SAFETY: all are valid for the call; PAM copies the names and the struct, and `data` outlives the session.
        let status = unsafe {
            (api.pam_start)(SERVICE.as_ptr(), user.as_ptr(), &raw const conversation, &raw mut handle)
        };
        if status != SUCCESS || handle.is_null() {
            return Err(format!("pam_start() failed: {}", error_text(api, handle, status)));
        }
        Ok(Session { api, handle, status: Cell::new(SUCCESS) })
    }

    /// Some modules let in by address, and all log it.
    fn set_remote(&self, remote: &CStr) -> Result<(), String> {
        // SAFETY: the handle is live, and PAM copies the string.
        let status = unsafe { (self.api.pam_set_item)(self.handle, REMOTE_HOST, remote.as_ptr().cast()) };
        self.outcome("pam_set_item", status)
    }

    // SAFETY: the type of two functions of libpam, whose handle and flags are right here.
    fn run(&self, name: &str, step: unsafe extern "C" fn(Handle, c_int) -> c_int) -> Result<(), String> {
        // SAFETY: the handle is live and used by this thread alone.
        let status = unsafe { step(self.handle, SILENT) };
        self.outcome(name, status)
    }

    fn outcome(&self, name: &str, status: c_int) -> Result<(), String> {
        self.status.set(status);
        if status == SUCCESS {
            return Ok(());
        }
        Err(format!("{name}() failed: {}", error_text(self.api, self.handle, status)))
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is live and not used again.
        unsafe { (self.api.pam_end)(self.handle, self.status.get()) };
    }
}

fn error_text(api: &Api, handle: Handle, status: c_int) -> String {
    // SAFETY: the handle is live, or NULL, which PAM allows here.
    let text = unsafe { (api.pam_strerror)(handle, status) };
    if text.is_null() {
        return format!("error {status}");
    }
    // SAFETY: PAM gives a C string that lives at least as long as the handle; it is copied at once.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Answers a module: the password to a prompt without echo, nothing to all else. PAM frees what it is given.
///
/// # Safety
/// Called by libpam alone: `messages` has `count` entries, and `data` is the password that `pam_start` was given.
// SAFETY: see the section above.
unsafe extern "C" fn converse(
    count: c_int,
    messages: *mut *const Message,
    responses: *mut *mut Response,
    data: *mut c_void,
) -> c_int {
    let count = usize::try_from(count).unwrap_or(0);
    if !(1..=MOST_MESSAGES).contains(&count) || messages.is_null() || responses.is_null() || data.is_null() {
        return CONVERSATION_FAULT;
    }
    // SAFETY: calloc with a small product; the result is checked.
    let answers: *mut Response = unsafe { libc::calloc(count, size_of::<Response>()) }.cast();
    if answers.is_null() {
        return MEMORY_FAULT;
    }
    for index in 0..count {
        // SAFETY: `index` is inside both arrays; an entry of `messages` is a valid struct or NULL.
        let style = unsafe { (*messages.add(index)).as_ref() }.map(|message| message.style);
        if style != Some(PROMPT_ECHO_OFF) {
            continue;
        }
        // SAFETY: `data` is a C string, and the place is inside the zeroed array.
        unsafe { (*answers.add(index)).text = libc::strdup(data.cast()) };
    }
    // SAFETY: libpam gave the place for the result.
    unsafe { *responses = answers };
    SUCCESS
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn modules_are_told_the_password_and_nothing_else() {
        let said = [1, 2, 4, 1].map(|style| Message { style, text: c"?".as_ptr() });
        let mut messages = said.each_ref().map(|message| &raw const *message);
        let mut responses: *mut Response = ptr::null_mut();
        let password = c"s3cret".as_ptr().cast_mut().cast();
        // SAFETY: as libpam calls it.
        let status = unsafe { converse(4, messages.as_mut_ptr(), &raw mut responses, password) };
        assert_eq!(status, SUCCESS);
        // SAFETY: four answers were made.
        let answers = unsafe { std::slice::from_raw_parts(responses, 4) };
        for (answer, is_told) in answers.iter().zip([true, false, false, true]) {
            assert_eq!(!answer.text.is_null(), is_told);
            if is_told {
                // SAFETY: a C string made by strdup, freed once.
                assert_eq!(unsafe { CStr::from_ptr(answer.text) }, c"s3cret");
                // SAFETY: see above.
                unsafe { libc::free(answer.text.cast()) };
            }
        }
        // SAFETY: made by calloc.
        unsafe { libc::free(responses.cast()) };
    }

    #[test]
    fn a_conversation_of_nothing_is_refused() {
        let mut responses: *mut Response = ptr::null_mut();
        for count in [-1, 0, 1, 33] {
            // SAFETY: as libpam might call it in error.
            let status = unsafe { converse(count, ptr::null_mut(), &raw mut responses, ptr::null_mut()) };
            assert_eq!(status, CONVERSATION_FAULT);
        }
    }

    #[test]
    fn a_nul_goes_nowhere() {
        assert!(Pam::default().check("a\0b", "unix", b"x").is_err());
    }
}
