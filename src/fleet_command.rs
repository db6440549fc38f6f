//! `weir fleet`: the nodes of a fleet, and moving the clients of one to the others before it is upgraded.
//!
//! Owns the command's words, and how long a node is waited for. The running process is asked by its console; it passes orders on to other nodes.

use std::io::Write as _;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use commandline::Paint;
use control::{FleetColumn, ViewColumn as _};
use messages::{Column, ColumnType};
use programs::Status;
use serde_json::{Value, json};

use crate::config_option::ConfigOption;
use crate::console::{Console, Rows};

/// What the process's log calls its connections.
const APPLICATION_NAME: &str = "weir fleet";

/// Between two looks at a node.
const LOOK: Duration = Duration::from_millis(200);

/// How old a node's figures may be in SHOW FLEET when it has begun to drain.
const FIGURES: Duration = Duration::from_secs(1);

/// For a node to say in the store that it drains: an order that is not carried out by then is not going to be.
const ORDERED: Duration = Duration::from_secs(30);

/// `weir fleet`.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct FleetTask {
    #[command(subcommand)]
    command: Option<FleetCommand>,

    /// A JSON array with the columns of SHOW FLEET.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: ConfigOption,
}

#[derive(Clone, Debug, PartialEq, Subcommand)]
enum FleetCommand {
    /// Have a node refuse new clients (and fail /readyz) until it is resumed or started anew.
    Drain {
        /// The node, as `weir fleet` shows it.
        node: String,
        /// End connected clients, too, as soon as they are outside of a transaction.
        #[arg(long)]
        end_clients: bool,
        /// Wait until the node has no clients any more, for SECONDS at most; fails if some are left.
        #[arg(long, value_name = "SECONDS")]
        wait: Option<u64>,
        #[command(flatten)]
        at: ConfigOption,
    },
    /// Have a node that drains accept new clients again.
    Resume {
        /// The node.
        node: String,
        #[command(flatten)]
        at: ConfigOption,
    },
}

/// Does what the words say.
pub(crate) fn run(task: &FleetTask, paint: Paint) -> Status {
    let outcome = match &task.command {
        None => show(&task.at, task.json, paint),
        Some(FleetCommand::Drain { node, end_clients, wait, at }) => drain(at, node, *end_clients, *wait),
        Some(FleetCommand::Resume { node, at }) => resume(at, node),
    };
    outcome.unwrap_or_else(|why| {
        let _ = writeln!(std::io::stderr(), "weir fleet: {why}");
        Status::Failed
    })
}

fn connect(at: &ConfigOption) -> Result<Console, String> {
    Console::connect(&at.load()?.global, APPLICATION_NAME)
}

/// The console takes some names for words of its own.
fn connect_about(at: &ConfigOption, node: &str) -> Result<Console, String> {
    if settings::is_node_id(node) { connect(at) } else { Err(format!("{node} cannot be the name of a node")) }
}

fn nodes(console: &mut Console) -> Result<Rows, String> {
    let rows = console.rows("SHOW FLEET")?;
    if rows.iter().any(|row| row.len() != FleetColumn::COLUMNS.len()) {
        return Err("the running process is of another version: SHOW FLEET has other columns".to_owned());
    }
    if rows.is_empty() {
        return Err("the running process is not a node of a fleet (setting fleet)".to_owned());
    }
    Ok(rows)
}

fn show(at: &ConfigOption, is_json: bool, paint: Paint) -> Result<Status, String> {
    let rows = nodes(&mut connect(at)?)?;
    let text = if is_json { json(&rows) } else { table(&rows, paint) };
    Ok(crate::print(&text))
}

fn drain(at: &ConfigOption, node: &str, end_clients: bool, wait: Option<u64>) -> Result<Status, String> {
    let mut console = connect_about(at, node)?;
    let suffix = if end_clients { " END_CLIENTS" } else { "" };
    console.rows(&format!("DRAIN {}{suffix}", quoted(node)))?;
    until(&mut console, node, ORDERED, is_draining)?;
    let Some(seconds) = wait else { return Ok(Status::Done) };
    // Its figures are up to a second old, and no new clients come any more.
    sleep(FIGURES);
    let has_no_clients = |_: &mut Console, row: &[_]| Ok(cell(row, FleetColumn::Clients) == "0");
    until(&mut console, node, Duration::from_secs(seconds), has_no_clients).map(|()| Status::Done)
}

fn resume(at: &ConfigOption, node: &str) -> Result<Status, String> {
    let mut console = connect_about(at, node)?;
    console.rows(&format!("UNDRAIN {}", quoted(node)))?;
    until(&mut console, node, ORDERED, |console, row| Ok(!is_draining(console, row)?)).map(|()| Status::Done)
}

/// The asked process says itself whether it drains: its state in the fleet may be another one, without a lease.
fn is_draining(console: &mut Console, row: &[Option<String>]) -> Result<bool, String> {
    if cell(row, FleetColumn::IsOwn) != "1" {
        return Ok(cell(row, FleetColumn::State) == "draining");
    }
    let state = console.rows("SHOW STATE")?;
    Ok(state.iter().any(|row| text(row, 0) == "draining" && text(row, 1) == "yes"))
}

/// Waits until the node's row is so.
fn until(
    console: &mut Console,
    node: &str,
    most: Duration,
    is_so: impl Fn(&mut Console, &[Option<String>]) -> Result<bool, String>,
) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let rows = nodes(console)?;
        let row = rows.iter().find(|row| cell(row, FleetColumn::Node) == node);
        if let Some(row) = row
            && is_so(console, row)?
        {
            return Ok(());
        }
        let is_gone = row.is_none_or(|row| cell(row, FleetColumn::State) == "gone");
        if is_gone || begun.elapsed() >= most {
            let seconds = most.as_secs();
            return Err(match row {
                None => format!("{node} has left the fleet"),
                Some(row) => {
                    let (state, clients) = (cell(row, FleetColumn::State), cell(row, FleetColumn::Clients));
                    format!("{node} is {state} and has {clients} clients after {seconds} s")
                }
            });
        }
        sleep(LOOK);
    }
}

fn cell(row: &[Option<String>], column: FleetColumn) -> &str {
    text(row, column.index())
}

fn text(row: &[Option<String>], at: usize) -> &str {
    row.get(at).and_then(Option::as_deref).unwrap_or_default()
}

/// A name for the console.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn table(rows: &Rows, paint: Paint) -> String {
    let columns = FleetColumn::COLUMNS;
    let shown: Vec<usize> = (0..columns.len()).filter(|at| *at != FleetColumn::IsOwn.index()).collect();
    let width = |at: &usize| {
        let cells = rows.iter().map(|row| text(row, *at).chars().count());
        cells.chain([columns[*at].name.len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = shown.iter().map(width).collect();
    let line = |of: &dyn Fn(usize) -> String| {
        let padded = shown.iter().zip(&widths).map(|(at, width)| format!("{:width$}", of(*at)));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines = vec![paint.heading(&line(&|at| columns[at].name.to_uppercase()))];
    lines.extend(rows.iter().map(|row| line(&|at| text(row, at).to_owned())));
    lines.join("\n") + "\n"
}

fn json(rows: &Rows) -> String {
    let object = |row: &Vec<Option<String>>| {
        let value = |(column, cell): (&Column, &Option<String>)| {
            let number = cell.as_deref().and_then(|cell| cell.parse::<u64>().ok());
            let value = match (column.kind, number) {
                (ColumnType::Int4 | ColumnType::Int8 | ColumnType::Numeric, Some(number)) => json!(number),
                _ => json!(cell),
            };
            (column.name.to_owned(), value)
        };
        Value::Object(FleetColumn::COLUMNS.iter().zip(row).map(value).collect())
    };
    format!("{:#}\n", Value::Array(rows.iter().map(object).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(node: &str, clients: Option<&str>) -> Vec<Option<String>> {
        let cells = [
            Some(node),
            Some("0"),
            Some("up"),
            Some("h:1"),
            Some("1.0"),
            clients,
            Some("2"),
            Some("3"),
            Some("4"),
            Some("5"),
            Some(""),
        ];
        cells.into_iter().map(|cell| cell.map(str::to_owned)).collect()
    }

    #[test]
    fn nodes_stand_in_columns() {
        let text = table(&vec![row("a", Some("12")), row("longer-name", None)], Paint::PLAIN);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "NODE         STATE  ADDRESS  VERSION  CLIENTS  SERVERS  LEASED  WANTED  POOLS  DETAIL"
        );
        assert_eq!(lines[1], "a            up     h:1      1.0      12       2        3       4       5");
        assert_eq!(lines[2], "longer-name  up     h:1      1.0               2        3       4       5");
    }

    #[test]
    fn json_has_the_columns_of_the_view() {
        let value: Value = serde_json::from_str(&json(&vec![row("a", None)])).expect("JSON");
        assert_eq!(
            (&value[0]["node"], &value[0]["clients"], &value[0]["leased"]),
            (&json!("a"), &Value::Null, &json!(3))
        );
    }

    #[test]
    fn names_are_quoted_for_the_console() {
        assert_eq!(quoted("n-1"), "\"n-1\"");
        assert_eq!(quoted("a\" END_CLIENTS"), "\"a\"\" END_CLIENTS\"");
    }
}
