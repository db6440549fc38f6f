//! Texts of every command, and what is read from them.

use super::*;

fn all(text: &str) -> Vec<Statement> {
    statements(text.as_bytes(), Backslash::Literal)
}

fn one(text: &str) -> Statement {
    let mut found = all(text);
    assert_eq!(found.len(), 1, "{text:.200}");
    found.remove(0)
}

fn command(text: &str) -> Command {
    one(text).command
}

fn name(text: &str) -> Name {
    Some(text.to_owned())
}

fn calls(text: &str) -> Vec<String> {
    let called = |function: FunctionName| match function.schema {
        Some(schema) => format!("{schema}.{}", function.name),
        None => function.name,
    };
    one(text).calls.into_iter().map(called).collect()
}

#[test]
fn statements_end_at_semicolons_of_their_own() {
    assert_eq!(all("").len(), 0);
    assert_eq!(all(" ; ;-- x\n;").len(), 0);
    assert_eq!(all("select ';'; select $$;$$; select \";\" /* ; */").len(), 3);
    assert_eq!(all("create rule r as on insert to t do (select 1; select 2); select 3").len(), 2);
    let body = "create or replace function f() returns int language sql begin atomic select case when true then 1 end; select 2; end; select 3";
    assert_eq!(all(body).len(), 2);
    assert_eq!(all("begin; commit").len(), 2, "that BEGIN opens no body");
}

#[test]
fn a_backslash_ends_no_string_where_it_escapes() {
    let text = b"select '\\'; listen a; --'";
    assert_eq!(statements(text, Backslash::Literal).len(), 2);
    assert_eq!(statements(text, Backslash::Escape).len(), 1);
    assert_eq!(statements(b"select n'\\'; listen a; --'", Backslash::Escape).len(), 1);
    assert_eq!(statements(b"select E'\\'; listen a; --'", Backslash::Literal).len(), 1);
}

#[test]
fn transactions_are_told_apart() {
    assert_eq!(command("BEGIN"), Command::Begin { is_plain: true });
    assert_eq!(command("begin work;"), Command::Begin { is_plain: true });
    assert_eq!(command("start transaction"), Command::Begin { is_plain: true });
    assert_eq!(command("begin isolation level serializable"), Command::Begin { is_plain: false });
    assert_eq!(command("start transaction read only"), Command::Begin { is_plain: false });
    assert_eq!(command("end"), Command::Commit { chain: false });
    assert_eq!(command("commit and chain"), Command::Commit { chain: true });
    assert_eq!(command("rollback work and no chain"), Command::Rollback { chain: false });
    assert_eq!(command("abort"), Command::Rollback { chain: false });
    assert_eq!(command("rollback to savepoint \"A b\""), Command::RollbackTo(name("A b")));
    assert_eq!(command("rollback transaction to S1"), Command::RollbackTo(name("s1")));
    assert_eq!(command("savepoint S1"), Command::Savepoint(name("s1")));
    assert_eq!(command("release savepoint s1"), Command::Release(name("s1")));
    assert_eq!(command("release s1"), Command::Release(name("s1")));
    for text in ["prepare transaction 'x'", "commit prepared 'x'", "rollback prepared 'x'"] {
        assert_eq!(command(text), Command::TwoPhase, "{text}");
    }
    assert_eq!(command("start"), Command::Other);
}

#[test]
fn every_form_of_set_names_its_setting() {
    let set =
        |scope, name: &str, value| Command::Set(SetCommand::Setting { scope, name: name.into(), value });
    let text = |value: &str| SettingValue::Values(vec![Value::Text(value.into())]);
    let word = |value: &str| SettingValue::Values(vec![Value::Name(value.into())]);
    let (session, local) = (Scope::Session, Scope::Local);
    for (sql, expected) in [
        ("SET a = 'it''s'", set(session, "a", text("it's"))),
        ("set session DateStyle to ISO", set(session, "datestyle", word("iso"))),
        ("set local a.B = on", set(local, "a.b", word("on"))),
        ("set a = default", set(session, "a", SettingValue::Default)),
        ("set a = -1.5", set(session, "a", SettingValue::Values(vec![Value::Number("-1.5".into())]))),
        (
            "set search_path = \"$user\", Public",
            set(
                session,
                "search_path",
                SettingValue::Values(vec![Value::Name("$user".into()), Value::Name("public".into())]),
            ),
        ),
        ("set time zone 'UTC'", set(session, "timezone", text("UTC"))),
        ("set time zone local", set(session, "timezone", SettingValue::Default)),
        ("set time zone interval '1' hour", set(session, "timezone", SettingValue::Unknown)),
        ("set names 'LATIN1'", set(session, "client_encoding", text("LATIN1"))),
        ("set names", set(session, "client_encoding", SettingValue::Default)),
        ("set schema 'x'", set(session, "search_path", text("x"))),
        ("set role none", set(session, "role", word("none"))),
        ("set session authorization default", set(session, "session_authorization", SettingValue::Default)),
        ("set local session authorization joe", set(local, "session_authorization", word("joe"))),
        ("set xml option document", set(session, "xmloption", word("document"))),
        ("set a = E'x\\n'", set(session, "a", SettingValue::Unknown)),
        ("set a = 'x' 'y'", set(session, "a", SettingValue::Unknown)),
        ("set transaction read only", Command::Set(SetCommand::Transaction)),
        ("set constraints all deferred", Command::Set(SetCommand::Transaction)),
        ("set session characteristics as transaction read only", Command::Set(SetCommand::Characteristics)),
        ("set a", Command::Set(SetCommand::Other)),
        ("set", Command::Set(SetCommand::Other)),
        ("set U&\"d\\0061t\" = 1", Command::Set(SetCommand::Other)),
        ("reset all", Command::Set(SetCommand::ResetAll)),
        ("reset a.b", Command::Set(SetCommand::Reset(name("a.b")))),
        ("reset time zone", Command::Set(SetCommand::Reset(name("timezone")))),
        ("reset session authorization", Command::Set(SetCommand::Reset(name("session_authorization")))),
    ] {
        assert_eq!(command(sql), expected, "{sql}");
        assert_eq!(one(sql).changes, Changes::SETTINGS, "{sql}");
    }
}

#[test]
fn a_string_with_an_escape_shows_no_value() {
    let found = statements(b"set a = 'x\\y'", Backslash::Escape);
    let value = SettingValue::Unknown;
    let expected = SetCommand::Setting { scope: Scope::Session, name: "a".into(), value };
    assert_eq!(found[0].command, Command::Set(expected));
}

#[test]
fn what_stays_in_the_session_is_named() {
    for (sql, expected, changes) in [
        ("listen \"A\"", Command::Listen(name("A")), Changes::CHANNELS),
        ("unlisten *", Command::Unlisten(Target::All), Changes::CHANNELS),
        ("unlisten a", Command::Unlisten(Target::One(name("a"))), Changes::CHANNELS),
        ("notify a, 'x'", Command::Notify, Changes::NONE),
        ("deallocate prepare all", Command::Deallocate(Target::All), Changes::PREPARED),
        ("deallocate P", Command::Deallocate(Target::One(name("p"))), Changes::PREPARED),
        ("close c", Command::Close(Target::One(name("c"))), Changes::CURSORS),
        ("close all", Command::Close(Target::All), Changes::CURSORS),
        ("discard temp", Command::Discard(Discarded::Temporary), Changes::TEMPORARY),
        ("discard plans", Command::Discard(Discarded::Plans), Changes::NONE),
        ("load 'auto_explain'", Command::Load, Changes::LIBRARIES),
        ("do $$ begin end $$", Command::Code, Changes::ANYTHING),
        ("call p()", Command::Code, Changes::ANYTHING),
        (
            "declare c cursor for select 1",
            Command::Declare { name: name("c"), is_holdable: false },
            Changes::NONE,
        ),
        (
            "declare c no scroll cursor with hold for select 1",
            Command::Declare { name: name("c"), is_holdable: true },
            Changes::CURSORS,
        ),
        ("fetch 10 from c", Command::Fetch, Changes::NONE),
        ("select pg_advisory_lock(1)", Command::Select, Changes::LOCKS),
        (
            "select pg_catalog.set_config('a', 'b', false)",
            Command::SetConfig(vec![ConfigCall { name: name("a"), scope: Some(Scope::Session) }]),
            Changes::SETTINGS,
        ),
        ("select \"set_config\"($1, $2, true)", Command::Select, Changes::SETTINGS),
        ("select nextval('s')", Command::Select, Changes::SEQUENCES),
        ("select 1 into temp t", Command::Select, Changes::TEMPORARY),
        ("select * from pg_temp_3.t", Command::Select, Changes::TEMPORARY),
    ] {
        let found = one(sql);
        assert_eq!((found.command, found.changes), (expected, changes), "{sql}");
    }
    for sql in [
        "create temp table t (a int)",
        "create or replace local temporary view v as select 1",
        "drop table t",
    ] {
        let found = one(sql);
        assert_eq!((&found.command, found.access), (&Command::Utility, Access::Writes), "{sql}");
        assert!(found.changes.any(Changes::TEMPORARY), "{sql}");
    }
    assert!(!one("create table t (a int)").changes.any(Changes::TEMPORARY));
}

#[test]
fn statements_inside_of_others_are_followed() {
    let Command::Prepare(given, inner) = command("prepare P (int, text) as update t set a = $1") else {
        panic!()
    };
    assert_eq!((given, inner.access), (name("p"), Access::Writes));
    let explained = one("explain (analyze, costs off) delete from t");
    assert_eq!(explained.access, Access::Writes);
    assert_eq!(one("explain delete from t").access, Access::Reads);
    assert!(one("explain select f(1)").changes.any(Changes::FUNCTIONS), "planning may call it");
    assert_eq!(one("explain (select 1)").changes, Changes::NONE);
    let deep = format!("{}select 1", "explain ".repeat(5_000));
    assert!(one(&deep).changes.any(Changes::ANYTHING));
    assert!(one("execute p(1)").changes.any(Changes::ANYTHING));
}

#[test]
fn what_writes_is_told_from_what_reads() {
    use Access::{Reads, Unknown, Writes};
    for (sql, access) in [
        ("select * from t where a = (select max(b) from u)", Reads),
        ("(select 1) union all (select 2)", Reads),
        ("values (1), (2)", Reads),
        ("table t", Reads),
        ("with x as (select 1) select * from x", Reads),
        ("with x (a) as (select 1) select * from x", Reads),
        ("with recursive x (a) as materialized (select 1) select * from x", Reads),
        ("with x as (insert into t values (1) returning a) select * from x", Writes),
        ("with x as (select 1) insert into t select * from x", Writes),
        ("with x as (select 1) (select 2)", Reads),
        ("select * from t for update", Writes),
        ("select * from t for no key update of t", Writes),
        ("select * from t for key share", Writes),
        ("select t.update, t.share from t", Reads),
        ("select a into b from t", Writes),
        ("insert into t (a, b) values (1, 2) on conflict (a) do update set b = 3", Writes),
        ("merge into t using u on true when matched then delete", Writes),
        ("copy t to stdout", Reads),
        ("copy t (a, b) to stdout", Reads),
        ("copy (select 1) to stdout with (format csv)", Reads),
        ("copy (delete from t returning a) to stdout", Writes),
        ("copy t to '/tmp/x'", Unknown),
        ("copy t from stdin", Writes),
        ("copy t (a) from program 'x'", Writes),
        ("show all", Reads),
        ("set a = 1", Reads),
        ("lock t", Writes),
        ("vacuum t", Writes),
        ("select txid_current()", Writes),
        ("select nextval('s')", Writes),
        ("select pg_is_in_recovery()", Unknown),
        ("select my_function(1)", Unknown),
        ("do $$ begin end $$", Unknown),
        ("wibble", Unknown),
        ("'x'", Unknown),
    ] {
        assert_eq!(one(sql).access, access, "{sql}");
    }
}

#[test]
fn calls_are_told_from_syntax() {
    for (sql, expected) in [
        ("select count(*), S.F(1), \"G h\"(2), count(3) from t", &["count", "s.f", "G h"][..]),
        ("select a::numeric(10, 2), cast(b as varchar(3)), c::character varying(4) from t", &[]),
        ("select 1 where a in (1) and exists (select 2) group by (a), b order by (a)", &[]),
        ("select sum(a) filter (where b) over (partition by c) from t", &["sum"]),
        ("select sum(a) over () from t join (select 1) x on (true)", &["sum"]),
        ("select 1 operator(pg_catalog.+) over(1)", &["operator", "over"]),
        ("select over(1)", &["over"]),
        (
            "select join(1), filter(2), conflict(3), first(4), by(5)",
            &["join", "filter", "conflict", "first", "by"],
        ),
        ("insert into s.t (a) select 1 on conflict (a) do nothing", &[]),
        ("select 1 from a join b on conflict(1)", &["conflict"]),
        ("select extract(year from now()), date '2020-01-01', interval(3) '1 s'", &["now"]),
        ("select x.select(1)", &["x.select"]),
        ("select t.* from generate_series(1, 2) as t (a)", &["generate_series"]),
        ("fetch first (1) rows only", &[]),
    ] {
        assert_eq!(calls(sql), expected, "{sql}");
    }
    let hidden = one("select U&\"\\0066\"(1)");
    assert!(hidden.calls.is_empty() && hidden.changes.any(Changes::FUNCTIONS), "its name is not shown");
    assert_eq!(one("select now(), count(*)").changes, Changes::NONE);
    for sql in ["select public.now()", "select \"Now\"()"] {
        assert!(one(sql).changes.any(Changes::FUNCTIONS), "not PostgreSQL's: {sql}");
    }
}

#[test]
fn many_calls_are_not_all_kept() {
    let found =
        one(&format!("select {}", (0..5_000).map(|n| format!("f{n}()")).collect::<Vec<_>>().join(",")));
    assert!(found.calls.len() <= 64 && found.changes.any(Changes::FUNCTIONS));
}

#[test]
fn what_was_not_looked_at_may_do_anything() {
    let long = format!("insert into t values ('{}')", "x".repeat(ANALYSED_BYTES));
    let found = all(&long);
    assert_eq!((found[0].access, found.len()), (Access::Writes, 2));
    assert!(found.iter().all(|statement| statement.changes.any(Changes::ANYTHING)));
    let many = all(&"select 1;".repeat(MAX_STATEMENTS + 1));
    assert_eq!(many.len(), MAX_STATEMENTS + 1);
    assert_eq!(many.last().map(|last| last.changes), Some(Changes::ANYTHING));
}

#[test]
fn names_are_folded_cut_and_never_guessed() {
    let long = "n".repeat(80);
    assert_eq!(command(&format!("listen {long}")), Command::Listen(name(&long[..63])));
    assert_eq!(command("listen \"a\"\"b\""), Command::Listen(name("a\"b")));
    assert_eq!(command("listen U&\"x\""), Command::Listen(None));
    let bytes = statements(b"listen \xe9t\xe9", Backslash::Literal);
    assert_eq!(bytes[0].command, Command::Listen(None));
}
