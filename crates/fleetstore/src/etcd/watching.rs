//! The snapshot and the watch behind it.
//!
//! Owns that no change is left out between the two, and that a watch of which nothing is heard ends. Keys that are not the fleet's are reported once each.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fleet::{CallId, Event, NodeId, NodeRecord, Object, Revision};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::api::{EventType, KeyValue, RangeRequest, WatchCreateRequest, WatchEvent, WatchResponse};
use super::failure::Failure;
use super::keys::Key;
use super::members::Member;
use super::requests::{Requests, revision_of};
use crate::record;

/// Keys that are read at a time, all at the same revision.
const PAGE_KEYS: i64 = 64;

/// How often the member is asked for a response when nothing changes.
const PROGRESS: Duration = Duration::from_secs(2);

/// A watch without any response for this long is lost.
const SILENCE: Duration = Duration::from_secs(6);

/// Foreign keys that are remembered.
const MAX_FOREIGN: usize = 1000;

/// The keys that were reported as foreign.
#[derive(Default)]
pub(crate) struct ForeignKeys(Mutex<HashSet<Vec<u8>>>);

impl ForeignKeys {
    /// True once for each key.
    fn is_new(&self, key: &[u8]) -> bool {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        keys.len() < MAX_FOREIGN && keys.insert(key.to_vec())
    }
}

/// What a key and its value are.
enum Entry {
    Node(NodeId, NodeRecord),
    Object(Object),
    /// And what is wrong with it.
    Foreign(&'static str),
}

/// One watch.
pub(crate) struct Watching<'a> {
    pub(crate) requests: &'a Requests,
    pub(crate) foreign: &'a ForeignKeys,
    pub(crate) events: &'a mpsc::Sender<Event>,
    pub(crate) call: CallId,
}

impl Watching<'_> {
    /// Until the watch is lost: why.
    pub(crate) async fn run(&self, deadline: Instant) -> String {
        let members = &self.requests.members;
        let found = match tokio::time::timeout_at(deadline, members.member()).await {
            Ok(found) => found,
            Err(_) => return "no member of etcd could be used in time".to_owned(),
        };
        let member = match found {
            Ok(member) => member,
            Err(why) => return why,
        };
        tokio::select! {
            failure = self.follow(&member) => {
                members.watch_failed(&member, &failure);
                members.words(member.label(), &failure)
            }
            () = members.left(&member) => format!("{}: requests are not answered", member.label()),
        }
    }

    async fn follow(&self, member: &Member) -> Failure {
        let revision = match self.snapshot(member).await {
            Ok(revision) => revision,
            Err(failure) => return failure,
        };
        let (key, range_end) = self.requests.keys.range();
        let start_revision = revision + 1;
        let request =
            WatchCreateRequest { key, range_end, start_revision, progress_notify: true, fragment: true };
        let mut stream = match member.client.watch(request).await {
            Ok(stream) => stream,
            Err(failure) => return failure,
        };
        let mut ticks = interval(PROGRESS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        loop {
            tokio::select! {
                response = stream.next() => match response {
                    Ok(Some(response)) => {
                        if let Some(failure) = self.pass_on(response).await {
                            return failure;
                        }
                        heard = Instant::now();
                    }
                    Ok(None) => return Failure::answer("the member has ended the watch"),
                    Err(status) => return status.into(),
                },
                _ = ticks.tick() => {
                    if heard.elapsed() > SILENCE {
                        return Failure::answer(&format!("nothing was heard of the watch for {} s", SILENCE.as_secs()));
                    }
                    stream.request_progress();
                }
            }
        }
    }

    /// Reads everything at one revision: which.
    async fn snapshot(&self, member: &Member) -> Result<i64, Failure> {
        let (mut key, range_end) = self.requests.keys.range();
        let (mut revision, mut nodes, mut objects) = (0, Vec::new(), Vec::new());
        loop {
            let request = RangeRequest {
                key,
                range_end: range_end.clone(),
                limit: PAGE_KEYS,
                revision,
                keys_only: false,
            };
            let page = tokio::time::timeout(SILENCE, member.client.range(request)).await;
            let page =
                page.unwrap_or_else(|_| Err(Failure::answer("no answer to the reading of all keys")))?;
            if revision == 0 {
                revision = page.header.map_or(0, |header| header.revision);
            }
            // The next key that there can be.
            let next = page.kvs.last().map(|last| [&*last.key, &[0]].concat());
            for found in page.kvs {
                match self.read(&found) {
                    Entry::Node(id, record) => nodes.push((id, record)),
                    Entry::Object(object) => objects.push(object),
                    Entry::Foreign(why) => self.report(&found, why).await,
                }
            }
            match next {
                Some(next) if page.more => key = next,
                _ => break,
            }
        }
        let at = revision_of(revision);
        self.send(Event::Snapshot { call: self.call, revision: at, nodes, objects }).await;
        Ok(revision)
    }

    /// Passes changes on; a reason to end the watch.
    async fn pass_on(&self, response: WatchResponse) -> Option<Failure> {
        for event in response.events {
            self.changed(event).await;
        }
        if response.compact_revision != 0 {
            return Some(Failure::answer("etcd has compacted what the watch has not read yet"));
        }
        response
            .canceled
            .then(|| Failure::answer(&format!("etcd has ended the watch ({})", response.cancel_reason)))
    }

    async fn changed(&self, event: WatchEvent) {
        let watch = self.call;
        let Some(found) = event.kv else { return };
        if event.r#type == i32::from(EventType::Delete) {
            let removed = match self.requests.keys.read(&found.key) {
                Key::Node(id) => Event::NodeGone { watch, id },
                Key::Object(name) => {
                    let revision = revision_of(found.mod_revision);
                    Event::Changed { watch, object: Object { name, revision, contents: None } }
                }
                Key::Foreign => return,
            };
            return self.send(removed).await;
        }
        match self.read(&found) {
            Entry::Node(id, record) => self.send(Event::NodeSeen { watch, id, record }).await,
            Entry::Object(object) => self.send(Event::Changed { watch, object }).await,
            Entry::Foreign(why) => self.report(&found, why).await,
        }
    }

    fn read(&self, found: &KeyValue) -> Entry {
        match self.requests.keys.read(&found.key) {
            // Nothing would ever remove it.
            Key::Node(_) if found.lease == 0 => Entry::Foreign("is the record of a node, but has no lease"),
            Key::Node(id) => match record::read(&found.value) {
                Some(record) => Entry::Node(id, record),
                None => Entry::Foreign("is no record of a node that this version reads"),
            },
            Key::Object(name) => {
                let revision: Revision = revision_of(found.mod_revision);
                Entry::Object(Object { name, revision, contents: Some(found.value.clone()) })
            }
            Key::Foreign => Entry::Foreign("is no key of a fleet"),
        }
    }

    async fn report(&self, found: &KeyValue, why: &str) {
        if self.foreign.is_new(&found.key) {
            let what = format!("key \"{}\" {why}", String::from_utf8_lossy(&found.key).escape_debug());
            self.send(Event::Foreign { what }).await;
        }
    }

    async fn send(&self, event: Event) {
        // The receiver is gone only when the store is, and this task with it.
        let _ = self.events.send(event).await;
    }
}
