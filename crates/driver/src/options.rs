//! Options of TCP sockets, as the settings say.
//!
//! Options of a listening socket are inherited by what it accepts (Linux), so accepted sockets cost no call here.
//! A refused option is no reason to refuse a connection: failures are ignored.

use std::os::fd::AsFd;

use rustix::net::sockopt;
use settings::Global;

use crate::sys;

/// TCP_NODELAY always; keepalive, user timeout and buffer sizes as configured.
pub(crate) fn apply(socket: impl AsFd, global: &Global) {
    let socket = socket.as_fd();
    let _ = sockopt::set_tcp_nodelay(socket, true);
    let timeout_ms = u32::try_from(global.tcp_user_timeout.as_millis()).unwrap_or(u32::MAX);
    if timeout_ms > 0 {
        let _ = sockopt::set_tcp_user_timeout(socket, timeout_ms);
    }
    if global.tcp_socket_buffer > 0 {
        let _ = sockopt::set_socket_recv_buffer_size(socket, global.tcp_socket_buffer as usize);
        let _ = sockopt::set_socket_send_buffer_size(socket, global.tcp_socket_buffer as usize);
    }
    let _ = sockopt::set_socket_keepalive(socket, global.tcp_keepalive);
    if global.tcp_keepalive {
        keepalive(socket, global);
    }
}

fn keepalive(socket: impl AsFd, global: &Global) {
    let socket = socket.as_fd();
    if global.tcp_keepcnt > 0 {
        let _ = sockopt::set_tcp_keepcnt(socket, global.tcp_keepcnt);
    }
    if !global.tcp_keepidle.is_zero() {
        let _ = sockopt::set_tcp_keepidle(socket, global.tcp_keepidle);
    }
    if !global.tcp_keepintvl.is_zero() {
        let _ = sockopt::set_tcp_keepintvl(socket, global.tcp_keepintvl);
    }
}

/// What only a listening socket has: TCP_DEFER_ACCEPT. Its seconds bound how long a silent client stays unseen.
pub(crate) fn apply_to_listener(socket: impl AsFd, global: &Global) {
    const DEFER_SECONDS: i32 = 1;
    apply(socket.as_fd(), global);
    sys::set_defer_accept(socket.as_fd(), if global.tcp_defer_accept { DEFER_SECONDS } else { 0 });
}
