//! Marks a pool whose clients may write without being counted (`read_consistency = database`).

use std::sync::Arc;

use crate::ConnectionCounts;

/// As long as this lives, clients of a pool may write without being counted.
#[derive(Debug)]
pub(crate) struct UncountedWrites(Arc<ConnectionCounts>);

impl UncountedWrites {
    /// Those of a pool of this database.
    pub(crate) fn new(database: &Arc<ConnectionCounts>) -> UncountedWrites {
        database.cluster.begin_uncounted();
        UncountedWrites(Arc::clone(database))
    }
}

impl Drop for UncountedWrites {
    fn drop(&mut self) {
        self.0.cluster.end_uncounted();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_counted_counts_as_one_write_once_it_is_over() {
        let database = Arc::new(ConnectionCounts::default());
        database.cluster.note_write();
        assert_eq!(database.cluster.all_writes(), Some(1));
        let both = [UncountedWrites::new(&database), UncountedWrites::new(&database)];
        assert_eq!((database.cluster.all_writes(), database.cluster.writes()), (None, 1));
        let [first, second] = both;
        drop(first);
        assert_eq!(database.cluster.all_writes(), None);
        drop(second);
        assert_eq!(database.cluster.all_writes(), Some(3));
    }
}
