//! File descriptors: none is lost, and running out of them shuts nobody out for good. One process, one test at a time.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs::{self, File};
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::thread;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use settings::IoDriver;
use support::{PATIENCE, Setup, Stage, read, serve, wait_for};

/// Both tests count the descriptors of the whole process.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn a_thousand_connections_leave_nothing_behind() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for io in [IoDriver::Epoll, IoDriver::IoUring] {
        let echo = serve(|mut stream| {
            let mut from = stream.try_clone().unwrap();
            let _ = std::io::copy(&mut from, &mut stream);
        });
        let stage = Setup { threads: 2, ..Setup::relay(io, echo) }.start();
        come_and_go(&stage, 10);
        stage.all_closed(2 * 10);
        let before = open_files();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| come_and_go(&stage, 250));
            }
        });
        stage.all_closed(2 * 1_010);
        wait_for("descriptors to be closed", || open_files() <= before);
    }
}

/// Some leave politely, some without a word, some without reading.
fn come_and_go(stage: &Stage, count: usize) {
    for index in 0..count {
        let mut client = stage.connect();
        if index % 3 > 0 {
            client.write_all(b"hello").unwrap();
        }
        if index % 3 > 1 {
            assert_eq!(read(&mut client, 5), b"hello");
        }
    }
}

#[test]
fn without_descriptors_the_unix_socket_still_lets_somebody_in() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for io in [IoDriver::Epoll, IoDriver::IoUring] {
        let directory = std::env::temp_dir().join(format!("weir-full-{}-{io}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let mut setup = Setup::new(io);
        setup.config.global.unix_socket_dir = Some(directory.display().to_string());
        run_out_of_files(&setup.start(), &directory.join(".s.PGSQL.0"));
        fs::remove_dir_all(directory).unwrap();
    }
}

fn run_out_of_files(stage: &Stage, path: &std::path::Path) {
    let mut clients: Vec<TcpStream> = (0..20).map(|_| stage.connect()).collect();
    wait_for("all to come", || stage.seen.accepted.load(Ordering::SeqCst) == 20);
    // The clients' sockets are this process's too: they are made before every other descriptor is taken.
    let socket = |family| socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    let (late, administrator) = (socket(AddressFamily::INET), socket(AddressFamily::UNIX));
    let before = getrlimit(Resource::Nofile);
    let limit = Rlimit { current: Some(open_files() as u64 + 20), ..before };
    setrlimit(Resource::Nofile, limit).unwrap();
    let hoard: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();

    connect(&late, &stage.address).unwrap();
    let mut late = TcpStream::from(late);
    late.write_all(b"y").unwrap();
    let told =
        || stage.seen.log.lock().unwrap().iter().filter(|line| line.contains("accept() failed")).count();
    wait_for("the rest", || told() == 1);
    connect(&administrator, &SocketAddrUnix::new(path).unwrap()).unwrap();
    let mut administrator = UnixStream::from(administrator);
    administrator.set_read_timeout(Some(PATIENCE)).unwrap();
    administrator.write_all(b"x").unwrap();
    assert_eq!(read(&mut administrator, 3), b"[x]", "the reserve lets one in");
    late.set_read_timeout(Some(PATIENCE)).unwrap();
    clients.truncate(10);
    assert_eq!(read(&mut late, 3), b"[y]", "free descriptors end the rest");
    assert_eq!(told(), 1, "told once");
    drop(hoard);
    setrlimit(Resource::Nofile, before).unwrap();
}

#[test]
fn without_descriptors_a_client_that_the_shard_can_do_without_makes_way() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for io in [IoDriver::Epoll, IoDriver::IoUring] {
        let stage = Setup::new(io).start();
        let mut clients: Vec<TcpStream> = (0..5).map(|_| stage.connect()).collect();
        wait_for("all to come", || stage.seen.accepted.load(Ordering::SeqCst) == 5);
        let late = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let before = getrlimit(Resource::Nofile);
        let limit = Rlimit { current: Some(open_files() as u64 + 20), ..before };
        setrlimit(Resource::Nofile, limit).unwrap();
        let hoard: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        stage.seen.expendable.store(1, Ordering::SeqCst);
        connect(&late, &stage.address).unwrap();
        let mut late = TcpStream::from(late);
        late.set_read_timeout(Some(PATIENCE)).unwrap();
        late.write_all(b"y").unwrap();
        assert_eq!(read(&mut late, 3), b"[y]");
        drop(hoard);
        setrlimit(Resource::Nofile, before).unwrap();
        clients[4].write_all(b"x").unwrap();
        assert_eq!(read(&mut clients[4], 3), b"[x]", "the others stay");
    }
}

fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count() - 1
}
