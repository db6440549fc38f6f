//! What reads must see, and which servers must not be written to any more (I19), where the servers are a cluster.
//!
//! Owns which commits clients were told of before they sent a request, and which timelines the pooler was shown. Each SELECT of a client's stands for a read of
//! the whole table: a server that executes it has to have what `read_consistency` promises. What a promotion has lost is not asked for.

use std::collections::{BTreeMap, BTreeSet};

use settings::ReadConsistency;

use super::{ConnRef, Owner, World};
use crate::model::backend::Backend;
use crate::model::replication::Position;
use crate::pooler::Pooler;
use crate::setup;
use crate::sql::Tag;
use crate::tap::{Purpose, Tap};

/// Which commits a request has to see.
#[derive(Clone, Debug)]
struct Owed {
    /// How many its own client had been told of.
    own: usize,
    /// Those that clients of its database had been told of when it was sent.
    sent_us: u64,
}

/// A row that a client was told of, and when.
#[derive(Clone, Copy, Debug)]
struct Told {
    row: Tag,
    at: Position,
    told_us: u64,
}

/// Commits and timelines that were told of.
#[derive(Debug, Default)]
pub(super) struct Reads {
    own: BTreeMap<u32, Vec<Told>>,
    /// By database, then by process.
    all: BTreeMap<String, Vec<Vec<Told>>>,
    owed: BTreeMap<Tag, Owed>,
    /// The same of what each client has sent last, by which its server was chosen.
    last: BTreeMap<u32, Owed>,
    /// The newest timeline that a primary has told a process of, and when, by process and database.
    shown: BTreeMap<(usize, String), (u32, u64)>,
    /// Where servers were used since RECONNECT: only then it is known which cluster is meant.
    known: BTreeSet<(usize, String)>,
    /// Databases for which RECONNECT has let older timelines in again, also into processes that took over since.
    reconnected: BTreeSet<String>,
}

impl<P: Pooler> World<P> {
    /// A client has sent something, perhaps requests behind the one `before`, and not merely heard an answer. If that `goes_on` with what it has begun, it is owed what the beginning was.
    pub(super) fn note_sent(&mut self, number: u32, before: u32, goes_on: bool) {
        let reads = &mut self.reads;
        let begun = reads.last.get(&number).filter(|_| goes_on).cloned();
        let owed = begun.unwrap_or_else(|| Owed {
            own: reads.own.get(&number).map_or(0, Vec::len),
            sent_us: self.clock.now_us(),
        });
        for request in before + 1..=self.clients[number as usize].requests() {
            reads.owed.insert(Tag { client: number, request }, owed.clone());
        }
        reads.last.insert(number, owed);
    }

    /// A client was told that these rows are committed.
    pub(super) fn note_acknowledged(&mut self, number: u32, rows: &[Tag]) {
        let Some(hosts) = &self.cluster.replication else { return };
        let told_us = self.clock.now_us();
        let rows: Vec<Told> = rows
            .iter()
            .filter_map(|row| Some(Told { row: *row, at: hosts.position(*row)?, told_us }))
            .collect();
        let process = self.client_ends[number as usize].and_then(|end| self.process_at(end.peer()));
        if let Some(process) = process {
            let database = self.births[number as usize].database.clone();
            let all = self.reads.all.entry(database).or_default();
            all.resize_with(all.len().max(process + 1), Vec::new);
            all[process].extend(&rows);
        }
        self.reads.own.entry(number).or_default().extend(rows);
    }

    /// The process that has this end of a connection.
    fn process_at(&self, end: crate::network::End) -> Option<usize> {
        match self.owner(end) {
            Owner::Pooler(spot) => Some(self.shards[spot.shard].process),
            _ => None,
        }
    }

    /// Servers have read for clients.
    pub(super) fn judge_reads(&mut self) {
        for (tag, backend, at) in std::mem::take(&mut self.cluster.reads) {
            let Backend { end, .. } = *self.cluster.backend(backend);
            let end = end.peer();
            let (Some(hosts), Some(how)) = (&self.cluster.replication, &self.swarm.hosts) else { return };
            let Some(owed) = self.reads.owed.get(&tag) else { continue };
            let database = &self.births[tag.client as usize].database;
            let may_be_old = self.reads.reconnected.contains(database);
            let misses = |told: &&Told| {
                let is_let_in = may_be_old && at.timeline < told.at.timeline;
                !is_let_in && !hosts.has(at, told.at) && !hosts.is_lost(told.at)
            };
            let own = self.reads.own.get(&tag.client).and_then(|own| own.get(..owed.own));
            let mut missed = own.into_iter().flatten().find(misses);
            if how.consistency == ReadConsistency::Database && missed.is_none() {
                let all = self.process_at(end).and_then(|process| {
                    let all = self.reads.all.get(database)?.get(process)?;
                    all.get(..all.partition_point(|told| told.told_us < owed.sent_us))
                });
                missed = all.into_iter().flatten().find(misses);
            }
            if let Some(Told { row, at: written, .. }) =
                missed.filter(|_| how.consistency != ReadConsistency::Eventual)
            {
                let text = format!(
                    "{tag} was read at {at:?}, without {row} at {written:?}, which was told of before"
                );
                self.checker.object("I19", text);
            }
            self.note_read(backend);
        }
    }

    /// A server has told a process of its timeline.
    pub(super) fn note_shown(&mut self, process: usize, database: &str, timeline: u32) {
        let name = (process, database.to_owned());
        if self.reads.known.contains(&name) {
            let shown = self.reads.shown.entry(name).or_default();
            if timeline > shown.0 {
                *shown = (timeline, self.clock.now_us());
            }
        }
    }

    /// The newest timeline of a primary that a process was shown, and when.
    pub(super) fn shown_to(&self, process: usize, database: &str) -> (u32, u64) {
        self.reads.shown.get(&(process, database.to_owned())).copied().unwrap_or_default()
    }

    /// RECONNECT: what was shown is forgotten, and what connections to servers show that are there already counts for nothing.
    pub(super) fn forget_shown(&mut self, shard: usize, database: Option<&str>) {
        let process = self.shards[shard].process;
        let sockets = self.shards[shard].sockets.iter_mut().flatten();
        for tap in sockets.filter_map(|socket| socket.tap.as_mut()) {
            tap.note_reconnect(database);
        }
        let is_kept = |name: &(usize, String)| name.0 != process || database.is_some_and(|one| name.1 != one);
        self.reads.shown.retain(|name, _| is_kept(name));
        self.reads.known.retain(is_kept);
        let databases = (0..self.swarm.pooling.databases).map(setup::database);
        self.reads.reconnected.extend(databases.filter(|name| database.is_none_or(|one| name == one)));
    }

    /// A client's request was sent to a server that was `idle`, or had not answered another one of it: that is no primary of an older timeline than was shown when
    /// the client sent it.
    pub(super) fn expect_not_left_behind(&mut self, spot: ConnRef, tap: &Tap, idle: bool) {
        let Some(hosts) = &self.cluster.replication else { return };
        let Purpose::Session { database, .. } = &tap.purpose else { return };
        let address =
            self.shards[spot.shard].sockets[spot.conn.0 as usize].as_ref().and_then(|socket| socket.address);
        let Some(timeline) = address.and_then(|address| hosts.writes_timeline(setup::place_of(address)))
        else {
            return;
        };
        let name = (self.shards[spot.shard].process, database.clone());
        let (shown, shown_us) = self.shown_to(name.0, database);
        // What is sent behind other requests may go to a server of before RECONNECT.
        if idle {
            self.reads.known.insert(name);
        }
        // A server that has been chosen for a request by then may get it.
        let owed = tap.last.and_then(|tag| self.reads.owed.get(&tag));
        if timeline < shown && owed.is_some_and(|owed| owed.sent_us > shown_us) {
            let text = format!(
                "shard {} sent a request to a primary of timeline {timeline} after {shown} was shown",
                spot.shard
            );
            self.checker.object("I19", text);
        }
    }
}
