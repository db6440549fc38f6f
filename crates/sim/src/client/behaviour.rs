//! How a client goes, and how it misbehaves: it dies while it sends, stops reading, talks nonsense.

use super::context::ClientContext;
use super::session::Client;
use crate::network::Ending;
use crate::protocol::message;

/// How often a wild client stands still within what it sends, in a million.
const HALVES: u32 = 50_000;

impl Client {
    pub(super) fn say_farewell(&mut self, context: &mut ClientContext<'_>) {
        if self.planned_open && context.prng.chance(500_000) {
            self.budget = 1;
            return;
        }
        if context.prng.chance(800_000) {
            self.send(|out| message(out, b'X', |_| ()));
        }
        self.leave(context);
        self.wants_close = Some(Ending::Finish);
    }

    /// Decides to die while sending, or to stop reading for a while.
    pub(super) fn grow_tired(&mut self, context: &mut ClientContext<'_>) {
        if !context.chaos {
            return;
        }
        if context.prng.chance(context.client_mix.deaf_per_million) {
            self.deaf_until_us = context.now_us + context.prng.log_between(1_000, 300_000);
        }
        if context.prng.chance(context.client_mix.die_per_million) {
            let ending = context.prng.pick(&[Ending::Finish, Ending::Reset]);
            let bytes = context.prng.log_between(1, 400);
            self.doom = Some((usize::try_from(bytes).unwrap_or(1), ending));
        }
    }

    /// Decides to stand still within what it is about to send: in the middle of a message, if it wants.
    pub(super) fn stand_still(&mut self, bytes: usize, context: &mut ClientContext<'_>) {
        if bytes > 0 && context.chaos && self.output.is_empty() && context.prng.chance(HALVES) {
            let at = 1 + context.prng.index(bytes);
            self.stands_at = Some((at, context.prng.log_between(100, 50_000)));
        }
    }

    /// Sends what is no message, or half of one, and waits for what becomes of it.
    pub(super) fn talk_nonsense(&mut self, context: &mut ClientContext<'_>) {
        if !context.chaos || !context.prng.chance(context.client_mix.garbage_per_million) {
            return;
        }
        self.disturbed = true;
        self.gives_up_at_us = Some(context.now_us + context.prng.log_between(1_000, 500_000));
        let nonsense = context.prng.pick(NONSENSE);
        self.send(|out| out.extend_from_slice(nonsense));
    }
}

/// What a client of PostgreSQL never sends: unknown types, impossible lengths, halves.
const NONSENSE: &[&[u8]] = &[
    b"?\0\0\0\x04",
    b"Q\0\0\0\0",
    b"Q\xff\xff\xff\xff",
    b"Q\x3f\xff\xff\xffSELECT",
    b"P\0\0\0\x20half",
    b"GET / HTTP/1.1\r\n\r\n",
    b"p\0\0\0\x0apass\0\0",
];
