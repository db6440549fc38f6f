//! The signals that the process handles. What each does is decided by the control thread.

/// A signal that the pooler handles; others keep their default action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGHUP: RELOAD, and the log file is opened again.
    Hup,
    /// SIGINT: SHUTDOWN WAIT_FOR_SERVERS; while shutting down, exit.
    Int,
    /// SIGTERM: SHUTDOWN WAIT_FOR_CLIENTS; while shutting down, exit.
    Term,
    /// SIGQUIT: exit.
    Quit,
    /// SIGUSR1: PAUSE.
    Usr1,
    /// SIGUSR2: RESUME.
    Usr2,
}
