//! Who can be compared: one row each, with its ini file in the repository. A subject is started like any other;
//! no subject gets a setting that its file does not show.

use std::path::{Path, PathBuf};

use crate::compare::Options;
use crate::error::{LabError, Result};
use crate::lab::{Lab, ROLE};
use crate::pgbench::Target;
use crate::pooler::{Plan, Pooler};
use crate::postgres::free_port;
use crate::screen::Screen;

/// The binary that a subject is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Weir,
    PgBouncer,
    /// No pooler.
    Direct,
}

/// The table: a subject's name (its file is `NAME.ini`) and what it is.
const SUBJECTS: [(&str, Kind); 4] = [
    ("weir-epoll", Kind::Weir),
    ("weir-io_uring", Kind::Weir),
    (BASE, Kind::PgBouncer),
    ("direct", Kind::Direct),
];

/// The subject that ratios are taken to.
pub(super) const BASE: &str = "pgbouncer";

/// The names, for the command line.
pub(super) fn names() -> [&'static str; 4] {
    SUBJECTS.map(|(name, _)| name)
}

/// A subject that was asked for and can be started.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) name: String,
    /// Program and text of the ini file; `None` without a pooler.
    start: Option<(PathBuf, String)>,
}

impl Subject {
    /// Starts its pooler; `None` without one.
    pub(super) fn start(&self, lab: &Lab) -> Result<Option<Pooler>> {
        let Some((program, template)) = &self.start else { return Ok(None) };
        let port = free_port()?;
        let config = filled(template, port, lab.cluster().port(), lab.place().path());
        lab.place().write("users.txt", &format!("\"{ROLE}\" \"\"\n"))?;
        let plan = Plan { name: &self.name, program, config: &config, port, user: ROLE, pool: ROLE };
        Pooler::start(&plan, lab.place(), lab.interrupt()).map(Some)
    }
}

/// What the options ask for, with programs and files found.
pub(super) fn chosen(lab: &Lab, options: &Options) -> Result<Vec<Subject>> {
    let wanted = SUBJECTS.into_iter().filter(|(name, _)| options.subjects.iter().any(|wish| wish == name));
    wanted
        .map(|(name, kind)| Ok(Subject { name: name.to_owned(), start: start(lab, options, name, kind)? }))
        .collect()
}

fn start(lab: &Lab, options: &Options, name: &str, kind: Kind) -> Result<Option<(PathBuf, String)>> {
    let beside = std::env::current_exe().unwrap_or_default().with_file_name("weir");
    let program = match kind {
        Kind::Direct => return Ok(None),
        Kind::Weir => lab
            .program(options.weir.as_deref().unwrap_or(&beside), "build it: cargo build --release -p weir")?,
        Kind::PgBouncer => lab.program(&options.pgbouncer, "install it: apt-get install pgbouncer")?,
    };
    let file = options.configs.join(format!("{name}.ini"));
    let template =
        std::fs::read_to_string(&file).map_err(LabError::system(format!("reading {}", file.display())))?;
    Ok(Some((program, template)))
}

fn filled(template: &str, port: u16, postgres_port: u16, directory: &Path) -> String {
    template
        .replace("@PORT@", &port.to_string())
        .replace("@POSTGRES_PORT@", &postgres_port.to_string())
        .replace("@DIR@", &directory.display().to_string())
}

/// A subject that is up and takes clients.
#[derive(Debug)]
pub(super) struct Contender {
    pub(super) name: String,
    pub(super) pooler: Option<Pooler>,
    pub(super) target: Target,
}

impl Contender {
    /// Starts the subject.
    pub(super) fn start(lab: &Lab, subject: Subject, screen: &mut Screen) -> Result<Self> {
        let pooler = subject.start(lab)?;
        let port = pooler.as_ref().map_or(lab.cluster().port(), Pooler::port);
        let target = Target { port, ..lab.direct() };
        let contender = Self { name: subject.name, pooler, target };
        let (name, version) = contender.described();
        screen.step(&format!("{name}: {version}, port {port}"));
        Ok(contender)
    }

    /// Its name and what it says it is; a driver that is not the one its file asks for is pointed out.
    pub(super) fn described(&self) -> (String, String) {
        let Some(pooler) = &self.pooler else { return (self.name.clone(), "no pooler".to_owned()) };
        let driver = pooler.io_driver().map_or_else(String::new, |driver| {
            let warning = if self.name.ends_with(driver) { "" } else { ", NOT the one its file asks for" };
            format!(", io_driver {driver}{warning}")
        });
        (self.name.clone(), format!("{}{driver}", pooler.version()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_filled() {
        let text = filled("a=@PORT@ b=@POSTGRES_PORT@ c=@DIR@/x", 1, 2, Path::new("/d"));
        assert_eq!(text, "a=1 b=2 c=/d/x");
    }

    #[test]
    fn every_subjects_file_differs_from_pgbouncers_in_its_own_settings_only() {
        let settings = |name: &str| -> Vec<String> {
            let path = format!("{}/../../bench/{name}.ini", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with(';'));
            lines
                .filter(|line| *line != "[users]")
                .map(|line| line.replace(&format!("@DIR@/{name}."), "@DIR@/NAME."))
                .collect()
        };
        let base = settings(BASE);
        assert!(base.len() > 10);
        for (name, driver) in [("weir-epoll", "io_driver = epoll"), ("weir-io_uring", "io_driver = io_uring")]
        {
            let mut expected = base.clone();
            expected.push(driver.to_owned());
            assert_eq!(settings(name), expected);
        }
    }
}
