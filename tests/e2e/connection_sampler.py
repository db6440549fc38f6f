"""The most server connections that PostgreSQL has had, some hundred times a second, by a direct connection. A loop inside of PostgreSQL looks, so that a process with
many threads, as a test is, does not slow it down."""

import threading

import psycopg

# The poolers' connections: the tests' own user is postgres.
OURS = "datname = 'app' and usename = 'alice' and backend_type = 'client backend'"
AT_ONCE = 20
# Of these samples the most connections, and which they were where there were more than the budget.
SAMPLE = f"""
create function pg_temp.sample(budget int, out most int, out which text) as $$
declare n int;
begin
  most := 0;
  for i in 1..{AT_ONCE} loop
    perform pg_stat_clear_snapshot(), pg_sleep(0.001);
    select count(*) into n from pg_stat_activity where {OURS};
    if n > budget and which is null then
      select string_agg(format('%s from port %s since %s, %s since %s: %s', pid, client_port, backend_start::time, state, state_change::time, query), E'\\n')
        into which from pg_stat_activity where {OURS};
    end if;
    most := greatest(most, n);
  end loop;
end $$ language plpgsql"""


class Sampler(threading.Thread):
    """Runs until `stop()`. `above` has what was seen above the budget, with the last lines of a journal of the caller's."""

    def __init__(self, pg, budget, journal):
        super().__init__(daemon=True)
        self.pg, self.budget, self.journal, self.over = pg, budget, journal, threading.Event()
        self.most, self.samples, self.above, self.failure = 0, 0, [], None
        self.start()

    def run(self):
        try:
            with psycopg.connect(host="127.0.0.1", port=self.pg.port, user="postgres", dbname="postgres", autocommit=True) as connection:
                connection.execute(SAMPLE)
                while not self.over.is_set():
                    most, which = connection.execute("select * from pg_temp.sample(%s)", [self.budget]).fetchone()
                    self.most, self.samples = max(self.most, most), self.samples + AT_ONCE
                    if which:
                        self.above.append("\n".join([f"{most} connections:", which, "after:", *self.journal[-12:]]))
        except psycopg.Error as error:
            self.failure = error

    def stop(self):
        self.over.set()
        self.join(30)
        assert not self.failure, self.failure
