//! Random numbers from a seed, split into streams: one subsystem drawing more than before does not shift another.
//!
//! SplitMix64 (Steele, Lea, Flood 2014). Never a source of secrets and never of numbers that two runs could differ in.

/// Chances are given in parts of this.
pub(crate) const MILLION: u32 = 1_000_000;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Prng {
    state: u64,
}

impl Prng {
    /// The stream of a seed.
    pub(crate) fn new(seed: u64) -> Prng {
        Prng { state: mix(seed ^ 0x5eed) }
    }

    /// A stream of its own, named by a number; the same name and parent give the same stream.
    pub(crate) fn split(&self, name: u64) -> Prng {
        Prng { state: mix(self.state ^ mix(name.wrapping_add(0xa5a5_a5a5))) }
    }

    /// A stream of its own, at the cost of one number: what is drawn from it shifts nothing here.
    pub(crate) fn fork(&mut self) -> Prng {
        Prng { state: self.next() }
    }

    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A number below `limit`; 0 for a limit of 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        let wide = u128::from(self.next()) * u128::from(limit);
        (wide >> 64) as u64
    }

    /// A number from `least` to `most`, both possible.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least) + 1)
    }

    /// An index into something of this length.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// True in this many of a million cases.
    pub(crate) fn chance(&mut self, per_million: u32) -> bool {
        per_million != 0 && self.below(u64::from(MILLION)) < u64::from(per_million)
    }

    /// A number from `least` to `most` whose logarithm is spread evenly: small ones as often as large ones.
    pub(crate) fn log_between(&mut self, least: u64, most: u64) -> u64 {
        let least = least.max(1);
        let doublings = u64::from((most.max(least) / least).ilog2());
        let floor = least << self.between(0, doublings);
        self.between(floor, (floor * 2 - 1).min(most.max(floor)))
    }

    /// One of several.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }
}

/// Spreads the bits of a number over all 64.
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_streams_differ() {
        let draw = |mut prng: Prng| (0..8).map(|_| prng.next()).collect::<Vec<_>>();
        assert_eq!(draw(Prng::new(7)), draw(Prng::new(7)));
        assert_ne!(draw(Prng::new(7)), draw(Prng::new(8)));
        assert_ne!(draw(Prng::new(7).split(1)), draw(Prng::new(7).split(2)));
    }

    #[test]
    fn bounds_hold() {
        let mut prng = Prng::new(1);
        for _ in 0..10_000 {
            assert!(prng.below(3) < 3);
            assert!((5..=9).contains(&prng.between(5, 9)));
            assert!((1..=4096).contains(&prng.log_between(1, 4096)));
            assert!((10..=12).contains(&prng.log_between(10, 12)));
        }
        assert_eq!(prng.below(0), 0);
        assert!(!prng.chance(0));
        assert!(prng.chance(MILLION));
    }
}
