//! Streams of server-sent events: each lasts as long as its caller may read it.
//!
//! Every route that streams goes through [`stream`]: a logout, the end of a session and a RELOAD that takes the caller's line out
//! end the stream within [`CHECK`]. Never decides who may read: `access` does.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, KeepAliveStream, Sse};
use futures_core::Stream;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::access::{Access, Authorized, Caller, RequiredScope, Scopes};

/// The caller is checked this often, and before each event besides: none is sent that the caller may not read.
const CHECK: Duration = Duration::from_millis(500);

/// A response that streams events.
pub(crate) type Events<E> = Sse<KeepAliveStream<WhileAllowed<E>>>;

/// Sends `events` for as long as the caller has scope `S`.
pub(crate) fn stream<S: RequiredScope, E>(
    access: &Arc<Access>,
    Authorized(caller, _): Authorized<S>,
    events: E,
) -> Events<E>
where
    E: Stream<Item = Result<Event, Infallible>> + Send + 'static,
{
    let mut checks = interval(CHECK);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (events, access) = (Box::pin(events), Arc::clone(access));
    let events = WhileAllowed { events, access, caller, needed: S::SCOPE, checks };
    Sse::new(events).keep_alive(KeepAlive::default())
}

/// Events that end when their caller may not read them any more.
pub(crate) struct WhileAllowed<E> {
    events: Pin<Box<E>>,
    access: Arc<Access>,
    caller: Caller,
    needed: Scopes,
    checks: Interval,
}

impl<E: Stream> Stream for WhileAllowed<E> {
    type Item = E::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut is_due = false;
        // Until it is pending: only then does the next tick wake this task.
        while self.checks.poll_tick(context).is_ready() {
            is_due = true;
        }
        let next = self.events.as_mut().poll_next(context);
        let is_allowed = || self.access.still_allows(&self.caller, self.needed);
        if (is_due || next.is_ready()) && !is_allowed() {
            return Poll::Ready(None);
        }
        next
    }
}
