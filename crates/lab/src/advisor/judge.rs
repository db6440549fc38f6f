//! The rule: the smallest measured size that gives at least 95 % of the best throughput, surely, and keeps the 99th
//! percentile within its target; or why that cannot be told. Every threshold of the advice stands here.

use crate::advisor::curve::{Curve, Estimate, FEWEST_SIZES, Fit, Found};

/// A size is as good as the best from this part of its throughput on.
pub const ENOUGH: f64 = 0.95;

/// A size is surely as good as the best if it is in this part of all resamples: if all of its 95 % interval is.
const SURE: f64 = 0.975;

/// If the lower bound of the advised size's share is below this, the runs scatter too far for any advice.
const TOO_UNSURE: f64 = 0.90;

/// A law that misses the measured sizes by more than this on the (square) average explains nothing. Then the sizes
/// must speak for themselves: they may if they rise to one level and stay there or fall, by their intervals.
pub const POOR_FIT: f64 = 0.10;

/// The law is foretold to gain more than this beyond the swept sizes: then the peak is not among them.
const GAIN_OUTSIDE: f64 = 1.05;

/// What a curve is asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdviceOptions {
    /// Clients that kept the pool busy.
    pub clients: u32,
    /// What the 99th percentile should stay within, in µs.
    pub p99_target_us: Option<f64>,
    /// The most connections that the server can give this pool.
    pub ceiling: Option<u32>,
    /// Whether to advise the likeliest size even if the curve leaves doubt, which is then told with it: on a server that
    /// is there for this question alone, nobody is harmed by a guess that is called one.
    pub insists: bool,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// A size to set.
    Size(Recommended),
    /// None, for these reasons.
    CannotTell(Vec<Doubt>),
}

/// A size to set.
#[derive(Clone, Debug, PartialEq)]
pub struct Recommended {
    /// Server connections.
    pub connections: u32,
    /// Its part of the best throughput.
    pub share: Estimate,
    /// Its 99th percentile in µs.
    pub p99_us: Option<f64>,
    /// The largest size that is as good.
    pub good_up_to: u32,
    /// What should be told with it.
    pub notes: Vec<Note>,
}

/// What should be told with a size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Note {
    /// It is the smallest that was tried: smaller ones may do as well.
    SmallestTried,
    /// It is all that the server can give.
    AtCeiling,
    /// It is enough in this part of all resamples only: the likeliest size, not a sure one.
    Probable(f64),
    /// There is a doubt that would have kept it from being told.
    Despite(Doubt),
    /// A smaller size is probably enough too.
    SmallerMayDo(u32),
    /// Smaller sizes gave enough throughput but missed the target of the 99th percentile.
    LargerForTarget,
}

impl Note {
    /// It makes the size less sure, not only less small.
    pub(super) fn is_doubt(self) -> bool {
        matches!(self, Note::Probable(_) | Note::Despite(_))
    }
}

/// Why nothing can be told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Doubt {
    /// No run ended well.
    NothingMeasured,
    /// Fewer sizes than the law has parameters and one more: their number.
    TooFewSizes(usize),
    /// Nothing says how far runs scatter.
    TooFewRounds,
    /// The law misses the sizes by this on the square average.
    PoorFit(f64),
    /// Throughput still rises at the largest size, of which this many connections could be in use.
    PeakAbove {
        /// The largest size that was tried.
        largest: u32,
        /// Whether it could not have been more for want of clients.
        for_want_of_clients: bool,
    },
    /// Throughput falls from the smallest size on.
    PeakBelow(u32),
    /// The best size gives only this of the best for sure.
    TooUnsure(f64),
    /// A target was set and no run tells percentiles.
    NoPercentiles,
    /// No size with enough throughput keeps the target; the nearest one, with its 99th percentile in µs.
    TargetMissed {
        /// The size.
        connections: u32,
        /// Its 99th percentile in µs.
        p99_us: f64,
    },
}

/// Judges a sweep.
#[must_use]
pub fn judge(curve: &Curve, question: &AdviceOptions) -> Verdict {
    let Some(fit) = curve.fit.as_ref().filter(|_| curve.scatter.is_some()) else {
        return Verdict::CannotTell(too_little(curve));
    };
    let perhaps: Vec<&Found> = curve.sizes.iter().filter(|found| found.share.middle >= ENOUGH).collect();
    let enough = in_order_of_preference(&perhaps);
    let chosen = match within_target(&enough, question.p99_target_us) {
        Ok(chosen) => chosen,
        Err(doubt) => return Verdict::CannotTell(vec![doubt]),
    };
    let doubt = poor(curve, fit)
        .or_else(|| outside(curve, fit, question))
        .or_else(|| (chosen.share.low < TOO_UNSURE).then_some(Doubt::TooUnsure(chosen.share.low)));
    if let Some(doubt) = doubt.filter(|_| !question.insists) {
        return Verdict::CannotTell(vec![doubt]);
    }
    Verdict::Size(Recommended {
        connections: chosen.connections,
        share: chosen.share,
        p99_us: chosen.p99_us,
        good_up_to: perhaps.last().map_or(chosen.connections, |last| last.connections),
        notes: notes(curve, question, chosen, &enough, &perhaps, doubt),
    })
}

/// What is missing for any judgement.
fn too_little(curve: &Curve) -> Vec<Doubt> {
    if curve.sizes.is_empty() {
        return vec![Doubt::NothingMeasured];
    }
    let rounds = curve.scatter.is_none().then_some(Doubt::TooFewRounds);
    let sizes = curve.fit.is_none().then_some(Doubt::TooFewSizes(curve.sizes.len().min(FEWEST_SIZES - 1)));
    rounds.into_iter().chain(sizes).collect()
}

/// Those that are surely enough, the smallest first; if there are none, those that are perhaps, the surest first.
fn in_order_of_preference<'a>(perhaps: &[&'a Found]) -> Vec<&'a Found> {
    let surely: Vec<&Found> = perhaps.iter().copied().filter(|found| found.sure >= SURE).collect();
    if !surely.is_empty() {
        return surely;
    }
    let mut surest = perhaps.to_vec();
    surest.sort_by(|one, other| other.sure.total_cmp(&one.sure));
    surest
}

/// Neither the law explains the sizes nor do they have one summit or level by themselves.
fn poor(curve: &Curve, fit: &Fit) -> Option<Doubt> {
    (fit.error > POOR_FIT && !speaks_for_itself(&curve.sizes)).then_some(Doubt::PoorFit(fit.error))
}

/// Whether the sizes themselves show one summit or plateau: none lies surely below a smaller and a larger one, and
/// the largest is not surely the only good one.
fn speaks_for_itself(sizes: &[Found]) -> bool {
    let shares: Vec<Estimate> = sizes.iter().map(|found| found.measured_share).collect();
    let best = |shares: &[Estimate]| shares.iter().map(|share| share.low).fold(0.0, f64::max);
    let is_valley = |place: usize| {
        shares[place].high < best(&shares[..place]).min(best(&shares[place + 1..])) - (1.0 - ENOUGH)
    };
    let ends = shares.len().checked_sub(2).is_some_and(|place| shares[place].middle >= ENOUGH)
        || shares.last().is_some_and(|last| last.middle < ENOUGH);
    ends && best(&shares) >= TOO_UNSURE && !(0..shares.len()).any(is_valley)
}

/// Whether the peak lies outside of what was swept, and where. A law that explains nothing foretells nothing either.
fn outside(curve: &Curve, fit: &Fit, question: &AdviceOptions) -> Option<Doubt> {
    let (smallest, largest) = (curve.sizes.first()?.connections, curve.sizes.last()?.connections);
    if fit.error > POOR_FIT {
        return None;
    }
    let at_ceiling = question.ceiling.is_some_and(|ceiling| largest >= ceiling);
    if fit.gain_above.middle > GAIN_OUTSIDE && !at_ceiling {
        return Some(Doubt::PeakAbove { largest, for_want_of_clients: largest >= question.clients });
    }
    (fit.gain_below.middle > GAIN_OUTSIDE && smallest > 1).then_some(Doubt::PeakBelow(smallest))
}

/// The first of `enough` that keeps the target.
fn within_target<'a>(enough: &[&'a Found], target_us: Option<f64>) -> Result<&'a Found, Doubt> {
    let Some(target) = target_us else { return enough.first().copied().ok_or(Doubt::NothingMeasured) };
    if let Some(found) = enough.iter().find(|found| found.p99_us.is_some_and(|p99| p99 <= target)) {
        return Ok(found);
    }
    let told = enough.iter().filter_map(|found| Some((found.connections, found.p99_us?)));
    let nearest = told.min_by(|one, other| one.1.total_cmp(&other.1));
    Err(nearest
        .map_or(Doubt::NoPercentiles, |(connections, p99_us)| Doubt::TargetMissed { connections, p99_us }))
}

fn notes(
    curve: &Curve,
    question: &AdviceOptions,
    chosen: &Found,
    enough: &[&Found],
    perhaps: &[&Found],
    doubt: Option<Doubt>,
) -> Vec<Note> {
    let size = chosen.connections;
    let first = curve.sizes.first().map_or(size, |found| found.connections);
    let preferred = enough.first().map_or(size, |found| found.connections);
    let smaller = perhaps.first().map(|found| found.connections).filter(|smaller| *smaller < preferred);
    let rows = [
        doubt.map(Note::Despite),
        (size == first && first > 1).then_some(Note::SmallestTried),
        question.ceiling.filter(|ceiling| size >= *ceiling).map(|_| Note::AtCeiling),
        (chosen.sure < SURE).then_some(Note::Probable(chosen.sure)),
        smaller.map(Note::SmallerMayDo),
        (size > preferred).then_some(Note::LargerForTarget),
    ];
    rows.into_iter().flatten().collect()
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
