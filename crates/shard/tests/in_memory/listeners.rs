//! `session_state = virtual`: clients that listen share a connection of their pool.

use crate::world::{World, message};
use shard::{ConnId, Event, Export, Import};
use wire::backend::Status;
use wire::encode;

const ON: &str = "default_pool_size = 1\nsession_state = virtual";

/// By a server process that no client of the tests has.
fn notification(channel: &str, payload: &str) -> Vec<u8> {
    notification_by(7, channel, payload)
}

/// By the server process of a client: all of them have this number here.
fn own(channel: &str, payload: &str) -> Vec<u8> {
    notification_by(77, channel, payload)
}

fn notification_by(process_id: u32, channel: &str, payload: &str) -> Vec<u8> {
    let body = [&process_id.to_be_bytes()[..], channel.as_bytes(), &[0], payload.as_bytes(), &[0]].concat();
    [&b"A"[..], &u32::try_from(body.len() + 4).unwrap().to_be_bytes(), &body].concat()
}

/// Answers a query that has changed the session.
fn done(world: &mut World, server: ConnId, command: &str) {
    let bytes = message(|out| {
        encode::command_complete(out, command);
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &bytes);
}

/// Answers Weir's question on which channels the session listens.
fn channels(world: &mut World, server: ConnId, channels: &[&str]) {
    let asked = world.text(server);
    assert!(asked.contains("pg_listening_channels"), "{asked}");
    let bytes = message(|out| {
        for channel in channels {
            let digits: String = channel.bytes().map(|byte| format!("{byte:02x}")).collect();
            encode::data_row(out, [Some(&b"l"[..]), Some(&b""[..]), Some(digits.as_bytes())]);
        }
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &bytes);
}

/// Lets the next server log in. The first one of a pool is asked for what changes sessions.
fn server(world: &mut World) -> ConnId {
    let server = world.server();
    let sent = world.sent.get(&server).cloned().unwrap_or_default();
    if String::from_utf8_lossy(&sent).contains("pg_rewrite") {
        world.sent.remove(&server);
        done(world, server, "SELECT 0");
    }
    server
}

/// A client that listens on `a`, and the connection that does so for it.
fn listening(settings: &str) -> (World, ConnId, ConnId) {
    let mut world = World::new(settings);
    let client = world.client(&[]);
    let shared = server(&mut world);
    world.sent.clear();
    world.query(client, "listen a");
    done(&mut world, shared, "LISTEN");
    channels(&mut world, shared, &["a"]);
    let sent = world.text(shared);
    assert!(sent.contains("RESET ALL;LISTEN \"weir_handover\""), "{sent}");
    done(&mut world, shared, "LISTEN");
    world.sent.clear();
    (world, client, shared)
}

/// Another client, which listens on `b`, and its server.
fn second(world: &mut World) -> (ConnId, ConnId) {
    let client = world.client(&[]);
    world.query(client, "listen b");
    let own = server(world);
    world.sent.clear();
    done(world, own, "LISTEN");
    channels(world, own, &["b"]);
    (client, own)
}

fn payloads(world: &mut World, conn: ConnId) -> Vec<String> {
    let bytes = world.sent.remove(&conn).unwrap_or_default();
    let own: Vec<u8> = bytes;
    session::listening::notifications(&own)
        .map(|one| String::from_utf8_lossy(one.payload).into_owned())
        .collect()
}

#[test]
fn the_first_server_that_listens_is_shared_and_its_client_goes_on_without_it() {
    let (mut world, client, shared) = listening(ON);
    world.receive(shared, &notification("a", "1"));
    world.receive(shared, &notification("other", "2"));
    assert_eq!(payloads(&mut world, client), ["1"]);
    world.query(client, "select 1");
    let own = server(&mut world);
    assert_ne!(own, shared, "pool_size does not count the shared one");
    let sent = world.text(own);
    assert!(sent.contains("LISTEN \"a\""), "{sent}");
    assert!(world.shard.audit().contradiction.is_none(), "{:?}", world.shard.audit().contradiction);
}

/// The same client in a transaction, and its server.
fn in_a_transaction() -> (World, ConnId, ConnId, ConnId) {
    let (mut world, client, shared) = listening(ON);
    world.query(client, "begin");
    let own = server(&mut world);
    done(&mut world, own, "LISTEN");
    world.answer(own, Status::InTransaction);
    world.sent.clear();
    (world, client, shared, own)
}

#[test]
fn in_a_transaction_a_notification_waits_and_comes_in_front_of_ready() {
    let (mut world, client, shared, own) = in_a_transaction();
    world.receive(shared, &notification("a", "1"));
    world.receive(own, &notification("a", "1"));
    assert_eq!(world.tags(client), "");
    world.query(client, "commit");
    done(&mut world, own, "COMMIT");
    assert_eq!(world.tags(client), "CAZ", "once, from the shared connection");
    assert!(world.text(own).contains("UNLISTEN *"));
    done(&mut world, own, "UNLISTEN");
    world.receive(shared, &notification("a", "2"));
    assert_eq!(payloads(&mut world, client), ["2"]);
}

#[test]
fn too_many_in_a_transaction_end_the_client() {
    let (mut world, client, shared, _) = in_a_transaction();
    let one = notification("a", &"x".repeat(7000));
    for _ in 0..149 {
        world.receive(shared, &one);
    }
    assert_eq!(world.tags(client), "");
    world.receive(shared, &one);
    assert!(world.text(client).contains("too many notifications"));
    assert!(world.closed.contains(&client));
}

#[test]
fn a_second_client_is_handed_over_at_its_marker() {
    let (mut world, first, shared) = listening(ON);
    let (client, own) = second(&mut world);
    assert!(world.text(shared).contains("LISTEN \"b\""));
    world.receive(own, &notification("b", "1"));
    assert_eq!(world.text(own), "", "the marker waits for the shared connection");
    done(&mut world, shared, "LISTEN");
    let sent = world.text(own);
    let marker = sent.split('\'').nth(1).unwrap().to_owned();
    world.sent.clear();
    // Each comes on both; which is first differs.
    world.receive(shared, &notification("b", "1"));
    world.receive(shared, &notification("b", "2"));
    world.receive(shared, &notification("weir_handover", "of another"));
    world.receive(shared, &notification("weir_handover", &marker));
    world.receive(shared, &notification("b", "3"));
    assert_eq!(world.tags(client), "", "its server has not delivered what was before");
    let answer = [
        notification("b", "2"),
        notification("weir_handover", &marker),
        notification("b", "3"),
        message(|out| {
            encode::command_complete(out, "NOTIFY");
            encode::ready(out, Status::Idle);
        }),
    ];
    world.receive(own, &answer.concat());
    assert_eq!(payloads(&mut world, client), ["1", "2", "3"]);
    assert!(world.text(own).contains("UNLISTEN *"));
    world.receive(own, &notification("b", "3"));
    done(&mut world, own, "UNLISTEN");
    world.receive(shared, &notification("b", "4"));
    assert_eq!((payloads(&mut world, client), payloads(&mut world, first)), (vec!["4".to_owned()], vec![]));
    assert!(world.shard.audit().contradiction.is_none());
}

#[test]
fn a_client_that_disconnects_is_forgotten() {
    let (mut world, client, shared) = listening(ON);
    world.event(Event::HungUp { conn: client });
    world.receive(shared, &notification("a", "1"));
    world.pass(1_000);
    assert!(world.text(shared).contains('X'), "without clients of its pool it is closed");
    world.event(Event::HungUp { conn: shared });
    assert!(world.shard.audit().contradiction.is_none());
}

#[test]
fn a_lost_connection_is_opened_again_and_that_is_logged() {
    let (mut world, client, shared) = listening(ON);
    world.event(Event::HungUp { conn: shared });
    assert!(world.log.iter().any(|line| line.contains("1 clients miss notifications")), "{:?}", world.log);
    assert!(!world.closed.contains(&client));
    world.pass(400);
    world.pass(400);
    let again = world.server();
    let sent = world.text(again);
    assert!(sent.contains("LISTEN \"a\";LISTEN \"weir_handover\""), "{sent}");
    done(&mut world, again, "LISTEN");
    world.receive(again, &notification("a", "1"));
    assert_eq!(payloads(&mut world, client), ["1"]);
    assert!(world.shard.audit().contradiction.is_none());
}

#[test]
fn what_a_transaction_takes_back_the_client_does_not_hear() {
    let (mut world, client, shared) = listening(ON);
    world.query(client, "unlisten a");
    let own = server(&mut world);
    done(&mut world, own, "LISTEN");
    done(&mut world, own, "UNLISTEN");
    world.receive(shared, &notification("a", "1"));
    channels(&mut world, own, &[]);
    world.receive(shared, &notification("a", "2"));
    assert_eq!(world.tags(client), "CZ");
    world.query(client, "begin; unlisten a; rollback");
    assert!(!world.text(own).contains("LISTEN \"a\""), "it listens on nothing any more");
}

#[test]
fn another_process_listens_for_the_client() {
    let (mut world, client, _) = listening(ON);
    world.event(Event::Command(messages::Command::Export { round: 1 }));
    let state = world
        .exported
        .iter()
        .find_map(|what| match what {
            Export::Socket { conn, state, .. } if *conn == client => Some(state.clone()),
            _ => None,
        })
        .unwrap();
    let mut other = World::new(ON);
    let conn = other.shard.allocate_id();
    other.event(Event::Import(Box::new(Import::Client { conn, state })));
    assert!(other.log.iter().any(|line| line.contains("opened anew after a takeover")), "{:?}", other.log);
    let shared = server(&mut other);
    let sent = other.text(shared);
    assert!(sent.contains("LISTEN \"a\""), "{sent}");
    done(&mut other, shared, "LISTEN");
    other.receive(shared, &notification("a", "1"));
    assert_eq!(payloads(&mut other, conn), ["1"]);
}

/// A client that listens on `a` has a server, which listens on it too; the client's query was answered with this.
fn linked(world: &mut World, client: ConnId, query: &str, answer: &[u8]) -> ConnId {
    world.query(client, query);
    let own = server(world);
    done(world, own, "LISTEN");
    world.sent.clear();
    world.receive(own, answer);
    own
}

/// CommandComplete and ReadyForQuery.
fn completed(command: &str) -> Vec<u8> {
    message(|out| {
        encode::command_complete(out, command);
        encode::ready(out, Status::Idle);
    })
}

fn ready() -> Vec<u8> {
    message(|out| encode::ready(out, Status::Idle))
}

/// What a server answers to NOTIFY that notifies itself.
fn notified(channel: &str, payload: &str) -> Vec<u8> {
    [message(|out| encode::command_complete(out, "NOTIFY")), own(channel, payload), ready()].concat()
}

#[test]
fn its_own_notification_comes_before_ready_and_has_its_process_id() {
    let (mut world, client, shared) = listening(ON);
    let own_server = linked(&mut world, client, "notify a, 'x'", &notified("a", "x"));
    assert_eq!(world.tags(client), "C", "the shared connection has not delivered what was before it");
    assert_eq!(world.text(own_server), "", "the server is not another client's yet");
    world.receive(shared, &notification("a", "before"));
    world.receive(shared, &own("a", "x"));
    let bytes = world.sent.remove(&client).unwrap();
    let ids: Vec<u32> = session::listening::notifications(&bytes)
        .map(|one| u32::from_be_bytes(*one.frame[5..].first_chunk().unwrap()))
        .collect();
    assert!(ids.len() == 2 && ids[0] == 7 && ids[1] != 77, "{ids:?}");
    assert!(bytes.ends_with(&ready()));
    assert!(world.text(own_server).contains("UNLISTEN *"));
    assert!(world.shard.audit().contradiction.is_none());
}

#[test]
fn without_the_shared_connection_ready_does_not_wait_for_ever() {
    let (mut world, client, shared) = listening(ON);
    linked(&mut world, client, "notify a, 'x'", &notified("a", "x"));
    assert_eq!(world.tags(client), "C");
    world.event(Event::HungUp { conn: shared });
    world.pass(1_000);
    assert_eq!(world.tags(client), "Z");
}

#[test]
fn what_only_its_server_delivers_comes_in_the_order_of_commits() {
    let (mut world, client, shared) = listening(ON);
    let answer = [
        message(|out| encode::command_complete(out, "LISTEN")),
        notification("a", "1"),
        notification("b", "2"),
        ready(),
    ];
    let own_server = linked(&mut world, client, "listen b", &answer.concat());
    assert_eq!(world.tags(client), "CZ", "what the shared connection delivers later was sent before");
    channels(&mut world, own_server, &["a", "b"]);
    assert!(world.text(shared).contains("LISTEN \"b\""));
    done(&mut world, shared, "LISTEN");
    let marker = world.text(own_server).split('\'').nth(1).unwrap().to_owned();
    let marked = [notification("weir_handover", &marker), completed("NOTIFY")].concat();
    world.receive(own_server, &marked);
    for (channel, payload) in [("a", "1"), ("weir_handover", &*marker), ("b", "3")] {
        world.receive(shared, &notification(channel, payload));
    }
    assert_eq!(payloads(&mut world, client), ["1", "2", "3"]);
}

#[test]
fn a_marker_that_comes_again_changes_nothing() {
    let (mut world, _, shared) = listening(ON);
    let (client, own_server) = second(&mut world);
    done(&mut world, shared, "LISTEN");
    let marker = world.text(own_server).split('\'').nth(1).unwrap().to_owned();
    world.receive(shared, &notification("weir_handover", &marker));
    world.receive(shared, &notification("b", "behind"));
    world.receive(shared, &notification("weir_handover", &marker));
    let marked =
        [notification("b", "before"), notification("weir_handover", &marker), completed("NOTIFY")].concat();
    world.sent.clear();
    world.receive(own_server, &marked);
    assert_eq!(payloads(&mut world, client), ["before", "behind"]);
}

#[test]
fn what_waits_of_a_channel_does_not_come_in_front_of_the_ready_of_its_unlisten() {
    let (mut world, client, shared) = listening(ON);
    world.query(client, "unlisten a");
    let own_server = server(&mut world);
    done(&mut world, own_server, "LISTEN");
    world.sent.clear();
    world.receive(shared, &notification("a", "1"));
    done(&mut world, own_server, "UNLISTEN");
    assert_eq!(world.tags(client), "CZ");
    channels(&mut world, own_server, &[]);
    assert_eq!(world.tags(client), "");
}

#[test]
fn one_that_unlistens_and_listens_on_too_many_others_hears_no_more_of_the_first() {
    let (mut world, client, shared) = listening(ON);
    let own_server = linked(&mut world, client, "do ''", &completed("UNLISTEN"));
    let many: Vec<String> = (0..65).map(|number| format!("n{number}")).collect();
    channels(&mut world, own_server, &many.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(
        !world.text(own_server).contains("NOTIFY"),
        "nothing is handed over: it has left its only channel"
    );
    world.sent.clear();
    world.receive(shared, &notification("a", "1"));
    assert_eq!(world.tags(client), "");
}

#[test]
fn one_that_stays_on_its_server_hears_all_from_there() {
    let (mut world, client, shared) = listening(ON);
    let own_server = linked(&mut world, client, "do ''", &completed("DO"));
    let asked = world.text(own_server);
    assert!(asked.contains("pg_listening_channels"), "{asked}");
    let held = message(|out| {
        for (kind, name) in [(b"a", &b""[..]), (b"l", b"61"), (b"l", b"62")] {
            encode::data_row(out, [Some(&kind[..]), Some(&b""[..]), Some(name)]);
        }
        encode::command_complete(out, "SELECT 3");
        encode::ready(out, Status::Idle);
    });
    world.sent.clear();
    world.receive(own_server, &held);
    let marker = world.text(own_server).split('\'').nth(1).unwrap().to_owned();
    let marked = [
        notification("a", "1"),
        notification("weir_handover", &marker),
        notification("b", "2"),
        completed("NOTIFY"),
    ];
    world.receive(own_server, &marked.concat());
    world.receive(shared, &notification("a", "1"));
    world.receive(shared, &notification("weir_handover", &marker));
    world.receive(shared, &notification("a", "3"));
    world.receive(own_server, &notification("a", "3"));
    assert_eq!(payloads(&mut world, client), ["1", "2"]);
    assert!(world.text(own_server).contains("UNLISTEN weir_handover"));
    done(&mut world, own_server, "UNLISTEN");
    assert_eq!(payloads(&mut world, client), ["3"], "once, from its server");
    assert!(world.shard.audit().contradiction.is_none());
}

#[test]
fn the_last_connection_that_a_limit_allows_does_not_listen_for_all() {
    let mut world = World::new(&format!("{ON}\nmax_db_connections = 1"));
    let client = world.client(&[]);
    let own_server = server(&mut world);
    world.query(client, "listen a");
    done(&mut world, own_server, "LISTEN");
    world.sent.clear();
    let mut answered = vec![];
    encode::data_row(&mut answered, [Some(&b"l"[..]), Some(&b""[..]), Some(&b"61"[..])]);
    answered.extend(completed("SELECT 1"));
    world.receive(own_server, &answered);
    assert_eq!(world.text(own_server), "");
    world.receive(own_server, &notification("a", "1"));
    assert_eq!(payloads(&mut world, client), ["1"]);
    world.query(client, "unlisten a");
    assert!(world.text(own_server).contains("unlisten a"), "it has kept its server");
}

#[test]
fn a_client_that_only_listens_is_not_pinned() {
    let settings = format!("{ON}\nmax_pinned = 1\nmax_pinned_action = error");
    let (mut world, first, shared) = listening(&settings);
    let (second, own_server) = second(&mut world);
    done(&mut world, shared, "LISTEN");
    assert!(world.shard.audit().contradiction.is_none(), "{:?}", world.shard.audit().contradiction);
    assert!(world.shard.audit().pins.values().all(|pins| *pins == 0));
    assert!(!world.closed.contains(&own_server) && !world.closed.contains(&first));
    assert_eq!(world.tags(second), "CZ");
}

/// Answers SETs of Weir's.
fn applied(world: &mut World, server: ConnId, name: &str) {
    let bytes = message(|out| {
        encode::command_complete(out, "SET");
        encode::parameter_status(out, b"application_name", name.as_bytes());
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &bytes);
}

/// Another client, which has reset the name of its startup packet and listens on `b`: it is to be handed over.
fn with_a_reset(world: &mut World) -> (ConnId, ConnId) {
    let client = world.client(&[("application_name", "mine")]);
    world.query(client, "reset all; listen b");
    let own = server(world);
    applied(world, own, "mine");
    world.sent.clear();
    world.receive(
        own,
        &message(|out| {
            encode::command_complete(out, "RESET");
            encode::command_complete(out, "LISTEN");
            encode::parameter_status(out, b"application_name", b"");
            encode::ready(out, Status::Idle);
        }),
    );
    channels(world, own, &["b"]);
    (client, own)
}

#[test]
fn one_that_is_not_handed_over_has_the_values_of_its_startup_packet() {
    let (mut world, _, shared) = listening(ON);
    let (client, own) = with_a_reset(&mut world);
    world.query(client, "select 1");
    world.sent.clear();
    world.event(Event::HungUp { conn: shared });
    world.pass(1_000);
    let sent = world.text(own);
    assert!(sent.contains("application_name='mine'") && !sent.contains("select 1"), "{sent}");
    applied(&mut world, own, "mine");
    assert!(world.text(own).contains("select 1"), "{}", world.text(own));
}

#[test]
fn what_was_reset_for_one_that_listens_is_not_reset_for_the_next() {
    let (mut world, _, shared) = listening(ON);
    let client = world.client(&[("application_name", "mine")]);
    world.query(client, "listen a");
    let own = server(&mut world);
    applied(&mut world, own, "mine");
    world.sent.clear();
    done(&mut world, own, "LISTEN");
    channels(&mut world, own, &["a"]);
    let marker = world.text(own).split("NOTIFY weir_handover,'").nth(1).unwrap()[..32].to_owned();
    world.receive(shared, &notification("weir_handover", &marker));
    world.receive(own, &[notification("weir_handover", &marker), completed("NOTIFY")].concat());
    done(&mut world, own, "UNLISTEN");
    world.query(client, "reset all");
    let sent = world.text(own);
    assert!(sent.contains("LISTEN \"a\"") && sent.contains("reset all"), "{sent}");
    world.sent.clear();
    world.led(own, 1);
    let reset = message(|out| {
        encode::command_complete(out, "RESET");
        encode::parameter_status(out, b"application_name", b"");
        encode::ready(out, Status::Idle);
    });
    world.receive(own, &reset);
    done(&mut world, own, "SELECT 0");
    assert!(world.text(own).contains("UNLISTEN *"));
    done(&mut world, own, "UNLISTEN");
    let next = world.client(&[("lock_timeout", "1s")]);
    let call = message(|out| {
        encode::parse(out, b"", b"do ''", &[]);
        encode::bind_simple(out, b"", b"", &[]);
        encode::execute(out, b"", 0);
        encode::sync(out);
    });
    world.receive(next, &call);
    done(&mut world, own, "SET");
    let called = message(|out| {
        encode::parse_complete(out);
        encode::bind_complete(out);
    });
    world.receive(own, &called);
    applied(&mut world, own, "second");
    let report = message(|out| encode::parameter_status(out, b"in_hot_standby", b"on"));
    let found = message(|out| {
        encode::data_row(out, [b"s" as &[u8], b"application_name", b"7365636f6e64"].map(Some));
        encode::data_row(out, [b"s" as &[u8], b"lock_timeout", b"3173"].map(Some));
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
    });
    world.receive(own, &[&found, &report[..7]].concat());
    world.sent.clear();
    world.receive(own, &report[7..]);
    world.query(next, "select 2");
    let sent = world.text(own);
    assert!(sent.contains("select 2") && !sent.contains("application_name"), "{sent}");
}

#[test]
fn one_that_unlistens_has_left_its_channel_although_a_report_is_not_whole() {
    let (mut world, client, _) = listening(ON);
    let own_server = linked(&mut world, client, "unlisten a", &completed("UNLISTEN"));
    let report = message(|out| encode::parameter_status(out, b"in_hot_standby", b"on"));
    world.receive(own_server, &[&completed("SELECT 0"), &report[..7]].concat());
    world.receive(own_server, &report[7..]);
    world.sent.clear();
    world.query(client, "select 1");
    let sent = world.text(own_server);
    assert!(sent.contains("select 1") && !sent.contains("LISTEN"), "{sent}");
}

#[test]
fn one_that_was_told_fatal_does_not_leave_its_server() {
    let (mut world, client, _) = listening(ON);
    let fatal = message(|out| encode::error(out, "FATAL", "57P01", "terminating connection"));
    let own_server = linked(&mut world, client, "select 1", &[completed("SELECT 1"), fatal].concat());
    assert_eq!((world.tags(client).as_str(), world.text(own_server).as_str()), ("CZE", ""));
    world.event(Event::HungUp { conn: own_server });
    assert!(world.closed.contains(&client));
}

#[test]
fn a_server_that_its_client_has_left_is_no_other_client_s_before_its_notice_is_whole() {
    let (mut world, client, _) = listening(ON);
    let own_server = linked(&mut world, client, "select 1", &completed("SELECT 1"));
    let notice = message(|out| encode::parameter_status(out, b"in_hot_standby", b"on"));
    world.receive(own_server, &[&completed("UNLISTEN"), &notice[..7]].concat());
    world.sent.clear();
    let other = world.client(&[]);
    world.query(other, "select 2");
    assert_eq!(world.text(own_server), "");
    world.receive(own_server, &notice[7..]);
    assert!(world.text(own_server).contains("select 2"), "{}", world.text(own_server));
}

#[test]
fn what_comes_while_a_client_waits_comes_before_its_request_is_refused() {
    let (mut world, client, shared) = listening(&format!("{ON}\nqueue_target = 0.05"));
    let holder = world.client(&[]);
    world.query(holder, "select 'holder'");
    if !world.connecting.is_empty() {
        server(&mut world);
    }
    world.query(client, "select 1");
    world.sent.clear();
    world.receive(shared, &notification("a", "while it waits"));
    assert_eq!(world.tags(client), "");
    world.pass(400);
    assert_eq!(world.tags(client), "AEZ");
}
