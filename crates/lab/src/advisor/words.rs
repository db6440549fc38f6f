//! The advice in sentences, for the terminal and the page alike: what to set, how sure that is, or why nothing can be
//! told and what would help. Plain text: the page escapes it.

use crate::advisor::advice::{Advice, Overall, Series, ServedBy, Side, SideSize};
use crate::advisor::curve::Estimate;
use crate::advisor::judge::{Doubt, ENOUGH, Note, POOR_FIT, Recommended, Verdict};
use crate::advisor::reference::CROWDED;
use crate::figures::{short, whole};

impl Series {
    /// The verdict in one sentence.
    #[must_use]
    pub fn headline(&self) -> String {
        match &self.verdict {
            Verdict::Size(found) => format!(
                "{} server connections give {} of the best throughput{}.",
                found.connections,
                percent_with_bounds(found.share),
                found
                    .p99_us
                    .map(|p99| format!(", 99th percentile {} ms", short(p99 / 1000.0)))
                    .unwrap_or_default()
            ),
            Verdict::CannotTell(_) => "I can't tell.".to_owned(),
        }
    }

    /// What stands behind the verdict: reasons, notes, the law, Little's law.
    #[must_use]
    pub fn details(&self) -> Vec<String> {
        let mut details = match &self.verdict {
            Verdict::Size(found) => self.notes(found),
            Verdict::CannotTell(doubts) => doubts.iter().map(|doubt| self.doubt(*doubt)).collect(),
        };
        details.extend(self.side.map(ServedBy::sentence));
        details.extend(self.law());
        details.extend(self.little.map(|little| {
            format!(
                "Little's law: a transaction holds a connection for {} ms at a pool of {}, so that the best measured throughput keeps at least {} busy.",
                short(little.alone_us / 1000.0),
                little.at,
                short(little.least)
            )
        }));
        details
    }

    /// What speaks against taking the verdict for sure, to stand beside it wherever it is shown.
    #[must_use]
    pub fn doubts_in_words(&self) -> Vec<String> {
        match &self.verdict {
            Verdict::Size(found) => {
                found.notes.iter().filter(|note| note.is_doubt()).map(|note| self.note(*note)).collect()
            }
            Verdict::CannotTell(doubts) => doubts.iter().map(|doubt| self.doubt(*doubt)).collect(),
        }
    }

    /// Doubts first, because some readers stop after the first line.
    fn notes(&self, found: &Recommended) -> Vec<String> {
        let mut notes = self.doubts_in_words();
        notes.push(if found.good_up_to > found.connections {
            format!(
                "Sizes from {} to {} give {} of the best or more; the smallest leaves most to others.",
                found.connections,
                found.good_up_to,
                percent(ENOUGH)
            )
        } else {
            format!("No other size that was tried gives {} of the best.", percent(ENOUGH))
        });
        notes.extend(found.notes.iter().filter(|note| !note.is_doubt()).map(|note| self.note(*note)));
        notes
    }

    fn note(&self, note: Note) -> String {
        match note {
            Note::SmallestTried => {
                "It is the smallest that was tried: smaller ones may do as well.".to_owned()
            }
            Note::AtCeiling => "It is all that the server can give this pool.".to_owned(),
            Note::Probable(sure) => format!(
                "No size gives {} of the best for sure; this is the likeliest, with {} of all resamples. More rounds would tell.",
                percent(ENOUGH),
                percent((sure * 100.0).round() / 100.0)
            ),
            Note::Despite(doubt) => format!("With a doubt: {}", self.doubt(doubt)),
            Note::SmallerMayDo(size) => format!("{size} would probably do too; more rounds would tell."),
            Note::LargerForTarget => {
                "Smaller sizes give enough throughput, but miss the target of the 99th percentile.".to_owned()
            }
        }
    }

    fn doubt(&self, doubt: Doubt) -> String {
        match doubt {
            Doubt::NothingMeasured => "No run through a pool ended well.".to_owned(),
            Doubt::TooFewSizes(sizes) => format!(
                "{sizes} different sizes are too few to see a curve: at least 4 are needed (connections beyond the {} clients do not count).",
                self.clients
            ),
            Doubt::TooFewRounds => {
                "Too few rounds to know how far runs scatter: at least 2 are needed.".to_owned()
            }
            Doubt::PoorFit(error) => format!(
                "The curve has no shape to trust: the scalability law misses the measured sizes by {} on the average (root mean square; more than {} is called poor), and they do not rise to one level either. More rounds, longer ones or a quieter machine would help.",
                percent(error),
                percent(POOR_FIT)
            ),
            Doubt::PeakAbove { largest, for_want_of_clients: false } => {
                format!("Throughput still rises at {largest} connections: try larger sizes.")
            }
            Doubt::PeakAbove { for_want_of_clients: true, .. } => format!(
                "Throughput still rises when each of the {} clients has a connection: more clients are needed to see the peak.",
                self.clients
            ),
            Doubt::PeakBelow(smallest) => {
                format!(
                    "Throughput falls from {smallest} connections on, the smallest size that was tried: try smaller ones."
                )
            }
            Doubt::TooUnsure(low) => format!(
                "The runs scatter too far{}: the best size may give as little as {} of the best throughput. More rounds, longer ones or a quieter machine would help.",
                self.curve.scatter.map(|scatter| format!(" (±{})", percent(scatter))).unwrap_or_default(),
                percent(low)
            ),
            Doubt::NoPercentiles => {
                "A target for the 99th percentile was set, but the raw logs tell no percentiles.".to_owned()
            }
            Doubt::TargetMissed { connections, p99_us } => format!(
                "No size with {} of the best throughput keeps the target of the 99th percentile; the nearest is {connections} connections with {} ms.",
                percent(ENOUGH),
                short(p99_us / 1000.0)
            ),
        }
    }

    /// The law, its peak, and how well it fits.
    fn law(&self) -> Option<String> {
        let fit = self.curve.fit.as_ref()?;
        let law = format!(
            "Universal Scalability Law: λ {}, σ {}, κ {}; it misses the measured sizes by {} on the average",
            whole(fit.law.lambda),
            short(fit.law.sigma),
            small(fit.law.kappa),
            percent(fit.error)
        );
        if fit.error > POOR_FIT {
            return Some(format!(
                "{law}: a poor fit, from which nothing is concluded beyond the measured sizes."
            ));
        }
        let peak = fit.peak_size;
        let largest = self.curve.sizes.last().map_or(0.0, |found| f64::from(found.connections));
        let place = if peak.middle > largest {
            format!("its peak lies beyond {} connections", whole(largest))
        } else {
            format!("its peak is at about {} connections{}", whole(peak.middle), bounds(peak, largest))
        };
        Some(format!(
            "{law}; {place} with {} TPS ({} to {}).",
            whole(fit.peak_tps.middle),
            whole(fit.peak_tps.low),
            whole(fit.peak_tps.high)
        ))
    }
}

impl ServedBy {
    /// Whose size it is.
    fn sentence(self) -> String {
        let standbys = standbys(self.standbys);
        let share = percent(self.share);
        match self.side {
            Side::Primary => format!(
                "The primary has served it ({share} of its requests went to {standbys}): this is the primary's size."
            ),
            Side::Standbys => {
                format!(
                    "{share} of its requests were served by {standbys}: this is the size at each of them."
                )
            }
            Side::Both => format!(
                "{share} of its requests were served by {standbys}, the others by the primary: each server has a pool of this size."
            ),
        }
    }
}

impl SideSize {
    /// The size of this side in one sentence.
    #[must_use]
    pub fn headline(&self) -> String {
        let size = self.connections.map_or_else(
            || "can't tell".to_owned(),
            |size| format!("{size} server connection{}", if size == 1 { "" } else { "s" }),
        );
        let place = match self.side {
            Side::Standbys if self.standbys > 1 => format!("each of {} standbys", self.standbys),
            Side::Standbys => "the standby".to_owned(),
            Side::Primary | Side::Both => "the primary".to_owned(),
        };
        format!("{place}: {size} ({})", self.workloads.join(", "))
    }
}

fn standbys(count: usize) -> String {
    if count == 1 { "the standby".to_owned() } else { format!("the {count} standbys") }
}

impl Overall {
    /// The sizes per server; empty where there is one server.
    #[must_use]
    pub fn per_server(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.sides.iter().map(SideSize::headline).collect();
        if !lines.is_empty() {
            lines.push(
                "pool_size counts for each server by itself, and an entry with read_write_split has one for all of them".to_owned(),
            );
        }
        lines
    }

    /// The size for all workloads of the target, in one sentence.
    #[must_use]
    pub fn headline(&self) -> String {
        let Some(size) = self.connections else {
            return "There is no size for all of them: at least one cannot be told.".to_owned();
        };
        match self.shares.iter().copied().reduce(f64::min) {
            Some(worst) if self.shares.len() > 1 => {
                format!(
                    "For all of them: {size} connections; each gets at least {} of its best throughput.",
                    percent(worst)
                )
            }
            _ => format!("{size} connections."),
        }
    }

    /// The line to paste; `None` without a size.
    #[must_use]
    pub fn ini(&self) -> Option<String> {
        let size = self.connections?;
        Some(format!(
            "[pgbouncer]\ndefault_pool_size = {size}\n; or for one database alone, at the end of its line in [databases]:\n;   pool_size={size}\n"
        ))
    }
}

impl Advice {
    /// What to check the advice by: the rule of thumb and the server's budget.
    #[must_use]
    pub fn beside(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(prior) = self.prior {
            lines.push(format!(
                "Rule of thumb: {} cores × 2 + {} spindle = {} connections (what to begin with where nothing is measured).",
                prior.cores,
                prior.spindles,
                prior.connections()
            ));
        }
        if let Some(budget) = self.budget {
            lines.push(format!(
                "The server can give this pool {} connections: max_connections {}, less {} reserved, less {} of others.",
                budget.available(),
                budget.max_connections,
                budget.reserved,
                budget.others
            ));
            let most = self.overall.iter().filter_map(|overall| overall.connections).max();
            if let Some(most) = most.filter(|most| f64::from(*most) > CROWDED * f64::from(budget.available()))
            {
                lines.push(format!(
                    "{most} connections are more than {} of that: little is left for others.",
                    percent(CROWDED)
                ));
            }
        }
        lines
    }
}

/// A part as percent, one digit behind the point where it matters: `98.7 %`, `80 %`.
#[must_use]
pub(crate) fn percent(part: f64) -> String {
    let tenths = (part * 1000.0).round() / 10.0;
    format!("{tenths} %")
}

fn percent_with_bounds(share: Estimate) -> String {
    let bound = |part: f64| percent(part).trim_end_matches(" %").to_owned();
    if share.low == share.high {
        return percent(share.middle);
    }
    format!("{} ({} to {})", percent(share.middle), bound(share.low), percent(share.high))
}

/// The bounds of a peak's place, where they are not the place itself.
fn bounds(peak: Estimate, largest: f64) -> String {
    let high = if peak.high > largest { format!("beyond {}", whole(largest)) } else { whole(peak.high) };
    let low = whole(peak.low);
    if low == high { String::new() } else { format!(" ({low} to {high})") }
}

/// A small number that is not to become zero: `0.0021`, `1.3e-6`.
fn small(value: f64) -> String {
    if value == 0.0 || value.abs() >= 0.0001 { format!("{value:.4}") } else { format!("{value:.1e}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advisor::{advise, sample};
    use crate::record::Ended;

    #[test]
    fn a_size_is_told_with_its_bounds_and_a_line_to_paste() {
        let advice = advise(&sample::experiment());
        let series = &advice.series[0];
        let headline = series.headline();
        assert!(
            headline.starts_with("8 server connections give ") && headline.contains("of the best"),
            "{headline}"
        );
        let details = series.details().join("\n");
        for words in [
            "give 95 % of the best or more",
            "Universal Scalability Law: λ 1,0",
            "its peak is at about 1",
            "Little's law",
        ] {
            assert!(details.contains(words), "{words}: {details}");
        }
        let overall = &advice.overall[0];
        assert!(overall.headline().starts_with("For all of them: 8 connections; each gets at least 9"));
        assert!(overall.ini().expect("a line").starts_with("[pgbouncer]\ndefault_pool_size = 8\n"));
        let beside = advice.beside().join("\n");
        assert!(
            beside.contains("2 cores × 2 + 1 spindle = 5") && beside.contains("give this pool 97"),
            "{beside}"
        );
    }

    #[test]
    fn a_doubt_is_told_with_what_would_help() {
        let mut experiment = sample::experiment();
        for point in experiment.points.iter_mut().filter(|point| point.pool_size.is_some_and(|size| size > 4))
        {
            point.runs.iter_mut().for_each(|run| run.ended = Ended::Interrupted);
        }
        let advice = advise(&experiment);
        assert_eq!(advice.series[0].headline(), "I can't tell.");
        assert!(advice.series[0].details()[0].contains("3 different sizes are too few"));
        assert!(advice.overall[0].ini().is_none() && advice.overall[0].headline().contains("no size"));
    }

    #[test]
    fn parts_are_written_for_people() {
        assert_eq!(percent(0.9871), "98.7 %");
        assert_eq!(percent(0.8), "80 %");
        let share = Estimate { middle: 0.99, low: 0.971, high: 1.0 };
        assert_eq!(percent_with_bounds(share), "99 % (97.1 to 100 %)");
        assert_eq!(
            (small(0.0), small(0.00213), small(1.26e-6)),
            ("0.0000".into(), "0.0021".into(), "1.3e-6".into())
        );
    }
}
