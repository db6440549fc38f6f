//! The snapshot and the watches behind it.
//!
//! Owns that no change is left out between the two, that a session is heard of before what it wrote, and that Leases that are over are deleted. What is not the fleet's is
//! reported once each.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::http::Method;
use fleet::{CallId, Event, Object, Revision, SessionId};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::failure::Failure;
use super::leases::{self, Leases};
use super::objects::{Foreign, FoundLease, FoundObject, metadata, read_revision};
use super::requests::Requests;
use super::stream::{Change, Stream};

/// Objects that are read at a time, all at the same revision.
const PAGE: u32 = 100;

/// For a page.
const PAGE_TIME: Duration = Duration::from_secs(6);

/// How often Leases are looked at that may be over.
const TICK: Duration = Duration::from_millis(250);

/// Every third of a lease the own Lease is renewed, which its watch shows. One that shows nothing for this long beyond a lease is lost.
const SILENCE: Duration = Duration::from_secs(10);

/// Texts that are remembered.
const MAX_FOREIGN: usize = 1000;

/// Sessions that are remembered.
const MAX_SESSIONS: usize = 10_000;

/// One watch.
pub(crate) struct Watching<'a> {
    pub(crate) requests: &'a Arc<Requests>,
    pub(crate) foreign: &'a Mutex<HashSet<String>>,
    pub(crate) events: &'a mpsc::Sender<Event>,
    pub(crate) call: CallId,
}

/// What a watch has heard of.
#[derive(Default)]
struct Heard {
    leases: Leases,
    /// Sessions of which the fleet has heard, and those that are over.
    sessions: HashSet<SessionId>,
}

impl Heard {
    fn add(&mut self, session: SessionId) {
        if self.sessions.len() >= MAX_SESSIONS {
            // They are looked for again.
            self.sessions.clear();
        }
        self.sessions.insert(session);
    }
}

impl Watching<'_> {
    /// Until the watch is lost: why.
    pub(crate) async fn run(&self) -> Failure {
        match self.follow().await {
            Ok(never) => never,
            Err(failure) => failure,
        }
    }

    async fn follow(&self) -> Result<Failure, Failure> {
        let mut heard = Heard::default();
        let (mut objects, mut leases) = self.snapshot(&mut heard).await?;
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // Nodes first, where there is something of both.
                biased;
                change = leases.next() => self.lease_changed(&mut heard, change?).await?,
                change = objects.next() => {
                    if let Some(again) = self.object_changed(&mut heard, change?).await? {
                        leases = again;
                    }
                }
                _ = ticks.tick() => self.end_leases(&mut heard).await,
            }
        }
    }

    /// Reads everything, and begins to watch from there.
    async fn snapshot(&self, heard: &mut Heard) -> Result<(Stream, Stream), Failure> {
        let requests = self.requests;
        let maps = requests.objects.config_maps();
        let (revision, values) = self.list(&maps).await?;
        let mut objects = Vec::new();
        for value in values {
            match requests.objects.read_config_map(&value)? {
                Ok(found) => objects.push(found.object),
                Err(foreign) => self.report(foreign).await,
            }
        }
        let (found, leases) = self.list_leases().await?;
        let nodes = found.iter().map(|lease| (lease.node.clone(), lease.record.clone())).collect();
        found.iter().for_each(|lease| heard.add(lease.record.session));
        heard.leases.replace(found, Instant::now());
        let changes = Stream::begin(requests, maps, revision, None).await?;
        self.send(Event::Snapshot { call: self.call, revision, nodes, objects }).await;
        Ok((changes, leases))
    }

    /// All Leases, and a watch of them from there.
    async fn list_leases(&self) -> Result<(Vec<FoundLease>, Stream), Failure> {
        let requests = self.requests;
        let path = requests.objects.leases();
        let (revision, values) = self.list(&path).await?;
        let mut found = Vec::new();
        for value in values {
            match requests.objects.read_lease(&value)? {
                Ok(lease) => found.push(lease),
                Err(foreign) => self.report(foreign).await,
            }
        }
        let silence = SILENCE + Duration::from_secs(u64::from(requests.lease_s));
        Ok((found, Stream::begin(requests, path, revision, Some(silence)).await?))
    }

    /// Without a resourceVersion, the API server answers with what was the newest when it was asked (a consistent read).
    async fn list(&self, path: &str) -> Result<(Revision, Vec<Value>), Failure> {
        let Requests { http, objects, .. } = &**self.requests;
        let (mut found, mut more) = (Vec::new(), String::new());
        loop {
            let page = format!("{path}?{}&limit={PAGE}{more}", objects.selector());
            let mut list =
                timeout(PAGE_TIME, http.json(Method::GET, &page, None)).await.unwrap_or_else(|_| {
                    Err(Failure::Transport("no answer to the reading of everything".to_owned()))
                })?;
            if let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) {
                found.extend(items);
            }
            match metadata(&list, "continue").filter(|token| !token.is_empty()) {
                Some(token) => more = format!("&continue={}", escape(token)),
                None => {
                    let revision = read_revision(metadata(&list, "resourceVersion").unwrap_or_default())?;
                    return Ok((revision, found));
                }
            }
        }
    }

    async fn lease_changed(&self, heard: &mut Heard, change: Change) -> Result<(), Failure> {
        let changed = match change {
            Change::Deleted(value) => heard.leases.deleted(metadata(&value, "name").unwrap_or_default()),
            Change::Written(value) => match self.requests.objects.read_lease(&value)? {
                Ok(lease) => heard.leases.seen(lease, Instant::now()),
                Err(foreign) => {
                    self.report(foreign).await;
                    None
                }
            },
        };
        if let Some(changed) = changed {
            self.tell(heard, changed).await;
        }
        Ok(())
    }

    /// The watch of Leases anew, if they were read again.
    async fn object_changed(&self, heard: &mut Heard, change: Change) -> Result<Option<Stream>, Failure> {
        let objects = &self.requests.objects;
        let (value, is_deleted) = match change {
            Change::Written(value) => (value, false),
            Change::Deleted(value) => (value, true),
        };
        let FoundObject { object, writer } = match objects.read_config_map(&value)? {
            Ok(found) => found,
            Err(Foreign(_)) if is_deleted => return Ok(None),
            Err(foreign) => {
                self.report(foreign).await;
                return Ok(None);
            }
        };
        let mut again = None;
        if !is_deleted && writer.is_none_or(|writer| !heard.sessions.contains(&writer)) {
            let (found, stream) = self.list_leases().await?;
            for changed in heard.leases.replace(found, Instant::now()) {
                self.tell(heard, changed).await;
            }
            // One that has no Lease although it has written is over.
            writer.into_iter().for_each(|writer| heard.add(writer));
            again = Some(stream);
        }
        let object = if is_deleted { Object { contents: None, ..object } } else { object };
        self.send(Event::Changed { watch: self.call, object }).await;
        Ok(again)
    }

    async fn tell(&self, heard: &mut Heard, change: leases::Change) {
        let watch = self.call;
        self.send(match change {
            leases::Change::Gone(id) => Event::NodeGone { watch, id },
            leases::Change::Seen(id, record) => {
                heard.add(record.session);
                Event::NodeSeen { watch, id, record }
            }
        })
        .await;
    }

    /// Deletes Leases that are over. Their nodes are gone when the watch shows it.
    async fn end_leases(&self, heard: &mut Heard) {
        while let Some(over) = heard.leases.next_over(Instant::now()) {
            let ended = timeout(PAGE_TIME, self.requests.end(&over)).await;
            if let Ok(Err(failure @ Failure::Refused(..))) = ended {
                let what = format!("Lease \"{}\" is over, but cannot be deleted: {failure}", over.name);
                self.report(Foreign(what)).await;
            }
        }
    }

    async fn report(&self, Foreign(what): Foreign) {
        let is_new = {
            let mut texts = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
            texts.len() < MAX_FOREIGN && texts.insert(what.clone())
        };
        if is_new {
            self.send(Event::Foreign { what }).await;
        }
    }

    async fn send(&self, event: Event) {
        // The receiver is gone only when the store is, and this task with it.
        let _ = self.events.send(event).await;
    }
}

/// A token of the API server's, in a query.
fn escape(token: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let escaped = token
        .bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") });
    escaped.collect()
}
