//! Does what a shard wants done.

use std::net::IpAddr;

use shard::{Action, ConnId, Source, Target};

use super::{Owner, What, World};
use crate::model::cluster::Attempt;
use crate::pooler::Pooler;
use crate::setup;

impl<P: Pooler> World<P> {
    /// Takes all actions of a shard; `received` is what it was just given.
    pub(super) fn obey(&mut self, shard: usize, received: &[u8]) {
        let mut touched: Vec<ConnId> = Vec::new();
        while let Some(action) = self.shards[shard].pooler.poll() {
            match action {
                // By one of these actions the process has ended, and with it its sockets.
                _ if self.shards[shard].ended => {}
                Action::Send { to, source, start, end } => {
                    self.obey_send(shard, to, source, start as usize..end as usize, received);
                    if !touched.contains(&to) {
                        touched.push(to);
                    }
                }
                other => self.obey_other(shard, other),
            }
        }
        for conn in touched {
            if let Some(spot) = self.socket_at(shard, conn).map(|socket| socket.spot) {
                self.flush(spot);
            }
        }
    }

    fn obey_send(
        &mut self,
        shard: usize,
        to: ConnId,
        source: Source,
        range: std::ops::Range<usize>,
        received: &[u8],
    ) {
        let found = match source {
            Source::Received => received.get(range),
            Source::Written => self.shards[shard].pooler.written().get(range),
        };
        let Some(bytes) = found.map(<[u8]>::to_vec) else {
            return self.checker.object("contract", format!("shard {shard} sent bytes that are not there"));
        };
        self.send(shard, to, &bytes);
    }

    fn obey_other(&mut self, shard: usize, action: Action) {
        if self.trace.keeps_lines() {
            self.say(format_args!("shard {shard} > {action:?}"));
        }
        match action {
            Action::Send { .. } | Action::LoginComplete { .. } => (),
            Action::Log(record) => {
                let is_loss = |text: &str| text.contains("clients miss notifications until");
                self.checker.listener_losses += u64::from(is_loss(&format!("{record:?}")));
            }
            Action::Connect { conn, target } => {
                let spot = self.add_server_socket(shard, conn);
                let now_us = self.clock.now_us();
                let address = self.address_of(&target);
                let attempt = self.cluster.attempt(setup::place_of(address), now_us);
                let delay = self.network.delay_us();
                if now_us < self.files_out_until_us {
                    self.clock.after(0, What::Connect(spot, Attempt::NoFile, address));
                } else if attempt != Attempt::Unanswered {
                    self.clock.after(delay, What::Connect(spot, attempt, address));
                }
            }
            Action::Export(what) => self.hand_on(shard, *what),
            Action::Close { conn } => self.close_socket(shard, conn),
            Action::Pause { conn } => self.set_paused(shard, conn, true),
            Action::Resume { conn } => self.set_paused(shard, conn, false),
            Action::Move { conn, to, client } => {
                self.obey_move(shard, conn, self.sibling(shard, to.0), client)
            }
            Action::Ask { conn, question } => {
                let answer = question.solve();
                if let Some(spot) = self.socket_at(shard, conn).map(|socket| socket.spot) {
                    self.clock.after(500, What::Answered(spot, answer));
                }
            }
            Action::SendToShard { to, message } => {
                let to = self.sibling(shard, to.0);
                let at_us = self.post(to);
                self.clock.at(at_us, What::Letter(to, *message));
            }
            Action::Report(report) => self.hear(shard, *report),
        }
    }

    fn obey_move(&mut self, shard: usize, conn: ConnId, to: usize, client: Box<shard::ClientMove>) {
        let Some(spot) = self.socket_at(shard, conn).map(|socket| socket.spot) else {
            return self
                .checker
                .object("contract", format!("shard {shard} moved {conn:?}, which is nothing"));
        };
        self.flush(spot);
        let Some(socket) = self.shards[shard].sockets[conn.0 as usize].take() else { return };
        let Some(end) = socket.end.filter(|_| to < self.shards.len()) else {
            return self.checker.object("contract", format!("shard {shard} moved {conn:?} to nowhere"));
        };
        self.set_owner(end, Owner::Nobody);
        self.moving += 1;
        let at_us = self.post(to);
        self.clock.at(at_us, What::Adopt(to, end, client));
    }

    /// Where a name leads to now; an address leads to itself.
    fn address_of(&self, target: &Target) -> IpAddr {
        let host = target.host().map_or("", |host| &**host);
        host.parse()
            .unwrap_or_else(|_| setup::address_of(host, self.addresses.get(host).copied().unwrap_or(1)))
    }

    /// When something posted now arrives. A thread has one mailbox: what is posted later arrives later, from any thread.
    pub(super) fn post(&mut self, to: usize) -> u64 {
        let delay = 1 + self.prng.below(self.swarm.driving.letter_us);
        let last = self.posted.entry(to).or_insert(0);
        *last = (self.clock.now_us() + delay).max(*last);
        *last
    }
}
