//! `queue_limit` and `queue_target`: who is refused while more clients wait than can be served in time.

use std::sync::Arc;

use crate::world::{OneShard, World, config, message};
use messages::{Command, RequestId};
use pool::PoolRegistry;
use shard::{ConnId, Event};
use wire::backend::Status;
use wire::encode;

/// A world with one server, which is busy, and so many clients that have asked for nothing yet.
fn busy(settings: &str, clients: usize) -> (World, ConnId, Vec<ConnId>) {
    let mut world = World::new(&format!("default_pool_size = 1\n{settings}"));
    let holder = world.client(&[]);
    let server = world.server();
    world.query(holder, "select 'holder'");
    let clients = (0..clients).map(|_| world.client(&[])).collect();
    world.sent.clear();
    (world, server, clients)
}

fn ask(world: &mut World, client: ConnId) {
    world.query(client, "select 1");
    assert_eq!(world.shard.audit().contradiction, None);
}

/// The error that a client has got, if it is one, and whether it may go on.
fn refusal(world: &mut World, client: ConnId) -> Option<(String, bool)> {
    let sent = world.sent.remove(&client)?;
    let text = String::from_utf8_lossy(&sent).into_owned();
    assert!(text.contains("C53300"), "{text}");
    let (error, _) = text.split_once('\0').map(|_| (text.clone(), ())).unwrap();
    Some((error, sent.ends_with(b"Z\0\0\0\x05I")))
}

#[test]
fn one_more_than_may_wait_is_refused_and_goes_on() {
    let (mut world, server, clients) = busy("queue_limit = 2", 3);
    for client in &clients {
        ask(&mut world, *client);
    }
    assert_eq!((world.tags(clients[0]).as_str(), world.tags(clients[1]).as_str()), ("", ""));
    let (text, goes_on) = refusal(&mut world, clients[2]).unwrap();
    assert!(
        text.contains("pool d/u is overloaded: more than 2 clients wait (queue_limit); try again in 1 s"),
        "{text}"
    );
    assert!(text.contains("SERROR") && goes_on && world.closed.is_empty());
    world.answer(server, Status::Idle);
    world.sent.clear();
    ask(&mut world, clients[2]);
    world.answer(server, Status::Idle);
    world.answer(server, Status::Idle);
    assert!(world.tags(server).ends_with('Q'), "it waits in its turn now");
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(clients[2]), "CZ");
}

#[test]
fn every_request_that_is_here_gets_its_error() {
    let (mut world, _, clients) = busy("queue_limit = 1", 2);
    ask(&mut world, clients[0]);
    let pipeline = message(|out| {
        for _ in 0..2 {
            encode::parse(out, b"s", b"select 1", &[]);
            encode::sync(out);
        }
        encode::query(out, b"select 2");
        encode::sync(out);
    });
    world.receive(clients[1], &pipeline);
    assert_eq!(world.tags(clients[1]), "EZEZEZZ");
}

#[test]
fn a_request_in_pieces_gets_its_answers_in_their_places() {
    let (mut world, _, clients) = busy("queue_limit = 1", 2);
    ask(&mut world, clients[0]);
    let parse = message(|out| encode::parse(out, b"", b"select 1", &[]));
    let rest = message(|out| {
        encode::flush(out);
        encode::query(out, b"skipped");
        encode::sync(out);
    });
    world.receive(clients[1], &parse);
    assert_eq!(world.tags(clients[1]), "E");
    assert!(!world.paused.contains(&clients[1]));
    for byte in &rest[..rest.len() - 1] {
        world.receive(clients[1], &[*byte]);
        assert_eq!(world.tags(clients[1]), "");
    }
    world.receive(clients[1], &rest[rest.len() - 1..]);
    assert_eq!(world.tags(clients[1]), "Z");
    world.event(Event::HungUp { conn: clients[0] });
    ask(&mut world, clients[1]);
    assert_eq!(world.tags(clients[1]), "", "it may wait now");
}

#[test]
fn a_flush_is_answered_at_once() {
    let (mut world, _, clients) = busy("queue_limit = 1", 2);
    ask(&mut world, clients[0]);
    let flushed = message(|out| {
        encode::parse(out, b"", b"select 1", &[]);
        encode::flush(out);
    });
    world.receive(clients[1], &flushed);
    assert_eq!(world.tags(clients[1]), "E");
    world.receive(clients[1], &message(encode::sync));
    assert_eq!(world.tags(clients[1]), "Z");
    world.receive(clients[1], &message(encode::terminate));
    assert_eq!(world.closed, [clients[1]]);
}

#[test]
fn a_refused_client_that_leaves_or_sends_nonsense_is_closed() {
    for (bytes, told) in [
        (message(encode::terminate), ""),
        (vec![b'Q', 0, 0, 0, 1], "C08P01"),
        (vec![b'?', 0, 0, 0, 4], "C08P01"),
        (vec![b'p', 0, 0, 0, 5, 0], "C08P01"),
    ] {
        let (mut world, _, clients) = busy("queue_limit = 1", 2);
        ask(&mut world, clients[0]);
        world.receive(clients[1], &message(|out| encode::parse(out, b"", b"select 1", &[])));
        assert_eq!(world.tags(clients[1]), "E");
        world.receive(clients[1], &bytes);
        assert_eq!(world.closed, [clients[1]]);
        let sent = world.text(clients[1]);
        assert!(if told.is_empty() { sent.is_empty() } else { sent.contains(told) }, "{sent}");
        assert_eq!(world.shard.audit().contradiction, None);
    }
}

#[test]
fn a_close_is_not_refused() {
    let (mut world, server, clients) = busy("queue_limit = 1", 3);
    let named = message(|out| {
        encode::parse(out, b"s", b"select 1", &[]);
        encode::sync(out);
    });
    let close = message(|out| {
        encode::close(out, b'S', b"s");
        encode::sync(out);
    });
    ask(&mut world, clients[0]);
    world.receive(clients[1], &close);
    world.receive(clients[2], &[named, close].concat());
    assert_eq!((world.tags(clients[1]).as_str(), world.tags(clients[2]).as_str()), ("", "EZ"));
    assert_eq!(world.shard.audit().contradiction, None);
    world.answer(server, Status::Idle);
    world.sent.clear();
    world.answer(server, Status::Idle);
    for client in &clients[1..] {
        let asked = world.tags(server);
        assert!(asked == "S" || asked == "CS", "{asked}");
        let closed = message(|out| {
            if asked == "CS" {
                encode::close_complete(out);
            }
            encode::ready(out, Status::Idle);
        });
        world.receive(server, &closed);
        assert_eq!(world.tags(*client), "3Z");
    }
}

#[test]
fn a_message_that_is_long_ends_with_its_client() {
    let long = message(|out| encode::query(out, &[b' '; 200_000]));
    let (mut world, _, clients) = busy("queue_limit = 1", 2);
    ask(&mut world, clients[0]);
    world.receive(clients[1], &long[..100_000]);
    let (text, goes_on) = refusal(&mut world, clients[1]).unwrap();
    assert!(text.contains("SFATAL") && !goes_on && world.closed == [clients[1]], "{text}");
}

#[test]
fn a_transaction_that_has_begun_is_not_refused_without_its_client() {
    let (mut world, _, clients) = busy("queue_limit = 1\ndeferred_begin = 1", 2);
    ask(&mut world, clients[0]);
    world.query(clients[1], "begin");
    assert_eq!(world.tags(clients[1]), "CZ");
    ask(&mut world, clients[1]);
    assert!(refusal(&mut world, clients[1]).unwrap().0.contains("SFATAL"));
}

#[test]
fn the_limit_is_that_of_all_threads() {
    let registry = Arc::new(OneShard::among(2));
    let mut world = World::beside(Arc::clone(&registry), "default_pool_size = 1\nqueue_limit = 2");
    let mut other = World::beside(Arc::clone(&registry), "default_pool_size = 1\nqueue_limit = 2");
    let holder = world.client(&[]);
    world.server();
    world.query(holder, "select 'holder'");
    let (here, there, late) = (world.client(&[]), other.client(&[]), world.client(&[]));
    assert_eq!(other.tags(there), "", "it waits for its greeting, as no server of this part is there");
    world.sent.clear();
    ask(&mut world, here);
    assert_eq!(world.tags(here), "");
    other.pass(400);
    ask(&mut world, late);
    assert!(refusal(&mut world, late).is_some());
    other.event(Event::HungUp { conn: there });
    other.pass(400);
    ask(&mut world, late);
    assert_eq!(world.tags(late), "");
    drop(registry.pool("d", "u"));
}

#[test]
fn who_comes_too_late_is_refused_when_its_turn_comes() {
    let (mut world, server, clients) = busy("queue_target = 0.05", 4);
    ask(&mut world, clients[0]);
    ask(&mut world, clients[1]);
    world.now.mono_us += 90_000;
    ask(&mut world, clients[2]);
    world.now.mono_us += 20_000;
    world.answer(server, Status::Idle);
    for late in &clients[..2] {
        let (text, goes_on) = refusal(&mut world, *late).unwrap();
        assert!(goes_on && text.contains("clients wait for more than 50 ms (queue_target)"), "{text}");
    }
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(clients[2]), "CZ", "it has waited for 20 ms");
}

#[test]
fn a_queue_that_was_empty_just_now_is_no_overload() {
    let (mut world, server, clients) = busy("queue_target = 0.05", 1);
    ask(&mut world, clients[0]);
    world.now.mono_us += 90_000;
    world.answer(server, Status::Idle);
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(clients[0]), "CZ");
}

#[test]
fn who_waits_while_no_server_becomes_free_is_refused_too() {
    let (mut world, _, clients) = busy("queue_target = 0.05", 1);
    ask(&mut world, clients[0]);
    world.pass(400);
    assert!(refusal(&mut world, clients[0]).is_some_and(|(_, goes_on)| goes_on));
}

#[test]
fn a_question_of_a_login_waits_beyond_the_target() {
    let (mut world, _, clients) = busy("queue_target = 0.05\nauth_user = u\nauth_query = select $1", 1);
    ask(&mut world, clients[0]);
    let mut packet = vec![];
    let login: [(&[u8], &[u8]); 2] = [(b"user", b"stranger"), (b"database", b"d")];
    encode::startup(&mut packet, wire::startup::Version::V3_0, &login);
    let stranger = world.accept();
    world.receive(stranger, &packet);
    (0..3).for_each(|_| world.pass(400));
    assert!(refusal(&mut world, clients[0]).is_some_and(|(_, goes_on)| goes_on));
    assert_eq!(world.tags(stranger), "", "its question is still in the queue");
    assert!(!world.closed.contains(&stranger));
}

#[test]
fn waits_during_a_pause_are_not_the_loads() {
    let (mut world, server, clients) = busy("queue_target = 0.05", 2);
    ask(&mut world, clients[0]);
    world.event(Event::Command(Command::Pause { request: RequestId(1), database: None }));
    world.answer(server, Status::Idle);
    for _ in 0..5 {
        world.pass(400);
    }
    assert_eq!(world.tags(clients[0]), "");
    world.event(Event::Command(Command::Resume { database: None }));
    let server = world.server();
    world.now.mono_us += 40_000;
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(clients[0]), "CZ");
}

#[test]
fn a_pause_that_ends_before_the_server_is_free_is_not_the_loads() {
    let (mut world, server, clients) = busy("queue_target = 0.05", 1);
    ask(&mut world, clients[0]);
    world.event(Event::Command(Command::Pause { request: RequestId(1), database: None }));
    (0..5).for_each(|_| world.pass(400));
    world.event(Event::Command(Command::Resume { database: None }));
    world.now.mono_us += 40_000;
    world.answer(server, Status::Idle);
    let server = if world.connecting.is_empty() { server } else { world.server() };
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(clients[0]), "CZ");
}

#[test]
fn waits_for_a_server_that_refuses_are_not_the_loads() {
    let mut world = World::new("default_pool_size = 1\nqueue_target = 0.05");
    let client = world.client(&[]);
    let server = world.server();
    world.sent.clear();
    world.event(Event::HungUp { conn: server });
    ask(&mut world, client);
    let starting = world.connected();
    let refused = message(|out| encode::error(out, "FATAL", "57P03", "the database system is starting up"));
    world.receive(starting, &refused);
    world.event(Event::HungUp { conn: starting });
    for _ in 0..20 {
        if world.connecting.is_empty() {
            world.pass(400);
        }
    }
    assert_eq!(world.tags(client), "");
    let server = world.server();
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(client), "CZ");
}

#[test]
fn waits_for_a_query_of_weirs_own_are_not_the_loads() {
    let mut world = World::new(
        "default_pool_size = 1\nqueue_target = 0.05\nserver_check_query = select 9\nserver_check_delay = 0",
    );
    let client = world.client(&[]);
    let server = world.server();
    world.pass(10);
    world.sent.clear();
    ask(&mut world, client);
    (0..3).for_each(|_| world.pass(400));
    assert_eq!(world.tags(client), "");
    world.now.mono_us += 120_000;
    world.answer(server, Status::Idle); // The check.
    assert_eq!(world.tags(client), "");
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(client), "CZ");
}

#[test]
fn the_limits_change_by_reload() {
    let (mut world, _, clients) = busy("queue_limit = 1", 3);
    ask(&mut world, clients[0]);
    ask(&mut world, clients[1]);
    assert!(refusal(&mut world, clients[1]).is_some());
    world.event(Event::Command(Command::Configure(config("default_pool_size = 1"))));
    ask(&mut world, clients[1]);
    ask(&mut world, clients[2]);
    assert_eq!((world.tags(clients[1]).as_str(), world.tags(clients[2]).as_str()), ("", ""));
}

#[test]
fn one_that_leaves_behind_its_refused_request_has_one_error() {
    let (mut world, _, clients) = busy("queue_limit = 1", 2);
    ask(&mut world, clients[0]);
    let both = message(|out| {
        encode::query(out, b"select 1");
        encode::terminate(out);
    });
    world.receive(clients[1], &both);
    assert_eq!((world.tags(clients[1]).as_str(), &world.closed[..]), ("EZ", &clients[1..]));
    assert!(world.log.iter().any(|line| line.contains("client close request")), "{:?}", world.log);
}

#[test]
fn errors_for_a_flood_of_requests_are_bounded() {
    let (mut world, _, clients) = busy("queue_limit = 1", 2);
    ask(&mut world, clients[0]);
    let flood: Vec<u8> = message(|out| (0..10_000).for_each(|_| encode::query(out, b"")));
    world.receive(clients[1], &flood);
    let sent = world.sent.remove(&clients[1]).unwrap();
    assert!((256 * 1024..300 * 1024).contains(&sent.len()), "{}", sent.len());
    assert!(world.closed == [clients[1]] && String::from_utf8_lossy(&sent).contains("SFATAL"));
}

#[test]
fn a_request_of_each_size_up_to_the_longest_is_refused_without_its_client() {
    for length in [64 * 1024 - 1, 64 * 1024] {
        let long = message(|out| encode::query(out, &vec![b' '; length - 6]));
        assert_eq!(long.len(), length);
        let (mut world, _, clients) = busy("queue_limit = 1", 2);
        ask(&mut world, clients[0]);
        world.receive(clients[1], &long[..9]);
        assert_eq!(world.tags(clients[1]), "");
        world.receive(clients[1], &long[9..length - 1]);
        assert_eq!(world.tags(clients[1]), "", "{length}");
        world.receive(clients[1], &long[length - 1..]);
        assert_eq!((world.tags(clients[1]).as_str(), world.closed.len()), ("EZ", 0), "{length}");
    }
}

#[test]
fn a_refused_client_is_idle_since_then() {
    let (mut world, _, clients) = busy("queue_target = 1\nclient_idle_timeout = 1", 1);
    ask(&mut world, clients[0]);
    (0..3).for_each(|_| world.pass(400));
    assert!(refusal(&mut world, clients[0]).is_some_and(|(_, goes_on)| goes_on));
    world.pass(400);
    assert_eq!(world.tags(clients[0]), "", "it has been idle for 0.4 s");
    world.pass(700);
    assert!(world.text(clients[0]).contains("client_idle_timeout"));
}

#[test]
fn those_for_whom_idle_servers_are_checked_are_not_too_many() {
    let mut world = World::new(
        "default_pool_size = 3\nmin_pool_size = 3\nqueue_limit = 1\nserver_check_query = select 'check'\nserver_check_delay = 5",
    );
    let clients: Vec<ConnId> = (0..5).map(|_| world.client(&[])).collect();
    let servers: Vec<ConnId> = (0..3)
        .map(|_| {
            (0..3).for_each(|_| {
                if world.connecting.is_empty() {
                    world.pass(400)
                }
            });
            world.server()
        })
        .collect();
    (0..20).for_each(|_| world.pass(400));
    world.sent.clear();
    clients.iter().take(4).for_each(|client| ask(&mut world, *client));
    for client in &clients[..4] {
        assert_eq!(world.tags(*client), "", "three servers are being checked, and one may wait");
    }
    ask(&mut world, clients[4]);
    assert!(refusal(&mut world, clients[4]).is_some());
    servers.iter().for_each(|server| world.answer(*server, Status::Idle));
    servers.iter().for_each(|server| world.answer(*server, Status::Idle));
    assert_eq!(world.tags(clients[0]), "CZ");
}

#[test]
fn other_threads_know_at_once_that_clients_wait_no_longer() {
    let registry = Arc::new(OneShard::among(2));
    let settings = "default_pool_size = 2\nqueue_limit = 1";
    let mut world = World::beside(Arc::clone(&registry), settings);
    let mut other = World::beside(Arc::clone(&registry), settings);
    let (mut servers, mut clients) = (vec![], vec![]);
    for world in [&mut world, &mut other] {
        let both = [world.client(&[]), world.client(&[])];
        servers.push(world.server());
        world.query(both[0], "select 'holder'");
        world.sent.clear();
        clients.push(both);
    }
    ask(&mut world, clients[0][1]);
    ask(&mut other, clients[1][1]);
    assert!(refusal(&mut other, clients[1][1]).is_some(), "one waits on the first");
    world.answer(servers[0], Status::Idle);
    ask(&mut other, clients[1][1]);
    assert_eq!(other.tags(clients[1][1]), "", "it has been served");
    ask(&mut world, clients[0][0]);
    assert!(refusal(&mut world, clients[0][0]).is_some());
    other.event(Event::HungUp { conn: clients[1][1] });
    ask(&mut world, clients[0][0]);
    assert_eq!(world.tags(clients[0][0]), "", "it has gone");
}
