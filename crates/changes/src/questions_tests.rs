//! Tests of the texts of questions, and of reading answers.
#![allow(clippy::unwrap_used)]

use super::*;

fn row(columns: &[Option<&str>]) -> Row {
    columns.iter().map(|column| column.map(|text| text.as_bytes().to_vec())).collect()
}

fn first() -> Row {
    row(&[Some("10:12:11"), Some("50331648"), Some("a"), Some("b")])
}

#[test]
fn a_sample_is_a_primarys_position_and_what_it_shows() {
    let position = row(&[Some("f"), Some("50331600"), None, Some("8192"), Some("16777216")]);
    let (lsn, seen) = sample(&[position.clone(), first()]).unwrap();
    assert_eq!((lsn, seen.end, &*seen.small), (50_331_600, 50_331_648, "a"));
    assert!(seen.snapshot.sees(10) && !seen.snapshot.sees(11));
    let standby = row(&[Some("t"), Some("50331600"), None, None, None]);
    assert!(sample(&[standby, first()]).is_none());
    assert!(sample(std::slice::from_ref(&position)).is_none() && sample(&[]).is_none());
    assert!(sample(&[position, row(&[Some("10:12:11"), None, Some("a"), Some("b")])]).is_none());
}

#[test]
fn the_catalog_is_read_as_a_whole_or_not_at_all() {
    let rows = [
        first(),
        row(&[Some("n"), Some("Unlogged"), None]),
        row(&[Some("o"), Some("=="), None]),
        row(&[Some("m"), Some("T"), Some("V")]),
        row(&[Some("end"), Some(""), None]),
    ];
    let (_, large, catalog) = cataloged(&rows).unwrap();
    assert_eq!(&*large, "b");
    assert!(catalog.uncached.names.contains("unlogged") && catalog.uncached.names.len() == 1);
    assert!(catalog.uncached.operators.contains("==") && !catalog.uncached.everything);
    assert_eq!(catalog.graph.closure(["t".into()].into()), ["t".into(), "v".into()].into());
    assert!(cataloged(&rows[..4]).is_none());
    let with = |row: Row| cataloged(&[first(), row, rows[4].clone()]);
    assert!(with(row(&[Some("e"), Some(""), None])).unwrap().2.uncached.everything);
    assert!(with(row(&[Some("x"), Some(""), None])).is_none());
    assert!(with(row(&[Some("m"), Some("t"), None])).is_none());
}

#[test]
fn each_name_of_the_texts_is_of_pg_catalog() {
    for text in [sampling(), comparing(), cataloging(), flush_wal("p")] {
        assert!(!text.contains("{STABLE}") && !text.contains('\\') && !text.contains("--"), "{text}");
        let rest = text.replace("pg_catalog.", "@");
        for begin in
            ["FROM pg_", "JOIN pg_", "::text", "::name", "::regclass", " lower(", " concat(", " unnest("]
        {
            assert!(!rest.contains(begin), "{begin}");
        }
    }
}

#[test]
fn no_function_of_time_or_of_the_server_counts_as_one_of_settings() {
    let lists = include_str!("stable_functions.txt").lines().filter(|line| !line.starts_with('#'));
    let stable: Vec<&str> = lists.flat_map(str::split_whitespace).collect();
    let mut each = stable.clone();
    each.sort_unstable();
    each.dedup();
    assert_eq!(each.len(), stable.len(), "a name twice");
    for name in [
        "now",
        "age",
        "statement_timestamp",
        "transaction_timestamp",
        "version",
        "query_to_xml",
        "date_in",
        "system_user",
    ] {
        assert!(!stable.contains(&name), "{name}");
    }
    assert!(stable.contains(&"current_setting"));
}
