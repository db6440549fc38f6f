//! What Weir asks of the servers of a cluster: which cluster and timeline each is of, how far it is, and which names decide what reads.
//!
//! Owns how these texts are recognised, by their beginnings. What the answers are is the model's (`model::cluster_answers`).

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClusterQuestion {
    /// The system identifier, and the timeline of a primary.
    Identity,
    /// The position, with the sizes of pages and segments, or with the timelines that a standby knows.
    Position { sizes: bool, timelines: bool },
    /// The names that decide what reads.
    Names,
}

impl ClusterQuestion {
    /// Reads a statement that begins with this word in capital letters, and goes on with this.
    pub(crate) fn parse(verb: &str, rest: &str) -> Option<ClusterQuestion> {
        match verb {
            "SELECT" if rest.starts_with("system_identifier,") => Some(ClusterQuestion::Identity),
            "SELECT" if rest.starts_with("r,CASE WHEN r THEN pg_catalog.pg_last_wal_replay_lsn()") => {
                Some(ClusterQuestion::Position {
                    sizes: rest.contains("'wal_segment_size'"),
                    timelines: rest.contains("pg_stat_get_wal_receiver"),
                })
            }
            "WITH" if rest.starts_with("RECURSIVE functions(") => Some(ClusterQuestion::Names),
            _ => None,
        }
    }

    /// How many columns its rows have.
    pub(crate) fn columns(self) -> u16 {
        match self {
            ClusterQuestion::Identity | ClusterQuestion::Names => 2,
            ClusterQuestion::Position { sizes: true, .. } => 5,
            ClusterQuestion::Position { timelines: true, .. } => 3,
            ClusterQuestion::Position { .. } => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::{self, Statement};

    #[test]
    fn the_questions_are_recognised() {
        use session::{routing_catalog, server_position};
        let (plain, sizes, timelines) = (
            ClusterQuestion::Position { sizes: false, timelines: false },
            ClusterQuestion::Position { sizes: true, timelines: false },
            ClusterQuestion::Position { sizes: false, timelines: true },
        );
        for (text, question) in [
            (server_position::QUERY, plain),
            (server_position::QUERY_OF_PRIMARY, sizes),
            (server_position::QUERY_OF_STANDBY, timelines),
            (&*routing_catalog::query(), ClusterQuestion::Names),
        ] {
            assert_eq!(sql::parse(text.as_bytes()), [Statement::Cluster(question)]);
        }
    }
}
