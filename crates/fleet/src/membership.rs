//! Whether the node has a lease, and until when it is sure of that: joining, renewing, leaving.
//!
//! A session of which the node is not sure any more is over for good: it joins again with another one. So is one whose request to join was not answered: the store
//! may carry that out much later, and a session that is over does not come back.

use crate::config::{Handover, HeldFloors};
use crate::store::{CallId, Event, NodeRecord, Request, SessionId};

/// Between attempts to join: at first and at most.
const RETRY_US: (u64, u64) = (200_000, 2_000_000);
/// Between attempts while another process has the node's id.
const TAKEN_RETRY_US: u64 = 500_000;
/// After a renewal that was not answered.
const RENEW_RETRY_US: u64 = 500_000;
/// The lease is taken for shorter than it is by at least this, and by at least a fifth: clocks differ, and a connection that is being opened needs time.
const LEAST_MARGIN_US: u64 = 1_000_000;
const MARGIN_PART: u64 = 5;
/// Earlier sessions that are known to be the node's own, and attempts to join.
const MOST_EARLIER: usize = 16;

/// What has become of the membership by a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// As before, or surer.
    None,
    /// The session has begun.
    Joined,
    /// The session is over.
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Out {
        retry_us: u64,
        /// The store has a record of the present session already: renew it instead.
        is_recorded: bool,
    },
    Joining {
        call: CallId,
        sent_us: u64,
    },
    /// Removes the record of an earlier session.
    Clearing {
        call: CallId,
    },
    In {
        sure_until_us: u64,
        renew_us: u64,
        renewing: Option<(CallId, u64)>,
    },
    Ending {
        call: CallId,
    },
    Left,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Membership {
    session: SessionId,
    earlier: Vec<SessionId>,
    /// Sessions that may have joined or may still join, and had nothing to do.
    attempted: Vec<SessionId>,
    phase: Phase,
    retry_after_us: u64,
    lease_us: u64,
    /// The record has changed since the request under way was given out.
    is_changed: bool,
    /// Since when and why there is no lease, after the first failure.
    alone: Option<(u64, String)>,
    taken: Option<NodeRecord>,
}

impl Membership {
    pub(crate) fn new(session: SessionId, now_us: u64) -> Membership {
        let phase = Phase::Out { retry_us: now_us, is_recorded: false };
        let (retry_after_us, lease_us) = (RETRY_US.0, 0);
        Membership {
            session,
            earlier: Vec::new(),
            attempted: Vec::new(),
            phase,
            retry_after_us,
            lease_us,
            is_changed: false,
            alone: None,
            taken: None,
        }
    }

    /// Goes on with a session that another process began.
    pub(crate) fn resume(from: &Handover, now_us: u64) -> Membership {
        let mut membership = Membership::new(from.session, now_us);
        membership.earlier.clone_from(&from.earlier);
        membership.phase = Phase::In { sure_until_us: from.sure_until_us, renew_us: now_us, renewing: None };
        membership
    }

    pub(crate) fn hand_over(&self, floors: HeldFloors) -> Handover {
        let (session, earlier) = (self.session, self.earlier.clone());
        Handover { session, earlier, sure_until_us: self.sure_until_us(), floors }
    }

    pub(crate) fn session(&self) -> SessionId {
        self.session
    }

    pub(crate) fn earlier(&self) -> &[SessionId] {
        &self.earlier
    }

    /// How long a lease is, 0 if not known yet.
    pub(crate) fn lease_us(&self) -> u64 {
        self.lease_us
    }

    /// 0 without a lease.
    pub(crate) fn sure_until_us(&self) -> u64 {
        match self.phase {
            Phase::In { sure_until_us, .. } => sure_until_us,
            _ => 0,
        }
    }

    /// Whether the session has begun and [`Membership::advance`] has not found it over.
    pub(crate) fn is_in(&self) -> bool {
        matches!(self.phase, Phase::In { .. })
    }

    pub(crate) fn has_left(&self) -> bool {
        self.phase == Phase::Left
    }

    pub(crate) fn alone(&self) -> Option<&(u64, String)> {
        self.alone.as_ref()
    }

    pub(crate) fn taken(&self) -> Option<&NodeRecord> {
        self.taken.as_ref()
    }

    /// Time passes.
    pub(crate) fn advance(&mut self, now_us: u64) -> Turn {
        match self.phase {
            Phase::In { sure_until_us, .. } if now_us >= sure_until_us => {
                self.end_session("the lease was not renewed in time", now_us);
                Turn::Over
            }
            _ => Turn::None,
        }
    }

    /// Whether [`Membership::poll`] has a request.
    pub(crate) fn is_due(&self, now_us: u64) -> bool {
        match self.phase {
            Phase::Out { retry_us, .. } => now_us >= retry_us,
            Phase::In { renew_us, .. } => now_us >= renew_us,
            _ => false,
        }
    }

    pub(crate) fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending { .. })
    }

    /// The next request, if one is due; `record` makes the node's record.
    pub(crate) fn poll(
        &mut self,
        now_us: u64,
        call: CallId,
        record: impl FnOnce(SessionId) -> NodeRecord,
    ) -> Option<Request> {
        match &mut self.phase {
            Phase::Out { retry_us, is_recorded } if now_us >= *retry_us => {
                let (record, is_recorded) = (record(self.session), *is_recorded);
                self.phase = Phase::Joining { call, sent_us: now_us };
                Some(if is_recorded {
                    Request::Renew { call, record }
                } else {
                    Request::Join { call, record }
                })
            }
            Phase::In { renew_us, renewing, .. } if now_us >= *renew_us => {
                *renewing = Some((call, now_us));
                self.is_changed = false;
                *renew_us = now_us + (self.lease_us / 3).max(RENEW_RETRY_US);
                Some(Request::Renew { call, record: record(self.session) })
            }
            _ => None,
        }
    }

    pub(crate) fn deadline_us(&self) -> Option<u64> {
        match self.phase {
            Phase::Out { retry_us, .. } => Some(retry_us),
            Phase::In { sure_until_us, renew_us, .. } => Some(sure_until_us.min(renew_us)),
            _ => None,
        }
    }

    /// The record has changed: it is written soon.
    pub(crate) fn renew_now(&mut self, now_us: u64) {
        match &mut self.phase {
            // Two requests at once may be carried out in any order.
            Phase::In { renewing: Some(_), .. } | Phase::Joining { .. } => self.is_changed = true,
            Phase::In { renew_us, .. } => *renew_us = now_us,
            _ => {}
        }
    }

    /// Ends the session for good. None: there is nothing to remove.
    pub(crate) fn leave(&mut self, call: CallId) -> Option<Request> {
        let was_in = self.is_in();
        self.phase = if was_in { Phase::Ending { call } } else { Phase::Left };
        was_in.then_some(Request::Leave { call, session: self.session })
    }

    /// The answer to one of its requests; others are not taken notice of.
    pub(crate) fn handle(
        &mut self,
        event: &Event,
        next_call: CallId,
        now_us: u64,
    ) -> (Turn, Option<Request>) {
        let turn = match event {
            Event::Renewed { call, lease_us } => self.renewed(*call, *lease_us, now_us),
            Event::Expired { call } if self.is_waiting_for(*call) => {
                let was_in = self.is_in();
                self.end_session("the store ended the lease", now_us);
                if was_in { Turn::Over } else { Turn::None }
            }
            Event::IdTaken { call, by } if self.is_waiting_for(*call) => {
                return (Turn::None, self.id_taken(by, next_call, now_us));
            }
            Event::Left { call } if self.is_waiting_for(*call) => {
                self.left(now_us);
                Turn::None
            }
            Event::Unanswered { call, why } if self.is_waiting_for(*call) => {
                self.unanswered(why, now_us);
                Turn::None
            }
            _ => Turn::None,
        };
        (turn, None)
    }

    fn is_waiting_for(&self, answered: CallId) -> bool {
        match self.phase {
            Phase::Joining { call, .. } | Phase::Clearing { call } | Phase::Ending { call } => {
                call == answered
            }
            Phase::In { renewing, .. } => renewing.is_some_and(|(call, _)| call == answered),
            Phase::Out { .. } | Phase::Left => false,
        }
    }

    fn renewed(&mut self, answered: CallId, lease_us: u64, now_us: u64) -> Turn {
        if !self.is_waiting_for(answered) {
            return Turn::None;
        }
        let (sent_us, before_us, turn) = match self.phase {
            Phase::Joining { sent_us, .. } => (sent_us, 0, Turn::Joined),
            Phase::In { sure_until_us, renewing: Some((_, sent_us)), .. } => {
                (sent_us, sure_until_us, Turn::None)
            }
            _ => return Turn::None,
        };
        let sure_until_us = before_us.max((sent_us + lease_us).saturating_sub(margin_us(lease_us)));
        if now_us >= sure_until_us {
            self.end_session("the store's answer came too late for the lease", now_us);
            return if turn == Turn::Joined { Turn::None } else { Turn::Over };
        }
        self.lease_us = lease_us;
        self.retry_after_us = RETRY_US.0;
        self.alone = None;
        self.taken = None;
        let renew_us = if std::mem::take(&mut self.is_changed) { now_us } else { sent_us + lease_us / 3 };
        self.phase = Phase::In { sure_until_us, renew_us, renewing: None };
        turn
    }

    fn id_taken(&mut self, by: &NodeRecord, call: CallId, now_us: u64) -> Option<Request> {
        if by.session == self.session {
            // An earlier request to join was carried out without an answer.
            self.phase = Phase::Out { retry_us: now_us, is_recorded: true };
            return None;
        }
        if self.earlier.contains(&by.session) || self.attempted.contains(&by.session) {
            self.phase = Phase::Clearing { call };
            return Some(Request::Leave { call, session: by.session });
        }
        self.taken = Some(by.clone());
        self.phase = Phase::Out { retry_us: now_us + TAKEN_RETRY_US, is_recorded: false };
        None
    }

    fn left(&mut self, now_us: u64) {
        self.phase = match self.phase {
            Phase::Ending { .. } => Phase::Left,
            _ => Phase::Out { retry_us: now_us, is_recorded: false },
        };
    }

    fn unanswered(&mut self, why: &str, now_us: u64) {
        match &mut self.phase {
            Phase::In { renew_us, renewing, .. } => {
                *renewing = None;
                *renew_us = now_us + RENEW_RETRY_US;
            }
            Phase::Ending { .. } => self.phase = Phase::Left,
            _ => {
                if matches!(self.phase, Phase::Joining { .. }) {
                    remember(&mut self.attempted, self.session);
                    self.session = next_session(self.session);
                }
                self.set_alone(why, now_us);
                self.phase = Phase::Out { retry_us: now_us + self.retry_after_us, is_recorded: false };
                self.retry_after_us = (self.retry_after_us * 2).min(RETRY_US.1);
            }
        }
    }

    fn end_session(&mut self, why: &str, now_us: u64) {
        remember(&mut self.earlier, self.session);
        self.session = next_session(self.session);
        self.set_alone(why, now_us);
        self.phase = Phase::Out { retry_us: now_us, is_recorded: false };
    }

    fn set_alone(&mut self, why: &str, now_us: u64) {
        let since_us = self.alone.as_ref().map_or(now_us, |(since_us, _)| *since_us);
        self.alone = Some((since_us, why.to_owned()));
        self.taken = None;
    }
}

/// The latest only.
fn remember(sessions: &mut Vec<SessionId>, session: SessionId) {
    if sessions.len() >= MOST_EARLIER {
        sessions.remove(0);
    }
    sessions.push(session);
}

fn margin_us(lease_us: u64) -> u64 {
    LEAST_MARGIN_US.max(lease_us / MARGIN_PART)
}

/// Another random number, computed from one (SplitMix64).
fn next_session(session: SessionId) -> SessionId {
    let mut mixed = session.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    SessionId(mixed ^ (mixed >> 31))
}
