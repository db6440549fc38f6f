//! Why Weir closes a server connection.
//!
//! Owns the words that the log has for each reason: PgBouncer's, where it has the same reason.

use std::fmt;

/// A reason for the end of a server connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason<'a> {
    /// Another connection needs its place within a limit.
    Evicted,
    /// PAUSE, or another command that stops the pool.
    Paused,
    /// `server_idle_timeout`.
    IdleTimeout,
    /// `server_lifetime`.
    LifetimeOver,
    /// The pool's size was reduced.
    PoolTooLarge,
    /// Another node of the fleet needs the place.
    SlotGivenBack,
    /// The pool is forgotten.
    PoolIdle,
    /// RELOAD: it is connected to something else than the configuration says.
    ConfigurationChanged,
    /// RECONNECT, or other hosts by RELOAD: which cluster the entry's servers are of is to be found out anew.
    ClusterForgotten,
    /// The entry is gone.
    DatabaseRemoved,
    /// KILL.
    DatabaseKilled,
    /// SHUTDOWN.
    ShuttingDown,
    /// Clients of one mode leave state that clients of the other must not find.
    ModeChanged,
    /// The host's name stands for other addresses now.
    HostMoved,
    /// There is a primary on a newer timeline.
    LeftBehind,
    /// Most of the entry's hosts are of another cluster than the one that was used first.
    OtherCluster,
    /// A standby was promoted, and the entry's connections go to standbys.
    Promoted,
    /// DETACH.
    Detached,
    /// The server has said that it ends.
    SentFatal,
    /// Its end of file or error came unexpectedly.
    Crashed,
    /// It broke the protocol while it was idle.
    UnexpectedBytes,
    /// Its state is not known any more.
    ResetFailed,
    /// It was released in the middle of something.
    Unclean,
    /// A cancel request to it was given up after it was sent (`cancel_wait_timeout`): it may still meet what runs then.
    CancelUnanswered,
    /// Its client has disconnected in the middle of something.
    ClientLeft,
    /// Its client did not arrive from the other process.
    ClientLost,
    /// It cannot be sent to the process that takes over.
    TakenOver,
    /// It came from another process that did not say what it reports.
    ParametersUnknown,
    /// It came from another process, and nothing is known here of servers of its pool.
    UnknownHere,
    /// It cannot be logged in to.
    LoginFailed,
    /// It cannot be connected to.
    ConnectFailed,
    /// `max_pinned`: its session holds what cannot be kept.
    PinRefused,
    /// `server_shuffle`: its last client would have got it again.
    Shuffled,
    /// `server_connect_timeout`.
    ConnectTimeout,
    /// `server_tls_sslmode` demands TLS.
    TlsRefused,
    /// Bytes that TLS did not protect.
    PlainBehindTls,
    /// Neither S nor N.
    TlsAnswerUnexpected,
    /// A dedicated server ends with its client.
    ReplicationClientClosed,
    /// Its client has disconnected before it got the server.
    ReplicationClientLeft,
    /// DISCARD ALL failed before a query of Weir's own.
    NotFresh,
    /// Something ran on it whose outcome is not modelled.
    StateUnknown,
    /// `query_timeout`.
    QueryTimeout,
    /// `idle_transaction_timeout`.
    IdleTransactionTimeout,
    /// `transaction_timeout`.
    TransactionTimeout,
    /// The text of the error that its client gets or that the server sent, or what was wrong with its bytes.
    Message(&'a str),
}

impl CloseReason<'_> {
    /// What is written there is lost: no client may keep such a server for its session.
    pub(crate) fn loses_writes(self) -> bool {
        matches!(self, CloseReason::LeftBehind | CloseReason::OtherCluster)
    }
}

impl fmt::Display for CloseReason<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            CloseReason::Evicted => "evicted",
            CloseReason::Paused => "pause",
            CloseReason::IdleTimeout => "server idle timeout",
            CloseReason::LifetimeOver => "server lifetime over",
            CloseReason::PoolTooLarge => "too many servers in the pool",
            CloseReason::SlotGivenBack => "another node of the fleet needs the connection",
            CloseReason::PoolIdle => "idle pool",
            CloseReason::ConfigurationChanged | CloseReason::ClusterForgotten => {
                "database configuration changed"
            }
            CloseReason::DatabaseRemoved => "database removed",
            CloseReason::DatabaseKilled => "database was killed",
            CloseReason::ShuttingDown => "server shutting down",
            CloseReason::ModeChanged => "pool mode changed",
            CloseReason::HostMoved => "obsolete connection",
            CloseReason::LeftBehind => "there is a primary on a newer timeline",
            CloseReason::OtherCluster => "most hosts of the entry are of another cluster",
            CloseReason::Promoted => "server is not in hot standby mode any more",
            CloseReason::Detached => "host was detached",
            CloseReason::SentFatal => "server sent FATAL",
            CloseReason::Crashed => "server conn crashed?",
            CloseReason::UnexpectedBytes => "unexpected bytes from an idle server",
            CloseReason::ResetFailed => "server_reset_query failed",
            CloseReason::Unclean => "unclean server",
            CloseReason::CancelUnanswered => "cancel request was not answered",
            CloseReason::ClientLeft => "client disconnect while server was not ready",
            CloseReason::ClientLost => "client was lost",
            CloseReason::TakenOver => "another process has taken over",
            CloseReason::ParametersUnknown => "reported parameters unknown",
            CloseReason::UnknownHere => "unknown to this process",
            CloseReason::LoginFailed => "login failed",
            CloseReason::ConnectFailed => "connect failed",
            CloseReason::ConnectTimeout => "connect timeout",
            CloseReason::PinRefused => "max_pinned",
            CloseReason::Shuffled => "server_shuffle",
            CloseReason::TlsRefused => "server refused SSL",
            CloseReason::PlainBehindTls => "received unencrypted data after SSL response",
            CloseReason::TlsAnswerUnexpected => "unexpected response to SSL request",
            CloseReason::ReplicationClientClosed => "replication client was closed",
            CloseReason::ReplicationClientLeft => "replication client disconnected",
            CloseReason::NotFresh => "server could not be made fresh",
            CloseReason::StateUnknown => "session state unknown",
            CloseReason::QueryTimeout => "query timeout",
            CloseReason::IdleTransactionTimeout => "idle transaction timeout",
            CloseReason::TransactionTimeout => "transaction timeout",
            CloseReason::Message(text) => text,
        })
    }
}
