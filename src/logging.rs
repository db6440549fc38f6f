//! The log: standard error, the log file and syslog, one unbuffered write per line.
//! Owns the file and the verbosity. A full disk does not stop the process.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use driver::syslog::Syslog;
use settings::{Global, SyslogFacility};
use telemetry::{Level, LineFormatter, Record};

/// Mode of a new log file: it contains names of users and clients.
const FILE_MODE: u32 = 0o640;

/// The log of the process; all threads write to it.
pub(crate) struct Logger {
    /// Settings `verbose`: 1 shows DEBUG, 2 shows NOISE.
    verbose: AtomicU32,
    sinks: Mutex<Sinks>,
}

struct Sinks {
    lines: LineFormatter,
    /// Cached: it changes only when the process daemonizes.
    process_id: u32,
    to_stderr: bool,
    /// The file and the name it was opened by.
    file: Option<(String, File)>,
    /// The system's log, with the name and facility that it was opened by.
    syslog: Option<(String, SyslogFacility, Syslog)>,
    /// Where the control panel reads the last lines; kept while it is on.
    log_ring: Arc<panel::LogRing>,
    is_read: bool,
}

impl Logger {
    /// A log without a file.
    pub(crate) fn new(to_stderr: bool) -> Logger {
        Logger {
            verbose: AtomicU32::new(0),
            sinks: Mutex::new(Sinks {
                lines: LineFormatter::default(),
                process_id: process::id(),
                to_stderr,
                file: None,
                syslog: None,
                log_ring: Arc::default(),
                is_read: false,
            }),
        }
    }

    /// Takes the file and the verbosity from the settings.
    ///
    /// # Errors
    /// The file cannot be opened; the previous one stays in use.
    pub(crate) fn configure(&self, global: &Global) -> io::Result<()> {
        self.verbose.store(global.verbose, Ordering::Relaxed);
        let mut sinks = self.sinks();
        sinks.configure_syslog(global);
        sinks.is_read = global.http_port != 0;
        let wanted = global.logfile.as_deref().filter(|name| !name.is_empty());
        if wanted == sinks.file.as_ref().map(|(name, _)| name.as_str()) {
            return Ok(());
        }
        sinks.file = wanted
            .map(|name| securefs::append(name, FILE_MODE).map(|file| (name.to_owned(), file)))
            .transpose()?;
        Ok(())
    }

    /// Opens the file again, for it may have been moved away.
    ///
    /// # Errors
    /// The file cannot be opened; the open one stays in use.
    pub(crate) fn reopen(&self) -> io::Result<()> {
        let mut sinks = self.sinks();
        if let Some((name, file)) = &mut sinks.file {
            *file = securefs::append(name.as_str(), FILE_MODE)?;
        }
        Ok(())
    }

    /// Writes one line, if its level is enabled.
    pub(crate) fn write(&self, record: &Record) {
        if !is_enabled(record.level, self.verbose.load(Ordering::Relaxed)) {
            return;
        }
        let mut sinks = self.sinks();
        let to_stderr = sinks.to_stderr;
        sinks.write(record, to_stderr);
    }

    /// Writes one line to standard error too, even with --quiet.
    pub(crate) fn write_to_stderr_too(&self, record: &Record) {
        self.sinks().write(record, true);
    }

    /// The last lines, for the control panel.
    pub(crate) fn log_ring(&self) -> Arc<panel::LogRing> {
        Arc::clone(&self.sinks().log_ring)
    }

    /// Standard error is a terminal.
    pub(crate) fn is_on_terminal(&self) -> bool {
        self.sinks().to_stderr && io::stderr().is_terminal()
    }

    /// Stops writing to standard error.
    pub(crate) fn leave_stderr(&self) {
        self.sinks().to_stderr = false;
    }

    /// The process has daemonized and has a new process id.
    pub(crate) fn is_in_background(&self) {
        self.sinks().process_id = process::id();
    }

    fn sinks(&self) -> MutexGuard<'_, Sinks> {
        self.sinks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sinks {
    fn configure_syslog(&mut self, global: &Global) {
        if !global.syslog {
            self.syslog = None;
            return;
        }
        let (name, facility) = (global.syslog_ident.as_deref().unwrap_or_default(), global.syslog_facility);
        let is_same = |(known, of, _): &(String, SyslogFacility, Syslog)| known == name && *of == facility;
        if !self.syslog.as_ref().is_some_and(is_same) {
            self.syslog = Some((name.to_owned(), facility, Syslog::open(name, facility)));
        }
    }

    /// syslog has its own time, process id and level.
    fn write_to_syslog(&self, record: &Record) {
        if let Some((.., syslog)) = &self.syslog {
            syslog.write(record.level, &telemetry::printable(&record.text));
        }
    }

    /// The line of now.
    fn write(&mut self, record: &Record, to_stderr: bool) {
        let text = self.lines.line(record, wall_us(), self.process_id);
        let line = text.as_bytes();
        if to_stderr {
            let _ = io::stderr().write_all(line);
        }
        if let Some((_, file)) = &mut self.file {
            let _ = file.write_all(line);
        }
        if self.is_read {
            self.log_ring.push(text);
        }
        self.write_to_syslog(record);
    }
}

/// Microseconds since 1970.
fn wall_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn is_enabled(level: Level, verbose: u32) -> bool {
    match level {
        Level::Noise => verbose >= 2,
        Level::Debug => verbose >= 1,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;

    #[test]
    fn debug_and_noise_are_said_when_asked_for() {
        assert!(is_enabled(Level::Log, 0) && !is_enabled(Level::Debug, 0));
        assert!(is_enabled(Level::Debug, 1) && !is_enabled(Level::Noise, 1));
        assert!(is_enabled(Level::Noise, 2));
    }

    #[test]
    fn lines_are_appended_and_a_moved_file_is_made_anew() {
        let directory = std::env::temp_dir().join(format!("weir-log-{}", process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (path, moved) = (directory.join("a.log"), directory.join("b.log"));
        let logger = Logger::new(false);
        let mut global = Global::default();
        global.logfile = Some(path.display().to_string());
        logger.configure(&global).unwrap();
        logger.write(&Record::new(Level::Log, "one"));
        logger.write(&Record::new(Level::Debug, "hidden"));
        fs::rename(&path, &moved).unwrap();
        logger.write(&Record::new(Level::Log, "two"));
        logger.reopen().unwrap();
        logger.write(&Record::new(Level::Log, "three"));
        let (old, new) = (fs::read_to_string(&moved).unwrap(), fs::read_to_string(&path).unwrap());
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(old.lines().count(), 2);
        assert!(old.ends_with("LOG two\n") && new.ends_with("LOG three\n"), "{old}{new}");
    }

    #[test]
    fn a_file_that_cannot_be_opened_leaves_the_one_before() {
        let logger = Logger::new(false);
        let mut global = Global::default();
        global.logfile = Some("/nonexistent/weir.log".into());
        assert!(logger.configure(&global).is_err());
        assert!(logger.reopen().is_ok());
    }
}
