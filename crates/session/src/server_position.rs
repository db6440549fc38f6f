//! How far a server of a cluster is in the WAL: a primary has written up to there, a standby has replayed it.
//!
//! Owns the queries and what their row means (PostgreSQL: Recovery Information Functions; Control Data Functions). A primary says where its next record
//! will begin, a standby where the last one ended: between them are the headers of pages without a record (PostgreSQL: `access/xlog_internal.h`).

use crate::internal_result::Row;

/// Whether the server is in recovery, and its position in bytes.
pub const QUERY: &str = "SELECT r,CASE WHEN r THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_insert_lsn() END \
    OPERATOR(pg_catalog.-) '0/0'::pg_catalog.pg_lsn FROM pg_catalog.pg_is_in_recovery() r";

/// The same, and the sizes of WAL pages and segments.
pub const QUERY_OF_PRIMARY: &str = "SELECT r,CASE WHEN r THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_insert_lsn() END \
    OPERATOR(pg_catalog.-) '0/0'::pg_catalog.pg_lsn,NULL,pg_catalog.current_setting('wal_block_size'),\
    pg_catalog.pg_size_bytes(pg_catalog.current_setting('wal_segment_size')) FROM pg_catalog.pg_is_in_recovery() r";

/// The header of a WAL page, and that of the first page of a segment.
const PAGE_HEADER_BYTES: u64 = 24;
const SEGMENT_HEADER_BYTES: u64 = 40;

/// As [`QUERY`], and the timeline that a standby follows, as far as its role may know: what it receives, or what was
/// replayed at the last restart point.
pub const QUERY_OF_STANDBY: &str = "SELECT r,CASE WHEN r THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_insert_lsn() END \
    OPERATOR(pg_catalog.-) '0/0'::pg_catalog.pg_lsn,\
    CASE WHEN r THEN pg_catalog.concat_ws(' ',(SELECT received_tli FROM pg_catalog.pg_stat_get_wal_receiver()),\
    (SELECT min_recovery_end_timeline FROM pg_catalog.pg_control_recovery()),\
    (SELECT timeline_id FROM pg_catalog.pg_control_checkpoint())) END FROM pg_catalog.pg_is_in_recovery() r";

/// All of it, of a server of which it is not known what it is.
pub const QUERY_OF_ANY: &str = "SELECT r,CASE WHEN r THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_insert_lsn() END \
    OPERATOR(pg_catalog.-) '0/0'::pg_catalog.pg_lsn,\
    CASE WHEN r THEN pg_catalog.concat_ws(' ',(SELECT received_tli FROM pg_catalog.pg_stat_get_wal_receiver()),\
    (SELECT min_recovery_end_timeline FROM pg_catalog.pg_control_recovery()),\
    (SELECT timeline_id FROM pg_catalog.pg_control_checkpoint())) END,pg_catalog.current_setting('wal_block_size'),\
    pg_catalog.pg_size_bytes(pg_catalog.current_setting('wal_segment_size')) FROM pg_catalog.pg_is_in_recovery() r";

/// How far a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerPosition {
    /// It is a standby.
    pub is_standby: bool,
    /// The end of the last record, in bytes of WAL since the beginning of its cluster. None of a standby that has replayed nothing.
    pub lsn: Option<u64>,
    /// The newest timeline that a standby is known to follow.
    pub timeline: Option<u32>,
}

impl ServerPosition {
    /// Reads the answer to one of the queries; None if it is none.
    #[must_use]
    pub fn read(rows: &[Row]) -> Option<ServerPosition> {
        let row = rows.first()?;
        let text =
            |column: usize| row.get(column)?.as_deref().and_then(|text| std::str::from_utf8(text).ok());
        let timelines = text(2).unwrap_or_default().split(' ').filter_map(|number| number.parse().ok());
        let number = |column: usize| text(column).and_then(|number| number.parse::<u64>().ok());
        let is_standby = match text(0)? {
            "t" => true,
            "f" => false,
            _ => return None,
        };
        let lsn = match (number(1), number(3), number(4)) {
            (Some(next), Some(page), Some(segment)) if !is_standby => Some(end_before(next, page, segment)),
            (lsn, _, _) => lsn,
        };
        Some(ServerPosition { is_standby, lsn, timeline: timelines.max() })
    }
}

/// The end of the last record before this position of the next one: where that is the first of its page, only the page's header is
/// between the two. What is left of a record from the page before would take at least eight bytes behind the header.
fn end_before(next: u64, page: u64, segment: u64) -> u64 {
    let is_at = |bytes: u64, header: u64| bytes != 0 && next % bytes == header;
    if is_at(segment, SEGMENT_HEADER_BYTES) {
        next - SEGMENT_HEADER_BYTES
    } else if is_at(page, PAGE_HEADER_BYTES) && !is_at(segment, PAGE_HEADER_BYTES) {
        next - PAGE_HEADER_BYTES
    } else {
        next
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
    fn a_primary_that_begins_a_page_has_ended_its_last_record_with_the_page_before() {
        const SEGMENT: u64 = 16 << 20;
        let end = |next: u64| {
            let (next, segment) = (next.to_string(), SEGMENT.to_string());
            let rows = row(&[Some("f"), Some(&next), None, Some("8192"), Some(&segment)]);
            ServerPosition::read(&rows).and_then(|position| position.lsn)
        };
        assert_eq!([end(8192 + 24), end(SEGMENT + 40)], [Some(8192), Some(SEGMENT)]);
        for elsewhere in
            [8192, 8192 + 32, 8192 + 40, SEGMENT, SEGMENT + 24, SEGMENT + 48, SEGMENT + 8192 + 40]
        {
            assert_eq!(end(elsewhere), Some(elsewhere));
        }
        let replayed = row(&[Some("t"), Some("8216"), None, Some("8192"), Some("16777216")]);
        assert_eq!(ServerPosition::read(&replayed).and_then(|position| position.lsn), Some(8216));
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
