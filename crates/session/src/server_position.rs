//! How far a server of a cluster is in the WAL: a primary has written up to there, a standby has replayed it.
//!
//! Owns the query and what its row means (PostgreSQL: Recovery Information Functions; Control Data Functions).

use crate::internal_result::Row;

/// Whether the server is in recovery, and its position in bytes.
pub const QUERY: &str = "SELECT r,CASE WHEN r THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_insert_lsn() END \
    OPERATOR(pg_catalog.-) '0/0'::pg_catalog.pg_lsn FROM pg_catalog.pg_is_in_recovery() r";

/// The same, and the timeline that a standby follows, as far as its role may know: what it receives, or what was
/// replayed at the last restart point.
pub const QUERY_OF_STANDBY: &str = "SELECT r,CASE WHEN r THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_insert_lsn() END \
    OPERATOR(pg_catalog.-) '0/0'::pg_catalog.pg_lsn,\
    CASE WHEN r THEN pg_catalog.concat_ws(' ',(SELECT received_tli FROM pg_catalog.pg_stat_get_wal_receiver()),\
    (SELECT min_recovery_end_timeline FROM pg_catalog.pg_control_recovery()),\
    (SELECT timeline_id FROM pg_catalog.pg_control_checkpoint())) END FROM pg_catalog.pg_is_in_recovery() r";

/// How far a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerPosition {
    /// It is a standby.
    pub is_standby: bool,
    /// Bytes of WAL since the beginning of its cluster. None of a standby that has replayed nothing.
    pub lsn: Option<u64>,
    /// The newest timeline that a standby is known to follow.
    pub timeline: Option<u32>,
}

impl ServerPosition {
    /// Reads the answer to [`QUERY`] or [`QUERY_OF_STANDBY`]; None if it is none.
    #[must_use]
    pub fn read(rows: &[Row]) -> Option<ServerPosition> {
        let row = rows.first()?;
        let text =
            |column: usize| row.get(column)?.as_deref().and_then(|text| std::str::from_utf8(text).ok());
        let timelines = text(2).unwrap_or_default().split(' ').filter_map(|number| number.parse().ok());
        Some(ServerPosition {
            is_standby: match text(0)? {
                "t" => true,
                "f" => false,
                _ => return None,
            },
            lsn: text(1).and_then(|lsn| lsn.parse().ok()),
            timeline: timelines.max(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(columns: &[Option<&str>]) -> Vec<Row> {
        vec![columns.iter().map(|column| column.map(|text| text.as_bytes().to_vec())).collect()]
    }

    #[test]
    fn a_standby_follows_the_newest_of_its_timelines() {
        let standby = ServerPosition::read(&row(&[Some("t"), Some("50331648"), Some("2 0 1")]));
        let expected = ServerPosition { is_standby: true, lsn: Some(50_331_648), timeline: Some(2) };
        assert_eq!(standby, Some(expected));
        let primary = ServerPosition::read(&row(&[Some("f"), Some("7"), None]));
        assert_eq!(primary, Some(ServerPosition { is_standby: false, lsn: Some(7), timeline: None }));
    }

    #[test]
    fn what_is_no_position_is_none() {
        for rows in [vec![], row(&[]), row(&[None]), row(&[Some("x"), Some("7"), None])] {
            assert_eq!(ServerPosition::read(&rows), None);
        }
        let empty = ServerPosition::read(&row(&[Some("t"), None, Some("")]));
        assert_eq!(empty, Some(ServerPosition { is_standby: true, lsn: None, timeline: None }));
    }
}
