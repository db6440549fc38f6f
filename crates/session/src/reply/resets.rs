//! The effect of a reset that a client asked for: which of its startup values it has again, and what is reported to it.
//!
//! Owns what is put in front of ReadyForQuery, and what is kept from the client until then: a value that it never has,
//! because its own is set again before its next request. Setting it is the shard's.

use wire::backend::Status;
use wire::encode;

use super::{ReplyAction, Step};
use crate::parameters::CLIENT_ENCODING;
use crate::reported;
use crate::resets::{Resets, bit};
use crate::{Parameters, PendingReply, Reset};

impl<'c> Step<'_, 'c> {
    /// What the client's startup packet gave, and the server's defaults.
    fn startup(&self) -> Option<(&'c Parameters, &'c Parameters)> {
        self.context.startup.zip(self.context.default_params)
    }

    /// RESET or DISCARD ALL was done.
    pub(super) fn note_reset(&mut self) {
        if self.context.startup.is_some() {
            (self.server.resets.noted, self.server.resets.seen) = (true, true);
        }
    }

    /// RESET was done; one that was recognised as of untracked parameters changes nothing.
    pub(super) fn note_reset_command(&mut self) {
        let resets = &self.server.resets;
        let is_of_others = match self.server.replies.front() {
            Some(PendingReply::Query) => resets.others == self.server.replies.answered(),
            Some(PendingReply::Execute) => resets.asked.is_of_others(),
            _ => false,
        };
        if !is_of_others {
            self.note_reset();
        }
    }

    /// The server has reported this parameter; true if the report is kept from the client for now.
    pub(super) fn withholds(&mut self, position: usize) -> bool {
        let Some((said, default_params)) = self.startup() else { return false };
        if self.is_private() || said.value(position).is_none() {
            return false;
        }
        let now = self.server.parameters.value(position);
        let is_reset = now == default_params.value(position) && now != said.value(position);
        let (replies, resets) = (&self.server.replies, &mut self.server.resets);
        let asked = resets.asked.all() & bit(position) != 0 && replies.answered() >= resets.from;
        let is_kept = is_reset && (asked || resets.seen && replies.len() == 1);
        set(&mut resets.returned, position, is_reset);
        set(&mut resets.withheld, position, is_kept);
        resets.noted = true;
        is_kept
    }

    /// ReadyForQuery came where something is noted of resets: before it, the client is sent its current values.
    #[cold]
    #[inline(never)]
    pub(super) fn ready_behind_reset(&mut self, status: Status) -> ReplyAction {
        let is_last = self.server.replies.is_empty() && self.server.boundary().is_some();
        let lost = if is_last { self.lost(status) } else { Reset::default() };
        let resets = self.server.resets;
        let is_unsure = resets.failed || resets.seen && resets.asked.is_empty();
        let mut frames = Vec::new();
        if let Some((said, default_params)) = self.startup() {
            let returns = lost.all() & bit(CLIENT_ENCODING) != 0;
            let now = if returns { said } else { &self.server.parameters };
            let encoding = now.text(CLIENT_ENCODING).map(str::to_owned);
            for position in 0..self.context.tracked.count() {
                let is_lost = lost.all() & bit(position) != 0;
                let told = if is_lost { said } else { &self.server.parameters };
                let is_told = is_lost && default_params.value(position).is_some()
                    || resets.withheld & bit(position) != 0;
                if let Some(value) = told.value(position).filter(|_| is_told)
                    && let Some(value) = reported::for_client(value, encoding.as_deref())
                {
                    let name = self.context.tracked.name(position).as_bytes();
                    encode::parameter_status(&mut frames, name, &value);
                }
                if is_lost && default_params.value(position).is_none() {
                    match is_unsure {
                        true => self.server.parameters.doubt(position),
                        false => self.server.parameters.take_over(position, default_params),
                    }
                }
            }
        }
        if is_last {
            let portals = self.server.portal_resets.of_older_portals();
            let is_over = status == Status::Idle;
            self.server.portal_resets = if is_over { Reset::default() } else { portals };
            self.server.resets = Resets::default();
            self.server.replies.release();
            self.server.lost = lost;
            self.outcome.lost = !lost.is_empty();
        } else {
            // Requests behind this one already run with what the server has.
            let returned = if resets.seen { resets.returned } else { 0 };
            self.server.resets = Resets { failed: false, withheld: 0, returned, ..resets };
        }
        if frames.is_empty() {
            return ReplyAction::Pass;
        }
        encode::ready(&mut frames, status);
        self.server.replacement = frames;
        ReplyAction::Replaced
    }

    /// The parameters that the client has again by its startup packet, and the server has not.
    fn lost(&self, status: Status) -> Reset {
        let (resets, mut lost) = (self.server.resets, Reset::default());
        let Some((said, default_params)) = self.startup() else { return lost };
        if status == Status::Failed {
            return lost;
        }
        // Which of the parameters that are not reported a command reset that was not recognised is not known: all are set again.
        let unknown = resets.seen && resets.asked.is_empty() && self.context.releases_between_transactions;
        for position in (0..self.context.tracked.count()).filter(|at| !self.context.tracked.is_read_only(*at))
        {
            let (Some(own), default) = (said.value(position), default_params.value(position)) else {
                continue;
            };
            let bit = bit(position);
            // Without a report, only the command itself shows that it has been reset.
            let is_default = default.is_none() || self.server.parameters.value(position) == default;
            if !is_default || default == Some(own) {
                continue;
            }
            let is_undone = resets.failed
                && resets.asked.session & bit != 0
                && self.context.releases_between_transactions;
            if default.is_none() && (unknown || is_undone) {
                lost.session |= bit;
                continue;
            }
            // What a failed request has reset is undone with it.
            if resets.failed {
                continue;
            }
            let by_report = resets.seen && resets.asked.is_empty() && resets.returned & bit != 0;
            if resets.asked.session & bit != 0 || by_report {
                lost.session |= bit;
            } else if resets.asked.local & bit != 0 && status == Status::InTransaction {
                lost.local |= bit;
            }
        }
        lost
    }
}

fn set(bits: &mut u64, position: usize, on: bool) {
    let bit = bit(position);
    *bits = if on { *bits | bit } else { *bits & !bit };
}
