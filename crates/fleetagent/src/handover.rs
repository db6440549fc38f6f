//! What a process that takes over has to know to go on as the same node, as a line of the note that it gets.

use fleet::{BudgetKind, BudgetName, Handover, HeldFloors, SessionId};
use settings::percent_decode;

/// Begins the line.
const NOTE: &str = "fleet ";

/// The line says that not all floors are held; [`FLOOR`] begins a line for each one that is.
const FLOORS: &str = "fleet_floors";
const FLOOR: &str = "fleet_floor ";

/// Floors that are noted; the process that takes over proves the others anew.
const MAX_FLOORS: usize = 2_000;

/// The line.
pub(crate) fn note(handover: &Handover) -> String {
    let sessions = std::iter::once(&handover.session).chain(&handover.earlier);
    let sessions: Vec<String> = sessions.map(|session| format!("{:016x}", session.0)).collect();
    let mut text = format!("{NOTE}{} {}\n", handover.sure_until_us, sessions.join(" "));
    if let HeldFloors::Of(floors) = &handover.floors {
        text.push_str(FLOORS);
        text.push('\n');
        floors.iter().take(MAX_FLOORS).for_each(|name| text.push_str(&floor_line(name)));
    }
    text
}

fn floor_line(BudgetName { kind, database, user, host }: &BudgetName) -> String {
    let kind = match kind {
        BudgetKind::Pool => "pool",
        BudgetKind::Database => "database",
        BudgetKind::User => "user",
    };
    let parts = [database, user, host].map(|part| encoded(part));
    format!("{FLOOR}{kind} {}\n", parts.join(" "))
}

/// All but letters and digits as `%XX`, so that it is one word.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte.is_ascii_alphanumeric() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

fn read_floor(line: &str) -> Option<BudgetName> {
    let mut words = line.strip_prefix(FLOOR)?.split(' ');
    let kind = match words.next()? {
        "pool" => BudgetKind::Pool,
        "database" => BudgetKind::Database,
        "user" => BudgetKind::User,
        _ => return None,
    };
    let mut part = || percent_decode(words.next()?);
    Some(BudgetName { kind, database: part()?.into(), user: part()?.into(), host: part()?.into() })
}

/// Finds the line in a note; None if there is none that can be read.
#[must_use]
pub fn from_note(note: &str) -> Option<Handover> {
    let line = note.lines().find_map(|line| line.strip_prefix(NOTE))?;
    let mut words = line.split(' ');
    let sure_until_us = words.next()?.parse().ok()?;
    let mut sessions = words.map(|word| u64::from_str_radix(word, 16).map(SessionId));
    let session = sessions.next()?.ok()?;
    let earlier = sessions.collect::<Result<_, _>>().ok()?;
    // A process that did not say held them all.
    let floors = match note.lines().any(|line| line == FLOORS) {
        true => HeldFloors::Of(note.lines().filter_map(read_floor).collect()),
        false => HeldFloors::All,
    };
    Some(Handover { session, earlier, sure_until_us, floors })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for earlier in [Vec::new(), vec![SessionId(2), SessionId(u64::MAX)]] {
            let budget = |kind, database: &str, host: &str| BudgetName {
                kind,
                database: database.into(),
                user: "".into(),
                host: host.into(),
            };
            let some = vec![budget(BudgetKind::Pool, "a b\n%", "h:1"), budget(BudgetKind::User, "ü", "")];
            for floors in [HeldFloors::All, HeldFloors::Of(Vec::new()), HeldFloors::Of(some)] {
                let earlier = earlier.clone();
                let handover =
                    Handover { session: SessionId(0x1f), earlier, sure_until_us: 5_000_000, floors };
                let text = format!("paused app\n{}more\n", note(&handover));
                assert_eq!(from_note(&text), Some(handover));
            }
        }
        for text in
            ["", "fleet \n", "fleet 1\n", "fleet 1 x\n", "fleet x 1\n", "fleet 1 1 x\n", "afleet 1 1\n"]
        {
            assert_eq!(from_note(text), None, "{text:?}");
        }
    }
}
