//! Where and how it was measured, in sentences: machine, server, targets, workloads, generator, method. What the record
//! does not know is left out, never guessed.

use crate::record::{Experiment, TargetKind, TargetRecord, shown_version};

/// The sentences, each on its own line.
pub(super) fn sentences(experiment: &Experiment) -> Vec<String> {
    let mut lines = vec![method(experiment), server(experiment), machine(experiment)];
    lines.extend(experiment.targets.iter().filter(|target| target.kind != TargetKind::Direct).map(target));
    lines
}

fn method(experiment: &Experiment) -> String {
    let plan = &experiment.plan;
    let rounds = match plan.rounds {
        1 => "one round".to_owned(),
        rounds => format!("{rounds} interleaved rounds in random order (seed {})", plan.seed),
    };
    let mode =
        if plan.query_mode.is_empty() { String::new() } else { format!(", {} protocol", plan.query_mode) };
    let threads = match experiment.generator.threads {
        0 => "a thread for each client".to_owned(),
        threads => format!("{threads} threads"),
    };
    let counted = match plan.transactions {
        Some(transactions) => format!("all of {transactions} transactions of each client count"),
        None => format!("{} s of each run count after {} s of warm-up", plan.seconds, plan.warm_up_s),
    };
    let filled = if plan.min_pool_size { "; min_pool_size is the pool size" } else { "" };
    format!(
        "{}, {threads}{mode}: {counted}{filled}; {rounds}; began {}, took {}.",
        named(&experiment.generator.name, &experiment.generator.version),
        experiment.began,
        minutes(experiment.took_s)
    )
}

fn server(experiment: &Experiment) -> String {
    let server = &experiment.server;
    let settings: Vec<String> =
        server.settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let sort = if server.embedded { "made for this" } else { server.place.as_str() };
    let standbys = match server.standbys.len() {
        0 => String::new(),
        1 => format!(", standby {}", server.standbys.join("")),
        _ => format!(", standbys {}", server.standbys.join(", ")),
    };
    let scale = server.database.scale.map(|scale| format!(", pgbench scale {scale}")).unwrap_or_default();
    let size = match server.database.bytes / (1024 * 1024) {
        0 => String::new(),
        mebibytes => format!(", {mebibytes} MiB of data"),
    };
    format!("PostgreSQL {} ({sort}{standbys}){scale}{size}; {}.", server.version, settings.join(", "))
}

fn machine(experiment: &Experiment) -> String {
    let machine = &experiment.machine;
    let shared = if experiment.server.same_machine {
        "load generator and server on the same machine"
    } else {
        "the server is on another machine"
    };
    format!(
        "{} CPUs ({}), {} MiB of memory, {}, Linux {}; load {:.1} before; {shared}.",
        machine.cores,
        machine.processor,
        machine.memory_mib,
        machine.system,
        machine.kernel,
        machine.load_before
    )
}

fn target(target: &TargetRecord) -> String {
    let mode = target.mode.as_ref().map(|mode| format!(", {mode} pooling")).unwrap_or_default();
    let driver = target.io_driver.as_ref().map(|driver| format!(", {driver}")).unwrap_or_default();
    let place = target.place.as_ref().map(|place| format!(", at {place}")).unwrap_or_default();
    let version =
        if target.version.is_empty() { "a pooler".to_owned() } else { shown_version(&target.version) };
    format!("{}: {version}{mode}{driver}{place}.", target.name)
}

/// A version line says its own name as a rule.
fn named(name: &str, version: &str) -> String {
    match version {
        "" => name.to_owned(),
        version if version.contains(name) => version.to_owned(),
        version => format!("{name} {version}"),
    }
}

/// `754` seconds as `12 min 34 s`.
pub(super) fn minutes(seconds: f64) -> String {
    let whole = seconds.max(0.0).round();
    let (minutes, rest) = ((whole / 60.0).floor(), whole % 60.0);
    if minutes > 0.0 { format!("{minutes:.0} min {rest:.0} s") } else { format!("{rest:.0} s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advisor::sample;

    #[test]
    fn the_scene_names_machine_server_and_method() {
        let all = sentences(&sample::experiment()).join("\n");
        for words in [
            "pgbench (PostgreSQL) 15.20, 2 threads",
            "5 interleaved rounds",
            "took 12 min 34 s",
            "fsync on",
            "Sample CPU",
        ] {
            assert!(all.contains(words), "{words}: {all}");
        }
        assert_eq!((minutes(59.4), minutes(60.0)), ("59 s".to_owned(), "1 min 0 s".to_owned()));
        assert_eq!(named("jmeter", "5.6.3"), "jmeter 5.6.3");
    }
}
