//! What may happen to a world every now and then: breakage, jumps of clocks, and commands of an operator.
//! Names and rates only; `world::trouble` and `world::operator` act.

/// Something that happens every now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// A connection between a client and the pooler breaks.
    CutClient,
    /// A connection between the pooler and a server breaks.
    CutServer,
    /// A server ends one session (57P01).
    Terminate,
    /// A server crashes and starts again (57P02, then 57P03).
    Crash,
    /// A server refuses connections for a while.
    Refuse,
    /// Connection attempts go unanswered for a while.
    Blackhole,
    /// The wall clock is set.
    WallJump,
    /// The process is stopped for a minute: all timers are late at once.
    Stop,
    /// No file descriptors are left for a while.
    FilesOut,
    /// A host name gets another address.
    HostMoved,
    /// PAUSE and, later, RESUME.
    Pause,
    /// PAUSE of one database and, later, RESUME of it.
    PauseOne,
    /// SUSPEND and, later, RESUME.
    Suspend,
    /// KILL of one database or all and, later, RESUME.
    Kill,
    /// KILL_CLIENT of one of SHOW CLIENTS.
    KillClient,
    /// RECONNECT.
    Reconnect,
    /// DISABLE and, later, ENABLE.
    Disable,
    /// WAIT_CLOSE.
    WaitClose,
    /// RELOAD with another pool size.
    Resize,
    /// RELOAD with other settings: see `swarm::Reloads`.
    Reload,
    /// SHUTDOWN of a kind, and another process that starts afterwards.
    Shutdown,
    /// Another process takes over (`-R`).
    Takeover,
    /// Another process takes over and dies meanwhile.
    BrokenTakeover,
    /// A standby is promoted; the primary dies, or lives on for a while.
    Promote,
    /// A standby replays nothing for a while.
    StandStill,
    /// A host says nothing for a while.
    Freeze,
    /// A host of a cluster is started again.
    RestartHost,
    /// The primary's machine stops, or its network is cut, without a word, and a standby is promoted. Later it goes on where it was.
    SilencePrimary,
    /// A standby crashes, and is back with less than it had replayed; connections to it may seem to live.
    CrashStandby,
    /// A standby that was left behind, or an old primary, is made a standby of the primary.
    Rejoin,
    /// DETACH and, later, ATTACH.
    Detach,
    /// RELOAD that sends reads to the primary and, later, one that does not.
    Unsplit,
    /// DRAIN, of new clients or of all, and, later, UNDRAIN.
    Drain,
}

impl Fault {
    pub(crate) const ALL: [Fault; 24] = [
        Fault::CutClient,
        Fault::CutServer,
        Fault::Terminate,
        Fault::Crash,
        Fault::Refuse,
        Fault::Blackhole,
        Fault::WallJump,
        Fault::Stop,
        Fault::FilesOut,
        Fault::HostMoved,
        Fault::Pause,
        Fault::PauseOne,
        Fault::Suspend,
        Fault::Kill,
        Fault::KillClient,
        Fault::Reconnect,
        Fault::Disable,
        Fault::WaitClose,
        Fault::Resize,
        Fault::Reload,
        Fault::Shutdown,
        Fault::Takeover,
        Fault::BrokenTakeover,
        Fault::Drain,
    ];

    /// What happens to worlds with a cluster alone.
    pub(crate) const OF_CLUSTERS: [Fault; 9] = [
        Fault::Promote,
        Fault::StandStill,
        Fault::Freeze,
        Fault::RestartHost,
        Fault::Rejoin,
        Fault::Detach,
        Fault::Unsplit,
        Fault::SilencePrimary,
        Fault::CrashStandby,
    ];

    /// How many worlds in a million have it.
    pub(crate) fn share_per_million(self) -> u32 {
        match self {
            Fault::Stop | Fault::FilesOut | Fault::Shutdown | Fault::BrokenTakeover => 60_000,
            Fault::Promote | Fault::StandStill => 400_000,
            Fault::SilencePrimary | Fault::CrashStandby => 300_000,
            Fault::Rejoin => 500_000,
            Fault::Kill | Fault::HostMoved | Fault::Disable | Fault::WaitClose | Fault::Drain => 120_000,
            _ => 200_000,
        }
    }

    /// Whether clients that do nothing wrong may see errors by it. (Of what concerns single clients or databases the
    /// world knows whom it concerns.)
    pub(crate) fn hurts(self) -> bool {
        matches!(
            self,
            Fault::CutServer
                | Fault::Terminate
                | Fault::Crash
                | Fault::Refuse
                | Fault::Blackhole
                | Fault::Stop
                | Fault::FilesOut
                | Fault::Promote
                | Fault::Freeze
                | Fault::RestartHost
                | Fault::Rejoin
                | Fault::SilencePrimary
                | Fault::CrashStandby
        )
    }

    /// Whether it needs a pooler that takes commands and has timers, which a relay does not.
    pub(crate) fn is_of_a_pooler(self) -> bool {
        use Fault::{
            CrashStandby, CutClient, CutServer, Freeze, Promote, Rejoin, RestartHost, SilencePrimary,
            StandStill, Terminate, WallJump,
        };
        let is_of_hosts = matches!(
            self,
            Promote | StandStill | Freeze | RestartHost | Rejoin | SilencePrimary | CrashStandby
        );
        !is_of_hosts
            && !matches!(self, CutClient | CutServer | Terminate | Fault::Crash | Fault::Refuse | WallJump)
    }
}
