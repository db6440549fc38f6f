//! `connection_sharing`: how pools of one database share its server connections.

use std::sync::Arc;

use crate::world::{OneShard, World, config};
use messages::{Command, LimitOf, ShardId, ShardMessage};
use pool::{Budget, PoolRegistry};
use shard::{ConnId, Event};
use wire::backend::Status;

/// A shard whose pools `u` and `v` share the connections of a database.
struct Shared {
    world: World,
    /// Servers that are open, each with what it answers next.
    servers: Vec<ConnId>,
    registry: Arc<OneShard>,
}

impl Shared {
    fn new(settings: &str) -> Shared {
        Shared::among(1, settings)
    }

    fn among(shards: u16, settings: &str) -> Shared {
        Shared::on(ShardId(0), Arc::new(OneShard::among(shards)), settings)
    }

    fn on(id: ShardId, registry: Arc<OneShard>, settings: &str) -> Shared {
        let world = World::on(id, Arc::clone(&registry), settings);
        Shared { world, servers: vec![], registry }
    }

    /// So many clients of a user, each of which asks at once.
    fn ask(&mut self, user: &str, clients: usize) -> Vec<ConnId> {
        let clients: Vec<ConnId> = (0..clients).map(|_| self.world.client(&[("user", user)])).collect();
        self.connect();
        for client in &clients {
            self.world.query(*client, "select 1");
            self.connect();
        }
        clients
    }

    /// Connections that are asked for are made, and sockets that Weir ends are gone.
    fn connect(&mut self) {
        while !self.world.connecting.is_empty() {
            let server = self.world.server();
            self.servers.push(server);
        }
        let left: Vec<ConnId> =
            self.servers.iter().copied().filter(|server| self.is_told_to_end(*server)).collect();
        for server in left {
            self.servers.retain(|other| *other != server);
            self.world.event(Event::HungUp { conn: server });
            self.connect();
        }
        assert_eq!(self.world.shard.audit().contradiction, None);
    }

    fn is_told_to_end(&self, server: ConnId) -> bool {
        self.world.sent.get(&server).is_some_and(|sent| sent.ends_with(b"X\0\0\0\x04"))
    }

    /// Every server answers what it has been asked, and its client asks again.
    fn turn(&mut self, milliseconds: u64) {
        for server in self.servers.clone() {
            if self
                .world
                .sent
                .remove(&server)
                .is_some_and(|sent| sent.windows(6).any(|part| part == b"select"))
            {
                self.world.answer(server, Status::Idle);
                self.connect();
            }
        }
        let waiting: Vec<ConnId> = self.answered();
        for client in waiting {
            self.world.query(client, "select 1");
            self.connect();
        }
        self.world.pass(milliseconds);
        self.connect();
    }

    /// Clients that have had their answers.
    fn answered(&mut self) -> Vec<ConnId> {
        let has_ready = |sent: &[u8]| sent.ends_with(b"Z\0\0\0\x05I") && sent.contains(&b'C');
        let ids: Vec<ConnId> =
            self.world.sent.iter().filter(|(_, sent)| has_ready(sent)).map(|(conn, _)| *conn).collect();
        let clients = ids.into_iter().filter(|conn| !self.servers.contains(conn));
        let clients: Vec<ConnId> = clients.collect();
        clients.iter().for_each(|client| {
            self.world.sent.remove(client);
        });
        clients
    }

    fn held(&self, user: &str) -> u32 {
        self.registry.pool("d", user).servers.taken()
    }

    fn both(&self) -> (u32, u32) {
        let both = (self.held("u"), self.held("v"));
        assert!(both.0 + both.1 <= 10, "{both:?}");
        both
    }

    /// Turns until the two pools have so many; how many that took.
    fn turns_until(&mut self, both: (u32, u32)) -> usize {
        for turn in 0..60 {
            if self.both() == both {
                return turn;
            }
            self.turn(340);
        }
        panic!("{:?} and not {both:?}", self.both());
    }
}

fn settings(sharing: &str, more: &str) -> String {
    format!("default_pool_size = 20\nmax_db_connections = 10\nconnection_sharing = {sharing}\n{more}")
}

#[test]
fn who_comes_later_gets_as_much_as_who_has_all() {
    let mut shared = Shared::new(&settings("demand", ""));
    shared.ask("u", 40);
    assert_eq!(shared.both(), (10, 0));
    shared.ask("v", 40);
    shared.turns_until((5, 5));
    for _ in 0..10 {
        shared.turn(340);
        assert_eq!(shared.both(), (5, 5), "nothing is moved any more");
    }
    assert_eq!(shared.world.closed.len(), 5);
}

#[test]
fn who_wants_little_gets_that_and_others_the_rest() {
    let mut shared = Shared::new(&settings("demand", ""));
    shared.ask("u", 40);
    shared.ask("v", 3);
    shared.turns_until((7, 3));
    for _ in 0..10 {
        shared.turn(340);
        assert_eq!(shared.both(), (7, 3));
    }
}

#[test]
fn without_sharing_who_came_first_keeps_all() {
    let mut shared = Shared::new(&settings("none", ""));
    shared.ask("u", 40);
    shared.ask("v", 40);
    (0..20).for_each(|_| shared.turn(340));
    assert_eq!(shared.both(), (10, 0));
}

#[test]
fn a_guarantee_is_met_by_what_is_released_next_and_no_more_is() {
    let more = "[users]\nv = guaranteed_connections=4";
    let mut shared = Shared::new(&settings("guaranteed", more));
    shared.ask("u", 40);
    shared.turn(1_100);
    shared.ask("v", 40);
    assert!(shared.turns_until((6, 4)) <= 6);
    for _ in 0..10 {
        shared.turn(340);
        assert_eq!(shared.both(), (6, 4), "above guarantees it is first come, first served");
    }
}

#[test]
fn a_guarantee_that_nobody_asks_for_is_used_by_others() {
    let more = "[users]\nv = guaranteed_connections=4";
    let mut shared = Shared::new(&settings("guaranteed", more));
    let clients = shared.ask("v", 2);
    shared.ask("u", 40);
    shared.turns_until((8, 2));
    for client in clients {
        shared.world.event(Event::HungUp { conn: client });
    }
    shared.turns_until((10, 0));
    shared.ask("v", 10);
    shared.turns_until((6, 4));
}

#[test]
fn what_has_just_been_opened_is_not_given_up() {
    let mut shared = Shared::new(&settings("demand", ""));
    shared.ask("u", 40);
    shared.ask("v", 40);
    for _ in 0..8 {
        shared.turn(100);
        assert_eq!(shared.both(), (10, 0), "for a second");
    }
    shared.turns_until((5, 5));
}

#[test]
fn servers_that_are_kept_are_not_counted_on() {
    let mut shared = Shared::new(&settings("demand", ""));
    let holders = shared.ask("u", 8);
    for server in shared.servers.clone() {
        shared.world.sent.remove(&server);
        shared.world.answer(server, Status::InTransaction);
    }
    shared.ask("u", 30);
    shared.turn(1_100);
    shared.ask("v", 30);
    shared.turns_until((8, 2));
    assert!(holders.iter().all(|holder| !shared.world.closed.contains(holder)), "no transaction is cut");
}

#[test]
fn a_pool_that_shrinks_leaves_its_part_to_others() {
    let mut shared = Shared::new(&settings("demand", ""));
    shared.ask("v", 2);
    shared.ask("u", 40);
    shared.turns_until((8, 2));
    shared
        .world
        .event(Event::Command(Command::Configure(config(&settings("demand", "[users]\nv = pool_size=1")))));
    shared.turns_until((9, 1));
}

#[test]
fn reload_ends_sharing_and_its_bounds() {
    let mut shared = Shared::new(&settings("demand", ""));
    shared.ask("u", 40);
    shared.ask("v", 40);
    shared.turns_until((5, 5));
    let pool = shared.registry.pool("d", "u");
    assert_eq!(pool.share().allowed(Budget::Database), Some(5));
    shared.world.event(Event::Command(Command::Configure(config(&settings("none", "")))));
    assert!(!pool.share().is_bounded());
    (0..10).for_each(|_| shared.turn(340));
    assert_eq!(shared.both(), (5, 5));
}

#[test]
fn a_limit_that_is_gone_bounds_no_pool() {
    let mut shared = Shared::new(&settings("demand", ""));
    shared.ask("u", 40);
    shared.ask("v", 40);
    shared.turns_until((5, 5));
    let unlimited = config("default_pool_size = 20\nconnection_sharing = demand");
    shared.world.event(Event::Command(Command::Configure(unlimited)));
    (0..25).for_each(|_| shared.turn(340));
    assert_eq!((shared.held("u"), shared.held("v")), (20, 20));
}

#[test]
fn a_limit_of_a_user_is_shared_by_its_databases() {
    let mut shared = Shared::new(
        "default_pool_size = 20\nmax_user_connections = 10\nconnection_sharing = guaranteed\n[databases]\nother = host=127.0.0.1 port=1 guaranteed_connections=3",
    );
    shared.ask("u", 40);
    shared.turn(1_100);
    let clients: Vec<ConnId> = (0..9).map(|_| shared.world.client(&[("database", "other")])).collect();
    clients.iter().for_each(|client| shared.world.query(*client, "select 1"));
    for _ in 0..10 {
        shared.turn(340);
    }
    assert_eq!((shared.held("u"), shared.registry.pool("other", "u").servers.taken()), (7, 3));
}

#[test]
fn another_shard_learns_that_there_is_room() {
    let mut shared = Shared::among(2, &settings("demand", ""));
    shared.ask("u", 40);
    shared.turn(1_100);
    shared.turn(340);
    // The other shard's pool waits, and has asked.
    let elsewhere = shared.registry.pool("d", "v");
    let database = shared.registry.database("d");
    database.ask(1);
    let mut other = World::beside(Arc::clone(&shared.registry), &settings("demand", ""));
    let client = other.client(&[("user", "v")]);
    (0..3).for_each(|_| other.pass(340));
    assert_eq!(elsewhere.servers.taken(), 0, "{client:?} waits");
    shared.world.shard_messages.clear();
    shared.turn(340);
    assert_eq!(shared.held("u"), 9);
    let freed = |message: &ShardMessage| matches!(message, ShardMessage::BudgetFreed { limit: LimitOf::Database, name } if name == "d");
    assert!(shared.world.shard_messages.iter().any(freed), "{:?}", shared.world.shard_messages);
    other.event(Event::ShardMessage(ShardMessage::BudgetFreed {
        limit: LimitOf::Database,
        name: "d".to_owned(),
    }));
    assert_eq!((elsewhere.servers.taken(), other.connecting.len()), (1, 1));
}

/// Both shards of a process.
struct TwoShards {
    shards: [Shared; 2],
}

impl TwoShards {
    fn new(settings: &str) -> TwoShards {
        let registry = Arc::new(OneShard::among(2));
        TwoShards { shards: [0, 1].map(|id| Shared::on(ShardId(id), Arc::clone(&registry), settings)) }
    }
}

#[test]
fn a_pool_that_is_forgotten_requests_nothing() {
    let mut two = TwoShards::new(&settings("none", "pool_idle_timeout = 5"));
    two.shards[0].ask("u", 20);
    let pool = two.shards[0].registry.pool("d", "u");
    pool.spread_to(1);
    let clients = two.shards[1].ask("u", 20);
    assert_eq!(pool.permit_requests(), 0b10);
    for conn in clients {
        two.shards[1].world.event(Event::HungUp { conn });
    }
    (0..20).for_each(|_| two.shards[1].world.pass(340));
    assert_eq!(pool.permit_requests(), 0);
}
