//! A shard hands everything on to the shard of another process: what travels, when, and what is as before.

use std::sync::Arc;

use crate::world::takeover::{Places, bring, carry};
use crate::world::{World, message};
use messages::Command;
use settings::Config;
use shard::{ConnId, Event, Export, Import};
use wire::backend::Status;
use wire::encode;

fn hand_over(old: &mut World, round: u32) {
    old.event(Event::Command(Command::Export { round }));
}

fn named(statement: &[u8]) -> Vec<u8> {
    message(|out| {
        encode::bind_simple(out, b"", statement, &[]);
        encode::execute(out, b"", 0);
        encode::sync(out);
    })
}

#[test]
fn who_rests_leaves_at_once_and_is_served_as_before() {
    let (mut old, mut new) = (World::new("default_pool_size = 1"), World::new("default_pool_size = 1"));
    let client = old.client(&[("application_name", "mine")]);
    let server = old.server();
    hand_over(&mut old, 1);
    let mut places = Places::new();
    assert!(carry(&mut old, &mut new, &mut places), "nothing is left");
    let (client, server) = (places[&client], places[&server]);
    new.sent.clear();
    new.query(client, "select 1");
    assert!(new.text(server).contains("SET application_name='mine'"));
    assert!(new.connecting.is_empty(), "the pool has its server");
}

#[test]
fn what_a_startup_packet_said_moves_with_its_client() {
    let (mut old, mut new) = (World::new("default_pool_size = 1"), World::new("default_pool_size = 1"));
    let client = old.client(&[("application_name", "mine")]);
    let server = old.server();
    hand_over(&mut old, 1);
    let mut places = Places::new();
    assert!(carry(&mut old, &mut new, &mut places));
    let (client, server) = (places[&client], places[&server]);
    new.query(client, "reset application_name");
    for (tag, name) in [("SET", "mine"), ("RESET", "")] {
        new.sent.clear();
        let bytes = message(|out| {
            encode::command_complete(out, tag);
            encode::parameter_status(out, b"application_name", name.as_bytes());
            encode::ready(out, Status::Idle);
        });
        new.receive(server, &bytes);
    }
    assert!(new.text(client).contains("application_name\0mine\0Z"));
}

#[test]
fn what_is_in_mid_query_is_answered_first() {
    let (mut old, mut new) = (World::new("default_pool_size = 1"), World::new("default_pool_size = 1"));
    let (busy, waiting) = (old.client(&[]), old.client(&[]));
    let server = old.server();
    old.query(busy, "select 1");
    old.query(waiting, "select 2");
    old.sent.clear();
    hand_over(&mut old, 1);
    let mut places = Places::new();
    assert!(!carry(&mut old, &mut new, &mut places));
    assert_eq!(places.keys().copied().collect::<Vec<_>>(), [waiting], "its request has not been begun");
    assert!(new.connecting.is_empty(), "the only server is still with the old process");
    old.answer(server, Status::Idle);
    assert_eq!(old.tags(busy), "CZ");
    assert!(carry(&mut old, &mut new, &mut places));
    assert!(new.text(places[&server]).contains("select 2"), "who waited is served next");
    new.answer(places[&server], Status::Idle);
    assert_eq!(new.tags(places[&waiting]), "CZ");
    new.query(places[&busy], "select 3");
    assert!(new.text(places[&server]).contains("select 3"));
}

#[test]
fn a_transaction_moves_with_its_server() {
    let (mut old, mut new) = (World::new("default_pool_size = 1"), World::new("default_pool_size = 1"));
    let client = old.client(&[]);
    let server = old.server();
    old.query(client, "begin");
    hand_over(&mut old, 1);
    let mut places = Places::new();
    assert!(!carry(&mut old, &mut new, &mut places));
    old.answer(server, Status::InTransaction);
    assert!(carry(&mut old, &mut new, &mut places));
    let other = new.client(&[]);
    new.query(other, "select 1");
    assert!(new.connecting.is_empty() && new.paused == [other], "the server is its client's");
    new.query(places[&client], "commit");
    assert!(new.text(places[&server]).contains("commit"));
    new.answer(places[&server], Status::Idle);
    assert!(new.text(places[&server]).contains("select 1"));
}

#[test]
fn connections_that_were_not_taken_come_back_and_are_served_as_before() {
    let mut world = World::new("default_pool_size = 2");
    let (idle, busy) = (world.client(&[]), world.client(&[]));
    let server = world.server();
    world.query(busy, "begin");
    world.answer(server, Status::InTransaction);
    hand_over(&mut world, 1);
    let exported = std::mem::take(&mut world.exported);
    world.event(Event::Command(Command::AbortExport));
    assert!(matches!(world.exported[..], [Export::Kept { sockets: 3 }]), "{:?}", world.exported);
    world.exported.clear();
    let sockets = exported.into_iter().filter(|what| matches!(what, Export::Socket { .. })).collect();
    let mut places = Places::new();
    bring(sockets, &mut world, &mut places);
    assert!(world.exported.is_empty(), "nobody leaves again: {:?}", world.exported);
    world.query(places[&busy], "commit");
    assert!(world.text(places[&server]).contains("commit"), "its transaction is where it was");
    world.answer(places[&server], Status::Idle);
    world.query(places[&idle], "select 1");
    assert!(world.text(places[&server]).contains("select 1"));
    assert!(world.connecting.is_empty(), "no second server is needed");
}

#[test]
fn prepared_statements_and_cancel_keys_stay_what_they_were() {
    let (mut old, mut new) = (World::new(""), World::new(""));
    new.shard.follow(1);
    let client = old.client(&[]);
    let server = old.server();
    old.receive(
        client,
        &message(|out| {
            encode::parse(out, b"s", b"select 1", &[]);
            encode::sync(out);
        }),
    );
    let prepared = message(|out| {
        encode::parse_complete(out);
        encode::ready(out, Status::Idle);
    });
    old.receive(server, &prepared);
    hand_over(&mut old, 1);
    let mut places = Places::new();
    assert!(carry(&mut old, &mut new, &mut places));
    new.sent.clear();
    new.receive(places[&client], &named(b"s"));
    let sent = new.text(places[&server]);
    assert!(sent.starts_with('B') && sent.contains("PGBOUNCER_1"), "{sent:?}");
}

fn parse(name: &[u8], text: &[u8]) -> Vec<u8> {
    message(|out| {
        encode::parse(out, name, text, &[]);
        encode::sync(out);
    })
}

fn parsed(status: Status) -> Vec<u8> {
    message(|out| {
        encode::parse_complete(out);
        encode::ready(out, status);
    })
}

/// Rows of another shape are only for clients that do not read by a description of before.
#[test]
fn whether_a_client_has_asked_for_descriptions_is_known_in_the_next_process() {
    for describes in [false, true] {
        let (mut old, mut new) = (World::new("default_pool_size = 1"), World::new("default_pool_size = 1"));
        new.shard.follow(1);
        let client = old.client(&[]);
        let server = old.server();
        old.receive(client, &parse(b"s", b"select 1"));
        old.receive(server, &parsed(Status::Idle));
        if describes {
            old.receive(client, &message(|out| encode::describe(out, b'S', b"s")));
            old.receive(client, &message(encode::sync));
            old.receive(
                server,
                &message(|out| {
                    out.extend_from_slice(b"t\0\0\0\x06\0\0n\0\0\0\x04");
                    encode::ready(out, Status::Idle);
                }),
            );
        }
        hand_over(&mut old, 1);
        let mut places = Places::new();
        assert!(carry(&mut old, &mut new, &mut places));
        let (client, server) = (places[&client], places[&server]);
        new.receive(client, &named(b"s"));
        new.sent.clear();
        new.receive(
            server,
            &message(|out| {
                encode::error(out, "ERROR", "0A000", "cached plan must not change result type");
                encode::ready(out, Status::Idle);
            }),
        );
        assert_eq!(new.tags(client), if describes { "EZ" } else { "" });
    }
}

#[test]
fn a_statement_that_sql_may_have_replaced_stays_distrusted() {
    let (mut old, mut new) = (World::new("default_pool_size = 1"), World::new("default_pool_size = 1"));
    new.shard.follow(1);
    let (client, other) = (old.client(&[]), old.client(&[]));
    let server = old.server();
    old.receive(client, &parse(b"s", b"select 1"));
    old.receive(server, &parsed(Status::Idle));
    old.query(other, "deallocate \"PGBOUNCER_1\"; prepare \"PGBOUNCER_1\" as select 2");
    let replaced = message(|out| {
        encode::command_complete(out, "DEALLOCATE");
        encode::command_complete(out, "PREPARE");
        encode::ready(out, Status::Idle);
    });
    old.receive(server, &replaced);
    hand_over(&mut old, 1);
    let mut places = Places::new();
    assert!(carry(&mut old, &mut new, &mut places));
    new.sent.clear();
    new.follow(places[&server]);
    new.receive(places[&client], &named(b"s"));
    assert_eq!(new.tags(places[&server]), "CPBES", "it is closed and prepared anew");
}

#[test]
fn a_portal_of_a_block_may_change_settings_behind_a_takeover_too() {
    let (mut old, mut new) = (World::new("default_pool_size = 1"), World::new("default_pool_size = 1"));
    new.shard.follow(1);
    let (client, other) = (old.client(&[]), old.client(&[]));
    let server = old.server();
    old.query(client, "begin");
    old.answer(server, Status::InTransaction);
    let bound = message(|out| {
        encode::parse(out, b"s", b"set local datestyle = 'ISO, DMY'", &[]);
        encode::bind_simple(out, b"portal", b"s", &[]);
        encode::sync(out);
    });
    old.receive(client, &bound);
    let answer = message(|out| {
        encode::parse_complete(out);
        encode::bind_complete(out);
        encode::ready(out, Status::InTransaction);
    });
    old.receive(server, &answer);
    hand_over(&mut old, 1);
    let mut places = Places::new();
    assert!(carry(&mut old, &mut new, &mut places));
    let (client, other, server) = (places[&client], places[&other], places[&server]);
    new.follow(server);
    new.sent.clear();
    const DATE: &[u8] = b"select date '01/02/2003'";
    let asked = message(|out| {
        encode::execute(out, b"portal", 0);
        encode::parse(out, b"date", DATE, &[]);
        encode::sync(out);
    });
    new.receive(client, &asked);
    new.receive(server, &message(|out| encode::command_complete(out, "SET")));
    assert_eq!(new.tags(server), "EHPS");
    let answer = message(|out| {
        encode::parse_complete(out);
        encode::parameter_status(out, b"DateStyle", b"ISO, DMY");
        encode::ready(out, Status::InTransaction);
    });
    new.receive(server, &answer);
    new.query(client, "commit");
    let answer = message(|out| {
        encode::command_complete(out, "COMMIT");
        encode::parameter_status(out, b"DateStyle", b"ISO, MDY");
        encode::ready(out, Status::Idle);
    });
    new.receive(server, &answer);
    new.sent.clear();
    new.receive(other, &parse(b"date", DATE));
    assert_eq!(new.tags(server), "PS", "the other was parsed under another DateStyle");
}

#[test]
fn what_a_portal_deallocates_behind_a_takeover_is_refused_by_the_name_of_its_client() {
    let (mut old, mut new) = (World::new("default_pool_size = 1"), World::new("default_pool_size = 1"));
    new.shard.follow(1);
    let client = old.client(&[]);
    let server = old.server();
    old.query(client, "begin");
    old.answer(server, Status::InTransaction);
    old.receive(client, &parse(b"s", b"deallocate all"));
    old.receive(server, &parsed(Status::InTransaction));
    old.receive(client, &parse(b"gone", b"select 1"));
    old.receive(server, &parsed(Status::InTransaction));
    let bound = message(|out| {
        encode::bind_simple(out, b"portal", b"s", &[]);
        encode::sync(out);
    });
    old.receive(client, &bound);
    let answer = message(|out| {
        encode::bind_complete(out);
        encode::ready(out, Status::InTransaction);
    });
    old.receive(server, &answer);
    hand_over(&mut old, 1);
    let mut places = Places::new();
    assert!(carry(&mut old, &mut new, &mut places));
    let (client, server) = (places[&client], places[&server]);
    new.sent.clear();
    let asked = message(|out| {
        encode::execute(out, b"portal", 0);
        encode::bind_simple(out, b"", b"gone", &[]);
        encode::sync(out);
    });
    new.receive(client, &asked);
    assert_eq!(new.tags(server), "EH", "what the name stands for is not known yet");
    new.receive(server, &message(|out| encode::command_complete(out, "DEALLOCATE ALL")));
    assert_eq!(new.tags(server), "CBS");
    let refused = message(|out| {
        encode::close_complete(out);
        encode::error(out, "ERROR", "26000", "prepared statement \"PGBOUNCER_0\" does not exist");
        encode::ready(out, Status::Failed);
    });
    new.sent.clear();
    new.receive(server, &refused);
    assert!(new.text(client).contains("\"gone\" does not exist"));
}

#[test]
fn limits_hold_over_both_processes() {
    let (mut old, mut new) = (World::new("default_pool_size = 2"), World::new("default_pool_size = 2"));
    let clients = [old.client(&[]), old.client(&[])];
    let server = old.server();
    clients.iter().for_each(|client| old.query(*client, "select 1"));
    let second = old.server();
    hand_over(&mut old, 1);
    let mut places = Places::new();
    assert!(!carry(&mut old, &mut new, &mut places));
    let newcomer = new.client(&[]);
    new.query(newcomer, "select 2");
    assert!(new.connecting.is_empty(), "both servers are counted");
    old.event(Event::HungUp { conn: server });
    assert!(!carry(&mut old, &mut new, &mut places));
    assert_eq!(new.connecting.len(), 1, "one was closed over there");
    new.event(Event::Import(Box::new(Import::Gone)));
    new.server();
    let further = new.client(&[]);
    new.query(newcomer, "begin");
    new.query(further, "begin");
    assert_eq!(new.connecting.len(), 1, "what died with the old process is not counted for ever");
    let _ = second;
}

#[test]
fn half_a_request_travels_unread() {
    let (mut old, mut new) = (World::new(""), World::new(""));
    let client = old.client(&[]);
    let server = old.server();
    let whole = message(|out| encode::query(out, b"select 1"));
    old.receive(client, &whole[..3]);
    hand_over(&mut old, 1);
    let mut places = Places::new();
    assert!(carry(&mut old, &mut new, &mut places));
    new.receive(places[&client], &whole[3..]);
    assert_eq!(new.tags(places[&server]), "Q");
}

#[test]
fn a_successor_that_dies_leaves_the_rest_in_service() {
    let mut old = World::new("default_pool_size = 1");
    let (busy, other) = (old.client(&[]), old.accept());
    let server = old.server();
    old.query(busy, "select 1");
    hand_over(&mut old, 1);
    old.event(Event::Command(Command::AbortExport));
    old.answer(server, Status::Idle);
    old.sent.clear();
    old.query(busy, "select 2");
    assert_eq!(old.tags(server), "Q");
    let _ = other;
}

#[test]
fn a_console_client_keeps_its_console() {
    let (mut old, mut new) = (World::new(""), World::new(""));
    let console = old.client(&[("user", "boss"), ("database", "pgbouncer")]);
    hand_over(&mut old, 1);
    let mut places = Places::new();
    assert!(carry(&mut old, &mut new, &mut places));
    new.query(places[&console], "SHOW VERSION");
    assert!(matches!(&new.reports[..], [messages::Report::Query(query)] if query.sql == "SHOW VERSION"));
}

#[test]
fn an_invalid_state_is_closed() {
    let mut new = World::new("");
    for word in
        [|conn| Import::Client { conn, state: vec![1] }, |conn| Import::Server { conn, state: vec![] }]
    {
        let conn = new.shard.allocate_id();
        new.event(Event::Import(Box::new(word(conn))));
        assert_eq!(new.closed.pop(), Some(conn));
    }
}

#[test]
fn a_pool_is_not_forgotten_while_the_old_process_has_servers_of_it() {
    let (mut old, mut new) = (World::new("default_pool_size = 1"), World::new("default_pool_size = 1"));
    let client = old.client(&[]);
    let connecting = old.connected();
    hand_over(&mut old, 1);
    let mut places = Places::new();
    assert!(!carry(&mut old, &mut new, &mut places), "a server is being opened");
    // The database goes and comes again.
    let mut without = Config::clone(&crate::world::config("default_pool_size = 1"));
    without.databases.clear();
    new.event(Event::Command(Command::Configure(Arc::new(without))));
    assert!(new.closed.contains(&places[&client]));
    new.pass(400);
    new.event(Event::Command(Command::Configure(crate::world::config("default_pool_size = 1"))));
    old.event(Event::HungUp { conn: connecting });
    assert!(carry(&mut old, &mut new, &mut places));
    new.client(&[]);
    assert_eq!(new.connecting.len(), 1, "its permit is free");
}

/// What a server reported is known in both processes, whatever its bytes.
#[test]
fn values_in_other_encodings_move_with_their_client_and_server() {
    for (encoding, is_restored) in [("LATIN1", true), ("SJIS", false)] {
        let (mut old, mut new) = (World::new("default_pool_size = 1"), World::new("default_pool_size = 1"));
        let (client, other) = (old.client(&[]), old.client(&[]));
        let server = old.server();
        report(&mut old, client, server, &[("client_encoding", encoding.as_bytes()), ("TimeZone", ZONE)]);
        hand_over(&mut old, 1);
        let mut places = Places::new();
        assert!(carry(&mut old, &mut new, &mut places));
        let (client, other, server) = (places[&client], places[&other], places[&server]);
        new.query(client, "select 1");
        assert!(new.text(server).ends_with("select 1\0"), "its server has it");
        new.answer(server, Status::Idle);
        new.query(other, "select 2");
        assert!(new.text(server).contains("RESET TimeZone;"));
        new.receive(server, &reports(&[("TimeZone", b"Etc/UTC"), ("client_encoding", b"UTF8")]));
        new.answer(server, Status::Idle);
        new.sent.clear();
        new.query(client, "select 3");
        assert_eq!(new.text(server).contains("decode('3cfcfc783e2d3033','hex'),'LATIN1')"), is_restored);
        assert_eq!(new.text(client).contains("0A000"), !is_restored);
    }
}

#[test]
fn what_a_server_of_an_older_process_reported_is_not_trusted() {
    let (mut old, mut new) = (World::new("default_pool_size = 2"), World::new("default_pool_size = 2"));
    let (client, other) = (old.client(&[]), old.client(&[]));
    let idle = old.server();
    old.query(client, "begin");
    old.query(other, "begin");
    let linked = old.server();
    old.answer(linked, Status::InTransaction);
    old.answer(idle, Status::Idle);
    hand_over(&mut old, 1);
    for what in &mut old.exported {
        if let Export::Socket { state, is_server: true, .. } = what {
            *state = without(39, state);
        }
    }
    let mut places = Places::new();
    assert!(carry(&mut old, &mut new, &mut places));
    let (idle, linked) = (places[&idle], places[&linked]);
    new.sent.clear();
    let (client, other) = (places[&client], places[&other]);
    new.query(client, "select 1");
    assert!(new.text(idle).contains("SET DateStyle='ISO, MDY';"), "set again, unlike what is known");
    new.receive(idle, &reports(&[]));
    assert!(new.text(idle).ends_with("select 1\0"));
    new.answer(idle, Status::Idle);
    new.query(client, "select 2");
    assert!(new.text(idle).ends_with("select 2\0"), "it is known now");
    new.query(other, "commit");
    assert!(new.text(linked).ends_with("commit\0"));
    new.answer(linked, Status::Idle);
    assert_eq!(new.tags(linked), "X", "the client of its transaction is its last");
    assert!(!new.closed.contains(&other));
}

const ZONE: &[u8] = b"<\xfc\xfcx>-03";

fn report(world: &mut World, client: ConnId, server: ConnId, values: &[(&str, &[u8])]) {
    world.query(client, "set");
    for value in values {
        world.receive(server, &reports(&[*value]));
        world.query(client, "set");
    }
    world.answer(server, Status::Idle);
    world.sent.clear();
}

fn reports(values: &[(&str, &[u8])]) -> Vec<u8> {
    message(|out| {
        encode::command_complete(out, "SET");
        for (name, value) in values {
            encode::parameter_status(out, name.as_bytes(), value);
        }
        encode::ready(out, Status::Idle);
    })
}

/// A state as a process writes it that does not know this field.
fn without(number: u16, mut state: &[u8]) -> Vec<u8> {
    let mut rest = vec![];
    while let Some((head, _)) = state.split_first_chunk::<6>() {
        let length = u32::from_be_bytes(head[2..].try_into().unwrap()) as usize;
        let (field, behind) = state.split_at(6 + length);
        if head[..2] != number.to_be_bytes() {
            rest.extend_from_slice(field);
        }
        state = behind;
    }
    rest
}

#[test]
fn a_client_is_greeted_also_if_its_server_came_from_the_old_process_unknown() {
    let (mut old, mut new) = (World::new("default_pool_size = 1"), World::new("default_pool_size = 1"));
    let client = old.client(&[]);
    hand_over(&mut old, 1);
    let mut places = Places::new();
    assert!(!carry(&mut old, &mut new, &mut places), "its server is being opened");
    assert!(new.connecting.is_empty(), "and is the only one");
    let unknown = old.server();
    // An older process did not tell what it has learned after it began to hand over.
    old.exported.retain(|what| !matches!(what, Export::Pool { .. }));
    assert!(carry(&mut old, &mut new, &mut places));
    new.event(Event::HungUp { conn: places[&unknown] });
    let opened = new.server();
    assert!(new.tags(places[&client]).ends_with('Z'), "only a login tells what a client is greeted with");
    new.query(places[&client], "select 1");
    assert!(new.text(opened).contains("select 1"));
}

#[test]
fn what_a_server_reports_that_logs_in_meanwhile_is_known_in_the_next_process() {
    let (mut old, mut new) = (World::new("default_pool_size = 1"), World::new("default_pool_size = 1"));
    let client = old.client(&[]);
    hand_over(&mut old, 1);
    let mut places = Places::new();
    assert!(!carry(&mut old, &mut new, &mut places), "its server is being opened");
    let server = old.server();
    let is_pool = |what: &Export| matches!(what, Export::Pool { .. });
    let (pools, others): (Vec<_>, Vec<_>) = std::mem::take(&mut old.exported).into_iter().partition(is_pool);
    bring(pools, &mut new, &mut places);
    assert!(new.tags(places[&client]).ends_with('Z'), "no login is needed to greet it");
    bring(others, &mut new, &mut places);
    new.query(places[&client], "select 1");
    assert!(new.text(places[&server]).contains("select 1") && new.connecting.is_empty());
}

#[test]
fn a_suspended_process_exports_all_the_same() {
    let (mut old, mut new) = (World::new("default_pool_size = 1"), World::new("default_pool_size = 1"));
    let (busy, waiting) = (old.client(&[]), old.client(&[]));
    let server = old.server();
    old.query(busy, "select 1");
    old.query(waiting, "select 2");
    old.event(Event::Command(Command::Suspend { request: messages::RequestId(1) }));
    hand_over(&mut old, 1);
    assert!(old.paused.is_empty() || old.paused == [waiting], "what was begun is answered: {:?}", old.paused);
    old.answer(server, Status::Idle);
    let mut places = Places::new();
    assert!(carry(&mut old, &mut new, &mut places), "nothing is left");
    assert!(new.text(places[&server]).contains("select 2"), "nothing stands still there");
}

#[test]
fn a_pair_that_comes_while_everything_stands_still_stands_still() {
    let (mut old, mut new) = (World::new("default_pool_size = 1"), World::new("default_pool_size = 1"));
    let client = old.client(&[]);
    let server = old.server();
    old.query(client, "begin");
    old.answer(server, Status::InTransaction);
    new.event(Event::Command(Command::Suspend { request: messages::RequestId(1) }));
    hand_over(&mut old, 1);
    let mut places = Places::new();
    assert!(carry(&mut old, &mut new, &mut places));
    let (client, server) = (places[&client], places[&server]);
    assert_eq!(new.paused, [client, server]);
    new.event(Event::Command(Command::Resume { database: None }));
    assert!(new.paused.is_empty());
    new.query(client, "commit");
    assert!(new.text(server).contains("commit"));
}

#[test]
fn a_pause_waits_for_what_the_process_before_still_has() {
    let (mut old, mut new) = (World::new("default_pool_size = 1"), World::new("default_pool_size = 1"));
    let client = old.client(&[]);
    let server = old.server();
    old.query(client, "begin");
    hand_over(&mut old, 1);
    let mut places = Places::new();
    assert!(!carry(&mut old, &mut new, &mut places));
    new.event(Event::Command(Command::Pause { request: messages::RequestId(1), database: None }));
    let is_done =
        |new: &World| new.reports.iter().any(|report| matches!(report, messages::Report::Done { .. }));
    assert!(!is_done(&new), "a transaction is open there");
    old.answer(server, Status::InTransaction);
    assert!(carry(&mut old, &mut new, &mut places) && !is_done(&new), "and here");
    new.query(places[&client], "commit");
    new.answer(places[&server], Status::Idle);
    new.event(Event::HungUp { conn: places[&server] });
    assert!(is_done(&new));
}

/// PostgreSQL 18 says idle to the Sync behind a query amidst a pipeline, and keeps its transaction.
#[test]
fn a_query_amidst_a_pipeline_is_known_in_the_next_process() {
    let (mut old, mut new) = (World::new("default_pool_size = 1"), World::new("default_pool_size = 1"));
    let client = old.client(&[]);
    let server = old.server();
    let pipeline = message(|out| {
        encode::parse(out, b"", b"select 1", &[]);
        encode::bind_simple(out, b"", b"", &[]);
        encode::execute(out, b"", 0);
        encode::query(out, b"begin");
    });
    old.receive(client, &pipeline);
    let answers = message(|out| {
        encode::parse_complete(out);
        encode::bind_complete(out);
        encode::command_complete(out, "SELECT 1");
        encode::command_complete(out, "BEGIN");
        encode::ready(out, Status::InTransaction);
    });
    old.receive(server, &answers);
    hand_over(&mut old, 1);
    let mut places = Places::new();
    assert!(carry(&mut old, &mut new, &mut places));
    let (client, server) = (places[&client], places[&server]);
    new.sent.clear();
    new.receive(client, &message(encode::sync));
    new.receive(server, &message(|out| encode::ready(out, Status::Idle)));
    assert_eq!(new.tags(server), "SX", "nobody else gets its transaction");
}
