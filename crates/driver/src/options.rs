//! Options of TCP sockets, as the settings say.
//!
//! Options of a listening socket are inherited by what it accepts (Linux), so accepted sockets cost no call here.
//! A refused option is no reason to refuse a connection: failures are ignored.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
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

/// Changes what a listening socket was given before: what is not said any more is the kernel's own again.
pub(crate) fn change_listener(socket: impl AsFd, global: &Global) {
    let socket = socket.as_fd();
    reset(socket);
    apply_to_listener(socket, global);
}

/// Reads the kernel's defaults from an unchanged socket.
fn reset(socket: BorrowedFd<'_>) {
    let Ok(fresh) = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None) else {
        return;
    };
    let _ = sockopt::tcp_keepcnt(&fresh).and_then(|count| sockopt::set_tcp_keepcnt(socket, count));
    let _ = sockopt::tcp_keepidle(&fresh).and_then(|idle| sockopt::set_tcp_keepidle(socket, idle));
    let _ = sockopt::tcp_keepintvl(&fresh).and_then(|time| sockopt::set_tcp_keepintvl(socket, time));
    let _ = sockopt::set_tcp_user_timeout(socket, 0);
    if sys::has_fixed_buffers(socket) {
        // The kernel reports twice what was asked for, and grows a buffer only while its size is not fixed.
        let half = |size: usize| size / 2;
        let _ = sockopt::socket_recv_buffer_size(&fresh)
            .and_then(|size| sockopt::set_socket_recv_buffer_size(socket, half(size)));
        let _ = sockopt::socket_send_buffer_size(&fresh)
            .and_then(|size| sockopt::set_socket_send_buffer_size(socket, half(size)));
        sys::free_buffers(socket);
    }
}

/// What only a listening socket has: TCP_DEFER_ACCEPT. Its seconds bound how long a silent client stays unseen.
pub(crate) fn apply_to_listener(socket: impl AsFd, global: &Global) {
    const DEFER_SECONDS: i32 = 1;
    apply(socket.as_fd(), global);
    sys::set_defer_accept(socket.as_fd(), if global.tcp_defer_accept { DEFER_SECONDS } else { 0 });
}
