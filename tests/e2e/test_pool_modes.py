"""Whose is a server connection, and for how long: session, transaction and statement pooling."""

import threading

import psycopg
import pytest

import host
import wire

STATEMENT_REFUSAL = "transaction blocks not allowed in statement pooling mode"


def server_of(connection):
    return connection.execute("select pg_backend_pid()").fetchone()[0]


def waits(pooler, **pool):
    return host.eventually(lambda: pooler.pool(**pool).get("cl_waiting") == 1)


# --- transaction ----------------------------------------------------------------------------------------------
def test_clients_share_one_server_by_transactions(weir, pg):
    pooler = weir(default_pool_size=1)
    clients = [pooler.connect() for _ in range(10)]
    assert len({server_of(client) for _ in range(3) for client in clients}) == 1
    assert pg.count() == 1


def test_a_transaction_keeps_its_server(weir):
    pooler = weir(default_pool_size=1)
    one, two = pooler.connect(), wire.Raw(pooler.port).login()
    with one.transaction():
        server = server_of(one)
        two.send(wire.query("select pg_backend_pid()"))
        waits(pooler)
        assert server_of(one) == server
    assert int(two.read_until("Z")[1].row()[0]) == server


def test_no_reset_query_between_transactions(weir, pg):
    mark = pg.log_mark()
    pooler = weir(default_pool_size=1)
    pooler.value("select 1", user="logged")
    pooler.value("select 2", user="logged")
    assert "DISCARD ALL" not in pg.log_since(mark)


def test_reset_query_always(weir, pg):
    mark = pg.log_mark()
    pooler = weir(default_pool_size=1, server_reset_query_always=1)
    pooler.value("select 1", user="logged")
    pooler.value("select 2", user="logged")
    assert pg.log_since(mark).count("DISCARD ALL") >= 1


def test_a_client_that_leaves_in_a_transaction_loses_its_work_and_its_server(weir, pg):
    pooler = weir(default_pool_size=1)
    one = pooler.connect()
    one.execute("drop table if exists lost; create table lost (number int)")
    one.execute("begin; insert into lost values (1)")
    server = server_of(one)
    one.close()
    two = pooler.connect()
    assert two.execute("select count(*) from lost").fetchone() == (0,)
    assert server_of(two) != server
    host.eventually(lambda: pg.count(f"pid = {server}") == 0)


def test_a_client_that_leaves_between_transactions_leaves_its_server(weir):
    pooler = weir(default_pool_size=1)
    one = pooler.connect()
    server = server_of(one)
    one.close()
    assert server_of(pooler.connect()) == server


def test_a_client_that_leaves_during_a_query_does_not_leave_its_answer_behind(weir):
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login() as raw:
        raw.send(wire.query("select 'not yours' from pg_sleep(60)"))
        host.eventually(lambda: pooler.pool().get("sv_active") == 1)
    assert pooler.value("select 'mine'") == "mine"


def test_a_pipeline_over_the_end_of_a_transaction_keeps_the_server_until_all_is_answered(weir):
    """The server is free when nothing is owed, not at the first ReadyForQuery."""
    pooler = weir(default_pool_size=1)
    with wire.Raw(pooler.port).login() as one, wire.Raw(pooler.port).login() as two:
        for _ in range(20):
            group = [wire.parse("", "select 'one'"), wire.bind(), wire.execute(), wire.SYNC]
            one.send(*group, wire.query("select 'simple'"), *group)
            two.send(wire.query("select 'two'"))
            answers = [reply.row() for _ in range(3) for reply in one.read_until("Z") if reply.kind == "D"]
            assert answers == [[b"one"], [b"simple"], [b"one"]]
            assert [reply.row() for reply in two.read_until("Z") if reply.kind == "D"] == [[b"two"]]


# --- session --------------------------------------------------------------------------------------------------
def test_a_session_keeps_its_server_until_the_client_leaves(weir):
    pooler = weir(pool_mode="session", default_pool_size=1)
    one = pooler.connect()
    server = server_of(one)
    assert server_of(one) == server
    two = wire.Raw(pooler.port)
    two.send(wire.startup(user="alice", database="app"))
    two.read_until("Z")
    two.send(wire.query("select pg_backend_pid()"))
    waits(pooler)
    one.close()
    assert int(two.read_until("Z")[1].row()[0]) == server


@pytest.mark.weir_only
def test_a_reset_query_that_fails_costs_the_connection(weir):
    """No other client gets what it left undone."""
    pooler = weir(pool_mode="session", server_reset_query="select 1/0", default_pool_size=1)
    pids = [pooler.value("select pg_backend_pid()") for _ in range(3)]
    assert len(set(pids)) == 3
    pooler.wait_log("closing because: server_reset_query failed")


def test_a_session_ends_with_the_reset_query(weir, pg):
    pooler = weir(pool_mode="session", default_pool_size=1)
    mark = pg.log_mark()
    one = pooler.connect(user="logged")
    one.execute("create temp table mine (number int)")
    one.execute("set search_path to pg_catalog")
    server = server_of(one)
    one.close()
    two = pooler.connect(user="logged")
    assert server_of(two) == server
    assert two.execute("show search_path").fetchone() == ('"$user", public',)
    with pytest.raises(psycopg.errors.UndefinedTable):
        two.execute("select * from mine")
    assert pg.log_since(mark).count("DISCARD ALL") == 1


@pytest.mark.weir_only
def test_what_a_session_left_is_gone_when_a_reload_ends_session_pooling(weir):
    pooler = weir(pool_mode="session", default_pool_size=1)
    one = pooler.connect()
    one.execute("set search_path to pg_catalog")
    one.execute("create temp table mine (number int)")
    pooler.reload(pool_mode="transaction")
    pooler.wait_log("closing because: pool mode changed")
    two = pooler.connect()
    assert two.execute("show search_path").fetchone() == ('"$user", public',)
    with pytest.raises(psycopg.errors.UndefinedTable):
        two.execute("select * from mine")
    assert one.execute("select 1").fetchone() == (1,)


def test_listen_and_notify_in_session_mode(weir):
    pooler = weir(pool_mode="session")
    listener, speaker = pooler.connect(), pooler.connect()
    listener.execute("listen harbour")
    speaker.execute("notify harbour, 'ahoy'")
    heard = next(listener.notifies(timeout=30, stop_after=1))
    assert (heard.channel, heard.payload) == ("harbour", "ahoy")


# --- statement ------------------------------------------------------------------------------------------------
def test_statement_mode_serves_single_statements(weir):
    pooler = weir(pool_mode="statement", default_pool_size=1)
    one, two = pooler.connect(), pooler.connect()
    assert server_of(one) == server_of(two)
    assert one.execute("select %s::int", (3,)).fetchone() == (3,)


def test_statement_mode_refuses_transaction_blocks(weir):
    pooler = weir(pool_mode="statement")
    client = pooler.connect()
    with pytest.raises(psycopg.OperationalError, match=STATEMENT_REFUSAL):
        client.execute("begin")
    pooler.wait_log(f"closing because: {STATEMENT_REFUSAL}")
    assert pooler.value("select 1") == 1


# --- where the mode is said -----------------------------------------------------------------------------------
@pytest.mark.parametrize("place", ["database", "user"])
def test_the_mode_of_a_database_or_a_user_wins(weir, place):
    databases = {"app": "pool_mode=session" if place == "database" else ""}
    users = {"alice": "pool_mode=session"} if place == "user" else {}
    pooler = weir(databases=databases, users=users, default_pool_size=5)
    one, two = pooler.connect(), pooler.connect()
    assert server_of(one) != server_of(two)
    assert pooler.pool()["pool_mode"] == "session"


# --- which server ---------------------------------------------------------------------------------------------
def fill(pooler, count):
    """Opens as many servers as that, by as many transactions at once, and gives them all back."""
    clients = [pooler.connect() for _ in range(count)]
    for client in clients:
        client.execute("begin")
    for client in clients:
        client.execute("commit")


def test_round_robin_uses_every_server(weir):
    pooler = weir(server_round_robin=1, default_pool_size=4)
    fill(pooler, 4)
    # Each a new client: one that comes again soon may get its last server again.
    assert len({server_of(pooler.connect()) for _ in range(8)}) == 4


def test_otherwise_few_servers_do_the_work(weir):
    pooler = weir(default_pool_size=4)
    fill(pooler, 4)
    client = pooler.connect()
    assert len({server_of(client) for _ in range(8)}) == 1


@pytest.mark.weir_only
@pytest.mark.parametrize("pool_size", [1, 3])
def test_shuffle_gives_no_client_its_last_server_again(weir, pool_size):
    """Neither alone in its pool nor among others that release theirs in any order."""
    pooler = weir(server_shuffle=1, default_pool_size=pool_size)
    one, two = pooler.connect(), pooler.connect()
    pids = {one: [], two: []}
    for client in [one, one, two, one, two, two, one, one, one, two]:
        pids[client].append(server_of(client))
    for of_client in pids.values():
        assert all(last != this for last, this in zip(of_client, of_client[1:])), of_client


@pytest.mark.weir_only
def test_shuffle_keeps_no_client_waiting_for_ever(weir):
    """More clients than servers, on two threads: a client that is refused its last server gets another one at once."""
    pooler = weir(server_shuffle=1, default_pool_size=3, min_pool_size=3, threads=2)
    done = []

    def work():
        connection = pooler.connect()
        for _ in range(100):
            connection.execute("select 1")
        done.append(True)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(done) == 4



@pytest.mark.weir_only
def test_shuffle_visits_the_whole_pool(weir):
    pooler = weir(server_shuffle=1, default_pool_size=4)
    fill(pooler, 4)
    client = pooler.connect()
    assert len({server_of(client) for _ in range(8)}) == 4
    assert "server_shuffle" not in pooler.log_text(), "no server was closed for it"


# --- notifications --------------------------------------------------------------------------------------------
def test_notify_in_transaction_mode(weir, pg):
    pooler = weir()
    with psycopg.connect(host="127.0.0.1", port=pg.port, user="alice", dbname="app", autocommit=True) as listener:
        listener.execute("listen tidings")
        pooler.connect().execute("notify tidings, 'two'")
        assert [heard.payload for heard in listener.notifies(timeout=30, stop_after=1)] == ["two"]
