//! Pending requests to the shards.
//!
//! Owns the requester, the number of replies due and the timeout of each.

use std::collections::BTreeMap;

use messages::{AdminQuery, RequestId, ShardId};

use crate::aggregate::Aggregate;
use crate::topology::Switchover;
use crate::views::View;

/// The requester of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    /// A console client, by its shard, which encodes the answer.
    Client { shard: ShardId, client: u32, client_id: u64 },
    /// A request of the panel, by the number of its question.
    Panel { id: u64 },
}

impl Requester {
    pub(crate) fn of(query: &AdminQuery) -> Requester {
        Requester::Client { shard: query.shard, client: query.client, client_id: query.client_id }
    }
}

/// The purpose of a request.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// SHOW.
    View {
        /// Which.
        view: &'static View,
        /// Its rows that were not sent yet.
        aggregate: Aggregate,
        /// The first rows have gone to the client.
        begun: bool,
    },
    /// The counters are sampled.
    Sample(Aggregate),
    /// Whether any console client is left, while all is suspended.
    Attendance(Aggregate),
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
    /// CANCEL_CLIENT, with the number of cancel requests that were sent.
    CancelClient(u64),
    /// DETACH or ATTACH.
    Detach(&'static str),
    /// DRAIN or UNDRAIN of another node, which the fleet's thread orders.
    Drain(&'static str),
    /// PAUSE, RESUME, DISABLE or ENABLE on all nodes of the fleet.
    Fleet(&'static str),
    /// PAUSE of one database or of all, as on all nodes.
    FleetPause(Option<String>),
    /// SWITCHOVER, while transactions end that run.
    SwitchoverDrain(Box<Switchover>),
    /// SWITCHOVER, which Patroni answers.
    Switchover,
    /// SHUTDOWN.
    Shutdown,
}

/// A request to every shard.
#[derive(Debug)]
pub(crate) struct Request {
    /// The requester; None for the process itself.
    pub(crate) requester: Option<Requester>,
    /// Last slices and Dones still to come.
    pub(crate) owed: usize,
    /// The deadline; None for commands that wait.
    pub(crate) deadline_us: Option<u64>,
    /// Its purpose.
    pub(crate) purpose: Purpose,
}

/// All of them, by number.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    last: u64,
    open: BTreeMap<RequestId, Request>,
}

impl Requests {
    /// Adds a request with a new number.
    pub(crate) fn open(&mut self, request: Request) -> RequestId {
        self.last += 1;
        let id = RequestId(self.last);
        self.open.insert(id, request);
        id
    }

    /// The request of a report, unless it has expired.
    pub(crate) fn find(&mut self, id: RequestId) -> Option<&mut Request> {
        self.open.get_mut(&id)
    }

    /// Removes a request.
    pub(crate) fn close(&mut self, id: RequestId) -> Option<Request> {
        self.open.remove(&id)
    }

    /// Whether a request is such.
    pub(crate) fn has(&self, is_such: impl Fn(&Purpose) -> bool) -> bool {
        self.open.values().any(|request| is_such(&request.purpose))
    }

    /// The requests that are such.
    pub(crate) fn find_where(&self, is_such: impl Fn(&Request) -> bool) -> Vec<RequestId> {
        self.open.iter().filter(|(_, request)| is_such(request)).map(|(id, _)| *id).collect()
    }

    /// Removes the requests that are over.
    pub(crate) fn close_where(&mut self, is_over: impl Fn(&Request) -> bool) -> Vec<Request> {
        self.open.extract_if(.., |_, request| is_over(request)).map(|(_, request)| request).collect()
    }

    /// The earliest deadline.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.open.values().filter_map(|request| request.deadline_us).min()
    }
}
