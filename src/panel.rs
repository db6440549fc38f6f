//! The control panel as the process has it: opened with the other sockets, and tied to the control thread.
//! Never answers a request; crate `http` does.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::SystemTime;

use control::Input;
use http::{Doorway, NoDoorway, Panel, Plan};
use settings::Config;

use crate::boot::NoBoot;

/// The panel's socket. A process that takes over gets the port later, when the one before has left it.
///
/// # Errors
/// [`NoBoot::Panel`]: the settings ask for what cannot be, or somebody else has the port.
pub(crate) fn doorway(config: &Config, takes_over: bool) -> Result<Option<Doorway>, NoBoot> {
    match Doorway::open(&config.global) {
        Err(NoDoorway::Socket(..)) if takes_over => Ok(None),
        other => other.map_err(NoBoot::Panel),
    }
}

/// Starts the panel; if it is off, it begins when a RELOAD says so. Everything has been counted since `born`.
pub(crate) fn start(
    config: &Arc<Config>,
    born: SystemTime,
    doorway: Option<Doorway>,
    inputs: Sender<Input>,
    log: http::Log,
    journal: Arc<http::Journal>,
) -> Panel {
    let ways = inputs.clone();
    let ask = Arc::new(move |question| drop(ways.send(Input::Ask(question))));
    let tell = Arc::new(move |input| drop(inputs.send(input)));
    Panel::start(Plan {
        config: Arc::clone(config),
        born,
        doorway,
        ask,
        tell,
        log,
        journal,
        version: control::VERSION,
        workloads: lab::workload::NAMES,
    })
}
