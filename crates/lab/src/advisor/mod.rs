//! From a sweep to a pool size: the smallest that gives the throughput of the best, or "can't tell" and why. Works on
//! throughput and latency alone, by any measurement; never runs anything, never guesses where figures are missing.

mod advice;
mod curve;
mod judge;
mod likely;
mod linear;
mod median_polish;
mod reference;
#[cfg(test)]
pub(crate) mod sample;
mod unimodal;
mod usl;
pub(crate) mod words;

pub use advice::{Advice, Overall, Series, ServedBy, Side, SideSize, advise};
pub use curve::{Curve, Estimate, Fit, Found, Round, Size, curve};
pub(crate) use curve::{FEWEST_ROUNDS, FEWEST_SIZES};
pub use judge::{AdviceOptions, Doubt, ENOUGH, Note, POOR_FIT, Recommended, Verdict, judge};
pub use reference::{Budget, CROWDED, LittlesLaw, Prior};
pub use usl::Usl;
