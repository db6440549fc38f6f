//! Who is compared: PostgreSQL itself, poolers that are started for a run with the size that is its turn, poolers that
//! run already. Every started pooler gets the same file; one process, one size, gone after the run.

use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::progress::ProgressReporter;
use super::{ExperimentOptions, cells};
use crate::client::{Client, Keyring, Login};
use crate::error::{LabError, Result};
use crate::interrupt::Interrupt;
use crate::listener::listening_on;
use crate::pooler::{self, Invocation, Plan, Pooler};
use crate::postgres::free_port;
use crate::record::{Placement, TargetKind, TargetRecord, shown_version};
use crate::target::{Address, Inspection, PoolSizing, Psql, Secret, Started};

/// The name of Weir with a pool that sizes itself.
pub(crate) const SELF_SIZED: &str = "weir-auto";

/// One that is compared.
#[derive(Debug)]
pub(super) struct Contender {
    pub(super) name: String,
    pub(super) record: TargetRecord,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Direct,
    /// With each size that is swept.
    Started(PathBuf),
    /// With a pool that sizes itself, and may do so for some seconds before a run.
    SelfSized(PathBuf, u32),
    /// And its process, where it can be seen.
    Running(Address, Option<u32>),
}

/// A contender that takes clients.
#[derive(Debug)]
pub(super) struct RunningPooler {
    pub(super) address: Address,
    pub(super) process: Option<u32>,
    /// It sends reads to standbys.
    splits: bool,
    /// Its pool sizes itself.
    sizes_itself: bool,
    /// Gone with this value.
    _pooler: Option<Pooler>,
}

/// All that the wish names, each tried once: a pooler that does not start is found out before the first run.
///
/// # Errors
/// When a pooler does not start, cannot be reached, or leads to another server.
pub(super) fn all(
    wish: &ExperimentOptions,
    environment: &Environment,
    interrupt: &Interrupt,
    news: &mut ProgressReporter,
) -> Result<Vec<Contender>> {
    let mut all = Vec::new();
    if wish.direct {
        let place = Some(environment.address.to_string());
        let record = TargetRecord { name: "direct".to_owned(), place, ..TargetRecord::default() };
        all.push(Contender { name: "direct".to_owned(), record, way: Way::Direct });
    }
    for (name, program) in &wish.started {
        let way = Way::Started(reachable(environment, program)?);
        all.push(Contender::started(name, way, wish, environment, interrupt)?);
    }
    if let Some(self_sized) = &wish.self_sized {
        let way = Way::SelfSized(reachable(environment, &self_sized.program)?, self_sized.settle_s);
        all.push(Contender::started(SELF_SIZED, way, wish, environment, interrupt)?);
    }
    for (name, address) in &wish.through {
        all.push(Contender::running(name, address, environment)?);
    }
    for contender in &all {
        let of = |text: &str| if text.is_empty() { String::new() } else { format!(": {text}") };
        news.remark(&format!("{}{}", contender.name, of(&shown_version(&contender.record.version))));
    }
    Ok(all)
}

/// Refuses a pooler's program that is not there.
///
/// # Errors
/// [`LabError::Missing`] with its path.
pub(super) fn require_program(program: &Path) -> Result<()> {
    if program.is_file() {
        return Ok(());
    }
    Err(LabError::Missing {
        what: format!("{} is not there", program.display()),
        remedy: "name the pooler's program: --pooler NAME=PROGRAM".to_owned(),
    })
}

/// A pooler's program, where it can be started from.
fn reachable(environment: &Environment, program: &Path) -> Result<PathBuf> {
    require_program(program)?;
    environment.place.reachable_program(program)
}

impl Contender {
    fn started(
        name: &str,
        way: Way,
        wish: &ExperimentOptions,
        environment: &Environment,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let mode = Some(wish.pool_mode.name().to_owned());
        let kind = match way {
            Way::SelfSized(..) => TargetKind::SelfSized,
            _ => TargetKind::Started,
        };
        let record = TargetRecord { name: name.to_owned(), kind, mode, ..TargetRecord::default() };
        let (Way::Started(program) | Way::SelfSized(program, _)) = &way else {
            return Ok(Self { name: name.to_owned(), record, way });
        };
        let program = program.clone();
        let mut contender = Self { name: name.to_owned(), record, way };
        let once = PoolSizing::Fixed(1);
        let (pooler, address) = contender.start(&program, once, 1, wish, environment, interrupt)?;
        // It answers only if it can log in to the server.
        Inspection::behind(&environment.psql, &address)?;
        contender.record.version = pooler.version().to_owned();
        contender.record.io_driver = pooler.io_driver().map(str::to_owned);
        Ok(contender)
    }

    fn running(name: &str, address: &Address, environment: &Environment) -> Result<Self> {
        let behind = Inspection::behind(&environment.psql, address)?;
        if behind != Inspection::behind(&environment.psql, &environment.address)? {
            return Err(LabError::Missing {
                what: format!(
                    "{name} ({address}) leads to another server or database than {}",
                    environment.address
                ),
                remedy: "name the pool whose database is the one that is measured".to_owned(),
            });
        }
        let process = address.is_local().then(|| listening_on(address.port)).flatten();
        let record = TargetRecord {
            name: name.to_owned(),
            kind: TargetKind::Running,
            version: version(&environment.psql, address),
            place: Some(address.to_string()),
            ..TargetRecord::default()
        };
        Ok(Self { name: name.to_owned(), record, way: Way::Running(address.clone(), process) })
    }

    /// Whether the lab starts it with each size.
    pub(super) fn is_swept(&self) -> bool {
        matches!(self.way, Way::Started(_))
    }

    /// How long its pool may look for a size before a run, in seconds.
    pub(super) fn settle_s(&self) -> Option<u32> {
        match self.way {
            Way::SelfSized(_, seconds) => Some(seconds),
            Way::Direct | Way::Started(_) | Way::Running(..) => None,
        }
    }

    /// Whether clients meet PostgreSQL itself.
    pub(super) fn is_direct(&self) -> bool {
        matches!(self.way, Way::Direct)
    }

    /// Makes it ready for `clients`.
    ///
    /// # Errors
    /// When a pooler does not come up.
    pub(super) fn up(
        &self,
        size: Option<u32>,
        clients: u32,
        wish: &ExperimentOptions,
        environment: &Environment,
        interrupt: &Interrupt,
    ) -> Result<RunningPooler> {
        match &self.way {
            Way::Direct => Ok(RunningPooler {
                address: environment.address.clone(),
                process: None,
                splits: false,
                sizes_itself: false,
                _pooler: None,
            }),
            Way::Running(address, process) => Ok(RunningPooler {
                address: address.clone(),
                process: *process,
                splits: false,
                sizes_itself: false,
                _pooler: None,
            }),
            Way::Started(program) | Way::SelfSized(program, _) => {
                let sizes_itself = self.settle_s().is_some();
                let sizing = if sizes_itself {
                    let (least, most) = cells::bounds(wish, environment.room(), clients);
                    PoolSizing::Auto { least, most }
                } else {
                    PoolSizing::Fixed(size.unwrap_or(1))
                };
                let (pooler, address) = self.start(program, sizing, clients, wish, environment, interrupt)?;
                let splits = !environment.standbys.is_empty();
                Ok(RunningPooler {
                    address,
                    process: Some(pooler.process_id()),
                    splits,
                    sizes_itself,
                    _pooler: Some(pooler),
                })
            }
        }
    }

    fn start(
        &self,
        program: &Path,
        sizing: PoolSizing,
        clients: u32,
        wish: &ExperimentOptions,
        environment: &Environment,
        interrupt: &Interrupt,
    ) -> Result<(Pooler, Address)> {
        let (port, passing) = (free_port()?, Secret::once()?);
        let started = Started {
            name: &self.name,
            server: &environment.address,
            standbys: &environment.standbys,
            port,
            sizing,
            mode: wish.pool_mode.name(),
            fills_pool: wish.fills_pools,
            clients,
            io_driver: None,
            directory: environment.place.path(),
            embedded: environment.record.embedded,
            passing: &passing,
        };
        let papers = started.papers();
        environment.place.write(&papers.users_name, papers.users.reveal())?;
        let password = papers.clients.password.as_ref().map(Secret::reveal);
        let plan = Plan {
            name: &self.name,
            program,
            config: &papers.ini,
            port,
            user: &papers.clients.user,
            pool: &papers.clients.database,
            manner: Invocation { password, standbys: environment.standbys.len(), ..Invocation::default() },
        };
        let pooler = Pooler::start(&plan, &environment.place, interrupt)?;
        Ok((pooler, papers.clients))
    }
}

impl RunningPooler {
    /// Where the requests of its life went, if it sends reads to standbys.
    ///
    /// # Errors
    /// As its console.
    pub(super) fn placement(&self) -> Result<Option<Placement>> {
        if !self.splits {
            return Ok(None);
        }
        pooler::placement(&mut self.console()?, &self.address.database).map(Some)
    }

    /// The size that its pool has found, if it sizes itself.
    ///
    /// # Errors
    /// As its console.
    pub(super) fn found_size(&self) -> Result<Option<u32>> {
        if !self.sizes_itself {
            return Ok(None);
        }
        pooler::found_size(&mut self.console()?, &self.address.database)
    }

    fn console(&self) -> Result<Client> {
        let Address { port, user, password, .. } = &self.address;
        let mut keyring = password.as_ref().map(|secret| Keyring::new(secret.reveal())).unwrap_or_default();
        Client::connect_as(*port, &Login::plain(user, "pgbouncer"), &mut keyring)
    }
}

/// What a running pooler says it is: on the console of PgBouncer and those that take its place, or to pgpool-II's own
/// question. Nothing where the role may not ask.
fn version(psql: &Psql, address: &Address) -> String {
    let console = Address { database: "pgbouncer".to_owned(), ..address.clone() };
    let ask = |address: &Address, question: &str| {
        let mut rows = psql.rows(address, question).ok()?.into_iter();
        rows.next()?.into_iter().next()
    };
    let pgpool = || ask(address, "SHOW pool_version").map(|version| format!("pgpool-II {version}"));
    ask(&console, "SHOW VERSION").or_else(pgpool).unwrap_or_default()
}
