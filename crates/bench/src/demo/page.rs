//! The page: one HTML file that asks nothing of the network, in the reader's light or dark. All text that comes
//! from outside is escaped.

use crate::demo::chart;
use crate::demo::report::Report;
use crate::demo::words;
use crate::figures::{or_dash, whole};

const STYLE: &str = include_str!("page.css");

/// Text as HTML: safe between tags and in quoted attributes.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// The whole page.
pub(super) fn page(report: &Report) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>Weir: what a pool is worth</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <header><h1>What a pool is worth</h1><p>{setting}</p></header>\n{cards}\n\
         <section><h2>Transactions per second</h2>{legend}{bars}</section>\n\
         <section><h2>What the figures say</h2><ul>{words}</ul></section>\n\
         <section><h2>Second by second</h2>{lines}<p class=\"faint\">Solid: 150 clients. Dashed: 50 clients.</p></section>\n\
         <section><h2>All figures</h2>{table}</section>\n\
         <footer><p>{machine}</p><p>{pooler}</p><p>Pool: <code>{uri}</code></p></footer>\n\
         </main>\n</body>\n</html>\n",
        setting = escape(&report.setting()),
        cards = cards(report),
        legend = legend(report),
        bars = chart::bars(report),
        words = words::sentences(report)
            .iter()
            .map(|words| format!("<li>{}</li>", escape(words)))
            .collect::<String>(),
        lines = chart::lines(report),
        table = table(report),
        machine = escape(&report.machine.sentence()),
        pooler = escape(&report.pooler_sentence()),
        uri = escape(&report.uri),
    )
}

fn cards(report: &Report) -> String {
    let runs = &report.runs;
    let card = |class: &str, figure: &str, text: &str| {
        format!("<div class=\"card {class}\"><b>{figure}</b><span>{text}</span></div>")
    };
    let refused = card("bad", &runs.many_direct.refused.to_string(), "of 150 clients refused without a pool");
    let served =
        card("good", &runs.many_pooled.served().to_string(), "of 150 clients served through the pool");
    let sessions = card(
        "",
        &report.pool_size.to_string(),
        &format!(
            "server connections were enough for {} TPS",
            or_dash(runs.many_pooled.measured.tps(), whole)
        ),
    );
    format!("<div class=\"cards\">{refused}{served}{sessions}</div>")
}

fn legend(report: &Report) -> String {
    format!(
        "<p class=\"legend\"><i class=\"direct\"></i>direct <i class=\"pooled\"></i>through a pool of {} \
         <i class=\"largest\"></i>through a pool of 97</p>",
        report.pool_size
    )
}

fn table(report: &Report) -> String {
    const HEADS: [&str; 9] = [
        "way",
        "clients",
        "served",
        "TPS",
        "to 50 direct",
        "p50 ms",
        "p99 ms",
        "pooler CPU µs/txn",
        "machine CPU µs/txn",
    ];
    let heads: String = HEADS.iter().map(|head| format!("<th>{head}</th>")).collect();
    let rows: String = (report.runs.in_order().into_iter())
        .map(|run| {
            let cells: String =
                report.cells(run).iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
            format!("<tr class=\"row-{}\">{cells}</tr>", chart::class(run, report))
        })
        .collect();
    format!("<div class=\"wide\"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::report::tests::sample;

    #[test]
    fn text_from_outside_cannot_become_markup() {
        assert_eq!(escape("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
        let page = page(&sample([3447.0, 3029.0, 2738.0, 2900.0, 2400.0]));
        assert!(page.contains("FATAL:  no &lt;slots&gt;"));
        assert!(page.contains("Pooler &lt;1&gt;"));
        assert!(!page.contains("<slots>"));
    }

    #[test]
    fn the_page_asks_nothing_of_the_network() {
        let page = page(&sample([1.0; 5]));
        for sign in ["http:", "https:", "src=", "@import", "url(//", "<script", "<link"] {
            assert!(!page.contains(sign), "{sign}");
        }
    }
}
