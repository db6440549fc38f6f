//! How a client goes, and how it misbehaves: it dies while it sends, stops reading, talks nonsense.

use super::scene::Scene;
use super::session::Client;
use crate::network::Ending;
use crate::protocol::message;

/// How often a wild client stands still within what it sends, in a million.
const HALVES: u32 = 50_000;

impl Client {
    pub(super) fn say_farewell(&mut self, scene: &mut Scene<'_>) {
        if self.planned_open && scene.prng.chance(500_000) {
            self.budget = 1;
            return;
        }
        if scene.prng.chance(800_000) {
            self.send(|out| message(out, b'X', |_| ()));
        }
        self.leave(scene);
        self.wants_close = Some(Ending::Finish);
    }

    /// Decides to die while sending, or to stop reading for a while.
    pub(super) fn grow_tired(&mut self, scene: &mut Scene<'_>) {
        if !scene.chaos {
            return;
        }
        if scene.prng.chance(scene.crowd.deaf_per_million) {
            self.deaf_until_us = scene.now_us + scene.prng.log_between(1_000, 300_000);
        }
        if scene.prng.chance(scene.crowd.die_per_million) {
            let ending = scene.prng.pick(&[Ending::Finish, Ending::Reset]);
            let bytes = scene.prng.log_between(1, 400);
            self.doom = Some((usize::try_from(bytes).unwrap_or(1), ending));
        }
    }

    /// Decides to stand still within what it is about to send: in the middle of a message, if it wants.
    pub(super) fn stand_still(&mut self, bytes: usize, scene: &mut Scene<'_>) {
        if bytes > 0 && scene.chaos && self.output.is_empty() && scene.prng.chance(HALVES) {
            let at = 1 + scene.prng.index(bytes);
            self.stands_at = Some((at, scene.prng.log_between(100, 50_000)));
        }
    }

    /// Sends what is no message, or half of one, and waits for what becomes of it.
    pub(super) fn talk_nonsense(&mut self, scene: &mut Scene<'_>) {
        if !scene.chaos || !scene.prng.chance(scene.crowd.garbage_per_million) {
            return;
        }
        self.disturbed = true;
        self.gives_up_at_us = Some(scene.now_us + scene.prng.log_between(1_000, 500_000));
        let nonsense = scene.prng.pick(NONSENSE);
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
