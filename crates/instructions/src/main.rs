//! `weir-instructions`: counts what the path of a query executes and holds it to `crates/instructions/instructions.toml`.
//! Time depends on the machine and on who else uses it; the number of instructions does not. Owns the command line and
//! what is printed. System calls are not counted here: docs/performance.md says where the rest of the time goes.
#![forbid(unsafe_code)]

mod callgrind;
mod counted;
mod messages;
mod scenario;
mod table;
mod world;

use std::process::{Command, ExitCode};

use callgrind::Fault;
use scenario::{SCENARIOS, Scenario};
use table::{Table, Verdict, grouped};

const HELP: &str = "\
weir-instructions [--accept]          counts every scenario and compares with crates/instructions/instructions.toml, or writes it
weir-instructions --hottest SCENARIO  lists the functions that its instructions are in
weir-instructions --run SCENARIO      does it, for valgrind to count; alone it shows nothing";

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.toml");

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let scenario = |name| SCENARIOS.iter().find(|scenario| scenario.name == name);
    match words[..] {
        [] => outcome(compare()),
        ["--accept"] => outcome(accept()),
        ["--hottest", name] if let Some(scenario) = scenario(name) => outcome(hottest(scenario)),
        ["--run", name] if let Some(scenario) = scenario(name) => {
            scenario.run();
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{HELP}\n\nscenarios:");
            SCENARIOS.iter().for_each(|scenario| eprintln!("  {:14} {}", scenario.name, scenario.about));
            ExitCode::from(2)
        }
    }
}

fn outcome(passed: Result<bool, String>) -> ExitCode {
    match passed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(text) => {
            eprintln!("weir-instructions: {text}");
            ExitCode::FAILURE
        }
    }
}

fn read() -> Result<Table, String> {
    match std::fs::read_to_string(TABLE) {
        Ok(text) => Table::parse(&text).map_err(|fault| format!("{TABLE}: {fault}")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Table::default()),
        Err(error) => Err(format!("{TABLE}: {error}")),
    }
}

/// True if nothing costs more than the table lets it.
fn compare() -> Result<bool, String> {
    let (table, made_by) = (read()?, made_by());
    if made_by != table.made_by {
        println!("the table was made by {}, this is {made_by}: more is let pass", table.made_by);
    }
    println!("{:14}{:>12}{:>12}", "instructions", "table", "now");
    let mut failures = Vec::new();
    let mut lower = Vec::new();
    for scenario in SCENARIOS {
        let count = callgrind::count(scenario).map_err(|fault| fault.to_string())?;
        let known = table.counts.get(scenario.name).copied().unwrap_or(0);
        println!("{}", line(scenario, known, count));
        match table.judge(scenario.name, count, &made_by) {
            Verdict::Same => {}
            Verdict::Less => lower.push(scenario.name),
            Verdict::More => failures.push(scenario.name),
            Verdict::New => {
                return Err(format!("{} is not in the table; --accept puts it there", scenario.name));
            }
        }
    }
    if let Some(name) = table.counts.keys().find(|name| SCENARIOS.iter().all(|known| known.name != **name)) {
        return Err(format!("the table has {name}, which is no scenario; --accept takes it out"));
    }
    explain(&failures, &lower);
    Ok(failures.is_empty())
}

fn line(scenario: &Scenario, known: u64, count: u64) -> String {
    let change = (count as f64 / known.max(1) as f64 - 1.0) * 100.0;
    let counts = [known, count].map(|count| grouped(count, ','));
    format!("{:14}{:>12}{:>12}{change:>+8.1} %  {}", scenario.name, counts[0], counts[1], scenario.about)
}

fn explain(failures: &[&str], lower: &[&str]) {
    let command = "cargo run --release -p weir-instructions --";
    for name in failures {
        println!(
            "{name} takes more instructions than the table lets it. Where they are: {command} --hottest {name}"
        );
    }
    if !failures.is_empty() {
        println!("If that is worth it: {command} --accept, and the commit says why.");
    }
    if !lower.is_empty() {
        println!("{}: fewer than before; {command} --accept keeps it so.", lower.join(", "));
    }
}

fn accept() -> Result<bool, String> {
    let counted: Result<_, Fault> =
        SCENARIOS.iter().map(|one| Ok((one.name.to_owned(), callgrind::count(one)?))).collect();
    let table = Table { made_by: made_by(), counts: counted.map_err(|fault| fault.to_string())? };
    std::fs::write(TABLE, table.text()).map_err(|error| format!("{TABLE}: {error}"))?;
    print!("{}", table.text());
    Ok(true)
}

fn hottest(scenario: &Scenario) -> Result<bool, String> {
    println!("{}", callgrind::hottest(scenario).map_err(|fault| fault.to_string())?);
    Ok(true)
}

/// The compiler and the processor: what a count depends on besides the code.
fn made_by() -> String {
    let output = Command::new("rustc").arg("--version").output();
    let version =
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let compiler: Vec<&str> = version.split_whitespace().take(2).collect();
    format!("{}, {}", compiler.join(" "), std::env::consts::ARCH)
}
