//! Who is compared: PostgreSQL itself, poolers that are started for a run with the size that is its turn, poolers that
//! run already. A started pooler gets the same file whoever it is; one process, one size, gone after the run.

use std::path::{Path, PathBuf};

use super::Wish;
use super::news::News;
use super::scene::Scene;
use crate::error::{LabError, Result};
use crate::interrupt::Interrupt;
use crate::listener::listening_on;
use crate::pooler::{Manner, Plan, Pooler};
use crate::postgres::free_port;
use crate::record::{TargetKind, TargetRecord, shown_version};
use crate::target::{Address, Inspection, Psql, Secret, Started};

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
    Started(PathBuf),
    /// And its process, where it can be seen.
    Running(Address, Option<u32>),
}

/// A contender that takes clients.
#[derive(Debug)]
pub(super) struct Up {
    pub(super) address: Address,
    pub(super) process: Option<u32>,
    /// Gone with this value.
    _pooler: Option<Pooler>,
}

/// All that the wish names, each tried once: a pooler that does not start is found out before the first run.
///
/// # Errors
/// When a pooler does not start, cannot be reached, or leads to another server.
pub(super) fn all(
    wish: &Wish,
    scene: &Scene,
    interrupt: &Interrupt,
    news: &mut News,
) -> Result<Vec<Contender>> {
    let mut all = Vec::new();
    if wish.direct {
        let place = Some(scene.address.to_string());
        let record = TargetRecord { name: "direct".to_owned(), place, ..TargetRecord::default() };
        all.push(Contender { name: "direct".to_owned(), record, way: Way::Direct });
    }
    for (name, program) in &wish.started {
        all.push(Contender::started(name, program, wish, scene, interrupt)?);
    }
    for (name, address) in &wish.through {
        all.push(Contender::running(name, address, scene)?);
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
fn reachable(scene: &Scene, program: &Path) -> Result<PathBuf> {
    require_program(program)?;
    scene.place.reachable_program(program)
}

impl Contender {
    fn started(
        name: &str,
        program: &Path,
        wish: &Wish,
        scene: &Scene,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let program = reachable(scene, program)?;
        let mode = Some(wish.pool_mode.name().to_owned());
        let record = TargetRecord {
            name: name.to_owned(),
            kind: TargetKind::Started,
            mode,
            ..TargetRecord::default()
        };
        let mut contender = Self { name: name.to_owned(), record, way: Way::Started(program.clone()) };
        let (pooler, address) = contender.start(&program, 1, 1, wish, scene, interrupt)?;
        // It answers only if it can log in to the server.
        Inspection::behind(&scene.psql, &address)?;
        contender.record.version = pooler.version().to_owned();
        contender.record.io_driver = pooler.io_driver().map(str::to_owned);
        Ok(contender)
    }

    fn running(name: &str, address: &Address, scene: &Scene) -> Result<Self> {
        let behind = Inspection::behind(&scene.psql, address)?;
        if behind != Inspection::behind(&scene.psql, &scene.address)? {
            return Err(LabError::Missing {
                what: format!(
                    "{name} ({address}) leads to another server or database than {}",
                    scene.address
                ),
                remedy: "name the pool whose database is the one that is measured".to_owned(),
            });
        }
        let process = address.is_local().then(|| listening_on(address.port)).flatten();
        let record = TargetRecord {
            name: name.to_owned(),
            kind: TargetKind::Running,
            version: version(&scene.psql, address),
            place: Some(address.to_string()),
            ..TargetRecord::default()
        };
        Ok(Self { name: name.to_owned(), record, way: Way::Running(address.clone(), process) })
    }

    /// Whether the lab starts it, and so chooses its size.
    pub(super) fn is_started(&self) -> bool {
        matches!(self.way, Way::Started(_))
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
        wish: &Wish,
        scene: &Scene,
        interrupt: &Interrupt,
    ) -> Result<Up> {
        match &self.way {
            Way::Direct => Ok(Up { address: scene.address.clone(), process: None, _pooler: None }),
            Way::Running(address, process) => {
                Ok(Up { address: address.clone(), process: *process, _pooler: None })
            }
            Way::Started(program) => {
                let size = size.unwrap_or(1);
                let (pooler, address) = self.start(program, size, clients, wish, scene, interrupt)?;
                Ok(Up { address, process: Some(pooler.process_id()), _pooler: Some(pooler) })
            }
        }
    }

    fn start(
        &self,
        program: &Path,
        size: u32,
        clients: u32,
        wish: &Wish,
        scene: &Scene,
        interrupt: &Interrupt,
    ) -> Result<(Pooler, Address)> {
        let (port, passing) = (free_port()?, Secret::once()?);
        let started = Started {
            name: &self.name,
            server: &scene.address,
            port,
            pool_size: size,
            mode: wish.pool_mode.name(),
            fills_pool: wish.fills_pools,
            clients,
            io_driver: None,
            directory: scene.place.path(),
            embedded: scene.record.embedded,
            passing: &passing,
        };
        let papers = started.papers();
        scene.place.write(&papers.users_name, papers.users.reveal())?;
        let password = papers.clients.password.as_ref().map(Secret::reveal);
        let plan = Plan {
            name: &self.name,
            program,
            config: &papers.ini,
            port,
            user: &papers.clients.user,
            pool: &papers.clients.database,
            manner: Manner { password, ..Manner::default() },
        };
        let pooler = Pooler::start(&plan, &scene.place, interrupt)?;
        Ok((pooler, papers.clients))
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
