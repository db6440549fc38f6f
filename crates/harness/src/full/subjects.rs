//! Which poolers are compared, and how each is started: one row each with its file in the repository, and those that the command
//! line names. A subject whose file cannot become what a row wants is left out of that row, by name.

use std::path::{Path, PathBuf};

use crate::full::{Bench, Options};
use crate::template::{Filling, Variant};
use lab::error::{LabError, Result};
use lab::laboratory::{Lab, ROLE};
use lab::pooler::{Invocation, Plan, Pooler};
use lab::postgres::free_port;
use lab::screen::Screen;
use lab::target::{Address, Secret};

/// Compared by default.
pub(super) const DEFAULT: &str = "weir-epoll,weir-io_uring,pgbouncer,pgpool,haproxy,direct";
/// The subject that ratios are taken to.
pub(super) const BASE: &str = "pgbouncer";
/// No pooler.
pub(super) const DIRECT: &str = "direct";
/// The subjects that have bars.
pub(super) const EPOLL: &str = "weir-epoll";
/// See [`EPOLL`].
pub(super) const IO_URING: &str = "weir-io_uring";

/// Without a pooler each client is a process of PostgreSQL: not more than this.
const MOST_DIRECT: u32 = 500;

/// One from Debian that is called in its own way.
struct Other {
    name: &'static str,
    program: &'static str,
    file: &'static str,
    arguments: &'static str,
    version_by: &'static str,
    /// Each client has a server connection of its own, and the file or PostgreSQL allows this many.
    most_clients: u32,
}

const OTHERS: [Other; 2] = [
    Other {
        name: "pgpool",
        program: "/usr/sbin/pgpool",
        file: "pgpool.conf",
        arguments: "-n -f @CONFIG@",
        version_by: "--version",
        most_clients: 100,
    },
    Other {
        name: "haproxy",
        program: "/usr/sbin/haproxy",
        file: "haproxy.cfg",
        arguments: "-db -f @CONFIG@",
        version_by: "-v",
        most_clients: MOST_DIRECT,
    },
];

/// What a row calls a subject that was asked for.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) name: String,
    /// More clients it cannot have at once, where that is known.
    pub(super) most_clients: Option<u32>,
    /// `None` without a pooler.
    start: Option<Start>,
}

#[derive(Clone, Debug)]
struct Start {
    program: PathBuf,
    files: Vec<PathBuf>,
    /// With `@CONFIG@`; none is the file alone.
    arguments: Vec<String>,
    version_by: String,
}

/// A subject that is up.
#[derive(Debug)]
pub(super) struct Contender {
    pub(super) name: String,
    pub(super) pooler: Option<Pooler>,
    pub(super) target: Address,
}

/// All that were asked for and are on this machine.
pub(super) fn chosen(lab: &Lab, options: &Options, screen: &mut Screen) -> Result<Vec<Subject>> {
    let mut subjects = Vec::new();
    for name in &options.subjects {
        let start = match name.as_str() {
            DIRECT => None,
            BASE => Some(own(options, name, options.common.pgbouncer(lab)?)),
            EPOLL | IO_URING => Some(own(options, name, options.common.weir(lab)?)),
            _ => match debians(options, name)? {
                Some(start) => Some(start),
                None => {
                    screen.remark(&format!("{name} is not installed: left out"));
                    continue;
                }
            },
        };
        let other = OTHERS.iter().find(|other| other.name == name);
        let direct = (name == DIRECT).then_some(MOST_DIRECT);
        let most_clients = other.map(|other| other.most_clients).or(direct);
        subjects.push(Subject { name: name.clone(), most_clients, start });
    }
    for text in &options.further {
        subjects.push(further(lab, text)?);
    }
    Ok(subjects)
}

/// A subject that is called as PgBouncer is.
fn own(options: &Options, name: &str, program: PathBuf) -> Start {
    let files = vec![options.common.file(name)];
    Start { program, files, arguments: Vec::new(), version_by: String::new() }
}

fn debians(options: &Options, name: &str) -> Result<Option<Start>> {
    let Some(other) = OTHERS.iter().find(|other| other.name == name) else {
        return Err(LabError::Missing {
            what: format!("there is no subject {name}"),
            remedy: format!("known are {DEFAULT}; others: --subject NAME=BINARY:FILE"),
        });
    };
    let start = Start {
        program: PathBuf::from(other.program),
        files: vec![options.common.configs.join(other.file)],
        arguments: other.arguments.split(' ').map(str::to_owned).collect(),
        version_by: other.version_by.to_owned(),
    };
    Ok(start.program.is_file().then_some(start))
}

/// `NAME=BINARY:FILE[,FILE…][:ARGUMENTS]`.
fn further(lab: &Lab, text: &str) -> Result<Subject> {
    let wrong = || LabError::Missing {
        what: format!("--subject {text} is not understood"),
        remedy: "it is NAME=BINARY:FILE[,FILE…][:ARGUMENTS]".to_owned(),
    };
    let (name, rest) = text.split_once('=').ok_or_else(wrong)?;
    let mut parts = rest.splitn(3, ':');
    let (Some(program), Some(files)) = (parts.next(), parts.next()) else { return Err(wrong()) };
    let arguments = parts.next().unwrap_or("@CONFIG@");
    let start = Start {
        program: lab.program(Path::new(program), "name the binary of --subject by its whole path")?,
        files: files.split(',').map(PathBuf::from).collect(),
        arguments: arguments.split_whitespace().map(str::to_owned).collect(),
        version_by: "--version".to_owned(),
    };
    Ok(Subject { name: name.to_owned(), most_clients: None, start: Some(start) })
}

impl Subject {
    /// Whether it is no pooler.
    pub(super) fn is_direct(&self) -> bool {
        self.start.is_none()
    }

    /// Starts it as `variant` wants; the reason where it cannot be that.
    pub(super) fn start(
        &self,
        bench: &Bench<'_>,
        variant: Variant,
    ) -> Result<std::result::Result<Contender, String>> {
        let lab = bench.lab;
        let mut target = lab.direct();
        let Some(start) = &self.start else {
            if variant != Variant::Plain {
                return Ok(Err("without a pooler there is nothing of that".to_owned()));
            }
            return Ok(Ok(Contender { name: self.name.clone(), pooler: None, target }));
        };
        target.port = free_port()?;
        let Some(texts) = start.texts(bench, variant, target.port)? else {
            return Ok(Err(format!("its file has no place for {}", variant.name())));
        };
        target.password = variant.has_password().then(|| Secret::new(bench.secrets.password));
        if variant.has_tls() {
            // Nobody's own certificates shall be shown or be in the way.
            let parameters = [("sslmode", "require"), ("sslcert", "/nowhere"), ("sslrootcert", "/nowhere")];
            target.parameters.extend(parameters.map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        match self.start_with(bench, start, &texts, &target) {
            Ok(pooler) => Ok(Ok(Contender { name: self.name.clone(), pooler: Some(pooler), target })),
            Err(LabError::Interrupted) => Err(LabError::Interrupted),
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    fn start_with(
        &self,
        bench: &Bench<'_>,
        start: &Start,
        texts: &[String],
        target: &Address,
    ) -> Result<Pooler> {
        let place = bench.lab.place();
        let Some((config, further)) = texts.split_first() else {
            return Err(LabError::Peer("a subject has a file".to_owned()));
        };
        let mut arguments: Vec<String> = start.arguments.clone();
        // The first file is written by `Pooler`, under this name.
        let first = place.join(&format!("{}.ini", self.name)).display().to_string();
        arguments.iter_mut().for_each(|word| *word = word.replace("@CONFIG@", &first));
        for (index, text) in further.iter().enumerate() {
            let file = place.write(&format!("{}-{}.ini", self.name, index + 2), text)?;
            let name = format!("@CONFIG{}@", index + 2);
            let path = file.display().to_string();
            arguments.iter_mut().for_each(|word| *word = word.replace(&name, &path));
        }
        let manner = Invocation {
            arguments,
            version_by: &start.version_by,
            password: target.password.as_ref().map(Secret::reveal),
            tls: (target.parameter("sslmode") == Some("require")).then_some(&bench.secrets.tls),
            ..Invocation::default()
        };
        let plan = Plan {
            name: &self.name,
            program: &start.program,
            config,
            port: target.port,
            user: ROLE,
            pool: ROLE,
            manner,
        };
        Pooler::start(&plan, place, bench.lab.interrupt())
    }
}

impl Start {
    /// Its files as `variant` wants them; `None` where they cannot become that.
    fn texts(&self, bench: &Bench<'_>, variant: Variant, port: u16) -> Result<Option<Vec<String>>> {
        let lab = bench.lab;
        let pools = bench.sizes.pools;
        let (postgres_port, directory) = (lab.cluster().port(), lab.place().path());
        let mut texts = Vec::new();
        for file in &self.files {
            let own = PathBuf::from(format!("{}.{}", file.display(), variant.name()));
            let (file, variant) = if own.is_file() { (&own, Variant::Plain) } else { (file, variant) };
            let template = std::fs::read_to_string(file)
                .map_err(LabError::system(format!("reading {}", file.display())))?;
            let filling = Filling { port, postgres_port, directory, role: ROLE, variant, pools };
            match filling.fill(&template) {
                Some(text) => texts.push(text),
                None => return Ok(None),
            }
        }
        Ok(Some(texts))
    }
}

impl Contender {
    /// The pooler's first process.
    pub(super) fn leader(&self) -> Option<u32> {
        self.pooler.as_ref().map(Pooler::process_id)
    }

    /// What it says it is; a driver that is not the one its file asks for is pointed out.
    pub(super) fn described(&self) -> String {
        let Some(pooler) = &self.pooler else { return "no pooler".to_owned() };
        let driver = pooler.io_driver().map_or_else(String::new, |driver| {
            let warning = if self.name.ends_with(driver) { "" } else { ", NOT the one its file asks for" };
            format!(", io_driver {driver}{warning}")
        });
        format!("{}{driver}", pooler.version())
    }
}
