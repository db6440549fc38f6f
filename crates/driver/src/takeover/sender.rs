//! The old process's side: a thread that sends everything to the process that takes over.
//!
//! Until the successor is ready, nothing is changed for good: if it goes away, the acceptors are opened again. After that
//! its death means that whatever it has not been sent yet is served here on; what is on its way to this thread goes back
//! to its shard. Never decides when a connection may leave.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use messages::{Command, ShardId};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use shard::takeover::fields::{Fields, FieldsOut};
use shard::{Export, Import};
use telemetry::{Level, Record};

use super::frame::{self, Frame};
use super::{Item, Takeover, TakeoverProgress, field, from_new, from_old};
use crate::conn_move::{ExportState, ExportedConn, Imported, ImportedConn};
use crate::core::Log;
use crate::listen::{Kind, Listener, Listeners};
use crate::mailbox::{MailboxMessage, Mailboxes};
use crate::process_registry::ProcessRegistry;

/// What the thread works with.
pub(crate) struct TakeoverSender {
    pub(crate) channel: OwnedFd,
    pub(crate) takeover: Arc<Takeover>,
    pub(crate) registry: Arc<ProcessRegistry>,
    pub(crate) mailboxes: Mailboxes,
    pub(crate) listeners: Listeners,
    /// The panel's listening socket: another handle of it, closed as soon as it is sent.
    pub(crate) panel: Option<OwnedFd>,
    /// Sent to the successor.
    pub(crate) generation: u64,
    pub(crate) next_id: u64,
    pub(crate) note: String,
    /// `suspend_timeout`: how long the successor may take before it is ready.
    pub(crate) patience: Duration,
    pub(crate) log: Log,
    pub(crate) news: Box<dyn Fn(TakeoverProgress) + Send>,
}

impl TakeoverSender {
    /// Starts to hand over.
    ///
    /// # Errors
    /// AlreadyExists if that is under way; else the system's.
    pub(crate) fn start(self) -> io::Result<()> {
        if self.takeover.has_sender() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let (sender, items) = channel();
        self.takeover.set_sender(Some(sender.clone()));
        let channel = self.channel.try_clone()?;
        let listen = move || {
            while let Ok(frame) = frame::take(&channel) {
                if sender.send(Item::Heard(frame)).is_err() {
                    return;
                }
            }
            let _ = sender.send(Item::Hangup);
        };
        thread::Builder::new().name("weir-successor".to_owned()).spawn(listen)?;
        thread::Builder::new().name("weir-handover".to_owned()).spawn(move || self.run(&items)).map(drop)
    }

    fn run(mut self, items: &Receiver<Item>) {
        let mut early = VecDeque::new();
        let prepared = self.prepare(items, &mut early);
        if let Err(why) = prepared {
            self.takeover.set_sender(None);
            self.resume_accepting();
            return (self.news)(TakeoverProgress::Failed(why.to_string()));
        }
        (self.news)(TakeoverProgress::Begun);
        let mut context = SendContext::new(&self);
        match context.send_everything(early.into_iter().chain(items.iter())) {
            Ok(()) => (self.news)(TakeoverProgress::Over),
            Err(why) => {
                context.return_unsent(items.iter());
                self.takeover.set_sender(None);
                self.resume_accepting();
                let is_open = self.listeners.any_listens();
                (self.news)(if is_open {
                    TakeoverProgress::Failed(why.to_string())
                } else {
                    TakeoverProgress::Orphaned
                });
            }
        }
    }

    /// Clients come in here again.
    fn resume_accepting(&self) {
        self.listeners.leave_to_successor(false);
        self.tell_all(|| MailboxMessage::ResumeAccepting);
    }

    fn tell_all(&self, message: impl Fn() -> MailboxMessage) {
        self.mailboxes.post_all(message);
    }

    fn prepare(&mut self, items: &Receiver<Item>, early: &mut VecDeque<Item>) -> io::Result<()> {
        let until = Instant::now() + self.patience;
        // What is sent so far is short: a process that has no room for it does not read.
        set_socket_timeout(&self.channel, Timeout::Send, Some(self.patience))?;
        self.introduce()?;
        self.await_receiver(items, early, until)?;
        Ok(set_socket_timeout(&self.channel, Timeout::Send, None)?)
    }

    fn introduce(&mut self) -> io::Result<()> {
        let mut out = FieldsOut::new();
        out.text(field::VERSION, env!("CARGO_PKG_VERSION"));
        out.number(field::GENERATION, self.generation);
        out.number(field::NEXT_ID, self.next_id);
        out.text(field::NOTE, &self.note);
        frame::put(&self.channel, from_old::HELLO, &out.into_bytes(), &[])?;
        for listener in &self.listeners.all {
            let payload = listener_fields(listener);
            frame::put(&self.channel, from_old::LISTENER, &payload, &[listener.socket.as_fd()])?;
        }
        // Closed here at the end: a process that does not take it must be able to bind the port when the panel has left it.
        if let Some(panel) = self.panel.take() {
            let mut out = FieldsOut::new();
            out.number(field::PANEL, 1);
            frame::put(&self.channel, from_old::LISTENER, &out.into_bytes(), &[panel.as_fd()])?;
        }
        frame::put(&self.channel, from_old::LISTENERS_END, &[], &[])
    }

    /// The successor requests accepting to pause, starts its threads, and is ready.
    fn await_receiver(
        &self,
        items: &Receiver<Item>,
        early: &mut VecDeque<Item>,
        until: Instant,
    ) -> io::Result<()> {
        let mut awake = self.mailboxes.count();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let item = items.recv_timeout(left).map_err(|_| io::ErrorKind::TimedOut)?;
            match item {
                Item::Heard(Frame { kind: from_new::PAUSE_ACCEPTING, .. }) => {
                    self.listeners.leave_to_successor(true);
                    self.tell_all(|| MailboxMessage::PauseAccepting);
                }
                Item::AcceptingPaused => {
                    awake = awake.saturating_sub(1);
                    if awake == 0 {
                        frame::put(&self.channel, from_old::ACCEPTING_PAUSED, &[], &[])?;
                    }
                }
                Item::Heard(Frame { kind: from_new::READY, .. }) if awake == 0 => return Ok(()),
                Item::Heard(_) | Item::Hangup => return Err(io::ErrorKind::UnexpectedEof.into()),
                other => early.push_back(other),
            }
        }
    }

    fn cancel(&self, key: Vec<u8>) {
        self.mailboxes.post(ShardId(0), MailboxMessage::Command(Command::Cancel { key: key.into() }));
    }

    /// What cannot move waits here, and what is paused is the control thread's to know.
    fn resume(&self, payload: &[u8]) {
        let fields = Fields::read(payload);
        let database = fields.as_ref().and_then(|fields| fields.text(field::DATABASE)).map(str::to_owned);
        (self.news)(TakeoverProgress::Resumed { database });
    }
}

/// What has gone and what is awaited.
struct SendContext<'a> {
    sender: &'a TakeoverSender,
    round: u32,
    /// Sockets that each shard said had left when it was empty, in this round.
    reported_sockets: BTreeMap<u16, u64>,
    /// Sockets that have come here.
    gone: u64,
    /// That number when every shard said for the first time that it was empty.
    gone_when_empty: Option<u64>,
    /// Clients whose server has not come yet, and the other way round.
    halves: BTreeMap<(u16, u64), Box<ExportedConn>>,
    /// Those that could not be sent.
    refused: Vec<(ShardId, Batch)>,
}

/// What travels together: a client, a server, or both.
#[derive(Default)]
struct Batch {
    client: Option<Box<ImportedConn>>,
    server: Option<Box<ImportedConn>>,
}

impl<'a> SendContext<'a> {
    fn new(sender: &'a TakeoverSender) -> SendContext<'a> {
        SendContext {
            sender,
            round: 1,
            reported_sockets: BTreeMap::new(),
            gone: 0,
            gone_when_empty: None,
            halves: BTreeMap::new(),
            refused: Vec::new(),
        }
    }

    fn send_everything(&mut self, items: impl Iterator<Item = Item>) -> io::Result<()> {
        self.say_clusters()?;
        self.ask();
        for item in items {
            if self.take(item)? {
                break;
            }
        }
        frame::put(&self.sender.channel, from_old::BYE, &[], &[])
    }

    /// Has every shard keep what it has, and gives back what had left it and was not sent.
    fn return_unsent(&mut self, items: impl Iterator<Item = Item>) {
        self.sender.tell_all(|| MailboxMessage::Command(Command::AbortExport));
        // In the order of a mailbox, a shard keeps before it gets anything back, so that nothing leaves twice.
        for (shard, batch) in std::mem::take(&mut self.refused) {
            self.return_to_shard(shard, batch);
        }
        self.reported_sockets.clear();
        for item in items {
            match item {
                Item::FromShard(shard, Export::Kept { sockets }) => {
                    self.reported_sockets.insert(shard.0, sockets);
                }
                Item::ExportedConn(shard, exported) => {
                    self.gone += 1;
                    if let Some(batch) = self.whole(shard, exported) {
                        self.return_to_shard(shard, batch);
                    }
                }
                _ => {}
            }
            if self.all_told() {
                return;
            }
        }
    }

    fn return_to_shard(&self, shard: ShardId, batch: Batch) {
        let Batch { client, server } = batch;
        let mailboxes = &self.sender.mailboxes;
        // It gave up its permit when it left, and must not use that of a server that a predecessor still has.
        if let Some(server) = &server {
            let opened = Import::ServerOpened { state: server.state.clone() };
            mailboxes.post(shard, MailboxMessage::Import(Imported::Message(opened)));
        }
        mailboxes.post(shard, MailboxMessage::Import(Imported::Sockets { client, server }));
    }

    /// Asks every shard whether connections are left.
    fn ask(&self) {
        let round = self.round;
        self.sender.tell_all(|| MailboxMessage::Command(Command::Export { round }));
    }

    /// True if that was the last.
    fn take(&mut self, item: Item) -> io::Result<bool> {
        match item {
            Item::FromShard(shard, Export::Pool { state }) => self.say(from_old::POOL, shard, &state)?,
            Item::FromShard(shard, Export::ServerOpened { state }) => {
                self.say(from_old::SERVER_OPENED, shard, &state)?;
            }
            Item::FromShard(shard, Export::ServerClosed { state }) => {
                self.say(from_old::SERVER_CLOSED, shard, &state)?;
            }
            Item::FromShard(shard, Export::Empty { round, sockets }) => {
                if round == self.round {
                    self.reported_sockets.insert(shard.0, sockets);
                }
            }
            Item::ExportedConn(shard, exported) => {
                self.gone += 1;
                self.send(shard, exported)?;
            }
            Item::Heard(Frame { kind: from_new::CANCEL, payload, .. }) => self.sender.cancel(payload),
            Item::Heard(Frame { kind: from_new::RESUME, payload, .. }) => self.sender.resume(&payload),
            Item::PredecessorOver => {
                self.gone_when_empty = None;
                self.next_round();
            }
            Item::Hangup => return Err(io::ErrorKind::UnexpectedEof.into()),
            Item::FromShard(_, Export::Socket { .. } | Export::Kept { .. })
            | Item::AcceptingPaused
            | Item::Heard(_) => {}
        }
        Ok(self.is_over())
    }

    /// Empty means empty only if every shard says so once more when all have said it: a client may have been on its way
    /// from one to another.
    fn is_over(&mut self) -> bool {
        if !self.all_told() || self.sender.takeover.has_predecessor() {
            return false;
        }
        if self.gone_when_empty == Some(self.gone) {
            return true;
        }
        self.gone_when_empty = Some(self.gone);
        self.next_round();
        false
    }

    /// Every shard has said how many sockets have left it, and as many have come here.
    fn all_told(&self) -> bool {
        self.reported_sockets.len() == self.sender.mailboxes.count()
            && self.reported_sockets.values().sum::<u64>() == self.gone
    }

    fn next_round(&mut self) {
        self.reported_sockets.clear();
        self.round += 1;
        self.ask();
    }

    /// Before any pool: clients of the other process may need it at once.
    fn say_clusters(&self) -> io::Result<()> {
        for handed in self.sender.registry.known_clusters() {
            let mut out = FieldsOut::new();
            out.text(field::DATABASE, &handed.database);
            out.text(field::HOSTS, &handed.hosts);
            out.number(field::SYSTEM, handed.system);
            out.number(field::TIMELINE, handed.timeline.into());
            frame::put(&self.sender.channel, from_old::CLUSTER, &out.into_bytes(), &[])?;
        }
        Ok(())
    }

    fn say(&self, kind: u8, shard: ShardId, state: &[u8]) -> io::Result<()> {
        let mut out = FieldsOut::new();
        out.number(field::SHARD, shard.0.into());
        out.bytes(field::STATE, state);
        frame::put(&self.sender.channel, kind, &out.into_bytes(), &[])
    }

    /// A socket goes at once, or when its other half is there.
    fn send(&mut self, shard: ShardId, exported: Box<ExportedConn>) -> io::Result<()> {
        let Some(batch) = self.whole(shard, exported) else { return Ok(()) };
        let sent = self.put(shard, &batch);
        if sent.is_err() {
            self.refused.push((shard, batch));
        }
        sent
    }

    /// What the socket belongs to, once that is all here; None too if a part of it was lost on the way.
    fn whole(&mut self, shard: ShardId, exported: Box<ExportedConn>) -> Option<Batch> {
        let mut batch = Batch::default();
        let mut is_whole = true;
        if let Some(link) = exported.export_state.link {
            let Some(other) = self.halves.remove(&(shard.0, link)) else {
                self.halves.insert((shard.0, link), exported);
                return None;
            };
            is_whole = batch.add(*other);
        }
        if !batch.add(*exported) || !is_whole {
            // Half a pair is no use to anybody.
            let text = "a connection was lost while it was handed over";
            (self.sender.log)(Record::new(Level::Warning, text));
            return None;
        }
        Some(batch)
    }

    fn put(&self, shard: ShardId, batch: &Batch) -> io::Result<()> {
        let mut out = FieldsOut::new();
        let mut sockets = Vec::new();
        out.number(field::SHARD, shard.0.into());
        for (one, [state, unsent, unread]) in [(&batch.client, field::CLIENT), (&batch.server, field::SERVER)]
        {
            let Some(one) = one else { continue };
            out.bytes(state, &one.state);
            out.bytes(unsent, &one.unsent);
            out.bytes(unread, &one.unread);
            sockets.push(one.socket.as_fd());
        }
        frame::put(&self.sender.channel, from_old::SOCKETS, &out.into_bytes(), &sockets)
    }
}

impl Batch {
    /// False if the socket was lost on the way.
    fn add(&mut self, exported: ExportedConn) -> bool {
        let ExportedConn { socket, export_state: ExportState { state, is_server, .. }, unsent, unread } =
            exported;
        let imported = socket.map(|socket| Box::new(ImportedConn { socket, state, unsent, unread }));
        let place = if is_server { &mut self.server } else { &mut self.client };
        *place = imported;
        place.is_some()
    }
}

fn listener_fields(listener: &Listener) -> Vec<u8> {
    let mut out = FieldsOut::new();
    if let Kind::Unix { port } = listener.kind {
        out.number(field::PORT, port.into());
    }
    if listener.is_passed() {
        out.number(field::PASSED, 1);
    }
    if let Some((path, inode)) = listener.file() {
        out.text(field::PATH, &path.to_string_lossy());
        out.number(field::INODE, inode);
    }
    out.into_bytes()
}
