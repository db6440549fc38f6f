//! DDL under a statement that another server prepares, on a whole shard in memory: what is asked of that server before anything is
//! bound, and by which types of parameters.

use crate::world::{World, message};
use shard::ConnId;
use wire::backend::Status;
use wire::encode;
use wire::frame::Frames;

const TEXT: &[u8] = b"select * from t where a = $1";

/// ParseComplete of Weir's or the client's own, and the description that follows it: parameters of these types, columns of these.
fn parsed(parameters: &[u32], columns: &[u32]) -> Vec<u8> {
    let columns: Vec<_> =
        columns.iter().map(|oid| encode::Column { name: "a", type_oid: *oid, type_bytes: 4 }).collect();
    message(|out| {
        encode::parse_complete(out);
        describe(out, parameters, &columns);
    })
}

fn describe(out: &mut Vec<u8>, parameters: &[u32], columns: &[encode::Column<'_>]) {
    encode::parameter_description(out, parameters);
    match columns {
        [] => encode::no_data(out),
        columns => encode::row_description(out, columns),
    }
}

fn parse_and_describe(name: &[u8]) -> Vec<u8> {
    message(|out| {
        encode::parse(out, name, TEXT, &[]);
        encode::describe(out, b'S', name);
        encode::sync(out);
    })
}

fn bind_execute(between: &[u8]) -> Vec<u8> {
    message(|out| {
        encode::bind_simple(out, b"", b"s", &[Some(b"1")]);
        out.extend_from_slice(between);
        encode::execute(out, b"", 0);
        encode::sync(out);
    })
}

fn bound(described: bool) -> Vec<u8> {
    message(|out| {
        encode::bind_complete(out);
        if described {
            encode::no_data(out);
        }
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
    })
}

fn ready() -> Vec<u8> {
    message(|out| encode::ready(out, Status::Idle))
}

/// A client that has `s`, with its description if it asked for it, and another server, which lacks it.
fn moved(describes: bool, columns: &[u32]) -> (World, ConnId, ConnId) {
    let mut world = World::new("default_pool_size = 2\nserver_check_query =");
    world.describer = None;
    let (client, other) = (world.client(&[]), world.client(&[]));
    let first = world.server();
    world.sent.clear();
    let request = if describes {
        parse_and_describe(b"s")
    } else {
        message(|out| {
            encode::parse(out, b"s", TEXT, &[]);
            encode::sync(out);
        })
    };
    world.receive(client, &request);
    assert_eq!(world.tags(first), if describes { "PDDS" } else { "PDS" });
    world.receive(first, &parsed(&[23], columns));
    if describes {
        let description = parsed(&[23], columns).split_off(5);
        world.receive(first, &description);
    }
    world.receive(first, &ready());
    assert_eq!(
        world.tags(client).replace("tT", "tn"),
        if describes { "1tnZ" } else { "1Z" },
        "it has what it asked for"
    );
    world.query(other, "begin");
    world.answer(first, Status::InTransaction);
    // The other client keeps the first server; the second one is opened for what comes next.
    world.query(client, "select 1");
    let second = world.server();
    world.answer(second, Status::Idle);
    world.sent.clear();
    (world, client, second)
}

/// The types of parameters of the first Parse among what was sent.
fn types_asked_for(bytes: &[u8]) -> Vec<u32> {
    let mut frames = Frames::new(1 << 20);
    frames.push(bytes);
    while let Ok(Some((tag, body))) = frames.pop() {
        if tag == b'P' {
            let name = body.iter().position(|byte| *byte == 0).unwrap();
            return wire::frontend::parse_rest(&body[name + 1..]).unwrap().1.collect();
        }
    }
    panic!("no Parse");
}

#[test]
fn nothing_is_bound_before_the_description_is_known_to_be_the_same() {
    let (mut world, client, server) = moved(true, &[23]);
    world.receive(client, &bind_execute(b""));
    assert_eq!(types_asked_for(&world.sent[&server]), [23]);
    assert_eq!(world.tags(server), "PDH");
    for byte in parsed(&[23], &[23]) {
        assert_eq!(world.tags(server).replace('H', ""), "");
        world.receive(server, &[byte]);
    }
    assert_eq!(world.tags(server), "BES");
    world.receive(server, &bound(false));
    assert_eq!(world.tags(client), "2CZ");
    world.receive(client, &bind_execute(b""));
    assert_eq!(world.tags(server), "BES", "asked for once");
}

#[test]
fn a_client_with_another_description_is_refused_each_time() {
    let (mut world, client, server) = moved(true, &[23]);
    for request in ["PDH", "CPDH"] {
        world.receive(client, &bind_execute(b""));
        assert_eq!(world.tags(server), request);
        let closed = if request == "CPDH" { message(encode::close_complete) } else { vec![] };
        world.receive(server, &[closed, parsed(&[23], &[23, 20])].concat());
        assert_eq!(world.tags(server), "CBES", "a Bind that fails in its place");
        let refusal = message(|out| {
            encode::close_complete(out);
            encode::error(out, "ERROR", "26000", "prepared statement \"PGBOUNCER_0\" does not exist");
            encode::ready(out, Status::Idle);
        });
        world.receive(server, &refusal);
        let told = world.text(client);
        assert!(told.contains("C0A000\0Mcached plan must not change result type"), "{told:?}");
    }
    // What was changed back is as it was.
    world.receive(client, &bind_execute(b""));
    world.receive(server, &[message(encode::close_complete), parsed(&[23], &[23])].concat());
    assert_eq!(world.tags(server), "CPDHBES");
}

#[test]
fn who_cannot_misread_waits_for_nothing() {
    let describe_portal = message(|out| encode::describe(out, b'P', b""));
    for (describes, columns, between) in
        [(false, &[23][..], &b""[..]), (true, &[], b""), (true, &[23], &describe_portal)]
    {
        let (mut world, client, server) = moved(describes, columns);
        world.receive(client, &bind_execute(between));
        assert_eq!(types_asked_for(&world.sent[&server]), [23]);
        let described = !between.is_empty();
        assert_eq!(world.tags(server), if described { "PDBDES" } else { "PDBES" });
        world.receive(server, &[parsed(&[23], columns), bound(described)].concat());
        assert_eq!(world.tags(client), if described { "2nCZ" } else { "2CZ" });
    }
}

#[test]
fn who_describes_something_else_may_misread() {
    let something_else = message(|out| encode::describe(out, b'P', b"another portal"));
    let (mut world, client, server) = moved(true, &[23]);
    world.receive(client, &bind_execute(&something_else));
    assert_eq!(world.tags(server), "PDH");
}

#[test]
fn every_cut_of_a_request_comes_to_the_same() {
    let describe_portal = message(|out| encode::describe(out, b'P', b""));
    for (between, tags) in [(&b""[..], "PDHBES"), (&describe_portal, "PDBDES")] {
        let request = bind_execute(between);
        for cut in 1..request.len() {
            let (mut world, client, server) = moved(true, &[23]);
            world.receive(client, &request[..cut]);
            world.receive(client, &request[cut..]);
            world.receive(server, &parsed(&[23], &[23]));
            assert_eq!(world.tags(server), tags, "cut at {cut}");
        }
    }
}

#[test]
fn a_failed_parse_is_reported_and_what_waited_for_it_is_skipped() {
    let (mut world, client, server) = moved(true, &[23]);
    world.receive(client, &bind_execute(b""));
    assert_eq!(world.tags(server), "PDH");
    world.receive(server, &message(|out| encode::error(out, "ERROR", "42P01", "no such table")));
    world.receive(server, &ready());
    assert_eq!(world.tags(client), "EZ");
    world.receive(client, &bind_execute(b""));
    assert_eq!(world.tags(server).trim_start_matches(['B', 'E', 'S']), "PDH", "it is asked again");
}

#[test]
fn a_describe_that_fails_leaves_a_statement_that_is_parsed_again() {
    let (mut world, client, server) = moved(false, &[23]);
    world.receive(client, &bind_execute(b""));
    assert_eq!(world.tags(server), "PDBES");
    let canceled = message(|out| {
        encode::parse_complete(out);
        encode::error(out, "ERROR", "57014", "canceling statement due to user request");
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &canceled);
    assert_eq!(world.tags(client), "EZ");
    world.receive(client, &bind_execute(b""));
    assert_eq!(world.tags(server), "CPDBES");
}

#[test]
fn a_description_that_is_none_ends_the_server() {
    for description in [&b"t\0\0\0\x05\x01"[..], b"t\0\0\0\x06\0\x00T\0\0\0\x06\0\x01"] {
        let (mut world, client, server) = moved(true, &[23]);
        world.receive(client, &bind_execute(b""));
        world.receive(server, &[&message(encode::parse_complete)[..], description].concat());
        assert!(world.closed.contains(&server));
    }
}

const DMY: &str = "ISO, DMY";

/// A client that has described `s`, then changed its settings to those under which another one has described it so, and a server that
/// lacks it.
fn under_other_settings(types: [&[u32]; 2], columns: [&[u32]; 2]) -> (World, ConnId, ConnId) {
    let mut world = World::new("default_pool_size = 2\nserver_check_query =");
    world.describer = None;
    let (client, other) = (world.client(&[]), world.client(&[("DateStyle", DMY)]));
    let first = world.server();
    for (who, (types, columns)) in [client, other].into_iter().zip(types.into_iter().zip(columns)) {
        world.receive(who, &parse_and_describe(b"s"));
        if who == other {
            set(&mut world, first, DMY);
        }
        let described = parsed(types, columns);
        world.receive(first, &[&described[..], &described[5..], &ready()].concat());
    }
    world.query(client, "set datestyle to dmy");
    set(&mut world, first, "ISO, MDY");
    set(&mut world, first, DMY);
    // The other client keeps the first server.
    world.query(other, "begin");
    world.answer(first, Status::InTransaction);
    world.query(client, "select 1");
    let second = world.server();
    set(&mut world, second, DMY);
    world.answer(second, Status::Idle);
    world.sent.clear();
    (world, client, second)
}

fn set(world: &mut World, server: ConnId, to: &str) {
    let reply = message(|out| {
        encode::parameter_status(out, b"DateStyle", to.as_bytes());
        encode::command_complete(out, "SET");
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &reply);
}

#[test]
fn under_other_settings_nothing_is_bound_before_the_description_is_known_either() {
    for others in [&[23][..], &[20]] {
        let (mut world, client, server) = under_other_settings([&[23], &[23]], [&[23], others]);
        world.receive(client, &bind_execute(b""));
        assert_eq!(world.tags(server), "PDH");
        world.receive(server, &parsed(&[23], &[20]));
        assert_eq!(world.tags(server), "CBES", "a Bind that fails in its place");
        let refusal = message(|out| {
            encode::close_complete(out);
            encode::error(out, "ERROR", "26000", "prepared statement \"PGBOUNCER_0\" does not exist");
            encode::ready(out, Status::Idle);
        });
        world.receive(server, &refusal);
        assert_eq!(world.tags(client), "EZ");
        // It is compared anew each time.
        world.receive(client, &bind_execute(b""));
        world.receive(server, &[message(encode::close_complete), parsed(&[23], &[23])].concat());
        assert_eq!(world.tags(server), "CPDHBES");
    }
}

#[test]
fn parameters_keep_their_types_under_other_settings() {
    for (others, asked) in [(&[23][..], "PGBOUNCER_2"), (&[20], "PGBOUNCER_3")] {
        let (mut world, client, server) = under_other_settings([&[23], others], [&[], &[]]);
        world.receive(client, &bind_execute(b""));
        assert_eq!(types_asked_for(&world.sent[&server]), [23]);
        assert!(world.text(server).contains(asked), "one statement only where the types are the same");
    }
}

#[test]
fn a_text_is_another_statement_in_another_database() {
    let mut world = World::new("default_pool_size = 1\nserver_check_query =");
    world.describer = None;
    let here = world.client(&[]);
    let there = world.accept();
    let mut packet = vec![];
    let all: Vec<(&[u8], &[u8])> = vec![(b"user", b"u"), (b"database", b"other")];
    encode::startup(&mut packet, wire::startup::Version::V3_0, &all);
    world.receive(there, &packet);
    let servers = [world.server(), world.server()];
    world.sent.clear();
    let mut names = vec![];
    for (client, columns) in [(here, &[23][..]), (there, &[23, 23])] {
        world.receive(client, &parse_and_describe(b"s"));
        let server = *servers.iter().find(|server| world.sent.contains_key(*server)).unwrap();
        let sent = world.text(server);
        names.push(sent.split('\0').find(|part| part.contains("PGBOUNCER_")).unwrap().to_owned());
        let description = parsed(&[23], columns).split_off(5);
        world.receive(server, &[parsed(&[23], columns), description, ready()].concat());
        world.sent.clear();
        world.receive(client, &bind_execute(b""));
        assert_eq!(world.tags(server), "BES");
        world.receive(server, &bound(false));
        world.sent.clear();
    }
    assert_ne!(names[0], names[1]);
}
