//! What happened, as one rolling hash and, if asked for, as lines to read.
//!
//! Two runs of a seed must give the same hash; a run that differs has met something that the seed does not fix.

use std::fmt;

use crate::prng::mix;

/// The record of a run.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    /// A record that keeps lines only if asked to.
    pub(crate) fn new(keep_lines: bool) -> Trace {
        Trace { hash: 0, lines: keep_lines.then(Vec::new) }
    }

    /// Whether lines are kept, so that callers need not form them in vain.
    pub(crate) fn keeps_lines(&self) -> bool {
        self.lines.is_some()
    }

    /// Adds a number.
    pub(crate) fn number(&mut self, number: u64) {
        self.hash = mix(self.hash ^ number);
    }

    /// Adds bytes.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.hash =
                (self.hash ^ u64::from_le_bytes(*word)).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        }
        for byte in rest {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.number(bytes.len() as u64);
    }

    /// Adds a line, if lines are kept.
    pub(crate) fn line(&mut self, now_us: u64, text: fmt::Arguments<'_>) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>12.6} {text}", (now_us as f64 - 3.6e9) / 1e6));
        }
    }

    /// The hash of all so far.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// The lines, if they were kept.
    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}

/// Bytes of the protocol as one readable line: letters as they are, everything else as dots, long ones cut.
pub(crate) struct Readable<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Readable<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(160)];
        let text: String =
            shown.iter().map(|byte| if (32..127).contains(byte) { char::from(*byte) } else { '.' }).collect();
        write!(formatter, "{} bytes `{text}`", self.0.len())
    }
}
