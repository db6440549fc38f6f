//! Checkout and release of servers, on a whole shard in memory with a fake clock.

use crate::world::{World, message};
use shard::{ConnId, Event};
use wire::backend::Status;
use wire::encode;

#[test]
fn the_first_client_is_greeted_when_the_pool_has_met_a_server() {
    let mut world = World::new("");
    let client = world.client(&[]);
    assert_eq!(world.tags(client), "", "nothing is known of the server yet");
    world.server();
    assert_eq!(world.tags(client), "RSSSSSSKZ");
    let second = world.client(&[]);
    assert_eq!(world.tags(second), "RSSSSSSKZ", "now it is known");
    assert!(world.connecting.is_empty());
}

#[test]
fn a_transaction_keeps_its_server_and_its_end_gives_it_to_the_one_that_waits() {
    let mut world = World::new("default_pool_size = 1");
    let (first, second) = (world.client(&[]), world.client(&[]));
    let server = world.server();
    world.sent.clear();
    world.query(first, "begin");
    world.query(second, "select 1");
    assert_eq!(world.tags(server), "Q");
    assert_eq!(world.paused, [second], "a waiting client is not read further");
    world.answer(server, Status::InTransaction);
    assert_eq!(world.tags(server), "", "in a transaction: nobody else gets it");
    world.query(first, "commit");
    assert_eq!(world.tags(server), "Q");
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(first), "CZCZ");
    assert_eq!(world.tags(server), "Q", "the second's query, in the same turn");
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(second), "CZ");
    assert!(world.paused.is_empty());
}

#[test]
fn a_server_is_kept_while_replies_are_owed() {
    let mut world = World::new("default_pool_size = 1");
    let (first, second) = (world.client(&[]), world.client(&[]));
    let server = world.server();
    world.sent.clear();
    let two = message(|out| {
        encode::query(out, b"select 1");
        encode::query(out, b"select 2");
    });
    world.receive(first, &two);
    world.query(second, "select 3");
    world.tags(server);
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(server), "", "one more answer is owed");
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(server), "Q");
    assert_eq!(world.tags(first), "CZCZ");
}

#[test]
fn a_client_that_dies_in_a_query_takes_its_server_with_it() {
    let mut world = World::new("default_pool_size = 1");
    let (first, second) = (world.client(&[]), world.client(&[]));
    let server = world.server();
    world.query(first, "select 1");
    world.query(second, "select 2");
    world.event(Event::HungUp { conn: first });
    assert!(world.closed.contains(&server), "never lent again");
    let fresh = world.server();
    assert_eq!(world.tags(fresh), "Q");
}

#[test]
fn half_a_request_is_not_left_on_a_server() {
    let mut world = World::new("default_pool_size = 1");
    let first = world.client(&[]);
    let server = world.server();
    let whole = message(|out| encode::query(out, b"select 1"));
    world.receive(first, &whole[..8]);
    assert_eq!(world.sent.get(&server).map(Vec::len), Some(8), "forwarded as it comes");
    world.event(Event::HungUp { conn: first });
    assert!(world.closed.contains(&server));
}

#[test]
fn a_reply_without_a_request_is_never_passed_on() {
    let mut world = World::new("");
    let client = world.client(&[]);
    let server = world.server();
    world.tags(client);
    world.query(client, "select 1");
    let stray = message(|out| {
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
        encode::command_complete(out, "SELECT 2");
    });
    world.receive(server, &stray);
    assert_eq!(world.tags(client), "CZE", "the stray one became an error");
    assert!(world.closed.contains(&server) && world.closed.contains(&client));
}

#[test]
fn a_dying_server_says_so_once() {
    let mut world = World::new("");
    let client = world.client(&[]);
    let server = world.server();
    world.tags(client);
    world.query(client, "select 1");
    let fatal = message(|out| encode::error(out, "FATAL", "57P01", "terminating connection"));
    world.receive(server, &fatal);
    world.event(Event::HungUp { conn: server });
    assert_eq!(world.tags(client), "E", "its own words, and no second error");
    assert!(world.closed.contains(&client));
}

#[test]
fn parameters_follow_their_client_and_answers_to_that_stay_inside() {
    let mut world = World::new("default_pool_size = 1");
    let (plain, named) = (world.client(&[]), world.client(&[("application_name", "it's")]));
    let server = world.server();
    world.sent.clear();
    world.query(named, "select 1");
    assert!(world.text(server).contains("SET application_name='it''s';"));
    let set = message(|out| {
        encode::command_complete(out, "SET");
        encode::parameter_status(out, b"application_name", b"it's");
        encode::ready(out, Status::Idle);
    });
    world.receive(server, &set);
    assert_eq!(world.tags(server), "Q", "only now the client's own query");
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(named), "CZ");
    world.query(plain, "select 2");
    assert!(world.text(server).contains("SET application_name='';"));
}

#[test]
fn waiting_ends_with_query_wait_timeout() {
    let mut world = World::new("default_pool_size = 1\nquery_wait_timeout = 3\nquery_wait_notify = 0");
    let (first, second) = (world.client(&[]), world.client(&[]));
    world.server();
    world.query(first, "begin");
    world.query(second, "select 1");
    world.tags(second);
    world.pass(2_900);
    assert!(world.closed.is_empty());
    world.pass(400);
    assert_eq!(world.closed, [second]);
    assert!(world.text(second).contains("query_wait_timeout"));
}

#[test]
fn a_permanent_refusal_goes_to_all_waiting_clients() {
    let mut world = World::new("");
    let clients = [world.client(&[]), world.client(&[])];
    let server = world.connecting.remove(0);
    world.event(Event::Connected { conn: server, remote: "127.0.0.1:1".parse().ok(), local: None });
    let refusal = message(|out| encode::error(out, "FATAL", "3D000", "database \"d\" does not exist"));
    world.receive(server, &refusal);
    for client in clients {
        assert!(world.text(client).contains("database \"d\" does not exist"));
    }
    assert!(world.connecting.is_empty(), "not tried again at once");
}

#[test]
fn a_server_that_is_starting_is_waited_for() {
    let mut world = World::new("");
    let client = world.client(&[]);
    let server = world.connecting.remove(0);
    world.event(Event::Connected { conn: server, remote: "127.0.0.1:1".parse().ok(), local: None });
    let refusal = message(|out| encode::error(out, "FATAL", "57P03", "the database system is starting up"));
    world.receive(server, &refusal);
    world.event(Event::HungUp { conn: server });
    assert_eq!(world.tags(client), "");
    world.pass(400);
    world.server();
    assert_eq!(world.tags(client), "RSSSSSSKZ");
}

/// What a client was given to cancel with: its cancel request, ready to be sent.
fn cancel_request_of(world: &mut World, client: ConnId) -> Vec<u8> {
    let greeting = world.sent.remove(&client).unwrap();
    let key = greeting.windows(5).position(|window| window == [b'K', 0, 0, 0, 12]).unwrap() + 5;
    let process_id = u32::from_be_bytes(greeting[key..key + 4].try_into().unwrap());
    message(|out| encode::cancel_request(out, process_id, &greeting[key + 4..key + 8]))
}

#[test]
fn a_cancel_reaches_the_backend_and_holds_its_server_until_it_is_over() {
    let mut world = World::new("default_pool_size = 1");
    let (first, second) = (world.client(&[]), world.client(&[]));
    let server = world.server();
    let request = cancel_request_of(&mut world, first);
    world.query(first, "select pg_sleep(9)");
    world.query(second, "select 2");
    world.tags(server);
    let asker = world.accept();
    world.receive(asker, &request);
    let canceller = world.connecting.remove(0);
    world.event(Event::Connected { conn: canceller, remote: None, local: None });
    let forwarded = world.sent.remove(&canceller).unwrap();
    assert_eq!(forwarded[8..], [0, 0, 0, 77, 1, 2, 3, 4], "the backend's key, not ours");
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(server), "", "the cancel may still arrive: not lent");
    assert!(!world.closed.contains(&asker), "the asker waits for the end");
    world.event(Event::HungUp { conn: canceller });
    assert_eq!(world.tags(server), "Q", "now it is the second's");
    assert!(world.closed.contains(&asker));
}

#[test]
fn the_end_of_a_cancel_for_a_server_that_died_frees_no_other_server() {
    let mut world = World::new("default_pool_size = 1");
    let clients = [world.client(&[]), world.client(&[]), world.client(&[])];
    let died = world.server();
    let requests = [cancel_request_of(&mut world, clients[0]), cancel_request_of(&mut world, clients[1])];
    world.query(clients[0], "select pg_sleep(9)");
    world.query(clients[1], "select pg_sleep(9)");
    let asker = world.accept();
    world.receive(asker, &requests[0]);
    let late = world.connecting.remove(0);
    world.event(Event::Connected { conn: late, remote: None, local: None });
    world.event(Event::HungUp { conn: died });
    world.pass(400);
    let server = world.server();
    assert_eq!(server, died, "its place was taken, or this test shows nothing");
    world.query(clients[2], "select 3");
    let asker = world.accept();
    world.receive(asker, &requests[1]);
    assert!(world.connecting.is_empty(), "as many cancels at once as servers: it waits");
    world.tags(server);
    world.event(Event::HungUp { conn: late });
    let canceller = world.connecting.remove(0);
    world.event(Event::Connected { conn: canceller, remote: None, local: None });
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(server), "", "a cancel is under way to it");
    world.event(Event::HungUp { conn: canceller });
    assert_eq!(world.tags(server), "Q");
}

#[test]
fn a_cancel_whose_server_dies_while_it_waits_for_its_turn_is_dropped() {
    let mut world = World::new("default_pool_size = 1");
    let clients = [world.client(&[]), world.client(&[])];
    let died = world.server();
    let requests = [cancel_request_of(&mut world, clients[0]), cancel_request_of(&mut world, clients[1])];
    world.query(clients[0], "select pg_sleep(9)");
    world.query(clients[1], "select pg_sleep(9)");
    let askers = [world.accept(), world.accept()];
    world.receive(askers[0], &requests[0]);
    let late = world.connecting.remove(0);
    world.receive(askers[1], &requests[0]);
    world.event(Event::HungUp { conn: died });
    world.pass(400);
    let server = world.server();
    assert_eq!(server, died, "its place was taken, or this test shows nothing");
    world.event(Event::HungUp { conn: late });
    assert!(world.connecting.is_empty(), "its query has died with its server");
    assert!(askers.iter().all(|asker| world.closed.contains(asker)));
    let asker = world.accept();
    world.receive(asker, &requests[1]);
    assert_eq!(world.connecting.len(), 1, "the next one gets its turn");
}

#[test]
fn a_cancel_with_a_wrong_secret_does_nothing() {
    let mut world = World::new("");
    let client = world.client(&[]);
    world.server();
    world.query(client, "select 1");
    let asker = world.accept();
    let request = message(|out| encode::cancel_request(out, client.0 + 1, &[0, 0, 0, 0]));
    world.receive(asker, &request);
    assert!(world.connecting.is_empty());
    assert!(world.closed.contains(&asker));
}

#[test]
fn statement_mode_refuses_blocks() {
    let mut world = World::new("");
    let client = world.client(&[]);
    let server = world.server();
    world.query(client, "begin");
    world.answer(server, Status::InTransaction);
    assert!(world.closed.is_empty(), "transaction mode allows them");

    let mut world = World::new("server_check_query =\npool_mode = statement");
    let client = world.client(&[]);
    let server = world.server();
    world.query(client, "begin");
    world.answer(server, Status::InTransaction);
    assert!(world.text(client).contains("transaction blocks not allowed in statement pooling mode"));
    assert!(world.closed.contains(&client));
    let _ = server;
}

#[test]
fn session_mode_keeps_the_server_and_cleans_it_afterwards() {
    let mut world = World::new("pool_mode = session\ndefault_pool_size = 1");
    let (first, second) = (world.client(&[]), world.client(&[]));
    let server = world.server();
    world.query(first, "select 1");
    world.answer(server, Status::Idle);
    world.query(second, "select 2");
    world.tags(server);
    let terminate = message(encode::terminate);
    world.receive(first, &terminate);
    let cleaning = world.text(server);
    assert!(cleaning.contains("DISCARD ALL"), "{cleaning:?} {:?}", world.log);
    world.answer(server, Status::Idle);
    assert_eq!(world.tags(server), "Q", "clean: the second's query");
}

#[test]
fn what_a_server_says_unasked_is_no_answer_wherever_it_is_cut() {
    let notice = message(|out| encode::notice(out, "NOTICE", "00000", "the weather is fine"));
    for cut in 1..notice.len() {
        let mut world = World::new("default_pool_size = 1");
        let client = world.client(&[("application_name", "a")]);
        let server = world.server();
        world.query(client, "select 1");
        let set = message(|out| {
            encode::command_complete(out, "SET");
            encode::parameter_status(out, b"application_name", b"a");
            encode::ready(out, Status::Idle);
        });
        world.sent.clear();
        world.receive(server, &[&set[..], &notice[..cut]].concat());
        assert_eq!(world.tags(server), "Q", "cut at {cut}");
        world.receive(server, &notice[cut..]);
        world.answer(server, Status::Idle);
        assert_eq!(world.tags(client), "NCZ", "cut at {cut}");
        // Now the server is idle, and speaks again: it is not checked out in the middle of that.
        world.receive(server, &notice[..cut]);
        world.query(client, "select 2");
        assert_eq!(world.tags(server), "", "cut at {cut}");
        world.receive(server, &notice[cut..]);
        assert_eq!(world.tags(server), "Q", "cut at {cut}");
        assert!(world.closed.is_empty());
    }
}

#[test]
fn a_notice_that_is_cut_behind_the_answer_keeps_the_server_only_until_it_is_whole() {
    let notice = message(|out| encode::notice(out, "NOTICE", "00000", "the weather is fine"));
    let answer = message(|out| {
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
    });
    for cut in 1..notice.len() {
        let mut world = World::new("default_pool_size = 1");
        let (first, second) = (world.client(&[]), world.client(&[]));
        let server = world.server();
        world.sent.clear();
        world.query(first, "select 1");
        world.query(second, "select 2");
        world.tags(server);
        world.receive(server, &[&answer[..], &notice[..cut]].concat());
        assert_eq!(world.tags(server), "", "cut at {cut}: amidst a message");
        world.receive(server, &notice[cut..]);
        assert_eq!(world.tags(first), "CZN", "cut at {cut}");
        assert_eq!(world.tags(server), "Q", "cut at {cut}: the second's, while the first sleeps");
    }
}

#[test]
fn an_idle_server_that_sends_fatal_is_never_checked_out_again() {
    let mut world = World::new("default_pool_size = 1");
    let client = world.client(&[]);
    let server = world.server();
    world.tags(client);
    let fatal = message(|out| encode::error(out, "FATAL", "57P01", "terminating connection"));
    world.receive(server, &fatal);
    world.event(Event::HungUp { conn: server });
    world.query(client, "select 1");
    let fresh = world.server();
    world.answer(fresh, Status::Idle);
    assert_eq!(world.tags(client), "CZ", "the client noticed nothing");
}

#[test]
fn what_comes_behind_a_login_is_not_lost() {
    let notice = message(|out| encode::notice(out, "NOTICE", "00000", "the weather is fine"));
    for cut in 1..notice.len() {
        let mut world = World::new("");
        let client = world.client(&[]);
        let server = world.server_with(&notice[..cut]);
        world.query(client, "select 1");
        world.sent.clear();
        world.receive(server, &notice[cut..]);
        assert_eq!(world.tags(server), "Q", "cut at {cut}");
        world.answer(server, Status::Idle);
        assert_eq!(world.tags(client), "CZ", "cut at {cut}");
    }
}

#[test]
fn a_server_that_stops_in_the_middle_of_a_notice_gives_its_permit_back() {
    let notice = message(|out| encode::notice(out, "NOTICE", "00000", "the weather is fine"));
    let mut world = World::new("default_pool_size = 1");
    let client = world.client(&[]);
    let server = world.server_with(&notice[..3]);
    world.query(client, "select 1");
    world.pass(16_000);
    assert!(world.closed.contains(&server));
    world.pass(400);
    let fresh = world.server();
    assert!(world.tags(fresh).ends_with('Q'));
}

#[test]
fn a_lifetime_shorter_than_a_login_still_serves_once() {
    let mut world = World::new("server_lifetime = 0.001\ndefault_pool_size = 1");
    let client = world.client(&[]);
    world.query(client, "select 1");
    world.now.mono_us += 10_000;
    let server = world.server();
    assert!(!world.closed.contains(&server));
    assert!(world.tags(server).contains('Q') || !world.sent.contains_key(&client));
}

#[test]
fn a_lifetime_shorter_than_a_login_opens_the_minimum_no_faster_than_idle_servers_are_looked_at() {
    let mut world = World::new("server_lifetime = 0.001\ndefault_pool_size = 2\nmin_pool_size = 1");
    world.client(&[]);
    world.pass(400); // The minimum is opened.
    let mut servers = vec![];
    for _ in 0..300 {
        let opening = (!world.connecting.is_empty()).then(|| world.connected());
        world.pass(10);
        if let Some(server) = opening {
            world.sent.remove(&server);
            world.log_in(server, &[]);
            servers.push(server);
        }
        for server in servers.clone() {
            if world.tags(server).contains('X') {
                world.event(Event::HungUp { conn: server });
            }
        }
    }
    let logins = servers.len();
    assert!((2..=10).contains(&logins), "{logins} logins in three seconds");
    assert!((logins - 1..=logins).contains(&world.closed.len()), "{} of {logins} closed", world.closed.len());
}

#[test]
fn a_server_that_does_not_take_parameters_is_given_up() {
    let mut world = World::new("default_pool_size = 1\nserver_connect_timeout = 2");
    let client = world.client(&[("application_name", "a")]);
    let server = world.server();
    world.query(client, "select 1");
    assert!(world.text(server).contains("SET application_name"));
    world.pass(1_500);
    assert!(world.closed.is_empty());
    world.pass(800);
    assert!(world.closed.contains(&server) && world.closed.contains(&client));
}

#[test]
fn a_server_that_dies_while_it_takes_parameters_is_closed_once() {
    let mut world = World::new("default_pool_size = 1\nserver_connect_timeout = 2");
    let client = world.client(&[("application_name", "a")]);
    let server = world.server();
    world.query(client, "select 1");
    world.is_slow_to_close = true;
    world.event(Event::HungUp { conn: server });
    world.pass(2_500);
    assert_eq!(world.closed, [server, client]);
}

#[test]
fn a_farewell_behind_the_last_answer_is_not_the_clients() {
    let mut world = World::new("default_pool_size = 1");
    let client = world.client(&[]);
    let server = world.server();
    world.tags(client);
    world.query(client, "select 1");
    let answer = message(|out| {
        encode::command_complete(out, "SELECT 1");
        encode::ready(out, Status::Idle);
        encode::error(out, "FATAL", "57P01", "terminating connection");
    });
    world.receive(server, &answer);
    world.event(Event::HungUp { conn: server });
    assert_eq!(world.tags(client), "CZ");
    assert_eq!(world.closed, [server], "the client stays");
    world.query(client, "select 2");
    let fresh = world.server();
    world.answer(fresh, Status::Idle);
    assert_eq!(world.tags(client), "CZ");
}

#[test]
fn a_client_is_told_when_its_next_server_is_something_else() {
    let mut world = World::new("default_pool_size = 2\nserver_check_query =");
    let client = world.client(&[]);
    let server = world.server();
    world.sent.clear();
    // The standby is promoted while no client uses this connection.
    world.receive(server, &message(|out| encode::parameter_status(out, b"in_hot_standby", b"off")));
    world.query(client, "select 1");
    world.answer(server, Status::Idle);
    world.receive(server, &message(|out| encode::parameter_status(out, b"in_hot_standby", b"on")));
    world.sent.clear();
    world.query(client, "select 2");
    assert_eq!(world.tags(client), "S", "told before its answer");
    assert_eq!(world.tags(server), "Q", "and nothing is asked of the server");
    world.answer(server, Status::Idle);
    world.sent.clear();
    world.query(client, "select 3");
    assert_eq!(world.tags(client), "", "once");
}

#[test]
fn a_login_that_meets_no_server_ends_with_client_login_timeout() {
    let mut world = World::new("client_login_timeout = 3");
    let client = world.client(&[]);
    world.pass(2_000);
    assert_eq!(world.tags(client), "");
    world.pass(1_000);
    assert!(world.text(client).contains("client_login_timeout (server down)"));
    assert!(world.closed.contains(&client));
}
