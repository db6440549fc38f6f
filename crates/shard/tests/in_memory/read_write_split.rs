//! `read_write_split`: reads go to pools of the standbys, everything else to the primary's.

use std::sync::Arc;

use crate::world::{OneShard, World, config, message};
use messages::{Command, RequestId};
use pool::PoolRegistry;
use quota::{Instant, Rules};
use settings::Config;
use shard::{ConnId, ConnectFault, Event, Target};
use wire::backend::Status;
use wire::encode;

const CLUSTER: u64 = 7_000;
const READ: &str = "SELECT a FROM t WHERE a = 1";

/// Three hosts, of which the first is the primary, and a client.
struct Split {
    world: World,
    client: ConnId,
    primary: ConnId,
    standbys: [ConnId; 2],
}

fn target(world: &World, conn: ConnId) -> String {
    let Target::Inet { host, .. } = world.targets[&conn].clone() else { panic!("no address") };
    host.to_string()
}

/// The server lets Weir in, as a primary on this timeline or as a standby.
fn logs_in(world: &mut World, conn: ConnId, timeline: Option<u32>) {
    says_hello(world, conn, timeline.is_some());
    says_who_it_is(world, conn, timeline);
    world.follow(conn);
}

/// It lets Weir in, and is asked which cluster it belongs to.
fn says_hello(world: &mut World, conn: ConnId, is_primary: bool) {
    let hello = message(|out| {
        encode::authentication_ok(out);
        encode::parameter_status(out, b"server_version", b"18.0");
        let in_hot_standby = if is_primary { "off" } else { "on" };
        encode::parameter_status(out, b"in_hot_standby", in_hot_standby.as_bytes());
        encode::parameter_status(out, b"default_transaction_read_only", b"off");
        encode::key_data(out, 77, &[1, 2, 3, 4]);
        encode::ready(out, Status::Idle);
    });
    world.sent.remove(&conn);
    world.receive(conn, &hello);
    assert!(world.text(conn).contains("pg_control_system"));
}

/// And it answers that.
fn says_who_it_is(world: &mut World, conn: ConnId, timeline: Option<u32>) {
    let timeline = timeline.map(|timeline| format!("{timeline:08X}"));
    let system = CLUSTER.to_string();
    answers(world, conn, &[&[Some(&system), timeline.as_deref()]]);
}

/// Rows in answer to a query of Weir's own.
fn answers(world: &mut World, conn: ConnId, rows: &[&[Option<&str>]]) {
    world.sent.remove(&conn);
    let answer = message(|out| {
        for row in rows {
            encode::data_row(out, row.iter().map(|cell| cell.map(str::as_bytes)));
        }
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
    });
    world.receive(conn, &answer);
}

/// The connections that are being opened, by their hosts.
fn opened(world: &mut World) -> Vec<(String, ConnId)> {
    let mut found = Vec::new();
    while !world.connecting.is_empty() {
        let conn = world.connected();
        found.push((target(world, conn), conn));
    }
    found.sort();
    found
}

impl Split {
    fn new(more: &str) -> Split {
        Split::with_session_state("off", more)
    }

    fn with_session_state(session_state: &str, more: &str) -> Split {
        Split::of(World::new(&Split::settings(session_state, more)))
    }

    fn settings(session_state: &str, more: &str) -> String {
        format!(
            "session_state = {session_state}\npool_mode = transaction\n[databases]\nd = host=a,b,c read_write_split=1 {more}"
        )
    }

    fn of(mut world: World) -> Split {
        let client = world.client(&[]);
        let primary = opened(&mut world)[0].1;
        logs_in(&mut world, primary, Some(1));
        world.pass(400);
        let standbys = opened(&mut world);
        assert_eq!(standbys.iter().map(|(host, _)| host.as_str()).collect::<Vec<_>>(), ["b", "c"]);
        let standbys = [standbys[0].1, standbys[1].1];
        standbys.iter().for_each(|conn| logs_in(&mut world, *conn, None));
        let mut split = Split { world, client, primary, standbys };
        split.settle();
        split
    }

    /// Answers what Weir asks of its own, with these positions; the answer is what else the servers were sent.
    fn answer(&mut self, primary: u64, standbys: [u64; 2]) -> String {
        let mut others = String::new();
        for _ in 0..8 {
            for (conn, lsn) in
                [(self.primary, primary), (self.standbys[0], standbys[0]), (self.standbys[1], standbys[1])]
            {
                others.push_str(&self.answer_one(conn, lsn));
            }
        }
        others
    }

    /// The same of one server.
    fn answer_one(&mut self, conn: ConnId, lsn: u64) -> String {
        let text = self.world.text(conn);
        let lsn = lsn.to_string();
        if text.contains("pg_rewrite") {
            answers(&mut self.world, conn, &[&[Some("end"), Some("")]]);
        } else if text.contains("pg_last_wal_replay_lsn") {
            let is_standby = if conn == self.primary { "f" } else { "t" };
            answers(&mut self.world, conn, &[&[Some(is_standby), Some(&lsn), Some("1")]]);
        } else if text.contains("pg_my_temp_schema") {
            answers(&mut self.world, conn, &[]); // Nothing is left of the client's in its session.
        } else {
            return text;
        }
        String::new()
    }

    /// The same, also of standbys that are logged in to meanwhile, for some time or until the primary gets something else.
    fn answer_all(&mut self, positions: [u64; 3]) -> String {
        let [primary, standbys @ ..] = positions;
        let mut others = String::new();
        for _ in 0..6 {
            for (host, conn) in opened(&mut self.world) {
                logs_in(&mut self.world, conn, None);
                self.standbys[usize::from(host == "c")] = conn;
            }
            others.push_str(&self.answer(primary, standbys));
            if !others.is_empty() {
                break;
            }
            self.world.pass(100);
        }
        others
    }

    fn settle(&mut self) {
        for _ in 0..5 {
            self.world.pass(400);
            self.answer(100, [100, 100]);
        }
    }

    /// The server that a request goes to.
    fn goes(&mut self, bytes: &[u8]) -> Option<usize> {
        let servers = [self.primary, self.standbys[0], self.standbys[1]];
        servers.iter().for_each(|server| drop(self.world.sent.remove(server)));
        self.world.receive(self.client, bytes);
        servers.iter().position(|server| !self.world.text(*server).is_empty())
    }

    fn query(&mut self, sql: &str) -> Option<usize> {
        self.goes(&message(|out| encode::query(out, sql.as_bytes())))
    }

    fn server(&self, place: usize) -> ConnId {
        [self.primary, self.standbys[0], self.standbys[1]][place]
    }

    /// The client's read is running on b, the only standby that gets reads, which has what it has written; so is another's, on this connection.
    fn reading_its_write() -> (Split, ConnId) {
        let mut split = Split::new("weight=1,1,0 pool_size=2");
        assert_eq!(split.query("UPDATE t SET a = 1"), Some(0));
        split.replies(0, "UPDATE 1", Status::Idle);
        assert_eq!(split.query(READ), Some(0));
        split.replies(0, "SELECT 1", Status::Idle);
        split.world.pass(400);
        split.answer(500, [500, 500]);
        let second = split.reads_on_two();
        (split, second)
    }

    /// A read of the client is running on b, and one of another on a further connection to it.
    fn reads_on_two(&mut self) -> ConnId {
        assert_eq!(self.query(READ), Some(1));
        let second = self.second_read();
        answers(&mut self.world, second, &[&[Some("t"), Some("500"), Some("1")]]);
        second
    }

    /// Another client's read waits for a further connection to b, which is logged in to.
    fn second_read(&mut self) -> ConnId {
        let other = self.world.client(&[]);
        self.world.receive(other, &message(|out| encode::query(out, READ.as_bytes())));
        let (_, second) = opened(&mut self.world).into_iter().find(|(host, _)| host == "b").unwrap();
        logs_in(&mut self.world, second, None);
        second
    }

    /// All standbys are busy with a read, and a further connection to b is being logged in to: as a primary, by what it has reported.
    fn second_login(&mut self) -> ConnId {
        let clients: Vec<ConnId> = (0..4).map(|_| self.world.client(&[])).collect();
        let read = message(|out| encode::query(out, READ.as_bytes()));
        clients.iter().for_each(|client| self.world.receive(*client, &read));
        let (_, second) = opened(&mut self.world).into_iter().find(|(host, _)| host == "b").unwrap();
        says_hello(&mut self.world, second, true);
        second
    }

    /// The connection to the primary ends, and there is another one.
    fn renew_primary(&mut self) {
        self.world.event(Event::HungUp { conn: self.primary });
        self.world.pass(400);
        let again = opened(&mut self.world).into_iter().find(|(host, _)| host == "a").unwrap().1;
        logs_in(&mut self.world, again, Some(1));
        self.primary = again;
    }

    /// Whether a write is sent to the primary of the beginning.
    fn writes_to_the_first(&mut self) -> bool {
        // It serves the reads that have waited for a standby first.
        for _ in 0..8 {
            if self.answer_one(self.primary, 100).contains(READ) {
                self.replies(0, "SELECT 1", Status::Idle);
            }
        }
        self.world.receive(self.client, &message(|out| encode::query(out, b"UPDATE t SET a = 1")));
        self.world.text(self.primary).contains("UPDATE")
    }

    fn replies(&mut self, place: usize, tag: &str, status: Status) {
        let server = self.server(place);
        self.world.sent.remove(&server);
        let reply = message(|out| {
            encode::command_complete(out, tag);
            encode::ready(out, status);
        });
        self.world.receive(server, &reply);
    }
}

#[test]
fn reads_go_to_the_standbys_in_turn_and_writes_to_the_primary() {
    let mut split = Split::new("");
    let mut places = Vec::new();
    for _ in 0..4 {
        let place = split.query(READ).unwrap();
        split.replies(place, "SELECT 1", Status::Idle);
        places.push(place);
    }
    assert!(places == [1, 2, 1, 2] || places == [2, 1, 2, 1], "{places:?}");
    assert_eq!(split.query("UPDATE t SET a = 1"), Some(0));
}

#[test]
fn a_client_reads_its_own_writes() {
    let mut split = Split::new("");
    assert_eq!(split.query("UPDATE t SET a = 1"), Some(0));
    split.replies(0, "UPDATE 1", Status::Idle);
    // No standby is known to have it. The primary is asked how far it is, and then they are.
    assert_eq!(split.query(READ), Some(0));
    split.replies(0, "SELECT 1", Status::Idle);
    split.world.pass(400);
    split.answer(500, [499, 500]);
    for _ in 0..3 {
        assert_eq!(split.query(READ), Some(2), "only the second has it");
        split.replies(2, "SELECT 1", Status::Idle);
    }
}

#[test]
fn what_comes_behind_a_read_is_judged_by_itself() {
    let mut split = Split::new("");
    let both = message(|out| {
        encode::query(out, READ.as_bytes());
        encode::query(out, b"DELETE FROM t");
    });
    let place = split.goes(&both).unwrap();
    let standby = split.server(place);
    assert!(place > 0 && !split.world.text(standby).contains("DELETE"));
    // More of it while the first is under way.
    let more = message(|out| encode::query(out, b"DELETE FROM u"));
    split.world.receive(split.client, &more);
    assert!(!split.world.text(standby).contains("DELETE"));
    split.replies(place, "SELECT 1", Status::Idle);
    let primary = split.primary;
    let sent = split.world.text(primary);
    assert!(sent.contains("DELETE FROM t") && sent.contains("DELETE FROM u"));
    assert!(!split.world.text(standby).contains("DELETE"));
}

#[test]
fn what_comes_behind_a_read_waits_for_it_although_reads_are_split_anew_meanwhile() {
    let mut split = Split::new("");
    let place = split.query(READ).unwrap();
    let standby = split.server(place);
    assert!(place > 0);
    for more in ["target_session_attrs=primary", "read_write_split=1"] {
        let text =
            format!("session_state = off\npool_mode = transaction\n[databases]\nd = host=a,b,c {more}");
        split.world.event(Event::Command(Command::Configure(config(&text))));
    }
    assert_eq!(split.query("DELETE FROM t"), None, "it waits for the answer");
    split.replies(place, "SELECT 1", Status::Idle);
    assert!(!split.world.text(standby).contains("DELETE"));
    let mut sent = String::new();
    for _ in 0..8 {
        for (host, conn) in opened(&mut split.world) {
            let is_primary = host == "a";
            logs_in(&mut split.world, conn, is_primary.then_some(1));
            split.primary = if is_primary { conn } else { split.primary };
        }
        sent.push_str(&split.answer_one(split.primary, 100));
        split.world.pass(100);
    }
    assert!(sent.contains("DELETE FROM t"), "the primary is sent {sent}");
}

#[test]
fn a_transaction_that_only_reads_stays_on_its_standby_to_its_end() {
    let mut split = Split::new("");
    let place = split.query("BEGIN READ ONLY").unwrap();
    assert!(place > 0);
    split.replies(place, "BEGIN", Status::InTransaction);
    assert_eq!(split.query("SELECT mine()"), Some(place));
    split.replies(place, "SELECT 1", Status::InTransaction);
    let rest = message(|out| {
        encode::query(out, b"COMMIT");
        encode::query(out, b"DELETE FROM t");
    });
    assert_eq!(split.goes(&rest), Some(place));
    split.replies(place, "COMMIT", Status::Idle);
    let (primary, standby) = (split.primary, split.server(place));
    assert!(split.world.text(primary).contains("DELETE") && !split.world.text(standby).contains("DELETE"));
}

#[test]
fn what_is_not_whole_or_not_known_goes_to_the_primary() {
    let mut split = Split::new("");
    let extended = |end: &[u8]| {
        message(|out| {
            encode::parse(out, b"", READ.as_bytes(), &[]);
            out.extend_from_slice(b"B\0\0\0\x0c\0\0\0\0\0\0\0\0E\0\0\0\x09\0\0\0\0\0");
            out.extend_from_slice(end);
        })
    };
    let place = split.goes(&extended(b"S\0\0\0\x04"));
    assert!(place > Some(0), "{place:?}");
    let mut split = Split::new("");
    assert_eq!(split.goes(&extended(b"H\0\0\0\x04")), Some(0), "a Flush");
    for text in
        ["SELECT f()", "SELECT 1; SELECT 2", "BEGIN", "SELECT 1 FOR UPDATE", "VACUUM", "FETCH 1 FROM c"]
    {
        let mut split = Split::new("");
        assert_eq!(split.query(text), Some(0), "{text}");
    }
}

#[test]
fn the_hint_decides() {
    let mut split = Split::new("read_after_write=always_primary");
    assert_eq!(split.query(READ), Some(0));
    split.replies(0, "SELECT 1", Status::Idle);
    assert!(split.query("/* weir: standby */ SELECT f()") > Some(0));
    let mut split = Split::new("");
    assert_eq!(split.query("/* weir: primary */ SELECT 1"), Some(0));
}

#[test]
fn reads_that_wait_for_a_standby_that_dies_are_the_primarys() {
    let mut split = Split::new("pool_size=1");
    let busy: Vec<ConnId> = (0..2).map(|_| split.world.client(&[])).collect();
    let read = message(|out| encode::query(out, READ.as_bytes()));
    busy.iter().for_each(|client| split.world.receive(*client, &read));
    assert_eq!(split.goes(&read), None, "both are taken");
    for server in split.standbys {
        split.world.event(Event::HungUp { conn: server });
    }
    for _ in 0..3 {
        split.world.pass(400);
        while !split.world.connecting.is_empty() {
            let conn = split.world.connecting.remove(0);
            split.world.event(Event::ConnectFailed { conn, fault: ConnectFault::Refused("no".into()) });
            split.world.event(Event::Closed { conn });
        }
    }
    assert!(split.answer(100, [100, 100]).contains(READ));
    assert!(!split.world.closed.contains(&split.client));
}

#[test]
fn ddl_makes_reads_unknown_until_the_names_are_asked_for_again() {
    let mut split = Split::new("");
    (0..8).for_each(|_| split.settle());
    assert_eq!(split.query("CREATE VIEW v AS SELECT nextval('s')"), Some(0));
    split.replies(0, "CREATE VIEW", Status::Idle);
    let primary = split.primary;
    assert!(split.world.text(primary).contains("pg_rewrite"), "asked before the next client gets it");
}

#[test]
fn a_client_whose_last_request_read_goes_on_when_reads_are_not_split_any_more() {
    let mut split = Split::new("");
    let place = split.query(READ).unwrap();
    split.replies(place, "SELECT 1", Status::Idle);
    let text = "session_state = off\n[databases]\nd = host=a,b,c target_session_attrs=primary";
    split.world.event(Event::Command(Command::Configure(config(text))));
    assert_eq!(split.query("UPDATE t SET a = 1"), Some(0));
    split.replies(0, "UPDATE 1", Status::Idle);
    assert_eq!(split.query(READ), Some(0));
}

#[test]
fn what_has_waited_for_the_primary_since_before_reads_are_split_counts_as_written() {
    let mut split = Split::new("pool_size=1");
    let [other, first] = [(); 2].map(|()| split.world.client(&[]));
    split.world.query(other, "BEGIN");
    split.replies(0, "BEGIN", Status::InTransaction);
    split.world.query(first, "UPDATE u SET a = 1");
    assert_eq!(split.query("UPDATE t SET a = 1"), None, "it waits");
    for more in ["target_session_attrs=primary", "read_write_split=1"] {
        let text = format!(
            "session_state = off\npool_mode = transaction\n[databases]\nd = host=a,b,c pool_size=1 {more}"
        );
        split.world.event(Event::Command(Command::Configure(config(&text))));
    }
    split.world.query(other, "COMMIT");
    split.replies(0, "COMMIT", Status::Idle);
    let served = split.answer_all([100, 100, 100]);
    assert!(served.contains("UPDATE u"), "{served}");
    split.world.pass(1_500);
    split.replies(0, "UPDATE 1", Status::Idle);
    // The primary is asked how far it is before the next one gets it.
    let served = split.answer_all([100, 100, 100]);
    assert!(served.contains("UPDATE t"), "{served}");
    split.replies(0, "UPDATE 1", Status::Idle);
    split.world.pass(400);
    split.answer_all([500, 100, 100]);
    assert_eq!(split.query(READ), Some(0), "no standby has it");
    split.replies(0, "SELECT 1", Status::Idle);
    split.world.pass(400);
    split.answer_all([500, 100, 500]);
    assert_eq!(split.query(READ), Some(2));
}

/// An entry whose reads see all that its clients have written, configured anew with `more`; another client writes, and leaves.
fn writes_under(split: &mut Split, more: &str) {
    let text = format!("session_state = off\npool_mode = transaction\n[databases]\nd = host=a,b,c {more}");
    split.world.event(Event::Command(Command::Configure(config(&text))));
    let other = split.world.client(&[]);
    split.world.query(other, "UPDATE t SET a = 1");
    let served = split.answer_all([500, 100, 100]);
    assert!(served.contains("UPDATE t"), "{served}");
    split.replies(0, "UPDATE 1", Status::Idle);
    split.world.event(Event::HungUp { conn: other });
    let text = "session_state = off\npool_mode = transaction\n[databases]\nd = host=a,b,c read_write_split=1 read_consistency=database";
    split.world.event(Event::Command(Command::Configure(config(text))));
    split.answer_all([500, 100, 100]);
}

#[test]
fn what_others_wrote_while_that_was_not_counted_is_read_where_reads_see_all_of_it() {
    for more in ["target_session_attrs=primary", "read_write_split=1"] {
        let mut split = Split::new("read_consistency=database");
        writes_under(&mut split, more);
        assert_eq!(split.query(READ), Some(0), "{more}: no standby has it");
        split.replies(0, "SELECT 1", Status::Idle);
        split.answer_all([500, 100, 500]);
        assert_eq!(split.query(READ), Some(2), "{more}");
    }
}

#[test]
fn while_what_a_user_writes_is_not_counted_reads_that_see_all_of_it_are_the_primarys() {
    let mut split = Split::new("read_consistency=database");
    let text = "session_state = off\npool_mode = transaction\n[databases]\nd = host=a,b,c read_write_split=1 read_consistency=database\n\
        [users]\nboss = pool_mode=session";
    split.world.event(Event::Command(Command::Configure(config(text))));
    let place = split.query(READ).unwrap();
    split.replies(place, "SELECT 1", Status::Idle);
    assert!(place > 0);
    let other = split.world.client_of("boss");
    assert_eq!(split.query(READ), Some(0), "it may write");
    split.replies(0, "SELECT 1", Status::Idle);
    split.world.event(Event::HungUp { conn: other });
    split.world.event(Event::Closed { conn: other });
    split.settle();
    assert!(split.query(READ) > Some(0), "what it has written is replayed, and it has left");
}

#[test]
fn one_failed_login_does_not_take_a_standby_out() {
    let mut split = Split::new("pool_size=2");
    let clients: Vec<ConnId> = (0..5).map(|_| split.world.client(&[])).collect();
    let read = message(|out| encode::query(out, READ.as_bytes()));
    clients.iter().for_each(|client| split.world.receive(*client, &read));
    // Each standby has one connection, which is taken; of the next ones none succeeds.
    while !split.world.connecting.is_empty() {
        let conn = split.world.connecting.remove(0);
        split.world.event(Event::ConnectFailed { conn, fault: ConnectFault::Refused("no".into()) });
        split.world.event(Event::Closed { conn });
    }
    for place in [1, 2] {
        split.replies(place, "SELECT 1", Status::Idle);
    }
    split.answer(100, [100, 100]);
    assert!(split.query(READ) > Some(0));
}

/// What a standby says to a read that it does not run.
fn refusal(severity: &str, code: &str) -> Vec<u8> {
    message(|out| {
        out.extend_from_slice(b"T\0\0\0\x06\0\0");
        encode::error(out, severity, code, "no");
    })
}

/// The server has set what its client has set.
fn settings_applied() -> Vec<u8> {
    message(|out| {
        encode::command_complete(out, "SET");
        encode::parameter_status(out, b"application_name", b"a");
        ready(out);
    })
}

fn ready(out: &mut Vec<u8>) {
    encode::ready(out, Status::Idle);
}

#[test]
fn a_read_that_a_standby_refuses_is_run_by_the_primary_and_those_of_its_shape_too() {
    const ODD: &str = "SELECT odd, 1 FROM t WHERE a = count(b)";
    let mut split = Split::new("");
    split.world.sent.remove(&split.client);
    let place = split.query(ODD).unwrap();
    let standby = split.server(place);
    assert!(place > 0);
    let refused = refusal("ERROR", "25006");
    let (front, rest) = refused.split_at(12);
    split.world.receive(standby, front);
    split.world.receive(standby, rest);
    // What the client has sent behind it comes behind it.
    split.world.receive(split.client, &message(|out| encode::query(out, b"DELETE FROM t")));
    split.world.sent.remove(&split.primary);
    split.world.receive(standby, &message(ready));
    let sent = split.world.text(split.primary);
    assert!(sent.contains(ODD) && sent.contains("DELETE"), "{sent}");
    split.replies(0, "SELECT 1", Status::Idle);
    split.replies(0, "DELETE 1", Status::Idle);
    let client = split.client;
    let told = split.world.text(client);
    assert!(told.contains("SELECT 1") && told.contains("DELETE 1") && !told.contains("25006"), "{told}");
    assert!(!split.world.closed.contains(&standby), "it serves others");
    split.client = split.world.client(&[]);
    assert_eq!(split.query(&ODD.replace('1', "2")), Some(0), "remembered");
    split.replies(0, "SELECT 1", Status::Idle);
    split.client = split.world.client(&[]);
    assert!(split.query(READ) > Some(0), "other reads are not concerned");
}

#[test]
fn a_session_that_no_standby_serves_stays_with_the_primary() {
    let mut split = Split::new("");
    let place = split.query(READ).unwrap();
    let standby = split.server(place);
    split.world.receive(standby, &refusal("ERROR", "0A000"));
    split.world.receive(standby, &message(ready));
    split.replies(0, "SELECT 1", Status::Idle);
    for _ in 0..3 {
        assert_eq!(split.query(READ), Some(0));
        split.replies(0, "SELECT 1", Status::Idle);
    }
    let other = split.world.client(&[]);
    split.client = other;
    assert!(split.query(READ) > Some(0), "only its own");
}

#[test]
fn an_error_that_the_primary_would_have_too_is_the_clients() {
    let mut split = Split::new("");
    let place = split.query(READ).unwrap();
    let (standby, client) = (split.server(place), split.client);
    split.world.sent.remove(&client);
    split.world.receive(standby, &refusal("ERROR", "22012"));
    split.world.receive(standby, &message(ready));
    assert!(split.world.text(client).contains("22012"));
    assert!(split.query(READ) > Some(0));
}

#[test]
fn a_read_whose_standby_is_gone_before_the_first_row_is_run_by_the_primary() {
    for begun in
        [Vec::new(), b"T\0\0\0\x06\0\0".to_vec(), refusal("FATAL", "57P01"), refusal("ERROR", "40001")]
    {
        let mut split = Split::new("");
        let place = split.query(READ).unwrap();
        let (standby, client) = (split.server(place), split.client);
        split.world.sent.remove(&client);
        split.world.sent.remove(&split.primary);
        split.world.receive(standby, &begun);
        split.world.event(Event::HungUp { conn: standby });
        assert!(split.world.text(split.primary).contains(READ), "{begun:?}");
        split.replies(0, "SELECT 1", Status::Idle);
        let told = split.world.text(client);
        assert!(told.contains("SELECT 1") && !told.contains("E\0"), "{told:?}");
        assert!(!split.world.closed.contains(&client));
    }
}

#[test]
fn a_write_that_a_standby_has_refused_before_it_was_gone_is_known_to_be_one() {
    let mut split = Split::new("");
    let place = split.query("SELECT count(a) FROM v").unwrap();
    let standby = split.server(place);
    split.world.sent.remove(&split.primary);
    split.world.receive(standby, &refusal("ERROR", "25006"));
    split.world.event(Event::HungUp { conn: standby });
    assert!(place > 0 && split.world.text(split.primary).contains("SELECT count(a) FROM v"));
    split.replies(0, "SELECT 1", Status::Idle);
    assert_eq!(split.query(READ), Some(0), "no standby is known to have what it wrote");
}

#[test]
fn a_write_behind_a_repeated_read_that_a_quota_has_refused_is_known_to_be_one() {
    let registry = Arc::new(OneShard::default());
    let settings = Split::settings("off", "");
    let mut split = Split::of(World::beside(Arc::clone(&registry) as _, &settings));
    let limit = |split: &mut Split, quotas: &str| {
        let quotas = Arc::new(Rules::read(quotas.as_bytes()).unwrap());
        let config = Config { quotas, ..Config::clone(&config(&settings)) };
        split.world.event(Event::Command(Command::Configure(Arc::new(config))));
        let now = Instant { wall_s: 1_700_000_000, mono_us: split.world.now.mono_us };
        registry.with_quotas(&mut |book| _ = book.tick(now));
    };
    limit(&mut split, "user u queries/day hard=2");
    split.client = split.world.client(&[]);
    let place = split.query(READ).unwrap();
    split.replies(place, "SELECT 1", Status::Idle);
    let place = split.query(READ).unwrap();
    let (standby, client) = (split.server(place), split.client);
    limit(&mut split, "user u queries/day hard=1");
    split.world.text(client);
    split.world.receive(standby, &[refusal("ERROR", "40001"), message(ready)].concat());
    assert!(place > 0 && split.world.text(client).contains("C53400"));
    limit(&mut split, "user u queries/day hard=100");
    assert_eq!(split.query("INSERT INTO t VALUES (1)"), Some(0));
    split.replies(0, "INSERT 0 1", Status::Idle);
    assert_eq!(split.query(READ), Some(0), "no standby is known to have it");
}

/// The primary does not run what its client has cancelled, whatever has become of the standby.
#[test]
fn a_read_that_was_cancelled_is_not_repeated() {
    let simple = message(|out| encode::query(out, READ.as_bytes()));
    let behind_close = message(|out| {
        encode::close(out, b'P', b"c");
        encode::parse(out, b"", READ.as_bytes(), &[]);
        encode::bind_simple(out, b"", b"", &[]);
        encode::execute(out, b"", 0);
        encode::sync(out);
    });
    for (request, is_lost) in
        [(&simple, false), (&simple, true), (&behind_close, false), (&behind_close, true)]
    {
        let mut split = Split::new("");
        let place = split.goes(request).unwrap();
        let (standby, client) = (split.server(place), split.client);
        let id = split.world.clients()[0].id;
        split.world.event(Event::Command(Command::CancelClient { request: RequestId(2), id }));
        split.world.sent.clear();
        match is_lost {
            true => split.world.event(Event::HungUp { conn: standby }),
            false => split.world.receive(standby, &[refusal("ERROR", "40001"), message(ready)].concat()),
        }
        let told = split.world.text(client);
        assert!(told.contains("SERROR") && told.contains("C57014"), "lost {is_lost}: {told}");
        assert!(place > 0 && !split.world.text(split.primary).contains(READ), "lost: {is_lost}");
        assert!(split.query("INSERT INTO t VALUES (1)") == Some(0), "it goes on");
    }
}

#[test]
fn a_standby_that_has_crashed_has_nothing_although_other_connections_to_it_seem_to_live() {
    let (mut split, second) = Split::reading_its_write();
    assert!(split.world.text(second).contains(READ));
    split.replies(1, "SELECT 1", Status::Idle);
    let ended = split.standbys[0];
    split.standbys[0] = second;
    split.world.event(Event::HungUp { conn: ended });
    assert_eq!(split.query(READ), Some(0), "it may have been started again, with less than it had");
}

#[test]
fn a_further_connection_to_a_standby_serves_nothing_before_it_has_said_how_far_that_is() {
    // Of the first connection, on which a read runs, it is not known whether it lives.
    for (lsn, serves) in [(500, true), (50, false)] {
        let mut split = Split::new("weight=1,1,0 pool_size=2 read_consistency=database");
        assert_eq!(split.query("UPDATE t SET a = 1"), Some(0));
        split.replies(0, "UPDATE 1", Status::Idle);
        assert_eq!(split.query(READ), Some(0));
        split.replies(0, "SELECT 1", Status::Idle);
        split.world.pass(400);
        split.answer(500, [500, 500]);
        assert_eq!(split.query(READ), Some(1));
        let second = split.second_read();
        assert!(!split.world.text(second).contains(READ), "the host may have less than it had");
        split.world.sent.remove(&split.primary);
        answers(&mut split.world, second, &[&[Some("t"), Some(&lsn.to_string()), Some("1")]]);
        assert_eq!(split.world.text(second).contains(READ), serves);
        assert_eq!(split.world.text(split.primary).contains(READ), !serves);
    }
}

#[test]
fn a_connection_to_a_standby_that_has_said_why_it_ends_says_nothing_of_its_host() {
    let (mut split, second) = Split::reading_its_write();
    let other = split.world.client(&[]);
    // A conflict with what is replayed, behind the first row. Another client waits for a connection.
    split.world.receive(other, &message(|out| encode::query(out, READ.as_bytes())));
    split.world.sent.remove(&split.primary);
    let row = message(|out| encode::data_row(out, [Some(&b"1"[..])]));
    let ended = split.standbys[0];
    split.world.receive(ended, &row);
    split.world.receive(ended, &refusal("FATAL", "57P01"));
    split.world.event(Event::HungUp { conn: ended });
    assert!(!split.world.text(split.primary).contains(READ), "what waits goes on waiting");
    split.standbys[0] = second;
    split.replies(1, "SELECT 1", Status::Idle);
    assert!(split.world.text(second).contains(READ));
}

#[test]
fn a_silent_standby_whose_connections_end_one_by_one_gets_no_reads() {
    let mut split = Split::new("weight=1,1,0 pool_size=2");
    split.reads_on_two();
    split.replies(1, "SELECT 1", Status::Idle);
    // It is asked how far it is, and does not answer; the primary does.
    for _ in 0..8 {
        split.world.pass(400);
        let primary = split.primary;
        (0..3).for_each(|_| drop(split.answer_one(primary, 100)));
    }
    assert_eq!(split.query(READ), Some(0));
    split.replies(0, "SELECT 1", Status::Idle);
    let ended = split.standbys[0];
    split.world.event(Event::HungUp { conn: ended });
    assert_eq!(split.query(READ), Some(0));
}

#[test]
fn half_a_notice_behind_the_settings_of_a_standby_belongs_to_the_answer() {
    let notice = message(|out| encode::notice(out, "NOTICE", "00000", "the weather is fine"));
    let row = message(|out| {
        encode::data_row(out, [Some(&b"1"[..])]);
        encode::command_complete(out, "SELECT 1");
        ready(out);
    });
    let refused = [refusal("ERROR", "40001"), message(ready)].concat();
    for cut in [1, 4, 5, 12, notice.len() - 1] {
        for (answer, told) in [(&row, "NDCZ"), (&refused, "")] {
            let mut split = Split::new("");
            split.client = split.world.client(&[("application_name", "a")]);
            let place = split.query(READ).unwrap();
            let (standby, client) = (split.server(place), split.client);
            split.world.sent.clear();
            split.world.receive(standby, &[&settings_applied(), &notice[..cut]].concat());
            assert!(place > 0 && split.world.text(standby).contains(READ));
            split.world.receive(standby, &[&notice[cut..], answer].concat());
            assert_eq!(split.world.tags(client), told, "cut at {cut}");
            let is_repeated = split.world.text(split.primary).contains("SET application_name");
            assert_eq!(is_repeated, told.is_empty(), "cut at {cut}");
        }
    }
}

#[test]
fn a_read_behind_settings_that_were_sent_with_it_is_repeated_too() {
    let refused = [refusal("ERROR", "40001"), message(ready)].concat();
    let ended = refusal("FATAL", "57P01");
    for answer in [&refused, &ended] {
        let mut split = Split::with_session_state("virtual", "");
        split.client = split.world.client(&[("application_name", "a")]);
        let place = split.query(READ).unwrap();
        let (standby, client) = (split.server(place), split.client);
        split.world.receive(standby, &settings_applied());
        split.replies(place, "SELECT 1", Status::Idle);
        split.answer(100, [100, 100]);
        // The other one has not its settings, which go in front of the request.
        let other = split.query(READ).unwrap();
        let standby = split.server(other);
        split.world.sent.clear();
        split.world.led(standby, 1);
        split.world.receive(standby, answer);
        assert!(other > 0 && other != place && split.world.tags(client).is_empty());
        let asked = split.world.text(split.primary);
        assert!(asked.contains("BEGIN ISOLATION LEVEL READ COMMITTED") && asked.contains(READ), "{asked}");
    }
}

/// A role that was made a moment ago, for example, which the standby does not have yet.
#[test]
fn settings_that_a_standby_refuses_are_the_primarys_and_so_is_the_session() {
    for (is_alone, code) in [(true, "22023"), (false, "22023"), (true, "40001"), (false, "40001")] {
        let refused = [refusal("ERROR", code), message(ready)].concat();
        let mut split = Split::with_session_state("virtual", "");
        split.client = split.world.client(&[("application_name", "a")]);
        let mut place = split.query(READ).unwrap();
        let client = split.client;
        if !is_alone {
            let standby = split.server(place);
            split.world.receive(standby, &settings_applied());
            split.replies(place, "SELECT 1", Status::Idle);
            split.answer(100, [100, 100]);
            place = split.query(READ).unwrap();
        }
        let standby = split.server(place);
        split.world.sent.clear();
        split.world.receive(standby, &refused);
        assert!(place > 0 && split.world.tags(client).is_empty() && !split.world.closed.contains(&client));
        assert!(split.world.closed.contains(&standby), "some of the settings may be in force there");
        let asked = split.world.text(split.primary);
        assert!(asked.contains("application_name"), "{asked}");
        if is_alone {
            split.world.receive(split.primary, &settings_applied());
            assert!(split.world.text(split.primary).contains(READ));
        } else {
            split.world.led(split.primary, 1);
            assert!(asked.contains(READ), "{asked}");
        }
        split.replies(0, "SELECT 1", Status::Idle);
        split.settle();
        assert_eq!(split.query(READ) == Some(0), code != "40001", "the primary serves the session");
    }
}

/// The primary could not run it if the standby refused the settings: its client may know by then what the standby has prepared.
#[test]
fn settings_do_not_go_in_front_of_what_cannot_be_repeated() {
    let mut split = Split::with_session_state("virtual", "");
    split.client = split.world.client(&[("application_name", "a")]);
    let place = split.query(READ).unwrap();
    split.world.receive(split.server(place), &settings_applied());
    split.replies(place, "SELECT 1", Status::Idle);
    split.answer(100, [100, 100]);
    split.world.sent.clear();
    split.world.receive(
        split.client,
        &message(|out| {
            encode::parse(out, b"s", READ.as_bytes(), &[]);
            encode::bind_simple(out, b"", b"s", &[]);
            encode::execute(out, b"", 0);
            encode::sync(out);
        }),
    );
    let other = 3 - place;
    let standby = split.server(other);
    let asked = split.world.text(standby);
    assert!(asked.contains("application_name") && !asked.contains(READ), "{asked}");
    split.world.receive(standby, &[refusal("ERROR", "22023"), message(ready)].concat());
    assert!(!split.world.closed.contains(&split.client) && split.world.closed.contains(&standby));
    let asked = split.world.text(split.primary);
    assert!(asked.contains("application_name") && asked.contains(READ), "{asked}");
}

#[test]
fn a_transaction_of_a_session_that_is_serializable_is_the_primarys() {
    let mut split = Split::with_session_state("virtual", "");
    split.client = split.world.client(&[("default_transaction_isolation", "Serializable")]);
    assert_eq!(split.query("BEGIN READ ONLY"), Some(0));
}

#[test]
fn a_read_whose_standby_is_gone_behind_the_first_row_is_not_repeated() {
    let mut split = Split::new("");
    let place = split.query(READ).unwrap();
    let (standby, client) = (split.server(place), split.client);
    split.world.sent.remove(&split.primary);
    split.world.receive(standby, &message(|out| encode::data_row(out, [Some(&b"1"[..])])));
    split.world.event(Event::HungUp { conn: standby });
    assert!(!split.world.text(split.primary).contains(READ));
    assert!(split.world.closed.contains(&client));
}

#[test]
fn what_a_comment_has_sent_to_a_standby_and_what_prepares_a_statement_is_not_repeated() {
    let named = message(|out| {
        encode::parse(out, b"s", READ.as_bytes(), &[]);
        encode::bind_simple(out, b"", b"s", &[]);
        encode::execute(out, b"", 0);
        encode::sync(out);
    });
    let hinted = message(|out| encode::query(out, b"/* weir: standby */ SELECT f()"));
    for request in [named, hinted] {
        let mut split = Split::new("");
        let place = split.goes(&request).unwrap();
        let (standby, client) = (split.server(place), split.client);
        split.world.sent.remove(&client);
        split.world.receive(standby, &message(|out| encode::error(out, "ERROR", "25006", "no")));
        assert!(split.world.text(client).contains("25006"));
    }
}

#[test]
fn a_transaction_on_a_standby_is_repeated_only_as_a_whole() {
    let mut split = Split::new("");
    let place = split.query("BEGIN READ ONLY").unwrap();
    let (standby, client) = (split.server(place), split.client);
    split.replies(place, "BEGIN", Status::InTransaction);
    assert_eq!(split.query(READ), Some(place));
    split.world.sent.remove(&client);
    split.world.receive(standby, &refusal("ERROR", "40001"));
    assert!(split.world.text(client).contains("40001"));
    let mut split = Split::new("");
    let place = split.query("BEGIN READ ONLY").unwrap();
    let standby = split.server(place);
    split.world.sent.remove(&split.primary);
    split.world.event(Event::HungUp { conn: standby });
    assert!(split.world.text(split.primary).contains("BEGIN READ ONLY"));
}

#[test]
fn the_primary_is_left_as_soon_as_one_of_a_newer_timeline_is_found_among_the_standbys() {
    let mut split = Split::new("");
    split.world.event(Event::HungUp { conn: split.standbys[0] });
    split.world.pass(400);
    let promoted = opened(&mut split.world)[0].1;
    logs_in(&mut split.world, promoted, Some(2));
    split.answer(100, [100, 100]);
    let (client, primary) = (split.client, split.primary);
    split.world.receive(client, &message(|out| encode::query(out, b"UPDATE t SET a = 1")));
    assert!(!split.world.text(primary).contains("UPDATE"));
}

/// The standbys, of which no one knows which timeline they follow, say how far they are, as often as they are asked; whether they were.
fn standbys_say(split: &mut Split) -> bool {
    let mut were_asked = false;
    for conn in split.standbys {
        if split.world.text(conn).contains("pg_last_wal_replay_lsn") {
            answers(&mut split.world, conn, &[&[Some("t"), Some("100"), None]]);
            were_asked = true;
        }
    }
    were_asked
}

#[test]
fn standbys_say_again_that_they_are_such_when_a_primary_on_a_newer_timeline_was_found() {
    let mut split = Split::new("");
    for conn in split.standbys {
        split.world.event(Event::HungUp { conn });
    }
    split.world.pass(400);
    for (host, conn) in opened(&mut split.world) {
        logs_in(&mut split.world, conn, None);
        split.standbys[usize::from(host == "c")] = conn;
    }
    while standbys_say(&mut split) {}
    let place = split.query(READ).unwrap();
    assert!(place > 0, "a client that has written nothing may read there");
    split.replies(place, "SELECT 1", Status::Idle);
    while standbys_say(&mut split) {}
    split.world.event(Event::HungUp { conn: split.primary });
    split.world.pass(400);
    let again = opened(&mut split.world).into_iter().find(|(host, _)| host == "a").unwrap().1;
    logs_in(&mut split.world, again, Some(2));
    split.primary = again;
    for _ in 0..4 {
        split.answer_one(again, 100);
    }
    assert_eq!(split.query(READ), Some(0), "each of the others may be a primary between the two");
    split.replies(0, "SELECT 1", Status::Idle);
    split.world.pass(400);
    while standbys_say(&mut split) {}
    assert!(split.query(READ).unwrap() > 0);
}

#[test]
fn a_login_to_a_promoted_standby_tells_of_the_newer_timeline_although_another_has_found_it_promoted() {
    let mut split = Split::new("pool_size=2");
    let second = split.second_login();
    // The first connection to it says so at its next question, and all of them are to be closed.
    (0..2).for_each(|_| split.replies(1, "SELECT 1", Status::Idle));
    split.world.sent.remove(&split.standbys[0]);
    split.world.pass(1_500);
    assert!(split.world.text(split.standbys[0]).contains("pg_last_wal_replay_lsn"));
    answers(&mut split.world, split.standbys[0], &[&[Some("f"), Some("100"), None]]);
    assert!(split.world.tags(split.standbys[0]).contains('X'));
    says_who_it_is(&mut split.world, second, Some(2));
    assert!(!split.writes_to_the_first());
}

fn detach(split: &mut Split, host: &str) {
    let (request, database, host) = (RequestId(1), "d".to_owned(), host.to_owned());
    split.world.event(Event::Command(Command::Detach { request, database, host, detached: true }));
}

#[test]
fn a_login_to_a_host_that_is_detached_meanwhile_tells_of_a_newer_timeline_all_the_same() {
    let mut split = Split::new("pool_size=2");
    let second = split.second_login();
    detach(&mut split, "b:5432");
    says_who_it_is(&mut split.world, second, Some(2));
    assert!(!split.writes_to_the_first());
}

#[test]
fn a_login_that_a_reload_makes_obsolete_tells_of_a_newer_timeline_all_the_same() {
    let mut split = Split::new("pool_size=2");
    let second = split.second_login();
    // The same hosts: it is the same cluster.
    let text = "session_state = off\npool_mode = transaction\n[databases]\nd = host=a,b,c pool_size=2 target_session_attrs=primary";
    split.world.event(Event::Command(Command::Configure(config(text))));
    split.renew_primary();
    says_who_it_is(&mut split.world, second, Some(2));
    assert!(!split.writes_to_the_first());
}

#[test]
fn a_login_from_before_reconnect_tells_nothing_of_the_cluster_whatever_happens_to_its_host() {
    let mut split = Split::new("pool_size=2");
    let second = split.second_login();
    split.world.event(Event::Command(Command::Reconnect { database: None }));
    detach(&mut split, "b:5432");
    // The primary of the beginning is what is meant by the entry from here on.
    split.renew_primary();
    says_who_it_is(&mut split.world, second, Some(2));
    assert!(split.writes_to_the_first());
}

#[test]
fn pools_for_reads_stay_such_when_their_entry_is_gone_for_a_while() {
    let mut split = Split::new("");
    let entry = "d = host=a,b,c read_write_split=1";
    for text in ["", entry, "", entry] {
        let text = format!("session_state = off\npool_mode = transaction\n[databases]\n{text}");
        split.world.event(Event::Command(Command::Configure(config(&text))));
    }
    assert_eq!(split.world.shard.pools().filter(|pool| pool.host.is_none()).count(), 1);
    assert!(split.world.shard.pools().count() <= 1 + 3 * 3);
}

#[test]
fn a_process_that_is_taken_over_opens_nothing_to_keep_it() {
    let mut split = Split::new("");
    split.world.event(Event::Command(Command::Pause { request: RequestId(1), database: None }));
    for server in [split.primary, split.standbys[0], split.standbys[1]] {
        split.world.event(Event::HungUp { conn: server });
    }
    for command in [Command::Export { round: 1 }, Command::Resume { database: None }] {
        split.world.event(Event::Command(command));
    }
    assert!(split.world.connecting.is_empty());
}

#[test]
fn a_read_that_its_standby_has_not_run_is_not_refused_for_overload() {
    let mut split = Split::new("pool_size=1 queue_limit=1");
    let others: Vec<ConnId> = (0..3).map(|_| split.world.client(&[])).collect();
    let place = split.query(READ).unwrap();
    let write = message(|out| encode::query(out, b"UPDATE t SET a = 1"));
    others.iter().for_each(|client| drop(split.world.sent.remove(client)));
    others[..2].iter().for_each(|client| split.world.receive(*client, &write));
    let lost = split.server(place);
    split.world.sent.remove(&split.client);
    split.world.event(Event::HungUp { conn: lost });
    assert_eq!(split.world.text(split.client), "", "it is one more than may wait");
    split.world.receive(others[2], &write);
    assert!(split.world.text(others[2]).contains("queue_limit"));
    let primary = split.primary;
    for next in ["UPDATE", READ] {
        split.replies(0, "UPDATE 1", Status::Idle);
        let sent: String = (0..4).map(|_| split.answer_one(primary, 100)).collect();
        assert!(sent.contains(next), "{sent}");
    }
}
