//! Checks the dependencies between crates against the table in ARCHITECTURE.md (between `<!-- layers -->` and
//! `<!-- /layers -->`): which crates each may use, and which third-party crates. A pure crate uses pure crates only.
//! The table decides; this file names no crate but those that are exempt by rule.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use crate::finding::Finding;
use crate::tree::Tree;

const PAPER: &str = "ARCHITECTURE.md";

/// The second cell of a pure crate's row.
const PURE: &str = "pure";

/// A dependency on this crate is free where it is for tests only: the simulator may be used from any test.
const FREE_IN_TESTS: &str = "sim";

/// One row of the table: a crate, whether it is pure, the Weir crates it may use, and the third-party crates it may use.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    line: usize,
    name: String,
    is_pure: bool,
    may_use: Vec<String>,
    /// `None`: not limited (the cell says `any`).
    third_party: Option<Vec<String>>,
}

/// A package of the workspace as `cargo metadata` gives it.
#[derive(Debug)]
struct Package {
    name: String,
    manifest: String,
    uses: Vec<Use>,
}

#[derive(Debug)]
struct Use {
    name: String,
    ours: bool,
    tests_only: bool,
}

/// The crates that the table marks as pure; none where there is no table, which [`check`] reports.
pub(crate) fn pure_crates(tree: &Tree) -> BTreeSet<String> {
    let rows = tree.text(PAPER).and_then(|text| rows(&text).ok()).unwrap_or_default();
    rows.into_iter().filter(|row| row.is_pure).map(|row| row.name).collect()
}

/// Reads the table and the manifests and reports where they differ.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text(PAPER) else {
        return vec![Finding::at(PAPER, 1, "is missing: the table of layers stands there")];
    };
    let packages = match packages(tree) {
        Ok(packages) => packages,
        Err(what) => return vec![Finding::at("Cargo.toml", 1, what)],
    };
    match rows(&text) {
        Ok(rows) => compare(&rows, &packages),
        Err(finding) => vec![finding],
    }
}

/// Parses the table. Cells are split on `|`; only what stands in backticks counts.
fn rows(text: &str) -> Result<Vec<Row>, Finding> {
    let mut inside = false;
    let mut rows = Vec::new();
    for (index, line) in text.lines().enumerate() {
        match line.trim() {
            "<!-- layers -->" => inside = true,
            "<!-- /layers -->" => inside = false,
            table if inside && table.starts_with('|') => rows.extend(row(index + 1, table)?),
            _ => {}
        }
    }
    if rows.is_empty() {
        return Err(Finding::at(
            PAPER,
            1,
            "has no table of layers between `<!-- layers -->` and `<!-- /layers -->`",
        ));
    }
    Ok(rows)
}

/// One table line; the header and the rule under it give `None`.
fn row(line: usize, table: &str) -> Result<Option<Row>, Finding> {
    let cells: Vec<&str> = table.trim_matches('|').split('|').map(str::trim).collect();
    if cells[0] == "crate" || cells[0].starts_with('-') || cells[0].starts_with(":-") {
        return Ok(None);
    }
    let [name, pure, _owns, may_use, third_party] = cells[..] else {
        return Err(Finding::at(
            PAPER,
            line,
            format!("a row of layers has 5 cells, this one {}", cells.len()),
        ));
    };
    let Some(name) = ticked(name).into_iter().next() else {
        return Err(Finding::at(PAPER, line, "the first cell names a crate in backticks"));
    };
    if !["", PURE].contains(&pure) {
        return Err(Finding::at(PAPER, line, format!("the second cell is empty or `{PURE}`, not `{pure}`")));
    }
    let third_party = (third_party != "any").then(|| ticked(third_party));
    Ok(Some(Row { line, name, is_pure: pure == PURE, may_use: ticked(may_use), third_party }))
}

/// The pieces of a cell that stand in backticks.
fn ticked(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn compare(rows: &[Row], packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut reach: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let pure: BTreeSet<&str> = rows.iter().filter(|row| row.is_pure).map(|row| row.name.as_str()).collect();
    for row in rows {
        let impure = row.may_use.iter().filter(|used| row.is_pure && !pure.contains(used.as_str()));
        findings.extend(impure.map(|used| {
            Finding::at(
                PAPER,
                row.line,
                format!("`{}` is pure and may not use `{used}`, which is not", row.name),
            )
        }));
        let mut all = BTreeSet::new();
        for used in &row.may_use {
            match reach.get(used.as_str()) {
                Some(below) => all.extend(below.iter().copied().chain([used.as_str()])),
                None => findings.push(Finding::at(
                    PAPER,
                    row.line,
                    format!(
                        "`{}` may use `{used}`, which no row above names: rows go lowest first",
                        row.name
                    ),
                )),
            }
        }
        if !packages.iter().any(|package| package.name == row.name) {
            findings.push(Finding::at(
                PAPER,
                row.line,
                format!("`{}` is in the table and not in the workspace", row.name),
            ));
        }
        reach.insert(&row.name, all);
    }
    for package in packages {
        match rows.iter().find(|row| row.name == package.name) {
            Some(row) => findings.extend(arrows(package, row, &reach)),
            None if package.manifest.starts_with("crates/") => findings.push(Finding::at(
                &package.manifest,
                1,
                format!("`{}` has no row in {PAPER}'s table of layers", package.name),
            )),
            None => {}
        }
    }
    findings
}

fn arrows(package: &Package, row: &Row, reach: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<Finding> {
    let empty = BTreeSet::new();
    let allowed = reach.get(row.name.as_str()).unwrap_or(&empty);
    let mut findings = Vec::new();
    for used in &package.uses {
        let wrong = if used.ours {
            let free = used.tests_only && used.name == FREE_IN_TESTS;
            !free && !allowed.contains(used.name.as_str())
        } else {
            !used.tests_only && row.third_party.as_ref().is_some_and(|list| !list.contains(&used.name))
        };
        if wrong {
            let kind = if used.ours { "may not use" } else { "may not use the third-party crate" };
            findings.push(Finding::at(
                &package.manifest,
                1,
                format!("`{}` {kind} `{}` ({PAPER}:{})", package.name, used.name, row.line),
            ));
        }
    }
    findings
}

/// The workspace's packages. Fails with a sentence where cargo fails or says something unexpected.
fn packages(tree: &Tree) -> Result<Vec<Package>, String> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(tree.root())
        .output()
        .map_err(|error| format!("cargo metadata does not start: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata fails: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata is not JSON: {error}"))?;
    let root = metadata["workspace_root"].as_str().unwrap_or_default().to_owned();
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    Ok(packages.iter().map(|package| package_from(package, &root)).collect())
}

fn package_from(package: &Value, root: &str) -> Package {
    let manifest = package["manifest_path"].as_str().unwrap_or_default();
    let uses = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
    Package {
        name: short(package["name"].as_str().unwrap_or_default()),
        manifest: manifest.strip_prefix(root).unwrap_or(manifest).trim_start_matches('/').to_owned(),
        uses: uses
            .iter()
            .map(|used| Use {
                name: short(used["name"].as_str().unwrap_or_default()),
                ours: used["path"].is_string(),
                tests_only: used["kind"] == "dev",
            })
            .collect(),
    }
}

/// A package's name as the table and the code have it: `weir-wire` is `wire`.
fn short(name: &str) -> String {
    name.strip_prefix("weir-").unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
# x
<!-- layers -->
| crate | pure | owns | may use | third-party |
|---|---|---|---|---|
| `wire` | pure | bytes | - | `memchr` |
| `pool` | pure | who | `wire` | - |
| `driver` | | sockets | `pool` | any |
<!-- /layers -->
| `not` | a | row | here |
";

    fn package(name: &str, uses: &[(&str, bool, bool)]) -> Package {
        let uses = uses.iter().map(|&(name, ours, tests_only)| Use { name: name.into(), ours, tests_only });
        Package { name: name.into(), manifest: format!("crates/{name}/Cargo.toml"), uses: uses.collect() }
    }

    fn whats(packages: &[Package]) -> Vec<String> {
        let rows = rows(TABLE).expect("the table parses");
        compare(&rows, packages).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn the_table_is_read_from_between_its_marks() {
        let rows = rows(TABLE).expect("the table parses");
        assert_eq!(rows.len(), 3);
        assert_eq!((rows[0].line, rows[0].name.as_str()), (5, "wire"));
        assert_eq!(rows[0].third_party, Some(vec!["memchr".to_owned()]));
        assert_eq!(rows[2].third_party, None);
        assert_eq!(rows.iter().map(|row| row.is_pure).collect::<Vec<_>>(), [true, true, false]);
    }

    #[test]
    fn arrows_reach_through() {
        let packages = [
            package("wire", &[("memchr", false, false)]),
            package("pool", &[]),
            package("driver", &[("wire", true, false)]),
        ];
        assert_eq!(whats(&packages), Vec::<String>::new());
    }

    #[test]
    fn an_arrow_upwards_is_found() {
        let packages =
            [package("wire", &[("pool", true, false)]), package("pool", &[]), package("driver", &[])];
        assert_eq!(whats(&packages), ["`wire` may not use `pool` (ARCHITECTURE.md:5)"]);
    }

    #[test]
    fn tests_may_use_the_simulator_and_foreign_crates_but_no_wrong_arrow() {
        let packages = [
            package("wire", &[("sim", true, true), ("proptest", false, true), ("driver", true, true)]),
            package("pool", &[]),
            package("driver", &[]),
        ];
        assert_eq!(whats(&packages), ["`wire` may not use `driver` (ARCHITECTURE.md:5)"]);
    }

    #[test]
    fn a_foreign_crate_must_be_listed() {
        let packages =
            [package("wire", &[]), package("pool", &[("rand", false, false)]), package("driver", &[])];
        assert_eq!(whats(&packages), ["`pool` may not use the third-party crate `rand` (ARCHITECTURE.md:6)"]);
    }

    #[test]
    fn rows_and_crates_must_meet() {
        let packages = [package("wire", &[]), package("pool", &[]), package("extra", &[])];
        assert_eq!(
            whats(&packages),
            [
                "`driver` is in the table and not in the workspace",
                "`extra` has no row in ARCHITECTURE.md's table of layers"
            ]
        );
    }

    #[test]
    fn a_pure_crate_uses_pure_crates_only() {
        let table = "<!-- layers -->\n| `a` | | x | - | - |\n| `b` | pure | x | `a` | - |\n<!-- /layers -->";
        let rows = rows(table).expect("the table parses");
        let found = compare(&rows, &[package("a", &[]), package("b", &[])]);
        assert_eq!(found[0].what, "`b` is pure and may not use `a`, which is not");
    }

    #[test]
    fn the_mark_of_a_pure_crate_is_one_word() {
        let table = "<!-- layers -->\n| `a` | yes | x | - | - |\n<!-- /layers -->";
        assert_eq!(
            rows(table).expect_err("no such mark").what,
            "the second cell is empty or `pure`, not `yes`"
        );
    }

    #[test]
    fn a_row_may_only_use_rows_above_it() {
        let table = "<!-- layers -->\n| `a` | | x | `b` | - |\n| `b` | | x | - | - |\n<!-- /layers -->";
        let rows = rows(table).expect("the table parses");
        let found = compare(&rows, &[package("a", &[]), package("b", &[])]);
        assert_eq!(found[0].what, "`a` may use `b`, which no row above names: rows go lowest first");
    }
}
