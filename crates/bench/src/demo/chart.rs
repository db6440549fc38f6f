//! Two pictures as SVG: bars for the runs, and lines for the transactions of each second. Colours come from the
//! page's style by class, so that both follow light and dark.

use std::fmt::Write;

use crate::demo::page::escape;
use crate::demo::report::Report;
use crate::demo::runs::{Run, Way};
use crate::figures::{or_dash, whole};

const WIDTH: f64 = 760.0;

/// The bars: left edge, right edge and the height of one row.
const BARS: (f64, f64, f64) = (200.0, 670.0, 46.0);

/// The lines: left, right, top and bottom of the plot.
const PLOT: (f64, f64, f64, f64) = (64.0, 740.0, 16.0, 236.0);

/// A bar for each run; where clients were refused, the bar is hatched and its label says so.
pub(super) fn bars(report: &Report) -> String {
    let (left, right, row) = BARS;
    let runs = report.runs.in_order();
    let most = runs.iter().filter_map(|run| run.measured.tps()).fold(1.0, f64::max);
    let height = row * runs.len() as f64 + 14.0;
    let mut svg = opening(height, "Transactions per second of each run");
    svg.push_str(
        "<defs><pattern id=\"hatch\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" \
         patternTransform=\"rotate(45)\"><rect width=\"7\" height=\"7\" class=\"direct\"/>\
         <rect width=\"2.5\" height=\"7\" class=\"gap\"/></pattern></defs>",
    );
    for (index, run) in runs.into_iter().enumerate() {
        let top = row * index as f64 + if index == 4 { 12.0 } else { 0.0 };
        if index == 4 {
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"0\" x2=\"{WIDTH}\" y1=\"{:.0}\" y2=\"{:.0}\"/>",
                top - 4.0,
                top - 4.0
            );
        }
        let length = run.measured.tps().unwrap_or_default() / most * (right - left);
        bar(&mut svg, report, run, top, length);
    }
    svg.push_str("</svg>");
    svg
}

fn bar(svg: &mut String, report: &Report, run: &Run, top: f64, length: f64) {
    let left = BARS.0;
    let fill = if run.refused > 0 {
        "fill=\"url(#hatch)\"".to_owned()
    } else {
        format!("class=\"{}\"", class(run, report))
    };
    let _ = write!(
        svg,
        "<text class=\"label\" x=\"{x}\" y=\"{y1}\">{asked} clients</text>\
         <text class=\"{sort}\" x=\"{x}\" y=\"{y2}\">{name}</text>\
         <rect {fill} x=\"{left}\" y=\"{bar_top}\" width=\"{length:.1}\" height=\"28\" rx=\"3\"/>\
         <text class=\"value\" x=\"{value_x:.1}\" y=\"{value_y}\">{tps}</text>",
        x = left - 14.0,
        y1 = top + 18.0,
        y2 = top + 34.0,
        asked = run.asked,
        sort = if run.refused > 0 { "bad" } else { "faint" },
        name = escape(&below(run, report)),
        bar_top = top + 8.0,
        value_x = left + length + 8.0,
        value_y = top + 27.0,
        tps = or_dash(run.measured.tps(), whole),
    );
}

/// What stands below the number of clients.
fn below(run: &Run, report: &Report) -> String {
    let refused = if run.refused > 0 { format!(", {} of them refused", run.refused) } else { String::new() };
    format!("{}{refused}", run.name(report.pool_size))
}

/// A line for each run, over its seconds.
pub(super) fn lines(report: &Report) -> String {
    let runs = report.runs.in_order();
    let points = || runs.iter().flat_map(|run| &run.measured.outcome.progress);
    let most = round_up(points().map(|now| now.tps).fold(1.0, f64::max));
    let longest = points().map(|now| now.seconds).fold(1.0, f64::max);
    let mut svg = opening(PLOT.3 + 34.0, "Transactions of each second");
    axes(&mut svg, most, longest);
    for run in runs {
        let (left, right, top, bottom) = PLOT;
        let path: Vec<String> = (run.measured.outcome.progress.iter())
            .map(|now| {
                let x = left + now.seconds / longest * (right - left);
                let y = bottom - now.tps / most * (bottom - top);
                format!("{x:.1},{y:.1}")
            })
            .collect();
        let dashed = if run.asked > 100 { "" } else { " dashed" };
        let _ = write!(
            svg,
            "<polyline class=\"line {}{dashed}\" points=\"{}\"/>",
            class(run, report),
            path.join(" ")
        );
    }
    svg.push_str("</svg>");
    svg
}

/// The style of a run, by the way its clients came in.
pub(super) fn class(run: &Run, report: &Report) -> &'static str {
    match run.way {
        Way::Direct => "direct",
        Way::Pooled(size) if size == report.pool_size => "pooled",
        Way::Pooled(_) => "largest",
    }
}

fn opening(height: f64, title: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{title}\"><title>{title}</title>"
    )
}

fn axes(svg: &mut String, most: f64, longest: f64) {
    const STEPS: u32 = 4;
    let (left, right, top, bottom) = PLOT;
    for step in 0..=STEPS {
        let part = f64::from(step) / f64::from(STEPS);
        let y = bottom - part * (bottom - top);
        let x = left + part * (right - left);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"label\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\
             <text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\">{} s</text>",
            left - 8.0,
            y + 4.0,
            whole(most * part),
            bottom + 20.0,
            seconds(longest * part),
        );
    }
}

/// A moment on the axis, without a needless `.0`.
fn seconds(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    rounded.to_string()
}

/// The next round number above: an axis that divides by four.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(1.0).log10().floor());
    [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0, 10.0]
        .iter()
        .map(|step| step * power)
        .find(|top| *top >= value)
        .unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::report::tests::sample;

    #[test]
    fn an_axis_ends_on_a_round_number() {
        assert_eq!(round_up(3447.0), 4000.0);
        assert_eq!(round_up(4001.0), 6000.0);
        assert_eq!(round_up(9000.0), 10_000.0);
        assert_eq!(round_up(0.0), 1.0);
    }

    #[test]
    fn every_run_has_a_bar_and_a_line_inside_the_picture() {
        let report = sample([3447.0, 3029.0, 2738.0, 2900.0, 2400.0]);
        let bars = bars(&report);
        assert_eq!(bars.matches("height=\"28\"").count(), 5);
        assert!(bars.contains("width=\"470.0\""), "the longest bar reaches the right edge");
        assert!(bars.contains("direct, 53 of them refused"));
        assert_eq!(lines(&report).matches("<polyline").count(), 5);
    }
}
