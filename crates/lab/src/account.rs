//! Who used how much CPU while it counted: server, pooler, load generator, machine. One look at the begin and one at the
//! end, kept as text among the raw files; the spending is read from that text alone.

use crate::cpu::{MachineTime, family_us};
use crate::record::Spending;

const HEAD: &str = "server_us pooler_us generator_us machine_us\n";

/// Whose time is looked at; `None` for who is not on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// PostgreSQL's first process.
    pub server: Option<u32>,
    /// The pooler's.
    pub pooler: Option<u32>,
}

/// The looks at one run.
#[derive(Debug)]
pub struct Account {
    watched: Watched,
    generator: Option<u32>,
    text: String,
}

impl Account {
    /// No look yet.
    #[must_use]
    pub fn new(watched: Watched) -> Self {
        Self { watched, generator: None, text: HEAD.to_owned() }
    }

    /// The generator's process, once it is there.
    pub fn set_generator(&mut self, process_id: u32) {
        self.generator = Some(process_id);
    }

    /// Samples every process.
    pub fn look(&mut self) {
        let of = |process: Option<u32>| process.and_then(family_us);
        let machine = Some(MachineTime::read().since_us(&MachineTime::default()));
        let cells = [of(self.watched.server), of(self.watched.pooler), of(self.generator), machine];
        let cell = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"));
        self.text += &(cells.map(cell).join(" ") + "\n");
    }

    /// The raw file.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// What was used between the first look and the last; `None` when a line is no look.
#[must_use]
pub fn spent(text: &str) -> Option<Spending> {
    let looks: Vec<[Option<f64>; 4]> = text.lines().skip(1).map(look).collect::<Option<_>>()?;
    let [first, .., last] = looks.as_slice() else { return Some(Spending::default()) };
    let between = |at: usize| Some((last[at]? - first[at]?).max(0.0));
    Some(Spending { server: between(0), pooler: between(1), generator: between(2), machine: between(3) })
}

fn look(line: &str) -> Option<[Option<f64>; 4]> {
    let cell = |cell: &str| if cell == "-" { Some(None) } else { cell.parse().ok().map(Some) };
    let cells: Vec<Option<f64>> = line.split(' ').map(cell).collect::<Option<_>>()?;
    cells.try_into().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_was_spent_is_the_last_look_less_the_first() {
        let text = format!("{HEAD}10 - 1 100\n50 - 2 200\n110 - 4 400\n");
        let found = spent(&text).unwrap();
        assert_eq!((found.server, found.pooler), (Some(100.0), None));
        assert_eq!((found.generator, found.machine), (Some(3.0), Some(300.0)));
        assert_eq!(spent(HEAD), Some(Spending::default()));
        assert_eq!(spent(&format!("{HEAD}1 2 3\n")), None);
        assert_eq!(spent(&format!("{HEAD}1 2 3 x\n")), None);
    }

    #[test]
    fn a_look_can_be_read() {
        let own = std::process::id();
        let mut account = Account::new(Watched { server: None, pooler: Some(own) });
        account.set_generator(own);
        account.look();
        account.look();
        let found = spent(account.text()).unwrap();
        assert!(found.server.is_none() && found.pooler.is_some() && found.machine.is_some(), "{found:?}");
    }
}
