//! The report for a terminal: warnings first, then the tables with a sparkline of each row, what they say, the advice and
//! the line to paste, and the command that repeats it. At most 120 columns but for long cells; in colours where they are wanted.

use commandline::Paint;

use crate::advisor::Advice;
use crate::record::Experiment;
use crate::report::sparkline::sparkline;
use crate::report::table::{self, Row, Table};
use crate::report::{command, scene, words};

const WIDTH: usize = 110;
const SPARKS: usize = 16;

/// The whole report.
pub(super) fn text(experiment: &Experiment, advice: &Advice, paint: Paint) -> String {
    let mut text = String::new();
    for line in scene::sentences(experiment) {
        text.push_str(&wrap("", &line));
    }
    for warning in words::warnings(experiment) {
        text.push_str(&paint.doubtful(&wrap("! ", &warning)));
    }
    for headline in words::headlines(experiment) {
        text.push_str(&paint.heading(&wrap("→ ", &headline)));
    }
    for table in table::closed(experiment, advice)
        .iter()
        .chain(&table::steps(experiment))
        .chain(&table::open(experiment))
    {
        text.push('\n');
        text.push_str(&show(table, paint));
    }
    let said = words::findings(experiment, advice);
    if !said.is_empty() {
        text.push('\n');
    }
    for line in said {
        text.push_str(&wrap("• ", &line));
    }
    text.push_str(&advised(advice, paint));
    text.push_str(&format!("\nAgain: {}\n", command::line(&experiment.command)));
    text
}

fn advised(advice: &Advice, paint: Paint) -> String {
    let mut text = String::new();
    for series in &advice.series {
        let title = format!("\n{} through {}, {} clients: ", series.workload, series.target, series.clients);
        text.push_str(&wrap("", &format!("{title}{}", series.headline())));
        for line in series.details() {
            text.push_str(&wrap("  • ", &line));
        }
    }
    if !advice.series.is_empty() {
        text.push('\n');
    }
    for line in advice.beside() {
        text.push_str(&wrap("", &line));
    }
    for overall in &advice.overall {
        text.push_str(&paint.heading(&wrap("", &format!("\n{}: {}", overall.target, overall.headline()))));
        for line in overall.per_server() {
            text.push_str(&wrap("  • ", &line));
        }
        text.extend(
            overall
                .ini()
                .iter()
                .flat_map(|ini| ini.lines())
                .map(|line| format!("    {}\n", paint.good(line))),
        );
    }
    text
}

fn show(table: &Table, paint: Paint) -> String {
    let widths: Vec<usize> = (0..table.heads.len())
        .map(|column| {
            let cells = table.rows.iter().filter_map(|row| row.cells.get(column)).map(|cell| letters(cell));
            cells.chain([letters(table.heads[column])]).max().unwrap_or_default()
        })
        .collect();
    let heads: Vec<String> = table.heads.iter().map(|head| (*head).to_owned()).collect();
    let has_sparks = table.rows.iter().any(|row| !row.seconds.is_empty());
    let over_time = if has_sparks { "  over time" } else { "" };
    let mut text = format!("{}\n{}{over_time}\n", paint.heading(&table.title), line(&heads, &widths));
    text.push_str(&"─".repeat(widths.iter().sum::<usize>() + 2 * widths.len() + SPARKS));
    text.push('\n');
    for row in &table.rows {
        let shown = format!("{}  {}{}", line(&row.cells, &widths), sparks(row), mark(row));
        let shown = shown.trim_end();
        text.push_str(&match (row.advised, row.troubled) {
            (true, false) => paint.good(shown),
            (_, true) => paint.doubtful(shown),
            (false, false) => shown.to_owned(),
        });
        text.push('\n');
    }
    text
}

fn sparks(row: &Row) -> String {
    let line = sparkline(&row.seconds, SPARKS);
    let blanks = SPARKS - letters(&line);
    format!("{line}{}", " ".repeat(blanks))
}

fn mark(row: &Row) -> &'static str {
    match (row.advised, row.troubled) {
        (true, true) => " ◀ advised !",
        (true, false) => " ◀ advised",
        (false, true) => " !",
        (false, false) => "",
    }
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let pad = |(column, (cell, width)): (usize, (&String, &usize))| {
        let blanks = " ".repeat(width.saturating_sub(letters(cell)));
        if column == 0 { format!("{cell}{blanks}") } else { format!("{blanks}{cell}") }
    };
    cells.iter().zip(widths).enumerate().map(pad).collect::<Vec<String>>().join("  ")
}

fn letters(text: &str) -> usize {
    text.chars().count()
}

/// Words in lines of [`WIDTH`] letters; further lines are set in as far as the first one's bullet.
fn wrap(bullet: &str, words: &str) -> String {
    let set_in = " ".repeat(letters(bullet));
    let lead: String = words.chars().take_while(|letter| *letter == '\n').collect();
    let mut text = format!("{lead}{bullet}");
    let mut width = letters(bullet);
    let mut first = true;
    for word in words.split_whitespace() {
        if !first && width + 1 + letters(word) > WIDTH {
            text.push('\n');
            text.push_str(&set_in);
            width = letters(&set_in);
            first = true;
        }
        if !first {
            text.push(' ');
            width += 1;
        }
        text.push_str(word);
        width += letters(word);
        first = false;
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advisor::{advise, sample};

    #[test]
    fn the_text_has_warnings_tables_advice_and_the_command() {
        let experiment = sample::experiment();
        let text = text(&experiment, &advise(&experiment), Paint::PLAIN);
        for words in [
            "! generator, server and pooler shared 2 CPUs",
            "◀ advised",
            "default_pool_size = 8",
            "writes through weir, 150 clients: 8 server connections give",
            "53 of 150 clients got no",
            "Again: weir-bench sweep --workload 'it'\\''s & <mine>'",
            "█",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        let warning = text.find("! generator").expect("a warning");
        assert!(warning < text.find("◀").expect("a table"), "warnings come first");
    }

    #[test]
    fn colours_change_no_letter() {
        let (experiment, always) = (sample::experiment(), commandline::ColorWhen::Always.paint(false));
        let painted = text(&experiment, &advise(&experiment), always);
        assert!(
            painted.lines().any(|line| line.starts_with('\u{1b}') && line.contains("◀ advised")),
            "{painted}"
        );
        let plain: String = painted
            .split('\u{1b}')
            .map(|part| {
                part.strip_prefix('[').and_then(|part| part.split_once('m')).map_or(part, |(_, rest)| rest)
            })
            .collect();
        assert_eq!(plain, text(&experiment, &advise(&experiment), Paint::PLAIN));
    }

    #[test]
    fn words_are_wrapped_at_their_blanks() {
        let wrapped = wrap("• ", &"word ".repeat(40));
        assert!(wrapped.lines().all(|line| letters(line) <= WIDTH) && wrapped.lines().count() == 2);
        assert!(wrapped.lines().nth(1).is_some_and(|line| line.starts_with("  word")));
        assert_eq!(wrap("", "\na b"), "\na b\n");
    }
}
