//! The fair division of slots: max-min.

/// Divides `capacity` among those that want so much: no one gets more than it wants, and what one gets less than that is less by one at most than what any other gets.
/// Of those equal, the first get one more.
pub(crate) fn divide(capacity: u32, wanted: &[u32]) -> Vec<u32> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    let want = |at: usize| wanted.get(at).copied().unwrap_or(0);
    order.sort_by_key(|at| want(*at));
    let mut given = vec![0; wanted.len()];
    let mut left = capacity;
    for (place, at) in order.iter().enumerate() {
        let sharers = u32::try_from(order.len() - place).unwrap_or(u32::MAX);
        let share = left / sharers;
        if want(*at) > share {
            // All of the rest want more than this; sorting was stable only among equals.
            let mut rest: Vec<usize> = order.get(place..).unwrap_or_default().to_vec();
            rest.sort_unstable();
            let mut more = left % sharers;
            for at in rest {
                set(&mut given, at, share + u32::from(more > 0));
                more = more.saturating_sub(1);
            }
            return given;
        }
        set(&mut given, *at, want(*at));
        left -= want(*at);
    }
    given
}

fn set(given: &mut [u32], at: usize, to: u32) {
    if let Some(slot) = given.get_mut(at) {
        *slot = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_wants_are_met_first() {
        assert_eq!(divide(10, &[]), []);
        assert_eq!(divide(10, &[3, 4]), [3, 4]);
        assert_eq!(divide(10, &[100, 2, 100]), [4, 2, 4]);
        assert_eq!(divide(11, &[100, 2, 100]), [5, 2, 4]);
        assert_eq!(divide(2, &[1, 1, 1]), [1, 1, 0]);
        assert_eq!(divide(0, &[1, 1]), [0, 0]);
        assert_eq!(divide(7, &[9, 3, 9]), [3, 2, 2]);
    }

    /// One slot after the other to the one that has least and wants more.
    fn one_by_one(capacity: u32, wanted: &[u32]) -> Vec<u32> {
        let mut given = vec![0; wanted.len()];
        for _ in 0..capacity {
            let next = (0..wanted.len()).filter(|at| given[*at] < wanted[*at]).min_by_key(|at| given[*at]);
            match next {
                Some(at) => given[at] += 1,
                None => break,
            }
        }
        given
    }

    #[test]
    fn it_is_what_giving_one_by_one_comes_to() {
        let mut state = 1_u64;
        let mut below = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % limit) as u32
        };
        for _ in 0..20_000 {
            let count = below(7);
            let wanted: Vec<u32> = (0..count).map(|_| below(20)).collect();
            let capacity = below(60);
            assert_eq!(divide(capacity, &wanted), one_by_one(capacity, &wanted), "{capacity} {wanted:?}");
        }
    }
}
