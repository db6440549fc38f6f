//! Connections: two bounded pipes each, which split, join, delay, block and break what is written to them.
//!
//! Knows bytes and ends, never what the bytes mean nor who the ends are beyond a name for them.

use std::collections::VecDeque;

use crate::clock::Clock;
use crate::prng::Prng;
use crate::swarm::NetworkConditions;

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkId(pub(crate) u32);

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// Which connection.
    pub(crate) link: LinkId,
    /// Whether this is the side that opened it.
    pub(crate) opener: bool,
}

impl End {
    /// The other end.
    pub(crate) fn peer(self) -> End {
        End { link: self.link, opener: !self.opener }
    }
}

/// How one side stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// After the bytes in flight (FIN).
    Finish,
    /// At once; bytes in flight may be lost (RST).
    Reset,
}

/// What the network asks the clock to wake it for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wake {
    /// Bytes, or the ending, come nearer to this end.
    Arrive(End),
    /// There is room again for what this end wants to write.
    Writable(End),
}

/// What came to an end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// There is something to read, or the ending was reached.
    Readable(End),
    /// There is room to write.
    Writable(End),
}

/// All connections of a world.
#[derive(Debug)]
pub(crate) struct Network {
    links: Vec<[Pipe; 2]>,
    network_conditions: NetworkConditions,
    prng: Prng,
}

/// One direction, seen from its reader.
#[derive(Debug, Default)]
struct Pipe {
    /// Written and not yet read.
    bytes: VecDeque<u8>,
    /// This many of them may be read now.
    arrived: usize,
    capacity: usize,
    /// An arrival is on its way.
    moving: bool,
    /// The writer has stopped.
    ending: Option<Ending>,
    /// The reader may see that.
    ending_arrived: bool,
    /// The writer found no room and waits to be told of it.
    writer_waits: bool,
    /// The reader has closed: nothing is kept for it.
    reader_gone: bool,
    /// Nothing arrives before then.
    held_until_us: u64,
    /// The reader has gone without a word: what is written is answered with a reset, though not before then.
    lost_until_us: Option<u64>,
}

impl Network {
    /// No connections yet.
    pub(crate) fn new(network_conditions: NetworkConditions, prng: Prng) -> Network {
        Network { links: Vec::new(), network_conditions, prng }
    }

    /// The faults are over: from now on everything is quick.
    pub(crate) fn heal(&mut self) {
        self.network_conditions.latency_us = self.network_conditions.latency_us.min(200);
        self.network_conditions.jitter_us = self.network_conditions.jitter_us.min(200);
    }

    /// A new connection; returns the opener's end.
    pub(crate) fn open(&mut self) -> End {
        let link = LinkId(u32::try_from(self.links.len()).unwrap_or(u32::MAX));
        let mut pipe =
            || Pipe { capacity: self.network_conditions.capacity(&mut self.prng), ..Pipe::default() };
        self.links.push([pipe(), pipe()]);
        End { link, opener: true }
    }

    /// How long a connection attempt takes.
    pub(crate) fn delay_us(&mut self) -> u64 {
        self.network_conditions.delay_us(&mut self.prng)
    }

    /// Writes as much as there is room for and says how much that was. Towards a reader that has closed, everything
    /// goes and nothing arrives.
    pub(crate) fn write<T: From<Wake>>(&mut self, from: End, bytes: &[u8], clock: &mut Clock<T>) -> usize {
        let pipe = self.pipe(from.peer());
        if pipe.reader_gone || pipe.ending.is_some() {
            if !bytes.is_empty()
                && let Some(lost_until_us) = pipe.lost_until_us.take()
            {
                self.reset_lost(from, lost_until_us, clock);
            }
            return bytes.len();
        }
        let room = pipe.capacity.saturating_sub(pipe.bytes.len()).min(bytes.len());
        pipe.bytes.extend(&bytes[..room]);
        pipe.writer_waits |= room < bytes.len();
        self.set_moving(from.peer(), clock);
        room
    }

    /// Moves up to `most` readable bytes into `into`, which is cleared first.
    pub(crate) fn read<T: From<Wake>>(
        &mut self,
        at: End,
        most: usize,
        into: &mut Vec<u8>,
        clock: &mut Clock<T>,
    ) {
        into.clear();
        let pipe = self.pipe(at);
        let count = pipe.arrived.min(most);
        into.extend(pipe.bytes.drain(..count));
        pipe.arrived -= count;
        if count > 0 && pipe.writer_waits {
            pipe.writer_waits = false;
            let delay = self.delay_us();
            clock.after(delay, Wake::Writable(at.peer()).into());
        }
    }

    /// Bytes that may be read now.
    pub(crate) fn readable(&self, at: End) -> usize {
        self.pipe_of(at).arrived
    }

    /// Whether the peer's ending may be seen (there may still be bytes before it).
    pub(crate) fn ended(&self, at: End) -> bool {
        self.pipe_of(at).ending_arrived
    }

    /// Whether this end knows that the connection was reset.
    pub(crate) fn is_reset(&self, at: End) -> bool {
        let pipe = self.pipe_of(at);
        pipe.ending_arrived && pipe.ending == Some(Ending::Reset)
    }

    /// Whether nothing more can ever be read here.
    pub(crate) fn exhausted(&self, at: End) -> bool {
        let pipe = self.pipe_of(at);
        pipe.ending_arrived && pipe.arrived == 0
    }

    /// Bytes on their way to this end or waiting there.
    pub(crate) fn in_flight(&self, to: End) -> usize {
        self.pipe_of(to).bytes.len()
    }

    /// This end closes.
    pub(crate) fn close<T: From<Wake>>(&mut self, at: End, ending: Ending, clock: &mut Clock<T>) {
        let own = self.pipe(at);
        own.reader_gone = true;
        own.bytes = VecDeque::new();
        own.arrived = 0;
        let writer_waited = std::mem::take(&mut own.writer_waits);
        self.end(at.peer(), ending, clock);
        if writer_waited {
            clock.after(0, Wake::Writable(at.peer()).into());
        }
    }

    /// The network itself breaks the connection: both ends see a reset.
    pub(crate) fn cut<T: From<Wake>>(&mut self, link: LinkId, clock: &mut Clock<T>) {
        self.end(End { link, opener: true }, Ending::Reset, clock);
        self.end(End { link, opener: false }, Ending::Reset, clock);
    }

    /// Nothing arrives at this end before then: neither bytes nor the ending.
    pub(crate) fn hold(&mut self, to: End, until_us: u64) {
        let pipe = self.pipe(to);
        pipe.held_until_us = pipe.held_until_us.max(until_us);
    }

    /// The machine at this end is gone, and TCP does not say so: the other end is reset once it has written something, though not before `until_us`.
    pub(crate) fn lose<T: From<Wake>>(&mut self, at: End, until_us: u64, clock: &mut Clock<T>) {
        let own = self.pipe(at);
        (own.reader_gone, own.bytes, own.arrived) = (true, VecDeque::new(), 0);
        if std::mem::take(&mut own.writer_waits) {
            self.reset_lost(at.peer(), until_us, clock);
        } else {
            own.lost_until_us = Some(until_us);
        }
    }

    /// What was held arrives.
    pub(crate) fn release_all<T: From<Wake>>(&mut self, clock: &mut Clock<T>) {
        for end in self.ends() {
            if std::mem::take(&mut self.pipe(end).held_until_us) > clock.now_us() {
                clock.after(0, Wake::Arrive(end).into());
            }
        }
    }

    /// Connections that only seem to live are found out, as by keepalives.
    pub(crate) fn reset_all_lost<T: From<Wake>>(&mut self, clock: &mut Clock<T>) {
        for end in self.ends() {
            if self.pipe(end).lost_until_us.take().is_some() {
                self.end(end.peer(), Ending::Reset, clock);
            }
        }
    }

    fn ends(&self) -> Vec<End> {
        let links = (0..u32::try_from(self.links.len()).unwrap_or(u32::MAX)).map(LinkId);
        links.flat_map(|link| [false, true].map(|opener| End { link, opener })).collect()
    }

    fn reset_lost<T: From<Wake>>(&mut self, to: End, until_us: u64, clock: &mut Clock<T>) {
        self.hold(to, until_us);
        self.end(to, Ending::Reset, clock);
    }

    /// Something that the clock was asked for has come; what it means for an end, if anything.
    pub(crate) fn wake<T: From<Wake>>(&mut self, wake: Wake, clock: &mut Clock<T>) -> Option<Notice> {
        match wake {
            Wake::Writable(end) => Some(Notice::Writable(end)),
            Wake::Arrive(end) => {
                self.arrive(end, clock);
                (!self.pipe_of(end).reader_gone).then_some(Notice::Readable(end))
            }
        }
    }

    fn arrive<T: From<Wake>>(&mut self, end: End, clock: &mut Clock<T>) {
        let [left, right] = &mut self.links[end.link.0 as usize];
        let pipe = if end.opener { right } else { left };
        if clock.now_us() < pipe.held_until_us {
            return clock.at(pipe.held_until_us, Wake::Arrive(end).into());
        }
        pipe.moving = false;
        let coming = pipe.bytes.len() - pipe.arrived;
        pipe.arrived += self.network_conditions.piece(coming, &mut self.prng);
        if pipe.arrived == pipe.bytes.len() && pipe.ending.is_some() {
            pipe.ending_arrived = true;
        }
        self.set_moving(end, clock);
    }

    fn end<T: From<Wake>>(&mut self, to: End, ending: Ending, clock: &mut Clock<T>) {
        let keep = self.prng.chance(500_000);
        let pipe = self.pipe(to);
        if pipe.ending == Some(Ending::Reset) || (pipe.ending.is_some() && ending == Ending::Finish) {
            return;
        }
        pipe.ending = Some(ending);
        if ending == Ending::Reset && !keep {
            pipe.bytes.truncate(pipe.arrived);
        }
        self.set_moving(to, clock);
    }

    fn set_moving<T: From<Wake>>(&mut self, to: End, clock: &mut Clock<T>) {
        let [left, right] = &mut self.links[to.link.0 as usize];
        let pipe = if to.opener { right } else { left };
        let more = pipe.bytes.len() > pipe.arrived || (pipe.ending.is_some() && !pipe.ending_arrived);
        if !pipe.moving && more {
            pipe.moving = true;
            clock.after(self.network_conditions.delay_us(&mut self.prng), Wake::Arrive(to).into());
        }
    }

    /// The pipe that is read at this end.
    fn pipe(&mut self, at: End) -> &mut Pipe {
        &mut self.links[at.link.0 as usize][usize::from(at.opener)]
    }

    fn pipe_of(&self, at: End) -> &Pipe {
        &self.links[at.link.0 as usize][usize::from(at.opener)]
    }
}
