//! `weir-harness fleet`: five Weirs before one PostgreSQL share a limit of server connections by way of three members of etcd. While pgbench runs through all
//! five, one is killed, one is cut off from etcd, and one is replaced by `-R`; PostgreSQL itself is asked for the number of connections all the time.

mod account;
mod load;
mod nodes;
mod proxy;
mod sampler;

use std::path::Path;
use std::time::Duration;

use clap::Args;
use lab::error::Result;
use lab::figures;
use lab::interrupt::Interrupt;
use lab::laboratory::{Lab, ROLE, Setup};
use lab::screen::Screen;

use crate::programs::Programs;
use account::{Phase, Sample, Transaction};
use load::Load;
use nodes::{Node, POOL, Store};
use proxy::Proxy;
use sampler::{Sampler, now};

const NODES: usize = 5;

/// The limit that they share.
const LIMIT: u32 = 20;

/// pgbench's scale.
const SCALE: u32 = 5;

const PHASES: u64 = 4;

/// Which nodes meet what; the first one is asked what it sees.
const KILLED: usize = 1;
const CUT_OFF: usize = 2;
const REPLACED: usize = 3;

/// What can be chosen.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Clients of each node
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub clients: u32,
    /// Seconds of each of the four phases
    #[arg(long, env = "DEMO_SECONDS", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: u64,
    /// What is run
    #[command(flatten)]
    pub programs: Programs,
}

/// Runs the demo.
///
/// # Errors
/// When the machine lacks something, a program fails, PostgreSQL has more connections than the limit, a client of another node than the killed one has an
/// error, or after Ctrl-C; nothing is left running in any case.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    let mut screen = Screen::standard();
    let setup = Setup {
        purpose: "fleet",
        pg_bin: options.programs.pg_bin.clone(),
        max_connections: 100,
        scale: SCALE,
    };
    let lab = Lab::set_up(&setup, interrupt, &mut screen)?;
    admit(&lab)?;
    let program = options.programs.weir(&lab)?;
    screen.step("Three members of etcd");
    let store = Store::start(&lab)?;
    screen
        .remark(&format!("ports {}", store.ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")));
    let proxies = nodes::proxies(&store)?;
    screen.step(&format!(
        "Five Weirs; the entry of each: {POOL} = host=127.0.0.1 … max_db_connections={LIMIT}"
    ));
    let behind: Vec<u16> = proxies.iter().map(Proxy::port).collect();
    let start = |number: usize| {
        let members = if number == CUT_OFF { &behind } else { &store.ports };
        Node::start(&lab, &program, number + 1, NODES, LIMIT, members)
    };
    let mut fleet = (0..NODES).map(start).collect::<Result<Vec<Node>>>()?;
    for node in &fleet {
        node.wait_until_joined(&lab, NODES)?;
        screen.remark(&format!(
            "{} (process {}, port {})",
            node.name,
            node.pooler.process_id(),
            node.pooler.port()
        ));
    }
    let sampler = Sampler::start(&lab)?;
    let ports: Vec<u16> = fleet.iter().map(|node| node.pooler.port()).collect();
    let load = Load::start(&lab, &ports, options.clients, options.seconds * PHASES)?;
    let mut stage =
        Stage { lab: &lab, load: &load, screen: &mut screen, seconds: options.seconds, phases: Vec::new() };
    stage.play_all(&mut fleet, &proxies, &program)?;
    let phases = stage.phases;
    let transactions = load.end(&lab, KILLED)?;
    report(&phases, &transactions, &sampler.stop()?, &mut screen)
}

/// The table, and what makes the demo fail.
fn report(
    phases: &[Phase],
    transactions: &[Transaction],
    samples: &[Sample],
    screen: &mut Screen,
) -> Result<()> {
    let rows: Vec<_> = phases.iter().map(|phase| phase.sum(transactions, samples)).collect();
    screen.step("What came of it");
    account::table(&rows, LIMIT).iter().for_each(|line| screen.remark(line));
    screen.remark(&format!(
        "server connections: at most {} of {LIMIT}, in {} samples of pg_stat_activity",
        account::most(samples),
        figures::whole(samples.len() as f64)
    ));
    account::verdict(phases, &rows, samples, LIMIT, KILLED)?;
    screen.remark("all errors are of clients of node2, which was killed");
    Ok(())
}

/// Lets the nodes ask for connections of a node that is gone in the database `postgres`, where they do not count.
fn admit(lab: &Lab) -> Result<()> {
    let rules = format!("local all all trust\nhost {ROLE},postgres {ROLE} 127.0.0.0/8 trust\n");
    lab.place().write("data/pg_hba.conf", &rules)?;
    lab.cluster().superuser("postgres")?.query("SELECT pg_reload_conf()").map(drop)
}

/// The phases so far.
struct Stage<'a> {
    lab: &'a Lab,
    load: &'a Load,
    screen: &'a mut Screen,
    seconds: u64,
    phases: Vec<Phase>,
}

impl Stage<'_> {
    fn play_all(&mut self, fleet: &mut [Node], proxies: &[Proxy], program: &Path) -> Result<()> {
        self.play(now(), "all five nodes", fleet, "pgbench -N through all five")?;
        fleet[KILLED].kill()?;
        self.play(now(), "node2 is killed", fleet, "kill -9 of node2")?;
        proxies.iter().for_each(Proxy::cut);
        self.play(now(), "node3 is cut off", fleet, "node3 is cut off from etcd")?;
        proxies.iter().for_each(Proxy::heal);
        let (begin, old) = (now(), fleet[REPLACED].pooler.process_id());
        fleet[REPLACED].take_over(self.lab, program)?;
        let what = format!(
            "node3 reaches etcd again; -R of node4: process {} has taken over from {old} in {:.1} s",
            fleet[REPLACED].pooler.process_id(),
            now() - begin
        );
        self.play(begin, "node4 is upgraded", fleet, &what)
    }

    /// What the first node sees, and what those say of themselves that are not up.
    fn show(&mut self, fleet: &[Node]) -> Result<()> {
        let seen = fleet[0].fleet()?;
        let each = seen
            .iter()
            .map(|node| format!("{} {} {}", node.name, node.state, node.servers).trim_end().to_owned());
        let each = each.collect::<Vec<_>>().join(", ");
        self.screen.remark(&format!("SHOW FLEET of {}, with server connections: {each}", fleet[0].name));
        for node in fleet {
            // The one that was killed does not answer.
            let rows = node.fleet().unwrap_or_default();
            if let Some(own) = rows.iter().find(|row| row.name == node.name && row.state != "up") {
                self.screen.remark(&format!("{} says of itself: {}", own.name, own.state));
            }
        }
        Ok(())
    }

    /// A phase since `begin`.
    fn play(&mut self, begin: f64, name: &str, fleet: &[Node], what: &str) -> Result<()> {
        self.screen.step(what);
        let left = begin + self.seconds as f64 - now();
        self.lab.interrupt().sleep(Duration::try_from_secs_f64(left).unwrap_or_default())?;
        self.show(fleet)?;
        let before: Vec<u64> =
            (0..NODES).map(|node| self.phases.iter().map(|phase| phase.errors[node]).sum()).collect();
        let errors = self.load.errors().iter().zip(before).map(|(all, before)| all - before).collect();
        self.phases.push(Phase { name: name.to_owned(), begin, end: now(), errors });
        Ok(())
    }
}
