//! What a client hears of notifications: each once, in the order of commits, between its transactions, of the channels that it listens on.
//!
//! Owns the comparison with what was sent. What a client misses while no connection listens for it is no fault: that loss is logged.

use std::collections::BTreeMap;

use super::shadow::{Answer, notification};
use crate::invariants::InvariantChecker;
use crate::model::cluster::Sent;
use crate::model::session::Notification;

/// What one client has heard.
#[derive(Debug)]
pub(super) struct Heard {
    /// Its channels by the last ReadyForQuery, with how many notifications had been sent by then.
    channels: BTreeMap<String, usize>,
    /// How far it is in the order of commits.
    position: usize,
    /// ReadyForQuery has told it that it is in no transaction, and no answer has come since.
    is_between: bool,
    /// Its own ones since the last ReadyForQuery.
    own: Vec<Notification>,
    /// Its own ones that have not come yet, because it has sent further requests meanwhile: they come before the last ReadyForQuery.
    late: Vec<Notification>,
    /// Losses of listening connections until it came.
    losses: u64,
}

impl Heard {
    /// Nothing yet.
    pub(super) fn new(checker: &InvariantChecker) -> Heard {
        Heard {
            channels: BTreeMap::new(),
            position: 0,
            is_between: true,
            own: Vec::new(),
            late: Vec::new(),
            losses: checker.listener_losses,
        }
    }

    /// A NotificationResponse came in front of this answer.
    pub(super) fn take(
        &mut self,
        body: &[u8],
        front: Option<&Answer>,
        client: (u32, Option<u32>),
        database: &str,
        checker: &InvariantChecker,
    ) -> Result<(), String> {
        let one = notification(body).ok_or("got a malformed notification")?;
        let ready = front.filter(|answer| answer.kind == b'Z' && answer.body == b"I");
        if !self.is_between && ready.is_none() {
            return Err(format!("got {one:?} within a transaction"));
        }
        let listens = |channel: &str| {
            let will = ready.is_some_and(|answer| answer.channels.contains(channel));
            if self.is_between { self.channels.contains_key(channel) || will } else { will }
        };
        if !listens(&one.channel) {
            return Err(format!("got {one:?} and does not listen on it"));
        }
        let sent = checker.sent.iter().enumerate().skip(self.position);
        // Its own ones have the process ID that it was given, where a pooler knows that they are.
        let is_own = |sent: &Sent| sent.client == Some(client.0) && client.1 == Some(one.process_id);
        let fits = |sent: &Sent| {
            sent.database == database
                && (sent.one.channel == one.channel && sent.one.payload == one.payload)
                && (sent.one.process_id == one.process_id || is_own(sent))
        };
        let Some((found, sent_by)) = sent.clone().find(|(_, sent)| fits(sent)) else {
            return Err(format!("got {one:?} twice, or out of order, or it was never sent"));
        };
        let is_missed = |at: usize, channel: &str| {
            listens(channel) && self.channels.get(channel).is_some_and(|since| *since <= at)
        };
        let missed = sent
            .take(found - self.position)
            .find(|(at, sent)| sent.database == database && is_missed(*at, &sent.one.channel));
        if let Some((_, missed)) = missed.filter(|_| checker.listener_losses == self.losses) {
            return Err(format!("got {one:?} and not {:?}, which was sent before", missed.one));
        }
        self.position = found + 1;
        if sent_by.client == Some(client.0) {
            self.own.push(one);
        }
        Ok(())
    }

    /// An answer has come; behind the last one PostgreSQL owes nothing.
    pub(super) fn answered(
        &mut self,
        answer: &Answer,
        is_last: bool,
        checker: &InvariantChecker,
    ) -> Result<(), String> {
        self.is_between = answer.kind == b'Z' && answer.body == b"I";
        if answer.kind != b'Z' {
            return Ok(());
        }
        let own = std::mem::take(&mut self.own);
        let is_heard = |one: &Notification| {
            own.iter().any(|heard| heard.channel == one.channel && heard.payload == one.payload)
        };
        self.late.extend(answer.own.iter().cloned());
        self.late.retain(|one| !is_heard(one));
        if is_last
            && let Some(missed) = std::mem::take(&mut self.late).first()
            && checker.listener_losses == self.losses
        {
            return Err(format!("got ReadyForQuery and not {missed:?}, which it has sent itself"));
        }
        self.channels.retain(|channel, _| answer.channels.contains(channel));
        for channel in &answer.channels {
            self.channels.entry(channel.clone()).or_insert(checker.sent.len());
        }
        Ok(())
    }
}
