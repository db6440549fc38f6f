//! RESET, DISCARD ALL and SET … TO DEFAULT of a client that gave parameters at startup: on a server that clients share
//! they go back to the server's defaults, where PostgreSQL goes back to the startup packet.
//!
//! Owns the set of what is reset; how such a command is recognised is [`commands`]'s, what is noted of it until its ReadyForQuery
//! [`crate::server_protocol`]'s. Setting the values again is the shard's.

mod commands;

use crate::parameters::bit;

pub(crate) use commands::{may_reset, reset_by, reset_by_portal, reset_by_query};

/// Parameters that a command resets, as bits by position; those from position 64 on are not followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reset {
    /// For the session.
    pub session: u64,
    /// Until the end of the transaction.
    pub local: u64,
    /// RESET of a parameter that is not followed, which leaves those that are.
    pub(crate) others: bool,
    /// What may be a RESET, and of what is not known.
    pub(crate) unclear: bool,
}

impl Reset {
    pub(crate) const OTHERS: Reset = Reset { session: 0, local: 0, others: true, unclear: false };
    pub(crate) const UNCLEAR: Reset = Reset { session: 0, local: 0, others: false, unclear: true };

    /// For the session.
    pub(crate) fn of_session(session: u64) -> Reset {
        Reset { session, ..Reset::default() }
    }

    /// Nothing that is followed.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.all() == 0
    }

    /// Nothing but RESET of parameters that are not followed.
    pub(crate) fn is_of_others(self) -> bool {
        self == Reset::OTHERS
    }

    /// What is known of portals that were bound before, once others have been executed.
    pub(crate) fn of_older_portals(self) -> Reset {
        Reset { others: self.others, unclear: self.unclear || !self.is_empty(), ..Reset::default() }
    }

    /// The positions.
    pub fn positions(self) -> impl Iterator<Item = usize> {
        let all = self.all();
        (0..u64::BITS as usize).filter(move |position| all & bit(*position) != 0)
    }

    pub(crate) fn all(self) -> u64 {
        self.session | self.local
    }

    pub(crate) fn add(&mut self, other: Reset) {
        self.session |= other.session;
        self.local |= other.local;
        self.others |= other.others;
        self.unclear |= other.unclear;
    }
}
