//! What clients wait for: how their waits are told apart, and what the log says of slow queries.

use crate::world::{World, message};
use messages::{Command, Listing, Report, RequestId, ServerWaitSample, SocketRow, Subject};
use shard::{ConnId, Event};
use telemetry::{ServerWait, ServerWaits, Wait, Waits};
use wire::backend::Status;
use wire::encode;

const MILLISECOND: u64 = 1_000;

fn listed(world: &mut World, subject: Subject) -> Listing {
    world.event(Event::Command(Command::List { request: RequestId(1), subject }));
    match world.reports.pop().unwrap() {
        Report::Listing { rows, .. } => rows,
        other => panic!("{other:?}"),
    }
}

/// What the clients of the pool have waited for.
fn of_pool(world: &mut World) -> Waits {
    match listed(world, Subject::Histograms) {
        Listing::Histograms(rows) => rows[0].histograms.waits,
        other => panic!("{other:?}"),
    }
}

fn of_client(world: &mut World, place: usize) -> SocketRow {
    match listed(world, Subject::Clients) {
        Listing::Sockets(rows) => rows[place].clone(),
        other => panic!("{other:?}"),
    }
}

/// Time goes by, less than from one tick to the next.
fn pass(world: &mut World, milliseconds: u64) {
    world.now.mono_us += milliseconds * MILLISECOND;
    world.now.wall_us += milliseconds * MILLISECOND;
}

fn slow(world: &World) -> Vec<&str> {
    world.log.iter().filter_map(|line| line.find("slow query").map(|at| &line[at..])).collect()
}

#[test]
fn a_wait_ends_in_the_opening_of_its_server_or_in_anothers_turn() {
    let mut world = World::new("default_pool_size = 2\ntrack_queries = 1");
    let first = world.client(&[]);
    pass(&mut world, 30);
    let server = world.server();
    let second = world.client(&[]);
    world.query(first, "select 1");
    pass(&mut world, 5);
    world.query(second, "select 2"); // A second server is opened for it.
    pass(&mut world, 70);
    let other = world.server();
    world.answer(other, Status::Idle);
    world.query(second, "select 3");
    let third = world.client(&[]);
    world.query(third, "select 4"); // Both are taken.
    pass(&mut world, 11);
    world.answer(server, Status::Idle);
    world.answer(server, Status::Idle);
    let waits = of_pool(&mut world);
    assert_eq!((waits.count(Wait::Login), waits.us(Wait::Login)), (3, 30 * MILLISECOND));
    assert_eq!((waits.count(Wait::Connect), waits.us(Wait::Connect)), (1, 70 * MILLISECOND));
    assert_eq!((waits.count(Wait::Queue), waits.us(Wait::Queue)), (1, 11 * MILLISECOND));
    assert_eq!(of_client(&mut world, 0).login_us, 30 * MILLISECOND);
    let waited = [1, 2].map(|place| of_client(&mut world, place).waits.unwrap());
    assert_eq!(waited.map(|waits| waits.us(Wait::Connect)), [70 * MILLISECOND, 0]);
    assert_eq!(waited.map(|waits| waits.us(Wait::Queue)), [0, 11 * MILLISECOND]);
}

#[test]
fn a_connection_that_began_before_its_client_came_counts_from_when_that_came() {
    let mut world = World::new("default_pool_size = 1");
    let first = world.client(&[]);
    let server = world.server();
    world.event(Event::HungUp { conn: server });
    world.query(first, "select 1");
    pass(&mut world, 50);
    let second = world.client(&[]);
    world.query(second, "select 2");
    pass(&mut world, 20);
    let server = world.server();
    world.answer(server, Status::Idle);
    world.answer(server, Status::Idle);
    let waits = of_pool(&mut world);
    assert_eq!((waits.count(Wait::Connect), waits.us(Wait::Connect)), (1, 70 * MILLISECOND));
    assert_eq!(
        (waits.count(Wait::Queue), waits.us(Wait::Queue)),
        (1, 20 * MILLISECOND),
        "the server was another's"
    );
    assert_eq!(of_client(&mut world, 0).waits, None, "nothing is tracked");
}

#[test]
fn settings_and_slow_readers_are_waits_of_their_own() {
    let mut world = World::new("default_pool_size = 1\nlog_slow_queries = 0.05\nlog_connections = 0");
    let plain = world.client(&[]);
    let server = world.server();
    world.query(plain, "select 1");
    world.answer(server, Status::Idle);
    let other = world.client(&[("application_name", "other")]);
    world.sent.clear();
    world.query(other, "select 2");
    assert!(world.text(server).contains("SET application_name"));
    pass(&mut world, 15);
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(server), "Q");
    world.event(Event::SendBufferFull { conn: other });
    world.event(Event::SendBufferFull { conn: other });
    pass(&mut world, 40);
    world.event(Event::SendBufferEmpty { conn: other });
    pass(&mut world, 1);
    world.answer(server, Status::Idle);
    let waits = of_pool(&mut world);
    assert_eq!((waits.count(Wait::Settings), waits.us(Wait::Settings)), (1, 15 * MILLISECOND));
    assert_eq!((waits.count(Wait::Reader), waits.us(Wait::Reader)), (1, 40 * MILLISECOND));
    assert_eq!(slow(&world), ["slow query: 56.0 ms (server 1.0, settings 15.0, reader 40.0): select ?"]);
}

#[test]
fn the_check_of_a_connection_that_is_there_is_not_its_opening() {
    let mut world =
        World::new("default_pool_size = 1\nserver_check_query = select 9\nserver_check_delay = 0");
    let client = world.client(&[]);
    pass(&mut world, 30);
    let server = world.server();
    pass(&mut world, 10);
    world.query(client, "select 1");
    pass(&mut world, 20);
    world.answer(server, Status::Idle);
    world.answer(server, Status::Idle);
    let waits = of_pool(&mut world);
    assert_eq!((waits.us(Wait::Connect), waits.us(Wait::Queue)), (0, 20 * MILLISECOND));
}

#[test]
fn a_slow_query_says_where_its_time_went() {
    let mut world = World::new("default_pool_size = 1\nlog_slow_queries = 0.1");
    let (holder, late) = (world.client(&[]), world.client(&[]));
    let server = world.server();
    world.query(holder, "select 'secret'");
    world.query(late, "select 7 from t");
    pass(&mut world, 60);
    world.answer(server, Status::Idle);
    assert!(slow(&world).is_empty(), "60 ms are not slow");
    pass(&mut world, 45);
    world.answer(server, Status::Idle);
    assert_eq!(slow(&world), ["slow query: 105.0 ms (server 45.0, queue 60.0): select ? from t"]);
    world.query(late, "select 8 from t");
    pass(&mut world, 99);
    world.answer(server, Status::Idle);
    assert_eq!(slow(&world).len(), 1, "the wait was the other one's");
    world.query(late, "begin");
    world.answer(server, Status::InTransaction);
    pass(&mut world, 300);
    world.query(late, "commit");
    pass(&mut world, 100);
    world.answer(server, Status::Idle);
    assert_eq!(slow(&world)[1], "slow query: 100.0 ms (server 100.0): commit");
}

fn configured(world: &mut World, settings: &str) {
    world.event(Event::Command(Command::Configure(crate::world::config(settings))));
}

#[test]
fn the_log_of_slow_queries_begins_and_ends_by_reload() {
    let mut world = World::new("default_pool_size = 1");
    let client: ConnId = world.client(&[]);
    let server = world.server();
    let ask = |world: &mut World| {
        world.query(client, "select 1");
        pass(world, 20);
        world.answer(server, Status::Idle);
    };
    ask(&mut world);
    configured(&mut world, "default_pool_size = 1\nlog_slow_queries = 0.02");
    ask(&mut world);
    assert_eq!(slow(&world).len(), 1);
    configured(&mut world, "default_pool_size = 1");
    ask(&mut world);
    assert_eq!(slow(&world).len(), 1);
}

const TRACE: &str = "traceparent='00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'";

fn spans(world: &mut World) -> Vec<messages::SpanRow> {
    match listed(world, Subject::Spans) {
        Listing::Spans(rows) => rows,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_of_a_sampled_trace_is_a_span() {
    let mut world = World::new("default_pool_size = 1\notlp_traces = 1");
    let (holder, late) = (world.client(&[]), world.client(&[]));
    let server = world.server();
    world.query(holder, "select 1");
    world.query(late, &format!("select 7 from t /*{TRACE}*/"));
    pass(&mut world, 60);
    world.answer(server, Status::Idle);
    pass(&mut world, 40);
    let refused = message(|out| {
        encode::error(out, "ERROR", "42P01", "no table");
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &refused);
    // In a pipeline each request has its own; one that is not sampled has none.
    let several = message(|out| {
        encode::parse(out, b"", format!("select 8 /*{TRACE}*/").as_bytes(), &[]);
        encode::bind_simple(out, b"", b"", &[]);
        encode::execute(out, b"", 0);
        encode::sync(out);
        encode::query(out, b"select 9");
        encode::query(out, format!("select 10 /*{}*/", TRACE.replace("-01'", "-00'")).as_bytes());
    });
    world.receive(late, &several);
    world.receive(
        server,
        &message(|out| {
            encode::parse_complete(out);
            encode::bind_complete(out);
            encode::command_complete(out, "SELECT 1");
            encode::ready(out, Status::Idle);
        }),
    );
    world.answer(server, Status::Idle);
    world.answer(server, Status::Idle);
    let found = spans(&mut world);
    assert_eq!(found.iter().map(|row| row.number).collect::<Vec<_>>(), [0, 1]);
    let first = &found[0].span;
    assert_eq!((first.trace_id[0], first.parent_id[0], first.failed), (0x0a, 0xb7, true));
    assert_eq!((first.took_us, first.waits.us(Wait::Queue)), (100 * MILLISECOND, 60 * MILLISECOND));
    assert_eq!(first.shape.as_ref().unwrap().text, "select ? from t");
    assert_eq!((&*first.database, &*first.user, first.end_us), ("d", "u", world.now.wall_us));
    assert!(!found[1].span.failed);
    assert_eq!(found[1].span.shape.as_ref().unwrap().text, "select ?");
    configured(&mut world, "default_pool_size = 1\ntrack_queries = 1");
    world.query(late, &format!("select 7 /*{TRACE}*/"));
    world.answer(server, Status::Idle);
    assert_eq!(spans(&mut world).len(), 2, "none is kept any more");
}

/// Backends of a server at this place were found waiting, for the first time since so many milliseconds.
fn sampled(world: &mut World, port: u16, milliseconds: u64, backends: &[(u32, ServerWait)]) {
    world.event(Event::Command(Command::ServerWaits(ServerWaitSample {
        host: "127.0.0.1".into(),
        port,
        address: "127.0.0.1".parse().ok(),
        us: milliseconds * MILLISECOND,
        backends: backends.into(),
    })));
}

fn server_waits(world: &mut World) -> ServerWaits {
    match listed(world, Subject::Histograms) {
        Listing::Histograms(rows) => rows[0].histograms.server_waits,
        other => panic!("{other:?}"),
    }
}

/// The backend of every server of these tests is 77.
const LOCKED: [(u32, ServerWait); 2] = [(76, ServerWait::Io), (77, ServerWait::Lock)];

#[test]
fn a_sample_counts_for_the_request_that_the_backend_runs() {
    let mut world = World::new("default_pool_size = 1\nlog_slow_queries = 0.1");
    let (first, _) = (world.client(&[]), world.client(&[]));
    let server = world.server();
    sampled(&mut world, 1, 1_000, &LOCKED);
    world.query(first, "begin");
    world.answer(server, Status::InTransaction);
    sampled(&mut world, 1, 1_000, &LOCKED);
    assert_eq!(server_waits(&mut world).count(ServerWait::Lock), 0, "no query runs");
    world.query(first, "select 1");
    pass(&mut world, 300);
    sampled(&mut world, 2, 1_000, &LOCKED);
    sampled(&mut world, 1, 1_000, &[(76, ServerWait::Lock), (78, ServerWait::Lock)]);
    assert_eq!(server_waits(&mut world).count(ServerWait::Lock), 0, "others wait");
    sampled(&mut world, 1, 1_000, &LOCKED);
    pass(&mut world, 100);
    sampled(&mut world, 1, 100, &[(77, ServerWait::Other)]);
    world.answer(server, Status::Idle);
    let waits = server_waits(&mut world);
    assert_eq!(
        (waits.count(ServerWait::Lock), waits.us(ServerWait::Lock)),
        (1, 300 * MILLISECOND),
        "not longer than the query has been running"
    );
    assert_eq!((waits.us(ServerWait::Other), waits.us(ServerWait::Io)), (100 * MILLISECOND, 0));
    assert_eq!(of_client(&mut world, 0).server_waits, Some(waits));
    assert_eq!(of_client(&mut world, 1).server_waits, None);
    assert_eq!(slow(&world), ["slow query: 400.0 ms (server 400.0 [lock 300.0, other 100.0]): select ?"]);
    let Listing::Queries(rows) = listed(&mut world, Subject::Queries) else { panic!("no queries") };
    let of = |text: &str| rows.iter().find(|row| row.shape.text == text).unwrap().figures.server_waits;
    assert_eq!((of("select ?"), of("begin")), (waits, ServerWaits::default()));
    sampled(&mut world, 1, 1_000, &LOCKED);
    assert_eq!(server_waits(&mut world), waits, "the server is idle");
}

#[test]
fn without_tracking_a_sample_counts_for_the_pool_alone() {
    let mut world = World::new("default_pool_size = 1");
    let client = world.client(&[]);
    let server = world.server();
    world.query(client, "select 1");
    pass(&mut world, 50);
    sampled(&mut world, 1, 20, &LOCKED);
    world.answer(server, Status::Idle);
    assert_eq!(server_waits(&mut world).us(ServerWait::Lock), 20 * MILLISECOND);
    assert_eq!(of_client(&mut world, 0).server_waits, None);
}
