// Program check runs one scenario of pgx against a pooler and exits with 0 where all was right: check SCENARIO URI.
// pgx prepares whatever it runs, pipelines its batches and cancels on connections of their own.
// Started by tests/e2e/test_drivers.py, which also starts the pooler; --list names the scenarios.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/lib/pq" // what Prometheus's exporter is written on
)

type scenario struct {
	name string
	run  func(ctx context.Context, uri string)
}

var scenarios = []scenario{
	{"simple", simple},
	{"prepared", prepared},
	{"transactions", transactions},
	{"failures", failures},
	{"copy", copyBothWays},
	{"cancel", cancel},
	{"crowd", crowd},
	{"large", large},
	{"notices", notices},
	{"parameters", parameters},
	{"console", console},
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--list" {
		for _, one := range scenarios {
			fmt.Println(one.name)
		}
		return
	}
	if len(os.Args) != 3 {
		fail("usage: check SCENARIO URI | --list")
	}
	ctx, stop := context.WithTimeout(context.Background(), 60*time.Second)
	defer stop()
	for _, one := range scenarios {
		if one.name == os.Args[1] {
			one.run(ctx, os.Args[2])
			return
		}
	}
	fail("no such scenario")
}

// --- what every scenario says ---------------------------------------------------------------------------------

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
	os.Exit(1)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func equal[T comparable](found, wanted T) {
	if found != wanted {
		panic(fmt.Sprintf("%v instead of %v", found, wanted))
	}
}

func state(err error) string {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		panic(fmt.Sprintf("not an error of the server: %v", err))
	}
	return refused.Code
}

func configured(uri string) *pgx.ConnConfig {
	config, err := pgx.ParseConfig(uri)
	must(err)
	return config
}

func connect(ctx context.Context, config *pgx.ConnConfig) *pgx.Conn {
	conn, err := pgx.ConnectConfig(ctx, config)
	must(err)
	return conn
}

func value[T any](ctx context.Context, conn *pgx.Conn, sql string, arguments ...any) T {
	var found T
	must(conn.QueryRow(ctx, sql, arguments...).Scan(&found))
	return found
}

// --- the scenarios --------------------------------------------------------------------------------------------

func simple(ctx context.Context, uri string) {
	config := configured(uri)
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn := connect(ctx, config)
	defer conn.Close(ctx)
	for number := 0; number < 50; number++ {
		equal(value[int](ctx, conn, "select $1::int4 + 1", number), number+1)
	}
	results, err := conn.PgConn().Exec(ctx, "select 1; select 2; select 3").ReadAll()
	must(err)
	equal(len(results), 3)
	equal(string(results[2].Rows[0][0]), "3")
}

// Every way that pgx has to prepare, or not to.
func prepared(ctx context.Context, uri string) {
	modes := []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec,
	}
	for _, mode := range modes {
		config := configured(uri)
		config.DefaultQueryExecMode = mode
		one, two := connect(ctx, config), connect(ctx, config)
		for number := 0; number < 100; number++ {
			// Both clients give their statements names of their own; the servers are shared.
			equal(value[int](ctx, one, "select $1::int4 * 2", number), number*2)
			equal(value[string](ctx, two, "select $1::text || '!'", "ü"), "ü!")
		}
		must(one.Close(ctx))
		must(two.Close(ctx))
	}
	// More statements than the client caches, and than the pooler keeps on a server.
	config := configured(uri)
	config.StatementCacheCapacity = 5
	conn := connect(ctx, config)
	defer conn.Close(ctx)
	for round := 0; round < 3; round++ {
		for number := 0; number < 30; number++ {
			equal(value[int](ctx, conn, fmt.Sprintf("select $1::int4 + %d", number), round), round+number)
		}
	}
}

func transactions(ctx context.Context, uri string) {
	one, two := connect(ctx, configured(uri)), connect(ctx, configured(uri))
	defer one.Close(ctx)
	defer two.Close(ctx)
	_, err := one.Exec(ctx, "drop table if exists pgx_kept; create table pgx_kept (number int4)")
	must(err)
	for number, end := range []func(pgx.Tx) error{
		func(tx pgx.Tx) error { return tx.Rollback(ctx) },
		func(tx pgx.Tx) error { return tx.Commit(ctx) },
	} {
		tx, err := one.Begin(ctx)
		must(err)
		_, err = tx.Exec(ctx, "insert into pgx_kept values ($1)", number)
		must(err)
		inner, err := tx.Begin(ctx) // a savepoint
		must(err)
		_, err = inner.Exec(ctx, "insert into pgx_kept values (99)")
		must(err)
		must(inner.Rollback(ctx))
		must(end(tx))
	}
	equal(value[string](ctx, two, "select string_agg(number::text, ',') from pgx_kept"), "1")
}

// Errors alone, in a transaction, and in the middle of a pipelined batch: what follows is right again.
func failures(ctx context.Context, uri string) {
	conn := connect(ctx, configured(uri))
	defer conn.Close(ctx)
	_, err := conn.Exec(ctx, "select 1 / $1::int4", 0)
	equal(state(err), "22012")
	_, err = conn.Exec(ctx, "select nonsense from nowhere")
	equal(state(err), "42P01")
	tx, err := conn.Begin(ctx)
	must(err)
	_, err = tx.Exec(ctx, "select 1 / $1::int4", 0)
	equal(state(err), "22012")
	_, err = tx.Exec(ctx, "select 1")
	equal(state(err), "25P02")
	must(tx.Rollback(ctx))
	// pgx 5.5 itself stumbles over a batch that fails while it caches statements.
	config := configured(uri)
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	piped := connect(ctx, config)
	defer piped.Close(ctx)
	for round := 0; round < 20; round++ {
		batch := &pgx.Batch{}
		for number := 0; number < 10; number++ {
			batch.Queue("select 100 / $1::int4", 5-number)
		}
		results := piped.SendBatch(ctx, batch)
		for number := 0; number < 5; number++ {
			var found int
			must(results.QueryRow().Scan(&found))
			equal(found, 100/(5-number))
		}
		var found int
		equal(state(results.QueryRow().Scan(&found)), "22012")
		_ = results.Close()
		equal(value[int](ctx, piped, "select $1::int4", round), round)
		equal(value[int](ctx, conn, "select $1::int4", round), round)
	}
	for round := 0; round < 20; round++ {
		batch := &pgx.Batch{}
		for number := 0; number < 10; number++ {
			batch.Queue(fmt.Sprintf("select $1::int4 + %d", number), round)
		}
		results := conn.SendBatch(ctx, batch)
		for number := 0; number < 10; number++ {
			var found int
			must(results.QueryRow().Scan(&found))
			equal(found, round+number)
		}
		must(results.Close())
	}
}

func copyBothWays(ctx context.Context, uri string) {
	conn := connect(ctx, configured(uri))
	defer conn.Close(ctx)
	_, err := conn.Exec(ctx, "drop table if exists pgx_copied; create table pgx_copied (number int4, word text)")
	must(err)
	rows := make([][]any, 20000)
	for number := range rows {
		rows[number] = []any{number, strings.Repeat("w", number%100)}
	}
	count, err := conn.CopyFrom(ctx, pgx.Identifier{"pgx_copied"}, []string{"number", "word"}, pgx.CopyFromRows(rows))
	must(err)
	equal(count, 20000)
	var out strings.Builder
	_, err = conn.PgConn().CopyTo(ctx, &out, "copy (select number from pgx_copied order by 1) to stdout")
	must(err)
	equal(strings.Count(out.String(), "\n"), 20000)
	_, err = conn.PgConn().CopyFrom(ctx, strings.NewReader("no number\tx\n"), "copy pgx_copied from stdin")
	equal(state(err), "22P02")
	equal(value[int](ctx, conn, "select count(*) from pgx_copied"), 20000)
}

func cancel(ctx context.Context, uri string) {
	conn, canceller := connect(ctx, configured(uri)), connect(ctx, configured(uri))
	defer conn.Close(ctx)
	defer canceller.Close(ctx)
	ended := make(chan error)
	go func() {
		_, err := conn.Exec(ctx, "select pg_sleep(60) /* pgx */")
		ended <- err
	}()
	running := "select count(*) from pg_stat_activity where query like '%/* pgx */' and wait_event = 'PgSleep'"
	for value[int](ctx, canceller, running) == 0 {
		time.Sleep(20 * time.Millisecond)
	}
	must(conn.PgConn().CancelRequest(ctx))
	equal(state(<-ended), "57014")
	equal(value[int](ctx, conn, "select 1"), 1)
}

// Far more clients than servers, each with statements of its own.
func crowd(ctx context.Context, uri string) {
	var all sync.WaitGroup
	for client := 0; client < 30; client++ {
		all.Add(1)
		go func(client int) {
			defer all.Done()
			conn := connect(ctx, configured(uri))
			defer conn.Close(ctx)
			for round := 0; round < 20; round++ {
				tx, err := conn.Begin(ctx)
				must(err)
				var found int
				must(tx.QueryRow(ctx, fmt.Sprintf("select $1::int4 + %d", client), round).Scan(&found))
				equal(found, client+round)
				must(tx.Commit(ctx))
				equal(value[int](ctx, conn, "select $1::int4", client), client)
			}
		}(client)
	}
	all.Wait()
}

func large(ctx context.Context, uri string) {
	conn := connect(ctx, configured(uri))
	defer conn.Close(ctx)
	text := strings.Repeat("ü", 5_000_000)
	equal(value[string](ctx, conn, "select $1::text", text), text)
	rows, err := conn.Query(ctx, "select repeat('x', 1000) from generate_series(1, $1::int4)", 20000)
	must(err)
	count := 0
	for rows.Next() {
		var word string
		must(rows.Scan(&word))
		equal(len(word), 1000)
		count++
	}
	must(rows.Err())
	equal(count, 20000)
}

func notices(ctx context.Context, uri string) {
	var heard []string
	config := configured(uri)
	config.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) { heard = append(heard, notice.Message) }
	conn := connect(ctx, config)
	defer conn.Close(ctx)
	_, err := conn.Exec(ctx, "do $$ begin raise notice 'one'; raise warning 'two'; end $$")
	must(err)
	equal(strings.Join(heard, ","), "one,two")
}

// What a client sets of itself follows it, and no other client.
func parameters(ctx context.Context, uri string) {
	config := configured(uri)
	config.RuntimeParams["application_name"] = "first"
	one := connect(ctx, config)
	config = configured(uri)
	config.RuntimeParams["application_name"] = "second"
	two := connect(ctx, config)
	defer one.Close(ctx)
	defer two.Close(ctx)
	_, err := two.Exec(ctx, "set timezone to 'Asia/Tokyo'")
	must(err)
	for round := 0; round < 10; round++ {
		equal(value[string](ctx, one, "select current_setting('application_name')"), "first")
		equal(value[string](ctx, two, "select current_setting('application_name')"), "second")
		equal(value[string](ctx, two, "select current_setting('timezone')"), "Asia/Tokyo")
	}
	_, err = one.Exec(ctx, "set application_name to 'renamed'")
	must(err)
	equal(one.PgConn().ParameterStatus("application_name"), "renamed")
	equal(value[string](ctx, two, "select current_setting('application_name')"), "second")
	equal(value[string](ctx, one, "select current_setting('application_name')"), "renamed")
	if value[string](ctx, one, "select current_setting('timezone')") == "Asia/Tokyo" {
		fail("the time zone of another client")
	}
}

// What exporters ask of the console, by the extended protocol and by the simple one.
func console(ctx context.Context, uri string) {
	views := strings.Fields("STATS POOLS DATABASES LISTS CONFIG CLIENTS SERVERS USERS TOTALS STATS_TOTALS STATE VERSION")
	modes := []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	}
	for _, mode := range modes {
		config := configured(uri)
		config.DefaultQueryExecMode = mode
		conn := connect(ctx, config)
		for _, view := range views {
			rows, err := conn.Query(ctx, "SHOW "+view)
			must(err)
			found, err := pgx.CollectRows(rows, pgx.RowToMap)
			must(err)
			if len(found) == 0 && view != "SERVERS" && view != "CLIENTS" {
				fail("SHOW %s is empty", view)
			}
			if view == "DATABASES" {
				_ = found[0]["max_connections"].(int64)
			}
		}
		_, err := conn.Exec(ctx, "SHOW NONSENSE")
		equal(state(err), "42601")
		equal(value[string](ctx, conn, "SHOW VERSION")[:9], "PgBouncer")
		must(conn.Close(ctx))
	}
	database, err := sql.Open("postgres", uri)
	must(err)
	defer database.Close()
	for _, view := range views {
		prepared, err := database.PrepareContext(ctx, "SHOW "+view+";")
		must(err)
		must(read(prepared.QueryContext(ctx)))
		must(prepared.Close())
		must(read(database.QueryContext(ctx, "SHOW "+view+";")))
	}
}

// Reads all rows as an exporter does, into whatever they are.
func read(rows *sql.Rows, err error) error {
	must(err)
	defer rows.Close()
	names, err := rows.Columns()
	must(err)
	for rows.Next() {
		values := make([]any, len(names))
		for index := range values {
			values[index] = new(any)
		}
		must(rows.Scan(values...))
	}
	return rows.Err()
}
