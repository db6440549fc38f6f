//! `weir-harness replicas`: a primary and its streaming standbys behind one entry with `read_write_split`. First pgbench reads and writes through it, and
//! SHOW HOSTS says where the reads went. Then clients write and read back what they wrote while the primary is killed and a standby promoted, and a
//! ledger says what became of each transaction.

mod ledger;
mod stand;

use std::process::Command;
use std::time::Duration;

use clap::Args;
use lab::error::{LabError, Result};
use lab::interrupt::Interrupt;
use lab::laboratory::{Lab, Setup};
use lab::postgres::Standby;
use lab::screen::Screen;
use lab::{figures, pgbench, process};

use crate::programs::Programs;
use ledger::Ledger;
use stand::Stand;

/// The entry's name.
const POOL: &str = "app";

/// PostgreSQL's max_connections, of each server.
const MAX_CONNECTIONS: u32 = 100;

/// pgbench's scale.
const SCALE: u32 = 10;

/// How long clients work before the primary is killed, and after the promotion.
const BEFORE: Duration = Duration::from_secs(3);
const AFTER: Duration = Duration::from_secs(4);

/// Between the end of the primary and the promotion: what a failover manager takes at least.
const UNTIL_PROMOTION: Duration = Duration::from_secs(1);

/// What can be chosen.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Standbys of the primary
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=4))]
    pub standbys: u32,
    /// Clients
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub clients: u32,
    /// Seconds of pgbench
    #[arg(long, env = "DEMO_SECONDS", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: u32,
    /// What is run
    #[command(flatten)]
    pub programs: Programs,
}

/// Runs the demo.
///
/// # Errors
/// When the machine lacks something, a program fails, an acknowledged transaction is lost, or after Ctrl-C; nothing is left running in any case.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    let mut screen = Screen::standard();
    let setup = Setup {
        purpose: "replicas",
        pg_bin: options.programs.pg_bin.clone(),
        max_connections: MAX_CONNECTIONS,
        scale: SCALE,
    };
    let lab = Lab::set_up(&setup, interrupt, &mut screen)?;
    screen.step(&format!("{} streaming standbys of it (pg_basebackup)", options.standbys));
    let start = |number| {
        Standby::start(lab.programs(), lab.place(), lab.cluster(), &format!("standby{number}"), interrupt)
    };
    let standbys: Vec<Standby> = (1..=options.standbys).map(start).collect::<Result<_>>()?;
    let ports = standbys.iter().map(|standby| standby.port().to_string()).collect::<Vec<_>>();
    screen.remark(&format!("ports {}", ports.join(", ")));
    let stand = Stand::start(&lab, &standbys, options)?;
    screen.step(&format!("Weir before all of them; the entry is: {}", stand.entry()));
    stand.wait_until_known(options.standbys, interrupt)?;
    spread(options, &lab, &stand, &mut screen)?;
    fail_over(options, &lab, &standbys, &stand, &mut screen)
}

/// pgbench, nine reads for each write, and where they went.
fn spread(options: &Options, lab: &Lab, stand: &Stand, screen: &mut Screen) -> Result<()> {
    screen.step(&format!(
        "pgbench through Weir: {} clients, nine reads of pgbench_accounts for each update, {} s",
        options.clients, options.seconds
    ));
    let key = format!("\\set aid random(1, {})\n", SCALE * 100_000);
    let reads = format!("{key}SELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n");
    let writes = format!("{key}UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;\n");
    lab.place().write("reads.sql", &reads)?;
    lab.place().write("writes.sql", &writes)?;
    let mut command = Command::new(lab.programs().program("pgbench"));
    command.current_dir(lab.place().path());
    command.args(["-n", "-j", "2", "-f", "reads.sql@9", "-f", "writes.sql@1"]);
    command.args(["-c", &options.clients.to_string(), "-T", &options.seconds.to_string()]);
    command.args(["-h", "127.0.0.1", "-p", &stand.port().to_string(), "-U", lab::laboratory::ROLE, POOL]);
    let finished = process::run(command, lab.place().identity(), lab.interrupt(), &mut |_| {})?;
    let said = finished.success("pgbench")?;
    let summary = pgbench::summary(&said).ok_or_else(|| LabError::program("pgbench", said))?;
    screen.remark(&format!(
        "{} transactions, {} a second, {} failed",
        figures::whole(summary.transactions as f64),
        figures::whole(summary.tps),
        summary.failed
    ));
    let hosts = stand.hosts()?;
    hosts.iter().for_each(|host| screen.remark(&host.to_string()));
    let on_standbys: u64 = hosts.iter().map(|host| host.reads).sum();
    let share = 100.0 * on_standbys as f64 / summary.transactions.max(1) as f64;
    screen.remark(&format!("{share:.0} % of all transactions read from standbys; what a client had just written it read from the primary until they had it"));
    Ok(())
}

/// The primary is killed under load, and a standby promoted.
fn fail_over(
    options: &Options,
    lab: &Lab,
    standbys: &[Standby],
    stand: &Stand,
    screen: &mut Screen,
) -> Result<()> {
    // A primary that waits for no standby loses what it has acknowledged last when it dies.
    let mut superuser = lab.cluster().superuser("postgres")?;
    superuser.query("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'")?;
    superuser.query("SELECT pg_reload_conf()")?;
    screen.step(&format!(
        "{} clients write a number, which a standby has before it is acknowledged, and read it back; then kill -9 of the primary",
        options.clients
    ));
    let ledger = Ledger::open(lab, stand.port(), options.clients)?;
    lab.interrupt().sleep(BEFORE)?;
    let killed = stand::kill(lab)?;
    lab.interrupt().sleep(UNTIL_PROMOTION)?;
    let next = furthest(standbys)?;
    next.promote()?;
    let promoted = std::time::Instant::now();
    for other in standbys.iter().filter(|other| other.port() != next.port()) {
        other.follow(next)?;
    }
    screen.remark(&format!(
        "process {} killed, the server on port {} promoted {:.2} s later",
        lab.cluster().process_id(),
        next.port(),
        promoted.duration_since(killed).as_secs_f64()
    ));
    lab.interrupt().sleep(AFTER)?;
    let outcome = ledger.close(&mut next.superuser(lab::laboratory::ROLE)?)?;
    outcome.lines(promoted).iter().for_each(|line| screen.remark(line));
    stand.hosts()?.iter().for_each(|host| screen.remark(&host.to_string()));
    outcome.verdict()
}

/// The standby that has received most.
fn furthest(standbys: &[Standby]) -> Result<&Standby> {
    let mut received = Vec::new();
    for standby in standbys {
        received.push((standby.received()?, standby));
    }
    let furthest = received.into_iter().max_by_key(|(bytes, _)| *bytes).map(|(_, standby)| standby);
    furthest.ok_or_else(|| LabError::Usage("no standby".to_owned()))
}
