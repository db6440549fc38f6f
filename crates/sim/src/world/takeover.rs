//! One process takes over from another: the line between the two, as `driver/succession` has it.
//!
//! Sockets leave the old shards one by one, wait for their other half, go over the line, and are seated in the new ones.
//! The new process may die at any moment: what was on the line or there is lost, the rest goes back to where it was.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use messages::Command;
use shard::{ConnId, Event, Export, Import};

use super::faults::STOP_US;
use super::process::Process;
use super::sockets::Socket;
use super::{ConnRef, Era, REST_US, What, World};
use crate::model::cluster::Attempt;
use crate::pooler::Pooler;

/// From here on numbers stand for the threads that hand over, in place of shards.
const GIVERS: usize = 1_000_000;

/// How long a takeover excuses more servers than the limits allow.
const UNTOLD_US: u64 = 5 * crate::clock::SECOND_US;

/// How long the system tries to connect where no answer comes.
const CONNECTS_US: u64 = 127 * crate::clock::SECOND_US;

/// Something on its way from an old shard to the thread that hands over.
#[derive(Debug)]
pub(super) enum Item {
    Word(Export),
    ExportedConn(Box<ExportedConn>),
}

/// A socket that leaves.
#[derive(Debug)]
pub(super) struct ExportedConn {
    socket: Socket,
    state: Vec<u8>,
    link: Option<u64>,
    is_server: bool,
}

/// Something on its way to a shard.
#[derive(Debug)]
pub(super) enum ImportedConn {
    Word(Import),
    Sockets { client: Option<(Socket, Vec<u8>)>, server: Option<(Socket, Vec<u8>)> },
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Giving,
    /// The new process has died.
    TakingBack,
    Over,
}

/// One takeover.
pub(super) struct Takeover {
    from: usize,
    to: usize,
    begun_us: u64,
    progress: Progress,
    round: u32,
    /// Sockets that each shard said had left when it was empty, in this round.
    told: BTreeMap<usize, u64>,
    /// Sockets that have come to the thread.
    gone: u64,
    gone_when_empty: Option<u64>,
    halves: BTreeMap<(usize, u64), Box<ExportedConn>>,
    /// Which new shard has a pool's part of an old shard.
    heirs: BTreeMap<(String, String), BTreeMap<usize, usize>>,
}

impl<P: Pooler> World<P> {
    /// Whether a process hands over, or is being handed over to.
    pub(super) fn is_taken_over(&self, process: usize) -> bool {
        let concerns = |takeover: &Takeover| takeover.from == process || takeover.to == process;
        self.takeovers.iter().any(|takeover| takeover.progress != Progress::Over && concerns(takeover))
    }

    /// A process has ended: it takes nothing back any more.
    pub(super) fn end_takeovers_of(&mut self, process: usize) {
        for takeover in self.takeovers.iter_mut().filter(|takeover| takeover.from == process) {
            takeover.progress = Progress::Over;
        }
    }

    /// Whether a takeover began not long ago. A new process opens servers, and says that nothing is left to be paused,
    /// before it has heard of what the old one still has; and what is too much then is closed only when it is idle.
    pub(super) fn has_just_been_taken_over(&self) -> bool {
        let now_us = self.clock.now_us();
        let stood_us = if now_us < self.excused_until_us { STOP_US } else { 0 };
        self.takeovers.iter().any(|takeover| now_us < takeover.begun_us + UNTOLD_US + stood_us)
    }

    /// A new process takes over from the one that accepts; it dies after a while, or not.
    pub(super) fn take_over(&mut self, dies_after_us: Option<u64>) {
        let Some(from) = self.current else { return };
        // At most two are under way: one into a process, and one out of it.
        let under_way = self.takeovers.iter().filter(|takeover| takeover.progress != Progress::Over).count();
        let is_failing = self.takeovers.iter().any(|takeover| takeover.progress == Progress::TakingBack);
        if self.operator.ending.is_some() || under_way > 1 || is_failing || !self.pools {
            return;
        }
        let next_id = self.processes[from].names.next_id();
        let inherited = self.operator.inherited();
        self.processes[from].operator = Some(std::mem::replace(&mut self.operator, inherited));
        let to = self.start_process();
        self.processes[to].names.continue_ids_at(next_id);
        self.say(format_args!("process {to} takes over from {from}"));
        self.tell_inherited_pauses();
        let number = self.takeovers.len();
        self.takeovers.push(Takeover {
            from,
            to,
            begun_us: self.clock.now_us(),
            progress: Progress::Giving,
            round: 1,
            told: BTreeMap::new(),
            gone: 0,
            gone_when_empty: None,
            halves: BTreeMap::new(),
            heirs: BTreeMap::new(),
        });
        self.ask_for_everything(number);
        if let Some(after) = dies_after_us {
            self.clock.after(after, What::SuccessorDies(number));
        }
    }

    fn ask_for_everything(&mut self, number: usize) {
        let round = self.takeovers[number].round;
        self.tell_old(number, &Command::Export { round });
    }

    fn tell_old(&mut self, number: usize, command: &Command) {
        for shard in self.processes[self.takeovers[number].from].shards.clone() {
            let at_us = self.post(shard);
            self.clock.at(at_us, What::Order(shard, command.clone()));
        }
    }

    /// A shard hands something on.
    pub(super) fn hand_on(&mut self, shard: usize, what: Export) {
        let process = self.shards[shard].process;
        let Some(number) = self.takeovers.iter().rposition(|takeover| takeover.from == process) else {
            return self.checker.object("contract", format!("shard {shard} hands on and nobody takes over"));
        };
        let item = match what {
            Export::Socket { conn, state, link, is_server } => {
                let socket = self.shards[shard].sockets.get_mut(conn.0 as usize).and_then(Option::take);
                let Some(socket) = socket.filter(|socket| !socket.closing) else {
                    let text = format!("shard {shard} hands on {conn:?}, which is nothing");
                    return self.checker.object("contract", text);
                };
                if let Some(end) = socket.end {
                    self.set_owner(end, super::Owner::Nobody);
                }
                Item::ExportedConn(Box::new(ExportedConn { socket, state, link, is_server }))
            }
            word => Item::Word(word),
        };
        let at_us = self.post(GIVERS + number);
        self.clock.at(at_us, What::Gave(number, shard, item));
    }

    /// The thread that hands over gets something.
    pub(super) fn gave(&mut self, number: usize, shard: usize, item: Item) {
        match (self.takeovers[number].progress, item) {
            (Progress::Giving, Item::Word(Export::Empty { round, sockets })) => {
                if round == self.takeovers[number].round {
                    self.takeovers[number].told.insert(shard, sockets);
                }
            }
            (Progress::Giving, Item::Word(word)) => {
                let (state, word) = match word {
                    Export::Pool { state } => (state.clone(), Import::Pool { state }),
                    Export::ServerOpened { state } => (state.clone(), Import::ServerOpened { state }),
                    Export::ServerClosed { state } => (state.clone(), Import::ServerClosed { state }),
                    _ => return,
                };
                self.send_over(number, shard, &state, ImportedConn::Word(word));
            }
            (progress, Item::ExportedConn(leaver)) => {
                self.takeovers[number].gone += 1;
                if let Some((state, parcel)) = self.whole(number, shard, *leaver) {
                    match progress {
                        Progress::Giving => self.send_over(number, shard, &state, parcel),
                        _ => self.give_back(shard, &state, parcel),
                    }
                }
            }
            (_, Item::Word(Export::Kept { sockets })) => {
                self.takeovers[number].told.insert(shard, sockets);
            }
            (_, Item::Word(_)) => (),
        }
        self.go_on(number);
    }

    /// Both halves of a pair, or the one socket that belongs to no other.
    fn whole(
        &mut self,
        number: usize,
        shard: usize,
        leaver: ExportedConn,
    ) -> Option<(Vec<u8>, ImportedConn)> {
        let mut parts = vec![leaver];
        if let Some(link) = parts[0].link {
            let Some(other) = self.takeovers[number].halves.remove(&(shard, link)) else {
                self.takeovers[number].halves.insert((shard, link), Box::new(parts.remove(0)));
                return None;
            };
            parts.push(*other);
        }
        let state = parts[0].state.clone();
        let (mut client, mut server) = (None, None);
        for ExportedConn { socket, state, is_server, .. } in parts {
            *(if is_server { &mut server } else { &mut client }) = Some((socket, state));
        }
        Some((state, ImportedConn::Sockets { client, server }))
    }

    fn send_over(&mut self, number: usize, shard: usize, state: &[u8], legacy: ImportedConn) {
        let to = self.heir(number, shard, state);
        let at_us = self.post(to);
        self.clock.at(at_us, What::Inherit(to, legacy));
    }

    fn give_back(&mut self, shard: usize, state: &[u8], parcel: ImportedConn) {
        let has_server = matches!(&parcel, ImportedConn::Sockets { server: Some(_), .. });
        // It gave up its permit when it left.
        let opened = has_server.then(|| ImportedConn::Word(Import::ServerOpened { state: state.to_vec() }));
        for legacy in opened.into_iter().chain([parcel]) {
            let at_us = self.post(shard);
            self.clock.at(at_us, What::Inherit(shard, legacy));
        }
    }

    /// Each part of a pool there becomes a part of it here, as far as there are threads.
    fn heir(&mut self, number: usize, shard: usize, state: &[u8]) -> usize {
        let Takeover { to, heirs, .. } = &mut self.takeovers[number];
        let Process { shards, names, .. } = &self.processes[*to];
        let Some((database, user)) = shard::takeover::pool_of(state) else { return shards.start };
        let parts = heirs.entry((database.clone(), user.clone())).or_default();
        let is_first = parts.is_empty();
        let first = shards.start;
        *parts
            .entry(shard)
            .or_insert_with(|| first + usize::from(names.part_for_heir(&database, &user, is_first)))
    }

    /// Whether everything has left, or has come back.
    fn go_on(&mut self, number: usize) {
        let takeover = &self.takeovers[number];
        let (from, to) = (takeover.from, takeover.to);
        let shards = self.processes[from].shards.len();
        let all_told = takeover.told.len() == shards && takeover.told.values().sum::<u64>() == takeover.gone;
        let has_predecessor =
            self.takeovers[..number].iter().any(|other| other.to == from && other.progress != Progress::Over);
        if !all_told {
            return;
        }
        match takeover.progress {
            Progress::Over => (),
            Progress::TakingBack => self.takeovers[number].progress = Progress::Over,
            Progress::Giving if has_predecessor => (),
            Progress::Giving if takeover.gone_when_empty == Some(takeover.gone) => {
                self.takeovers[number].progress = Progress::Over;
                self.bid_farewell(from, to);
            }
            Progress::Giving => {
                self.takeovers[number].gone_when_empty = Some(takeover.gone);
                self.next_round(number);
            }
        }
    }

    fn next_round(&mut self, number: usize) {
        let takeover = &mut self.takeovers[number];
        takeover.told.clear();
        takeover.round += 1;
        self.ask_for_everything(number);
    }

    /// The old process has given everything, and ends.
    fn bid_farewell(&mut self, from: usize, to: usize) {
        self.say(format_args!("process {from} has handed over everything"));
        for shard in self.processes[from].shards.clone() {
            let left = self.shards[shard].sockets.iter().flatten().count();
            if left > 0 {
                let text = format!("shard {shard} says that it is empty and has {left} sockets");
                self.checker.object("I15", text);
            }
            self.shards[shard].ended = true;
        }
        for shard in self.processes[to].shards.clone() {
            let at_us = self.post(shard);
            self.clock.at(at_us, What::Inherit(shard, ImportedConn::Word(Import::Gone)));
        }
        let leads_on = |next: &Takeover| next.from == to && next.progress == Progress::Giving;
        if let Some(onwards) = self.takeovers.iter().position(leads_on) {
            self.takeovers[onwards].gone_when_empty = None;
            self.next_round(onwards);
        }
    }

    /// The new process dies before it has everything: the old one goes on with what it still has.
    pub(super) fn successor_dies(&mut self, number: usize) {
        let Takeover { from, to, progress, .. } = self.takeovers[number];
        let is_late = self.era != Era::Chaos || progress != Progress::Giving;
        if is_late || self.current != Some(to) || self.operator.ending.is_some() {
            return;
        }
        self.say(format_args!("process {to} dies"));
        self.end_process(to);
        self.current = Some(from);
        let operator = self.processes[from].operator.take().unwrap_or_default();
        self.operator.succeed(operator);
        self.takeovers[number].progress = Progress::TakingBack;
        self.takeovers[number].told.clear();
        self.tell_old(number, &Command::AbortExport);
    }

    /// Something from another process reaches a shard.
    pub(super) fn inherit(&mut self, shard: usize, legacy: ImportedConn) {
        let (client, server) = match legacy {
            ImportedConn::Word(word) => return self.deliver(shard, Event::Import(Box::new(word))),
            ImportedConn::Sockets { client, server } => (client, server),
        };
        if self.shards[shard].ended {
            for (socket, _) in client.into_iter().chain(server) {
                if let Some(end) = socket.end {
                    self.abandon(end);
                }
            }
            return;
        }
        let mut seat = |one: Option<(Socket, Vec<u8>)>| {
            let (socket, state) = one?;
            Some((self.seat(shard, socket), state))
        };
        let (server, client) = (seat(server), seat(client));
        let conns: Vec<ConnId> = [&client, &server].into_iter().flatten().map(|(conn, _)| *conn).collect();
        let Some(word) = Import::sockets(client, server) else { return };
        self.shards[shard].still.note_import(self.clock.now_us());
        self.deliver(shard, Event::Import(Box::new(word)));
        for conn in conns {
            if let Some(spot) = self.socket_at(shard, conn).map(|socket| socket.spot) {
                self.wake_reader(spot);
            }
        }
    }

    /// A cancel request with an unknown key: the process before may have that client.
    pub(super) fn ask_predecessor_to_cancel(&mut self, shard: usize, key: Box<[u8]>) {
        let Some(number) = self.takeover_into(self.shards[shard].process) else { return };
        let first = self.processes[self.takeovers[number].from].shards.start;
        let at_us = self.post(first);
        self.clock.at(at_us, What::Order(first, Command::Cancel { key }));
    }

    /// RESUME reaches those who wait in the processes before, too.
    pub(super) fn resume_predecessors(&mut self, command: &Command) {
        let mut process = self.current;
        let Command::Resume { database } = command else { return };
        while let Some(number) = process.and_then(|process| self.takeover_into(process)) {
            let from = self.takeovers[number].from;
            let operator = self.processes[from].operator.as_mut();
            if operator.is_some_and(|operator| operator.resume(database.as_deref())) {
                self.tell_old(number, command);
            }
            process = Some(from);
        }
    }

    fn takeover_into(&self, process: usize) -> Option<usize> {
        let is_it = |takeover: &Takeover| takeover.to == process && takeover.progress == Progress::Giving;
        self.takeovers.iter().position(is_it)
    }

    /// RELOAD has not reached a process that was being taken over, whose own timeouts may be off. The system ends its attempts to connect that get no answer.
    pub(super) fn end_unanswered_attempts(&mut self) {
        let under_way = self.takeovers.iter().filter(|takeover| takeover.progress != Progress::Over);
        let shards: Vec<usize> =
            under_way.flat_map(|takeover| self.processes[takeover.from].shards.clone()).collect();
        let sockets = shards.iter().flat_map(|shard| self.shards[*shard].sockets.iter().flatten());
        let unanswered: Vec<ConnRef> = sockets
            .filter(|socket| socket.end.is_none() && !socket.closing)
            .map(|socket| socket.spot)
            .collect();
        if unanswered.is_empty() {
            return;
        }
        for spot in unanswered {
            let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
            self.clock.after(CONNECTS_US, What::Connect(spot, Attempt::Refused, nowhere));
        }
        self.live_until(self.clock.now_us() + CONNECTS_US + REST_US, |_| false);
    }

    /// Every takeover has come to an end.
    pub(super) fn expect_takeovers_over(&mut self) {
        if let Some(takeover) = self.takeovers.iter().find(|takeover| takeover.progress != Progress::Over) {
            let text =
                format!("process {} never ends: {} sockets have left it", takeover.from, takeover.gone);
            self.checker.object("I15", text);
        }
    }
}
