//! Which cluster a server belongs to, and which timeline a primary is on: asked during its login, where an entry wants a certain role, and later of a session
//! that its client keeps.
//!
//! Owns the query and what its row means (PostgreSQL: System Information Functions, `pg_control_system`; Backup Control Functions, `pg_walfile_name`).

use wire::backend;

use crate::internal_result::Row;
use crate::prepared::{NO_STATEMENT, server_name};
use crate::{Boundary, PendingReply, ServerProtocol};

/// `system_identifier` of the control file, and the first eight digits of the name of the file that a primary writes to, which are its timeline; a standby has
/// none of its own.
pub const QUERY: &str = "SELECT system_identifier,CASE WHEN pg_catalog.pg_is_in_recovery() THEN NULL ELSE \
    pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()),1,8) END FROM pg_catalog.pg_control_system()";

/// What a server says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerIdentity {
    /// The number that a cluster gets by initdb and shares with its standbys: never 0.
    pub system: u64,
    /// The timeline that a primary writes; a promotion begins a higher one.
    pub timeline: Option<u32>,
}

impl ServerIdentity {
    /// Reads the answer's row; None if it is none.
    #[must_use]
    pub fn read(row: &Row) -> Option<ServerIdentity> {
        of_columns(row.iter().map(Option::as_deref))
    }
}

impl ServerProtocol {
    /// Appends [`QUERY`] for a session that its client goes on with: a statement without a name stays as it is. [`ServerIdentity::read`] reads the row of
    /// [`ServerProtocol::take_internal_result`].
    pub fn send_identity_query(&mut self, _at: Boundary, out: &mut Vec<u8>) {
        let name = server_name(NO_STATEMENT);
        wire::encode::close(out, b'S', &name);
        wire::encode::parse(out, &name, QUERY.as_bytes(), &[]);
        wire::encode::bind_simple(out, b"", &name, &[]);
        wire::encode::execute(out, b"", 0);
        wire::encode::sync(out);
        self.owe(PendingReply::InternalQuery);
        // By itself: behind an error the server skips what comes before Sync.
        wire::encode::close(out, b'S', &name);
        wire::encode::sync(out);
        self.owe(PendingReply::InternalQuery);
        self.internal.begin_result();
    }

    /// The same for a WAL sender, which takes simple queries only.
    pub fn send_simple_identity_query(&mut self, at: Boundary, out: &mut Vec<u8>) {
        self.send_internal_query(at, out, QUERY);
        self.internal.begin_result();
    }
}

/// The body of a DataRow.
pub(crate) fn read(row: &[u8]) -> Option<ServerIdentity> {
    of_columns(backend::data_row(row)?)
}

fn of_columns<'a>(mut columns: impl Iterator<Item = Option<&'a [u8]>>) -> Option<ServerIdentity> {
    let text = |column: Option<&'a [u8]>| column.and_then(|bytes| std::str::from_utf8(bytes).ok());
    // PostgreSQL shows it as a signed number.
    let system = text(columns.next()?)?.parse::<i64>().ok()?.cast_unsigned();
    let timeline = text(columns.next()?).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    (system != 0).then_some(ServerIdentity { system, timeline })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn row(columns: &[Option<&str>]) -> Vec<u8> {
        let mut body = u16::try_from(columns.len()).unwrap().to_be_bytes().to_vec();
        for column in columns {
            let length = column.map_or(-1, |text| i32::try_from(text.len()).unwrap());
            body.extend(length.to_be_bytes());
            body.extend(column.unwrap_or_default().as_bytes());
        }
        body
    }

    #[test]
    fn a_primary_has_a_timeline_and_a_standby_none() {
        let primary = read(&row(&[Some("7512345678901234567"), Some("0000001F")])).unwrap();
        assert_eq!(primary, ServerIdentity { system: 7_512_345_678_901_234_567, timeline: Some(31) });
        assert_eq!(
            read(&row(&[Some("-2"), None])).unwrap(),
            ServerIdentity { system: u64::MAX - 1, timeline: None }
        );
    }

    #[test]
    fn a_row_in_columns_says_the_same() {
        let columns = ["7512345678901234567", "0000001F"].map(|text| Some(text.as_bytes().to_vec())).to_vec();
        assert_eq!(
            ServerIdentity::read(&columns),
            Some(ServerIdentity { system: 7_512_345_678_901_234_567, timeline: Some(31) })
        );
        assert_eq!(ServerIdentity::read(&Row::new()), None);
    }

    #[test]
    fn what_is_no_identity_is_none() {
        for columns in [&[][..], &[Some("7")], &[None, None], &[Some("x"), None], &[Some("0"), None]] {
            assert_eq!(read(&row(columns)), None, "{columns:?}");
        }
        assert_eq!(read(b"\0\x02\0\0"), None);
    }
}
