//! One text under different settings on a whole shard in memory: what PostgreSQL fixes at Parse is never another client's.

use crate::world::{World, message};
use shard::ConnId;
use wire::backend::Status;
use wire::encode;

const DMY: &[(&str, &str)] = &[("DateStyle", "ISO, DMY")];

/// A server, and clients with these parameters.
fn world<const N: usize>(size: u32, clients: [&[(&str, &str)]; N]) -> (World, [ConnId; N], ConnId) {
    let mut world = World::new(&format!("default_pool_size = {size}\nserver_check_query ="));
    let clients = clients.map(|parameters| world.client(parameters));
    let server = world.server();
    world.sent.clear();
    (world, clients, server)
}

fn parse_text(name: &[u8], text: &[u8]) -> Vec<u8> {
    message(|out| {
        encode::parse(out, name, text, &[]);
        encode::sync(out);
    })
}

fn parse(name: &[u8]) -> Vec<u8> {
    parse_text(name, b"select date '01/02/2003'")
}

fn bind(name: &[u8]) -> Vec<u8> {
    message(|out| {
        encode::bind_simple(out, b"", name, &[]);
        encode::execute(out, b"", 0);
        encode::sync(out);
    })
}

/// A statement without a name, Parse to Execute.
fn unnamed(sql: &[u8]) -> Vec<u8> {
    message(|out| {
        encode::parse(out, b"", sql, &[]);
        encode::bind_simple(out, b"", b"", &[]);
        encode::execute(out, b"", 0);
    })
}

const PARSED: fn(&mut Vec<u8>) = |out| encode::parse_complete(out);
const BOUND: fn(&mut Vec<u8>) = |out| {
    encode::bind_complete(out);
    encode::command_complete(out, "SELECT 1");
};
const IDLE: fn(&mut Vec<u8>) = |out| encode::ready(out, Status::Idle);
const OPEN: fn(&mut Vec<u8>) = |out| encode::ready(out, Status::InTransaction);
const SET_DMY: fn(&mut Vec<u8>) = |out| encode::parameter_status(out, b"DateStyle", b"ISO, DMY");
const SET_MDY: fn(&mut Vec<u8>) = |out| encode::parameter_status(out, b"DateStyle", b"ISO, MDY");

/// The server answers.
fn says(world: &mut World, server: ConnId, replies: &[fn(&mut Vec<u8>)]) {
    world.receive(server, &message(|out| replies.iter().for_each(|reply| reply(out))));
}

/// Tags and the shared names in what a server was sent.
fn sent(world: &mut World, server: ConnId) -> (String, Vec<String>) {
    let bytes = world.sent.get(&server).cloned().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let names = text.split("PGBOUNCER_").skip(1).map(|name| name.split('\0').next().unwrap_or("").to_owned());
    (world.tags(server), names.collect())
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_text_that_was_parsed_under_other_settings_is_another_statement() {
    let (mut world, [mdy, dmy], server) = world(1, [&[], DMY]);
    world.receive(mdy, &parse(b"s"));
    assert_eq!(sent(&mut world, server), ("PS".to_owned(), names(&["1"])));
    says(&mut world, server, &[PARSED, IDLE]);
    world.receive(dmy, &parse(b"s"));
    assert_eq!(world.tags(server), "Q", "the server is given the client's settings");
    says(&mut world, server, &[SET_DMY, |out| encode::command_complete(out, "SET"), IDLE]);
    assert_eq!(sent(&mut world, server), ("PS".to_owned(), names(&["2"])));
    says(&mut world, server, &[PARSED, IDLE]);
    let third = world.client(DMY);
    world.sent.clear();
    world.receive(third, &parse(b"t"));
    assert_eq!((world.tags(server), world.tags(third)), ("S".to_owned(), "1".to_owned()), "these are shared");
}

#[test]
fn a_client_that_has_changed_its_settings_keeps_what_its_server_has_and_parses_anew_elsewhere() {
    let (mut world, [one, other], a) = world(2, [&[], &[]]);
    world.receive(one, &parse(b"s"));
    says(&mut world, a, &[PARSED, IDLE]);
    world.query(one, "set datestyle = 'ISO, DMY'");
    says(&mut world, a, &[SET_DMY, |out| encode::command_complete(out, "SET"), IDLE]);
    world.sent.clear();
    world.receive(one, &bind(b"s"));
    assert_eq!(sent(&mut world, a), ("BES".to_owned(), names(&["1"])), "as it was parsed");
    says(&mut world, a, &[BOUND, IDLE]);
    // Its server is taken by another client, which has the settings of before.
    world.query(other, "begin");
    says(&mut world, a, &[SET_MDY, |out| encode::command_complete(out, "SET"), IDLE]);
    says(&mut world, a, &[|out| encode::command_complete(out, "BEGIN"), OPEN]);
    world.receive(one, &bind(b"s"));
    let b = world.server();
    world.sent.clear();
    says(&mut world, b, &[SET_DMY, |out| encode::command_complete(out, "SET"), IDLE]);
    assert_eq!(
        sent(&mut world, b),
        ("PBES".to_owned(), names(&["2", "2"])),
        "not under the number of the others"
    );
    says(&mut world, b, &[PARSED, BOUND, IDLE]);
    world.receive(other, &parse(b"t"));
    assert_eq!(
        world.tags(a),
        "CPS",
        "PostgreSQL may have analysed it anew when it was bound under other settings"
    );
}

#[test]
fn a_parse_behind_a_set_of_its_own_segment_is_for_its_client_alone() {
    let (mut world, [one, other], server) = world(1, [&[], &[]]);
    world.receive(one, &parse(b"s"));
    says(&mut world, server, &[PARSED, IDLE]);
    world.sent.clear();
    for sql in [
        &b"set datestyle = 'ISO, DMY'"[..],
        b"/* why */ SELECT pg_catalog.set_config('datestyle', 'ISO, DMY', true)",
    ] {
        let (client, name) = (if sql[0] == b's' { one } else { other }, sql[..1].to_vec());
        world.receive(client, &[unnamed(sql), parse(&[&b"own "[..], &name].concat())].concat());
        let (tags, found) = sent(&mut world, server);
        assert_eq!((&tags[..], found.len()), ("PBEPS", 1));
        assert_ne!(found, names(&["1"]), "a number of its own");
        says(&mut world, server, &[PARSED, BOUND, PARSED, IDLE]);
    }
    world.sent.clear();
    world.receive(other, &parse(b"t"));
    assert_eq!(
        (world.tags(server), world.tags(other)),
        ("S".to_owned(), "1".to_owned()),
        "the first is shared still"
    );
}

#[test]
fn a_parse_behind_a_set_of_an_earlier_segment_waits_for_what_that_says() {
    let (mut world, [one], server) = world(1, [&[]]);
    let set = [unnamed(b"set datestyle = 'ISO, DMY'"), message(encode::sync)].concat();
    world.receive(one, &[set, parse(b"s")].concat());
    assert_eq!(world.tags(server), "PBES");
    says(&mut world, server, &[PARSED, BOUND, SET_DMY, IDLE]);
    assert_eq!(sent(&mut world, server), ("PS".to_owned(), names(&["1"])));
    says(&mut world, server, &[PARSED, IDLE]);
    let dmy = world.client(DMY);
    world.sent.clear();
    world.receive(dmy, &parse(b"s"));
    assert_eq!(world.tags(dmy), "1", "parsed as a client with these settings would have it");
}

#[test]
fn a_change_that_a_function_hides_is_seen_by_what_the_server_reports() {
    let (mut world, [one, other], server) = world(1, [&[], &[]]);
    world.receive(one, &parse(b"s"));
    says(&mut world, server, &[PARSED, IDLE]);
    let calls = message(|out| {
        encode::parse(out, b"f", b"select log_in()", &[]);
        encode::bind_simple(out, b"", b"f", &[]);
        encode::execute(out, b"", 0);
    });
    world.receive(other, &[calls, parse(b"s")].concat());
    assert_eq!(world.tags(server), "PSPBECPS", "it is not answered by the one that is there");
    says(&mut world, server, &[PARSED, BOUND, |out| encode::close_complete(out), PARSED, SET_DMY, IDLE]);
    assert_eq!(world.tags(other), "12C1SZ");
    world.query(one, "select 1");
    says(&mut world, server, &[SET_MDY, |out| encode::command_complete(out, "SET"), IDLE]);
    world.answer(server, Status::Idle);
    world.sent.clear();
    world.receive(one, &bind(b"s"));
    assert_eq!(world.tags(server), "CPBES", "what the server has is not what this client has parsed");
}

#[test]
fn what_is_parsed_behind_a_text_that_was_not_read_whole_is_its_clients_alone() {
    let (mut world, [one, other], server) = world(1, [&[], &[]]);
    let hidden = unnamed(b"with a as (select set_config('datestyle', 'ISO, DMY', true)) select * from a");
    world.receive(one, &[hidden, parse(b"s")].concat());
    assert_eq!(sent(&mut world, server), ("PBEPS".to_owned(), names(&["1"])));
    says(&mut world, server, &[PARSED, BOUND, PARSED, IDLE]);
    world.receive(other, &parse(b"s"));
    assert_eq!(sent(&mut world, server), ("PS".to_owned(), names(&["2"])), "nothing was reported of it");
}

#[test]
fn a_parse_behind_a_command_that_runs_other_sql_is_for_its_client_alone() {
    for sql in [
        &b"fetch c"[..],
        b"/* why */ MOVE 1 in c",
        b"execute e",
        b"explain analyze execute e",
        b"select U&\"set\\005fconfig\"('datestyle', 'ISO, DMY', true)",
        b"update pg_settings set setting = 'ISO, DMY' where name = 'DateStyle'",
    ] {
        let (mut world, [one, other], server) = world(1, [&[], &[]]);
        let runs = message(|out| {
            encode::parse(out, b"r", sql, &[]);
            encode::bind_simple(out, b"", b"r", &[]);
            encode::execute(out, b"", 0);
        });
        world.receive(one, &[runs, parse(b"s")].concat());
        assert_eq!(sent(&mut world, server).0, "PBEPS", "{}", String::from_utf8_lossy(sql));
        says(&mut world, server, &[PARSED, BOUND, PARSED, IDLE]);
        world.sent.clear();
        world.receive(other, &parse(b"s"));
        assert_eq!(world.tags(server), "PS", "{}", String::from_utf8_lossy(sql));
    }
}

#[test]
fn what_stands_for_the_time_of_its_parse_is_parsed_each_time() {
    let (mut world, [one, other], server) = world(1, [&[], &[]]);
    for (client, number) in [(one, "1"), (other, "2")] {
        world.receive(client, &parse_text(b"s", b"select 'now'::timestamptz"));
        assert_eq!(sent(&mut world, server), ("PS".to_owned(), names(&[number])));
        says(&mut world, server, &[PARSED, IDLE]);
    }
}
