//! What must hold for any bytes of a WAL sender (I11 of ARCHITECTURE.md), as functions that panic when it does not.
//! Called by the fuzz target and, over seeds and their mutations, by an ordinary test.

use crate::decoding::{Effect, Event, MAX_NAMES, Stream};

/// The stream says the same however it is cut, up to the first fault; its names are bounded and in lower case.
///
/// # Panics
/// When that does not hold.
pub fn stream(bytes: &[u8]) {
    let (cut_by, bytes) =
        bytes.split_first().map_or((1, bytes), |(first, rest)| (usize::from(*first) + 1, rest));
    let (mut whole, mut cut) = (Vec::new(), Vec::new());
    let outcome = Stream::new(true, "own").receive(bytes, &mut whole);
    let mut stream = Stream::new(true, "own");
    let outcome_cut = bytes.chunks(cut_by).try_for_each(|chunk| stream.receive(chunk, &mut cut));
    assert_eq!((outcome, &whole), (outcome_cut, &cut));
    for event in whole {
        let Event::Committed(transaction) = event else { continue };
        let Effect::Rows(names) = transaction.what else { continue };
        assert!(names.len() <= MAX_NAMES);
        assert!(
            names.iter().all(|name| !name.is_empty() && !name.bytes().any(|byte| byte.is_ascii_uppercase()))
        );
    }
}
