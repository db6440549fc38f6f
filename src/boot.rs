//! Startup, in PgBouncer's order: file, user, sockets, background, threads.
//! Owns the errors that prevent a start.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::SystemTime;

use ::tls::SetupFault;
use changes::Changes;
use control::{Input, ProcessInfo};
use driver::process::{self, PidFault, PidFile};
use driver::signals::Signals;
use driver::{
    Engine, Inherited, ListenFault, Listeners, Plan, Predecessor, ReceiveBuffers, RingSize, StartFault,
    TakeoverFault,
};
use fleetagent::{Contact, FleetAgent, FleetError};
use hostprobe::HostProbe;
use messages::{Command, Report};
use panel::{ListenError, ListenSocket};
use patroni::Patroni;
use quotaquery::QuotaQuery;
use settings::{Config, Finding, Threads};
use telemetry::{Level, Record};
use usage::Usage;
use waitsampling::WaitSampling;

use crate::cli::Options;
use crate::control_loop::ControlLoop;
use crate::files::Source;
use crate::fleet;
use crate::logging::Logger;
use crate::panel_thread;
use crate::panics;
use crate::service_manager::{self, ServiceManager};
use crate::takeover;
use crate::tls::TlsConfigLog;
use crate::workers::{Workers, stop};

/// Why the process does not start.
#[derive(Debug)]
pub(crate) enum BootError {
    /// The configuration file has errors; each finding has its line.
    File(String, Vec<Finding>),
    /// The running process refused the takeover.
    Takeover(TakeoverFault),
    /// Started as root without a user to switch to.
    Root,
    /// Switching to the user failed.
    User(String, io::Error),
    /// The log file cannot be opened.
    Log(String, io::Error),
    /// `--daemon` without a pidfile.
    NoPidFile,
    /// The pidfile names a living process, or cannot be used.
    Pid(PidFault),
    /// Listening on a socket failed.
    Listen(ListenFault),
    /// Listening for the panel failed.
    Panel(ListenError),
    /// The threads cannot be started.
    Start(StartFault),
    /// The process cannot be a node of the fleet.
    Fleet(FleetError),
    /// `fleet_node` is empty, and the host's name is no id of a node.
    NodeName(String),
    /// The TLS settings are invalid; logged already.
    Tls(SetupFault),
    /// A system call failed.
    System(&'static str, io::Error),
}

impl fmt::Display for BootError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BootError::File(file, _) => write!(out, "cannot load config file \"{file}\""),
            BootError::Takeover(fault) => write!(out, "takeover failed: {fault}"),
            BootError::Root => out.write_str(
                "PgBouncer should not run as root: name an unprivileged user, by `user =` in the file or by -u",
            ),
            BootError::User(name, why) if why.kind() == io::ErrorKind::NotFound => {
                write!(out, "could not find user '{name}' to switch to")
            }
            BootError::User(name, why) => write!(out, "cannot become user \"{name}\": {why}"),
            BootError::Log(name, why) => write!(out, "cannot open logfile \"{name}\": {why}"),
            BootError::NoPidFile => out.write_str("daemon needs pidfile configured"),
            BootError::Pid(fault) => fault.fmt(out),
            BootError::Listen(fault) => fault.fmt(out),
            BootError::Panel(fault) => fault.fmt(out),
            BootError::Start(fault) => fault.fmt(out),
            BootError::Fleet(fault) => write!(out, "fleet: {fault}"),
            BootError::NodeName(name) => {
                write!(out, "fleet_node is empty, and the name of this host, \"{name}\", cannot be the id of a node")
            }
            BootError::Tls(fault) => write!(out, "TLS setup failed: {fault}"),
            BootError::System(what, why) => write!(out, "{what}: {why}"),
        }
    }
}

/// Starts the process and runs it to its end.
///
/// # Errors
/// [`BootError`], before any client is accepted.
pub(crate) fn run(options: &Options, logger: &Arc<Logger>) -> Result<(), BootError> {
    let passed = service_manager::passed_sockets();
    let source = Source { file: options.file.clone().unwrap_or_default(), flags: options.flags() };
    let config = Arc::new(source.load().map_err(|findings| BootError::File(source.file.clone(), findings))?);
    let file_limit = process::raise_file_limit();
    drop_privileges(&config)?;
    open_log(&config, logger)?;
    let tls = TlsConfigLog::begin(&config, logger).map_err(BootError::Tls)?;
    log_file_limits(&config, file_limit, logger);
    let pidfile = config.global.pidfile.as_deref().filter(|path| !path.is_empty());
    let mut predecessor = if options.reboot { takeover::predecessor(&config, logger)? } else { None };
    check_pidfile(pidfile, options.daemon, predecessor.is_some())?;
    let inherited = predecessor.as_mut().map(|old| std::mem::take(&mut old.listeners)).unwrap_or_default();
    // What the service manager has passed to the predecessor is passed on.
    let (passed_on, inherited) = inherited.into_iter().partition::<Vec<_>, _>(Inherited::is_passed);
    let passed = if passed.is_empty() { passed_on } else { passed };
    let listeners = listen(&config, inherited, passed, logger)?;
    let listen_socket = panel_thread::listen_socket(&config, predecessor.as_mut())?;
    if options.daemon {
        logger.leave_stderr();
        process::daemonize().map_err(|why| BootError::System("cannot daemonize", why))?;
        logger.is_in_background();
    }
    let write = if predecessor.is_some() { PidFile::take_over } else { PidFile::create };
    let pidfile = pidfile.map(write).transpose().map_err(BootError::Pid)?;
    let control_loop = start(config, source, tls, listeners, listen_socket, predecessor, logger)?;
    if options.daemon {
        process::leave_terminal().map_err(|why| BootError::System("cannot leave the terminal", why))?;
    }
    let (usage, fleet) = (control_loop.usage(), control_loop.fleet());
    let engine = control_loop.run().engine;
    fleet.iter().for_each(FleetAgent::close);
    stop(engine);
    fleet.iter().for_each(FleetAgent::stop);
    usage.iter().for_each(Usage::stop);
    drop(pidfile);
    Ok(())
}

/// Goes on with what the predecessor had, or with what was held when the last process ended.
fn follow(
    control_loop: &mut ControlLoop<Workers>,
    predecessor: Option<Predecessor>,
) -> Result<(), BootError> {
    let Some(predecessor) = predecessor else {
        control_loop.begin();
        return Ok(());
    };
    let threads = control_loop.inherit(&predecessor.note);
    let took = threads.engine.take_over(predecessor);
    took.map_err(|why| BootError::Takeover(TakeoverFault::Broken(why)))
}

/// Listens on the sockets of the service manager, else on those of the settings.
fn listen(
    config: &Config,
    inherited: Vec<Inherited>,
    passed: Vec<Inherited>,
    logger: &Logger,
) -> Result<Listeners, BootError> {
    if passed.is_empty() {
        return Listeners::open(&config.global, inherited).map_err(BootError::Listen);
    }
    let text = "sockets passed by the service manager: listen_addr and unix_socket_dir are not listened on";
    logger.write(&Record::new(Level::Log, text));
    Listeners::passed(&config.global, passed).map_err(BootError::Listen)
}

/// Switches to the configured user. Files and sockets are created later, so that they belong to that user.
fn drop_privileges(config: &Config) -> Result<(), BootError> {
    if let Some(user) = config.global.user.as_deref().filter(|user| !user.is_empty()) {
        process::become_user(user).map_err(|why| BootError::User(user.to_owned(), why))?;
    }
    if process::is_root() { Err(BootError::Root) } else { Ok(()) }
}

fn open_log(config: &Config, logger: &Logger) -> Result<(), BootError> {
    let name = || config.global.logfile.clone().unwrap_or_default();
    logger.configure(&config.global).map_err(|why| BootError::Log(name(), why))?;
    for finding in &config.warnings {
        logger.write(&Record::new(Level::Warning, finding.to_string()));
    }
    Ok(())
}

/// Logs the limit of descriptors with PgBouncer's text, and warns if it is too low for the limits of connections. The limit
/// was raised as far as it goes, so that both of the system's are the same.
fn log_file_limits(config: &Config, file_limit: u64, logger: &Logger) {
    let clients = config.global.max_client_conn;
    let needed = process::files_needed(clients.into(), max_servers(config));
    let text = format!(
        "kernel file descriptor limit: {file_limit} (hard: {file_limit}); max_client_conn: {clients}, max expected fd use: {needed}"
    );
    logger.write(&Record::new(Level::Log, text));
    if let Some(warning) = file_limit_warning(config, file_limit) {
        logger.write(&Record::new(Level::Warning, warning));
    }
}

/// The warning if `file_limit` descriptors cannot be enough.
pub(crate) fn file_limit_warning(config: &Config, file_limit: u64) -> Option<String> {
    let clients = config.global.max_client_conn.into();
    process::file_limit_warning(file_limit, clients, max_servers(config))
}

/// Servers of one user in every database.
fn max_servers(config: &Config) -> u64 {
    let databases = config.databases.values().chain(&config.fallback);
    let servers = databases.map(|database| match config.max_db_connections(database) {
        0 => {
            u64::from(config.pool_size(database, None).largest())
                + u64::from(config.reserve_pool_size(database, None))
        }
        limit => limit.into(),
    });
    servers.sum()
}

/// Before anything is bound: a second process must not get far enough to disturb the first.
fn check_pidfile(path: Option<&str>, is_daemon: bool, takes_over: bool) -> Result<(), BootError> {
    let Some(path) = path else {
        return if is_daemon { Err(BootError::NoPidFile) } else { Ok(()) };
    };
    match PidFile::living(Path::new(path)).map_err(BootError::Pid)? {
        Some(_) if takes_over => Ok(()),
        Some(process_id) => Err(BootError::Pid(PidFault::Alive { path: path.into(), process_id })),
        None => Ok(()),
    }
}

/// Starts all threads; from here on signals are messages.
fn start(
    config: Arc<Config>,
    source: Source,
    tls: TlsConfigLog,
    listeners: Listeners,
    listen_socket: Option<ListenSocket>,
    predecessor: Option<Predecessor>,
    logger: &Arc<Logger>,
) -> Result<ControlLoop<Workers>, BootError> {
    let signals = Signals::block().map_err(|why| BootError::System("cannot block signals", why))?;
    let (sender, inputs) = channel();
    let shards = match config.global.threads {
        Threads::Auto => process::processors(),
        Threads::Count(count) => u16::try_from(count).unwrap_or(u16::MAX),
    };
    log_listeners(&listeners, logger);
    let (contact, inbox) = fleetagent::contact();
    let plan = Plan {
        config: Arc::clone(&config),
        threads: shards,
        io: config.global.io_driver,
        receive_buffers: ReceiveBuffers::default(),
        ring: RingSize::default(),
        listeners,
        inheritance: predecessor.as_ref().map(|old| old.inheritance).unwrap_or_default(),
        log: writer(logger),
        reports: reporter(sender.clone(), contact.clone()),
        want_slots: config.global.fleet.is_some().then(|| contact.want_slots()),
    };
    if let Some(predecessor) = &predecessor {
        predecessor.pause_accepting().map_err(BootError::Takeover)?;
    }
    let born = SystemTime::now();
    panics::abort_on_panic(logger);
    let engine = Engine::start(plan).map_err(BootError::Start)?;
    let (io_driver, _) = engine.io_driver_in_use();
    let signalled = sender.clone();
    let send = move |signal| drop(signalled.send(Input::Signal(signal)));
    signals.deliver(send).map_err(|why| BootError::System("cannot wait for signals", why))?;
    let up = format!("process up: {}, {shards} threads, io driver {io_driver}", control::VERSION);
    logger.write(&Record::new(Level::Log, up));
    let facts = ProcessInfo { shards, io_driver };
    let panel =
        panel_thread::start(&config, born, listen_socket, sender.clone(), logger, predecessor.is_some());
    let patroni = follow_patroni(&config, sender.clone(), logger);
    let changes = follow_changes(&config, &engine, logger);
    let clocks = usage::Clocks { monotonic_us: process::monotonic_us, wall_s: process::wall_s };
    let usage = Usage::start(&config, engine.quotas(), clocks, writer(logger));
    let quota_query = ask_for_quotas(&config, &engine, sender.clone(), logger);
    let wait_sampling = sample_waits(&config, &engine, logger);
    let host_probe = probe_hosts(&config, &engine, logger);
    let note = predecessor.as_ref().map_or("", |old| &old.note);
    let fleet = fleet::take_part(&config, &engine, (contact, inbox), shards, sender.clone(), note, logger)?;
    let threads = Workers { engine, inputs: sender };
    let mut control_loop = ControlLoop::new(config, facts, threads, Arc::clone(logger), tls, source, inputs);
    let takes_over = predecessor.is_some();
    follow(&mut control_loop, predecessor)?;
    control_loop.serve_panel(panel);
    control_loop.follow_patroni(patroni);
    control_loop.follow_changes(changes);
    control_loop.keep_usage(usage);
    control_loop.ask_for_quotas(quota_query);
    control_loop.sample_waits(wait_sampling);
    control_loop.probe_hosts(host_probe);
    control_loop.take_part_in_fleet(fleet);
    control_loop.report_to(ServiceManager::found(), takes_over);
    Ok(control_loop)
}

fn log_listeners(listeners: &Listeners, logger: &Logger) {
    for refusal in listeners.refused() {
        logger.write(&Record::new(Level::Warning, refusal));
    }
    for name in listeners.names() {
        logger.write(&Record::new(Level::Log, format!("listening on {name}")));
    }
}

pub(crate) fn writer(logger: &Arc<Logger>) -> driver::Log {
    let logger = Arc::clone(logger);
    Arc::new(move |record| logger.write(&record))
}

/// What Patroni says comes to the control thread as its inputs.
fn follow_patroni(config: &Arc<Config>, sender: Sender<Input>, logger: &Arc<Logger>) -> Patroni {
    Patroni::start(config, Arc::new(move |input| drop(sender.send(input))), writer(logger))
}

/// What changes on the primaries of `query_cache` goes to the shards without the control thread: it is as fresh as it is soon there.
fn follow_changes(config: &Arc<Config>, engine: &Engine, logger: &Arc<Logger>) -> Changes {
    let tell = engine.broadcaster();
    let system = changes::System { monotonic_us: process::monotonic_us, fill_random: process::fill_random };
    Changes::start(config, Arc::new(move |news| tell(&Command::CacheNews(news))), writer(logger), system)
}

/// Members of roles come to the control thread as its inputs, sizes to the accounts.
fn ask_for_quotas(
    config: &Arc<Config>,
    engine: &Engine,
    sender: Sender<Input>,
    logger: &Arc<Logger>,
) -> QuotaQuery {
    let tell = Arc::new(move |members| drop(sender.send(Input::RoleMembers(members))));
    let system = pgclient::System { fill_random: process::fill_random };
    QuotaQuery::start(config, engine.quotas(), tell, writer(logger), system)
}

/// What servers wait for goes to the shards without the control thread.
fn sample_waits(config: &Arc<Config>, engine: &Engine, logger: &Arc<Logger>) -> WaitSampling {
    let tell = engine.broadcaster();
    let system = pgclient::System { fill_random: process::fill_random };
    let tell = Arc::new(move |sample| tell(&Command::ServerWaits(sample)));
    WaitSampling::start(config, tell, writer(logger), system)
}

/// What hosts are is the control thread's to ask for; which is the primary is told to the shards at once.
fn probe_hosts(config: &Arc<Config>, engine: &Engine, logger: &Arc<Logger>) -> HostProbe {
    let system = pgclient::System { fill_random: process::fill_random };
    HostProbe::start(config, Arc::new(engine.probed_clusters()), writer(logger), system)
}

/// Reports go to the control thread, but for those that the fleet thread has asked for.
fn reporter(sender: Sender<Input>, fleet: Contact) -> driver::Reports {
    Arc::new(move |report| match report {
        Report::Backends { audit, shard, backends } => fleet.backends(audit, shard, backends),
        report => drop(sender.send(Input::Report(report))),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_background_needs_a_pidfile() {
        assert!(matches!(check_pidfile(None, true, false), Err(BootError::NoPidFile)));
        assert!(check_pidfile(None, false, false).is_ok());
    }

    #[test]
    fn a_living_process_keeps_its_pidfile() {
        let path = std::env::temp_dir().join(format!("weir-boot-{}.pid", std::process::id()));
        std::fs::write(&path, "1\n").unwrap();
        let fault = check_pidfile(path.to_str(), false, false).unwrap_err();
        assert!(check_pidfile(path.to_str(), false, true).is_ok(), "it is to be taken over from");
        std::fs::remove_file(&path).unwrap();
        assert!(fault.to_string().contains("another instance running?"), "{fault}");
    }

    #[test]
    fn a_bad_file_is_told_with_its_lines() {
        let path = std::env::temp_dir().join(format!("weir-boot-{}.ini", std::process::id()));
        std::fs::write(&path, "[pgbouncer]\nfrob = 1\n").unwrap();
        let words = ["weir".into(), path.clone().into_os_string()];
        let options = Options::read(&words).unwrap();
        let fault = run(&options, &Arc::new(Logger::new(false))).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        let BootError::File(_, findings) = fault else { panic!("{fault:?}") };
        assert_eq!(findings[0].line, 2);
    }
}
