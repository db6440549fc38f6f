//! The system's log, by the C library's syslog(3): RFC 3164 to /dev/log, reconnecting by itself.
//!
//! Owns levels and facilities as syslog counts them. Never decides what is logged.

use std::ffi::{CString, c_int};

use settings::SyslogFacility;
use telemetry::Level;

use crate::sys;

/// An open way to the system's log; there is one for the whole process, and the last to be opened counts.
#[derive(Debug)]
pub struct Syslog {
    facility: c_int,
}

impl Syslog {
    /// Opens it under a name. The C library keeps the name for ever, so each new one costs its memory.
    #[must_use]
    pub fn open(name: &str, facility: SyslogFacility) -> Syslog {
        let facility = facility_number(facility);
        sys::open_syslog(Box::leak(c_string(name).into_boxed_c_str()), facility);
        Syslog { facility }
    }

    /// Writes a line. The level is syslog's to say, so it does not stand in the text.
    pub fn write(&self, level: Level, text: &str) {
        sys::write_syslog(self.facility | severity(level), &c_string(text));
    }
}

fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// As PgBouncer maps them.
fn severity(level: Level) -> c_int {
    match level {
        Level::Fatal => libc::LOG_CRIT,
        Level::Error => libc::LOG_ERR,
        Level::Warning => libc::LOG_WARNING,
        Level::Log => libc::LOG_INFO,
        Level::Debug | Level::Noise => libc::LOG_DEBUG,
    }
}

fn facility_number(facility: SyslogFacility) -> c_int {
    match facility {
        SyslogFacility::Daemon => libc::LOG_DAEMON,
        SyslogFacility::Auth => libc::LOG_AUTH,
        SyslogFacility::Authpriv => libc::LOG_AUTHPRIV,
        SyslogFacility::User => libc::LOG_USER,
        SyslogFacility::Local0 => libc::LOG_LOCAL0,
        SyslogFacility::Local1 => libc::LOG_LOCAL1,
        SyslogFacility::Local2 => libc::LOG_LOCAL2,
        SyslogFacility::Local3 => libc::LOG_LOCAL3,
        SyslogFacility::Local4 => libc::LOG_LOCAL4,
        SyslogFacility::Local5 => libc::LOG_LOCAL5,
        SyslogFacility::Local6 => libc::LOG_LOCAL6,
        SyslogFacility::Local7 => libc::LOG_LOCAL7,
    }
}
