//! Who can be compared: one row each, with its ini file in the repository. A subject is started like any other;
//! no subject gets a setting that its file does not show.

use std::path::PathBuf;

use crate::compare::Options;
use crate::series::Common;
use crate::template::{Filling, Variant};
use lab::error::{LabError, Result};
use lab::laboratory::{Lab, ROLE};
use lab::pooler::{Invocation, Plan, Pooler};
use lab::postgres::free_port;
use lab::screen::Screen;
use lab::target::Address;

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
pub(crate) struct Subject {
    pub(super) name: String,
    /// Program and text of the ini file; `None` without a pooler.
    start: Option<(PathBuf, String)>,
}

impl Subject {
    /// Weir by one of its files.
    ///
    /// # Errors
    /// When the program or the file is not there.
    pub(crate) fn weir(lab: &Lab, common: &Common, name: &str) -> Result<Self> {
        Ok(Self { name: name.to_owned(), start: start(lab, common, name, Kind::Weir)? })
    }

    /// Starts its pooler, with `further` lines behind its file; `None` without one.
    pub(super) fn start(&self, lab: &Lab, further: &str) -> Result<Option<Pooler>> {
        let Some((program, template)) = &self.start else { return Ok(None) };
        let port = free_port()?;
        let filling = Filling {
            port,
            postgres_port: lab.cluster().port(),
            directory: lab.place().path(),
            role: ROLE,
            variant: Variant::Plain,
            pools: 0,
        };
        let config = filling.fill(template).unwrap_or_default() + further;
        lab.place().write("users.txt", &format!("\"{ROLE}\" \"\"\n"))?;
        let manner = Invocation::default();
        let plan = Plan { name: &self.name, program, config: &config, port, user: ROLE, pool: ROLE, manner };
        Pooler::start(&plan, lab.place(), lab.interrupt()).map(Some)
    }
}

/// What the options ask for, with programs and files found.
pub(super) fn chosen(lab: &Lab, options: &Options) -> Result<Vec<Subject>> {
    let wanted = SUBJECTS.into_iter().filter(|(name, _)| options.subjects.iter().any(|wish| wish == name));
    wanted
        .map(|(name, kind)| {
            Ok(Subject { name: name.to_owned(), start: start(lab, &options.common, name, kind)? })
        })
        .collect()
}

fn start(lab: &Lab, common: &Common, name: &str, kind: Kind) -> Result<Option<(PathBuf, String)>> {
    let program = match kind {
        Kind::Direct => return Ok(None),
        Kind::Weir => common.weir(lab)?,
        Kind::PgBouncer => common.pgbouncer(lab)?,
    };
    let file = common.file(name);
    let template =
        std::fs::read_to_string(&file).map_err(LabError::system(format!("reading {}", file.display())))?;
    Ok(Some((program, template)))
}

/// A subject that is up and takes clients.
#[derive(Debug)]
pub(crate) struct Contender {
    pub(super) name: String,
    pub(crate) pooler: Option<Pooler>,
    pub(crate) target: Address,
}

impl Contender {
    /// Starts the subject, with `further` lines behind its file.
    ///
    /// # Errors
    /// When it does not come up.
    pub(crate) fn start(lab: &Lab, subject: Subject, further: &str, screen: &mut Screen) -> Result<Self> {
        let pooler = subject.start(lab, further)?;
        let port = pooler.as_ref().map_or(lab.cluster().port(), Pooler::port);
        let target = Address { port, ..lab.direct() };
        let contender = Self { name: subject.name, pooler, target };
        let (name, version) = contender.described();
        screen.step(&format!("{name}: {version}, port {port}"));
        Ok(contender)
    }

    /// Its name and what it says it is; a driver that is not the one its file asks for is pointed out.
    pub(crate) fn described(&self) -> (String, String) {
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
    fn every_subjects_file_differs_from_pgbouncers_in_its_own_settings_only() {
        let settings = |name: &str| -> Vec<String> {
            let path = format!("{}/configs/{name}.ini", env!("CARGO_MANIFEST_DIR"));
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
