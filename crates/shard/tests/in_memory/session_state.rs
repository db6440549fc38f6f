//! `session_state = virtual`: when a server is asked what a session holds, and what the answer leads to.

use crate::world::takeover::import_all;
use crate::world::{World, config, message};
use messages::Command;
use shard::{ConnId, Event};
use wire::backend::Status;
use wire::encode;

const ON: &str = "default_pool_size = 1\nsession_state = virtual";

/// A client with a startup packet of its own, and a server that has none. No table of the database changes a session.
fn beginning(settings: &str) -> (World, ConnId, ConnId) {
    let mut world = World::new(settings);
    let client = world.client(&[("application_name", "mine"), ("lock_timeout", "9s")]);
    let server = world.server();
    assert!(world.text(server).contains("RECURSIVE"));
    world.answer(server, Status::Idle);
    world.query(client, "select 1");
    assert!(world.text(server).contains("'lock_timeout','9s'"));
    answer(&mut world, server, "SET", &[("application_name", "mine")]);
    answer(&mut world, server, "SELECT 1", &[]);
    world.sent.clear();
    (world, client, server)
}

/// A server has done this, and reports this.
fn answer(world: &mut World, server: ConnId, tag: &str, reports: &[(&str, &str)]) {
    let bytes = message(|out| {
        encode::command_complete(out, tag);
        for (name, value) in reports {
            encode::parameter_status(out, name.as_bytes(), value.as_bytes());
        }
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &bytes);
}

/// The answer to the question for session state: these kinds are there. A channel has a name that no other connection can listen on.
fn holds(kinds: &[&str]) -> Vec<u8> {
    message(|out| {
        for kind in kinds {
            encode::data_row(out, [Some(kind.as_bytes()), Some(b""), Some(b"c3a4")]);
        }
        encode::command_complete(out, "SELECT 0");
        encode::ready(out, Status::Idle);
    })
}

/// The same, with a client that listens and keeps its server.
fn listening(settings: &str) -> (World, ConnId, ConnId) {
    let (mut world, client, server) = beginning(settings);
    world.query(client, "listen n");
    answer(&mut world, server, "LISTEN", &[]);
    assert!(world.text(server).contains("pg_listening_channels"));
    world.receive(server, &holds(&["l"]));
    world.sent.clear();
    (world, client, server)
}

#[test]
fn a_request_in_pieces_has_not_run_before_it_is_whole() {
    let parse = message(|out| {
        encode::parse(out, b"", b"select change('app.tenant', 'a')", &[]);
        encode::bind_simple(out, b"", b"", &[]);
        encode::execute(out, b"", 0);
        encode::sync(out);
    });
    let reset = message(|out| encode::query(out, b"select change('app.tenant', 'a'); reset all"));
    for (settings, request) in [
        (format!("{ON}\nmax_prepared_statements = 0"), &parse),
        (ON.to_owned(), &parse),
        (ON.to_owned(), &reset),
    ] {
        let (mut world, client, server) = listening(&settings);
        world.receive(client, &request[..30]);
        assert_eq!(world.text(server), "", "{settings}: neither a half nor a question");
        world.receive(client, &request[30..]);
        assert!(world.text(server).contains("'app.tenant'"), "{settings}");
        let mut answered = vec![];
        if *request == parse {
            encode::parse_complete(&mut answered);
            encode::bind_complete(&mut answered);
        }
        world.receive(server, &answered);
        answer(&mut world, server, "SELECT 1", &[]);
        let asked = world.text(server);
        assert!(asked.contains("ARRAY['app.tenant']"), "{settings}: the name was seen whole: {asked}");
    }
}

#[test]
fn a_setting_that_is_too_long_keeps_its_client_until_it_is_shorter() {
    let (mut world, client, server) = beginning(ON);
    let other = world.client(&[]);
    world.query(client, "begin");
    world.answer(server, Status::InTransaction);
    world.query(other, "select 'of the other'"); // It waits for the only server.
    let value = |bytes: usize| {
        let digits = "78".repeat(bytes);
        message(|out| {
            encode::data_row(out, [Some(&b"s"[..]), Some(b"app.tenant"), Some(digits.as_bytes())]);
            encode::data_row(out, [Some(&b"s"[..]), Some(b"lock_timeout"), Some(b"3973")]);
            encode::command_complete(out, "SELECT 2");
            encode::ready(out, Status::Idle);
        })
    };
    for (sql, bytes, is_kept) in [
        ("set app.tenant = 'long'; commit", 9000, true),
        ("set work_mem = '1MB'", 9000, true), // It names nothing, and the other one is still there.
        ("set app.tenant = 'short'", 5, false),
    ] {
        world.query(client, sql);
        answer(&mut world, server, "SET", &[]);
        assert!(world.text(server).contains("'app.tenant'"), "{sql}: it is asked for");
        world.sent.clear();
        world.receive(server, &value(bytes));
        assert_eq!(world.tags(server).is_empty(), is_kept, "{sql}: the other one has the server");
    }
}

#[test]
fn a_set_that_is_skipped_teaches_nothing() {
    let (mut world, client, server) = beginning(ON);
    world.receive(client, &message(|out| encode::execute(out, b"none", 0)));
    world.receive(server, &message(|out| encode::error(out, "ERROR", "34000", "no portal")));
    world.query(client, "set lock_timeout = '2s'");
    world.receive(client, &message(encode::sync));
    world.sent.clear();
    world.receive(server, &message(|out| encode::ready(out, Status::Idle)));
    assert!(world.text(server).contains("pg_settings"));
    let as_before = message(|out| {
        encode::data_row(out, [Some(&b"s"[..]), Some(b"lock_timeout"), Some(b"3973")]);
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &as_before);
    world.query(client, "set lock_timeout = '2s'");
    world.sent.clear();
    answer(&mut world, server, "SET", &[]);
    assert!(world.text(server).contains("lock_timeout"), "it is not known what it leaves");
}

#[test]
fn a_client_goes_on_if_reload_changes_to_session_pooling_while_its_server_is_asked() {
    let (mut world, client, server) = beginning(ON);
    world.query(client, "do ''");
    answer(&mut world, server, "DO", &[]);
    assert!(world.text(server).contains("pg_settings"));
    let session = config(&format!("{ON}\npool_mode = session"));
    world.event(Event::Command(Command::Configure(session)));
    world.receive(server, &holds(&[]));
    assert!(!world.paused.contains(&client));
    world.sent.clear();
    world.query(client, "select 2");
    let sent = world.text(server);
    assert!(sent.contains("select 2"), "{sent:?} {:?}", world.log);
}

#[test]
fn a_server_that_could_not_say_what_it_holds_is_asked_again() {
    let (mut world, client, server) = beginning(ON);
    world.query(client, "do ''");
    answer(&mut world, server, "DO", &[]);
    for _ in 0..3 {
        assert!(world.text(server).contains("pg_settings"));
        let refused = message(|out| {
            encode::error(out, "ERROR", "57014", "canceling statement due to statement timeout");
            encode::ready(out, Status::Idle);
        });
        world.receive(server, &refused);
    }
    assert_eq!(world.text(server), "", "for now");
    world.pass(1_000);
    assert!(world.text(server).contains("pg_settings"), "and the client has asked for nothing");
    world.receive(server, &holds(&[]));
    let other = world.client(&[]);
    world.query(other, "select 2");
    assert!(!world.text(server).is_empty(), "the server is free");
}

#[test]
fn a_report_behind_the_answer_takes_no_startup_value_from_the_client() {
    let (mut world, client, server) = beginning(ON);
    world.query(client, "discard all");
    answer(&mut world, server, "DISCARD ALL", &[("application_name", "")]);
    assert!(world.text(server).contains("pg_settings"));
    let report = message(|out| encode::parameter_status(out, b"in_hot_standby", b"on"));
    let mut bytes = holds(&[]);
    bytes.extend_from_slice(&report[..7]);
    world.receive(server, &bytes);
    world.receive(server, &report[7..]);
    world.sent.clear();
    world.query(client, "select 2");
    let sent = world.text(server);
    assert!(sent.contains("'lock_timeout','9s'") && sent.contains("application_name='mine'"), "{sent}");
}

#[test]
fn discard_all_gives_back_nothing_before_the_server_has_said_what_is_gone() {
    let (mut world, client, server) = beginning(ON);
    world.query(client, "select change('app.tenant', 'a')");
    answer(&mut world, server, "SELECT 1", &[]);
    let found = message(|out| {
        for row in
            [[b"s" as &[u8], b"app.tenant", b"61"], [b"s", b"lock_timeout", b"3973"], [b"l", b"", b"c3a4"]]
        {
            encode::data_row(out, row.map(Some));
        }
        encode::command_complete(out, "SELECT 3");
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &found);
    world.sent.clear();
    world.query(client, "discard all");
    let discarded = message(|out| {
        encode::command_complete(out, "DISCARD ALL");
        encode::parameter_status(out, b"application_name", b"");
        encode::ready(out, Status::Idle);
    });
    world.sent.clear();
    world.event(Event::Received { conn: server, bytes: &discarded, unsent: true });
    let sent = world.text(server);
    assert!(sent.contains("pg_settings") && !sent.contains("'app.tenant','a'"), "{sent}");
    world.receive(server, &holds(&[]));
    let sent = world.text(server);
    assert!(sent.contains("'lock_timeout','9s'") && !sent.contains("'app.tenant','a'"), "{sent}");
}

/// A row of the answer to the question: a setting and its value.
fn setting(out: &mut Vec<u8>, name: &str, value: &str) {
    let digits: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
    encode::data_row(out, [b"s" as &[u8], name.as_bytes(), digits.as_bytes()].map(Some));
}

/// The answer to the question: these settings.
fn settings(found: &[(&str, &str)]) -> Vec<u8> {
    message(|out| {
        found.iter().for_each(|(name, value)| setting(out, name, value));
        encode::command_complete(out, "SELECT 0");
        encode::ready(out, Status::Idle);
    })
}

/// Another client gets no server as long as this one keeps the only one.
fn is_kept(world: &mut World, server: ConnId) -> bool {
    world.sent.clear();
    let other = world.client(&[]);
    world.query(other, "select 'other'");
    world.text(server).is_empty()
}

#[test]
fn settings_that_are_too_many_together_keep_their_client() {
    let (mut world, client, server) = beginning(ON);
    for number in 0..4 {
        let name = format!("a.b{number}");
        world.query(client, &format!("set {name} = '{}'", "x".repeat(8_000)));
        answer(&mut world, server, "SET", &[]);
        world.receive(server, &settings(&[(&name, &"x".repeat(8_000))]));
        world.sent.clear();
    }
    world.query(client, "set local_preload_libraries = 'y'");
    answer(&mut world, server, "SET", &[]);
    assert!(world.text(server).contains("ARRAY['local_preload_libraries']"), "{}", world.text(server));
    world.receive(server, &settings(&[("local_preload_libraries", &"y".repeat(2_000))]));
    assert!(is_kept(&mut world, server));
}

#[test]
fn settings_that_cannot_be_listed_keep_their_client_in_the_next_process() {
    let (mut old, client, server) = beginning(ON);
    let many: String = (0..65).map(|number| format!("set a.b{number} = 1;")).collect();
    old.query(client, &many);
    answer(&mut old, server, "SET", &[]);
    old.receive(server, &settings(&[("lock_timeout", "9s")]));
    let mut new = World::new(ON);
    old.event(Event::Command(Command::Export { round: 1 }));
    let places = import_all(&mut old, &mut new);
    let server = places[&server];
    assert!(new.text(server).contains("pg_settings"), "it is asked again");
    new.receive(server, &settings(&[("lock_timeout", "9s")]));
    new.sent.clear();
    new.query(places[&client], "select 1");
    assert!(new.text(server).contains("select 1"), "on the server that has them");
    new.answer(server, Status::Idle);
    assert!(is_kept(&mut new, server) && !new.closed.contains(&server));
}

#[test]
fn more_settings_than_are_looked_at_keep_their_client() {
    for text in [
        (0..300).map(|number| format!("set a.b{number} = 1;")).collect::<String>(),
        format!("{} set \"\u{e4}\".b = 1", "select 1;".repeat(300)),
    ] {
        let (mut world, client, server) = beginning(ON);
        world.query(client, &text);
        answer(&mut world, server, "SET", &[]);
        world.receive(server, &settings(&[]));
        assert!(is_kept(&mut world, server), "{}", &text[text.len() - 20..]);
    }
    let (mut world, client, server) = beginning(ON);
    let columns: String = (0..100).map(|number| format!(", t.column{number}")).collect();
    world.query(client, &format!("select f(){columns} from t"));
    answer(&mut world, server, "SELECT 1", &[]);
    world.receive(server, &settings(&[]));
    assert!(!is_kept(&mut world, server), "columns are no settings");
}

#[test]
fn locks_are_asked_for_behind_another_clients_settings() {
    let (mut world, client, server) = beginning(ON);
    let extended = |sql: &[u8]| {
        message(|out| {
            encode::parse(out, b"", sql, &[]);
            encode::bind_simple(out, b"", b"", &[]);
            encode::execute(out, b"", 0);
            encode::sync(out);
        })
    };
    let answered = |tag: &str| {
        message(|out| {
            encode::parse_complete(out);
            encode::bind_complete(out);
            encode::command_complete(out, tag);
            encode::ready(out, Status::Idle);
        })
    };
    world.receive(client, &extended(b"set timezone = 'UTC'"));
    world.receive(server, &answered("SET"));
    world.receive(server, &holds(&[]));
    world.sent.clear();
    world.receive(client, &extended(b"select pg_advisory_lock(1)"));
    world.receive(server, &answered("SELECT 1"));
    let asked = world.text(server);
    assert!(asked.contains("pg_locks"), "{asked}");
}

/// PostgreSQL may end a session before, in and behind the answer to a query of Weir's own, in one piece with it or not: the client that
/// keeps the server gets PostgreSQL's error.
#[test]
fn a_kept_server_that_is_terminated_around_a_question_ends_its_client_in_postgresqls_words() {
    let words = "terminating connection due to administrator command";
    let fatal = message(|out| encode::error(out, "FATAL", "57P01", words));
    let answered = holds(&["a"]);
    let before = fatal.clone();
    let behind = [answered.as_slice(), &fatal].concat();
    let row = message(|out| encode::data_row(out, [Some(b"a".as_slice()), Some(b""), Some(b"c3a4")]));
    let within = [row.as_slice(), &fatal].concat();
    for (name, bytes) in [("before", before), ("behind", behind), ("within", within)] {
        for piece in [bytes.len(), 50, 7, 1] {
            let (mut world, client, server) = listening(ON);
            world.query(client, "select pg_advisory_lock(1)");
            answer(&mut world, server, "SELECT 1", &[]);
            assert!(world.text(server).contains("pg_locks"), "it is asked again");
            world.text(client);
            for part in bytes.chunks(piece) {
                world.receive(server, part);
            }
            world.event(Event::HungUp { conn: server });
            let told = world.text(client);
            assert_eq!(told.matches("57P01").count(), 1, "{name} in pieces of {piece}: {told:?}");
            assert!(told.contains(words) && world.closed.contains(&client), "{name} in pieces of {piece}");
        }
    }
}

/// An answer may be read before the kernel has said that the request is sent.
#[test]
fn a_startup_value_that_was_reset_is_set_before_the_next_request_though_output_counts_as_unsent() {
    let (mut world, client, server) = beginning(ON);
    world.query(client, "reset lock_timeout");
    world.sent.clear();
    let done = message(|out| {
        encode::command_complete(out, "RESET");
        encode::ready(out, Status::Idle);
    });
    world.event(Event::Received { conn: server, bytes: &done, unsent: true });
    world.query(client, "select 2");
    let asked = world.text(server);
    assert!(asked.contains("pg_settings") && !asked.contains("select 2"), "{asked}");
    world.event(Event::SendBufferEmpty { conn: server });
    world.sent.clear();
    world.receive(server, &holds(&[]));
    let asked = world.text(server);
    assert!(asked.contains("'lock_timeout','9s'") && asked.ends_with("select 2\0"), "{asked}");
}

/// A cancel request ends while the driver has not said yet that the client's request is sent.
#[test]
fn what_was_held_behind_a_cancel_request_holds_nothing_further() {
    let (mut world, client, server) = listening(ON);
    world.query(client, "set application_name = 'x'");
    let id = world.clients()[0].id;
    world.event(Event::Command(Command::CancelClient { request: messages::RequestId(1), id }));
    let carrier = world.connected();
    world.sent.clear();
    let done = message(|out| {
        encode::command_complete(out, "SET");
        encode::parameter_status(out, b"application_name", b"x");
        encode::ready(out, Status::Idle);
    });
    world.event(Event::Received { conn: server, bytes: &done, unsent: true });
    world.query(client, "select 2");
    assert_eq!(world.text(server), "", "the cancel request may still arrive");
    world.event(Event::HungUp { conn: carrier });
    assert!(world.text(server).contains("select 2"));
    world.event(Event::SendBufferEmpty { conn: server });
    answer(&mut world, server, "SELECT 1", &[]);
    world.query(client, "select 3");
    assert!(world.text(server).contains("select 3"));
}
