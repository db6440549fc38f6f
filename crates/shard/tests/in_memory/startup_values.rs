//! RESET and its kin: a client has again what its startup packet said, and every request of it runs with that.

use crate::world::{World, message};
use shard::{ConnId, Event};
use wire::backend::Status;
use wire::encode;

const MINE: &[(&str, &str)] = &[("application_name", "mine"), ("search_path", "own")];

/// What the client is told of its own value before ReadyForQuery.
const TOLD: &str = "S\0\0\0\u{1a}application_name\0mine\0Z\0\0\0\u{5}";

/// A server has done this, which left it with this application_name.
fn done(world: &mut World, server: ConnId, tag: &str, name: Option<&str>, status: Status) {
    let bytes = message(|out| {
        encode::command_complete(out, tag);
        if let Some(name) = name {
            encode::parameter_status(out, b"application_name", name.as_bytes());
        }
        encode::ready(out, status);
    });
    world.receive(server, &bytes);
}

/// A client with a startup packet of its own, linked to a server that is like it and has been asked this.
fn client_that_asks(world: &mut World, sql: &str) -> (ConnId, ConnId) {
    let client = world.client(MINE);
    let server = world.server();
    world.query(client, sql);
    done(world, server, "SET", Some("mine"), Status::Idle);
    assert!(world.text(server).contains(sql));
    world.sent.clear();
    (client, server)
}

/// The same in a transaction block.
fn client_in_a_block(world: &mut World) -> (ConnId, ConnId) {
    let (client, server) = client_that_asks(world, "begin");
    done(world, server, "BEGIN", None, Status::InTransaction);
    world.sent.clear();
    (client, server)
}

#[test]
fn reset_goes_back_to_what_the_startup_packet_said() {
    for (sql, tag, path) in [
        ("reset all", "RESET", true),
        ("RESET application_name;", "RESET", false),
        ("/* x */ set application_name to default", "SET", false),
        ("discard all", "DISCARD ALL", true),
        ("select 1; reset all", "RESET", true),
    ] {
        let mut world = World::new("default_pool_size = 1");
        let (client, server) = client_that_asks(&mut world, sql);
        done(&mut world, server, tag, Some(""), Status::Idle);
        let told = world.text(client);
        assert!(told.ends_with(&format!("{TOLD}I")), "{sql}: {told:?}");
        assert_eq!(told.matches("application_name").count(), 1, "{sql}");
        assert_eq!(world.tags(server), "", "not before it is needed");
        world.query(client, "select 2");
        let heard = world.text(server);
        assert!(heard.contains("SET application_name='mine';"), "{sql}: {heard:?}");
        assert_eq!(heard.contains("set_config('search_path','own',false)"), path, "{sql}: {heard:?}");
        done(&mut world, server, "SET", Some("mine"), Status::Idle);
        assert!(world.text(server).ends_with("select 2\0"), "{sql}");
    }
}

#[test]
fn a_server_that_is_not_read_in_time_goes_back_with_the_values() {
    let mut world = World::new("default_pool_size = 1");
    let (_, server) = client_that_asks(&mut world, "reset all");
    let reply = message(|out| {
        encode::command_complete(out, "RESET");
        encode::parameter_status(out, b"application_name", b"");
        encode::ready(out, Status::Idle);
    });
    world.event(Event::Received { conn: server, bytes: &reply, unsent: true });
    world.event(Event::SendBufferEmpty { conn: server });
    done(&mut world, server, "SET", Some("mine"), Status::Idle);
    world.sent.clear();
    let other = world.client(&[]);
    world.query(other, "select 2");
    assert_ne!(world.tags(server), "", "nobody needs it any more");
}

#[test]
fn a_value_that_the_client_had_set_to_the_servers_default_is_reset_as_well() {
    let mut world = World::new("default_pool_size = 1");
    let (client, server) = client_that_asks(&mut world, "set application_name = ''");
    done(&mut world, server, "SET", Some(""), Status::Idle);
    assert_eq!(world.tags(client), "CSZ");
    world.query(client, "reset datestyle");
    done(&mut world, server, "RESET", None, Status::Idle);
    assert_eq!(world.tags(client), "CZ", "that is another one");
    world.query(client, "reset application_name");
    done(&mut world, server, "RESET", None, Status::Idle);
    assert!(world.text(client).ends_with(&format!("{TOLD}I")));
}

#[test]
fn a_reset_that_fails_changes_nothing() {
    let mut world = World::new("default_pool_size = 1");
    let (client, server) = client_that_asks(&mut world, "set application_name = ''");
    done(&mut world, server, "SET", Some(""), Status::Idle);
    world.query(client, "reset all");
    let refused = message(|out| {
        encode::error(out, "ERROR", "57014", "canceled");
        encode::ready(out, Status::Idle);
    });
    world.sent.clear();
    world.receive(server, &refused);
    assert_eq!(world.tags(client), "EZ");
    world.query(client, "select 1");
    assert_eq!(world.tags(server), "Q");
}

#[test]
fn what_is_sent_behind_a_reset_waits_for_the_values() {
    let mut world = World::new("default_pool_size = 1");
    let (client, server) = client_that_asks(&mut world, "select 1");
    world.query(client, "reset all");
    world.query(client, "select 2");
    assert_eq!(world.tags(server), "Q");
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(server), "", "that was the answer to another request");
    done(&mut world, server, "RESET", Some(""), Status::Idle);
    let heard = world.text(server);
    assert!(heard.contains("SET application_name='mine';") && !heard.contains("select 2"), "{heard:?}");
    done(&mut world, server, "SET", Some("mine"), Status::Idle);
    assert!(world.text(server).ends_with("select 2\0"));
    world.sent.clear();
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(client), "CZ");
}

#[test]
fn what_is_sent_behind_a_reset_that_changes_nothing_goes_on() {
    let mut world = World::new("default_pool_size = 1");
    let (client, server) = client_that_asks(&mut world, "reset datestyle");
    world.query(client, "select 2");
    assert_eq!(world.tags(server), "");
    done(&mut world, server, "RESET", None, Status::Idle);
    assert!(world.text(server).ends_with("select 2\0"));
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(client), "CZCZ");
}

#[test]
fn by_the_extended_protocol_too() {
    for name in [&b""[..], b"name"] {
        for settings in ["default_pool_size = 1", "default_pool_size = 1\nmax_prepared_statements = 0"] {
            let mut world = World::new(settings);
            let (client, server) = client_that_asks(&mut world, "select 1");
            world.answer(server, Status::Idle);
            world.sent.clear();
            let segment = |sql: &str, name: &[u8]| {
                message(|out| {
                    encode::parse(out, name, sql.as_bytes(), &[]);
                    encode::bind_simple(out, b"", name, &[]);
                    encode::execute(out, b"", 0);
                    encode::sync(out);
                })
            };
            let both = [segment("reset application_name", name), segment("select 2", b"")].concat();
            world.receive(client, &both);
            assert_eq!(world.tags(server), "PBES", "{settings}");
            let bytes = message(|out| {
                encode::parse_complete(out);
                encode::bind_complete(out);
                encode::command_complete(out, "RESET");
                encode::parameter_status(out, b"application_name", b"");
                encode::ready(out, Status::Idle);
            });
            world.receive(server, &bytes);
            assert!(world.text(client).ends_with(&format!("{TOLD}I")), "{settings}");
            assert!(world.text(server).contains("SET application_name='mine';"), "{settings}");
            done(&mut world, server, "SET", Some("mine"), Status::Idle);
            assert_eq!(world.tags(server), "PBES", "{settings}");
        }
    }
}

#[test]
fn what_is_reset_in_a_block_or_a_session_is_set_before_the_next_request() {
    for mode in ["transaction", "session"] {
        let mut world = World::new(&format!("default_pool_size = 1\npool_mode = {mode}"));
        let (client, server) = client_in_a_block(&mut world);
        world.query(client, "reset application_name");
        world.sent.clear();
        done(&mut world, server, "RESET", Some(""), Status::InTransaction);
        assert!(world.text(client).ends_with(&format!("{TOLD}T")), "{mode}");
        assert!(world.text(server).ends_with("SET application_name='mine';\0"), "{mode}");
        world.query(client, "select 1");
        assert_eq!(world.tags(server), "", "not before the server is like its client");
        done(&mut world, server, "SET", Some("mine"), Status::InTransaction);
        assert!(world.text(server).ends_with("select 1\0"), "{mode}");
        world.sent.clear();
        world.answer(server, Status::InTransaction);
        assert_eq!((world.tags(client).as_str(), world.tags(server).as_str()), ("CZ", ""), "once");
        world.query(client, "rollback");
        done(&mut world, server, "ROLLBACK", Some("before"), Status::Idle);
        assert_eq!(world.tags(client), "CSZ", "{mode}");
        world.sent.clear();
        world.query(client, "select 1");
        assert_eq!(world.tags(server), "Q", "what was before the block is in force again");
    }
}

#[test]
fn set_local_to_default_is_for_the_transaction_alone() {
    let mut world = World::new("default_pool_size = 1");
    let (client, server) = client_in_a_block(&mut world);
    world.query(client, "set local application_name to default");
    world.sent.clear();
    done(&mut world, server, "SET", Some(""), Status::InTransaction);
    assert!(world.text(client).ends_with(&format!("{TOLD}T")));
    assert!(world.text(server).ends_with("SET LOCAL application_name='mine';\0"));
}

#[test]
fn a_client_that_leaves_while_its_values_are_set_again_takes_its_server_with_it() {
    for mode in ["transaction", "session"] {
        let mut world = World::new(&format!("default_pool_size = 1\npool_mode = {mode}"));
        let (client, server) = client_in_a_block(&mut world);
        world.query(client, "reset all");
        done(&mut world, server, "RESET", Some(""), Status::InTransaction);
        world.event(Event::HungUp { conn: client });
        assert!(world.closed.contains(&server), "{mode}");
    }
}

#[test]
fn half_a_notice_behind_the_answer_is_still_the_clients() {
    for status in [Status::InTransaction, Status::Idle] {
        let mut world = World::new("default_pool_size = 1");
        let (client, server) = client_in_a_block(&mut world);
        world.query(client, "reset all");
        let notice = message(|out| encode::notice(out, "NOTICE", "00000", "by the way"));
        let mut bytes = message(|out| {
            encode::command_complete(out, "RESET");
            encode::parameter_status(out, b"application_name", b"");
            encode::ready(out, status);
        });
        bytes.extend_from_slice(&notice[..9]);
        world.sent.clear();
        world.receive(server, &bytes);
        world.query(client, "select 1");
        assert_eq!(world.tags(server), "", "it waits for the values");
        world.receive(server, &notice[9..]);
        assert!(world.sent.remove(&client).unwrap().ends_with(&notice));
        assert!(world.text(server).contains("SET application_name='mine';"));
        for _ in 0..if status == Status::InTransaction { 2 } else { 1 } {
            done(&mut world, server, "SET", Some("mine"), status);
        }
        assert!(world.text(server).ends_with("select 1\0"));
        world.answer(server, Status::Idle);
        assert_eq!(world.tags(client), "CZ");
    }
}

/// Several statements in one query would end a block that messages without a Sync have begun.
#[test]
fn in_a_block_each_value_is_set_by_a_query_of_its_own() {
    let mut world = World::new("default_pool_size = 1");
    let (client, server) = client_in_a_block(&mut world);
    world.query(client, "reset all");
    world.sent.clear();
    done(&mut world, server, "RESET", Some(""), Status::InTransaction);
    world.query(client, "select 1");
    assert_eq!(world.tags(server), "QQ");
    done(&mut world, server, "SET", Some("mine"), Status::InTransaction);
    assert_eq!(world.tags(server), "", "the second one is not answered");
    done(&mut world, server, "SET", None, Status::InTransaction);
    assert_eq!(world.tags(server), "Q");
}

#[test]
fn nothing_changes_for_a_client_without_startup_parameters() {
    let mut world = World::new("default_pool_size = 1");
    let client = world.client(&[]);
    let server = world.server();
    world.query(client, "reset all");
    world.query(client, "select 1");
    assert_eq!(world.tags(server), "QQ");
    done(&mut world, server, "RESET", Some(""), Status::Idle);
    world.answer(server, Status::Idle);
    assert!(world.tags(client).ends_with("CSZCZ"));
    assert_eq!(world.tags(server), "");
}

#[test]
fn a_copy_behind_a_reset_in_one_segment_gets_its_data() {
    let mut world = World::new("default_pool_size = 1");
    let (client, server) = client_that_asks(&mut world, "select 1");
    world.answer(server, Status::Idle);
    let segment = message(|out| {
        for sql in ["reset all", "copy t from stdin"] {
            encode::parse(out, b"", sql.as_bytes(), &[]);
            encode::bind_simple(out, b"", b"", &[]);
            encode::execute(out, b"", 0);
        }
        encode::sync(out);
    });
    world.receive(client, &segment);
    assert!(world.tags(server).ends_with("PBEPBES"));
    let ready_for_data = b"G\0\0\0\x09\0\0\x01\0\0";
    let bytes = message(|out| {
        for tag in [Some("RESET"), None] {
            encode::parse_complete(out);
            encode::bind_complete(out);
            tag.iter().for_each(|tag| encode::command_complete(out, tag));
        }
        out.extend_from_slice(ready_for_data);
    });
    world.receive(server, &bytes);
    world.receive(client, b"d\0\0\0\x051c\0\0\0\x04S\0\0\0\x04");
    assert_eq!(world.tags(server), "dcS");
    world.sent.clear();
    done(&mut world, server, "COPY 1", Some(""), Status::Idle);
    assert!(world.text(client).ends_with(&format!("{TOLD}I")));
}

#[test]
fn what_another_client_parsed_without_a_name_is_not_this_ones_reset() {
    let mut world = World::new("default_pool_size = 1");
    let (first, server) = client_that_asks(&mut world, "select 1");
    world.answer(server, Status::Idle);
    let second = world.client(MINE);
    let segment = |sql: &str| {
        message(|out| {
            encode::parse(out, b"", sql.as_bytes(), &[]);
            encode::bind_simple(out, b"", b"", &[]);
            encode::execute(out, b"", 0);
            encode::sync(out);
        })
    };
    let answer = |tag: &str| {
        message(|out| {
            encode::parse_complete(out);
            encode::bind_complete(out);
            encode::command_complete(out, tag);
            encode::ready(out, Status::Idle);
        })
    };
    world.receive(first, &segment("reset datestyle"));
    world.receive(server, &answer("RESET"));
    world.sent.clear();
    world.receive(second, &[segment("select 1"), segment("select 2")].concat());
    assert_eq!(world.tags(server), "PBESPBES", "nothing waits");
}

/// What resets none of the parameters that are followed.
const OF_OTHERS: [&str; 6] = [
    "reset role",
    "/* x */ RESET \"statement_timeout\";",
    "reset my.own",
    "reset transaction isolation level",
    "set application_name = ''; reset role; select ';reset all'",
    "reset role; -- it's no more; reset all\nset application_name = ''",
];

#[test]
fn a_reset_of_another_parameter_leaves_what_is_set_in_the_block() {
    for sql in OF_OTHERS {
        let mut world = World::new("default_pool_size = 1");
        let (client, server) = client_in_a_block(&mut world);
        world.query(client, "set local search_path = 'two'");
        done(&mut world, server, "SET", None, Status::InTransaction);
        world.query(client, sql);
        world.query(client, "select 1");
        world.sent.clear();
        done(&mut world, server, "RESET", None, Status::InTransaction);
        assert!(world.text(server).ends_with("select 1\0"), "{sql}");
        assert_eq!(world.tags(client), "CZ", "{sql}");
        world.answer(server, Status::InTransaction);
        world.query(client, "reset all");
        done(&mut world, server, "RESET", None, Status::InTransaction);
        let heard = world.text(server);
        assert!(heard.contains("SET search_path='own';"), "{sql}: {heard:?}");
    }
}

/// Parse, Bind and Execute with this name.
fn executed(name: &[u8], sql: &str) -> Vec<u8> {
    message(|out| {
        encode::parse(out, name, sql.as_bytes(), &[]);
        encode::bind_simple(out, name, name, &[]);
        encode::execute(out, name, 0);
    })
}

fn answered(tag: &str) -> Vec<u8> {
    message(|out| {
        encode::parse_complete(out);
        encode::bind_complete(out);
        encode::command_complete(out, tag);
    })
}

#[test]
fn by_the_extended_protocol_it_does_so_too() {
    let (sync, ready) = (message(encode::sync), message(|out| encode::ready(out, Status::InTransaction)));
    for (name, all) in [(&b""[..], &b""[..]), (b"named", b"all")] {
        let mut world = World::new("default_pool_size = 1");
        let (client, server) = client_in_a_block(&mut world);
        let asked = [("set local search_path = 'two'", "SET"), ("reset statement_timeout", "RESET")];
        for (number, (sql, tag)) in asked.into_iter().enumerate() {
            let name = if name.is_empty() { vec![] } else { format!("s{number}").into_bytes() };
            world.receive(client, &[executed(&name, sql), sync.clone()].concat());
            assert_eq!(world.tags(server), "PBES");
            world.receive(server, &[answered(tag), ready.clone()].concat());
            assert_eq!(world.tags(server), "", "{sql}: nothing is set again");
        }
        // One that resets everything is not taken for it, in a segment with it or behind it.
        let both = [executed(name, "reset role"), executed(all, "reset all"), sync.clone()].concat();
        world.receive(client, &both);
        world.sent.clear();
        world.receive(server, &[answered("RESET"), answered("RESET"), ready.clone()].concat());
        let heard = world.text(server);
        assert!(heard.contains("SET search_path='own';"), "{heard:?}");
    }
}

#[test]
fn the_servers_default_stays_that_a_client_has_set_beside_such_a_reset() {
    for sql in &OF_OTHERS[4..] {
        let mut world = World::new("default_pool_size = 1");
        let (client, server) = client_that_asks(&mut world, sql);
        done(&mut world, server, "RESET", Some(""), Status::Idle);
        assert!(world.text(client).contains("application_name\0\0Z"), "{sql}: it is told what it has");
        world.query(client, "select 1");
        assert!(world.text(server).ends_with("\0\0\0\rselect 1\0"), "{sql}");
    }
}

#[test]
fn a_portal_that_resets_everything_is_not_taken_for_one_that_does_not() {
    let mut world = World::new("default_pool_size = 1");
    let (client, server) = client_in_a_block(&mut world);
    let bound = message(|out| {
        encode::parse(out, b"", b"reset all", &[]);
        encode::bind_simple(out, b"all", b"", &[]);
        encode::sync(out);
    });
    let ready = message(|out| encode::ready(out, Status::InTransaction));
    let sync = message(encode::sync);
    world.receive(client, &bound);
    world.receive(
        server,
        &[message(encode::parse_complete), message(encode::bind_complete), ready.clone()].concat(),
    );
    // What is executed first clears what is known of the portals.
    for _ in 0..2 {
        world.receive(client, &[executed(b"", "reset role"), sync.clone()].concat());
        world.receive(server, &[answered("RESET"), ready.clone()].concat());
        if world.text(server).contains("SET search_path") {
            done(&mut world, server, "SET", None, Status::InTransaction);
        }
    }
    world.sent.clear();
    let execute = message(|out| encode::execute(out, b"all", 0));
    world.receive(client, &[execute, sync].concat());
    let reset = message(|out| encode::command_complete(out, "RESET"));
    world.sent.clear();
    world.receive(server, &[reset, ready].concat());
    let heard = world.text(server);
    assert!(heard.contains("SET search_path='own';"), "{heard:?}");
}
