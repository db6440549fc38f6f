//! Both loops against scripted shards on real sockets: the same tests, the same outcomes.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

mod support;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use settings::IoDriver;
use shard::Peer;
use shard::Target;
use support::{Dice, Setup, Stage, own_address, read, serve, wait_for};
use weir_driver::ReceiveBuffers;

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
    bytes_come_back_in_order
    random_sizes_pass_both_ways
    a_slow_reader_stops_its_feeder_and_loses_nothing
    more_than_the_socket_takes_is_sent_in_time
    a_hang_up_is_seen_while_paused
    bytes_sent_before_hanging_up_while_paused_are_delivered
    a_flood_while_paused_is_kept_in_order
    last_words_arrive
    a_refused_connection_is_told
    a_name_is_looked_up
    unix_sockets_work_both_ways
    closed_listeners_refuse
    a_silent_server_is_left_alone_when_its_client_goes
    a_server_that_speaks_first_is_heard
    few_buffers_slow_down_and_lose_nothing
    one_thread_accepts_while_it_has_the_time
    the_others_are_called_when_it_has_not
}

fn echo(io: IoDriver) -> Stage {
    Setup::new(io).start()
}

fn bytes_come_back_in_order(io: IoDriver) {
    let stage = echo(io);
    let mut client = stage.connect();
    for byte in b"Weir!".repeat(20) {
        client.write_all(&[byte]).unwrap();
        assert_eq!(read(&mut client, 3), [b'[', byte, b']']);
    }
    client.write_all(b"!settle").unwrap();
    assert_eq!(read(&mut client, 2), b"ok");
    for length in [1, 2, 1_000, 10_000] {
        client.write_all(&vec![b'x'; length]).unwrap();
        let mut left = length;
        while left > 0 {
            // However the bytes are cut, each piece comes back in brackets.
            let piece = read(&mut client, 1);
            left -= usize::from(piece == b"x");
        }
        assert_eq!(read(&mut client, 1), b"]");
    }
    drop(client);
    stage.all_closed(1);
}

fn random_sizes_pass_both_ways(io: IoDriver) {
    let echo = serve(|mut stream| {
        let mut from = stream.try_clone().unwrap();
        let _ = std::io::copy(&mut from, &mut stream);
    });
    let stage = Setup { threads: 2, ..Setup::relay(io, echo) }.start();
    thread::scope(|scope| {
        for seed in 1..=12 {
            let stage = &stage;
            scope.spawn(move || converse(stage, seed));
        }
    });
    stage.all_closed(24);
}

/// Sends in random pieces while reading in random pieces, and compares.
fn converse(stage: &Stage, seed: u64) {
    const LENGTH: usize = 700_000;
    let expected: Vec<u8> = (0..LENGTH).map(|index| (index * 7 + index / 251) as u8).collect();
    let mut reading = stage.connect();
    let mut writing = reading.try_clone().unwrap();
    let sent = expected.clone();
    let writer = thread::spawn(move || {
        let (mut dice, mut rest) = (Dice(seed * 99 + 1), &sent[..]);
        while !rest.is_empty() {
            let most = if dice.below(3) == 0 { 60_000 } else { 500 };
            let (now, later) = rest.split_at(rest.len().min(1 + dice.below(most)));
            writing.write_all(now).unwrap();
            rest = later;
        }
    });
    let (mut dice, mut got) = (Dice(seed), Vec::new());
    while got.len() < LENGTH {
        let mut piece = vec![0; 1 + dice.below(50_000)];
        let count = reading.read(&mut piece).unwrap();
        assert!(count > 0, "the end came early");
        got.extend_from_slice(&piece[..count]);
    }
    writer.join().unwrap();
    assert!(got == expected, "bytes changed on their way");
}

fn a_slow_reader_stops_its_feeder_and_loses_nothing(io: IoDriver) {
    const LENGTH: usize = 96 * 1024 * 1024;
    let pumped = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&pumped);
    let source = serve(move |mut stream| {
        let block: Vec<u8> = (0..65_536).map(|index| (index % 251) as u8).collect();
        while count.load(Ordering::SeqCst) < LENGTH && stream.write_all(&block).is_ok() {
            count.fetch_add(block.len(), Ordering::SeqCst);
        }
        // Hanging up now would let the shard close over what the client has not taken yet.
        let _ = stream.read(&mut [0; 1]);
    });
    let stage = Setup::relay(io, source).start();
    let mut client = stage.connect();
    wait_for("a clog", || stage.seen.clogged.load(Ordering::SeqCst) > 0);
    wait_for("the feeder to be stopped", || {
        let before = pumped.load(Ordering::SeqCst);
        thread::sleep(Duration::from_millis(150));
        before > 0 && before == pumped.load(Ordering::SeqCst)
    });
    assert!(pumped.load(Ordering::SeqCst) < LENGTH / 2, "everything was taken in");
    let (mut got, mut buffer) = (0, vec![0; 1 << 20]);
    while got < LENGTH {
        let count = client.read(&mut buffer).unwrap();
        assert!(count > 0, "the end came early");
        let in_order = buffer[..count].iter().zip(got..).all(|(byte, at)| *byte == (at % 65_536 % 251) as u8);
        assert!(in_order, "bytes changed on their way");
        got += count;
    }
    assert!(stage.seen.drained.load(Ordering::SeqCst) > 0);
}

fn more_than_the_socket_takes_is_sent_in_time(io: IoDriver) {
    let stage = echo(io);
    let mut client = stage.connect();
    client.write_all(b"!big").unwrap();
    wait_for("a clog", || stage.seen.clogged.load(Ordering::SeqCst) > 0);
    assert!(read(&mut client, 16 * 1024 * 1024).iter().all(|byte| *byte == b'.'));
    wait_for("the end of the clog", || stage.seen.drained.load(Ordering::SeqCst) == 1);
    assert_eq!(stage.seen.clogged.load(Ordering::SeqCst), 1);
    client.write_all(b"x").unwrap();
    assert_eq!(read(&mut client, 3), b"[x]");
}

/// A client that the shard does not read, settled or not.
fn paused(stage: &Stage, settled: bool) -> TcpStream {
    let mut client = stage.connect();
    if settled {
        client.write_all(b"!settle").unwrap();
        assert_eq!(read(&mut client, 2), b"ok");
        client.write_all(b"x").unwrap();
        assert_eq!(read(&mut client, 3), b"[x]");
    }
    let before = stage.seen.received.load(Ordering::SeqCst);
    client.write_all(b"!pause").unwrap();
    wait_for("the pause", || stage.seen.received.load(Ordering::SeqCst) > before);
    client
}

fn a_hang_up_is_seen_while_paused(io: IoDriver) {
    let stage = echo(io);
    for (settled, told) in [(false, 1), (true, 2)] {
        let mut client = paused(&stage, settled);
        client.shutdown(Shutdown::Write).unwrap();
        wait_for("the half close", || stage.seen.half_closed.load(Ordering::SeqCst) == told);
        assert_eq!(stage.seen.hung_up.load(Ordering::SeqCst), told - 1, "the shard does not read yet");
        stage.resume_all();
        assert_eq!(client.read(&mut [0; 10]).unwrap(), 0);
        stage.all_closed(told);
    }
}

fn bytes_sent_before_hanging_up_while_paused_are_delivered(io: IoDriver) {
    let stage = echo(io);
    for (settled, told) in [(false, 1), (true, 2)] {
        let mut client = paused(&stage, settled);
        client.write_all(b"abc").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        wait_for("the half close", || stage.seen.half_closed.load(Ordering::SeqCst) == told);
        stage.resume_all();
        let mut all = Vec::new();
        client.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"[abc]");
        stage.all_closed(told);
    }
}

fn a_flood_while_paused_is_kept_in_order(io: IoDriver) {
    const LENGTH: usize = 3_000_000;
    let stage = echo(io);
    let mut client = paused(&stage, true);
    let mut writing = client.try_clone().unwrap();
    let writer = thread::spawn(move || {
        let flood: Vec<u8> = (0..LENGTH).map(|index| b'a' + (index % 23) as u8).collect();
        writing.write_all(&flood).unwrap();
        writing.shutdown(Shutdown::Write).unwrap();
    });
    thread::sleep(Duration::from_millis(50));
    stage.resume_all();
    let mut all = Vec::new();
    client.read_to_end(&mut all).unwrap();
    all.retain(|byte| !b"[]".contains(byte));
    assert_eq!(all.len(), LENGTH);
    assert!(all.iter().zip(0..).all(|(byte, index)| *byte == b'a' + (index % 23) as u8));
    writer.join().unwrap();
}

fn last_words_arrive(io: IoDriver) {
    let stage = echo(io);
    for _ in 0..20 {
        let mut client = stage.connect();
        // What is behind the order is never read by the shard, and must not cost the client the farewell.
        client.write_all(&[b"!bye".to_vec(), vec![b'x'; 5_000]].concat()).unwrap();
        let mut all = Vec::new();
        client.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), 64 * 1024);
    }
    stage.all_closed(20);
}

fn a_refused_connection_is_told(io: IoDriver) {
    let nobody = TcpListener::bind((own_address(), 0)).unwrap().local_addr().unwrap();
    let stage = Setup::relay(io, nobody).start();
    assert_eq!(stage.connect().read(&mut [0; 10]).unwrap(), 0);
    stage.all_closed(2);
    assert_eq!(*stage.seen.faults.lock().unwrap(), ["Refused(\"Connection refused\")"]);
}

fn a_name_is_looked_up(io: IoDriver) {
    let echo = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = echo.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in echo.incoming().flatten().take(3) {
            let mut from = stream.try_clone().unwrap();
            let _ = std::io::copy(&mut from, &mut stream);
        }
    });
    let target = |host: &str| Some(Target::Inet { host: host.into(), port });
    let stage = Setup { target: target("localhost"), ..Setup::new(io) }.start();
    for _ in 0..3 {
        let mut client = stage.connect();
        client.write_all(b"hello").unwrap();
        assert_eq!(read(&mut client, 5), b"hello");
    }
    let stage = Setup { target: target("no-such-host.invalid"), ..Setup::new(io) }.start();
    assert_eq!(stage.connect().read(&mut [0; 10]).unwrap(), 0);
    assert!(stage.seen.faults.lock().unwrap()[0].starts_with("Lookup"));
}

fn unix_sockets_work_both_ways(io: IoDriver) {
    let directory = std::env::temp_dir().join(format!("weir-{}-{io}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join("server");
    let server = std::os::unix::net::UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        let mut stream = server.accept().unwrap().0;
        let mut from = stream.try_clone().unwrap();
        let _ = std::io::copy(&mut from, &mut stream);
    });
    let target = Some(Target::Unix { path: path.display().to_string().into() });
    let mut setup = Setup { target, ..Setup::new(io) };
    setup.config.global.listen_addr = Vec::new();
    setup.config.global.listen_port = 6432;
    setup.config.global.unix_socket_dir = Some(directory.display().to_string());
    let name = directory.join(".s.PGSQL.6432");
    drop(std::os::unix::net::UnixListener::bind(&name).unwrap()); // What a process that has died leaves behind.
    let stage = setup.start();
    let mut client = UnixStream::connect(&name).unwrap();
    let sent = vec![7; 5_000_000];
    let mut writing = client.try_clone().unwrap();
    let expected = sent.clone();
    let writer = thread::spawn(move || writing.write_all(&sent).unwrap());
    assert!(read(&mut client, 5_000_000) == expected);
    writer.join().unwrap();
    let peers = stage.seen.peers.lock().unwrap().clone();
    assert!(
        matches!(peers[..], [Peer::Unix { process_id, port: 6432, .. }] if process_id == std::process::id())
    );
    drop((client, stage));
    assert!(!name.exists(), "the socket's name was left behind");
    fs::remove_dir_all(directory).unwrap();
}

fn closed_listeners_refuse(io: IoDriver) {
    let stage = Setup { threads: 2, ..Setup::new(io) }.start();
    let mut early = stage.connect();
    early.write_all(b"x").unwrap();
    assert_eq!(read(&mut early, 3), b"[x]");
    stage.engine.as_ref().unwrap().close_tcp_listeners();
    let refused = TcpStream::connect(stage.address).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    early.write_all(b"y").unwrap();
    assert_eq!(read(&mut early, 3), b"[y]");
}

fn a_silent_server_is_left_alone_when_its_client_goes(io: IoDriver) {
    let (ended, count) = (Arc::new(AtomicUsize::new(0)), 50);
    let ends = Arc::clone(&ended);
    let silent = serve(move |mut stream| {
        let _ = stream.read(&mut [0; 10]);
        ends.fetch_add(1, Ordering::SeqCst);
    });
    let stage = Setup::relay(io, silent).start();
    let clients: Vec<_> = (0..count).map(|_| stage.connect()).collect();
    wait_for("all to come", || stage.seen.accepted.load(Ordering::SeqCst) == count);
    drop(clients);
    stage.all_closed(2 * count);
    wait_for("the servers' ends", || ended.load(Ordering::SeqCst) == count);
}

fn a_server_that_speaks_first_is_heard(io: IoDriver) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap();
    let count = 500;
    // Queues of 128, as both sides have them, overflow now and then: what the system drops then comes after a minute, or never.
    rustix::net::listen(&listener, 1_000).unwrap();
    let server = thread::spawn(move || {
        let speak = |mut stream: TcpStream| stream.write_all(b"full").map(|()| stream);
        listener.incoming().flatten().take(count).filter_map(|stream| speak(stream).ok()).collect::<Vec<_>>()
    });
    let mut setup = Setup::relay(io, target);
    setup.config.global.listen_backlog = 1_000;
    let stage = setup.start();
    // So many at once that first words are there before the loop has seen that it is connected.
    let mut clients: Vec<_> = (0..count).map(|_| stage.connect()).collect();
    for client in &mut clients {
        assert_eq!(read(client, 4), b"full");
    }
    drop(server.join().unwrap());
}

fn few_buffers_slow_down_and_lose_nothing(io: IoDriver) {
    let echo = serve(|mut stream| {
        let mut from = stream.try_clone().unwrap();
        let _ = std::io::copy(&mut from, &mut stream);
    });
    let buffers = ReceiveBuffers { size: 512, first: 2, most: 4 };
    let stage = Setup { buffers, ..Setup::relay(io, echo) }.start();
    thread::scope(|scope| {
        for seed in 1..=8 {
            let stage = &stage;
            scope.spawn(move || {
                let mut client = stage.connect();
                let mut dice = Dice(seed);
                for _ in 0..100 {
                    let sent = vec![dice.below(256) as u8; 1 + dice.below(5_000)];
                    client.write_all(&sent).unwrap();
                    assert!(read(&mut client, sent.len()) == sent);
                }
            });
        }
    });
    stage.all_closed(16);
}

/// Connects until somebody says that it is enough; which shards the clients came to.
fn shards_of_clients(stage: &Stage, enough: impl Fn(usize, &BTreeSet<u16>) -> bool) -> BTreeSet<u16> {
    for count in 1.. {
        let mut client = stage.connect();
        client.write_all(b"x").unwrap();
        assert_eq!(read(&mut client, 3), b"[x]");
        let shards = stage.seen.shards.lock().unwrap().iter().copied().collect();
        if enough(count, &shards) {
            return shards;
        }
    }
    unreachable!()
}

fn one_thread_accepts_while_it_has_the_time(io: IoDriver) {
    let mut setup = Setup { threads: 4, ..Setup::new(io) };
    setup.config.global.spread_busy_percent = 100;
    let stage = setup.start();
    assert_eq!(shards_of_clients(&stage, |count, _| count == 40).len(), 1);
}

fn the_others_are_called_when_it_has_not(io: IoDriver) {
    let mut setup = Setup { threads: 2, ..Setup::new(io) };
    setup.config.global.spread_busy_percent = 0; // however little it does
    let stage = setup.start();
    let since = Instant::now();
    let found =
        shards_of_clients(&stage, |_, shards| shards.len() == 2 || since.elapsed() > Duration::from_secs(60));
    assert_eq!(found.len(), 2, "one thread took all");
}
