//! `weir import`: reads pgpool-II's files and writes Weir's. Owns the names and modes of what is written, and that no file is replaced
//! unasked. What becomes of a setting is `import`'s.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use import::{Conf, Imported, Request, Rules, Secrets, Users};
use programs::Status;
use settings::{Files as _, Finding};

use crate::cli::ImportTask;
use crate::files::Disk;

/// Configuration and rules: as `make install` installs weir.ini.
const FILE_MODE: u32 = 0o640;
/// Secrets.
const SECRET_MODE: u32 = 0o600;

/// Converts, and prints what became of each setting. Fails if nothing was written, or Weir would not start with it.
pub(crate) fn run(task: &ImportTask) -> Status {
    match import(task) {
        Ok(()) => Status::Done,
        Err(why) => {
            let _ = writeln!(io::stderr(), "weir import:\n{}", why.trim_end());
            Status::Failed
        }
    }
}

fn import(task: &ImportTask) -> Result<(), String> {
    let conf = Conf::read(&Disk, &task.file);
    let directory = absolute(&task.file)?;
    let directory = directory.parent().unwrap_or(Path::new("/")).display().to_string();
    let Some(output) = &task.output else {
        let request =
            Request { path: &task.file, conf: &conf, directory: &directory, rules: None, users: None };
        let Imported { ini, list } = import::convert(&request).map_err(|refused| refused.to_string())?;
        crate::print(&ini);
        let _ = io::stderr().write_all(list.as_bytes());
        return Ok(());
    };
    let targets = Targets::beside(&absolute(output)?)?;
    let rules = task
        .pool_hba
        .as_deref()
        .map(|path| read(path).map(|bytes| import::rules(&Disk, path, &targets.rules, &bytes)))
        .transpose()?;
    let secrets = task
        .pool_passwd
        .as_deref()
        .map(|path| read(path).map(|bytes| import::userlist(path, &bytes)))
        .transpose()?;
    let request = Request {
        path: &task.file,
        conf: &conf,
        directory: &directory,
        rules: rules.as_ref().map(|_| targets.rules.as_str()),
        users: secrets.as_ref().map(|secrets| Users { path: &targets.users, has_md5: secrets.has_md5 }),
    };
    let imported = import::convert(&request).map_err(|refused| refused.to_string())?;
    targets.write(&imported.ini, rules.as_ref(), secrets.as_ref(), task.force)?;
    crate::print(&listed(&imported, rules.as_ref(), secrets.as_ref()));
    say_unused(&conf, rules.is_some());
    let report = settings::check(&Disk, &targets.ini);
    report.findings.iter().for_each(|finding| drop(writeln!(io::stderr(), "{finding}")));
    if report.errors() > 0 { Err(format!("{}: Weir would not start with it", targets.ini)) } else { Ok(()) }
}

/// Rules that the configuration does not name are of no effect.
fn say_unused(conf: &Conf, has_rules: bool) {
    if has_rules && !import::uses_rules(conf) {
        let _ = writeln!(
            io::stderr(),
            "The rules are not used: enable_pool_hba is off. `auth_type = hba` turns them on."
        );
    }
}

/// The list, and what was found in the other files.
fn listed(imported: &Imported, rules: Option<&Rules>, secrets: Option<&Secrets>) -> String {
    let mut text = String::new();
    let mut section = |heading: &str, findings: &[Finding]| {
        if !findings.is_empty() {
            text.push_str(heading);
            findings.iter().for_each(|finding| text.push_str(&format!("  {finding}\n")));
            text.push('\n');
        }
    };
    section("Rules that were not copied as they are:\n", rules.map_or(&[], |rules| &rules.problems));
    section("Users who were not copied:\n", secrets.map_or(&[], |secrets| &secrets.problems));
    text.push_str(&imported.list);
    text
}

/// What is written.
struct Targets {
    ini: String,
    rules: String,
    users: String,
}

impl Targets {
    fn beside(output: &Path) -> Result<Self, String> {
        let text = |path: PathBuf| {
            let text = path.into_os_string().into_string();
            text.map_err(|path| format!("{}: not UTF-8 text", path.display()))
        };
        Ok(Self {
            ini: text(output.to_owned())?,
            rules: text(output.with_file_name("weir_hba.conf"))?,
            users: text(output.with_file_name("userlist.txt"))?,
        })
    }

    /// Writes all files, or none where one is there already and must not be replaced.
    fn write(
        &self,
        ini: &str,
        rules: Option<&Rules>,
        secrets: Option<&Secrets>,
        force: bool,
    ) -> Result<(), String> {
        let files = [
            secrets.map(|secrets| (&self.users, &*secrets.text, SECRET_MODE)),
            rules.map(|rules| (&self.rules, &*rules.text, FILE_MODE)),
            Some((&self.ini, ini, FILE_MODE)),
        ];
        for (path, ..) in files.iter().flatten() {
            if !force && fs::symlink_metadata(path).is_ok() {
                return Err(format!("{path}: it is there already; --force replaces it"));
            }
        }
        for (path, text, mode) in files.into_iter().flatten() {
            securefs::replace_with_mode(path, text.as_bytes(), mode)
                .map_err(|fault| format!("{path}: {fault}"))?;
        }
        Ok(())
    }
}

fn read(path: &str) -> Result<Vec<u8>, String> {
    Disk.read(path).map_err(|fault| format!("{path}: {fault}"))
}

fn absolute(path: &str) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|fault| format!("{path}: {fault}"))
}
