//! `weir container`: the first process of an image. A configuration that is mounted where PgBouncer's images have theirs is used as it is; else one
//! is made of the environment ([`container`]), and kept in memory: the root of a container may be read-only.
//! Owns what a second process in the container does to the first: the health check, and the end that interrupts no transaction.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use ::container::{Made, Variables};
use programs::Status;
use settings::Global;

use crate::cli::{ContainerTask, Options};
use crate::console::{Awaited, Console};
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
        health("/readyz").map(|()| Status::Done)
    } else if task.alive {
        alive().map(|()| Status::Done)
    } else if let Some(seconds) = task.drain {
        drain(task.delay.unwrap_or_default(), seconds).map(|()| Status::Done)
    } else if task.print {
        from_environment().map(|made| crate::print(&made.shown))
    } else {
        start(say).map(|start| serve(&Options { file: Some(start.file.clone()), ..Options::default() }))
    };
    done.unwrap_or_else(|why| {
        say(&why);
        Status::Failed
    })
}

fn say(what: &str) {
    let _ = writeln!(io::stderr(), "weir: {what}");
}

/// `note` gets what is worth knowing and no error.
fn start(note: impl Fn(&str)) -> Result<Start, String> {
    if let Some(path) = MOUNTED.into_iter().find(|path| std::path::Path::new(path).exists()) {
        return Ok(Start { file: path.to_owned(), _in_memory: Vec::new() });
    }
    let made = from_environment()?;
    made.notes.iter().for_each(|text| note(text));
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
    let given = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    ::container::convert(&Variables::new(given, &Disk)).map_err(|error| error.to_string())
}

/// The settings that the process of this container was started with. A mounted file may have been edited since, and be wrong: the process knows nothing of that
/// before its next RELOAD.
fn settings() -> Result<Global, String> {
    let start = start(|_| ())?;
    Ok(settings::left_settings(&Disk, &start.file))
}

/// Ends the process without interrupting a transaction. Its clients may leave until `seconds` are over; from then on none gets a server any more.
/// How long transactions in progress may take then is for the container's runtime to say, which ends what does not end.
fn drain(delay: u32, seconds: u32) -> Result<(), String> {
    let global = settings()?;
    std::thread::sleep(Duration::from_secs(delay.into()));
    let deadline = Instant::now() + Duration::from_secs(seconds.into());
    let mut console = Console::connect(&global, "weir container --drain")?;
    if console.shut_down("SHUTDOWN WAIT_FOR_CLIENTS")? == Awaited::Ended
        || console.until_end(Some(deadline))? == Awaited::Ended
    {
        return Ok(());
    }
    say(&format!("clients are still connected after {seconds} s; waiting for transactions in progress"));
    if console.shut_down("SHUTDOWN WAIT_FOR_SERVERS")? == Awaited::Runs {
        console.until_end(None)?;
    }
    Ok(())
}

/// Whether the process answers on its console, as it does while it drains and shuts down; or, where no unix socket leads to that, as [`health`] asks.
fn alive() -> Result<(), String> {
    let global = settings()?;
    if driver::unix_path(&global).is_none() {
        return health("/healthz");
    }
    Console::connect_within(&global, "weir container --alive", PATIENCE)?.rows("SHOW VERSION").map(|_| ())
}

/// Whether the process answers: this path of the panel's port, or, where there is none without TLS, a connection to where clients come.
fn health(path: &str) -> Result<(), String> {
    let global = settings()?;
    let is_http = global.http_port != 0 && global.http_tls_cert_file.is_none();
    let address = match is_http {
        true => SocketAddr::new(own_address(&global.http_addr), global.http_port),
        false => {
            let first = global.listen_addr.first().map_or("*", String::as_str);
            SocketAddr::new(own_address(first), global.listen_port)
        }
    };
    let failed = |why: io::Error| format!("{address}: {why}");
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(failed)?;
    if !is_http {
        return Ok(());
    }
    let mut answer = String::new();
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(failed)?;
    stream.take(1024).read_to_string(&mut answer).map_err(failed)?;
    let status = answer.split_whitespace().nth(1).unwrap_or("no answer");
    if status == "200" { Ok(()) } else { Err(format!("not ready: {status}")) }
}

/// Where a process that listens at this address is reached from beside it: names and wildcards have the loopback address.
fn own_address(listens: &str) -> IpAddr {
    let address: IpAddr = listens.parse().unwrap_or(Ipv4Addr::LOCALHOST.into());
    match address {
        IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        address if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_is_reached_at_loopback() {
        for (listens, reached) in
            [("*", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("10.1.2.3", "10.1.2.3")]
        {
            assert_eq!(own_address(listens).to_string(), reached);
        }
    }
}
