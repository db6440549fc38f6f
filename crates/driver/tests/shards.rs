//! The real shard on both drivers, before a server that speaks just enough: logins, moves between threads, queries.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;

use settings::{AuthType, Database, IoDriver, Origin, PoolMode, SessionState, SslMode};
use support::{PATIENCE, Seen, Setup, assert_driver, plan, read, serve};
use weir_driver::Engine;

#[test]
fn clients_move_to_their_pools_by_epoll() {
    clients_move_to_their_pools(IoDriver::Epoll);
}

#[test]
fn clients_move_to_their_pools_by_io_uring() {
    clients_move_to_their_pools(IoDriver::IoUring);
}

/// Four pools on four threads: whoever accepts a client, its pool's thread must serve it.
fn clients_move_to_their_pools(io: IoDriver) {
    let server = serve(|stream| drop(speak(stream)));
    let mut setup = Setup { threads: 4, ..Setup::new(io) };
    let global = &mut setup.config.global;
    (global.auth_type, global.pool_mode) = (AuthType::Trust, PoolMode::Transaction);
    global.server_tls_sslmode = SslMode::Disable;
    // The server cannot answer what is asked about sessions.
    global.session_state = SessionState::Off;
    setup.config.secrets = Arc::new([("u".to_owned(), String::new())].into());
    for name in ["a", "b", "c", "d"] {
        let mut database = Database::new(name, Origin { file: "test".into(), line: 1 });
        (database.host, database.port) = (vec![server.ip().to_string()], settings::Ports::one(server.port()));
        database.pool_size = Some(settings::PoolSize::Fixed(2));
        setup.config.databases.insert(name.to_owned(), Arc::new(database));
    }
    let seen = Arc::new(Seen::default());
    let plan = plan(&setup, &seen);
    let address = plan.listeners.tcp_address().unwrap();
    let engine = Engine::start(plan).unwrap();
    assert_driver(&engine, io);
    thread::scope(|scope| {
        for worker in 0..8 {
            scope.spawn(move || {
                for turn in 0..15 {
                    let name = ["a", "b", "c", "d"][(worker + turn) % 4];
                    converse(address, name, turn % 2 == 0);
                }
            });
        }
    });
    engine.join();
    let log = seen.log.lock().unwrap();
    assert!(!log.iter().any(|line| line.contains("bug")), "{log:#?}");
}

/// Logs in and asks some questions; an impatient one asks the first before it is let in.
fn converse(address: SocketAddr, database: &str, is_impatient: bool) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut hello = startup(&format!("user\0u\0database\0{database}\0\0"));
    let mut unasked = 20;
    if is_impatient {
        hello.extend(message(b'Q', b"SELECT 1\0"));
        unasked -= 1;
    }
    stream.write_all(&hello).unwrap();
    until_ready(&mut stream);
    if is_impatient {
        assert_eq!(until_ready(&mut stream), b"SELECT 1\0");
    }
    for number in 0..unasked {
        let question = format!("SELECT {number}\0");
        stream.write_all(&message(b'Q', question.as_bytes())).unwrap();
        assert_eq!(until_ready(&mut stream), question.as_bytes());
    }
    stream.write_all(&message(b'X', b"")).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
}

/// Reads messages up to ReadyForQuery; the body of the last DataRow or CommandComplete before it.
fn until_ready(stream: &mut TcpStream) -> Vec<u8> {
    let mut last = Vec::new();
    loop {
        let (kind, body) = next_message(stream);
        match kind {
            b'Z' => return last,
            b'E' => panic!("{}", String::from_utf8_lossy(&body)),
            b'C' => last = body,
            _ => {}
        }
    }
}

fn next_message(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let head = read(stream, 5);
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    (head[0], read(stream, length - 4))
}

/// A server that lets everybody in and answers each query with its own text as the command's tag.
fn speak(mut stream: TcpStream) -> std::io::Result<()> {
    let length = read_length(&mut stream)?;
    let mut rest = vec![0; length - 4];
    stream.read_exact(&mut rest)?;
    let mut welcome = message(b'R', &0_u32.to_be_bytes());
    for pair in ["server_version\x0015.0\0", "client_encoding\0UTF8\0", "standard_conforming_strings\0on\0"] {
        welcome.extend(message(b'S', pair.as_bytes()));
    }
    welcome.extend(message(b'K', &[0, 0, 0, 1, 0, 0, 0, 2]));
    welcome.extend(message(b'Z', b"I"));
    stream.write_all(&welcome)?;
    loop {
        let mut kind = [0];
        stream.read_exact(&mut kind)?;
        let mut body = vec![0; read_length(&mut stream)? - 4];
        stream.read_exact(&mut body)?;
        if kind == *b"Q" {
            stream.write_all(&[message(b'C', &body), message(b'Z', b"I")].concat())?;
        }
    }
}

fn read_length(stream: &mut TcpStream) -> std::io::Result<usize> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    Ok(u32::from_be_bytes(length) as usize)
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}

fn startup(pairs: &str) -> Vec<u8> {
    [&(pairs.len() as u32 + 8).to_be_bytes()[..], &196_608_u32.to_be_bytes(), pairs.as_bytes()].concat()
}
