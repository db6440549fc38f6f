//! Which transactions a snapshot of the primary sees.
//!
//! Owns reading `pg_current_snapshot()`, which counts with epochs, and comparing it with the numbers of the stream, which have none.

/// A snapshot, modulo 2^32.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// All transactions before it have ended.
    first_running: u32,
    /// No transaction from this one on has ended.
    next: u32,
    /// Those between them that run.
    running: Vec<u32>,
}

impl Snapshot {
    /// Reads `xmin:xmax:xip,xip`.
    pub(crate) fn read(text: &str) -> Option<Snapshot> {
        let mut parts = text.split(':');
        let mut next = || parts.next();
        let (xmin, xmax, xip) = (next()?, next()?, next()?);
        let running = xip.split(',').filter(|one| !one.is_empty()).map(without_epoch);
        Some(Snapshot {
            first_running: without_epoch(xmin)?,
            next: without_epoch(xmax)?,
            running: running.collect::<Option<_>>()?,
        })
    }

    /// The effects of this transaction, which has committed, are visible.
    pub(crate) fn sees(&self, xid: u32) -> bool {
        precedes(xid, self.next) && !self.running.contains(&xid)
    }

    /// All transactions up to this one have ended.
    pub(crate) fn sees_all_up_to(&self, xid: u32) -> bool {
        precedes(xid, self.first_running)
    }
}

/// PostgreSQL's order of transactions: on a circle.
pub(crate) fn precedes(one: u32, other: u32) -> bool {
    let distance = one.wrapping_sub(other);
    distance > i32::MAX.unsigned_abs()
}

fn without_epoch(text: &str) -> Option<u32> {
    let [_, _, _, _, low @ ..] = text.parse::<u64>().ok()?.to_be_bytes();
    Some(u32::from_be_bytes(low))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_snapshot_sees_what_has_ended_before_it() {
        let snapshot = Snapshot::read("10:20:10,15").unwrap();
        assert_eq!(
            [9, 10, 11, 15, 19, 20, 21].map(|xid| snapshot.sees(xid)),
            [true, false, true, false, true, false, false]
        );
        assert!(snapshot.sees_all_up_to(9) && !snapshot.sees_all_up_to(10) && !snapshot.sees_all_up_to(12));
        assert!(Snapshot::read("7:7:").unwrap().sees(6));
    }

    #[test]
    fn numbers_without_an_epoch_are_compared_on_a_circle() {
        // Epoch 3, and the counter has just passed its end.
        let (xmin, xmax) = ((3_u64 << 32) - 4, (3_u64 << 32) + 8);
        let snapshot = Snapshot::read(&format!("{xmin}:{xmax}:{xmin},{}", (3_u64 << 32) + 5)).unwrap();
        assert_eq!(
            [u32::MAX - 4, u32::MAX - 3, u32::MAX, 4, 5, 8].map(|xid| snapshot.sees(xid)),
            [true, false, true, true, false, false]
        );
        assert!(precedes(u32::MAX, 3) && !precedes(3, u32::MAX) && !precedes(3, 3));
    }

    #[test]
    fn what_is_no_snapshot_is_none() {
        for text in ["", "1", "1:2", "a:2:", "1:2:x", "1:2:3,", "-1:2:"] {
            assert_eq!(Snapshot::read(text).is_some(), text == "1:2:3,", "{text}");
        }
    }
}
