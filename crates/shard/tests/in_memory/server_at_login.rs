//! `assign_server_at_login`: a client has its server before its greeting, and is told the process id of that server.

use std::sync::Arc;

use crate::world::takeover::import_all;
use crate::world::{OneShard, World, config, message};
use messages::{Command, RequestId, ShutdownMode};
use pool::PoolRegistry;
use shard::{ConnId, Event};
use wire::backend::Status;
use wire::startup::Version;
use wire::{backend, encode, frame::Frames};

const ON: &str = "default_pool_size = 1\npool_mode = session\nassign_server_at_login = 1";
/// The process id of every server of the test's world.
const SERVER: u32 = 77;

/// The messages sent to a connection since the last look.
fn told(world: &mut World, conn: ConnId) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Frames::new(1 << 20);
    frames.push(&world.sent.remove(&conn).unwrap_or_default());
    std::iter::from_fn(|| frames.pop().unwrap()).map(|(tag, body)| (tag, body.to_vec())).collect()
}

/// The key in the greeting that a client has been sent.
fn key(world: &mut World, client: ConnId) -> (u32, Vec<u8>) {
    let told = told(world, client);
    let (_, body) = told.iter().find(|(tag, _)| *tag == wire::tag::backend::KEY_DATA).unwrap();
    let (process_id, secret) = backend::key_data(body).unwrap();
    (process_id, secret.to_vec())
}

fn cancel(world: &mut World, key: &(u32, Vec<u8>)) -> ConnId {
    let conn = world.accept();
    world.receive(conn, &message(|out| encode::cancel_request(out, key.0, &key.1)));
    conn
}

/// A client that has logged in with its server.
fn linked(settings: &str) -> (World, ConnId, ConnId, (u32, Vec<u8>)) {
    let mut world = World::new(settings);
    let client = world.client(&[]);
    let server = world.server();
    let key = key(&mut world, client);
    (world, client, server, key)
}

/// The client leaves; its server is cleaned and serves the next.
fn leave(world: &mut World, client: ConnId, server: ConnId) {
    world.event(Event::HungUp { conn: client });
    assert!(world.text(server).contains("DISCARD ALL"));
    world.answer(server, Status::Idle);
}

#[test]
fn a_client_is_told_the_process_id_of_its_server_and_has_it_at_once() {
    let (mut world, client, server, key) = linked(ON);
    assert_eq!((key.0, key.1.len()), (SERVER, 4));
    let other = world.client(&[]);
    assert_eq!(world.tags(other), "", "the server is not idle");
    world.query(client, "select 1");
    assert_eq!(world.tags(server), "Q");
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(client), "CZ");
}

#[test]
fn in_other_modes_and_by_default_it_is_as_before() {
    for settings in [
        "default_pool_size = 1\npool_mode = session",
        "default_pool_size = 1\nassign_server_at_login = 1",
        "default_pool_size = 1\npool_mode = statement\nassign_server_at_login = 1",
    ] {
        let (mut world, _, _, (process_id, _)) = linked(settings);
        assert!(process_id > 1 << 22, "{settings}: {process_id}");
        let other = world.client(&[]);
        assert!(world.tags(other).ends_with("KZ"), "{settings}");
    }
}

#[test]
fn a_login_waits_while_the_pool_is_full() {
    let (mut world, first, server, first_key) = linked(ON);
    let (second, third) = (world.client(&[]), world.client(&[]));
    assert_eq!((world.tags(second), world.tags(third)), (String::new(), String::new()));
    leave(&mut world, first, server);
    let second_key = key(&mut world, second);
    assert_eq!(second_key.0, SERVER);
    assert_ne!(second_key.1, first_key.1, "who has left cancels nothing");
    assert_eq!(world.tags(third), "");
    // It leaves while it waits, and is not served.
    world.event(Event::HungUp { conn: third });
    leave(&mut world, second, server);
    let fourth = world.client(&[]);
    assert_eq!(key(&mut world, fourth).0, SERVER);
    assert!(world.connecting.is_empty());
}

#[test]
fn what_comes_behind_the_startup_packet_waits_for_the_server() {
    let (mut world, first, server, _) = linked(ON);
    let second = world.client(&[]);
    world.query(second, "select 2");
    leave(&mut world, first, server);
    assert!(world.tags(second).ends_with("KZ"));
    assert!(world.text(server).contains("select 2"));
}

#[test]
fn the_wait_ends_with_query_wait_timeout() {
    let settings = format!("{ON}\nquery_wait_timeout = 5\nclient_login_timeout = 1");
    let (mut world, first, server, _) = linked(&settings);
    let second = world.client(&[]);
    world.pass(4_000);
    assert_eq!(world.tags(second), "");
    world.pass(1_400);
    assert!(world.text(second).contains("query_wait_timeout"));
    leave(&mut world, first, server);
    let third = world.client(&[]);
    assert_eq!(key(&mut world, third).0, SERVER, "its place in the queue is no other's");
}

#[test]
fn each_client_that_waits_has_a_server_opened() {
    let mut world = World::new("default_pool_size = 2\npool_mode = session\nassign_server_at_login = 1");
    let clients = [world.client(&[]), world.client(&[])];
    world.server();
    assert!(world.tags(clients[0]).ends_with("KZ"));
    assert_eq!(world.tags(clients[1]), "");
    world.server();
    assert!(world.tags(clients[1]).ends_with("KZ"));
    assert!(world.connecting.is_empty());
}

fn values(told: &[(u8, Vec<u8>)], name: &str) -> Vec<String> {
    let statuses = told.iter().filter(|(tag, _)| *tag == b'S');
    let texts = statuses.map(|(_, body)| String::from_utf8_lossy(body).into_owned());
    texts.filter(|text| text.starts_with(name)).collect()
}

#[test]
fn startup_parameters_are_set_before_the_greeting_which_has_what_the_server_reports() {
    let mut world = World::new(ON);
    let client = world.client(&[("application_name", "mine"), ("datestyle", "german")]);
    let server = world.server();
    let asked = world.text(server);
    assert!(asked.contains("SET application_name='mine'"), "{asked:?}");
    assert_eq!(world.tags(client), "", "not yet");
    world.receive(
        server,
        &message(|out| {
            encode::command_complete(out, "SET");
            encode::parameter_status(out, b"application_name", b"mine");
            encode::parameter_status(out, b"DateStyle", b"German, DMY");
            encode::ready(out, Status::Idle);
        }),
    );
    let told = told(&mut world, client);
    assert_eq!(values(&told, "DateStyle"), ["DateStyle\0German, DMY\0"]);
    assert_eq!(values(&told, "application_name"), ["application_name\0mine\0"]);
    let tags: Vec<u8> = told.iter().map(|(tag, _)| *tag).collect();
    assert_eq!((tags[0], &tags[tags.len() - 2..]), (b'R', &b"KZ"[..]));
}

#[test]
fn a_parameter_that_the_server_refuses_is_the_error_of_the_login() {
    let mut world = World::new(ON);
    let client = world.client(&[("datestyle", "nonsense")]);
    let server = world.server();
    world.sent.clear();
    world.receive(
        server,
        &message(|out| {
            encode::error(out, "ERROR", "22023", "invalid value for parameter \"DateStyle\": \"nonsense\"");
            encode::ready(out, Status::Idle);
        }),
    );
    let told = world.text(client);
    assert!(told.starts_with('E') && told.contains("invalid value for parameter"), "{told:?}");
    assert!(world.closed.contains(&client) && !world.closed.contains(&server));
}

#[test]
fn a_client_that_leaves_while_its_server_is_made_like_it_leaves_no_trace() {
    let mut world = World::new(ON);
    let client = world.client(&[("application_name", "mine")]);
    let server = world.server();
    world.event(Event::HungUp { conn: client });
    world.sent.clear();
    world.answer(server, Status::Idle);
    let next = world.client(&[]);
    if world.tags(next).is_empty() {
        world.answer(server, Status::Idle);
    }
    assert_eq!(world.shard.audit().contradiction, None);
    assert!(!world.closed.contains(&server));
}

#[test]
fn a_login_that_the_server_refuses_is_refused_in_its_words() {
    let mut world = World::new(ON);
    let client = world.client(&[]);
    let server = world.connected();
    world.receive(
        server,
        &message(|out| encode::error(out, "FATAL", "28000", "role \"u\" is not permitted to log in")),
    );
    let told = world.text(client);
    assert!(told.contains("28000") && told.contains("role \"u\" is not permitted to log in"), "{told:?}");
}

#[test]
fn a_server_that_dies_before_the_first_request_ends_its_client_in_its_words() {
    let (mut world, client, server, _) = linked(ON);
    let text = "terminating connection due to administrator command";
    world.receive(server, &message(|out| encode::error(out, "FATAL", "57P01", text)));
    world.event(Event::HungUp { conn: server });
    let told = world.text(client);
    assert_eq!(told.matches("57P01").count(), 1, "{told:?}");
    assert!(told.contains(text), "{told:?}");
    assert!(world.closed.contains(&client));
}

#[test]
fn a_server_without_a_process_id_leaves_the_client_with_weirs() {
    let mut world = World::new(ON);
    let client = world.client(&[]);
    let server = world.connected();
    world.sent.clear();
    world.receive(
        server,
        &message(|out| {
            encode::authentication_ok(out);
            encode::ready(out, Status::Idle);
        }),
    );
    assert!(key(&mut world, client).0 > 1 << 22);
}

/// Two servers (on two hosts) may have the same process id.
#[test]
fn a_cancel_reaches_the_client_whose_secret_it_has() {
    for version in [Version::V3_0, Version::V3_2] {
        let mut world = World::new("default_pool_size = 2\npool_mode = session\nassign_server_at_login = 1");
        let mut clients = vec![];
        for secret in [4u8, 5] {
            let client = world.accept();
            let packet =
                message(|out| encode::startup(out, version, &[(b"user", b"u"), (b"database", b"d")]));
            world.receive(client, &packet);
            let server = world.connected();
            world.sent.remove(&server);
            world.receive(
                server,
                &message(|out| {
                    encode::authentication_ok(out);
                    encode::key_data(out, SERVER, &[9, 9, 9, secret]);
                    encode::ready(out, Status::Idle);
                }),
            );
            world.follow(server);
            let key = key(&mut world, client);
            assert_eq!((key.0, key.1.len()), (SERVER, if version == Version::V3_0 { 4 } else { 32 }));
            world.query(client, "select pg_sleep(9)");
            clients.push((key, secret));
        }
        assert_ne!(clients[0].0.1, clients[1].0.1);
        for (key, secret) in &clients {
            cancel(&mut world, key);
            let carrier = world.connected();
            let sent = world.sent.remove(&carrier).unwrap();
            assert!(sent.ends_with(&[0, 0, 0, 77, 9, 9, 9, *secret]), "{sent:?}");
        }
        let wrong = (SERVER, clients[0].0.1.iter().map(|byte| byte ^ 0x80).collect());
        cancel(&mut world, &wrong);
        assert!(world.connecting.is_empty(), "the process id alone cancels nothing");
    }
}

/// The secrets that the test's entropy makes: four numbers in a row.
fn occupy(directory: &OneShard, firsts: impl Iterator<Item = u8>) {
    for first in firsts {
        let secret: Vec<u8> = (0..4).map(|more| first.wrapping_add(more)).collect();
        let key = [&SERVER.to_be_bytes()[..], &secret].concat();
        assert!(directory.keep_cancel_key(key.try_into().unwrap(), 9, 9));
    }
}

#[test]
fn no_two_clients_have_the_same_key() {
    let directory = Arc::new(OneShard::default());
    occupy(&directory, 0..=12);
    let mut world = World::beside(Arc::clone(&directory), ON);
    let client = world.client(&[]);
    world.server();
    let (process_id, secret) = key(&mut world, client);
    assert_eq!(process_id, SERVER);
    assert!(secret[0] > 12, "{secret:?}");
    let prefix: [u8; 8] = [&process_id.to_be_bytes()[..], &secret].concat().try_into().unwrap();
    assert_eq!(directory.find_cancel_key(prefix), Some((0, client.0)));
    world.event(Event::HungUp { conn: client });
    assert_eq!(directory.find_cancel_key(prefix), None);
    assert_eq!(directory.find_cancel_key([0, 0, 0, 77, 1, 2, 3, 4]), Some((9, 9)), "others keep theirs");
}

#[test]
fn without_a_free_secret_the_client_keeps_weirs_process_id() {
    let directory = Arc::new(OneShard::default());
    occupy(&directory, 0..=255);
    let mut world = World::beside(directory, ON);
    let client = world.client(&[]);
    let server = world.server();
    let key = key(&mut world, client);
    assert!(key.0 > 1 << 22);
    world.query(client, "select 1");
    assert_eq!(world.tags(server), "Q");
    cancel(&mut world, &key);
    assert_eq!(world.connecting.len(), 1);
}

#[test]
fn reload_that_turns_it_off_greets_those_who_wait() {
    let (mut world, _, _, _) = linked(ON);
    let second = world.client(&[]);
    assert_eq!(world.tags(second), "");
    let off = config("default_pool_size = 1\npool_mode = session");
    world.event(Event::Command(Command::Configure(off)));
    assert!(key(&mut world, second).0 > 1 << 22);
    assert_eq!(world.shard.audit().contradiction, None);
}

#[test]
fn reload_that_turns_it_on_is_for_the_logins_to_come() {
    let (mut world, first, server, (process_id, _)) = linked("default_pool_size = 1\npool_mode = session");
    assert!(process_id > 1 << 22);
    world.event(Event::Command(Command::Configure(config(ON))));
    let second = world.client(&[]);
    assert_eq!(key(&mut world, second).0, SERVER);
    world.query(first, "select 1");
    assert_eq!(world.tags(server), "", "it waits, as in any full pool");
}

#[test]
fn reload_to_another_mode_while_a_server_is_made_like_its_client() {
    let mut world = World::new(ON);
    let client = world.client(&[("application_name", "mine")]);
    let server = world.server();
    world.event(Event::Command(Command::Configure(config("default_pool_size = 1"))));
    world.receive(
        server,
        &message(|out| {
            encode::command_complete(out, "SET");
            encode::parameter_status(out, b"application_name", b"mine");
            encode::ready(out, Status::Idle);
        }),
    );
    assert!(key(&mut world, client).0 > 1 << 22, "it will not keep this server");
    assert_eq!(world.shard.audit().contradiction, None);
}

#[test]
fn a_client_that_asks_nothing_is_idle_since_its_login() {
    let (mut world, client, server, _) = linked(&format!("{ON}\nclient_idle_timeout = 5"));
    world.pass(4_000);
    assert!(!world.closed.contains(&client));
    world.pass(1_400);
    assert!(world.text(client).contains("client_idle_timeout"));
    assert!(world.text(server).contains("DISCARD ALL") && !world.closed.contains(&server));
}

#[test]
fn a_paused_pool_keeps_logins_waiting() {
    let (mut world, first, server, _) = linked(ON);
    world.event(Event::HungUp { conn: first });
    world.answer(server, Status::Idle);
    world.event(Event::Command(Command::Pause { request: RequestId(1), database: None }));
    world.event(Event::HungUp { conn: server });
    world.sent.clear();
    let second = world.client(&[]);
    assert_eq!(world.tags(second), "");
    world.event(Event::Command(Command::Resume { database: None }));
    world.server();
    assert_eq!(key(&mut world, second).0, SERVER);
}

#[test]
fn shutdown_wait_for_servers_ends_logins_that_wait() {
    let (mut world, first, _, _) = linked(ON);
    let second = world.client(&[]);
    let mode = ShutdownMode::WaitForServers;
    world.event(Event::Command(Command::Shutdown { request: RequestId(1), mode }));
    assert!(world.text(second).contains("server shutting down"));
    assert!(!world.closed.contains(&first), "it has its server");
}

#[test]
fn the_next_process_knows_the_key_and_keeps_logins_waiting() {
    let (mut old, first, server, first_key) = linked(ON);
    let second = old.client(&[]);
    let mut new = World::new(ON);
    old.event(Event::Command(Command::Export { round: 1 }));
    let places = import_all(&mut old, &mut new);
    let (first, second, server) = (places[&first], places[&second], places[&server]);
    assert_eq!(new.tags(second), "", "it waits on");
    new.query(first, "select pg_sleep(9)");
    assert_eq!(new.tags(server), "Q");
    cancel(&mut new, &first_key);
    let carrier = new.connected();
    assert!(new.sent.remove(&carrier).unwrap().ends_with(&[0, 0, 0, 77, 1, 2, 3, 4]));
    new.event(Event::HungUp { conn: carrier });
    new.answer(server, Status::Idle);
    leave(&mut new, first, server);
    assert_eq!(key(&mut new, second).0, SERVER);
}

/// RESET goes back to the startup packet's value, which differs from what servers report.
#[test]
fn the_next_process_knows_what_the_first_server_has_reported_meanwhile() {
    let (mut old, mut new) = (World::new(ON), World::new(ON));
    let client = old.accept();
    old.event(Event::Command(Command::Export { round: 1 }));
    let parameters: &[(&[u8], &[u8])] =
        &[(b"user", b"u"), (b"database", b"d"), (b"application_name", b"mine")];
    old.receive(client, &message(|out| encode::startup(out, Version::V3_0, parameters)));
    let server = old.server();
    let reported = |command: &str, name: &[u8]| {
        message(|out| {
            encode::command_complete(out, command);
            encode::parameter_status(out, b"application_name", name);
            encode::ready(out, Status::Idle);
        })
    };
    old.receive(server, &reported("SET", b"mine"));
    assert!(old.tags(client).ends_with("KZ"));
    old.pass(400);
    let places = import_all(&mut old, &mut new);
    let (client, server) = (places[&client], places[&server]);
    new.follow(server);
    new.query(client, "reset application_name");
    new.receive(server, &reported("RESET", b""));
    let told = new.text(client);
    assert!(told.contains("application_name\0mine\0Z"), "{told:?}");
}

/// A client that is cancelled by a key that another client of the new process has by chance would be the wrong one.
#[test]
fn a_key_that_is_taken_in_the_next_process_cancels_only_the_one_that_has_it_there() {
    let (mut old, first, _, (process_id, secret)) = linked(ON);
    let directory = Arc::new(OneShard::default());
    let prefix: [u8; 8] = [&process_id.to_be_bytes()[..], &secret].concat().try_into().unwrap();
    assert!(directory.keep_cancel_key(prefix, 9, 9));
    let mut new = World::beside(Arc::clone(&directory), ON);
    old.event(Event::Command(Command::Export { round: 1 }));
    let places = import_all(&mut old, &mut new);
    assert_eq!(directory.find_cancel_key(prefix), Some((9, 9)));
    new.event(Event::HungUp { conn: places[&first] });
    assert_eq!(directory.find_cancel_key(prefix), Some((9, 9)), "its end takes nothing from the other");
}

#[test]
fn a_replication_client_is_told_the_process_id_of_its_own_server() {
    let mut world = World::new(ON);
    let client = world.client(&[("replication", "database")]);
    world.server();
    assert_eq!(key(&mut world, client).0, SERVER);
}

#[test]
fn a_database_or_a_user_has_its_own() {
    let base = "default_pool_size = 1\npool_mode = session";
    for (settings, is_on) in [
        (format!("{base}\n[users]\nu = assign_server_at_login=1"), true),
        (format!("{base}\nassign_server_at_login = 1\n[users]\nu = assign_server_at_login=0"), false),
        (format!("{base}\nassign_server_at_login = 1\n[users]\nu = pool_mode=transaction"), false),
    ] {
        let (_, _, _, (process_id, _)) = linked(&settings);
        assert_eq!(process_id == SERVER, is_on, "{settings}");
    }
}

const GROUP: &str = "peer_id = 1\ndefault_pool_size = 2\npool_mode = session\nassign_server_at_login = 1\n[peers]\n1 = host=127.0.0.1 port=3\n2 = host=127.0.0.1 port=2\n3 = host=127.0.0.1 port=1\n[pgbouncer]";

/// Connects what is being connected; what each connection was sent.
fn carried(world: &mut World) -> Vec<(ConnId, Vec<u8>)> {
    let carriers = std::mem::take(&mut world.connecting);
    let connect = |conn| {
        world.event(Event::Connected { conn, remote: None, local: None });
        (conn, world.sent.remove(&conn).unwrap())
    };
    carriers.into_iter().map(connect).collect()
}

#[test]
fn in_a_group_every_other_process_is_asked_for_the_key_of_a_server() {
    let (mut world, client, _, own) = linked(GROUP);
    assert_eq!((own.0, own.1.len(), own.1[3] & 3), (SERVER, 4, 3));
    world.query(client, "select pg_sleep(9)");
    cancel(&mut world, &own);
    let here = carried(&mut world);
    assert!(matches!(&here[..], [(_, sent)] if sent.ends_with(&[1, 2, 3, 4])), "its own server: {here:?}");
    let off = GROUP.replace("assign_server_at_login = 1", "");
    world.event(Event::Command(Command::Configure(config(&off))));
    cancel(&mut world, &own);
    let here = carried(&mut world);
    assert!(matches!(&here[..], [(_, sent)] if sent.ends_with(&[1, 2, 3, 4])), "clients keep it: {here:?}");
    world.event(Event::Command(Command::Configure(config(GROUP))));

    let canceller = cancel(&mut world, &(SERVER, vec![9, 9, 9, 0xff]));
    let there = carried(&mut world);
    assert_eq!(there.len(), 2);
    assert!(there.iter().all(|(_, sent)| sent.ends_with(&[0, 0, 0, 77, 9, 9, 9, 0xfe])), "{there:?}");
    assert!(!world.reports.is_empty(), "a predecessor process may know it");
    world.event(Event::HungUp { conn: there[0].0 });
    assert!(!world.closed.contains(&canceller), "the other may have the client");
    world.event(Event::HungUp { conn: there[1].0 });
    assert!(world.closed.contains(&canceller));
}

#[test]
fn what_another_process_has_forwarded_is_not_forwarded_to_all_again() {
    let (mut world, client, _, own) = linked(GROUP);
    let canceller = cancel(&mut world, &(SERVER, vec![9, 9, 9, 0xfe]));
    assert!(world.connecting.is_empty() && world.closed.contains(&canceller));
    world.query(client, "select pg_sleep(9)");
    let forwarded = [&own.1[..3], &[own.1[3] - 1]].concat();
    cancel(&mut world, &(SERVER, forwarded));
    assert_eq!(world.connecting.len(), 1, "and reaches its client");
}

#[test]
fn in_a_group_without_the_setting_the_key_names_its_process() {
    let settings = GROUP.replace("assign_server_at_login = 1", "");
    let mut world = World::new(&settings);
    cancel(&mut world, &(u32::from_be_bytes([0, 3, 0, 9]), vec![9, 9, 9, 0xff]));
    assert_eq!(world.connecting.len(), 1);
}

#[test]
fn requests_for_all_processes_that_are_dropped_leave_nothing_that_waits() {
    let mut world = World::new(&format!("max_login_conn = 3\n{GROUP}"));
    let flood: Vec<ConnId> = (0..12).map(|_| cancel(&mut world, &(SERVER, vec![9, 9, 9, 0xff]))).collect();
    assert_eq!(world.connecting.len(), 8, "twice the pool of each peer");
    world.pass(1_500);
    let open = flood.iter().filter(|conn| !world.closed.contains(conn)).count();
    assert!(open <= 3, "{open}");
    let mut sent = 0;
    while let Some(conn) = world.connecting.pop() {
        world.event(Event::HungUp { conn });
        sent += 1;
    }
    assert!(sent <= 8 + 2 * open, "{sent} for {open}");
    assert_eq!(flood.iter().filter(|conn| !world.closed.contains(conn)).count(), 0);
    assert_eq!(world.shard.audit().leftovers.connections, 0);
}
