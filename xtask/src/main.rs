//! The project's own checks, run as `cargo xtask CHECK` and as tests: `layers` holds the arrows between
//! crates to the table in ARCHITECTURE.md, `tidy` holds the habits that no compiler lint knows.
//! It reads the tree and prints `file:line: what`; it never writes to it.
#![forbid(unsafe_code)]

mod finding;
mod layers;
mod source;
mod tidy;
mod tree;

use std::process::ExitCode;

use finding::Finding;
use tree::Tree;

/// A check: its name on the command line, what it holds, and the function that finds what is wrong.
struct Check {
    name: &'static str,
    about: &'static str,
    run: fn(&Tree) -> Vec<Finding>,
}

const CHECKS: &[Check] = &[
    Check {
        name: "layers",
        about: "crates use only what ARCHITECTURE.md's table lets them",
        run: layers::check,
    },
    Check {
        name: "tidy",
        about: "bans, circles of imports, headers, lengths, SAFETY lines, words, generated files",
        run: tidy::check,
    },
];

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let known = |name: &String| CHECKS.iter().any(|check| check.name == name.as_str());
    if wanted.is_empty() || !wanted.iter().all(known) {
        eprintln!("usage: cargo xtask CHECK...");
        for check in CHECKS {
            eprintln!("  {:8} {}", check.name, check.about);
        }
        return ExitCode::from(2);
    }
    let tree = match Tree::open() {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("xtask: cannot list the tree's files with git: {error}");
            return ExitCode::from(2);
        }
    };
    let chosen = CHECKS.iter().filter(|check| wanted.iter().any(|name| name == check.name));
    let findings: Vec<Finding> = chosen.flat_map(|check| (check.run)(&tree)).collect();
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_clean(run: fn(&Tree) -> Vec<Finding>) {
        let tree = Tree::open().expect("git lists the files");
        let findings: Vec<String> = run(&tree).iter().map(Finding::to_string).collect();
        assert!(findings.is_empty(), "\n{}", findings.join("\n"));
    }

    #[test]
    fn the_tree_keeps_its_layers() {
        assert_clean(layers::check);
    }

    #[test]
    fn the_tree_is_tidy() {
        assert_clean(tidy::texts);
    }
}
