//! What was asked of the shards and is not answered yet.
//!
//! Owns whom an answer is for, how many parts of it are owed, and until when one waits. Never knows what a statement
//! means.

use std::collections::BTreeMap;

use messages::{AdminQuery, RequestId, ShardId};

use crate::View;
use crate::gathered::Gathered;

/// Who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A console client, by its shard, which encodes the answer.
    Client { shard: ShardId, client: u32, client_id: u64 },
    /// A request of the panel, by the number of its question.
    Panel { id: u64 },
}

impl Asker {
    pub(crate) fn of(query: &AdminQuery) -> Asker {
        Asker::Client { shard: query.shard, client: query.client, client_id: query.client_id }
    }
}

/// What the answers are for.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// Somebody looks at a view.
    View {
        /// Which.
        view: &'static View,
        /// Its rows so far; what was sent already is gone from here.
        gathered: Gathered,
        /// The first rows have gone to the client.
        begun: bool,
    },
    /// The counters are sampled.
    Sample(Gathered),
    /// Whether any console client is left, while all is suspended.
    Attendance(Gathered),
    /// PAUSE of one database or of all.
    Pause(Option<String>),
    /// KILL.
    Kill,
    /// SUSPEND.
    Suspend,
    /// WAIT_CLOSE.
    WaitClose,
    /// KILL_CLIENT, with the number of clients that were closed.
    KillClient(u64),
    /// SHUTDOWN.
    Shutdown,
}

/// Something asked of every shard.
#[derive(Debug)]
pub(crate) struct Request {
    /// Who waits; nobody where the process itself asked.
    pub(crate) asker: Option<Asker>,
    /// Last slices and Dones still to come.
    pub(crate) owed: usize,
    /// When to give up; None where waiting is what was asked for.
    pub(crate) deadline_us: Option<u64>,
    /// What for.
    pub(crate) purpose: Purpose,
}

/// All of them, by number.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    last: u64,
    open: BTreeMap<RequestId, Request>,
}

impl Requests {
    /// Notes a request; its number is new.
    pub(crate) fn open(&mut self, request: Request) -> RequestId {
        self.last += 1;
        let id = RequestId(self.last);
        self.open.insert(id, request);
        id
    }

    /// The request of a report, unless it was given up.
    pub(crate) fn find(&mut self, id: RequestId) -> Option<&mut Request> {
        self.open.get_mut(&id)
    }

    /// Forgets a request.
    pub(crate) fn close(&mut self, id: RequestId) -> Option<Request> {
        self.open.remove(&id)
    }

    /// Takes out all requests that are to be given up.
    pub(crate) fn close_where(&mut self, is_over: impl Fn(&Request) -> bool) -> Vec<Request> {
        self.open.extract_if(.., |_, request| is_over(request)).map(|(_, request)| request).collect()
    }

    /// The earliest time at which one is given up.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.open.values().filter_map(|request| request.deadline_us).min()
    }
}
