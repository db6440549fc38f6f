//! `tokio-check SCENARIO URI` runs one scenario of tokio-postgres against a pooler and exits with 0 where all was right.
//! The library pipelines, names its statements and cancels by itself: what a pooler has to get right for Rust programs.
//! Started by tests/e2e/test_tokio_postgres.py, which also starts the pooler; `--list` names the scenarios.

use std::{error::Error, future::Future, pin::Pin, time::Duration};

use bytes::Bytes;
use futures_util::{SinkExt, TryStreamExt, future, pin_mut};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage, error::SqlState};

type Outcome = Result<(), Box<dyn Error>>;
type Scenario = fn(String) -> Pin<Box<dyn Future<Output = Outcome>>>;

const SCENARIOS: &[(&str, Scenario)] = &[
    ("prepared", |uri| Box::pin(prepared(uri))),
    ("pipelined", |uri| Box::pin(pipelined(uri))),
    ("many_clients", |uri| Box::pin(many_clients(uri))),
    ("transactions", |uri| Box::pin(transactions(uri))),
    ("portals", |uri| Box::pin(portals(uri))),
    ("copy", |uri| Box::pin(copy(uri))),
    ("cancel", |uri| Box::pin(cancel(uri))),
    ("errors", |uri| Box::pin(errors(uri))),
    ("simple", |uri| Box::pin(simple(uri))),
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [list] if list == "--list" => {
            SCENARIOS.iter().for_each(|(name, _)| println!("{name}"));
            Ok(())
        }
        [name, uri] => {
            let (_, scenario) =
                SCENARIOS.iter().find(|(known, _)| known == name).ok_or("no such scenario")?;
            tokio::time::timeout(Duration::from_secs(30), scenario(uri.clone())).await?
        }
        _ => Err("usage: tokio-check SCENARIO URI | --list".into()),
    }
}

async fn connect(uri: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(uri, NoTls).await?;
    // Its error, if any, is what the client's next request reports.
    tokio::spawn(connection);
    Ok(client)
}

/// One statement for the life of the client, on whatever server it meets.
async fn prepared(uri: String) -> Outcome {
    let client = connect(&uri).await?;
    let statement = client.prepare("select $1::int8 * 2, $2::text").await?;
    for number in 0..200_i64 {
        let row = client.query_one(&statement, &[&number, &"ü"]).await?;
        assert_eq!((row.get::<_, i64>(0), row.get::<_, &str>(1)), (number * 2, "ü"));
    }
    drop(statement); // sends Close
    assert_eq!(client.query_one("select 1::int4", &[]).await?.get::<_, i32>(0), 1);
    Ok(())
}

/// Requests are sent without waiting; each future gets its own answer.
async fn pipelined(uri: String) -> Outcome {
    let client = connect(&uri).await?;
    let statement = client.prepare("select $1::int4").await?;
    let numbers: Vec<i32> = (0..300).collect();
    let rows = future::try_join_all(numbers.iter().map(|number| {
        let (client, statement) = (&client, &statement);
        async move { client.query_one(statement, &[number]).await }
    }))
    .await?;
    assert!(rows.iter().zip(&numbers).all(|(row, number)| row.get::<_, i32>(0) == *number));
    Ok(())
}

/// Far more clients than servers, all with statements of the same generated names.
async fn many_clients(uri: String) -> Outcome {
    let clients = future::try_join_all((0..40).map(|_| connect(&uri))).await?;
    let work = clients.iter().zip(0_i32..).map(|(client, number)| async move {
        let text = format!("select $1::int4 + {number}");
        let statement = client.prepare(&text).await?;
        for round in 0..20_i32 {
            assert_eq!(client.query_one(&statement, &[&round]).await?.get::<_, i32>(0), round + number);
        }
        Ok::<_, tokio_postgres::Error>(())
    });
    future::try_join_all(work).await?;
    Ok(())
}

/// A transaction that is dropped is rolled back, one that is committed is there for others.
async fn transactions(uri: String) -> Outcome {
    let (mut one, two) = (connect(&uri).await?, connect(&uri).await?);
    one.batch_execute("drop table if exists tokio_kept; create table tokio_kept (number int4)").await?;
    let transaction = one.transaction().await?;
    transaction.execute("insert into tokio_kept values ($1)", &[&1_i32]).await?;
    drop(transaction);
    let transaction = one.transaction().await?;
    transaction.execute("insert into tokio_kept values ($1)", &[&2_i32]).await?;
    transaction.commit().await?;
    let rows = two.query("select number from tokio_kept", &[]).await?;
    assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<i32>>(), [2]);
    Ok(())
}

/// A result read in parts, in a transaction.
async fn portals(uri: String) -> Outcome {
    let mut client = connect(&uri).await?;
    let transaction = client.transaction().await?;
    let portal = transaction.bind("select generate_series(1, 25)", &[]).await?;
    let mut sizes = Vec::new();
    loop {
        let rows = transaction.query_portal(&portal, 10).await?;
        sizes.push(rows.len());
        if rows.len() < 10 {
            break;
        }
    }
    assert_eq!(sizes, [10, 10, 5]);
    Ok(transaction.commit().await?)
}

/// COPY in and out, some megabytes, and one given up half-way.
async fn copy(uri: String) -> Outcome {
    let client = connect(&uri).await?;
    client.batch_execute("drop table if exists tokio_copied; create table tokio_copied (line text)").await?;
    let line = Bytes::from(format!("{}\n", "x".repeat(999)));
    let sink = client.copy_in("copy tokio_copied from stdin").await?;
    pin_mut!(sink);
    for _ in 0..5_000 {
        sink.feed(line.clone()).await?;
    }
    assert_eq!(sink.finish().await?, 5_000);
    drop(client.copy_in::<_, Bytes>("copy tokio_copied from stdin").await?); // sends CopyFail
    let stream = client.copy_out("copy tokio_copied to stdout").await?;
    let size = stream.try_fold(0, |size, part| future::ready(Ok(size + part.len()))).await?;
    assert_eq!(size, 5_000_000);
    Ok(())
}

/// A cancel ends the query it is for, and the session goes on.
async fn cancel(uri: String) -> Outcome {
    let (client, other) = (connect(&uri).await?, connect(&uri).await?);
    let token = client.cancel_token();
    let stop = async {
        // PostgreSQL drops a cancel that comes before it has begun the query.
        let running = "select count(*) from pg_stat_activity where query like '%/* tokio */' and wait_event = 'PgSleep'";
        while other.query_one(running, &[]).await?.get::<_, i64>(0) == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        token.cancel_query(NoTls).await
    };
    let (answer, stopped) = future::join(client.batch_execute("select pg_sleep(60) /* tokio */"), stop).await;
    stopped?;
    assert_eq!(answer.expect_err("it was cancelled").code(), Some(&SqlState::QUERY_CANCELED));
    assert_eq!(client.query_one("select 1::int4", &[]).await?.get::<_, i32>(0), 1);
    Ok(())
}

/// Errors between good requests of one pipeline stay where they belong.
async fn errors(uri: String) -> Outcome {
    let client = connect(&uri).await?;
    for _ in 0..20 {
        let (good, bad, also_good) = future::join3(
            client.query_one("select 1::int4", &[]),
            client.query_one("select nonsense", &[]),
            client.query_one("select 2::int4", &[]),
        )
        .await;
        assert_eq!(good?.get::<_, i32>(0), 1);
        assert_eq!(bad.expect_err("no such column").code(), Some(&SqlState::UNDEFINED_COLUMN));
        assert_eq!(also_good?.get::<_, i32>(0), 2);
    }
    Ok(())
}

/// The simple protocol with several statements.
async fn simple(uri: String) -> Outcome {
    let client = connect(&uri).await?;
    let messages = client.simple_query("select 'one'; select 'two'; select 1 where false").await?;
    let rows: Vec<_> = messages
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        })
        .collect();
    assert_eq!(rows, ["one", "two"]);
    Ok(())
}
