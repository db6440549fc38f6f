//! The pooler's sockets, as a driver would keep them: reading, pausing, queues of unsent bytes, closing.
//!
//! Promises what `shard::Event` promises and nothing more; where the contract leaves a choice, the seed makes it.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use shard::{ClientMove, ConnId, ConnectFault, Event, Peer};

use super::{ConnRef, Owner, What, World};
use crate::model::cluster::Attempt;
use crate::network::{End, Ending};
use crate::pooler::Pooler;
use crate::protocol::RequestEnd;
use crate::setup::{self, PORT};
use crate::tap::{Cancels, Purpose, Tap};
use crate::trace::Readable;

/// Until a client that could not be accepted is tried again.
const ACCEPT_AGAIN_US: u64 = 5_000;

/// A pooler's socket.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) spot: ConnRef,
    /// Its end of the network; None while it is being connected.
    pub(super) end: Option<End>,
    /// Where it leads to, on connections to servers.
    pub(super) address: Option<IpAddr>,
    /// The listener, on connections to servers.
    pub(super) tap: Option<Box<Tap>>,
    /// The pooler was told that it is connected, or that it will never be.
    pub(super) paused: bool,
    /// One more buffer comes in spite of Pause.
    late_read: bool,
    unsent: VecDeque<u8>,
    /// The system has not yet said that it took what was sent.
    completing: bool,
    clogged: bool,
    owes_drained: bool,
    /// The socket has refused output; the shard was told.
    lost: bool,
    half_closed_told: bool,
    pub(super) hung_up_told: bool,
    /// The shard has asked for Close: nothing but Closed follows.
    pub(super) closing: bool,
    /// A Readable is in the clock.
    pub(super) reading: bool,
}

/// A cancel request that the pooler has sent to a server.
#[derive(Debug)]
pub(super) struct CancelUnderWay {
    pub(super) key: (u32, u32),
    pub(super) spot: ConnRef,
    pub(super) end: End,
}

impl Socket {
    pub(super) fn new(spot: ConnRef, end: Option<End>) -> Socket {
        Socket {
            spot,
            end,
            address: None,
            tap: None,
            paused: false,
            late_read: false,
            unsent: VecDeque::new(),
            completing: false,
            clogged: false,
            owes_drained: false,
            lost: false,
            half_closed_told: false,
            hung_up_told: false,
            closing: false,
            reading: false,
        }
    }

    fn has_unsent(&self) -> bool {
        self.completing || !self.unsent.is_empty()
    }
}

impl<P: Pooler> World<P> {
    pub(super) fn socket(&mut self, spot: ConnRef) -> Option<&mut Socket> {
        let socket = self.shards[spot.shard].sockets.get_mut(spot.conn.0 as usize)?.as_mut()?;
        (socket.spot.serial == spot.serial).then_some(socket)
    }

    pub(super) fn socket_at(&mut self, shard: usize, conn: ConnId) -> Option<&mut Socket> {
        self.shards[shard].sockets.get_mut(conn.0 as usize)?.as_mut()
    }

    /// A new socket under an id that must be free.
    pub(super) fn add_socket(&mut self, shard: usize, conn: ConnId, end: Option<End>) -> ConnRef {
        self.serial += 1;
        let spot = ConnRef { shard, conn, serial: self.serial };
        let sockets = &mut self.shards[shard].sockets;
        let at = conn.0 as usize;
        if sockets.len() <= at {
            sockets.resize_with(at + 1, || None);
        }
        if sockets[at].is_some() {
            self.checker.object("contract", format!("shard {shard} used {conn:?} before it was closed"));
        }
        self.shards[shard].sockets[at] = Some(Socket::new(spot, end));
        if let Some(end) = end {
            self.set_owner(end, Owner::Pooler(spot));
        }
        spot
    }

    pub(super) fn accept(&mut self, end: End) {
        let shards = self.current_shards();
        if shards.is_empty() || self.operator.ending.is_some() {
            return self.network.close(end, Ending::Reset, &mut self.clock); // Nobody listens.
        }
        if self.clock.now_us() < self.files_out_until_us {
            // Every thread that accepts tells its shard, and tries again.
            let shard = shards.start + self.prng.index(shards.len());
            self.deliver(shard, Event::FilesRanOut);
            return self.clock.after(ACCEPT_AGAIN_US, What::Accept(end));
        }
        let shard = shards.start + self.prng.index(shards.len());
        let conn = self.shards[shard].pooler.allocate_id();
        let spot = self.add_socket(shard, conn, Some(end));
        let (address, port) = setup::peer_of(end.link.0);
        let near = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 254));
        let remote = SocketAddr::new(address.parse().unwrap_or(near), port);
        let peer = Peer::Inet { remote, local: SocketAddr::new(near, 6432) };
        self.deliver(shard, Event::Accepted { conn, peer });
        self.wake_reader(spot);
    }

    pub(super) fn adopt(&mut self, shard: usize, end: End, client: Box<ClientMove>) {
        self.moving -= 1;
        if self.shards[shard].ended {
            return self.abandon(end);
        }
        let conn = self.shards[shard].pooler.allocate_id();
        let spot = self.add_socket(shard, conn, Some(end));
        self.deliver(shard, Event::Adopted { conn, client });
        self.wake_reader(spot);
    }

    /// A socket that another process had; its id here.
    pub(super) fn seat(&mut self, shard: usize, from: Socket) -> ConnId {
        let conn = self.shards[shard].pooler.allocate_id();
        let spot = self.add_socket(shard, conn, from.end);
        if let Some(socket) = self.socket(spot) {
            (socket.tap, socket.address, socket.unsent) = (from.tap, from.address, from.unsent);
        }
        self.flush(spot);
        conn
    }

    /// A socket that is being connected to a server.
    pub(super) fn add_server_socket(&mut self, shard: usize, conn: ConnId) -> ConnRef {
        let spot = self.add_socket(shard, conn, None);
        if let Some(socket) = self.socket(spot) {
            socket.tap = Some(Box::new(Tap::new()));
        }
        spot
    }

    pub(super) fn connect_ends(&mut self, spot: ConnRef, attempt: Attempt, address: IpAddr) {
        if self.socket(spot).is_none_or(|socket| socket.closing) {
            return;
        }
        if attempt == Attempt::Accepted {
            let near = self.network.open();
            let number = self.cluster.accept(near.peer(), setup::place_of(address));
            self.set_owner(near, Owner::Pooler(spot));
            self.set_owner(near.peer(), Owner::Backend(number));
            let place = setup::place_of(address);
            let cut_off_us =
                self.cluster.replication.as_ref().map_or(0, |hosts| hosts.cut_off_until_us(place));
            self.network.hold(near, cut_off_us);
            self.network.hold(near.peer(), cut_off_us);
            if let Some(socket) = self.socket(spot) {
                socket.end = Some(near);
                socket.address = Some(address);
            }
            let remote = SocketAddr::new(address, PORT);
            let local = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9)), 40_000);
            self.tell(spot, Event::Connected { conn: spot.conn, remote: Some(remote), local: Some(local) });
        } else {
            let text = if attempt == Attempt::NoFile { "too many open files" } else { "connection refused" };
            let fault = ConnectFault::Refused(text.to_owned());
            self.tell(spot, Event::ConnectFailed { conn: spot.conn, fault });
            self.vanish(spot);
            self.clock.after(0, What::Closed(spot));
        }
    }

    /// An event for a socket that may be gone by now.
    pub(super) fn tell(&mut self, spot: ConnRef, event: Event<'_>) {
        let Some(socket) = self.socket(spot) else { return };
        if socket.closing {
            return;
        }
        match event {
            Event::SendBufferFull { .. } if !socket.clogged => return,
            Event::SendBufferEmpty { .. } => {
                if socket.has_unsent() || !socket.owes_drained {
                    return;
                }
                socket.owes_drained = false;
                socket.clogged = false;
            }
            _ => (),
        }
        self.deliver(spot.shard, event);
    }

    /// Plans a look at a socket, if none is planned.
    pub(super) fn wake_reader(&mut self, spot: ConnRef) {
        if let Some(socket) = self.socket(spot)
            && !socket.reading
        {
            socket.reading = true;
            self.clock.after(0, What::Readable(spot));
        }
    }

    /// Delivers at most one buffer, or the ending.
    pub(super) fn read_socket(&mut self, spot: ConnRef) {
        let most = self.prng.between(1, self.swarm.driving.read_most).max(self.swarm.driving.read_most / 2);
        let Some(socket) = self.socket(spot) else { return };
        socket.reading = false;
        let Some(end) = socket.end.filter(|_| !socket.closing && !socket.hung_up_told) else { return };
        let paused = socket.paused && !std::mem::take(&mut socket.late_read);
        if self.network.is_reset(end) {
            self.flush(spot);
        }
        if paused {
            if self.network.ended(end)
                && self
                    .socket(spot)
                    .is_some_and(|socket| !std::mem::replace(&mut socket.half_closed_told, true))
            {
                self.deliver(spot.shard, Event::HalfClosed { conn: spot.conn });
            }
            return;
        }
        if self.network.readable(end) == 0 {
            if self.network.exhausted(end)
                && let Some(socket) = self.socket(spot)
            {
                socket.hung_up_told = true;
                self.deliver(spot.shard, Event::HungUp { conn: spot.conn });
            }
            return;
        }
        let mut bytes = Vec::new();
        self.network.read(end, usize::try_from(most).unwrap_or(1), &mut bytes, &mut self.clock);
        self.trace.bytes(&bytes);
        let (ends, now_us) = (self.ends(end), self.clock.now_us());
        let Some(socket) = self.shards[spot.shard].sockets[spot.conn.0 as usize].as_mut() else { return };
        let mut shown = None;
        if let Some(tap) = &mut socket.tap {
            tap.active_us = now_us;
            tap.read(ends);
            tap.received(&bytes, &mut self.checker);
            if let (Some(timeline), Purpose::Session { database, .. }) =
                (tap.take_shown_timeline(), &tap.purpose)
            {
                shown = Some((database.clone(), timeline)).filter(|_| !tap.is_before_reconnect());
            }
        }
        let unsent = socket.has_unsent();
        socket.owes_drained |= unsent;
        self.deliver(spot.shard, Event::Received { conn: spot.conn, bytes: &bytes, unsent });
        if let Some((database, timeline)) = shown {
            self.note_shown(self.shards[spot.shard].process, &database, timeline);
        }
        if self.network.readable(end) > 0 || self.network.ended(end) {
            self.wake_reader(spot);
        }
    }

    /// Queues bytes that the shard sends.
    pub(super) fn send(&mut self, shard: usize, to: ConnId, bytes: &[u8]) {
        if self.trace.keeps_lines() {
            self.say(format_args!("shard {shard} > {to:?} {}", Readable(bytes)));
        }
        self.trace.bytes(bytes);
        let Some(Some(socket)) = self.shards[shard].sockets.get_mut(to.0 as usize) else {
            return self
                .checker
                .object("contract", format!("shard {shard} sent to {to:?}, which is nothing"));
        };
        if socket.closing || socket.end.is_none() {
            return self
                .checker
                .object("contract", format!("shard {shard} sent to {to:?}, which is not open"));
        }
        socket.unsent.extend(bytes);
        let (spot, end) = (socket.spot, socket.end);
        let Some(mut tap) = socket.tap.take() else { return };
        tap.active_us = self.clock.now_us();
        tap.read(end.map(|end| self.ends(end)).unwrap_or_default());
        let was_unknown = tap.purpose == Purpose::Unknown;
        let cancels = std::mem::take(&mut self.cancels);
        let mut checker = std::mem::take(&mut self.checker);
        let known = Cancels {
            under_way: &|key| cancels.iter().any(|cancel| cancel.key == key && self.is_under_way(cancel)),
            asked_by: &|client| self.clients.get(client as usize).is_some_and(|client| client.cancels > 0),
        };
        let requests = tap.requests;
        let rests = tap.is_at_rest();
        tap.sent(bytes, &mut checker, &known);
        self.checker = checker;
        self.cancels = cancels;
        if tap.requests > requests {
            self.expect_not_still(spot, &tap.purpose);
            let follows = tap.take_follows();
            if rests || follows {
                self.expect_not_left_behind(spot, &tap, rests);
            }
        }
        if was_unknown && tap.purpose != Purpose::Unknown {
            self.learn_purpose(spot, &tap.purpose);
        }
        if let Some(socket) = self.socket(spot) {
            socket.tap = Some(tap);
        }
    }

    /// What the server at the other end says of the requests that it has read.
    fn ends(&mut self, end: End) -> VecDeque<RequestEnd> {
        match self.owner(end.peer()) {
            Owner::Backend(number) => self.cluster.backend(number).take_ends(),
            _ => VecDeque::new(),
        }
    }

    /// Writes what the network takes and tells the shard what it must know.
    pub(super) fn flush(&mut self, spot: ConnRef) {
        let (clog_bytes, completion_us) = (self.swarm.driving.clog_bytes, self.swarm.driving.completion_us);
        let Some(Some(socket)) = self.shards[spot.shard].sockets.get_mut(spot.conn.0 as usize) else {
            return;
        };
        if socket.spot != spot || socket.closing {
            return;
        }
        let Some(end) = socket.end else { return };
        let before = socket.unsent.len();
        if before > 0 && self.network.is_reset(end) {
            socket.unsent.clear();
            (socket.clogged, socket.owes_drained) = (false, false);
            if !std::mem::replace(&mut socket.lost, true) {
                self.clock.after(0, What::WriteFailed(spot));
            }
        } else if before > 0 {
            let taken = self.network.write(end, socket.unsent.make_contiguous(), &mut self.clock);
            socket.unsent.drain(..taken);
            if taken > 0 && completion_us > 0 && !socket.completing {
                socket.completing = true;
                self.clock.after(1 + self.prng.below(completion_us), What::Completed(spot));
            }
        }
        if socket.unsent.len() > clog_bytes && !socket.clogged {
            socket.clogged = true;
            socket.owes_drained = true;
            self.clock.after(0, What::Clogged(spot));
        }
        if socket.owes_drained && !socket.has_unsent() {
            self.clock.after(0, What::Drained(spot));
        }
    }

    pub(super) fn completed(&mut self, spot: ConnRef) {
        let Some(socket) = self.socket(spot) else { return };
        socket.completing = false;
        self.flush(spot);
    }

    /// Action::Close.
    pub(super) fn close_socket(&mut self, shard: usize, conn: ConnId) {
        let Some(spot) = self.socket_at(shard, conn).map(|socket| socket.spot) else {
            return self
                .checker
                .object("contract", format!("shard {shard} closed {conn:?}, which is nothing"));
        };
        self.flush(spot);
        let Some(socket) = self.socket(spot).filter(|socket| !socket.closing) else {
            return self.checker.object("contract", format!("shard {shard} closed {conn:?} twice"));
        };
        let (end, address) = (socket.end, socket.address);
        if socket.tap.as_deref().is_some_and(Tap::owes_client) {
            self.note_closed_owing(address.map_or(0, setup::place_of));
        }
        if let Some(end) = end {
            // A kernel answers with a reset if something was left unread.
            let unread = self.network.readable(end) > 0 && self.prng.chance(300_000);
            let ending = if unread { Ending::Reset } else { Ending::Finish };
            self.network.close(end, ending, &mut self.clock);
        }
        self.vanish(spot);
        let delay = self.prng.below(50);
        self.clock.after(delay, What::Closed(spot));
    }

    /// The socket is no more, though its id is not free yet.
    fn vanish(&mut self, spot: ConnRef) {
        if let Some(socket) = self.socket(spot) {
            socket.closing = true;
            if let Some(end) = socket.end {
                self.set_owner(end, Owner::Nobody);
            }
        }
    }

    pub(super) fn closed(&mut self, spot: ConnRef) {
        if self.socket(spot).is_some() {
            self.shards[spot.shard].sockets[spot.conn.0 as usize] = None;
            self.deliver(spot.shard, Event::Closed { conn: spot.conn });
        }
    }

    pub(super) fn set_paused(&mut self, shard: usize, conn: ConnId, paused: bool) {
        let late = paused && self.prng.chance(self.swarm.driving.late_read_per_million);
        let Some(socket) = self.socket_at(shard, conn) else {
            return self
                .checker
                .object("contract", format!("shard {shard} paused or resumed {conn:?}, which is nothing"));
        };
        let changed = std::mem::replace(&mut socket.paused, paused) != paused;
        if !changed {
            return;
        }
        socket.half_closed_told &= paused;
        socket.late_read = late;
        let spot = socket.spot;
        self.wake_reader(spot);
    }

    /// What a connection to a server is for has become known: count it (I7), or watch it (I5).
    fn learn_purpose(&mut self, spot: ConnRef, purpose: &Purpose) {
        match purpose {
            Purpose::Unknown => (),
            Purpose::Cancel { key } => {
                if let Some(end) = self.socket(spot).and_then(|socket| socket.end) {
                    self.cancels.push(CancelUnderWay { key: *key, spot, end });
                }
            }
            Purpose::Session { database, user, .. } => {
                self.expect_not_paused(spot, database);
                let (mut of_pool, mut of_database) = (1, 1);
                for tap in self.open_taps() {
                    if let Purpose::Session { database: other, user: other_user, .. } = &tap.purpose
                        && other == database
                    {
                        of_database += 1;
                        of_pool += u32::from(other_user == user);
                    }
                }
                let pooling = &self.swarm.pooling;
                if self.has_just_been_taken_over() {
                    return;
                }
                // Each host of a cluster has its own, and the primary's pool looks for that among them.
                let pools = self.swarm.hosts.as_ref().map_or(1, |hosts| u32::from(hosts.count) + 1);
                let limit =
                    pools * (pooling.pool_size + pooling.reserve_pool_size) + self.listeners(database, user);
                let database_limit = pooling.max_db_connections;
                if of_pool > limit {
                    let text =
                        format!("{of_pool} servers are open for {user} on {database}, {limit} are allowed");
                    self.checker.object("I7", text);
                }
                if database_limit > 0 && of_database > database_limit {
                    let text =
                        format!("{of_database} servers are open on {database}, {database_limit} are allowed");
                    self.checker.object("I7", text);
                }
            }
        }
    }

    /// Connections that listen for the clients of a pool, beside its others.
    fn listeners(&self, database: &str, user: &str) -> u32 {
        let pools = self.shards.iter().flat_map(|shard| shard.pooler.pools());
        let ours = pools.filter(|state| state.database == database && state.user == user);
        ours.map(|state| state.pool.listeners()).sum()
    }

    fn open_taps(&self) -> impl Iterator<Item = &Tap> {
        let sockets = self.shards.iter().flat_map(|shard| shard.sockets.iter().flatten());
        sockets.filter(|socket| !socket.closing).filter_map(|socket| socket.tap.as_deref())
    }

    /// Whether a cancel request may still hit something, as far as the pooler can know.
    fn is_under_way(&self, cancel: &CancelUnderWay) -> bool {
        let socket = self.shards[cancel.spot.shard].sockets.get(cancel.spot.conn.0 as usize);
        let open =
            socket.and_then(Option::as_ref).filter(|socket| socket.spot == cancel.spot && !socket.closing);
        match open {
            Some(socket) => !socket.hung_up_told,
            // The pooler has let go of it: what counts is whether a server still gets to see it.
            None => self.network.in_flight(cancel.end.peer()) > 0,
        }
    }
}
