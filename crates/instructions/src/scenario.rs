//! What is counted: one row for each thing that a user does often, or that runs often while all clients are idle.
//! Owns the conversations; the shard in them is the real one.

use std::collections::VecDeque;
use std::hint::black_box;

use shard::ConnId;
use wire::backend::Status;
use wire::encode;

use crate::counted::counted_region;
use crate::messages::{self, message};
use crate::world::World;

/// A thing that is counted.
pub(crate) struct Scenario {
    /// Its name in the table and on the command line.
    pub(crate) name: &'static str,
    /// What one time of it is.
    pub(crate) about: &'static str,
    /// How often it is done while it is counted; the count is of one time.
    pub(crate) times: u64,
    /// Makes everything ready and returns what does it once, counted or not.
    prepare: fn() -> Once,
}

type Once = Box<dyn FnMut(bool)>;

/// Times that it is done before the first that is counted: buffers have grown by then, and caches are full.
const WARM_UP: u64 = 10;

/// How a large answer arrives.
const CHUNK_BYTES: usize = 8 * 1024;

/// What is counted for large results and COPY.
const LARGE_BYTES: usize = 1024 * 1024;

/// How `pgbench -M prepared` calls its statement.
const NAME: &[u8] = b"P_0";

const TRUST: &str = "auth_type = trust\nsession_state = off";

const TRACKED: &str = "auth_type = trust\nsession_state = off\ntrack_queries = 1";

const VIRTUAL: &str = "auth_type = trust\nsession_state = virtual";

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "frames",
        about: "1 MiB of messages of 100 bytes stepped over, no more",
        times: 10,
        prepare: frames,
    },
    Scenario {
        name: "simple",
        about: "a transaction of one simple query (pgbench -S)",
        times: 200,
        prepare: || simple(TRUST),
    },
    Scenario {
        name: "extended",
        about: "the same by the extended protocol (-M extended)",
        times: 200,
        prepare: || transaction(TRUST, messages::extended(), messages::extended_answer()),
    },
    Scenario {
        name: "prepared",
        about: "the same by a named statement that the server has (-M prepared)",
        times: 200,
        prepare: || prepared(TRUST),
    },
    Scenario {
        name: "tracked",
        about: "a simple transaction with track_queries",
        times: 200,
        prepare: || simple(TRACKED),
    },
    Scenario {
        name: "tracked_prepared",
        about: "a transaction by a named statement with track_queries",
        times: 200,
        prepare: || prepared(TRACKED),
    },
    Scenario {
        name: "waiting",
        about: "a simple transaction that had to wait for its server",
        times: 200,
        prepare: waiting,
    },
    Scenario {
        name: "crowd",
        about: "a simple transaction on another server than the client's last, as with many clients",
        times: 200,
        prepare: crowd,
    },
    Scenario {
        name: "tpcb",
        about: "a transaction of pgbench's TPC-B: BEGIN, five statements, END",
        times: 100,
        prepare: || tpcb(TRUST),
    },
    Scenario {
        name: "virtual",
        about: "a simple transaction with session_state = virtual",
        times: 200,
        prepare: || simple(VIRTUAL),
    },
    Scenario {
        name: "virtual_extended",
        about: "the same by the extended protocol",
        times: 200,
        prepare: || transaction(VIRTUAL, messages::extended(), messages::extended_answer()),
    },
    Scenario {
        name: "virtual_prepared",
        about: "the same by a named statement that the server has",
        times: 200,
        prepare: || prepared(VIRTUAL),
    },
    Scenario {
        name: "virtual_tpcb",
        about: "a transaction of pgbench's TPC-B with session_state = virtual",
        times: 100,
        prepare: || tpcb(VIRTUAL),
    },
    Scenario {
        name: "split",
        about: "a simple read with read_write_split = 1, on one of two standbys",
        times: 200,
        prepare: || {
            let reads =
                ["7", "1234567", "42", "98765"].map(|number| messages::SELECT.replace("1234567", number));
            split("", reads.iter().map(|read| messages::query(read)).collect(), None)
        },
    },
    Scenario {
        name: "split_prepared",
        about: "the same by a named statement that both have",
        times: 200,
        prepare: || split("", vec![messages::prepared(NAME)], Some(messages::prepare(NAME))),
    },
    Scenario {
        name: "split_to_primary",
        about: "a read by a named statement that the primary runs (read_after_write = always_primary)",
        times: 200,
        prepare: || {
            let request = messages::prepared(NAME);
            split("read_after_write=always_primary", vec![request], Some(messages::prepare(NAME)))
        },
    },
    Scenario {
        name: "rows",
        about: "a result of 1 MiB in rows of 100 bytes, 8 KiB at a time",
        times: 10,
        prepare: rows,
    },
    Scenario {
        name: "copy_in",
        about: "COPY of 1 MiB to the server, 8 KiB at a time",
        times: 10,
        prepare: copy_in,
    },
    Scenario {
        name: "connect_trust",
        about: "a client comes, is greeted without a password, and leaves",
        times: 50,
        prepare: || connections(TRUST),
    },
    Scenario {
        name: "connect_scram",
        about: "the same with SCRAM-SHA-256",
        times: 50,
        prepare: || connections("auth_type = scram-sha-256\nsession_state = off"),
    },
    Scenario {
        name: "tick",
        about: "the look at all timers, three times a second: 1,000 idle clients, 20 idle servers",
        times: 50,
        prepare: tick,
    },
];

impl Scenario {
    /// Does it, for valgrind to count.
    pub(crate) fn run(&self) {
        let mut once = (self.prepare)();
        (0..WARM_UP).for_each(|_| once(false));
        (0..self.times).for_each(|_| once(true));
    }
}

fn frames() -> Once {
    let bytes = messages::rows(LARGE_BYTES);
    Box::new(move |counts| {
        let steps = || {
            let (mut at, mut frames) = (0, 0);
            while let Ok(Some(header)) = wire::frame::header(black_box(&bytes[at..])) {
                at += header.frame_bytes as usize;
                frames += 1;
            }
            frames
        };
        let frames = if counts { counted_region(steps) } else { steps() };
        assert_eq!(frames, bytes.len() / 100, "frames of 100 bytes");
    })
}

/// One client, one server, one request and its answer.
fn transaction(settings: &str, request: Vec<u8>, answer: Vec<u8>) -> Once {
    let mut world = World::new(settings);
    let (client, server) = world.pair();
    Box::new(move |counts| {
        world.counts = counts;
        world.pass(client, &request, server);
        world.pass(server, &answer, client);
    })
}

fn simple(settings: &str) -> Once {
    transaction(settings, messages::query(messages::SELECT), messages::answer("SELECT 1", Status::Idle))
}

fn prepared(settings: &str) -> Once {
    let mut world = World::new(settings);
    let (client, server) = world.pair();
    // Weir's Describe behind the Parse, and its answer, are between Weir and the server.
    world.pass_part(client, &messages::prepare(NAME), server);
    world.pass_part(server, &messages::prepare_answer(), client);
    let (request, answer) = (messages::prepared(NAME), messages::prepared_answer());
    Box::new(move |counts| {
        world.counts = counts;
        world.pass(client, &request, server);
        world.pass(server, &answer, client);
    })
}

/// One client, a primary and two standbys, which run the requests in turn, or the primary does. `first` is what the client says before.
fn split(settings: &str, requests: Vec<Vec<u8>>, first: Option<Vec<u8>>) -> Once {
    let entry = format!("host=10.0.0.1,10.0.0.2,10.0.0.3 port=5432 read_write_split=1 {settings}");
    let mut world = World::before(&entry, TRUST);
    let (client, servers) = world.cluster(2);
    let once = move |world: &mut World, request: &[u8]| {
        let (place, asked) = world.ask_one_of(&servers, client, request);
        world.receive(servers[place], &messages::answer_to(&asked));
        assert!(world.tags(client).ends_with('Z'), "answered");
        place
    };
    if let Some(first) = first {
        once(&mut world, &first);
    }
    let is_primarys = !settings.is_empty();
    let (mut turn, mut last) = (0, 0);
    Box::new(move |counts| {
        world.counts = counts;
        let place = once(&mut world, &requests[turn % requests.len()]);
        assert!(if is_primarys { place == 0 } else { place > 0 && place != last }, "where it goes");
        (turn, last) = (turn + 1, place);
    })
}

/// Two clients and one server: who has been answered asks again and waits for the other.
fn waiting() -> Once {
    let mut world = World::new(&format!("{TRUST}\ndefault_pool_size = 1"));
    let (mut holder, server) = world.pair();
    let mut waiter = world.client();
    let (request, answer) = (messages::query(messages::SELECT), messages::answer("SELECT 1", Status::Idle));
    world.pass(holder, &request, server);
    world.receive(waiter, &request);
    Box::new(move |counts| {
        world.counts = counts;
        world.pass(server, &answer, holder);
        assert_eq!(world.tags(server), "Q", "the waiter's request");
        world.receive(holder, &request);
        std::mem::swap(&mut holder, &mut waiter);
        world.tags(holder); // The greeting, the first time.
    })
}

/// Three clients and two servers: each request gets the server that the one before released.
fn crowd() -> Once {
    let mut world = World::new(&format!("{TRUST}\ndefault_pool_size = 2"));
    let (first, server) = world.pair();
    let clients = [first, world.client(), world.client()];
    clients[..2].iter().for_each(|client| world.ask_first(*client));
    let servers = [server, world.server()];
    servers.iter().for_each(|server| world.finish(*server));
    world.ask_first(clients[2]);
    servers.iter().for_each(|server| world.finish(*server));
    clients.iter().for_each(|client| drop(world.tags(*client)));
    let (request, answer) = (messages::query(messages::SELECT), messages::answer("SELECT 1", Status::Idle));
    let mut asked = VecDeque::new();
    let mut turn = 0;
    Box::new(move |counts| {
        world.counts = counts;
        let client = clients[turn % clients.len()];
        turn += 1;
        world.receive(client, &request);
        let server = servers.into_iter().find(|server| world.tags(*server) == "Q");
        asked.push_back((client, server.expect("one of them is asked")));
        if asked.len() == servers.len()
            && let Some((client, server)) = asked.pop_front()
        {
            world.pass(server, &answer, client);
        }
    })
}

fn tpcb(settings: &str) -> Once {
    let mut world = World::new(settings);
    let (client, server) = world.pair();
    let status = |command| if command == "COMMIT" { Status::Idle } else { Status::InTransaction };
    let steps = messages::TPCB
        .map(|(sql, command)| (messages::query(sql), messages::answer(command, status(command))));
    Box::new(move |counts| {
        world.counts = counts;
        for (request, answer) in &steps {
            world.pass(client, request, server);
            world.pass(server, answer, client);
        }
    })
}

fn rows() -> Once {
    let mut world = World::new(TRUST);
    let (client, server) = world.pair();
    let request = messages::query("SELECT * FROM large;");
    let answer = message(|out| {
        out.extend(messages::rows(LARGE_BYTES));
        out.extend(messages::answer("UPDATE 0", Status::Idle)); // An end without a row of its own.
    });
    Box::new(move |counts| {
        world.counts = counts;
        world.pass(client, &request, server);
        pass_in_chunks(&mut world, server, &answer, client);
    })
}

fn copy_in() -> Once {
    let mut world = World::new(TRUST);
    let (client, server) = world.pair();
    let request = messages::query("COPY large FROM STDIN;");
    let begins = message(|out| encode::copy_in(out, 0, 1));
    let data = message(|out| {
        let line = [b'x'; CHUNK_BYTES - wire::frame::HEADER_BYTES];
        while out.len() < LARGE_BYTES {
            encode::copy_data(out, &line);
        }
        encode::copy_done(out);
    });
    let answer = messages::answer("COPY 128", Status::Idle);
    Box::new(move |counts| {
        world.counts = counts;
        world.pass(client, &request, server);
        world.pass(server, &begins, client);
        pass_in_chunks(&mut world, client, &data, server);
        world.pass(server, &answer, client);
    })
}

fn pass_in_chunks(world: &mut World, from: ConnId, bytes: &[u8], to: ConnId) {
    let passed: usize = bytes.chunks(CHUNK_BYTES).map(|chunk| world.pass_part(from, chunk, to)).sum();
    assert_eq!(passed, bytes.len(), "all of it was passed on");
}

fn connections(settings: &str) -> Once {
    let mut world = World::new(settings);
    world.pair();
    Box::new(move |counts| {
        world.counts = counts;
        let client = world.client();
        assert!(world.tags(client).ends_with("KZ"), "greeted");
        world.leave(client);
    })
}

fn tick() -> Once {
    let mut world = World::new(&format!("{TRUST}\nmax_client_conn = 2000\ndefault_pool_size = 20"));
    let (_, first) = world.pair();
    let clients: Vec<ConnId> = (1..1_000).map(|_| world.client()).collect();
    clients.iter().take(20).for_each(|client| world.ask_first(*client));
    let mut servers = vec![first];
    while world.opening() > 0 {
        servers.push(world.server());
    }
    assert_eq!(servers.len(), 20, "the pool is full");
    servers.iter().for_each(|server| world.finish(*server));
    Box::new(move |counts| {
        world.counts = counts;
        world.tick();
    })
}
