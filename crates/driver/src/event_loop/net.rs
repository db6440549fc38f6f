//! What both backends work on: the connections, the acceptor, and the events that the shard is to be notified of.
//!
//! Everything but the shard and the kernel objects, so that a backend can work while the shard lends its written bytes.

use std::collections::VecDeque;

use shard::{ConnId, Event};

use crate::acceptor::Acceptor;
use crate::conn_table::{ConnTable, Reading, State};
use crate::shard_context::ShardContext;

/// One event loop's share of the process, its connections and its pending events.
pub(crate) struct Net<K> {
    pub(crate) context: ShardContext,
    pub(crate) acceptor: Acceptor,
    pub(crate) conns: ConnTable<K>,
    /// Connections with input to deliver that the kernel need not be asked for.
    pub(crate) ready: VecDeque<ConnId>,
    /// Events for the shard, deferred until the current one is handled.
    pub(crate) pending: VecDeque<Event<'static>>,
}

impl<K: Default> Net<K> {
    /// No connections yet.
    pub(crate) fn new(mut context: ShardContext) -> Net<K> {
        let acceptor = context.acceptor();
        Net {
            context,
            acceptor,
            conns: ConnTable::default(),
            ready: VecDeque::new(),
            pending: VecDeque::new(),
        }
    }

    /// The socket of a connection is closed; its id is free once the shard has been notified.
    pub(crate) fn closed(&mut self, conn: ConnId) {
        self.conns.slot(conn).state = State::Closed;
        self.acceptor.descriptor_freed();
        self.pending.push_back(Event::Closed { conn });
    }

    /// So much output waits that its source must stop.
    pub(crate) fn send_buffer_full(&mut self, conn: ConnId) {
        let slot = self.conns.slot(conn);
        if !std::mem::replace(&mut slot.is_send_full, true) {
            slot.owes_send_empty = true;
            self.pending.push_back(Event::SendBufferFull { conn });
        }
    }

    /// The peer's end of file was seen while the shard does not read: it is notified once in each pause.
    pub(crate) fn half_closed(&mut self, conn: ConnId) {
        let slot = self.conns.slot(conn);
        if slot.reading == Reading::Paused {
            slot.reading = Reading::PausedAtEnd;
            self.pending.push_back(Event::HalfClosed { conn });
        }
    }

    /// The pause is over: a notification of it that is still pending is dropped.
    pub(crate) fn resumed(&mut self, conn: ConnId) {
        if std::mem::take(&mut self.conns.slot(conn).reading) == Reading::PausedAtEnd {
            let is_that = |event: &Event<'_>| matches!(event, Event::HalfClosed { conn: of } if *of == conn);
            self.pending.retain(|event| !is_that(event));
        }
    }

    /// Drops the pending events of a connection that leaves: its id may belong to another one before they would be handled.
    pub(crate) fn forget_pending(&mut self, conn: ConnId) {
        self.pending.retain(|event| needs_open(event) != Some(conn));
    }

    /// The next event for the shard, if it still concerns a connection that the shard knows.
    pub(crate) fn next_pending(&mut self) -> Option<Event<'static>> {
        while let Some(event) = self.pending.pop_front() {
            if let Event::Closed { conn } = event {
                self.conns.slot(conn).state = State::Free;
            } else if needs_open(&event).is_some_and(|conn| self.conns.open(conn).is_none()) {
                continue;
            }
            return Some(event);
        }
        None
    }
}

/// The connection that must still be open when this event is handled.
fn needs_open(event: &Event<'_>) -> Option<ConnId> {
    match event {
        Event::SendBufferFull { conn }
        | Event::SendBufferEmpty { conn }
        | Event::WriteFailed { conn }
        | Event::HalfClosed { conn }
        | Event::Connected { conn, .. } => Some(*conn),
        _ => None,
    }
}
