//! `weir container`: the first process of an image. A configuration that is mounted where PgBouncer's images have theirs is used as it is; else one
//! is made of the environment ([`container`]), and kept in memory: the root of a container may be read-only.
//! Owns the health check of the image too, which asks the process from outside.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use ::container::{Made, Variables};
use programs::Status;

use crate::cli::{ContainerTask, Options};
use crate::files::Disk;

/// Where a configuration may be mounted: Weir's own place, and those of Debian's, edoburu's and Bitnami's PgBouncer.
const MOUNTED: [&str; 4] = [
    "/etc/weir/weir.ini",
    "/etc/pgbouncer/pgbouncer.ini",
    "/bitnami/pgbouncer/conf/pgbouncer.ini",
    "/opt/bitnami/pgbouncer/conf/pgbouncer.ini",
];

/// How long the health check waits for an answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// What the image starts with, and the files in memory that it names, which have to live as long.
struct Start {
    file: String,
    _in_memory: Vec<File>,
}

/// Runs what was asked for; `serve` is the pooler.
pub(crate) fn run(task: ContainerTask, serve: impl FnOnce(&Options) -> Status) -> Status {
    let done = if task.health {
        health().map(|()| Status::Done)
    } else if task.print {
        from_environment().map(|made| crate::print(&made.ini))
    } else {
        start().map(|start| serve(&Options { file: Some(start.file.clone()), ..Options::default() }))
    };
    done.unwrap_or_else(|why| {
        let _ = writeln!(io::stderr(), "weir: {why}");
        Status::Failed
    })
}

fn start() -> Result<Start, String> {
    if let Some(path) = MOUNTED.into_iter().find(|path| std::path::Path::new(path).exists()) {
        return Ok(Start { file: path.to_owned(), _in_memory: Vec::new() });
    }
    let made = from_environment()?;
    for note in &made.notes {
        let _ = writeln!(io::stderr(), "weir: {note}");
    }
    let kept = |name, text: &str| {
        securefs::in_memory(name, text.as_bytes())
            .map_err(|why| format!("{name} cannot be kept in memory: {why}"))
    };
    let mut ini = made.ini;
    let mut in_memory = Vec::new();
    if let Some(userlist) = made.userlist {
        let (file, path) = kept("userlist.txt", &userlist)?;
        ini.push_str(&format!("auth_file = {path}\n"));
        in_memory.push(file);
    }
    let (file, path) = kept("weir.ini", &ini)?;
    in_memory.push(file);
    Ok(Start { file: path, _in_memory: in_memory })
}

fn from_environment() -> Result<Made, String> {
    let given = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    ::container::convert(&Variables::new(given, &Disk)).map_err(|error| error.to_string())
}

/// Whether the process answers: `/readyz` of the panel's port, or, without one, a connection to where clients come.
fn health() -> Result<(), String> {
    let start = start()?;
    let config = settings::load(&Disk, &start.file, &[]).map_err(|findings| {
        findings.first().map_or_else(|| "no configuration".to_owned(), ToString::to_string)
    })?;
    let http_port = config.global.http_port;
    let port = if http_port == 0 { config.global.listen_port } else { http_port };
    let failed = |why: io::Error| format!("port {port}: {why}");
    let mut stream = TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), PATIENCE).map_err(failed)?;
    if http_port == 0 {
        return Ok(());
    }
    let mut answer = String::new();
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    stream.write_all(b"GET /readyz HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").map_err(failed)?;
    stream.take(1024).read_to_string(&mut answer).map_err(failed)?;
    let status = answer.split_whitespace().nth(1).unwrap_or("no answer");
    if status == "200" { Ok(()) } else { Err(format!("not ready: {status}")) }
}
