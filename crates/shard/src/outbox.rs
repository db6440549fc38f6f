//! The output of one event: actions in order, and the bytes that the shard wrote itself.
//!
//! Owns the merging of adjacent sends. Reused from event to event, so the hot path allocates nothing here.

use std::collections::VecDeque;

use session::{Boundary, Output};

use crate::{Action, ConnId, Source};

/// Memory of one event's written bytes is kept for the next event up to this capacity.
const KEPT_BYTES: usize = 1024 * 1024;

/// Empties it; what an event with much to write has left of memory goes back to the system.
pub(crate) fn empty(bytes: &mut Vec<u8>) {
    bytes.clear();
    if bytes.capacity() > KEPT_BYTES {
        *bytes = Vec::new();
    }
}

/// Actions and written bytes of the current event.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    actions: VecDeque<Action>,
    written: Vec<u8>,
}

impl Outbox {
    /// A new event begins.
    pub(crate) fn begin(&mut self) {
        debug_assert!(self.actions.is_empty(), "actions of the last event were not taken");
        empty(&mut self.written);
    }

    pub(crate) fn pop(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    pub(crate) fn written(&self) -> &[u8] {
        &self.written
    }

    /// What is to be done, so far.
    pub(crate) fn actions(&self) -> impl Iterator<Item = &Action> {
        self.actions.iter()
    }

    /// The bytes of a send; `received` is the event's buffer.
    pub(crate) fn bytes_of<'a>(
        &'a self,
        source: Source,
        received: &'a [u8],
        start: u32,
        end: u32,
    ) -> &'a [u8] {
        let bytes = match source {
            Source::Received => received,
            Source::Written => &self.written,
        };
        bytes.get(start as usize..end as usize).unwrap_or_default()
    }

    pub(crate) fn push(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    /// Gives all actions away for those in `other`, which should be none.
    pub(crate) fn exchange(&mut self, other: &mut VecDeque<Action>) {
        std::mem::swap(&mut self.actions, other);
    }

    /// Appends bytes that are sent later, if at all.
    pub(crate) fn append<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> (std::ops::Range<usize>, T) {
        let start = self.written.len();
        let outcome = write(&mut self.written);
        (start..self.written.len(), outcome)
    }

    /// Sends what `write` appends.
    pub(crate) fn write(&mut self, to: ConnId, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.written.len();
        write(&mut self.written);
        self.send(to, Source::Written, start, self.written.len());
    }

    /// Queues a send, or lengthens the last one.
    pub(crate) fn send(&mut self, to: ConnId, source: Source, start: usize, end: usize) {
        let (Ok(start), Ok(end)) = (u32::try_from(start), u32::try_from(end)) else {
            debug_assert!(false, "an event carries less than 4 GiB");
            return;
        };
        if start == end {
            return;
        }
        if let Some(Action::Send { to: last, source: same, end: last_end, .. }) = self.actions.back_mut()
            && (*last, *same, *last_end) == (to, source, start)
        {
            *last_end = end;
            return;
        }
        self.actions.push_back(Action::Send { to, source, start, end });
    }
}

/// The two sides of a link while one of them is being read.
pub(crate) struct Sides<'a> {
    pub(crate) outbox: &'a mut Outbox,
    /// The bytes of the event; forwarding out of anything else copies.
    pub(crate) received: &'a [u8],
    /// Where forwarded bytes go.
    pub(crate) forward_to: ConnId,
    pub(crate) client: ConnId,
    pub(crate) server: ConnId,
    /// Bytes that were forwarded.
    pub(crate) forwarded: u64,
}

impl<'a> Sides<'a> {
    /// What is read comes from the client.
    #[inline(always)]
    pub(crate) fn to_server(
        outbox: &'a mut Outbox,
        received: &'a [u8],
        client: ConnId,
        server: ConnId,
    ) -> Sides<'a> {
        Sides { outbox, received, forward_to: server, client, server, forwarded: 0 }
    }
}

impl Output for Sides<'_> {
    #[inline(always)]
    fn forward(&mut self, input: &[u8], start: usize, end: usize) {
        self.forwarded += (end - start) as u64;
        if std::ptr::eq(input, self.received) {
            self.outbox.send(self.forward_to, Source::Received, start, end);
        } else {
            self.outbox.write(self.forward_to, |out| out.extend_from_slice(&input[start..end]));
        }
    }

    fn to_client(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.outbox.write(self.client, write);
    }

    fn to_server(&mut self, _: Boundary, write: impl FnOnce(&mut Vec<u8>)) {
        self.outbox.write(self.server, write);
    }
}

/// Output of a step without a client: it passes nothing on.
pub(crate) struct NullOutput;

impl Output for NullOutput {
    fn forward(&mut self, _: &[u8], _: usize, _: usize) {
        debug_assert!(false, "forwarded without a destination");
    }

    fn to_client(&mut self, _: impl FnOnce(&mut Vec<u8>)) {}

    fn to_server(&mut self, _: Boundary, _: impl FnOnce(&mut Vec<u8>)) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_an_event_that_wrote_much_goes_back() {
        let mut outbox = Outbox::default();
        for (bytes, kept) in [(10, true), (2 * KEPT_BYTES, false)] {
            outbox.append(|out| out.resize(bytes, 0));
            outbox.begin();
            assert_eq!(outbox.written.capacity() > 0, kept, "{bytes} bytes");
        }
    }

    #[test]
    fn neighbouring_sends_become_one() {
        let mut outbox = Outbox::default();
        outbox.write(ConnId(1), |out| out.extend_from_slice(b"ab"));
        outbox.write(ConnId(1), |out| out.extend_from_slice(b"cd"));
        outbox.write(ConnId(2), |out| out.extend_from_slice(b"e"));
        outbox.write(ConnId(2), |_| {});
        assert!(matches!(outbox.pop(), Some(Action::Send { to: ConnId(1), start: 0, end: 4, .. })));
        assert!(matches!(outbox.pop(), Some(Action::Send { to: ConnId(2), start: 4, end: 5, .. })));
        assert!(outbox.pop().is_none(), "nothing to send is no send");
    }
}
