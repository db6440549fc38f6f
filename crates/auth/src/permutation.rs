//! Unpredictable numbers without repetition: a counter, permuted by a secret key.
//!
//! Owns the mixing (a Feistel network over SipHash-1-3). Never counts, and never chooses its key.

use std::fmt;

use siphasher::sip::SipHasher13;

/// More than the four that make a Feistel network a pseudorandom permutation (Luby and Rackoff), because the halves are short.
const ROUNDS: u8 = 6;

/// A permutation of all numbers of a given width.
#[derive(Clone)]
pub struct KeyedPermutation {
    mix: SipHasher13,
    bits: u32,
}

impl KeyedPermutation {
    /// Of 2 to 32 bits.
    #[must_use]
    pub fn new(key: &[u8; 16], bits: u32) -> KeyedPermutation {
        KeyedPermutation { mix: SipHasher13::new_with_key(key), bits: bits.clamp(2, 32) }
    }

    /// What a number becomes; bits above those of the permutation do not count.
    #[must_use]
    pub fn apply(&self, number: u32) -> u32 {
        let low_bits = self.bits / 2;
        let low_mask = mask(low_bits);
        let high_mask = mask(self.bits - low_bits);
        let (mut high, mut low) = (number >> low_bits & high_mask, number & low_mask);
        for round in 0..ROUNDS {
            if round % 2 == 0 {
                high ^= self.mix(round, low) & high_mask;
            } else {
                low ^= self.mix(round, high) & low_mask;
            }
        }
        high << low_bits | low
    }

    fn mix(&self, round: u8, half: u32) -> u32 {
        let [a, b, c, d] = half.to_le_bytes();
        let [low @ .., _, _, _, _] = self.mix.hash(&[round, a, b, c, d]).to_le_bytes();
        u32::from_le_bytes(low)
    }
}

/// The lowest `bits` bits set.
fn mask(bits: u32) -> u32 {
    u32::MAX.checked_shr(32 - bits).unwrap_or(0)
}

impl fmt::Debug for KeyedPermutation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_number_comes_once() {
        for bits in [2, 7, 15] {
            let permutation = KeyedPermutation::new(&[7; 16], bits);
            let all: BTreeSet<u32> = (0..1 << bits).map(|number| permutation.apply(number)).collect();
            assert_eq!((all.len(), all.last()), (1 << bits, Some(&((1 << bits) - 1))));
        }
    }

    #[test]
    fn of_31_bits_too_none_comes_twice_and_neighbours_are_far_apart() {
        let permutation = KeyedPermutation::new(&[7; 16], 31);
        let some: Vec<u32> = (0..2000).map(|number| permutation.apply(number)).collect();
        assert!(some.iter().all(|number| *number < 1 << 31));
        assert_eq!(some.iter().collect::<BTreeSet<_>>().len(), 2000);
        assert!(some.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 10));
        assert_ne!(KeyedPermutation::new(&[8; 16], 31).apply(1), permutation.apply(1));
    }
}
