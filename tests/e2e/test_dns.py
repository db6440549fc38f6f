"""Host names: looked up in a real name server of the test's own, kept for their time, noticed when they move."""

import time

import psycopg
import pytest
from dnslib import AAAA, QTYPE, RCODE, RR, SOA, A
from dnslib.server import BaseResolver, DNSLogger, DNSServer, UDPServer

import conftest
import host
import wire


class Zone(BaseResolver):
    """The zone `test`. `hosts` maps a name to (addresses, ttl); what changes here changes the next answer."""

    def __init__(self):
        self.hosts, self.serial, self.asked, self.answers = {}, 1, [], True

    def resolve(self, request, handler):
        name, kind = str(request.q.qname).rstrip("."), QTYPE[request.q.qtype]
        self.asked.append((name, kind))
        reply = request.reply()
        if not self.answers:
            reply.header.rcode = RCODE.SERVFAIL
            return reply
        authority = RR("test", QTYPE.SOA, ttl=60, rdata=SOA("ns.test", "root.test", (self.serial, 60, 60, 60, 60)))
        if kind == "SOA":
            reply.add_answer(authority)
        elif name not in self.hosts:
            reply.header.rcode = RCODE.NXDOMAIN
            reply.add_auth(authority)
        else:
            addresses, ttl = self.hosts[name]
            for address in addresses:
                if (":" in address) == (kind == "AAAA"):
                    data = AAAA(address) if ":" in address else A(address)
                    reply.add_answer(RR(name, getattr(QTYPE, kind), ttl=ttl, rdata=data))
        return reply


class OwnPort(UDPServer):
    """dnslib's sockets share a port with those of other tests (SO_REUSEADDR), which would answer with their own zones."""

    allow_reuse_address = False


@pytest.fixture
def zone(scratch):
    """A name server on loopback; `zone.conf` is a resolv.conf that leads to it."""
    if conftest.PGBOUNCER:
        pytest.skip("Debian's PgBouncer asks port 53 alone, which needs root")
    zone = Zone()
    server = DNSServer(zone, address="127.0.0.1", port=0, server=OwnPort, logger=DNSLogger("-request,-reply,-error", prefix=False))
    port = server.server.server_address[1]
    server.start_thread()
    zone.conf = scratch / f"resolv-{port}.conf"
    zone.conf.write_text(f"# for one test\nnameserver 127.0.0.1:{port}\noptions timeout:20 attempts:1\n")
    host.hand_over(zone.conf)
    yield zone
    server.stop()
    server.server.server_close()


def hosts(pooler):
    return {row["hostname"]: row for row in pooler.console("SHOW DNS_HOSTS")}


def at_address(pg, address):
    """How many of the pooler's connections came to this address of PostgreSQL."""
    family = 4 if ":" not in address else 6
    return pg.count(f"family(client_addr) = {family}")


def test_a_name_is_asked_for_and_shown(weir, zone):
    zone.hosts["db.test"] = (["127.0.0.1"], 7)
    pooler = weir(databases={"app": "host=db.test"}, resolv_conf=zone.conf, dns_max_ttl=60)
    assert pooler.value("select 1") == 1
    row = hosts(pooler)["db.test"]
    assert row["addrs"] == "127.0.0.1:0" and row["ttl"] <= 7
    assert ("db.test", "A") in zone.asked
    items = {row["list"]: row["items"] for row in pooler.console("SHOW LISTS")}
    assert items["dns_names"] == 1


def test_the_hosts_file_comes_first(weir, zone):
    pooler = weir(databases={"app": "host=localhost"}, resolv_conf=zone.conf)
    assert pooler.value("select 1") == 1
    assert not any(name.startswith("localhost") for name, _ in zone.asked)


def test_a_name_is_asked_for_once_in_its_time(weir, zone):
    zone.hosts["db.test"] = (["127.0.0.1"], 3600)
    pooler = weir(databases={"app": "host=db.test pool_size=5"}, resolv_conf=zone.conf, dns_max_ttl=60)
    clients = [pooler.connect() for _ in range(5)]
    for client in clients:
        client.execute("begin")
    assert zone.asked.count(("db.test", "A")) == 1


def test_all_addresses_are_used_in_turn(weir, zone, pg):
    zone.hosts["db.test"] = (["127.0.0.1", "::1"], 60)
    pooler = weir(databases={"app": "host=db.test pool_size=4"}, resolv_conf=zone.conf)
    clients = [pooler.connect() for _ in range(4)]
    for client in clients:
        client.execute("begin")
    assert (at_address(pg, "127.0.0.1"), at_address(pg, "::1")) == (2, 2)
    assert sorted(hosts(pooler)["db.test"]["addrs"].split(",")) == ["127.0.0.1:0", "[::1]:0"]


def test_an_address_that_refuses_is_passed_over(weir, zone):
    zone.hosts["db.test"] = (["127.0.0.9", "127.0.0.1"], 60)
    pooler = weir(databases={"app": "host=db.test pool_size=4"}, resolv_conf=zone.conf)
    for client in [pooler.connect() for _ in range(4)]:
        client.execute("begin")


def test_no_such_name(weir, zone):
    pooler = weir(databases={"app": "host=db.test"}, resolv_conf=zone.conf, dns_nxdomain_ttl=1, server_login_retry=1)
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(user="alice", database="app"))
        pooler.wait_log("closing because: server DNS lookup failed")
        # Nobody who waits is forgotten when the name appears.
        zone.hosts["db.test"] = (["127.0.0.1"], 60)
        raw.read_until("Z")
    assert hosts(pooler)["db.test"]["addrs"] == "127.0.0.1:0"


def test_a_name_without_an_answer_is_believed_for_dns_nxdomain_ttl(weir, zone):
    pooler = weir(databases={"app": "host=db.test"}, resolv_conf=zone.conf, dns_nxdomain_ttl=3600, server_login_retry=1)
    with wire.Raw(pooler.port) as raw:
        raw.send(wire.startup(user="alice", database="app"))
        pooler.wait_log("closing because: server DNS lookup failed", count=2)
    assert zone.asked.count(("db.test", "A")) == 1
    row = hosts(pooler)["db.test"]
    assert row["addrs"] == "" and row["ttl"] > 3500


def test_servers_at_an_old_address_are_closed_when_they_are_free(weir, zone, pg):
    """The next look-up, here for a second server, finds that the name has moved."""
    zone.hosts["db.test"] = (["127.0.0.1"], 3600)
    # At first there is room for one: a client that waits for long may be given a second one, at the old address.
    pooler = weir(databases={"app": "host=db.test pool_size=1"}, resolv_conf=zone.conf, dns_max_ttl=1)
    first, second = pooler.connect(), pooler.connect()
    first.execute("begin")
    assert hosts(pooler)["db.test"]["ttl"] <= 1
    assert at_address(pg, "127.0.0.1") == 1
    pooler.databases["app"] = "host=db.test pool_size=2"
    pooler.reload()
    zone.hosts["db.test"] = (["::1"], 3600)
    host.eventually(lambda: hosts(pooler)["db.test"]["ttl"] == 0)
    time.sleep(1)  # its last second
    second.execute("begin")
    assert (at_address(pg, "127.0.0.1"), at_address(pg, "::1")) == (1, 1), (zone.asked, pooler.log_text())
    needed = {row["addr"]: row["close_needed"] for row in pooler.console("SHOW SERVERS")}
    assert needed == {"127.0.0.1": 1, "::1": 0}
    first.execute("commit")
    host.eventually(lambda: at_address(pg, "127.0.0.1") == 0)
    pooler.wait_log("obsolete connection")
    second.execute("commit")


def test_a_new_serial_number_of_the_zone_has_its_names_looked_up(weir, zone, pg):
    zone.hosts["db.test"] = (["127.0.0.1"], 3600)
    settings = {"dns_max_ttl": 3600, "dns_zone_check_period": 1}
    pooler = weir(databases={"app": "host=db.test"}, resolv_conf=zone.conf, **settings)
    assert pooler.value("select 1") == 1
    zones = lambda: [tuple(row.values()) for row in pooler.console("SHOW DNS_ZONES")]
    host.eventually(lambda: zones() == [("test", 1, 1)])
    zone.hosts["db.test"] = (["::1"], 3600)
    zone.serial = 2
    host.eventually(lambda: hosts(pooler)["db.test"]["addrs"] == "[::1]:0")
    assert zones() == [("test", 2, 1)]
    host.eventually(lambda: at_address(pg, "127.0.0.1") == 0)
    assert pooler.value("select 1") == 1
    assert at_address(pg, "::1") == 1


def test_zones_are_not_asked_about_unless_told(weir, zone):
    zone.hosts["db.test"] = (["127.0.0.1"], 60)
    pooler = weir(databases={"app": "host=db.test"}, resolv_conf=zone.conf)
    pooler.value("select 1")
    pooler.console("SET dns_zone_check_period = 1")
    host.eventually(lambda: ("test", "SOA") in zone.asked)
    pooler.console("SET dns_zone_check_period = 0")


@pytest.mark.weir_only  # PgBouncer forgets what it knew
def test_while_no_name_server_answers_the_old_addresses_are_used(weir, zone):
    zone.hosts["db.test"] = (["127.0.0.1"], 1)
    pooler = weir(databases={"app": "host=db.test pool_size=2"}, resolv_conf=zone.conf, dns_nxdomain_ttl=60)
    pooler.connect().execute("begin")
    zone.answers = False
    host.eventually(lambda: hosts(pooler)["db.test"]["ttl"] == 0)
    time.sleep(1)  # its last second
    pooler.connect().execute("begin")
    assert hosts(pooler)["db.test"]["addrs"] == "127.0.0.1:0"


# --- lists of hosts ---------------------------------------------------------------------------------------------
def test_hosts_of_a_list_are_used_in_turn(weir, pg):
    pooler = weir(databases={"app": "host=127.0.0.1,::1 pool_size=4"})
    for client in [pooler.connect() for _ in range(4)]:
        client.execute("begin")
    assert (at_address(pg, "127.0.0.1"), at_address(pg, "::1")) == (2, 2)
    (row,) = [row for row in pooler.console("SHOW POOLS") if row["database"] == "app"]
    assert row.get("load_balance_hosts", "round-robin") == "round-robin"


@pytest.mark.since("1.24")
def test_without_balance_one_host_of_a_list_serves(weir, pg):
    pooler = weir(databases={"app": "host=::1,127.0.0.1 pool_size=4 load_balance_hosts=disable"})
    for client in [pooler.connect() for _ in range(4)]:
        client.execute("begin")
    assert (at_address(pg, "127.0.0.1"), at_address(pg, "::1")) == (0, 4)
    assert next(row for row in pooler.console("SHOW DATABASES") if row["name"] == "app")["load_balance_hosts"] == "disable"


@pytest.mark.since("1.24")
@pytest.mark.parametrize("balance, failures", [("round-robin", 2), ("disable", 1)])
def test_a_failing_host_of_a_list_is_left(weir, balance, failures):
    """In turn, every other attempt fails; without turns only the first, and then the working one is kept."""
    pooler = weir(
        databases={"app": f"host=127.0.0.9,127.0.0.1 pool_size=3 load_balance_hosts={balance}"}, server_login_retry=1
    )
    for client in [pooler.connect() for _ in range(2)]:
        client.execute("begin")
    assert len(pooler.wait_log("closing because: connect failed", count=failures)) == failures
    third = pooler.connect()
    third.execute("begin")
    assert isinstance(third, psycopg.Connection)
