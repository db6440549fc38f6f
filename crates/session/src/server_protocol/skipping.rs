//! Whether the server ignores what it is sent: behind an error of the extended protocol it does so until Sync (55.2.3).

/// What the server does with a message that is sent now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Skipping {
    /// It is executed, as far as is known.
    #[default]
    No,
    /// A segment has failed whose Sync has not been sent yet.
    UntilSync,
}

impl Skipping {
    #[inline]
    pub(crate) fn is_on(self) -> bool {
        self == Skipping::UntilSync
    }

    /// An error came; `sync_is_to_come` if the Sync of the segment has not been sent.
    pub(crate) fn fail(&mut self, sync_is_to_come: bool) {
        if sync_is_to_come {
            *self = Skipping::UntilSync;
        }
    }

    /// Sync is sent, or was read among the data of a copy that had failed.
    #[inline]
    pub(crate) fn end(&mut self) {
        *self = Skipping::No;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_skips_until_sync_only_if_that_is_still_to_come() {
        let mut skipping = Skipping::default();
        skipping.fail(false);
        assert!(!skipping.is_on());
        skipping.fail(true);
        skipping.fail(false);
        assert!(skipping.is_on());
        skipping.end();
        assert!(!skipping.is_on());
    }
}
