//! What each size does in the long run, as far as a few runs of it and its neighbours tell: its own figure, drawn towards the
//! law, and no valley on the way to one summit. The best of several figures is the luckiest of them, so that shares of
//! it would be too small for all others; what was drawn and pooled owes less to luck. Pure arithmetic on logarithms.

use crate::advisor::unimodal::unimodal;

/// The law is of curves in general, and the truth may be another: it never counts for more than this.
const MOST_LAW: f64 = 0.5;

/// The number of parameters of the law that are fitted to the figures.
const LAW_NUMBERS: usize = 3;

/// The logarithms of what sizes are likely to do, in the order of the sizes. `law` is what the law foretells (`None`
/// without one), `counts` the runs of each size, `error` the standard error of a size's figure.
pub(super) fn likely(figures: &[f64], law: Option<&[f64]>, counts: &[usize], error: f64) -> Vec<f64> {
    let weights: Vec<f64> = counts.iter().map(|count| *count as f64).collect();
    let Some(law) = law else { return unimodal(figures, &weights) };
    let part = law_part(figures, law, error);
    let drawn: Vec<f64> =
        figures.iter().zip(law).map(|(figure, law)| figure + part * (law - figure)).collect();
    unimodal(&drawn, &weights)
}

/// How much the law counts: as much as chance explains of the figures' distances from it (James and Stein, "Estimation
/// with quadratic loss", 1961).
fn law_part(figures: &[f64], law: &[f64], error: f64) -> f64 {
    let squares: f64 = figures.iter().zip(law).map(|(figure, law)| (figure - law).powi(2)).sum();
    let free = figures.len().saturating_sub(LAW_NUMBERS).max(1);
    let explained = error.powi(2) * free as f64 / squares;
    if explained.is_nan() { 0.0 } else { explained.min(MOST_LAW) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_chance_explains_is_drawn_half_way_to_the_law() {
        let (figures, law) = ([1.0, 2.0, 3.2, 3.0], [1.0, 2.0, 3.0, 3.0]);
        let near = likely(&figures, Some(&law), &[3; 4], 0.5);
        assert!((near[2] - 3.1).abs() < 1e-9, "{near:?}");
        let sure = likely(&figures, Some(&law), &[3; 4], 0.001);
        assert!((sure[2] - 3.2).abs() < 1e-4, "{sure:?}");
        assert_eq!(likely(&figures, Some(&figures), &[3; 4], 0.0), figures);
        assert_eq!(likely(&figures, None, &[3; 4], 0.5), figures);
    }

    #[test]
    fn a_lucky_size_behind_a_dip_pulls_the_dip_up() {
        let found = likely(&[1.0, 3.0, 2.8, 3.1, 2.0], None, &[3; 5], 0.1);
        assert_eq!(found, [1.0, 2.9, 2.9, 3.1, 2.0]);
    }
}
