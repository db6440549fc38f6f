//! Cancel requests, on a whole shard in memory: whose query they reach.

use std::collections::BTreeSet;

use crate::world::{World, message};
use shard::{ConnId, Event, Peer};
use wire::backend::Status;
use wire::startup::Version;
use wire::{backend, encode, frame::Frames};

fn startup(version: Version) -> Vec<u8> {
    message(|out| encode::startup(out, version, &[(b"user", b"u"), (b"database", b"d")]))
}

/// Logs a client in by this protocol; its process id and secret.
fn greeted(world: &mut World, version: Version) -> (ConnId, u32, Vec<u8>) {
    let conn = world.accept();
    world.receive(conn, &startup(version));
    if !world.connecting.is_empty() {
        world.server();
    }
    let mut frames = Frames::new(1 << 20);
    frames.push(&world.sent.remove(&conn).unwrap());
    while let Some((tag, body)) = frames.pop().unwrap() {
        assert_ne!(tag, wire::tag::backend::NEGOTIATE, "3.2 is spoken");
        if tag == wire::tag::backend::KEY_DATA {
            let (process_id, secret) = backend::key_data(&body).unwrap();
            return (conn, process_id, secret.to_vec());
        }
    }
    panic!("no key");
}

fn cancel(world: &mut World, process_id: u32, secret: &[u8]) {
    let conn = world.accept();
    world.receive(conn, &message(|out| encode::cancel_request(out, process_id, secret)));
}

#[test]
fn each_key_is_another_and_as_long_as_the_protocol_allows() {
    let mut world = World::new("");
    let mut ids = BTreeSet::new();
    for _ in 0..100 {
        let (old, first, short) = greeted(&mut world, Version::V3_0);
        let (new, second, long) = greeted(&mut world, Version::V3_2);
        assert_eq!((short.len(), long.len()), (4, 32));
        ids.extend([first, second]);
        // Their places are free at once, and their keys are not given again.
        world.event(Event::HungUp { conn: old });
        world.event(Event::HungUp { conn: new });
    }
    assert_eq!(ids.len(), 200);
    assert!(ids.iter().all(|id| (1..=i32::MAX.unsigned_abs()).contains(id)));
}

#[test]
fn only_the_whole_key_cancels() {
    let mut world = World::new("default_pool_size = 1");
    let (client, process_id, secret) = greeted(&mut world, Version::V3_2);
    world.query(client, "select 1");
    let mut wrong = secret.clone();
    wrong[31] ^= 1;
    cancel(&mut world, process_id, &wrong);
    cancel(&mut world, process_id, &secret[..4]);
    cancel(&mut world, process_id ^ 1, &secret);
    assert!(world.connecting.is_empty(), "no cancel is on its way");
    assert_eq!(world.reports.len(), 3, "a predecessor process may know them");
    cancel(&mut world, process_id, &secret);
    assert_eq!(world.connecting.len(), 1);
}

/// A key stays with its client: RELOAD changes how others are made, and where requests for them go.
#[test]
fn a_key_from_before_a_reload_of_peer_id_cancels() {
    let group = |own: u32| {
        format!(
            "peer_id = {own}\ndefault_pool_size = 9\n[peers]\n1 = host=127.0.0.1 port=3\n2 = host=127.0.0.1 port=2\n[pgbouncer]"
        )
    };
    let alone = || "default_pool_size = 9".to_owned();
    for (before, after) in [(alone(), group(1)), (group(1), group(2)), (group(1), alone())] {
        let mut world = World::new(&before);
        // Their last bits, which count how often a request was forwarded in a group, are all that there are.
        let clients: Vec<_> = (0..8)
            .map(|number| greeted(&mut world, if number % 2 == 0 { Version::V3_0 } else { Version::V3_2 }))
            .collect();
        world.event(Event::Command(messages::Command::Configure(crate::world::config(&after))));
        for (client, process_id, secret) in clients {
            world.query(client, "select 1");
            while !world.connecting.is_empty() {
                world.server();
            }
            cancel(&mut world, process_id, &secret);
            let carrier = world.connecting.pop();
            let target = carrier.map(|carrier| format!("{:?}", world.targets[&carrier]));
            assert!(
                target.as_deref().is_some_and(|target| target.contains("port: 1 ")),
                "{before} {after} {process_id:x} {secret:x?}: {target:?}"
            );
        }
    }
}

#[test]
fn the_key_of_a_disconnected_client_cancels_nothing() {
    let mut world = World::new("default_pool_size = 1");
    let (client, process_id, secret) = greeted(&mut world, Version::V3_0);
    world.event(Event::HungUp { conn: client });
    let (next, ..) = greeted(&mut world, Version::V3_0);
    assert_eq!(next, client, "the same place");
    world.query(next, "select 1");
    cancel(&mut world, process_id, &secret);
    assert!(world.connecting.is_empty());
}

const GROUP: &str = "max_login_conn = 3\npeer_id = 1\ndefault_pool_size = 2\nauth_type = plain\n[peers]\n1 = host=127.0.0.1 port=3\n2 = host=127.0.0.1 port=2\n3 = host=127.0.0.1 port=1\n[pgbouncer]";

/// A connection from this address, in a place that was not used before.
fn accept_from(world: &mut World, address: &str) -> ConnId {
    let conn = std::iter::repeat_with(|| world.shard.allocate_id())
        .find(|conn| !world.closed.contains(conn))
        .unwrap();
    let address = address.parse().unwrap();
    world.event(Event::Accepted { conn, peer: Peer::Inet { remote: address, local: address } });
    conn
}

/// A connection from this address with a cancel request for that process of the group.
fn cancel_at(world: &mut World, address: &str, peer: u8) -> ConnId {
    let conn = accept_from(world, address);
    world.receive(
        conn,
        &message(|out| encode::cancel_request(out, u32::from_be_bytes([0, peer, 0, 9]), &[1, 2, 3, 255])),
    );
    conn
}

fn open(world: &World, conns: &[ConnId]) -> usize {
    conns.iter().filter(|conn| !world.closed.contains(conn)).count()
}

#[test]
fn waiting_cancel_requests_count_like_logins_and_keep_no_client_out() {
    let mut world = World::new(GROUP);
    let flood: Vec<ConnId> = (0..12).map(|_| cancel_at(&mut world, "10.0.0.2:5", 2)).collect();
    let beyond = cancel_at(&mut world, "10.0.0.2:5", 2);
    assert_eq!((open(&world, &flood), open(&world, &[beyond])), (11, 1), "four times the limit");
    assert_eq!(world.connecting.len(), 4, "twice the pool of the peer");
    // Another address has its request carried to a peer that answers, and one that waited for its turn makes way.
    let other = cancel_at(&mut world, "127.0.0.1:5", 3);
    assert_eq!((open(&world, &[other]), open(&world, &flood), world.connecting.len()), (1, 10, 5));
    let carrier = world.connecting.pop().unwrap();
    world.event(Event::Connected { conn: carrier, remote: None, local: None });
    assert!(world.sent.remove(&carrier).is_some());
    world.event(Event::HungUp { conn: carrier });
    assert_eq!(open(&world, &[other]), 0, "done");
    // A login gets in at once, from their own address too.
    for address in ["127.0.0.1:5", "10.0.0.2:5"] {
        cancel_at(&mut world, "10.0.0.2:5", 2);
        let login = accept_from(&mut world, address);
        world.receive(login, &startup(Version::V3_0));
        assert_eq!(world.tags(login), "R", "it is asked for its password");
    }
    world.pass(1_500);
    assert!(open(&world, &flood) <= 3);
    assert!(flood.iter().all(|conn| !world.sent.contains_key(conn)), "a cancel request is never answered");
}

#[test]
fn a_request_whose_connection_was_closed_for_others_is_not_carried() {
    let mut world = World::new(GROUP);
    let flood: Vec<ConnId> = (0..12).map(|_| cancel_at(&mut world, "10.0.0.2:5", 2)).collect();
    world.pass(1_500);
    assert_eq!(open(&world, &flood), 3);
    let mut carried = 0;
    while let Some(conn) = world.connecting.pop() {
        world.event(Event::HungUp { conn });
        carried += 1;
    }
    assert_eq!(carried, 4 + 3, "those that had their turn, and those that are left");
    assert_eq!(open(&world, &flood), 0);
}

#[test]
fn a_client_need_not_wait_for_the_end_of_its_cancel_request() {
    let mut world = World::new(GROUP);
    let flood: Vec<ConnId> = (0..6).map(|_| cancel_at(&mut world, "10.0.0.2:5", 2)).collect();
    for conn in &flood {
        world.event(Event::HungUp { conn: *conn });
    }
    assert_eq!(open(&world, &flood), 2, "those that wait for their turn still count");
    let first = world.connecting.remove(0);
    world.event(Event::HungUp { conn: first });
    assert_eq!(world.connecting.len(), 4, "the next has its turn");
    while let Some(conn) = world.connecting.pop() {
        world.event(Event::HungUp { conn });
    }
    assert_eq!(open(&world, &flood), 0);
}

/// A client that named itself in its startup packet, with its server and its key.
fn client_with_a_name(world: &mut World) -> (ConnId, ConnId, (u32, Vec<u8>)) {
    let client = world.accept();
    let parameters: &[(&[u8], &[u8])] =
        &[(b"user", b"u"), (b"database", b"d"), (b"application_name", b"mine")];
    world.receive(client, &message(|out| encode::startup(out, Version::V3_0, parameters)));
    let server = world.server();
    let mut frames = Frames::new(1 << 20);
    frames.push(&world.sent.remove(&client).unwrap());
    let mut all = std::iter::from_fn(|| frames.pop().unwrap());
    let (_, body) = all.find(|(tag, _)| *tag == wire::tag::backend::KEY_DATA).unwrap();
    let (process_id, secret) = backend::key_data(&body).unwrap();
    (client, server, (process_id, secret.to_vec()))
}

fn done(command: &str, name: &[u8]) -> Vec<u8> {
    message(|out| {
        encode::command_complete(out, command);
        encode::parameter_status(out, b"application_name", name);
        encode::ready(out, Status::Idle);
    })
}

/// A cancel request is for the client's query: Weir's own, which sets the client's startup values again, waits until it is over.
#[test]
fn startup_values_are_set_again_behind_a_cancel_request() {
    let mut world = World::new("default_pool_size = 1\npool_mode = session");
    let (client, server, (process_id, secret)) = client_with_a_name(&mut world);
    world.query(client, "reset all");
    world.receive(server, &done("SET", b"mine"));
    assert!(world.text(server).ends_with("reset all\0"));
    cancel(&mut world, process_id, &secret);
    let canceller = world.connected();
    world.sent.clear();
    world.receive(server, &done("RESET", b""));
    assert_eq!(world.tags(server), "", "the cancel may still arrive");
    world.query(client, "select 1");
    assert_eq!(world.tags(server), "");
    world.event(Event::HungUp { conn: canceller });
    assert!(world.text(server).contains("SET application_name='mine';"));
    world.receive(server, &done("SET", b"mine"));
    assert!(world.text(server).ends_with("select 1\0"));
}

#[test]
fn a_server_released_meanwhile_keeps_no_client_waiting() {
    let mut world = World::new("default_pool_size = 1\nserver_check_query =");
    let (client, server, (process_id, secret)) = client_with_a_name(&mut world);
    world.query(client, "reset all");
    world.receive(server, &done("SET", b"mine"));
    cancel(&mut world, process_id, &secret);
    let canceller = world.connected();
    let reset = done("RESET", b"");
    world.event(Event::Received { conn: server, bytes: &reset, unsent: true });
    world.event(Event::SendBufferEmpty { conn: server });
    world.event(Event::HungUp { conn: canceller });
    world.query(client, "select 1");
    world.receive(server, &done("SET", b"mine"));
    assert!(world.text(server).ends_with("select 1\0"));
}

/// PostgreSQL keeps the answers to settings in front of a request until the request ends, which it may do by a cancel alone.
#[test]
fn a_cancel_behind_settings_in_front_of_a_request_waits_for_no_answer() {
    let mut world = World::new("default_pool_size = 1\nsession_state = virtual\nserver_check_query =");
    let (client, server, (process_id, secret)) = client_with_a_name(&mut world);
    world.query(client, "select 1");
    world.receive(server, &done("SET", b"mine"));
    world.answer(server, Status::Idle);
    let other = world.client(&[("application_name", "other")]);
    world.query(other, "select 1");
    world.receive(server, &done("SET", b"other"));
    world.answer(server, Status::Idle);
    world.sent.clear();
    world.query(client, "select pg_sleep(60)");
    let asked = world.text(server);
    assert!(
        asked.contains("COMMIT") && asked.contains("pg_sleep"),
        "settings and request in one write: {asked}"
    );
    cancel(&mut world, process_id, &secret);
    assert!(world.connecting.is_empty(), "it could meet the settings");
    world.pass(1_000);
    let carrier = world.connected();
    assert!(!world.sent[&carrier].is_empty(), "the request itself");
    world.event(Event::HungUp { conn: carrier });
    // One that comes later has nothing to wait for.
    cancel(&mut world, process_id, &secret);
    world.connected();
}

#[test]
fn a_cancel_that_waits_meets_no_later_query_of_its_client() {
    let mut world = World::new("default_pool_size = 1\nsession_state = virtual\nserver_check_query =");
    let (client, server, (process_id, secret)) = client_with_a_name(&mut world);
    let other = world.client(&[("application_name", "other")]);
    for (client, name) in [(client, &b"mine"[..]), (other, b"other")] {
        world.query(client, "select 1");
        world.receive(server, &done("SET", name));
        world.answer(server, Status::Idle);
    }
    world.query(client, "begin");
    cancel(&mut world, process_id, &secret);
    assert!(world.connecting.is_empty(), "it could meet the settings");
    world.led(server, 1);
    world.answer(server, Status::InTransaction);
    world.query(client, "select 2");
    world.pass(1_000);
    assert!(world.connecting.is_empty(), "what it was for has ended");
    assert_eq!(world.clients().len(), 2, "and the request with it");
}

#[test]
fn a_cancel_is_for_the_part_of_a_request_that_waits_for_answers_too() {
    let mut world = World::new("default_pool_size = 1\nserver_check_query =");
    let (client, server, (process_id, secret)) = client_with_a_name(&mut world);
    let prepare = message(|out| {
        encode::parse(out, b"s", b"select pg_sleep(60)", &[]);
        encode::sync(out);
    });
    world.receive(client, &prepare);
    world.receive(server, &done("SET", b"mine"));
    let prepared = message(|out| {
        encode::parse_complete(out);
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &prepared);
    let request = message(|out| {
        encode::parse(out, b"", b"deallocate t", &[]);
        for statement in [&b""[..], b"s"] {
            encode::bind_simple(out, b"", statement, &[]);
            encode::execute(out, b"", 0);
        }
        encode::sync(out);
    });
    world.sent.clear();
    world.receive(client, &request);
    let first = world.tags(server);
    assert!(first.ends_with('H'), "the rest waits: {first}");
    cancel(&mut world, process_id, &secret);
    let answered = message(|out| {
        encode::parse_complete(out);
        encode::bind_complete(out);
        encode::command_complete(out, "DEALLOCATE");
    });
    world.receive(server, &answered);
    assert!(world.tags(server).contains('E'), "the statement runs");
    let carrier = world.connected();
    assert!(world.sent.contains_key(&carrier), "and is cancelled");
}

#[test]
fn a_cancel_that_its_server_does_not_take_is_given_up_with_a_line() {
    let mut world = World::new("cancel_wait_timeout = 1");
    let (client, process_id, secret) = greeted(&mut world, Version::V3_0);
    world.query(client, "select 1");
    cancel(&mut world, process_id, &secret);
    let carrier = world.connected();
    world.pass(1_400);
    assert!(world.closed.contains(&carrier));
    let says = |line: &String| {
        line.starts_with("C-") && line.contains("closing because: cancel_wait_timeout (age=1s)")
    };
    assert!(world.log.iter().any(says), "{:?}", world.log);
}

#[test]
fn a_cancel_for_another_shard_is_given_up_with_a_line_there() {
    let mut world = World::new("cancel_wait_timeout = 1");
    let (client, process_id, secret) = greeted(&mut world, Version::V3_0);
    world.query(client, "select 1");
    let key: Vec<u8> = [&process_id.to_be_bytes()[..], &secret].concat();
    let from = messages::ShardId(1);
    world.event(Event::ShardMessage(messages::ShardMessage::Cancel {
        from,
        conn: 5,
        id: 9,
        key: key.into(),
    }));
    world.connected();
    world.pass(1_400);
    let is_told = |letter: &messages::ShardMessage| {
        matches!(letter, messages::ShardMessage::CancelTimedOut { conn: 5, id: 9 })
    };
    assert!(world.shard_messages.iter().any(is_told), "{:?}", world.shard_messages);
}

/// PostgreSQL may read it later, when the server runs something else.
#[test]
fn a_server_whose_cancel_was_given_up_after_it_was_sent_is_no_other_clients() {
    let mut world = World::new("cancel_wait_timeout = 1\ndefault_pool_size = 1\nserver_check_query =");
    let (client, server, (process_id, secret)) = client_with_a_name(&mut world);
    world.query(client, "select 1");
    world.receive(server, &done("SET", b"mine"));
    let says = |line: &String| line.contains("S-") && line.contains("cancel request was not answered");
    for is_sent in [false, true] {
        cancel(&mut world, process_id, &secret);
        let carrier = world.connecting.pop().unwrap();
        if is_sent {
            world.event(Event::Connected { conn: carrier, remote: None, local: None });
        }
        assert_eq!(world.sent.contains_key(&carrier), is_sent);
        world.pass(1_400);
        assert!(world.closed.contains(&carrier));
        assert!(!world.log.iter().any(says), "its own client has it: {:?}", world.log);
        world.answer(server, Status::Idle);
        assert_eq!(world.log.iter().any(says), is_sent, "{:?}", world.log);
        world.sent.remove(&server);
        world.query(client, "select 1");
        assert_eq!(world.text(server).ends_with("select 1\0"), !is_sent);
    }
}

#[test]
fn cancels_get_through_where_more_servers_are_open_than_the_pool_has_places() {
    let mut world = World::new("default_pool_size = 1\nreserve_pool_size = 3\nreserve_pool_timeout = 1");
    let clients: Vec<_> = (0..4).map(|_| greeted(&mut world, Version::V3_0)).collect();
    for (client, ..) in &clients {
        world.query(*client, "select pg_sleep(60)");
    }
    world.pass(1_100);
    while !world.connecting.is_empty() {
        world.server();
        world.pass(400);
    }
    for (.., process_id, secret) in &clients {
        cancel(&mut world, *process_id, secret);
    }
    assert_eq!(world.connecting.len(), 4, "one for each server");
}

#[test]
fn cancels_that_are_not_sent_are_over_with_their_query() {
    let mut world = World::new("default_pool_size = 1\nserver_check_query =");
    let (client, server, (process_id, secret)) = client_with_a_name(&mut world);
    world.query(client, "select 1");
    world.receive(server, &done("SET", b"mine"));
    let other = world.client(&[("application_name", "mine")]);
    for _ in 0..3 {
        cancel(&mut world, process_id, &secret);
    }
    assert_eq!(world.connecting.len(), 1, "the others wait for their turn");
    world.query(other, "select 2");
    assert_eq!(world.clients().len(), 5);
    world.answer(server, Status::Idle);
    assert_eq!(world.clients().len(), 2, "those that sent them are closed");
    assert!(world.text(server).ends_with("select 2\0"), "nothing can meet the next query");
    assert_eq!(world.connecting.len(), 1, "none is opened for the others");
}

#[test]
fn an_operators_cancel_is_no_client_and_is_reported_to_no_shard() {
    let mut world = World::new("cancel_wait_timeout = 1");
    let (client, ..) = greeted(&mut world, Version::V3_0);
    world.query(client, "select 1");
    let rows = world.clients();
    let [row] = &rows[..] else { panic!("{rows:?}") };
    let (request, id) = (messages::RequestId(2), row.id);
    world.event(Event::Command(messages::Command::CancelClient { request, id }));
    assert!(matches!(world.reports[..], [messages::Report::Done { count: 1, .. }]), "{:?}", world.reports);
    assert_eq!(world.clients().len(), 1, "only the client itself");
    let carrier = world.connected();
    assert_eq!(world.clients().len(), 1, "only the client itself");
    world.pass(1_400);
    assert!(world.closed.contains(&carrier), "given up after cancel_wait_timeout");
    assert!(world.shard_messages.is_empty(), "{:?}", world.shard_messages);
}

#[test]
fn a_carrier_that_is_being_closed_runs_into_no_timeout() {
    let mut world = World::new("cancel_wait_timeout = 1");
    let (client, process_id, secret) = greeted(&mut world, Version::V3_0);
    world.query(client, "select 1");
    cancel(&mut world, process_id, &secret);
    let carrier = world.connecting.pop().unwrap();
    world.event(Event::Connected { conn: carrier, remote: None, local: None });
    world.is_slow_to_close = true;
    world.event(Event::HungUp { conn: carrier });
    world.pass(2_000);
    assert_eq!(world.closed.iter().filter(|closed| **closed == carrier).count(), 1);
}
