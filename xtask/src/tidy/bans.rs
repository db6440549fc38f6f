//! What a crate that ARCHITECTURE.md marks as pure may not name: the clock, sockets, files, the environment, processes,
//! threads, locks, mutable statics, entropy, the terminal. Their results come in as arguments, or not at all. Tests may
//! name them.

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::source::{Source, has_word};

/// A word that is banned, and what to do instead.
struct Ban {
    word: &'static str,
    instead: &'static str,
}

const CLOCK: &str = "time comes in as an argument";
const SOCKET: &str = "sockets belong to `driver`";
const OUTSIDE: &str = "files, environment, processes and threads belong to the callers";
const LOCK: &str = "a shard shares nothing: there is nothing to lock";
const STATIC: &str = "state belongs to a value with one owner";
const ENTROPY: &str =
    "entropy comes from a source given at construction; for maps use BTreeMap or a fixed hasher";
const TERMINAL: &str = "output leaves as an action or a log record";

const BANS: &[Ban] = &[
    Ban { word: "Instant::now", instead: CLOCK },
    Ban { word: "SystemTime::now", instead: CLOCK },
    Ban { word: "TcpStream", instead: SOCKET },
    Ban { word: "TcpListener", instead: SOCKET },
    Ban { word: "UdpSocket", instead: SOCKET },
    Ban { word: "UnixStream", instead: SOCKET },
    Ban { word: "UnixListener", instead: SOCKET },
    Ban { word: "UnixDatagram", instead: SOCKET },
    Ban { word: "ToSocketAddrs", instead: SOCKET },
    Ban { word: "std::fs", instead: OUTSIDE },
    Ban { word: "std::env", instead: OUTSIDE },
    Ban { word: "std::process", instead: OUTSIDE },
    Ban { word: "std::thread", instead: OUTSIDE },
    Ban { word: "Mutex", instead: LOCK },
    Ban { word: "RwLock", instead: LOCK },
    Ban { word: "Condvar", instead: LOCK },
    Ban { word: "static mut", instead: STATIC },
    Ban { word: "thread_local!", instead: STATIC },
    Ban { word: "RandomState", instead: ENTROPY },
    Ban { word: "HashMap::new", instead: ENTROPY },
    Ban { word: "HashSet::new", instead: ENTROPY },
    Ban { word: "HashMap::with_capacity", instead: ENTROPY },
    Ban { word: "HashSet::with_capacity", instead: ENTROPY },
    Ban { word: "getrandom", instead: ENTROPY },
    Ban { word: "println!", instead: TERMINAL },
    Ban { word: "print!", instead: TERMINAL },
    Ban { word: "eprintln!", instead: TERMINAL },
    Ban { word: "eprint!", instead: TERMINAL },
];

/// Modules of `std` that `use std::{…}` could bring in under their bare name.
const BANNED_MODULES: &[&str] = &["fs", "env", "process", "thread"];

/// Findings for one source file; none for a file outside the pure crates.
pub(crate) fn check(file: &str, source: &Source, pure: &BTreeSet<String>) -> Vec<Finding> {
    if !is_pure(file, pure) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line) in source.production() {
        for ban in BANS.iter().filter(|ban| has_word(&line.code, ban.word)) {
            findings.push(Finding::at(
                file,
                number,
                format!("`{}` in a pure crate: {}", ban.word, ban.instead),
            ));
        }
        if is_changing_static(&line.code) {
            findings.push(Finding::at(
                file,
                number,
                format!("a static that changes in a pure crate: {STATIC}"),
            ));
        }
    }
    findings.extend(grouped_imports(file, source));
    findings
}

fn is_pure(file: &str, pure: &BTreeSet<String>) -> bool {
    let mut parts = file.split('/');
    parts.next() == Some("crates")
        && parts.next().is_some_and(|name| pure.contains(name))
        && parts.next() == Some("src")
}

fn is_changing_static(code: &str) -> bool {
    let words = ["Atomic", "Cell<", "OnceLock", "LazyLock"];
    has_word(code, "static") && code.contains(": ") && words.iter().any(|word| code.contains(word))
}

/// `use std::{collections::BTreeMap, fs};` names a module without its path; a statement may take several lines.
fn grouped_imports(file: &str, source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut statement = String::new();
    for (number, line) in source.production() {
        let code = line.code.trim();
        if statement.is_empty() && !code.trim_start_matches("pub ").starts_with("use std::{") {
            continue;
        }
        statement.push_str(code);
        if !code.ends_with(';') {
            continue;
        }
        for module in BANNED_MODULES.iter().filter(|module| imports(&statement, module)) {
            findings.push(Finding::at(file, number, format!("`std::{module}` in a pure crate: {OUTSIDE}")));
        }
        statement.clear();
    }
    findings
}

fn imports(statement: &str, module: &str) -> bool {
    let inside = statement.split_once('{').map_or("", |(_, inside)| inside);
    inside.split([',', '}', ';']).any(|piece| {
        let piece = piece.trim();
        piece == module
            || piece.starts_with(&format!("{module}::"))
            || piece.starts_with(&format!("{module} as"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(file: &str, text: &str) -> Vec<usize> {
        let pure = ["wire", "session", "pool"].map(str::to_owned).into();
        check(file, &Source::scan(text), &pure).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn each_ban_is_found_and_has_its_line() {
        for ban in BANS {
            let text = format!("//! x\nlet a = {}();\n", ban.word);
            assert_eq!(lines("crates/pool/src/queue.rs", &text).first(), Some(&2), "{}", ban.word);
        }
    }

    #[test]
    fn tests_comments_strings_and_other_crates_are_free() {
        let text =
            "// Instant::now\nlet a = \"std::fs\";\n#[cfg(test)]\nmod tests { fn a() { Instant::now(); } }\n";
        assert_eq!(lines("crates/pool/src/queue.rs", text), Vec::<usize>::new());
        assert_eq!(lines("crates/driver/src/clock.rs", "Instant::now();"), Vec::<usize>::new());
        assert_eq!(lines("crates/pool/examples/x.rs", "Instant::now();"), Vec::<usize>::new());
    }

    #[test]
    fn addresses_are_not_sockets() {
        assert_eq!(
            lines("crates/session/src/a.rs", "use std::net::{IpAddr, SocketAddr};"),
            Vec::<usize>::new()
        );
        assert_eq!(lines("crates/session/src/a.rs", "use std::net::{IpAddr, TcpStream};"), [1]);
    }

    #[test]
    fn grouped_imports_are_seen_through() {
        assert_eq!(
            lines("crates/wire/src/a.rs", "use std::{\n    collections::BTreeMap,\n    fs,\n};\n"),
            [4]
        );
        assert_eq!(lines("crates/wire/src/a.rs", "use std::{fmt, str};\nuse x::fs;\n"), Vec::<usize>::new());
    }

    #[test]
    fn statics_that_change_are_found() {
        assert_eq!(lines("crates/wire/src/a.rs", "static NEXT: AtomicU64 = AtomicU64::new(0);"), [1]);
        assert_eq!(lines("crates/wire/src/a.rs", "static NAMES: &[&str] = &[];\n"), Vec::<usize>::new());
    }
}
