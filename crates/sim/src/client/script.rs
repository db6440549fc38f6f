//! What a client sends next: statements, how they are packed into messages, and bad manners.
//!
//! Chooses and writes; never judges an answer.

use super::expect::{Filling, Group, Kind, Step};
use super::session::{Client, Phase, Scene, Style};
use crate::network::Ending;
use crate::protocol::{message, text};
use crate::sql::{Statement, Tag, Value};

/// Values of TimeZone that clients use, as PostgreSQL spells them.
pub(super) const TIME_ZONES: &[&str] = &["Etc/UTC", "Europe/Vienna", "Asia/Tokyo"];

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
    pub(crate) fn act(&mut self, scene: &mut Scene<'_>) {
        if self.phase == Phase::Over {
            return;
        }
        if self.gives_up_at_us.is_some_and(|at_us| at_us <= scene.now_us) {
            self.leave(scene);
            self.wants_close = Some(Ending::Reset);
        }
        if self.phase != Phase::Open || self.gives_up() || scene.now_us < self.thinks_until_us {
            return;
        }
        if let Some(group) = self.groups.front().filter(|group| !group.synced && group.steps.is_empty()) {
            // The describer has its answers and goes on; anybody else waits for rows to be wanted.
            if self.groups.len() == 1 && !group.failed {
                self.go_on_after_flush(scene);
            }
            return;
        }
        if !self.groups.is_empty() {
            return;
        }
        if self.budget == 0 {
            return self.say_farewell(scene);
        }
        self.grow_tired(scene);
        let depth = scene.prng.between(1, scene.crowd.depth_most).min(self.budget);
        for _ in 0..depth {
            self.budget -= 1;
            let more = self.compose(scene);
            if !more {
                break;
            }
        }
        if !self.groups.is_empty() {
            self.waiting_since_us = Some(scene.now_us);
        }
        self.talk_nonsense(scene);
        self.wants_cancel |=
            self.key.is_some() && scene.chaos && scene.prng.chance(scene.crowd.cancel_per_million);
    }

    /// One group; false if nothing may be sent behind it before it is answered.
    fn compose(&mut self, scene: &mut Scene<'_>) -> bool {
        let style = match self.style {
            Style::Mixed => {
                scene.prng.pick(&[Style::Simple, Style::Extended, Style::Named, Style::Describer])
            }
            style => style,
        };
        match style {
            Style::Simple => self.compose_simple(scene),
            Style::Named if scene.named => self.compose_named(scene),
            Style::Describer if scene.prng.chance(600_000) => self.compose_describer(scene),
            _ => self.compose_extended(scene),
        }
    }

    fn compose_simple(&mut self, scene: &mut Scene<'_>) -> bool {
        let count = if scene.prng.chance(150_000) { scene.prng.between(2, 3) } else { 1 };
        let tag = self.next_tag();
        let mut group = Group { synced: true, needs_server: true, ..Group::default() };
        let mut words = Vec::new();
        for at in 0..count {
            let mut statement = self.choose(tag, false, scene);
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
            step.filling = choose_filling(scene);
            group.steps.push_back(step);
        }
        let words = format!("{} /*{tag}*/", words.join("; "));
        self.send(|out| message(out, b'Q', |body| text(body, words.as_bytes())));
        let pausing = group.steps.iter().any(|step| pauses(&step.statement));
        self.groups.push_back(group);
        !pausing
    }

    fn compose_extended(&mut self, scene: &mut Scene<'_>) -> bool {
        let count = if scene.prng.chance(200_000) { scene.prng.between(2, 3) } else { 1 };
        let mut group = Group { needs_server: true, ..Group::default() };
        let mut pausing = false;
        for _ in 0..count {
            let tag = self.next_tag();
            let mut statement = self.choose(tag, true, scene);
            if count > 1 && (pauses(&statement) || !fits_into_many(&statement)) {
                statement = Statement::Select(Value::Parameter, 1);
            }
            pausing |= pauses(&statement);
            self.plan(&statement, &mut group);
            self.send_parse("", &statement, Some(tag), tag, None, &mut group);
            self.send_bind_and_execute("", &statement, tag, tag, scene, &mut group);
        }
        let defers = pausing && scene.prng.chance(500_000);
        if !pausing && scene.prng.chance(50_000) {
            self.send_close("no such name", &mut group);
        }
        self.finish_group(group, !defers);
        !pausing
    }

    /// Parse once under a name, Bind many times, Close sometimes.
    fn compose_named(&mut self, scene: &mut Scene<'_>) -> bool {
        let mut group = Group::default();
        let name = format!("s{}", scene.prng.below(5));
        if let Some((statement, prepared_by)) = self.prepared.get(&name).cloned() {
            if scene.prng.chance(80_000) {
                self.prepared.remove(&name);
                self.send_close(&name, &mut group);
                self.finish_group(group, true);
                return true;
            }
            let tag = self.next_tag();
            self.plan(&statement, &mut group);
            self.send_bind_and_execute(&name, &statement, tag, prepared_by, scene, &mut group);
            self.finish_group(group, true);
            return true;
        }
        let parsed_already = self.groups.iter().flat_map(|group| &group.steps);
        if parsed_already.filter_map(|step| step.name.as_ref()).any(|parsed| *parsed == name) {
            return self.compose_extended(scene);
        }
        let tag = self.next_tag();
        let statement = self.choose_to_prepare(scene);
        // A text without a tag is the same for many clients, so that poolers may share the statement.
        let shared = statement != Statement::Unknown && scene.prng.chance(500_000);
        self.send_parse(&name, &statement, (!shared).then_some(tag), tag, Some(name.clone()), &mut group);
        if scene.prng.chance(500_000) {
            self.plan(&statement, &mut group);
            self.send_bind_and_execute(&name, &statement, tag, tag, scene, &mut group);
        }
        self.finish_group(group, true);
        true
    }

    /// Parse, Describe, Flush; the rest follows when those are answered.
    fn compose_describer(&mut self, scene: &mut Scene<'_>) -> bool {
        let tag = self.next_tag();
        let mut group = Group { needs_server: true, ..Group::default() };
        let mut statement = self.choose(tag, true, scene);
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

    fn go_on_after_flush(&mut self, scene: &mut Scene<'_>) {
        let Some((statement, tag)) = self.described.take() else { return };
        let Some(mut group) = self.groups.pop_front() else { return };
        self.plan(&statement, &mut group);
        self.send_bind_and_execute("", &statement, tag, tag, scene, &mut group);
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
        scene: &mut Scene<'_>,
        group: &mut Group,
    ) {
        group.needs_server |= statement.has_parameter();
        let describes = self.describes && scene.prng.chance(600_000);
        self.has_described |= describes;
        let limit = if statement.rows() > 1 && scene.prng.chance(200_000) {
            u32::try_from(scene.prng.between(1, u64::from(statement.rows()))).unwrap_or(1)
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
        push(Kind::Execute, limit, 0, choose_filling(scene));
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

    /// A statement for one request. With `extended`, its tag goes into a parameter where it has one.
    fn choose(&mut self, tag: Tag, extended: bool, scene: &mut Scene<'_>) -> Statement {
        let crowd = scene.crowd;
        let prng = &mut *scene.prng;
        let value = || if extended { Value::Parameter } else { Value::Literal(tag.to_string()) };
        let own = || Value::Literal(tag.to_string());
        if self.planned_open && prng.chance(350_000) {
            return if prng.chance(200_000) { Statement::Rollback } else { Statement::Commit };
        }
        if !self.planned_open && prng.chance(crowd.transaction_per_million) {
            return Statement::Begin;
        }
        if prng.chance(crowd.fail_per_million) {
            return match prng.below(3) {
                0 => Statement::DivideByZero,
                1 => Statement::Insert(Value::Null),
                _ => Statement::Unknown,
            };
        }
        if prng.chance(crowd.set_per_million) {
            return self.choose_setting(scene);
        }
        let rows =
            |prng: &mut crate::prng::Prng| u32::try_from(prng.log_between(1, crowd.rows_most)).unwrap_or(1);
        if prng.chance(crowd.copy_per_million) {
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

    fn choose_setting(&mut self, scene: &mut Scene<'_>) -> Statement {
        let prng = &mut *scene.prng;
        let (name, value) = match prng.below(4) {
            0 => ("TimeZone", prng.pick(TIME_ZONES).to_owned()),
            1 => ("DateStyle", prng.pick(&["ISO, MDY", "SQL, DMY"]).to_owned()),
            2 => ("IntervalStyle", prng.pick(&["postgres", "iso_8601"]).to_owned()),
            _ => ("application_name", format!("app{}", prng.below(5))),
        };
        Statement::Set(name.to_owned(), Some(value))
    }

    fn choose_to_prepare(&mut self, scene: &mut Scene<'_>) -> Statement {
        let rows = u32::try_from(scene.prng.log_between(1, scene.crowd.rows_most)).unwrap_or(1);
        if scene.prng.chance(scene.crowd.fail_per_million) {
            return Statement::Unknown;
        }
        match scene.prng.below(4) {
            0 => Statement::Select(Value::Parameter, rows),
            1 => Statement::Insert(Value::Parameter),
            2 => Statement::Sleep(Value::Parameter, 1_000),
            _ => Statement::Select(Value::Parameter, 1),
        }
    }

    /// Notes what a statement will have done once it is answered.
    fn plan(&mut self, statement: &Statement, group: &mut Group) {
        match statement {
            Statement::Begin => self.planned_open = true,
            Statement::Commit | Statement::Rollback => {
                self.planned_open = false;
                group.ends_transaction = true;
            }
            _ => (),
        }
    }

    fn next_tag(&mut self) -> Tag {
        self.requests += 1;
        Tag { client: self.number, request: self.requests }
    }

    fn say_farewell(&mut self, scene: &mut Scene<'_>) {
        if self.planned_open && scene.prng.chance(500_000) {
            self.budget = 1;
            return;
        }
        if scene.prng.chance(800_000) {
            self.send(|out| message(out, b'X', |_| ()));
        }
        self.leave(scene);
        self.wants_close = Some(Ending::Finish);
    }

    /// Decides to die while sending, or to stop reading for a while.
    fn grow_tired(&mut self, scene: &mut Scene<'_>) {
        if !scene.chaos {
            return;
        }
        if scene.prng.chance(scene.crowd.deaf_per_million) {
            self.deaf_until_us = scene.now_us + scene.prng.log_between(1_000, 300_000);
        }
        if scene.prng.chance(scene.crowd.die_per_million) {
            let ending = scene.prng.pick(&[Ending::Finish, Ending::Reset]);
            let bytes = scene.prng.log_between(1, 400);
            self.doom = Some((usize::try_from(bytes).unwrap_or(1), ending));
        }
    }

    /// Sends what is no message, or half of one, and waits for what becomes of it.
    fn talk_nonsense(&mut self, scene: &mut Scene<'_>) {
        if !scene.chaos || !scene.prng.chance(scene.crowd.garbage_per_million) {
            return;
        }
        self.disturbed = true;
        self.gives_up_at_us = Some(scene.now_us + scene.prng.log_between(1_000, 500_000));
        let nonsense = scene.prng.pick(NONSENSE);
        self.send(|out| out.extend_from_slice(nonsense));
    }
}

/// What a client of PostgreSQL never sends: unknown types, impossible lengths, halves.
const NONSENSE: &[&[u8]] = &[
    b"?\0\0\0\x04",
    b"Q\0\0\0\0",
    b"Q\xff\xff\xff\xff",
    b"Q\x3f\xff\xff\xffSELECT",
    b"P\0\0\0\x20half",
    b"GET / HTTP/1.1\r\n\r\n",
    b"p\0\0\0\x0apass\0\0",
];

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

/// What to send into a COPY.
fn choose_filling(scene: &mut Scene<'_>) -> Filling {
    let rows = u32::try_from(scene.prng.log_between(1, 200)).unwrap_or(1);
    match scene.prng.below(10) {
        0..7 => Filling::Rows(rows),
        7..9 => Filling::BadRow(rows),
        _ => Filling::Failure,
    }
}

/// Whether the client has to hear an answer before it may send more.
fn pauses(statement: &Statement) -> bool {
    matches!(statement, Statement::CopyIn | Statement::DiscardAll | Statement::DeallocateAll)
}

/// Whether it may stand among others in one query or one pipeline.
fn fits_into_many(statement: &Statement) -> bool {
    use Statement::{Begin, Commit, CopyIn, DeallocateAll, DiscardAll, Empty, Rollback, Unknown};
    !matches!(statement, Empty | CopyIn | DiscardAll | DeallocateAll | Unknown | Begin | Commit | Rollback)
}
