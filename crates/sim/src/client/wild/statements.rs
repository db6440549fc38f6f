//! Which statements such a client sends: by the protocol, by SQL, and as far as its terms allow them.

use super::{Habit, NAMES, SAVEPOINTS, SQL_NAMES, Script};
use crate::client::choice::TIME_ZONES;
use crate::prng::Prng;
use crate::sql::{Statement, Tag, Value};

impl Script {
    /// A statement. With `extended`, its tag goes into a parameter where it has one.
    pub(super) fn choose(&mut self, extended: bool, prng: &mut Prng) -> Statement {
        if self.habit == Habit::Counter {
            return self.choose_counting(extended, prng);
        }
        let terms = self.terms;
        let keeps_per_million = if self.habit == Habit::Keeper { 600_000 } else { 100_000 };
        if terms.keeps_session && prng.chance(keeps_per_million) {
            let tag = Tag { client: self.client, request: self.requests + u32::from(extended) };
            return self.session.choose(tag, extended, prng);
        }
        if prng.chance(terms.fail_per_million) {
            return match prng.below(3) {
                0 => Statement::DivideByZero,
                1 => Statement::Insert(Value::Null),
                _ => Statement::Unknown,
            };
        }
        if prng.chance(if self.open { 250_000 } else { 80_000 }) {
            return self.choose_bounds(prng);
        }
        if prng.chance(terms.copy_per_million) {
            let own = Value::Literal(Tag { client: self.client, request: self.requests + 1 }.to_string());
            return if prng.chance(600_000) { Statement::CopyIn } else { Statement::CopyOut(own, 3) };
        }
        if prng.chance(terms.set_per_million) {
            return self.choose_setting(extended, prng);
        }
        let tag = Tag { client: self.client, request: self.requests + u32::from(extended) };
        let value = if extended { Value::Parameter } else { Value::Literal(tag.to_string()) };
        match prng.below(100) {
            0..30 => Statement::Select(value, 1),
            30..50 => Statement::Select(value, u32::try_from(prng.between(2, 5)).unwrap_or(2)),
            50..80 => Statement::Insert(value),
            80..84 => Statement::Show(prng.pick(&["application_name", "TimeZone", "DateStyle"]).to_owned()),
            84..88 if !extended => Statement::Notice(tag.to_string()),
            88..91 => Statement::Empty,
            91..94 if extended => Statement::Stamp(None),
            94..96 if terms.by_sql => self.choose_by_sql(prng),
            96 => Statement::DeallocateAll,
            97 if !extended => Statement::DiscardAll,
            _ => Statement::SelectNumber(u32::try_from(prng.below(3)).unwrap_or(0)),
        }
    }

    fn choose_counting(&mut self, extended: bool, prng: &mut Prng) -> Statement {
        let tag = Tag { client: self.client, request: self.requests + u32::from(extended) };
        let value = if extended { Value::Parameter } else { Value::Literal(tag.to_string()) };
        match prng.below(100) {
            0..70 => self.session.count(tag, extended, prng),
            70..85 => self.choose_bounds(prng),
            85..92 => Statement::Insert(value),
            _ => Statement::Select(value, 1),
        }
    }

    fn choose_bounds(&mut self, prng: &mut Prng) -> Statement {
        let savepoint = prng.pick(SAVEPOINTS).to_owned();
        match prng.below(100) {
            0..25 => Statement::Savepoint(savepoint),
            25..45 => Statement::RollbackTo(savepoint),
            45..52 => Statement::Release(savepoint),
            _ if !self.open || prng.chance(50_000) => {
                self.open = true;
                Statement::Begin
            }
            _ => {
                self.open = false;
                if prng.chance(600_000) { Statement::Commit } else { Statement::Rollback }
            }
        }
    }

    fn choose_setting(&mut self, extended: bool, prng: &mut Prng) -> Statement {
        let (name, value) = match prng.below(4) {
            0 => ("TimeZone", prng.pick(TIME_ZONES).to_owned()),
            1 => ("DateStyle", prng.pick(&["ISO, MDY", "SQL, DMY"]).to_owned()),
            2 => ("IntervalStyle", prng.pick(&["postgres", "iso_8601"]).to_owned()),
            _ => ("application_name", format!("app{}", prng.below(5))),
        };
        let (name, local) = (name.to_owned(), prng.chance(500_000));
        match prng.below(100) {
            0..45 => Statement::Set(name, Some(value)),
            45..60 => Statement::SetLocal(name, value),
            60..80 => Statement::SetConfig(name, value, local),
            80..90 if !extended => Statement::Reset(name),
            90..95 if !extended => Statement::Set(name, None),
            95..100 if !extended => Statement::ResetAll,
            _ => Statement::Set(name, Some(value)),
        }
    }

    /// What SQL and the protocol prepare under the same names: either may execute it.
    pub(super) fn choose_to_share(&self, prng: &mut Prng) -> Statement {
        if self.terms.keeps_session {
            self.session.choose_to_prepare(prng)
        } else {
            Statement::SelectNumber(7)
        }
    }

    fn choose_by_sql(&mut self, prng: &mut Prng) -> Statement {
        let name = prng.pick(SQL_NAMES).to_owned();
        match prng.below(3) {
            0 => Statement::Prepare(name, Box::new(self.choose_to_share(prng))),
            1 => Statement::Execute(name),
            _ => Statement::Deallocate(if prng.chance(500_000) { prng.pick(NAMES).to_owned() } else { name }),
        }
    }
}
