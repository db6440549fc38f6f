//! SHOW HOSTS and SHOW CLUSTERS: entries with several hosts of which some are primaries or standbys (`target_session_attrs`, `read_write_split`, `topology`), and
//! their hosts.
//!
//! Owns the state that an entry is in and the sentence that says what to do about it.

use std::sync::Arc;
use std::time::Duration;

use messages::{Cell, ClusterHostRow, HostRole};
use settings::{Database, ReplicaLag, TargetSessionAttrs};

use super::sockets::timestamp;
use super::{ViewContext, text_or_null};
use crate::topology::{PatroniState, detail as failure};

/// A host of an entry as operators see it.
struct Host<'a> {
    name: &'a str,
    port: u16,
    row: ClusterHostRow,
    is_detached: bool,
    /// Patroni has it with `noloadbalance`.
    is_without_reads: bool,
}

/// What an entry is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClusterState {
    Ok,
    NoPrimary,
    NoStandby,
    TwoPrimaries,
    Unknown,
    /// Its hosts are not asked.
    NotWatched,
}

/// What the connections of an entry need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// A primary for writes, and standbys for reads.
    Both,
    /// A primary.
    Primary,
    /// A standby.
    Standby,
    /// Any server, a standby by preference.
    Any,
}

impl Needs {
    fn of(entry: &Database) -> Needs {
        match entry.target_session_attrs {
            _ if entry.read_write_split => Needs::Both,
            TargetSessionAttrs::ReadWrite | TargetSessionAttrs::Primary => Needs::Primary,
            TargetSessionAttrs::ReadOnly | TargetSessionAttrs::Standby => Needs::Standby,
            TargetSessionAttrs::Any | TargetSessionAttrs::PreferStandby => Needs::Any,
        }
    }
}

pub(super) fn hosts(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let of_entry = |(name, entry): &(String, Arc<Database>)| -> Vec<Vec<Cell>> {
        hosts_of(context, name, entry).iter().map(|host| host_row(name, host)).collect()
    };
    entries_of(context).iter().flat_map(of_entry).collect()
}

pub(super) fn entries(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    entries_of(context).iter().map(|(name, entry)| cluster_row(context, name, entry)).collect()
}

/// The entries whose hosts have roles, used or not, and those that `*` has made and whose reads are split.
fn entries_of(context: &ViewContext<'_>) -> Vec<(String, Arc<Database>)> {
    let config = context.config;
    let mut found = config.databases.clone();
    found.retain(|_, entry| entry.has_roles());
    for name in context.aggregate.clusters.keys() {
        if let Some(entry) = config.database(name).filter(|entry| entry.read_write_split) {
            found.entry(name.clone()).or_insert(entry);
        }
    }
    found.into_iter().collect()
}

fn hosts_of<'a>(context: &ViewContext<'_>, name: &str, entry: &'a Database) -> Vec<Host<'a>> {
    let cluster = context.aggregate.clusters.get(name);
    let host = |(place, host): (usize, &'a String)| {
        let port = entry.port.of(place);
        let label = format!("{host}:{port}");
        let row = cluster.and_then(|cluster| cluster.hosts.iter().find(|row| row.label == label));
        let is_detached = context.pause_state.detaches(name, &label);
        let row = row.cloned().unwrap_or_else(|| ClusterHostRow { label, ..ClusterHostRow::default() });
        Host { name: host, port, row, is_detached, is_without_reads: entry.without_reads.contains(&place) }
    };
    entry.host.iter().enumerate().map(host).collect()
}

impl Host<'_> {
    /// A primary that is detached serves writes all the same, and reads that no standby serves.
    fn state(&self) -> &'static str {
        match self.row.role {
            HostRole::Primary => "primary",
            _ if self.is_detached => "detached",
            _ if self.is_without_reads => "noloadbalance",
            HostRole::Standby => "standby",
            HostRole::Down => "down",
            HostRole::Unknown => "unknown",
        }
    }

    fn is_primary(&self) -> bool {
        self.row.role == HostRole::Primary
    }

    /// It may serve reads that do not depend on what their client has written.
    fn is_usable(&self, most: ReplicaLag) -> bool {
        let lag = self.row.lag.map(|lag| (lag.bytes, Duration::from_micros(lag.time_us)));
        self.state() == "standby" && most.allows(lag)
    }
}

fn host_row(database: &str, host: &Host<'_>) -> Vec<Cell> {
    let row = &host.row;
    let since_us = match host.state() {
        "detached" => row.detached_us.unwrap_or(0),
        _ => row.since_us,
    };
    let lag = row.lag.filter(|_| host.state() == "standby");
    vec![
        database.into(),
        host.name.into(),
        Cell::Number(host.port.into()),
        host.state().into(),
        Cell::Number(host.is_detached.into()),
        if since_us == 0 { Cell::Null } else { timestamp(since_us) },
        known(row.timeline),
        text_or_null(row.lsn.map(position)),
        lag.map_or(Cell::Null, |lag| lag.bytes.into()),
        lag.map_or(Cell::Null, |lag| (lag.time_us / 1_000).into()),
        Cell::Sum(row.reads),
        row.server_active.into(),
        row.server_idle.into(),
        row.server_login.into(),
        text_or_null(row.error.as_ref().map(|error| error.message.as_str())),
    ]
}

/// A timeline; 0 is not known.
fn known(timeline: u32) -> Cell {
    if timeline == 0 { Cell::Null } else { timeline.into() }
}

/// A position in the WAL as PostgreSQL writes it.
fn position(lsn: u64) -> String {
    format!("{:X}/{:X}", lsn >> 32, lsn & 0xffff_ffff)
}

fn cluster_row(context: &ViewContext<'_>, name: &str, entry: &Database) -> Vec<Cell> {
    let hosts = hosts_of(context, name, entry);
    let usable = hosts.iter().filter(|host| host.is_usable(entry.max_replica_lag)).count();
    let primary = hosts.iter().find(|host| host.is_primary());
    let cluster = context.aggregate.clusters.get(name);
    let system = cluster.map(|cluster| cluster.system).filter(|system| *system > 0);
    let needs = Needs::of(entry);
    let is_watched = (entry.read_write_split || cluster.is_some()) && !entry.awaits_members();
    let state = if is_watched { state_of(&hosts, usable, needs) } else { ClusterState::NotWatched };
    let (topology, topology_state, topology_detail) = topology(context, entry, &hosts);
    vec![
        name.into(),
        (hosts.len() as u64).into(),
        (usable as u64).into(),
        text_or_null(primary.map(|host| host.row.label.as_str())),
        known(cluster.map_or(0, |cluster| cluster.timeline)),
        text_or_null(system.map(|system| system.to_string())),
        state.word().into(),
        detail(state, &hosts, usable, needs).into(),
        topology.into(),
        text_or_null(topology_state),
        text_or_null(topology_detail),
    ]
}

/// Where the knowledge of an entry's servers comes from, its state, and what to do about it.
fn topology(
    context: &ViewContext<'_>,
    entry: &Database,
    hosts: &[Host<'_>],
) -> (&'static str, Option<&'static str>, Option<String>) {
    let Some(urls) = entry.patroni() else { return ("probe", None, None) };
    let known = context.topologies.of(urls).cloned().unwrap_or_default();
    let leader = known.members.leader();
    let of_leader = leader.and_then(|leader| hosts.iter().find(|host| host.row.label == leader.label()));
    let label = leader.map(settings::Member::label).unwrap_or_default();
    let (word, detail) = match (&known.state, of_leader) {
        (PatroniState::Failed(error), _) => (known.state.word(), failure(&known, error)),
        (PatroniState::Waiting, _) => (known.state.word(), "Patroni has not answered yet.".to_owned()),
        (PatroniState::Ok, _) if leader.is_none() => {
            ("no leader", "Patroni knows no leader: see patronictl list.".to_owned())
        }
        (PatroniState::Ok, None) => (
            "other hosts",
            format!(
                "Patroni's leader {label} is none of the hosts of the entry: name hosts as Patroni does."
            ),
        ),
        (PatroniState::Ok, Some(host)) if host.row.role == HostRole::Standby => (
            "leader is a standby",
            format!(
                "Patroni's leader {label} is in recovery, and nothing is written there: see patronictl list."
            ),
        ),
        (PatroniState::Ok, Some(_)) => (known.state.word(), "Nothing to do.".to_owned()),
    };
    ("patroni", Some(word), Some(detail))
}

fn state_of(hosts: &[Host<'_>], usable: usize, needs: Needs) -> ClusterState {
    let primaries = hosts.iter().filter(|host| host.is_primary()).count();
    let needs_primary = matches!(needs, Needs::Both | Needs::Primary) || usable == 0 && needs == Needs::Any;
    let needs_standby = matches!(needs, Needs::Both | Needs::Standby);
    match primaries {
        _ if hosts.iter().all(|host| host.row.role == HostRole::Unknown) => ClusterState::Unknown,
        2.. => ClusterState::TwoPrimaries,
        0 if needs_primary => ClusterState::NoPrimary,
        _ if usable == 0 && needs_standby => ClusterState::NoStandby,
        _ => ClusterState::Ok,
    }
}

impl ClusterState {
    fn word(self) -> &'static str {
        match self {
            ClusterState::Ok => "ok",
            ClusterState::NoPrimary => "no primary",
            ClusterState::NoStandby => "no standby",
            ClusterState::TwoPrimaries => "two primaries",
            ClusterState::Unknown => "unknown",
            ClusterState::NotWatched => "not watched",
        }
    }
}

/// What to do about it.
fn detail(state: ClusterState, hosts: &[Host<'_>], usable: usize, needs: Needs) -> String {
    let names = |wanted: &dyn Fn(&Host<'_>) -> bool| -> String {
        let found = hosts.iter().filter(|host| wanted(host)).map(|host| host.row.label.as_str());
        found.collect::<Vec<_>>().join(", ")
    };
    match state {
        ClusterState::Ok if usable + 1 == hosts.len() => "Nothing to do.".to_owned(),
        ClusterState::Ok if needs != Needs::Both => {
            let missing = names(&|host| matches!(host.row.role, HostRole::Down | HostRole::Unknown));
            match missing.is_empty() {
                true => "Nothing to do.".to_owned(),
                false => format!("{missing} is of no use now: see state and last_error in SHOW HOSTS."),
            }
        }
        ClusterState::Ok => {
            let missing = names(&|host| !host.is_primary() && host.state() != "standby");
            match missing.is_empty() {
                true => "Some standbys are further behind than max_replica_lag: see SHOW HOSTS.".to_owned(),
                false => format!("No reads go to {missing}: see state and last_error in SHOW HOSTS."),
            }
        }
        ClusterState::NoPrimary if needs != Needs::Both => {
            "Clients wait: start the primary, or promote a standby.".to_owned()
        }
        ClusterState::NoPrimary => {
            "Transactions that may write wait: start the primary, or promote a standby.".to_owned()
        }
        ClusterState::NoStandby if needs != Needs::Both => {
            "Clients wait: start the standbys, see last_error in SHOW HOSTS.".to_owned()
        }
        ClusterState::NoStandby => no_standby(&names(&|host| host.state() == "detached"), hosts),
        ClusterState::TwoPrimaries => {
            let primaries = names(&|host| host.is_primary());
            format!(
                "{primaries} accept writes: stop those that are not to be the primary, and make them standbys (pg_rewind)."
            )
        }
        ClusterState::NotWatched if hosts.is_empty() => {
            "Clients wait until Patroni has listed its members.".to_owned()
        }
        ClusterState::NotWatched => {
            "Its hosts are not asked: set host_probe_user (or auth_user, or user of the entry), and host_probe_interval."
                .to_owned()
        }
        ClusterState::Unknown => unknown(hosts),
    }
}

/// Connections for clients have not found out, and neither has the probe.
fn unknown(hosts: &[Host<'_>]) -> String {
    if hosts.iter().any(|host| host.row.error.is_some()) {
        "No host says what it is: see last_error in SHOW HOSTS.".to_owned()
    } else {
        "No client has used it since Weir was started, and its hosts have not answered yet.".to_owned()
    }
}

fn no_standby(detached: &str, hosts: &[Host<'_>]) -> String {
    if !detached.is_empty() {
        format!("All reads go to the primary: ATTACH {detached} when they may serve reads again.")
    } else if hosts.iter().any(|host| host.state() == "standby") {
        "All reads go to the primary: the standbys are further behind than max_replica_lag, see SHOW HOSTS."
            .to_owned()
    } else {
        "All reads go to the primary: start the standbys, see last_error in SHOW HOSTS.".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use messages::{ClusterRow, HostLag, Listing, ServerError, Subject};

    use super::*;
    use crate::harness::{Harness, empty, shown};
    use crate::views::example::of_shards;

    const ENTRY: &str = "[databases]\napp = host=h1,h2 pool_mode=transaction read_write_split=1\nidle = host=h1,h2 pool_mode=transaction read_write_split=1\nplain = host=h1,h2\n";

    fn harness() -> Harness {
        Harness::with(2, ENTRY)
    }

    /// SHOW CLUSTERS' state and detail of `app` with these hosts.
    fn state(harness: &mut Harness, hosts: Vec<ClusterHostRow>) -> String {
        let rows = |subject: Subject| match subject {
            Subject::Clusters => Listing::Clusters(vec![ClusterRow {
                database: "app".into(),
                hosts: hosts.clone(),
                ..ClusterRow::default()
            }]),
            other => empty(other),
        };
        let shown = shown(&harness.show("SHOW CLUSTERS", &rows));
        shown[0].splitn(7, '|').last().map(str::to_owned).unwrap_or_default()
    }

    fn host(name: &str, role: HostRole) -> ClusterHostRow {
        ClusterHostRow { label: format!("{name}:5432"), role, seen_us: 1, ..ClusterHostRow::default() }
    }

    #[test]
    fn hosts_have_their_cells_in_order() {
        let rows = shown(&harness().show("SHOW HOSTS", &of_shards));
        let expected = [
            "app|h1|5432|primary|0|1970-01-01 00:00:01 UTC|3|16/B374D848|NULL|NULL|8|1|2|0|NULL",
            "app|h2|5432|standby|0|1970-01-01 00:00:01 UTC|3|16/B374D848|4096|12|8|1|2|0|NULL",
            "idle|h1|5432|unknown|0|NULL|NULL|NULL|NULL|NULL|0|0|0|0|NULL",
            "idle|h2|5432|unknown|0|NULL|NULL|NULL|NULL|NULL|0|0|0|0|NULL",
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn clusters_say_what_they_are_in_and_what_to_do() {
        let rows = shown(&harness().show("SHOW CLUSTERS", &of_shards));
        let expected = [
            "app|2|1|h1:5432|3|7300000000000000001|ok|Nothing to do.|probe|NULL|NULL",
            "idle|2|0|NULL|NULL|NULL|unknown|No client has used it since Weir was started, and its hosts have not answered yet.|probe|NULL|NULL",
        ];
        assert_eq!(rows, expected);
        let mut harness = harness();
        let mut state = |one, other| state(&mut harness, vec![host("h1", one), host("h2", other)]);
        use HostRole::{Down, Primary, Standby, Unknown};
        assert!(state(Primary, Primary).starts_with("two primaries|h1:5432, h2:5432 accept writes"));
        assert!(state(Standby, Down).starts_with("no primary|"));
        assert!(state(Primary, Down).starts_with("no standby|All reads go to the primary: start"));
        assert!(state(Unknown, Primary).starts_with("no standby|"));
        assert!(state(Unknown, Unknown).starts_with("unknown|"));
    }

    #[test]
    fn standbys_that_are_too_far_behind_are_not_usable() {
        let entry =
            "[databases]\napp = host=h1,h2 pool_mode=transaction read_write_split=1 max_replica_lag=100kB\n";
        let hosts = |bytes| {
            let lag = Some(HostLag { bytes, time_us: 0 });
            vec![host("h1", HostRole::Primary), ClusterHostRow { lag, ..host("h2", HostRole::Standby) }]
        };
        let mut harness = Harness::with(1, entry);
        assert!(state(&mut harness, hosts(100 << 10)).starts_with("ok|"));
        let far = state(&mut harness, hosts((100 << 10) + 1));
        assert!(far.starts_with("no standby|") && far.contains("max_replica_lag"), "{far}");
    }

    #[test]
    fn detached_hosts_are_shown_so_and_a_primary_stays_one() {
        let mut harness = harness();
        for name in ["h1", "h2"] {
            harness.ask(&format!("DETACH app {name}"));
            harness.done(0, 1);
            harness.done(1, 1);
        }
        let error = Some(ServerError { message: "refused".into(), ..ServerError::default() });
        let down = ClusterHostRow { error, detached_us: Some(2_000_000), ..host("h2", HostRole::Down) };
        let hosts = vec![host("h1", HostRole::Primary), down];
        let rows = |subject: Subject| match subject {
            Subject::Clusters => Listing::Clusters(vec![ClusterRow {
                database: "app".into(),
                hosts: hosts.clone(),
                ..ClusterRow::default()
            }]),
            other => empty(other),
        };
        let shown = shown(&harness.show("SHOW HOSTS", &rows));
        assert!(shown[0].starts_with("app|h1|5432|primary|1|"), "{shown:?}");
        assert!(shown[1].starts_with("app|h2|5432|detached|1|1970-01-01 00:00:02 UTC|"), "{shown:?}");
        assert!(shown[1].ends_with("|refused"), "{shown:?}");
        let detail = state(&mut harness, hosts.clone());
        assert!(detail.starts_with("no standby|All reads go to the primary: ATTACH h2:5432"), "{detail}");
    }
}
