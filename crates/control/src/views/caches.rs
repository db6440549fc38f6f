//! SHOW CACHE: entries with a query cache.
//!
//! Owns the sentence that says what to do where its answers cannot be used.

use messages::{CacheRow, CacheState, Cell};
use settings::{Config, Database};

use super::ViewContext;

pub(super) fn rows(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let cached = context.config.databases.iter().filter(|(_, entry)| entry.query_cache > 0);
    cached.map(|(name, entry)| row(context, name, entry)).collect()
}

fn row(context: &ViewContext<'_>, name: &str, entry: &Database) -> Vec<Cell> {
    let cache = context.aggregate.caches.get(name);
    let (state, detail) = state(context.config, entry, cache);
    let row = cache.cloned().unwrap_or_default();
    vec![
        name.into(),
        state.into(),
        detail.into(),
        row.staleness_us.map_or(Cell::Null, |staleness_us| (staleness_us / 1_000).into()),
        row.answers.into(),
        row.bytes.into(),
        entry.query_cache.into(),
        Cell::Sum(row.hits),
        Cell::Sum(row.misses),
        Cell::Sum(row.invalidations),
        Cell::Sum(row.evictions),
    ]
}

/// Whether answers are used, and what to do if they are not.
fn state(config: &Config, entry: &Database, cache: Option<&CacheRow>) -> (&'static str, String) {
    const IN_A_MOMENT: &str = "Reads go to servers until it is known what the primary holds: in a moment, if a client has used the entry.";
    if !config.caches_reads(entry, None) {
        let why = "Answers are used only with session_state = virtual, in transaction or statement pooling.";
        return ("off", why.to_owned());
    }
    match cache.map(|cache| &cache.state) {
        None | Some(CacheState::Starting) => ("starting", IN_A_MOMENT.to_owned()),
        Some(CacheState::Current) => ("ok", "Nothing to do.".to_owned()),
        Some(CacheState::Behind) => (
            "behind",
            "The primary's changes come later than query_cache_max_staleness allows: a large transaction is decoded, or the server or the network is slow."
                .to_owned(),
        ),
        Some(CacheState::OtherPrimary) => (
            "other primary",
            "The server whose changes are followed is not the primary that clients have: see SHOW CLUSTERS.".to_owned(),
        ),
        Some(CacheState::Lost(why)) if why.is_empty() => ("starting", IN_A_MOMENT.to_owned()),
        Some(CacheState::Lost(why)) => ("lost", why.clone()),
    }
}

#[cfg(test)]
mod tests {
    use messages::{Listing, Subject};

    use super::*;
    use crate::harness::{Harness, empty, shown};

    #[test]
    fn the_worst_state_of_a_shard_is_shown_with_what_to_do() {
        let entries = "[databases]\na = query_cache=1MB pool_mode=transaction session_state=virtual\nb = query_cache=1MB pool_mode=session\nc = host=h\n";
        let show = |states: &[CacheState]| {
            let of_shards = |subject| match subject {
                Subject::Caches => Listing::Caches(
                    states
                        .iter()
                        .map(|state| CacheRow {
                            database: "a".into(),
                            state: state.clone(),
                            hits: 1,
                            ..CacheRow::default()
                        })
                        .collect(),
                ),
                other => empty(other),
            };
            shown(&Harness::with(2, entries).show("SHOW CACHE", &of_shards))
        };
        let rows = show(&[CacheState::Current, CacheState::Behind]);
        assert!(
            rows[0].starts_with("a|behind|The primary") && rows[0].contains("|1048576|2|0|0|0"),
            "{rows:?}"
        );
        assert!(
            rows.len() == 2 && rows[1].starts_with("b|off|Answers are used only with session_state"),
            "{rows:?}"
        );
        for (state, word) in [
            (CacheState::Current, "a|ok|Nothing to do."),
            (CacheState::Starting, "a|starting|"),
            (CacheState::OtherPrimary, "a|other primary|"),
            (CacheState::Lost("no slot".into()), "a|lost|no slot|"),
            (CacheState::Lost(String::new()), "a|starting|"),
        ] {
            let rows = show(std::slice::from_ref(&state));
            assert!(rows[0].starts_with(word), "{rows:?}");
        }
    }
}
