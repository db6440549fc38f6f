//! The listening socket as the panel's thread has it: opened, moved and closed as the settings say.
//! Owns what the log is told of it, each news once. Never serves a connection.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use telemetry::Level;
use tokio::net::{TcpListener, TcpStream};

use crate::doorway::{self, Doorway, NoDoorway};
use crate::shared::{Shared, Situation};

/// Another handle of the socket that listens, for a process that takes over; there only while the panel's thread listens.
#[derive(Default)]
pub(crate) struct PanelSocket(Mutex<Option<OwnedFd>>);

impl PanelSocket {
    /// A handle of its own; None where the panel does not listen.
    pub(crate) fn handle(&self) -> Option<OwnedFd> {
        self.held().as_ref()?.try_clone().ok()
    }

    fn held(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The socket, open.
struct Open {
    address: SocketAddr,
    listener: TcpListener,
    handle: Arc<PanelSocket>,
}

impl Drop for Open {
    /// No handle keeps the port where nobody listens any more.
    fn drop(&mut self) {
        *self.handle.held() = None;
    }
}

/// Where the thread listens, and what keeps it from that.
#[derive(Default)]
pub(crate) struct Entrance {
    open: Option<Open>,
    /// What was last said of why it is closed.
    said: Option<String>,
    /// Somebody else has the port: another try may do.
    may_pass: bool,
    /// The log knows that it is open.
    is_known: bool,
}

impl Entrance {
    /// One that begins with a socket that is open already.
    pub(crate) fn new(shared: &Shared, first: Option<Doorway>) -> io::Result<Entrance> {
        let open = first.map(|doorway| with_runtime(shared, doorway)).transpose()?;
        Ok(Entrance { open, ..Entrance::default() })
    }

    /// Opens, moves or closes the socket.
    pub(crate) fn follow(&mut self, shared: &Shared, now: &Situation) {
        match self.wanted(shared, now) {
            Ok(()) => (self.said, self.may_pass) = (None, false),
            Err(why) => {
                self.may_pass = why.may_pass();
                let text = format!("panel: {why}");
                if self.said.as_ref() != Some(&text) {
                    shared.log(Level::Warning, text.clone());
                    self.said = Some(text);
                }
            }
        }
        if let Some(Open { address, .. }) = self.open.as_ref().filter(|_| !self.is_known) {
            self.is_known = true;
            let has_tls = now.config.global.http_tls_cert_file.as_ref().is_some_and(|path| !path.is_empty());
            let scheme = if has_tls { "https" } else { "http" };
            shared.log(Level::Log, format!("panel: {scheme}://{address}"));
        }
    }

    fn wanted(&mut self, shared: &Shared, now: &Situation) -> Result<(), NoDoorway> {
        let wanted = doorway::wanted(&now.config.global, shared.access.has_keys());
        let wanted = wanted.inspect_err(|_| self.close())?.filter(|_| !now.has_left);
        if self.open.as_ref().map(|open| open.address) == wanted {
            return Ok(());
        }
        self.close();
        let Some(address) = wanted else { return Ok(()) };
        let doorway = with_runtime(shared, Doorway::at(address)?);
        self.open = Some(doorway.map_err(|why| NoDoorway::Socket(address, why))?);
        Ok(())
    }

    fn close(&mut self) {
        (self.open, self.is_known) = (None, false);
    }

    /// Somebody else has the port now.
    pub(crate) fn is_in_the_way(&self) -> bool {
        self.may_pass
    }

    /// Who comes next; nobody while it is closed.
    pub(crate) async fn guest(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match &self.open {
            Some(open) => open.listener.accept().await,
            None => std::future::pending().await,
        }
    }
}

fn with_runtime(shared: &Shared, doorway: Doorway) -> io::Result<Open> {
    // Without another handle the panel goes on all the same, and a process that takes over binds the port later.
    let handle = doorway.listener.try_clone().ok().map(OwnedFd::from);
    let listener = TcpListener::from_std(doorway.listener)?;
    *shared.socket.held() = handle;
    Ok(Open { address: doorway.address, listener, handle: Arc::clone(&shared.socket) })
}
