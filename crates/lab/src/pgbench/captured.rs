//! What pgbench 11 and 13 to 18 really printed, kept in files: two seconds with `-R 300 -L 3`, two with `-C`, two in
//! which every client runs into an error, and one where the role is not there. 10 and 12 could not be had; their manuals show the same lines.

#![allow(clippy::unwrap_used)]

use super::parse::{Progress, complaints, progress, summary};

const CAPTURED: [(u32, &str); 7] = [
    (11, include_str!("captured/11.txt")),
    (13, include_str!("captured/13.txt")),
    (14, include_str!("captured/14.txt")),
    (15, include_str!("captured/15.txt")),
    (16, include_str!("captured/16.txt")),
    (17, include_str!("captured/17.txt")),
    (18, include_str!("captured/18.txt")),
];

/// What was printed between `== NAME` and the next such line.
fn section<'a>(text: &'a str, name: &str) -> &'a str {
    let from = text.split_once(&format!("== {name}\n")).unwrap().1;
    from.split("== ").next().unwrap()
}

#[test]
fn summaries_say_what_was_done_skipped_and_late() {
    // Transactions, skipped, tps without connecting, mean time, mean and largest lag.
    let rows = [
        (11, 580, 13, 291.413090, 0.569, (0.163, 8.415)),
        (13, 606, 2, 303.485474, 0.428, (0.149, 3.958)),
        (14, 570, 1, 285.402275, 0.418, (0.152, 4.516)),
        (15, 587, 0, 294.845676, 0.365, (0.126, 4.914)),
        (16, 618, 0, 310.176655, 0.283, (0.103, 2.909)),
        (17, 621, 0, 311.567274, 0.359, (0.114, 1.507)),
        (18, 644, 0, 322.959027, 0.293, (0.108, 1.825)),
    ];
    for ((version, text), row) in CAPTURED.into_iter().zip(rows) {
        let found = summary(section(text, "plain rate")).unwrap();
        let mean = found.latency_average_ms.unwrap();
        let lag = found.lag_ms.unwrap();
        assert_eq!((version, found.transactions, found.skipped, found.tps, mean, lag), row);
        assert_eq!(found.connecting_ms.is_some(), version >= 14);
    }
}

#[test]
fn every_second_is_found_with_what_each_version_says_of_it() {
    for (version, text) in CAPTURED {
        let seconds: Vec<Progress> = section(text, "plain rate").lines().filter_map(progress).collect();
        assert!((1..=2).contains(&seconds.len()), "{version}");
        for second in seconds {
            assert!(
                second.tps > 200.0 && second.mean_ms.is_some() && second.lag_ms.is_some(),
                "{version}: {second:?}"
            );
        }
        assert_eq!(section(text, "-C").lines().filter_map(progress).count(), 2, "{version}");
        assert!(summary(section(text, "-C")).unwrap().transactions > 300, "{version}");
    }
}

#[test]
fn clients_that_gave_up_and_roles_that_are_not_there_are_complaints() {
    for (version, text) in CAPTURED {
        let found = complaints(section(text, "scripts").lines());
        let of_server = found.iter().filter(|line| line.contains("ERROR:  division by zero"));
        assert_eq!(of_server.count(), 2, "{version}: {found:?}");
        let found = complaints(section(text, "refused").lines());
        assert!(
            found.iter().any(|line| line.contains("FATAL:  role \"nobodyhere\" does not exist")),
            "{version}: {found:?}"
        );
        assert_eq!(summary(section(text, "refused")), None, "{version}");
    }
}
