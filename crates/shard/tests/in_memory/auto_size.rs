//! `pool_size = auto` on a whole shard: the size follows what statements that sleep gain, within its bounds, and is really reached.

use crate::world::takeover::import_all;
use crate::world::{World, config};
use messages::{Command, Listing, PoolSizeRow, Report, RequestId, Subject};
use shard::{ConnId, Event};
use wire::backend::Status;

const AUTO: &str = "pool_mode = transaction\ndefault_pool_size = auto\nauto_pool_size_min = 1\nauto_pool_size_max = 6\nserver_login_retry = 1";

/// Clients that ask one after the other, and servers whose statements sleep for 50 ms.
struct Sleepers {
    world: World,
    clients: Vec<ConnId>,
    servers: Vec<ConnId>,
    most: usize,
}

impl Sleepers {
    fn new(settings: &str, clients: usize) -> Sleepers {
        let mut world = World::new(settings);
        let first = world.client(&[]);
        let server = world.server();
        let mut sleepers = Sleepers { clients: vec![first], servers: vec![server], most: 1, world };
        sleepers.clients.extend((1..clients).map(|_| sleepers.world.client(&[])));
        for client in sleepers.clients.clone() {
            sleepers.world.sent.remove(&client);
            sleepers.world.query(client, "select pg_sleep(0.05)");
        }
        sleepers
    }

    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds * 20 {
            // Numbers of connections are used again.
            let closed = std::mem::take(&mut self.world.closed);
            self.servers.retain(|server| !closed.contains(server));
            while !self.world.connecting.is_empty() {
                let server = self.world.server();
                self.servers.push(server);
            }
            self.most = self.most.max(self.servers.len());
            for server in self.servers.clone() {
                if self.world.text(server).contains("pg_sleep") {
                    self.world.answer(server, Status::Idle);
                }
            }
            for client in self.clients.clone() {
                if !self.world.text(client).is_empty() {
                    self.world.query(client, "select pg_sleep(0.05)");
                }
            }
            self.world.pass(50);
            assert_eq!(self.world.shard.audit().contradiction, None);
        }
    }

    fn row(&mut self) -> PoolSizeRow {
        row(&mut self.world)
    }

    fn configure(&mut self, settings: &str) {
        self.world.event(Event::Command(Command::Configure(config(settings))));
    }
}

fn row(world: &mut World) -> PoolSizeRow {
    world.reports.clear();
    world.event(Event::Command(Command::List { request: RequestId(1), subject: Subject::PoolSizes }));
    let rows = world.reports.iter().find_map(|report| match report {
        Report::Listing { rows: Listing::PoolSizes(rows), .. } => rows.first().cloned(),
        _ => None,
    });
    rows.unwrap()
}

#[test]
fn statements_that_sleep_get_the_largest_size_and_no_more() {
    let mut sleepers = Sleepers::new(AUTO, 20);
    sleepers.run(30);
    let row = sleepers.row();
    assert_eq!((row.mode, row.min, row.max, row.found), ("auto", 1, 6, 6), "{row:?}");
    assert_eq!((sleepers.most, sleepers.servers.len()), (6, row.size as usize));
    assert!(sleepers.world.log.iter().any(|line| line.starts_with("pool d/u: pool_size 1 -> 2: ")));
    assert!(row.change.contains("transactions/s instead of"), "{row:?}");
}

#[test]
fn surplus_servers_are_closed_while_clients_wait() {
    let mut sleepers = Sleepers::new(AUTO, 20);
    sleepers.run(30);
    sleepers.configure(&AUTO.replace("max = 6", "max = 2"));
    sleepers.run(2);
    assert!(sleepers.servers.len() <= 2, "{:?}", sleepers.row());
    // A fixed size that is smaller is reached when no client waits, as with PgBouncer; a larger one at once.
    sleepers.configure("pool_mode = transaction\ndefault_pool_size = 4");
    sleepers.run(2);
    assert_eq!((sleepers.servers.len(), sleepers.row().mode), (4, "fixed"));
    sleepers.configure(AUTO);
    sleepers.run(30);
    assert_eq!(sleepers.row().found, 6);
}

#[test]
fn without_clients_that_wait_the_size_stays() {
    let mut sleepers = Sleepers::new(&AUTO.replace("min = 1", "min = 4"), 2);
    sleepers.run(20);
    let row = sleepers.row();
    assert_eq!((row.found, row.state, row.changes), (4, "holds", 0), "{row:?}");
    assert_eq!(row.hold, "no client waits and not all servers are busy");
}

#[test]
fn a_pause_holds_the_size() {
    let mut sleepers = Sleepers::new(AUTO, 20);
    sleepers.run(6);
    sleepers.world.event(Event::Command(Command::Pause { request: RequestId(9), database: None }));
    sleepers.run(3);
    assert_eq!((sleepers.row().state, sleepers.row().hold), ("holds", "paused"));
}

#[test]
fn the_process_that_takes_over_goes_on_from_the_size() {
    let mut sleepers = Sleepers::new(AUTO, 20);
    sleepers.run(30);
    assert_eq!(sleepers.row().found, 6);
    sleepers.world.event(Event::Command(Command::Export { round: 1 }));
    let mut next = World::new(AUTO);
    import_all(&mut sleepers.world, &mut next);
    next.pass(400);
    assert_eq!(row(&mut next).found, 6);
}
