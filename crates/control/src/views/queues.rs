//! SHOW QUEUES: the subjects of fair queues that have clients.

use messages::Cell;

use super::ViewContext;

pub(super) fn rows(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let rows = context.aggregate.queues.values();
    rows.map(|row| {
        vec![
            row.database.as_str().into(),
            row.user.as_str().into(),
            row.host.as_deref().map_or(Cell::Null, Into::into),
            row.by.word().into(),
            row.subject.as_str().into(),
            row.weight.into(),
            row.waiting.into(),
            row.active.into(),
            row.longest_wait_us.into(),
            Cell::Sum(row.turns),
            Cell::Sum(row.server_us),
        ]
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use messages::{Listing, QueueRow, Subject};
    use settings::QueueBy;

    use crate::harness::{Harness, empty, shown};

    #[test]
    fn shards_count_their_clients_and_the_process_its_time() {
        let row = QueueRow {
            database: "app".into(),
            user: "web".into(),
            host: None,
            by: QueueBy::ClientAddr,
            subject: "10.0.0.1".into(),
            weight: 3,
            waiting: 2,
            active: 1,
            longest_wait_us: 40,
            turns: 7,
            server_us: 900,
        };
        let of_shard = |subject| match subject {
            Subject::Queues => Listing::Queues(vec![row.clone(), row.clone()]),
            other => empty(other),
        };
        let rows = shown(&Harness::with(1, "[databases]\napp =\n").show("SHOW QUEUES", &of_shard));
        assert_eq!(rows, ["app|web|NULL|client_addr|10.0.0.1|3|4|2|40|7|900"]);
    }
}
