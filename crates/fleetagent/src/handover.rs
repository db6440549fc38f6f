//! What a process that takes over has to know to go on as the same node, as a line of the note that it gets.

use fleet::{Handover, SessionId};

/// Begins the line.
const NOTE: &str = "fleet ";

/// The line.
pub(crate) fn note(handover: &Handover) -> String {
    let sessions = std::iter::once(&handover.session).chain(&handover.earlier);
    let sessions: Vec<String> = sessions.map(|session| format!("{:016x}", session.0)).collect();
    format!("{NOTE}{} {}\n", handover.sure_until_us, sessions.join(" "))
}

/// Finds the line in a note; None if there is none that can be read.
#[must_use]
pub fn from_note(note: &str) -> Option<Handover> {
    let line = note.lines().find_map(|line| line.strip_prefix(NOTE))?;
    let mut words = line.split(' ');
    let sure_until_us = words.next()?.parse().ok()?;
    let mut sessions = words.map(|word| u64::from_str_radix(word, 16).map(SessionId));
    let session = sessions.next()?.ok()?;
    Some(Handover { session, earlier: sessions.collect::<Result<_, _>>().ok()?, sure_until_us })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for earlier in [Vec::new(), vec![SessionId(2), SessionId(u64::MAX)]] {
            let handover = Handover { session: SessionId(0x1f), earlier, sure_until_us: 5_000_000 };
            let text = format!("paused app\n{}more\n", note(&handover));
            assert_eq!(from_note(&text), Some(handover));
        }
        for text in
            ["", "fleet \n", "fleet 1\n", "fleet 1 x\n", "fleet x 1\n", "fleet 1 1 x\n", "afleet 1 1\n"]
        {
            assert_eq!(from_note(text), None, "{text:?}");
        }
    }
}
