//! One large result and one COPY FROM STDIN, by a client that keeps up; what counts is CPU time for a gigabyte.

use std::time::Instant;

use crate::full::Bench;
use crate::full::account::accounted;
use crate::full::sample::Sample;
use crate::full::subjects::Contender;
use crate::full::work::Label;
use lab::client::{Client, Login};
use lab::error::Result;
use lab::laboratory::ROLE;

/// Bytes of one row's text.
const ROW_BYTES: u64 = 1_000;
const TABLE: &str = "bulk";
const WARM_UP_BYTES: u64 = 4_000_000;

/// The large result.
pub(super) fn select(bench: &Bench<'_>, contender: &Contender, label: &Label) -> Result<Sample> {
    measured(bench, contender, label, |client| client.drain(&query(bench.sizes.bulk_bytes)))
}

/// The COPY, into an empty table without write-ahead log: the server shall not be what is waited for.
pub(super) fn copy_in(bench: &Bench<'_>, contender: &Contender, label: &Label) -> Result<Sample> {
    make_table(bench)?;
    measured(bench, contender, label, |client| {
        client.copy_in(TABLE, &line(), messages(bench.sizes.bulk_bytes))
    })
}

/// A little of both.
pub(super) fn warm_up(bench: &Bench<'_>, contender: &Contender) -> Result<()> {
    make_table(bench)?;
    let mut client = Client::connect(contender.target.port, ROLE, ROLE)?;
    client.drain(&query(WARM_UP_BYTES))?;
    client.copy_in(TABLE, &line(), messages(WARM_UP_BYTES)).map(drop)
}

fn measured(
    bench: &Bench<'_>,
    contender: &Contender,
    label: &Label,
    work: impl FnOnce(&mut Client) -> Result<u64>,
) -> Result<Sample> {
    let login = Login::plain(ROLE, ROLE);
    let mut client = Client::connect_as(contender.target.port, &login, &mut bench.secrets.keyring())?;
    let begin = Instant::now();
    let (bytes, cost) = accounted(contender.leader(), || work(&mut client))?;
    let seconds = begin.elapsed().as_secs_f64();
    let units = bytes as f64 / 1e9;
    let said = format!("{bytes} bytes in {seconds:.6} s\n{cost:#?}\n");
    let logs = vec![bench.keep(label, "bulk", &said)?];
    Ok(Sample { units, rate: Some(units / seconds), cost, logs, ..Sample::default() })
}

fn make_table(bench: &Bench<'_>) -> Result<()> {
    let mut superuser = bench.lab.cluster().superuser(ROLE)?;
    for statement in [
        format!("DROP TABLE IF EXISTS {TABLE}"),
        format!("CREATE UNLOGGED TABLE {TABLE} (line text)"),
        format!("ALTER TABLE {TABLE} OWNER TO {ROLE}"),
        "CHECKPOINT".to_owned(),
    ] {
        superuser.query(&statement)?;
    }
    Ok(())
}

fn query(bytes: u64) -> String {
    format!("SELECT repeat('x', {ROW_BYTES}) FROM generate_series(1, {})", messages(bytes))
}

fn line() -> Vec<u8> {
    vec![b'x'; usize::try_from(ROW_BYTES).unwrap_or_default()]
}

fn messages(bytes: u64) -> u64 {
    bytes.div_ceil(ROW_BYTES)
}
