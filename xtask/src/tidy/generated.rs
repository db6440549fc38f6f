//! Files that are made from a table: each must be what its generator prints now.
//! A generator is any command of the workspace; it prints the file to its standard output.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::finding::Finding;
use crate::tree::Tree;

/// A generated file, the program of ours that makes it, and the arguments of `cargo` that print it.
pub(crate) struct Generated {
    file: &'static str,
    program: &'static str,
    cargo: &'static [&'static str],
}

const GENERATED: &[Generated] = &[
    Generated {
        file: "packaging/weir.1",
        program: "weir",
        cargo: &["run", "--quiet", "--package", "weir", "--", "--generate", "man"],
    },
    Generated {
        file: "packaging/weir-bench.1",
        program: "weir-bench",
        cargo: &["run", "--quiet", "--package", "weir-lab", "--", "--generate", "man"],
    },
    Generated {
        file: "packaging/weir.ini",
        program: "weir",
        cargo: &["run", "--quiet", "--package", "weir", "--", "--generate", "ini"],
    },
    Generated {
        file: "docs/pgpool.md",
        program: "weir",
        cargo: &["run", "--quiet", "--package", "weir", "--", "--generate", "pgpool"],
    },
];

/// Names a `weir` that has just been built, with `weir-bench` beside it, as `make test` does: cargo would build others, with other
/// features.
const BUILT: &str = "WEIR_GENERATOR";

/// Whether a file is made by a generator: its form is the generator's matter.
pub(super) fn is_generated(file: &str) -> bool {
    GENERATED.iter().any(|row| row.file == file)
}

/// Findings for every generated file that is not fresh.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    GENERATED.iter().filter_map(|row| stale(tree, row)).collect()
}

fn stale(tree: &Tree, row: &Generated) -> Option<Finding> {
    let remake = format!("cargo {} > {}", row.cargo.join(" "), row.file);
    let output = generator(row, std::env::var_os(BUILT)).current_dir(tree.root()).output();
    let fresh = match output {
        Ok(output) if output.status.success() => output.stdout,
        _ => return Some(Finding::at(row.file, 1, format!("its generator fails: {remake}"))),
    };
    let present = tree.text(row.file).unwrap_or_default();
    let line = first_difference(&present, &String::from_utf8_lossy(&fresh))?;
    Some(Finding::at(row.file, line, format!("is stale: {remake}")))
}

fn generator(row: &Generated, built: Option<OsString>) -> Command {
    let own = row.cargo.iter().position(|word| *word == "--").map(|at| &row.cargo[at + 1..]);
    let (program, arguments) = match (built, own) {
        (Some(weir), Some(own)) => (Path::new(&weir).with_file_name(row.program).into_os_string(), own),
        _ => (OsString::from("cargo"), row.cargo),
    };
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// The 1-based line where two texts part; `None` when they are the same.
fn first_difference(one: &str, other: &str) -> Option<usize> {
    if one == other {
        return None;
    }
    let same = one.lines().zip(other.lines()).take_while(|(left, right)| left == right).count();
    Some(same + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_have_their_line() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some(2));
        assert_eq!(first_difference("", "a\n"), Some(1));
        assert_eq!(first_difference("a\n", "a"), Some(2));
    }

    #[test]
    fn a_program_that_is_built_already_is_not_built_again() {
        let words = |row: usize, built: Option<&str>| {
            format!("{:?}", generator(&GENERATED[row], built.map(OsString::from)))
        };
        assert_eq!(words(0, Some("/x/weir")), r#""/x/weir" "--generate" "man""#);
        assert_eq!(words(1, Some("/x/weir")), r#""/x/weir-bench" "--generate" "man""#);
        assert!(words(1, None).starts_with(r#""cargo" "run""#));
    }

    #[test]
    fn a_failing_generator_is_a_finding() {
        let tree = Tree::open().expect("git lists the files");
        let row = Generated { file: "x.txt", program: "weir", cargo: &["no-such-command-at-all"] };
        assert!(stale(&tree, &row).is_some());
    }
}
