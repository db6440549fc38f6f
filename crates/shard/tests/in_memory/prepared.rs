//! Prepared statements, pipelines and COPY on a whole shard in memory: what is renamed, swallowed, said and forgotten.

use crate::world::{World, message};
use shard::ConnId;
use wire::backend::Status;
use wire::encode;

/// Two clients, two servers, everything greeted and quiet.
fn two_and_two(settings: &str) -> (World, [ConnId; 2], [ConnId; 2]) {
    let mut world = World::new(&format!("default_pool_size = 2\nserver_check_query =\n{settings}"));
    let clients = [world.client(&[]), world.client(&[])];
    let first = world.server();
    world.query(clients[0], "begin");
    world.query(clients[1], "begin");
    let second = world.server();
    for server in [first, second] {
        world.answer(server, Status::InTransaction);
    }
    for client in clients {
        world.query(client, "commit");
    }
    for server in [first, second] {
        world.answer(server, Status::Idle);
    }
    world.sent.clear();
    (world, clients, [first, second])
}

fn parse_bind_execute(name: &[u8]) -> Vec<u8> {
    message(|out| {
        encode::parse(out, name, b"select 1", &[]);
        encode::bind_simple(out, b"", name, &[]);
        encode::execute(out, b"", 0);
        encode::sync(out);
    })
}

fn bind_execute(name: &[u8]) -> Vec<u8> {
    message(|out| {
        encode::bind_simple(out, b"", name, &[]);
        encode::execute(out, b"", 0);
        encode::sync(out);
    })
}

fn reply(parse: bool) -> Vec<u8> {
    message(|out| {
        if parse {
            encode::parse_complete(out);
        }
        encode::bind_complete(out);
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
    })
}

#[test]
fn a_statement_is_renamed_and_known_on_the_servers_it_was_sent_to() {
    let (mut world, [one, two], [a, b]) = two_and_two("");
    world.receive(one, &parse_bind_execute(b"mine"));
    let sent = world.sent.get(&a).map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap();
    assert!(sent.contains("PGBOUNCER_1") && !sent.contains("mine"));
    assert_eq!(world.tags(a), "PBES");
    world.receive(a, &reply(true));
    assert_eq!(world.tags(one), "12CZ");

    // The same text under another name on another server: parsed there, once.
    world.receive(two, &parse_bind_execute(b"yours"));
    assert_eq!(world.tags(b), "PBES");
    world.receive(b, &reply(true));
    assert_eq!(world.tags(two), "12CZ");
    world.receive(two, &bind_execute(b"yours"));
    assert_eq!(world.tags(b), "BES", "it is there");
}

#[test]
fn a_server_that_lacks_the_statement_gets_it_and_the_client_sees_nothing_of_that() {
    let (mut world, [one, two], [a, b]) = two_and_two("");
    world.receive(one, &parse_bind_execute(b"s"));
    world.receive(a, &reply(true));
    world.query(two, "begin");
    world.answer(b, Status::InTransaction);
    // No other client takes the first client's warm server, so take it away: it gets the other one.
    world.query(two, "commit");
    world.answer(b, Status::Idle);
    let third = world.client(&[]);
    world.query(third, "begin");
    world.sent.clear();
    world.receive(one, &bind_execute(b"s"));
    let on_a = world.tags(a);
    let on_b = world.tags(b);
    let (server, tags) = if on_a.contains('B') { (a, on_a) } else { (b, on_b) };
    world.receive(server, &reply(tags.starts_with('P')));
    assert_eq!(world.tags(one), "2CZ", "never a ParseComplete that it did not ask for");
}

#[test]
fn parse_of_what_the_server_has_is_answered_in_its_place_in_the_stream() {
    let (mut world, [one, two], [a, _]) = two_and_two("");
    world.receive(one, &parse_bind_execute(b"s"));
    world.receive(a, &reply(true));
    world.sent.clear();
    // Another client takes the same server (it was used last) and prepares the same text after another query.
    let pipeline = message(|out| {
        encode::parse(out, b"", b"begin", &[]);
        encode::bind_simple(out, b"", b"", &[]);
        encode::execute(out, b"", 0);
        encode::parse(out, b"t", b"select 1", &[]);
        encode::bind_simple(out, b"", b"t", &[]);
        encode::execute(out, b"", 0);
        encode::sync(out);
    });
    world.receive(one, &message(|out| encode::close(out, b'S', b"s")));
    world.receive(one, &message(encode::sync));
    world.receive(a, &message(|out| encode::ready(out, Status::Idle)));
    assert_eq!(world.tags(one), "3Z", "CloseComplete is said here; the server keeps the statement");
    world.sent.clear();
    world.receive(one, &pipeline);
    assert_eq!(world.tags(a), "PBEBES");
    assert_eq!(world.tags(one), "", "not before the first answers");
    let answers = message(|out| {
        encode::parse_complete(out);
        for _ in 0..2 {
            encode::bind_complete(out);
            encode::command_complete(out, "SELECT 1");
        }
        encode::ready(out, Status::Idle);
    });
    world.receive(a, &answers);
    assert_eq!(world.tags(one), "12C12CZ");
    let _ = two;
}

#[test]
fn a_failed_parse_is_forgotten_on_both_sides() {
    let (mut world, [one, _], [a, _]) = two_and_two("");
    world.receive(one, &parse_bind_execute(b"s"));
    world.tags(a);
    let failed = message(|out| {
        encode::error(out, "ERROR", "42P01", "no such table");
        encode::ready(out, Status::Idle);
    });
    world.receive(a, &failed);
    assert_eq!(world.tags(one), "EZ");
    world.receive(one, &parse_bind_execute(b"s"));
    assert_eq!(world.tags(a), "PBES", "parsed again, and the name is free");
}

#[test]
fn what_comes_after_an_error_is_skipped_up_to_the_sync() {
    let (mut world, [one, _], [a, _]) = two_and_two("");
    world.receive(one, &message(|out| encode::bind_simple(out, b"", b"", &[])));
    world.receive(a, &message(|out| encode::error(out, "ERROR", "26000", "no such statement")));
    assert_eq!(world.tags(one), "E");
    // The server ignores all of this; so do we.
    let rest = message(|out| {
        encode::parse(out, b"later", b"select 2", &[]);
        encode::execute(out, b"", 0);
        encode::sync(out);
    });
    world.receive(one, &rest);
    world.receive(a, &message(|out| encode::ready(out, Status::Idle)));
    assert_eq!(world.tags(one), "Z");
    world.receive(one, &parse_bind_execute(b"later"));
    assert!(!world.closed.contains(&one), "the skipped Parse took no name");
}

#[test]
fn the_least_recently_used_statement_makes_room() {
    let (mut world, [one, _], [a, _]) = two_and_two("max_prepared_statements = 1");
    world.receive(
        one,
        &message(|out| {
            encode::parse(out, b"x", b"select 1", &[]);
            encode::sync(out);
        }),
    );
    world.receive(
        a,
        &message(|out| {
            encode::parse_complete(out);
            encode::ready(out, Status::Idle);
        }),
    );
    world.sent.clear();
    world.receive(
        one,
        &message(|out| {
            encode::parse(out, b"y", b"select 2", &[]);
            encode::sync(out);
        }),
    );
    assert_eq!(world.tags(a), "CPS");
    world.receive(
        a,
        &message(|out| {
            encode::close_complete(out);
            encode::parse_complete(out);
            encode::ready(out, Status::Idle);
        }),
    );
    assert_eq!(world.tags(one), "1Z", "the Close is ours");
}

#[test]
fn a_statement_whose_close_was_skipped_can_be_used_again() {
    let (mut world, [one, _], [a, _]) = two_and_two("max_prepared_statements = 1");
    world.receive(one, &parse_bind_execute(b"x"));
    world.receive(a, &reply(true));
    world.sent.clear();
    // The server fails at once, and skips the Close of x that was to make room for y.
    let failing = message(|out| {
        encode::parse(out, b"", b"selec", &[]);
        encode::parse(out, b"y", b"select 2", &[]);
        encode::sync(out);
    });
    world.receive(one, &[failing, bind_execute(b"x")].concat());
    assert_eq!(world.tags(a), "PCPS", "whether x is there is not known yet");
    world.receive(
        a,
        &message(|out| {
            encode::error(out, "ERROR", "42601", "syntax error");
            encode::ready(out, Status::Idle);
        }),
    );
    assert_eq!(world.tags(a), "CPBES", "what the error has undone is not relied on");
    world.receive(a, &[message(encode::close_complete), reply(true)].concat());
    assert_eq!(world.tags(one), "EZ2CZ");
    world.receive(one, &bind_execute(b"x"));
    assert_eq!(world.tags(a), "BES");
}

#[test]
fn deallocate_all_forgets_the_names() {
    let (mut world, [one, _], [a, _]) = two_and_two("");
    world.receive(one, &parse_bind_execute(b"s"));
    world.receive(a, &reply(true));
    world.query(one, "DEALLOCATE ALL");
    world.receive(
        a,
        &message(|out| {
            encode::command_complete(out, "DEALLOCATE ALL");
            encode::ready(out, Status::Idle);
        }),
    );
    world.sent.clear();
    world.receive(one, &bind_execute(b"s"));
    assert_eq!(world.tags(a), "CBES", "the server refuses what does not exist");
    world.receive(a, &refusal("26000", "prepared statement \"PGBOUNCER_0\" does not exist"));
    assert!(world.text(one).contains("C26000\0Mprepared statement \"s\" does not exist\0"));
    assert!(!world.closed.contains(&one));
}

/// CloseComplete of Weir's own, then what the server says of a name that does not exist.
fn refusal(code: &str, text: &str) -> Vec<u8> {
    message(|out| {
        if code == "26000" {
            encode::close_complete(out);
        }
        encode::error(out, "ERROR", code, text);
        encode::ready(out, Status::Idle);
    })
}

#[test]
fn a_name_that_is_in_use_is_refused_in_its_place_and_so_is_an_unknown_one() {
    let (mut world, [one, two], [a, b]) = two_and_two("");
    world.receive(one, &parse_bind_execute(b"s"));
    world.receive(a, &reply(true));
    world.sent.clear();
    // The server judges the text, then the name that it has the other statement by.
    world.receive(one, &parse_bind_execute(b"s"));
    assert_eq!(world.tags(a), "PBES");
    world.receive(a, &refusal("42P05", "prepared statement \"PGBOUNCER_1\" already exists"));
    assert!(world.text(one).contains("C42P05\0Mprepared statement \"s\" already exists\0"));
    world.sent.clear();
    world.query(one, "begin");
    world.answer(a, Status::InTransaction);
    world.receive(
        two,
        &message(|out| {
            encode::describe(out, b'S', b"nope");
            encode::sync(out);
        }),
    );
    assert_eq!(world.tags(b), "CDS");
    world.receive(b, &refusal("26000", "prepared statement \"PGBOUNCER_0\" does not exist"));
    assert!(world.text(two).contains("prepared statement \"nope\" does not exist"));
    assert!(world.closed.is_empty());
}

/// A segment that fails before a Close and a Parse of `name` in it are reached.
fn failing_before_a_change_of(name: &[u8]) -> Vec<u8> {
    message(|out| {
        encode::parse(out, b"", b"selec", &[]);
        encode::close(out, b'S', name);
        encode::parse(out, name, b"select 2", &[]);
        encode::sync(out);
    })
}

#[test]
fn a_name_stands_for_what_the_server_will_have_executed() {
    let (mut world, [one, _], [a, _]) = two_and_two("");
    world.receive(one, &parse_bind_execute(b"s"));
    world.receive(a, &reply(true));
    world.sent.clear();
    let pipeline = [failing_before_a_change_of(b"s"), bind_execute(b"s")];
    world.receive(one, &pipeline.concat());
    assert_eq!(world.tags(a), "PPS", "what the second segment binds is not known yet");
    assert!(world.paused.contains(&one));
    world.receive(
        a,
        &message(|out| {
            encode::error(out, "ERROR", "42601", "syntax error");
            encode::ready(out, Status::Idle);
        }),
    );
    let sent = world.text(a);
    assert!(sent.contains("PGBOUNCER_1") && !sent.contains("PGBOUNCER_2"), "{sent:?}");
    world.receive(a, &reply(false));
    assert_eq!(world.tags(one), "EZ2CZ");
    assert!(!world.paused.contains(&one));
}

#[test]
fn a_name_whose_parse_was_skipped_stands_for_nothing() {
    let (mut world, [one, _], [a, _]) = two_and_two("");
    let pipeline = [failing_before_a_change_of(b"s"), bind_execute(b"s")];
    world.receive(one, &pipeline.concat());
    assert_eq!(world.tags(a), "PCPS");
    world.receive(
        a,
        &message(|out| {
            encode::error(out, "ERROR", "42601", "syntax error");
            encode::ready(out, Status::Idle);
        }),
    );
    assert_eq!(world.tags(a), "CBES");
    world.receive(a, &refusal("26000", "prepared statement \"PGBOUNCER_0\" does not exist"));
    assert_eq!(world.tags(one), "EZEZ");
}

#[test]
fn skipped_changes_of_a_name_can_be_repeated_for_ever() {
    let (mut world, [one, _], [a, _]) = two_and_two("");
    world.receive(one, &parse_bind_execute(b"s"));
    world.receive(a, &reply(true));
    for _ in 0..3 {
        world.receive(one, &failing_before_a_change_of(b"s"));
        world.receive(
            a,
            &message(|out| {
                encode::error(out, "ERROR", "42601", "syntax error");
                encode::ready(out, Status::Idle);
            }),
        );
    }
    world.sent.clear();
    world.receive(one, &bind_execute(b"s"));
    assert!(world.text(a).contains("PGBOUNCER_1"));
    world.receive(a, &reply(false));
    assert_eq!(world.tags(one), "2CZ");
}

#[test]
fn what_depends_on_a_deallocate_waits_for_it() {
    let (mut world, [one, _], [a, _]) = two_and_two("");
    world.receive(one, &parse_bind_execute(b"s"));
    world.receive(a, &reply(true));
    world.query(one, "begin");
    world.answer(a, Status::InTransaction);
    world.sent.clear();
    world.query(one, "deallocate all");
    world.receive(one, &parse_bind_execute(b"s"));
    assert_eq!(world.tags(a), "Q");
    world.receive(
        a,
        &message(|out| {
            encode::command_complete(out, "DEALLOCATE ALL");
            encode::ready(out, Status::InTransaction);
        }),
    );
    assert_eq!(world.tags(a), "PBES", "the server has lost it");

    // The same by the extended protocol, in one segment: the server has to be made to send what it has.
    world.receive(a, &reply(true));
    world.sent.clear();
    let segment = message(|out| {
        encode::parse(out, b"", b"  Deallocate all", &[]);
        encode::bind_simple(out, b"", b"", &[]);
        encode::execute(out, b"", 0);
        out.extend_from_slice(&parse_bind_execute(b"s"));
    });
    world.receive(one, &segment);
    assert_eq!(world.tags(a), "PBEH");
    world.receive(
        a,
        &message(|out| {
            encode::parse_complete(out);
            encode::bind_complete(out);
            encode::command_complete(out, "DEALLOCATE ALL");
        }),
    );
    assert_eq!(world.tags(a), "PBES");
}

#[test]
fn what_sql_has_prepared_or_deallocated_is_prepared_anew() {
    for tag in ["PREPARE", "DEALLOCATE"] {
        let (mut world, [one, _], [a, _]) = two_and_two("");
        world.receive(one, &parse_bind_execute(b"s"));
        world.receive(a, &reply(true));
        world.query(one, "whatever \"PGBOUNCER_1\"");
        world.receive(
            a,
            &message(|out| {
                encode::command_complete(out, tag);
                encode::ready(out, Status::Idle);
            }),
        );
        world.sent.clear();
        world.receive(one, &bind_execute(b"s"));
        assert_eq!(world.tags(a), "CPBES", "{tag}");
    }
}

#[test]
fn a_statement_without_a_name_is_for_the_client_that_parsed_it() {
    let (mut world, [one, two], [a, _]) = two_and_two("");
    world.receive(one, &parse_bind_execute(b""));
    world.receive(a, &reply(true));
    world.sent.clear();
    for request in [bind_execute(b""), message(|out| encode::describe(out, b'S', b""))] {
        world.receive(two, &request);
    }
    let text = world.sent.values().map(|sent| String::from_utf8_lossy(sent).into_owned()).collect::<String>();
    assert!(text.contains("PGBOUNCER_0"), "bound to nothing: {text:?}");
}

#[test]
fn an_older_unnamed_statement_is_unusable_once_its_client_has_moved() {
    let (mut world, [one, two], [a, b]) = two_and_two("");
    world.receive(one, &parse_bind_execute(b""));
    world.receive(a, &reply(true));
    // Its server is taken when it comes back: it parses another on the second, and returns to the first.
    let third = world.client(&[]);
    world.query(third, "begin");
    world.answer(a, Status::InTransaction);
    world.receive(one, &parse_bind_execute(b""));
    world.receive(b, &reply(true));
    world.query(two, "begin");
    world.answer(b, Status::InTransaction);
    world.query(third, "commit");
    world.answer(a, Status::Idle);
    world.sent.clear();
    world.receive(one, &bind_execute(b""));
    let text = world.text(a);
    assert!(text.contains("PGBOUNCER_0"), "bound to nothing, and not to the older one: {text:?}");
}

#[test]
fn a_pipeline_without_end_is_read_no_further_than_its_replies_are_bounded() {
    let (mut world, [one, _], [a, _]) = two_and_two("");
    world.receive(one, &parse_bind_execute(b"s"));
    world.receive(a, &reply(true));
    world.query(one, "select pg_sleep(1000)");
    let pair = message(|out| {
        encode::close(out, b'S', b"t");
        encode::execute(out, b"", 0);
    });
    for _ in 0..10_000 {
        if world.paused.contains(&one) {
            return;
        }
        world.receive(one, &pair);
    }
    panic!("the client is read without end");
}

/// A request that the server refuses because its statement is gone, with something behind it in the stream.
fn refused_with(behind: &[u8]) -> (World, ConnId, ConnId) {
    let (mut world, [one, _], [a, _]) = two_and_two("");
    world.receive(one, &parse_bind_execute(b"s"));
    world.receive(a, &reply(true));
    // Bound a moment ago, so that nothing behind it is held back.
    world.receive(one, &bind_execute(b"s"));
    world.receive(one, &[bind_execute(b"s"), behind.to_vec()].concat());
    world.receive(a, &reply(false));
    world.sent.clear();
    world.receive(
        a,
        &message(|out| {
            encode::error(out, "ERROR", "26000", "prepared statement \"PGBOUNCER_1\" does not exist");
            encode::ready(out, Status::Idle);
        }),
    );
    (world, one, a)
}

#[test]
fn nothing_is_sent_again_into_the_middle_of_a_message_or_behind_one() {
    let copy_data = message(|out| encode::copy_data(out, &[b'y'; 3000]));
    for behind in [&copy_data[..1000], &copy_data[..], &message(encode::flush)[..]] {
        let (mut world, one, a) = refused_with(behind);
        assert_eq!(world.tags(a), "", "{} bytes behind it", behind.len());
        assert_eq!(world.tags(one), "EZ");
    }
    let (mut world, one, a) = refused_with(b"");
    assert_eq!(
        (world.tags(a), world.tags(one)),
        ("CPBES".to_owned(), String::new()),
        "with nothing behind it"
    );
}

#[test]
fn a_statement_that_a_repeated_request_has_evicted_is_prepared_for_its_next_use() {
    let (mut world, [one, _], [a, _]) = two_and_two("max_prepared_statements = 1");
    world.receive(one, &parse_bind_execute(b"x"));
    world.receive(a, &reply(true));
    let both = message(|out| {
        encode::bind_simple(out, b"", b"x", &[]);
        encode::execute(out, b"", 0);
        encode::parse(out, b"y", b"select 2", &[]);
        encode::sync(out);
    });
    world.sent.clear();
    world.receive(one, &both);
    assert_eq!(world.tags(a), "BECPS", "x makes room for y");
    world.receive(
        a,
        &message(|out| {
            encode::error(out, "ERROR", "0A000", "cached plan must not change result type");
            encode::ready(out, Status::Idle);
        }),
    );
    assert_eq!(world.tags(a), "CPBECPS");
    world.receive(
        a,
        &message(|out| {
            encode::close_complete(out);
            encode::parse_complete(out);
            encode::bind_complete(out);
            encode::command_complete(out, "SELECT 1");
            encode::close_complete(out);
            encode::parse_complete(out);
            encode::ready(out, Status::Idle);
        }),
    );
    assert_eq!(world.tags(one), "2C1Z");
    world.receive(one, &bind_execute(b"x"));
    assert_eq!(world.tags(a), "CPBES", "y makes room for x");
}

#[test]
fn every_cut_of_a_pipeline_gives_the_same_requests() {
    let whole = parse_bind_execute(b"statement");
    for cut in 1..whole.len() {
        let (mut world, [one, _], [a, _]) = two_and_two("");
        world.receive(one, &whole[..cut]);
        world.receive(one, &whole[cut..]);
        assert_eq!(world.tags(a), "PBES", "cut at {cut}");
        let answer = reply(true);
        for byte in answer.chunks(1) {
            world.receive(a, byte);
        }
        assert_eq!(world.tags(one), "12CZ", "cut at {cut}");
    }
}

#[test]
fn a_copy_with_an_early_sync_is_answered_once() {
    let (mut world, [one, two], [a, _]) = two_and_two("");
    // libpq sends Sync right after Execute; PostgreSQL ignores it while it copies.
    world.receive(
        one,
        &message(|out| {
            encode::parse(out, b"", b"copy t from stdin", &[]);
            encode::bind_simple(out, b"", b"", &[]);
            encode::execute(out, b"", 0);
            encode::sync(out);
        }),
    );
    world.receive(
        a,
        &message(|out| {
            encode::parse_complete(out);
            encode::bind_complete(out);
            encode::copy_in(out, 0, 1);
        }),
    );
    world.receive(
        one,
        &message(|out| {
            encode::copy_data(out, b"1\n");
            encode::copy_done(out);
            encode::sync(out);
        }),
    );
    world.sent.clear();
    world.receive(
        a,
        &message(|out| {
            encode::command_complete(out, "COPY 1");
            encode::ready(out, Status::Idle);
        }),
    );
    assert_eq!(world.tags(one), "CZ");
    world.query(one, "select 1");
    world.query(two, "select 2");
    assert!(world.closed.is_empty(), "nothing has lost step");
}

#[test]
fn an_extended_batch_without_its_sync_keeps_the_server() {
    let (mut world, [one, _], [a, b]) = two_and_two("");
    world.receive(
        one,
        &message(|out| {
            encode::parse(out, b"", b"select 1", &[]);
            encode::describe(out, b'S', b"");
            encode::flush(out);
        }),
    );
    world.receive(
        a,
        &message(|out| {
            encode::parse_complete(out);
            encode::parameter_description(out, &[]);
            encode::no_data(out);
        }),
    );
    assert_eq!(world.tags(one), "1tn");
    // All is answered, but no ReadyForQuery was said: the unnamed statement must still be there.
    world.sent.clear();
    world.receive(one, &bind_execute(b""));
    assert_eq!((world.tags(a), world.tags(b)), ("BES".to_owned(), String::new()));
}

#[test]
fn a_frame_under_way_is_passed_on_to_its_end_even_when_what_follows_is_skipped() {
    let execute = message(|out| encode::execute(out, b"", 0));
    let tail = message(|out| {
        encode::close(out, b'S', b"named");
        encode::sync(out);
    });
    for cut in 1..execute.len() {
        let (mut world, [one, _], [a, _]) = two_and_two("");
        let head = message(|out| encode::parse(out, b"", b"selec", &[]));
        world.receive(one, &[&head[..], &execute[..cut]].concat());
        world.receive(a, &message(|out| encode::error(out, "ERROR", "42601", "syntax error")));
        world.receive(one, &[&execute[cut..], &tail[..]].concat());
        assert_eq!(world.tags(a), "PES", "cut at {cut}");
    }
}

#[test]
fn what_comes_late_for_a_copy_takes_no_server() {
    let (mut world, [one, _], [a, b]) = two_and_two("");
    let late = message(|out| {
        encode::copy_data(out, b"1\n");
        encode::copy_done(out);
    });
    world.receive(one, &late);
    assert_eq!((world.tags(a), world.tags(b)), (String::new(), String::new()));
    world.receive(one, &[late, message(|out| encode::query(out, b"select 1"))].concat());
    assert_eq!(world.tags(a) + &world.tags(b), "Q");
}

/// PostgreSQL 18 keeps the transaction of a pipeline open behind a Query in it, until a Sync that has something to end behind that Query
/// (seen in 18.6). A Parse is such a thing, so that it may not be answered without the server.
#[test]
fn a_parse_behind_a_query_in_a_pipeline_reaches_the_server() {
    let (mut world, [one, _], [a, _]) = two_and_two("");
    world.receive(one, &parse_bind_execute(b"s"));
    world.receive(a, &reply(true));
    world.sent.clear();
    let pipeline = |name: &'static [u8]| {
        message(|out| {
            encode::bind_simple(out, b"", b"s", &[]);
            encode::execute(out, b"", 0);
            encode::query(out, b"insert into t values (1)");
            encode::parse(out, name, b"select 1", &[]);
            encode::sync(out);
        })
    };
    let begun = message(|out| {
        encode::bind_complete(out);
        encode::command_complete(out, "SELECT 1");
        encode::command_complete(out, "INSERT 0 1");
        encode::ready(out, Status::InTransaction);
    });
    let ended = message(|out| {
        encode::close_complete(out);
        encode::parse_complete(out);
        encode::ready(out, Status::Idle);
    });
    // Two at once: the second is sent before it is known how the first has ended.
    world.receive(one, &[pipeline(b"again"), pipeline(b"and again")].concat());
    for _ in 0..2 {
        world.receive(a, &begun);
        assert_eq!(world.tags(one), "2CCZ");
        let sent = world.tags(a);
        assert!(sent.ends_with("QCPS") || sent.ends_with("QHCPS"), "{sent}");
        world.receive(a, &ended);
        assert_eq!(world.tags(one), "1Z");
    }
}
