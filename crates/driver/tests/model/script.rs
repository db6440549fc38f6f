//! What happens in one run: drawn from a seed, printed when it fails, the same for both loops.

use weir_driver::{ReceiveBuffers, RingSize};

use crate::support::Dice;

/// A connection's number in the script. Ids of the shard are used again; these are not.
pub type Key = usize;

/// How a client connects, or where a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Tcp,
    Unix,
    /// A name of the hosts file, which a helper thread looks up.
    Name,
    /// A port on which nothing listens.
    Refused,
    /// A listening socket whose queue is full: the attempt stays under way.
    Full,
}

/// What the shard does by itself on an event of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Habits {
    pub received: OnReceived,
    pub half_closed: OnHalfClosed,
    /// A failed write closes the connection.
    pub closes_on_failed_write: bool,
    /// The end is noted only; a later step closes.
    pub stays_after_end: bool,
    /// Whoever feeds it is not stopped while much of its output waits.
    pub ignores_clog: bool,
    /// A server connection that the shard opens when this one has closed; [`Step::Serve`] came before.
    pub follower: Option<Key>,
    pub pauses_at_once: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnReceived {
    #[default]
    Note,
    Echo,
    /// In many pieces, with bytes of the shard's own between them.
    EchoInPieces,
    Pause,
    Answer(usize),
    AnswerAndClose(usize),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnHalfClosed {
    #[default]
    Note,
    Close,
    Resume,
}

/// An order to the shard. Those of one step are carried out on one event.
#[derive(Clone, Debug)]
pub enum Act {
    Dial(Key, Place, Habits),
    Send(Key, Vec<usize>),
    Pause(Key),
    Resume(Key),
    Settle(Key),
    Close(Key),
    /// Hands the socket to a successor that is not there: it is dropped on the way, and its id is free at once.
    HandOn(Key),
    /// What one of them sends goes to the other from now on.
    Link(Key, Key),
    /// The shard takes so long, in microseconds, that what happens meanwhile is seen at once.
    Stall(u64),
}

#[derive(Clone, Debug)]
pub enum Step {
    /// A client connects, with a receive buffer of this size (0: the system's), and writes so much at once.
    Connect(Key, Place, usize, usize, Habits),
    /// A server for a connection that follows another one.
    Serve(Key, Place),
    Shard(Vec<Act>),
    Write(Key, usize),
    Urgent(Key),
    /// The peer may read so much more.
    Read(Key, usize),
    ReadAll(Key),
    ShutdownWrite(Key),
    Close(Key),
    Reset(Key),
    /// Room in the queue of [`Place::Full`].
    Admit(Key),
    TakeFiles,
    GiveFiles,
    Sleep(u64),
    /// Waits until all that must happen has happened.
    Sync,
}

/// What a loop is started with.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    pub tcp_buffer: u32,
    pub buffers: ReceiveBuffers,
    pub ring: RingSize,
    pub defers_accept: bool,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Script {
    pub start: Start,
    pub steps: Vec<Step>,
}

impl Script {
    pub fn of(seed: u64) -> Script {
        let mut dice = Dice(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        (0..8).for_each(|_| _ = dice.below(2));
        let start = start(&mut dice);
        let mut author = Author { dice, start, steps: Vec::new(), places: Vec::new(), files_taken: false };
        author.write();
        Script { start, steps: author.steps }
    }

    pub fn keys(&self) -> usize {
        let keys = self.steps.iter().flat_map(|step| match step {
            Step::Connect(key, ..) | Step::Serve(key, _) => vec![*key],
            Step::Shard(acts) => acts.iter().filter_map(dialled).collect(),
            _ => Vec::new(),
        });
        keys.max().map_or(0, |key| key + 1)
    }

    pub fn takes_files(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::TakeFiles))
    }
}

fn dialled(act: &Act) -> Option<Key> {
    if let Act::Dial(key, ..) = act { Some(*key) } else { None }
}

impl std::fmt::Display for Script {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(out, "{:?}", self.start)?;
        self.steps.iter().enumerate().try_for_each(|(at, step)| writeln!(out, "  {at}: {step:?}"))
    }
}

fn start(dice: &mut Dice) -> Start {
    let size = [64, 512, 4096, 4096, 16 * 1024][dice.below(5)];
    let most = [2, 4, 16, 64, 64][dice.below(5)];
    let first = (1 + dice.below(usize::from(most))) as u16;
    let completions = [4, 16, 256, 4096][dice.below(4)];
    Start {
        tcp_buffer: [0, 0, 4096, 16 * 1024][dice.below(4)],
        buffers: ReceiveBuffers { size, first, most },
        ring: RingSize { submissions: completions / 2, completions },
        defers_accept: dice.below(6) == 0,
    }
}

/// Draws the steps.
struct Author {
    dice: Dice,
    start: Start,
    steps: Vec<Step>,
    places: Vec<Place>,
    files_taken: bool,
}

impl Author {
    fn chance(&mut self, one_in: usize) -> bool {
        self.dice.below(one_in) == 0
    }

    fn write(&mut self) {
        let is_crowd = self.chance(12);
        let most_keys = if is_crowd { 40 } else { 2 + self.dice.below(8) };
        let with_files = self.chance(40);
        let length = 15 + self.dice.below(45);
        if is_crowd {
            (0..most_keys).for_each(|_| self.open());
        }
        for _ in 0..length {
            match self.dice.below(100) {
                0..20 if self.places.len() < most_keys => self.open(),
                0..45 => self.peer(),
                45..75 => self.shard(),
                75..80 => {
                    let time = self.dice.below(1500) as u64;
                    self.steps.push(Step::Sleep(time));
                }
                80..83 if with_files => self.files(),
                _ => self.steps.push(Step::Sync),
            }
        }
        if self.files_taken {
            self.steps.push(Step::GiveFiles);
        }
    }

    fn files(&mut self) {
        self.files_taken = !self.files_taken;
        self.steps.push(if self.files_taken { Step::TakeFiles } else { Step::GiveFiles });
    }

    fn length(&mut self) -> usize {
        match self.dice.below(12) {
            0..4 => 1 + self.dice.below(20),
            4..8 => 1 + self.dice.below(3_000),
            8..11 => 1 + self.dice.below(60_000),
            _ => 1 + self.dice.below(600_000),
        }
    }

    fn habits(&mut self) -> Habits {
        let received = match self.dice.below(14) {
            0..3 => OnReceived::Echo,
            3 => OnReceived::EchoInPieces,
            4 | 5 => OnReceived::Pause,
            6 => OnReceived::Answer(self.length()),
            7 => OnReceived::AnswerAndClose(self.length()),
            _ => OnReceived::Note,
        };
        let half_closed = match self.dice.below(6) {
            0 => OnHalfClosed::Close,
            1 => OnHalfClosed::Resume,
            _ => OnHalfClosed::Note,
        };
        Habits {
            received,
            half_closed,
            closes_on_failed_write: self.chance(2),
            stays_after_end: self.chance(4),
            ignores_clog: self.chance(4),
            follower: None,
            pauses_at_once: self.chance(12),
        }
    }

    fn open(&mut self) {
        let key = self.places.len();
        let mut habits = self.habits();
        let is_server = self.chance(3);
        if self.chance(6) {
            let place = if self.chance(3) { Place::Tcp } else { Place::Unix };
            habits.follower = Some(key + 1);
            self.steps.push(Step::Serve(key + 1, place));
        }
        let place = match self.dice.below(20) {
            0 | 1 if is_server => Place::Refused,
            2 if is_server => Place::Name,
            3 if is_server && self.chance(8) => Place::Full,
            4..9 => Place::Unix,
            _ => Place::Tcp,
        };
        self.places.push(place);
        self.places.extend(habits.follower.map(|_| Place::Unix));
        if is_server {
            self.steps.push(Step::Shard(vec![Act::Dial(key, place, habits)]));
        } else {
            let must_speak = self.start.defers_accept || self.chance(4);
            let first = if must_speak { 1 + self.dice.below(2_000) } else { 0 };
            let buffer = if self.chance(3) { 2048 } else { 0 };
            self.steps.push(Step::Connect(key, place, buffer, first, habits));
        }
        if key > 0 && self.chance(3) {
            let other = self.dice.below(key);
            self.steps.push(Step::Shard(vec![Act::Link(key, other)]));
        }
        // Most peers read what comes.
        if self.dice.below(10) < 7 {
            self.steps.push(Step::ReadAll(key));
        }
    }

    fn key(&mut self) -> Option<Key> {
        (!self.places.is_empty()).then(|| self.dice.below(self.places.len()))
    }

    fn peer(&mut self) {
        let Some(key) = self.key() else { return };
        let step = match self.dice.below(40) {
            0..18 => Step::Write(key, self.length()),
            18 if self.places[key] == Place::Tcp => Step::Urgent(key),
            19..24 => Step::Read(key, self.length()),
            24..29 => Step::ReadAll(key),
            29..32 => Step::ShutdownWrite(key),
            32..35 => Step::Close(key),
            35 | 36 => Step::Reset(key),
            37 if self.places[key] == Place::Full => Step::Admit(key),
            _ => Step::Write(key, self.length()),
        };
        self.steps.push(step);
    }

    fn shard(&mut self) {
        let mut acts = Vec::new();
        for _ in 0..1 + self.dice.below(4) {
            let Some(key) = self.key() else { return };
            acts.push(match self.dice.below(40) {
                0..16 => Act::Send(key, self.pieces()),
                16..21 => Act::Pause(key),
                21..27 => Act::Resume(key),
                27..31 => Act::Settle(key),
                31..34 => Act::Close(key),
                34 if self.chance(2) => Act::HandOn(key),
                34 => Act::Stall(self.dice.below(2_000) as u64),
                35 | 36 => Act::Link(key, self.dice.below(self.places.len())),
                _ => self.dial(),
            });
        }
        self.steps.push(Step::Shard(acts));
    }

    /// A connection that is opened in the same event in which another one may give up its id.
    fn dial(&mut self) -> Act {
        let place = if self.chance(2) { Place::Unix } else { Place::Tcp };
        let (key, habits) = (self.places.len(), self.habits());
        self.places.push(place);
        Act::Dial(key, place, habits)
    }

    fn pieces(&mut self) -> Vec<usize> {
        match self.dice.below(6) {
            0 => (0..2 + self.dice.below(40)).map(|_| 1 + self.dice.below(50)).collect(),
            1 => (0..1 + self.dice.below(3)).map(|_| self.length()).collect(),
            _ => vec![self.length()],
        }
    }
}
