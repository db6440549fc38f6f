//! Replies about prepared statements and portals: matched, swallowed where the request was Weir's own, and what they
//! tell of the statement. Never sees an error; that is [`super::error`].

use wire::backend;
use wire::frame::{HEADER_BYTES, Header};
use wire::tag::backend as tag;

use super::{HELD_BYTES, Step, Verdict};
use crate::client_statements::Whose;
use crate::{Description, Owed, Reader, ServerFault, StatementId};

/// The longest part of a description that is kept until it is whole: PostgreSQL has at most 1664 columns and 65535 parameters.
const DESCRIPTION_BYTES: usize = 512 * 1024;

impl Step<'_, '_> {
    pub(super) fn bind_complete(&mut self, header: Header) -> Verdict {
        self.server.unsure_readies = 0;
        match self.server.owes.front() {
            Some(Owed::Bind(_)) => {
                self.server.owes.pop();
                Verdict::Pass
            }
            Some(Owed::WatchedBind(statement)) => {
                self.server.owes.pop();
                self.plan_holds(statement)
            }
            _ => self.own_step(header),
        }
    }

    /// The message by which a spoilt plan would have been seen has been answered.
    pub(super) fn plan_holds(&mut self, statement: StatementId) -> Verdict {
        self.server.statements.verify(statement);
        self.settle_watch();
        Verdict::Pass
    }

    /// Ends the watch if what it waited for is not owed any more.
    pub(super) fn settle_watch(&mut self) {
        if !self.server.owes.has_watched() {
            self.replied.unblocked |= self.server.watch.end();
        }
    }

    /// PostgreSQL describes the parameters before it finds that the result has changed. The client gets both parts of
    /// the answer or, of what has to be said again, neither.
    pub(super) fn parameters_described(&mut self, header: Header, rest: &[u8]) -> Verdict {
        self.server.unsure_readies = 0;
        match self.server.owes.front() {
            Some(Owed::WatchedDescribe(_)) => {}
            Some(Owed::OwnDescribe(..)) => return self.own_parameters(header, rest),
            _ => return self.data(),
        }
        match rest.get(header.frame_bytes as usize) {
            Some(&tag::ROW_DESCRIPTION | &tag::NO_DATA) => Verdict::Pass,
            Some(&tag::ERROR) => Verdict::Swallow,
            None if header.frame_bytes as usize <= HELD_BYTES => Verdict::Hold,
            _ => {
                self.replied.unblocked |= self.server.watch.end();
                Verdict::Pass
            }
        }
    }

    pub(super) fn described(&mut self, header: Header, rest: &[u8]) -> Verdict {
        self.server.unsure_readies = 0;
        match self.server.owes.front() {
            Some(Owed::OwnDescribe(statement, reader)) => self.own_described(header, rest, statement, reader),
            Some(Owed::Describe(_)) => {
                self.reads_by_this();
                self.server.owes.pop();
                Verdict::Pass
            }
            Some(Owed::WatchedDescribe(statement)) => {
                self.reads_by_this();
                self.server.owes.pop();
                self.plan_holds(statement)
            }
            Some(Owed::Query | Owed::Execute) => Verdict::Pass,
            Some(Owed::Own) => self.swallow_body(),
            _ => Verdict::Fault(ServerFault::OutOfStep(header.tag)),
        }
    }

    #[inline]
    fn reads_by_this(&mut self) {
        if let Some(names) = &mut self.context.names {
            names.read(self.server.owes.answered(), self.context.registry);
        }
    }

    /// The body of a frame that answers Weir's own Describe.
    fn own_body(header: Header, rest: &[u8]) -> Result<&[u8], Verdict> {
        match rest.get(HEADER_BYTES..header.frame_bytes as usize) {
            Some(body) => Ok(body),
            None if header.frame_bytes as usize <= DESCRIPTION_BYTES => Err(Verdict::Hold),
            None => Err(Verdict::Fault(ServerFault::Malformed)),
        }
    }

    fn own_parameters(&mut self, header: Header, rest: &[u8]) -> Verdict {
        match Self::own_body(header, rest).map(backend::parameter_types) {
            Ok(Some(types)) => {
                self.server.own_parameters = types.collect();
                Verdict::Swallow
            }
            Ok(None) => Verdict::Fault(ServerFault::Malformed),
            Err(verdict) => verdict,
        }
    }

    /// A statement that Weir has had parsed is described. If its clients know it otherwise, it is another one for a client that reads by
    /// no description, from here on, or by this one, once it has it; those that may hold theirs keep it.
    fn own_described(
        &mut self,
        header: Header,
        rest: &[u8],
        statement: StatementId,
        reader: Reader,
    ) -> Verdict {
        let body = match Self::own_body(header, rest) {
            Ok(body) => Some(body).filter(|_| header.tag == tag::ROW_DESCRIPTION),
            Err(verdict) => return verdict,
        };
        let parameters = std::mem::take(&mut self.server.own_parameters);
        let own_types = self.server.catalog.own_types;
        let Some(description) = Description::read(parameters, body, own_types) else {
            return Verdict::Fault(ServerFault::Malformed);
        };
        self.server.owes.pop();
        let as_known = self.context.registry.describe(statement, &description);
        self.server.statements.described(statement, as_known);
        if !as_known && let Some(names) = &mut self.context.names {
            let registry = &mut *self.context.registry;
            let whose = match reader {
                Reader::Preparing => Some(Whose::Latest),
                _ if !names.habit.describes => Some(Whose::All),
                Reader::Anew if names.is_reading(statement) => None,
                Reader::Anew | Reader::Holding => return Verdict::Swallow,
            };
            let typed = reader != Reader::Preparing;
            if let Some(new) = registry.successor(statement, Some(&description), typed) {
                match whose {
                    Some(whose) => names.replace(statement, new, whose, registry),
                    None => names.will_read_instead(statement, new, registry),
                }
            }
        }
        Verdict::Swallow
    }

    /// The server dropped all its prepared statements, and the client meant its own.
    pub(super) fn forget_statements(&mut self) {
        self.server.statements.clear();
        if self.server.owes.front() != Some(Owed::Own)
            && let Some(names) = &mut self.context.names
        {
            names.clear(self.context.registry);
        }
    }

    pub(super) fn parse_complete(&mut self, header: Header) -> Verdict {
        self.server.unsure_readies = 0;
        match self.server.owes.front() {
            Some(Owed::Parse(None)) => {
                self.server.owes.pop();
                self.server.statements.unnamed.answered();
                Verdict::Pass
            }
            Some(Owed::Parse(Some(statement))) => {
                self.server.owes.pop();
                self.server.statements.answered(statement, true);
                self.confirm();
                Verdict::Pass
            }
            Some(Owed::OwnParse(statement)) => {
                self.server.owes.pop();
                self.server.statements.answered(statement, true);
                Verdict::Swallow
            }
            _ => self.own_step(header),
        }
    }

    pub(super) fn close_complete(&mut self, header: Header) -> Verdict {
        self.server.unsure_readies = 0;
        if self.server.owes.front() == Some(Owed::Marker) {
            return Verdict::Swallow; // Its ReadyForQuery ends it.
        }
        match self.server.owes.pop() {
            Some(Owed::Close) => Verdict::Pass,
            Some(Owed::OwnClose(statement)) => {
                self.server.statements.answered(statement, false);
                Verdict::Swallow
            }
            _ => Verdict::Fault(ServerFault::OutOfStep(header.tag)),
        }
    }

    pub(super) fn confirm(&mut self) {
        if let Some(names) = &mut self.context.names {
            names.confirm(self.context.registry);
        }
    }
}
