//! COPY from the client with Syncs among its data: PostgreSQL ignores them while it copies (55.2.6) and answers those that
//! it reads behind the data it has refused. How many that are cannot be known from what was sent.

use crate::world::{World, message};
use shard::{ConnId, Event};
use wire::backend::Status;
use wire::encode;

/// A COPY whose data is refused, a Sync, the end of the data and another Sync; the COPY by either protocol.
fn copy_with_syncs(extended: bool) -> Vec<u8> {
    message(|out| {
        if extended {
            encode::parse(out, b"", b"copy t from stdin", &[]);
            encode::bind_simple(out, b"", b"", &[]);
            encode::execute(out, b"", 0);
        } else {
            encode::query(out, b"copy t from stdin");
        }
        encode::copy_data(out, b"not a number\n");
        encode::sync(out);
        encode::copy_done(out);
        encode::sync(out);
    })
}

/// What PostgreSQL answers to the COPY alone: it has begun and failed. A simple query ends with it.
fn refusal(extended: bool) -> Vec<u8> {
    message(|out| {
        if extended {
            encode::parse_complete(out);
            encode::bind_complete(out);
        }
        encode::copy_in(out, 0, 1);
        encode::error(out, "ERROR", "22P02", "invalid input syntax for type integer");
        if !extended {
            encode::ready(out, Status::Idle);
        }
    })
}

fn ready() -> Vec<u8> {
    message(|out| encode::ready(out, Status::Idle))
}

/// What closing a portal that does not exist, and its Sync, are answered with.
fn nothing() -> Vec<u8> {
    message(|out| {
        encode::close_complete(out);
        encode::ready(out, Status::Idle);
    })
}

/// A pool of one server, which runs the COPY of the first of two clients and what it has sent behind.
fn world(asked: &[u8]) -> (World, ConnId, ConnId, ConnId) {
    let mut world = World::new("default_pool_size = 1");
    let (first, second) = (world.client(&[]), world.client(&[]));
    let server = world.server();
    world.receive(first, asked);
    world.sent.clear();
    (world, first, second, server)
}

#[test]
fn a_query_behind_syncs_of_a_failed_copy_gets_its_own_answer_however_many_were_answered() {
    for (extended, answered) in [(false, 1), (false, 2), (true, 1), (true, 2)] {
        let mut asked = copy_with_syncs(extended);
        asked.extend(message(|out| encode::query(out, b"select 'of the first'")));
        let (mut world, first, second, server) = world(&asked);
        world.receive(server, &refusal(extended));
        for _ in 0..answered {
            world.receive(server, &ready());
        }
        world.query(second, "select 'of the second'");
        assert_eq!(world.tags(server), "", "the first client's query is not answered yet");
        world.sent.clear();
        world.answer(server, Status::Idle);
        assert_eq!((&*world.tags(first), &*world.tags(second)), ("CZ", ""), "{extended} {answered}");
        assert!(world.text(server).contains("of the second"), "the server is free");
        world.answer(server, Status::Idle);
        assert_eq!(world.tags(second), "CZ");
        assert!(world.closed.is_empty());
    }
}

#[test]
fn where_nothing_is_asked_behind_them_a_close_of_nothing_tells_how_many_were_answered() {
    for (extended, answered) in [(false, 1), (false, 2), (true, 1), (true, 2)] {
        let (mut world, first, second, server) = world(&copy_with_syncs(extended));
        world.receive(server, &refusal(extended));
        world.receive(server, &ready());
        // A query would end the client's statement without a name.
        assert_eq!(world.tags(server), "CS", "{extended} {answered}");
        world.sent.clear();
        for _ in 1..answered {
            world.receive(server, &ready());
        }
        assert_eq!(world.tags(first), "Z".repeat(answered - 1), "the client gets what PostgreSQL says");
        world.query(second, "select 2");
        assert!(!world.text(server).contains("select 2"), "the server is not free before that is known");
        world.receive(server, &nothing());
        assert_eq!(world.tags(first), "", "the client is told nothing of that Close");
        assert!(world.text(server).contains("select 2"), "the server is free");
        world.answer(server, Status::Idle);
        assert_eq!(world.tags(second), "CZ");
        assert!(world.closed.is_empty());
    }
}

#[test]
fn what_is_skipped_only_if_a_sync_was_ignored_ends_client_and_server() {
    let asked = message(|out| {
        encode::parse(out, b"", b"copy t from stdin", &[]);
        encode::bind_simple(out, b"", b"", &[]);
        encode::execute(out, b"", 0);
        encode::copy_data(out, b"not a number\n");
        encode::sync(out);
        encode::copy_done(out);
        encode::parse(out, b"", b"select 1/0", &[]);
        encode::sync(out);
        encode::query(out, b"select 'of the first'");
    });
    let (mut world, first, second, server) = world(&asked);
    world.query(second, "select 'of the second'");
    world.receive(server, &refusal(true));
    assert!(world.closed.contains(&first) && world.closed.contains(&server), "{:?}", world.closed);
    assert_eq!(world.tags(second), "");
}

/// The Sync was sent before the copy had begun, and ends nothing: the query belongs to the pipeline of the Execute, whose transaction PostgreSQL 18 keeps open
/// behind it. A Sync right behind that says idle all the same.
#[test]
fn a_query_behind_a_copy_whose_sync_was_ignored_is_one_in_its_pipeline() {
    let copy = message(|out| {
        encode::parse(out, b"", b"copy t from stdin", &[]);
        encode::bind_simple(out, b"", b"", &[]);
        encode::execute(out, b"", 0);
        encode::sync(out);
    });
    let (mut world, first, second, server) = world(&copy);
    let begun = message(|out| {
        encode::parse_complete(out);
        encode::bind_complete(out);
        encode::copy_in(out, 0, 1);
    });
    world.receive(server, &begun);
    let query = message(|out| {
        encode::copy_done(out);
        encode::query(out, b"insert into t values (1)");
        encode::sync(out);
    });
    world.receive(first, &query);
    let answers = message(|out| {
        encode::command_complete(out, "COPY 0");
        encode::command_complete(out, "INSERT 0 1");
        encode::ready(out, Status::InTransaction);
        encode::ready(out, Status::Idle);
    });
    world.sent.clear();
    world.receive(server, &answers);
    assert_eq!(world.tags(server), "X", "it would refuse the next client's command");
    assert!(!world.closed.contains(&first));
    world.query(second, "select 1");
    assert_eq!(world.tags(server), "");
}

#[test]
fn a_request_that_a_copy_refuses_costs_the_server_when_it_is_free() {
    let (mut world, first, _, server) = world(&message(|out| encode::query(out, b"copy t from stdin")));
    world.receive(server, &message(|out| encode::copy_in(out, 0, 1)));
    world.receive(first, &message(|out| encode::copy_data(out, b"not a number\n")));
    world.query(first, "select 1");
    let failed = message(|out| {
        encode::error(out, "ERROR", "22P02", "invalid input syntax for type integer");
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &failed);
    world.sent.clear();
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(first), "CZ");
    assert_eq!(world.tags(server), "X");
    assert!(!world.closed.contains(&first));
}

#[test]
fn a_statement_that_is_parsed_behind_a_copy_whose_failure_is_not_known_yet_can_be_bound() {
    let (mut world, first, _, server) = world(&message(|out| encode::query(out, b"copy t from stdin")));
    world.receive(server, &message(|out| encode::copy_in(out, 0, 1)));
    let asked = message(|out| {
        encode::copy_data(out, b"not a number\n");
        encode::sync(out);
        encode::parse(out, b"", b"select 1", &[]);
    });
    world.receive(first, &asked);
    let failed = message(|out| {
        encode::error(out, "ERROR", "22P02", "invalid input syntax for type integer");
        encode::ready(out, Status::Idle);
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &failed);
    world.sent.clear();
    let bound = message(|out| {
        encode::bind_simple(out, b"", b"", &[]);
        encode::execute(out, b"", 0);
        encode::sync(out);
    });
    world.receive(first, &bound);
    assert_eq!(world.tags(server), "BES");
}

#[test]
fn a_close_behind_syncs_of_a_failed_copy_is_answered_in_its_place() {
    for ignored in [0, 1] {
        let (mut world, first, _, server) = world(&message(|out| {
            encode::parse(out, b"s", b"select 1", &[]);
            encode::sync(out);
        }));
        let prepared = message(|out| {
            encode::parse_complete(out);
            encode::ready(out, Status::Idle);
        });
        world.receive(server, &prepared);
        let mut asked = copy_with_syncs(true);
        asked.extend(message(|out| {
            encode::close(out, b'S', b"s");
            encode::sync(out);
        }));
        world.receive(first, &asked);
        world.sent.clear();
        // The Sync among the data may have been ignored; the one before the Close was not.
        let readies = [ready(), ready()][ignored..].concat();
        world.receive(server, &[refusal(true), readies, nothing()].concat());
        let expected = format!("12GE{}3Z", "Z".repeat(2 - ignored));
        assert_eq!(world.tags(first), expected, "{ignored} ignored");
        assert!(world.closed.is_empty());
    }
}

/// PostgreSQL waits for the data and the end of a COPY that it reads, and ends the connection if anything else comes. A message that
/// Weir answered itself would leave client and server waiting for each other.
#[test]
fn what_is_sent_behind_the_execute_of_a_copy_is_the_servers_to_refuse() {
    let named = message(|out| {
        encode::parse(out, b"s", b"select 1", &[]);
        encode::sync(out);
    });
    let prepared = message(|out| {
        encode::parse_complete(out);
        encode::ready(out, Status::Idle);
    });
    for name in [&b""[..], b"the copy"] {
        for closes in [false, true] {
            let (mut world, first, _, server) = world(&named);
            world.receive(server, &prepared);
            world.sent.clear();
            world.receive(
                first,
                &message(|out| {
                    encode::parse(out, name, b"copy t from stdin", &[]);
                    encode::bind_simple(out, b"", name, &[]);
                    encode::execute(out, b"", 0);
                    encode::sync(out);
                }),
            );
            world.sent.clear();
            world.receive(
                first,
                &message(|out| {
                    match closes {
                        true => encode::close(out, b'S', b"s"),
                        false => encode::parse(out, b"again", b"select 1", &[]),
                    }
                    encode::sync(out);
                }),
            );
            assert_eq!(world.tags(first), "", "nothing is answered here");
            let sent = world.tags(server);
            assert!(sent.starts_with('C') && sent.ends_with('S'), "{closes}: {sent}");
            world.receive(
                server,
                &message(|out| {
                    encode::parse_complete(out);
                    encode::bind_complete(out);
                    encode::copy_in(out, 0, 1);
                    encode::error(
                        out,
                        "ERROR",
                        "08P01",
                        "unexpected message type 0x43 during COPY from stdin",
                    );
                    encode::error(out, "FATAL", "08P01", "protocol synchronization was lost");
                }),
            );
            world.event(Event::HalfClosed { conn: server });
            assert!(world.text(first).contains("FATAL"), "as from PostgreSQL, which lets such a client go");
            assert!(world.closed.contains(&first) && world.closed.contains(&server));
        }
    }
}

/// The server may have read the Sync behind the failure, and then it answers what comes next.
#[test]
fn a_close_is_passed_on_while_it_is_in_doubt_whether_it_is_skipped() {
    let named = message(|out| {
        encode::parse(out, b"s", b"select 1", &[]);
        encode::sync(out);
    });
    let (mut world, first, _, server) = world(&named);
    world.receive(server, &[message(encode::parse_complete), ready()].concat());
    let asked = message(|out| {
        encode::parse(out, b"", b"copy t from stdin", &[]);
        encode::bind_simple(out, b"", b"", &[]);
        encode::execute(out, b"", 0);
        encode::sync(out);
    });
    world.receive(first, &asked);
    world.receive(server, &refusal(true));
    world.sent.clear();
    let closed = message(|out| {
        encode::close(out, b'S', b"s");
        encode::sync(out);
    });
    world.receive(first, &closed);
    let sent = world.tags(server);
    assert!(sent.starts_with("CS"), "{sent}");
}
