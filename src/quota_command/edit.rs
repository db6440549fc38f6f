//! `weir quota edit`: the file in an editor, and in place only if it is valid.

use std::fs;
use std::io;
use std::process::Command;

use settings::{Config, Files, Finding, Severity, quotas_path};

use crate::files::Disk;
use crate::quotas_file;

/// The disk without these files.
struct Without<'a>(&'a [Finding]);

impl Files for Without<'_> {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        match self.0.iter().any(|finding| &*finding.file == path) {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Disk.read(path),
        }
    }
}

/// The configuration without its file of quotas, if that is all that is wrong with it.
pub(super) fn config_without_quotas(file: &str, findings: &[Finding]) -> Option<Config> {
    let wrong: Vec<_> =
        findings.iter().filter(|finding| finding.severity == Severity::Error).cloned().collect();
    let config = settings::load(&Without(&wrong), file, &[]).ok()?;
    let path = quotas_path(&config.global)?;
    wrong.iter().all(|finding| &*finding.file == path).then_some(config)
}

/// Edits the file; false if nothing was changed.
///
/// # Errors
/// What went wrong; the file is as it was, and what was edited has the name that is told.
pub(super) fn edit(path: &str) -> Result<bool, String> {
    let before = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(why) if why.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(why) => return Err(format!("cannot read {path}: {why}")),
    };
    let place = securefs::Directory::scratch(&std::env::temp_dir(), "weir-quota");
    let place = place.map_err(|why| format!("cannot make a directory for the edited file: {why}"))?;
    let copy = place.path().join("quotas");
    fs::write(&copy, &before).map_err(|why| format!("cannot write {}: {why}", copy.display()))?;
    let outcome = edited(path, &before, &copy.display().to_string());
    if outcome.is_ok() {
        let _ = fs::remove_dir_all(place.path());
    }
    outcome
}

fn edited(path: &str, before: &[u8], copy: &str) -> Result<bool, String> {
    let kept = |why: String| format!("{why}\n{path} is as it was; what was edited is in {copy}");
    let editor =
        ["VISUAL", "EDITOR"].iter().find_map(|name| std::env::var(name).ok()).filter(|name| !name.is_empty());
    let editor = editor.unwrap_or_else(|| "vi".to_owned());
    let mut shell = Command::new("/bin/sh");
    let status = shell.args(["-c", &format!("{editor} \"$1\""), "sh", copy]).status();
    let status = status.map_err(|why| kept(format!("cannot run {editor}: {why}")))?;
    if !status.success() {
        return Err(kept(format!("{editor} has failed: {status}")));
    }
    let after = fs::read(copy).map_err(|why| kept(format!("cannot read what was edited: {why}")))?;
    if after == before {
        return Ok(false);
    }
    quotas_file::checked(copy, &after).map_err(kept)?;
    if fs::read(path).unwrap_or_default() != before {
        return Err(kept(format!("{path} was changed by another command meanwhile")));
    }
    quotas_file::write(path, &after).map_err(kept)?;
    Ok(true)
}
