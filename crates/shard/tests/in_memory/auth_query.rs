//! Questions of Weir's own, on a whole shard in memory: who is asked, what the server gets, who hears the answer.

use crate::world::{World, message};
use messages::{ServerQuery, ServerQueryResult, ShardId, ShardMessage};
use shard::{ConnId, Event};
use wire::backend::Status;
use wire::encode;

const SETTINGS: &str = "auth_user = boss\nauth_query = select name, secret from users where name = $1";

/// What a server gets for one question: where names are looked up, and the question itself.
const ASKED: &str = "PBEPBDES";

fn world(settings: &str) -> World {
    World::new(&format!("{SETTINGS}\n{settings}"))
}

/// A client that is in no file.
fn stranger(world: &mut World, name: &str) -> ConnId {
    let mut packet = vec![];
    let all: [(&[u8], &[u8]); 3] =
        [(b"user", name.as_bytes()), (b"database", b"d"), (b"application_name", b"evil")];
    encode::startup(&mut packet, wire::startup::Version::V3_0, &all);
    let conn = world.accept();
    world.receive(conn, &packet);
    conn
}

fn rows(rows: &[[Option<&str>; 2]]) -> Vec<u8> {
    message(|out| {
        encode::parse_complete(out);
        encode::bind_complete(out);
        encode::command_complete(out, "SELECT 0");
        encode::parse_complete(out);
        encode::bind_complete(out);
        let column = |name| encode::Column { name, type_oid: 25, type_bytes: -1 };
        encode::row_description(out, &[column("name"), column("secret")]);
        for row in rows {
            encode::data_row(out, row.iter().map(|value| value.map(str::as_bytes)));
        }
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
    })
}

#[test]
fn a_stranger_is_asked_for_as_auth_user_and_with_nothing_of_its_own() {
    let mut world = world("");
    let client = stranger(&mut world, "x'y");
    let server = world.server();
    assert_eq!(world.tags(client), "", "nothing is known yet");
    let asked = world.text(server);
    assert!(asked.contains("select name, secret from users where name = $1\0"));
    assert!(asked.contains("\0\0\0\x03x'y"), "the name is bound");
    assert!(!asked.contains("evil"));
    world.receive(server, &rows(&[[Some("x'y"), Some("pw")]]));
    let own = world.server();
    assert_eq!(world.tags(client), "RSSSSSSKZ", "auth_type is trust, and the user is known");
    assert_ne!(own, server, "its own pool");
    assert!(world.log.iter().any(|line| line.contains("d/boss@") && line.contains("new connection")));
}

#[test]
fn no_row_is_an_unknown_user_and_the_server_stays() {
    let mut world = world("");
    let client = stranger(&mut world, "nobody");
    let server = world.server();
    world.tags(server);
    world.receive(server, &rows(&[]));
    assert!(world.text(client).contains("no such user"));
    assert!(world.closed.contains(&client));
    let other = stranger(&mut world, "other");
    assert_eq!(world.tags(server), ASKED, "the same server, at once");
    world.receive(server, &rows(&[[Some("other"), None]]));
    world.server();
    assert_eq!(world.tags(other), "RSSSSSSKZ");
}

#[test]
fn an_error_is_logged_and_closes_no_server() {
    let mut world = world("");
    let client = stranger(&mut world, "x");
    let server = world.server();
    let failed = message(|out| {
        encode::error(out, "ERROR", "42P01", "relation \"users\" does not exist");
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &failed);
    assert!(world.text(client).contains("bouncer config error"));
    assert!(world.log.iter().any(|line| line.contains("relation \"users\" does not exist")));
    assert!(!world.closed.contains(&server));
}

#[test]
fn a_server_that_dies_with_the_question_ends_the_login() {
    let mut world = world("");
    let client = stranger(&mut world, "x");
    let server = world.server();
    world.event(Event::HungUp { conn: server });
    assert!(world.text(client).contains("bouncer config error"));
    assert!(world.closed.contains(&client));
}

#[test]
fn a_client_that_leaves_takes_its_question_along_unless_it_is_asked_already() {
    let mut world = world("default_pool_size = 1");
    let (first, second) = (stranger(&mut world, "one"), stranger(&mut world, "two"));
    let server = world.server();
    assert!(world.text(server).contains("one"));
    world.event(Event::HungUp { conn: second });
    world.event(Event::HungUp { conn: first });
    let third = stranger(&mut world, "three");
    world.receive(server, &rows(&[[Some("one"), Some("pw")]]));
    assert!(world.text(server).contains("three"), "nobody waits for two");
    assert_eq!(world.tags(third), "", "one's answer is not three's, though their places may be the same");
    world.receive(server, &rows(&[]));
    assert!(world.text(third).contains("no such user"));
}

#[test]
fn who_waits_with_the_same_question_gets_the_same_answer() {
    let mut world = world("default_pool_size = 1");
    let first = stranger(&mut world, "same");
    let server = world.server();
    let waiting: Vec<ConnId> = (0..3).map(|_| stranger(&mut world, "same")).collect();
    world.event(Event::HungUp { conn: waiting[0] });
    world.tags(server);
    world.receive(server, &rows(&[[Some("same"), None]]));
    assert_eq!(
        world.tags(server),
        ASKED,
        "asked anew, for the answer may have changed since, but once for all"
    );
    world.event(Event::HungUp { conn: waiting[1] });
    world.receive(server, &rows(&[]));
    assert_eq!(world.tags(server), "");
    assert!(world.text(waiting[2]).contains("no such user"));
    world.server();
    assert_eq!(world.tags(first), "RSSSSSSKZ");
}

#[test]
fn a_name_that_stays_unknown_is_not_queried_within_the_second() {
    let mut world = world("auth_failure_delay = 0");
    let mut server = None;
    for _ in 0..4 {
        let client = stranger(&mut world, "storm");
        let server = *server.get_or_insert_with(|| world.server());
        assert_eq!(world.tags(server).chars().last(), Some('S'));
        world.receive(server, &rows(&[]));
        assert!(world.text(client).contains("no such user"));
    }
    let server = server.unwrap();
    let client = stranger(&mut world, "storm");
    assert!(world.text(client).contains("no such user"));
    assert_eq!(world.tags(server), "", "remembered");
    world.pass(1_000);
    stranger(&mut world, "storm");
    assert_eq!(world.tags(server), ASKED, "and forgotten");
}

#[test]
fn what_a_client_of_auth_user_left_is_taken_off_first() {
    let mut world = world("default_pool_size = 1");
    let boss = world.client(&[("user", "boss"), ("application_name", "mine")]);
    let server = world.server();
    world.query(boss, "select 1");
    assert_eq!(world.tags(server), "Q", "its application_name is set");
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(server), "Q");
    let client = stranger(&mut world, "x");
    world.answer(server, Status::Idle);
    assert_eq!(world.text(server), discard_all(), "alone: it runs in no transaction block");
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(server), ASKED);
    world.receive(server, &rows(&[]));
    assert!(world.text(client).contains("no such user"));
}

/// DISCARD ALL as a query of its own.
fn discard_all() -> String {
    String::from_utf8(message(|out| encode::query(out, b"DISCARD ALL"))).unwrap()
}

#[test]
fn connect_query_runs_again_after_what_a_client_left_is_taken_off() {
    let mut world = World::new(&format!(
        "{SETTINGS}\ndefault_pool_size = 1\nauth_dbname = c\n[databases]\nc = host=127.0.0.1 port=1 connect_query='set x.y to 1'"
    ));
    let boss = world.client(&[("user", "boss"), ("database", "c")]);
    let server = world.server();
    assert!(world.text(server).contains("set x.y to 1"));
    world.answer(server, Status::Idle);
    world.query(boss, "create temp table users (name text, secret text)");
    let client = stranger(&mut world, "x");
    world.text(server);
    world.answer(server, Status::Idle);
    assert_eq!(world.text(server), discard_all());
    world.answer(server, Status::Idle);
    let again = world.text(server);
    assert!(again.contains("set x.y to 1") && !again.contains("from users"));
    // An error of it is told in the log, as at login, and is no reason to ask nothing.
    world.receive(
        server,
        &message(|out| {
            encode::error(out, "ERROR", "42601", "no such thing");
            encode::ready(out, Status::Idle);
        }),
    );
    assert!(world.log.iter().any(|line| line.contains("no such thing")));
    assert_eq!(world.tags(server), ASKED);
    world.receive(server, &rows(&[]));
    assert!(world.text(client).contains("no such user"));
}

#[test]
fn names_in_the_query_are_looked_up_in_pg_catalog_first_and_among_temporary_objects_last() {
    let mut world = world("");
    stranger(&mut world, "x");
    let server = world.server();
    let asked = world.text(server);
    let [path, question] = ["set_config('search_path'", "from users"].map(|part| asked.find(part).unwrap());
    assert!(path < question);
    assert!(asked[..question].contains("'pg_catalog', "), "first");
    assert!(asked[..question].contains(", 'pg_temp'), true)"), "last, and for this transaction alone");
}

#[test]
fn a_paused_database_runs_no_query_until_it_resumes() {
    let mut world = world("");
    let client = stranger(&mut world, "x");
    let server = world.server();
    world.receive(server, &rows(&[]));
    world.text(client);
    let request = messages::RequestId(1);
    world.event(Event::Command(messages::Command::Pause { request, database: None }));
    assert!(world.closed.contains(&server) || world.tags(server).contains('X'));
    world.event(Event::HungUp { conn: server });
    let client = stranger(&mut world, "y");
    assert!(world.connecting.is_empty());
    world.event(Event::Command(messages::Command::Resume { database: None }));
    let server = world.server();
    assert_eq!(world.tags(server), ASKED);
    world.receive(server, &rows(&[]));
    assert!(world.text(client).contains("no such user"));
}

#[test]
fn waiting_ends_with_query_wait_timeout_or_client_login_timeout() {
    for (settings, text) in [
        ("query_wait_timeout = 3", "query_wait_timeout"),
        ("client_login_timeout = 3", "client_login_timeout"),
    ] {
        let mut world = world(settings);
        let client = stranger(&mut world, "x");
        world.pass(2_000);
        assert_eq!(world.tags(client), "");
        world.pass(1_000);
        assert!(world.text(client).contains(text));
        let server = world.server();
        assert_eq!(world.tags(server), "", "nobody waits any more");
    }
}

// --- between shards ---------------------------------------------------------------------------------------------
const FAR: &str = "auth_dbname = far\n[databases]\nfar = host=127.0.0.1 port=1";

fn letter(world: &mut World) -> ShardMessage {
    world.shard_messages.pop().unwrap()
}

#[test]
fn a_question_goes_to_the_shard_that_has_the_pool() {
    let mut world = world(FAR);
    let client = stranger(&mut world, "x");
    let ShardMessage::RunServerQuery { from, conn, id, query: inquiry } = letter(&mut world) else {
        panic!("no question")
    };
    assert_eq!((from, ConnId(conn)), (ShardId(0), client));
    assert_eq!(
        (&*inquiry.database, &*inquiry.user, &inquiry.values[..]),
        ("far", "boss", &["x".to_owned()][..])
    );
    let answer = |id, rows| {
        Event::ShardMessage(ShardMessage::ServerQueryDone {
            conn,
            id,
            answer: Box::new(ServerQueryResult::Rows(rows)),
        })
    };
    world.event(answer(id + 1, vec![vec![Some(b"x".to_vec()), None]]));
    assert!(world.connecting.is_empty(), "meant for somebody who was here before");
    world.event(answer(id, vec![]));
    assert!(world.text(client).contains("no such user"));
    world.event(answer(id, vec![]));
    assert!(world.shard_messages.is_empty());
}

#[test]
fn a_client_that_leaves_withdraws_its_question_there() {
    let mut world = world(FAR);
    let client = stranger(&mut world, "x");
    let ShardMessage::RunServerQuery { id, .. } = letter(&mut world) else { panic!("no question") };
    world.event(Event::HungUp { conn: client });
    assert!(
        matches!(letter(&mut world), ShardMessage::WithdrawServerQuery { from: ShardId(0), id: same } if same == id)
    );
}

#[test]
fn a_question_from_another_shard_is_answered_there() {
    let mut world = world("");
    let inquiry = |name: &str| {
        let (database, user, sql) = ("d".to_owned(), "boss".to_owned(), "select $1".to_owned());
        Box::new(ServerQuery { database, user, sql, values: vec![name.to_owned()], simple: false })
    };
    let ask = |id, name| ShardMessage::RunServerQuery { from: ShardId(1), conn: 7, id, query: inquiry(name) };
    world.event(Event::ShardMessage(ask(40, "a")));
    world.event(Event::ShardMessage(ask(41, "b")));
    world.event(Event::ShardMessage(ShardMessage::WithdrawServerQuery { from: ShardId(1), id: 40 }));
    let server = world.server();
    assert!(world.text(server).contains("\x01b"));
    world.receive(server, &rows(&[[Some("b"), Some("s")]]));
    let ShardMessage::ServerQueryDone { conn: 7, id: 41, answer } = letter(&mut world) else {
        panic!("no answer")
    };
    assert_eq!(*answer, ServerQueryResult::Rows(vec![vec![Some(b"b".to_vec()), Some(b"s".to_vec())]]));
    assert!(world.shard_messages.is_empty());
}
