//! Random scripts of messages, each put to a PostgreSQL at once, and what it answers to them.
//!
//! A script follows from its number alone, so that only a hash of PostgreSQL's answers is kept (`corpus/random15.hashes`, `random18.hashes`).

use crate::client::message::Message;
use crate::client::shadow::Shadow;
use crate::client::wild::{Habit, Item, Script, TlsConfig};
use crate::corpus;
use crate::model::parameters::Parameters;
use crate::prng::{Prng, mix};

/// Items of a script.
const ITEMS: u64 = 40;

/// The script of this number, up to the message that PostgreSQL ends the session for.
pub(crate) fn script(number: u64, modern: bool) -> Vec<Message> {
    let mut prng = Prng::new(number).split(77);
    let terms = TlsConfig {
        named: true,
        by_sql: true,
        keeps_session: false,
        fail_per_million: prng.pick(&[0, 50_000, 200_000]),
        copy_per_million: prng.pick(&[0, 50_000, 300_000]),
        set_per_million: prng.pick(&[0, 50_000, 300_000]),
        pooled: false,
    };
    let mut script = Script::new(3, Habit::draw(false, &mut prng), terms);
    let mut shadow = shadow(modern);
    let (mut messages, mut bytes) = (Vec::new(), Vec::new());
    for _ in 0..prng.between(4, ITEMS) {
        let Item::Send(message) = script.next(&mut prng) else { continue };
        bytes.clear();
        message.write(&mut bytes);
        shadow.take(&bytes);
        messages.push(message);
        if shadow.has_ended() {
            break;
        }
    }
    messages
}

fn shadow(modern: bool) -> Shadow {
    let parameters = Parameters::new([("application_name", "app0"), ("TimeZone", "Etc/UTC")].into_iter());
    Shadow::new(parameters.unwrap_or_else(|| unreachable!("both exist")), modern).with_reports()
}

/// The model's answers to a script, and whether it ends the session.
pub(crate) fn model_answers(script: &[Message], modern: bool) -> Vec<String> {
    let mut shadow = shadow(modern);
    let mut lines = Vec::new();
    for message in script {
        let mut bytes = Vec::new();
        message.write(&mut bytes);
        shadow.take(&bytes);
        lines.extend(shadow.take_due().map(|answer| corpus::line(answer.kind, &answer.body)));
    }
    in_order(lines)
}

/// PostgreSQL reports parameters that changed together in an order of its own.
pub(crate) fn in_order(mut lines: Vec<String>) -> Vec<String> {
    let is_report = |line: &String| line.starts_with("S ");
    let runs = lines.chunk_by_mut(|one, other| is_report(one) && is_report(other));
    runs.for_each(|run| run.sort());
    lines
}

/// The hash of answers.
pub(crate) fn hash(lines: &[String]) -> u32 {
    let bytes = lines.iter().flat_map(|line| line.bytes().chain([b'\n']));
    let hash = bytes.fold(0x5eed, |hash, byte| mix(hash ^ u64::from(byte)));
    u32::try_from(hash >> 32).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn holds(recorded: &str, modern: bool) {
        let mut scripts = 0;
        for (number, line) in (0..).zip(recorded.lines()) {
            let script = script(number, modern);
            let lines = model_answers(&script, modern);
            assert_eq!(format!("{:08x}", hash(&lines)), line, "script {number}: {script:#?}\n{lines:#?}");
            scripts += 1;
        }
        assert!(scripts >= 5_000, "the recording is gone");
    }

    #[test]
    fn the_model_answers_random_scripts_as_postgresql_15_did() {
        holds(include_str!("../corpus/random15.hashes"), false);
    }

    #[test]
    fn the_model_answers_random_scripts_as_postgresql_18_did() {
        holds(include_str!("../corpus/random18.hashes"), true);
    }
}
