//! The listening socket as the panel's thread has it: opened, moved and closed as the settings say.
//! Owns what the log is told of it, each news once. Never serves a connection.

use std::io;
use std::net::SocketAddr;

use telemetry::Level;
use tokio::net::{TcpListener, TcpStream};

use crate::doorway::{self, Doorway, NoDoorway};
use crate::shared::{Shared, Situation};

/// Where the thread listens, and what keeps it from that.
#[derive(Default)]
pub(crate) struct Entrance {
    open: Option<(SocketAddr, TcpListener)>,
    /// What was last said of why it is closed.
    said: Option<String>,
    /// Somebody else has the port: another try may do.
    may_pass: bool,
    /// The log knows that it is open.
    is_known: bool,
}

impl Entrance {
    /// One that begins with a socket that is open already.
    pub(crate) fn new(first: Option<Doorway>) -> io::Result<Entrance> {
        Ok(Entrance { open: first.map(with_runtime).transpose()?, ..Entrance::default() })
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
        if let Some((address, _)) = self.open.as_ref().filter(|_| !self.is_known) {
            self.is_known = true;
            let has_tls = now.config.global.http_tls_cert_file.as_ref().is_some_and(|path| !path.is_empty());
            let scheme = if has_tls { "https" } else { "http" };
            shared.log(Level::Log, format!("panel: {scheme}://{address}"));
        }
    }

    fn wanted(&mut self, shared: &Shared, now: &Situation) -> Result<(), NoDoorway> {
        let wanted = doorway::wanted(&now.config.global, shared.access.has_keys());
        let wanted = wanted.inspect_err(|_| self.close())?.filter(|_| !now.has_left);
        if self.open.as_ref().map(|(address, _)| *address) == wanted {
            return Ok(());
        }
        self.close();
        let Some(address) = wanted else { return Ok(()) };
        let doorway = with_runtime(Doorway::at(address)?);
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
            Some((_, listener)) => listener.accept().await,
            None => std::future::pending().await,
        }
    }
}

fn with_runtime(doorway: Doorway) -> io::Result<(SocketAddr, TcpListener)> {
    Ok((doorway.address, TcpListener::from_std(doorway.listener)?))
}
