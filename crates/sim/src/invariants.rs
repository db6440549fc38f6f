//! The judge: what must be true of every run, and the first thing that was not.
//!
//! It sees bytes, events and what clients were told, never the pooler's insides and never which bugs were planted.
//! The numbers are those of `table.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::model::cluster::Sent;
use crate::model::ledger::Ledger;
use crate::sql::Tag;

/// What a client was told about a row that it wanted in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Its transaction was confirmed: the row is there, once.
    Applied,
    /// An error, a roll-back, or no COMMIT was ever sent: the row is not there.
    NotApplied,
    /// The connection broke at a bad moment: the row may be there, once.
    Unknown,
}

/// What was broken, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// A number of the table; or `contract` (between shard and driver), or `unfair` (harm without a cause).
    pub invariant: &'static str,
    /// What happened.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.invariant, self.text)
    }
}

/// The judge of one run.
#[derive(Debug, Default)]
pub(crate) struct InvariantChecker {
    first: Option<Violation>,
    claims: BTreeMap<Tag, Claim>,
    /// Answers that servers have given and clients have not yet been told, per client.
    owed: BTreeMap<u32, u64>,
    /// Clients that must have a server of their own.
    replicating: BTreeSet<u32>,
    /// Rows of which a client was told just now that they are committed.
    pub(crate) acknowledged: Vec<Tag>,
    /// All notifications, in the order of commits.
    pub(crate) sent: Vec<Sent>,
    /// How many times a connection was lost on which clients listened.
    pub(crate) listener_losses: u64,
}

impl InvariantChecker {
    /// Something was broken; only the first counts, because the rest may follow from it.
    pub(crate) fn object(&mut self, invariant: &'static str, text: impl Into<String>) {
        if self.first.is_none() {
            self.first = Some(Violation { invariant, text: text.into() });
        }
    }

    /// Whether something was broken.
    pub(crate) fn has_objected(&self) -> bool {
        self.first.is_some()
    }

    /// The verdict.
    pub(crate) fn into_verdict(self) -> Option<Violation> {
        self.first
    }

    /// A client asks for a server of its own.
    pub(crate) fn wants_own_server(&mut self, client: u32) {
        self.replicating.insert(client);
    }

    /// Whether it did.
    pub(crate) fn must_have_own_server(&self, client: u32) -> bool {
        self.replicating.contains(&client)
    }

    /// A client was told, or can conclude, what became of a row.
    pub(crate) fn claim(&mut self, tag: Tag, claim: Claim) {
        self.claims.insert(tag, claim);
        if claim == Claim::Applied {
            self.acknowledged.push(tag);
        }
    }

    /// The pooler has received a server's ReadyForQuery for a request of this client.
    pub(crate) fn server_answered(&mut self, client: u32) {
        *self.owed.entry(client).or_insert(0) += 1;
    }

    /// A client was told ReadyForQuery for a request that only a server can answer (I3).
    pub(crate) fn client_was_answered(&mut self, client: u32) {
        match self.owed.get_mut(&client) {
            Some(owed) if *owed > 0 => *owed -= 1,
            _ => self.object("I3", format!("c{client} was told ReadyForQuery before any server had said so")),
        }
    }

    /// Compares what clients were told with what the table holds (I6); once, at the end.
    pub(crate) fn compare(&mut self, ledger: &Ledger) {
        let claims = std::mem::take(&mut self.claims);
        for (tag, claim) in &claims {
            let times = ledger.times(*tag);
            let fits = match claim {
                Claim::Applied => times == 1,
                Claim::NotApplied => times == 0,
                Claim::Unknown => times <= 1,
            };
            if !fits {
                self.object(
                    "I6",
                    format!("{tag} was applied {times} times and its client was told {claim:?}"),
                );
            }
        }
        self.claims = claims;
    }
}
