//! Which process of this machine listens on a TCP port: the one to account for when a pooler was running before the
//! lab came. Reads /proc, so it sees what its user may see: that user's processes, as root all.

use std::fs;

/// A listening socket's state in /proc/net/tcp.
const LISTENING: &str = "0A";

/// The process that listens on `port`; of several that share the socket the one that started the others.
#[must_use]
pub fn listening_on(port: u16) -> Option<u32> {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let sockets: Vec<String> = tables.iter().flat_map(|table| inodes(table, port)).collect();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holders: Vec<u32> = numbers.filter(|process| holds(*process, &sockets)).collect();
    holders.iter().copied().find(|process| parent(*process).is_none_or(|parent| !holders.contains(&parent)))
}

/// The listening sockets of `port`, as a link of /proc/PROCESS/fd names them.
fn inodes(table: &str, port: u16) -> Vec<String> {
    let of = |line: &str| {
        let cells: Vec<&str> = line.split_whitespace().collect();
        let (_, hexadecimal) = cells.get(1)?.rsplit_once(':')?;
        let is_it = u16::from_str_radix(hexadecimal, 16) == Ok(port) && cells.get(3) == Some(&LISTENING);
        is_it.then(|| cells.get(9).map(|inode| format!("socket:[{inode}]")))?
    };
    table.lines().skip(1).filter_map(of).collect()
}

fn holds(process: u32, sockets: &[String]) -> bool {
    let files = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    files
        .filter_map(|file| fs::read_link(file.path()).ok())
        .any(|link| link.to_str().is_some_and(|link| sockets.iter().any(|socket| socket == link)))
}

/// The fourth field of stat, behind a name in brackets that may hold anything.
fn parent(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat[stat.rfind(')')? + 1..].split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn who_listens_is_found_and_who_left_is_not() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(listening_on(port), Some(std::process::id()));
        drop(listener);
        assert_eq!(listening_on(port), None);
    }

    #[test]
    fn only_listening_sockets_of_the_port_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 77 1 0 100\n\
            1: 0100007F:1F90 0100007F:9999 01 00000000:00000000 00:00000000 00000000 0 0 78 1 0 100\n\
            2: odd\n";
        assert_eq!(inodes(table, 8080), ["socket:[77]"]);
        assert!(inodes(table, 8081).is_empty());
    }
}
