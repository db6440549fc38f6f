//! The tables of `weir quota` and `weir quota report`, and the texts of `weir quota warn`. Times are seconds since 1970 by UTC.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use commandline::Paint;
use quota::Measure;

/// A row of SHOW QUOTAS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct QuotaLine {
    pub(super) subject: String,
    pub(super) name: String,
    resource: String,
    period: Option<String>,
    pub(super) used: u64,
    soft: u64,
    hard: u64,
    grace_ends: Option<String>,
    period_ends: Option<String>,
    state: String,
    members: Option<String>,
    /// What of it other nodes of a fleet have used.
    external: u64,
}

impl QuotaLine {
    pub(super) fn read(row: &[Option<String>]) -> Result<QuotaLine, String> {
        let [
            subject,
            name,
            resource,
            period,
            used,
            soft,
            hard,
            grace_ends,
            period_ends,
            state,
            members,
            external,
        ] = row
        else {
            return Err("the running process is of another version: SHOW QUOTAS has other columns".to_owned());
        };
        let text = |cell: &Option<String>| cell.clone().unwrap_or_default();
        let figure =
            |cell: &Option<String>| text(cell).parse().map_err(|_| "SHOW QUOTAS has no figure".to_owned());
        Ok(QuotaLine {
            subject: text(subject),
            name: text(name),
            resource: text(resource),
            period: period.clone(),
            used: figure(used)?,
            soft: figure(soft)?,
            hard: figure(hard)?,
            grace_ends: grace_ends.clone(),
            period_ends: period_ends.clone(),
            state: text(state),
            members: members.clone(),
            external: figure(external)?,
        })
    }

    pub(super) fn is_over(&self) -> bool {
        self.state != "within"
    }

    fn is_storage(&self) -> bool {
        self.resource == "storage"
    }

    fn measure(&self) -> String {
        match &self.period {
            None => self.resource.clone(),
            Some(period) => format!("{}/{period}", self.resource),
        }
    }

    /// What is left of the grace time, as `repquota` says it; empty where no clock runs.
    fn grace(&self, now_s: u64) -> String {
        let Some(ends_s) = self.grace_ends.as_deref().and_then(quota::seconds_of_utc) else {
            return String::new();
        };
        match ends_s.saturating_sub(now_s) {
            0 => "none".to_owned(),
            left if left >= 2 * 86_400 => format!("{}days", left / 86_400),
            left => format!("{:02}:{:02}", left / 3_600, left / 60 % 60),
        }
    }

    fn figure(&self, figure: u64, is_human: bool) -> String {
        match (is_human, self.resource.as_str()) {
            (false, _) => figure.to_string(),
            (true, "bytes" | "storage" | "temp_files") => scaled(figure, 1_024),
            (true, "server_seconds") => time(figure),
            (true, _) => scaled(figure, 1_000),
        }
    }
}

fn scaled(figure: u64, step: u64) -> String {
    let (mut whole, mut rest, mut unit) = (figure, 0, "");
    for next in ["K", "M", "G", "T", "P"] {
        if whole < step {
            break;
        }
        (rest, whole, unit) = (whole % step * 10 / step, whole / step, next);
    }
    match unit {
        "" => whole.to_string(),
        _ if rest > 0 => format!("{whole}.{rest}{unit}"),
        _ => format!("{whole}{unit}"),
    }
}

fn time(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Columns as wide as their longest cell, the first ones to the left.
fn columns(rows: &[Vec<String>], to_the_left: usize) -> String {
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len))
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in rows {
        let cells =
            row.iter().zip(&widths).enumerate().map(|(place, (cell, width))| match place < to_the_left {
                true => format!("{cell:<width$}"),
                false => format!("{cell:>width$}"),
            });
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// A table below its heads with the lines in the colours of their states.
fn painted<'a>(table: &str, lines: impl Iterator<Item = &'a QuotaLine>, paint: Paint) -> String {
    let mut rows = table.lines();
    let heads = rows.next().map(str::to_owned);
    let rows = rows.zip(lines).map(|(row, line)| match line.state.as_str() {
        "hard" | "grace" => paint.bad(row),
        "soft" => paint.doubtful(row),
        _ => row.to_owned(),
    });
    heads.into_iter().chain(rows).map(|row| row + "\n").collect()
}

/// The table of `quota`: a part for each subject; `*` is behind what is above a limit.
pub(super) fn quota(lines: &[QuotaLine], is_human: bool, paint: Paint) -> String {
    let (mut text, now_s) = (String::new(), now_s());
    let mut rest = lines;
    while let Some(first) = rest.first() {
        let is_same = |line: &QuotaLine| (&line.subject, &line.name) == (&first.subject, &first.name);
        let (of_one, others) =
            rest.split_at(rest.iter().position(|line| !is_same(line)).unwrap_or(rest.len()));
        rest = others;
        let _ = writeln!(text, "{}", paint.heading(&format!("Quotas of {} {}:", first.subject, first.name)));
        let mut rows = vec![["resource", "used", "soft", "hard", "grace"].map(str::to_owned).to_vec()];
        rows.extend(of_one.iter().map(|line| {
            let mark = if line.is_over() { "*" } else { "" };
            vec![
                line.measure(),
                line.figure(line.used, is_human) + mark,
                line.figure(line.soft, is_human),
                line.figure(line.hard, is_human),
                line.grace(now_s),
            ]
        }));
        let painted = painted(&columns(&rows, 1), of_one.iter(), paint);
        painted.lines().for_each(|line| _ = writeln!(text, "  {line}"));
    }
    text
}

/// The table of `repquota`: a part for each kind of subject and resource; the two signs behind the name say whether the soft limit and the hard one are exceeded.
pub(super) fn report(lines: &[QuotaLine], is_human: bool, paint: Paint) -> String {
    let (mut text, now_s) = (String::new(), now_s());
    let measures = Measure::ALL.map(|measure| measure.to_string());
    for subject in ["user", "group", "database", "application_name"] {
        for measure in &measures {
            let is_of = |line: &&QuotaLine| line.subject == subject && line.measure() == *measure;
            let of_one: Vec<_> = lines.iter().filter(is_of).collect();
            if of_one.is_empty() {
                continue;
            }
            let begin = if text.is_empty() { "" } else { "\n" };
            let heading = paint.heading(&format!("*** Report for {subject} quotas: {measure}"));
            let _ = writeln!(text, "{begin}{heading}");
            let mut rows = vec![[subject, "", "used", "soft", "hard", "grace"].map(str::to_owned).to_vec()];
            rows.extend(of_one.iter().map(|line| {
                let above_soft = line.soft > 0 && line.used > line.soft;
                let at_hard = line.state == "hard";
                vec![
                    line.name.clone(),
                    [above_soft, at_hard].map(|is| if is { '+' } else { '-' }).iter().collect(),
                    line.figure(line.used, is_human),
                    line.figure(line.soft, is_human),
                    line.figure(line.hard, is_human),
                    line.grace(now_s),
                ]
            }));
            text.push_str(&painted(&columns(&rows, 2), of_one.into_iter(), paint));
        }
    }
    text
}

/// For each subject above a limit its kind, its name and what it is told.
pub(super) fn warnings(lines: &[QuotaLine]) -> Vec<(String, String, String)> {
    let mut warnings: Vec<(String, String, String)> = Vec::new();
    for line in lines.iter().filter(|line| line.is_over()) {
        let until = |time: &Option<String>| time.as_ref().map_or(String::new(), |time| format!(" {time}"));
        let what = match line.state.as_str() {
            "hard" if line.is_storage() => format!("hard limit {} reached; read-only", line.hard),
            "grace" if line.is_storage() => format!("soft limit {}, grace time over; read-only", line.soft),
            "hard" => format!("hard limit {} reached; ends{}", line.hard, until(&line.period_ends)),
            "grace" => format!("soft limit {}, grace time over; ends{}", line.soft, until(&line.period_ends)),
            _ => format!("soft limit {}; grace time ends{}", line.soft, until(&line.grace_ends)),
        };
        let what = what.trim_end_matches("; ends").trim_end_matches("; grace time ends").to_owned();
        let told = format!("  {}: {} used, {what}\n", line.measure(), line.used);
        match warnings.iter_mut().find(|(subject, name, _)| (subject, name) == (&line.subject, &line.name)) {
            Some((_, _, text)) => text.push_str(&told),
            None => {
                let begin = format!("{} {} is above its quotas:\n", line.subject, line.name);
                warnings.push((line.subject.clone(), line.name.clone(), begin + &told));
            }
        }
    }
    warnings
}

/// A JSON array of objects with the columns of SHOW QUOTAS.
pub(super) fn json(lines: &[QuotaLine]) -> String {
    let text = |text: &str| {
        let mut quoted = String::from("\"");
        for sign in text.chars() {
            match sign {
                '"' | '\\' => quoted.extend(['\\', sign]),
                sign if u32::from(sign) < 0x20 => _ = write!(quoted, "\\u{:04x}", u32::from(sign)),
                sign => quoted.push(sign),
            }
        }
        quoted + "\""
    };
    let maybe = |value: &Option<String>| value.as_deref().map_or("null".to_owned(), text);
    let objects: Vec<_> = lines
        .iter()
        .map(|line| {
            format!(
                "  {{\"subject\": {}, \"name\": {}, \"resource\": {}, \"period\": {}, \"used\": {}, \"soft\": {}, \"hard\": {}, \"grace_ends\": {}, \"period_ends\": {}, \"state\": {}, \"members\": {}, \"external\": {}}}",
                text(&line.subject),
                text(&line.name),
                text(&line.resource),
                maybe(&line.period),
                line.used,
                line.soft,
                line.hard,
                maybe(&line.grace_ends),
                maybe(&line.period_ends),
                text(&line.state),
                line.members.as_deref().unwrap_or("null"),
                line.external
            )
        })
        .collect();
    if objects.is_empty() { "[]\n".to_owned() } else { format!("[\n{}\n]\n", objects.join(",\n")) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn line(text: &str) -> QuotaLine {
        let cells: Vec<_> = text.split('|').map(|cell| (cell != "-").then(|| cell.to_owned())).collect();
        QuotaLine::read(&cells).unwrap()
    }

    fn lines() -> Vec<QuotaLine> {
        vec![
            line("user|alice|connections|-|3|5|9|-|-|within|-|0"),
            line(
                "user|alice|bytes|day|1610612736|1073741824|0|2999-01-09 00:00:00 UTC|2999-01-02 00:00:00 UTC|soft|-|0",
            ),
            line("database|shop|storage|-|7516192768|0|5368709120|-|-|hard|-|0"),
            line("user|bo\"b|queries|hour|7|0|7|-|2999-01-02 00:00:00 UTC|hard|-|0"),
        ]
    }

    #[test]
    fn a_subject_is_a_part_and_what_is_above_a_limit_has_a_mark() {
        let text = quota(&lines(), true, Paint::PLAIN);
        let expected = "Quotas of user alice:\n  resource      used  soft  hard       grace\n  connections      3     5     9\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("1.5G*    1G     0") && text.contains("days\n"), "{text}");
    }

    #[test]
    fn what_is_above_a_limit_is_painted() {
        let always = commandline::ColorWhen::Always.paint(false);
        for text in [quota(&lines(), false, always), report(&lines(), false, always)] {
            let painted =
                |word: &str| text.lines().find(|line| line.contains(word)).unwrap().contains('\u{1b}');
            assert!(painted("1610612736") && painted("5368709120") && !painted("     5     9"), "{text}");
        }
    }

    #[test]
    fn a_report_has_the_columns_of_repquota() {
        let text = report(&lines(), false, Paint::PLAIN);
        assert!(text.contains("*** Report for user quotas: queries/hour\nuser      used  soft  hard  grace\nbo\"b  -+     7     0     7\n"), "{text}");
        assert!(text.contains("alice  +-  1610612736"), "{text}");
    }

    #[test]
    fn warnings_are_by_subject() {
        let texts: Vec<_> = warnings(&lines()).into_iter().map(|(_, name, text)| (name, text)).collect();
        assert_eq!(texts.len(), 3);
        let full = "database shop is above its quotas:\n  storage: 7516192768 used, hard limit 5368709120 reached; read-only\n";
        assert_eq!(texts[1].1, full);
        assert_eq!(
            texts[2].1,
            "user bo\"b is above its quotas:\n  queries/hour: 7 used, hard limit 7 reached; ends 2999-01-02 00:00:00 UTC\n"
        );
    }

    #[test]
    fn json_quotes_names() {
        assert!(
            json(&lines()).contains(r#""name": "bo\"b", "resource": "queries", "period": "hour", "used": 7"#)
                && json(&lines()).contains(r#""members": null, "external": 0}"#)
        );
        assert_eq!(json(&[]), "[]\n");
    }
}
