//! ParameterStatus: the server's report of a parameter is stored and passed on to the client.
//!
//! Owns when a reported value counts as known. The client gets the server's bytes unchanged in any case.

use wire::backend::{self, Status};
use wire::encode;
use wire::frame::Header;

use super::{ReplyAction, Step};
use crate::parameters::{CLIENT_ENCODING, bit};
use crate::reported::{self, NonAscii};
use crate::{Reset, ServerFault};

impl Step<'_, '_> {
    pub(super) fn parameter_status(&mut self, _header: Header, body: &[u8]) -> ReplyAction {
        let Some((name, value)) = backend::parameter_status(body) else {
            return ReplyAction::Fault(ServerFault::Malformed);
        };
        if let Some(position) = self.context.tracked.position(name) {
            if self.server.leading.is_some() && self.is_of_leading_settings(position, value) {
                return ReplyAction::Swallow;
            }
            if self.context.registry.is_setting(position) {
                let segment = self.server.replies.answering_segment();
                self.server.statements.settings_changed(segment);
            }
            if position == CLIENT_ENCODING {
                self.doubt_non_ascii();
            }
            match std::str::from_utf8(value) {
                Ok(value) if value.is_ascii() => self.server.parameters.set(position, value),
                _ => self.store_non_ascii(position, value),
            }
            self.outcome.parameters_changed = true;
            if self.withholds(position) {
                return ReplyAction::Swallow;
            }
        }
        // While Weir sets its client's values on the server, the client is not sent the reports: it has these values.
        if self.is_private() { ReplyAction::Swallow } else { ReplyAction::Pass }
    }

    /// It is what Weir has set in front of the client's request, as the client has it: PostgreSQL reports it with ReadyForQuery only.
    #[cold]
    fn is_of_leading_settings(&mut self, position: usize, value: &[u8]) -> bool {
        let is_awaited = self.server.leading.as_mut().is_some_and(|leading| leading.note_report(position));
        is_awaited && self.server.parameters.text(position).is_some_and(|text| text.as_bytes() == value)
    }

    /// ReadyForQuery behind a request in front of which Weir has set parameters: those that the server has not reported are as before, by
    /// the request, and the client is told.
    #[cold]
    #[inline(never)]
    pub(super) fn ready_behind_leading_settings(&mut self, status: Status) -> ReplyAction {
        let mut told = self.unreported_leading_settings();
        let action = self.ready_for_client(status);
        match action {
            _ if told.is_empty() => return action,
            ReplyAction::Pass => encode::ready(&mut told, status),
            ReplyAction::Replaced => told.extend(self.server.internal.take_replacement()),
            _ => return action,
        }
        self.server.internal.replace(told);
        ReplyAction::Replaced
    }

    /// ReadyForQuery that the client does not get. Behind settings without a request it ends what is awaited of them.
    #[cold]
    #[inline(never)]
    pub(super) fn ready_for_none(&mut self) -> ReplyAction {
        let told = self.unreported_leading_settings();
        if told.is_empty() {
            return ReplyAction::Swallow;
        }
        self.server.internal.replace(told);
        ReplyAction::Replaced
    }

    /// What was set in front of a request, and has not been reported with the ReadyForQuery behind it, is as before: what the client is told.
    fn unreported_leading_settings(&mut self) -> Vec<u8> {
        let mut told = Vec::new();
        let leading = self.server.leading.take();
        for (position, value) in leading.iter().flat_map(|leading| leading.unchanged()) {
            self.server.parameters.set(position, value);
            self.outcome.parameters_changed = true;
            if !self.withholds(position) {
                let name = self.context.tracked.name(position);
                encode::parameter_status(&mut told, name.as_bytes(), value.as_bytes());
            }
        }
        told
    }

    /// Which text the bytes are depends on client_encoding.
    #[cold]
    #[inline(never)]
    fn store_non_ascii(&mut self, position: usize, value: &[u8]) {
        let server = &mut *self.server;
        let (request, bit) = (server.replies.answered(), bit(position));
        let before = if server.non_ascii.request == request { server.non_ascii.positions } else { 0 };
        server.non_ascii = NonAscii { request, positions: before | bit };
        // Without a bit, a report of client_encoding behind this one could not take the value back.
        let encoding = server.parameters.text(CLIENT_ENCODING).filter(|_| bit != 0);
        let stored = reported::stored(value, encoding, self.context.registry.next_number());
        server.parameters.set(position, &stored);
    }

    /// client_encoding is reported: the encoding of values that were reported before it for the same request is not known.
    fn doubt_non_ascii(&mut self) {
        let NonAscii { request, positions } = std::mem::take(&mut self.server.non_ascii);
        if request == self.server.replies.answered() {
            for position in (Reset { session: positions, ..Reset::default() }).positions() {
                let unknown = reported::unknown(self.context.registry.next_number());
                self.server.parameters.set(position, &unknown);
            }
        }
    }
}
