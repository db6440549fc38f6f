"""An application on SQLAlchemy: check.py [SCENARIO…] URI runs it and prints what it got, which is the same whichever way it
has to PostgreSQL. Its engines have pools of their own, so that each connection is used by many of its threads in turn.
Started by tests/e2e/test_applications.py; --list names the scenarios."""

import concurrent.futures
import contextlib
import sys
import threading

from sqlalchemy import Column, MetaData, Table, create_engine, event, exc, func, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

SCENARIOS = ["tenants", "streams", "temporary", "isolation", "twophase", "connect"]
TENANTS = [f"tenant_{number}" for number in range(5)]


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "account"
    id: Mapped[int] = mapped_column(primary_key=True)
    owner: Mapped[str]
    balance: Mapped[int]


def engine(uri, **options):
    defaults = {"pool_size": 4, "max_overflow": 4, "pool_pre_ping": True, "pool_use_lifo": True}
    return create_engine(uri.replace("postgres://", "postgresql+psycopg://"), **{**defaults, **options})


def in_threads(work, count):
    with concurrent.futures.ThreadPoolExecutor(count) as threads:
        return list(threads.map(work, range(count)))


@contextlib.contextmanager
def refused(kind):
    """Says which of the driver's errors it was."""
    try:
        yield
    except exc.DBAPIError as error:
        assert type(error.orig).__name__ == kind, error
        print(f"refused: {kind}")
    else:
        raise AssertionError(f"no {kind}")


# --- the scenarios ----------------------------------------------------------------------------------------------
def tenants(uri):
    """A schema for each tenant: whoever takes a connection from the pool sets its search_path, outside of every transaction."""
    tenant = threading.local()
    one = engine(uri)

    @event.listens_for(one, "checkout")
    def choose(connection, _record, _proxy):
        connection.autocommit = True
        connection.execute(f"SET search_path TO {tenant.name}")
        connection.autocommit = False

    def make(number):
        tenant.name = TENANTS[number]
        with one.begin() as connection:
            connection.execute(text(f"DROP SCHEMA IF EXISTS {tenant.name} CASCADE"))
            connection.execute(text(f"CREATE SCHEMA {tenant.name}"))
            Base.metadata.create_all(connection)

    def work(number):
        for turn in range(20):
            tenant.name = TENANTS[(number + turn) % len(TENANTS)]
            with Session(one) as session:
                session.add(Account(owner=tenant.name, balance=turn))
                session.commit()
                strangers = select(func.count()).where(Account.owner != tenant.name)
                assert session.scalar(strangers) == 0, f"{tenant.name} sees rows of another tenant"

    for number in range(len(TENANTS)):
        make(number)
    in_threads(work, 8)
    for tenant.name in TENANTS:
        with Session(one) as session:
            print(*session.execute(select(Account.owner, func.count(), func.sum(Account.balance)).group_by(Account.owner)).one())
    one.dispose()


def streams(uri):
    """Cursors of the server, in a transaction, with other statements on the same connection while rows are read."""
    one = engine(uri)

    def work(number):
        with one.connect() as connection:
            rows = connection.execution_options(stream_results=True, max_row_buffer=50)
            total = 0
            for batch in rows.execute(text("SELECT generate_series(1, 500) AS n")).partitions(100):
                total += sum(row.n for row in batch)
                total += connection.execution_options(stream_results=False).scalar(select(number))
            return total

    print(*in_threads(work, 8))
    one.dispose()


def temporary(uri):
    """Rows are loaded into a temporary table that lives in the session, over several transactions."""
    one = engine(uri)

    def work(number):
        with one.connect() as connection:
            loaded = Table("loaded", MetaData(), *(Column(one.name, one.type) for one in Account.__table__.columns if one.name != "id"), prefixes=["TEMPORARY"])
            loaded.create(connection)
            connection.commit()
            for turn in range(5):
                connection.execute(loaded.insert(), [{"owner": f"thread {number}", "balance": turn} for _ in range(10)])
                connection.commit()
            found = connection.execute(select(loaded.c.owner, func.sum(loaded.c.balance)).group_by(loaded.c.owner)).all()
            loaded.drop(connection)
            connection.commit()
            return [tuple(row) for row in found]

    print(*in_threads(work, 6))
    with one.connect() as connection, refused("UndefinedTable"):
        connection.execute(text("SELECT * FROM loaded"))
    one.dispose()


def isolation(uri):
    """Isolation levels: of the driver's BEGIN, and as the default of a session."""
    one, two = engine(uri), engine(uri)
    show = text("SHOW transaction_isolation")

    @event.listens_for(two, "connect")
    def serializable(connection, _record):
        connection.autocommit = True
        connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY")
        connection.autocommit = False

    def work(_):
        for _ in range(10):
            with one.connect() as connection:
                assert connection.scalar(show) == "read committed"
            with two.connect() as connection:
                levels = connection.scalar(show), connection.scalar(text("SHOW transaction_read_only"))
                assert levels == ("serializable", "on"), levels
            with one.connect().execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True) as connection:
                levels = connection.scalar(show), connection.scalar(text("SHOW transaction_read_only"))
                assert levels == ("repeatable read", "on"), levels

    in_threads(work, 4)
    with two.connect() as connection, refused("ReadOnlySqlTransaction"):
        connection.execute(text("CREATE TABLE written (number int)"))
    print(two.connect().get_isolation_level())
    one.dispose()
    two.dispose()


def twophase(uri):
    """Transactions of two phases: prepared on one connection, found and committed on another."""
    one = engine(uri)
    with one.connect() as connection:
        for identifier in connection.recover_twophase():  # of a run that failed: it holds locks
            connection.rollback()
            connection.rollback_prepared(identifier, recover=True)
    with one.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS account"))
        Base.metadata.create_all(connection)

    def work(number):
        for turn in range(5):
            with Session(one, twophase=True) as session:
                session.add(Account(owner=f"thread {number}", balance=turn))
                if turn == 4:
                    session.prepare()
                    session.rollback()
                else:
                    session.commit()

    in_threads(work, 4)
    with one.connect() as connection:
        transaction = connection.begin_twophase("sqlalchemy left")
        connection.execute(Account.__table__.insert(), {"owner": "left", "balance": 7})
        transaction.prepare()
        connection.invalidate()
    with one.connect() as connection:
        print(connection.recover_twophase())
        connection.rollback()
        connection.commit_prepared("sqlalchemy left", recover=True)
        print(*connection.execute(select(Account.owner, func.sum(Account.balance)).group_by(Account.owner).order_by(Account.owner)))
    one.dispose()


def connect(uri):
    """Startup parameters, in `options` too, and what RESET returns to; the pool's own reset empties the session."""
    arguments = {"options": "-c lock_timeout=7s -c app.region=north", "application_name": "check"}
    one = engine(uri, connect_args=arguments, pool_reset_on_return=None, pool_size=2)

    @event.listens_for(one, "reset")
    def discard(connection, _record, _state):
        connection.rollback()
        connection.autocommit = True
        connection.execute("DISCARD ALL")
        connection.autocommit = False

    def work(number):
        for turn in range(5):
            with one.connect() as connection:
                asked = [connection.scalar(text(f"SHOW {name}")) for name in ("lock_timeout", "app.region", "work_mem")]
                assert asked == ["7s", "north", memory], asked
                connection.execute(text(f"SET lock_timeout = {number + 1}"))
                connection.execute(text("SET work_mem = '5MB'"))
                connection.commit()
                assert connection.scalar(text("SHOW lock_timeout")) == f"{number + 1}ms"
                connection.execute(text("RESET lock_timeout"))
                connection.commit()
                assert connection.scalar(text("SHOW lock_timeout")) == "7s"

    with one.connect() as connection:
        memory = connection.scalar(text("SHOW work_mem"))
    in_threads(work, 6)
    print(memory)
    one.dispose()


def main(arguments):
    if arguments == ["--list"]:
        print(*SCENARIOS, sep="\n")
        return
    *names, uri = arguments
    for name in names or SCENARIOS:
        print(f"--- {name}")
        globals()[name](uri)


main(sys.argv[1:])
