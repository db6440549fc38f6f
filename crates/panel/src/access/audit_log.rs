//! The audit log: a line for every login and for every request that could change something.
//! Owns the lines and their file (`http_audit_file`, else the log); the panel's own page has them from `trail`. Never writes a body, a password or a token.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use telemetry::{Level, printable};

use crate::audit_trail::{AuditEntry, AuditTrail, classify_request};
use crate::context::PanelContext;
use crate::time::now_rfc3339;

/// Of a file that is not there yet.
const MODE: u32 = 0o640;

/// A path is longer than this only on purpose.
const MAX_PATH_CHARS: usize = 200;

/// Writes the lines, and puts the same entries into the trail.
#[derive(Clone)]
pub(crate) struct AuditLog {
    context: PanelContext,
    trail: Arc<AuditTrail>,
}

impl AuditLog {
    pub(crate) fn new(context: PanelContext, trail: Arc<AuditTrail>) -> AuditLog {
        AuditLog { context, trail }
    }

    /// Records a request and its status.
    pub(crate) fn note(&self, who: &str, from: SocketAddr, method: &str, path: &str, status: u16) {
        let path: String = path.chars().take(MAX_PATH_CHARS).collect();
        let text = format!("{who}@{from} {method} {path} {status}");
        let (kind, pool) = classify_request(method, &path);
        let (user, did) = (printable(who), printable(&format!("{method} {path}")));
        self.trail.record(AuditEntry {
            kind,
            user,
            from: from.to_string(),
            text: did,
            pool,
            status,
            ..AuditEntry::default()
        });
        let config = self.context.config();
        let file = config.global.http_audit_file.as_deref().unwrap_or_default();
        if file.is_empty() {
            return self.context.log(Level::Log, format!("panel: {text}"));
        }
        // Opened anew for each line: there are few, and a file that was moved away is let go of.
        let line = format!("{} {}\n", now_rfc3339(), printable(&text));
        if let Err(why) =
            securefs::append(file, MODE).and_then(|mut opened| opened.write_all(line.as_bytes()))
        {
            self.context.log(Level::Warning, format!("panel: {text} (cannot write to \"{file}\": {why})"));
        }
    }
}
