//! One thread's event loop: waits for the kernel, notifies the shard, executes what the shard requests.
//!
//! Owns the shard, the clock, the mailbox, the acceptor and the table of connections; the kernel objects are a
//! [`Backend`]'s. The loop is generic over both, so nothing on the path of a query is dispatched at run time.

mod backend;
mod dial;
mod mail;
mod net;

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use settings::Config;
use shard::Peer;
use shard::{Action, ConnId, Event, Export, Now};

use crate::acceptor::Arrival;
use crate::clock::Clock;
use crate::conn_move::{Destination, ExportState};
use crate::conn_table::State;
use crate::core::{Core, Held};
use crate::ids::ListenerId;
use crate::mailbox::MailboxMessage;
use crate::shard_context::ShardContext;

pub(crate) use backend::{Adopted, Backend, SendRange, Wait};
pub(crate) use net::Net;

/// Events taken from the kernel at once, where it does not decide that itself.
pub(crate) const BATCH: usize = 256;

/// The loop.
pub(crate) struct EventLoop<C, B: Backend> {
    pub(crate) core: C,
    pub(crate) net: Net<B::Conn>,
    pub(crate) backend: B,
    pub(crate) scratch: B::Scratch,
    /// Read once per batch of events.
    pub(crate) now: Now,
    clock: Clock,
    messages: VecDeque<MailboxMessage>,
    /// Accepting has paused for another process; that is reported once the kernel was entered.
    accepting_pauses: bool,
    stopped: bool,
}

impl<C: Core, B: Backend> EventLoop<C, B> {
    /// A loop that already listens.
    pub(crate) fn new(core: C, context: ShardContext, backend: B, scratch: B::Scratch) -> io::Result<Self> {
        let mut event_loop = EventLoop {
            core,
            net: Net::new(context),
            backend,
            scratch,
            now: Now::default(),
            clock: Clock::new(),
            messages: VecDeque::new(),
            accepting_pauses: false,
            stopped: false,
        };
        event_loop.backend.watch_mailbox(event_loop.net.context.mailbox().wakeup())?;
        for listener in event_loop.net.acceptor.to_watch() {
            event_loop.watch_listener(listener);
        }
        Ok(event_loop)
    }

    /// Runs the loop until it is stopped.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(BATCH);
        self.begin_batch();
        self.core.start(self.now);
        self.run_actions();
        while !self.stopped {
            let wait = self.wait();
            self.backend.wait(&mut self.net, wait, &mut events)?;
            let second_passed = self.begin_batch();
            if std::mem::take(&mut self.accepting_pauses) {
                self.net.context.accepting_paused();
            }
            for event in &events {
                B::dispatch(&mut self, *event);
            }
            self.read_ready();
            if self.core.deadline().is_some_and(|due| due <= self.now.mono_us) {
                self.deliver(Event::Tick);
            }
            for listener in self.net.acceptor.end_turn(self.now) {
                self.watch_listener(listener);
            }
            self.backend.end_batch(&mut self.net, second_passed);
        }
        let held = self.held();
        self.core.stopped(held);
        Ok(())
    }

    /// Reads the clock. True about once a second, when the shard is notified of how busy its thread was.
    fn begin_batch(&mut self) -> bool {
        let (now, busy) = self.clock.read();
        self.now = now;
        if let Some(percent) = busy {
            let limit = self.core.config().global.spread_busy_percent;
            self.net.context.share_accepting(percent, limit);
            self.deliver(Event::Busy { percent });
        }
        busy.is_some()
    }

    fn wait(&self) -> Wait {
        if self.accepting_pauses || !self.net.ready.is_empty() {
            return Wait::No;
        }
        let mut due = earlier(self.core.deadline(), self.net.acceptor.deadline_us());
        if self.backend.needs_upkeep() {
            due = earlier(due, Some(self.clock.next_look_us()));
        }
        due.map_or(Wait::Forever, |due| Wait::AtMost(due.saturating_sub(self.now.mono_us)))
    }

    /// Gives each connection that has input without the kernel one turn.
    fn read_ready(&mut self) {
        for _ in 0..self.net.ready.len() {
            let Some(conn) = self.net.ready.pop_front() else { return };
            B::read_on(self, conn);
        }
    }

    /// Notifies the shard, and executes what it requests.
    pub(crate) fn deliver(&mut self, event: Event<'static>) {
        self.core.handle(event, self.now);
        self.run_actions();
    }

    /// Delivers bytes that lie in the loop's own memory.
    pub(crate) fn deliver_bytes(&mut self, conn: ConnId, bytes: &[u8], unsent: bool) {
        self.core.handle(Event::Received { conn, bytes, unsent }, self.now);
        run_actions(&mut self.core, &mut self.net, &mut self.backend, bytes.into());
        self.deliver_pending();
    }

    /// Executes what the shard requests after an event without bytes, and notifies it of what came of that.
    fn run_actions(&mut self) {
        run_actions(&mut self.core, &mut self.net, &mut self.backend, no_bytes::<B>());
        self.deliver_pending();
    }

    /// Notifies the shard of what its actions have led to.
    pub(crate) fn deliver_pending(&mut self) {
        while let Some(event) = self.net.next_pending() {
            self.core.handle(event, self.now);
            run_actions(&mut self.core, &mut self.net, &mut self.backend, no_bytes::<B>());
        }
    }

    /// The outcome of a socket that was connecting is known.
    pub(crate) fn connect_finished(&mut self, conn: ConnId) {
        dial::finished(&mut self.backend, &mut self.net, conn, self.core.config());
        self.deliver_pending();
    }

    /// A listening socket has connections, or had: accepts some.
    pub(crate) fn accept(&mut self, listener: ListenerId) {
        for _ in 0..self.net.acceptor.batch_size(listener) {
            match self.net.acceptor.accept(listener, self.now) {
                Arrival::Client(socket, peer, is_unix) => self.accepted(socket, peer, is_unix),
                Arrival::Retry => {}
                Arrival::NonePending => break,
                Arrival::Stop => return self.accepted_some(listener, false),
                Arrival::Exhausted => {
                    self.accepted_some(listener, false);
                    return self.deliver(Event::FilesRanOut);
                }
            }
        }
        self.accepted_some(listener, self.net.acceptor.is_watched());
    }

    fn accepted_some(&mut self, listener: ListenerId, goes_on: bool) {
        if let Some(socket) = self.net.acceptor.socket(listener) {
            self.backend.accepted_some(listener, socket, goes_on);
        }
    }

    pub(crate) fn accepted(&mut self, socket: OwnedFd, peer: Peer, is_unix: bool) {
        let conn = self.core.allocate_id();
        let generation = self.net.conns.renew(conn, State::Open).generation;
        self.backend.accepted(&mut self.net, conn, socket, is_unix);
        self.deliver(Event::Accepted { conn, peer });
        if self.net.conns.is_current(conn, generation) {
            B::after_accepted(self, conn, generation);
        }
    }

    fn watch_listener(&mut self, listener: ListenerId) {
        if let Some(socket) = self.net.acceptor.socket(listener) {
            self.backend.watch_listener(listener, socket);
        }
    }

    fn unwatch_listener(&mut self, listener: ListenerId) {
        if let Some(socket) = self.net.acceptor.socket(listener) {
            self.backend.unwatch_listener(listener, socket);
        }
    }

    /// What is left of connections.
    fn held(&self) -> Held {
        let backend = self.backend.held(&self.net);
        let in_table = self.net.conns.iter().filter(|slot| slot.state != State::Free).count();
        Held {
            connections: in_table + backend.connections,
            events: self.net.pending.len() + backend.events,
            ..backend
        }
    }
}

fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn no_bytes<'a, B: Backend>() -> B::Received<'a> {
    B::Received::from(&[])
}

/// Takes and executes all actions. The received bytes are those of the event that has led to them.
pub(crate) fn run_actions<C: Core, B: Backend>(
    core: &mut C,
    net: &mut Net<B::Conn>,
    backend: &mut B,
    received: B::Received<'_>,
) {
    while let Some(action) = core.poll() {
        match action {
            Action::Send { to, source, start, end } => {
                backend.send(net, to, SendRange { source, start, end }, received, core.written());
            }
            other => {
                backend.flush(net, received, core.written());
                execute(net, backend, other, core.config());
            }
        }
    }
    backend.flush(net, received, core.written());
}

/// Executes any other action than a send.
fn execute<B: Backend>(net: &mut Net<B::Conn>, backend: &mut B, action: Action, config: &Config) {
    match action {
        Action::Connect { conn, target } => dial::start(backend, net, conn, &target, config),
        Action::Close { conn } => backend.close(net, conn),
        Action::Pause { conn } => backend.pause(net, conn),
        Action::Resume { conn } => backend.resume(net, conn),
        Action::LoginComplete { conn } => backend.settle(net, conn),
        Action::Move { conn, to, client } => backend.leave(net, conn, Destination::Shard(to, client)),
        Action::Export(what) => match *what {
            Export::Socket { conn, state, link, is_server } => {
                backend.leave(net, conn, Destination::Process(ExportState { state, link, is_server }));
            }
            other => net.context.export(other),
        },
        other => net.context.act(other, &net.conns, config),
    }
}
