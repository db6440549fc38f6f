//! Connecting to servers: the steps of [`crate::connect`], taken with a backend.
//!
//! Owns the order of the steps. How a socket is watched while it connects is the backend's.

use settings::Config;
use shard::{ConnId, Event, Target};

use crate::conn_table::State;
use crate::connect::{self, Step};
use crate::event_loop::{Backend, Net};
use crate::ids::Generation;
use crate::names::Addresses;

/// Begins to open a server connection.
pub(crate) fn start<B: Backend>(
    backend: &mut B,
    net: &mut Net<B::Conn>,
    conn: ConnId,
    target: &Target,
    config: &Config,
) {
    net.conns.renew(conn, State::Resolving);
    let step = connect::dial(target, net.context.helpers.known(), &config.global);
    if let (Step::Ask(_), Some(host)) = (&step, target.host()) {
        let requester = net.context.requester(conn, &net.conns);
        net.context.helpers.resolve(requester, host);
    }
    take_step(backend, net, conn, step);
}

/// A helper thread has looked up the host name.
pub(crate) fn resolved<B: Backend>(
    backend: &mut B,
    net: &mut Net<B::Conn>,
    (conn, generation): (ConnId, Generation),
    answer: Result<Addresses, String>,
    config: &Config,
) {
    if net.conns.is_current(conn, generation)
        && let Some(attempt) = net.conns.slot(conn).attempt.take()
    {
        take_step(backend, net, conn, attempt.resolved(answer, &config.global));
    }
}

/// The outcome of a socket that was connecting is known.
pub(crate) fn finished<B: Backend>(backend: &mut B, net: &mut Net<B::Conn>, conn: ConnId, config: &Config) {
    let slot = net.conns.slot(conn);
    let Some(socket) = &slot.socket else { return };
    match (connect::outcome(socket), slot.attempt.take()) {
        (Ok(()), _) => {
            backend.established(net, conn);
            connected(net, conn);
        }
        (Err(fault), Some(attempt)) => {
            slot.socket = None;
            take_step(backend, net, conn, attempt.failed(fault, &config.global));
        }
        (Err(_), None) => {}
    }
}

fn take_step<B: Backend>(backend: &mut B, net: &mut Net<B::Conn>, conn: ConnId, step: Step) {
    match step {
        Step::Connected(socket, is_unix) => {
            backend.connected(net, conn, socket, is_unix);
            connected(net, conn);
        }
        Step::Underway(socket, attempt) => backend.connecting(net, conn, socket, attempt),
        Step::Ask(attempt) => net.conns.slot(conn).attempt = Some(attempt),
        Step::Failed(fault) => {
            net.conns.slot(conn).state = State::Closed;
            net.pending.push_back(Event::ConnectFailed { conn, fault });
            net.pending.push_back(Event::Closed { conn });
        }
    }
}

fn connected<K: Default>(net: &mut Net<K>, conn: ConnId) {
    let Some(socket) = &net.conns.slot(conn).socket else { return };
    let (remote, local) = connect::ends(socket);
    net.pending.push_back(Event::Connected { conn, remote, local });
}
