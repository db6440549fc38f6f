"""The SQL of which `session_scripts` makes its scripts: the tables and functions that they use, and the statements.

In a statement `{m}` is the client's own table and `{n}` its number."""

SETUP = """
drop schema if exists s1, s2 cascade;
drop table if exists model_rows;
create schema s1; create schema s2;
create table s1.which (place text); insert into s1.which values ('in s1');
create table s2.which (place text); insert into s2.which values ('in s2');
create function s1.place() returns text language sql as $$ select 'function of s1' $$;
create function s2.place() returns text language sql as $$ select 'function of s2' $$;
create or replace function leave(name text, value text) returns text language plpgsql as $$ begin return set_config(name, value, false); end $$;
create or replace function leave_stable(name text, value text) returns text stable language plpgsql as $$ begin return set_config(name, value, false); end $$;
create or replace function leave_by_sql(name text, value text) returns text language sql as $$ select set_config(name, value, false) $$;
create or replace function leave_and_fail(name text, value text) returns text language plpgsql as $$
    begin perform set_config(name, value, false); raise exception 'left %', name; end $$;
create or replace function leave_caught(name text, value text) returns text language plpgsql as $$
    begin perform set_config(name, value, false); raise exception 'left'; exception when others then return sqlerrm; end $$;
create or replace function leave_locally(name text, value text) returns text language plpgsql as $$
    begin return set_config(name, value, true); end $$;
create or replace function by_clause() returns text language sql set work_mem = '11MB' as $$ select current_setting('work_mem') $$;
create or replace function run(command text) returns text language plpgsql as $$ begin execute command; return command; end $$;
create or replace procedure run_committing(one text, two text) language plpgsql as $$ begin execute one; commit; execute two; end $$;
create or replace procedure run_rolling_back(one text, two text) language plpgsql as $$ begin execute one; rollback; execute two; end $$;
create or replace function leave_by_trigger() returns trigger language plpgsql as $$
    begin perform set_config('lock_timeout', '98s', false); return new; end $$;
create or replace view leaving as select set_config('app.tenant', 'by a view', false) as tenant;
do $$ begin
    if not exists (select from pg_roles where rolname = 'chief') then create role chief login superuser; end if;
    for number in 0 .. 199 loop
        execute format('drop table if exists m%1$s, m%1$s_triggered; drop sequence if exists m%1$s_numbers', number);
        execute format('create table m%1$s (id int primary key, word text); create table m%1$s_triggered (id int)', number);
        execute format('create trigger leaves before insert on m%1$s_triggered for each row execute function leave_by_trigger()', number);
        execute format('create sequence m%1$s_numbers', number);
        execute format('alter table m%1$s owner to alice; alter table m%1$s_triggered owner to alice; alter sequence m%1$s_numbers owner to alice', number);
        execute format('grant select on m%1$s to bob', number);
    end loop;
end $$;
grant bob to alice;
grant usage on schema s1, s2 to public; grant select on all tables in schema s1, s2 to public; grant select on leaving to public;
"""
# What every play begins with.
CONTENTS = """do $$ begin
    for number in 0 .. 199 loop
        execute format('delete from m%1$s; insert into m%1$s select i, ''word '' || i from generate_series(1, 3) i; delete from m%1$s_triggered', number);
        perform setval(format('m%1$s_numbers', number)::regclass, 1, false);
    end loop;
end $$"""

SETTINGS = {
    "work_mem": ["'5MB'", "'6MB'", "4097", "'nonsense'"],
    "lock_timeout": ["'71s'", "'72s'", "99000"],
    "statement_timeout": ["'81s'", "'82s'", "0"],
    "search_path": ["s1, public", "s2, public", "'$user', public, s1", "\"S1\", s2", "pg_catalog", "public, pg_temp"],
    "datestyle": ["'German'", "'ISO, MDY'", "sql, dmy", "'nonsense'"],
    "timezone": ["'Asia/Tokyo'", "'UTC'", "-7", "local", "'Nowhere/No'"],
    "intervalstyle": ["'iso_8601'", "postgres_verbose"],
    "application_name": ["'drawn'", "'it''s'", "'a \"b\" c'"],
    "bytea_output": ["escape", "'hex'"],
    "extra_float_digits": ["0", "3", "77"],
    "default_transaction_isolation": ["serializable", "'repeatable read'"],
    "default_transaction_read_only": ["on", "off"],
    "default_transaction_deferrable": ["on"],
    "enable_seqscan": ["off", "on"],
    "client_min_messages": ["warning", "notice"],
    "row_security": ["off"],
    "app.tenant": ["'42'", "'it''s ö'", "'a, b'", "''", "7"],
    "app.user": ["'one'", "'two'", "three"],
    "\"App\".\"Mixed\"": ["'mixed'"],
    "xmloption": ["document"],
    "session_replication_role": ["replica", "origin"],
    "log_statement": ["'none'"],
    "no_such_setting": ["1"],
    "escape_string_warning": ["off"],
    "standard_conforming_strings": ["off", "on"],
}
# What a function may set: name and value as texts.
BY_FUNCTION = [
    ("work_mem", "7MB"), ("lock_timeout", "61s"), ("app.tenant", "by a function"), ("app.user", "it's"), ("search_path", "s2, public"), ("timezone", "Asia/Tokyo"),
    ("datestyle", "German"), ("application_name", "by a function"), ("role", "bob"), ("role", "none"), ("statement_timeout", "nonsense"),
    ("default_transaction_isolation", "repeatable read"), ("intervalstyle", "sql_standard"), ("app.tenant", ""), ("extra_float_digits", "2"),
]
ROLES = [
    "set role bob", "set role none", "reset role", "set session role 'bob'", "set local role bob", "set role nobody_there", "set session authorization default",
    "set session authorization alice", "set local session authorization alice", "reset session authorization", "set session authorization bob",
    "set session characteristics as transaction isolation level serializable", "set session characteristics as transaction read only",
    "set session characteristics as transaction read write, isolation level read committed", "select set_config('role', 'bob', false)",
]
PROBES = [
    "select current_user, session_user, current_schema, current_schemas(false)", "show all_of_it", "show search_path", "show work_mem", "show lock_timeout",
    "show statement_timeout", "show datestyle", "show timezone", "show role", "show session authorization", "show client_encoding",
    "show transaction_isolation", "show transaction_read_only",
    "select coalesce(nullif(current_setting('app.tenant', true), ''), 'unset'), coalesce(nullif(current_setting('app.user', true), ''), 'unset')",
    "select coalesce(nullif(current_setting('App.Mixed', true), ''), 'unset')",
    "select name, statement from pg_prepared_statements where from_sql order by name",
    "select name, is_holdable from pg_cursors where name <> '' order by name",
    "select locktype, classid, objid, objsubid, mode from pg_locks where locktype = 'advisory' and pid = pg_backend_pid() order by objid, mode",
    "select * from pg_listening_channels() order by 1",
    "select relname from pg_class where relnamespace = pg_my_temp_schema() and relkind in ('r', 'v', 'S') order by 1",
    "select name, setting from pg_settings where name in ('work_mem', 'lock_timeout', 'statement_timeout', 'search_path', 'DateStyle', 'TimeZone', 'IntervalStyle', "
    "'bytea_output', 'extra_float_digits', 'default_transaction_isolation', 'default_transaction_read_only', 'enable_seqscan', 'client_min_messages', 'row_security', "
    "'application_name', 'xmloption', 'session_replication_role', 'escape_string_warning', 'standard_conforming_strings') order by 1",
]
PRISTINE = [text for text in PROBES if text.startswith("select ") and "transaction" not in text[:20]]
READS = [
    "select 1", "select * from {m} order by id", "select place from which", "select place()", "select '03/04/2024'::date, interval '1 day 2 hours'",
    "select timestamptz '2024-01-02 03:04:05+00'", "select '\\x41ff'::bytea, 1.0::float8 / 3", "select 'ü', E'\\\\', $$it's$$", "table {m} order by 1",
    "select count(*) from tmp", "execute p", "fetch 1 from c", "select last_value > 0 from tmp_numbers", "explain (costs off) select * from which", "select 1; select 2", "",
]
WRITES = [
    "insert into {m} values (10, 'ten') on conflict do nothing", "update {m} set word = word || '!' where id = 2 returning *", "delete from {m} where id = 3",
    "insert into {m} (id) select 20 where not exists (select from {m} where id = 20) returning id", "truncate {m}", "lock table {m}",
]
ERRORS = [
    "selec 1", "select 1/0", "select * from nowhere", "insert into {m} values (1, 'twice'), (1, 'twice')", "select 'x'::int", "select nothing()", "commit and",
    "do $$ begin raise exception 'told' using errcode = 'P0042'; end $$", "set", "set work_mem", "set work_mem =", "set work_mem to to", "set = 1", "reset",
    "set local", "set session", "set role", "set a.b.", "set search_path = ,", "set time zone", "set work_mem = '1MB' extra", "set 'work_mem' = 1",
    "select 'unterminated", "select \"unterminated", "select /* unterminated", "select $$unterminated", "select $a$ $b$", "set work_mem = '5MB",
    "set app.tenant = 'a' /* ; select 1", "set work_mem = '9MB'; select 'open", "set lock_timeout = '55s'; set lock_timeout = 'no'; select 2",
    "select set_config('work_mem', 'no', false)", "select set_config('lock_timeout', '44s', false), 1/0", "select set_config(null, 'x', false)",
    "select set_config('app.tenant', null, false)", "select U&'\\00", "deallocate nothing", "close nothing", "execute nothing", "fetch from nothing", "release nothing",
    "listen", "unlisten", "discard", "discard nothing", "load", "load 'no_such_library'", "select pg_advisory_unlock(-77)",
    "set app.tenant = b'1'", "set work_mem = $1", "begin; set work_mem = '3MB'; select 1/0", "rollback to nothing",
]
NOTICES = ["do $$ begin raise notice 'one'; raise warning 'two'; end $$", "drop table if exists never_there", "commit", "rollback", "select pg_advisory_unlock(-78)"]
SAVEPOINTS = ["savepoint a", "savepoint b", "rollback to a", "release a", "rollback to savepoint b", "release b"]
BACKSLASHES = [
    "select 'a\\'; select leave('lock_timeout', '33s'); --'", "select '\\101', 'b\\\\c'", "set app.tenant = 'back\\\\slash'", "select 'it\\'s', leave('work_mem', '12MB'), ''",
    "set app.user = 'x\\'; set work_mem = ''13MB'", "select set_config('app.tenant', 'a\\'b', false)", "select set_config('app.user', E'q\\'r\\\\', false)",
]
IN_TWO = ["public, s1", "s2", "s1"]
# What a startup packet may give.
STARTUP = [
    ("application_name", "at start"), ("datestyle", "German, DMY"), ("timezone", "Asia/Tokyo"), ("client_encoding", "LATIN1"), ("intervalstyle", "iso_8601"),
    ("standard_conforming_strings", "off"), ("search_path", "s1, public"), ("lock_timeout", "51s"), ("work_mem", "4321"), ("app.tenant", "at start"),
    ("options", "-c statement_timeout=91s"), ("options", "-c work_mem=9MB -c app.user=by\\ options"), ("options", "--lock-timeout=52s -c search_path=s2,public"),
    ("extra_float_digits", "2"), ("default_transaction_isolation", "serializable"),
]
