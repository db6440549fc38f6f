//! The page: one HTML file that asks nothing of the network, in the reader's light or dark, for screen, phone and paper.
//! Every picture has its figures as a table beside it. All text that comes from outside is escaped.

use plotters::style::RGBColor;

use crate::advisor::{Advice, Overall, Series};
use crate::record::{Experiment, ExperimentKind, WorkloadRecord, shown_version};
use crate::report::picture::{INK, PAPER, Picture, RULE, SOFT, TARGETS};
use crate::report::table::{self, Row, Table};
use crate::report::{command, escape, scene, words};

const STYLE: &str = include_str!("page.css");

/// Which colour of the pictures is which of the page's.
const COLOURS: [(RGBColor, &str); 9] = [
    (PAPER, "card"),
    (INK, "ink"),
    (SOFT, "soft"),
    (RULE, "rule"),
    (TARGETS[0], "line-1"),
    (TARGETS[1], "line-2"),
    (TARGETS[2], "line-3"),
    (TARGETS[3], "line-4"),
    (TARGETS[4], "line-5"),
];

/// The whole page.
pub(super) fn page(experiment: &Experiment, advice: &Advice, pictures: &[Picture]) -> String {
    let title = match experiment.question {
        ExperimentKind::Sweep => "How large should the pool be?",
        ExperimentKind::Compare => "What a pool is worth",
        ExperimentKind::Replay => "A workload, measured",
    };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n<title>Weir: {title}</title>\n\
         <style>\n{STYLE}{colours}</style>\n</head>\n<body>\n<main>\n\
         <header><h1>{title}</h1><p>{began}</p></header>\n{warnings}{headlines}{advice}{findings}{workloads}{scene}{logs}\
         </main>\n</body>\n</html>\n",
        colours = colours(),
        began = escape(&format!(
            "Weir {}, {}, {}",
            shown_version(&experiment.weir).trim_start_matches("Weir "),
            experiment.began,
            format_args!("PostgreSQL {}", experiment.server.version)
        )),
        warnings = warnings(experiment),
        headlines = section("In short", &list(&words::headlines(experiment))),
        advice = advised(advice),
        findings = section("What the figures say", &list(&words::findings(experiment, advice))),
        workloads = experiment
            .workloads
            .iter()
            .map(|workload| of_workload(experiment, advice, pictures, workload))
            .collect::<String>(),
        scene = section("How it was measured", &how(experiment)),
        logs = logs(experiment),
    )
}

/// The pictures in the page's colours: each light value is replaced by the variable that follows the reader's choice.
fn colours() -> String {
    let rule = |(colour, name): &(RGBColor, &str)| {
        let value = format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2);
        format!(
            "svg [fill=\"{value}\"] {{ fill: var(--{name}) }} svg [stroke=\"{value}\"] {{ stroke: var(--{name}) }}\n"
        )
    };
    COLOURS.iter().map(rule).collect()
}

fn section(title: &str, inner: &str) -> String {
    if inner.is_empty() { String::new() } else { format!("<section><h2>{title}</h2>{inner}</section>\n") }
}

fn list(lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let items: String = lines.iter().map(|line| format!("<li>{}</li>", escape(line))).collect();
    format!("<ul>{items}</ul>")
}

fn warnings(experiment: &Experiment) -> String {
    let warnings = words::warnings(experiment);
    if warnings.is_empty() {
        return String::new();
    }
    format!("<section class=\"warnings\"><h2>Before you believe it</h2>{}</section>\n", list(&warnings))
}

fn advised(advice: &Advice) -> String {
    if advice.series.is_empty() {
        return String::new();
    }
    let cards: String = advice.overall.iter().map(|overall| card(overall, advice)).collect();
    let beside = list(&advice.beside());
    format!("<section class=\"advice\"><h2>Advice</h2>{cards}{beside}</section>\n")
}

fn card(overall: &Overall, advice: &Advice) -> String {
    let figure = overall.connections.map_or_else(|| "can't tell".to_owned(), |size| size.to_string());
    let ini = overall.ini().map(|ini| format!("<pre>{}</pre>", escape(&ini))).unwrap_or_default();
    let servers: String =
        overall.per_server().iter().map(|line| format!("<li>{}</li>", escape(line))).collect();
    let servers = if servers.is_empty() { servers } else { format!("<ul>{servers}</ul>") };
    let series: String = (advice.series.iter())
        .filter(|series| series.target == overall.target)
        .map(|series| {
            let place = format!("{}, {} clients", series.workload, series.clients);
            format!("<li><b>{}</b>: {}</li>", escape(&place), escape(&series.headline()))
        })
        .collect();
    format!(
        "<div class=\"card\"><p class=\"figure\"><b>{}</b> <span>server connections through {}</span></p><p>{}</p>\
         {servers}<ul>{series}</ul>{ini}</div>",
        escape(&figure),
        escape(&overall.target),
        escape(&overall.headline())
    )
}

fn of_workload(
    experiment: &Experiment,
    advice: &Advice,
    pictures: &[Picture],
    workload: &WorkloadRecord,
) -> String {
    let tables: String = table::closed(experiment, advice)
        .iter()
        .chain(&table::steps(experiment))
        .chain(&table::open(experiment))
        .filter(|table| table.workload == workload.name)
        .map(show)
        .collect();
    let figures: String =
        pictures.iter().filter(|picture| picture.workload == workload.name).map(drawn).collect();
    let series: String =
        advice.series.iter().filter(|series| series.workload == workload.name).map(reasons).collect();
    let title = escape(&workload.name);
    section(
        &title,
        &format!(
            "<p class=\"faint\">{}</p>{figures}{series}{tables}{}",
            escape(&workload.what),
            scripts(workload)
        ),
    )
}

fn drawn(picture: &Picture) -> String {
    format!(
        "<figure><div class=\"wide\" tabindex=\"0\">{}</div><div class=\"phone\">{}</div><figcaption>For documents: <a href=\"pictures/{name}.svg\">SVG</a>, \
         <a href=\"pictures/{name}.png\">PNG</a></figcaption></figure>",
        picture.svg,
        picture.narrow,
        name = picture.name
    )
}

fn reasons(series: &Series) -> String {
    let title = format!("{} clients through {}: {}", series.clients, series.target, series.headline());
    format!("<h3>{}</h3>{}", escape(&title), list(&series.details()))
}

fn show(table: &Table) -> String {
    let heads: String =
        table.heads.iter().map(|head| format!("<th scope=\"col\">{}</th>", escape(head))).collect();
    let rows: String = table.rows.iter().map(row).collect();
    format!(
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\"><table><caption>{title}</caption>\
         <thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>",
        title = escape(&table.title)
    )
}

fn row(row: &Row) -> String {
    let class = match (row.advised, row.troubled) {
        (true, _) => " class=\"advised\"",
        (false, true) => " class=\"troubled\"",
        (false, false) => "",
    };
    let cells = row.cells.iter().enumerate().map(|(column, cell)| {
        let mark = if column == 0 && row.advised { " <span class=\"mark\">advised</span>" } else { "" };
        format!("<td>{}{mark}</td>", escape(cell))
    });
    format!("<tr{class}>{}</tr>", cells.collect::<String>())
}

fn scripts(workload: &WorkloadRecord) -> String {
    let shown = |script: &crate::record::Script| {
        format!(
            "<details><summary>{} (weight {})</summary><pre>{}</pre></details>",
            escape(&script.name),
            script.weight,
            escape(&script.text)
        )
    };
    workload.scripts.iter().map(shown).collect()
}

fn how(experiment: &Experiment) -> String {
    format!(
        "{}<p>The command that repeats it:</p><pre>{}</pre><p class=\"faint\">Intervals: 95 %, by bootstrap over the rounds. \
         Throughput in tables and pictures is the median of the rounds as measured; what a dashed line shows is a model. \
         A comparison is the median of the rounds' own ratios. \
         Differences whose interval holds none, or below 3 %, are called ties. Latency is of all transactions after the \
         warm-up, from the raw logs.</p>",
        list(&scene::sentences(experiment)),
        escape(&command::line(&experiment.command))
    )
}

fn logs(experiment: &Experiment) -> String {
    let names: String = (experiment.points.iter())
        .flat_map(|point| point.runs.iter().flat_map(|run| &run.raw))
        .map(|raw| format!("<li><code>{}</code>, {} bytes</li>", escape(&raw.path), raw.bytes))
        .collect();
    if names.is_empty() {
        return String::new();
    }
    format!(
        "<section><details><summary>Raw logs, from which every figure here comes</summary><ul>{names}</ul></details></section>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advisor::{advise, sample};
    use crate::report::picture::pictures;

    fn sample_page() -> String {
        let experiment = sample::experiment();
        let advice = advise(&experiment);
        page(&experiment, &advice, &pictures(&experiment, &advice).expect("pictures"))
    }

    #[test]
    fn the_page_asks_nothing_of_the_network() {
        let page = sample_page();
        for words in ["src=", "@import", "url(", "<script", "https://"] {
            assert!(!page.contains(words), "{words}");
        }
        let foreign = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!foreign.contains("http://"), "only the name of SVG's language");
    }

    #[test]
    fn the_page_says_what_was_advised_refused_and_how_to_repeat_it() {
        let page = sample_page();
        for words in [
            "default_pool_size = 8",
            "53 of 150 clients got no connection",
            "Before you believe it",
            "raw/0/transactions.1",
            "weir-bench sweep --workload &#39;it&#39;\\&#39;&#39;s &amp; &lt;mine&gt;&#39;",
            "class=\"advised\"",
            "&lt;script&gt;alert(1)&lt;/script&gt;",
            "sorry, too many &lt;clients&gt; already",
        ] {
            assert!(page.contains(words), "{words}");
        }
        assert_eq!(page.matches("<svg ").count(), 16, "each for wide screens and for phones");
    }
}
