//! Both loops against one model on real sockets: a script drawn from a seed says what the shard and its peers do, and
//! whichever loop carries it out, the shard must be told the same, the peers must read what was sent, and nothing may
//! be left at the end.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, unreachable_pub)]

mod peers;
mod recorder;
mod run;
mod scenes;
mod script;
#[path = "../support/mod.rs"]
mod support;

use std::io::Write;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use settings::IoDriver;

use crate::run::{Outcome, run};
use crate::script::Script;

/// Seeds of an ordinary run; others by `WEIR_LOOP_SEEDS=FIRST..END`.
const SEEDS: Range<u64> = 0..150;

/// What is being run: a failed assertion in a loop's thread ends the process at once.
static RUNNING: Mutex<String> = Mutex::new(String::new());

#[test]
fn both_loops_tell_a_shard_the_same() {
    let _alone = alone();
    tell_of_panics();
    let bug = std::env::var("WEIR_LOOP_BUG").unwrap_or_default();
    assert!(bug.is_empty() || planted::switch_on(&bug), "no bug {bug} is planted in this build");
    let most = if bug.is_empty() { 5 } else { 1 };
    let mut failures = Vec::new();
    for seed in seeds() {
        if let Err(why) = compare(&format!("seed {seed}"), &Script::of(seed)) {
            say(&format!("seed {seed} failed: {why}\n"));
            failures.push(seed);
            if failures.len() == most {
                break;
            }
        }
    }
    let _ = std::fs::remove_dir_all(run::directory());
    assert!(failures.is_empty(), "seeds {failures:?} failed; WEIR_LOOP_SEEDS=N..N+1 runs one again");
}

/// What seeds have found, as short as it can be.
#[test]
fn scenes_are_the_same_by_both_loops() {
    let _alone = alone();
    tell_of_panics();
    let failed = scenes::all().into_iter().filter_map(|(name, script)| {
        let why = compare(name, &script).err()?;
        say(&format!("{name} failed: {why}\n"));
        Some(name)
    });
    let failed: Vec<&str> = failed.collect();
    assert!(failed.is_empty(), "{failed:?}");
}

/// Each test counts the descriptors of the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("WEIR_LOOP_SEEDS") else { return SEEDS };
    let (first, end) = text.split_once("..").unwrap();
    first.parse().unwrap()..end.parse().unwrap()
}

fn compare(name: &str, script: &Script) -> Result<(), String> {
    let mut outcomes: Vec<Vec<Outcome>> = Vec::new();
    for io in [IoDriver::Epoll, IoDriver::IoUring] {
        *RUNNING.lock().unwrap() = format!("{name} by {io}:\n{script}");
        let outcome = run(script, io).map_err(|why| format!("by {io}: {why}\nscript:\n{script}"))?;
        outcomes.push(outcome);
    }
    let (by_epoll, by_uring) = (&outcomes[0], &outcomes[1]);
    for (key, (one, other)) in by_epoll.iter().zip(by_uring).enumerate() {
        let differ = |one: Option<usize>, other: Option<usize>| one.zip(other).is_some_and(|(a, b)| a != b);
        let failed = one.failed.as_ref().zip(other.failed.as_ref()).is_some_and(|(a, b)| a != b);
        if failed || differ(one.received, other.received) || differ(one.read, other.read) {
            return Err(format!("{key} by epoll: {one:?}, by io_uring: {other:?}\nscript:\n{script}"));
        }
    }
    Ok(())
}

fn tell_of_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let running = RUNNING.lock().map(|text| text.clone()).unwrap_or_default();
        say(&format!("{info}\n{running}\n"));
        usual(info);
    }));
}

/// Past the test harness, which would keep it to itself when the process ends at once.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
