//! The control panel as the process has it: opened with the other sockets, and tied to the control thread.
//! Never answers a request; the crate `panel` does.

use std::env;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::SystemTime;

use control::Input;
use driver::Predecessor;
use panel::{ListenError, ListenSocket, Panel, PanelArgs, TokenOutput};
use settings::Config;

use crate::boot::BootError;
use crate::logging::Logger;

/// The panel's socket: the predecessor's, if that has it where the settings want it. Else a process that takes over gets the port
/// later, when the one before has left it.
///
/// # Errors
/// [`BootError::Panel`]: the settings ask for what cannot be, or somebody else has the port.
pub(crate) fn listen_socket(
    config: &Config,
    predecessor: Option<&mut Predecessor>,
) -> Result<Option<ListenSocket>, BootError> {
    let takes_over = predecessor.is_some();
    let inherited = predecessor.and_then(|old| old.panel.take());
    match ListenSocket::open(&config.global, inherited) {
        Err(ListenError::Socket(..)) if takes_over => Ok(None),
        other => other.map_err(BootError::Panel),
    }
}

/// Starts the panel; if it is off, it begins when a RELOAD says so. Everything has been counted since `born`.
pub(crate) fn start(
    config: &Arc<Config>,
    born: SystemTime,
    listen_socket: Option<ListenSocket>,
    inputs: Sender<Input>,
    logger: &Arc<Logger>,
    takes_over: bool,
) -> Panel {
    let ways = inputs.clone();
    let ask = Arc::new(move |question| drop(ways.send(Input::PanelQuery(question))));
    let send = Arc::new(move |input| drop(inputs.send(input)));
    Panel::start(PanelArgs {
        config: Arc::clone(config),
        born,
        listen_socket,
        ask,
        tell: send,
        log: crate::boot::writer(logger),
        token_output: token_target(logger),
        log_ring: logger.log_ring(),
        version: control::VERSION,
        state_dir: state_dir(config),
        takes_over,
        find_lab: || crate::bench_command::find().map(drop),
    })
}

/// Where what outlives the process is kept: as the settings say, else where systemd does. Empty is nowhere.
fn state_dir(config: &Config) -> Option<PathBuf> {
    let named = config.global.state_dir.as_ref().filter(|path| !path.is_empty()).map(PathBuf::from);
    let given =
        || env::split_paths(&env::var_os("STATE_DIRECTORY")?).next().filter(|path| path.is_absolute());
    named.or_else(given)
}

/// The start token is shown to who started the process at a terminal. Else it goes where systemd, or a login session, keeps what
/// lives as long as the process.
fn token_target(logger: &Logger) -> TokenOutput {
    if logger.is_on_terminal() {
        return TokenOutput::Terminal;
    }
    let named = ["RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"].into_iter().filter_map(env::var_os);
    // systemd names several with colons between them.
    TokenOutput::File(
        named.filter_map(|value| env::split_paths(&value).next()).filter(|path| path.is_absolute()).collect(),
    )
}
