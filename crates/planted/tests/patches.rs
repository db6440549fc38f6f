//! The patches that plant the bugs: one for each name, and all of them apply to the sources as they are.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn patches() -> Vec<PathBuf> {
    let folders =
        ["crates/sim/bugs", "crates/driver/bugs", "crates/fleetsim/bugs"].map(|folder| root().join(folder));
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).expect("a folder of patches"));
    files.map(|file| file.expect("a patch").path()).collect()
}

#[test]
fn each_bug_has_a_patch() {
    let patches = patches();
    let names: BTreeSet<&str> =
        patches.iter().filter_map(|patch| patch.file_stem().and_then(|name| name.to_str())).collect();
    assert_eq!(names, weir_planted::BUGS.iter().copied().collect());
}

#[test]
fn each_patch_plants_its_own_bug_and_applies() {
    for patch in patches() {
        let name = patch.file_stem().and_then(|name| name.to_str()).expect("a name");
        let text = std::fs::read_to_string(&patch).expect("a text");
        let planted = text.lines().filter(|line| line.starts_with('+') && line.contains("planted::bug!(\""));
        assert!(planted.clone().count() > 0, "{name} plants nothing");
        assert!(
            planted.clone().all(|line| line.contains(&format!("\"{name}\""))),
            "{name} plants another bug"
        );
        let applied = Command::new("git").args(["apply", "--check"]).arg(&patch).current_dir(root()).output();
        let applied = applied.expect("git runs");
        let why = String::from_utf8_lossy(&applied.stderr).into_owned();
        assert!(applied.status.success(), "{name} does not apply to the sources: {why}");
    }
}
