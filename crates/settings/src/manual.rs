//! Documents generated from the tables: the annotated sample file, and the rows of the manual.

use crate::table::{Effect, SettingInfo, TakesEffect};
use crate::{DATABASE, GLOBAL, PEER, USER};
use std::fmt::Write;

/// Every setting there is: `[pgbouncer]`, then the keys of `[databases]`, `[users]` and `[peers]`, each by name.
pub fn manual_rows() -> Vec<&'static SettingInfo> {
    let global = GLOBAL.iter().map(|row| &row.info);
    let rest = DATABASE.iter().map(|row| &row.info).chain(USER.iter().map(|row| &row.info));
    let rest = rest.chain(PEER.iter().map(|row| &row.info));
    let mut rows: Vec<&SettingInfo> = global.chain(rest).collect();
    rows.sort_by_key(|info| (info.scope, info.name));
    rows
}

/// A file in which every line is a comment or a section: each live setting with its default and what it does.
/// Loads as it is; with its lines uncommented it loads too and means the same.
pub fn sample_ini() -> String {
    let mut text = String::from(SAMPLE_HEAD);
    entries(
        &mut text,
        "databases",
        ";; NAME = key=value key='other value' ...",
        SAMPLE_DATABASES,
        DATABASE.iter().map(|row| &row.info),
    );
    entries(&mut text, "users", ";; NAME = key=value ...", SAMPLE_USERS, USER.iter().map(|row| &row.info));
    entries(&mut text, "peers", ";; NUMBER = key=value ...", SAMPLE_PEERS, PEER.iter().map(|row| &row.info));
    text.push_str("\n[pgbouncer]\n");
    let mut rows: Vec<&SettingInfo> =
        GLOBAL.iter().map(|row| &row.info).filter(|info| is_live(info)).collect();
    rows.sort_by_key(|info| info.name);
    // conffile names this file itself.
    for info in rows.into_iter().filter(|info| info.name != "conffile") {
        let restart = if info.when == TakesEffect::Restart { "; needs a restart" } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n;; {} ({}{restart})\n;{} = {}\n",
            info.doc,
            info.kind,
            info.name,
            info.default.unwrap_or_default()
        );
    }
    text
}

const SAMPLE_HEAD: &str = "\
;; Settings of Weir, in the language of PgBouncer. Lines that begin with ; or # are comments.
;; Every line that is commented out here shows the value that holds without it.
";

const SAMPLE_DATABASES: &str = "\
;app = host=127.0.0.1 port=5432 dbname=app pool_size=20
;; Any other name:
;* = host=127.0.0.1
";

const SAMPLE_USERS: &str = "\
;reporting = pool_mode=session max_user_connections=5
";

const SAMPLE_PEERS: &str = "\
;1 = host=/run/weir/1
";

/// A section whose entries have names of their own, with its keys explained.
fn entries(
    text: &mut String,
    section: &str,
    form: &str,
    examples: &str,
    rows: impl Iterator<Item = &'static SettingInfo>,
) {
    let _ = write!(text, "\n[{section}]\n{form}\n{examples};; Keys:\n");
    for info in rows.filter(|info| is_live(info)) {
        let _ = writeln!(text, ";;   {:<27} {} ({})", info.name, info.doc, info.kind);
    }
}

fn is_live(info: &SettingInfo) -> bool {
    info.effect == Effect::Live
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::files::memory::Memory;
    use crate::{Config, changes, load};

    fn config(text: &str) -> Config {
        load(&Memory(&[("w.ini", text)]), "w.ini", &[]).unwrap()
    }

    #[test]
    fn the_sample_loads_and_means_the_defaults() {
        let sample = config(&sample_ini());
        assert_eq!(changes(&config("[pgbouncer]"), &sample), []);
        assert!(sample.warnings.is_empty());
    }

    #[test]
    fn the_sample_without_its_comments_means_the_same() {
        let bare: Vec<String> = sample_ini()
            .lines()
            .filter(|line| !line.starts_with(";;") && *line != ";verbose = ")
            .map(|line| line.trim_start_matches(';').to_owned())
            .collect();
        assert!(bare.len() > 60);
        let sample = config(&bare.join("\n"));
        let names = ["app", "*"].map(str::to_owned);
        let expected: Vec<crate::Change> = names.into_iter().rev().map(crate::Change::Added).collect();
        let found = changes(&config("[pgbouncer]"), &sample);
        assert_eq!(found[..2], expected);
        assert_eq!(found[2..], [crate::Change::User("reporting".to_owned())]);
    }

    #[test]
    fn every_row_is_in_the_manual_with_a_sentence() {
        let rows = manual_rows();
        assert_eq!(rows.len(), GLOBAL.len() + DATABASE.len() + USER.len() + PEER.len());
        for info in rows {
            assert!(info.doc.ends_with('.') && info.doc.len() > 10, "{}", info.name);
        }
    }
}
