//! Which statement a client says next, and which of them can go together. Never sends it.

use super::context::ClientContext;
use super::expect::Filling;
use super::session::Client;
use crate::sql::{Statement, Tag, Value};

/// Values of TimeZone that clients use, as PostgreSQL spells them.
pub(crate) const TIME_ZONES: &[&str] = &["Etc/UTC", "Europe/Vienna", "Asia/Tokyo"];

impl Client {
    /// A statement for one request. With `extended`, its tag goes into a parameter where it has one.
    pub(super) fn choose(&mut self, tag: Tag, extended: bool, context: &mut ClientContext<'_>) -> Statement {
        let client_mix = context.client_mix;
        let prng = &mut *context.prng;
        let value = || if extended { Value::Parameter } else { Value::Literal(tag.to_string()) };
        let own = || Value::Literal(tag.to_string());
        if self.planned_open && prng.chance(350_000) {
            return if prng.chance(200_000) { Statement::Rollback } else { Statement::Commit };
        }
        if !self.planned_open && prng.chance(client_mix.transaction_per_million) {
            let is_read_only = prng.chance(client_mix.read_only_per_million);
            return if is_read_only { Statement::BeginReadOnly } else { Statement::Begin };
        }
        if self.planned_read_only {
            return Statement::Select(value(), 1);
        }
        if prng.chance(client_mix.fail_per_million) {
            return match prng.below(3) {
                0 => Statement::DivideByZero,
                1 => Statement::Insert(Value::Null),
                _ => Statement::Unknown,
            };
        }
        if prng.chance(client_mix.set_per_million) {
            return self.choose_setting(context);
        }
        let rows = |prng: &mut crate::prng::Prng| {
            u32::try_from(prng.log_between(1, client_mix.rows_most)).unwrap_or(1)
        };
        if prng.chance(client_mix.copy_per_million) {
            return if prng.chance(500_000) {
                Statement::CopyIn
            } else {
                Statement::CopyOut(own(), rows(prng).max(2))
            };
        }
        match prng.below(100) {
            0..40 => Statement::Select(value(), 1),
            40..55 => Statement::Select(value(), rows(prng)),
            55..85 => Statement::Insert(value()),
            85..89 => Statement::Sleep(value(), prng.log_between(100, 50_000)),
            89..93 => Statement::Show(prng.pick(&["application_name", "TimeZone", "DateStyle"]).to_owned()),
            93..96 => Statement::Notice(tag.to_string()),
            96..98 => Statement::Empty,
            98 if !extended && !self.planned_open && self.groups.is_empty() => Statement::DiscardAll,
            99 if !extended && !self.planned_open && self.groups.is_empty() => Statement::DeallocateAll,
            _ => Statement::Select(value(), 1),
        }
    }

    fn choose_setting(&mut self, context: &mut ClientContext<'_>) -> Statement {
        let prng = &mut *context.prng;
        let reset = prng.pick(&["TimeZone", "application_name", "DateStyle"]).to_owned();
        match prng.below(100) {
            0..12 => return Statement::Reset(reset),
            12..24 => return Statement::Set(reset, None),
            24..32 => return Statement::ResetAll,
            _ => {}
        }
        let (name, value) = match prng.below(4) {
            0 => ("TimeZone", prng.pick(TIME_ZONES).to_owned()),
            1 => ("DateStyle", prng.pick(&["ISO, MDY", "SQL, DMY"]).to_owned()),
            2 => ("IntervalStyle", prng.pick(&["postgres", "iso_8601"]).to_owned()),
            _ => ("application_name", format!("app{}", prng.below(5))),
        };
        Statement::Set(name.to_owned(), Some(value))
    }

    pub(super) fn choose_to_prepare(&mut self, context: &mut ClientContext<'_>) -> Statement {
        let rows = u32::try_from(context.prng.log_between(1, context.client_mix.rows_most)).unwrap_or(1);
        if context.prng.chance(context.client_mix.fail_per_million) {
            return Statement::Unknown;
        }
        match context.prng.below(5) {
            4 => Statement::Stamp(None),
            0 => Statement::Select(Value::Parameter, rows),
            1 => Statement::Insert(Value::Parameter),
            2 => Statement::Sleep(Value::Parameter, 1_000),
            _ => Statement::Select(Value::Parameter, 1),
        }
    }
}

/// What to send into a COPY.
pub(super) fn choose_filling(context: &mut ClientContext<'_>) -> Filling {
    let rows = u32::try_from(context.prng.log_between(1, 200)).unwrap_or(1);
    match context.prng.below(10) {
        0..7 => Filling::Rows(rows),
        7..9 => Filling::BadRow(rows),
        _ => Filling::Failure,
    }
}

/// Whether the client has to hear an answer before it may send more.
pub(super) fn pauses(statement: &Statement) -> bool {
    matches!(statement, Statement::CopyIn | Statement::DiscardAll | Statement::DeallocateAll)
}

/// Whether it may stand among others in one query or one pipeline.
pub(super) fn fits_into_many(statement: &Statement) -> bool {
    use Statement::{
        Begin, BeginReadOnly, Commit, CopyIn, DeallocateAll, DiscardAll, Empty, Rollback, Unknown,
    };
    // What stands behind a reset in the same request runs with the server's own values.
    let resets = matches!(statement, Statement::Reset(_) | Statement::ResetAll | Statement::Set(_, None));
    let alone = matches!(
        statement,
        Empty | CopyIn | DiscardAll | DeallocateAll | Unknown | Begin | BeginReadOnly | Commit | Rollback
    );
    !(resets || alone)
}
