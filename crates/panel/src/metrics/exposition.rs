//! Prometheus' text format 0.0.4: families with HELP and TYPE, samples with escaped labels.
//! Never knows what is measured.

use std::fmt::Write as _;

use super::family::{Distribution, Family, Labels, MetricKind, MetricWriter, number};

/// A page of metrics that is being written.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    text: String,
    /// Of the family that was begun last.
    name: String,
}

impl Exposition {
    /// All of it.
    pub(crate) fn finished(self) -> String {
        self.text
    }

    /// A line: the family's name with `suffix` behind it, labels and perhaps `le`, value.
    fn line(&mut self, suffix: &str, labels: Labels<'_>, bound: Option<&str>, value: f64) {
        self.text.push_str(&self.name);
        self.text.push_str(suffix);
        let bound = bound.map(|bound| ("le", bound));
        for (index, (label, text)) in labels.iter().chain(&bound).enumerate() {
            self.text.push(if index == 0 { '{' } else { ',' });
            self.text.push_str(label);
            self.text.push_str("=\"");
            escape(&mut self.text, text, true);
            self.text.push('"');
        }
        let brace = if labels.is_empty() && bound.is_none() { "" } else { "}" };
        let _ = writeln!(self.text, "{brace} {value}");
    }
}

impl MetricWriter for Exposition {
    fn family(&mut self, family: &Family<'_>) {
        self.name = family.prometheus_name();
        let kind = match family.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        self.text.push_str("# HELP ");
        self.text.push_str(&self.name);
        self.text.push(' ');
        escape(&mut self.text, family.help, false);
        let _ = write!(self.text, "\n# TYPE {} {kind}\n", self.name);
    }

    fn sample(&mut self, labels: Labels<'_>, value: f64) {
        self.line("", labels, None, value);
    }

    fn distribution(&mut self, labels: Labels<'_>, distribution: &Distribution) {
        for (bound, count) in &distribution.below {
            self.line("_bucket", labels, Some(&bound.to_string()), number(*count));
        }
        self.line("_bucket", labels, Some("+Inf"), number(distribution.count));
        self.line("_sum", labels, None, distribution.sum);
        self.line("_count", labels, None, number(distribution.count));
    }
}

/// Backslashes and line ends, and in labels quotes. Other control characters may stand there.
fn escape(out: &mut String, text: &str, is_label: bool) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if is_label => out.push_str("\\\""),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::family::MetricUnit;
    use super::*;

    #[test]
    fn what_clients_say_cannot_leave_its_quotes() {
        let mut page = Exposition::default();
        let unit = MetricUnit::Number("");
        page.family(&Family::new("a", MetricKind::Counter, unit, "What \\ is\ncounted \"here\"."));
        page.sample(&[("name", "x\"} 1\n# \\"), ("other", "é")], 2.5);
        page.single(&Family::new("b", MetricKind::Gauge, unit, "Two."), 3.0);
        let expected = "# HELP a_total What \\\\ is\\ncounted \"here\".\n# TYPE a_total counter\n\
             a_total{name=\"x\\\"} 1\\n# \\\\\",other=\"é\"} 2.5\n# HELP b Two.\n# TYPE b gauge\nb 3\n";
        assert_eq!(page.finished(), expected);
    }

    #[test]
    fn a_histogram_is_buckets_sum_and_count() {
        let mut page = Exposition::default();
        page.family(&Family::new("t", MetricKind::Histogram, MetricUnit::Seconds, "T."));
        page.distribution(&[("d", "x")], &Distribution { below: vec![(0.5, 1)], count: 2, sum: 9.25 });
        page.distribution(&[], &Distribution { below: vec![], count: 0, sum: 0.0 });
        let expected = "# HELP t_seconds T.\n# TYPE t_seconds histogram\nt_seconds_bucket{d=\"x\",le=\"0.5\"} 1\n\
            t_seconds_bucket{d=\"x\",le=\"+Inf\"} 2\nt_seconds_sum{d=\"x\"} 9.25\nt_seconds_count{d=\"x\"} 2\n\
            t_seconds_bucket{le=\"+Inf\"} 0\nt_seconds_sum 0\nt_seconds_count 0\n";
        assert_eq!(page.finished(), expected);
    }
}
