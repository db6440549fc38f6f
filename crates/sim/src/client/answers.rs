//! What a client makes of each message that comes: it belongs to the oldest unanswered request, or it is objected to.
//!
//! Owns what follows from an answer (rows to send, what became of a transaction). What a request may be answered at all
//! is `expect.rs`.

use super::context::ClientContext;
use super::expect::{Filling, Kind, Step, Verdict};
use super::session::{Client, Phase};
use crate::invariants::Claim;
use crate::model::session::Status;
use crate::protocol::{Fields, error_field, message, text};
use crate::sql::{Statement, Tag};

/// How long a client may be idle: longer than any client may have to wait for a server.
pub(super) const LONG_IDLE_US: u64 = 150 * crate::clock::SECOND_US;

/// The SQLSTATE of a request that is refused for load (`queue_limit`, `queue_target`).
const OVERLOADED: &str = "53300";

/// The SQLSTATE of a connection or a request that a quota refuses.
const OVER_QUOTA: &str = "53400";

/// The error of a client that DRAIN ends.
const DRAINED: &str = "terminating connection because the pooler is draining";

impl Client {
    pub(super) fn take(&mut self, kind: u8, body: &[u8], context: &mut ClientContext<'_>) {
        match (kind, self.phase) {
            (b'S', _) => {
                let mut fields = Fields(body);
                if let (Some(name), Some(value)) = (fields.text(), fields.text()) {
                    self.view.tell(name, value);
                }
            }
            (_, Phase::Open) if self.wild.is_some() => self.take_wild(kind, body, context),
            (b'N', _) => self.take_notice(body, context),
            (b'E', _) => self.take_error(body, context),
            (b'R', Phase::LoggingIn) => self.take_authentication(body, context),
            (b'K', Phase::LoggingIn) => {
                let mut fields = Fields(body);
                self.key = fields.long().zip(fields.long());
            }
            (b'Z', Phase::LoggingIn) => {
                self.phase = Phase::Open;
                (self.waiting_since_us, self.open_since_us) = (None, context.now_us);
                if let (Some(wild), Some(own)) = (&mut self.wild, self.view.own()) {
                    wild.begin(own, context.modern);
                }
            }
            (b'Z', _) => self.take_ready(body, context),
            _ => self.take_answer(kind, body, context),
        }
    }

    fn take_notice(&mut self, body: &[u8], context: &mut ClientContext<'_>) {
        let Some(tag) = error_field(body, b'M').and_then(Tag::in_brackets) else { return };
        let fits = self.oldest().is_some_and(|step| step.is_of(tag));
        if !fits {
            self.object("I1", format!("got a notice of {tag}"), context);
        }
    }

    fn take_fatal(&mut self, sqlstate: &str, words: &str, context: &mut ClientContext<'_>) {
        if words == DRAINED && self.is_in_transaction() {
            self.object("I15", "was ended in a transaction because the pooler drains".to_owned(), context);
        }
        // Its own cancel request hit the BEGIN that Weir had sent before its request.
        let hit_begin = self.cancels > 0 && words.starts_with("server refused the deferred BEGIN");
        let is_overload = context.refuses && sqlstate == OVERLOADED;
        let is_over_quota = sqlstate == OVER_QUOTA && self.may_be_over_quota(context);
        let is_refused = is_overload || is_over_quota || self.awaits_refusal();
        if context.fair && !self.disturbed && !hit_begin && !is_refused {
            self.object("unfair", format!("got FATAL {sqlstate} {words}"), context);
        }
        self.leave(context);
    }

    fn take_error(&mut self, body: &[u8], context: &mut ClientContext<'_>) {
        let sqlstate = String::from_utf8_lossy(error_field(body, b'C').unwrap_or(b"")).into_owned();
        let words = error_field(body, b'M').unwrap_or(b"");
        let readable = String::from_utf8_lossy(words).into_owned();
        if error_field(body, b'S') != Some(b"ERROR") {
            return self.take_fatal(&sqlstate, &readable, context);
        }
        let Some(step) = self.oldest() else {
            return self.object(
                "I1",
                format!("got the error {sqlstate} {readable} and waits for nothing"),
                context,
            );
        };
        let expected = step.refusal(self.view.status) == Some(sqlstate.as_str());
        // A server gets its Parse from the pooler with the Bind; in a failed transaction it refuses the Parse, and
        // behind a failed statement it skips it: what was sent by then meets no statement.
        let refused = self.view.status == Status::Failed || self.was_refused;
        let lost = sqlstate == "26000" && step.kind == Kind::Bind && refused;
        let cancelled = sqlstate == "57014" && step.is_cancellable() && self.cancels > 0;
        let asked = step.statement == Statement::CopyIn
            && match step.filling {
                Filling::Rows(_) => false,
                Filling::BadRow(_) => sqlstate == "23502",
                Filling::Failure => sqlstate == "57014",
            };
        let own = Tag::in_brackets(words).is_none_or(|tag| step.is_of(tag));
        let bound = step.kind == Kind::Bind && matches!(&*sqlstate, "0A000" | "26000");
        let spoilt = context.spoils && bound && !lost;
        if spoilt && self.must_be_spared(&sqlstate, context) {
            let step = format!("{} ({:?} of `{}`)", step.tag, step.kind, step.statement);
            return self.object("I15", format!("{step} got {sqlstate}, of which it must not hear"), context);
        }
        // Outside a transaction, before anything of its request has been answered.
        let refuses = match sqlstate.as_str() {
            OVERLOADED => context.refuses,
            OVER_QUOTA => self.may_be_over_quota(context),
            _ => false,
        };
        let refused_for_load = refuses && self.view.status == Status::Idle && !step.has_begun();
        let expected = expected || spoilt || refused_for_load;
        if !own || !(expected || lost || cancelled || asked) {
            let step = format!("{} ({:?} of `{}`)", step.tag, step.kind, step.statement);
            let invariant = if sqlstate == "57014" { "I5" } else { "I1" };
            return self.object(invariant, format!("{step} got the error {sqlstate} {readable}"), context);
        }
        self.was_refused |= sqlstate == "25P02" || self.groups.front().is_some_and(|group| group.led);
        self.view.fail();
        self.claim_rows(Claim::NotApplied, context);
        let Some(group) = self.groups.front_mut() else { return };
        group.needs_server &= !refused_for_load; // The ReadyForQuery is the pooler's as well.
        for step in group.steps.drain(..) {
            if matches!(step.statement, Statement::Insert(_) | Statement::CopyIn) && !group.ends_transaction {
                context.checker.claim(step.tag, Claim::NotApplied);
            }
        }
        group.failed = true;
        if !group.synced {
            self.send_sync();
        }
    }

    /// Whether the pooler can have its request said again: nothing of it was done, nothing comes behind it, and the
    /// client does not read results by an old description. (Its Bind may be cut off from its Describe, so that only of
    /// those who never ask it is known.)
    fn must_be_spared(&self, sqlstate: &str, context: &ClientContext<'_>) -> bool {
        let keeps_description = sqlstate == "0A000" && self.has_described;
        let alone = self.groups.len() == 1 && !self.disturbed && !self.groups.iter().any(|group| group.led);
        context.mends && alone && self.view.status == Status::Idle && !keeps_description
    }

    fn take_ready(&mut self, body: &[u8], context: &mut ClientContext<'_>) {
        let status = body.first().copied().unwrap_or(0);
        let Some(group) = self.groups.front().filter(|group| group.synced) else {
            return self.object("I1", "got ReadyForQuery and waits for none".to_owned(), context);
        };
        if let Some(step) = group.steps.front() {
            let text = format!("{} ({:?}) was passed over by ReadyForQuery", step.tag, step.kind);
            return self.object("I1", text, context);
        }
        if group.needs_server {
            context.checker.client_was_answered(self.number);
        }
        if status != self.view.status.byte() {
            let text =
                format!("was told status {}, which should be {:?}", char::from(status), self.view.status);
            return self.object("I1", text, context);
        }
        if self.view.status == Status::Idle {
            self.claim_rows(Claim::Applied, context);
        }
        if let Err(text) = self.view.settle() {
            return self.object("I4", text, context);
        }
        self.groups.pop_front();
        self.waiting_since_us = (!self.groups.is_empty()).then_some(context.now_us);
        if self.groups.is_empty() {
            self.was_refused = false;
            self.planned_open = self.view.status != Status::Idle;
            self.planned_read_only &= self.planned_open;
            let naps = !self.planned_open && context.shares && context.chaos;
            let long_idle = naps && context.prng.chance(context.client_mix.long_idle_per_million);
            let pause =
                if long_idle { LONG_IDLE_US } else { context.prng.below(context.client_mix.think_us) };
            self.thinks_until_us = context.now_us + pause;
        }
    }

    /// The quota of its user may refuse its login, or its request.
    fn may_be_over_quota(&self, context: &ClientContext<'_>) -> bool {
        context.quota.is_some_and(|quota| match self.phase {
            Phase::LoggingIn => quota.limits_connections,
            _ => quota.has_refused && !self.replicates,
        })
    }

    /// Whoever came when the queries of its user were used up is served no request.
    fn expect_quota_kept(&mut self, context: &mut ClientContext<'_>) {
        let since_us = context.quota.and_then(|quota| quota.refuses_since_us);
        if since_us.is_some_and(|since_us| self.open_since_us > since_us) && !self.replicates {
            self.object("I23", "is served, and the queries of its user are used up".to_owned(), context);
        }
    }

    fn take_answer(&mut self, kind: u8, body: &[u8], context: &mut ClientContext<'_>) {
        if kind == b'C' {
            self.expect_quota_kept(context);
        }
        let Some(step) = self.groups.front_mut().and_then(|group| group.steps.front_mut()) else {
            return self.object(
                "I1",
                format!("got `{}` and waits for no such thing", char::from(kind)),
                context,
            );
        };
        match step.accept(kind, body, &self.view) {
            Err(text) => {
                let invariant =
                    if text.contains(" ran with ") || text.contains("SHOW ") { "I4" } else { "I1" };
                self.object(invariant, text, context);
            }
            Ok(Verdict::More) => (),
            Ok(Verdict::WantsRows) => {
                let (tag, filling) = (step.tag, step.filling);
                self.send_rows(tag, filling);
            }
            Ok(Verdict::Streams) => self.stream_on(context),
            Ok(Verdict::Done) => self.finish_step(context),
        }
    }

    fn finish_step(&mut self, context: &mut ClientContext<'_>) {
        let Some(step) = self.groups.front_mut().and_then(|group| group.steps.pop_front()) else { return };
        if let Some(name) = step.name {
            self.prepared.insert(name, (step.statement.clone(), step.tag));
        }
        if !step.kind.runs() {
            return;
        }
        match step.statement {
            Statement::Insert(_) | Statement::CopyIn => self.rows.push(step.tag),
            Statement::Commit if self.view.status != Status::Failed => {
                self.claim_rows(Claim::Applied, context)
            }
            Statement::Commit | Statement::Rollback => self.claim_rows(Claim::NotApplied, context),
            Statement::DiscardAll | Statement::DeallocateAll => self.prepared.clear(),
            _ => (),
        }
        self.view.advance(&step.statement);
    }

    /// Answers CopyInResponse.
    fn send_rows(&mut self, tag: Tag, filling: Filling) {
        if self.gives_up() {
            return;
        }
        let simple =
            self.groups.front().is_some_and(|group| group.steps.front().is_some_and(Step::is_simple));
        self.send(|out| {
            let (rows, bad) = match filling {
                Filling::Failure => return message(out, b'f', |body| text(body, b"no more")),
                Filling::Rows(rows) => (rows, None),
                Filling::BadRow(rows) => (rows, Some(rows / 2)),
            };
            for row in 0..rows {
                let line = if bad == Some(row) { "\\N\n".to_owned() } else { format!("{tag}\n") };
                message(out, b'd', |body| body.extend_from_slice(line.as_bytes()));
            }
            message(out, b'c', |_| ());
        });
        // The server ignored the Sync that may have been sent with Execute, as libpq does; it needs another.
        if !simple {
            self.send_sync();
        }
    }

    pub(super) fn send_sync(&mut self) {
        if self.gives_up() {
            return;
        }
        self.send(|out| message(out, b'S', |_| ()));
        if let Some(group) = self.groups.front_mut() {
            group.synced = true;
        }
    }
}
