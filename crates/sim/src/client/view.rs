//! What a client knows from what it was told: transaction status and parameters; and what PostgreSQL alone would have told.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::parameters::Parameters;
use crate::model::session::Status;
use crate::sql::{Statement, Tag, stamp};

/// A client's knowledge.
#[derive(Debug)]
pub(crate) struct View {
    /// The transaction's state after all that was answered.
    pub(crate) status: Status,
    /// The parameters it was last told.
    told: BTreeMap<String, String>,
    /// The moments that a constant has stood for in all TimeZones that were in force.
    stamps: BTreeSet<i64>,
    /// Whether the current group has changed parameters, so that rows may be ahead of what was told.
    pub(crate) unsettled: bool,
    /// The parameters of a session of its own, once it has logged in.
    own: Option<Parameters>,
}

impl View {
    /// Nothing is known yet.
    pub(crate) fn new() -> View {
        View {
            status: Status::Idle,
            told: BTreeMap::new(),
            stamps: BTreeSet::new(),
            unsettled: false,
            own: None,
        }
    }

    /// Its startup packet asks for these.
    pub(crate) fn asks<'a>(&mut self, pairs: impl Iterator<Item = (&'a str, &'a str)>) {
        self.own = Parameters::new(pairs);
    }

    /// The parameters of a session of its own.
    pub(super) fn own(&self) -> Option<Parameters> {
        self.own.clone()
    }

    /// A group was answered: whether the client was told what PostgreSQL would have told it.
    pub(crate) fn settle(&mut self) -> Result<(), String> {
        self.unsettled = false;
        let Some(own) = &mut self.own else { return Ok(()) };
        if self.status == Status::Idle {
            own.commit();
        }
        for name in ["application_name", "DateStyle", "IntervalStyle", "TimeZone"] {
            let told = self.told.get(name).map_or("", String::as_str);
            if own.value(name) != Some(told) {
                let value = own.value(name).unwrap_or("");
                return Err(format!("{name} is `{value}` in PostgreSQL, told was `{told}`"));
            }
        }
        Ok(())
    }

    /// ParameterStatus came.
    pub(crate) fn tell(&mut self, name: &[u8], value: &[u8]) {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        if name == b"TimeZone" {
            self.has_zone(&text(value));
        }
        self.told.insert(text(name), text(value));
    }

    /// A TimeZone is in force, or may be before it is reported.
    pub(crate) fn has_zone(&mut self, time_zone: &str) {
        self.stamps.insert(stamp(time_zone));
    }

    /// The value last told.
    pub(crate) fn told(&self, name: &str) -> &str {
        self.told.get(name).map_or("", String::as_str)
    }

    /// Whether a row is the answer to this request and was made in a session with this client's parameters.
    pub(crate) fn judge_row(&self, statement: &Statement, tag: Tag, value: &[u8]) -> Result<(), String> {
        let text = String::from_utf8_lossy(value);
        if let Statement::Show(name) = statement {
            let told = self.told(name);
            let fits = self.unsettled || told.is_empty() || *told == *text;
            return if fits { Ok(()) } else { Err(format!("SHOW {name} gave `{text}`, told was `{told}`")) };
        }
        if Tag::at_start(value) != Some(tag) {
            return Err(format!("{tag} got the row `{text}`"));
        }
        let mut parts = text.split('|');
        let moment =
            parts.next().and_then(|value| value.split(' ').nth(1)).and_then(|moment| moment.parse().ok());
        if matches!(statement, Statement::Stamp(_))
            && !moment.is_some_and(|moment| self.stamps.contains(&moment))
        {
            return Err(format!("{tag} was executed as parsed in another TimeZone: `{text}`"));
        }
        parts.next();
        for (name, found) in [("application_name", parts.next()), ("TimeZone", parts.next())] {
            let told = self.told(name);
            if !self.unsettled && found.is_some_and(|found| found != told) {
                return Err(format!("{tag} ran with {name} `{}`, told was `{told}`", found.unwrap_or("")));
            }
        }
        Ok(())
    }

    /// A statement was done.
    pub(crate) fn advance(&mut self, statement: &Statement) {
        match statement {
            Statement::Begin | Statement::BeginReadOnly => self.status = Status::Open,
            Statement::Commit | Statement::Rollback => {
                if let Some(own) = &mut self.own {
                    if *statement == Statement::Commit { own.commit() } else { own.roll_back() }
                }
                self.status = Status::Idle;
                self.unsettled = true;
            }
            Statement::Set(..) | Statement::Reset(_) | Statement::ResetAll | Statement::DiscardAll => {
                self.unsettled = true;
                self.own.iter_mut().for_each(|own| own.run(statement));
            }
            _ => (),
        }
    }

    /// A statement failed.
    pub(crate) fn fail(&mut self) {
        // What the failed transaction had set is reported with the next ReadyForQuery.
        self.unsettled = true;
        self.own.iter_mut().for_each(Parameters::roll_back);
        if self.status == Status::Open {
            self.status = Status::Failed;
        }
    }
}
