//! The thread that takes part in a fleet, with what it has of this process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use control::Input;
use driver::{Engine, process};
use fleetagent::{Contact, FleetAgent, FleetNews, Identity, Inbox};
use settings::Config;

use crate::boot::{BootError, writer};
use crate::logging::Logger;

/// Starts the thread, if the process is a node. `note`: what the process that this one takes over from has left.
///
/// # Errors
/// [`BootError`]: a setting's fault, but where the system has no thread.
pub(crate) fn take_part(
    config: &Arc<Config>,
    engine: &Engine,
    contact: (Contact, Inbox),
    shards: u16,
    sender: Sender<Input>,
    note: &str,
    logger: &Arc<Logger>,
) -> Result<Option<FleetAgent>, BootError> {
    if !config.global.fleet.is_some() {
        return Ok(None);
    }
    let host = process::host_name();
    let node = config.global.fleet_node.clone().unwrap_or_else(|| host.clone());
    if !settings::is_node_id(&node) {
        return Err(BootError::NodeName(host));
    }
    let port = config.global.listen_port;
    let default_address = || match fleetagent::pod_address(config) {
        Some(pod) => SocketAddr::new(pod, port).to_string(),
        None => format!("{host}:{port}"),
    };
    let address = config.global.fleet_address.clone().unwrap_or_else(default_address);
    let identity = Identity { node, address, version: env!("CARGO_PKG_VERSION") };
    let outside = fleetagent::Outside {
        counts: engine.fleet_counts(),
        command: Arc::new(engine.broadcaster()),
        tell: Arc::new(move |news| drop(sender.send(input(news)))),
        shards,
        log: writer(logger),
        monotonic_us: process::monotonic_us,
        wall_s: process::wall_s,
        system: pgclient::System { fill_random: process::fill_random },
    };
    FleetAgent::start(config, identity, contact, outside, fleetagent::from_note(note))
        .map_err(BootError::Fleet)
}

fn input(news: FleetNews) -> Input {
    match news {
        FleetNews::Peers(peers) => Input::FleetPeers(peers),
        FleetNews::Pools(pools) => Input::FleetPools(pools),
        FleetNews::PoolsChanged(result) => Input::FleetPoolsChanged(result),
        FleetNews::PoolsUsed { request, result } => Input::FleetPoolsUsed { request, result },
        FleetNews::Drain(order) => Input::Drain(order),
        FleetNews::DrainOrdered { request, result } => Input::DrainOrdered { request, result },
    }
}
