//! Whether what the client sends now is kept, because what it means depends on replies that have not come.

/// What requests wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RequestGate {
    /// Nothing.
    #[default]
    Open,
    /// Until this is the number of the oldest reply owed.
    ClosedUntil(u64),
}

impl RequestGate {
    #[inline]
    pub(crate) fn is_closed(self) -> bool {
        self != RequestGate::Open
    }

    pub(crate) fn close_until(&mut self, number: u64) {
        *self = RequestGate::ClosedUntil(number);
    }

    pub(crate) fn open(&mut self) {
        *self = RequestGate::Open;
    }

    /// Replies have come; true if that opens it. What comes behind a COPY from the client is answered when the copy is
    /// over, and what waits may be its data: that opens it, too.
    #[inline]
    pub(crate) fn opens_at(&mut self, answered: u64, copy_is_read: bool) -> bool {
        match *self {
            RequestGate::ClosedUntil(number) if answered >= number || copy_is_read => {
                *self = RequestGate::Open;
                true
            }
            RequestGate::Open | RequestGate::ClosedUntil(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_with_the_reply_that_is_awaited_or_with_a_copy() {
        let mut gate = RequestGate::default();
        assert!(!gate.is_closed() && !gate.opens_at(9, true), "it was open before");
        gate.close_until(7);
        assert!(!gate.opens_at(6, false) && gate.is_closed());
        assert!(gate.opens_at(7, false) && !gate.is_closed());
        gate.close_until(7);
        assert!(gate.opens_at(6, true));
    }
}
