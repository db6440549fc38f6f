//! Circles of imports between the top-level modules of a crate: a module that another one imports, directly or through
//! others, does not import that one. Two modules in a circle can only be read, moved and tested as one.
//! Reads paths that begin with `crate::` or climb to the root with `super::`; never sees calls of methods, nor tests.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Finding;
use crate::source::Source;
use crate::tree::Tree;

/// How many modules of a crate may still be in circles. A number may fall; a crate without a circle leaves the list.
const CEILINGS: &[(&str, usize)] = &[];

/// The imports between the top-level modules of a crate.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Findings for every crate with a library.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let is_root = |file: &&str| file.starts_with("crates/") && file.ends_with("/src/lib.rs");
    tree.files().filter(is_root).filter_map(|root| check_crate(tree, root)).collect()
}

fn check_crate(tree: &Tree, root: &str) -> Option<Finding> {
    let directory = root.strip_suffix("lib.rs")?;
    let name = root.split('/').nth(1)?;
    let names = Names::of(&Source::scan(&tree.text(root)?));
    let mut imports = Imports::new();
    for file in tree.files().filter(|file| file.ends_with(".rs") && !super::is_test_file(file)) {
        let Some(path) = file.strip_prefix(directory).filter(|path| *path != "lib.rs") else { continue };
        let Some(text) = tree.text(file) else { continue };
        let (module, depth) = place(path);
        let used = names.used(&Source::scan(&text), depth);
        imports
            .entry(module.to_owned())
            .or_default()
            .extend(used.into_iter().filter(|other| other != module));
    }
    verdict(root, name, &circles(&imports), CEILINGS)
}

fn verdict(root: &str, name: &str, found: &[Vec<String>], ceilings: &[(&str, usize)]) -> Option<Finding> {
    let count: usize = found.iter().map(Vec::len).sum();
    match ceilings.iter().find(|(listed, _)| *listed == name) {
        None if count == 0 => None,
        Some((_, ceiling)) if (1..=*ceiling).contains(&count) => None,
        Some(_) if count == 0 => {
            Some(Finding::at(root, 1, "has no circle of imports any more: take it off the list of ceilings"))
        }
        listed => {
            let ceiling = listed.map_or(0, |(_, ceiling)| *ceiling);
            let shown: Vec<String> = found.iter().map(|modules| modules.join(", ")).collect();
            let what = format!(
                "{count} modules import each other in circles, at most {ceiling}: {}",
                shown.join("; ")
            );
            Some(Finding::at(root, 1, what))
        }
    }
}

/// The top-level module of a file below `src`, and how many `super::` lead from it to the crate's root.
fn place(path: &str) -> (&str, usize) {
    let parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    let depth = if parts.last() == Some(&"mod") { parts.len() - 1 } else { parts.len() };
    (parts[0], depth)
}

/// The names at a crate's root.
#[derive(Debug, Default)]
struct Names {
    modules: BTreeSet<String>,
    /// What the root exports from its modules, by name.
    exported: BTreeMap<String, String>,
}

impl Names {
    fn of(root: &Source) -> Names {
        let mut names = Names::default();
        let code: String = production(root);
        for statement in code.split(['{', '}', ';']).map(str::trim) {
            // The first one stands behind the attributes of the crate.
            if let [.., "mod", module] = statement.split_whitespace().collect::<Vec<_>>()[..] {
                names.modules.insert(module.to_owned());
            }
        }
        for statement in code.split(';').map(str::trim) {
            let Some((_, path)) = statement.split_once("use ") else { continue };
            let module = first_word(path);
            if names.modules.contains(module) {
                let words = path.split(|letter: char| !is_letter(letter)).filter(|word| !word.is_empty());
                names.exported.extend(words.skip(1).map(|word| (word.to_owned(), module.to_owned())));
            }
        }
        names
    }

    /// The modules that a file names, which is `depth` modules below the root.
    fn used(&self, source: &Source, depth: usize) -> BTreeSet<String> {
        let code = production(source);
        let mut used = BTreeSet::new();
        for prefix in ["crate::".to_owned(), "super::".repeat(depth)] {
            for (at, _) in code.match_indices(&prefix) {
                if code[..at].ends_with(|before: char| is_letter(before) || before == ':') {
                    continue;
                }
                used.extend(
                    firsts(&code[at + prefix.len()..]).into_iter().filter_map(|word| self.module(word)),
                );
            }
        }
        used
    }

    fn module(&self, word: &str) -> Option<String> {
        if self.modules.contains(word) {
            return Some(word.to_owned());
        }
        self.exported.get(word).cloned()
    }
}

/// The code that is no test, in one line.
fn production(source: &Source) -> String {
    source.production().map(|(_, line)| line.code.trim()).collect::<Vec<_>>().join(" ")
}

/// The first word of a path, or of each path of a group in braces.
fn firsts(path: &str) -> Vec<&str> {
    let Some(group) = path.strip_prefix('{') else { return vec![first_word(path)] };
    let mut words = Vec::new();
    let mut depth = 0;
    let mut start = 0;
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => {
                words.push(first_word(group[start..at].trim()));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                words.push(first_word(group[start..at].trim()));
                start = at + 1;
            }
            _ => {}
        }
    }
    words
}

fn first_word(path: &str) -> &str {
    path.split(|letter: char| !is_letter(letter)).next().unwrap_or_default()
}

fn is_letter(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Groups of modules of which each reaches all others, in the order of their names.
fn circles(imports: &Imports) -> Vec<Vec<String>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|module| (module.as_str(), reachable(imports, module))).collect();
    let mut found: Vec<Vec<String>> = Vec::new();
    for (module, below) in &reach {
        let is_known = found.iter().any(|circle| circle.iter().any(|known| known == module));
        if is_known || !below.contains(module) {
            continue;
        }
        let is_mutual = |other: &&&str| reach.get(**other).is_some_and(|back| back.contains(module));
        found.push(below.iter().filter(is_mutual).map(|other| (*other).to_owned()).collect());
    }
    found
}

fn reachable<'a>(imports: &'a Imports, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = imports.get(from).into_iter().flatten().map(String::as_str).collect();
    while let Some(module) = open.pop() {
        if reached.insert(module) {
            open.extend(imports.get(module).into_iter().flatten().map(String::as_str));
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::of(&Source::scan(
            "//! x\n#![forbid(unsafe_code)]\n\nmod a;\npub mod b;\npub(crate) mod c;\n#[cfg(test)]\nmod harness;\npub use a::One;\npub use b::{Two, Three};\n",
        ))
    }

    fn used(text: &str, depth: usize) -> Vec<String> {
        names().used(&Source::scan(text), depth).into_iter().collect()
    }

    #[test]
    fn modules_are_known_by_their_names_and_by_what_the_root_exports() {
        assert_eq!(names().modules.into_iter().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(used("use crate::{One, b::{x, y}, Other};", 1), ["a", "b"]);
        assert_eq!(used("use super::c::X;\nfn f() { crate::Two::new() }", 1), ["b", "c"]);
        assert_eq!(used("use super::c::X;", 2), Vec::<String>::new());
        assert_eq!(used("use super::super::c::X;", 2), ["c"]);
    }

    #[test]
    fn tests_comments_and_other_crates_do_not_count() {
        let text = "// crate::a\nuse other_crate::a::X;\n#[cfg(test)]\nmod tests {\n use crate::b::X;\n}\n";
        assert_eq!(used(text, 1), Vec::<String>::new());
    }

    #[test]
    fn a_file_is_a_part_of_its_top_level_module() {
        assert_eq!(place("a.rs"), ("a", 1));
        assert_eq!(place("a/mod.rs"), ("a", 1));
        assert_eq!(place("a/b.rs"), ("a", 2));
    }

    #[test]
    fn circles_are_found_through_others() {
        let imports = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"), ("e", "f"), ("f", "e")];
        let imports: Imports =
            imports.into_iter().map(|(from, to)| (from.to_owned(), [to.to_owned()].into())).collect();
        assert_eq!(circles(&imports), [vec!["a", "b", "c"], vec!["e", "f"]]);
    }

    #[test]
    fn a_ceiling_may_fall_and_never_rise() {
        let found = |names: &[&str]| vec![names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()];
        let what = |found: &[Vec<String>]| {
            verdict("crates/x/src/lib.rs", "x", found, &[("x", 2)]).map(|finding| finding.what)
        };
        assert_eq!(what(&found(&["a", "b"])), None);
        let grown = "3 modules import each other in circles, at most 2: a, b, c";
        assert_eq!(what(&found(&["a", "b", "c"])).as_deref(), Some(grown));
        assert!(what(&[]).is_some_and(|what| what.contains("take it off")));
        assert!(verdict("crates/y/src/lib.rs", "y", &found(&["a", "b"]), &[("x", 2)]).is_some());
    }
}
