//! Peers that fail while output for them is pending, on both loops with real sockets: every failure is reported.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::{set_socket_linger, set_socket_recv_buffer_size};
use settings::IoDriver;
use support::{Setup, Stage, read, serve, wait_for};

/// Each test once per driver.
macro_rules! on_both {
    ($($name:ident)*) => {
        mod by_epoll {
            $(#[test] fn $name() { super::$name(settings::IoDriver::Epoll); })*
        }
        mod by_io_uring {
            $(#[test] fn $name() { super::$name(settings::IoDriver::IoUring); })*
        }
    };
}

on_both! {
    a_client_that_does_not_read_and_is_reset_is_noticed
    a_client_that_does_not_read_and_closes_is_noticed
    a_client_that_does_not_read_and_vanishes_is_noticed
    a_client_that_closes_one_side_and_does_not_read_is_noticed
    a_unix_client_that_does_not_read_and_closes_is_noticed
    a_server_that_does_not_read_and_dies_is_heard_to_its_end
    a_half_closed_client_is_told_of_with_each_pause
}

/// A server that never stops speaking.
fn flood() -> SocketAddr {
    serve(|mut stream| while stream.write_all(&[b'x'; 65_536]).is_ok() {})
}

/// Small buffers of the kernel, so that nothing is left to be taken once output is stuck.
fn relay(io: IoDriver, target: SocketAddr) -> Setup {
    let mut setup = Setup::relay(io, target);
    setup.config.global.tcp_socket_buffer = 16 * 1024;
    setup
}

/// A client that reads nothing of a flood, once its output is stuck.
fn deaf(stage: &Stage) -> TcpStream {
    let before = count(&stage.seen.clogged);
    let client = stage.connect();
    set_socket_recv_buffer_size(&client, 4096).unwrap();
    stuck(stage, before);
    client
}

/// Waits until the socket takes nothing more; a first clog may yet be drained into its buffers.
fn stuck(stage: &Stage, before: usize) {
    wait_for("output to be stuck", || {
        let seen = (count(&stage.seen.clogged), count(&stage.seen.drained));
        thread::sleep(Duration::from_millis(50));
        seen.0 > before && seen == (count(&stage.seen.clogged), count(&stage.seen.drained)) && seen.0 > seen.1
    });
}

fn count(counter: &AtomicUsize) -> usize {
    counter.load(Ordering::SeqCst)
}

/// Both the client's socket and its server's are closed, by a failed write.
fn write_failed(stage: &Stage, times: usize) {
    wait_for("the failed write", || count(&stage.seen.write_failed) == times);
    stage.all_closed(2 * times);
}

fn a_client_that_does_not_read_and_is_reset_is_noticed(io: IoDriver) {
    let stage = relay(io, flood()).start();
    for times in 1..=3 {
        let client = deaf(&stage);
        set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
        drop(client);
        write_failed(&stage, times);
    }
}

fn a_client_that_does_not_read_and_closes_is_noticed(io: IoDriver) {
    let stage = relay(io, flood()).start();
    for times in 1..=3 {
        drop(deaf(&stage));
        write_failed(&stage, times);
    }
}

fn a_client_that_does_not_read_and_vanishes_is_noticed(io: IoDriver) {
    let mut setup = relay(io, flood());
    setup.config.global.tcp_user_timeout = Duration::from_millis(300);
    let stage = setup.start();
    let client = deaf(&stage);
    write_failed(&stage, 1);
    drop(client);
}

fn a_client_that_closes_one_side_and_does_not_read_is_noticed(io: IoDriver) {
    let stage = relay(io, flood()).start();
    let client = deaf(&stage);
    client.shutdown(Shutdown::Write).unwrap();
    wait_for("the half close", || count(&stage.seen.half_closed) == 1);
    assert_eq!(count(&stage.seen.closed), 0, "what to do is for the shard to say");
    drop(client);
    write_failed(&stage, 1);
}

fn a_unix_client_that_does_not_read_and_closes_is_noticed(io: IoDriver) {
    let directory = std::env::temp_dir().join(format!("weir-deaths-{}-{io}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let mut setup = relay(io, flood());
    setup.config.global.listen_addr = Vec::new();
    setup.config.global.listen_port = 6432;
    setup.config.global.unix_socket_dir = Some(directory.display().to_string());
    let stage = setup.start();
    let client = UnixStream::connect(directory.join(".s.PGSQL.6432")).unwrap();
    stuck(&stage, 0);
    drop(client);
    write_failed(&stage, 1);
    drop(stage);
    fs::remove_dir_all(directory).unwrap();
}

fn a_server_that_does_not_read_and_dies_is_heard_to_its_end(io: IoDriver) {
    let dies = Arc::new(AtomicBool::new(false));
    let order = Arc::clone(&dies);
    let server = serve(move |mut stream| {
        while !order.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(5));
        }
        stream.write_all(b"last words").unwrap();
    });
    let stage = relay(io, server).start();
    let mut client = stage.connect();
    let mut writing = client.try_clone().unwrap();
    let writer = thread::spawn(move || while writing.write_all(&[b'x'; 65_536]).is_ok() {});
    stuck(&stage, 0);
    dies.store(true, Ordering::SeqCst);
    assert_eq!(read(&mut client, 10), b"last words");
    stage.all_closed(2);
    assert_eq!(count(&stage.seen.hung_up), 1, "the server's end was read");
    writer.join().unwrap();
}

fn a_half_closed_client_is_told_of_with_each_pause(io: IoDriver) {
    let stage = Setup::new(io).start();
    for (round, settled) in [false, true].into_iter().enumerate() {
        let mut client = stage.connect();
        if settled {
            client.write_all(b"!settle").unwrap();
            assert_eq!(read(&mut client, 2), b"ok");
        }
        let order = |client: &mut TcpStream| {
            let before = count(&stage.seen.received);
            client.write_all(b"!pause").unwrap();
            before
        };
        let before = order(&mut client);
        wait_for("the pause", || count(&stage.seen.received) > before);
        order(&mut client);
        client.shutdown(Shutdown::Write).unwrap();
        for time in 1..=2 {
            wait_for("the half close", || count(&stage.seen.half_closed) == 2 * round + time);
            assert_eq!(count(&stage.seen.hung_up), round, "the shard does not read yet");
            stage.resume_all();
        }
        assert_eq!(client.read(&mut [0; 10]).unwrap(), 0);
        stage.all_closed(round + 1);
    }
}
