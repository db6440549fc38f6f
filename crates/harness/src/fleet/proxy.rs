//! A TCP proxy on loopback that cuts off what is behind it: connections are closed, and new ones with them, until it is healed.

use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lab::error::{LabError, Result};

/// Between two looks at the listener.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Runs until it is dropped.
pub(super) struct Proxy {
    port: u16,
    state: Arc<State>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    is_cut: AtomicBool,
    is_over: AtomicBool,
    /// Both ends of every connection since the last cut.
    open: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// A proxy before this port.
    pub(super) fn start(target: u16) -> Result<Self> {
        let doing = || LabError::system("starting a proxy before etcd");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(doing())?;
        listener.set_nonblocking(true).map_err(doing())?;
        let port = listener.local_addr().map_err(doing())?.port();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let acceptor = thread::spawn(move || shared.accept(&listener, target));
        Ok(Self { port, state, acceptor: Some(acceptor) })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Closes all connections; new ones are closed until [`Proxy::heal`].
    pub(super) fn cut(&self) {
        self.state.is_cut.store(true, Ordering::SeqCst);
        let mut open = self.state.open.lock().unwrap_or_else(PoisonError::into_inner);
        for end in open.drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    pub(super) fn heal(&self) {
        self.state.is_cut.store(false, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::SeqCst);
        self.cut();
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

impl State {
    fn accept(&self, listener: &TcpListener, target: u16) {
        while !self.is_over.load(Ordering::SeqCst) {
            match listener.accept() {
                // A member that does not answer is as good as none; the node sees the end of its connection.
                Ok((client, _)) => drop(self.connect(client, target)),
                Err(_) => thread::sleep(LOOK_EVERY),
            }
        }
    }

    fn connect(&self, client: TcpStream, target: u16) -> io::Result<()> {
        if self.is_cut.load(Ordering::SeqCst) {
            return Ok(());
        }
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, target))?;
        for end in [&client, &server] {
            end.set_nodelay(true)?;
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // A cut that has come since then has not seen this connection.
        if self.is_cut.load(Ordering::SeqCst) {
            return Ok(());
        }
        open.extend([client.try_clone()?, server.try_clone()?]);
        let (other_client, other_server) = (client.try_clone()?, server.try_clone()?);
        thread::spawn(move || pass(client, server));
        thread::spawn(move || pass(other_server, other_client));
        Ok(())
    }
}

/// Bytes of one direction until its end, which ends the other too.
fn pass(mut from: TcpStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn a_cut_closes_connections_and_new_ones_until_it_is_healed() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = Proxy::start(server.local_addr().unwrap().port()).unwrap();
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).unwrap();
        let answer = |client: &mut TcpStream| {
            let (mut peer, _) = server.accept().unwrap();
            peer.write_all(b"x").unwrap();
            let mut one = [0];
            client.read_exact(&mut one).unwrap();
            peer
        };
        let mut client = connect();
        let mut peer = answer(&mut client);
        proxy.cut();
        assert_eq!((client.read(&mut [0]).unwrap(), peer.read(&mut [0]).unwrap()), (0, 0));
        assert_eq!(connect().read(&mut [0]).unwrap_or(0), 0);
        proxy.heal();
        answer(&mut connect());
    }
}
