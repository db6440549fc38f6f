//! The user's own scripts: `FILE[@WEIGHT]`, in pgbench's language. Reads the files; does not judge their SQL, which
//! pgbench and the server do.

use std::path::Path;

use crate::error::{LabError, Result};
use crate::record::{Script, WorkloadRecord};

/// Reads the scripts of `arguments`.
pub(super) fn read(arguments: &[String]) -> Result<WorkloadRecord> {
    let scripts: Vec<Script> = arguments.iter().map(|argument| script(argument)).collect::<Result<_>>()?;
    if scripts.iter().all(|script| script.weight == 0) {
        return Err(wrong("no script has a weight above 0".to_owned()));
    }
    let names: Vec<&str> = scripts.iter().map(|script| script.name.as_str()).collect();
    let name = names.join("+");
    let what = format!("your own: {}", arguments.join(", "));
    Ok(WorkloadRecord { name, what, scripts, ..WorkloadRecord::default() })
}

fn script(argument: &str) -> Result<Script> {
    let (file, weight) = divided(argument)?;
    let text =
        std::fs::read_to_string(file).map_err(LabError::system(format!("reading the script {file}")))?;
    let is_statement = |line: &str| !line.is_empty() && !line.starts_with("--") && !line.starts_with('\\');
    if !text.lines().map(str::trim).any(is_statement) {
        return Err(wrong(format!("the script {file} has no statement")));
    }
    let name = Path::new(file).file_stem().map_or_else(|| file.into(), std::ffi::OsStr::to_string_lossy);
    Ok(Script { name: name.into_owned(), think_us: think_us(&text), text, weight })
}

/// A file and its weight; an `@` that belongs to the file's name needs a weight behind it, as pgbench has it.
fn divided(argument: &str) -> Result<(&str, u32)> {
    let Some((file, weight)) = argument.rsplit_once('@') else { return Ok((argument, 1)) };
    let weight = weight
        .parse()
        .map_err(|_| wrong(format!("{weight:?} is no weight for the script {file}: a number")))?;
    Ok((file, weight))
}

/// What a script sleeps for certain: constant `\sleep`s, if nothing may leave them out.
pub(super) fn think_us(text: &str) -> u64 {
    let words: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .filter(|line: &Vec<_>| !line.is_empty())
        .collect();
    if words.iter().any(|line| line[0].starts_with("\\if")) {
        return 0;
    }
    words.iter().filter(|line| line[0] == "\\sleep").filter_map(|line| sleep_us(&line[1..])).sum()
}

/// `5`, `5 s`, `5 ms`, `5us`: seconds without a unit.
fn sleep_us(words: &[&str]) -> Option<u64> {
    let said = words.concat();
    let digits = said.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(said.len());
    let (number, unit) = said.split_at(digits);
    let unit_us = match unit {
        "us" => 1,
        "ms" => 1_000,
        "" | "s" => 1_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit_us)
}

fn wrong(what: String) -> LabError {
    LabError::Missing { what, remedy: "--script FILE[@WEIGHT], in the language of pgbench's -f".to_owned() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn file(name: &str, text: &str) -> String {
        let path = std::env::temp_dir().join(format!("weir-script-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn files_are_read_with_their_weights() {
        let (one, two) =
            (file("one.sql", "SELECT 1;\n"), file("two.sql", "SELECT abalance FROM pgbench_accounts;"));
        let workload = read(&[format!("{one}@3"), two.clone()]).unwrap();
        let weights: Vec<u32> = workload.scripts.iter().map(|script| script.weight).collect();
        assert_eq!(weights, [3, 1]);
        assert!(super::super::needs_tables(&workload) && !workload.writes);
        assert!(workload.name.contains("one+"), "{}", workload.name);
        assert!(read(&[format!("{one}@0")]).unwrap_err().to_string().contains("weight above 0"));
        assert!(read(&[format!("{one}@heavy")]).unwrap_err().to_string().contains("\"heavy\" is no weight"));
        for path in [one, two] {
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn a_script_that_is_gone_or_says_nothing_is_named() {
        let gone = read(&["/nowhere/x.sql".to_owned()]).unwrap_err().to_string();
        assert!(gone.contains("reading the script /nowhere/x.sql"), "{gone}");
        let empty = file("empty.sql", "-- nothing\n\\set a 1\n\n");
        assert!(read(std::slice::from_ref(&empty)).unwrap_err().to_string().contains("has no statement"));
        std::fs::remove_file(empty).unwrap();
    }

    #[test]
    fn only_what_is_slept_for_certain_counts() {
        assert_eq!(think_us("\\sleep 20 ms\nSELECT 1;\n\\sleep 5us\n"), 20_005);
        assert_eq!(think_us("\\sleep 2\n"), 2_000_000);
        assert_eq!(think_us("\\set t random(1, 9)\n\\sleep :t ms\n"), 0);
        assert_eq!(think_us("\\if :a\n\\sleep 2 s\n\\endif\n"), 0);
    }
}
