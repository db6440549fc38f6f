//! Requests about prepared statements that have a name: renamed, answered here, or sent with a Parse before them.
//!
//! Owns which of the two names goes where, and when a request begins to be kept in case its plan is spoilt
//! ([`crate::replay`]). Never sees a request without a name, and never parses SQL.

use wire::frame::Header;
use wire::frontend::{self, Found};
use wire::tag::frontend as tag;
use wire::{encode, frame, rename};

use super::{Heard, Step, Verdict, plain};
use crate::prepared::server_name;
use crate::replay::{self, Watch, parse_message};
use crate::{ClientFault, Output, Owed, StatementId};

/// No server has a statement of this name.
const NO_STATEMENT: &[u8] = b"PGBOUNCER_0";

/// By which description a client will read rows.
enum Reads {
    /// That of the result as it is, or none.
    ByThis,
    /// One from before it changed.
    ByAnOlder,
    /// It may be about to ask for it: its next message is not here yet.
    Unknown,
}

impl Step<'_, '_> {
    pub(super) fn named(
        &mut self,
        header: Header,
        body: &[u8],
        complete: bool,
        out: &mut impl Output,
    ) -> Verdict {
        match header.tag {
            tag::PARSE => match frontend::parse_name(body) {
                Found::Yes((b"", _)) => self.pass(Owed::Parse(None)),
                Found::Yes(_) if !complete => Verdict::Hold,
                Found::Yes((name, rest)) => self.parse(header, name, &body[rest..], out),
                Found::More => Verdict::Hold,
                Found::Malformed => Verdict::Stop(Heard::Fault(ClientFault::Malformed)),
            },
            tag::BIND => match frontend::bind_names(body) {
                Found::Yes((_, b"", _)) => {
                    self.server.untouched = false;
                    self.pass(Owed::Bind(None))
                }
                // A whole one can be said again.
                Found::Yes(_) if !complete && header.frame_bytes as usize <= replay::BYTES => Verdict::Hold,
                Found::Yes((portal, name, rest)) => self.bind(header, portal, name, rest, out),
                Found::More => Verdict::Hold,
                Found::Malformed => Verdict::Stop(Heard::Fault(ClientFault::Malformed)),
            },
            // Describe and Close are a name and nothing else: judged when they are whole.
            _ if !complete => Verdict::Hold,
            tag => match frontend::target(body) {
                Found::Yes((b'P', _)) if tag == tag::DESCRIBE => self.describe_portal(),
                Found::Yes((b'S', name)) if !name.is_empty() => self.target(header, name, out),
                Found::Yes(_) => self.pass(plain(tag)),
                Found::More => Verdict::Hold,
                Found::Malformed => Verdict::Stop(Heard::Fault(ClientFault::Malformed)),
            },
        }
    }

    /// Parse of a named statement: sent under the shared name, or answered here if the server has it.
    fn parse(&mut self, header: Header, name: &[u8], rest: &[u8], out: &mut impl Output) -> Verdict {
        let dropped = Verdict::Dropped(header.frame_bytes as usize);
        if self.server.skipping {
            return dropped;
        }
        let names = self.request.statements.get_or_insert_default();
        if names.find(name).is_some() {
            return Verdict::Stop(Heard::Fault(ClientFault::StatementExists(name.to_vec())));
        }
        let Some(statement) = names.parse(name, rest, self.rules.registry) else {
            return Verdict::Stop(Heard::Fault(ClientFault::StatementTooLarge));
        };
        self.rules.parsed += 1;
        self.server.status = None;
        self.flush(out);
        // In a failed transaction the server must say so itself; it refuses the Parse and keeps what it has.
        if self.server.statements.touch_shape(statement, self.rules.registry.shape(statement)) {
            self.say(Owed::SayParseComplete, encode::parse_complete, out);
        } else {
            self.prepare(statement, Owed::Parse(Some(statement)), out);
        }
        dropped
    }

    /// Sends a Parse under the shared name, making room first.
    fn prepare(&mut self, statement: StatementId, owed: Owed, out: &mut impl Output) {
        // A Close on its way may be skipped, if something before it fails.
        let closing = self.server.owes.is_closing(statement);
        if self.server.statements.take_unusable(statement) || closing {
            self.close_own(statement, out);
        }
        while let Some(victim) = self.server.statements.make_room(self.rules.statements_max) {
            self.close_own(victim, out);
        }
        if let Some(rest) = self.rules.registry.rest(statement) {
            let watch = &mut self.server.watch;
            send(watch, out, |bytes| parse_message(bytes, &server_name(statement), rest));
        }
        self.rules.parsed_on_server += 1;
        self.server.statements.insert_shape(statement, self.rules.registry.shape(statement));
        self.server.owes.push(owed);
    }

    fn close_own(&mut self, statement: StatementId, out: &mut impl Output) {
        let name = server_name(statement);
        send(&mut self.server.watch, out, |bytes| encode::close(bytes, b'S', &name));
        self.server.owes.push(Owed::OwnClose(statement));
    }

    fn bind(
        &mut self,
        header: Header,
        portal: &[u8],
        name: &[u8],
        rest: usize,
        out: &mut impl Output,
    ) -> Verdict {
        let taken = frame::HEADER_BYTES + rest;
        if self.server.skipping {
            return Verdict::Pass;
        }
        let Some(statement) = self.find(name) else {
            return Verdict::Stop(Heard::Fault(ClientFault::NoSuchStatement));
        };
        match self.reads_by(name, statement, header) {
            Reads::ByThis => {}
            Reads::ByAnOlder => return self.refuse(header, portal, name, rest, out),
            Reads::Unknown => return Verdict::Await,
        }
        self.rules.bound += 1;
        self.flush(out);
        let owed = match self.ensure_prepared(statement, out) {
            true => Owed::WatchedBind(statement),
            false => Owed::Bind(Some(statement)),
        };
        self.server.untouched = false;
        let server = server_name(statement);
        send(&mut self.server.watch, out, |bytes| {
            rename::bind(bytes, header, portal, name.len(), &server);
        });
        self.ask(owed);
        Verdict::Dropped(taken)
    }

    /// By which description the client will read the rows of a Bind. PostgreSQL would refuse to bind for a client whose
    /// description is old; the statement has been prepared anew for others, so it has to be done for PostgreSQL.
    fn reads_by(&mut self, name: &[u8], statement: StatementId, header: Header) -> Reads {
        let shape = self.rules.registry.shape(statement);
        let Some(names) = &mut self.request.statements else { return Reads::ByThis };
        if names.is_current(name, shape) {
            return Reads::ByThis;
        }
        match self.input.get(self.at + header.frame_bytes as usize) {
            Some(&tag::DESCRIBE) => {
                names.described(name, shape);
                Reads::ByThis
            }
            None if header.frame_bytes as usize <= replay::BYTES => Reads::Unknown,
            _ => Reads::ByAnOlder,
        }
    }

    /// Has the server refuse a Bind, so that what follows in the segment is skipped; the reply's words are ours.
    fn refuse(
        &mut self,
        header: Header,
        portal: &[u8],
        name: &[u8],
        rest: usize,
        out: &mut impl Output,
    ) -> Verdict {
        self.flush(out);
        self.server.untouched = false;
        send(&mut self.server.watch, out, |bytes| {
            rename::bind(bytes, header, portal, name.len(), NO_STATEMENT);
        });
        self.ask(Owed::RefusedBind);
        Verdict::Dropped(frame::HEADER_BYTES + rest)
    }

    /// Describe or Close of a named statement.
    fn target(&mut self, header: Header, name: &[u8], out: &mut impl Output) -> Verdict {
        let dropped = Verdict::Dropped(header.frame_bytes as usize);
        if self.server.skipping {
            return dropped;
        }
        if header.tag == tag::CLOSE {
            let known = self.request.statements.as_mut().is_some_and(|names| names.close(name));
            self.flush(out);
            self.server.status = None;
            if known {
                self.say(Owed::SayCloseComplete, encode::close_complete, out);
            } else {
                // Closing what does not exist is no error; the server says so best.
                send(&mut self.server.watch, out, |bytes| {
                    rename::target(bytes, tag::CLOSE, b'S', NO_STATEMENT);
                });
                self.server.owes.push(Owed::Close);
            }
            return dropped;
        }
        let Some(statement) = self.find(name) else {
            return Verdict::Stop(Heard::Fault(ClientFault::NoSuchStatement));
        };
        self.flush(out);
        self.note_describe();
        let shape = self.rules.registry.shape(statement);
        if let Some(names) = &mut self.request.statements {
            names.described(name, shape);
        }
        let owed = match self.ensure_prepared(statement, out) {
            true => Owed::WatchedDescribe(statement),
            false => Owed::Describe(Some(statement)),
        };
        let server = server_name(statement);
        send(&mut self.server.watch, out, |bytes| rename::target(bytes, tag::DESCRIBE, b'S', &server));
        self.ask(owed);
        dropped
    }

    fn describe_portal(&mut self) -> Verdict {
        self.note_describe();
        self.pass(Owed::Describe(None))
    }

    fn note_describe(&mut self) {
        self.server.watch.describe();
        if let Some(names) = &mut self.request.statements {
            names.habit.describes = true;
        }
    }

    fn find(&self, name: &[u8]) -> Option<StatementId> {
        self.request.statements.as_ref().and_then(|names| names.find(name))
    }

    /// True if the server has had it for longer, and this is the message of the segment by which it will be seen
    /// whether its plan still holds: from here on the segment is kept.
    fn ensure_prepared(&mut self, statement: StatementId, out: &mut impl Output) -> bool {
        if !self.server.statements.touch_shape(statement, self.rules.registry.shape(statement)) {
            self.prepare(statement, Owed::OwnParse(statement), out);
            return false;
        }
        let server = &mut *self.server;
        let in_block = server.in_block && server.owes.is_empty();
        if !server.untouched || server.watch.records() || in_block || server.skipping {
            return false;
        }
        server.watch.begin(statement, server.statements.is_verified(statement));
        true
    }

    /// Says a reply of Weir's own: now if nothing is owed before it, else when the stream gets there.
    fn say(&mut self, owed: Owed, message: fn(&mut Vec<u8>), out: &mut impl Output) {
        if self.server.owes.is_empty() && self.server.remain == 0 {
            out.to_client(message);
            if let Some(names) = &mut self.request.statements {
                names.confirm(self.rules.registry);
            }
        } else {
            self.server.owes.push(owed);
        }
    }
}

/// Sends a message of Weir's own, and keeps it where its request is kept.
fn send(watch: &mut Watch, out: &mut impl Output, write: impl FnOnce(&mut Vec<u8>)) {
    out.to_server(|bytes| {
        let start = bytes.len();
        write(bytes);
        watch.record(&bytes[start..]);
    });
}
