//! What only the driver knows of its sockets, for SHOW: file descriptors and listening addresses.
//!
//! Owns filling these in. Never decides who may see them.

use std::os::fd::AsRawFd;

use messages::{ListenerRow, Listing, Report};
use shard::ConnId;

use crate::listen::{Kind, Listener};

/// A report on its way, with the descriptors that the shard could not know.
pub(crate) fn with_descriptors(mut report: Report, descriptor_of: impl Fn(ConnId) -> i32) -> Report {
    if let Report::Listing { rows: Listing::Descriptors(rows), .. } = &mut report {
        for row in rows {
            row.descriptor = descriptor_of(ConnId(row.conn));
            row.link = row.link_conn.map_or(0, |conn| descriptor_of(ConnId(conn)));
        }
    }
    report
}

impl Listener {
    /// As SHOW FDS has it.
    pub(crate) fn row(&self) -> ListenerRow {
        let bound = rustix::net::getsockname(&self.socket).ok();
        let bound: Option<std::net::SocketAddr> = bound.and_then(|any| any.try_into().ok());
        let (address, port) = match (self.kind, bound) {
            (Kind::Tcp, Some(bound)) => (bound.ip().to_string(), bound.port()),
            (Kind::Unix { port }, _) => ("unix".to_owned(), port),
            (Kind::Tcp, None) => (String::new(), 0),
        };
        ListenerRow { descriptor: self.socket.as_raw_fd(), address, port }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use messages::{DescriptorRow, RequestId, ShardId};

    #[test]
    fn only_the_rows_of_descriptors_are_filled() {
        let row = DescriptorRow { conn: 4, link_conn: Some(5), ..DescriptorRow::default() };
        let request = RequestId(1);
        let rows = Listing::Descriptors(vec![row]);
        let report = Report::Listing { request, shard: ShardId(0), rows, last: true };
        let filled = with_descriptors(report, |conn| i32::try_from(conn.0).unwrap_or(0) + 100);
        let Report::Listing { rows: Listing::Descriptors(rows), .. } = filled else {
            panic!("another report")
        };
        assert_eq!((rows[0].descriptor, rows[0].link), (104, 105));
    }
}
