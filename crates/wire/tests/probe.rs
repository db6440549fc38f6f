//! The probes of the fuzz targets as an ordinary test: the committed seeds, and mutations of them that are
//! the same on every run.
#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;

use wire::probe;

const MUTATIONS: u32 = 20_000;

#[test]
fn startup() {
    run("startup", probe::startup);
}

#[test]
fn frontend() {
    run("frontend", probe::frontend);
}

#[test]
fn backend() {
    run("backend", probe::backend);
}

fn run(target: &str, probe: fn(&[u8])) {
    let seeds = seeds(target);
    seeds.iter().for_each(|seed| probe(seed));
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for _ in 0..MUTATIONS {
        let mut bytes = dice.pick(&seeds).clone();
        for _ in 0..=dice.below(4) {
            mutate(&mut bytes, &seeds, &mut dice);
        }
        probe(&bytes);
    }
}

/// The committed inputs of a target, in the order of their names.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no seeds for {target}");
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// One small change of a kind that parsers stumble over.
fn mutate(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], dice: &mut Dice) {
    let at = dice.below(bytes.len() + 1);
    match dice.below(7) {
        0 => bytes.truncate(at),
        1 => bytes.insert(at, dice.byte()),
        2 => bytes.splice(at..at, dice.pick(seeds).iter().copied()).for_each(drop),
        3 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
        4 if at < bytes.len() => bytes[at] = *dice.pick(&[0, 1, 3, 4, 5, 0x7f, 0x80, 0xff]),
        5 if at < bytes.len() => {
            bytes.remove(at);
        }
        _ => {
            let end = at + dice.below(bytes.len() + 1 - at);
            bytes.copy_within(at..end, 0);
        }
    }
}

/// Marsaglia's xorshift: enough chance, and the same one every time.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn byte(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
