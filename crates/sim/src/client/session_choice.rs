//! Which statements about its session a client says: what it sets, makes and takes, how it ends that, and what it asks to see whether its session is
//! its own.
//!
//! Never knows what is answered: whatever the shadow says must come.

use crate::prng::Prng;
use crate::sequence_sql::{OF_TABLE, SequenceStatement};
use crate::session_sql::{HIDDEN, SessionStatement};
use crate::sql::{Statement, Tag};

const SETTINGS: &[&str] = &["lock_timeout", "extra_float_digits", "app.tenant", "app.user", "search_path"];
const CURSORS: &[&str] = &["h0", "h1"];
const TABLES: &[&str] = &["t0", "t1"];
const STATEMENTS: &[&str] = &["q0", "q1"];
const SEQUENCES: &[&str] = &["sq0", "sq0", "sq1"];

/// The choices of one client.
#[derive(Debug)]
pub(super) struct SessionChoice {
    client: u32,
    /// What ends what it has made, as far as nothing failed.
    ends: Vec<Statement>,
    /// It has set what no text names: it may find that unset.
    hides: bool,
}

impl SessionChoice {
    /// Those of a client of this number.
    pub(super) fn new(client: u32) -> SessionChoice {
        SessionChoice { client, ends: Vec::new(), hides: false }
    }

    /// A statement. In a request of the extended protocol there is no RESET.
    pub(super) fn choose(&mut self, tag: Tag, extended: bool, prng: &mut Prng) -> Statement {
        if !self.ends.is_empty() && prng.chance(350_000) {
            let at = prng.index(self.ends.len());
            return self.ends.swap_remove(at);
        }
        if prng.chance(150_000) {
            return self.count(tag, extended, prng);
        }
        match prng.below(100) {
            0..34 => self.set(tag, extended, prng),
            34..41 => self.call(tag, prng),
            41..55 => self.make(prng),
            55..59 => self.notify(tag, prng),
            59..63 if !extended => self.discard(prng),
            _ => self.look(prng),
        }
    }

    fn set(&self, tag: Tag, extended: bool, prng: &mut Prng) -> Statement {
        let name = prng.pick(SETTINGS).to_owned();
        let value = value(&name, tag, prng);
        match prng.below(100) {
            0..40 => Statement::Set(name, Some(value)),
            40..52 => Statement::SetLocal(name, value),
            52..72 => Statement::SetConfig(name, value, prng.chance(250_000)),
            72..86 if !extended => Statement::Reset(name),
            86..94 if !extended => Statement::Set(name, None),
            94..100 if !extended => Statement::ResetAll,
            _ => Statement::Set(name, Some(value)),
        }
    }

    /// A function, or a trigger, whose effect its text does not show.
    fn call(&mut self, tag: Tag, prng: &mut Prng) -> Statement {
        Statement::Session(match prng.below(10) {
            0..5 => {
                let name = prng.pick(SETTINGS).to_owned();
                let value = value(&name, tag, prng);
                SessionStatement::ChangeSession(name, value)
            }
            5..7 => {
                self.hides = true;
                SessionStatement::HideSetting(tag.to_string())
            }
            7..9 => {
                let key = self.key(prng);
                self.ends.push(Statement::Session(SessionStatement::Unlock(key)));
                SessionStatement::TakeLock(key)
            }
            _ => SessionStatement::Audited(tag.to_string()),
        })
    }

    /// What only one server has.
    fn make(&mut self, prng: &mut Prng) -> Statement {
        use SessionStatement::*;
        let (makes, ends) = match prng.below(6) {
            0 => {
                let name = prng.pick(TABLES).to_owned();
                (CreateTemporary(name.clone()), DropTemporary(name))
            }
            1 => {
                let name = prng.pick(CURSORS).to_owned();
                (Declare(name.clone()), Close(name))
            }
            2 => {
                let name = self.channel(prng);
                (Listen(name.clone()), Unlisten(prng.chance(700_000).then_some(name)))
            }
            3..5 => {
                let name = prng.pick(STATEMENTS).to_owned();
                self.ends.push(Statement::Deallocate(name.clone()));
                return Statement::Prepare(name, Box::new(self.choose_to_prepare(prng)));
            }
            _ => {
                let key = self.key(prng);
                (Lock(key), if prng.chance(800_000) { Unlock(key) } else { UnlockAll })
            }
        };
        self.ends.push(Statement::Session(ends));
        Statement::Session(makes)
    }

    /// A statement whose result tells whose it is.
    pub(super) fn choose_to_prepare(&self, prng: &mut Prng) -> Statement {
        Statement::SelectNumber(self.client * 10 + u32::try_from(prng.below(10)).unwrap_or(0))
    }

    /// Calls of `nextval`, questions for what they have left, and now and then the end of that.
    pub(super) fn count(&self, tag: Tag, extended: bool, prng: &mut Prng) -> Statement {
        use SequenceStatement::*;
        let name = prng.pick(SEQUENCES).to_owned();
        let statement = match prng.below(100) {
            0..25 => Next(name),
            25..30 => NextByFunction(name),
            30..34 => NextAndFail(name),
            34..50 => Insert(tag.to_string()),
            50..68 => Current(name),
            68..75 => Current(OF_TABLE.to_owned()),
            75..78 if !extended => {
                return Statement::Session(SessionStatement::DiscardOther("SEQUENCES".to_owned()));
            }
            78 if !extended => return Statement::DiscardAll,
            _ => Last,
        };
        Statement::Session(SessionStatement::Sequence(statement))
    }

    fn notify(&self, tag: Tag, prng: &mut Prng) -> Statement {
        Statement::Session(SessionStatement::Notify(self.channel(prng), tag.to_string()))
    }

    fn discard(&mut self, prng: &mut Prng) -> Statement {
        match prng.below(10) {
            0..5 => {
                self.ends.clear();
                Statement::DiscardAll
            }
            5..8 => Statement::Session(SessionStatement::DiscardTemporary),
            8 => Statement::Session(SessionStatement::DiscardOther("PLANS".to_owned())),
            _ => Statement::Session(SessionStatement::DiscardOther("SEQUENCES".to_owned())),
        }
    }

    /// Whether its session is as it has left it.
    fn look(&self, prng: &mut Prng) -> Statement {
        use SessionStatement::*;
        Statement::Session(match prng.below(100) {
            0..25 => CurrentSetting(prng.pick(SETTINGS).to_owned()),
            25..35 if !self.hides => CurrentSetting(HIDDEN.to_owned()),
            35..45 => FindTemporary(prng.pick(TABLES).to_owned()),
            45..55 => Cursors,
            55..65 => Locks,
            65..75 => Channels,
            75..90 => return Statement::Execute(prng.pick(STATEMENTS).to_owned()),
            90..95 => Prepared,
            95..100 => return Statement::Show(prng.pick(&["lock_timeout", "search_path"]).to_owned()),
            _ => CurrentSetting("lock_timeout".to_owned()),
        })
    }

    /// Locks of different clients have different names, so that none waits for another.
    fn key(&self, prng: &mut Prng) -> u32 {
        self.client * 10 + u32::try_from(prng.below(3)).unwrap_or(0)
    }

    /// One of its own, or one on which others listen too.
    fn channel(&self, prng: &mut Prng) -> String {
        match prng.chance(500_000) {
            true => format!("n{}_{}", self.client, prng.below(3)),
            false => format!("all{}", prng.below(2)),
        }
    }
}

/// A value for a setting; that of a custom one tells whose it is.
fn value(name: &str, tag: Tag, prng: &mut Prng) -> String {
    match name {
        "lock_timeout" => format!("{}s", prng.between(1, 2)),
        "extra_float_digits" => prng.between(1, 3).to_string(),
        "search_path" => prng.pick(&["public", "tenant1", "tenant2"]).to_owned(),
        _ if prng.chance(500_000) => prng.pick(&["a", "b"]).to_owned(),
        _ => tag.to_string(),
    }
}
