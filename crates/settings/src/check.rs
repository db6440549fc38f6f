//! `weir check`: everything that can be said of a file without running it: what is wrong, what was said twice, and what
//! means something else than in PgBouncer.
//!
//! Reads the same draft that starting reads, so it cannot judge otherwise. Never changes anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::compat::Parity;
use crate::finding::{Finding, Severity};
use crate::raw_config::{Draft, Files, Said, Section};
use crate::table::About;
use crate::{Config, connstr, database, global, user};

/// What a check found.
#[derive(Debug)]
pub struct Checked {
    /// The configuration, if the process would start with it.
    pub config: Option<Arc<Config>>,
    /// What is wrong and what is odd, in the order of the files.
    pub findings: Vec<Finding>,
    /// What means something else than in PgBouncer, each where it was said.
    pub differences: Vec<Finding>,
}

impl Checked {
    /// How many findings would keep the process from starting.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.findings.iter().filter(|finding| finding.severity == Severity::Error).count()
    }
}

/// Checks a file with its includes.
pub fn check(files: &dyn Files, path: &str) -> Checked {
    let draft = Draft::read(files, path);
    let pools = draft.pools.iter().flat_map(|pools| &pools.said);
    let differences = draft.said.iter().chain(pools).flat_map(differences).collect();
    let repeated = repeated(&draft.said);
    let (config, mut findings) = match draft.config(files, &[], None) {
        Ok(config) => {
            let warnings = config.warnings.clone();
            (Some(Arc::new(config)), warnings)
        }
        Err(findings) => (None, findings),
    };
    findings.extend(repeated);
    Checked { config, findings, differences }
}

/// Assignments that a later one of the same name overrules, as in PgBouncer.
fn repeated(said: &[Said]) -> Vec<Finding> {
    let mut last: BTreeMap<(u8, &str), &Said> = BTreeMap::new();
    let mut found = Vec::new();
    for now in said {
        let section = now.section as u8;
        if let Some(before) = last.insert((section, &now.key), now) {
            let message =
                format!("\"{}\" is said again in {}:{}, which counts", now.key, now.at.file, now.at.line);
            found.push(Finding::warning(&before.at, message));
        }
    }
    found
}

/// What an assignment says otherwise than it would to PgBouncer.
fn differences(said: &Said) -> Vec<Finding> {
    let abouts: Vec<&About> = match said.section {
        Section::Pgbouncer => global::row(&said.key).map(|row| &row.about).into_iter().collect(),
        Section::Databases => keys(said, |key| database::row(key).map(|row| &row.about)),
        Section::Users => keys(said, |key| user::row(key).map(|row| &row.about)),
        Section::Peers => Vec::new(),
    };
    abouts.into_iter().filter_map(|about| difference(said, about)).collect()
}

fn keys(said: &Said, about: impl Fn(&str) -> Option<&'static About>) -> Vec<&'static About> {
    connstr::pairs(&said.value).unwrap_or_default().into_iter().filter_map(|(key, _)| about(key)).collect()
}

fn difference(said: &Said, about: &About) -> Option<Finding> {
    match about.parity() {
        Parity::Different(why) => Some(Finding::warning(&said.at, format!("{}: {why}", about.name))),
        // Weir's own settings are no differences: who writes them means Weir.
        Parity::Same | Parity::Better(_) | Parity::Own => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw_config::memory::Memory;

    fn told(text: &str) -> (Vec<String>, Vec<String>, usize) {
        let checked = check(&Memory(&[("w.ini", text)]), "w.ini");
        let lines = |findings: &[Finding]| findings.iter().map(ToString::to_string).collect();
        (lines(&checked.findings), lines(&checked.differences), checked.errors())
    }

    #[test]
    fn a_file_that_means_the_same_is_passed_in_silence() {
        assert_eq!(told("[pgbouncer]\npool_mode = session\n[databases]\na = host=h"), (vec![], vec![], 0));
    }

    #[test]
    fn what_is_wrong_twice_or_different_is_told_with_its_line() {
        let (findings, differences, errors) = told(
            "[pgbouncer]\npool_mode = session\npkt_buf = 4096\nthreads = 2\npool_mode = transaction\nfrob = 1",
        );
        assert_eq!(
            findings,
            [
                "w.ini:6: unknown parameter: pgbouncer/frob",
                "w.ini:2: \"pool_mode\" is said again in w.ini:5, which counts",
            ]
        );
        assert_eq!(errors, 1);
        assert!(differences[0].starts_with("w.ini:3: pkt_buf: "), "{differences:?}");
        assert_eq!(
            differences.len(),
            1,
            "a setting that PgBouncer does not have is no difference: {differences:?}"
        );
    }
}
