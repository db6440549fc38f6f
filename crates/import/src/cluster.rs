//! The backends of pgpool.conf as an entry `*`: pgpool-II takes any database. Owns which of them are in it, in which mode, and which of its
//! settings of load balancing the entry gets.

use std::collections::BTreeMap;

use crate::conf::Assignment;
use crate::draft::Draft;
use crate::fate::is_known;
use crate::source::Source;
use crate::{table, value};

/// The largest number of a backend.
const MAX_BACKEND: u32 = 127;

/// `backend_clustering_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Streaming,
    Raw,
    /// Standbys that are not in recovery: only the first backend is known to take writes.
    Logical,
    /// All backends get all writes.
    Replication,
}

const MODES: [(&str, Mode); 6] = [
    ("streaming_replication", Mode::Streaming),
    ("raw", Mode::Raw),
    ("logical_replication", Mode::Logical),
    ("slony", Mode::Logical),
    ("native_replication", Mode::Replication),
    ("snapshot_isolation", Mode::Replication),
];

/// A server.
#[derive(Debug)]
struct Backend {
    host: String,
    port: u64,
    /// Its share of the reads, of any size.
    weight: f64,
    always_primary: bool,
}

/// Writes the entry; false if there is no backend.
pub(crate) fn convert(source: &mut Source<'_>, draft: &mut Draft) -> bool {
    let mode = mode(source);
    let mut backends = backends(source);
    let names: Vec<String> = backends.keys().map(|number| format!("backend_hostname{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    draft.entry_comment(&format!("Any database, as in pgpool-II. From {}.", source.named(&names)));
    if backends.values().any(|backend| backend.always_primary) {
        backends.retain(|_, backend| backend.always_primary);
        draft.entry_comment("A backend with ALWAYS_PRIMARY: the entry has no other.");
    }
    if matches!(mode, Mode::Logical | Mode::Replication) && backends.len() > 1 {
        let first = backends.keys().next().copied().unwrap_or_default();
        backends.retain(|number, _| *number == first);
        draft.entry_comment(match mode {
            Mode::Replication => {
                "pgpool-II sends writes to all backends in this mode. Weir sends a statement to one server: the entry has the first \
                 backend only, AND THE OTHERS GET NO MORE WRITES. Move to streaming replication."
            }
            _ => "The first backend only: the others are no standbys in recovery, which Weir could tell from it.",
        });
    }
    let hosts: Vec<&str> = backends.values().map(|backend| backend.host.as_str()).collect();
    let mut ports: Vec<String> = backends.values().map(|backend| backend.port.to_string()).collect();
    if ports.windows(2).all(|pair| pair[0] == pair[1]) {
        ports.truncate(1);
    }
    let pairs = [draft.pair("host", hosts.join(",")), draft.pair("port", ports.join(","))];
    let Some(first) = source.get(names.first().copied().unwrap_or_default()) else { return false };
    for refused in pairs.into_iter().filter_map(Result::err) {
        source.problem(first, &format!("Weir refuses the list of backends: {refused}"));
    }
    if hosts.len() > 1 {
        several(source, draft, mode, first);
        if mode == Mode::Streaming && source.boolean("load_balance_mode", true) {
            weights(&backends, source, draft);
        }
    }
    !hosts.is_empty()
}

/// What an entry with several hosts has besides.
fn several(source: &mut Source<'_>, draft: &mut Draft, mode: Mode, first: &Assignment) {
    let outcome = if mode == Mode::Raw {
        draft.entry_comment("In raw mode the first backend that works is used.");
        draft.pair("load_balance_hosts", "disable")
    } else {
        draft.entry_comment(
            "Connections go to the server that is the primary, and after a failover to the new one (PostgreSQL 14 or later).",
        );
        draft.pair("target_session_attrs", "primary")
    };
    if let Err(refused) = outcome {
        source.problem(first, &refused);
    }
    if mode == Mode::Streaming {
        load_balancing(source, draft);
        query_cache(source, draft);
    }
}

/// The weights of the backends, as whole numbers in the same proportion.
fn weights(backends: &BTreeMap<u32, Backend>, source: &mut Source<'_>, draft: &mut Draft) {
    const MOST: f64 = 1000.0;
    let weights: Vec<f64> = backends.values().map(|backend| backend.weight).collect();
    let least = weights.iter().copied().filter(|weight| *weight > 0.0).fold(f64::INFINITY, f64::min);
    let largest = weights.iter().copied().fold(0.0, f64::max);
    if largest == 0.0 || weights.iter().all(|weight| *weight == largest) {
        return;
    }
    let scale = (10.0 / least).min(MOST / largest);
    let whole: Vec<u64> = weights.iter().map(|weight| value::rounded(weight * scale)).collect();
    let divisor = whole.iter().copied().fold(0, greatest_divisor).max(1);
    let words: Vec<String> = whole.iter().map(|weight| (weight / divisor).to_string()).collect();
    let names: Vec<String> = backends.keys().map(|number| format!("backend_weight{number}")).collect();
    let origin = source.named(&names.iter().map(String::as_str).collect::<Vec<_>>());
    match draft.pair("weight", words.join(",")) {
        Ok(()) => draft.entry_comment(&format!(
            "weight: from {origin}. The primary's counts once it is a standby: it takes no reads as long as one can."
        )),
        Err(refused) => draft.entry_comment(&format!("weight: not converted: {refused}")),
    }
}

/// The greatest number that divides both.
fn greatest_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { greatest_divisor(other, one % other) }
}

/// A setting of Weir's splitting of reads and writes that a file asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    key: &'static str,
    /// Of pgpool-II.
    from: &'static str,
    /// Its value; the first spelling that Weir takes counts.
    spellings: Vec<String>,
}

/// What a file asks for, whether this version of Weir has it or not.
fn asked(source: &mut Source<'_>) -> Vec<Asked> {
    const WORDS: [&str; 5] = ["off", "transaction", "trans_transaction", "always", "dml_adaptive"];
    let mut asked = Vec::new();
    let mut ask =
        |key, from, spellings: &[String]| asked.push(Asked { key, from, spellings: spellings.to_vec() });
    if !source.boolean("load_balance_mode", true) {
        return asked;
    }
    ask("read_write_split", "load_balance_mode", &["1".to_owned()]);
    let on_write = "disable_load_balance_on_write";
    match source.word(on_write, &WORDS) {
        Some("transaction" | "dml_adaptive") => {
            ask("read_after_write", on_write, &["transaction".to_owned()])
        }
        Some("trans_transaction" | "always") => ask("read_after_write", on_write, &["session".to_owned()]),
        _ => {}
    }
    let by_time = source.seconds("delay_threshold_by_time", 0.001).filter(|time| *time > 0.0);
    let by_size = source.bytes("delay_threshold").filter(|size| *size > 0.0);
    if let Some(seconds) = by_time {
        let spellings = [format!("{:.0}ms", seconds * 1000.0), format!("{:.0}s", seconds.ceil())];
        ask("max_replica_lag", "delay_threshold_by_time", &spellings);
    } else if let Some(bytes) = by_size {
        let spellings = [format!("{bytes:.0}B"), format!("{:.0}kB", (bytes / 1024.0).ceil())];
        ask("max_replica_lag", "delay_threshold", &spellings);
    }
    asked
}

/// Splitting of reads and writes, as far as this version of Weir has it.
fn load_balancing(source: &mut Source<'_>, draft: &mut Draft) {
    let asked = asked(source);
    if !asked.is_empty() && !is_known("read_write_split") {
        return draft.entry_comment(
            "load_balance_mode: this version of Weir does not split reads and writes. Applications that only read can use an entry \
             of their own: NAME = host=… dbname=… target_session_attrs=prefer-standby",
        );
    }
    asked.iter().filter(|asked| is_known(asked.key)).for_each(|asked| add(source, draft, asked));
}

/// pgpool-II's `memqcache_total_size`, unless it is given.
const CACHE_BYTES: f64 = 67_108_864.0;

/// The query cache, which the entry for all databases cannot have.
fn query_cache(source: &mut Source<'_>, draft: &mut Draft) {
    if !source.boolean("memory_cache_enabled", false) {
        return;
    }
    let size = source.bytes("memqcache_total_size").filter(|size| *size > 0.0).unwrap_or(CACHE_BYTES);
    let origin = source.named(&["memory_cache_enabled", "memqcache_total_size"]);
    draft.entry_comment(&format!(
        "query_cache: from {origin}, for an entry of a database's own: NAME = … query_cache={size:.0}B query_cache_user=USER; the user needs REPLICATION, \
         and the primary wal_level = logical."
    ));
}

/// Adds a setting to the entry, or globally where it is no key of entries.
fn add(source: &mut Source<'_>, draft: &mut Draft, asked: &Asked) {
    let Asked { key, from, spellings } = asked;
    let is_key = settings::DATABASE.iter().any(|row| row.info.name == *key);
    let origin = source.named(&[from]);
    let mut refused = String::new();
    for spelling in spellings {
        let outcome = if is_key {
            draft.pair(key, spelling.as_str())
        } else {
            draft.line(key, spelling, &[format!("From {origin}.")])
        };
        match outcome {
            Ok(()) if is_key => return draft.entry_comment(&format!("{key}: from {origin}.")),
            Ok(()) => return,
            Err(why) => refused = why,
        }
    }
    if let Some(one) = source.get(from) {
        source.problem(one, &format!("not converted: {refused}"));
    }
}

fn mode(source: &mut Source<'_>) -> Mode {
    let words = MODES.map(|(word, _)| word);
    if source.get("backend_clustering_mode").is_some() {
        let word = source.word("backend_clustering_mode", &words);
        return MODES.iter().find(|(name, _)| Some(*name) == word).map_or(Mode::Streaming, |(_, mode)| *mode);
    }
    let is_old = source.get("replication_mode").is_some() || source.get("master_slave_mode").is_some();
    if !is_old {
        return Mode::Streaming;
    }
    if source.boolean("replication_mode", false) {
        return Mode::Replication;
    }
    if !source.boolean("master_slave_mode", false) {
        return Mode::Raw;
    }
    match source.word("master_slave_sub_mode", &["stream", "logical", "slony"]) {
        Some("logical" | "slony") => Mode::Logical,
        _ => Mode::Streaming,
    }
}

fn backends(source: &mut Source<'_>) -> BTreeMap<u32, Backend> {
    let numbered = |one: &&Assignment| matches!(table::find(&one.name), Some((row, Some(_))) if row.name.starts_with("backend_"));
    let assignments: Vec<&Assignment> = source.all().filter(numbered).collect();
    let mut found = BTreeMap::new();
    for one in assignments {
        let Some((row, Some(number))) = table::find(&one.name) else { continue };
        if row.name != "backend_hostname" {
            if source.get(&format!("backend_hostname{number}")).is_none() {
                source.problem(
                    one,
                    &format!("there is no backend_hostname{number}; pgpool-II does not use it either"),
                );
            }
        } else if number > MAX_BACKEND {
            source.problem(one, &format!("left out: pgpool-II's backends have numbers up to {MAX_BACKEND}"));
        } else if let Some(backend) = backend(source, one, number) {
            found.insert(number, backend);
        }
    }
    found
}

fn backend(source: &mut Source<'_>, one: &Assignment, number: u32) -> Option<Backend> {
    let host = match one.value.trim_ascii() {
        "" => "/tmp".to_owned(),
        host => host.to_owned(),
    };
    if host.contains(|letter: char| letter == ',' || letter.is_control()) {
        source.problem(one, "left out: not the name of one host");
        return None;
    }
    let port = source.get(&format!("backend_port{number}"));
    let Some(port) = port.map_or(Some(5432), |port| value::whole(&port.value)) else {
        source.problem(one, &format!("left out: backend_port{number} is no number"));
        return None;
    };
    if !(1..=65_535).contains(&port) {
        source.problem(one, &format!("left out: backend_port{number} is not between 1 and 65535"));
        return None;
    }
    let name = format!("backend_weight{number}");
    let written = source.get(&name).map(|one| (one, value::weight(&one.value)));
    if let Some((one, None)) = &written {
        source.problem(one, "not converted: no number from 0 on");
    }
    let weight = written.and_then(|(_, weight)| weight).unwrap_or(1.0);
    let mut always_primary = false;
    if let Some(flag) = source.get(&format!("backend_flag{number}")) {
        for word in flag.value.split(['|', ',']).map(str::trim_ascii).filter(|word| !word.is_empty()) {
            match word.to_ascii_uppercase().as_str() {
                "ALWAYS_PRIMARY" | "ALWAYS_MASTER" => always_primary = true,
                "ALLOW_TO_FAILOVER" | "DISALLOW_TO_FAILOVER" => {}
                _ => source.problem(flag, &format!("\"{}\" is no flag of pgpool-II", word.escape_debug())),
            }
        }
    }
    Some(Backend { host, port, weight, always_primary })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conf::Conf;
    use crate::probe::Same;

    /// Key, origin and first spelling of what a file asks for.
    fn of(text: &str) -> Vec<(&'static str, &'static str, String)> {
        let conf = Conf::read(&Same(text.as_bytes()), "x");
        let asked = asked(&mut Source::new(&conf)).into_iter();
        asked.map(|one| (one.key, one.from, one.spellings[0].clone())).collect()
    }

    #[test]
    fn what_a_file_asks_of_load_balancing_is_what_weir_calls_by_other_names() {
        let split = ("read_write_split", "load_balance_mode", "1".to_owned());
        assert_eq!(of(""), std::slice::from_ref(&split), "it is pgpool-II's default");
        assert_eq!(of("load_balance_mode = off\ndelay_threshold = 1"), []);
        for (word, scope) in [
            ("transaction", Some("transaction")),
            ("dml_adaptive", Some("transaction")),
            ("TRANS_TRANSACTION", Some("session")),
            ("always", Some("session")),
            ("off", None),
            ("frob", None),
        ] {
            let found = of(&format!("disable_load_balance_on_write = {word}"));
            assert_eq!(
                found.get(1).map(|(key, _, value)| (*key, value.as_str())),
                scope.map(|scope| ("read_after_write", scope)),
                "{word}"
            );
        }
        for (lines, lag) in [
            ("delay_threshold = 10000000", Some("10000000B")),
            ("delay_threshold = 10MB", Some("10485760B")),
            ("delay_threshold = 0", None),
            ("delay_threshold_by_time = 1500", Some("1500ms")),
            ("delay_threshold_by_time = 2s\ndelay_threshold = 1", Some("2000ms")),
            ("delay_threshold = -1", None),
        ] {
            let found = of(lines);
            assert_eq!(
                found.get(1).map(|(key, _, value)| (*key, value.as_str())),
                lag.map(|lag| ("max_replica_lag", lag)),
                "{lines}"
            );
        }
    }
}
