//! systemd or a compatible service manager: sd_notify(3) and socket activation (sd_listen_fds(3)).
//! Errors are ignored.

use std::env;
use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use driver::{Inherited, process};

/// The way to the service manager; nowhere if there is none.
#[derive(Debug, Default)]
pub(crate) struct ServiceManager {
    address: Option<SocketAddr>,
    is_quiet: bool,
}

impl ServiceManager {
    /// The one that NOTIFY_SOCKET names.
    pub(crate) fn found() -> ServiceManager {
        let address = env::var_os("NOTIFY_SOCKET").and_then(|name| address(&name));
        ServiceManager { address, is_quiet: false }
    }

    /// READY=1. After a takeover this process is the service's main one.
    pub(crate) fn ready(&self, took_over: bool) {
        let main = if took_over { format!("MAINPID={}\n", std::process::id()) } else { String::new() };
        self.say(&format!("{main}READY=1\n"));
    }

    /// The configuration is being read again; [`ServiceManager::ready`] ends that. Type=notify-reload wants the time.
    pub(crate) fn reloading(&self) {
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={}\n", process::monotonic_us()));
    }

    /// The process is about to end.
    pub(crate) fn stopping(&self) {
        self.say("STOPPING=1\n");
    }

    /// Whether another process notifies for the service from now on.
    pub(crate) fn set_handed_over(&mut self, is_left: bool) {
        self.is_quiet = is_left;
    }

    fn say(&self, text: &str) {
        let Some(address) = self.address.as_ref().filter(|_| !self.is_quiet) else { return };
        if let Ok(socket) = UnixDatagram::unbound() {
            let _ = socket.set_nonblocking(true);
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }
}

/// The listening sockets that were passed to this process, if any were.
pub(crate) fn passed_sockets() -> Vec<Inherited> {
    let number = |name| env::var(name).ok()?.parse::<u32>().ok();
    match (number("LISTEN_PID"), number("LISTEN_FDS")) {
        (Some(process_id), Some(count)) if process_id == std::process::id() => process::passed_sockets(count),
        _ => Vec::new(),
    }
}

fn address(name: &OsStr) -> Option<SocketAddr> {
    match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok(),
        [b'/', ..] => SocketAddr::from_pathname(name).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn hear(socket: &UnixDatagram) -> String {
        let mut text = [0; 256];
        let count = socket.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..count]).into_owned()
    }

    #[test]
    fn everything_is_said_in_its_words() {
        let name = format!("weir-notify-{}", std::process::id());
        let own = address(OsStr::new(&format!("@{name}"))).unwrap();
        let socket = UnixDatagram::bind_addr(&own).unwrap();
        let mut manager = ServiceManager { address: Some(own), is_quiet: false };
        manager.ready(false);
        assert_eq!(hear(&socket), "READY=1\n");
        manager.ready(true);
        assert_eq!(hear(&socket), format!("MAINPID={}\nREADY=1\n", std::process::id()));
        manager.reloading();
        let text = hear(&socket);
        let time = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(time.trim().parse::<u64>().unwrap() > 0);
        manager.set_handed_over(true);
        manager.stopping();
        manager.set_handed_over(false);
        manager.stopping();
        assert_eq!(hear(&socket), "STOPPING=1\n");
        socket.set_nonblocking(true).unwrap();
        assert!(socket.recv(&mut [0; 1]).is_err(), "nothing was said while another process spoke");
    }

    #[test]
    fn no_manager_is_none() {
        ServiceManager::default().ready(true);
        assert!(address(OsStr::new("relative")).is_none());
    }
}
