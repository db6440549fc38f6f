//! Where a client's requests go, where its pool sends reads to standbys (`read_write_split`).
//!
//! Owns that a client has one request at a time under way on a standby: what it sends behind that may be the primary's.

use session::request_end;

use crate::attempt::Attempt;
use crate::local_pools::table::PoolId;

/// A request of this size is passed on before its end is here.
const WHOLE_BYTES: usize = 64 * 1024;

/// Where a client's last request went.
#[derive(Debug, Default)]
pub(crate) struct Routed {
    to: To,
    /// The sample of the primary's position that a standby has to have replayed to have all that the client has written; 0 if it has
    /// written nothing.
    wrote: u64,
    /// It has written, as far as is known.
    has_written: bool,
    /// A standby has refused what its session asks for: all that it sends is the primary's.
    is_refused: bool,
    /// Its last request went to the primary because a standby had not run it.
    was_repeated: bool,
}

/// Whether a transaction on the primary writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    No,
    /// It selects, and it is not known yet which functions and views only read.
    Perhaps,
    Yes,
}

#[derive(Debug, Default)]
enum To {
    /// Its pool sends nothing elsewhere, or it has asked for nothing yet.
    #[default]
    Any,
    /// To the primary. `end`: that of the request that was judged, in bytes from its beginning, if it is known.
    Primary { writes: Writes, end: Option<usize>, has_begun: bool },
    /// To a standby of this pool. `left`: the bytes of the request that are still to be sent, if one is under way. `repeats`: it is its first one there, and the
    /// primary may run it instead.
    Standby { pool: PoolId, left: Option<usize>, repeats: bool },
    /// To a standby, which has not run it: the next one, which is the same, goes to the primary.
    Repeat(Writes),
}

impl Routed {
    pub(crate) fn go_to_primary(&mut self, writes: Writes) {
        self.send_to_primary(writes, None);
    }

    /// The same with a request that ends this many bytes behind its beginning, if that is known.
    pub(crate) fn send_to_primary(&mut self, writes: Writes, end: Option<usize>) {
        self.was_repeated = matches!(self.to, To::Repeat(_));
        self.to = To::Primary { writes, end, has_begun: false };
    }

    /// Its request ends this many bytes behind its beginning, if that is known. `repeats`: that is known, and the primary may run the same if the standby does not.
    pub(crate) fn send_to_standby(&mut self, pool: PoolId, end: Option<usize>, repeats: bool) {
        self.was_repeated = false;
        self.to = To::Standby { pool, left: end, repeats };
    }

    /// The standby has not run its request, which the primary runs.
    pub(crate) fn repeat(&mut self, writes: Writes) {
        self.to = To::Repeat(writes);
    }

    /// The request that the primary was to run in a standby's place is answered without a server.
    pub(crate) fn repeats_nothing(&mut self) {
        if self.repeats().is_some() {
            self.end_split();
        }
    }

    /// The request that is looked at goes to the primary, because a standby has not run it.
    pub(crate) fn repeats(&self) -> Option<Writes> {
        match self.to {
            To::Repeat(writes) => Some(writes),
            To::Any | To::Primary { .. } | To::Standby { .. } => None,
        }
    }

    /// Its last request is one that a standby was given first.
    pub(crate) fn is_repeated(&self) -> bool {
        self.was_repeated || self.repeats().is_some()
    }

    /// A standby has refused what its session asks for.
    pub(crate) fn note_refusal(&mut self) {
        self.is_refused = true;
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// The pool of the standby that its last request went to, if it did.
    #[inline(always)]
    pub(crate) fn standby(&self) -> Option<PoolId> {
        match self.to {
            To::Standby { pool, .. } => Some(pool),
            To::Any | To::Primary { .. } | To::Repeat(_) => None,
        }
    }

    /// What it sends is looked at.
    #[inline(always)]
    pub(crate) fn is_watched(&self) -> bool {
        matches!(self.to, To::Standby { .. } | To::Primary { writes: Writes::No, .. })
    }

    /// How many of these bytes may be sent to the server now.
    #[inline(never)]
    pub(crate) fn allowed(&mut self, bytes: &[u8]) -> usize {
        match &mut self.to {
            To::Any | To::Repeat(_) => bytes.len(),
            To::Primary { writes, end, has_begun } => {
                // What is behind the request that was judged has not been.
                let ends = || end.or_else(|| request_end(bytes)) == Some(bytes.len());
                let is_more = std::mem::replace(has_begun, true) || !ends();
                if is_more && !bytes.is_empty() {
                    *writes = Writes::Yes;
                }
                bytes.len()
            }
            To::Standby { left: Some(left), .. } => bytes.len().min(*left),
            To::Standby { left, .. } => {
                let end = request_end(bytes);
                let is_to_be_whole = || bytes.len() < WHOLE_BYTES && !session::has_flush(bytes);
                if end.is_none() && is_to_be_whole() {
                    return 0;
                }
                *left = end.or(Some(usize::MAX));
                end.unwrap_or(bytes.len())
            }
        }
    }

    /// This many of them were sent. True if that is all of a request that may be repeated.
    pub(crate) fn sent(&mut self, bytes: usize) -> bool {
        let To::Standby { left: Some(left), repeats, .. } = &mut self.to else { return false };
        let was_whole = *left == bytes;
        *left = left.saturating_sub(bytes);
        std::mem::take(repeats) && was_whole
    }

    /// Settings may be sent in front of its request, in the same write: if a standby refuses them, the primary can run the same.
    pub(crate) fn may_be_led(&self) -> bool {
        match self.to {
            To::Standby { left, repeats, .. } => repeats && left.is_some_and(Attempt::may_have),
            To::Any | To::Primary { .. } | To::Repeat(_) => true,
        }
    }

    /// What it has sent behind its request waits for the answer, or for the release of the server.
    #[inline(always)]
    pub(crate) fn waits(&self) -> bool {
        matches!(self.to, To::Standby { left: Some(0), .. })
    }

    /// Its request is answered, and a transaction goes on in which its next one goes to the same standby. False if it is not on one.
    pub(crate) fn goes_on(&mut self) -> bool {
        match &mut self.to {
            To::Standby { left, .. } => {
                *left = None;
                true
            }
            To::Any | To::Primary { .. } | To::Repeat(_) => false,
        }
    }

    /// Its reads have gone elsewhere, or may.
    #[inline(always)]
    pub(crate) fn is_split(&self) -> bool {
        !matches!(self.to, To::Any)
    }

    /// Whether [`routing::answered`](crate::link::routing::answered) has anything to do for an answer, with which its transaction is over or not.
    #[inline(always)]
    pub(crate) fn needs_answer(&self, is_over: bool) -> bool {
        match self.to {
            To::Any => false,
            To::Primary { writes, .. } => is_over && writes != Writes::No,
            To::Standby { .. } | To::Repeat(_) => !is_over,
        }
    }

    /// Its pool sends nothing elsewhere any more.
    pub(crate) fn end_split(&mut self) {
        self.was_repeated = false;
        self.to = To::Any;
    }

    /// Its transaction is over, which may have written.
    #[inline(always)]
    pub(crate) fn may_have_written(&self) -> bool {
        matches!(self.to, To::Primary { writes: Writes::Perhaps | Writes::Yes, .. })
    }

    /// It keeps the primary's server for what follows, which is not looked at.
    pub(crate) fn keeps_primary(&mut self) {
        self.go_to_primary(Writes::Yes);
    }

    /// A standby has what it has written when it has replayed this sample.
    pub(crate) fn note_write(&mut self, sample: u64) {
        self.wrote = sample;
        self.has_written |= !matches!(self.to, To::Primary { writes: Writes::Perhaps, .. });
    }

    /// It has written, as far as is known.
    pub(crate) fn has_written(&self) -> bool {
        self.has_written
    }

    /// The sample that a standby has to have replayed; 0 is none.
    pub(crate) fn wrote(&self) -> u64 {
        self.wrote
    }
}
