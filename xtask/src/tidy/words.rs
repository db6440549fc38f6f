//! What no tracked text file may hold: unfinished-work marks, spaces at a line's end (a generator may leave
//! some), paths of one person's machine, and hosts of package registries (the lock file names its own).

use crate::finding::Finding;
use crate::source::has_word;
use crate::tidy::generated::is_generated;

/// Split, so that this file passes its own rule.
const MARKS: &[&str] = &[concat!("FIX", "ME"), concat!("XX", "X"), concat!("tod", "o!")];

const PATHS: &[&str] =
    &[concat!("/ho", "me/"), concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];

const HOSTS: &[&str] = &[
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("pypi", ".org"),
    concat!("files.", "pythonhosted"),
    concat!("registry.", "npmjs"),
    concat!("proxy.", "golang"),
    concat!("repo.", "maven"),
];

const LOCK: &str = "Cargo.lock";

/// Findings for one text file.
pub(crate) fn check(file: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut found = |what: String| findings.push(Finding::at(file, index + 1, what));
        for mark in MARKS.iter().filter(|mark| has_word(line, mark)) {
            found(format!("`{mark}`: finish it, or open an issue"));
        }
        // A patch marks an unchanged empty line by a space.
        if line.ends_with([' ', '\t']) && !is_generated(file) && !file.ends_with(".patch") {
            found("space at the end of the line".to_owned());
        }
        for path in PATHS.iter().filter(|path| has_absolute(line, path)) {
            found(format!("`{path}…` is a path of one machine"));
        }
        for host in HOSTS.iter().filter(|host| file != LOCK && line.contains(**host)) {
            found(format!("`{host}` is a registry's host: the tools know it themselves"));
        }
    }
    findings
}

/// Whether an absolute path begins here: `src/work/x`, `$HOME/work/x` and `file.d/root/` are not meant.
fn has_absolute(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|letter| letter.is_alphanumeric() || "_-.}*~".contains(letter))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(file: &str, text: &str) -> Vec<String> {
        check(file, text).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn every_mark_path_and_host_is_found() {
        for word in MARKS.iter().chain(HOSTS) {
            assert_eq!(whats("a.md", &format!("see {word} there")).len(), 1, "{word}");
        }
        for path in PATHS {
            assert_eq!(whats("a.md", &format!("in `{path}me/x`")).len(), 1, "{path}");
            assert_eq!(whats("a.md", &format!("in src{path}x")).len(), 0, "{path}");
        }
    }

    #[test]
    fn marks_inside_words_are_not_marks() {
        assert!(whats("a.md", concat!("SQLSTATE 08XX", "X9 prefi", "xes")).is_empty());
    }

    #[test]
    fn trailing_space_is_found_with_its_line() {
        let found = check("a.md", "one\ntwo \n");
        assert_eq!(found, [Finding::at("a.md", 2, "space at the end of the line")]);
    }

    #[test]
    fn the_lock_file_may_name_its_registry() {
        assert!(whats(LOCK, HOSTS[0]).is_empty());
    }
}
