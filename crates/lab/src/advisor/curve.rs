//! Throughput against pool size as far as the runs tell it: each size with its interval and its share of the best, the law
//! through all of them, its peak. The intervals are a bootstrap over the rests of all runs, from a fixed seed: the same
//! runs always give the same intervals. Judges nothing.

use crate::advisor::judge::ENOUGH;
use crate::advisor::likely::likely;
use crate::advisor::median_polish::{MedianPolish, polish};
use crate::advisor::usl::{Point, Usl};
use crate::figures::median_of;
use crate::interval::SplitMix;

const RESAMPLES: usize = 1_000;
const SEED: u64 = 0xad71_5e5e_ed01;

/// Fewer sizes than the law has numbers, and one to check them by.
pub(crate) const FEWEST_SIZES: usize = 4;

/// With this many sizes one round has no free rests, and two have [`FEWEST_FREE`].
pub(crate) const FEWEST_ROUNDS: u32 = 2;

/// Fewer free rests than this do not tell how far runs scatter.
const FEWEST_FREE: usize = 3;

/// The standard error of a median against that of a mean, of figures that scatter normally.
const MEDIAN_ERROR: f64 = 1.25;

/// What was measured at one pool size.
#[derive(Clone, Debug, Default)]
pub struct Size {
    /// Server connections.
    pub connections: u32,
    /// One place for each round; `None` where the run failed or never began.
    pub rounds: Vec<Option<Round>>,
}

/// One run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Round {
    /// Transactions a second.
    pub tps: f64,
    /// The 99th percentile of latency in µs, if the run told it.
    pub p99_us: Option<f64>,
}

/// A figure and the 95 % interval around it; the two bounds are the figure itself where no interval is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The figure.
    pub middle: f64,
    /// Its lower bound.
    pub low: f64,
    /// Its upper bound; may be infinite.
    pub high: f64,
}

/// One size of a curve.
#[derive(Clone, Debug)]
pub struct Found {
    /// Server connections.
    pub connections: u32,
    /// Transactions a second.
    pub tps: Estimate,
    /// Of the best measured size's throughput, both as measured.
    pub measured_share: Estimate,
    /// Of the best size's throughput, both as they are likely to be in the long run.
    pub share: Estimate,
    /// The part of all resamples in which the likely share is enough.
    pub sure: f64,
    /// The median of the rounds' 99th percentiles, in µs.
    pub p99_us: Option<f64>,
    /// Runs that it rests on.
    pub runs: usize,
}

/// A law with what is uncertain about it.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The law through all sizes.
    pub law: Usl,
    /// The root of the mean square of the sizes' relative distances from it.
    pub error: f64,
    /// Where its peak is; infinite if throughput never falls again.
    pub peak_size: Estimate,
    /// The highest throughput within the swept sizes.
    pub peak_tps: Estimate,
    /// How much more it foretells for twice the largest size than within the swept ones: 1 is none.
    pub gain_above: Estimate,
    /// The same for half the smallest size.
    pub gain_below: Estimate,
}

/// A whole sweep.
#[derive(Clone, Debug)]
pub struct Curve {
    /// In ascending order; sizes without a good run are left out.
    pub sizes: Vec<Found>,
    /// `None` where there are too few sizes for a law.
    pub fit: Option<Fit>,
    /// The relative scatter of single runs (one standard deviation); `None` where the runs do not tell it.
    pub scatter: Option<f64>,
}

impl Estimate {
    /// A figure that is known exactly, or of whose error nothing is known.
    #[must_use]
    pub fn exactly(value: f64) -> Self {
        Self { middle: value, low: value, high: value }
    }

    /// A figure between the percentiles of what resampling made of it; sorts `samples`.
    fn between(middle: f64, samples: &mut [f64]) -> Self {
        samples.sort_by(f64::total_cmp);
        let at = |of_thousand: usize| samples.get(samples.len() * of_thousand / 1000).copied();
        match (at(25), at(975)) {
            (Some(low), Some(high)) => Self { middle, low: low.min(middle), high: high.max(middle) },
            _ => Self::exactly(middle),
        }
    }
}

/// The curve of a sweep in which `clients` kept the pool busy. Connections beyond the clients cannot be in use, so that
/// such a size counts as one connection for each client.
#[must_use]
pub fn curve(sizes: &[Size], clients: u32) -> Curve {
    curve_by(sizes, clients, RESAMPLES)
}

/// The curve by this many resamples.
pub(super) fn curve_by(sizes: &[Size], clients: u32, resamples: usize) -> Curve {
    let mut sizes: Vec<&Size> = sizes.iter().filter(|size| size.connections > 0).collect();
    sizes.sort_by_key(|size| size.connections);
    let table: Vec<Vec<Option<f64>>> =
        sizes.iter().map(|size| size.rounds.iter().map(usable).collect()).collect();
    let polished = polish(&table);
    let scatter = (polished.freedom >= FEWEST_FREE).then(|| root_mean_square(&polished.rests));
    let view = View::of(&sizes, clients, &polished, scatter);
    let middle = view.sample(view.values.clone(), &view.values);
    let samples = if scatter.is_some() { resample(&view, &middle, &polished, resamples) } else { Vec::new() };
    let found = view.places.iter().enumerate().map(|(index, place)| Found {
        connections: sizes[*place].connections,
        tps: estimate(&middle, &samples, |sample| sample.values[index]),
        measured_share: estimate(&middle, &samples, |sample| sample.values[index] / best(&sample.values)),
        share: estimate(&middle, &samples, |sample| sample.share(index)),
        sure: sure(&middle, &samples, index),
        p99_us: median_of(&sizes[*place].rounds, |round| round.and_then(|round| round.p99_us)),
        runs: view.counts[index],
    });
    Curve { sizes: found.collect(), fit: fit(&view, &middle, &samples), scatter }
}

/// The throughput of a run that has one.
fn usable(round: &Option<Round>) -> Option<f64> {
    round.map(|round| round.tps).filter(|tps| *tps > 0.0 && tps.is_finite())
}

/// The sizes that have runs: their places in the sweep, connections that can be in use, throughput, number of runs.
struct View {
    places: Vec<usize>,
    used: Vec<f64>,
    values: Vec<f64>,
    counts: Vec<usize>,
    /// The relative standard error of a value.
    error: f64,
}

/// One possible truth: what would be measured at each size, the law through what is likely there, and that itself.
struct Sample {
    values: Vec<f64>,
    likely: Vec<f64>,
    law: Option<Usl>,
    least: f64,
    most: f64,
}

impl View {
    fn of(sizes: &[&Size], clients: u32, polished: &MedianPolish, scatter: Option<f64>) -> Self {
        let places: Vec<usize> = (0..sizes.len()).filter(|place| polished.rows[*place].is_some()).collect();
        let counts: Vec<usize> = places.iter().map(|place| polished.counts[*place]).collect();
        let runs = counts.iter().sum::<usize>() as f64 / counts.len().max(1) as f64;
        Self {
            used: places
                .iter()
                .map(|place| f64::from(sizes[*place].connections.min(clients.max(1))))
                .collect(),
            values: places.iter().filter_map(|place| polished.rows[*place]).map(f64::exp).collect(),
            error: scatter.unwrap_or_default() * MEDIAN_ERROR / runs.max(1.0).sqrt(),
            places,
            counts,
        }
    }

    fn points(&self, values: &[f64]) -> Vec<Point> {
        self.used.iter().copied().zip(values.iter().copied()).collect()
    }

    /// What follows from `figures`, if `values` is what is measured.
    fn sample(&self, values: Vec<f64>, figures: &[f64]) -> Sample {
        let law = Usl::fit(&self.points(figures));
        let foretold: Option<Vec<f64>> =
            law.map(|law| self.used.iter().map(|used| law.tps(*used).ln()).collect());
        let figures: Vec<f64> = figures.iter().map(|figure| figure.ln()).collect();
        let likely = likely(&figures, foretold.as_deref(), &self.counts, self.error);
        Sample {
            values,
            likely: likely.into_iter().map(f64::exp).collect(),
            law,
            least: self.used.first().copied().unwrap_or(1.0),
            most: self.used.last().copied().unwrap_or(1.0),
        }
    }

    /// Different numbers of connections in use.
    fn distinct(&self) -> usize {
        let mut used = self.used.clone();
        used.dedup();
        used.len()
    }
}

impl Sample {
    fn share(&self, index: usize) -> f64 {
        self.likely[index] / best(&self.likely)
    }

    fn highest(&self, low: f64, high: f64) -> f64 {
        self.law.map_or(f64::NAN, |law| law.highest(low, high))
    }

    fn peak_tps(&self) -> f64 {
        self.highest(self.least, self.most)
    }
}

fn best(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::MIN_POSITIVE, f64::max)
}

/// As if what is likely were the truth, and the runs had scattered around it as they did.
fn resample(view: &View, middle: &Sample, polished: &MedianPolish, resamples: usize) -> Vec<Sample> {
    let mut random = SplitMix(SEED);
    let mut error = |count: usize| -> f64 {
        let drawn: Vec<f64> =
            (0..count).map(|_| polished.rests[random.below(polished.rests.len())]).collect();
        crate::figures::median(&drawn).unwrap_or_default().exp()
    };
    let mut one = || -> Sample {
        let errors: Vec<f64> = view.counts.iter().map(|count| error(*count)).collect();
        let with = |values: &[f64]| values.iter().zip(&errors).map(|(value, error)| value * error).collect();
        let figures: Vec<f64> = with(&middle.likely);
        view.sample(with(&view.values), &figures)
    };
    (0..resamples).map(|_| one()).collect()
}

/// How often the share is enough; all or nothing where nothing was resampled.
fn sure(middle: &Sample, samples: &[Sample], index: usize) -> f64 {
    let enough = |sample: &Sample| sample.share(index) >= ENOUGH;
    match samples.len() {
        0 => f64::from(u8::from(enough(middle))),
        count => samples.iter().filter(|sample| enough(sample)).count() as f64 / count as f64,
    }
}

fn estimate(middle: &Sample, samples: &[Sample], of: impl Fn(&Sample) -> f64) -> Estimate {
    Estimate::between(of(middle), &mut samples.iter().map(&of).collect::<Vec<f64>>())
}

fn fit(view: &View, middle: &Sample, samples: &[Sample]) -> Option<Fit> {
    let law = middle.law.filter(|_| view.distinct() >= FEWEST_SIZES)?;
    let gain = |low: f64, high: f64| {
        estimate(middle, samples, move |sample| sample.highest(low, high) / sample.peak_tps())
    };
    Some(Fit {
        law,
        error: law.error(&view.points(&view.values)),
        peak_size: estimate(middle, samples, |sample| {
            sample.law.and_then(|law| law.peak_size()).unwrap_or(f64::INFINITY)
        }),
        peak_tps: estimate(middle, samples, Sample::peak_tps),
        gain_above: gain(middle.least, middle.most * 2.0),
        gain_below: gain((middle.least / 2.0).max(1.0), middle.most),
    })
}

fn root_mean_square(values: &[f64]) -> f64 {
    (values.iter().map(|value| value * value).sum::<f64>() / values.len().max(1) as f64).sqrt()
}
