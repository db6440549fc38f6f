//! The hosts of an entry whose reads go to standbys (`read_write_split`): what is listed of them, DETACH and ATTACH.

use std::sync::Arc;

use crate::world::{World, message};
use messages::{ClusterHostRow, Command, HostRole, Listing, Report, RequestId, Subject};
use pool::PoolRegistry;
use shard::{ConnId, ConnectFault, Event, Target};
use wire::backend::Status;
use wire::encode;

const ENTRY: &str =
    "session_state = off\ndefault_pool_size = 1\n[databases]\nd = host=a,b,c port=1 read_write_split=1";

/// A world of these servers: a is the primary, b and c are standbys, and all have answered what Weir asks them.
struct Servers {
    world: World,
    client: ConnId,
    /// A standby that is down.
    down: Option<&'static str>,
    /// A standby that accepts writes by now.
    promoted: Option<&'static str>,
    /// What standbys have replayed.
    replayed: u64,
}

impl Servers {
    fn new() -> Servers {
        Servers::of(World::new(ENTRY))
    }

    fn of(mut world: World) -> Servers {
        let client = world.client(&[]);
        let mut servers = Servers { world, client, down: None, promoted: None, replayed: 0x3_0000_0010 };
        servers.settle();
        servers
    }

    fn host(&self, conn: ConnId) -> String {
        match self.world.targets[&conn].clone() {
            Target::Inet { host, .. } => host.to_string(),
            _ => panic!("no address"),
        }
    }

    /// Connections that are being opened are logged in, or fail, and questions are answered, until nothing is left to be done.
    fn settle(&mut self) {
        for _ in 0..20 {
            for conn in std::mem::take(&mut self.world.connecting) {
                self.open(conn);
            }
            let asked: Vec<ConnId> =
                self.world.sent.keys().copied().filter(|conn| *conn != self.client).collect();
            asked.into_iter().for_each(|conn| self.answer(conn));
        }
    }

    fn open(&mut self, conn: ConnId) {
        let host = self.host(conn);
        if self.down == Some(host.as_str()) {
            let fault = ConnectFault::Refused("connection refused".into());
            self.world.event(Event::ConnectFailed { conn, fault });
            return self.world.event(Event::Closed { conn });
        }
        self.world.event(Event::Connected {
            conn,
            remote: "127.0.0.1:1".parse().ok(),
            local: "127.0.0.1:2".parse().ok(),
        });
        let is_standby = host != "a" && self.promoted != Some(host.as_str());
        let hello = message(|out| {
            encode::authentication_ok(out);
            encode::parameter_status(out, b"server_version", b"18.0");
            encode::parameter_status(out, b"in_hot_standby", if is_standby { b"on" } else { b"off" });
            encode::parameter_status(out, b"default_transaction_read_only", b"off");
            encode::key_data(out, 77, &[1, 2, 3, 4]);
            encode::ready(out, Status::Idle);
        });
        self.world.sent.remove(&conn);
        self.world.receive(conn, &hello);
    }

    /// Answers as PostgreSQL would.
    fn answer(&mut self, conn: ConnId) {
        let standby = self.host(conn) != "a";
        let text = String::from_utf8_lossy(&self.world.sent[&conn]).into_owned();
        let row: Vec<Option<String>> = if text.contains("system_identifier") {
            vec![Some("7000".to_owned()), (!standby).then(|| "00000001".to_owned())]
        } else if text.contains("pg_is_in_recovery") {
            let lsn = if standby { self.replayed } else { 0x3_0000_0110 };
            vec![
                Some(if standby { "t" } else { "f" }.to_owned()),
                Some(lsn.to_string()),
                standby.then(|| "1".to_owned()),
            ]
        } else if text.contains("lock_timeout") {
            vec![Some("end".to_owned()), Some(String::new())]
        } else if text.starts_with('X') {
            self.world.sent.remove(&conn);
            return self.world.event(Event::HungUp { conn });
        } else {
            return;
        };
        self.world.sent.remove(&conn);
        let answer = message(|out| {
            encode::data_row(out, row.iter().map(|cell| cell.as_deref().map(str::as_bytes)));
            encode::command_complete(out, "SELECT 1");
            encode::ready(out, Status::Idle);
        });
        self.world.receive(conn, &answer);
        if text.contains("system_identifier") {
            self.world.follow(conn);
        }
    }

    /// The connection to this host ends.
    fn lose(&mut self, host: &str) {
        let is_it = |conn: &&ConnId| self.host(**conn) == host && !self.world.closed.contains(conn);
        let conn = *self.world.targets.keys().find(is_it).unwrap();
        self.world.event(Event::HungUp { conn });
    }

    fn pass(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds / 100 {
            self.world.pass(100);
            self.settle();
        }
    }

    fn hosts(&mut self) -> Vec<ClusterHostRow> {
        self.world.reports.clear();
        self.world.event(Event::Command(Command::List { request: RequestId(9), subject: Subject::Clusters }));
        match &self.world.reports[..] {
            [Report::Listing { rows: Listing::Clusters(rows), last: true, .. }] => rows[0].hosts.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn detach(&mut self, host: &str, detached: bool) {
        self.world.reports.clear();
        let (request, database) = (RequestId(1), "d".to_owned());
        let host = host.to_owned();
        self.world.event(Event::Command(Command::Detach { request, database, host, detached }));
        assert!(matches!(self.world.reports[..], [Report::Done { .. }]), "{:?}", self.world.reports);
    }

    /// The host that a read goes to; it stays there, without an answer.
    fn reads(&mut self) -> (ConnId, String) {
        self.settle();
        self.world.sent.clear();
        self.world.query(self.client, "begin read only");
        self.settle(); // Where the primary serves it, that is asked for its position first.
        let found = self
            .world
            .sent
            .iter()
            .find(|(_, bytes)| String::from_utf8_lossy(bytes).contains("begin read only"));
        let conn = *found.expect("a server that got it").0;
        self.world.sent.remove(&conn);
        (conn, self.host(conn))
    }

    /// The same, answered.
    fn read(&mut self) -> String {
        let (conn, host) = self.reads();
        self.end(conn);
        host
    }

    fn end(&mut self, conn: ConnId) {
        self.world.answer(conn, Status::InTransaction);
        self.world.query(self.client, "commit");
        self.world.sent.remove(&conn);
        self.world.answer(conn, Status::Idle);
    }
}

#[test]
fn hosts_are_listed_with_what_is_known_of_them() {
    let mut servers = Servers::new();
    servers.pass(2_000);
    servers.read();
    let hosts = servers.hosts();
    let labels: Vec<&str> = hosts.iter().map(|host| host.label.as_str()).collect();
    assert_eq!(labels, ["a:1", "b:1", "c:1"]);
    let roles: Vec<HostRole> = hosts.iter().map(|host| host.role).collect();
    assert_eq!(roles, [HostRole::Primary, HostRole::Standby, HostRole::Standby]);
    assert_eq!(hosts.iter().map(|host| host.timeline).collect::<Vec<_>>(), [1; 3]);
    assert_eq!((hosts[0].lsn, hosts[1].lsn), (Some(0x3_0000_0110), Some(0x3_0000_0010)));
    assert_eq!((hosts[0].lag, hosts[1].lag), (None, None), "no position of the primary is replayed yet");
    assert_eq!(hosts.iter().map(|host| host.reads).sum::<u64>(), 1);
    assert!(hosts.iter().all(|host| host.server_active + host.server_idle == 1), "{hosts:?}");
    assert!(hosts.iter().all(|host| host.error.is_none() && host.since_us > 0 && host.detached_us.is_none()));
    servers.replayed = 0x3_0000_0110;
    servers.pass(2_000);
    assert_eq!(servers.hosts()[1].lag.map(|lag| lag.bytes), Some(0));
}

#[test]
fn a_standby_that_is_down_says_why_until_it_is_back() {
    let mut servers = Servers::new();
    servers.pass(1_000);
    servers.down = Some("b");
    servers.lose("b");
    servers.pass(1_000);
    let host = &servers.hosts()[1];
    assert_eq!((host.role, host.lsn), (HostRole::Down, None));
    assert!(host.error.as_ref().unwrap().message.contains("connection refused"), "{host:?}");
    let since_us = host.since_us;
    servers.pass(20_000);
    assert_eq!(servers.hosts()[1].since_us, since_us, "it is down since then, however often it was tried");
    assert_eq!([servers.read(), servers.read()], ["c", "c"]);
    servers.down = None;
    servers.pass(20_000);
    let host = &servers.hosts()[1];
    assert_eq!((host.role, &host.error), (HostRole::Standby, &None));
}

#[test]
fn a_second_primary_is_shown_as_one_and_gets_no_reads() {
    let mut servers = Servers::new();
    servers.pass(1_000);
    servers.promoted = Some("b");
    servers.lose("b");
    servers.pass(1_000);
    let hosts = servers.hosts();
    assert_eq!((hosts[0].role, hosts[1].role), (HostRole::Primary, HostRole::Primary));
    assert_eq!(hosts[1].error, None, "that it is no standby is no error");
    assert_eq!([servers.read(), servers.read()], ["c", "c"]);
}

/// The primary is being logged in to, and this happens meanwhile.
fn after_login_with(happens: impl FnOnce(&mut World, &crate::world::OneShard)) -> HostRole {
    let directory = Arc::new(crate::world::OneShard::default());
    let entry = format!("{ENTRY} connect_query='select 7'");
    let mut servers = Servers::of(World::beside(directory.clone(), &entry));
    let is_asked = |(_, bytes): &(&ConnId, &Vec<u8>)| String::from_utf8_lossy(bytes).contains("select 7");
    let conn = *servers.world.sent.iter().find(is_asked).unwrap().0;
    assert_eq!(servers.host(conn), "a");
    happens(&mut servers.world, &directory);
    servers.world.answer(conn, Status::Idle);
    servers.hosts()[0].role
}

#[test]
fn a_login_that_is_none_to_the_primary_any_more_does_not_show_its_host_as_one() {
    assert_eq!(after_login_with(|_, _| ()), HostRole::Primary);
    let newer = after_login_with(|_, directory| {
        assert_eq!(directory.database("d").cluster.admit(7_000, Some(2)), Ok(()));
    });
    assert_eq!(newer, HostRole::Unknown);
    let other = after_login_with(|world, _| {
        world.event(Event::Command(Command::Reconnect { database: None }));
    });
    assert_eq!(other, HostRole::Unknown);
}

#[test]
fn a_detached_host_gets_no_reads_and_no_connections() {
    let mut servers = Servers::new();
    servers.pass(1_000);
    assert!([servers.read(), servers.read()].contains(&"b".to_owned()));
    servers.detach("b:1", true);
    servers.settle();
    let host = servers.hosts()[1].clone();
    assert_eq!((host.server_active, host.server_idle, host.server_login), (0, 0, 0));
    assert!(host.detached_us.is_some());
    for _ in 0..4 {
        assert_eq!(servers.read(), "c");
    }
    servers.pass(5_000);
    assert_eq!(servers.hosts()[1].server_idle, 0, "it is not connected to again");
    servers.detach("c:1", true);
    assert_eq!(servers.read(), "a", "without a standby the primary serves reads");
    servers.detach("b:1", false);
    assert_eq!(servers.hosts()[1].role, HostRole::Unknown, "what it is now is to be seen");
    servers.settle();
    assert_eq!(servers.hosts()[1].role, HostRole::Standby);
    // What ran on the primary may have written.
    servers.replayed = 0x3_0000_0110;
    servers.pass(2_000);
    assert_eq!([servers.read(), servers.read()], ["b", "b"]);
}

#[test]
fn a_read_that_is_running_ends_before_its_connection_is_closed() {
    let mut servers = Servers::new();
    servers.pass(1_000);
    let (conn, host) = servers.reads();
    servers.detach(&format!("{host}:1"), true);
    servers.pass(1_000);
    assert!(!servers.world.closed.contains(&conn));
    servers.end(conn);
    assert!(servers.world.tags(servers.client).contains('Z'));
    assert!(servers.world.tags(conn).contains('X'), "it is free now");
    assert!(!servers.world.closed.contains(&servers.client));
}

#[test]
fn a_read_that_waits_for_a_detached_host_is_served_elsewhere() {
    let mut servers = Servers::new();
    servers.detach("c:1", true);
    servers.pass(1_000);
    let (_, host) = servers.reads();
    assert_eq!(host, "b");
    let other = servers.world.client(&[]);
    servers.world.sent.clear();
    servers.world.query(other, "begin read only");
    let got = |world: &World| {
        let has = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).contains("begin read only");
        world.sent.iter().find(|(_, bytes)| has(bytes)).map(|(conn, _)| *conn)
    };
    assert_eq!(got(&servers.world), None, "the pool for reads has one connection, which is in use");
    servers.detach("b:1", true);
    let conn = got(&servers.world).expect("the primary has it");
    assert_eq!(servers.host(conn), "a");
}

#[test]
fn a_host_stays_detached_over_reload_and_in_pools_that_are_made_later() {
    let mut servers = Servers::new();
    servers.replayed = 0x3_0000_0110;
    servers.detach("b:1", true);
    let without = ENTRY.replace("host=a,b,c", "host=a,c");
    for settings in [without.as_str(), ENTRY] {
        servers.world.event(Event::Command(Command::Configure(crate::world::config(settings))));
        servers.pass(2_000);
    }
    let hosts = servers.hosts();
    assert!(hosts[1].detached_us.is_some() && hosts[2].detached_us.is_none());
    assert_eq!((hosts[1].server_idle, hosts[2].role), (0, HostRole::Standby));
    assert_eq!([servers.read(), servers.read()], ["c", "c"]);
}
