//! `weir-harness panel`: what the data path notices of the control panel. Pairs of runs at half of the peak load, one with
//! requests to the panel's API and one without, in random order; the difference of their p99, pair by pair.
//!
//! Owns the plan of the series. What the requests are is in `requests`, what follows from the figures in `report`.

mod report;
mod requests;

use clap::Args;

use crate::compare::{Contender, Subject};
use crate::demo;
use crate::series::Common;
use lab::error::{LabError, Result};
use lab::figures::{or_dash, short, whole};
use lab::interrupt::Interrupt;
use lab::interval::SplitMix;
use lab::laboratory::{Lab, Measured, Setup};
use lab::pgbench::{Load, Workload};
use lab::postgres::free_port;
use lab::screen::Screen;
use report::Report;
use requests::{Requests, Responses};

/// Server connections of the pooler, and some beside them.
const MAX_CONNECTIONS: u32 = 100;
/// Seconds before anything counts: connections and caches.
const WARM_UP_SECONDS: u32 = 2;
/// The order within the pairs; the same in every series.
const SEED: u64 = 0x9e1f_9a15;

/// What can be chosen.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Which Weir
    #[arg(long, default_value = "weir-io_uring", value_parser = ["weir-epoll", "weir-io_uring"])]
    pub subject: String,
    /// Pairs of runs
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub pairs: u32,
    /// Seconds for each run
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: u32,
    /// Clients of pgbench, select-only
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub clients: u32,
    /// The part of the peak at which pgbench runs
    #[arg(long, default_value_t = 0.5)]
    pub part_of_peak: f64,
    /// Requests to the panel's API in a second
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    pub requests: u32,
    /// What `compare` lets choose too.
    #[command(flatten)]
    pub common: Common,
}

/// Two runs, one after the other.
#[derive(Clone, Debug)]
struct Pair {
    with: Measured,
    without: Measured,
    told: Responses,
}

/// Weir with its panel.
struct Setting<'a> {
    lab: &'a Lab,
    contender: Contender,
    panel_port: u16,
    token: String,
}

/// Runs the series and writes the report.
///
/// # Errors
/// When the machine lacks something, a program fails, or after Ctrl-C; nothing is left running in any case.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    let mut screen = Screen::standard();
    let setup: Setup = options.common.setup("panel", MAX_CONNECTIONS, options.common.scale);
    let lab = Lab::set_up(&setup, interrupt, &mut screen)?;
    let scene = Setting::set(&lab, options, &mut screen)?;
    let closed = Load {
        workload: Workload::SelectOnly,
        clients: options.clients,
        seconds: WARM_UP_SECONDS,
        query_mode: "simple".to_owned(),
        ..Load::default()
    };
    scene.run(&closed, "warming up", &mut screen)?;
    let peak = scene.run(&Load { seconds: options.seconds.min(5), ..closed.clone() }, "peak", &mut screen)?;
    let peak = peak.tps().ok_or_else(|| LabError::program("pgbench", "the peak could not be measured"))?;
    screen.remark(&format!("peak {} TPS", whole(peak)));
    let rate_tps = Some(peak * options.part_of_peak);
    let load = Load { seconds: options.seconds, sampling: 1.0, rate_tps, ..closed };
    let pairs = scene.pairs(options, &load, &mut screen)?;
    let subject = scene.contender.described();
    let report = Report { machine: lab.machine.clone(), options: options.clone(), subject, peak, pairs };
    drop(scene);
    screen.close();
    println!("\n{}", report.markdown());
    report.write(&options.common.out)?;
    println!("Written to {0}/result.md and {0}/result.json", options.common.out.display());
    Ok(())
}

impl<'a> Setting<'a> {
    fn set(lab: &'a Lab, options: &Options, screen: &mut Screen) -> Result<Self> {
        let panel_port = free_port()?;
        let subject = Subject::weir(lab, &options.common, &options.subject)?;
        let (keys, token) = demo::token(lab, &options.common.weir(lab)?)?;
        let keys = lab.place().write("panel.keys", &keys)?;
        let further = format!("http_port = {panel_port}\nhttp_auth_file = {}\n", keys.display());
        let contender = Contender::start(lab, subject, &further, screen)?;
        Ok(Self { lab, contender, panel_port, token })
    }

    fn pairs(&self, options: &Options, load: &Load, screen: &mut Screen) -> Result<Vec<Pair>> {
        let mut random = SplitMix(SEED);
        let mut pairs = Vec::new();
        for number in 1..=options.pairs {
            let is_with_first = random.below(2) == 0;
            let early = (!is_with_first).then(|| self.run(load, "without", screen)).transpose()?;
            let requests = Requests::begin(self.panel_port, &self.token, options.requests);
            let with = self.run(load, "with requests", screen);
            let told = requests.end();
            let with = with?;
            let without = early.map_or_else(|| self.run(load, "without", screen), Ok)?;
            let p99 = |run: &Measured| or_dash(report::p99_ms(run), short);
            screen.remark(&format!(
                "pair {number}  p99 {} ms with, {} ms without; {} requests answered, {} refused, {} broken",
                p99(&with),
                p99(&without),
                told.answered,
                told.refused,
                told.broken
            ));
            pairs.push(Pair { with, without, told });
        }
        Ok(pairs)
    }

    fn run(&self, load: &Load, what: &str, screen: &mut Screen) -> Result<Measured> {
        let seconds = f64::from(load.seconds);
        self.lab.measure(&self.contender.target, load, self.contender.pooler.as_ref(), &mut |now| {
            screen.progress(now.at_s / seconds, &format!("{what}: {} TPS", whole(now.tps)));
        })
    }
}
