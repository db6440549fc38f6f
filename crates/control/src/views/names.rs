//! SHOW DNS_HOSTS and DNS_ZONES: the names that were looked up, and the zones whose serial numbers are watched.

use messages::{Cell, Column, HostRow, ZoneRow};

use super::{ViewContext, int, text};

pub(super) const HOSTS: &[Column] = &[text("hostname"), int("ttl"), text("addrs")];
pub(super) const ZONES: &[Column] = &[text("zonename"), int("serial"), int("count")];

pub(super) fn hosts(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let row = |host: &HostRow| {
        // PgBouncer writes socket addresses, whose port is none.
        let addresses = host.addresses.iter().map(|address| std::net::SocketAddr::new(*address, 0));
        let texts: Vec<String> = addresses.map(|address| address.to_string()).collect();
        vec![host.name.as_str().into(), host.ttl_s.into(), texts.join(",").into()]
    };
    context.aggregate.hosts.iter().filter(|host| host.known).map(row).collect()
}

pub(super) fn zones(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let row =
        |zone: &ZoneRow| vec![zone.name.as_str().into(), Cell::from(zone.serial), Cell::from(zone.hosts)];
    context.aggregate.zones.iter().map(row).collect()
}
