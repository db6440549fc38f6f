//! The listening socket as the panel's thread has it: opened, moved and closed as the settings say.
//! Owns its log lines, each state once. Never serves a connection.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use telemetry::Level;
use tokio::net::{TcpListener, TcpStream};

use crate::access::Access;
use crate::context::{PanelContext, PanelState};
use crate::listen_socket::{self, ListenError, ListenSocket};

/// Another handle of the socket that listens, for a process that takes over; there only while the panel's thread listens.
#[derive(Default)]
pub(crate) struct PanelSocket(Mutex<Option<OwnedFd>>);

impl PanelSocket {
    /// A handle of its own; None where the panel does not listen.
    pub(crate) fn handle(&self) -> Option<OwnedFd> {
        self.locked().as_ref()?.try_clone().ok()
    }

    fn locked(&self) -> MutexGuard<'_, Option<OwnedFd>> {
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
    /// The handle is closed with the listener, or it would keep the port.
    fn drop(&mut self) {
        *self.handle.locked() = None;
    }
}

/// Where the thread listens, and what keeps it from that.
pub(crate) struct PanelListener {
    context: PanelContext,
    access: Arc<Access>,
    handle: Arc<PanelSocket>,
    open: Option<Open>,
    /// What was last said of why it is closed.
    last_warning: Option<String>,
    /// Another process has the port: worth a retry.
    is_retryable: bool,
    /// The log knows that it is open.
    is_logged: bool,
}

impl PanelListener {
    /// One that begins with a socket that is open already.
    pub(crate) fn new(
        context: PanelContext,
        access: Arc<Access>,
        handle: Arc<PanelSocket>,
        first: Option<ListenSocket>,
    ) -> io::Result<PanelListener> {
        let open = first.map(|listen_socket| register(&handle, listen_socket)).transpose()?;
        Ok(PanelListener {
            context,
            access,
            handle,
            open,
            last_warning: None,
            is_retryable: false,
            is_logged: false,
        })
    }

    /// Opens, moves or closes the socket.
    pub(crate) fn follow(&mut self, now: &PanelState) {
        match self.reconcile(now) {
            Ok(()) => (self.last_warning, self.is_retryable) = (None, false),
            Err(why) => {
                self.is_retryable = why.is_retryable();
                let text = format!("panel: {why}");
                if self.last_warning.as_ref() != Some(&text) {
                    self.context.log(Level::Warning, text.clone());
                    self.last_warning = Some(text);
                }
            }
        }
        if let Some(Open { address, .. }) = self.open.as_ref().filter(|_| !self.is_logged) {
            self.is_logged = true;
            let has_tls = now.config.global.http_tls_cert_file.as_ref().is_some_and(|path| !path.is_empty());
            let scheme = if has_tls { "https" } else { "http" };
            self.context.log(Level::Log, format!("panel: {scheme}://{address}"));
        }
    }

    fn reconcile(&mut self, now: &PanelState) -> Result<(), ListenError> {
        let reconcile = listen_socket::address(&now.config.global, self.access.has_credentials());
        let reconcile = reconcile.inspect_err(|_| self.close())?.filter(|_| !now.is_handed_over);
        if self.open.as_ref().map(|open| open.address) == reconcile {
            return Ok(());
        }
        self.close();
        let Some(address) = reconcile else { return Ok(()) };
        let listen_socket = register(&self.handle, ListenSocket::at(address)?);
        self.open = Some(listen_socket.map_err(|why| ListenError::Socket(address, why))?);
        Ok(())
    }

    fn close(&mut self) {
        (self.open, self.is_logged) = (None, false);
    }

    /// Another process has the port now.
    pub(crate) fn should_retry(&self) -> bool {
        self.is_retryable
    }

    /// The next connection; pending while the listener is closed.
    pub(crate) async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match &self.open {
            Some(open) => open.listener.accept().await,
            None => std::future::pending().await,
        }
    }
}

fn register(socket: &Arc<PanelSocket>, listen_socket: ListenSocket) -> io::Result<Open> {
    // Without another handle the panel works all the same, and a process that takes over binds the port later.
    let handle = listen_socket.listener.try_clone().ok().map(OwnedFd::from);
    let listener = TcpListener::from_std(listen_socket.listener)?;
    *socket.locked() = handle;
    Ok(Open { address: listen_socket.address, listener, handle: Arc::clone(socket) })
}
