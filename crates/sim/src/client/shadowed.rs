//! A client that sends whatever its script says and knows by its shadow what it must be answered.
//!
//! Owns the comparison of what came with what PostgreSQL alone would have sent, and what can be said of its rows. What to
//! send is the script's (`wild`).

use std::collections::BTreeSet;

use super::answers::LONG_IDLE_US;
use super::context::ClientContext;
use super::heard::Heard;
use super::message::Message;
use super::session::{Client, Phase};
use super::shadow::{Answer, Shadow};
use super::wild::{Habit, Item, Script, TlsConfig};
use crate::invariants::Claim;
use crate::model::parameters::Parameters;
use crate::model::sequences::{AskedValue, Found, Promise};
use crate::protocol::{Fields, error_field};
use crate::sql::Tag;

/// What servers say unasked.
const CHATTER: &[&[u8]] = &[b"the weather is fine", b"at work"];

/// How often a client that may sleep falls asleep, in a million.
const SLEEPS: u32 = 10_000;

/// A script, its shadow and how far both have come.
#[derive(Debug)]
pub(super) struct Wild {
    script: Script,
    /// Some once it has logged in.
    shadow: Option<Shadow>,
    /// It goes on once everything is answered.
    waits: bool,
    /// PostgreSQL has sent what is due in any case.
    is_certain: bool,
    /// Rows of which it was told that they are there.
    applied: BTreeSet<Tag>,
    /// It has given a setting at startup that no server reports.
    pub(super) gives_settings: bool,
    heard: Heard,
}

impl Wild {
    /// Such a client, now and then.
    pub(super) fn draw(number: u32, context: &mut ClientContext<'_>) -> Option<Box<Wild>> {
        let client_mix = context.client_mix;
        if context.refuses || !context.prng.chance(client_mix.wild_per_million) {
            return None;
        }
        let named = context.named && !context.spoils;
        let terms = TlsConfig {
            named,
            by_sql: context.sql_names || context.keeps_sessions && named,
            keeps_session: context.keeps_sessions,
            pooled: context.shares,
            fail_per_million: client_mix.fail_per_million,
            copy_per_million: client_mix.copy_per_million,
            set_per_million: client_mix.set_per_million,
        };
        let script = Script::new(number, Habit::draw(context.keeps_sessions, context.prng), terms);
        Some(Box::new(Wild {
            script,
            shadow: None,
            waits: false,
            is_certain: true,
            applied: BTreeSet::new(),
            heard: Heard::new(context.checker),
            gives_settings: context.keeps_sessions && context.prng.chance(300_000) && context.gives_settings,
        }))
    }

    /// It has logged in with these parameters.
    pub(super) fn begin(&mut self, parameters: Parameters, modern: bool) {
        self.shadow = Some(Shadow::new(parameters, modern));
    }

    /// PostgreSQL alone would have sent something that has not come. It refuses a Bind at once; Weir may wait whether the client asks
    /// for its description. And where a client may find a value or none, the error comes at once and the row not before a Sync.
    fn owes(&self) -> bool {
        self.is_certain && self.shadow.as_ref().is_some_and(Shadow::owes)
    }

    /// See [`Client::goes_on`].
    pub(super) fn goes_on(&self) -> bool {
        self.shadow.as_ref().is_some_and(|shadow| shadow.is_in_block() || !shadow.is_at_rest())
    }

    /// It holds nothing but values of sequences, for which the pooler may let no other client wait. (If its question for session state fails, it
    /// does not know that.)
    fn may_sleep(&self, context: &ClientContext<'_>) -> bool {
        let rests = self.shadow.as_ref().is_some_and(|shadow| !shadow.owes() && shadow.is_at_rest());
        rests
            && self.script.habit() == Habit::Counter
            && (context.keeps_sessions && context.chaos)
            && context.gives_settings
    }

    /// Whatever ends the connection is its own doing.
    pub(super) fn asked_for_it(&self) -> bool {
        self.shadow.as_ref().is_some_and(|shadow| shadow.has_ended() || shadow.unclear)
    }
}

impl Client {
    /// Requests so far, also such as wait to be sent.
    pub(crate) fn requests(&self) -> u32 {
        self.wild.as_ref().map_or(self.requests, |wild| wild.script.requests())
    }

    /// The client may act.
    pub(super) fn act_wild(&mut self, context: &mut ClientContext<'_>) {
        let Some(mut wild) = self.wild.take() else { return };
        self.go_on(&mut wild, context);
        self.note_waiting(&wild, context);
        self.wild = Some(wild);
    }

    fn go_on(&mut self, wild: &mut Wild, context: &mut ClientContext<'_>) {
        if wild.owes() && (wild.waits || self.budget == 0) || wild.asked_for_it() && wild.owes() {
            return;
        }
        wild.waits = false;
        self.sleeps_since_us = None;
        if self.budget == 0 {
            return self.say_farewell(context);
        }
        if wild.may_sleep(context) && context.prng.chance(SLEEPS) {
            self.sleeps_since_us = Some(context.now_us);
            self.thinks_until_us = context.now_us + LONG_IDLE_US;
            return;
        }
        let Some(shadow) = &mut wild.shadow else { return };
        self.grow_tired(context);
        self.budget -= 1;
        let mut bytes = Vec::new();
        for _ in 0..context.prng.log_between(1, 16) {
            match wild.script.next(context.prng) {
                Item::Wait => {
                    wild.waits = true;
                    break;
                }
                Item::Send(_) if !context.steps.take() => {}
                // A server that lacks the statement cannot parse it in a failed transaction.
                Item::Send(Message::Describe(b'S', name) | Message::Parse(name, _))
                    if !name.is_empty()
                        && (shadow.is_open() || shadow.has_failed() && shadow.has_statement(&name)) => {}
                // Names are passed on as they are there: what others have left is not looked for.
                Item::Send(Message::Bind(_, name, _) | Message::Describe(b'S', name))
                    if name.is_empty()
                        && !context.named
                        && (shadow.is_open() || !shadow.has_statement(&name)) => {}
                // RESET of what no server reports goes back to the server's default until the transaction ends (docs/session-state.md).
                Item::Send(Message::Query(words))
                    if wild.gives_settings && shadow.is_in_block() && resets(&words) => {}
                Item::Send(message) => {
                    let is_bind = matches!(message, Message::Bind(..));
                    let is_flush = message == Message::Flush;
                    let ends_segment =
                        matches!(message, Message::Query(_) | Message::Sync | Message::Function(_));
                    let start = bytes.len();
                    message.write(&mut bytes);
                    context.steps.note(format_args!("c{} sends {message:?}", self.number));
                    shadow.take(&bytes[start..]);
                    wild.is_certain = !is_bind && (ends_segment || is_flush || !shadow.is_open());
                    // PostgreSQL 18 would fail the next command, whichever it is, and a pooler answers some itself.
                    if shadow.has_ended() || shadow.is_left_open() {
                        self.budget = 0;
                        break;
                    }
                    // What may be sent next depends on what it finds.
                    if shadow.is_open() && ends_segment {
                        wild.waits = true;
                        break;
                    }
                }
            }
        }
        self.stand_still(bytes.len(), context);
        self.output.extend(bytes);
        self.talk_nonsense(context);
        self.thinks_until_us = context.now_us + 1 + context.prng.below(context.client_mix.think_us);
    }

    fn note_waiting(&mut self, wild: &Wild, context: &ClientContext<'_>) {
        self.waiting_since_us = match wild.owes() && self.phase == Phase::Open {
            true => Some(self.waiting_since_us.unwrap_or(context.now_us)),
            false => None,
        };
    }

    /// Whether it may have something to send although answers are to come.
    pub(crate) fn sends_ahead(&self) -> bool {
        self.wild.as_ref().is_some_and(|wild| !wild.waits && self.budget > 0 && !wild.asked_for_it())
    }

    /// A message came.
    pub(super) fn take_wild(&mut self, kind: u8, body: &[u8], context: &mut ClientContext<'_>) {
        let Some(mut wild) = self.wild.take() else { return };
        self.compare(&mut wild, kind, body, context);
        self.note_waiting(&wild, context);
        self.wild = Some(wild);
    }

    fn compare(&mut self, wild: &mut Wild, kind: u8, body: &[u8], context: &mut ClientContext<'_>) {
        let Some(shadow) = &mut wild.shadow else { return };
        if kind == b'N' && context.quota.is_some() && is_quota_warning(body) {
            return;
        }
        if kind == b'N' && is_chatter(body) {
            let tag = error_field(body, b'M').and_then(Tag::in_brackets);
            if tag.is_some_and(|tag| tag.client != self.number) {
                self.object("I1", format!("got a notice of {tag:?}"), context);
            }
            return;
        }
        if kind == b'A' {
            let front = shadow.front();
            let found = wild.heard.take(
                body,
                front,
                (self.number, self.key.map(|key| key.0)),
                self.login.database(),
                context.checker,
            );
            if let Err(text) = found {
                self.object("I21", text, context);
            }
            return;
        }
        let fatal = kind == b'E' && error_field(body, b'S') != Some(b"ERROR");
        if let Some((asked, found)) = shadow.front().and_then(|due| due.found_instead(kind, body)) {
            shadow.find(asked, found);
        }
        let found = shadow.front().map_or_else(|| Err("nothing more".to_owned()), |due| due.fits(kind, body));
        match found {
            Ok(()) => {}
            Err(_) if fatal => {
                let tolerated = self.disturbed || wild.asked_for_it();
                if context.fair && !tolerated {
                    let words = String::from_utf8_lossy(error_field(body, b'M').unwrap_or(b"")).into_owned();
                    self.object("unfair", format!("got FATAL {words}"), context);
                }
                return self.leave_wild(wild, context);
            }
            Err(expected) => {
                let invariant = broken(kind, body, shadow.front());
                let habit = wild.script.habit();
                let found = crate::corpus::line(kind, body);
                let text = format!("({habit:?}) got `{found}` where PostgreSQL sends {expected}");
                return self.object(invariant, text, context);
            }
        }
        let Some(answer) = shadow.pop() else { return };
        wild.applied.extend(answer.committed.iter().copied());
        context.checker.acknowledged.extend(answer.committed.iter().copied());
        if fatal {
            return self.leave_wild(wild, context);
        }
        let is_last = shadow.front().is_none();
        if let Err(text) = wild.heard.answered(&answer, is_last, context.checker) {
            return self.object("I21", text, context);
        }
        let Some(parameters) = answer.parameters else { return };
        for (name, value) in parameters {
            let told = self.view.told(name);
            if told != value {
                let text = format!("{name} is `{value}` in PostgreSQL, told was `{told}`");
                return self.object("I4", text, context);
            }
        }
    }

    /// The session is over: what is known of its rows.
    pub(super) fn leave_wild(&mut self, wild: &Wild, context: &mut ClientContext<'_>) {
        for request in 1..=wild.script.requests() {
            let tag = Tag { client: self.number, request };
            let claim = if wild.applied.contains(&tag) {
                Claim::Applied
            } else if wild.shadow.as_ref().is_some_and(|shadow| shadow.ledger.times(tag) > 0) {
                Claim::Unknown
            } else {
                Claim::NotApplied
            };
            context.checker.claim(tag, claim);
        }
        self.phase = Phase::Over;
        self.waiting_since_us = None;
    }
}

/// A query string resets settings.
fn resets(words: &str) -> bool {
    words.contains("RESET") || words.contains("TO DEFAULT")
}

/// Weir's own warning of a quota; PostgreSQL has others with this code.
fn is_quota_warning(body: &[u8]) -> bool {
    let words = String::from_utf8_lossy(error_field(body, b'M').unwrap_or(b"")).into_owned();
    error_field(body, b'C') == Some(b"01000") && words.starts_with("quota of ")
}

fn is_chatter(body: &[u8]) -> bool {
    let words = error_field(body, b'M').unwrap_or(b"");
    error_field(body, b'C') == Some(b"57P02") || CHATTER.iter().any(|known| words.starts_with(known))
}

/// Which invariant a wrong answer breaks.
fn broken(kind: u8, body: &[u8], due: Option<&Answer>) -> &'static str {
    match (kind, error_field(body, b'C').filter(|_| kind == b'E')) {
        (_, Some(b"57014")) => "I5",
        (_, Some(b"26000" | b"42P05" | b"0A000")) => "I9",
        (b'Z', _) if due.is_none_or(|due| due.kind != b'Z') => "I3",
        (b'D', _) if due.is_some_and(|due| due.kind == b'D' || due.asked.is_some()) => "I4",
        (b'E', _) if due.is_some_and(|due| due.asked.is_some()) => "I4",
        _ => "I1",
    }
}

impl Answer {
    /// Whether this is what came, or what is expected instead.
    fn fits(&self, kind: u8, body: &[u8]) -> Result<(), String> {
        let same = self.kind == kind
            && match kind {
                b'E' | b'N' => {
                    // An error may be that of the Parse that a pooler had to send again.
                    let tag = |body| {
                        error_field(body, b'M').and_then(Tag::in_brackets).map(|tag| match kind {
                            b'E' => Tag { request: 0, ..tag },
                            _ => tag,
                        })
                    };
                    let own =
                        tag(body).is_none() || tag(&self.body).is_none() || tag(body) == tag(&self.body);
                    let field = |name| error_field(body, name) == error_field(&self.body, name);
                    // The statement may have to be prepared first, which a failed block refuses.
                    let refused = error_field(body, b'C') == Some(b"25P02");
                    let judged = matches!(error_field(&self.body, b'C'), Some(b"42P05" | b"08P01"));
                    own && (field(b'C') || refused && judged) && field(b'V')
                }
                b'D' => value(body) == value(&self.body) || self.promises_nothing(),
                _ => self.body == body,
            };
        if same {
            Ok(())
        } else {
            Err(format!("`{}` {}", crate::corpus::line(self.kind, &self.body), self.words()))
        }
    }

    /// What a client has found that may find something else than in PostgreSQL alone, if it has.
    fn found_instead(&self, kind: u8, body: &[u8]) -> Option<(AskedValue, Found)> {
        let asked = self.asked?;
        let is_undefined = kind == b'E' && error_field(body, b'C') == Some(b"55000");
        let found = match (self.kind, kind) {
            (b'D', b'E') if is_undefined && asked.promise != Promise::AsPostgresql => Found::Undefined,
            (b'E', b'D') if asked.promise == Promise::Nothing => Found::Value,
            _ => return None,
        };
        Some((asked, found))
    }

    fn promises_nothing(&self) -> bool {
        self.asked.is_some_and(|asked| asked.promise == Promise::Nothing)
    }

    fn words(&self) -> String {
        match self.kind {
            b'D' => value(&self.body).join("|"),
            b'E' => String::from_utf8_lossy(error_field(&self.body, b'M').unwrap_or(b"")).into_owned(),
            _ => String::new(),
        }
    }
}

/// The parts of a row, but for the number of the server process.
fn value(body: &[u8]) -> Vec<String> {
    let mut fields = Fields(body);
    fields.short();
    let text = String::from_utf8_lossy(fields.value().unwrap_or(b"")).into_owned();
    let mut parts: Vec<String> = text.split('|').map(str::to_owned).collect();
    if parts.len() > 1 {
        parts.remove(1);
    }
    parts
}
