//! The effect of a reset that a client asked for: which of its startup values it has again, and what is reported to it.
//!
//! Owns what is put in front of ReadyForQuery, and what is kept from the client until then: a value that it never has,
//! because its own is set again before its next request. Setting it is the shard's.

use wire::backend::Status;
use wire::encode;

use super::{ReplyAction, Step};
use crate::parameters::{CLIENT_ENCODING, bit};
use crate::reported;
use crate::{Parameters, Reset};

impl<'c> Step<'_, 'c> {
    /// What the client's startup packet gave, and the server's defaults.
    fn startup(&self) -> Option<(&'c Parameters, &'c Parameters)> {
        self.context.startup.zip(self.context.default_params)
    }

    /// RESET or DISCARD ALL was done.
    pub(super) fn note_reset(&mut self) {
        if self.context.startup.is_some() {
            self.server.effects.resets.note_done();
        }
    }

    /// RESET was done; one that was recognised as of untracked parameters changes nothing.
    pub(super) fn note_reset_command(&mut self) {
        let replies = &self.server.replies;
        if !self.server.effects.resets.is_of_others(replies.front(), replies.answered()) {
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
        let replies = &self.server.replies;
        self.server.effects.resets.report(position, is_reset, replies.answered(), replies.len() == 1)
    }

    /// ReadyForQuery came where something is noted of resets: before it, the client is sent its current values.
    #[cold]
    #[inline(never)]
    pub(super) fn ready_behind_reset(&mut self, status: Status) -> ReplyAction {
        let is_last = self.server.replies.is_empty() && self.server.boundary().is_some();
        let lost = if is_last { self.lost(status) } else { Reset::default() };
        let resets = self.server.effects.resets;
        let mut frames = Vec::new();
        if let Some((said, default_params)) = self.startup() {
            let returns = lost.all() & bit(CLIENT_ENCODING) != 0;
            let now = if returns { said } else { &self.server.parameters };
            let encoding = now.text(CLIENT_ENCODING).map(str::to_owned);
            for position in 0..self.context.tracked.count() {
                let is_lost = lost.all() & bit(position) != 0;
                let told = if is_lost { said } else { &self.server.parameters };
                let is_told =
                    is_lost && default_params.value(position).is_some() || resets.is_withheld(position);
                if let Some(value) = told.value(position).filter(|_| is_told)
                    && let Some(value) = reported::for_client(value, encoding.as_deref())
                {
                    let name = self.context.tracked.name(position).as_bytes();
                    encode::parameter_status(&mut frames, name, &value);
                }
                if is_lost && default_params.value(position).is_none() {
                    match resets.is_unsure() {
                        true => self.server.parameters.doubt(position),
                        false => self.server.parameters.take_over(position, default_params),
                    }
                }
            }
        }
        if is_last {
            self.server.effects.resets_answered(status, lost);
            self.server.replies.release();
            self.outcome.lost = !lost.is_empty();
        } else {
            self.server.effects.resets = resets.continued();
        }
        if frames.is_empty() {
            return ReplyAction::Pass;
        }
        encode::ready(&mut frames, status);
        self.server.internal.replace(frames);
        ReplyAction::Replaced
    }

    /// The parameters that the client has again by its startup packet, and the server has not.
    fn lost(&self, status: Status) -> Reset {
        let mut lost = Reset::default();
        let Some((said, default_params)) = self.startup() else { return lost };
        if status == Status::Failed {
            return lost;
        }
        let is_shared = self.context.releases_between_transactions;
        for position in (0..self.context.tracked.count()).filter(|at| !self.context.tracked.is_read_only(*at))
        {
            let (Some(own), default) = (said.value(position), default_params.value(position)) else {
                continue;
            };
            // Without a report, only the command itself shows that it has been reset.
            let is_default = default.is_none() || self.server.parameters.value(position) == default;
            if is_default && default != Some(own) {
                let is_reported = default.is_some();
                lost.add(self.server.effects.resets.lost(position, is_reported, status, is_shared));
            }
        }
        lost
    }
}
