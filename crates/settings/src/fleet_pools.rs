//! Edits the part of a pools file that all nodes of a fleet have, apart from the node's own.
//! Owns the writing of lines that say what is paused and disabled on all nodes. Does no I/O.

use crate::fleet_part::{ALL, DISABLED, FleetHolds, Mark, PAUSED, mark, mark_line};
use crate::pools_text::{PoolsText, quoted};

impl PoolsText {
    /// The node's own part, and that of all nodes with its revision (empty, and 0, if there is none).
    #[must_use]
    pub fn parts(&self) -> (PoolsText, u64, PoolsText) {
        match mark(self.bytes()) {
            Some(Mark { revision, begins, ends, .. }) => {
                (self.sibling(&self.bytes()[..begins]), revision, self.sibling(&self.bytes()[ends..]))
            }
            None => (self.clone(), 0, self.sibling(b"")),
        }
    }

    /// The inverse.
    #[must_use]
    pub fn of_parts(own: &PoolsText, revision: u64, of_fleet: &[u8]) -> PoolsText {
        let mut bytes = own.bytes().to_vec();
        if !bytes.is_empty() && !bytes.ends_with(b"\n") {
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(mark_line(revision).as_bytes());
        bytes.extend_from_slice(of_fleet);
        own.sibling(&bytes)
    }

    /// What this part of all nodes says is paused and disabled.
    #[must_use]
    pub fn holds(&self) -> FleetHolds {
        FleetHolds::read(self.bytes())
    }

    /// Has this part of all nodes say what is paused and disabled.
    pub fn set_holds(&mut self, holds: &FleetHolds) {
        let all = holds.all.then(|| format!("{PAUSED}{ALL}\n"));
        let line = |word: &'static str| move |name: &String| format!("{word}{}\n", quoted(name));
        // A line has one name: one with a line feed would be more lines.
        let can_stand = |name: &&String| !name.chars().any(char::is_control);
        let paused = holds.paused.iter().filter(can_stand).map(line(PAUSED));
        let disabled = holds.disabled.iter().filter(can_stand).map(line(DISABLED));
        let lines: String = all.into_iter().chain(paused).chain(disabled).collect();
        let is_hold =
            |line: &&[u8]| line.starts_with(PAUSED.as_bytes()) || line.starts_with(DISABLED.as_bytes());
        let rest = self.bytes().split_inclusive(|byte| *byte == b'\n').filter(|line| !is_hold(line));
        let bytes: Vec<u8> = [lines.as_bytes()].into_iter().chain(rest).flatten().copied().collect();
        *self = self.sibling(&bytes);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::files::memory::Memory;
    use crate::{Config, Finding, load, with_pools};

    const MAIN: &str = "[databases]\napp = host=h\n[pgbouncer]\npools_file = p.ini\n";

    fn text(of: &str) -> PoolsText {
        PoolsText::read("p.ini", of.as_bytes()).unwrap()
    }

    fn with_part(own: &str, part: &str) -> String {
        let whole = PoolsText::of_parts(&text(own), 12, part.as_bytes());
        String::from_utf8(whole.bytes().to_vec()).unwrap()
    }

    fn loaded(pools: &str) -> Result<Config, Vec<String>> {
        let texts = |findings: Vec<Finding>| findings.iter().map(ToString::to_string).collect();
        load(&Memory(&[("w.ini", MAIN), ("p.ini", pools)]), "w.ini", &[]).map_err(texts)
    }

    fn names(config: &Config) -> Vec<&str> {
        config.databases.keys().map(String::as_str).collect()
    }

    #[test]
    fn parts_are_read_as_written() {
        for own in ["", "[databases]\na = host=h\n", "; no line feed"] {
            for part in ["", "[databases]\nb = host=h\n"] {
                let whole = with_part(own, part);
                let (read_own, revision, read_part) = text(&whole).parts();
                assert_eq!(String::from_utf8_lossy(read_own.bytes()).trim_end(), own.trim_end());
                assert_eq!((revision, read_part.bytes()), (12, part.as_bytes()));
            }
        }
        assert_eq!(text("[databases]\n").parts().1, 0);
        assert_eq!(text("; Pools of all nodes of the fleet, revision x\n").parts().1, 0);
    }

    #[test]
    fn the_nodes_own_entries_win_and_stay() {
        let part =
            "[databases]\napp = host=x\nmine = host=x\nb = host=h\nc = pool_size=many\nd\ne = host=i\n";
        let config = loaded(&with_part("[databases]\nmine = host=m\n", part)).unwrap();
        assert_eq!(names(&config), ["app", "b", "e", "mine"]);
        assert_eq!(
            (config.databases["app"].host[0].as_str(), config.databases["mine"].host[0].as_str()),
            ("h", "m")
        );
        let refused: Vec<String> = config.fleet_part.refused.iter().map(ToString::to_string).collect();
        let expected = [
            "p.ini:9: syntax error: expected \"=\" after the name",
            "p.ini:5: database \"app\" is defined in w.ini:2 too",
            "p.ini:6: database \"mine\" is defined in p.ini:2 too",
            "p.ini:8: database c: pool_size: \"many\" is not a whole number",
        ];
        assert_eq!((config.fleet_part.revision, refused), (12, expected.map(str::to_owned).to_vec()));
        assert!(config.warnings.iter().any(|warning| warning.message.contains("left out")));
        let again =
            with_pools(&config, "p.ini", with_part("", "[databases]\nq = host=h\napp = host=y\n").as_bytes());
        let again = again.unwrap();
        assert_eq!((names(&again), again.fleet_part.refused.len()), (vec!["app", "q"], 1));
    }

    #[test]
    fn errors_elsewhere_are_errors() {
        let own = loaded(&with_part("[databases]\nmine = pool_size=many\n", "[databases]\nb = host=h\n"));
        assert_eq!(own.unwrap_err(), ["p.ini:2: database mine: pool_size: \"many\" is not a whole number"]);
    }

    #[test]
    fn what_is_held_is_read_as_written() {
        let mut part = text("[databases]\nb = host=h\n");
        let mut holds = FleetHolds { all: true, ..FleetHolds::default() };
        holds.paused.extend(["b".to_owned(), "a \"b\" all".to_owned()]);
        holds.disabled.insert("\u{e9} ;".to_owned());
        part.set_holds(&holds);
        assert_eq!(part.holds(), holds);
        assert!(loaded(&String::from_utf8_lossy(part.bytes())).is_ok(), "they are comments");
        assert_eq!(FleetHolds::read(b";; paused \"a\tb\"\n;; disabled \"x\n"), FleetHolds::default());
        part.set_holds(&FleetHolds::default());
        assert_eq!(part.bytes(), b"[databases]\nb = host=h\n");
    }
}
