//! Scripts by hand: what seeds have found once, as short as it can be.

use weir_driver::{ReceiveBuffers, RingSize};

use crate::script::{Act, Habits, OnHalfClosed, OnReceived, Place, Script, Start, Step};

/// Names and scripts.
pub fn all() -> Vec<(&'static str, Script)> {
    let scenes = [
        ("a half close after the pause", TIGHT, half_close_after_the_pause()),
        ("a half close after the end", TIGHT, half_close_after_the_end()),
        ("a half close and two pauses", TIGHT, half_close_and_two_pauses()),
        ("flags of one connection for the next", TIGHT, flags_of_another()),
        ("an event of one connection for the next", TIGHT, event_of_another()),
        ("urgent data in the middle", TIGHT, urgent_data()),
        ("paused connections and few buffers", TIGHT, paused_with_few_buffers()),
        ("a reset behind data", ROOMY, reset_behind_data()),
        ("the reserve of descriptors", TIGHT, reserve_of_descriptors()),
        ("unread data behind a pause", TIGHT, unread_behind_pause(vec![Act::Close(0)])),
        ("unread data behind a past pause", TIGHT, unread_behind_pause(vec![Act::Resume(0), Act::Close(0)])),
        ("more unread data behind a pause", TIGHT, more_unread_behind_pause()),
        ("unread data and an end at once", TIGHT, unread_and_end_at_once()),
        ("an end without a buffer", TIGHT, end_without_a_buffer()),
        ("a request that the kernel has in hand is to end", TIGHT, missed_cancel(Act::Close(0))),
        ("a request in hand of one that leaves is to end", TIGHT, missed_cancel(Act::HandOn(0))),
    ];
    scenes.map(|(name, start, steps)| (name, Script { start, steps })).into()
}

const TIGHT: Start = Start {
    tcp_buffer: 4096,
    buffers: ReceiveBuffers { size: 512, first: 2, most: 4 },
    ring: RingSize { submissions: 128, completions: 256 },
    defers_accept: false,
};

const ROOMY: Start =
    Start { tcp_buffer: 0, buffers: ReceiveBuffers { size: 512, first: 56, most: 64 }, ..TIGHT };

/// A client that reads nothing of what it is sent, which is more than its socket takes.
fn stuck(habits: Habits) -> Vec<Step> {
    vec![
        Step::Connect(0, Place::Tcp, 2048, 0, habits),
        Step::Sync,
        Step::Shard(vec![Act::Send(0, vec![500_000])]),
        Step::Sleep(5_000),
    ]
}

/// The failed write and the peer's end are seen at once, and the shard resumes on the first of them.
fn half_close_after_the_pause() -> Vec<Step> {
    let habits = Habits { received: OnReceived::Echo, stays_after_end: true, ..Habits::default() };
    vec![
        Step::Connect(0, Place::Tcp, 2048, 0, habits),
        Step::Write(0, 2_000_000),
        Step::Sleep(20_000),
        Step::Reset(0),
        Step::Sync,
    ]
}

/// The end was read; then the shard pauses, and the peer goes for good.
fn half_close_after_the_end() -> Vec<Step> {
    let habits = Habits { stays_after_end: true, ..Habits::default() };
    vec![
        Step::Connect(0, Place::Tcp, 0, 0, habits),
        Step::ShutdownWrite(0),
        Step::Sync,
        Step::Shard(vec![Act::Pause(0)]),
        Step::Reset(0),
        Step::Sleep(5_000),
    ]
}

/// Only the second pause is in effect when the shard is notified.
fn half_close_and_two_pauses() -> Vec<Step> {
    let pauses = vec![Act::Resume(0), Act::Pause(0), Act::Resume(0), Act::Pause(0)];
    vec![
        Step::Connect(0, Place::Tcp, 0, 0, Habits { pauses_at_once: true, ..Habits::default() }),
        Step::Sync,
        Step::ShutdownWrite(0),
        Step::Sync,
        Step::Shard(pauses),
        Step::Sync,
    ]
}

/// The first of several things that an event says closes the connection, and its id has a new owner before the rest.
fn flags_of_another() -> Vec<Step> {
    let habits = Habits { closes_on_failed_write: true, follower: Some(1), ..Habits::default() };
    let mut steps = vec![Step::Serve(1, Place::Unix)];
    steps.extend(stuck(habits));
    steps.extend([Step::Reset(0), Step::Sleep(5_000), Step::Sync]);
    steps
}

/// What was still to be told of a connection when it left, and its id has a new owner at once.
fn event_of_another() -> Vec<Step> {
    let leave =
        vec![Act::Send(0, vec![500_000]), Act::HandOn(0), Act::Dial(1, Place::Unix, Habits::default())];
    vec![Step::Connect(0, Place::Tcp, 2048, 0, Habits::default()), Step::Sync, Step::Shard(leave), Step::Sync]
}

/// A read ends before an urgent byte, whatever is behind it.
fn urgent_data() -> Vec<Step> {
    vec![
        Step::Connect(0, Place::Tcp, 0, 0, Habits::default()),
        Step::Sync,
        Step::Shard(vec![Act::Pause(0)]),
        Step::Write(0, 10),
        Step::Urgent(0),
        Step::Write(0, 10),
        Step::Sleep(2_000),
        Step::Shard(vec![Act::Resume(0)]),
        Step::Sync,
    ]
}

/// Connections that are not read keep nothing that the others need.
fn paused_with_few_buffers() -> Vec<Step> {
    let habits = Habits { pauses_at_once: false, ..Habits::default() };
    let mut steps: Vec<Step> = Vec::new();
    for key in 0..8 {
        steps.push(Step::Connect(key, Place::Tcp, 0, 1, habits));
        steps.push(Step::Shard(vec![Act::Settle(key)]));
        steps.extend((0..8).flat_map(|_| [Step::Write(key, 1), Step::Sync]));
        steps.extend([Step::Shard(vec![Act::Pause(key)]), Step::Write(key, 600), Step::Sleep(1_000)]);
    }
    steps.extend([Step::Connect(8, Place::Tcp, 0, 1_000, habits), Step::Sync]);
    steps
}

/// The kernel answers that there is no send to end, and goes on with it.
fn missed_cancel(end: Act) -> Vec<Step> {
    let habits = Habits { received: OnReceived::Pause, ..Habits::default() };
    let other = Habits { received: OnReceived::Answer(2_560), ..Habits::default() };
    vec![
        Step::Shard(vec![Act::Dial(0, Place::Unix, habits)]),
        Step::Shard(vec![Act::Send(0, vec![350_000])]),
        Step::Write(0, 5_000),
        Step::Connect(1, Place::Unix, 0, 1_700, other),
        Step::Shard(vec![Act::Link(1, 0)]),
        Step::ReadAll(1),
        Step::ShutdownWrite(0),
        Step::Shard(vec![Act::Send(1, vec![2_800]), end, Act::Pause(1), Act::Send(1, vec![8])]),
        Step::Sync,
    ]
}

/// Both are there before the first is read, and a send has heard of the reset already.
fn reset_behind_data() -> Vec<Step> {
    let habits = Habits { stays_after_end: true, ..Habits::default() };
    vec![
        Step::Shard(vec![Act::Dial(0, Place::Tcp, habits)]),
        Step::Sync,
        Step::Shard(vec![Act::Stall(20_000), Act::Send(0, vec![10])]),
        Step::Write(0, 59_803),
        Step::Reset(0),
        Step::Sync,
    ]
}

/// What came while the connection was not read must not cost the peer what it was sent before.
fn unread_behind_pause(close: Vec<Act>) -> Vec<Step> {
    let habits = Habits { received: OnReceived::Pause, ..Habits::default() };
    vec![
        Step::Connect(0, Place::Tcp, 0, 5, habits),
        Step::Sync,
        Step::Write(0, 5),
        Step::ReadAll(0),
        Step::Sync,
        Step::Shard(close),
        Step::Sync,
    ]
}

/// A receive that was under way when the shard paused brings some of it, and the rest is not seen.
fn more_unread_behind_pause() -> Vec<Step> {
    vec![
        Step::Connect(0, Place::Tcp, 0, 5, Habits::default()),
        Step::Sync,
        Step::Shard(vec![Act::Pause(0)]),
        Step::Write(0, 5),
        Step::Sleep(5_000),
        Step::Write(0, 5),
        Step::ReadAll(0),
        Step::Sync,
        Step::Shard(vec![Act::Close(0)]),
        Step::Sync,
    ]
}

/// The shard, which does not read, closes on the end; one event says that there are bytes, too.
fn unread_and_end_at_once() -> Vec<Step> {
    let habits =
        Habits { received: OnReceived::Pause, half_closed: OnHalfClosed::Close, ..Habits::default() };
    vec![
        Step::Connect(0, Place::Unix, 0, 5, habits),
        Step::ReadAll(0),
        Step::Sync,
        Step::Shard(vec![Act::Stall(30_000)]),
        Step::Write(0, 5),
        Step::Sync,
        Step::ShutdownWrite(0),
        Step::Sync,
    ]
}

/// What one peer does not read holds all buffers; another connection, which got none, is paused, and its peer goes.
fn end_without_a_buffer() -> Vec<Step> {
    let echo = Habits { received: OnReceived::Echo, ignores_clog: true, ..Habits::default() };
    vec![
        Step::Connect(0, Place::Unix, 0, 0, echo),
        Step::Connect(1, Place::Unix, 0, 0, Habits::default()),
        Step::Sync,
        Step::Write(0, 500_000),
        Step::Sleep(20_000),
        Step::Write(1, 600),
        Step::Sleep(5_000),
        Step::Shard(vec![Act::Pause(1)]),
        Step::Sleep(5_000),
        Step::Close(1),
        Step::Sync,
    ]
}

/// It is given up for a client of the unix socket and cannot be taken again at first. Descriptors are counted at the end.
fn reserve_of_descriptors() -> Vec<Step> {
    vec![
        Step::TakeFiles,
        Step::Connect(0, Place::Unix, 0, 0, Habits::default()),
        Step::Sleep(1_100_000),
        Step::GiveFiles,
        Step::Sync,
    ]
}
