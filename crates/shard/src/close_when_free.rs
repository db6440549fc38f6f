//! Whether a server connection is to be closed as soon as it is free, and why.
//!
//! Owns which of two reasons counts. When it is free is `checkout`'s to say, and what its login still tells of the entry's servers is `servers`'.

use crate::close_reason::CloseReason;

/// The reason, if it is to be closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CloseWhenFree(Option<CloseReason<'static>>);

impl CloseWhenFree {
    /// It is to be closed for this reason; the one that was known before stays if more depends on it.
    pub(crate) fn set(&mut self, reason: CloseReason<'static>) {
        let stays = match self.0 {
            // Its client has got that error.
            Some(CloseReason::SentFatal) => true,
            // What its login has to say is of other servers than the entry's. Only after a login it is known to be left behind; that
            // the entry has another cluster now is no news.
            Some(CloseReason::ClusterForgotten) => {
                reason != CloseReason::SentFatal && reason != CloseReason::LeftBehind
            }
            // Sessions end for it, and for no later reason; but after RECONNECT it may be a primary again.
            Some(known) if known.loses_writes() => {
                reason != CloseReason::SentFatal
                    && reason != CloseReason::ClusterForgotten
                    && !reason.loses_writes()
            }
            _ => false,
        };
        if !stays {
            self.0 = Some(reason);
        }
    }

    /// Why it is to be closed.
    #[inline]
    pub(crate) fn reason(self) -> Option<CloseReason<'static>> {
        self.0
    }

    /// It is to be closed.
    #[inline]
    pub(crate) fn is_set(self) -> bool {
        self.0.is_some()
    }

    /// It is connected to something else than the entry stands for by now.
    pub(crate) fn is_obsolete(self) -> bool {
        self.is_before_reconnect()
            || matches!(self.0, Some(CloseReason::ConfigurationChanged | CloseReason::HostMoved))
    }

    /// Its login says nothing of the next: it is not wanted any more.
    pub(crate) fn is_withdrawn(self) -> bool {
        self.is_obsolete() || self.0 == Some(CloseReason::SlotGivenBack)
    }

    /// It is of the time before RECONNECT: what it says of its cluster is forgotten.
    pub(crate) fn is_before_reconnect(self) -> bool {
        self.0 == Some(CloseReason::ClusterForgotten)
    }
}

impl From<CloseReason<'static>> for CloseWhenFree {
    fn from(reason: CloseReason<'static>) -> CloseWhenFree {
        CloseWhenFree(Some(reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(reasons: &[CloseReason<'static>]) -> Option<CloseReason<'static>> {
        let mut close_when_free = CloseWhenFree::default();
        reasons.iter().for_each(|reason| close_when_free.set(*reason));
        close_when_free.reason()
    }

    #[test]
    fn a_reason_stays_if_more_depends_on_it() {
        use CloseReason::{
            ClusterForgotten, ConfigurationChanged, Detached, LeftBehind, OtherCluster, Promoted, SentFatal,
        };
        assert_eq!(counts(&[]), None);
        assert_eq!(counts(&[Promoted, Detached]), Some(Detached));
        assert_eq!(counts(&[Promoted, ClusterForgotten, ConfigurationChanged]), Some(ClusterForgotten));
        assert_eq!(counts(&[ClusterForgotten, LeftBehind]), Some(LeftBehind));
        assert_eq!(counts(&[LeftBehind, ConfigurationChanged, Detached]), Some(LeftBehind));
        assert_eq!(counts(&[LeftBehind, ClusterForgotten, OtherCluster]), Some(ClusterForgotten));
        assert_eq!(counts(&[Promoted, SentFatal, ClusterForgotten, LeftBehind]), Some(SentFatal));
    }
}
