//! When a client sends, and how statements are packed into messages.
//!
//! Writes; never judges an answer. Which statements they are is `choice.rs`.

use super::choice::{TIME_ZONES, choose_filling, fits_into_many, pauses};
use super::context::ClientContext;
use super::expect::{Filling, Group, Kind, Step};
use super::session::{Client, Phase, Style};
use crate::network::Ending;
use crate::protocol::{message, text};
use crate::sql::{Statement, Tag, Value};

impl Kind {
    /// Whether its answer means that the statement was done.
    pub(super) fn runs(self) -> bool {
        matches!(self, Kind::Query | Kind::Execute)
    }
}

impl Step {
    /// Whether it belongs to a Query.
    pub(super) fn is_simple(&self) -> bool {
        self.kind == Kind::Query
    }
}

impl Client {
    /// The client may act: it does, if it wants to.
    pub(crate) fn act(&mut self, context: &mut ClientContext<'_>) {
        if self.phase == Phase::Over {
            return;
        }
        if self.gives_up_at_us.is_some_and(|at_us| at_us <= context.now_us) {
            self.leave(context);
            self.wants_close = Some(Ending::Reset);
        }
        if self.phase != Phase::Open || self.gives_up() || context.now_us < self.thinks_until_us {
            return;
        }
        if self.wild.is_some() {
            return self.act_wild(context);
        }
        if let Some(group) = self.groups.front().filter(|group| !group.synced && group.steps.is_empty()) {
            // The describer has its answers and goes on; others wait until rows are wanted.
            if self.groups.len() == 1 && !group.failed {
                self.go_on_after_flush(context);
            }
            return;
        }
        if !self.groups.is_empty() {
            return;
        }
        if self.budget == 0 {
            return self.say_farewell(context);
        }
        self.grow_tired(context);
        let depth = context.prng.between(1, context.client_mix.depth_most).min(self.budget);
        for _ in 0..depth {
            self.budget -= 1;
            let mut own = context.prng.fork();
            if !context.steps.take() {
                continue;
            }
            std::mem::swap(context.prng, &mut own);
            let more = self.compose(context);
            std::mem::swap(context.prng, &mut own);
            context.steps.note(format_args!("c{} {}", self.number, self.last_in_words()));
            if !more {
                break;
            }
        }
        if !self.groups.is_empty() {
            self.waiting_since_us = Some(context.now_us);
        }
        self.talk_nonsense(context);
        self.wants_cancel |=
            self.key.is_some() && context.chaos && context.prng.chance(context.client_mix.cancel_per_million);
    }

    /// One group; false if nothing may be sent behind it before it is answered.
    fn compose(&mut self, context: &mut ClientContext<'_>) -> bool {
        let rests = !self.planned_open && self.groups.is_empty();
        if self.replicates && rests && context.prng.chance(context.client_mix.stream_per_million) {
            return self.compose_stream(context);
        }
        let style = match self.style {
            Style::Mixed => {
                context.prng.pick(&[Style::Simple, Style::Extended, Style::Named, Style::Describer])
            }
            style => style,
        };
        match style {
            Style::Simple => self.compose_simple(context),
            Style::Named if context.named && !self.planned_read_only => self.compose_named(context),
            Style::Describer if context.prng.chance(600_000) => self.compose_describer(context),
            _ => self.compose_extended(context),
        }
    }

    fn compose_simple(&mut self, context: &mut ClientContext<'_>) -> bool {
        let count = if context.prng.chance(150_000) { context.prng.between(2, 3) } else { 1 };
        let tag = self.next_tag();
        let mut group = Group { synced: true, needs_server: true, ..Group::default() };
        let mut words = Vec::new();
        for at in 0..count {
            let mut statement = self.choose(tag, false, context);
            if count > 1 && !fits_into_many(&statement) {
                statement = Statement::Select(Value::Literal(tag.to_string()), 1);
            }
            // Two rows for the table in one request would be one tag twice.
            if at > 0 && matches!(statement, Statement::Insert(Value::Literal(_))) {
                statement = Statement::Select(Value::Literal(tag.to_string()), 1);
            }
            words.push(statement.to_string());
            self.plan(&statement, &mut group);
            let mut step = Step::new(Kind::Query, statement, tag);
            step.filling = choose_filling(context);
            group.steps.push_back(step);
        }
        let is_plain = context.defers && group.steps.len() == 1 && group.steps.iter().all(controls);
        // A text that tells whose it is is not plain. Who answers a plain one is not known here.
        let words = if is_plain { words.concat() } else { format!("{} /*{tag}*/", words.join("; ")) };
        group.needs_server = !is_plain;
        self.send(|out| message(out, b'Q', |body| text(body, words.as_bytes())));
        let pausing = group.steps.iter().any(|step| pauses(&step.statement));
        self.groups.push_back(group);
        !pausing
    }

    fn compose_extended(&mut self, context: &mut ClientContext<'_>) -> bool {
        let count = if context.prng.chance(200_000) { context.prng.between(2, 3) } else { 1 };
        let mut group = Group { needs_server: true, ..Group::default() };
        let mut pausing = false;
        for _ in 0..count {
            let tag = self.next_tag();
            let mut statement = self.choose(tag, true, context);
            if count > 1 && (pauses(&statement) || !fits_into_many(&statement)) {
                statement = Statement::Select(Value::Parameter, 1);
            }
            pausing |= pauses(&statement);
            self.plan(&statement, &mut group);
            self.send_parse("", &statement, Some(tag), tag, None, &mut group);
            self.send_bind_and_execute("", &statement, tag, tag, context, &mut group);
        }
        let defers = pausing && context.prng.chance(500_000);
        if !pausing && context.prng.chance(50_000) {
            self.send_close("no such name", &mut group);
        }
        self.finish_group(group, !defers);
        !pausing
    }

    /// Parse once under a name, Bind many times, Close sometimes.
    fn compose_named(&mut self, context: &mut ClientContext<'_>) -> bool {
        let mut group = Group::default();
        let name = format!("s{}", context.prng.below(5));
        if let Some((statement, prepared_by)) = self.prepared.get(&name).cloned() {
            if context.prng.chance(80_000) {
                self.prepared.remove(&name);
                self.send_close(&name, &mut group);
                self.finish_group(group, true);
                return true;
            }
            self.lead(context, &mut group);
            let tag = self.next_tag();
            self.plan(&statement, &mut group);
            self.send_bind_and_execute(&name, &statement, tag, prepared_by, context, &mut group);
            self.finish_group(group, true);
            return true;
        }
        let parsed_already = self.groups.iter().flat_map(|group| &group.steps);
        if parsed_already.filter_map(|step| step.name.as_ref()).any(|parsed| *parsed == name) {
            return self.compose_extended(context);
        }
        self.lead(context, &mut group);
        let tag = self.next_tag();
        let statement = self.choose_to_prepare(context);
        // A text without a tag is the same for many clients, so that poolers may share the statement.
        let shared = statement != Statement::Unknown && context.prng.chance(500_000);
        self.send_parse(&name, &statement, (!shared).then_some(tag), tag, Some(name.clone()), &mut group);
        if context.prng.chance(500_000) {
            self.plan(&statement, &mut group);
            self.send_bind_and_execute(&name, &statement, tag, tag, context, &mut group);
        }
        self.finish_group(group, true);
        true
    }

    /// Sometimes a statement without a name goes first: where it fails, what has a name is skipped, a Parse as well; where it sets
    /// something, that is in force for what follows.
    fn lead(&mut self, context: &mut ClientContext<'_>, group: &mut Group) {
        if !context.prng.chance(200_000) {
            return;
        }
        let fails = context.client_mix.fail_per_million > 0 && context.prng.chance(400_000);
        let statement = match fails {
            true => Statement::DivideByZero,
            false if context.prng.chance(400_000) => {
                let zone = context.prng.pick(TIME_ZONES);
                self.view.has_zone(zone);
                Statement::Set("TimeZone".to_owned(), Some(zone.to_owned()))
            }
            false => Statement::Select(Value::Parameter, 1),
        };
        let tag = self.next_tag();
        self.send_parse("", &statement, Some(tag), tag, None, group);
        self.send_bind_and_execute("", &statement, tag, tag, context, group);
        (group.led, group.needs_server) = (true, true);
    }

    /// Parse, Describe, Flush; the rest follows when those are answered.
    fn compose_describer(&mut self, context: &mut ClientContext<'_>) -> bool {
        let tag = self.next_tag();
        let mut group = Group { needs_server: true, ..Group::default() };
        let mut statement = self.choose(tag, true, context);
        if pauses(&statement) {
            statement = Statement::Select(Value::Parameter, 2);
        }
        self.send_parse("", &statement, Some(tag), tag, None, &mut group);
        self.send(|out| {
            message(out, b'D', |body| text(body, b"S"));
            message(out, b'H', |_| ());
        });
        group.steps.push_back(Step::new(Kind::DescribeStatement, statement.clone(), tag));
        self.has_described = true;
        self.described = Some((statement, tag));
        self.groups.push_back(group);
        false
    }

    fn go_on_after_flush(&mut self, context: &mut ClientContext<'_>) {
        let Some((statement, tag)) = self.described.take() else { return };
        let Some(mut group) = self.groups.pop_front() else { return };
        self.plan(&statement, &mut group);
        self.send_bind_and_execute("", &statement, tag, tag, context, &mut group);
        self.finish_group(group, true);
    }

    fn finish_group(&mut self, mut group: Group, sync: bool) {
        group.synced = sync;
        self.groups.push_back(group);
        if sync {
            self.send(|out| message(out, b'S', |_| ()));
        } else {
            self.send(|out| message(out, b'H', |_| ()));
        }
    }

    fn send_parse(
        &mut self,
        name: &str,
        statement: &Statement,
        mark: Option<Tag>,
        tag: Tag,
        kept_as: Option<String>,
        group: &mut Group,
    ) {
        let words = mark.map_or_else(|| statement.to_string(), |mark| format!("{statement} /*{mark}*/"));
        self.send(|out| {
            message(out, b'P', |body| {
                text(body, name.as_bytes());
                text(body, words.as_bytes());
                body.extend_from_slice(&[0; 2]);
            });
        });
        let mut step = Step::new(Kind::Parse, statement.clone(), tag);
        step.name = kept_as;
        group.steps.push_back(step);
    }

    fn send_bind_and_execute(
        &mut self,
        name: &str,
        statement: &Statement,
        tag: Tag,
        prepared_by: Tag,
        context: &mut ClientContext<'_>,
        group: &mut Group,
    ) {
        group.needs_server |= statement.has_parameter();
        let describes = self.describes && context.prng.chance(600_000);
        self.has_described |= describes;
        let limit = if statement.rows() > 1 && statement.returns_rows() && context.prng.chance(200_000) {
            u32::try_from(context.prng.between(1, u64::from(statement.rows()))).unwrap_or(1)
        } else {
            0
        };
        self.send(|out| {
            write_bind(out, name, statement.has_parameter().then_some(tag));
            if describes {
                message(out, b'D', |body| text(body, b"P"));
            }
            write_execute(out, limit);
            if limit != 0 {
                write_execute(out, 0);
            }
        });
        let mut push = |kind, limit, taken, filling| {
            let step = Step::new(kind, statement.clone(), tag);
            group.steps.push_back(Step { prepared_by, limit, taken, filling, ..step });
        };
        let none = Filling::Rows(0);
        push(Kind::Bind, 0, 0, none);
        if describes {
            push(Kind::DescribePortal, 0, 0, none);
        }
        push(Kind::Execute, limit, 0, choose_filling(context));
        if limit != 0 {
            push(Kind::Execute, 0, limit, none);
        }
    }

    fn send_close(&mut self, name: &str, group: &mut Group) {
        self.send(|out| {
            message(out, b'C', |body| {
                body.push(b'S');
                text(body, name.as_bytes());
            });
        });
        let tag = Tag { client: self.number, request: self.requests };
        group.steps.push_back(Step::new(Kind::Close, Statement::Empty, tag));
    }

    /// Notes what a statement will have done once it is answered.
    fn plan(&mut self, statement: &Statement, group: &mut Group) {
        match statement {
            Statement::Begin => self.planned_open = true,
            Statement::BeginReadOnly => (self.planned_open, self.planned_read_only) = (true, true),
            Statement::Commit | Statement::Rollback => {
                (self.planned_open, self.planned_read_only) = (false, false);
                group.ends_transaction = true;
            }
            _ => (),
        }
    }

    pub(super) fn next_tag(&mut self) -> Tag {
        self.requests += 1;
        Tag { client: self.number, request: self.requests }
    }
}

/// Begins or ends a transaction.
fn controls(step: &Step) -> bool {
    matches!(step.statement, Statement::Begin | Statement::Commit | Statement::Rollback)
}

fn write_bind(out: &mut Vec<u8>, name: &str, parameter: Option<Tag>) {
    message(out, b'B', |body| {
        text(body, b"");
        text(body, name.as_bytes());
        body.extend_from_slice(&[0; 2]);
        match parameter.map(|tag| tag.to_string()) {
            None => body.extend_from_slice(&[0; 2]),
            Some(value) => {
                body.extend_from_slice(&1_u16.to_be_bytes());
                body.extend_from_slice(&u32::try_from(value.len()).unwrap_or(0).to_be_bytes());
                body.extend_from_slice(value.as_bytes());
            }
        }
        body.extend_from_slice(&[0; 2]);
    });
}

fn write_execute(out: &mut Vec<u8>, limit: u32) {
    message(out, b'E', |body| {
        text(body, b"");
        body.extend_from_slice(&limit.to_be_bytes());
    });
}
