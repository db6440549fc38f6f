//! A prepared statement whose plan DDL has spoilt, on a whole shard in memory: what is said again, what passes, and in
//! which order everything happens.

use crate::world::{World, message};
use shard::ConnId;
use wire::backend::Status;
use wire::encode;

/// A client that has prepared `s` on the only server; nothing is owed.
fn prepared(settings: &str) -> (World, ConnId, ConnId) {
    prepared_with(settings, vec![])
}

/// The same with a statement that returns these columns.
fn prepared_with(settings: &str, columns: Vec<&'static str>) -> (World, ConnId, ConnId) {
    let mut world = World::new(&format!("default_pool_size = 1\nserver_check_query =\n{settings}"));
    world.describer.as_mut().unwrap().columns = columns;
    let client = world.client(&[]);
    let server = world.server();
    world.receive(
        client,
        &message(|out| {
            encode::parse(out, b"s", b"select * from t", &[]);
            encode::sync(out);
        }),
    );
    world.receive(
        server,
        &message(|out| {
            encode::parse_complete(out);
            encode::ready(out, Status::Idle);
        }),
    );
    world.sent.clear();
    (world, client, server)
}

fn bind_execute(value: &[u8]) -> Vec<u8> {
    message(|out| {
        encode::bind_simple(out, b"", b"s", &[Some(value)]);
        encode::execute(out, b"", 0);
        encode::sync(out);
    })
}

fn describing() -> Vec<u8> {
    message(|out| {
        encode::bind_simple(out, b"", b"s", &[]);
        encode::describe(out, b'P', b"");
        encode::execute(out, b"", 0);
        encode::sync(out);
    })
}

fn refused(code: &str, status: Option<Status>) -> Vec<u8> {
    message(|out| {
        encode::error(out, "ERROR", code, "cached plan must not change result type");
        if let Some(status) = status {
            encode::ready(out, status);
        }
    })
}

/// CloseComplete and ParseComplete of Weir's own, then an answer to Bind and Execute.
fn answered_again() -> Vec<u8> {
    message(|out| {
        encode::close_complete(out);
        encode::parse_complete(out);
        out.extend_from_slice(&answered());
    })
}

fn answered() -> Vec<u8> {
    message(|out| {
        encode::bind_complete(out);
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
    })
}

#[test]
fn the_client_sees_nothing_of_a_spoilt_plan() {
    for code in ["0A000", "26000"] {
        let (mut world, client, server) = prepared("");
        world.receive(client, &bind_execute(b"1"));
        assert_eq!(world.tags(server), "BES");
        world.receive(server, &refused(code, Some(Status::Idle)));
        assert_eq!(world.tags(client), "", "{code}");
        assert_eq!(world.tags(server), "CPBES", "{code}");
        world.receive(server, &answered_again());
        assert_eq!(world.tags(client), "2CZ", "{code}");
        world.receive(client, &bind_execute(b"2"));
        assert_eq!(world.tags(server), "BES", "it is in order again");
    }
}

#[test]
fn every_cut_of_request_and_refusal_comes_to_the_same() {
    let request = bind_execute(b"1");
    for cut in 1..request.len() {
        let (mut world, client, server) = prepared("");
        world.receive(client, &request[..cut]);
        world.receive(client, &request[cut..]);
        assert_eq!(world.tags(server), "BES", "cut at {cut}");
        for byte in refused("0A000", Some(Status::Idle)).chunks(1) {
            world.receive(server, byte);
        }
        assert_eq!(world.tags(server), "CPBES", "cut at {cut}");
        for byte in answered_again().chunks(1) {
            world.receive(server, byte);
        }
        assert_eq!(world.tags(client), "2CZ", "cut at {cut}");
    }
}

#[test]
fn a_refusal_that_comes_before_the_sync_is_mended_with_one_of_our_own() {
    let request = bind_execute(b"1");
    let sync_bytes = 5;
    let execute_bytes = 10;
    for sent in [request.len() - sync_bytes, request.len() - sync_bytes - execute_bytes] {
        let (mut world, client, server) = prepared("");
        world.receive(client, &request[..sent]);
        world.receive(server, &refused("0A000", None));
        assert_eq!(world.tags(client), "");
        world.receive(client, &request[sent..]);
        let tags = world.tags(server);
        assert_eq!(&tags[tags.find('S').unwrap()..], "SCPBES");
        world.receive(server, &message(|out| encode::ready(out, Status::Idle)));
        world.receive(server, &answered_again());
        assert_eq!(world.tags(client), "2CZ");
    }
}

#[test]
fn an_error_after_an_execute_of_the_same_segment_passes_and_heals() {
    let (mut world, client, server) = prepared("");
    let request = message(|out| {
        encode::parse(out, b"", b"insert", &[]);
        encode::bind_simple(out, b"", b"", &[]);
        encode::execute(out, b"", 0);
        out.extend_from_slice(&bind_execute(b"1"));
    });
    world.receive(client, &request);
    world.receive(
        server,
        &message(|out| {
            encode::parse_complete(out);
            encode::bind_complete(out);
            encode::command_complete(out, "INSERT 0 1");
            out.extend_from_slice(&refused("0A000", Some(Status::Idle)));
        }),
    );
    assert_eq!(world.tags(client), "12CEZ");
    world.sent.clear();
    world.receive(client, &bind_execute(b"1"));
    assert_eq!(world.tags(server), "CPBES", "prepared anew for its next use");
    world.receive(server, &answered_again());
    assert_eq!(world.tags(client), "2CZ");
}

#[test]
fn an_error_inside_a_transaction_block_passes_and_heals() {
    let (mut world, client, server) = prepared("");
    world.query(client, "begin");
    world.answer(server, Status::InTransaction);
    world.sent.clear();
    world.receive(client, &bind_execute(b"1"));
    world.receive(server, &refused("0A000", Some(Status::Failed)));
    assert_eq!(world.tags(client), "EZ");
    world.query(client, "rollback");
    world.answer(server, Status::Idle);
    world.sent.clear();
    world.receive(client, &bind_execute(b"1"));
    assert_eq!(world.tags(server), "CPBES");
}

#[test]
fn a_request_over_the_bound_is_not_kept() {
    for (bytes, again, piece) in [(60_000, true, 1_000), (70_000, false, 1_000), (70_000, false, 100_000)] {
        let (mut world, client, server) = prepared("");
        for piece in bind_execute(&vec![b'x'; bytes]).chunks(piece) {
            world.receive(client, piece);
        }
        assert_eq!(world.tags(server), "BES");
        world.receive(server, &refused("0A000", Some(Status::Idle)));
        assert_eq!(world.tags(client), if again { "" } else { "EZ" }, "{bytes} bytes");
        assert_eq!(world.tags(server), if again { "CPBES" } else { "" });
    }
}

#[test]
fn what_fails_again_passes() {
    let (mut world, client, server) = prepared("");
    world.receive(client, &bind_execute(b"1"));
    world.receive(server, &refused("0A000", Some(Status::Idle)));
    world.sent.clear();
    world.receive(
        server,
        &message(|out| {
            encode::close_complete(out);
            encode::parse_complete(out);
            out.extend_from_slice(&refused("0A000", Some(Status::Idle)));
        }),
    );
    assert_eq!((world.tags(client), world.tags(server)), ("EZ".to_owned(), String::new()));
}

#[test]
fn a_dropped_table_is_reported_by_the_replayed_parse() {
    let (mut world, client, server) = prepared("");
    world.receive(client, &bind_execute(b"1"));
    world.receive(server, &refused("0A000", Some(Status::Idle)));
    world.sent.clear();
    world.receive(
        server,
        &message(|out| {
            encode::close_complete(out);
            encode::error(out, "ERROR", "42P01", "relation \"t\" does not exist");
            encode::ready(out, Status::Idle);
        }),
    );
    assert_eq!(world.tags(client), "EZ");
    world.receive(client, &bind_execute(b"1"));
    assert_eq!(world.tags(server), "PBES", "it is not there any more");
}

#[test]
fn what_comes_behind_is_not_done_before() {
    let (mut world, client, server) = prepared("");
    let pipeline = [bind_execute(b"1"), bind_execute(b"2"), message(|out| encode::query(out, b"select 3"))];
    world.receive(client, &pipeline.concat());
    assert_eq!(world.tags(server), "BES", "the rest is kept");
    assert!(world.paused.contains(&client));
    world.receive(server, &refused("0A000", Some(Status::Idle)));
    assert_eq!(world.tags(server), "CPBESBESQ", "all of it, in its order");
    assert!(!world.paused.contains(&client));
    world.receive(server, &answered_again());
    world.receive(server, &answered());
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(client), "2CZ2CZCZ");
}

#[test]
fn a_pipeline_waits_once_for_each_statement() {
    let (mut world, client, server) = prepared("");
    world.receive(client, &[bind_execute(b"1"), bind_execute(b"2"), bind_execute(b"3")].concat());
    assert_eq!(world.tags(server), "BES");
    world.receive(server, &answered());
    assert_eq!(world.tags(server), "BESBES", "the plan held a moment ago");
    assert_eq!(world.tags(client), "2CZ");
    world.receive(server, &[answered(), answered()].concat());
    assert_eq!(world.tags(client), "2CZ2CZ");
}

#[test]
fn an_error_with_more_behind_it_passes() {
    let (mut world, client, server) = prepared("");
    world.receive(client, &[bind_execute(b"1"), bind_execute(b"2"), bind_execute(b"3")].concat());
    world.receive(server, &answered());
    world.sent.clear();
    // The second has the third behind it: said again it would be done after it.
    world.receive(server, &refused("0A000", Some(Status::Idle)));
    assert_eq!((world.tags(client), world.tags(server)), ("EZ".to_owned(), String::new()));
    // The third is the last: it is mended.
    world.receive(server, &refused("0A000", Some(Status::Idle)));
    assert_eq!((world.tags(client), world.tags(server)), (String::new(), "CPBES".to_owned()));
    world.receive(server, &answered_again());
    assert_eq!(world.tags(client), "2CZ");
}

#[test]
fn rows_are_never_read_by_an_old_description() {
    let (mut world, client, server) = prepared("");
    // It asks for a description with each request: it will have the new one.
    world.receive(client, &describing());
    world.receive(server, &refused("0A000", Some(Status::Idle)));
    assert_eq!(world.tags(server), "BDESCPBDES");
    world.receive(
        server,
        &message(|out| {
            encode::close_complete(out);
            encode::parse_complete(out);
            encode::bind_complete(out);
            encode::no_data(out);
            encode::command_complete(out, "SELECT 1");
            encode::ready(out, Status::Idle);
        }),
    );
    assert_eq!(world.tags(client), "2nCZ");
    // It has one from before, and does not ask: it must hear that this one is old.
    world.receive(client, &bind_execute(b"1"));
    world.receive(server, &refused("0A000", Some(Status::Idle)));
    assert_eq!(world.tags(client), "EZ");
    // A statement that is only gone has the same result as before.
    let (mut world, client, server) = prepared("");
    world.receive(client, &describing());
    world.receive(
        server,
        &message(|out| {
            encode::bind_complete(out);
            encode::no_data(out);
            encode::command_complete(out, "SELECT 1");
            encode::ready(out, Status::Idle);
        }),
    );
    world.sent.clear();
    world.receive(client, &bind_execute(b"1"));
    world.receive(server, &refused("26000", Some(Status::Idle)));
    assert_eq!((world.tags(client), world.tags(server)), (String::new(), "BESCPBES".to_owned()));
}

#[test]
fn a_description_of_a_spoilt_statement_is_asked_for_again() {
    let (mut world, client, server) = prepared("");
    world.receive(
        client,
        &message(|out| {
            encode::describe(out, b'S', b"s");
            encode::sync(out);
        }),
    );
    let refusal =
        [message(|out| encode::parameter_description(out, &[])), refused("0A000", Some(Status::Idle))];
    for byte in refusal.concat().chunks(1) {
        world.receive(server, byte);
    }
    assert_eq!(world.tags(client), "", "not even of its parameters");
    assert_eq!(world.tags(server), "DSCPDS");
    world.receive(
        server,
        &message(|out| {
            encode::close_complete(out);
            encode::parse_complete(out);
            encode::parameter_description(out, &[]);
            encode::no_data(out);
            encode::ready(out, Status::Idle);
        }),
    );
    assert_eq!(world.tags(client), "tnZ");
}

#[test]
fn the_client_may_leave_while_its_requests_are_kept() {
    let (mut world, client, server) = prepared("");
    world.receive(client, &[bind_execute(b"1"), message(encode::terminate)].concat());
    assert_eq!(world.tags(server), "BES");
    world.receive(server, &answered());
    assert!(world.closed.contains(&client));
    assert!(!world.closed.contains(&server));
}

/// Two clients that share a statement on one server; both have its description.
fn two_that_described() -> (World, ConnId, ConnId, ConnId) {
    let (mut world, client, server) = prepared_with("", vec!["a"]);
    let other = world.client(&[]);
    world.receive(
        other,
        &message(|out| {
            encode::parse(out, b"s", b"select * from t", &[]);
            encode::sync(out);
        }),
    );
    world.receive(server, &message(|out| encode::ready(out, Status::Idle)));
    for one in [client, other] {
        world.receive(one, &describing());
        world.receive(
            server,
            &message(|out| {
                encode::bind_complete(out);
                encode::no_data(out);
                encode::command_complete(out, "SELECT 1");
                encode::ready(out, Status::Idle);
            }),
        );
    }
    world.sent.clear();
    (world, client, other, server)
}

#[test]
fn no_client_gets_rows_by_an_old_description_because_another_was_replayed() {
    let (mut world, client, other, server) = two_that_described();
    world.describer.as_mut().unwrap().columns = vec!["a", "b"];
    world.receive(client, &describing());
    world.receive(server, &refused("0A000", Some(Status::Idle)));
    assert_eq!(world.tags(server), "BDESCPBDES");
    world.receive(
        server,
        &message(|out| {
            encode::close_complete(out);
            encode::parse_complete(out);
            encode::bind_complete(out);
            encode::no_data(out);
            encode::command_complete(out, "SELECT 1");
            encode::ready(out, Status::Idle);
        }),
    );
    assert_eq!(world.tags(client), "2nCZ");
    // The other does not ask again: PostgreSQL would have told it. Its driver prepares anew.
    world.receive(other, &bind_execute(b"1"));
    assert_eq!(world.tags(server), "CPH", "whether the result is as it was has to be known first");
    world.receive(
        server,
        &message(|out| {
            encode::close_complete(out);
            encode::parse_complete(out);
        }),
    );
    assert_eq!(world.tags(server), "CBES");
    world.receive(server, &message(encode::close_complete));
    world.receive(server, &refused("26000", Some(Status::Idle)));
    assert!(world.text(other).contains("C0A000\0Mcached plan must not change result type"));
    let anew = message(|out| {
        encode::close(out, b'S', b"s");
        encode::parse(out, b"s", b"select * from t", &[]);
        encode::describe(out, b'S', b"s");
        encode::sync(out);
    });
    world.receive(other, &anew);
    assert_eq!(world.tags(server), "PDS", "under another name");
    world.receive(
        server,
        &message(|out| {
            encode::parse_complete(out);
            encode::parameter_description(out, &[]);
            encode::no_data(out);
            encode::ready(out, Status::Idle);
        }),
    );
    world.sent.clear();
    world.receive(other, &bind_execute(b"1"));
    world.receive(server, &answered());
    assert_eq!(world.tags(other), "2CZ");
}

#[test]
fn who_asks_again_is_not_told_and_may_ask_in_pieces() {
    let request = describing();
    for cut in 1..request.len() {
        let (mut world, client, other, server) = two_that_described();
        world.receive(client, &bind_execute(b"1"));
        world.receive(server, &refused("0A000", Some(Status::Idle)));
        assert_eq!(world.tags(client), "EZ");
        world.sent.clear();
        world.receive(other, &request[..cut]);
        world.receive(other, &request[cut..]);
        assert_eq!(world.tags(server), "CPBDES", "cut at {cut}: the old one is not even tried");
    }
}
