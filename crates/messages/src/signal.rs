//! What the process is told by signals. What one leads to is the control thread's matter.

/// A signal that the pooler understands; others do what they do to any process.
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
